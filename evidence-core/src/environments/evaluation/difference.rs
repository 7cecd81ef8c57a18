//! The difference between running artifacts and the latest snapshot, and whether it requires a new snapshot.

use std::collections::{BTreeMap, BTreeSet};

use super::verdicts::EvaluatedArtifact;
use crate::environments::last_evaluation::ArtifactEvaluation;
use crate::environments::observed::ObservedArtifact;
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::record::{Annotation, RunningArtifact};

/// The changes that a snapshot would record.
#[derive(Debug, PartialEq)]
pub(super) struct Difference {
    /// Instances that started running, or whose data differ.
    pub(super) changes: Vec<RunningArtifact>,
    /// Artifacts that stopped running.
    pub(super) exits: Vec<ArtifactKey>,
    /// Whether a snapshot is required: something started, exited, got an additional name, or differs in more
    /// than counts, times, names and context.
    pub(super) has_events: bool,
}

pub(super) fn difference(
    open: &BTreeMap<ArtifactKey, RunningArtifact>,
    evaluated: &[EvaluatedArtifact],
    index: u64,
) -> Difference {
    let running: BTreeSet<&ArtifactKey> = evaluated.iter().map(|artifact| &artifact.key).collect();
    let exits: Vec<ArtifactKey> = open.keys().filter(|key| !running.contains(key)).cloned().collect();
    let mut has_events = !exits.is_empty();
    let mut changes = Vec::new();
    for artifact in evaluated {
        let before = open.get(&artifact.key);
        let change = before.map_or(Change::started(artifact), |before| Change::between(before, artifact));
        has_events |= change != Change::Unchanged;
        if change != Change::Unchanged
            || before.is_some_and(|before| is_described_differently(before, artifact))
        {
            changes.push(artifact.instance(change, before, index));
        }
    }
    Difference { changes, exits, has_events }
}

fn is_described_differently(before: &RunningArtifact, now: &EvaluatedArtifact) -> bool {
    let now = &now.observed;
    let names = (before.name != now.name) || (before.other_names != now.other_names);
    names || before.created != now.created || before.context != now.context
}

/// Returns whether it runs under more names than in the latest snapshot. Policies evaluate each name. A new
/// name that replaces the only one does not count.
fn has_more_names(before: &RunningArtifact, now: &ObservedArtifact) -> bool {
    let known = |name: &str| name == before.name || before.other_names.iter().any(|other| other == name);
    let is_renamed = before.other_names.is_empty() && now.other_names.is_empty();
    !is_renamed && !now.names().all(known)
}

impl EvaluatedArtifact {
    /// Returns how it differs from the artifact that a snapshot records. Inputs are recorded with the
    /// snapshot in which they first applied.
    pub(super) fn differs_from(&self, recorded: &RunningArtifact, snapshot: u64) -> Option<String> {
        let now = &self.found;
        // The host that recorded it may have had lower limits.
        if recorded.not_evaluated.is_some() {
            return None;
        }
        let same = [
            ("verdict", now.compliant == recorded.compliant),
            ("provenance", now.provenance == recorded.provenance),
            ("policies", now.judged_by == recorded.judged_by),
            ("violated policies", now.violates == recorded.violates),
            ("rules", now.outcomes == recorded.outcomes),
            ("allowlist entry", now.allowed.map(|entry| entry.index) == recorded.allowed_by),
            ("inputs", recorded.from != snapshot || now.inputs == recorded.inputs),
        ];
        let other = Vec::from_iter(same.into_iter().filter(|(_, same)| !same).map(|(what, _)| what));
        (!other.is_empty()).then(|| format!("{}: other {}", recorded.name, other.join(", ")))
    }

    fn instance(&self, change: Change, before: Option<&RunningArtifact>, from: u64) -> RunningArtifact {
        let count = |created: &Vec<i64>| created.len() as u64;
        let found = ArtifactEvaluation::clone(&self.found);
        let ArtifactEvaluation {
            compliant,
            provenance,
            source,
            judged_by,
            violates,
            outcomes,
            inputs,
            not_evaluated,
            allowed,
            ..
        } = found;
        let ObservedArtifact { fingerprint, name, other_names, created, context } = self.observed.clone();
        RunningArtifact {
            annotation: Annotation {
                kind: change.as_str().to_owned(),
                was: before.map_or(0, |before| count(&before.created)),
                now: count(&created),
            },
            fingerprint,
            name,
            other_names,
            created,
            context,
            from,
            since: before.map_or(from, |before| before.since),
            compliant,
            provenance,
            source: source.filter(|_| before.is_none()),
            judged_by,
            violates,
            outcomes,
            inputs,
            not_evaluated,
            allowed_by: allowed.map(|entry| entry.index),
        }
    }
}

/// A change of a running artifact since the latest snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Started(Option<bool>),
    BecameCompliant,
    BecameNonCompliant,
    UpdatedProvenance,
    Changed,
    Unchanged,
}

impl Change {
    fn started(now: &EvaluatedArtifact) -> Self {
        Self::Started(now.found.compliant)
    }

    fn between(before: &RunningArtifact, now: &EvaluatedArtifact) -> Self {
        let has_more_names = has_more_names(before, &now.observed);
        let now = &now.found;
        match now.compliant {
            Some(true) if before.compliant != Some(true) => Self::BecameCompliant,
            Some(false) if before.compliant != Some(false) => Self::BecameNonCompliant,
            _ if before.provenance != now.provenance => Self::UpdatedProvenance,
            _ if has_more_names
                || before.compliant != now.compliant
                || before.judged_by != now.judged_by
                || before.violates != now.violates
                || before.outcomes != now.outcomes
                || before.not_evaluated != now.not_evaluated
                || before.allowed_by != now.allowed.map(|entry| entry.index) =>
            {
                Self::Changed
            }
            _ => Self::Unchanged,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Started(compliant) => Annotation::started(compliant),
            Self::BecameCompliant => "became-compliant",
            Self::BecameNonCompliant => "became-non-compliant",
            Self::UpdatedProvenance => "updated-provenance",
            Self::Changed => "changed",
            Self::Unchanged => Annotation::UNCHANGED,
        }
    }
}
