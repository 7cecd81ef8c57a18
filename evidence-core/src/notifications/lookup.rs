//! Looks up the names for the events of one entry, in a bounded number of queries.

use crate::artifacts::record::Artifact;
use crate::error::Result;
use crate::id::Id;
use crate::notifications::events::{Event, Place, What};
use crate::notifications::payload::Names;
use crate::service::Evidence;
use crate::snapshots::record::Snapshot;
use crate::store::batch::{RECORD_BATCH_SIZE, distinct};

/// Returns the names for these events of one entry, or `None` if the environment or flow no longer exists.
pub(super) async fn names(
    evidence: &Evidence,
    org: Id,
    org_name: &str,
    events: &[Event<'_>],
) -> Result<Option<Names>> {
    let Some(first) = events.first() else { return Ok(None) };
    let store = evidence.store();
    let public_url = evidence.settings().public_url.clone();
    let mut names = Names { public_url, org: org_name.to_owned(), ..Names::default() };
    // An event of a logical environment happened in a member.
    let place = match first.what {
        What::LogicalVerdict(snapshot, _) => Place::Environment(snapshot.environment),
        _ => first.at,
    };
    match place {
        Place::Environment(id) => {
            let Some(known) = store.environments_by_id(org, &[id]).await?.pop() else { return Ok(None) };
            names.place = known.record.name.into_string();
        }
        Place::Flow(id) => {
            let Some(flow) = store.flows_by_id(org, &[id]).await?.pop() else { return Ok(None) };
            names.place = flow.name.to_string();
            names.flows.insert(flow.id, flow.name.into_string());
        }
    }
    let mut trails = Vec::new();
    let mut snapshot = None;
    for event in events {
        match event.what {
            What::Verdict(taken)
            | What::LogicalVerdict(taken, _)
            | What::Changed(taken, _)
            | What::Exited(taken, _) => snapshot = Some(taken),
            What::Begun(trail) => trails.push(trail.id),
            What::Reported(report) => trails.extend(report.trail),
            What::Attested(attestation) => trails.push(attestation.trail),
            What::Allowed(_) => {}
        }
    }
    if !trails.is_empty() {
        let known = store.trail_labels(org, &distinct(trails)).await?;
        names.trails = known.into_iter().map(|(id, label)| (id, label.name.into_string())).collect();
    }
    if let Some(snapshot) = snapshot {
        of_snapshot(evidence, org, snapshot, events, &mut names).await?;
    }
    Ok(Some(names))
}

async fn of_snapshot(
    evidence: &Evidence,
    org: Id,
    snapshot: &Snapshot,
    events: &[Event<'_>],
    names: &mut Names,
) -> Result<()> {
    let (store, environment, index) = (evidence.store(), snapshot.environment, snapshot.index);
    let asks = |which: fn(&What<'_>) -> bool| events.iter().any(|event| which(&event.what));
    let logical = distinct(events.iter().filter_map(|event| match event.what {
        What::LogicalVerdict(_, verdict) => Some(verdict.environment),
        _ => None,
    }));
    for part in logical.chunks(RECORD_BATCH_SIZE) {
        let known = store.environments_by_id(org, part).await?.into_iter();
        names.logical.extend(known.map(|known| (known.record.id, known.record.name.into_string())));
    }
    // The state without policies is always unknown.
    let asks_state = snapshot.state().is_some() && asks(|what| matches!(what, What::Verdict(_)));
    if index > 1 && (asks_state || !logical.is_empty()) {
        let before = store.snapshots(org, &[(environment, index - 1..=index - 1)]).await?;
        let verdicts = before.iter().flat_map(|before| &before.logical);
        names.logical_before = verdicts.map(|before| (before.environment, before.compliant)).collect();
        // A snapshot is large. Read it only if its row does not suffice.
        if asks_state {
            names.state_before = match before.first().map(|before| before.compliant) {
                // A snapshot without policies is never compliant.
                Some(true) => Some(true),
                Some(false) => {
                    let before = store.snapshot(org, environment, index - 1).await?;
                    before.and_then(|before| before.record.state())
                }
                None => None,
            };
        }
    }
    if asks(|what| matches!(what, What::Exited(..))) {
        let exited = store.instances(org, environment, index).await?.into_iter().filter(|entry| entry.exited);
        names.exited = exited.map(|entry| (entry.instance.key().to_string(), entry.instance)).collect();
    }
    let changed = events.iter().filter_map(|event| match event.what {
        What::Changed(_, instance) => Some(instance),
        _ => None,
    });
    let provenance = changed.chain(names.exited.values()).flat_map(|instance| &instance.provenance);
    let reports = distinct(provenance.map(|provenance| provenance.artifact));
    if !reports.is_empty() {
        let known = store.artifacts_by_id(org, &reports).await?;
        let flows = distinct(known.iter().map(|report: &Artifact| report.flow));
        let flows = store.flows_by_id(org, &flows).await?;
        names.flows = flows.into_iter().map(|flow| (flow.id, flow.name.into_string())).collect();
        names.reports = known.into_iter().map(|report| (report.id, report)).collect();
    }
    Ok(())
}
