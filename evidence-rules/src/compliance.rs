//! Evaluates whether a trail and its artifacts meet their template.
//!
//! The inputs are the reports of one trail, in any order. The newest report of a name decides; "newest" means
//! the highest ledger index, not the latest time. A failed attestation makes everything above it
//! non-compliant, whether or not the template expects it. Otherwise a missing attestation makes it
//! incomplete. An attestation that is missing on the trail is also missing for each artifact of the trail.
//!
//! The verdict on content in a trail has one definition, and every response that shows the verdict derives it
//! from that definition; `scopes::Reports` holds its inputs. The content must meet the requirements of
//! *every* name that the trail reported it under, and those of the trail. Attestations of the content count
//! under whatever name they refer to it. A requirement stays in force when the same content is later reported
//! under another name, or other content under the same name.
//!
//! `Scopes` assigns attestations to scopes, where the effective ones are listed. A scope is the trail, an
//! artifact, or an artifact that is still to be reported. An attestation whose content was replaced
//! everywhere belongs to no scope. The verdict on the trail itself uses the newest content of each name.
//! There, a later artifact replaces an earlier one that has the same template name and other content.

mod contents;
mod listing;
mod scopes;
mod status;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use self::contents::artifact_states;
pub use self::contents::{ContentIndex, ContentStatus, MAX_LINES, content_statuses};
use self::listing::Listing;
pub use self::scopes::overridden;
use self::scopes::{Newest, Reports, Scopes, Slot, named_like_content};
pub use self::status::{ArtifactStatus, AttestationStatus, Completeness, TrailStatus};
use super::template::{ARTIFACT, Requirement, Template};
pub use evidence_values::state::{ArtifactState, State, UnknownState};
use evidence_values::time::Timestamp;

/// The names that a flow has given to content of a trail, by fingerprint. Each name maps to the ledger index
/// of the first report that used it.
///
/// These names apply to content that the trail reported without a name before it reported it under one. Only
/// names that the flow had given by then apply.
pub type EarlierNames = BTreeMap<String, BTreeMap<String, u64>>;

/// One report of an artifact in the trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedArtifact {
    /// Id of the report.
    pub id: String,
    /// SHA-256 of the content, 64 hex digits.
    pub fingerprint: String,
    /// Template reference name; `""` if the report has none.
    pub name: String,
    /// Commit it was built from; `""` if the report has none.
    pub commit: String,
    /// Time of the report.
    pub at: Timestamp,
    /// Its ledger index, unique in the trail. Larger is newer.
    pub index: u64,
}

impl ReportedArtifact {
    /// Returns the slot of this report; a later report of the same slot replaces it.
    fn slot(&self) -> Slot<'_> {
        if self.name.is_empty() { Slot::Content(&self.fingerprint) } else { Slot::Named(&self.name) }
    }
}

/// The subject of an attestation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// The trail.
    Trail,
    /// The artifact with this content.
    Artifact {
        /// SHA-256 of the content, 64 hex digits.
        fingerprint: String,
    },
    /// Each artifact of this template name and commit, reported before or after.
    Named {
        /// Template reference name.
        name: String,
        /// Commit; `""` matches no artifact.
        commit: String,
    },
}

/// A commit as it was reported. The comparison ignores case if the value is a full hash (40 or 64 hex
/// digits).
#[derive(Clone, Copy, Debug)]
pub struct Commit<'a> {
    told: &'a str,
    /// Whether the value is a full hash with uppercase digits.
    has_capitals: bool,
}

impl<'a> Commit<'a> {
    /// Wraps a commit as it was reported.
    pub fn new(told: &'a str) -> Self {
        let is_hash = matches!(told.len(), 40 | 64) && told.bytes().all(|byte| byte.is_ascii_hexdigit());
        Self { told, has_capitals: is_hash && told.bytes().any(|byte| byte.is_ascii_uppercase()) }
    }

    fn compared(self) -> Cow<'a, str> {
        if self.has_capitals { self.told.to_ascii_lowercase().into() } else { self.told.into() }
    }
}

impl PartialEq for Commit<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Commit<'_> {}

impl PartialOrd for Commit<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Commit<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compared().cmp(&other.compared())
    }
}

/// A way in which an attestation refers to an artifact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject<'a> {
    /// By its content.
    Content(&'a str),
    /// By its template name and commit.
    Built(&'a str, Commit<'a>),
    /// By a template name, in failed attestations of any commit. It applies to artifacts that were reported
    /// without a commit. It is unknown whether these attestations refer to such an artifact, so failed ones
    /// count for it and compliant ones do not.
    Failed(&'a str),
}

impl Binding {
    /// Returns the artifact that the binding refers to, or `None` for the trail.
    fn subject(&self) -> Option<Subject<'_>> {
        match self {
            Self::Trail => None,
            Self::Artifact { fingerprint } => Some(Subject::Content(fingerprint)),
            Self::Named { name, commit } => Some(Subject::Built(name, Commit::new(commit))),
        }
    }
}

impl ReportedArtifact {
    /// Returns this report, preceded by one report for each name in `given` that the content had before it.
    /// Content that is evaluated without a trail must meet the requirements of all its names, as in a trail.
    #[doc(hidden)]
    pub fn after_those_by(self, given: &BTreeMap<String, u64>) -> Vec<Self> {
        let before = given.iter().filter(|(name, first)| **name != self.name && **first < self.index);
        let by_name =
            |(name, first): (&String, &u64)| Self { name: name.clone(), index: *first, ..self.clone() };
        let mut reports = Vec::from_iter(before.map(by_name));
        reports.push(self);
        reports
    }

    /// Returns the subjects by which attestations may refer to this artifact.
    fn subjects(&self) -> impl Iterator<Item = Subject<'_>> {
        let built = (!self.name.is_empty()).then(|| self.called(&self.name));
        std::iter::once(Subject::Content(&self.fingerprint)).chain(built)
    }

    /// Returns the subject by which attestations refer to this artifact under the given name.
    fn called<'n>(&'n self, name: &'n str) -> Subject<'n> {
        if self.commit.is_empty() {
            Subject::Failed(name)
        } else {
            Subject::Built(name, Commit::new(&self.commit))
        }
    }
}

/// One report of an attestation in the trail, or an override of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedAttestation {
    /// Id of the report.
    pub id: String,
    /// Name of the attestation.
    pub name: String,
    /// The reported type. For an override: the type of the original, as the client reported it.
    pub kind: String,
    /// The verdict recorded with it.
    pub is_compliant: bool,
    /// Time of the report.
    pub at: Timestamp,
    /// Its ledger index, unique in the trail. Larger is newer.
    pub index: u64,
    /// The subject of the attestation.
    pub binding: Binding,
    /// Only for an override, which replaces the verdict of the attestation of the same name: `overridden by
    /// NAME: REASON`.
    pub override_info: Option<Arc<str>>,
    /// The identifier of the control that this decision refers to.
    pub control: Option<String>,
}

impl ReportedAttestation {
    /// Returns whether this report replaces the verdict of the attestation of the same name.
    pub const fn is_override(&self) -> bool {
        self.override_info.is_some()
    }
}

/// Evaluates a trail from all its reports, which may be in any order.
pub fn evaluate(
    template: &Template,
    begun_at: Timestamp,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
    earlier: &EarlierNames,
) -> TrailStatus {
    let scopes = Scopes::new(artifacts, attestations, earlier);
    let trail = ScopeStatus::new(&template.attestations, scopes.on_trail());
    let artifacts_statuses = evaluate_artifacts(template, begun_at, &trail, scopes);
    let states = artifacts_statuses.iter().flat_map(|artifact| {
        let (lines, state) = match artifact.state {
            // Attestations that await an artifact count before the artifact is reported.
            ArtifactState::Missing => (artifact.attestations.as_slice(), None),
            ArtifactState::Reported(state) => (&[][..], Some(state)),
        };
        lines.iter().map(AttestationStatus::state).chain(state)
    });
    let awaited = artifacts_statuses
        .iter()
        .any(|artifact| artifact.state == ArtifactState::Missing && !artifact.unexpected);
    let state = match verdict(template, states.chain([trail.state])) {
        State::Compliant if awaited => State::Incomplete,
        state => state,
    };
    let reported_at = artifacts
        .iter()
        .map(|artifact| artifact.at)
        .chain(attestations.iter().map(|attestation| attestation.at));
    TrailStatus {
        state,
        is_compliant: state.is_compliant(),
        state_info: template.unreadable().map(str::to_owned),
        evaluated_at: reported_at.fold(begun_at, Timestamp::max),
        attestations: trail.lines,
        artifacts: artifacts_statuses,
    }
}

/// Returns the ids of the attestations that decide a verdict, for the trail or for any reported content. They
/// are the newest of each name in each scope; all others are superseded.
pub fn deciding<'a>(
    artifacts: &'a [ReportedArtifact],
    attestations: &'a [ReportedAttestation],
    earlier: &'a EarlierNames,
) -> BTreeSet<&'a str> {
    let mut newest = BTreeSet::new();
    let add = |effective: Effective<'a>| {
        newest.insert(effective.newest.id.as_str());
    };
    in_each_scope(&Scopes::new(artifacts, attestations, earlier), add);
    newest
}

/// Returns the attestations that an override replaces, for the trail or for any reported content. Maps each
/// id to who overrode it and why.
pub fn overridden_by<'a>(
    artifacts: &'a [ReportedArtifact],
    attestations: &'a [ReportedAttestation],
    earlier: &'a EarlierNames,
) -> BTreeMap<&'a str, &'a str> {
    let mut found = BTreeMap::new();
    if !attestations.iter().any(ReportedAttestation::is_override) {
        return found;
    }
    let add = |effective: Effective<'a>| {
        let info = effective.replacement.and_then(|replacement| replacement.override_info.as_deref());
        found.extend(effective.original.map(|original| original.id.as_str()).zip(info));
    };
    in_each_scope(&Scopes::new(artifacts, attestations, earlier), add);
    found
}

/// Returns the ledger indexes of the attestations that refer to this content.
///
/// `artifacts` must hold all reports of the content in the trail. `attestations` must hold all attestations
/// of one or more names in the trail. Both may be in any order.
#[doc(hidden)]
pub fn about_content(
    fingerprint: &str,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
    earlier: &EarlierNames,
) -> BTreeSet<u64> {
    let about = Reports::new(artifacts, attestations, earlier).of_content(fingerprint);
    about.into_iter().map(|attestation| attestation.index).collect()
}

/// Visits the effective attestation of each name in each scope: the trail, each content, and each awaited
/// artifact.
fn in_each_scope<'a>(scopes: &Scopes<'a>, mut visit: impl FnMut(Effective<'a>)) {
    let mut visit_all =
        |scope: &[&'a ReportedAttestation]| effective(scope).into_values().for_each(&mut visit);
    visit_all(scopes.on_trail());
    scopes.waiting.values().for_each(|scope| visit_all(scope));
    for fingerprint in scopes.reports.newest.keys() {
        visit_all(&scopes.reports.of_content(fingerprint));
    }
}

/// Evaluates the content of one report in its trail. `artifacts` and `attestations` must hold all reports of
/// the trail, in any order.
pub fn evaluate_artifact(
    template: &Template,
    artifact: &ReportedArtifact,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
    earlier: &EarlierNames,
) -> ArtifactStatus {
    evaluate_in_trail(template, artifact, artifacts, attestations, earlier).0
}

/// Does the same as [`evaluate_artifact`], and appends the lines of the trail to those of the artifact.
#[doc(hidden)]
pub fn evaluate_artifact_with_trail(
    template: &Template,
    artifact: &ReportedArtifact,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
    earlier: &EarlierNames,
) -> ArtifactStatus {
    let (mut status, trail) = evaluate_in_trail(template, artifact, artifacts, attestations, earlier);
    status.attestations.extend(trail.lines);
    status
}

fn evaluate_in_trail(
    template: &Template,
    artifact: &ReportedArtifact,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
    earlier: &EarlierNames,
) -> (ArtifactStatus, ScopeStatus) {
    let reports = Reports::new(artifacts, attestations, earlier);
    let trail = ScopeStatus::new(&template.attestations, &reports.on_trail);
    let (content, none) = (artifact.fingerprint.as_str(), BTreeSet::from([artifact.name.as_str()]));
    let names = reports.names(content).unwrap_or(&none);
    let mut own = ScopeStatus::new(expected_by(template, names), &reports.of_content(content));
    let by_name = ByName::of(template, names, &own);
    let lines = std::mem::take(&mut own.lines);
    (reported_status(template, &trail, artifact, (&own, &by_name), lines), trail)
}

/// Returns the names of the attestations that content of these template names needs: those of its artifacts
/// in the template, then those of the trail.
#[doc(hidden)]
pub fn expected_names<'n>(
    template: &Template,
    artifact_names: impl IntoIterator<Item = &'n str>,
) -> Vec<String> {
    let names = artifact_names.into_iter().collect();
    let expected = expected_by(template, &names).into_iter().chain(&template.attestations);
    let mut seen = BTreeSet::new();
    let names = expected.map(|requirement| &requirement.name).filter(|name| seen.insert(*name));
    names.cloned().collect()
}

/// Returns the requirements of a template for artifacts of this name. A template that is a list of names has
/// one slot. Artifacts without a name use it too, because their clients predate template names.
fn expected_of<'t>(template: &'t Template, artifact_name: &str) -> &'t [Requirement] {
    let is_of_older_client = artifact_name.is_empty() && template.names().is_some();
    let slot = if is_of_older_client { ARTIFACT } else { artifact_name };
    template.artifact(slot).map_or(&[], |artifact| &artifact.attestations)
}

/// Returns the requirements of the template for content that has all these names, each requirement once.
fn expected_by<'t>(template: &'t Template, names: &BTreeSet<&str>) -> Vec<&'t Requirement> {
    let expected = names.iter().flat_map(|name| expected_of(template, name));
    let mut seen = BTreeSet::new();
    expected.filter(|one| seen.insert((one.name.as_str(), one.kind.as_str()))).collect()
}

fn evaluate_artifacts(
    template: &Template,
    begun_at: Timestamp,
    trail: &ScopeStatus,
    mut scopes: Scopes<'_>,
) -> Vec<ArtifactStatus> {
    let (mut reported, mut waiting) =
        (std::mem::take(&mut scopes.reported), std::mem::take(&mut scopes.waiting));
    let mut listing = Listing::default();
    let spelled: BTreeSet<String> = named_like_content(template, &reported);
    let mut statuses = Vec::new();
    for expected in template.artifacts.iter() {
        let name = expected.name.as_str();
        match reported.remove(&Slot::Named(name)) {
            Some(Newest { artifact, .. }) => statuses.extend(listing.of(template, trail, artifact, &scopes)),
            None => {
                let own = ScopeStatus::new(&expected.attestations, &waiting.remove(name).unwrap_or_default());
                statuses.push(evaluate_missing(name.to_owned(), false, begun_at, trail, own));
            }
        }
    }
    let reported = reported.into_values().filter_map(|Newest { artifact, first_index }| {
        let mut status = listing.of(template, trail, artifact, &scopes)?;
        if artifact.name.is_empty() && spelled.contains(&status.name) {
            status.name = format!("sha256:{}", status.name);
        }
        Some((first_index, status))
    });
    let waiting = waiting.into_iter().map(|(name, scope)| {
        let first_index = scope.iter().map(|attestation| attestation.index).min().unwrap_or_default();
        (first_index, evaluate_missing(name, true, begun_at, trail, ScopeStatus::new([], &scope)))
    });
    let mut unexpected: Vec<_> = reported.chain(waiting).collect();
    unexpected.sort_by_key(|(first_index, _)| *first_index);
    statuses.extend(unexpected.into_iter().map(|(_, status)| status));
    statuses
}

/// The part of a verdict's explanation that depends on the names of the content in the trail.
#[derive(Clone, Debug, Default)]
struct ByName<'n> {
    /// The requirements that no report meets, by name and type.
    missing: BTreeSet<(String, String)>,
    /// The first of the names that has an unmet requirement.
    lacking: Option<&'n str>,
    /// Whether the template expects an artifact of one of the names.
    is_expected: bool,
    /// The first of the names that is not empty.
    called: Option<&'n str>,
}

impl<'n> ByName<'n> {
    fn of(template: &Template, names: &BTreeSet<&'n str>, own: &ScopeStatus) -> Self {
        let missing = own.lines.iter().filter(|line| line.is_compliant.is_none());
        let missing = missing.map(|line| (line.name.clone(), line.kind.clone())).collect();
        let is_of_older_client = template.names().is_some() && names.contains("");
        let is_expected = is_of_older_client || names.iter().any(|name| template.artifact(name).is_some());
        let called = names.iter().copied().find(|name| !name.is_empty());
        let mut by_name = Self { missing, lacking: None, is_expected, called };
        by_name.lacking = names.iter().copied().find(|name| by_name.lacks_one_of(template, name));
        by_name
    }

    /// Returns whether content of this name lacks something that the template requires.
    fn lacks_one_of(&self, template: &Template, name: &str) -> bool {
        let is_missing =
            |one: &Requirement| self.missing.contains(&(one.name.clone(), one.kind.as_str().to_owned()));
        !self.missing.is_empty() && expected_of(template, name).iter().any(is_missing)
    }

    /// Returns why content shown as `shown` is incomplete, if the reason is a requirement of another of its
    /// names. Returns `None` if the trail is not compliant either.
    fn reason(&self, template: &Template, shown: &str, (state, trail): (State, State)) -> Option<String> {
        if (state, trail) != (State::Incomplete, State::Compliant) || self.lacks_one_of(template, shown) {
            return None;
        }
        let name = self.lacking?;
        Some(format!("It is evaluated as '{name}' too, which an earlier report called it"))
    }

    /// Returns the explanation of the verdict on content shown as `shown`, if its lines do not show one.
    fn info(&self, template: &Template, shown: &str, states: (State, State)) -> Option<String> {
        let reason = template.unreadable().map(str::to_owned);
        let reason = reason.or_else(|| self.reason(template, shown, states));
        reason.or_else(|| self.unexpected(template, shown))
    }

    /// Returns a message if the template expects no artifact of any of the names.
    fn unexpected(&self, template: &Template, shown: &str) -> Option<String> {
        if self.is_expected {
            return None;
        }
        match Some(shown).filter(|name| !name.is_empty()).or(self.called) {
            Some(name) => Some(format!(
                "The template expects no artifact named '{name}', so that it needs only what the trail needs"
            )),
            None if template.artifacts.is_empty() => None,
            None => Some(
                "It was reported without a template reference name, so that it needs only what the trail needs"
                    .to_owned(),
            ),
        }
    }
}

/// Returns the status of a reported artifact, with these lines.
fn reported_status(
    template: &Template,
    trail: &ScopeStatus,
    artifact: &ReportedArtifact,
    (own, by_name): (&ScopeStatus, &ByName<'_>),
    lines: Vec<AttestationStatus>,
) -> ArtifactStatus {
    let state = verdict(template, [own.state, trail.state]);
    let state_info = by_name.info(template, &artifact.name, (state, trail.state));
    let state = ArtifactState::Reported(state);
    ArtifactStatus {
        name: match artifact.slot() {
            Slot::Named(name) | Slot::Content(name) => name.to_owned(),
        },
        fingerprint: Some(artifact.fingerprint.clone()),
        artifact_id: Some(artifact.id.clone()),
        state,
        is_compliant: state.is_compliant(),
        unexpected: template.artifact(&artifact.name).is_none(),
        state_info,
        evaluated_at: latest(artifact.at, [own, trail]),
        attestations: lines,
    }
}

/// Returns the status of an artifact that was not reported, but that the template expects or attestations
/// await.
fn evaluate_missing(
    name: String,
    unexpected: bool,
    begun_at: Timestamp,
    trail: &ScopeStatus,
    own: ScopeStatus,
) -> ArtifactStatus {
    ArtifactStatus {
        name,
        fingerprint: None,
        artifact_id: None,
        state: ArtifactState::Missing,
        is_compliant: None,
        unexpected,
        state_info: None,
        evaluated_at: latest(begun_at, [&own, trail]),
        attestations: own.lines,
    }
}

fn latest(at: Timestamp, scopes: [&ScopeStatus; 2]) -> Timestamp {
    scopes.into_iter().filter_map(|scope| scope.reported_at).fold(at, Timestamp::max)
}

/// Returns the combined verdict. A failure outweighs a missing attestation. A template that cannot be read
/// always counts as incomplete.
fn verdict(template: &Template, states: impl IntoIterator<Item = State>) -> State {
    let readable = if template.unreadable().is_some() { State::Incomplete } else { State::Compliant };
    worst(states.into_iter().chain([readable]))
}

fn worst(states: impl Iterator<Item = State>) -> State {
    let mut worst = State::Compliant;
    for state in states {
        match state {
            State::NonCompliant => return state,
            State::Incomplete => worst = state,
            State::Compliant => {}
        }
    }
    worst
}

/// The attestations of one scope, compared with the requirements of that scope.
struct ScopeStatus {
    lines: Vec<AttestationStatus>,
    /// The combined state of the lines.
    state: State,
    reported_at: Option<Timestamp>,
}

impl ScopeStatus {
    fn new<'t>(
        expected: impl IntoIterator<Item = &'t Requirement>,
        reported: &[&ReportedAttestation],
    ) -> Self {
        let reported_at = reported.iter().map(|attestation| attestation.at).max();
        let (by_name, mut met) = (effective(reported), BTreeSet::new());
        let mut lines = Vec::new();
        for requirement in expected {
            let name = requirement.name.as_str();
            let fitting = by_name.get(name).filter(|effective| effective.satisfies(requirement));
            met.extend(fitting.map(|_| name));
            lines.push(match fitting {
                Some(effective) => effective.line(false),
                None => AttestationStatus::missing(requirement),
            });
        }
        let unexpected = by_name.into_iter().filter(|(name, _)| !met.contains(name));
        let mut unexpected = Vec::from_iter(unexpected.map(|(_, effective)| effective));
        unexpected.sort_by_key(|effective| effective.first_index);
        lines.extend(unexpected.iter().map(|effective| effective.line(true)));
        let state = worst(lines.iter().map(AttestationStatus::state));
        Self { lines, state, reported_at }
    }
}

/// Returns the effective attestation of each name in one scope.
pub(super) fn effective<'a>(reported: &[&'a ReportedAttestation]) -> BTreeMap<&'a str, Effective<'a>> {
    let mut reported = reported.to_vec();
    reported.sort_by_key(|attestation| attestation.index);
    let mut by_name: BTreeMap<&str, Effective<'_>> = BTreeMap::new();
    for attestation in reported {
        by_name
            .entry(&attestation.name)
            .and_modify(|effective| effective.follow(attestation))
            .or_insert_with(|| Effective::first(attestation));
    }
    by_name
}

/// All reports of one name in one scope, reduced to those that count.
pub(super) struct Effective<'a> {
    /// The newest report that is not an override.
    pub(super) original: Option<&'a ReportedAttestation>,
    /// The newest override, unless an ordinary report came after it.
    replacement: Option<&'a ReportedAttestation>,
    /// The newest report of either kind.
    pub(super) newest: &'a ReportedAttestation,
    first_index: u64,
}

impl<'a> Effective<'a> {
    fn first(attestation: &'a ReportedAttestation) -> Self {
        let mut effective =
            Self { original: None, replacement: None, newest: attestation, first_index: attestation.index };
        effective.follow(attestation);
        effective
    }

    /// Adds the next report, in ledger order.
    fn follow(&mut self, attestation: &'a ReportedAttestation) {
        self.newest = attestation;
        if attestation.is_override() {
            self.replacement = Some(attestation);
        } else {
            self.original = Some(attestation);
            self.replacement = None;
        }
    }

    /// Returns whether the report meets the requirement. An override does so whatever the required type,
    /// because it is a decision about the slot.
    fn satisfies(&self, requirement: &Requirement) -> bool {
        self.replacement.is_some() || requirement.kind.matches(&self.newest.kind)
    }

    fn line(&self, unexpected: bool) -> AttestationStatus {
        let shown = self.original.unwrap_or(self.newest);
        AttestationStatus {
            name: shown.name.clone(),
            kind: shown.kind.clone(),
            attestation_id: Some(shown.id.clone()),
            override_id: self.replacement.map(|replacement| replacement.id.clone()),
            override_info: self.replacement.and_then(|replacement| replacement.override_info.clone()),
            status: Completeness::Complete,
            is_compliant: Some(self.newest.is_compliant),
            unexpected,
        }
    }
}

#[cfg(test)]
mod tests;
