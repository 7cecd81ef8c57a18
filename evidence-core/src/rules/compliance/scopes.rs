//! Which attestations are of which artifact, and of which report of it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Binding, EarlierNames, ReportedArtifact, ReportedAttestation, Subject, effective};
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
///
/// Those of a slot are looked for when it comes to that: one attestation may be of each of the trail's slots.
pub(super) struct Scopes<'a> {
    pub(super) reports: Reports<'a>,
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

    /// The attestations of the trail.
    pub(super) fn on_trail(&self) -> &[&'a ReportedAttestation] {
        &self.reports.on_trail
    }
}

/// What was reported to a trail, by what it is about: what the verdict on any content there rests on.
#[derive(Default)]
pub(super) struct Reports<'a> {
    pub(super) on_trail: Vec<&'a ReportedAttestation>,
    about: BTreeMap<Subject<'a>, Vec<&'a ReportedAttestation>>,
    /// What attestations may call each content.
    subjects: BTreeMap<&'a str, BTreeSet<Subject<'a>>>,
    /// Every name that each content was reported by in the trail, and those that it was given before ([`EarlierNames`]).
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

    /// Adds the names that the flow had given content before the trail reported it without one. Those before its first report
    /// by a name count: what is reported later takes none of them away.
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

    /// Adds what failed by each name that content without a commit was reported by: of each name and commit what counts of
    /// each attestation name.
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

    /// The content that was reported, by fingerprint, each with the names by which it needs something.
    pub(super) fn contents(&self) -> impl Iterator<Item = (&'a str, &BTreeSet<&'a str>)> {
        self.names.iter().map(|(content, names)| (*content, names))
    }

    /// The names by which this content needs something; nothing where it was not reported.
    pub(super) fn names(&self, fingerprint: &str) -> Option<&BTreeSet<&'a str>> {
        self.names.get(fingerprint)
    }

    /// The content that attestations may call so.
    fn called(&self, subject: Subject<'_>) -> impl Iterator<Item = &'a str> {
        let called = self.subjects.iter().filter(move |(_, subjects)| subjects.contains(&subject));
        called.map(|(content, _)| *content)
    }

    /// Those things that attestations call this content.
    pub(super) fn subjects_of_content(&self, fingerprint: &str) -> Vec<Subject<'a>> {
        let subjects = self.subjects.get(fingerprint).into_iter().flatten();
        subjects.filter(|subject| self.about.contains_key(*subject)).copied().collect()
    }

    /// The attestations of what is called so.
    pub(super) fn about(&self, subjects: &[Subject<'_>]) -> Vec<&'a ReportedAttestation> {
        subjects.iter().filter_map(|subject| self.about.get(subject)).flatten().copied().collect()
    }

    /// The attestations of this content.
    pub(super) fn of_content(&self, fingerprint: &str) -> Vec<&'a ReportedAttestation> {
        self.about(&self.subjects_of_content(fingerprint))
    }
}

/// What an attestation of this name and binding overrides where it is recorded next: the newest ordinary one of the name
/// in the scopes that it comes to be in; about content that stands nowhere any more, the newest about the same.
pub(crate) fn overridden<'a>(
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
            Subject::Failed(name) => (name, ""),
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

/// The newest report of each slot.
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
