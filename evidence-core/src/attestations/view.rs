//! Attestations in responses.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::attestations::details::DetailsView;
use crate::attestations::record::Annotations;
use crate::attestations::record::{Attachment, Attestation, Binding};
use crate::context::Context;
use crate::error::Result;
use crate::git::GitCommitInfo;
use crate::id::Id;
use crate::json::JsonText;
use crate::links::ExternalUrls;
use crate::name::{AttestationName, Fingerprint, FlowName, TrailName};
use crate::page::Link;
use crate::repos::record::RepoInfo;
use crate::store::batch::distinct;
use crate::store::error::StoreError;
use crate::texts::record::TextRef;
use crate::time::Seconds;
use crate::trails::record::TrailLabel;

/// An attestation as recorded. Attestations never change. The keys of its type (`junit_results`,
/// `pull_requests`, …) are beside the others.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Attestation")]
#[non_exhaustive]
pub struct AttestationView {
    /// The version of this format: 2.
    pub schema_version: u8,
    /// The attestation's type: `generic`, `junit`, `pull_request`, …. An override has the type of the
    /// overridden attestation.
    pub attestation_type: String,
    /// Its name. Of several attestations with the same name and subject, the newest counts.
    pub attestation_name: AttestationName,
    /// Its id.
    pub attestation_id: Id,
    /// The verdict, computed when it was recorded.
    pub is_compliant: bool,
    /// The URL of its origin, such as the build; `""` if not given.
    pub origin_url: String,
    /// A description for readers.
    pub description: Option<String>,
    /// The SHA-256 of the artifact that it is about. Null if it is about the trail, or about an artifact that
    /// was not reported when this was recorded. In the latter case, `target_artifacts` and the commit
    /// identify the artifact.
    pub artifact_fingerprint: Option<Fingerprint>,
    /// The template name of the artifact that it is about, as the only item. Null if it is about the trail,
    /// or about an artifact without such a name.
    pub target_artifacts: Option<Vec<String>>,
    /// The commit that it names.
    pub git_commit_info: Option<GitCommitInfo>,
    /// The repository that it was reported from.
    pub repo_info: Option<RepoInfo>,
    /// Labelled links: label to URL and, optionally, the fingerprint of the linked content.
    pub external_urls: Option<ExternalUrls>,
    /// Labelled remarks.
    pub annotations: Option<Annotations>,
    /// The file name of its evidence; null without files.
    pub evidence_archive_path: Option<String>,
    /// The SHA-256 of its evidence: of its only file, or of the archive of several.
    pub evidence_archive_fingerprint: Option<Fingerprint>,
    /// Its files.
    pub attachments: Vec<AttachmentView>,
    /// Free-form data from the reporter: an object or a list.
    pub user_data: JsonText,
    /// When it was recorded, in epoch seconds.
    pub created_at: Seconds,
    /// The keys of its type.
    #[serde(flatten)]
    pub details: DetailsView,
    /// In lists, if the data of its type are longer than 64 KiB: the key of the data and the URL of the full
    /// attestation. Absent otherwise. The value of the key is null, or for a Snyk scan the counts without the
    /// findings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted_data: Option<OmittedData>,
    /// The URL of its place on the trail's page.
    pub html_url: String,
    /// The flow of its trail.
    pub flow_name: String,
    /// The trail it was reported to.
    pub trail_name: String,
    /// The name of the user or service account that reported it.
    pub reported_by: String,
    /// Always false: audit packages cannot be downloaded yet.
    pub has_audit_package: bool,
    /// Links to related resources.
    #[serde(rename = "_links")]
    pub links: AttestationLinks,
}

/// Long data that lists leave out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct OmittedData {
    /// The key of the data: `attestation_data`, `junit_results`, ….
    pub key: &'static str,
    /// The size of its JSON in bytes, without white space.
    pub size: u64,
    /// The SHA-256 of its JSON without white space, in hex.
    pub sha256: String,
    /// The URL of the attestation with its data.
    pub href: String,
}

/// Links of an attestation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct AttestationLinks {
    /// The attestations of this name in the trail.
    #[serde(rename = "self")]
    pub this: Link,
    /// The download of its evidence; absent without files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Link>,
}

/// A file of an attestation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct AttachmentView {
    /// Its file name as sent, without directories.
    pub file_name: String,
    /// Its media type as sent. Defaults to `application/octet-stream`.
    pub media_type: String,
    /// Its size in bytes.
    pub size: u64,
    /// The SHA-256 of its content.
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
        let link = |path: &str| Link { href: cx.api_url(&format!("{base}/{path}")) };
        let evidence = attestation.evidence.is_some().then(|| link(&format!("attestation/{id}/evidence")));
        let links = AttestationLinks { this: link(name.as_str()), evidence };
        let omitted_data = attestation.omitted_data().map(|(key, text)| OmittedData {
            key,
            size: text.size,
            sha256: text.sha256.to_string(),
            href: cx.api_url(&format!("attestations/{org}?attestation_id={id}")),
        });
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
            details: match &omitted_data {
                Some(_) => attestation.details.view_without_data(),
                None => attestation.details.view(),
            },
            omitted_data,
            html_url: format!("{}?attestation_id={id}", cx.trail_url(flow, trail)),
            flow_name: flow.to_string(),
            trail_name: trail.to_string(),
            reported_by: attestation.created_by.name,
            has_audit_package: false,
            links,
            attestation_type: attestation.kind,
            attestation_name: attestation.name,
            origin_url: attestation.origin_url,
        })
    }
}

impl Attestation {
    /// Returns the key of the data that are missing here, and their text.
    pub(crate) fn omitted_data(&self) -> Option<(&'static str, TextRef)> {
        self.details.data_key().zip(self.data)
    }

    /// Returns the attestation with its separately stored data, for a response.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if the data are lost or damaged;
    /// [`Error::Overloaded`](crate::Error::Overloaded) if there is no memory for them.
    pub(crate) async fn with_data(mut self, cx: &Context<'_>) -> Result<Self> {
        let Some((_, data)) = self.omitted_data() else { return Ok(self) };
        cx.reserve_for_data(data.size).await?;
        let text = cx.store().texts(cx.org()?, &[data.sha256]).await?.pop();
        let lost = format!("the data of the attestation {} cannot be read", self.id);
        let text = text.ok_or_else(|| StoreError::corrupt(&lost))?;
        let put = move || {
            self.details.put_data(&text)?;
            self.data = None;
            Ok::<_, serde_json::Error>(self)
        };
        cx.compute()
            .run(put)
            .await?
            .map_err(|error| StoreError::corrupt(format_args!("{lost}: {error}")).into())
    }
}

/// Returns these attestations for a response, in order.
pub(crate) async fn views(attestations: Vec<Attestation>, cx: &Context<'_>) -> Result<Vec<AttestationView>> {
    if attestations.is_empty() {
        return Ok(Vec::new());
    }
    let trails = distinct(attestations.iter().map(|attestation| attestation.trail));
    let trails: BTreeMap<Id, TrailLabel> =
        cx.store().trail_labels(cx.org()?, &trails).await?.into_iter().collect();
    let view = |attestation: Attestation| {
        let TrailLabel { flow, name } = trails.get(&attestation.trail)?;
        Some(AttestationView::new(attestation, flow, name, cx))
    };
    attestations.into_iter().filter_map(view).collect()
}
