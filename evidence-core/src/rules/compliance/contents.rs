//! The states of many artifacts of a trail, and of content whatever it is called there, in one pass over what was
//! reported.

use std::collections::{BTreeMap, BTreeSet};

use super::scopes::newest_by_slot;
use super::{
    AttestationStatus, ReportedArtifact, ReportedAttestation, Standing, State, Subject, expected_of, verdict,
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
    let trail = Standing::new(&template.attestations, &reports.on_trail);
    let state = |name: &str, about: &[Subject<'_>]| {
        let own = Standing::new(expected_of(template, name), &reports.about(about));
        verdict(template, [own.state, trail.state])
    };
    reports.named().map(|(of, about)| (of, state(of.1, &about))).collect()
}

/// How content stands in a trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentStatus<L> {
    /// The worst of the verdicts on all that it is there.
    pub state: State,
    /// Its attestations, a list for each thing that it is there, and those of the trail.
    pub attestations: Vec<L>,
}

/// How content that was reported to a trail stands there, by fingerprint: by all that it is in the trail, for what is asked
/// of it under one name is asked of the same content, however it is reported next. It has each name that nothing else was
/// reported under since, and the last that it was given: a report without a name gives it no other.
///
/// What was reported is gone through once, however much content is asked about; `keep` takes the lines of a list, which
/// are the same for all to which the same attestations apply.
pub fn content_statuses<'a, L: Clone>(
    template: &Template,
    artifacts: &'a [ReportedArtifact],
    attestations: &'a [ReportedAttestation],
    content: &BTreeSet<&str>,
    keep: impl Fn(Vec<AttestationStatus>) -> L,
) -> BTreeMap<&'a str, ContentStatus<L>> {
    let reports = Reports::new(artifacts, attestations);
    let Standing { lines, state: of_trail, .. } = Standing::new(&template.attestations, &reports.on_trail);
    let on_trail = keep(lines);
    let mut alike: BTreeMap<(&str, Vec<Subject<'_>>), (State, L)> = BTreeMap::new();
    let mut statuses = BTreeMap::new();
    for (fingerprint, names) in names(artifacts, content) {
        let own = names.into_iter().map(|name| {
            let about = reports.subjects_with_attestations(fingerprint, name);
            let of_one = alike.entry((name, about)).or_insert_with_key(|(name, about)| {
                let Standing { lines, state, .. } =
                    Standing::new(expected_of(template, name), &reports.about(about));
                (state, keep(lines))
            });
            of_one.clone()
        });
        let (states, mut attestations): (Vec<State>, Vec<L>) = own.unzip();
        attestations.push(on_trail.clone());
        let state = verdict(template, states.into_iter().chain([of_trail]));
        statuses.insert(fingerprint, ContentStatus { state, attestations });
    }
    statuses
}

/// What this content is called in the trail: see [`content_statuses`].
fn names<'a>(
    artifacts: &'a [ReportedArtifact],
    content: &BTreeSet<&str>,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut last: BTreeMap<&str, &ReportedArtifact> = BTreeMap::new();
    for artifact in artifacts.iter().filter(|artifact| content.contains(artifact.fingerprint.as_str())) {
        let last = last.entry(&artifact.fingerprint).or_insert(artifact);
        if (!artifact.name.is_empty(), artifact.index) > (!last.name.is_empty(), last.index) {
            *last = artifact;
        }
    }
    let standing = newest_by_slot(artifacts).into_values().map(|newest| newest.artifact);
    let standing = standing.filter(|artifact| content.contains(artifact.fingerprint.as_str()));
    let mut names: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for artifact in standing.chain(last.into_values()) {
        names.entry(&artifact.fingerprint).or_default().insert(&artifact.name);
    }
    names
}

/// What was reported to a trail, by what it is about.
struct Reports<'a> {
    on_trail: Vec<&'a ReportedAttestation>,
    about: BTreeMap<Subject<'a>, Vec<&'a ReportedAttestation>>,
    /// What attestations may call the artifacts, by content and name.
    subjects: BTreeMap<(&'a str, &'a str), BTreeSet<Subject<'a>>>,
}

impl<'a> Reports<'a> {
    fn new(artifacts: &'a [ReportedArtifact], attestations: &'a [ReportedAttestation]) -> Self {
        let mut reports = Self { on_trail: Vec::new(), about: BTreeMap::new(), subjects: BTreeMap::new() };
        for artifact in artifacts {
            let content_and_name = (artifact.fingerprint.as_str(), artifact.name.as_str());
            reports.subjects.entry(content_and_name).or_default().extend(artifact.subjects());
        }
        for attestation in attestations {
            match attestation.binding.subject() {
                None => reports.on_trail.push(attestation),
                Some(subject) => reports.about.entry(subject).or_default().push(attestation),
            }
        }
        reports
    }

    /// What attestations call this content under this name.
    fn subjects_with_attestations(&self, fingerprint: &str, name: &str) -> Vec<Subject<'a>> {
        let subjects = self.subjects.get(&(fingerprint, name)).into_iter().flatten();
        subjects.filter(|subject| self.about.contains_key(*subject)).copied().collect()
    }

    /// All artifacts by content and name, with what attestations call them.
    fn named(&self) -> impl Iterator<Item = ((&'a str, &'a str), Vec<Subject<'a>>)> {
        self.subjects.keys().map(|of| (*of, self.subjects_with_attestations(of.0, of.1)))
    }

    fn about(&self, subjects: &[Subject<'_>]) -> Vec<&'a ReportedAttestation> {
        subjects.iter().filter_map(|subject| self.about.get(subject)).flatten().copied().collect()
    }
}

#[cfg(test)]
mod tests;
