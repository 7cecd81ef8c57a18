//! The origins of running artifacts, and the artifacts that they replaced. Reads the reports, flows and
//! trails that a snapshot refers to, in parts that fit in memory, for every response that shows them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::try_join;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::Serialize;

use crate::artifacts::record::Artifact;
use crate::artifacts::view::state_info;
use crate::context::{Context, OwnedContext};
use crate::deployments::store::Deployment;
use crate::error::{Error, Result};
use crate::flows::operations::FlowLabel;
use crate::git::{GitCommit, GitCommitInfo};
use crate::id::Id;
use crate::name::Fingerprint;
use crate::page::in_batches;
use crate::repos::record::compare_url;
use crate::rules::compliance::State;
use crate::rules::policy::FlowContext;
use crate::snapshots::record::{Provenance, RunningArtifact};
use crate::snapshots::store::{Replaced, SnapshotEntry, Start};
use crate::store::batch::distinct;
use crate::time::{Seconds, Timestamp};

/// Data about an artifact that ran.
pub(crate) trait RanArtifact {
    /// Returns the artifact.
    fn ran(&self) -> &RunningArtifact;
}

impl RanArtifact for SnapshotEntry {
    fn ran(&self) -> &RunningArtifact {
        &self.instance
    }
}

/// Data that come from reports.
pub(crate) trait Reported {
    /// Returns the ids of the reports.
    fn reports(&self) -> Vec<Id>;
}

impl<T: RanArtifact> Reported for T {
    fn reports(&self) -> Vec<Id> {
        self.ran().provenance.iter().map(|provenance| provenance.artifact).collect()
    }
}

impl Reported for Deployment {
    fn reports(&self) -> Vec<Id> {
        self.report.iter().map(|report| report.id).collect()
    }
}

/// Data about an artifact, with the artifacts that it replaced.
#[derive(Debug)]
pub(crate) struct WithReplaced<T> {
    /// The data.
    pub(crate) item: T,
    /// The replaced artifacts, by flow.
    pub(crate) replaced: BTreeMap<Id, Replaced>,
}

impl<T: Reported> WithReplaced<T> {
    /// Returns the data without the replaced artifacts.
    pub(crate) const fn new(item: T) -> Self {
        Self { item, replaced: BTreeMap::new() }
    }

    /// Returns the reports of the artifact, and those of the artifacts it replaced.
    fn reports(&self) -> impl Iterator<Item = Id> {
        self.item.reports().into_iter().chain(self.replaced.values().map(|replaced| replaced.report))
    }
}

/// Returns the starts of an artifact's run in an environment, one for each flow that it was reported to.
fn starts(environment: Id, instance: &RunningArtifact) -> Vec<Start> {
    let start = |from: &Provenance| {
        let (reference, since, artifact) = (from.reference.clone(), instance.since, instance.key());
        Some(Start { environment, flow: from.flow?, reference, since, artifact })
    };
    instance.provenance.iter().filter_map(start).collect()
}

/// Returns these items in order, with the artifacts that each replaced. Each item comes with its starts.
pub(crate) async fn read_replaced<T: Reported>(
    items: Vec<(T, Vec<Start>)>,
    cx: &Context<'_>,
) -> Result<Vec<WithReplaced<T>>> {
    let (mut starts, mut whose, mut traced) = (Vec::new(), Vec::new(), Vec::new());
    for (place, (item, started)) in items.into_iter().enumerate() {
        whose.extend(started.iter().map(|start| (place, start.flow)));
        starts.extend(started);
        traced.push(WithReplaced::new(item));
    }
    if starts.is_empty() {
        return Ok(traced);
    }
    for replaced in cx.store().replaced(cx.org()?, &starts).await? {
        let whose = usize::try_from(replaced.place).ok().and_then(|place| whose.get(place));
        let Some((place, flow)) = whose else { continue };
        if let Some(of) = traced.get_mut(*place) {
            of.replaced.insert(*flow, replaced);
        }
    }
    Ok(traced)
}

/// The most artifacts that are shown at once.
const MAX_ITEMS: usize = 512;

/// The assumed number of bytes to read about an artifact that a start replaced.
const START_BYTES: u64 = 2 << 10;

/// Streams these items in order, in parts that fit in memory. Each part has the replaced artifacts in their
/// environments, and the sources of both. Parts are read one after another.
pub(crate) fn with_replaced_in_parts<T: RanArtifact + Send + Sync + 'static>(
    items: Vec<T>,
    environment: impl Fn(&T) -> Id,
    owned: OwnedContext,
) -> impl Stream<Item = Result<(Vec<WithReplaced<T>>, Sources)>> + Send + 'static {
    let weighed = items.into_iter().map(|item| {
        let starts = starts(environment(&item), item.ran());
        let bytes = starts.len() as u64 * START_BYTES;
        ((item, starts), bytes)
    });
    let (tracing, reading) = (owned.clone(), owned);
    let parts = stream::iter(in_batches(weighed, MAX_ITEMS)).then(move |part| {
        let owned = tracing.clone();
        async move {
            let cx = owned.context();
            let parts = in_parts(read_replaced(part, &cx).await?, &cx).await?;
            Ok::<_, Error>(stream::iter(parts).map(Ok))
        }
    });
    parts.try_flatten().and_then(move |part| {
        let owned = reading.clone();
        async move {
            let sources = Sources::read(&part, &owned.context()).await?;
            Ok((part, sources))
        }
    })
}

/// Splits these items, in order, into parts whose reports fit in memory.
pub(crate) async fn in_parts<T: Reported>(
    items: Vec<WithReplaced<T>>,
    cx: &Context<'_>,
) -> Result<Vec<Vec<WithReplaced<T>>>> {
    let sizes = match reports(&items).as_slice() {
        [] => Vec::new(),
        some => cx.store().artifact_sizes(cx.org()?, some).await?,
    };
    let sizes: BTreeMap<Id, u64> = sizes.into_iter().map(|report| (report.id, report.bytes)).collect();
    let weighed = items.into_iter().map(|item| {
        let bytes = item.reports().filter_map(|report| sizes.get(&report)).sum();
        (item, bytes)
    });
    Ok(in_batches(weighed, MAX_ITEMS))
}

fn reports<T: Reported>(items: &[WithReplaced<T>]) -> Vec<Id> {
    distinct(items.iter().flat_map(WithReplaced::reports))
}

/// The parts of an artifact's report that are shown.
pub(crate) struct Source {
    flow: Id,
    trail: Option<Id>,
    fingerprint: Fingerprint,
    template_reference_name: String,
    pub(crate) git_commit: String,
    pub(crate) commit_url: String,
    commit: Option<GitCommit>,
    repo_url: String,
}

impl From<Artifact> for Source {
    fn from(report: Artifact) -> Self {
        Self {
            repo_url: report.repo_address().to_owned(),
            flow: report.flow,
            trail: report.trail,
            fingerprint: report.fingerprint,
            template_reference_name: report.template_reference_name,
            git_commit: report.git_commit.as_ref().map(ToString::to_string).unwrap_or_default(),
            commit_url: report.commit_url,
            commit: report.git_commit_info,
        }
    }
}

/// The reports, flows and trails of some artifacts.
#[derive(Default)]
pub(crate) struct Sources {
    artifacts: BTreeMap<Id, Source>,
    flows: BTreeMap<Id, FlowLabel>,
    trail_names: BTreeMap<Id, String>,
}

impl Sources {
    /// Reads the sources of one part ([`in_parts`]).
    pub(crate) async fn read<T: Reported>(part: &[WithReplaced<T>], cx: &Context<'_>) -> Result<Self> {
        let (org, reports) = (cx.org()?, reports(part));
        if reports.is_empty() {
            return Ok(Self::default());
        }
        let reports = cx.store().artifacts_by_id(org, &reports).await?;
        let artifacts: BTreeMap<Id, Source> =
            reports.into_iter().map(|report| (report.id, Source::from(report))).collect();
        let flows = distinct(artifacts.values().map(|artifact| artifact.flow));
        let trails = distinct(artifacts.values().filter_map(|artifact| artifact.trail));
        let trails = async { Ok(cx.store().trail_labels(org, &trails).await?) };
        let (flows, trails) = try_join(cx.flow_labels(&flows), trails).await?;
        let trail_names =
            trails.into_iter().map(|(trail, label)| (trail, label.name.into_string())).collect();
        Ok(Self { artifacts, flows, trail_names })
    }

    /// Returns the report, with the name of its flow.
    pub(crate) fn of(&self, provenance: &Provenance) -> Option<(&str, &Source)> {
        let source = self.artifacts.get(&provenance.artifact)?;
        Some((self.flows.get(&source.flow)?.name.as_str(), source))
    }

    fn trail_name(&self, source: &Source) -> Option<&String> {
        self.trail_names.get(&source.trail?)
    }

    /// Returns the context of this report as of its evaluation.
    pub(crate) fn context(&self, provenance: &Provenance) -> FlowContext {
        let source = self.artifacts.get(&provenance.artifact);
        let flow = source.and_then(|source| self.flows.get(&source.flow));
        let trail = source.and_then(|source| self.trail_name(source));
        FlowContext {
            flow_name: flow.map(|flow| flow.name.to_string()).unwrap_or_default(),
            condition_names: Arc::default(),
            trail_name: trail.cloned().unwrap_or_default(),
            artifact_state: provenance.state,
            reason: provenance.reason.clone(),
            tags: Arc::default(),
            attestations: Arc::default(),
        }
    }

    /// Returns the flows of an instance in snapshot `index`.
    pub(crate) fn flows_of(
        &self,
        instance: &RunningArtifact,
        replaced: &BTreeMap<Id, Replaced>,
        index: u64,
        cx: &Context<'_>,
    ) -> Vec<ArtifactFlow> {
        let created = instance.created.first().copied();
        let flow_of = |provenance: &Provenance| {
            let (flow, artifact) = self.of(provenance)?;
            let commit = artifact.commit.as_ref();
            let committed = commit.and_then(|commit| commit.timestamp).map(|at| at.0);
            Some(ArtifactFlow {
                flow_name: flow.to_owned(),
                trail_name: self.trail_name(artifact).cloned(),
                template_reference_name: artifact.reference(),
                git_commit: artifact.git_commit.clone(),
                commit_url: artifact.commit_url.clone(),
                git_commit_info: commit.map(GitCommitInfo::from),
                html_url: cx.artifact_url(flow, &artifact.fingerprint, provenance.artifact),
                flow_html_url: cx.page_url(&format!("flows/{flow}")),
                deployment_diff: provenance
                    .flow
                    .and_then(|flow| self.diff(provenance.artifact, replaced.get(&flow)?, index)),
                commit_lead_time: created
                    .zip(committed)
                    .map(|(created, committed)| Timestamp::from_seconds(created).since(committed)),
                artifact_compliance_in_flow: provenance.state.is_compliant(),
                flow_reasons_for_non_compliance: FlowReason::of(
                    provenance.state,
                    provenance.reason.as_deref(),
                ),
            })
        };
        instance.provenance.iter().filter_map(flow_of).collect()
    }

    /// Returns the artifact that was replaced by the artifact of this report, as seen in snapshot `index`.
    pub(crate) fn diff(&self, report: Id, replaced: &Replaced, index: u64) -> Option<DeploymentDiff> {
        let (artifact, before) = (self.artifacts.get(&report)?, self.artifacts.get(&replaced.report)?);
        Some(DeploymentDiff {
            diff_url: compare_url(&artifact.repo_url, &before.git_commit, &artifact.git_commit)
                .unwrap_or_default(),
            previous_git_commit: before.git_commit.clone(),
            previous_fingerprint: replaced.fingerprint.as_ref().map(ToString::to_string).unwrap_or_default(),
            previous_artifact_name: replaced.name.clone(),
            previous_artifact_compliance_state: replaced.state,
            previous_running: replaced.until.is_none_or(|until| until > index),
            previous_git_commit_url: before.commit_url.clone(),
            previous_trail_name: self.trail_name(before).cloned(),
            previous_template_reference_name: before.reference(),
        })
    }
}

impl Source {
    fn reference(&self) -> Option<String> {
        Some(self.template_reference_name.clone()).filter(|name| !name.is_empty())
    }
}

/// An artifact that was replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DeploymentDiff {
    /// The URL of a comparison of both commits, for hosts with known URLs (GitHub and GitLab); otherwise
    /// empty.
    pub diff_url: String,
    /// The full hash of the commit that the replaced artifact was built from; empty if not reported.
    pub previous_git_commit: String,
    /// Its SHA-256.
    pub previous_fingerprint: String,
    /// Its last name in the environment.
    pub previous_artifact_name: String,
    /// Its state in its trail, as last recorded by a snapshot of this environment; null if none did.
    pub previous_artifact_compliance_state: Option<State>,
    /// Whether it runs in this snapshot too.
    pub previous_running: bool,
    /// The URL of its commit's page, as reported.
    pub previous_git_commit_url: String,
    /// The name of its trail; null for a report to a flow as a whole.
    pub previous_trail_name: Option<String>,
    /// Its template name; null without one.
    pub previous_template_reference_name: Option<String>,
}

/// The origin of an artifact in one flow: its newest report there.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "SnapshotArtifactFlow")]
#[non_exhaustive]
pub struct ArtifactFlow {
    /// The flow's name.
    pub flow_name: String,
    /// The trail's name; null for a report to a flow as a whole.
    pub trail_name: Option<String>,
    /// Its template name; null without one.
    pub template_reference_name: Option<String>,
    /// The full hash of the commit that it was built from; empty if not reported.
    pub git_commit: String,
    /// The URL of the commit's page, as reported.
    pub commit_url: String,
    /// The details of the commit, as reported.
    pub git_commit_info: Option<GitCommitInfo>,
    /// The URL of the artifact's page in the flow.
    pub html_url: String,
    /// The URL of the flow's page.
    pub flow_html_url: String,
    /// The artifact that it replaced: the last other one that started here before it with the same template
    /// name in the same flow, or with any if it has none. Null if there was none.
    pub deployment_diff: Option<DeploymentDiff>,
    /// Seconds from the commit until the first instance was created. Negative if the commit is later; null if
    /// either is unknown.
    pub commit_lead_time: Option<Seconds>,
    /// Whether the report was compliant in this flow when the snapshot was taken.
    pub artifact_compliance_in_flow: bool,
    /// The reasons why it was not: its state in the flow, with the cause if known. Empty if it was compliant.
    pub flow_reasons_for_non_compliance: Vec<FlowReason>,
}

/// The reason why an artifact is not compliant in a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct FlowReason {
    /// The state of the report in its trail when the snapshot was taken: `NON-COMPLIANT` or `INCOMPLETE`.
    pub artifact_compliance_state: State,
    /// The state as a sentence.
    pub reason: String,
}

impl FlowReason {
    /// Returns the reason why content in this state is not compliant; empty if it is.
    pub(crate) fn of(state: State, reason: Option<&str>) -> Vec<Self> {
        if state.is_compliant() {
            return Vec::new();
        }
        let reason = reason.unwrap_or_else(|| state_info(state)).to_owned();
        vec![Self { artifact_compliance_state: state, reason }]
    }
}
