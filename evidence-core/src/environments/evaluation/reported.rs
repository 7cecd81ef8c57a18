//! The states of running artifacts in their flows: the inputs of environment evaluations, except policies.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::try_join;

use super::policies::PolicySet;
use super::work::required_by;
use crate::allowlists::store::AllowedArtifact;
use crate::artifacts::store::{ArtifactRow, Origin};
use crate::context::Context;
use crate::environments::last_evaluation::EntryInForce;
use crate::environments::observed::ReportedState;
use crate::error::Result;
use crate::flows::operations::FlowLabel;
use crate::flows::parsed::Parsed;
use crate::id::Id;
use crate::ledger::Hash;
use crate::name::Fingerprint;
use crate::rules::compliance::{
    self, AttestationStatus, ContentStatus, EarlierNames, ReportedArtifact, ReportedAttestation, State,
};
use crate::rules::policy::{FlowAttestations, FlowContext, RequiredAttestations};
use crate::rules::template::{self, Template};
use crate::snapshots::record::{DeploymentSource, Provenance};
use crate::store::batch::distinct;
use crate::store::error::StoreError;
use crate::texts::record::in_parts;
use crate::time::Timestamp;
use crate::trails::evaluation::evaluated;
use crate::trails::store::TrailContents;

/// The allowed artifacts, with their allowlist entries.
type Allowed = BTreeMap<Fingerprint, EntryInForce>;

/// The inputs for running artifacts, except policies, by digest. An artifact without a digest has no
/// provenance and is on no allowlist.
pub(super) struct EvaluationInputs {
    pub(super) allowed: Allowed,
    pub(super) sources: BTreeMap<Fingerprint, Vec<Source>>,
}

/// The newest report of a running artifact in a flow, with its state there.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) report: DeploymentSource,
    pub(super) trail: Option<Id>,
    pub(super) reference: String,
    /// The digest of the flow's name and tags.
    pub(super) flow: Hash,
    pub(super) context: FlowContext,
    /// Whether everything that it is evaluated against could be read.
    pub(super) is_final: bool,
}

/// Returns the first source that names a repo, otherwise the first.
pub(super) fn deployed_from(sources: &[Source]) -> Option<DeploymentSource> {
    let named = sources.iter().find(|source| source.report.repo.is_some());
    named.or(sources.first()).map(|source| source.report.clone())
}

impl Source {
    pub(super) fn provenance(&self) -> Provenance {
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

/// The reports of running artifacts.
pub(super) struct Reports {
    /// The number of entries that the ledger had.
    rests_on: u64,
    allowed: Allowed,
    /// The newest report of each content in each flow.
    origins: Vec<Origin>,
    flows: BTreeMap<Id, FlowLabel>,
    /// The states of reports without a trail, by report.
    alone: BTreeMap<Id, EvaluatedReport>,
}

impl Reports {
    pub(super) async fn read(
        environment: Id,
        running: &ReportedState,
        (rests_on, at): (u64, Timestamp),
        cx: &Context<'_>,
    ) -> Result<Self> {
        let org = cx.org()?;
        let fingerprints: Vec<Fingerprint> =
            running.values().filter_map(|observed| observed.fingerprint.clone()).collect();
        let reported = async {
            match fingerprints.as_slice() {
                [] => Ok((Vec::new(), Vec::new())),
                some => {
                    let allowed = cx.store().allowed(org, environment, some, rests_on, at);
                    try_join(allowed, cx.store().provenance(org, some, rests_on)).await
                }
            }
        };
        let (allowed, origins) = reported.await?;
        let allowed = allowed.into_iter().map(|one| {
            let AllowedArtifact { fingerprint, entry, expires_at } = one;
            (fingerprint, EntryInForce { index: entry, expires_at })
        });
        let allowed = allowed.collect();
        let flows = distinct(origins.iter().map(|origin| origin.report.flow));
        let (flows, alone) = try_join(cx.flow_labels(&flows), without_trail(&origins, cx)).await?;
        Ok(Self { rests_on, allowed, origins, flows, alone })
    }

    /// Returns the trails that the artifacts were reported to.
    pub(super) fn trails(&self) -> BTreeSet<Id> {
        self.origins.iter().filter_map(|origin| origin.report.trail).collect()
    }

    /// Adds the reports of other artifacts, read from the same ledger.
    pub(super) fn extend(&mut self, other: Self) {
        let Self { rests_on: _, allowed, origins, flows, alone } = other;
        self.allowed.extend(allowed);
        self.origins.extend(origins);
        self.flows.extend(flows);
        self.alone.extend(alone);
    }

    /// Returns the states of the reports in their trails, with the attestations that a policy requires.
    /// `kept_before` is the number of attestations that reused evaluations hold.
    pub(super) async fn evaluated(
        self,
        policies: &PolicySet,
        kept_before: usize,
        cx: &Context<'_>,
    ) -> Result<EvaluatedReports> {
        let Self { rests_on, allowed, origins, flows, alone } = self;
        let mut running: BTreeMap<Id, BTreeSet<Fingerprint>> = BTreeMap::new();
        for Origin { report, .. } in &origins {
            let Some(trail) = report.trail else { continue };
            running.entry(trail).or_default().insert(report.fingerprint.clone());
        }
        let reported = Vec::from_iter(running.keys().copied());
        let running = Arc::new(running);
        let in_trails = Arc::clone(&running);
        let required = required_by(&policies.versions(), cx).await?;
        let kept = Arc::new(AtomicUsize::new(kept_before));
        let (all_kept, most) = (Arc::clone(&kept), cx.limits().evaluated_attestations);
        let evaluate = move |(contents, parsed): (TrailContents, Arc<Parsed>)| {
            if kept.load(Ordering::Relaxed) > most {
                return None;
            }
            let contents = contents.truncated_to(rests_on);
            let running = running.get(&contents.trail.id).into_iter().flatten();
            let running = running.map(Fingerprint::as_str).collect();
            let evaluated = InTrail::new(&contents, &parsed.template, &running, &required);
            kept.fetch_add(evaluated.kept, Ordering::Relaxed);
            Some((contents.trail.id, evaluated))
        };
        let mut trails: BTreeMap<Id, InTrail> =
            evaluated(&reported, cx, evaluate).await?.into_iter().flatten().collect();
        let mut exceeds = None;
        if all_kept.load(Ordering::Relaxed) > most {
            exceeds = Some(format!("The policies require more than {most} attestations in total"));
            // The states in trails are needed nevertheless.
            let asks_for_none = move |(contents, parsed): (TrailContents, Arc<Parsed>)| {
                let contents = contents.truncated_to(rests_on);
                let running = in_trails.get(&contents.trail.id).into_iter().flatten();
                let running = running.map(Fingerprint::as_str).collect();
                let evaluated =
                    InTrail::new(&contents, &parsed.template, &running, &RequiredAttestations::default());
                (contents.trail.id, evaluated)
            };
            trails = evaluated(&reported, cx, asks_for_none).await?.into_iter().collect();
        }
        Ok(EvaluatedReports { allowed, origins, flows, trails, alone, exceeds })
    }
}

/// The state of an artifact report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EvaluatedReport {
    pub(crate) state: State,
    /// The reason, if no attestation explains the state.
    pub(crate) reason: Option<String>,
    /// The attestations that count for it: its own and those of its trail.
    attestations: Arc<FlowAttestations>,
    /// Whether everything that it is evaluated against could be read. A read error may be repaired without a
    /// ledger entry.
    is_final: bool,
}

impl EvaluatedReport {
    /// Returns the state of a report to a trail that cannot be read.
    pub(crate) fn of_lost_trail() -> Self {
        Self { reason: Some(template::LOST_TRAIL.to_owned()), ..Self::unknown() }
    }
}

/// The states of running artifacts in a trail.
pub(crate) struct InTrail {
    pub(crate) name: String,
    pub(crate) states: BTreeMap<String, EvaluatedReport>,
    /// The number of attestations that are held.
    pub(super) kept: usize,
}

/// The reason for a trail with more relevant attestations than the limit.
const TOO_MUCH: &str = "More attestations count for artifacts of the trail than are evaluated";

impl InTrail {
    /// Evaluates this content in a trail. The states are by fingerprint. Only `required` attestations are held.
    pub(crate) fn new(
        contents: &TrailContents,
        template: &Template,
        running: &BTreeSet<&str>,
        required: &RequiredAttestations,
    ) -> Self {
        let artifacts = Vec::from_iter(contents.artifacts.iter().map(ReportedArtifact::from));
        let attestations = Vec::from_iter(contents.attestations.iter().map(ReportedAttestation::from));
        let none: Arc<FlowAttestations> = Arc::default();
        let kept = Cell::new(0);
        let keep = |lines: Vec<AttestationStatus>,
                    reported: &[&ReportedAttestation],
                    on_trail: Option<&Arc<FlowAttestations>>| {
            if required.is_empty() {
                return Arc::clone(&none);
            }
            let list = FlowAttestations::of_scope(lines, reported, on_trail, required);
            kept.set(kept.get() + list.count());
            Arc::new(list)
        };
        let (most, reports) = (compliance::MAX_LINES, (&artifacts[..], &attestations[..]));
        let found =
            compliance::content_statuses(template, reports, &contents.earlier_names, running, most, keep);
        let evaluated = |(fingerprint, status): (&str, ContentStatus<_>)| {
            let ContentStatus { state, attestations, reason, is_too_much } = status;
            let reason = template.unreadable().map(str::to_owned).or(reason);
            let reason = reason.or_else(|| is_too_much.then(|| TOO_MUCH.to_owned()));
            let is_final = template.unreadable().is_none();
            let attestations = attestations.unwrap_or_default();
            (fingerprint.to_owned(), EvaluatedReport { state, reason, attestations, is_final })
        };
        let states = found.into_iter().map(evaluated).collect();
        Self { name: contents.trail.name.to_string(), states, kept: kept.get() }
    }
}

/// The states of running artifacts, in all flows they were reported to.
pub(super) struct EvaluatedReports {
    allowed: Allowed,
    pub(super) origins: Vec<Origin>,
    flows: BTreeMap<Id, FlowLabel>,
    trails: BTreeMap<Id, InTrail>,
    /// The states of reports without a trail.
    alone: BTreeMap<Id, EvaluatedReport>,
    /// The reason if the attestations that the policies require exceed the limit. None of them is held then.
    pub(super) exceeds: Option<String>,
}

impl EvaluatedReports {
    /// Returns the number of attestations that are held, by trail.
    pub(super) fn kept(&self) -> BTreeMap<Id, usize> {
        self.trails.iter().map(|(trail, evaluated)| (*trail, evaluated.kept)).collect()
    }

    pub(super) fn inputs(self) -> Result<EvaluationInputs> {
        let Self { allowed, origins, flows, mut trails, mut alone, exceeds: _ } = self;
        let digests: BTreeMap<Id, Hash> = flows.iter().map(|(id, flow)| (*id, flow.digest())).collect();
        let mut sources: BTreeMap<Fingerprint, Vec<Source>> = BTreeMap::new();
        for Origin { report: row, last_name, .. } in origins {
            // A missing flow is an error, because the skipped report may be the non-compliant one.
            let lost = || StoreError::corrupt(format_args!("the flow {} of a running artifact", row.flow));
            let (flow, digest) = flows.get(&row.flow).zip(digests.get(&row.flow)).ok_or_else(lost)?;
            let (trail_name, found) = match row.trail {
                None => (String::new(), alone.remove(&row.id)),
                Some(trail) => match trails.get_mut(&trail) {
                    Some(trail) => (trail.name.clone(), trail.states.remove(row.fingerprint.as_str())),
                    None => (String::new(), Some(EvaluatedReport::of_lost_trail())),
                },
            };
            let found = found.unwrap_or_else(EvaluatedReport::unknown);
            let is_final = found.is_final;
            let context = found.in_flow(flow, trail_name);
            let ArtifactRow {
                id: report, flow, repo, committed_at, template_reference_name: reference, ..
            } = row;
            let reference = if reference.is_empty() { last_name } else { reference };
            let report = DeploymentSource { report, flow, repo, committed_at };
            sources.entry(row.fingerprint).or_default().push(Source {
                report,
                trail: row.trail,
                reference,
                flow: *digest,
                context,
                is_final,
            });
        }
        Ok(EvaluationInputs { allowed, sources })
    }
}

/// Returns the states of reports to a flow as a whole. Such a report is evaluated against the template that
/// it came with, and has no attestations. The template's requirements for every name of its content in the
/// flow apply.
pub(crate) async fn without_trail(
    origins: &[Origin],
    cx: &Context<'_>,
) -> Result<BTreeMap<Id, EvaluatedReport>> {
    let alone = Vec::from_iter(origins.iter().filter(|origin| origin.report.trail.is_none()));
    let content = alone.iter().map(|origin| (origin.report.flow, origin.report.fingerprint.clone()));
    let mut names = cx.names_in_flows(&distinct(content)).await?;
    let mut states = BTreeMap::new();
    for part in in_parts(alone, |origin| origin.report.template) {
        let templates = cx.templates(part.iter().map(|origin| origin.report.template)).await?;
        let report = |Origin { report: row, .. }: &Origin| {
            let names = names.remove(&(row.flow, row.fingerprint.clone())).unwrap_or_default();
            (row.id, ReportedArtifact::from(row).after_those_by(&names), templates.of(row.template))
        };
        let reports = part.into_iter().map(report).collect();
        let evaluations =
            |(_, reports, parsed): &(_, Vec<_>, Arc<Parsed>)| reports.len() + parsed.template.requirements();
        let evaluate = |(id, reports, parsed): (Id, Vec<ReportedArtifact>, Arc<Parsed>)| {
            (id, EvaluatedReport::alone(&reports, &parsed.template))
        };
        states.extend(cx.compute().evaluate_each(reports, evaluations, evaluate).await?);
    }
    Ok(states)
}

impl EvaluatedReport {
    /// Returns the state of a report that its trail does not know.
    pub(crate) fn unknown() -> Self {
        Self { state: State::Incomplete, reason: None, attestations: Arc::default(), is_final: false }
    }

    /// Returns the state in its flow, in the form that policies use.
    pub(crate) fn in_flow(self, flow: &FlowLabel, trail_name: String) -> FlowContext {
        let Self { state: artifact_state, reason, attestations, .. } = self;
        let (flow_name, tags) = (flow.name.to_string(), Arc::clone(&flow.tags));
        let condition_names = Arc::clone(&flow.condition_names);
        FlowContext { flow_name, condition_names, trail_name, artifact_state, reason, tags, attestations }
    }

    /// Returns the state of content that was reported to no trail, from one report for each of its names.
    fn alone(reports: &[ReportedArtifact], template: &Template) -> Self {
        let (none, wanted) =
            (EarlierNames::new(), reports.iter().map(|report| &*report.fingerprint).collect());
        let found =
            compliance::content_statuses(template, (reports, &[]), &none, &wanted, usize::MAX, |_, _, _| ());
        let found = found.into_values().next();
        let (state, reason) = found.map_or((State::Incomplete, None), |status| (status.state, status.reason));
        let reason = template.unreadable().map(str::to_owned).or(reason);
        let is_final = template.unreadable().is_none();
        Self { state, reason, attestations: Arc::default(), is_final }
    }
}
