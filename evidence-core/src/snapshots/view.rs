//! Snapshots in responses: the running artifacts, their origin, and the policies' decisions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::Serialize;

use crate::allowlists::view::AllowListing;
use crate::compute::{Compute, MANY_EVALUATIONS};
use crate::context::{Context, OwnedContext};
use crate::environments::record::EnvironmentKind;
use crate::error::{Error, Result, at_most};
use crate::id::Id;
use crate::json::JsonText;
use crate::operation::{Envelope, JsonList, around_last, write_json};
use crate::snapshots::applied::{
    AppliedPolicyView, AppliedVersion, AppliedVersions, DeniedArtifact, FailingArtifacts,
    reasons_for_incompliance,
};
use crate::snapshots::logical::{Part, Shown};
use crate::snapshots::record::{Annotation, PolicyDecision, RunningArtifact, is_zero};
use crate::snapshots::sources::{
    ArtifactFlow, DeploymentDiff, Sources, WithReplaced, with_replaced_in_parts,
};
use crate::snapshots::store::{SnapshotEntry, SnapshotRow};
use crate::snapshots::timeline::Timeline;
use crate::store::error::StoreError;
use crate::time::{Seconds, Timestamp, WholeSeconds};

/// A snapshot of an environment in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "GetSnapshotListItem")]
#[non_exhaustive]
pub struct SnapshotSummary {
    /// Its number in the environment, from 1.
    pub index: u64,
    /// When it was taken, in epoch seconds.
    pub from: WholeSeconds,
    /// When the next one was taken, in epoch seconds; 0 for the current one.
    pub to: WholeSeconds,
    /// Whether all artifacts were allowed to run; false without policies.
    pub compliant: bool,
    /// The number of seconds that it was current, or has been so far.
    pub duration: WholeSeconds,
}

impl SnapshotSummary {
    pub(super) fn new(row: &SnapshotRow, now: Timestamp) -> Self {
        // The clock of the server that took it may be ahead of this one's.
        let until = row.until.unwrap_or(now).max(row.at);
        let lasted = until.as_micros().saturating_sub(row.at.as_micros());
        Self {
            index: row.index,
            from: row.at.whole_seconds(),
            to: row.until.map(Timestamp::whole_seconds).unwrap_or_default(),
            compliant: row.compliant,
            duration: Timestamp::from_micros(lasted).whole_seconds(),
        }
    }
}

/// The artifacts that ran in an environment from one change to the next.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "GetSnapshotResponse")]
#[non_exhaustive]
pub struct SnapshotView {
    /// Its number in the environment, from 1.
    pub index: u64,
    /// Whether it is the current one.
    pub is_latest: bool,
    /// When the next one was taken, in epoch seconds; null for the current one.
    pub next_snapshot_timestamp: Option<Seconds>,
    /// The numbers of running artifacts that are allowed (`true`), not allowed (`false`), or not evaluated by
    /// any policy (`null`).
    pub artifact_compliance_count: BTreeMap<&'static str, u64>,
    /// When it was taken, in epoch seconds.
    pub timestamp: Seconds,
    /// The environment's type.
    #[serde(rename = "type")]
    pub kind: EnvironmentKind,
    /// Whether all artifacts were allowed to run; false without policies.
    pub compliant: bool,
    /// The URL of the snapshot's page.
    pub html_url: String,
    /// The number of skipped elements, which had no digest, in the report that caused this snapshot. If the
    /// snapshot was a new evaluation, the number is that of an earlier report. For a logical environment, the
    /// sum over its members. Absent if none was skipped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_elements: u64,
    /// The policies that it was evaluated against, sorted by id and version. The decisions on each artifact
    /// have the same order.
    pub applied_policies: Vec<AppliedPolicyView>,
    /// The running artifacts, newest first, then those that stopped with this snapshot. For a logical
    /// environment, the same for each member, one member after another.
    // Empty here: the artifacts are streamed.
    pub artifacts: Vec<SnapshotArtifact>,
}

/// The bytes between the policies and the artifacts.
const BETWEEN: &[u8] = b"],\"artifacts\":";

impl Envelope<SnapshotArtifact> for SnapshotView {
    type Document = Self;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        let Self { artifact_compliance_count: count, html_url, .. } = self;
        let (count, html_url) = (count.clone(), html_url.clone());
        let (applied_policies, artifacts) = (Vec::new(), Vec::new());
        let bare = Self { artifact_compliance_count: count, html_url, applied_policies, artifacts, ..*self };
        let (before, after) = around_last(&bare)?;
        let what = "a snapshot does not end with its policies and artifacts";
        let misplaced = || Error::Internal { what, source: "its fields have another order".into() };
        Ok((before.strip_suffix(BETWEEN).ok_or_else(misplaced)?.to_vec(), after))
    }

    fn before(self, compute: &Compute) -> BoxStream<'static, Result<Vec<u8>>> {
        let compute = compute.clone();
        let policy = move |(number, policy)| {
            let (compute, mut text) = (compute.clone(), Vec::from(if number > 0 { "," } else { "" }));
            async move { write_json(&mut text, policy, &compute).await.map(|()| text) }
        };
        let policies = stream::iter(self.applied_policies.into_iter().enumerate()).then(policy);
        policies.chain(stream::iter([Ok(BETWEEN.to_vec())])).boxed()
    }
}

/// An artifact of a snapshot. The keys from `flow_name` to `commit_lead_time` repeat the first of `flows`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct SnapshotArtifact {
    /// Its name in the environment; if there are several, the first in the report.
    pub name: String,
    /// Its other names in the environment, sorted. Each rule of a policy must hold for each of its names.
    /// Absent if it has only one name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_names: Vec<String>,
    /// Its SHA-256; empty for an artifact without a digest.
    pub fingerprint: String,
    /// Whether it is allowed to run. Null if no policy evaluates it and the environment does not require
    /// provenance.
    pub compliant: Option<bool>,
    /// Retired; always empty.
    pub deployments: [(); 0],
    /// When each of its instances was created, in epoch seconds, ascending. There is one entry for each
    /// instance.
    #[serde(rename = "creationTimestamp")]
    pub created: Vec<i64>,
    /// Its pods, in Kubernetes environments.
    pub pods: Option<JsonText>,
    /// Its task, in ECS environments.
    pub ecs_context: Option<JsonText>,
    /// Its app, in Azure environments: `app_name`, `app_kind` and `digests_source`.
    pub azure_context: Option<JsonText>,
    /// Its service or job, in Cloud Run environments: `kind`, `service_name`, `revision_name` and `job_name`.
    pub cloud_run_context: Option<JsonText>,
    /// Its difference to the previous snapshot.
    pub annotation: Annotation,
    /// The reasons why it is not allowed: a sentence for each rule of a policy that it violates in a flow. If
    /// the environment requires provenance, also that it has none or, without policies, its state in its
    /// flows. Empty if it is allowed or not evaluated.
    pub reasons_for_incompliance: Vec<String>,
    /// The allowlist entry that was in force when the snapshot was taken. Absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_listing: Option<AllowListing>,
    /// The flow of the first of `flows`; empty without one.
    pub flow_name: String,
    /// The commit of the first of `flows`.
    pub git_commit: String,
    /// The URL of that commit's page.
    pub commit_url: String,
    /// The URL of the artifact's page in that flow.
    pub html_url: String,
    /// The URL of that flow's page.
    pub flow_html_url: String,
    /// The artifact that it replaced in the first of `flows`.
    pub deployment_diff: Option<DeploymentDiff>,
    /// Seconds from the commit until the first instance was created. Negative if the commit is later; null if
    /// either is unknown.
    pub commit_lead_time: Option<Seconds>,
    /// Its origin: its newest report in each flow. Empty without provenance.
    pub flows: Vec<ArtifactFlow>,
    /// The decision of each policy.
    pub policy_decisions: Vec<PolicyDecision>,
}

impl SnapshotView {
    pub(super) async fn gather(
        timeline: &Timeline,
        row: SnapshotRow,
        cx: &Context<'_>,
    ) -> Result<JsonList<SnapshotArtifact, Self>> {
        let (environment, index) = (&timeline.environment.record, row.index);
        let parts = timeline.parts(&row, cx).await?;
        let (mut summary, mut kept) = (Summary::default(), BTreeMap::new());
        let logical = timeline.is_logical().then_some(environment.id);
        for part in &parts {
            let read = PartRead::of(*part, logical, cx).await?;
            summary.add(&read)?;
            timeline.at_most(summary.artifacts, "snapshot_expression", cx)?;
            // Above the limit, hold only one member's artifacts at a time, and read them again when they are
            // sent.
            if parts.len() == 1 || summary.artifacts <= MAX_KEPT {
                kept.insert(read.environment, read);
            }
        }
        let view = Self {
            index,
            is_latest: index == timeline.count(),
            next_snapshot_timestamp: row.until.map(Timestamp::seconds),
            artifact_compliance_count: summary.count(),
            timestamp: row.at.seconds(),
            kind: environment.kind,
            compliant: row.compliant,
            html_url: cx.page_url(&format!("environments/{}/snapshots/{index}", environment.name)),
            skipped_elements: summary.skipped_elements,
            applied_policies: summary.policies(),
            artifacts: Vec::new(),
        };
        let owned = cx.to_owned_context();
        let read =
            move |part: Part| part_artifacts((part, logical), kept.remove(&part.environment), owned.clone());
        let artifacts = stream::iter(parts).then(read).try_flatten();
        JsonList::with_first_item(artifacts, view, &cx.compute()).await
    }
}

/// The most artifacts of several members that are held until they are sent.
const MAX_KEPT: usize = 8192;

/// Streams the artifacts of a part of a snapshot, which may have been read already.
async fn part_artifacts(
    (part, logical): (Part, Option<Id>),
    kept: Option<PartRead>,
    owned: OwnedContext,
) -> Result<BoxStream<'static, Result<SnapshotArtifact>>> {
    let read = match kept {
        Some(kept) => kept,
        None => PartRead::of(part, logical, &owned.context()).await?,
    };
    Ok(read.artifacts(owned))
}

/// A part of a snapshot, after reading.
struct PartRead {
    environment: Id,
    placed: Vec<SnapshotEntry>,
    shown: ShownBy,
}

impl PartRead {
    /// Reads the part for a snapshot of the environment itself, or of a `logical` one.
    async fn of(
        Part { environment, index, shown }: Part,
        logical: Option<Id>,
        cx: &Context<'_>,
    ) -> Result<Self> {
        let org = cx.org()?;
        let mut placed = cx.store().instances(org, environment, index).await?;
        if shown != Shown::Own {
            placed.retain(|placed| !placed.exited);
        }
        for placed in &mut placed {
            placed.exited |= shown == Shown::Left;
        }
        let snapshot = cx.store().snapshot(org, environment, index).await?;
        let lost = || StoreError::corrupt(format_args!("snapshot {index} of an environment is missing"));
        let snapshot = snapshot.ok_or_else(lost)?.record;
        let (requires_provenance, skipped_elements) =
            (snapshot.requires_provenance, snapshot.skipped_elements);
        let applied = AppliedVersions::read(snapshot, logical, cx).await?;
        let evaluated_before = |placed: &SnapshotEntry| placed.instance.judged_by != applied.digest;
        // Artifacts that exited with this snapshot were evaluated against the policies of the previous one.
        let applied_before = if placed.iter().any(evaluated_before) {
            let before = cx.store().snapshot(org, environment, index.saturating_sub(1)).await?;
            match before {
                Some(before) => AppliedVersions::read(before.record, logical, cx).await?,
                None => AppliedVersions::default(),
            }
        } else {
            AppliedVersions::default()
        };
        for placed in &mut placed {
            let judged_by = |applied: &&AppliedVersions| applied.digest == placed.instance.judged_by;
            let by = [&applied, &applied_before].into_iter().find(judged_by);
            let mut demanded = by.into_iter().flat_map(AppliedVersions::demanded);
            if demanded.any(|place| placed.instance.violates.binary_search(&place).is_ok()) {
                // It may be allowed in the member, but it violates the logical environment's own policies.
                placed.instance.compliant = Some(false);
            }
        }
        placed.sort_by_cached_key(|placed| {
            (placed.running_instances() == 0, Reverse(placed.instance.created.last().copied()))
        });
        Ok(Self {
            environment,
            placed,
            shown: ShownBy { index, requires_provenance, skipped_elements, shown, applied, applied_before },
        })
    }

    /// Streams its artifacts in the form of the snapshot.
    fn artifacts(self, owned: OwnedContext) -> BoxStream<'static, Result<SnapshotArtifact>> {
        let (environment, shown) = (self.environment, Arc::new(self.shown));
        let parts = with_replaced_in_parts(self.placed, |_| environment, owned.clone());
        let show = move |(part, sources): (Vec<WithReplaced<SnapshotEntry>>, Sources)| {
            let (shown, owned) = (Arc::clone(&shown), owned.clone());
            async move {
                let entries = part.iter().filter_map(|placed| placed.item.instance.allowed_by);
                let allowlist_entries = allowlist_entries(entries.collect(), &owned.context()).await?;
                Ok::<_, Error>(artifacts(part, Arc::new((sources, allowlist_entries)), shown, owned))
            }
        };
        parts.and_then(show).try_flatten().boxed()
    }
}

/// The reason for an artifact without provenance in an environment that requires it.
const NO_PROVENANCE: &str = "the environment requires provenance, and the artifact was reported in no flow";

/// The data about all artifacts of a snapshot that precede the artifacts in the response.
#[derive(Default)]
struct Summary {
    artifacts: usize,
    skipped_elements: u64,
    counts: [u64; 3],
    policies: Vec<AppliedVersion>,
    denied: Vec<DeniedArtifact>,
}

/// The most policy versions that a snapshot of a logical environment lists.
const POLICIES: usize = 1000;

impl Summary {
    fn add(&mut self, PartRead { placed, shown, .. }: &PartRead) -> Result<()> {
        self.artifacts += placed.len();
        let running = || placed.iter().filter(|placed| placed.running_instances() > 0);
        for placed in running() {
            let [allowed, denied, unknown] = &mut self.counts;
            *match placed.instance.compliant {
                Some(true) => allowed,
                Some(false) => denied,
                None => unknown,
            } += 1;
        }
        // The index of each policy of this part among all policies.
        let mut places = BTreeMap::new();
        if shown.shown != Shown::Left {
            self.skipped_elements = self.skipped_elements.saturating_add(shown.skipped_elements);
            for (place, version) in shown.applied.shown() {
                let same =
                    |known: &AppliedVersion| (known.id, known.version) == (version.id, version.version);
                let known = self.policies.iter().position(same).unwrap_or_else(|| {
                    self.policies.push(version.clone());
                    self.policies.len() - 1
                });
                places.insert(place, known);
            }
        }
        at_most(POLICIES, self.policies.len(), "snapshot_expression")?;
        let violating =
            placed.iter().filter(|placed| !placed.exited && placed.instance.compliant == Some(false));
        self.denied.extend(violating.map(|placed| {
            let places = placed.instance.violates.iter().filter_map(|place| places.get(place));
            let violates = places.filter_map(|place| u16::try_from(*place).ok()).collect();
            DeniedArtifact { fingerprint: fingerprint(&placed.instance), violates }
        }));
        Ok(())
    }

    fn count(&self) -> BTreeMap<&'static str, u64> {
        ["true", "false", "null"].into_iter().zip(self.counts).collect()
    }

    fn policies(self) -> Vec<AppliedPolicyView> {
        let Self { policies, mut denied, .. } = self;
        let mut policies = Vec::from_iter((0..=u16::MAX).zip(policies));
        policies.sort_by_key(|(_, version)| (version.id, version.version));
        let places: BTreeMap<u16, u16> = policies.iter().map(|(read, _)| *read).zip(0..).collect();
        for DeniedArtifact { violates, .. } in &mut denied {
            *violates = violates.iter().filter_map(|read| places.get(read).copied()).collect();
            violates.sort_unstable();
        }
        let denied: Arc<[DeniedArtifact]> = denied.into();
        let view = |(place, (_, version)): (u16, (u16, AppliedVersion))| {
            Some(AppliedPolicyView {
                id: version.id,
                name: version.name?,
                version: version.version,
                policy_dump: version.policy?,
                failing_artifacts: FailingArtifacts { denied: Arc::clone(&denied), place },
            })
        };
        (0..).zip(policies).filter_map(view).collect()
    }
}

/// Allowlist entries, by ledger index.
type AllowlistEntries = BTreeMap<u64, AllowListing>;

/// Returns the recorded entries at these ledger indexes. Unreadable ones are left out.
async fn allowlist_entries(entries: BTreeSet<u64>, cx: &Context<'_>) -> Result<AllowlistEntries> {
    // Newest first, the order in which the store returns them.
    let entries = Vec::from_iter(entries.into_iter().rev());
    if entries.is_empty() {
        return Ok(AllowlistEntries::new());
    }
    let found = cx.store().allowlist_entries(cx.org()?, &entries).await?;
    if found.len() == entries.len() {
        return Ok(entries.into_iter().zip(found.into_iter().map(AllowListing::from)).collect());
    }
    // The store returns them without indexes, so find the readable ones individually.
    let mut readable = AllowlistEntries::new();
    for entry in entries {
        let found = cx.store().allowlist_entries(cx.org()?, &[entry]).await?.pop();
        readable.extend(found.map(|found| (entry, AllowListing::from(found))));
    }
    Ok(readable)
}

/// Streams these artifacts in the form of the snapshot.
fn artifacts(
    part: Vec<WithReplaced<SnapshotEntry>>,
    sources: Arc<(Sources, AllowlistEntries)>,
    shown: Arc<ShownBy>,
    owned: OwnedContext,
) -> impl Stream<Item = Result<SnapshotArtifact>> + Send + 'static {
    let artifact = move |placed: WithReplaced<SnapshotEntry>| {
        let (shown, sources, owned) = (Arc::clone(&shown), Arc::clone(&sources), owned.clone());
        let heavy = shown.evaluations(&placed.item.instance) > MANY_EVALUATIONS;
        let compute = owned.context().compute();
        let show = move || shown.artifact(placed, (&sources.0, &sources.1), &owned.context());
        async move { compute.run_if(heavy, show).await }
    };
    stream::iter(part).then(artifact)
}

impl SnapshotEntry {
    /// Returns the number of instances that run in the snapshot.
    fn running_instances(&self) -> usize {
        if self.exited { 0 } else { self.instance.created.len() }
    }
}

/// Returns the fingerprint for a response; empty without one.
pub(crate) fn fingerprint(instance: &RunningArtifact) -> String {
    instance.fingerprint.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// The data needed to show the artifacts of a part of a snapshot.
struct ShownBy {
    /// The number of the environment's own snapshot.
    index: u64,
    /// Whether the environment required provenance at that time.
    requires_provenance: bool,
    /// The number of skipped elements in the report.
    skipped_elements: u64,
    shown: Shown,
    applied: AppliedVersions,
    /// The policies of the previous snapshot, if some artifact was evaluated against them.
    applied_before: AppliedVersions,
}

impl ShownBy {
    /// Returns the policies that this instance was evaluated against.
    fn applied(&self, instance: &RunningArtifact) -> Option<&AppliedVersions> {
        [&self.applied, &self.applied_before].into_iter().find(|applied| applied.digest == instance.judged_by)
    }

    /// Returns the number of evaluations that are needed to show this instance.
    fn evaluations(&self, instance: &RunningArtifact) -> usize {
        let applied = self.applied(instance).into_iter().flat_map(|applied| &applied.policies);
        let rules = applied.map(|version| version.policy.as_ref().map_or(0, |policy| policy.rules()));
        rules.sum::<usize>().saturating_mul(instance.provenance.len().max(1))
    }

    fn artifact(
        &self,
        placed: WithReplaced<SnapshotEntry>,
        (sources, allowlist_entries): (&Sources, &AllowlistEntries),
        cx: &Context<'_>,
    ) -> SnapshotArtifact {
        let WithReplaced { item: SnapshotEntry { mut instance, exited }, replaced } = placed;
        let flows = sources.flows_of(&instance, &replaced, self.index, cx);
        let annotation = self.annotation(&instance, exited);
        let policy_decisions = self.decisions(&instance, sources);
        let reasons_for_incompliance = match instance.compliant {
            Some(false) => self.reasons(&instance, &flows, &policy_decisions),
            Some(true) | None => Vec::new(),
        };
        let allow_listing = instance.allowed_by.and_then(|entry| allowlist_entries.get(&entry)).cloned();
        let first = flows.first().cloned();
        let text =
            |field: fn(&ArtifactFlow) -> &String| first.as_ref().map(field).cloned().unwrap_or_default();
        SnapshotArtifact {
            fingerprint: fingerprint(&instance),
            name: instance.name,
            other_names: instance.other_names,
            compliant: instance.compliant,
            deployments: [],
            created: instance.created,
            pods: instance.context.remove("pods"),
            ecs_context: instance.context.remove("ecs_context"),
            azure_context: instance.context.remove("azure_context"),
            cloud_run_context: instance.context.remove("cloud_run_context"),
            annotation,
            reasons_for_incompliance,
            allow_listing,
            flow_name: text(|flow| &flow.flow_name),
            git_commit: text(|flow| &flow.git_commit),
            commit_url: text(|flow| &flow.commit_url),
            html_url: text(|flow| &flow.html_url),
            flow_html_url: text(|flow| &flow.flow_html_url),
            deployment_diff: first.as_ref().and_then(|flow| flow.deployment_diff.clone()),
            commit_lead_time: first.as_ref().and_then(|flow| flow.commit_lead_time),
            flows,
            policy_decisions,
        }
    }

    /// Returns the reasons why an artifact is not allowed. If the environment requires provenance and has no
    /// policies, its flows decide.
    fn reasons(
        &self,
        instance: &RunningArtifact,
        flows: &[ArtifactFlow],
        decisions: &[PolicyDecision],
    ) -> Vec<String> {
        let has_policies = self.applied(instance).is_none_or(|applied| applied.has_own)
            && instance.judged_by.is_some()
            || decisions.iter().any(|one| !one.status.is_compliant());
        let lacks_provenance = instance.provenance.is_empty() && (self.requires_provenance || !has_policies);
        let because = match &instance.not_evaluated {
            // Policies, if there are any, give the reason themselves. Whether it has provenance is unknown.
            Some(why) => Some(why.clone()).filter(|_| !has_policies),
            None => lacks_provenance.then(|| NO_PROVENANCE.to_owned()),
        };
        let in_flows = flows.iter().filter(|_| !has_policies);
        let in_flows =
            in_flows.map(|flow| (flow.flow_name.as_str(), flow.flow_reasons_for_non_compliance.as_slice()));
        let reasons = reasons_for_incompliance(in_flows, decisions);
        because.into_iter().chain(reasons).collect()
    }

    fn annotation(&self, instance: &RunningArtifact, exited: bool) -> Annotation {
        match self.shown {
            Shown::Own | Shown::Left => annotation(instance, exited, self.index),
            Shown::Unchanged => Annotation::unchanged(instance),
            Shown::Joined => Annotation {
                kind: Annotation::started(instance.compliant).to_owned(),
                was: 0,
                now: instance.created.len() as u64,
            },
        }
    }

    fn decisions(&self, instance: &RunningArtifact, sources: &Sources) -> Vec<PolicyDecision> {
        let contexts = instance.provenance.iter().map(|provenance| sources.context(provenance));
        self.applied(instance)
            .map(|applied| applied.decisions(instance, &Vec::from_iter(contexts)))
            .unwrap_or_default()
    }
}

/// Returns the annotation of an instance in snapshot `index`. Its recorded annotation applies only to the
/// snapshot in which it began.
pub(crate) fn annotation(instance: &RunningArtifact, exited: bool, index: u64) -> Annotation {
    let count = instance.created.len() as u64;
    if exited {
        return Annotation { kind: "exited".to_owned(), was: count, now: 0 };
    }
    if instance.from == index {
        return instance.annotation.clone();
    }
    Annotation::unchanged(instance)
}

impl Annotation {
    fn unchanged(instance: &RunningArtifact) -> Self {
        let count = instance.created.len() as u64;
        Self { kind: Self::UNCHANGED.to_owned(), was: count, now: count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_annotation_belongs_to_the_snapshot_in_which_it_came_about() {
        let said = |kind: &str, was, now| Annotation { kind: kind.to_owned(), was, now };
        let instance = RunningArtifact {
            from: 4,
            annotation: said("became-compliant", 2, 3),
            ..RunningArtifact::example()
        };
        let table = [
            (false, 4, said("became-compliant", 2, 3)),
            (false, 5, said("unchanged", 3, 3)),
            (true, 6, said("exited", 3, 0)),
        ];
        for (exited, index, expected) in table {
            assert_eq!(annotation(&instance, exited, index), expected, "snapshot {index}");
        }
    }
}
