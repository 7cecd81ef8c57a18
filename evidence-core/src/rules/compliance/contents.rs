//! The states of many artifacts of a trail, and of content whatever it is called there, in one pass over what was
//! reported.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use super::scopes::{Reports, newest_by_slot};
use super::{
    AttestationStatus, ReportedArtifact, ReportedAttestation, ScopeStatus, State, Subject, expected_of,
    verdict,
};
use crate::rules::template::Template;

/// The states of all these reports of artifacts by content and name, as [`evaluate_artifact`](super::evaluate_artifact)
/// says of each: what was reported is gone through once, however many artifacts there are.
pub fn artifact_states<'a>(
    template: &Template,
    artifacts: &'a [ReportedArtifact],
    attestations: &'a [ReportedAttestation],
) -> BTreeMap<(&'a str, &'a str), State> {
    let reports = Reports::new(artifacts, attestations);
    let trail = ScopeStatus::new(&template.attestations, &reports.on_trail);
    let mut states = BTreeMap::new();
    for (fingerprint, names) in names_by_content(artifacts) {
        let about = reports.about(&reports.subjects_with_attestations(fingerprint));
        let state = |expected| verdict(template, [ScopeStatus::new(expected, &about).state, trail.state]);
        let unexpected = state(&[]);
        states.extend(names.into_iter().map(|name| {
            let expected = expected_of(template, name);
            ((fingerprint, name), if expected.is_empty() { unexpected } else { state(expected) })
        }));
    }
    states
}

/// What was reported to a trail, by the content that it is about: gone through once, it tells of any artifact at the cost
/// of what is about that one.
#[derive(Debug, Default)]
pub(crate) struct ByContent {
    attestations: Vec<ReportedAttestation>,
    /// Those of the trail, by their places.
    on_trail: Vec<usize>,
    /// Those about each content, by their places: a list for each thing that they call it.
    about: BTreeMap<String, Vec<Arc<[usize]>>>,
    /// How the trail itself stands, once somebody asked.
    trail: OnceLock<State>,
}

impl ByContent {
    /// Of all that was reported to a trail, in any order.
    pub(crate) fn new(artifacts: &[ReportedArtifact], attestations: Vec<ReportedAttestation>) -> Self {
        let mut on_trail = Vec::new();
        let mut places: BTreeMap<Subject<'_>, Vec<usize>> = BTreeMap::new();
        for (place, attestation) in attestations.iter().enumerate() {
            match attestation.binding.subject() {
                None => on_trail.push(place),
                Some(subject) => places.entry(subject).or_default().push(place),
            }
        }
        let places: BTreeMap<_, Arc<[usize]>> =
            places.into_iter().map(|(subject, places)| (subject, places.into())).collect();
        let mut called: BTreeMap<&str, BTreeSet<Subject<'_>>> = BTreeMap::new();
        for artifact in artifacts {
            let subjects = artifact.subjects().filter(|subject| places.contains_key(subject));
            called.entry(&artifact.fingerprint).or_default().extend(subjects);
        }
        let of = |subjects: BTreeSet<_>| subjects.iter().filter_map(|one| places.get(one).cloned()).collect();
        let about =
            called.into_iter().map(|(content, subjects)| (content.to_owned(), of(subjects))).collect();
        Self { attestations, on_trail, about, trail: OnceLock::new() }
    }

    /// The places of the attestations that are about this content, in order.
    pub(crate) fn about(&self, fingerprint: &str) -> Vec<usize> {
        let lists = self.about.get(fingerprint).into_iter().flatten();
        let mut places = Vec::from_iter(lists.flat_map(|list| list.iter().copied()));
        places.sort_unstable();
        places
    }

    /// How many there are.
    pub(crate) fn count(&self, fingerprint: &str) -> usize {
        self.about.get(fingerprint).into_iter().flatten().map(|list| list.len()).sum()
    }

    /// How many more [`state`](Self::state) goes through: those of the trail, and what is asked of it, once.
    pub(crate) fn unevaluated(&self, template: &Template) -> usize {
        if self.trail.get().is_some() { 0 } else { self.on_trail.len() + template.attestations.len() }
    }

    /// The state of a report of this content by this name, as [`evaluate_artifact`](super::evaluate_artifact) says of it; the
    /// template is the trail's.
    pub(crate) fn state(&self, template: &Template, fingerprint: &str, name: &str) -> State {
        let evaluate = |expected, places: &[usize]| {
            let at = places.iter().filter_map(|place| self.attestations.get(*place));
            ScopeStatus::new(expected, &Vec::from_iter(at)).state
        };
        let own = evaluate(expected_of(template, name), &self.about(fingerprint));
        let trail = || evaluate(&template.attestations, &self.on_trail);
        // A template that cannot be read now may be put right meanwhile.
        let trail = if template.unreadable().is_some() { trail() } else { *self.trail.get_or_init(trail) };
        verdict(template, [own, trail])
    }
}

/// Every name that each content was reported under.
fn names_by_content(artifacts: &[ReportedArtifact]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for artifact in artifacts {
        names.entry(&artifact.fingerprint).or_default().insert(&artifact.name);
    }
    names
}

/// How content stands in a trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContentStatus<'a, L> {
    /// The worst of the verdicts on all that it is there.
    pub(crate) state: State,
    /// Its attestations, a list for each thing that it is there, and those of the trail.
    pub(crate) attestations: Vec<L>,
    /// The name by which it is in that state, where that of its newest report would leave it in a better one.
    pub(crate) worse_as: Option<&'a str>,
    /// Whether that cannot be said, for more would have to be gone through than [`MAX_LINES`].
    pub(crate) is_too_much: bool,
}

/// So many attestations are gone through for what is asked about of one trail, each once for all of which the same is said
/// and asked. An attestation may be about much content, so that the lists could be as many as one's number times the other's.
pub(crate) const MAX_LINES: usize = 1_000_000;

/// How content that was reported to a trail stands there, by fingerprint: by all that it is in the trail, for what is asked
/// of it under one name is asked of the same content, however it is reported next. It has each name that nothing else was
/// reported under since, and the last that it was given: a report without a name gives it no other. What has no name in the
/// trail has the one that comes with it in `content`, where that is not empty: the last that it was given before.
///
/// What was reported is gone through once, however much content is asked about; `keep` takes the lines of a list, which
/// are the same for all to which the same attestations apply, and what was reported there. What comes after `most` lines is
/// incomplete.
pub(crate) fn content_statuses<'a, L: Clone>(
    template: &Template,
    artifacts: &'a [ReportedArtifact],
    attestations: &'a [ReportedAttestation],
    content: &BTreeMap<&str, &'a str>,
    most: usize,
    keep: impl Fn(Vec<AttestationStatus>, &[&ReportedAttestation]) -> L,
) -> BTreeMap<&'a str, ContentStatus<'a, L>> {
    let reports = Reports::new(artifacts, attestations);
    let ScopeStatus { lines, state: of_trail, .. } =
        ScopeStatus::new(&template.attestations, &reports.on_trail);
    let on_trail = keep(lines, &reports.on_trail);
    let mut alike: BTreeMap<Vec<Subject<'_>>, BTreeMap<&str, (State, L)>> = BTreeMap::new();
    let (mut statuses, mut left) = (BTreeMap::new(), most);
    for (fingerprint, mut names) in names(artifacts, content) {
        let is_unnamed = names.iter().all(|name| name.is_empty());
        let before = content.get(fingerprint).copied().filter(|name| is_unnamed && !name.is_empty());
        names.extend(before);
        let mut about = reports.subjects_with_attestations(fingerprint);
        about.extend(before.into_iter().flat_map(|name| reports.built(fingerprint, name)));
        let alike = alike.entry(about.clone()).or_default();
        let newest = reports.newest.get(fingerprint).map(|newest| newest.name.as_str());
        let own = names.iter().map(|&name| {
            let expected = expected_of(template, name);
            // All names of which nothing is expected are alike.
            let key = if expected.is_empty() { "" } else { name };
            if let Some(known) = alike.get(key) {
                return Some(known.clone());
            }
            let reported = reports.about(&about);
            left = left.checked_sub(reported.len())?;
            let ScopeStatus { lines, state, .. } = ScopeStatus::new(expected, &reported);
            let own = (state, keep(lines, &reported));
            alike.insert(key, own.clone());
            Some(own)
        });
        let Some(own) = own.collect::<Option<Vec<(State, L)>>>() else {
            let (state, attestations) = (State::Incomplete, Vec::new());
            statuses.insert(
                fingerprint,
                ContentStatus { state, attestations, worse_as: None, is_too_much: true },
            );
            continue;
        };
        let (states, mut attestations): (Vec<State>, Vec<L>) = own.into_iter().unzip();
        attestations.push(on_trail.clone());
        let state = verdict(template, states.iter().copied().chain([of_trail]));
        let by = |(_, own): &(_, State)| verdict(template, [*own, of_trail]) == state;
        let deciding = || names.iter().copied().zip(states.iter().copied()).filter(by).map(|(name, _)| name);
        let is_newest = deciding().any(|name| Some(name) == newest);
        let worse_as = deciding().next().filter(|_| !is_newest);
        let status = ContentStatus { state, attestations, worse_as, is_too_much: false };
        statuses.insert(fingerprint, status);
    }
    statuses
}

/// What this content is called in the trail: see [`content_statuses`].
fn names<'a>(
    artifacts: &'a [ReportedArtifact],
    content: &BTreeMap<&str, &str>,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut last: BTreeMap<&str, &ReportedArtifact> = BTreeMap::new();
    for artifact in artifacts.iter().filter(|artifact| content.contains_key(artifact.fingerprint.as_str())) {
        let last = last.entry(&artifact.fingerprint).or_insert(artifact);
        if (!artifact.name.is_empty(), artifact.index) > (!last.name.is_empty(), last.index) {
            *last = artifact;
        }
    }
    let standing = newest_by_slot(artifacts).into_values().map(|newest| newest.artifact);
    let standing = standing.filter(|artifact| content.contains_key(artifact.fingerprint.as_str()));
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for artifact in standing.chain(last.into_values()) {
        names.entry(&artifact.fingerprint).or_default().insert(&artifact.name);
    }
    names
}

#[cfg(test)]
mod tests;
