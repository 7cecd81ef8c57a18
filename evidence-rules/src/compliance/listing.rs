//! Selects the lines that are listed for the artifacts of a trail. Up to a limit it lists all lines; beyond
//! that, only lines that no other artifact has listed. Content with the same attestations and requirements is
//! evaluated once.

use std::collections::{BTreeMap, BTreeSet};

use super::scopes::{Reports, Scopes};
use super::{
    ArtifactStatus, AttestationStatus, ByName, ReportedArtifact, ScopeStatus, Subject, expected_by,
    expected_of, reported_status,
};
use crate::template::Template;

/// Maximum number of lines of a trail's artifacts before lines are no longer repeated. An attestation may
/// refer to many artifacts, so without a limit the lines would grow with the product of both.
pub(super) const MAX_LINES: usize = 100_000;

/// The state of listing the artifacts of a trail.
pub(super) struct Listing<'a> {
    /// The number of lines that may still be repeated.
    left: usize,
    /// The lines already listed, by the ids of the attestation and of its override.
    listed: BTreeSet<(Option<String>, Option<String>)>,
    /// The evaluated content. Content with the same attestations and requirements shares an entry.
    pub(super) known: Vec<ArtifactLines<'a>>,
    /// Positions in `known`, by the inputs of the evaluation.
    alike: BTreeMap<Alike<'a>, usize>,
    /// Positions in `known`, by fingerprint.
    places: BTreeMap<&'a str, usize>,
}

/// The inputs that determine the lines of content.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Alike<'a> {
    /// The subjects by which attestations refer to the content.
    subjects: Vec<Subject<'a>>,
    /// The names of the content for which the template has requirements.
    asked: Vec<&'a str>,
    is_expected: bool,
    called: Option<&'a str>,
}

/// The evaluation of content.
pub(super) struct ArtifactLines<'a> {
    /// The scope, with those lines that may still be listed: all of them, or only the missing ones.
    pub(super) own: ScopeStatus,
    by_name: ByName<'a>,
    /// The number of lines before any were removed.
    lines: usize,
}

impl Default for Listing<'_> {
    fn default() -> Self {
        let (listed, known) = (BTreeSet::new(), Vec::new());
        Self { left: MAX_LINES, listed, known, alike: BTreeMap::new(), places: BTreeMap::new() }
    }
}

impl<'a> Listing<'a> {
    /// Returns the position in `known` of reported content, which it evaluates on first use.
    fn place(&mut self, template: &Template, fingerprint: &'a str, reports: &Reports<'a>) -> usize {
        if let Some(place) = self.places.get(fingerprint) {
            return *place;
        }
        let none = BTreeSet::new();
        let names = reports.names(fingerprint).unwrap_or(&none);
        let is_asked = |name: &&str| !expected_of(template, name).is_empty();
        let asked = Vec::from_iter(names.iter().copied().filter(is_asked));
        let subjects = reports.subjects_of_content(fingerprint);
        let is_expected = names.iter().any(|name| template.artifact(name).is_some());
        let called = names.iter().copied().find(|name| !name.is_empty());
        let known = self.known.len();
        let alike = Alike { subjects: subjects.clone(), asked, is_expected, called };
        let place = *self.alike.entry(alike).or_insert(known);
        if place == known {
            let own = ScopeStatus::new(expected_by(template, names), &reports.about(&subjects));
            let by_name = ByName::of(template, names, &own);
            self.known.push(ArtifactLines { lines: own.lines.len(), by_name, own });
        }
        self.places.insert(fingerprint, place);
        place
    }

    /// Returns the status of the artifact, with the lines that are still to be listed.
    pub(super) fn of(
        &mut self,
        template: &Template,
        trail: &ScopeStatus,
        artifact: &'a ReportedArtifact,
        scopes: &Scopes<'a>,
    ) -> Option<ArtifactStatus> {
        let place = self.place(template, &artifact.fingerprint, &scopes.reports);
        let Self { left, listed, known, .. } = self;
        let known = known.get_mut(place)?;
        let may_repeat = known.lines <= *left;
        *left = left.saturating_sub(known.lines);
        let lines = if may_repeat {
            listed.extend(known.own.lines.iter().map(AttestationStatus::ids));
            known.own.lines.clone()
        } else {
            // Lines that one artifact lists are dropped for the next one, because the limit is reached.
            let is_missing = |line: &AttestationStatus| line.attestation_id.is_none();
            let missing = known.own.lines.iter().filter(|line| is_missing(line)).cloned().collect();
            let mut lines = std::mem::replace(&mut known.own.lines, missing);
            lines.retain(|line| is_missing(line) || listed.insert(line.ids()));
            // The response holds these lines until it is sent.
            lines.shrink_to_fit();
            lines
        };
        Some(reported_status(template, trail, artifact, (&known.own, &known.by_name), lines))
    }
}

impl AttestationStatus {
    /// Returns the ids of the attestation and of its override.
    fn ids(&self) -> (Option<String>, Option<String>) {
        (self.attestation_id.clone(), self.override_id.clone())
    }
}
