//! Which lines are listed for the artifacts of a trail: all, up to a limit, and from then on those that no other artifact
//! has shown. What the same is said and asked of is evaluated once.

use std::collections::{BTreeMap, BTreeSet};

use super::scopes::Scopes;
use super::{
    ArtifactStatus, AttestationStatus, ReportedArtifact, ScopeStatus, Subject, expected_of, reported_status,
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
    /// What the attestations of one artifact come to is the same for all of which the same is said, and asked: by what
    /// attestations call it, and by its name where something is asked of that.
    pub(super) known: BTreeMap<(Vec<Subject<'a>>, String), ArtifactLines>,
}

/// What was said of an artifact, once.
pub(super) struct ArtifactLines {
    /// With those lines that may still be listed: all of them, or those of what is missing.
    pub(super) own: ScopeStatus,
    /// How many lines there are in all.
    lines: usize,
}

impl Default for Listing<'_> {
    fn default() -> Self {
        Self { left: MAX_LINES, listed: BTreeSet::new(), known: BTreeMap::new() }
    }
}

impl<'a> Listing<'a> {
    /// How the artifact stands, with the lines that are still to be listed.
    pub(super) fn of(
        &mut self,
        template: &Template,
        trail: &ScopeStatus,
        artifact: &ReportedArtifact,
        scopes: &Scopes<'a>,
    ) -> ArtifactStatus {
        let expected = expected_of(template, &artifact.name);
        let name = if expected.is_empty() { String::new() } else { artifact.name.clone() };
        let Self { left, listed, known } = self;
        let known = known.entry((scopes.subjects(artifact), name)).or_insert_with_key(|(subjects, _)| {
            let own = ScopeStatus::new(expected, &scopes.about(subjects));
            ArtifactLines { lines: own.lines.len(), own }
        });
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
        reported_status(template, trail, artifact, &known.own, lines)
    }
}

impl AttestationStatus {
    /// The ids of the attestation and of its override.
    fn ids(&self) -> (Option<String>, Option<String>) {
        (self.attestation_id.clone(), self.override_id.clone())
    }
}
