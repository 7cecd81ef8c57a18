//! Which attestations are of which artifact, and of which report of it.

use std::collections::{BTreeMap, BTreeSet};

use super::{ReportedArtifact, ReportedAttestation, Subject};
use crate::rules::template::Template;

/// What names a reported artifact: nothing but its content where it has no template name. The two are kept apart, for a
/// template name may spell a fingerprint, and must not replace what has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot<'a> {
    Named(&'a str),
    Content(&'a str),
}

/// Which attestations are of which scope. An attestation about artifacts is of each one that is
/// the newest of its name, or the same content; of none where all it is about were replaced; and
/// where it is about nothing that was ever reported, it waits.
pub(super) struct Scopes<'a> {
    pub(super) trail: Vec<&'a ReportedAttestation>,
    /// The newest of each slot.
    pub(super) reported: BTreeMap<Slot<'a>, Newest<'a>>,
    /// By the name that what they wait for is listed under: the artifact's where that is free, for
    /// those that wait for the commit of the newest of them; else `name@commit`.
    pub(super) waiting: BTreeMap<String, Vec<&'a ReportedAttestation>>,
}

/// The newest report of a slot.
pub(super) struct Newest<'a> {
    pub(super) artifact: &'a ReportedArtifact,
    /// Of its first report.
    pub(super) first_index: u64,
    /// What is about it.
    pub(super) attestations: Vec<&'a ReportedAttestation>,
}

impl<'a> Scopes<'a> {
    pub(super) fn new(artifacts: &'a [ReportedArtifact], attestations: &'a [ReportedAttestation]) -> Self {
        let mut reported = newest_by_slot(artifacts);
        let mut listed: BTreeMap<Subject<'a>, BTreeSet<Slot<'a>>> = BTreeMap::new();
        for artifact in artifacts {
            let slot = artifact.slot();
            let stands = reported.get(&slot).is_some_and(|newest| newest.artifact.is_same_as(artifact));
            for subject in artifact.subjects() {
                listed.entry(subject).or_default().extend(stands.then_some(slot));
            }
        }
        let mut trail = Vec::new();
        let mut waiting: BTreeMap<Subject<'a>, Vec<&ReportedAttestation>> = BTreeMap::new();
        for attestation in attestations {
            let Some(subject) = attestation.binding.subject() else {
                trail.push(attestation);
                continue;
            };
            let Some(slots) = listed.get(&subject) else {
                waiting.entry(subject).or_default().push(attestation);
                continue;
            };
            for slot in slots {
                if let Some(newest) = reported.get_mut(slot) {
                    newest.attestations.push(attestation);
                }
            }
        }
        let waiting = named(waiting, &reported);
        Self { trail, reported, waiting }
    }
}

/// Those that wait, by the names that what they wait for is listed under.
fn named<'a>(
    waiting: BTreeMap<Subject<'a>, Vec<&'a ReportedAttestation>>,
    reported: &BTreeMap<Slot<'_>, Newest<'_>>,
) -> BTreeMap<String, Vec<&'a ReportedAttestation>> {
    let newest = |scope: &[&ReportedAttestation]| scope.iter().map(|attestation| attestation.index).max();
    let mut by_age = Vec::from_iter(waiting);
    by_age.sort_by_key(|(_, scope)| std::cmp::Reverse(newest(scope)));
    let mut named = BTreeMap::new();
    for (subject, scope) in by_age {
        let (name, commit) = match subject {
            Subject::Content(fingerprint) => (fingerprint, ""),
            Subject::Built(name, commit) => (name, commit),
        };
        let is_reported =
            [Slot::Named(name), Slot::Content(name)].iter().any(|slot| reported.contains_key(slot));
        let is_free = !is_reported && !named.contains_key(name);
        named.insert(if is_free { name.to_owned() } else { format!("{name}@{commit}") }, scope);
    }
    named
}

/// The fingerprints, of artifacts without a name, that are names of other artifacts too.
pub(super) fn named_like_content(
    template: &Template,
    reported: &BTreeMap<Slot<'_>, Newest<'_>>,
) -> BTreeSet<String> {
    let is_name = |name| template.artifact(name).is_some() || reported.contains_key(&Slot::Named(name));
    let spelled = reported.keys().filter_map(|slot| match slot {
        Slot::Content(fingerprint) if is_name(fingerprint) => Some((*fingerprint).to_owned()),
        _ => None,
    });
    spelled.collect()
}

/// The newest report of each slot, nothing being said of it yet.
pub(super) fn newest_by_slot(artifacts: &[ReportedArtifact]) -> BTreeMap<Slot<'_>, Newest<'_>> {
    let mut newest = BTreeMap::new();
    for artifact in artifacts {
        let first = Newest { artifact, first_index: artifact.index, attestations: Vec::new() };
        let kept = newest.entry(artifact.slot()).or_insert(first);
        kept.first_index = artifact.index.min(kept.first_index);
        if artifact.index > kept.artifact.index {
            kept.artifact = artifact;
        }
    }
    newest
}
