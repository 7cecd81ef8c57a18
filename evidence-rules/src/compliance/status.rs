//! The results of an evaluation, as responses show them.

use std::sync::Arc;

use evidence_values::state::{ArtifactState, State};
use evidence_values::time::{Seconds, Timestamp};
use schemars::JsonSchema;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::template::Requirement;

/// Whether an attestation was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Completeness {
    /// It was reported.
    Complete,
    /// It is expected but was not reported.
    Missing,
}

/// One line of a list of attestations: what was expected, reported, or both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AttestationComplianceStatus")]
#[non_exhaustive]
pub struct AttestationStatus {
    /// Name of the attestation.
    #[serde(rename = "attestation_name")]
    pub name: String,
    /// The reported type, or the expected one while it is missing.
    #[serde(rename = "attestation_type")]
    pub kind: String,
    /// The id of the overridden report if there is one, otherwise the id of the override; null while the
    /// attestation is missing.
    pub attestation_id: Option<String>,
    /// The id of the override, if an override decides the verdict. Despite the key's name, the overridden
    /// report is `attestation_id`.
    #[serde(rename = "overridden_attestation_id")]
    pub override_id: Option<String>,
    /// The user who overrode it and the reason: `overridden by NAME: REASON`. Absent if no override decides
    /// the verdict.
    #[serde(serialize_with = "as_text", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub override_info: Option<Arc<str>>,
    /// Whether it was reported.
    pub status: Completeness,
    /// The verdict; null while it is missing.
    pub is_compliant: Option<bool>,
    /// Whether the template does not require it.
    pub unexpected: bool,
}

impl AttestationStatus {
    pub(super) fn state(&self) -> State {
        match self.is_compliant {
            None => State::Incomplete,
            Some(true) => State::Compliant,
            Some(false) => State::NonCompliant,
        }
    }

    pub(super) fn missing(requirement: &Requirement) -> Self {
        Self {
            name: requirement.name.clone(),
            kind: requirement.kind.as_str().to_owned(),
            attestation_id: None,
            override_id: None,
            override_info: None,
            status: Completeness::Missing,
            is_compliant: None,
            unexpected: false,
        }
    }
}

/// The state of an artifact of a trail.
// Serialized without its name, which is the key in the trail's `artifacts_statuses`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ArtifactStatus {
    /// The template reference name, or the fingerprint of an artifact without one. An entry for attestations
    /// that await another commit, beside the entry of that name, is called `name@commit`.
    #[serde(skip)]
    pub name: String,
    /// The SHA-256 of the content that was reported last; null while the artifact is missing.
    #[serde(rename = "artifact_fingerprint")]
    pub fingerprint: Option<String>,
    /// The id of the newest report; null while the artifact is missing.
    pub artifact_id: Option<String>,
    /// The verdict.
    #[serde(rename = "status")]
    pub state: ArtifactState,
    /// Whether the verdict is compliant; null while the artifact is missing.
    pub is_compliant: Option<bool>,
    /// Expected attestations in the order of the template, then the unexpected ones in the order in which
    /// they were first reported. After the artifacts of the trail have 100,000 lines in total, lines that an
    /// earlier artifact lists are not repeated. The verdict still covers all of them.
    #[serde(rename = "attestations_statuses")]
    pub attestations: Vec<AttestationStatus>,
    /// Whether the template does not expect this artifact. Such an artifact was reported, or attestations
    /// await it.
    pub unexpected: bool,
    /// The reason for the verdict, if no line shows it. Either the template cannot be read, or it expects no
    /// artifact of this name, or an earlier report gave the artifact a name with more requirements. Absent if
    /// there is nothing to add.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_info: Option<String>,
    /// Time of the newest report that affects the verdict, in epoch seconds.
    #[serde(serialize_with = "as_seconds")]
    #[schemars(with = "Seconds")]
    pub evaluated_at: Timestamp,
}

impl ArtifactStatus {
    /// Replaces the verdict, and sets the reason if no line shows it.
    #[doc(hidden)]
    pub fn set_state(&mut self, state: State, reason: Option<String>) {
        self.state = ArtifactState::Reported(state);
        self.is_compliant = Some(state.is_compliant());
        self.state_info = reason;
    }
}

/// The state of a trail, its `compliance_status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TrailStatus {
    /// The verdict.
    #[serde(rename = "status")]
    pub state: State,
    /// Whether the verdict is `COMPLIANT`.
    pub is_compliant: bool,
    /// The reason for the verdict, if no line shows it: the template cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_info: Option<String>,
    /// Time of the newest report in the trail, or of the start of the trail.
    #[serde(serialize_with = "as_seconds")]
    pub evaluated_at: Timestamp,
    /// Attestations of the trail itself: the expected ones in the order of the template, then the unexpected
    /// ones in the order in which they were first reported.
    #[serde(rename = "attestations_statuses")]
    pub attestations: Vec<AttestationStatus>,
    /// Expected artifacts in the order of the template, then the unexpected ones. The unexpected ones are
    /// ordered by the first report of the artifact or of an attestation that awaits it.
    #[serde(rename = "artifacts_statuses", serialize_with = "by_name")]
    pub artifacts: Vec<ArtifactStatus>,
}

fn as_seconds<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    at.seconds().serialize(serializer)
}

fn as_text<S: Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    text.as_deref().serialize(serializer)
}

fn by_name<S: Serializer>(artifacts: &[ArtifactStatus], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(artifacts.len()))?;
    for artifact in artifacts {
        map.serialize_entry(&artifact.name, artifact)?;
    }
    map.end()
}
