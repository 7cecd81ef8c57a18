//! The assessment of an environment: what runs there, where it comes from, whether it may, and whether that differs
//! enough from the latest snapshot to take a new one. It asks the store a fixed number of questions however many
//! artifacts run; the decision itself ([`difference`]) is a pure function over what they answered.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryFutureExt;
use futures_util::future::{try_join, try_join3};

use crate::artifacts::{Artifact, ArtifactRow};
use crate::environments::Environment;
use crate::error::{Error, Result};
use crate::fact::Fact;
use crate::id::Id;
use crate::name::{Fingerprint, PolicyName};
use crate::policies::{Policy, PolicyVersion};
use crate::rules::compliance::{self, ArtifactState, ReportedArtifact, State};
use crate::rules::policy::{self, Evaluation, FlowContext};
use crate::service::Context;
use crate::snapshots::{Annotation, AppliedPolicy, Instance, PolicyDecision, Provenance, Snapshot};
use crate::trails::{self, Assessed};

/// What runs, by fingerprint.
pub(crate) type Running = BTreeMap<Fingerprint, Sighting>;

/// An artifact as it was seen running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// Its name in the environment.
    pub(crate) name: String,
    /// When its instances were created, in epoch seconds, ascending.
    pub(crate) created: Vec<i64>,
}

/// The policies that environments are judged by, each read once, by id.
#[derive(Debug, Default)]
pub(crate) struct Rulebook(BTreeMap<Id, Rules>);

#[derive(Debug)]
struct Rules {
    name: PolicyName,
    version: u64,
    policy: policy::Policy,
}

impl Rulebook {
    /// These policies at their latest versions.
    pub(crate) async fn read(ids: &BTreeSet<Id>, cx: &Context<'_>) -> Result<Self> {
        let mut rulebook = Self::default();
        if ids.is_empty() {
            return Ok(rulebook);
        }
        let org = cx.org()?;
        let mut wanted = cx.store().policies(org).await?;
        wanted.retain(|policy| ids.contains(&policy.id));
        let ids: Vec<Id> = wanted.iter().map(|policy| policy.id).collect();
        let versions = cx.store().policy_versions(org, &ids).await?;
        for policy in &wanted {
            let latest =
                |version: &&PolicyVersion| version.policy == policy.id && version.version == policy.version;
            if let Some(version) = versions.iter().find(latest) {
                rulebook.put(policy, version);
            }
        }
        Ok(rulebook)
    }

    /// Judges by this version of the policy from now on. Texts are checked before they are recorded, so one that
    /// cannot be read any more demands nothing rather than failing every report.
    pub(crate) fn put(&mut self, policy: &Policy, version: &PolicyVersion) {
        let parsed = policy::Policy::parse(&version.policy_yaml).unwrap_or_default();
        let rules = Rules { name: policy.name.clone(), version: version.version, policy: parsed };
        self.0.insert(policy.id, rules);
    }

    /// The policies attached to this environment, by id.
    fn of<'a>(&'a self, environment: &'a Environment) -> impl Iterator<Item = (Id, &'a Rules)> + Clone {
        let attached = |(id, _): &(&Id, &Rules)| environment.policies.contains(id);
        self.0.iter().filter(attached).map(|(id, rules)| (*id, rules))
    }
}

/// The snapshot that `running` calls for, as the fact that takes it; nothing when it tells nothing new. The fact's
/// record is `environment` with that snapshot.
pub(crate) async fn assess(
    environment: Environment,
    running: &Running,
    cx: &Context<'_>,
) -> Result<Option<Fact>> {
    let rulebook = rulebook_of(&environment, cx);
    let (rulebook, open, findings) =
        try_join3(rulebook, open_instances(&environment, cx), Findings::read(&environment, running, cx))
            .await?;
    let judged = judge(&environment, running, &rulebook, findings);
    let first = environment.snapshots == 0;
    let difference = difference(&open, &judged, environment.snapshots + 1);
    if !first && !difference.tells_something {
        return Ok(None);
    }
    Ok(Some(taken(environment, &judged, difference, &rulebook, cx)))
}

/// The snapshot that a change of the policies calls for: what ran in the latest one, judged anew. Nothing when there
/// is none yet.
pub(crate) async fn reassess(environment: Environment, cx: &Context<'_>) -> Result<Option<Fact>> {
    let rulebook = rulebook_of(&environment, cx).await?;
    reassess_by(&rulebook, environment, cx).await
}

/// [`reassess`], by policies that are at hand.
pub(crate) async fn reassess_by(
    rulebook: &Rulebook,
    environment: Environment,
    cx: &Context<'_>,
) -> Result<Option<Fact>> {
    if environment.snapshots == 0 {
        return Ok(None);
    }
    let open = open_instances(&environment, cx).await?;
    let sighting =
        |instance: &Instance| Sighting { name: instance.name.clone(), created: instance.created.clone() };
    let running = open.iter().map(|(fingerprint, open)| (fingerprint.clone(), sighting(open))).collect();
    let findings = Findings::read(&environment, &running, cx).await?;
    let judged = judge(&environment, &running, rulebook, findings);
    let difference = difference(&open, &judged, environment.snapshots + 1);
    Ok(Some(taken(environment, &judged, difference, rulebook, cx)))
}

async fn rulebook_of(environment: &Environment, cx: &Context<'_>) -> Result<Rulebook> {
    Rulebook::read(&environment.policies.iter().copied().collect(), cx).await
}

/// What ran in the latest snapshot.
async fn open_instances(
    environment: &Environment,
    cx: &Context<'_>,
) -> Result<BTreeMap<Fingerprint, Instance>> {
    if environment.snapshots == 0 {
        return Ok(BTreeMap::new());
    }
    let placed = cx.store().instances(cx.org()?, environment.id, environment.snapshots).await?;
    let running = placed.into_iter().filter(|placed| !placed.exited).map(|placed| placed.instance);
    Ok(running.map(|instance| (instance.fingerprint.clone(), instance)).collect())
}

fn taken(
    mut environment: Environment,
    judged: &[Judged],
    difference: Difference,
    rulebook: &Rulebook,
    cx: &Context<'_>,
) -> Fact {
    let policies: Vec<AppliedPolicy> = rulebook
        .of(&environment)
        .map(|(policy, rules)| AppliedPolicy { policy, version: rules.version })
        .collect();
    let has_policies = !policies.is_empty();
    let compliant =
        policy::snapshot_compliant(judged.iter().map(|artifact| artifact.compliant), has_policies);
    environment.snapshots += 1;
    environment.last_changed_at = Some(cx.now());
    environment.state = policy::environment_state(Some(compliant), has_policies);
    let snapshot = Snapshot {
        environment: environment.id,
        index: environment.snapshots,
        at: cx.now(),
        compliant,
        policies,
        changes: difference.changes,
        exits: difference.exits,
    };
    Fact::SnapshotTaken { record: environment, snapshot }
}

/// A running artifact with what was found out about it.
#[derive(Debug, Clone)]
struct Judged {
    fingerprint: Fingerprint,
    sighting: Sighting,
    compliant: Option<bool>,
    provenance: Vec<Provenance>,
    decisions: Vec<PolicyDecision>,
}

/// What running artifacts are judged by, policies aside.
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

fn judge(
    environment: &Environment,
    running: &Running,
    rulebook: &Rulebook,
    findings: Findings,
) -> Vec<Judged> {
    let Findings { allowed, mut origins } = findings;
    let rules = rulebook.of(environment);
    let judge = |(fingerprint, sighting): (&Fingerprint, &Sighting)| {
        let origins = origins.remove(fingerprint).unwrap_or_default();
        let contexts: Vec<FlowContext> = origins.iter().map(|origin| origin.context.clone()).collect();
        let evaluations: Vec<Evaluation> =
            rules.clone().map(|(_, rules)| policy::evaluate(&rules.policy, &contexts)).collect();
        let compliant = policy::artifact_verdict(allowed.contains(fingerprint), &evaluations);
        let decisions = rules.clone().zip(evaluations).map(|((_, rules), evaluation)| PolicyDecision {
            policy_name: rules.name.clone(),
            policy_version: rules.version,
            status: evaluation.state(),
            rule_evaluations: evaluation.rules,
        });
        Judged {
            fingerprint: fingerprint.clone(),
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
    if running.is_empty() {
        return Ok(BTreeMap::new());
    }
    let org = cx.org()?;
    let fingerprints: Vec<Fingerprint> = running.keys().cloned().collect();
    let rows = cx.store().provenance(org, &fingerprints).await?;
    let flows: BTreeSet<Id> = rows.iter().map(|row| row.flow).collect();
    let flows = Vec::from_iter(flows);
    let flows = cx.store().flows_by_id(org, &flows).map_err(Error::from);
    let (flows, standings) = try_join(flows, Standings::read(&rows, cx)).await?;
    let flows: BTreeMap<Id, _> = flows.into_iter().map(|flow| (flow.id, flow.name)).collect();
    let mut origins: BTreeMap<Fingerprint, Vec<Origin>> = BTreeMap::new();
    for row in rows {
        let Some(flow_name) = flows.get(&row.flow) else { continue };
        let context = FlowContext {
            flow_name: flow_name.to_string(),
            trail_name: standings.trail_name(&row),
            artifact_state: standings.state(&row),
        };
        origins.entry(row.fingerprint).or_default().push(Origin { report: row.id, context });
    }
    Ok(origins)
}

/// How artifact reports stand in their trails, or alone where they have none.
struct Standings {
    trails: BTreeMap<Id, Assessed>,
    /// By report: those of the trails, and those without one.
    states: BTreeMap<Id, State>,
}

impl Standings {
    async fn read(rows: &[ArtifactRow], cx: &Context<'_>) -> Result<Self> {
        let ids: BTreeSet<Id> = rows.iter().filter_map(|row| row.trail).collect();
        let ids = Vec::from_iter(ids);
        let (trails, mut states) =
            try_join(trails::assessed(&ids, cx), states_without_trail(rows, cx)).await?;
        let newest: BTreeMap<&str, State> = trails.values().flat_map(states_in_trail).collect();
        for row in rows {
            let Some(trail) = row.trail.and_then(|id| trails.get(&id)) else { continue };
            let state = newest.get(row.id.to_string().as_str()).copied().unwrap_or_else(|| {
                let report = ReportedArtifact::from(row);
                verdict(compliance::evaluate_artifact(&trail.template, &report, &trail.attestations).state)
            });
            states.insert(row.id, state);
        }
        Ok(Self { trails, states })
    }

    fn trail_name(&self, row: &ArtifactRow) -> String {
        let trail = row.trail.and_then(|id| self.trails.get(&id));
        trail.map(|trail| trail.trail.name.to_string()).unwrap_or_default()
    }

    fn state(&self, row: &ArtifactRow) -> State {
        self.states.get(&row.id).copied().unwrap_or(State::Incomplete)
    }
}

/// The states that judging the trail has found already: those of the newest report of each name.
fn states_in_trail(trail: &Assessed) -> impl Iterator<Item = (&str, State)> {
    let state = |artifact: &compliance::ArtifactStatus| verdict(artifact.state);
    let reported = trail.status.artifacts.iter();
    reported.filter_map(move |artifact| Some((artifact.artifact_id.as_deref()?, state(artifact))))
}

fn verdict(state: ArtifactState) -> State {
    match state {
        ArtifactState::Reported(state) => state,
        ArtifactState::Missing => State::Incomplete,
    }
}

/// A report to a flow as a whole is judged by the template it came with, and has no attestations.
async fn states_without_trail(rows: &[ArtifactRow], cx: &Context<'_>) -> Result<BTreeMap<Id, State>> {
    let alone: Vec<Id> = rows.iter().filter(|row| row.trail.is_none()).map(|row| row.id).collect();
    if alone.is_empty() {
        return Ok(BTreeMap::new());
    }
    let reports = cx.store().artifacts_by_id(cx.org()?, &alone).await?;
    let by_id: BTreeMap<Id, &ArtifactRow> = rows.iter().map(|row| (row.id, row)).collect();
    let state = |report: &Artifact| {
        let row = by_id.get(&report.id)?;
        let template = cx.templates().parsed(&report.template);
        let status = compliance::evaluate_artifact(&template, &ReportedArtifact::from(*row), &[]);
        Some((report.id, verdict(status.state)))
    };
    Ok(reports.iter().filter_map(state).collect())
}

/// What a snapshot would record.
#[derive(Debug, PartialEq)]
struct Difference {
    /// Instances that began to run, or whose data differ.
    changes: Vec<Instance>,
    /// What no longer runs.
    exits: Vec<Fingerprint>,
    /// Whether it calls for a snapshot: something started, exited, or differs in more than counts, times and names.
    tells_something: bool,
}

fn difference(open: &BTreeMap<Fingerprint, Instance>, judged: &[Judged], index: u64) -> Difference {
    let running: BTreeSet<&Fingerprint> = judged.iter().map(|artifact| &artifact.fingerprint).collect();
    let exits: Vec<Fingerprint> =
        open.keys().filter(|fingerprint| !running.contains(fingerprint)).cloned().collect();
    let mut tells_something = !exits.is_empty();
    let mut changes = Vec::new();
    for artifact in judged {
        let before = open.get(&artifact.fingerprint);
        let change = before.map_or(Change::started(artifact), |before| Change::between(before, artifact));
        tells_something |= change != Change::Unchanged;
        if change != Change::Unchanged || before.is_some_and(|before| seen_otherwise(before, artifact)) {
            changes.push(artifact.instance(change, before, index));
        }
    }
    Difference { changes, exits, tells_something }
}

fn seen_otherwise(before: &Instance, now: &Judged) -> bool {
    before.created != now.sighting.created || before.name != now.sighting.name
}

impl Judged {
    fn instance(&self, change: Change, before: Option<&Instance>, from: u64) -> Instance {
        let count = |created: &Vec<i64>| created.len() as u64;
        Instance {
            fingerprint: self.fingerprint.clone(),
            name: self.sighting.name.clone(),
            created: self.sighting.created.clone(),
            from,
            annotation: Annotation {
                kind: change.as_str().to_owned(),
                was: before.map_or(0, |before| count(&before.created)),
                now: count(&self.sighting.created),
            },
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
