//! The evaluation of a recorded snapshot again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::policies::PolicySet;
use super::reported::Reports;
use super::verdicts::{EvaluatedArtifact, EvaluatedCandidates, OwnRequirements, evaluate_candidates};
use crate::context::Context;
use crate::environments::observed::{ObservedArtifact, ReportedState};
use crate::error::Result;
use crate::rules::policy;
use crate::snapshots::record::{AppliedPolicy, RunningArtifact, Snapshot};

/// Returns the differences between a new evaluation of a snapshot's artifacts and the recorded one. The store
/// must have what there was then.
pub(in crate::environments) async fn differences_again(
    snapshot: &Snapshot,
    recorded: Vec<RunningArtifact>,
    cx: &Context<'_>,
) -> Result<Vec<String>> {
    let running: ReportedState = recorded.iter().map(|one| (one.key(), ObservedArtifact::of(one))).collect();
    let versions = snapshot.policies.iter().map(|applied| (applied.policy, applied.version)).collect();
    let demanded = snapshot.demanded.iter().copied().collect();
    let logical = snapshot.logical.iter().map(|one| (one.environment, one.policies.clone())).collect();
    let policies = PolicySet { versions, demanded, logical, preconditions: Vec::new() };
    let reports = Reports::read(snapshot.environment, &running, (u64::MAX, snapshot.at), cx).await?;
    let states = reports.evaluated(&policies, 0, cx).await?;
    let running = Arc::new(running);
    let EvaluatedCandidates { candidates, .. } =
        evaluate_candidates(Arc::clone(&running), states, &policies, Vec::new(), true, cx).await?;
    let judged_by = AppliedPolicy::digest(&policies.applied());
    let artifacts = candidates.into_iter().map(|artifact| artifact.evaluated(judged_by)).collect();
    let requirements =
        OwnRequirements { own: policies.own_indexes(), requires_provenance: snapshot.requires_provenance };
    let evaluated = EvaluatedArtifact::all(&running, &artifacts, &requirements)?;
    let not_evaluated = recorded.iter().filter(|one| one.not_evaluated.is_some());
    let not_evaluated: BTreeMap<_, _> = not_evaluated.map(|one| (one.key(), one.compliant)).collect();
    let verdict = |artifact: &EvaluatedArtifact| {
        not_evaluated.get(&artifact.key).copied().unwrap_or(artifact.found.compliant)
    };
    let verdicts = evaluated.iter().map(verdict);
    let compliant = policy::snapshot_compliant(verdicts, requirements.is_any());
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
