//! Where running artifacts come from, and what they replaced: the reports, flows and trails behind what a snapshot records, for
//! all that shows it, read in parts that fit memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::try_join;
use schemars::JsonSchema;
use serde::Serialize;

use crate::artifacts::record::Artifact;
use crate::artifacts::view::state_info;
use crate::error::Result;
use crate::flows::operations::FlowLabel;
use crate::git::{GitCommit, GitCommitInfo};
use crate::id::Id;
use crate::name::Fingerprint;
use crate::page::in_batches;
use crate::repos::record::compare_url;
use crate::rules::compliance::State;
use crate::rules::policy::FlowContext;
use crate::service::Context;
use crate::snapshots::record::{Provenance, RunningArtifact};
use crate::snapshots::store::{Replaced, SnapshotEntry, Start};
use crate::snapshots::view::{ArtifactFlow, FlowReason, fingerprint};
use crate::store::batch::distinct;
use crate::time::Timestamp;

/// What is about an artifact that ran.
pub(crate) trait Ran {
    /// The artifact.
    fn ran(&self) -> &RunningArtifact;
}

impl Ran for SnapshotEntry {
    fn ran(&self) -> &RunningArtifact {
        &self.instance
    }
}

/// What is about an artifact, with what that replaced.
#[derive(Debug)]
pub(crate) struct Traced<T> {
    /// The thing itself.
    pub(crate) item: T,
    /// What the artifact replaced, by flow.
    pub(crate) replaced: BTreeMap<Id, Replaced>,
}

impl<T: Ran> Traced<T> {
    /// What did not ask for what it replaced.
    pub(crate) const fn bare(item: T) -> Self {
        Self { item, replaced: BTreeMap::new() }
    }

    /// The reports that the artifact comes from, and those of what it replaced.
    fn reports(&self) -> impl Iterator<Item = Id> {
        let from = self.item.ran().provenance.iter().map(|provenance| provenance.artifact);
        from.chain(self.replaced.values().map(|replaced| replaced.report))
    }
}

/// These, in order, with what they replaced in their environments.
pub(crate) async fn trace<T: Ran>(
    items: Vec<T>,
    environment: impl Fn(&T) -> Id,
    cx: &Context<'_>,
) -> Result<Vec<Traced<T>>> {
    let mut starts = BTreeMap::<Id, (Vec<Start>, Vec<(usize, Id)>)>::new();
    for (place, item) in items.iter().enumerate() {
        let instance = item.ran();
        for Provenance { flow, reference, .. } in &instance.provenance {
            let Some(flow) = *flow else { continue };
            let (reference, since, artifact) = (reference.clone(), instance.since, instance.key());
            let (starts, whose) = starts.entry(environment(item)).or_default();
            starts.push(Start { flow, reference, since, artifact });
            whose.push((place, flow));
        }
    }
    let mut traced: Vec<_> = items.into_iter().map(Traced::bare).collect();
    for (environment, (starts, whose)) in starts {
        for replaced in cx.store().replaced(cx.org()?, environment, &starts).await? {
            let whose = usize::try_from(replaced.place).ok().and_then(|place| whose.get(place));
            let Some((place, flow)) = whose else { continue };
            if let Some(of) = traced.get_mut(*place) {
                of.replaced.insert(*flow, replaced);
            }
        }
    }
    Ok(traced)
}

/// More artifacts are not shown at once.
const MAX_ITEMS: usize = 512;

/// These, in order, in parts: the reports that those of one come from fit memory together.
pub(crate) async fn in_parts<T: Ran>(items: Vec<Traced<T>>, cx: &Context<'_>) -> Result<Vec<Vec<Traced<T>>>> {
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

fn reports<T: Ran>(items: &[Traced<T>]) -> Vec<Id> {
    distinct(items.iter().flat_map(Traced::reports))
}

/// What is shown of the report that an artifact comes from.
pub(crate) struct Source {
    flow: Id,
    trail: Option<Id>,
    fingerprint: Fingerprint,
    template_reference_name: String,
    pub(crate) git_commit: String,
    pub(crate) commit_url: String,
    commit: Option<GitCommit>,
    pub(crate) repo: Option<Id>,
    repo_url: String,
}

impl From<Artifact> for Source {
    fn from(report: Artifact) -> Self {
        let told = report.repo_info.as_ref().map(|info| info.url.to_string());
        Self {
            flow: report.flow,
            trail: report.trail,
            fingerprint: report.fingerprint,
            template_reference_name: report.template_reference_name,
            git_commit: report.git_commit.as_ref().map(ToString::to_string).unwrap_or_default(),
            commit_url: report.commit_url,
            commit: report.git_commit_info,
            repo: report.repo,
            repo_url: told.filter(|url| !url.is_empty()).unwrap_or(report.repo_url),
        }
    }
}

/// The reports, flows and trails that some artifacts come from.
#[derive(Default)]
pub(crate) struct Sources {
    artifacts: BTreeMap<Id, Source>,
    flows: BTreeMap<Id, FlowLabel>,
    trail_names: BTreeMap<Id, String>,
}

impl Sources {
    /// Those of one part ([`in_parts`]).
    pub(crate) async fn read<T: Ran>(part: &[Traced<T>], cx: &Context<'_>) -> Result<Self> {
        let (org, reports) = (cx.org()?, reports(part));
        if reports.is_empty() {
            return Ok(Self::default());
        }
        let reports = cx.store().artifacts_by_id(org, &reports).await?;
        let artifacts: BTreeMap<Id, Source> =
            reports.into_iter().map(|report| (report.id, Source::from(report))).collect();
        let flows = distinct(artifacts.values().map(|artifact| artifact.flow));
        let trails = distinct(artifacts.values().filter_map(|artifact| artifact.trail));
        let trail_names = async { Ok(cx.store().trail_names(org, &trails).await?) };
        let (flows, trails) = try_join(cx.flow_labels(&flows), trail_names).await?;
        let trail_names = trails.into_iter().map(|(trail, name)| (trail, name.into_string())).collect();
        Ok(Self { artifacts, flows, trail_names })
    }

    /// The report, and the name of its flow.
    pub(crate) fn of(&self, provenance: &Provenance) -> Option<(&str, &Source)> {
        let source = self.artifacts.get(&provenance.artifact)?;
        Some((self.flows.get(&source.flow)?.name.as_str(), source))
    }

    fn trail_name(&self, source: &Source) -> Option<&String> {
        self.trail_names.get(&source.trail?)
    }

    /// What was known where this was reported, when it was evaluated.
    pub(crate) fn context(&self, provenance: &Provenance) -> FlowContext {
        let source = self.artifacts.get(&provenance.artifact);
        let flow = source.and_then(|source| self.flows.get(&source.flow));
        let trail = source.and_then(|source| self.trail_name(source));
        FlowContext {
            flow_name: flow.map(|flow| flow.name.to_string()).unwrap_or_default(),
            trail_name: trail.cloned().unwrap_or_default(),
            artifact_state: provenance.state,
            reason: provenance.reason.clone(),
            tags: Arc::default(),
            attestations: Vec::new(),
        }
    }

    /// The flows that an instance in snapshot `index` comes from.
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
                deployment_diff: self.diff(provenance, replaced, index),
                commit_lead_time: created
                    .zip(committed)
                    .map(|(created, committed)| Timestamp::from_seconds(created).since(committed)),
                artifact_compliance_in_flow: provenance.state.is_compliant(),
                flow_reasons_for_non_compliance: FlowReason::of(provenance),
            })
        };
        instance.provenance.iter().filter_map(flow_of).collect()
    }

    /// What an artifact replaced that comes from this report, as seen in snapshot `index`.
    pub(crate) fn diff(
        &self,
        provenance: &Provenance,
        replaced: &BTreeMap<Id, Replaced>,
        index: u64,
    ) -> Option<DeploymentDiff> {
        let Replaced { report, instance: previous, until, .. } = replaced.get(&provenance.flow?)?;
        let (artifact, before) = (self.artifacts.get(&provenance.artifact)?, self.artifacts.get(report)?);
        let state = previous.provenance.iter().find(|from| from.artifact == *report).map(|from| from.state);
        Some(DeploymentDiff {
            diff_url: compare_url(&artifact.repo_url, &before.git_commit, &artifact.git_commit)
                .unwrap_or_default(),
            previous_git_commit: before.git_commit.clone(),
            previous_fingerprint: fingerprint(previous),
            previous_artifact_name: previous.name.clone(),
            previous_artifact_compliance_state: state,
            previous_running: until.is_none_or(|until| until > index),
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

/// What an artifact replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct DeploymentDiff {
    /// Where the commits of both can be compared, at hosts whose addresses are known (GitHub and GitLab); else empty.
    pub diff_url: String,
    /// The commit that the other was built from, in full; empty where none was told.
    pub previous_git_commit: String,
    /// Its SHA-256.
    pub previous_fingerprint: String,
    /// Its name, as the environment knew it last.
    pub previous_artifact_name: String,
    /// Its state in its trail as a snapshot of this environment recorded it last; null where none did.
    pub previous_artifact_compliance_state: Option<State>,
    /// Whether it runs in this snapshot, too.
    pub previous_running: bool,
    /// Where its commit can be looked at, as reported.
    pub previous_git_commit_url: String,
    /// The name of its trail; null for a report to a flow as a whole.
    pub previous_trail_name: Option<String>,
    /// The template's name for it; null without one.
    pub previous_template_reference_name: Option<String>,
}

impl FlowReason {
    fn of(provenance: &Provenance) -> Vec<Self> {
        if provenance.state.is_compliant() {
            return Vec::new();
        }
        let reason = provenance.reason.clone().unwrap_or_else(|| state_info(provenance.state).to_owned());
        vec![Self { artifact_compliance_state: provenance.state, reason }]
    }
}
