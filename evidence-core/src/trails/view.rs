//! Trails in responses.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use crate::attestations::view::AttestationView;
use crate::bounded::or_empty;
use crate::compute::{Compute, LONG_JSON, MANY_EVALUATIONS};
use crate::context::{Context, OwnedContext};
use crate::error::{Error, Result};
use crate::flows::parsed::Parsed;
use crate::flows::record::Flow;
use crate::flows::templates::map_with_templates;
use crate::git::GitCommit;
use crate::id::Id;
use crate::json::JsonText;
use crate::links::ExternalUrls;
use crate::name::{FlowName, TrailName};
use crate::operation::{Envelope, around_last, json_items};
use crate::page::{Pagination, in_batches};
use crate::rules::compliance::{ArtifactStatus, AttestationStatus, State};
use crate::rules::template::Template;
use crate::store::batch::distinct;
use crate::tags::record::Tags;
use crate::texts::record::TextRef;
use crate::time::Seconds;
use crate::trails::evaluation::EvaluatedTrail;
use crate::trails::events::EventView;
use crate::trails::record::TrailVersion;
use crate::trails::reported::ReportedTrail;

/// A trail: one execution of its flow's process, with its compliance.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "GetTrail")]
#[non_exhaustive]
pub struct TrailView {
    /// Its name, unique in its flow.
    pub name: TrailName,
    /// Its description.
    pub description: String,
    /// The commit of the trail; null if not reported.
    pub git_commit_info: Option<TrailCommit>,
    /// The URL of its origin; `""` if not given.
    pub origin_url: String,
    /// Free-form data from the reporter: an object or a list.
    pub user_data: JsonText,
    /// The ids of the repos that it was reported from: the newest 100, the last reported at the end.
    pub repo_ids: Vec<Id>,
    /// Labelled links: label to URL and, optionally, the fingerprint of the linked content.
    pub external_urls: Option<ExternalUrls>,
    /// When it was begun, in epoch seconds.
    pub created_at: Seconds,
    /// When it was last changed or something was last reported to it, in epoch seconds. Runs of its artifacts
    /// do not count.
    pub last_modified_at: Seconds,
    /// The name of the user or service account that began it.
    pub created_by: String,
    /// The result of comparing the template's requirements with the reports.
    pub compliance_status: ComplianceStatus,
    /// Its template, as parsed and as uploaded.
    pub template: TemplateView,
    /// The same as `compliance_status.status`.
    pub compliance_state: State,
    /// Whether the state is `COMPLIANT`.
    pub is_compliant: bool,
    /// The flow that contains it.
    pub flow: TrailFlow,
    /// The URL of the trail's page.
    pub html_url: String,
    /// Every attestation that was reported to it, newest first. Absent without `expand=attestations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attestations: Option<Vec<AttestationView>>,
    /// The events, oldest first. The start and the end of each run of its artifacts are events. The newest
    /// 10,000 runs are included; for one artifact in one environment, the newest 100 and the first. A host
    /// may set other limits. Callers of other organizations see no runs.
    // The last field, because the response for one trail streams the events in its place. Lists leave them
    // empty.
    pub events: Vec<EventView>,
}

/// The flow of a trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FlowInfo")]
#[non_exhaustive]
pub struct TrailFlow {
    /// The flow's name.
    pub name: FlowName,
    /// The flow's tags: key to value.
    pub tags: Tags,
}

/// The commit of a trail. Fields that were not reported are `""` or `0`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "GitCommitInfo")]
#[non_exhaustive]
pub struct TrailCommit {
    /// The commit's hash.
    pub sha1: String,
    /// Its message.
    pub message: String,
    /// Its author, as `Name <mail>`.
    pub author: String,
    /// Its branch.
    pub branch: String,
    /// Its time, in epoch seconds.
    pub timestamp: Seconds,
    /// The URL of its page.
    pub url: String,
}

impl From<&GitCommit> for TrailCommit {
    fn from(commit: &GitCommit) -> Self {
        Self {
            sha1: commit.sha1.to_string(),
            message: or_empty(commit.message.as_deref()),
            author: or_empty(commit.author.as_deref()),
            branch: or_empty(commit.branch.as_deref()),
            timestamp: commit.timestamp.map(|at| at.0).unwrap_or_default().seconds(),
            url: or_empty(commit.url.as_deref()),
        }
    }
}

/// A template, as parsed and as uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Template")]
#[non_exhaustive]
pub struct TemplateView {
    /// The version of the template format: 1.
    pub version: u8,
    /// Its requirements.
    pub trail: Template,
    /// The YAML text as uploaded, byte for byte; `""` if the text cannot be found.
    pub content: String,
}

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
    fn of(trail: &EvaluatedTrail) -> Self {
        let template = trail.trail.template_id;
        let status = trail.status.clone();
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

impl TrailView {
    pub(super) fn new(evaluated: &EvaluatedTrail, flow: &Flow, cx: &Context<'_>) -> Self {
        let trail = &evaluated.trail;
        let Parsed { text, template } = &*evaluated.parsed;
        Self {
            name: trail.name.clone(),
            description: trail.description.clone(),
            git_commit_info: trail.git_commit_info.as_ref().map(TrailCommit::from),
            origin_url: trail.origin_url.clone(),
            user_data: trail.user_data.clone(),
            repo_ids: trail.repo_ids.clone(),
            external_urls: trail.external_urls.clone(),
            created_at: trail.created_at.seconds(),
            last_modified_at: evaluated.last_evidence_at().seconds(),
            created_by: trail.created_by.name.clone(),
            compliance_status: ComplianceStatus::of(evaluated),
            template: TemplateView { version: 1, trail: template.clone(), content: text.clone() },
            compliance_state: evaluated.status.state,
            is_compliant: evaluated.status.is_compliant,
            flow: TrailFlow { name: flow.name.clone(), tags: flow.tags.clone() },
            html_url: cx.trail_url(&flow.name, &trail.name),
            attestations: None,
            events: Vec::new(),
        }
    }
}

/// A trail document whose events, and attestations if requested, are streamed. The attestations precede the
/// events.
pub struct TrailDocument {
    /// The rest of the document.
    pub trail: TrailView,
    /// Its attestations, newest first; `None` unless they are requested.
    pub attestations: Option<BoxStream<'static, Result<AttestationView>>>,
}

impl std::fmt::Debug for TrailDocument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrailDocument").field("trail", &self.trail).finish_non_exhaustive()
    }
}

/// The bytes between the attestations and the events.
const BETWEEN: &[u8] = b"],\"events\":";

impl Envelope<EventView> for TrailDocument {
    type Document = TrailView;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let (mut before, after) = around_last(&self.trail)?;
        if self.attestations.is_some() {
            let what = "a trail does not end with its attestations and events";
            let misplaced = || Error::Internal { what, source: "its fields have another order".into() };
            let kept = before.strip_suffix(b"\"events\":").ok_or_else(misplaced)?.len();
            before.truncate(kept);
            before.extend(b"\"attestations\":[");
        }
        Ok((before, after))
    }

    fn is_long(&self) -> bool {
        let ComplianceStatus { attestations_statuses, artifacts_statuses, .. } =
            &self.trail.compliance_status;
        let lines = artifacts_statuses.values().map(|artifact| 1 + artifact.status.attestations.len());
        let template = self.trail.template.content.len();
        attestations_statuses.len() + lines.sum::<usize>() > MANY_EVALUATIONS || template > LONG_JSON
    }

    fn before(self, compute: &Compute) -> BoxStream<'static, Result<Vec<u8>>> {
        let Some(attestations) = self.attestations else { return stream::empty().boxed() };
        json_items(attestations, compute.clone()).chain(stream::iter([Ok(BETWEEN.to_vec())])).boxed()
    }
}

/// A page of trails.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ListTrails")]
#[non_exhaustive]
pub struct TrailList {
    /// The trails of the page.
    pub data: Vec<TrailView>,
    /// The position of this page in the list.
    pub pagination: Pagination,
}

impl Envelope<TrailView> for Pagination {
    type Document = TrailList;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        self.around_data()
    }
}

/// Streams the trails of a list, in its order: evaluated, without events, one after another.
pub(super) fn views(
    trails: Vec<Id>,
    owned: OwnedContext,
) -> impl Stream<Item = Result<TrailView>> + Send + 'static {
    let parts = memory_batches(trails, owned.clone());
    let view = |(reported, flow): InFlow, template, cx: &Context<'_>| {
        Ok(TrailView::new(&EvaluatedTrail::new(Cow::Borrowed(&reported.contents), template), &flow, cx))
    };
    let evaluations = |(reported, _): &InFlow, template: &Template| reported.contents.evaluations(template);
    let parts = stream::once(parts).try_flatten();
    let read = move |versions| {
        let owned = owned.clone();
        async move { Ok(map_with_templates(in_flows(versions, owned.clone()).await?, owned, evaluations, view)) }
    };
    parts.and_then(read).try_flatten()
}

/// A trail and its flow.
type InFlow = (Arc<ReportedTrail>, Arc<Flow>);

/// Splits these trails into batches that are read one after another.
async fn memory_batches(
    trails: Vec<Id>,
    owned: OwnedContext,
) -> Result<impl Stream<Item = Result<Vec<TrailVersion>>> + Send> {
    let versions = owned.context().trail_versions(&trails).await?.into_iter();
    let parts = in_batches(versions.map(|version| (version, version.size())), usize::MAX);
    Ok(stream::iter(parts.into_iter().map(Ok)))
}

/// Returns these trails with their reports, templates and flows, in order.
async fn in_flows(
    versions: Vec<TrailVersion>,
    owned: OwnedContext,
) -> Result<Vec<(Option<TextRef>, InFlow)>> {
    let cx = owned.context();
    let found = cx.reported_trails(&versions, Instant::now()).await?;
    let flows = distinct(found.iter().map(|reported| reported.contents.trail.flow));
    let flows = cx.store().flows_by_id(cx.org()?, &flows).await?;
    let flows: BTreeMap<Id, Arc<Flow>> = flows.into_iter().map(|flow| (flow.id, Arc::new(flow))).collect();
    let in_flow = |reported: Arc<ReportedTrail>| {
        let flow = Arc::clone(flows.get(&reported.contents.trail.flow)?);
        Some((reported.contents.trail.template, (reported, flow)))
    };
    Ok(found.into_iter().filter_map(in_flow).collect())
}
