//! A cache of the last evaluation of each environment, so that a report costs only what changed since.
//! Machines report every minute, and mostly without changes.
//!
//! An evaluation uses the ledger up to some entry. The later entries show which artifacts must be evaluated
//! again ([`Affected`]); the others would have the same result. Hashes prove that the ledger is the same one
//! with a few more entries: a backup may have been restored under a running service.
//!
//! Evaluations read tables that are derived from the ledger. No entry records damage to these tables, or its
//! repair. An evaluation is therefore valid for at most an hour ([`MAX_AGE`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::sized::Cache;
use crate::compute::{LONG_JSON, MANY_EVALUATIONS};
use crate::environments::observed::{ObservedArtifact, ReportedState};
use crate::error::Result;
use crate::fact::Fact;
use crate::id::{Id, VersionKey};
use crate::json::JsonText;
use crate::ledger::{Frontier, Hash};
use crate::name::Fingerprint;
use crate::rules::policy;
use crate::service::Context;
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::record::{DeploymentSource, PolicyOutcome, Provenance, RunningArtifact};
use crate::store::entry::StoredEntry;
use crate::time::Timestamp;

/// The last evaluations of environments, by organization and environment.
pub(crate) type EvaluationCache = Cache<(Id, Id), LastEvaluation>;

/// The memory budget of the cache, in bytes.
const BUDGET: usize = 64 << 20;

/// The time that an evaluation stays valid, in seconds.
const MAX_AGE: f64 = 3600.0;

/// With more new entries than this, everything is evaluated again.
const MAX_ENTRIES: usize = 512;

/// The number of leaves that take about as long to read as one artifact takes to evaluate.
const LEAVES_PER_ARTIFACT: usize = 8;

/// With larger payloads than this, in bytes, everything is evaluated again: reading them would take about as
/// long.
const MAX_BYTES: u64 = 1 << 20;

/// Kinds of facts that affect no evaluation, and are frequent or may be large. Their payloads are not read.
const UNRELATED: [&str; 6] = [
    "snapshot_taken",
    "environment_reported",
    "policy_created",
    "policy_updated",
    "text_kept",
    "repo_reported",
];

/// Returns an empty cache.
pub(crate) const fn no_evaluations() -> EvaluationCache {
    EvaluationCache::new(BUDGET)
}

/// The artifacts that run in an environment's latest snapshot.
pub(crate) type OpenInstances = BTreeMap<ArtifactKey, RunningArtifact>;

/// The evaluations of artifacts.
pub(crate) type Evaluated = BTreeMap<ArtifactKey, Arc<ArtifactEvaluation>>;

/// The last evaluation of an environment.
#[derive(Debug)]
pub(crate) struct LastEvaluation {
    /// When its oldest part was evaluated.
    pub(crate) since: Timestamp,
    /// The ledger state that it uses.
    pub(crate) ledger: Frontier,
    /// The policies that it was evaluated against.
    pub(crate) policies: Vec<VersionKey>,
    /// The number of snapshots, and the artifacts that run in the last one.
    pub(crate) open: (u64, Arc<OpenInstances>),
    /// The artifacts that ran, with their evaluations.
    pub(crate) artifacts: Evaluated,
    /// The number of attestations held, by trail ([`Limits::evaluated_attestations`](crate::limits::Limits)).
    pub(crate) kept: BTreeMap<Id, usize>,
}

/// The evaluation of an artifact.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArtifactEvaluation {
    /// The verdict of all policies, or of the allowlist.
    pub(crate) compliant: Option<bool>,
    /// The allowlist entry that was in force, if any.
    pub(crate) allowed: Option<EntryInForce>,
    pub(crate) provenance: Vec<Provenance>,
    pub(crate) source: Option<DeploymentSource>,
    /// The trails of the reports that it comes from.
    pub(crate) trails: Vec<Id>,
    pub(crate) judged_by: Option<Hash>,
    pub(crate) violates: Vec<u16>,
    pub(crate) outcomes: Vec<PolicyOutcome>,
    pub(crate) inputs: Option<Hash>,
    pub(crate) not_evaluated: Option<String>,
    /// The names by which it was evaluated.
    pub(crate) names: Vec<String>,
    /// Whether everything that it was evaluated against could be read. A read error may be repaired without a
    /// ledger entry.
    pub(crate) is_final: bool,
}

/// An allowlist entry in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryInForce {
    /// Its ledger index.
    pub(crate) index: u64,
    /// When it expires, if it does. The expiry itself is not a ledger entry.
    pub(crate) expires_at: Option<Timestamp>,
}

/// The approximate memory of an artifact or an instance in bytes, besides its texts and lists. Includes its
/// key and map entries.
const LEAST: usize = 512;

impl ArtifactEvaluation {
    /// Returns its verdict if provenance is required, given the verdict of the policies.
    pub(crate) fn with_required_provenance(&self, by_policies: Option<bool>) -> Option<bool> {
        let in_flows = self.provenance.iter().map(|from| from.state);
        policy::required_provenance_verdict(self.allowed.is_some(), by_policies, in_flows)
    }

    fn bytes(&self) -> usize {
        let Self { provenance, trails, violates, outcomes, names, .. } = self;
        LEAST
            + names_bytes(names)
            + provenance_bytes(provenance)
            + size_of_val(&trails[..])
            + size_of_val(&violates[..])
            + outcomes_bytes(outcomes)
    }
}

fn names_bytes(names: &[String]) -> usize {
    size_of_val(names) + names.iter().map(String::len).sum::<usize>()
}

fn provenance_bytes(provenance: &[Provenance]) -> usize {
    let texts = |from: &Provenance| from.reference.len() + from.reason.as_ref().map_or(0, String::len);
    size_of_val(provenance) + provenance.iter().map(texts).sum::<usize>()
}

fn outcomes_bytes(outcomes: &[PolicyOutcome]) -> usize {
    let unknown = |outcome: &PolicyOutcome| {
        outcome.unknown.iter().map(|one| size_of_val(one) + one.why.len()).sum::<usize>()
    };
    let texts = |outcome: &PolicyOutcome| outcome.rules.text_len() + unknown(outcome);
    size_of_val(outcomes) + outcomes.iter().map(texts).sum::<usize>()
}

fn instance_bytes(instance: &RunningArtifact) -> usize {
    let RunningArtifact { name, other_names, created, context, .. } = instance;
    let RunningArtifact { annotation, provenance, violates, outcomes, .. } = instance;
    let field = |(name, value): (&str, &JsonText)| {
        size_of::<(String, JsonText)>() + name.len() + value.as_str().len()
    };
    let context = context.iter().map(field).sum::<usize>();
    LEAST
        + name.len()
        + names_bytes(other_names)
        + annotation.kind.len()
        + size_of_val(&created[..])
        + size_of_val(&violates[..])
        + context
        + provenance_bytes(provenance)
        + outcomes_bytes(outcomes)
}

impl LastEvaluation {
    fn bytes(&self) -> usize {
        let Self { since: _, ledger, policies, open, artifacts, kept } = self;
        let artifacts = artifacts.values().map(|artifact| artifact.bytes()).sum::<usize>();
        let instances = open.1.values().map(instance_bytes).sum::<usize>();
        let trails = kept.len() * size_of::<[usize; 5]>();
        LEAST + ledger.to_bytes().len() + size_of_val(&policies[..]) + artifacts + instances + trails
    }
}

/// Takes out the artifacts of these trails, and of all trails that share artifacts with them, transitively.
/// Returns their keys. The evaluation of a trail is limited for all its running artifacts together, so a
/// trail is evaluated for all of them or for none.
pub(crate) fn take_of_trails(artifacts: &mut Evaluated, trails: &BTreeSet<Id>) -> BTreeSet<ArtifactKey> {
    if !artifacts.values().any(|artifact| artifact.trails.iter().any(|trail| trails.contains(trail))) {
        return BTreeSet::new();
    }
    let mut of_trail: BTreeMap<Id, Vec<&ArtifactKey>> = BTreeMap::new();
    for (key, artifact) in &*artifacts {
        artifact.trails.iter().for_each(|trail| of_trail.entry(*trail).or_default().push(key));
    }
    let (mut taken, mut trails) = (BTreeSet::new(), Vec::from_iter(trails.iter().copied()));
    while let Some(trail) = trails.pop() {
        for key in of_trail.remove(&trail).unwrap_or_default() {
            if taken.insert(key.clone()) {
                trails.extend(artifacts.get(key).iter().flat_map(|artifact| &artifact.trails));
            }
        }
    }
    artifacts.retain(|key, _| !taken.contains(key));
    taken
}

/// The artifacts that ledger entries since an evaluation make it necessary to evaluate again.
#[derive(Debug, Default, PartialEq, Eq)]
struct Affected {
    everything: bool,
    fingerprints: BTreeSet<Fingerprint>,
    trails: BTreeSet<Id>,
    flows: BTreeSet<Id>,
}

impl Affected {
    /// Adds the effects of the fact on an environment. The environment's own record, its snapshots and the
    /// versions of its policies are read for each evaluation anyway.
    fn add(&mut self, fact: &Fact, environment: Id) {
        match fact {
            Fact::ArtifactReported { record } => {
                self.fingerprints.insert(record.fingerprint.clone());
                self.trails.extend(record.trail);
            }
            Fact::AttestationAdded { record } => drop(self.trails.insert(record.trail)),
            Fact::TrailBegun { record } | Fact::TrailUpdated { record, .. } => {
                self.trails.insert(record.id);
            }
            Fact::FlowCreated { record }
            | Fact::FlowUpdated { record }
            | Fact::FlowTagged { record }
            | Fact::FlowRenamed { record, .. }
            | Fact::FlowArchived { record, .. } => drop(self.flows.insert(record.id)),
            Fact::ArtifactAllowed { record } | Fact::AllowanceWithdrawn { record }
                if record.environment == environment =>
            {
                self.fingerprints.insert(record.fingerprint.clone());
            }
            // The rows have other times now.
            Fact::ClockCorrected { .. } => self.everything = true,
            Fact::TextKept { .. }
            | Fact::OrganizationCreated { .. }
            | Fact::UserCreated { .. }
            | Fact::UserSettingsChanged { .. }
            | Fact::MemberAdded { .. }
            | Fact::MemberRemoved { .. }
            | Fact::ServiceAccountCreated { .. }
            | Fact::ServiceAccountUpdated { .. }
            | Fact::ServiceAccountDeleted { .. }
            | Fact::ApiKeyCreated { .. }
            | Fact::ApiKeyRevoked { .. }
            | Fact::RepoReported { .. }
            | Fact::RepoTagged { .. }
            | Fact::EnvironmentCreated { .. }
            | Fact::EnvironmentUpdated { .. }
            | Fact::EnvironmentTagged { .. }
            | Fact::EnvironmentJoined { .. }
            | Fact::EnvironmentReported { .. }
            | Fact::EnvironmentRenamed { .. }
            | Fact::EnvironmentArchived { .. }
            | Fact::PoliciesAttached { .. }
            | Fact::PoliciesDetached { .. }
            | Fact::SnapshotTaken { .. }
            | Fact::PolicyCreated { .. }
            | Fact::PolicyUpdated { .. }
            | Fact::ArtifactAllowed { .. }
            | Fact::AllowanceWithdrawn { .. }
            | Fact::AttestationTypeCreated { .. }
            | Fact::AttestationTypeVersioned { .. }
            | Fact::AttestationTypeArchived { .. }
            | Fact::ControlCreated { .. }
            | Fact::ControlUpdated { .. }
            | Fact::ControlArchived { .. }
            | Fact::ControlUnarchived { .. }
            | Fact::ControlTagged { .. }
            | Fact::ActionCreated { .. }
            | Fact::ActionUpdated { .. }
            | Fact::ActionDeleted { .. } => {}
        }
    }

    /// Returns the effects of these entries. An unreadable entry, or one of an unknown kind, affects
    /// everything.
    fn of(entries: &[StoredEntry], environment: Id) -> Self {
        let mut affected = Self::default();
        for entry in entries {
            let is_sound = Hash::of(&entry.payload) == entry.payload_sha256;
            match Fact::read(&entry.payload) {
                Ok(fact) if is_sound => affected.add(&fact, environment),
                Ok(_) | Err(_) => affected.everything = true,
            }
        }
        affected
    }

    fn has(&self, key: &ArtifactKey, artifact: &ArtifactEvaluation) -> bool {
        self.everything
            || key.fingerprint().is_some_and(|fingerprint| self.fingerprints.contains(&fingerprint))
            || artifact.trails.iter().any(|trail| self.trails.contains(trail))
            || artifact.provenance.iter().filter_map(|from| from.flow).any(|flow| self.flows.contains(&flow))
    }
}

/// An earlier evaluation with its still valid parts.
#[derive(Debug)]
pub(crate) struct Remembered {
    last: Arc<LastEvaluation>,
    affected: Affected,
    /// Whether the policies are the same.
    same_policies: bool,
    /// The present time.
    now: Timestamp,
}

impl Remembered {
    /// Returns the artifacts that run in the latest snapshot, if it has this number.
    pub(crate) fn open(&self, snapshots: u64) -> Option<Arc<OpenInstances>> {
        let (number, open) = &self.last.open;
        (*number == snapshots).then(|| Arc::clone(open))
    }

    /// Returns when the oldest part was evaluated, if it is used for `reused` or for the snapshot of this
    /// number; otherwise `None`.
    pub(crate) fn since(&self, reused: &Evaluated, snapshots: u64) -> Option<Timestamp> {
        let is_used = !reused.is_empty() || self.open(snapshots).is_some();
        is_used.then_some(self.last.since)
    }

    /// Returns the evaluations of running artifacts that would have the same result now.
    pub(crate) fn reusable(&self, running: &ReportedState) -> Evaluated {
        let artifact = |(key, observed): (&ArtifactKey, &ObservedArtifact)| {
            Some((key.clone(), Arc::clone(self.artifact(key, observed.names())?)))
        };
        let mut reusable = running.iter().filter_map(artifact).collect();
        // An artifact that stopped running used part of its trail's limit. So evaluate the other artifacts of
        // that trail again.
        let others = self.last.artifacts.iter().filter(|(key, _)| !Evaluated::contains_key(&reusable, *key));
        let trails = others.flat_map(|(_, artifact)| artifact.trails.iter().copied()).collect();
        take_of_trails(&mut reusable, &trails);
        reusable
    }

    /// Returns the evaluation of an artifact with these names, if it would have the same result now.
    fn artifact<'n>(
        &self,
        key: &ArtifactKey,
        names: impl Iterator<Item = &'n str>,
    ) -> Option<&Arc<ArtifactEvaluation>> {
        let artifact = self.last.artifacts.get(key)?;
        if !artifact.names.iter().map(String::as_str).eq(names) {
            return None;
        }
        let is_expired =
            artifact.allowed.and_then(|entry| entry.expires_at).is_some_and(|until| until <= self.now);
        let holds =
            self.same_policies && artifact.is_final && !is_expired && !self.affected.has(key, artifact);
        holds.then_some(artifact)
    }

    /// Returns the number of attestations held, by trail of these artifacts.
    pub(crate) fn kept<'a>(
        &self,
        reused: impl Iterator<Item = &'a Arc<ArtifactEvaluation>>,
    ) -> BTreeMap<Id, usize> {
        let trails = reused.flat_map(|artifact| &artifact.trails);
        trails.filter_map(|trail| Some((*trail, *self.last.kept.get(trail)?))).collect()
    }
}

impl Context<'_> {
    /// Returns the cached evaluation of an environment with the parts that are valid for this ledger, these
    /// policies and this time. If the ledger cannot be read, returns `None` instead of an error, so that the
    /// report does not fail.
    pub(crate) async fn remembered_evaluation(
        &self,
        environment: Id,
        policies: &[VersionKey],
        ledger: &Frontier,
        now: Timestamp,
    ) -> Result<Option<Arc<Remembered>>> {
        let Some(last) = self.evaluation_cache().get(&(self.org()?, environment)) else { return Ok(None) };
        let age = self.now().since(last.since).get();
        if !(0.0..MAX_AGE).contains(&age) {
            return Ok(None);
        }
        let affected = self.affected_since(&last, ledger, environment).await.unwrap_or_else(|error| {
            tracing::warn!(%error, %environment, "everything is evaluated: entries of the ledger cannot be read");
            None
        });
        let same_policies = last.policies == policies;
        Ok(affected.map(|affected| Arc::new(Remembered { last, affected, same_policies, now })))
    }

    /// Returns the effects of the entries since an evaluation, or `None` if the ledger is not a continuation
    /// or has too many new entries.
    async fn affected_since(
        &self,
        last: &LastEvaluation,
        now: &Frontier,
        environment: Id,
    ) -> Result<Option<Affected>> {
        let (org, artifacts) = (self.org()?, last.artifacts.len());
        let mut ledger = last.ledger.clone();
        let most = artifacts.saturating_mul(LEAVES_PER_ARTIFACT).min(MAX_ENTRIES) as u64;
        let leaves = match now.size().checked_sub(ledger.size()) {
            Some(0) => Vec::new(),
            Some(grown) if grown <= most => self.store().ledger_leaves(org, ledger.size(), grown).await?,
            _ => return Ok(None),
        };
        leaves.iter().for_each(|leaf| drop(ledger.append(leaf.leaf_hash)));
        let related = leaves.iter().filter(|leaf| !UNRELATED.contains(&leaf.kind.as_str()));
        let (indexes, bytes): (Vec<_>, Vec<_>) = related.map(|leaf| (leaf.index, leaf.bytes)).unzip();
        let bytes = bytes.iter().sum::<u64>();
        if ledger != *now || indexes.len() > artifacts || bytes > MAX_BYTES {
            return Ok(None);
        }
        if indexes.is_empty() {
            return Ok(Some(Affected::default()));
        }
        let entries = self.store().ledger_entries_at(org, &indexes).await?;
        if entries.len() < indexes.len() {
            return Ok(None);
        }
        let affected = move || Affected::of(&entries, environment);
        self.compute().run_if(bytes > LONG_JSON as u64, affected).await.map(Some)
    }

    /// Caches an evaluation, unless no artifact runs.
    pub(crate) async fn remember_evaluation(
        &self,
        environment: Id,
        evaluation: LastEvaluation,
    ) -> Result<()> {
        let key = (self.org()?, environment);
        if evaluation.artifacts.is_empty() {
            self.evaluation_cache().remove(&key);
            return Ok(());
        }
        let many = evaluation.artifacts.len() > MANY_EVALUATIONS;
        let measured = self.compute().run_if(many, move || (evaluation.bytes(), evaluation)).await;
        // If the compute pool is full, skip caching; the report must not fail.
        if let Ok((bytes, evaluation)) = measured {
            self.evaluation_cache().put(key, bytes, Arc::new(evaluation));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
