//! Whether a trail and its artifacts have what their template asks for. The inputs are the reports
//! of one trail, in any order; the newest report of a name decides, by its place in the ledger and
//! not by its time. An attestation that failed makes everything above it non-compliant, expected
//! or not; otherwise one that is missing makes it incomplete. What is missing on the trail is
//! missing for each of its artifacts too.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use super::template::{Requirement, Template};
use crate::time::Timestamp;

/// Verdict over a trail, or over an artifact that was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum State {
    /// All that is expected is there, and nothing failed.
    #[serde(rename = "COMPLIANT")]
    Compliant,
    /// Something failed.
    #[serde(rename = "NON-COMPLIANT")]
    NonCompliant,
    /// Nothing failed, but something expected is missing.
    #[serde(rename = "INCOMPLETE")]
    Incomplete,
}

impl State {
    /// The verdict as the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Compliant => "COMPLIANT",
            Self::NonCompliant => "NON-COMPLIANT",
            Self::Incomplete => "INCOMPLETE",
        }
    }

    /// Whether the verdict is `COMPLIANT`.
    pub const fn is_compliant(self) -> bool {
        matches!(self, Self::Compliant)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for State {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        [Self::Compliant, Self::NonCompliant, Self::Incomplete]
            .into_iter()
            .find(|state| state.as_str() == text)
            .ok_or(UnknownState)
    }
}

/// The text is no [`State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownState;

impl fmt::Display for UnknownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Input should be 'COMPLIANT', 'NON-COMPLIANT' or 'INCOMPLETE'")
    }
}

impl std::error::Error for UnknownState {}

/// Verdict over an artifact that the template expects or somebody reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArtifactState {
    /// Expected, and never reported.
    Missing,
    /// Reported, with this verdict.
    Reported(State),
}

impl ArtifactState {
    /// The verdict as the API spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "MISSING",
            Self::Reported(state) => state.as_str(),
        }
    }

    /// Whether the artifact is compliant; unknown while it is missing.
    pub const fn is_compliant(self) -> Option<bool> {
        match self {
            Self::Missing => None,
            Self::Reported(state) => Some(state.is_compliant()),
        }
    }
}

impl fmt::Display for ArtifactState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ArtifactState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

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
    /// When it was reported.
    pub at: Timestamp,
    /// Its place in the ledger, unique in the trail. Larger is newer.
    pub index: u64,
}

impl ReportedArtifact {
    /// The name it is listed under: without a template name, nothing but its content names it.
    fn listed_as(&self) -> &str {
        if self.name.is_empty() { &self.fingerprint } else { &self.name }
    }
}

/// What an attestation is about.
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
        /// Commit. `""` binds to nothing.
        commit: String,
    },
}

impl Binding {
    fn covers(&self, artifact: &ReportedArtifact) -> bool {
        match self {
            Self::Trail => false,
            Self::Artifact { fingerprint } => *fingerprint == artifact.fingerprint,
            Self::Named { name, commit } => {
                !commit.is_empty() && *name == artifact.name && *commit == artifact.commit
            }
        }
    }

    fn awaits(&self, artifact_name: &str) -> bool {
        matches!(self, Self::Named { name, commit } if !commit.is_empty() && name == artifact_name)
    }
}

/// One report of an attestation in the trail, or an override of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedAttestation {
    /// Id of the report.
    pub id: String,
    /// Name of the attestation.
    pub name: String,
    /// Reported type. Of an override: the type it was told that the original has.
    pub kind: String,
    /// The verdict recorded with it.
    pub is_compliant: bool,
    /// When it was reported.
    pub at: Timestamp,
    /// Its place in the ledger, unique in the trail. Larger is newer.
    pub index: u64,
    /// What it is about.
    pub binding: Binding,
    /// Whether it replaces the verdict of the attestation of its name.
    pub is_override: bool,
}

/// One line of a list of attestations: what was expected, reported, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AttestationStatus {
    /// Name of the attestation.
    #[serde(rename = "attestation_name")]
    pub name: String,
    /// The reported type, or the expected one while it is missing.
    #[serde(rename = "attestation_type")]
    pub kind: String,
    /// The report; an overridden one if there is one, else the override itself.
    pub attestation_id: Option<String>,
    /// The override that decides the verdict.
    pub overridden_attestation_id: Option<String>,
    /// Whether it was reported: `COMPLETE` or `MISSING`.
    #[serde(rename = "status", serialize_with = "completeness")]
    pub complete: bool,
    /// The verdict; unknown while it is missing.
    pub is_compliant: Option<bool>,
    /// Whether nothing in the template asks for it.
    pub unexpected: bool,
}

impl AttestationStatus {
    fn missing(requirement: &Requirement) -> Self {
        Self {
            name: requirement.name.clone(),
            kind: requirement.kind.as_str().to_owned(),
            attestation_id: None,
            overridden_attestation_id: None,
            complete: false,
            is_compliant: None,
            unexpected: false,
        }
    }
}

fn completeness<S: Serializer>(complete: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *complete { "COMPLETE" } else { "MISSING" })
}

/// The state of an artifact of a trail. Serialized without its name, which is the key in the
/// trail's `artifacts_statuses`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArtifactStatus {
    /// Template reference name; of an artifact without one, its fingerprint.
    #[serde(skip)]
    pub name: String,
    /// Content of the newest report; none while it is missing.
    #[serde(rename = "artifact_fingerprint")]
    pub fingerprint: Option<String>,
    /// The newest report; none while it is missing.
    pub artifact_id: Option<String>,
    /// The verdict.
    #[serde(rename = "status")]
    pub state: ArtifactState,
    /// The verdict as a truth value; unknown while the artifact is missing.
    pub is_compliant: Option<bool>,
    /// Expected attestations in the order of the template, then the unexpected ones in the order
    /// in which they were first reported.
    #[serde(rename = "attestations_statuses")]
    pub attestations: Vec<AttestationStatus>,
    /// Whether the template does not know the artifact.
    pub unexpected: bool,
    /// Time of the newest report that bears on the verdict.
    #[serde(serialize_with = "as_seconds")]
    pub evaluated_at: Timestamp,
}

/// The state of a trail, its `compliance_status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrailStatus {
    /// The verdict.
    #[serde(rename = "status")]
    pub state: State,
    /// Whether the verdict is `COMPLIANT`.
    pub is_compliant: bool,
    /// Time of the newest report in the trail, or of its begin.
    #[serde(serialize_with = "as_seconds")]
    pub evaluated_at: Timestamp,
    /// Attestations of the trail itself: the expected ones in the order of the template, then the
    /// unexpected ones in the order in which they were first reported.
    #[serde(rename = "attestations_statuses")]
    pub attestations: Vec<AttestationStatus>,
    /// Expected artifacts in the order of the template, then the unexpected ones in the order in
    /// which they were first reported.
    #[serde(rename = "artifacts_statuses", serialize_with = "by_name")]
    pub artifacts: Vec<ArtifactStatus>,
}

fn as_seconds<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    at.seconds().serialize(serializer)
}

fn by_name<S: Serializer>(artifacts: &[ArtifactStatus], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(artifacts.len()))?;
    for artifact in artifacts {
        map.serialize_entry(&artifact.name, artifact)?;
    }
    map.end()
}

/// The state of a trail from everything that was reported in it, in any order.
pub fn evaluate(
    template: &Template,
    begun_at: Timestamp,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
) -> TrailStatus {
    let trail = Scope::of_trail(template, attestations);
    let artifacts_statuses = evaluate_artifacts(template, begun_at, &trail, artifacts, attestations);
    let lines = artifacts_statuses.iter().flat_map(|artifact| &artifact.attestations).chain(&trail.lines);
    let awaited = artifacts_statuses.iter().any(|artifact| artifact.state == ArtifactState::Missing);
    let state = match verdict(lines) {
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
        evaluated_at: reported_at.fold(begun_at, Timestamp::max),
        attestations: trail.lines,
        artifacts: artifacts_statuses,
    }
}

/// The state of one report of an artifact, which a later one of the same name may have replaced
/// in its trail. The attestations are all those of the trail, in any order.
pub fn evaluate_artifact(
    template: &Template,
    artifact: &ReportedArtifact,
    attestations: &[ReportedAttestation],
) -> ArtifactStatus {
    let trail = Scope::of_trail(template, attestations);
    evaluate_reported(template, &trail, artifact, attestations)
}

/// The names of the attestations that an artifact of this template name needs: those of its slot,
/// then those of its trail.
pub fn expected_names(template: &Template, artifact_name: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for requirement in expected_of(template, artifact_name).iter().chain(&template.attestations) {
        if !names.contains(&requirement.name) {
            names.push(requirement.name.clone());
        }
    }
    names
}

fn expected_of<'t>(template: &'t Template, artifact_name: &str) -> &'t [Requirement] {
    template.artifact(artifact_name).map_or(&[], |artifact| &artifact.attestations)
}

fn evaluate_artifacts(
    template: &Template,
    begun_at: Timestamp,
    trail: &Scope,
    artifacts: &[ReportedArtifact],
    attestations: &[ReportedAttestation],
) -> Vec<ArtifactStatus> {
    let mut newest = newest_by_name(artifacts);
    let mut statuses = Vec::new();
    for expected in &template.artifacts {
        statuses.push(match newest.remove(expected.name.as_str()) {
            Some((_, artifact)) => evaluate_reported(template, trail, artifact, attestations),
            None => evaluate_missing(template, begun_at, trail, &expected.name, attestations),
        });
    }
    let mut unexpected: Vec<_> = newest.into_values().collect();
    unexpected.sort_by_key(|(first_index, _)| *first_index);
    statuses.extend(
        unexpected
            .into_iter()
            .map(|(_, artifact)| evaluate_reported(template, trail, artifact, attestations)),
    );
    statuses
}

/// The newest report of each name, with the index of the first one.
fn newest_by_name(artifacts: &[ReportedArtifact]) -> BTreeMap<&str, (u64, &ReportedArtifact)> {
    let mut newest = BTreeMap::new();
    for artifact in artifacts {
        let (first_index, kept) = newest.entry(artifact.listed_as()).or_insert((artifact.index, artifact));
        *first_index = artifact.index.min(*first_index);
        if artifact.index > kept.index {
            *kept = artifact;
        }
    }
    newest
}

fn evaluate_reported(
    template: &Template,
    trail: &Scope,
    artifact: &ReportedArtifact,
    attestations: &[ReportedAttestation],
) -> ArtifactStatus {
    let own = Scope::new(
        expected_of(template, &artifact.name),
        attestations.iter().filter(|attestation| attestation.binding.covers(artifact)),
    );
    let state = ArtifactState::Reported(verdict(own.lines.iter().chain(&trail.lines)));
    ArtifactStatus {
        name: artifact.listed_as().to_owned(),
        fingerprint: Some(artifact.fingerprint.clone()),
        artifact_id: Some(artifact.id.clone()),
        state,
        is_compliant: state.is_compliant(),
        unexpected: template.artifact(&artifact.name).is_none(),
        evaluated_at: latest(artifact.at, [&own, trail]),
        attestations: own.lines,
    }
}

/// An expected artifact that nobody reported. Attestations that wait for it are listed already.
fn evaluate_missing(
    template: &Template,
    begun_at: Timestamp,
    trail: &Scope,
    name: &str,
    attestations: &[ReportedAttestation],
) -> ArtifactStatus {
    let own = Scope::new(
        expected_of(template, name),
        attestations.iter().filter(|attestation| attestation.binding.awaits(name)),
    );
    ArtifactStatus {
        name: name.to_owned(),
        fingerprint: None,
        artifact_id: None,
        state: ArtifactState::Missing,
        is_compliant: None,
        unexpected: false,
        evaluated_at: latest(begun_at, [&own, trail]),
        attestations: own.lines,
    }
}

fn latest(at: Timestamp, scopes: [&Scope; 2]) -> Timestamp {
    scopes.into_iter().filter_map(|scope| scope.reported_at).fold(at, Timestamp::max)
}

/// What failed outweighs what is missing.
fn verdict<'s>(lines: impl Iterator<Item = &'s AttestationStatus>) -> State {
    let mut state = State::Compliant;
    for line in lines {
        match line.is_compliant {
            Some(false) => return State::NonCompliant,
            Some(true) => {}
            None => state = State::Incomplete,
        }
    }
    state
}

/// The attestations of a trail, or of one artifact, set against what is expected there.
struct Scope {
    lines: Vec<AttestationStatus>,
    reported_at: Option<Timestamp>,
}

impl Scope {
    fn of_trail(template: &Template, attestations: &[ReportedAttestation]) -> Self {
        Self::new(
            &template.attestations,
            attestations.iter().filter(|attestation| attestation.binding == Binding::Trail),
        )
    }

    fn new<'a>(expected: &[Requirement], reported: impl Iterator<Item = &'a ReportedAttestation>) -> Self {
        let mut reported: Vec<_> = reported.collect();
        reported.sort_by_key(|attestation| attestation.index);
        let reported_at = reported.iter().map(|attestation| attestation.at).max();
        let mut by_name: BTreeMap<&str, Effective<'_>> = BTreeMap::new();
        for attestation in reported {
            by_name
                .entry(&attestation.name)
                .and_modify(|effective| effective.follow(attestation))
                .or_insert_with(|| Effective::first(attestation));
        }

        let mut lines = Vec::with_capacity(expected.len());
        for requirement in expected {
            let name = requirement.name.as_str();
            let fitting = by_name
                .get(name)
                .filter(|effective| effective.satisfies(requirement))
                .map(|effective| effective.line(false));
            lines.push(match fitting {
                Some(line) => {
                    by_name.remove(name);
                    line
                }
                None => AttestationStatus::missing(requirement),
            });
        }
        let mut unexpected: Vec<_> = by_name.into_values().collect();
        unexpected.sort_by_key(|effective| effective.first_index);
        lines.extend(unexpected.iter().map(|effective| effective.line(true)));
        Self { lines, reported_at }
    }
}

/// All reports of one name in one scope, reduced to those that count.
struct Effective<'a> {
    /// The newest ordinary report.
    original: Option<&'a ReportedAttestation>,
    /// The newest override, unless an ordinary report came after it.
    replacement: Option<&'a ReportedAttestation>,
    /// The newest report of either sort.
    newest: &'a ReportedAttestation,
    first_index: u64,
}

impl<'a> Effective<'a> {
    fn first(attestation: &'a ReportedAttestation) -> Self {
        let mut effective =
            Self { original: None, replacement: None, newest: attestation, first_index: attestation.index };
        effective.follow(attestation);
        effective
    }

    /// Takes in the next report, in the order of the ledger.
    fn follow(&mut self, attestation: &'a ReportedAttestation) {
        self.newest = attestation;
        if attestation.is_override {
            self.replacement = Some(attestation);
        } else {
            self.original = Some(attestation);
            self.replacement = None;
        }
    }

    /// An override is somebody's decision about the slot, whatever type the slot asks for.
    fn satisfies(&self, requirement: &Requirement) -> bool {
        self.replacement.is_some() || requirement.kind.matches(&self.newest.kind)
    }

    fn line(&self, unexpected: bool) -> AttestationStatus {
        let shown = self.original.unwrap_or(self.newest);
        AttestationStatus {
            name: shown.name.clone(),
            kind: shown.kind.clone(),
            attestation_id: Some(shown.id.clone()),
            overridden_attestation_id: self.replacement.map(|replacement| replacement.id.clone()),
            complete: true,
            is_compliant: Some(self.newest.is_compliant),
            unexpected,
        }
    }
}

#[cfg(test)]
mod tests;
