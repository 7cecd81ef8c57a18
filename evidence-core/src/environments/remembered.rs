//! What runs in environments as it was evaluated last, so that a report pays for what happened since and not for all that
//! runs: machines report every minute, and mostly that nothing changed.
//!
//! An evaluation rests on what a ledger says, up to some entry. The entries after that one tell which artifacts have to be
//! evaluated again ([`Affected`]); the others came to what they would come to now. That the ledger is the same one, a few
//! entries longer, is checked by its hashes: a backup may have been put back under a service.
//!
//! It is read from tables that follow from the ledger. Of damage to those no entry tells, nor of its repair, so that an
//! evaluation holds for an hour at most ([`MAX_AGE`]).

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

/// The last evaluations of environments, each by its organization and its id.
pub(crate) type EvaluationCache = Cache<(Id, Id), LastEvaluation>;

/// How much they come to, in bytes.
const BUDGET: usize = 64 << 20;

/// For so many seconds an evaluation holds.
const MAX_AGE: f64 = 3600.0;

/// After more entries everything is evaluated again.
const MAX_ENTRIES: usize = 512;

/// So many leaves take about as long to read as an artifact to evaluate.
const LEAVES_PER_ARTIFACT: usize = 8;

/// Where payloads come to more bytes than this, everything is evaluated again: that takes about as long as to read them.
const MAX_BYTES: u64 = 1 << 20;

/// Kinds of facts that affect nothing and come often or may be large: their payloads are not read.
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

/// What the latest snapshot of an environment shows running.
pub(crate) type OpenInstances = BTreeMap<ArtifactKey, RunningArtifact>;

/// What artifacts came to.
pub(crate) type Evaluated = BTreeMap<ArtifactKey, Arc<ArtifactEvaluation>>;

/// An environment as it was evaluated.
#[derive(Debug)]
pub(crate) struct LastEvaluation {
    /// When the oldest part of it was evaluated.
    pub(crate) since: Timestamp,
    /// The ledger that it rests on.
    pub(crate) ledger: Frontier,
    /// The policies.
    pub(crate) policies: Vec<VersionKey>,
    /// How many snapshots there were, and what the last one shows.
    pub(crate) open: (u64, Arc<OpenInstances>),
    /// The artifact that ran.
    pub(crate) artifacts: Evaluated,
    /// How many attestations were kept of each trail ([`Limits::evaluated_attestations`](crate::limits::Limits)).
    pub(crate) kept: BTreeMap<Id, usize>,
}

/// What an artifact came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArtifactEvaluation {
    /// What all policies say, or the allowlist.
    pub(crate) compliant: Option<bool>,
    /// The allowlist entry that it was evaluated by, if one was in force.
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
    /// Whether all that it was evaluated by could be read: what could not may be put right, of which no entry tells.
    pub(crate) is_final: bool,
}

/// An allowlist entry in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryInForce {
    /// Its ledger index.
    pub(crate) index: u64,
    /// When it expires, if it does. No entry of the ledger records that.
    pub(crate) expires_at: Option<Timestamp>,
}

/// About how many bytes of memory an artifact or an instance takes besides its texts and lists: its key and places in maps,
/// too.
const LEAST: usize = 512;

impl ArtifactEvaluation {
    /// Whether it may run where provenance is required, and policies say this.
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
    let texts = |outcome: &PolicyOutcome| outcome.rules.len() + unknown(outcome);
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

/// Takes out what came from these trails, and from trails that this came from, too, and so on; answers what it was. How much
/// of a trail is evaluated has a limit for all that runs of it: so a trail is evaluated for all or none.
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

/// What the entries of a ledger since an evaluation make it necessary to evaluate again.
#[derive(Debug, Default, PartialEq, Eq)]
struct Affected {
    everything: bool,
    fingerprints: BTreeSet<Fingerprint>,
    trails: BTreeSet<Id>,
    flows: BTreeSet<Id>,
}

impl Affected {
    /// Adds what the fact affects in an environment. Its own record, its snapshots and the versions of its policies are
    /// read for each evaluation.
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
            // Rows have other times from now on.
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

    /// What these entries affect; one that cannot be read, or is of a kind that a newer program knows, affects everything.
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

/// An earlier evaluation, as far as it still holds.
#[derive(Debug)]
pub(crate) struct Remembered {
    last: Arc<LastEvaluation>,
    affected: Affected,
    /// Whether the policies are the same.
    same_policies: bool,
    /// When this is.
    now: Timestamp,
}

impl Remembered {
    /// What the latest snapshot shows, if that is the one of this number.
    pub(crate) fn open(&self, snapshots: u64) -> Option<Arc<OpenInstances>> {
        let (number, open) = &self.last.open;
        (*number == snapshots).then(|| Arc::clone(open))
    }

    /// When the oldest part was evaluated of what these come to and of what the snapshot of this number shows; nothing where it
    /// is of neither.
    pub(crate) fn since(&self, reused: &Evaluated, snapshots: u64) -> Option<Timestamp> {
        let is_used = !reused.is_empty() || self.open(snapshots).is_some();
        is_used.then_some(self.last.since)
    }

    /// What would come to the same now of what runs.
    pub(crate) fn reusable(&self, running: &ReportedState) -> Evaluated {
        let artifact = |(key, observed): (&ArtifactKey, &ObservedArtifact)| {
            Some((key.clone(), Arc::clone(self.artifact(key, observed.names())?)))
        };
        let mut reusable = running.iter().filter_map(artifact).collect();
        // Of what no longer runs, too: it took its part of what is evaluated of a trail.
        let others = self.last.artifacts.iter().filter(|(key, _)| !Evaluated::contains_key(&reusable, *key));
        let trails = others.flat_map(|(_, artifact)| artifact.trails.iter().copied()).collect();
        take_of_trails(&mut reusable, &trails);
        reusable
    }

    /// What an artifact of these names came to, if it would come to the same now.
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

    /// How many attestations were kept of the trails of these artifacts.
    pub(crate) fn kept<'a>(
        &self,
        reused: impl Iterator<Item = &'a Arc<ArtifactEvaluation>>,
    ) -> BTreeMap<Id, usize> {
        let trails = reused.flat_map(|artifact| &artifact.trails);
        trails.filter_map(|trail| Some((*trail, *self.last.kept.get(trail)?))).collect()
    }
}

impl Context<'_> {
    /// How an environment was evaluated last, as far as that holds in this ledger, by these policies and at this time. Where the
    /// ledger cannot be read that is not known, and a report does not fail for it.
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

    /// What the entries affect by which a ledger has grown since an evaluation, if it has, and not by too many.
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

    /// Keeps how an environment was evaluated, unless nothing runs there.
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
        // The pool may be busy; the report does not fail for it.
        if let Ok((bytes, evaluation)) = measured {
            self.evaluation_cache().put(key, bytes, Arc::new(evaluation));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
