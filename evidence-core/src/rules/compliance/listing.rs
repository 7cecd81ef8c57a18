//! Which lines are listed for the artifacts of a trail: all, up to a limit, and from then on those that no other artifact
//! has shown. What the same is said and asked of is evaluated once.

use std::collections::{BTreeMap, BTreeSet};

use super::scopes::{Reports, Scopes};
use super::{
    ArtifactStatus, AttestationStatus, ByName, ReportedArtifact, ScopeStatus, Subject, expected_by,
    expected_of, reported_status,
};
use crate::rules::template::Template;

/// How many lines the artifacts of a trail have before none is repeated. An attestation may be about many artifacts, so
/// that the lines of a trail could be as many as one's number times the other's.
pub(super) const MAX_LINES: usize = 100_000;

/// What is listed for the artifacts of a trail.
pub(super) struct Listing<'a> {
    /// How many lines may still be repeated.
    left: usize,
    /// What the lines say, by the ids of the attestation and of its override.
    listed: BTreeSet<(Option<String>, Option<String>)>,
    /// What the attestations of content come to, which is the same for all of which the same is said, and asked.
    pub(super) known: Vec<ArtifactLines<'a>>,
    /// The places of these.
    alike: BTreeMap<Alike<'a>, usize>,
    /// The same by content.
    places: BTreeMap<&'a str, usize>,
}

/// What content is told apart by in what is said of it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Alike<'a> {
    /// What attestations call it.
    subjects: Vec<Subject<'a>>,
    /// Those of its names of which something is asked.
    asked: Vec<&'a str>,
    is_expected: bool,
    called: Option<&'a str>,
}

/// What was said of content, once.
pub(super) struct ArtifactLines<'a> {
    /// With those lines that may still be listed: all of them, or those of what is missing.
    pub(super) own: ScopeStatus,
    by_name: ByName<'a>,
    /// How many lines there are in all.
    lines: usize,
}

impl Default for Listing<'_> {
    fn default() -> Self {
        let (listed, known) = (BTreeSet::new(), Vec::new());
        Self { left: MAX_LINES, listed, known, alike: BTreeMap::new(), places: BTreeMap::new() }
    }
}

impl<'a> Listing<'a> {
    /// The place of what is known of content that was reported.
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

    /// How the artifact stands, with the lines that are still to be listed.
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
            // What is listed for one artifact is not kept for the next: the lines of all are as many as they may be.
            let is_missing = |line: &AttestationStatus| line.attestation_id.is_none();
            let missing = known.own.lines.iter().filter(|line| is_missing(line)).cloned().collect();
            let mut lines = std::mem::replace(&mut known.own.lines, missing);
            lines.retain(|line| is_missing(line) || listed.insert(line.ids()));
            // The answer holds them as long as it lasts.
            lines.shrink_to_fit();
            lines
        };
        Some(reported_status(template, trail, artifact, (&known.own, &known.by_name), lines))
    }
}

impl AttestationStatus {
    /// The ids of the attestation and of its override.
    fn ids(&self) -> (Option<String>, Option<String>) {
        (self.attestation_id.clone(), self.override_id.clone())
    }
}
