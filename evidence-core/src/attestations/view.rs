//! Attestations as answers carry them.

use std::collections::BTreeMap;

use futures_util::future::try_join;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Attachment, Attestation, Binding};
use crate::error::Result;
use crate::flows::Flow;
use crate::id::Id;
use crate::json::{JsonFields, JsonText};
use crate::name::{AttestationName, Fingerprint, FlowName, TrailName};
use crate::service::Context;
use crate::shared::{Annotations, ExternalUrls, GitCommitInfo, RepoInfo, distinct};
use crate::time::Seconds;

/// An attestation. The keys of its type (`junit_results`, `pull_requests`, …) stand beside the others.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Attestation")]
#[expect(missing_docs, reason = "the names say it")]
pub struct AttestationView {
    pub schema_version: u8,
    pub attestation_type: String,
    pub attestation_name: AttestationName,
    pub attestation_id: Id,
    pub is_compliant: bool,
    pub origin_url: String,
    pub description: Option<String>,
    pub artifact_fingerprint: Option<Fingerprint>,
    pub target_artifacts: Option<Vec<String>>,
    pub git_commit_info: Option<GitCommitInfo>,
    pub repo_info: Option<RepoInfo>,
    pub external_urls: Option<ExternalUrls>,
    pub annotations: Option<Annotations>,
    pub evidence_archive_path: Option<String>,
    pub evidence_archive_fingerprint: Option<Fingerprint>,
    pub attachments: Vec<AttachmentView>,
    pub user_data: JsonText,
    pub created_at: Seconds,
    #[serde(flatten)]
    #[schemars(with = "Map<String, Value>")]
    pub details: JsonFields,
    pub html_url: String,
    pub flow_name: String,
    pub trail_name: String,
    pub reported_by: String,
    pub has_audit_package: bool,
    #[serde(rename = "_links")]
    pub links: Value,
}

/// A file that came with an attestation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub struct AttachmentView {
    pub file_name: String,
    pub media_type: String,
    pub size: u64,
    pub sha256: Fingerprint,
}

impl From<&Attachment> for AttachmentView {
    fn from(file: &Attachment) -> Self {
        let Attachment { file_name, media_type, size, sha256 } = file.clone();
        Self { file_name, media_type, size, sha256 }
    }
}

impl AttestationView {
    pub(super) fn new(
        attestation: Attestation,
        flow: &FlowName,
        trail: &TrailName,
        cx: &Context<'_>,
    ) -> Result<Self> {
        let access = cx.org_access()?;
        let (org, id, name) = (&access.name, attestation.id, &attestation.name);
        let base = format!("attestations/{org}/{flow}/trail/{trail}");
        let mut links = json!({ "self": { "href": cx.api_url(&format!("{base}/{name}")) } });
        if attestation.evidence.is_some() {
            links["evidence"] = json!({ "href": cx.api_url(&format!("{base}/attestation/{id}/evidence")) });
        }
        let (artifact_fingerprint, target) = match attestation.binding {
            Binding::Trail => (None, None),
            Binding::Artifact { fingerprint, target } => (Some(fingerprint), Some(target)),
            Binding::Named { target, .. } => (None, Some(target)),
        };
        let archive =
            |file: &Attachment| format!("{}/artifact_attestation/{id}/{}", access.org, file.file_name);
        Ok(Self {
            schema_version: 2,
            attestation_id: id,
            is_compliant: attestation.is_compliant,
            description: attestation.description,
            artifact_fingerprint,
            target_artifacts: target.filter(|target| !target.is_empty()).map(|target| vec![target]),
            git_commit_info: attestation.git_commit_info.as_ref().map(GitCommitInfo::from),
            repo_info: attestation.repo_info,
            external_urls: attestation.external_urls,
            annotations: attestation.annotations,
            evidence_archive_path: attestation.evidence.as_ref().map(archive),
            evidence_archive_fingerprint: attestation.evidence.map(|file| file.sha256),
            attachments: attestation.attachments.iter().map(AttachmentView::from).collect(),
            user_data: attestation.user_data,
            created_at: attestation.created_at.seconds(),
            details: attestation.details.answered(),
            html_url: format!("{}?attestation_id={id}", cx.trail_url(flow, trail)),
            flow_name: flow.to_string(),
            trail_name: trail.to_string(),
            reported_by: attestation.created_by.name,
            has_audit_package: true,
            links,
            attestation_type: attestation.kind,
            attestation_name: attestation.name,
            origin_url: attestation.origin_url,
        })
    }
}

/// These attestations, in order, as answers carry them.
pub(super) async fn views(attestations: Vec<Attestation>, cx: &Context<'_>) -> Result<Vec<AttestationView>> {
    if attestations.is_empty() {
        return Ok(Vec::new());
    }
    let flows = distinct(attestations.iter().map(|attestation| attestation.flow));
    let trails = distinct(attestations.iter().map(|attestation| attestation.trail));
    let org = cx.org()?;
    let (flows, trails) =
        try_join(cx.store().flows_by_id(org, &flows), cx.store().trail_names(org, &trails)).await?;
    let flows: BTreeMap<Id, Flow> = flows.into_iter().map(|flow| (flow.id, flow)).collect();
    let trails: BTreeMap<Id, TrailName> = trails.into_iter().collect();
    let view = |attestation: Attestation| {
        let (flow, trail) = (flows.get(&attestation.flow)?, trails.get(&attestation.trail)?);
        Some(AttestationView::new(attestation, &flow.name, trail, cx))
    };
    attestations.into_iter().filter_map(view).collect()
}
