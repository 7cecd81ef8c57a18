//! The states of many artifacts of a trail, and of content whatever it is called there, in one pass over what was
//! reported.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use super::scopes::Reports;
use super::{
    AttestationStatus, ByName, EarlierNames, ReportedArtifact, ReportedAttestation, ScopeStatus, State,
    Subject, expected_by, expected_of, verdict,
};
use crate::rules::template::Template;

/// The states of all content that was reported, by fingerprint, as [`evaluate_artifact`](super::evaluate_artifact) says of
/// the newest report of each, and what is to be said of them: what was reported is gone through once, however many artifacts
/// there are.
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

/// What was reported to a trail, by the content that it is about: gone through once, it tells of any artifact at the cost
/// of what is about that one.
#[derive(Debug, Default)]
pub(crate) struct ByContent {
    attestations: Vec<ReportedAttestation>,
    /// Those of the trail, by their places.
    on_trail: Vec<usize>,
    /// Those about each content, by their places: a list for each thing that they call it.
    about: BTreeMap<String, Vec<Arc<[usize]>>>,
    /// The names by which each content needs something.
    names: BTreeMap<String, BTreeSet<String>>,
    /// How the trail itself stands, once somebody asked.
    trail: OnceLock<State>,
}

impl ByContent {
    /// Of all that was reported to a trail, in any order.
    pub(crate) fn new(
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

    /// The places of the attestations that are about this content, in order.
    pub(crate) fn about(&self, fingerprint: &str) -> Vec<usize> {
        let lists = self.about.get(fingerprint).into_iter().flatten();
        let mut places = Vec::from_iter(lists.flat_map(|list| list.iter().copied()));
        places.sort_unstable();
        // What failed may be about it by its commit, too.
        places.dedup();
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

    /// The names by which this content needs something, also the one of a report that is not among the others.
    pub(crate) fn names<'n>(&'n self, fingerprint: &str, name: &'n str) -> BTreeSet<&'n str> {
        match self.names.get(fingerprint) {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => BTreeSet::from([name]),
        }
    }

    /// The state of content of which `shown` is the name of a report, as [`evaluate_artifact`](super::evaluate_artifact)
    /// says of it, and what is to be said of that; the template is the trail's.
    pub(crate) fn state(
        &self,
        template: &Template,
        fingerprint: &str,
        shown: &str,
    ) -> (State, Option<String>) {
        let scope = |expected: Vec<_>, places: &[usize]| {
            let at = places.iter().filter_map(|place| self.attestations.get(*place));
            ScopeStatus::new(expected, &Vec::from_iter(at))
        };
        let names = self.names(fingerprint, shown);
        let own = scope(expected_by(template, &names), &self.about(fingerprint));
        let trail = || scope(template.attestations.iter().collect(), &self.on_trail).state;
        // A template that cannot be read now may be put right meanwhile.
        let trail = if template.unreadable().is_some() { trail() } else { *self.trail.get_or_init(trail) };
        let state = verdict(template, [own.state, trail]);
        (state, ByName::of(template, &names, &own).info(template, shown, (state, trail)))
    }
}

/// How content stands in a trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContentStatus<L> {
    /// The verdict on it there.
    pub(crate) state: State,
    /// What counts for it: its own attestations, and those of the trail beneath them. Nothing where that is too much.
    pub(crate) attestations: Option<L>,
    /// Why it is in that state, where the name of its newest report would leave it in a better one.
    pub(crate) reason: Option<String>,
    /// Whether that cannot be said, for more would have to be gone through than [`MAX_LINES`].
    pub(crate) is_too_much: bool,
}

/// So many attestations are gone through for what is asked about of one trail, each once for all of which the same is said
/// and asked. An attestation may be about much content, so that the lists could be as many as one's number times the other's.
pub(crate) const MAX_LINES: usize = 1_000_000;

/// How the `wanted` content of a trail stands there, by fingerprint: the same verdicts as
/// [`evaluate_artifact`](super::evaluate_artifact) says, of much content at once.
///
/// What was reported is gone through once, however much content is asked about. `keep` takes the lines of a scope and what
/// was reported there: first those of the trail, then those of content, with what it kept of the trail; these are
/// the same for all content to which the same attestations apply. What comes after `most` lines is incomplete.
pub(crate) fn content_statuses<'a, L: Clone>(
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
    // By what attestations call it, and by its names of which the template asks for something.
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
                    // Those of the trail alone might hide what its own say.
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
