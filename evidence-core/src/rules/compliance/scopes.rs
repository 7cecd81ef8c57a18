//! Which attestations are of which artifact, and of which report of it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Binding, ReportedArtifact, ReportedAttestation, Subject};
use crate::rules::template::Template;

/// What names a reported artifact: nothing but its content where it has no template name. The two are kept apart, for a
/// template name may spell a fingerprint, and must not replace what has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot<'a> {
    Named(&'a str),
    Content(&'a str),
}

/// Which attestations are of which scope. An attestation about artifacts is of each slot in which content that it is about
/// stands, whatever that is called there; of none where all of it was replaced; and where it is about nothing that was
/// ever reported, it waits.
pub(super) struct Scopes<'a> {
    pub(super) trail: Vec<&'a ReportedAttestation>,
    /// The newest of each slot.
    pub(super) reported: BTreeMap<Slot<'a>, Newest<'a>>,
    /// By the name that what they wait for is listed under: the artifact's where that is free, for
    /// those that wait for the commit of the newest of them; else `name@commit`.
    pub(super) waiting: BTreeMap<String, Vec<&'a ReportedAttestation>>,
}

/// The content that attestations mean, by what they may call it: its fingerprint, and the template name and commit of any
/// of its reports.
pub(super) struct Contents<'a>(BTreeMap<Subject<'a>, BTreeSet<&'a str>>);

impl<'a> Contents<'a> {
    /// Of all artifacts of a trail, in any order.
    pub(super) fn new(artifacts: &'a [ReportedArtifact]) -> Self {
        let mut contents: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        for artifact in artifacts {
            for subject in artifact.subjects() {
                contents.entry(subject).or_default().insert(&artifact.fingerprint);
            }
        }
        Self(contents)
    }

    /// The fingerprints of what is called so; none where nothing was reported as that.
    pub(super) fn called<'s>(&'s self, subject: Subject<'s>) -> Option<&'s BTreeSet<&'a str>> {
        self.0.get(&subject)
    }

    /// The same of what has this binding.
    fn bound<'s>(&'s self, binding: &'s Binding) -> Option<&'s BTreeSet<&'a str>> {
        self.called(binding.subject()?)
    }
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
        let mut slots: BTreeMap<&str, Vec<Slot<'a>>> = BTreeMap::new();
        for (slot, newest) in &reported {
            slots.entry(newest.artifact.fingerprint.as_str()).or_default().push(*slot);
        }
        let contents = Contents::new(artifacts);
        let mut trail = Vec::new();
        let mut waiting: BTreeMap<Subject<'a>, Vec<&ReportedAttestation>> = BTreeMap::new();
        for attestation in attestations {
            let Some(subject) = attestation.binding.subject() else {
                trail.push(attestation);
                continue;
            };
            let Some(called) = contents.called(subject) else {
                waiting.entry(subject).or_default().push(attestation);
                continue;
            };
            for slot in called.iter().filter_map(|content| slots.get(content)).flatten() {
                if let Some(newest) = reported.get_mut(slot) {
                    newest.attestations.push(attestation);
                }
            }
        }
        let waiting = named(waiting, &reported);
        Self { trail, reported, waiting }
    }
}

/// What an attestation of this name and binding overrides where it is recorded next: the newest ordinary one of the name
/// in the scopes that it comes to be in; about content that stands nowhere any more, the newest about the same.
pub fn overridden<'a>(
    name: &str,
    binding: &Binding,
    artifacts: &[ReportedArtifact],
    attestations: &'a [ReportedAttestation],
) -> Option<&'a ReportedAttestation> {
    let contents = Contents::new(artifacts);
    let newest = newest_by_slot(artifacts);
    let standing = BTreeSet::from_iter(newest.values().map(|newest| newest.artifact.fingerprint.as_str()));
    let about = contents.bound(binding).map(|called| {
        let standing = BTreeSet::from_iter(called.intersection(&standing).copied());
        if standing.is_empty() { called.clone() } else { standing }
    });
    let in_scope = |other: &Binding| match (&about, contents.bound(other)) {
        (Some(about), Some(called)) => !about.is_disjoint(called),
        (None, None) => binding.subject() == other.subject(),
        _ => false,
    };
    let of_name = attestations.iter().filter(|one| one.name == name && !one.is_override);
    of_name.filter(|one| in_scope(&one.binding)).max_by_key(|one| one.index)
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
            Subject::Built(name, commit) => (name, commit.told),
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
