//! Assigns attestations to artifacts, and to the reports of each artifact.

use std::collections::{BTreeMap, BTreeSet};

use super::{Binding, EarlierNames, ReportedArtifact, ReportedAttestation, Subject, effective};
use crate::template::Template;

/// The identity of a reported artifact: its template name, or its content if it has no name. They are
/// separate variants because a template name may look like a fingerprint, and must not replace that content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot<'a> {
    Named(&'a str),
    Content(&'a str),
}

/// The scopes of the attestations of a trail.
///
/// An attestation about artifacts belongs to each slot that holds content it refers to, whatever the name of
/// the slot. It belongs to no slot if all that content was replaced. If it refers to nothing that was ever
/// reported, it waits.
///
/// The attestations of a slot are looked up on demand, because one attestation may belong to every slot of
/// the trail.
pub(super) struct Scopes<'a> {
    pub(super) reports: Reports<'a>,
    /// The newest report of each slot.
    pub(super) reported: BTreeMap<Slot<'a>, Newest<'a>>,
    /// Waiting attestations, by the name under which the awaited artifact is listed. If no artifact of that
    /// name is listed, this is the name itself for the subject with the newest waiting attestation. Otherwise
    /// it is `name@commit`.
    pub(super) waiting: BTreeMap<String, Vec<&'a ReportedAttestation>>,
}

/// The newest report of a slot.
pub(super) struct Newest<'a> {
    pub(super) artifact: &'a ReportedArtifact,
    /// The ledger index of the slot's first report.
    pub(super) first_index: u64,
}

impl<'a> Scopes<'a> {
    pub(super) fn new(
        artifacts: &'a [ReportedArtifact],
        attestations: &'a [ReportedAttestation],
        earlier: &'a EarlierNames,
    ) -> Self {
        let mut reports = Reports::new(artifacts, attestations, earlier);
        let reported = newest_by_slot(artifacts);
        let called: BTreeSet<_> = reports.subjects.values().flatten().copied().collect();
        let (about, waiting) =
            std::mem::take(&mut reports.about).into_iter().partition(|(subject, _)| called.contains(subject));
        reports.about = about;
        let waiting = named(waiting, &reported);
        Self { reports, reported, waiting }
    }

    /// Returns the attestations of the trail.
    pub(super) fn on_trail(&self) -> &[&'a ReportedAttestation] {
        &self.reports.on_trail
    }
}

/// The reports of a trail, indexed by subject. They are the inputs of the verdict on any content of the
/// trail.
#[derive(Default)]
pub(super) struct Reports<'a> {
    pub(super) on_trail: Vec<&'a ReportedAttestation>,
    about: BTreeMap<Subject<'a>, Vec<&'a ReportedAttestation>>,
    /// The subjects by which attestations may refer to each content.
    subjects: BTreeMap<&'a str, BTreeSet<Subject<'a>>>,
    /// Every name under which the trail reported each content, and the names that it had before
    /// ([`EarlierNames`]).
    names: BTreeMap<&'a str, BTreeSet<&'a str>>,
    /// The newest report of each content.
    pub(super) newest: BTreeMap<&'a str, &'a ReportedArtifact>,
}

impl<'a> Reports<'a> {
    pub(super) fn new(
        artifacts: &'a [ReportedArtifact],
        attestations: &'a [ReportedAttestation],
        earlier: &'a EarlierNames,
    ) -> Self {
        let mut reports = Self::default();
        for artifact in artifacts {
            let fingerprint = artifact.fingerprint.as_str();
            reports.subjects.entry(fingerprint).or_default().extend(artifact.subjects());
            reports.names.entry(fingerprint).or_default().insert(&artifact.name);
            let newest = reports.newest.entry(fingerprint).or_insert(artifact);
            if artifact.index > newest.index {
                *newest = artifact;
            }
        }
        reports.add_earlier_names(artifacts, earlier);
        for attestation in attestations {
            match attestation.binding.subject() {
                None => reports.on_trail.push(attestation),
                Some(subject) => reports.about.entry(subject).or_default().push(attestation),
            }
        }
        reports.add_failed();
        reports
    }

    /// Adds the names that the flow had given to content before the trail reported it without one. Only names
    /// from before the content's first named report count. Later reports remove none of them.
    fn add_earlier_names(&mut self, artifacts: &'a [ReportedArtifact], earlier: &'a EarlierNames) {
        let mut named = BTreeMap::<&str, u64>::new();
        for artifact in artifacts.iter().filter(|artifact| !artifact.name.is_empty()) {
            let first = named.entry(&artifact.fingerprint).or_insert(artifact.index);
            *first = artifact.index.min(*first);
        }
        for artifact in artifacts.iter().filter(|artifact| artifact.name.is_empty()) {
            let fingerprint = artifact.fingerprint.as_str();
            if named.get(fingerprint).is_some_and(|first| *first < artifact.index) {
                continue;
            }
            let given = earlier.get(fingerprint).into_iter().flatten();
            for (name, _) in given.filter(|(name, first)| !name.is_empty() && **first < artifact.index) {
                self.names.entry(fingerprint).or_default().insert(name);
                self.subjects.entry(fingerprint).or_default().insert(artifact.called(name));
            }
        }
    }

    /// Adds failed attestations for each name under which content without a commit was reported. For each
    /// name and commit, only the effective report of each attestation name counts.
    fn add_failed(&mut self) {
        let called: BTreeSet<_> = self.subjects.values().flatten().copied().collect();
        let mut failed = BTreeMap::<Subject<'a>, Vec<&'a ReportedAttestation>>::new();
        for (subject, reported) in &self.about {
            let Subject::Built(name, _) = *subject else { continue };
            if !called.contains(&Subject::Failed(name)) {
                continue;
            }
            let counting = effective(reported);
            let has_failed = |one: &&&ReportedAttestation| {
                counting.get(one.name.as_str()).is_some_and(|counting| !counting.newest.is_compliant)
            };
            let reported = reported.iter().filter(has_failed).copied();
            failed.entry(Subject::Failed(name)).or_default().extend(reported);
        }
        failed.retain(|_, reported| !reported.is_empty());
        self.about.extend(failed);
    }

    /// Returns the reported content by fingerprint, each with the names under which it has requirements.
    pub(super) fn contents(&self) -> impl Iterator<Item = (&'a str, &BTreeSet<&'a str>)> {
        self.names.iter().map(|(content, names)| (*content, names))
    }

    /// Returns the names under which this content has requirements, or `None` if it was not reported.
    pub(super) fn names(&self, fingerprint: &str) -> Option<&BTreeSet<&'a str>> {
        self.names.get(fingerprint)
    }

    /// Returns the content to which attestations may refer by this subject.
    fn called(&self, subject: Subject<'_>) -> impl Iterator<Item = &'a str> {
        let called = self.subjects.iter().filter(move |(_, subjects)| subjects.contains(&subject));
        called.map(|(content, _)| *content)
    }

    /// Returns the subjects by which attestations of the trail refer to this content.
    pub(super) fn subjects_of_content(&self, fingerprint: &str) -> Vec<Subject<'a>> {
        let subjects = self.subjects.get(fingerprint).into_iter().flatten();
        subjects.filter(|subject| self.about.contains_key(*subject)).copied().collect()
    }

    /// Returns the attestations that refer to these subjects.
    pub(super) fn about(&self, subjects: &[Subject<'_>]) -> Vec<&'a ReportedAttestation> {
        subjects.iter().filter_map(|subject| self.about.get(subject)).flatten().copied().collect()
    }

    /// Returns the attestations of this content.
    pub(super) fn of_content(&self, fingerprint: &str) -> Vec<&'a ReportedAttestation> {
        self.about(&self.subjects_of_content(fingerprint))
    }
}

/// Returns the attestation that an override of this name and binding would replace if it was recorded next.
/// It is the newest ordinary attestation of the name in the scopes that the override belongs to. If the
/// content is in no slot any more, it is the newest one about the same content.
pub fn overridden<'a>(
    name: &str,
    binding: &Binding,
    artifacts: &'a [ReportedArtifact],
    attestations: &'a [ReportedAttestation],
    earlier: &'a EarlierNames,
) -> Option<&'a ReportedAttestation> {
    let reports = Reports::new(artifacts, attestations, earlier);
    let in_scope = match binding.subject() {
        None => reports.on_trail.clone(),
        Some(subject) => {
            let newest = newest_by_slot(artifacts);
            let standing =
                BTreeSet::from_iter(newest.values().map(|newest| newest.artifact.fingerprint.as_str()));
            let (standing, replaced): (Vec<_>, Vec<_>) =
                reports.called(subject).partition(|content| standing.contains(content));
            let about = if standing.is_empty() { replaced } else { standing };
            match about.is_empty() {
                true => reports.about(&[subject]),
                false => about.into_iter().flat_map(|content| reports.of_content(content)).collect(),
            }
        }
    };
    let of_name = in_scope.into_iter().filter(|one| one.name == name && !one.is_override());
    of_name.max_by_key(|one| one.index)
}

/// Returns the waiting attestations by the name under which the awaited artifact is listed.
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
            Subject::Failed(name) => (name, ""),
        };
        let is_reported =
            [Slot::Named(name), Slot::Content(name)].iter().any(|slot| reported.contains_key(slot));
        let is_free = !is_reported && !named.contains_key(name);
        named.insert(if is_free { name.to_owned() } else { format!("{name}@{commit}") }, scope);
    }
    named
}

/// Returns the fingerprints of artifacts without a name that are also names of other artifacts.
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

/// Returns the newest report of each slot.
pub(super) fn newest_by_slot(artifacts: &[ReportedArtifact]) -> BTreeMap<Slot<'_>, Newest<'_>> {
    let mut newest = BTreeMap::new();
    for artifact in artifacts {
        let first = Newest { artifact, first_index: artifact.index };
        let kept = newest.entry(artifact.slot()).or_insert(first);
        kept.first_index = artifact.index.min(kept.first_index);
        if artifact.index > kept.artifact.index {
            kept.artifact = artifact;
        }
    }
    newest
}
