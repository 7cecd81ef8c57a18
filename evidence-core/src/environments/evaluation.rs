//! The evaluation of an environment: which artifacts run, where they come from, whether they may run, and
//! whether a new snapshot is needed. The inputs are read in parts that fit in memory, however many artifacts
//! run. The decision itself ([`difference`]) is a pure function of what is kept of them.
//!
//! An evaluation uses the ledger as of its start. Evidence that arrives meanwhile counts in the next
//! evaluation. Anyone with the ledger can therefore repeat the evaluation with the same result.

mod again;
mod difference;
mod policies;
mod reported;
mod verdicts;
pub(crate) mod work;

use std::sync::Arc;

use futures_util::future::try_join;

use crate::compute::MANY_EVALUATIONS;
use crate::context::{Context, Draft};
use crate::environments::evaluation_cache::CachedEvaluation;
use crate::environments::last_evaluation::{
    ArtifactEvaluation, Evaluated, LastEvaluation, OpenInstances, take_artifacts_of_trails,
};
use crate::environments::observed::{ObservedArtifact, ReportedState};
use crate::environments::store::KnownEnvironment;
use crate::error::{Error, Result};
use crate::fact::Fact;
use crate::id::Id;
use crate::json::JsonFields;
use crate::policies::record::Policy;
use crate::rules::policy;
use crate::snapshots::record::{AppliedPolicy, Snapshot};
use crate::store::entry::Current;
use crate::store::error::StoreError;
use crate::time::Timestamp;
pub(super) use again::differences_again;
use difference::{Difference, difference};
use policies::PolicySet;
pub(super) use policies::lost;
pub(super) use reported::{EvaluatedReport, InTrail, without_trail};
use reported::{EvaluatedReports, Reports};
use verdicts::{EvaluatedArtifact, EvaluatedCandidates, OwnRequirements, evaluate_candidates};

/// Returns the draft of the snapshot that a report of `running` artifacts requires. `skipped_elements` is the
/// number of elements that were skipped in it. The draft has no facts if there is nothing new. Its
/// preconditions cover everything that the decision depends on, except evidence: evidence that arrives later
/// counts for the next report.
///
/// If the evaluation exceeds a limit of the host, the artifacts are not compliant, and the snapshot gives the
/// reason. An earlier verdict must not remain in force for something that could not be evaluated.
pub(crate) async fn evaluate(
    known: &KnownEnvironment,
    running: &Arc<ReportedState>,
    skipped_elements: u64,
    cx: &Context<'_>,
) -> Result<Draft> {
    let options = EvaluationOptions { reported: true, skipped_elements, policies: None, always: false };
    evaluate_running(known, running, options, cx).await
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
        return Ok(Draft { preconditions: vec![known.latest()], ..Draft::default() });
    }
    let policies = PolicySet::read(known, read, cx).await?;
    let snapshot = cx.store().snapshot(cx.org()?, known.record.id, latest).await?;
    let has_same_requirements = snapshot.as_ref().is_some_and(|Current { record, .. }| {
        policies.match_snapshot(record) && record.requires_provenance == known.record.require_provenance
    });
    if has_same_requirements && changed == Changed::Policies {
        let preconditions = policies.preconditions.iter().cloned().chain([known.latest()]).collect();
        return Ok(Draft { preconditions, ..Draft::default() });
    }
    let open = open_instances(known, cx).await?;
    let running = open.iter().map(|(key, open)| (key.clone(), ObservedArtifact::of(open))).collect();
    let options = EvaluationOptions {
        reported: false,
        skipped_elements: snapshot.map_or(0, |snapshot| snapshot.record.skipped_elements),
        policies: Some(&policies),
        always: !has_same_requirements,
    };
    evaluate_running(known, &Arc::new(running), options, cx).await
}

/// The options of an evaluation.
#[derive(Clone, Copy)]
struct EvaluationOptions<'p> {
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
    options: EvaluationOptions<'_>,
    cx: &Context<'_>,
) -> Result<Draft> {
    match evaluate_changed(known, running, options, true, cx).await? {
        Some(draft) => Ok(draft),
        // Reused evaluations count towards the limits, so evaluate everything together.
        None => {
            let evaluated = evaluate_changed(known, running, options, false, cx).await?;
            evaluated.ok_or_else(|| StoreError::Failed("an environment was not evaluated".into()).into())
        }
    }
}

/// Evaluates what is running. With `reuse`, artifacts whose inputs did not change keep their earlier
/// evaluation. Returns `None` if reused and new evaluations together exceed a limit.
async fn evaluate_changed(
    known: &KnownEnvironment,
    running: &Arc<ReportedState>,
    options: EvaluationOptions<'_>,
    reuse: bool,
    cx: &Context<'_>,
) -> Result<Option<Draft>> {
    let at = snapshot_time(known, cx);
    let policies = async {
        match options.policies {
            Some(policies) => Ok(policies.clone()),
            None => PolicySet::read(known, Vec::new(), cx).await,
        }
    };
    let (policies, ledger) = try_join(policies, cx.ledger()).await?;
    let rests_on = ledger.size();
    if !policies.exist_within(rests_on) {
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
    let plan = ReusePlan::read(environment, running, cached.as_ref(), (rests_on, at), cx);
    let (open, ReusePlan { reused, rest, reports }) = try_join(open, plan).await?;
    let mut kept = cached.as_ref().map(|last| last.kept(reused.values())).unwrap_or_default();
    let states = reports.evaluated(&policies, kept.values().sum(), cx).await?;
    kept.extend(states.kept());
    let snapshots = known.status.snapshots;
    let since = cached.and_then(|last| last.since(&reused, snapshots)).unwrap_or_else(|| cx.now());
    let last_open = (snapshots, Arc::clone(&open));
    let mut preconditions = policies.preconditions.clone();
    preconditions.extend([known.unchanged(), known.latest()]);
    let snapshot = Snapshot {
        events_before: known.status.events,
        environment,
        index: snapshots + 1,
        at,
        compliant: false,
        reported: options.reported,
        rests_on: Some(rests_on),
        requires_provenance: known.record.require_provenance,
        skipped_elements: options.skipped_elements,
        policies: policies.applied(),
        demanded: policies.demanded.iter().copied().collect(),
        logical: Vec::new(),
        changes: Vec::new(),
        exits: Vec::new(),
    };
    let always = options.always || snapshots == 0;
    let running = Arc::clone(running);
    let evaluation = Evaluation { running, policies, open, reused, rest, states, snapshot, always };
    let Some(outcome) = evaluation.outcome(known.status.compliant, cx).await? else { return Ok(None) };
    let Outcome { snapshot, artifacts } = outcome;
    let evaluation =
        LastEvaluation { since, ledger, policies: versions, open: last_open, artifacts, kept, bytes: 0 };
    cx.cache_evaluation(environment, evaluation).await?;
    let facts = snapshot.into_iter().map(|snapshot| Fact::SnapshotTaken { snapshot }).collect();
    Ok(Some(Draft { facts, preconditions, ..Draft::default() }))
}

/// The running artifacts, separated by whether an earlier evaluation can be reused.
struct ReusePlan {
    /// The reused evaluations.
    reused: Evaluated,
    /// All other running artifacts.
    rest: Arc<ReportedState>,
    /// The reports of those.
    reports: Reports,
}

impl ReusePlan {
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
            let more = take_artifacts_of_trails(&mut reused, &reports.trails());
            if !more.is_empty() {
                let more = running.iter().filter(|(key, _)| more.contains(key));
                let more: ReportedState = more.map(|(key, seen)| (key.clone(), seen.clone())).collect();
                reports.extend(Reports::read(environment, &more, rests_on, cx).await?);
                rest.extend(more);
            }
            if take_artifacts_of_trails(&mut reused, &reports.trails()).is_empty() {
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
        let EvaluatedCandidates { candidates, exceeds } =
            evaluate_candidates(rest, states, &policies, places, heavy, cx).await?;
        if exceeds && !reused.is_empty() {
            return Ok(None);
        }
        let most = cx.limits().snapshot;
        let decide = move || {
            let judged_by = AppliedPolicy::digest(&snapshot.policies);
            let mut artifacts = reused;
            artifacts.extend(candidates.into_iter().map(|artifact| artifact.evaluated(judged_by)));
            let requirements = OwnRequirements {
                own: policies.own_indexes(),
                requires_provenance: snapshot.requires_provenance,
            };
            let take = |running: &ReportedState, artifacts: &Evaluated| {
                let evaluated = EvaluatedArtifact::all(running, artifacts, &requirements)?;
                let verdicts = evaluated.iter().map(|artifact| artifact.found.compliant);
                // An environment without running artifacts is evaluated too.
                let compliant = policy::snapshot_compliant(verdicts, requirements.is_any());
                let logical = policies.verdicts(&evaluated);
                let Difference { changes, exits, has_events } = difference(&open, &evaluated, snapshot.index);
                let is_taken = always || has_events || before != Some(compliant);
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

#[cfg(test)]
mod tests;
