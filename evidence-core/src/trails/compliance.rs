//! The compliance of a trail in responses.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::id::Id;
use crate::rules::compliance::{ArtifactStatus, AttestationStatus, State, TrailStatus};
use crate::time::Seconds;

/// The result of comparing a trail's reports with its template.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "TrailComplianceStatus")]
#[non_exhaustive]
pub struct ComplianceStatus {
    /// The verdict on the trail and all its artifacts.
    pub status: State,
    /// Whether the verdict is `COMPLIANT`.
    pub is_compliant: bool,
    /// The reason for a verdict that no entry explains: the template cannot be read. Absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_info: Option<String>,
    /// The time of the newest report that the verdict depends on, or of the trail's beginning, in epoch
    /// seconds.
    pub evaluated_at: Seconds,
    /// The id of the template that the verdict depends on. It changes with the template.
    pub flow_template_id: Id,
    /// The attestations of the trail itself: the expected ones in the template's order, then the others.
    pub attestations_statuses: Vec<AttestationStatus>,
    /// The expected and the reported artifacts, by template name; an artifact without a name is listed by its
    /// fingerprint.
    pub artifacts_statuses: BTreeMap<String, ArtifactCompliance>,
}

/// The result of comparing an artifact's reports with its trail's template.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ArtifactComplianceStatus")]
#[non_exhaustive]
pub struct ArtifactCompliance {
    /// The verdict on the artifact.
    #[serde(flatten)]
    pub status: ArtifactStatus,
    /// The id of the template that the verdict depends on.
    pub flow_template_id: Id,
}

impl ComplianceStatus {
    /// Returns the status of a trail, evaluated by the template of this id.
    pub(crate) fn new(status: TrailStatus, template: Id) -> Self {
        Self {
            status: status.state,
            is_compliant: status.is_compliant,
            state_info: status.state_info,
            evaluated_at: status.evaluated_at.seconds(),
            flow_template_id: template,
            attestations_statuses: status.attestations,
            artifacts_statuses: status
                .artifacts
                .into_iter()
                .map(|status| {
                    (status.name.clone(), ArtifactCompliance { status, flow_template_id: template })
                })
                .collect(),
        }
    }
}
