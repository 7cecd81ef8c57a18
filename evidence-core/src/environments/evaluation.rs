//! The evaluation of an environment: which artifacts run, where they come from, whether they may run, and
//! whether a new snapshot is needed. The inputs are read in parts that fit in memory, however many artifacts
//! run. The decision itself ([`difference`]) is a pure function of what is kept of them.
//!
//! An evaluation uses the ledger as of its start. Evidence that arrives meanwhile counts in the next
//! evaluation. Anyone with the ledger can therefore repeat the evaluation with the same result.

mod difference;
mod reported;
pub(crate) mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::try_join;

use crate::compute::MANY_EVALUATIONS;
use crate::environments::evaluation_cache::CachedEvaluation;
use crate::environments::last_evaluation::{
    ArtifactEvaluation, EntryInForce, Evaluated, LastEvaluation, OpenInstances, take_of_trails,
};
use crate::environments::observed::{ObservedArtifact, ReportedState};
use crate::environments::store::KnownEnvironment;
use crate::error::{Error, Result};
use crate::fact::Fact;
use crate::fact::names::{Guard, RecordKind};
use crate::id::Id;
use crate::id::VersionKey;
use crate::json::JsonFields;
use crate::ledger::Hash;
use crate::name::Fingerprint;
use crate::policies::record::Policy;
use crate::rules::policy::{self, FlowContext, RuleOutcomes};
use crate::service::{Context, Draft};
use crate::snapshots::key::ArtifactKey;
#[cfg(any(test, feature = "memory"))]
use crate::snapshots::record::RunningArtifact;
use crate::snapshots::record::{
    AppliedPolicy, DeploymentSource, LogicalVerdict, PolicyOutcome, Provenance, Snapshot,
};
use crate::store::batch::{LONG_RECORDS, distinct};
use crate::store::entry::Current;
use crate::store::error::StoreError;
use crate::time::Timestamp;
use difference::{Difference, difference};
pub(super) use reported::{EvaluatedReport, InTrail, without_trail};
use reported::{EvaluatedReports, EvaluationInputs, Reports, Source, deployed_from};
use work::{Places, Work};

/// The policies that an environment is evaluated against, by id: its own, and those of the logical
/// environments that contain it.
#[derive(Debug, Clone, Default)]
struct PolicySet {
    versions: BTreeMap<Id, u64>,
    /// The policies that are not its own.
    demanded: BTreeSet<Id>,
    /// The policies of each logical environment that has some, sorted by id.
    logical: BTreeMap<Id, Vec<Id>>,
    /// Guards that hold while these are the latest versions, and while these logical environments demand
    /// them.
    guards: Vec<Guard>,
}

/// Returns the logical environments with policies that have this member.
async fn demanding(member: Id, cx: &Context<'_>) -> Result<Vec<KnownEnvironment>> {
    let ids = cx.store().logical_environments(cx.org()?, &[member]).await?;
    let mut demanding = Vec::new();
    for part in ids.chunks(LONG_RECORDS) {
        let known = cx.store().environments_by_id(cx.org()?, part).await?;
        let demands = |known: &KnownEnvironment| {
            !known.archived && !known.record.policies.is_empty() && known.record.included.contains(&member)
        };
        demanding.extend(known.into_iter().filter(demands));
    }
    Ok(demanding)
}

/// Returns the error for a missing policy. Skipping the policy could improve a verdict.
pub(super) fn lost(policy: Id) -> Error {
    StoreError::corrupt(format_args!("the latest version of policy {policy} is missing")).into()
}

impl PolicySet {
    /// Reads the policies of an environment at their latest versions. Policies in `read` are not read again.
    async fn read(known: &KnownEnvironment, read: Vec<Current<Policy>>, cx: &Context<'_>) -> Result<Self> {
        let mut policies = Self::default();
        let (member, own) = (known.record.id, BTreeSet::from_iter(known.record.policies.iter().copied()));
        for logical in demanding(member, cx).await? {
            policies.guards.push(logical.unchanged());
            let demanded = distinct(logical.record.policies);
            policies.demanded.extend(demanded.iter().filter(|id| !own.contains(id)));
            policies.logical.insert(logical.record.id, demanded);
        }
        let ids = Vec::from_iter(own.union(&policies.demanded).copied());
        let mut known: BTreeMap<Id, Current<Policy>> =
            read.into_iter().map(|policy| (policy.record.id, policy)).collect();
        let unknown: Vec<Id> = ids.iter().filter(|id| !known.contains_key(id)).copied().collect();
        if !unknown.is_empty() {
            let read = cx.store().policies_by_id(cx.org()?, &unknown).await?;
            known.extend(read.into_iter().map(|policy| (policy.record.id, policy)));
        }
        for id in ids {
            let Current { revision, record } = known.remove(&id).ok_or_else(|| lost(id))?;
            policies.guards.push(Guard::Revision(RecordKind::Policy, id, revision));
            policies.versions.insert(id, record.version);
        }
        Ok(policies)
    }

    /// Returns the indexes of its own policies. An index beyond the recordable range is `None`.
    fn own_places(&self) -> Vec<Option<u16>> {
        let places = self.versions.keys().enumerate();
        let own = places.filter(|(_, id)| !self.demanded.contains(id));
        own.map(|(place, _)| u16::try_from(place).ok()).collect()
    }

    /// Returns whether the running artifacts comply with the policies of each logical environment.
    fn verdicts(&self, artifacts: &[EvaluatedArtifact]) -> Vec<LogicalVerdict> {
        let violated = artifacts.iter().flat_map(|artifact| &artifact.found.violates);
        let violated: BTreeSet<u16> = violated.copied().collect();
        let is_violated =
            |place| u16::try_from(place).map_or(!artifacts.is_empty(), |it| violated.contains(&it));
        // Whether a policy beyond the recordable range is violated is unknown.
        let violated: BTreeSet<&Id> = self
            .versions
            .keys()
            .enumerate()
            .filter(|(place, _)| is_violated(*place))
            .map(|(_, id)| id)
            .collect();
        let verdict = |(environment, policies): (&Id, &Vec<Id>)| LogicalVerdict {
            environment: *environment,
            policies: policies.clone(),
            compliant: !policies.iter().any(|id| violated.contains(id)),
        };
        self.logical.iter().map(verdict).collect()
    }

    /// Returns whether a snapshot was evaluated against these policies, for the same logical environments.
    fn are_those_of(&self, snapshot: &Snapshot) -> bool {
        let logical = snapshot.logical.iter().map(|verdict| (&verdict.environment, &verdict.policies));
        snapshot.policies == self.applied()
            && snapshot.demanded.iter().eq(&self.demanded)
            && logical.eq(&self.logical)
    }

    /// Returns whether a ledger with this many entries has all of these versions.
    fn are_within(&self, entries: u64) -> bool {
        self.guards.iter().all(|guard| !matches!(guard, Guard::Revision(_, _, at) if *at >= entries))
    }

    /// Returns the versions, sorted by policy id.
    fn versions(&self) -> Vec<VersionKey> {
        self.versions.iter().map(|(policy, version)| (*policy, *version)).collect()
    }

    fn applied(&self) -> Vec<AppliedPolicy> {
        let applied = |(policy, version)| AppliedPolicy { policy, version };
        self.versions().into_iter().map(applied).collect()
    }
}

/// Returns the draft of the snapshot that a report of `running` artifacts requires. `skipped_elements` is the
/// number of elements that were skipped in it. The draft has no facts if there is nothing new. Its guards
/// cover everything that the decision depends on, except evidence: evidence that arrives later counts for the
/// next report.
///
/// If the evaluation exceeds a limit of the host, the artifacts are not compliant, and the snapshot gives the
/// reason. An earlier verdict must not remain in force for something that could not be evaluated.
pub(crate) async fn evaluate(
    known: &KnownEnvironment,
    running: &Arc<ReportedState>,
    skipped_elements: u64,
    cx: &Context<'_>,
) -> Result<Draft> {
    let occasion = Occasion { reported: true, skipped_elements, policies: None, always: false };
    evaluate_running(known, running, occasion, cx).await
}

/// The change that makes an evaluation necessary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Changed {
    /// A change of its policies, or of whether it requires provenance.
    #[default]
    Policies,
    /// A change of its allowlist.
    Allowlist,
}

/// Returns the draft of the snapshot that such a change requires: the artifacts of the latest one, evaluated
/// again. One is always taken if the latest was evaluated against other policies or another requirement.
/// Otherwise a change of the policies takes none, and a change of the allowlist takes one if there is
/// something new. `read` has the policies that the caller just read.
pub(crate) async fn reevaluate(
    known: &KnownEnvironment,
    changed: Changed,
    read: Vec<Current<Policy>>,
    cx: &Context<'_>,
) -> Result<Draft> {
    let latest = known.status.snapshots;
    if latest == 0 {
        return Ok(Draft { guards: vec![known.latest()], ..Draft::default() });
    }
    let policies = PolicySet::read(known, read, cx).await?;
    let snapshot = cx.store().snapshot(cx.org()?, known.record.id, latest).await?;
    let is_judged_alike = snapshot.as_ref().is_some_and(|Current { record, .. }| {
        policies.are_those_of(record) && record.requires_provenance == known.record.require_provenance
    });
    if is_judged_alike && changed == Changed::Policies {
        let guards = policies.guards.iter().cloned().chain([known.latest()]).collect();
        return Ok(Draft { guards, ..Draft::default() });
    }
    let open = open_instances(known, cx).await?;
    let running = open.iter().map(|(key, open)| (key.clone(), ObservedArtifact::of(open))).collect();
    let occasion = Occasion {
        reported: false,
        skipped_elements: snapshot.map_or(0, |snapshot| snapshot.record.skipped_elements),
        policies: Some(&policies),
        always: !is_judged_alike,
    };
    evaluate_running(known, &Arc::new(running), occasion, cx).await
}

/// The occasion of an evaluation.
#[derive(Clone, Copy)]
struct Occasion<'p> {
    /// Whether it is a report.
    reported: bool,
    /// The number of elements that were skipped in the report.
    skipped_elements: u64,
    /// The policies, if they have already been read.
    policies: Option<&'p PolicySet>,
    /// Whether to take a snapshot even if there is nothing new.
    always: bool,
}

async fn evaluate_running(
    known: &KnownEnvironment,
    running: &Arc<ReportedState>,
    occasion: Occasion<'_>,
    cx: &Context<'_>,
) -> Result<Draft> {
    match evaluate_changed(known, running, occasion, true, cx).await? {
        Some(draft) => Ok(draft),
        // Reused evaluations count towards the limits, so evaluate everything together.
        None => {
            let evaluated = evaluate_changed(known, running, occasion, false, cx).await?;
            evaluated.ok_or_else(|| StoreError::Failed("an environment was not evaluated".into()).into())
        }
    }
}

/// Evaluates what is running. With `reuse`, artifacts whose inputs did not change keep their earlier
/// evaluation. Returns `None` if reused and new evaluations together exceed a limit.
async fn evaluate_changed(
    known: &KnownEnvironment,
    running: &Arc<ReportedState>,
    occasion: Occasion<'_>,
    reuse: bool,
    cx: &Context<'_>,
) -> Result<Option<Draft>> {
    let at = snapshot_time(known, cx);
    let policies = async {
        match occasion.policies {
            Some(policies) => Ok(policies.clone()),
            None => PolicySet::read(known, Vec::new(), cx).await,
        }
    };
    let (policies, ledger) = try_join(policies, cx.ledger()).await?;
    let rests_on = ledger.size();
    if !policies.are_within(rests_on) {
        return Err(StoreError::Conflict.into());
    }
    let environment = known.record.id;
    let versions = policies.versions();
    let cached = match reuse {
        true => cx.cached_evaluation(environment, &versions, &ledger, at).await?,
        false => None,
    };
    let open = async {
        Ok(match cached.as_ref().and_then(|last| last.open(known.status.snapshots)) {
            Some(open) => open,
            None => Arc::new(open_instances(known, cx).await?),
        })
    };
    let apart = Apart::read(environment, running, cached.as_ref(), (rests_on, at), cx);
    let (open, Apart { reused, rest, reports }) = try_join(open, apart).await?;
    let mut kept = cached.as_ref().map(|last| last.kept(reused.values())).unwrap_or_default();
    let states = reports.evaluated(&policies, kept.values().sum(), cx).await?;
    kept.extend(states.kept());
    let snapshots = known.status.snapshots;
    let since = cached.and_then(|last| last.since(&reused, snapshots)).unwrap_or_else(|| cx.now());
    let last_open = (snapshots, Arc::clone(&open));
    let mut guards = policies.guards.clone();
    guards.extend([known.unchanged(), known.latest()]);
    let snapshot = Snapshot {
        events_before: known.status.events,
        environment,
        index: snapshots + 1,
        at,
        compliant: false,
        reported: occasion.reported,
        rests_on: Some(rests_on),
        requires_provenance: known.record.require_provenance,
        skipped_elements: occasion.skipped_elements,
        policies: policies.applied(),
        demanded: policies.demanded.iter().copied().collect(),
        logical: Vec::new(),
        changes: Vec::new(),
        exits: Vec::new(),
    };
    let always = occasion.always || snapshots == 0;
    let running = Arc::clone(running);
    let evaluation = Evaluation { running, policies, open, reused, rest, states, snapshot, always };
    let Some(outcome) = evaluation.outcome(known.status.compliant, cx).await? else { return Ok(None) };
    let Outcome { snapshot, artifacts } = outcome;
    let evaluation =
        LastEvaluation { since, ledger, policies: versions, open: last_open, artifacts, kept, bytes: 0 };
    cx.cache_evaluation(environment, evaluation).await?;
    let facts = snapshot.into_iter().map(|snapshot| Fact::SnapshotTaken { snapshot }).collect();
    Ok(Some(Draft { facts, guards, ..Draft::default() }))
}

/// The running artifacts, separated by whether an earlier evaluation can be reused.
struct Apart {
    /// The reused evaluations.
    reused: Evaluated,
    /// All other running artifacts.
    rest: Arc<ReportedState>,
    /// The reports of those.
    reports: Reports,
}

impl Apart {
    async fn read(
        environment: Id,
        running: &Arc<ReportedState>,
        cached: Option<&Arc<CachedEvaluation>>,
        rests_on: (u64, Timestamp),
        cx: &Context<'_>,
    ) -> Result<Self> {
        if let Some(cached) = cached {
            let (last, all) = (Arc::clone(cached), Arc::clone(running));
            let many = running.len() > MANY_EVALUATIONS;
            let reusable = move || last.reusable(&all);
            let mut reused = cx.compute().run_if(many, reusable).await?;
            let mut rest = without(running, &reused);
            let mut reports = Reports::read(environment, &rest, rests_on, cx).await?;
            // An artifact that is evaluated again may share trails with reused ones; these are evaluated
            // again too.
            let more = take_of_trails(&mut reused, &reports.trails());
            if !more.is_empty() {
                let more = running.iter().filter(|(key, _)| more.contains(key));
                let more: ReportedState = more.map(|(key, seen)| (key.clone(), seen.clone())).collect();
                reports.extend(Reports::read(environment, &more, rests_on, cx).await?);
                rest.extend(more);
            }
            if take_of_trails(&mut reused, &reports.trails()).is_empty() {
                return Ok(Self { reused, rest: Arc::new(rest), reports });
            }
        }
        let reports = Reports::read(environment, running, rests_on, cx).await?;
        Ok(Self { reused: Evaluated::new(), rest: Arc::clone(running), reports })
    }
}

/// Returns the running artifacts that are not reused.
fn without(running: &ReportedState, reused: &Evaluated) -> ReportedState {
    let rest = running.iter().filter(|(key, _)| !reused.contains_key(key));
    rest.map(|(key, observed)| (key.clone(), observed.clone())).collect()
}

/// The inputs of a decision, already read.
struct Evaluation {
    running: Arc<ReportedState>,
    policies: PolicySet,
    open: Arc<OpenInstances>,
    /// The reused evaluations.
    reused: Evaluated,
    rest: Arc<ReportedState>,
    /// The reports of the rest.
    states: EvaluatedReports,
    /// The snapshot that may be taken, still without verdict and artifacts.
    snapshot: Snapshot,
    /// Whether it is taken even if there is nothing new.
    always: bool,
}

/// The result of an evaluation.
struct Outcome {
    /// The snapshot, if one is taken.
    snapshot: Option<Snapshot>,
    artifacts: Evaluated,
}

impl Evaluation {
    /// Returns the number of evaluations that it takes.
    fn evaluations(&self) -> usize {
        let artifacts = self.running.len().max(self.open.len()).max(self.states.origins.len());
        artifacts.saturating_mul(self.policies.versions.len().max(1))
    }

    /// Evaluates everything that runs, a few policies at a time if necessary, and compares it with the latest
    /// snapshot. `before` is the verdict of that snapshot. Returns `None` if a limit is exceeded and some
    /// evaluations were reused.
    async fn outcome(self, before: Option<bool>, cx: &Context<'_>) -> Result<Option<Outcome>> {
        let heavy = self.evaluations() > MANY_EVALUATIONS;
        let Self { running, policies, open, reused, rest, states, snapshot, always } = self;
        let places =
            reused.values().map(|artifact| (artifact.provenance.len(), artifact.names.len())).collect();
        let Judged { candidates, exceeds } = judged(rest, states, &policies, places, heavy, cx).await?;
        if exceeds && !reused.is_empty() {
            return Ok(None);
        }
        let most = cx.limits().snapshot;
        let decide = move || {
            let judged_by = AppliedPolicy::digest(&snapshot.policies);
            let mut artifacts = reused;
            artifacts.extend(candidates.into_iter().map(|artifact| artifact.evaluated(judged_by)));
            let standard =
                Standard { own: policies.own_places(), requires_provenance: snapshot.requires_provenance };
            let take = |running: &ReportedState, artifacts: &Evaluated| {
                let evaluated = EvaluatedArtifact::all(running, artifacts, &standard)?;
                let verdicts = evaluated.iter().map(|artifact| artifact.found.compliant);
                // An environment without running artifacts is evaluated too.
                let compliant = policy::snapshot_compliant(verdicts, standard.judges());
                let logical = policies.verdicts(&evaluated);
                let Difference { changes, exits, tells_something } =
                    difference(&open, &evaluated, snapshot.index);
                let is_taken = always || tells_something || before != Some(compliant);
                let taken = || Snapshot { compliant, logical, changes, exits, ..snapshot.clone() };
                Ok::<_, Error>(is_taken.then(taken))
            };
            let mut taken = take(&running, &artifacts)?;
            if is_too_large(taken.as_ref(), most)? {
                let is_judged = judged_by.is_some() || snapshot.requires_provenance;
                let policies = is_judged.then_some(snapshot.policies.len());
                let shortened =
                    artifacts.iter().map(|(key, one)| (key.clone(), not_recorded(one, policies, most)));
                artifacts = shortened.collect();
                taken = take(&running, &artifacts)?;
            }
            if is_too_large(taken.as_ref(), most)? {
                // This minimum is always recorded. Names stay, because they identify artifacts and conditions
                // use them.
                let without_context = running.iter().map(|(key, observed)| {
                    (key.clone(), ObservedArtifact { context: JsonFields::default(), ..observed.clone() })
                });
                taken = take(&without_context.collect(), &artifacts)?;
            }
            Ok(Some(Outcome { snapshot: taken, artifacts }))
        };
        cx.compute().run_if(heavy, decide).await?
    }
}

/// Returns whether a snapshot exceeds the size limit of a record.
fn is_too_large(snapshot: Option<&Snapshot>, most: u64) -> Result<bool> {
    let mut size = Size(0);
    match snapshot {
        Some(snapshot) => {
            serde_json::to_writer(&mut size, snapshot).map_err(|error| StoreError::Failed(error.into()))?
        }
        None => return Ok(false),
    }
    Ok(size.0 > most)
}

/// Counts the bytes written to it.
struct Size(u64);

impl std::io::Write for Size {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the evaluation to record for an artifact whose result is too large. If it is judged, it complies
/// with none of the policies, for this reason.
fn not_recorded(
    artifact: &ArtifactEvaluation,
    policies: Option<usize>,
    most: u64,
) -> Arc<ArtifactEvaluation> {
    let mut artifact = artifact.clone();
    (artifact.provenance, artifact.source, artifact.outcomes) = (Vec::new(), None, Vec::new());
    artifact.is_final = false;
    artifact.not_evaluated = policies.map(|_| work::too_large(most));
    let policies = policies.unwrap_or_default();
    if policies > 0 {
        artifact.compliant = policy::artifact_verdict(artifact.allowed.is_some(), &[false]);
        artifact.violates = (0..=u16::MAX).take(policies).collect();
    }
    Arc::new(artifact)
}

/// The running artifacts, evaluated.
struct Judged {
    candidates: Vec<Candidate>,
    /// Whether a limit was exceeded, so that none was evaluated.
    exceeds: bool,
}

/// Evaluates running artifacts against each of the policies, a few policies at a time. `others` are the sizes
/// of artifacts that were evaluated before.
async fn judged(
    running: Arc<ReportedState>,
    states: EvaluatedReports,
    policies: &PolicySet,
    others: Vec<(usize, usize)>,
    heavy: bool,
    cx: &Context<'_>,
) -> Result<Judged> {
    let mut exceeds = states.exceeds.clone().filter(|_| !policies.versions.is_empty());
    let find = move || Ok::<_, Error>(Candidate::all(&running, states.inputs()?));
    let mut candidates = cx.compute().run_if(heavy, find).await??;
    if !policies.versions.is_empty() {
        let with_inputs = |mut artifact: Candidate| {
            artifact.inputs = Some(artifact.digest_of_inputs());
            artifact
        };
        candidates = cx.compute().evaluate_each(candidates, Candidate::places, with_inputs).await?;
    }
    let parts = cx.policies_in_parts(&policies.versions()).await?;
    let mut work = Work::default();
    for part in &parts {
        work.add(cx.parsed_policies(part).await?.values());
    }
    let policies = policies.versions.len();
    for artifact in &mut candidates {
        if let Some(why) = work.exceeds_of_one(artifact.places(), cx.limits()) {
            artifact.is_not_evaluated(why, policies);
        }
    }
    let evaluated = candidates.iter().filter(|artifact| artifact.not_evaluated.is_none());
    let places: Places =
        evaluated.map(|artifact| (artifact.contexts.len(), artifact.names())).chain(others).collect();
    exceeds = exceeds.or_else(|| work.exceeds(places, cx.limits()));
    if let Some(why) = exceeds {
        candidates.iter_mut().for_each(|artifact| artifact.is_not_evaluated(why.clone(), policies));
        return Ok(Judged { candidates, exceeds: true });
    }
    for part in parts {
        let parsed = cx.parsed_policies(&part).await?;
        let policy = |version: &VersionKey| parsed.get(version).cloned().ok_or_else(|| lost(version.0));
        let policies = part.iter().map(policy).collect::<Result<Vec<_>>>()?;
        for policies in work::for_jobs(&policies, places) {
            let many = work::evaluations(&policies);
            let evaluations = move |artifact: &Candidate| match artifact.not_evaluated {
                Some(_) => 0,
                None => many * artifact.places() * artifact.names(),
            };
            let evaluate = move |mut artifact: Candidate| {
                artifact.evaluate(&policies);
                artifact
            };
            candidates = cx.compute().evaluate_each(candidates, evaluations, evaluate).await?;
        }
    }
    Ok(Judged { candidates, exceeds: false })
}

/// Returns the differences between a new evaluation of a snapshot's artifacts and the recorded one. The store
/// must have what there was then.
#[cfg(feature = "memory")]
pub(super) async fn differences_again(
    snapshot: &Snapshot,
    recorded: Vec<RunningArtifact>,
    cx: &Context<'_>,
) -> Result<Vec<String>> {
    let running: ReportedState = recorded.iter().map(|one| (one.key(), ObservedArtifact::of(one))).collect();
    let versions = snapshot.policies.iter().map(|applied| (applied.policy, applied.version)).collect();
    let demanded = snapshot.demanded.iter().copied().collect();
    let logical = snapshot.logical.iter().map(|one| (one.environment, one.policies.clone())).collect();
    let policies = PolicySet { versions, demanded, logical, guards: Vec::new() };
    let reports = Reports::read(snapshot.environment, &running, (u64::MAX, snapshot.at), cx).await?;
    let states = reports.evaluated(&policies, 0, cx).await?;
    let running = Arc::new(running);
    let Judged { candidates, .. } =
        judged(Arc::clone(&running), states, &policies, Vec::new(), true, cx).await?;
    let judged_by = AppliedPolicy::digest(&policies.applied());
    let artifacts = candidates.into_iter().map(|artifact| artifact.evaluated(judged_by)).collect();
    let standard = Standard { own: policies.own_places(), requires_provenance: snapshot.requires_provenance };
    let evaluated = EvaluatedArtifact::all(&running, &artifacts, &standard)?;
    let not_evaluated = recorded.iter().filter(|one| one.not_evaluated.is_some());
    let not_evaluated: BTreeMap<_, _> = not_evaluated.map(|one| (one.key(), one.compliant)).collect();
    let verdict = |artifact: &EvaluatedArtifact| {
        not_evaluated.get(&artifact.key).copied().unwrap_or(artifact.found.compliant)
    };
    let verdicts = evaluated.iter().map(verdict);
    let compliant = policy::snapshot_compliant(verdicts, standard.judges());
    let mut differences = Vec::new();
    if not_evaluated.is_empty() && policies.verdicts(&evaluated) != snapshot.logical {
        differences.push("other verdicts of logical environments".to_owned());
    }
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

/// Returns the artifacts that run in the latest snapshot.
async fn open_instances(known: &KnownEnvironment, cx: &Context<'_>) -> Result<OpenInstances> {
    let latest = known.status.snapshots;
    if latest == 0 {
        return Ok(OpenInstances::new());
    }
    let placed = cx.store().instances(cx.org()?, known.record.id, latest).await?;
    let running = placed.into_iter().filter(|placed| !placed.exited).map(|placed| placed.instance);
    Ok(running.map(|instance| (instance.key(), instance)).collect())
}

/// Returns the time of a snapshot that is taken now. Allowlist entries are checked at this time. Another
/// server's clock may be ahead, but a snapshot is never older than the one before.
fn snapshot_time(known: &KnownEnvironment, cx: &Context<'_>) -> Timestamp {
    known.status.changed_at.map_or(cx.now(), |last| last.max(cx.now()))
}

/// A running artifact with its evaluation.
#[derive(Debug, Clone)]
struct EvaluatedArtifact {
    key: ArtifactKey,
    observed: ObservedArtifact,
    found: Arc<ArtifactEvaluation>,
}

/// The environment's own requirements for running artifacts.
struct Standard {
    /// The indexes of its own policies among all that it is evaluated against, as far as they are recorded.
    own: Vec<Option<u16>>,
    requires_provenance: bool,
}

impl Standard {
    /// Returns whether it has any requirement.
    const fn judges(&self) -> bool {
        !self.own.is_empty() || self.requires_provenance
    }

    /// Returns the verdict on an evaluation.
    fn verdict(&self, found: &ArtifactEvaluation) -> Option<bool> {
        let satisfied = self
            .own
            .iter()
            .map(|place| place.is_some_and(|place| found.violates.binary_search(&place).is_err()));
        let compliant = policy::artifact_verdict(found.allowed.is_some(), &Vec::from_iter(satisfied));
        match self.requires_provenance {
            true => found.with_required_provenance(compliant),
            false => compliant,
        }
    }
}

impl EvaluatedArtifact {
    /// Returns the running artifacts with their evaluations. A missing evaluation is an error: without it,
    /// the artifact would count as stopped.
    fn all(running: &ReportedState, artifacts: &Evaluated, standard: &Standard) -> Result<Vec<Self>> {
        let evaluated = |(key, observed): (&ArtifactKey, &ObservedArtifact)| {
            let missing = || StoreError::Failed(format!("{key} was not evaluated").into());
            let mut found = Arc::clone(artifacts.get(key).ok_or_else(missing)?);
            // Evaluations are cached without the environment's own requirements.
            let compliant = standard.verdict(&found);
            if compliant != found.compliant {
                Arc::make_mut(&mut found).compliant = compliant;
            }
            Ok(Self { key: key.clone(), observed: observed.clone(), found })
        };
        running.iter().map(evaluated).collect()
    }
}

/// A running artifact under evaluation.
struct Candidate {
    key: ArtifactKey,
    observed: ObservedArtifact,
    allowed: Option<EntryInForce>,
    provenance: Vec<Provenance>,
    /// The trails of its reports.
    trails: Vec<Id>,
    /// The report that is recorded as the source of its deployment.
    source: Option<DeploymentSource>,
    contexts: Vec<FlowContext>,
    /// The digest of each of its flows.
    flows: Vec<Hash>,
    /// The digest of all its inputs, if there are policies.
    inputs: Option<Hash>,
    /// Whether it satisfies each of the policies so far, in their order.
    satisfied: Vec<bool>,
    /// The results of policy rules that do not follow from the provenance.
    outcomes: Vec<PolicyOutcome>,
    /// The reason why it is not evaluated. It then satisfies no policy.
    not_evaluated: Option<String>,
    /// Whether everything that it is evaluated against could be read.
    is_final: bool,
}

impl Candidate {
    fn all(running: &ReportedState, inputs: EvaluationInputs) -> Vec<Self> {
        let EvaluationInputs { allowed, mut sources } = inputs;
        let candidate = |(key, observed): (&ArtifactKey, &ObservedArtifact)| {
            let fingerprint = observed.fingerprint.as_ref();
            let sources = fingerprint.and_then(|fingerprint| sources.remove(fingerprint)).unwrap_or_default();
            let is_final = sources.iter().all(|source| source.is_final);
            let allowed = fingerprint.and_then(|fingerprint| allowed.get(fingerprint));
            Self {
                key: key.clone(),
                observed: observed.clone(),
                allowed: allowed.copied(),
                provenance: sources.iter().map(Source::provenance).collect(),
                trails: sources.iter().filter_map(|source| source.trail).collect(),
                source: deployed_from(&sources),
                flows: sources.iter().map(|source| source.flow).collect(),
                inputs: None,
                contexts: sources.into_iter().map(|source| source.context).collect(),
                satisfied: Vec::new(),
                outcomes: Vec::new(),
                not_evaluated: None,
                is_final,
            }
        };
        running.iter().map(candidate).collect()
    }

    /// Returns how many times each rule is evaluated for it.
    fn places(&self) -> usize {
        self.contexts.len().max(1)
    }

    fn names(&self) -> usize {
        1 + self.observed.other_names.len()
    }

    /// Records that it satisfies none of this many policies, for this reason.
    fn is_not_evaluated(&mut self, why: String, policies: usize) {
        (self.satisfied, self.outcomes) = (vec![false; policies], Vec::new());
        (self.not_evaluated, self.is_final) = (Some(why), false);
    }

    fn evaluate(&mut self, policies: &[Arc<policy::Policy>]) {
        if self.not_evaluated.is_some() {
            return;
        }
        let (artifact, contexts) = (self.observed.as_policies_see_it(), &self.contexts);
        for policy in policies {
            self.is_final &= policy.is_readable();
            let place = self.satisfied.len();
            let rules = RuleOutcomes::of(policy, artifact, contexts);
            self.satisfied.push(match &rules {
                Some(rules) => rules.are_satisfied(),
                None => policy::is_satisfied(policy, artifact, contexts),
            });
            if let Some((place, rules)) = u16::try_from(place).ok().zip(rules) {
                let unknown = match rules.are_satisfied() {
                    true => Vec::new(),
                    false => policy::unknown_conditions(policy, artifact, contexts),
                };
                self.outcomes.push(PolicyOutcome { policy: place, rules, unknown });
            }
        }
    }

    /// Returns the digest of all its inputs except policies. Each input is one line, with texts as JSON.
    fn digest_of_inputs(&self) -> Hash {
        let json = |text: &str| serde_json::Value::from(text);
        let fingerprint = self.observed.fingerprint.as_ref().map_or("", Fingerprint::as_str);
        let mut lines = vec![format!(
            "artifact {} {fingerprint} {}\n",
            json(&self.observed.name),
            self.allowed.is_some()
        )];
        lines.extend(self.observed.other_names.iter().map(|name| format!("name {}\n", json(name))));
        let places = self.provenance.iter().zip(&self.contexts).zip(&self.flows);
        for ((provenance, context), flow) in places {
            lines.push(format!("report {} {}\n", provenance.artifact, provenance.state));
            lines.push(format!("flow {flow} {}\n", json(&context.trail_name)));
            let scopes = context.attestations.scopes();
            lines.extend(scopes.map(|scope| format!("attestations {}\n", scope.digest())));
        }
        Hash::of(lines.concat())
    }

    fn evaluated(self, judged_by: Option<Hash>) -> (ArtifactKey, Arc<ArtifactEvaluation>) {
        let Self {
            key,
            observed,
            allowed,
            provenance,
            trails,
            source,
            satisfied,
            outcomes,
            inputs,
            not_evaluated,
            is_final,
            ..
        } = self;
        let compliant = policy::artifact_verdict(allowed.is_some(), &satisfied);
        let places = (0..=u16::MAX).zip(satisfied);
        let violates = places.filter(|(_, satisfied)| !satisfied).map(|(place, _)| place).collect();
        let names = observed.names().map(str::to_owned).collect();
        let evaluation = ArtifactEvaluation {
            compliant,
            allowed,
            provenance,
            source,
            trails,
            judged_by,
            violates,
            outcomes,
            inputs,
            not_evaluated,
            names,
            is_final,
        };
        (key, Arc::new(evaluation))
    }
}

#[cfg(test)]
mod tests;
