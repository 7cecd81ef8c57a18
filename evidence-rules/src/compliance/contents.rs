//! Evaluates many artifacts of a trail, or content under all its names there, in one pass over the reports.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use super::scopes::Reports;
use super::{
    AttestationStatus, ByName, EarlierNames, ReportedArtifact, ReportedAttestation, ScopeStatus, State,
    Subject, expected_by, expected_of, verdict,
};
use crate::template::Template;

/// Returns the state of all reported content by fingerprint, and the explanation of each state. The state is
/// the one that [`evaluate_artifact`](super::evaluate_artifact) returns for the newest report of the content.
/// It scans the reports once, however many artifacts there are.
pub fn artifact_states<'a>(
    template: &Template,
    artifacts: &'a [ReportedArtifact],
    attestations: &'a [ReportedAttestation],
    earlier: &'a EarlierNames,
) -> BTreeMap<&'a str, (State, Option<String>)> {
    let reports = Reports::new(artifacts, attestations, earlier);
    let trail = ScopeStatus::new(&template.attestations, &reports.on_trail);
    let state = |(fingerprint, names): (&'a str, &BTreeSet<&'a str>)| {
        let own = ScopeStatus::new(expected_by(template, names), &reports.of_content(fingerprint));
        let state = verdict(template, [own.state, trail.state]);
        let newest = reports.newest.get(fingerprint).map_or("", |newest| newest.name.as_str());
        let info = ByName::of(template, names, &own).info(template, newest, (state, trail.state));
        (fingerprint, (state, info))
    };
    reports.contents().map(state).collect()
}

/// The reports of a trail, indexed by the content that they refer to. Building the index takes one pass; a
/// look-up then costs only as much as the attestations of one artifact.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct ContentIndex {
    attestations: Vec<ReportedAttestation>,
    /// Positions of the attestations of the trail itself.
    on_trail: Vec<usize>,
    /// Positions of the attestations of each content: one list for each subject by which they refer to it.
    about: BTreeMap<String, Vec<Arc<[usize]>>>,
    /// The names under which each content has requirements.
    names: BTreeMap<String, BTreeSet<String>>,
    /// The state of the trail itself, evaluated on first use.
    trail: OnceLock<State>,
}

impl ContentIndex {
    /// Indexes all reports of a trail, which may be in any order.
    pub fn new(
        artifacts: &[ReportedArtifact],
        attestations: Vec<ReportedAttestation>,
        earlier: &EarlierNames,
    ) -> Self {
        let is_on_trail = |(_, one): &(usize, &ReportedAttestation)| one.binding.subject().is_none();
        let on_trail = attestations.iter().enumerate().filter(is_on_trail).map(|(place, _)| place).collect();
        let place_of = attestations.iter().enumerate().map(|(place, one)| (one.index, place));
        let place_of: BTreeMap<u64, usize> = place_of.collect();
        let reports = Reports::new(artifacts, &attestations, earlier);
        let mut places: BTreeMap<Subject<'_>, Arc<[usize]>> = BTreeMap::new();
        let (mut about, mut names) = (BTreeMap::new(), BTreeMap::new());
        for (content, of_content) in reports.contents() {
            let mut lists = Vec::new();
            for subject in reports.subjects_of_content(content) {
                let list = places.entry(subject).or_insert_with(|| {
                    let reported = reports.about(&[subject]);
                    reported.iter().filter_map(|one| place_of.get(&one.index).copied()).collect()
                });
                lists.push(Arc::clone(list));
            }
            about.insert(content.to_owned(), lists);
            names.insert(content.to_owned(), of_content.iter().map(|name| (*name).to_owned()).collect());
        }
        drop((reports, places));
        Self { attestations, on_trail, about, names, trail: OnceLock::new() }
    }

    /// Returns the positions of the attestations of this content, sorted.
    pub fn about(&self, fingerprint: &str) -> Vec<usize> {
        let lists = self.about.get(fingerprint).into_iter().flatten();
        let mut places = Vec::from_iter(lists.flat_map(|list| list.iter().copied()));
        places.sort_unstable();
        // A failed attestation may also refer to the content by its commit.
        places.dedup();
        places
    }

    /// Returns the number of attestations of this content. It counts an attestation once for each subject
    /// that refers to the content.
    pub fn count(&self, fingerprint: &str) -> usize {
        self.about.get(fingerprint).into_iter().flatten().map(|list| list.len()).sum()
    }

    /// Returns how many more attestations and requirements [`state`](Self::state) has to scan. These are the
    /// trail's own, until they have been evaluated once.
    pub fn unevaluated(&self, template: &Template) -> usize {
        if self.trail.get().is_some() { 0 } else { self.on_trail.len() + template.attestations.len() }
    }

    /// Returns the names under which this content has requirements. For content that is not in the index,
    /// returns only `name`.
    pub fn names<'n>(&'n self, fingerprint: &str, name: &'n str) -> BTreeSet<&'n str> {
        match self.names.get(fingerprint) {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => BTreeSet::from([name]),
        }
    }

    /// Returns the state of content and its explanation, as [`evaluate_artifact`](super::evaluate_artifact)
    /// does. `shown` is the name of a report of the content; `template` must be the template of the trail.
    pub fn state(&self, template: &Template, fingerprint: &str, shown: &str) -> (State, Option<String>) {
        let scope = |expected: Vec<_>, places: &[usize]| {
            let at = places.iter().filter_map(|place| self.attestations.get(*place));
            ScopeStatus::new(expected, &Vec::from_iter(at))
        };
        let names = self.names(fingerprint, shown);
        let own = scope(expected_by(template, &names), &self.about(fingerprint));
        let trail = || scope(template.attestations.iter().collect(), &self.on_trail).state;
        // The state is not cached for an unreadable template, because the template may be repaired later.
        let trail = if template.unreadable().is_some() { trail() } else { *self.trail.get_or_init(trail) };
        let state = verdict(template, [own.state, trail]);
        (state, ByName::of(template, &names, &own).info(template, shown, (state, trail)))
    }
}

/// The state of content in a trail.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentStatus<L> {
    /// The verdict on the content in the trail.
    pub state: State,
    /// The effective attestations: the content's own, then those of the trail. `None` if the limit was
    /// exceeded.
    pub attestations: Option<L>,
    /// The reason for the state, if the requirements of the newest report's name alone would give a better
    /// state.
    pub reason: Option<String>,
    /// Whether the state is unknown because the evaluation would exceed [`MAX_LINES`].
    pub is_too_much: bool,
}

/// Maximum number of attestations to scan for the queried content of one trail. Content with the same
/// attestations and requirements is scanned once. An attestation may refer to much content, so without a
/// limit the work would grow with the product of both.
#[doc(hidden)]
pub const MAX_LINES: usize = 1_000_000;

/// Returns the state of the `wanted` content of a trail, by fingerprint. The verdicts are those that
/// [`evaluate_artifact`](super::evaluate_artifact) returns.
///
/// It scans the reports once, however much content is wanted. It calls `keep` first for the trail, then for
/// content. `keep` gets the lines of a scope, the reports there, and, for content, the result that `keep`
/// returned for the trail. Content with the same attestations and requirements shares one result. Content
/// beyond `most` lines is incomplete.
#[doc(hidden)]
pub fn content_statuses<'a, L: Clone>(
    template: &Template,
    (artifacts, attestations): (&'a [ReportedArtifact], &'a [ReportedAttestation]),
    earlier: &'a EarlierNames,
    wanted: &BTreeSet<&str>,
    most: usize,
    keep: impl Fn(Vec<AttestationStatus>, &[&ReportedAttestation], Option<&L>) -> L,
) -> BTreeMap<&'a str, ContentStatus<L>> {
    let reports = Reports::new(artifacts, attestations, earlier);
    let ScopeStatus { lines, state: of_trail, .. } =
        ScopeStatus::new(&template.attestations, &reports.on_trail);
    let on_trail = keep(lines, &reports.on_trail, None);
    // The key is the subjects that attestations use, and the names for which the template has requirements.
    let mut alike = BTreeMap::<_, (State, ByName<'_>, L)>::new();
    let (mut statuses, mut left) = (BTreeMap::new(), most);
    for (fingerprint, names) in reports.contents().filter(|(content, _)| wanted.contains(content)) {
        let about = reports.subjects_of_content(fingerprint);
        let is_asked = |name: &&str| !expected_of(template, name).is_empty();
        let key = (about, Vec::from_iter(names.iter().copied().filter(is_asked)));
        let (own, by_name, attestations) = match alike.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                let reported = reports.about(&vacant.key().0);
                let Some(rest) = left.checked_sub(reported.len()) else {
                    // The trail's attestations alone could hide what the content's own attestations show.
                    let (state, attestations) = (State::Incomplete, None);
                    statuses.insert(
                        fingerprint,
                        ContentStatus { state, attestations, reason: None, is_too_much: true },
                    );
                    continue;
                };
                left = rest;
                let own = ScopeStatus::new(expected_by(template, names), &reported);
                let by_name = ByName::of(template, names, &own);
                vacant.insert((own.state, by_name, keep(own.lines, &reported, Some(&on_trail))))
            }
        };
        let state = verdict(template, [*own, of_trail]);
        let newest = reports.newest.get(fingerprint).map_or("", |newest| newest.name.as_str());
        let reason = by_name.reason(template, newest, (state, of_trail));
        let attestations = Some(attestations.clone());
        statuses.insert(fingerprint, ContentStatus { state, attestations, reason, is_too_much: false });
    }
    statuses
}

#[cfg(test)]
mod tests;
