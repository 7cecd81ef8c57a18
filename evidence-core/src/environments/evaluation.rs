//! The evaluation of an environment: what runs there, where it comes from, whether it may, and whether that differs
//! enough from the latest snapshot to take a new one. What it rests on is read in parts that fit memory, however many
//! artifacts run; the decision itself ([`difference`]) is a pure function over what is kept of them.
//!
//! An evaluation rests on what the ledger had when it began. Evidence that comes in while it reads tells at the next one, so
//! that whoever has the ledger can evaluate the same again.

mod difference;
pub(crate) mod work;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{try_join, try_join3};

use crate::artifacts::store::{ArtifactRow, Origin};
use crate::compute::MANY_EVALUATIONS;
use crate::environments::store::KnownEnvironment;
use crate::error::{Error, Result};
use crate::fact::Fact;
use crate::fact::names::{Guard, RecordKind};
use crate::flows::operations::FlowLabel;
use crate::flows::templates::Parsed;
use crate::id::Id;
use crate::id::VersionKey;
use crate::json::JsonFields;
use crate::ledger::Hash;
use crate::name::Fingerprint;
use crate::policies::record::Policy;
use crate::rules::compliance::{
    self, ArtifactState, AttestationStatus, ContentStatus, ReportedArtifact, ReportedAttestation, State,
};
use crate::rules::policy::{self, Asked, FlowAttestations, FlowContext, RuleOutcomes};
use crate::rules::template::{self, Template};
use crate::service::{Context, Draft};
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::record::{
    AppliedPolicy, DeploymentSource, PolicyOutcome, Provenance, RunningArtifact, Snapshot,
};
use crate::store::batch::distinct;
use crate::store::entry::Current;
use crate::store::error::StoreError;
use crate::texts::record::in_parts;
use crate::trails::evaluation::evaluated;
use crate::trails::store::TrailContents;
use difference::{Difference, difference};
use work::{Places, Work, asked_by};

/// What runs.
pub(crate) type ReportedState = BTreeMap<ArtifactKey, ObservedArtifact>;

/// An artifact as it was seen running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObservedArtifact {
    /// Its SHA-256, where it has one.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Its name in the environment.
    pub(crate) name: String,
    /// When its instances were created, in epoch seconds, ascending.
    pub(crate) created: Vec<i64>,
    /// What only environments of its kind tell.
    pub(crate) context: JsonFields,
}

impl ObservedArtifact {
    /// What was seen, when this was recorded.
    fn of(instance: &RunningArtifact) -> Self {
        let RunningArtifact { fingerprint, name, created, context, .. } = instance.clone();
        Self { fingerprint, name, created, context }
    }

    fn as_policies_see_it(&self) -> policy::Artifact<'_> {
        policy::Artifact { name: &self.name, fingerprint: self.fingerprint.as_ref().map(Fingerprint::as_str) }
    }
}

/// The policies that an environment is evaluated by, by id.
#[derive(Debug, Default)]
struct PolicySet {
    versions: BTreeMap<Id, u64>,
    /// Hold while these are the latest versions.
    guards: Vec<Guard>,
}

/// What cannot be found demands nothing, so that it must not be passed over.
pub(super) fn lost(policy: Id) -> Error {
    StoreError::corrupt(format_args!("the latest version of policy {policy} is missing")).into()
}

impl PolicySet {
    /// These policies at their latest versions; those that were `read` already are not read again.
    async fn read(ids: &[Id], read: Vec<Current<Policy>>, cx: &Context<'_>) -> Result<Self> {
        let mut known: BTreeMap<Id, Current<Policy>> =
            read.into_iter().map(|policy| (policy.record.id, policy)).collect();
        let unknown: Vec<Id> = ids.iter().filter(|id| !known.contains_key(id)).copied().collect();
        if !unknown.is_empty() {
            let read = cx.store().policies_by_id(cx.org()?, &unknown).await?;
            known.extend(read.into_iter().map(|policy| (policy.record.id, policy)));
        }
        let mut policies = Self::default();
        for id in &distinct(ids.iter().copied()) {
            let Current { revision, record } = known.remove(id).ok_or_else(|| lost(*id))?;
            policies.guards.push(Guard::Revision(RecordKind::Policy, *id, revision));
            policies.versions.insert(*id, record.version);
        }
        Ok(policies)
    }

    /// Whether all of these versions were in a ledger of so many entries.
    fn are_within(&self, entries: u64) -> bool {
        self.guards.iter().all(|guard| !matches!(guard, Guard::Revision(_, _, at) if *at >= entries))
    }

    /// By id.
    fn versions(&self) -> Vec<VersionKey> {
        self.versions.iter().map(|(policy, version)| (*policy, *version)).collect()
    }

    fn applied(&self) -> Vec<AppliedPolicy> {
        let applied = |(policy, version)| AppliedPolicy { policy, version };
        self.versions().into_iter().map(applied).collect()
    }
}

/// So many attestations are kept for what runs while it is evaluated: those that policies ask for.
const MAX_KEPT: usize = 1_000_000;

/// The snapshot that `running` calls for, as a draft of the fact that takes it; a draft without facts when it tells
/// nothing new. Its guards name all that the decision rests on, evidence aside: what comes in later tells at the next
/// report.
pub(crate) async fn evaluate(
    known: &KnownEnvironment,
    running: &Arc<ReportedState>,
    cx: &Context<'_>,
) -> Result<Draft> {
    let policies = PolicySet::read(&known.record.policies, Vec::new(), cx);
    let (policies, open, rests_on) = try_join3(policies, open_instances(known, cx), cx.ledger_size()).await?;
    if !policies.are_within(rests_on) {
        return Err(StoreError::Conflict.into());
    }
    let states =
        Reports::read(known.record.id, running, rests_on, cx).await?.evaluated(&policies, cx).await?;
    let evaluation = Evaluation { running: Arc::clone(running), policies, open, states };
    let Outcome { policies, difference, compliant } = evaluation.outcome(known, cx).await?;
    let taken = |difference| Taken { difference, compliant, rests_on, reported: true };
    let first = known.status.snapshots == 0;
    let mut guards = policies.guards.clone();
    guards.extend([known.unchanged(), known.latest()]);
    let facts = if first || difference.tells_something || known.status.compliant != Some(compliant) {
        vec![taken(difference).fact(known, &policies, cx)]
    } else {
        Vec::new()
    };
    Ok(Draft { facts, guards, ..Draft::default() })
}

/// The snapshot that a change of the policies calls for: what ran in the latest one, evaluated anew. A draft without facts
/// when there is none yet, and when it was evaluated by these versions of these policies. `read` are the policies that the
/// caller has read just now.
pub(crate) async fn reevaluate(
    known: &KnownEnvironment,
    read: Vec<Current<Policy>>,
    cx: &Context<'_>,
) -> Result<Draft> {
    let latest = known.status.snapshots;
    if latest == 0 {
        return Ok(Draft { guards: vec![known.latest()], ..Draft::default() });
    }
    let policies = PolicySet::read(&known.record.policies, read, cx).await?;
    let snapshot = cx.store().snapshot(cx.org()?, known.record.id, latest).await?;
    let mut guards = policies.guards.clone();
    guards.push(known.latest());
    if snapshot.is_some_and(|snapshot| snapshot.record.policies == policies.applied()) {
        return Ok(Draft { guards, ..Draft::default() });
    }
    let (open, rests_on) = try_join(open_instances(known, cx), cx.ledger_size()).await?;
    let running: ReportedState =
        open.iter().map(|(key, open)| (key.clone(), ObservedArtifact::of(open))).collect();
    let states =
        Reports::read(known.record.id, &running, rests_on, cx).await?.evaluated(&policies, cx).await?;
    let evaluation = Evaluation { running: Arc::new(running), policies, open, states };
    let Outcome { policies, difference, compliant } = evaluation.outcome(known, cx).await?;
    let taken = Taken { difference, compliant, rests_on, reported: false };
    let facts = vec![taken.fact(known, &policies, cx)];
    Ok(Draft { facts, guards, ..Draft::default() })
}

/// What a decision rests on, read already.
struct Evaluation {
    running: Arc<ReportedState>,
    policies: PolicySet,
    open: BTreeMap<ArtifactKey, RunningArtifact>,
    states: EvaluatedReports,
}

/// What came of it.
struct Outcome {
    policies: PolicySet,
    difference: Difference,
    compliant: bool,
}

impl Evaluation {
    /// How many evaluations it takes.
    fn evaluations(&self) -> usize {
        let artifacts = self.running.len().max(self.open.len()).max(self.states.origins.len());
        artifacts.saturating_mul(self.policies.versions.len().max(1))
    }

    /// Evaluates everything that runs, some of it by a few policies at a time, and compares it with the latest snapshot.
    async fn outcome(self, known: &KnownEnvironment, cx: &Context<'_>) -> Result<Outcome> {
        let heavy = self.evaluations() > MANY_EVALUATIONS;
        let Self { running, policies, open, states } = self;
        let candidates = judged(running, states, &policies, heavy, cx).await?;
        let index = known.status.snapshots + 1;
        let decide = move || {
            let judged_by = AppliedPolicy::digest(&policies.applied());
            let evaluated: Vec<_> =
                candidates.into_iter().map(|artifact| artifact.evaluated(judged_by)).collect();
            let verdicts = evaluated.iter().map(|artifact| artifact.compliant);
            // What runs nowhere is evaluated, too.
            let compliant = policy::snapshot_compliant(verdicts, judged_by.is_some());
            Outcome { difference: difference(&open, &evaluated, index), policies, compliant }
        };
        cx.compute().run_if(heavy, decide).await
    }
}

/// What runs, evaluated by each of the policies, a few of them at a time.
async fn judged(
    running: Arc<ReportedState>,
    states: EvaluatedReports,
    policies: &PolicySet,
    heavy: bool,
    cx: &Context<'_>,
) -> Result<Vec<Candidate>> {
    let find = move || Ok::<_, Error>(Candidate::all(&running, states.inputs()?));
    let mut candidates = cx.compute().run_if(heavy, find).await??;
    if !policies.versions.is_empty() {
        let with_inputs = |mut artifact: Candidate| {
            artifact.inputs = Some(artifact.digest_of_inputs());
            artifact
        };
        candidates = cx.compute().evaluate_each(candidates, Candidate::places, with_inputs).await?;
    }
    let places: Places = candidates.iter().map(|artifact| artifact.contexts.len()).collect();
    let mut work = Work::default();
    for part in cx.policies_in_parts(&policies.versions()).await? {
        let parsed = cx.parsed_policies(&part).await?;
        let policy = |version: &VersionKey| parsed.get(version).cloned().ok_or_else(|| lost(version.0));
        let policies = part.iter().map(policy).collect::<Result<Vec<_>>>()?;
        work.add(&policies);
        work.check(places, cx.limits(), "artifacts")?;
        for policies in work::for_jobs(&policies, places) {
            let many = work::evaluations(&policies);
            let evaluations = move |artifact: &Candidate| many * artifact.places();
            let evaluate = move |mut artifact: Candidate| {
                artifact.evaluate(&policies);
                artifact
            };
            candidates = cx.compute().evaluate_each(candidates, evaluations, evaluate).await?;
        }
    }
    Ok(candidates)
}

/// In what the evaluation of what ran in a snapshot differs from what was recorded; the store has what there was then.
#[cfg(feature = "memory")]
pub(super) async fn differences_again(
    snapshot: &Snapshot,
    recorded: Vec<RunningArtifact>,
    cx: &Context<'_>,
) -> Result<Vec<String>> {
    let running: ReportedState = recorded.iter().map(|one| (one.key(), ObservedArtifact::of(one))).collect();
    let versions = snapshot.policies.iter().map(|applied| (applied.policy, applied.version)).collect();
    let policies = PolicySet { versions, guards: Vec::new() };
    let reports = Reports::read(snapshot.environment, &running, u64::MAX, cx).await?;
    let states = reports.evaluated(&policies, cx).await?;
    let judged = judged(Arc::new(running), states, &policies, true, cx).await?;
    let judged_by = AppliedPolicy::digest(&policies.applied());
    let evaluated = Vec::from_iter(judged.into_iter().map(|artifact| artifact.evaluated(judged_by)));
    let verdicts = evaluated.iter().map(|artifact| artifact.compliant);
    let compliant = policy::snapshot_compliant(verdicts, judged_by.is_some());
    let mut differences = Vec::new();
    if compliant != snapshot.compliant {
        differences.push(format!("the snapshot is recorded as {}", snapshot.compliant));
    }
    let recorded: BTreeMap<_, _> = recorded.into_iter().map(|one| (one.key(), one)).collect();
    for artifact in &evaluated {
        let known = recorded.get(&artifact.key);
        differences.extend(known.and_then(|known| artifact.differs_from(known, snapshot.index)));
    }
    Ok(differences)
}

/// What ran in the latest snapshot.
async fn open_instances(
    known: &KnownEnvironment,
    cx: &Context<'_>,
) -> Result<BTreeMap<ArtifactKey, RunningArtifact>> {
    let latest = known.status.snapshots;
    if latest == 0 {
        return Ok(BTreeMap::new());
    }
    let placed = cx.store().instances(cx.org()?, known.record.id, latest).await?;
    let running = placed.into_iter().filter(|placed| !placed.exited).map(|placed| placed.instance);
    Ok(running.map(|instance| (instance.key(), instance)).collect())
}

/// A snapshot that is taken.
struct Taken {
    difference: Difference,
    compliant: bool,
    rests_on: u64,
    reported: bool,
}

impl Taken {
    fn fact(self, known: &KnownEnvironment, policies: &PolicySet, cx: &Context<'_>) -> Fact {
        let Self { difference, compliant, rests_on, reported } = self;
        let snapshot = Snapshot {
            events_before: known.status.events,
            environment: known.record.id,
            index: known.status.snapshots + 1,
            // Another server's clock may be ahead; a snapshot is never older than the one before.
            at: known.status.changed_at.map_or(cx.now(), |last| last.max(cx.now())),
            compliant,
            reported,
            rests_on: Some(rests_on),
            policies: policies.applied(),
            changes: difference.changes,
            exits: difference.exits,
        };
        Fact::SnapshotTaken { snapshot }
    }
}

/// A running artifact with what was found out about it.
#[derive(Debug, Clone)]
struct EvaluatedArtifact {
    key: ArtifactKey,
    observed: ObservedArtifact,
    compliant: Option<bool>,
    provenance: Vec<Provenance>,
    source: Option<DeploymentSource>,
    judged_by: Option<Hash>,
    violates: Vec<u16>,
    outcomes: Vec<PolicyOutcome>,
    inputs: Option<Hash>,
}

/// What running artifacts are evaluated by, policies aside; by their digests, so that one without has no provenance and is on
/// no allowlist.
struct EvaluationInputs {
    allowed: BTreeSet<Fingerprint>,
    sources: BTreeMap<Fingerprint, Vec<Source>>,
}

/// A running artifact that is being evaluated.
struct Candidate {
    key: ArtifactKey,
    observed: ObservedArtifact,
    is_allowed: bool,
    provenance: Vec<Provenance>,
    /// The report that its deployment is told by.
    source: Option<DeploymentSource>,
    contexts: Vec<FlowContext>,
    /// The digest of each of these flows.
    flows: Vec<Hash>,
    /// The digest of all that it is evaluated by, where there are policies.
    inputs: Option<Hash>,
    /// Whether it satisfies each of the policies so far, in their order.
    satisfied: Vec<bool>,
    /// What their rules came to, where it does not follow from the provenance.
    outcomes: Vec<PolicyOutcome>,
}

impl Candidate {
    fn all(running: &ReportedState, inputs: EvaluationInputs) -> Vec<Self> {
        let EvaluationInputs { allowed, mut sources } = inputs;
        let candidate = |(key, observed): (&ArtifactKey, &ObservedArtifact)| {
            let fingerprint = observed.fingerprint.as_ref();
            let sources = fingerprint.and_then(|fingerprint| sources.remove(fingerprint)).unwrap_or_default();
            Self {
                key: key.clone(),
                observed: observed.clone(),
                is_allowed: fingerprint.is_some_and(|fingerprint| allowed.contains(fingerprint)),
                provenance: sources.iter().map(Source::provenance).collect(),
                source: deployed_from(&sources),
                flows: sources.iter().map(|source| source.flow).collect(),
                inputs: None,
                contexts: sources.into_iter().map(|source| source.context).collect(),
                satisfied: Vec::new(),
                outcomes: Vec::new(),
            }
        };
        running.iter().map(candidate).collect()
    }

    /// How many times each rule is looked at.
    fn places(&self) -> usize {
        self.contexts.len().max(1)
    }

    fn evaluate(&mut self, policies: &[Arc<policy::Policy>]) {
        let (artifact, contexts) = (self.observed.as_policies_see_it(), &self.contexts);
        for policy in policies {
            let place = self.satisfied.len();
            let rules = RuleOutcomes::of(policy, artifact, contexts);
            self.satisfied.push(match &rules {
                Some(rules) => rules.are_satisfied(),
                None => policy::is_satisfied(policy, artifact, contexts),
            });
            let outcome = u16::try_from(place).ok().zip(rules);
            self.outcomes.extend(outcome.map(|(policy, rules)| PolicyOutcome { policy, rules }));
        }
    }

    /// The digest of all that it is evaluated by, policies aside: of a line for each thing, with its texts as JSON.
    fn digest_of_inputs(&self) -> Hash {
        let json = |text: &str| serde_json::Value::from(text);
        let fingerprint = self.observed.fingerprint.as_ref().map_or("", Fingerprint::as_str);
        let mut lines =
            vec![format!("artifact {} {fingerprint} {}\n", json(&self.observed.name), self.is_allowed)];
        let places = self.provenance.iter().zip(&self.contexts).zip(&self.flows);
        for ((provenance, context), flow) in places {
            lines.push(format!("report {} {}\n", provenance.artifact, provenance.state));
            lines.push(format!("flow {flow} {}\n", json(&context.trail_name)));
            let lists = context.attestations.iter();
            lines.extend(lists.map(|list| format!("attestations {}\n", list.digest())));
        }
        Hash::of(lines.concat())
    }

    fn evaluated(self, judged_by: Option<Hash>) -> EvaluatedArtifact {
        let Self { key, observed, is_allowed, provenance, source, satisfied, outcomes, inputs, .. } = self;
        let compliant = policy::artifact_verdict(is_allowed, &satisfied);
        let places = (0..=u16::MAX).zip(satisfied);
        let violates = places.filter(|(_, satisfied)| !satisfied).map(|(place, _)| place).collect();
        EvaluatedArtifact {
            key,
            observed,
            compliant,
            provenance,
            source,
            judged_by,
            violates,
            outcomes,
            inputs,
        }
    }
}

/// A report of a running artifact: the newest in its flow, and how it stands there.
#[derive(Debug)]
struct Source {
    report: DeploymentSource,
    reference: String,
    /// The digest of the flow's name and tags.
    flow: Hash,
    context: FlowContext,
}

/// The first source that names a repo, or the first.
fn deployed_from(sources: &[Source]) -> Option<DeploymentSource> {
    let named = sources.iter().find(|source| source.report.repo.is_some());
    named.or(sources.first()).map(|source| source.report.clone())
}

impl Source {
    fn provenance(&self) -> Provenance {
        let FlowContext { artifact_state, reason, .. } = &self.context;
        Provenance {
            artifact: self.report.report,
            state: *artifact_state,
            reason: reason.clone(),
            flow: Some(self.report.flow),
            reference: self.reference.clone(),
        }
    }
}

/// What was reported of what runs.
struct Reports {
    /// How many entries the ledger had.
    rests_on: u64,
    allowed: BTreeSet<Fingerprint>,
    /// One of each flow.
    origins: Vec<Origin>,
    flows: BTreeMap<Id, FlowLabel>,
    /// How those without a trail stand, by report.
    alone: BTreeMap<Id, EvaluatedReport>,
}

impl Reports {
    async fn read(environment: Id, running: &ReportedState, rests_on: u64, cx: &Context<'_>) -> Result<Self> {
        let org = cx.org()?;
        let fingerprints: Vec<Fingerprint> =
            running.values().filter_map(|observed| observed.fingerprint.clone()).collect();
        let reported = async {
            match fingerprints.as_slice() {
                [] => Ok((Vec::new(), Vec::new())),
                some => {
                    let allowed = cx.store().allowed(org, environment, some, rests_on);
                    try_join(allowed, cx.store().provenance(org, some, rests_on)).await
                }
            }
        };
        let (allowed, origins) = reported.await?;
        let allowed = allowed.into_iter().map(|(fingerprint, _)| fingerprint).collect();
        let flows = distinct(origins.iter().map(|origin| origin.report.flow));
        let (flows, alone) = try_join(cx.flow_labels(&flows), without_trail(&origins, cx)).await?;
        Ok(Self { rests_on, allowed, origins, flows, alone })
    }

    /// How the reports stand in their trails. Of the attestations those are kept that a policy asks for.
    async fn evaluated(self, policies: &PolicySet, cx: &Context<'_>) -> Result<EvaluatedReports> {
        let Self { rests_on, allowed, origins, flows, alone } = self;
        let mut running: BTreeMap<Id, BTreeMap<Fingerprint, String>> = BTreeMap::new();
        for Origin { report, last_name, .. } in &origins {
            let Some(trail) = report.trail else { continue };
            running.entry(trail).or_default().insert(report.fingerprint.clone(), last_name.clone());
        }
        let reported = Vec::from_iter(running.keys().copied());
        let running = Arc::new(running);
        let asked = asked_by(&policies.versions(), cx).await?;
        let kept = Arc::new(AtomicUsize::new(0));
        let all_kept = Arc::clone(&kept);
        let evaluate = move |(contents, parsed): (TrailContents, Arc<Parsed>)| {
            if kept.load(Ordering::Relaxed) > MAX_KEPT {
                return None;
            }
            let contents = contents.within(rests_on);
            let running = running.get(&contents.trail.id).into_iter().flatten();
            let running = running.map(|(content, name)| (content.as_str(), name.as_str())).collect();
            let evaluated = InTrail::new(&contents, &parsed.template, &running, &asked);
            kept.fetch_add(evaluated.kept, Ordering::Relaxed);
            Some((contents.trail.id, evaluated))
        };
        let trails = evaluated(&reported, cx, evaluate).await?.into_iter().flatten().collect();
        if all_kept.load(Ordering::Relaxed) > MAX_KEPT {
            let text = format!("The policies ask for more than {MAX_KEPT} attestations of what runs");
            return Err(Error::invalid("artifacts", text));
        }
        Ok(EvaluatedReports { allowed, origins, flows, trails, alone })
    }
}

/// How an artifact report stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EvaluatedReport {
    pub(super) state: State,
    /// Why, where no attestation accounts for it.
    pub(super) reason: Option<String>,
    /// What counts for it: its own attestations and those of its trail.
    attestations: Vec<Arc<FlowAttestations>>,
}

impl EvaluatedReport {
    /// Of a report to a trail that cannot be read.
    pub(super) fn of_lost_trail() -> Self {
        let reason = Some(template::LOST_TRAIL.to_owned());
        Self { state: State::Incomplete, reason, attestations: Vec::new() }
    }
}

/// What a trail says of what runs.
pub(super) struct InTrail {
    pub(super) name: String,
    pub(super) states: BTreeMap<String, EvaluatedReport>,
    /// How many attestations are kept.
    kept: usize,
}

/// Why nothing is said of what is too much of a trail.
const TOO_MUCH: &str = "More attestations count for what runs of the trail than are evaluated";

impl InTrail {
    /// How this content stands in a trail: by fingerprint, each with the last name that it was given before. Of the
    /// attestations those are kept that are `asked` for.
    pub(super) fn new(
        contents: &TrailContents,
        template: &Template,
        running: &BTreeMap<&str, &str>,
        asked: &Asked,
    ) -> Self {
        let artifacts = Vec::from_iter(contents.artifacts.iter().map(ReportedArtifact::from));
        let attestations = Vec::from_iter(contents.attestations.iter().map(ReportedAttestation::from));
        let none: Arc<FlowAttestations> = Arc::default();
        let kept = Cell::new(0);
        let keep = |lines: Vec<AttestationStatus>, reported: &[&ReportedAttestation]| {
            if asked.is_empty() {
                return Arc::clone(&none);
            }
            let list = FlowAttestations::of_scope(lines, reported, asked);
            kept.set(kept.get() + list.len());
            Arc::new(list)
        };
        let most = compliance::MAX_LINES;
        let found = compliance::content_statuses(template, &artifacts, &attestations, running, most, keep);
        let evaluated = |(fingerprint, status): (&str, ContentStatus<'_, _>)| {
            let ContentStatus { state, attestations, worse_as, is_too_much } = status;
            let reason = template.unreadable().map(str::to_owned).or_else(|| worse_as.map(evaluated_as));
            let reason = reason.or_else(|| is_too_much.then(|| TOO_MUCH.to_owned()));
            (fingerprint.to_owned(), EvaluatedReport { state, reason, attestations })
        };
        let states = found.into_iter().map(evaluated).collect();
        Self { name: contents.trail.name.to_string(), states, kept: kept.get() }
    }
}

/// Why content does not comply of which its newest report asks for nothing that is missing.
fn evaluated_as(name: &str) -> String {
    format!("It is evaluated as '{name}' too, which an earlier report called it")
}

/// How what runs stands wherever it was reported.
struct EvaluatedReports {
    allowed: BTreeSet<Fingerprint>,
    origins: Vec<Origin>,
    flows: BTreeMap<Id, FlowLabel>,
    trails: BTreeMap<Id, InTrail>,
    /// Of reports without a trail.
    alone: BTreeMap<Id, EvaluatedReport>,
}

impl EvaluatedReports {
    fn inputs(self) -> Result<EvaluationInputs> {
        let Self { allowed, origins, flows, mut trails, mut alone } = self;
        let digests: BTreeMap<Id, Hash> = flows.iter().map(|(id, flow)| (*id, flow.digest())).collect();
        let mut sources: BTreeMap<Fingerprint, Vec<Source>> = BTreeMap::new();
        for Origin { report: row, .. } in origins {
            // One report that is passed over may be the one that does not comply.
            let lost = || StoreError::corrupt(format_args!("the flow {} of a running artifact", row.flow));
            let (flow, digest) = flows.get(&row.flow).zip(digests.get(&row.flow)).ok_or_else(lost)?;
            let (trail_name, found) = match row.trail {
                None => (String::new(), alone.remove(&row.id)),
                Some(trail) => match trails.get_mut(&trail) {
                    Some(trail) => (trail.name.clone(), trail.states.remove(row.fingerprint.as_str())),
                    None => (String::new(), Some(EvaluatedReport::of_lost_trail())),
                },
            };
            let context = found.unwrap_or_else(EvaluatedReport::unknown).in_flow(flow, trail_name);
            let ArtifactRow {
                id: report, flow, repo, committed_at, template_reference_name: reference, ..
            } = row;
            let report = DeploymentSource { report, flow, repo, committed_at };
            sources.entry(row.fingerprint).or_default().push(Source {
                report,
                reference,
                flow: *digest,
                context,
            });
        }
        Ok(EvaluationInputs { allowed, sources })
    }
}

/// A report to a flow as a whole is evaluated by the template it came with, and has no attestations; one without a name has
/// the last that its content was given there.
pub(super) async fn without_trail(
    origins: &[Origin],
    cx: &Context<'_>,
) -> Result<BTreeMap<Id, EvaluatedReport>> {
    let alone = origins.iter().filter(|origin| origin.report.trail.is_none());
    let mut states = BTreeMap::new();
    for part in in_parts(alone, |origin| origin.report.template) {
        let templates = cx.templates(part.iter().map(|origin| origin.report.template)).await?;
        let report = |Origin { report: row, last_name, .. }: &Origin| {
            (row.id, ReportedArtifact::from(row), last_name.clone(), templates.of(row.template))
        };
        let reports = part.into_iter().map(report).collect();
        let evaluations = |(.., parsed): &(_, _, _, Arc<Parsed>)| 1 + parsed.template.requirements();
        let evaluate = |(id, report, last_name, parsed): (Id, _, String, Arc<Parsed>)| {
            (id, EvaluatedReport::alone(report, last_name, &parsed.template))
        };
        states.extend(cx.compute().evaluate_each(reports, evaluations, evaluate).await?);
    }
    Ok(states)
}

impl EvaluatedReport {
    /// How a report stands of which its trail knows nothing.
    pub(super) const fn unknown() -> Self {
        Self { state: State::Incomplete, reason: None, attestations: Vec::new() }
    }

    /// As policies see it in its flow.
    pub(super) fn in_flow(self, flow: &FlowLabel, trail_name: String) -> FlowContext {
        let Self { state: artifact_state, reason, attestations } = self;
        let (flow_name, tags) = (flow.name.to_string(), Arc::clone(&flow.tags));
        FlowContext { flow_name, trail_name, artifact_state, reason, tags, attestations }
    }

    /// How a report without a trail stands, whose content was called `last_name` last.
    fn alone(mut report: ReportedArtifact, last_name: String, template: &Template) -> Self {
        let state_of = |report: &_| match compliance::evaluate_artifact(template, report, &[], &[]).state {
            ArtifactState::Reported(state) => state,
            ArtifactState::Missing => State::Incomplete,
        };
        let mut state = state_of(&report);
        let mut reason = template.unreadable().map(str::to_owned);
        if report.name.is_empty() && !last_name.is_empty() {
            report.name = last_name;
            let named = state_of(&report);
            if named != state {
                reason = reason.or_else(|| Some(evaluated_as(&report.name)));
                state = named;
            }
        }
        Self { state, reason, attestations: Vec::new() }
    }
}

#[cfg(test)]
mod tests;
