//! The evaluation of trails: compares a template's requirements with the reports. Verdicts are computed on
//! each read, so they cannot become stale.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compute::MANY_EVALUATIONS;
use crate::context::Context;
use crate::error::Result;
use crate::flows::parsed::Parsed;
use crate::id::Id;
use crate::name::Fingerprint;
use crate::page::{Listed, in_batches_within};
use crate::rules::compliance::{
    self, EarlierNames, ReportedArtifact, ReportedAttestation, State, TrailStatus,
};
use crate::store::batch::distinct;
use crate::texts::record::in_parts;
use crate::time::Timestamp;
use crate::trails::record::Trail;
use crate::trails::store::TrailContents;

/// A trail, evaluated against its template.
#[derive(Debug, Clone)]
pub(crate) struct EvaluatedTrail {
    pub(crate) trail: Trail,
    pub(crate) parsed: Arc<Parsed>,
    pub(crate) artifacts: Vec<ReportedArtifact>,
    pub(crate) attestations: Vec<ReportedAttestation>,
    pub(crate) earlier_names: EarlierNames,
    pub(crate) status: TrailStatus,
}

impl EvaluatedTrail {
    /// Evaluates a trail from its reports.
    pub(crate) fn new(contents: Cow<'_, TrailContents>, parsed: Arc<Parsed>) -> Self {
        let TrailContents { trail, artifacts, attestations, earlier_names, .. } = &*contents;
        let artifacts: Vec<_> = artifacts.iter().map(ReportedArtifact::from).collect();
        let attestations: Vec<_> = attestations.iter().map(ReportedAttestation::from).collect();
        let earlier_names = earlier_names.clone();
        let begun_at = trail.created_at;
        let status =
            compliance::evaluate(&parsed.template, begun_at, &artifacts, &attestations, &earlier_names);
        let trail = match contents {
            Cow::Borrowed(contents) => contents.trail.clone(),
            Cow::Owned(contents) => contents.trail,
        };
        Self { trail, parsed, artifacts, attestations, earlier_names, status }
    }

    /// Returns whether rendering the whole result takes about a millisecond or more.
    pub(crate) fn is_long(&self) -> bool {
        let reports = self.artifacts.len() + self.attestations.len();
        reports + self.parsed.template.requirements() > MANY_EVALUATIONS
    }

    /// Returns the time of the last change of evidence: a report, a change of the trail, or its beginning.
    pub(crate) fn last_evidence_at(&self) -> Timestamp {
        let artifacts = self.artifacts.iter().map(|artifact| artifact.at);
        let attestations = self.attestations.iter().map(|attestation| attestation.at);
        artifacts.chain(attestations).fold(self.trail.last_modified_at, Timestamp::max)
    }
}

/// Applies `evaluate` to each of these trails with its template. Returns the results in any order.
pub(crate) async fn evaluated<T: Send + 'static>(
    ids: &[Id],
    cx: &Context<'_>,
    evaluate: impl Fn((TrailContents, Arc<Parsed>)) -> T + Clone + Send + 'static,
) -> Result<Vec<T>> {
    let mut made = Vec::with_capacity(ids.len());
    let weighed = cx.trail_versions(ids).await?.into_iter().map(|version| (version.id, version.size()));
    for ids in in_batches_within(MAX_PART_BYTES, weighed, MAX_PART) {
        made.append(&mut evaluated_together(&ids, cx, evaluate.clone()).await?);
    }
    Ok(made)
}

/// The most trails, and the most bytes of their reports, that are evaluated at once. Artifacts of one
/// environment may come from thousands of small trails, and a report arrives every minute.
const MAX_PART: usize = 4096;
const MAX_PART_BYTES: u64 = 4 << 20;

/// Does the same for trails whose contents fit in memory together.
async fn evaluated_together<T: Send + 'static>(
    ids: &[Id],
    cx: &Context<'_>,
    evaluate: impl Fn((TrailContents, Arc<Parsed>)) -> T + Clone + Send + 'static,
) -> Result<Vec<T>> {
    let mut made = Vec::with_capacity(ids.len());
    let contents = cx.trail_contents(ids).await?;
    for part in in_parts(contents, |contents| contents.trail.template) {
        let templates = cx.templates(part.iter().map(|contents| contents.trail.template)).await?;
        let with_template = |contents: TrailContents| {
            let parsed = templates.of(contents.trail.template);
            (contents, parsed)
        };
        let part = part.into_iter().map(with_template).collect();
        let evaluations =
            |(contents, parsed): &(TrailContents, Arc<Parsed>)| contents.evaluations(&parsed.template);
        made.extend(cx.compute().evaluate_each(part, evaluations, evaluate.clone()).await?);
    }
    Ok(made)
}

/// Splits these trails, in order, into batches whose contents fit in memory.
pub(crate) async fn memory_batches(ids: &[Id], cx: &Context<'_>) -> Result<Vec<Vec<Id>>> {
    let sizes = cx.trail_versions(ids).await?.into_iter();
    Ok(Listed::batches(sizes.map(|version| Listed { id: version.id, bytes: version.size() }).collect()))
}

/// The time of a flow's last activity, and the state of its newest trail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Activity {
    pub(crate) at: Timestamp,
    pub(crate) state: State,
}

/// The evaluation of a flow's newest trail.
struct Reported {
    flow: Id,
    activity: Activity,
    /// The fingerprints of its artifacts.
    fingerprints: Vec<String>,
}

impl From<EvaluatedTrail> for Reported {
    fn from(trail: EvaluatedTrail) -> Self {
        Self {
            flow: trail.trail.flow,
            activity: Activity { at: trail.last_evidence_at(), state: trail.status.state },
            fingerprints: trail.artifacts.into_iter().map(|artifact| artifact.fingerprint).collect(),
        }
    }
}

/// Returns the activity of each flow's newest trail, by flow: its reports and the runs of its artifacts.
/// Evaluates the trails in batches.
pub(crate) async fn newest_trail_activity(flows: &[Id], cx: &Context<'_>) -> Result<BTreeMap<Id, Activity>> {
    let newest = cx.store().newest_trails(cx.org()?, flows).await?;
    let mut activities = BTreeMap::new();
    let activity = |(contents, parsed)| Reported::from(EvaluatedTrail::new(Cow::Owned(contents), parsed));
    for ids in memory_batches(&newest, cx).await? {
        let reported = evaluated_together(&ids, cx, activity).await?;
        let fingerprints = reported.iter().flat_map(|trail| &trail.fingerprints);
        let fingerprints = distinct(fingerprints.filter_map(|text| text.parse().ok()));
        let ran = last_ran(&fingerprints, cx).await?;
        let with_runs = |Reported { flow, activity: Activity { at, state }, fingerprints }| {
            let ran = fingerprints.iter().filter_map(|fingerprint: &String| ran.get(fingerprint).copied());
            (flow, Activity { at: ran.fold(at, Timestamp::max), state })
        };
        activities.extend(reported.into_iter().map(with_runs));
    }
    Ok(activities)
}

/// The most artifacts of a trail in one query of runs. Each may have run often, in many environments.
pub(super) const ARTIFACTS_PER_QUERY: usize = 128;

/// Returns when each of these artifacts last started or stopped running in any environment.
async fn last_ran(fingerprints: &[Fingerprint], cx: &Context<'_>) -> Result<BTreeMap<String, Timestamp>> {
    let mut ran: BTreeMap<String, Timestamp> = BTreeMap::new();
    for part in fingerprints.chunks(ARTIFACTS_PER_QUERY) {
        for run in cx.store().runs(cx.org()?, part, 1).await? {
            let (_, at) = run.until.unwrap_or(run.from);
            let newest = ran.entry(run.fingerprint.into_string()).or_insert(at);
            *newest = at.max(*newest);
        }
    }
    Ok(ran)
}
