//! The assessment of an environment: what runs there, where it comes from, whether it may, and whether that differs
//! enough from the latest snapshot to take a new one. It asks the store a fixed number of questions however many
//! artifacts run; the decision itself ([`difference`]) is a pure function over what they answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::TryFutureExt;
use futures_util::future::{try_join, try_join3};

use crate::artifacts::{Artifact, ArtifactRow};
use crate::compute::MANY_JUDGEMENTS;
use crate::environments::{Environment, KnownEnvironment};
use crate::error::{Error, Result};
use crate::fact::{Fact, Guard, RecordKind};
use crate::id::Id;
use crate::json::JsonFields;
use crate::name::{Fingerprint, PolicyName};
use crate::policies::Policy;
use crate::rules::compliance::{
    self, ArtifactState, ArtifactStatus, AttestationStatus, ReportedArtifact, State,
};
use crate::rules::policy::{self, Evaluation, FlowAttestation, FlowContext};
use crate::service::{Context, Draft};
use crate::shared::distinct;
use crate::snapshots::{
    Annotation, AppliedPolicy, ArtifactKey, Instance, PolicyDecision, Provenance, Snapshot,
};
use crate::store::{Current, StoreError};
use crate::texts::in_parts;
use crate::trails::{self, Assessed};

/// What runs.
pub(crate) type Running = BTreeMap<ArtifactKey, Sighting>;

/// An artifact as it was seen running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// Its SHA-256, where it has one.
    pub(crate) fingerprint: Option<Fingerprint>,
    /// Its name in the environment.
    pub(crate) name: String,
    /// When its instances were created, in epoch seconds, ascending.
    pub(crate) created: Vec<i64>,
    /// What only environments of its kind tell.
    pub(crate) context: JsonFields,
}

impl Sighting {
    /// What was seen, when this was recorded.
    fn of(instance: &Instance) -> Self {
        let Instance { fingerprint, name, created, context, .. } = instance.clone();
        Self { fingerprint, name, created, context }
    }
}

/// The policies that an environment is judged by, by id.
#[derive(Debug, Default)]
struct Rulebook {
    rules: BTreeMap<Id, Rules>,
    /// Hold while these are the latest versions.
    guards: Vec<Guard>,
}

#[derive(Debug)]
struct Rules {
    name: PolicyName,
    version: u64,
    policy: Arc<policy::Policy>,
}

impl Rulebook {
    /// These policies at their latest versions; those that were `read` already are not read again.
    async fn read(ids: &[Id], read: Vec<Current<Policy>>, cx: &Context<'_>) -> Result<Self> {
        let mut known: BTreeMap<Id, Current<Policy>> =
            read.into_iter().map(|policy| (policy.record.id, policy)).collect();
        let unknown: Vec<Id> = ids.iter().filter(|id| !known.contains_key(id)).copied().collect();
        if !unknown.is_empty() {
            let read = cx.store().policies_by_id(cx.org()?, &unknown).await?;
            known.extend(read.into_iter().map(|policy| (policy.record.id, policy)));
        }
        let versions = |policy: &Current<Policy>| (policy.record.id, policy.record.version);
        let versions = Vec::from_iter(ids.iter().filter_map(|id| known.get(id)).map(versions));
        let parsed = cx.parsed_policies(&versions).await?;
        let mut rulebook = Self::default();
        for id in &distinct(ids.iter().copied()) {
            // What cannot be found demands nothing, so that it must not be passed over.
            let lost = || StoreError::corrupt(format_args!("the latest version of policy {id} is missing"));
            let Current { revision, record: Policy { name, version, .. } } =
                known.remove(id).ok_or_else(lost)?;
            let policy = parsed.get(&(*id, version)).cloned().ok_or_else(lost)?;
            rulebook.guards.push(Guard::Revision(RecordKind::Policy, *id, revision));
            rulebook.rules.insert(*id, Rules { name, version, policy });
        }
        Ok(rulebook)
    }

    /// By id.
    fn iter(&self) -> impl Iterator<Item = (Id, &Rules)> + Clone {
        self.rules.iter().map(|(id, rules)| (*id, rules))
    }

    fn applied(&self) -> Vec<AppliedPolicy> {
        self.iter().map(|(policy, rules)| AppliedPolicy { policy, version: rules.version }).collect()
    }
}

/// The snapshot that `running` calls for, as a draft of the fact that takes it; a draft without facts when it tells
/// nothing new. Its guards name all that the decision rests on, evidence aside: what comes in later tells at the next
/// report.
pub(crate) async fn assess(
    known: &KnownEnvironment,
    running: &Arc<Running>,
    cx: &Context<'_>,
) -> Result<Draft> {
    let rulebook = Rulebook::read(&known.record.policies, Vec::new(), cx);
    let (rulebook, open, findings) =
        try_join3(rulebook, open_instances(known, cx), Findings::read(&known.record, running, cx)).await?;
    let assessment = Assessment { running: Arc::clone(running), rulebook, open, findings };
    let Outcome { rulebook, difference, compliant } = assessment.outcome(known, cx).await?;
    let first = known.status.snapshots == 0;
    let mut guards = rulebook.guards.clone();
    guards.extend([known.unchanged(), known.latest()]);
    let facts = if first || difference.tells_something || known.status.compliant != Some(compliant) {
        vec![taken(known, compliant, difference, &rulebook, true, cx)]
    } else {
        Vec::new()
    };
    Ok(Draft { facts, guards, ..Draft::default() })
}

/// The snapshot that a change of the policies calls for: what ran in the latest one, judged anew. A draft without facts
/// when there is none yet, and when it was judged by these versions of these policies. `read` are the policies that the
/// caller has read just now.
pub(crate) async fn reassess(
    known: &KnownEnvironment,
    read: Vec<Current<Policy>>,
    cx: &Context<'_>,
) -> Result<Draft> {
    let latest = known.status.snapshots;
    if latest == 0 {
        return Ok(Draft { guards: vec![known.latest()], ..Draft::default() });
    }
    let rulebook = Rulebook::read(&known.record.policies, read, cx).await?;
    let snapshot = cx.store().snapshot(cx.org()?, known.record.id, latest).await?;
    let mut guards = rulebook.guards.clone();
    guards.push(known.latest());
    if snapshot.is_some_and(|snapshot| snapshot.record.policies == rulebook.applied()) {
        return Ok(Draft { guards, ..Draft::default() });
    }
    let open = open_instances(known, cx).await?;
    let running: Running = open.iter().map(|(key, open)| (key.clone(), Sighting::of(open))).collect();
    let findings = Findings::read(&known.record, &running, cx).await?;
    let assessment = Assessment { running: Arc::new(running), rulebook, open, findings };
    let Outcome { rulebook, difference, compliant } = assessment.outcome(known, cx).await?;
    let facts = vec![taken(known, compliant, difference, &rulebook, false, cx)];
    Ok(Draft { facts, guards, ..Draft::default() })
}

/// What a decision rests on, read already.
struct Assessment {
    running: Arc<Running>,
    rulebook: Rulebook,
    open: BTreeMap<ArtifactKey, Instance>,
    findings: Findings,
}

/// What came of it.
struct Outcome {
    rulebook: Rulebook,
    difference: Difference,
    compliant: bool,
}

impl Assessment {
    /// How many judgements it takes.
    fn judgements(&self) -> usize {
        self.running.len().max(self.open.len()).saturating_mul(self.rulebook.rules.len().max(1))
    }

    /// Judges everything that runs, and compares it with the latest snapshot.
    async fn outcome(self, known: &KnownEnvironment, cx: &Context<'_>) -> Result<Outcome> {
        let index = known.status.snapshots + 1;
        let decide = move |Self { running, rulebook, open, findings }: Self| {
            let judged = judge(&running, &rulebook, findings);
            let verdicts = judged.iter().map(|artifact| artifact.compliant);
            // What runs nowhere is judged, too.
            let compliant = policy::snapshot_compliant(verdicts, !rulebook.rules.is_empty());
            Outcome { difference: difference(&open, &judged, index), rulebook, compliant }
        };
        let heavy = self.judgements() > MANY_JUDGEMENTS;
        cx.compute().run_if(heavy, move || decide(self)).await
    }
}

/// What ran in the latest snapshot.
async fn open_instances(
    known: &KnownEnvironment,
    cx: &Context<'_>,
) -> Result<BTreeMap<ArtifactKey, Instance>> {
    let latest = known.status.snapshots;
    if latest == 0 {
        return Ok(BTreeMap::new());
    }
    let placed = cx.store().instances(cx.org()?, known.record.id, latest).await?;
    let running = placed.into_iter().filter(|placed| !placed.exited).map(|placed| placed.instance);
    Ok(running.map(|instance| (instance.key(), instance)).collect())
}

fn taken(
    known: &KnownEnvironment,
    compliant: bool,
    difference: Difference,
    rulebook: &Rulebook,
    reported: bool,
    cx: &Context<'_>,
) -> Fact {
    let snapshot = Snapshot {
        environment: known.record.id,
        index: known.status.snapshots + 1,
        // Another server's clock may be ahead; a snapshot is never older than the one before.
        at: known.status.changed_at.map_or(cx.now(), |last| last.max(cx.now())),
        compliant,
        reported,
        policies: rulebook.applied(),
        changes: difference.changes,
        exits: difference.exits,
    };
    Fact::SnapshotTaken { snapshot }
}

/// A running artifact with what was found out about it.
#[derive(Debug, Clone)]
struct Judged {
    key: ArtifactKey,
    sighting: Sighting,
    compliant: Option<bool>,
    provenance: Vec<Provenance>,
    decisions: Vec<PolicyDecision>,
}

/// What running artifacts are judged by, policies aside; by their digests, so that one without has no provenance and is on
/// no allowlist.
struct Findings {
    allowed: BTreeSet<Fingerprint>,
    origins: BTreeMap<Fingerprint, Vec<Origin>>,
}

impl Findings {
    async fn read(environment: &Environment, running: &Running, cx: &Context<'_>) -> Result<Self> {
        let allowances = cx.store().allowances(cx.org()?, Some(environment.id)).map_err(Error::from);
        let (allowances, origins) = try_join(allowances, origins(running, cx)).await?;
        Ok(Self { allowed: allowances.into_iter().map(|entry| entry.fingerprint).collect(), origins })
    }
}

fn judge(running: &Running, rulebook: &Rulebook, findings: Findings) -> Vec<Judged> {
    let Findings { allowed, mut origins } = findings;
    let rules = rulebook.iter();
    let judge = |(key, sighting): (&ArtifactKey, &Sighting)| {
        let fingerprint = sighting.fingerprint.as_ref();
        let origins = fingerprint.and_then(|fingerprint| origins.remove(fingerprint)).unwrap_or_default();
        let is_allowed = fingerprint.is_some_and(|fingerprint| allowed.contains(fingerprint));
        let contexts: Vec<FlowContext> = origins.iter().map(|origin| origin.context.clone()).collect();
        let evaluations: Vec<Evaluation> =
            rules.clone().map(|(_, rules)| policy::evaluate(&rules.policy, &contexts)).collect();
        let compliant = policy::artifact_verdict(is_allowed, &evaluations);
        let decisions = rules.clone().zip(evaluations).map(|((_, rules), evaluation)| PolicyDecision {
            policy_name: rules.name.clone(),
            policy_version: rules.version,
            status: evaluation.state(),
            rule_evaluations: evaluation.rules,
        });
        Judged {
            key: key.clone(),
            sighting: sighting.clone(),
            compliant,
            provenance: origins.iter().map(Origin::provenance).collect(),
            decisions: decisions.collect(),
        }
    };
    running.iter().map(judge).collect()
}

/// A report of a running artifact: the newest in its flow, and how it stands there.
#[derive(Debug)]
struct Origin {
    report: Id,
    context: FlowContext,
}

impl Origin {
    fn provenance(&self) -> Provenance {
        Provenance { artifact: self.report, state: self.context.artifact_state }
    }
}

async fn origins(running: &Running, cx: &Context<'_>) -> Result<BTreeMap<Fingerprint, Vec<Origin>>> {
    let fingerprints: Vec<Fingerprint> =
        running.values().filter_map(|sighting| sighting.fingerprint.clone()).collect();
    if fingerprints.is_empty() {
        return Ok(BTreeMap::new());
    }
    let org = cx.org()?;
    let rows = cx.store().provenance(org, &fingerprints).await?;
    let flows: BTreeSet<Id> = rows.iter().map(|row| row.flow).collect();
    let flows = Vec::from_iter(flows);
    let flows = cx.store().flows_by_id(org, &flows).map_err(Error::from);
    let (flows, standings) = try_join(flows, Standings::read(&rows, cx)).await?;
    let flows: BTreeMap<Id, _> = flows.into_iter().map(|flow| (flow.id, flow)).collect();
    let mut origins: BTreeMap<Fingerprint, Vec<Origin>> = BTreeMap::new();
    for row in rows {
        // One report that is passed over may be the one that does not comply.
        let lost = || StoreError::corrupt(format_args!("the flow {} of a running artifact", row.flow));
        let flow = flows.get(&row.flow).ok_or_else(lost)?;
        let Standing { state, reason, attestations } = standings.standing(&row);
        let context = FlowContext {
            flow_name: flow.name.to_string(),
            trail_name: standings.trail_name(&row),
            artifact_state: state,
            reason,
            tags: flow.tags.clone(),
            attestations,
        };
        origins.entry(row.fingerprint).or_default().push(Origin { report: row.id, context });
    }
    Ok(origins)
}

/// How an artifact report stands.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Standing {
    state: State,
    /// Why, where no attestation accounts for it.
    reason: Option<String>,
    /// What counts for it: its own attestations and those of its trail.
    attestations: Vec<FlowAttestation>,
}

impl Standing {
    fn new(status: &ArtifactStatus, on_trail: &[AttestationStatus]) -> Self {
        let state = match status.state {
            ArtifactState::Reported(state) => state,
            ArtifactState::Missing => State::Incomplete,
        };
        let counts = |line: &AttestationStatus| {
            let (name, kind) = (line.name.clone(), line.kind.clone());
            line.is_compliant.map(|is_compliant| FlowAttestation { name, kind, is_compliant })
        };
        let attestations = status.attestations.iter().chain(on_trail).filter_map(counts).collect();
        Self { state, reason: status.state_info.clone(), attestations }
    }
}

/// How artifact reports stand in their trails, or alone where they have none.
struct Standings {
    /// The names of the trails.
    trails: BTreeMap<Id, String>,
    /// By report: those of the trails, and those without one.
    reports: BTreeMap<Id, Standing>,
}

impl Standings {
    async fn read(rows: &[ArtifactRow], cx: &Context<'_>) -> Result<Self> {
        let mut by_trail: BTreeMap<Id, Vec<&ArtifactRow>> = BTreeMap::new();
        for row in rows {
            if let Some(trail) = row.trail {
                by_trail.entry(trail).or_default().push(row);
            }
        }
        let ids = Vec::from_iter(by_trail.keys().copied());
        let standings = |trail: Assessed| {
            let rows = by_trail.get(&trail.trail.id).map(Vec::as_slice).unwrap_or_default();
            (trail.trail.id, trail.trail.name.to_string(), in_trail(rows, &trail))
        };
        let judged = trails::judged(&ids, cx, standings);
        let (judged, mut reports) = try_join(judged, without_trail(rows, cx)).await?;
        let mut trails = BTreeMap::new();
        for (id, name, standings) in judged {
            trails.insert(id, name);
            reports.extend(standings);
        }
        Ok(Self { trails, reports })
    }

    fn trail_name(&self, row: &ArtifactRow) -> String {
        row.trail.and_then(|id| self.trails.get(&id)).cloned().unwrap_or_default()
    }

    fn standing(&self, row: &ArtifactRow) -> Standing {
        let unknown = Standing { state: State::Incomplete, reason: None, attestations: Vec::new() };
        self.reports.get(&row.id).cloned().unwrap_or(unknown)
    }
}

/// How these reports to the trail stand. Judging it has found that already of the newest of each name.
fn in_trail(rows: &[&ArtifactRow], trail: &Assessed) -> Vec<(Id, Standing)> {
    let reported = trail.status.artifacts.iter();
    let newest: BTreeMap<&str, &ArtifactStatus> =
        reported.filter_map(|artifact| Some((artifact.artifact_id.as_deref()?, artifact))).collect();
    let standing = |row: &&ArtifactRow| {
        let on_trail = &trail.status.attestations;
        let standing = match newest.get(row.id.to_string().as_str()) {
            Some(status) => Standing::new(status, on_trail),
            None => {
                let report = ReportedArtifact::from(*row);
                let Assessed { parsed, artifacts, attestations, .. } = trail;
                let replaced =
                    compliance::evaluate_artifact(&parsed.template, &report, artifacts, attestations);
                Standing::new(&replaced, on_trail)
            }
        };
        (row.id, standing)
    };
    rows.iter().map(standing).collect()
}

/// A report to a flow as a whole is judged by the template it came with, and has no attestations.
async fn without_trail(rows: &[ArtifactRow], cx: &Context<'_>) -> Result<BTreeMap<Id, Standing>> {
    let alone: Vec<Id> = rows.iter().filter(|row| row.trail.is_none()).map(|row| row.id).collect();
    if alone.is_empty() {
        return Ok(BTreeMap::new());
    }
    let reports = cx.store().artifacts_by_id(cx.org()?, &alone).await?;
    let by_id: BTreeMap<Id, &ArtifactRow> = rows.iter().map(|row| (row.id, row)).collect();
    let mut standings = BTreeMap::new();
    for part in in_parts(reports, |report| report.template) {
        let templates = cx.templates(part.iter().map(|report| report.template)).await?;
        for Artifact { id, template, .. } in part {
            let Some(row) = by_id.get(&id) else { continue };
            let parsed = templates.of(template);
            let status =
                compliance::evaluate_artifact(&parsed.template, &ReportedArtifact::from(*row), &[], &[]);
            standings.insert(id, Standing::new(&status, &[]));
        }
    }
    Ok(standings)
}

/// What a snapshot would record.
#[derive(Debug, PartialEq)]
struct Difference {
    /// Instances that began to run, or whose data differ.
    changes: Vec<Instance>,
    /// What no longer runs.
    exits: Vec<ArtifactKey>,
    /// Whether it calls for a snapshot: something started, exited, or differs in more than counts, times,
    /// names and context.
    tells_something: bool,
}

fn difference(open: &BTreeMap<ArtifactKey, Instance>, judged: &[Judged], index: u64) -> Difference {
    let running: BTreeSet<&ArtifactKey> = judged.iter().map(|artifact| &artifact.key).collect();
    let exits: Vec<ArtifactKey> = open.keys().filter(|key| !running.contains(key)).cloned().collect();
    let mut tells_something = !exits.is_empty();
    let mut changes = Vec::new();
    for artifact in judged {
        let before = open.get(&artifact.key);
        let change = before.map_or(Change::started(artifact), |before| Change::between(before, artifact));
        tells_something |= change != Change::Unchanged;
        if change != Change::Unchanged || before.is_some_and(|before| seen_otherwise(before, artifact)) {
            changes.push(artifact.instance(change, before, index));
        }
    }
    Difference { changes, exits, tells_something }
}

fn seen_otherwise(before: &Instance, now: &Judged) -> bool {
    let now = &now.sighting;
    before.created != now.created || before.name != now.name || before.context != now.context
}

impl Judged {
    fn instance(&self, change: Change, before: Option<&Instance>, from: u64) -> Instance {
        let count = |created: &Vec<i64>| created.len() as u64;
        let Sighting { fingerprint, name, created, context } = self.sighting.clone();
        Instance {
            annotation: Annotation {
                kind: change.as_str().to_owned(),
                was: before.map_or(0, |before| count(&before.created)),
                now: count(&created),
            },
            fingerprint,
            name,
            created,
            context,
            from,
            compliant: self.compliant,
            provenance: self.provenance.clone(),
            policy_decisions: self.decisions.clone(),
        }
    }

    /// Whether the recorded decisions are by the same versions of the same policies. What these say follows from the
    /// provenance, so where that is the same too the decisions are.
    fn is_judged_as(&self, before: &Instance) -> bool {
        fn judges(decisions: &[PolicyDecision]) -> impl Iterator<Item = (&PolicyName, u64)> {
            decisions.iter().map(|decision| (&decision.policy_name, decision.policy_version))
        }
        judges(&self.decisions).eq(judges(&before.policy_decisions))
    }
}

/// What happened to a running artifact since the latest snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    StartedCompliant,
    StartedNonCompliant,
    StartedUnknown,
    BecameCompliant,
    BecameNonCompliant,
    UpdatedProvenance,
    Changed,
    Unchanged,
}

impl Change {
    const fn started(now: &Judged) -> Self {
        match now.compliant {
            Some(true) => Self::StartedCompliant,
            Some(false) => Self::StartedNonCompliant,
            None => Self::StartedUnknown,
        }
    }

    fn between(before: &Instance, now: &Judged) -> Self {
        let reports = |provenance: &[Provenance]| -> Vec<Id> {
            provenance.iter().map(|provenance| provenance.artifact).collect()
        };
        match now.compliant {
            Some(true) if before.compliant != Some(true) => Self::BecameCompliant,
            Some(false) if before.compliant != Some(false) => Self::BecameNonCompliant,
            _ if reports(&before.provenance) != reports(&now.provenance) => Self::UpdatedProvenance,
            _ if before.compliant != now.compliant
                || before.provenance != now.provenance
                || !now.is_judged_as(before) =>
            {
                Self::Changed
            }
            _ => Self::Unchanged,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::StartedCompliant => "started-compliant",
            Self::StartedNonCompliant => "started-non-compliant",
            Self::StartedUnknown => "started-unknown",
            Self::BecameCompliant => "became-compliant",
            Self::BecameNonCompliant => "became-non-compliant",
            Self::UpdatedProvenance => "updated-provenance",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
        }
    }
}

#[cfg(test)]
mod tests;
