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

use crate::compute::{LONG_JSON, MANY_EVALUATIONS};
use crate::context::Context;
use crate::environments::last_evaluation::{
    ArtifactEvaluation, Evaluated, LastEvaluation, OpenInstances, take_artifacts_of_trails,
};
use crate::environments::observed::{ObservedArtifact, ReportedState};
use crate::error::Result;
use crate::fact::Fact;
use crate::id::{Id, VersionKey};
use crate::ledger::Frontier;
use crate::name::Fingerprint;
use crate::snapshots::key::ArtifactKey;
use crate::store::entry::StoredEntry;
use crate::time::Timestamp;

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
            | Fact::LedgerNamed { .. }
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
            match Fact::read(&entry.payload) {
                Ok(fact) if entry.payload_matches() => affected.add(&fact, environment),
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
pub(crate) struct CachedEvaluation {
    last: Arc<LastEvaluation>,
    affected: Affected,
    /// Whether the policies are the same.
    same_policies: bool,
    /// The present time.
    now: Timestamp,
}

impl CachedEvaluation {
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
        take_artifacts_of_trails(&mut reusable, &trails);
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
    pub(crate) async fn cached_evaluation(
        &self,
        environment: Id,
        policies: &[VersionKey],
        ledger: &Frontier,
        now: Timestamp,
    ) -> Result<Option<Arc<CachedEvaluation>>> {
        let key = (self.org()?, environment);
        let Some(last) = self.caches().evaluations.get(&key) else { return Ok(None) };
        let age = self.now().since(last.since).get();
        if !(0.0..MAX_AGE).contains(&age) {
            return Ok(None);
        }
        let affected = self.affected_since(&last, ledger, environment).await.unwrap_or_else(|error| {
            tracing::warn!(%error, %environment, "everything is evaluated: entries of the ledger cannot be read");
            None
        });
        let same_policies = last.policies == policies;
        Ok(affected.map(|affected| Arc::new(CachedEvaluation { last, affected, same_policies, now })))
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
    pub(crate) async fn cache_evaluation(&self, environment: Id, evaluation: LastEvaluation) -> Result<()> {
        let key = (self.org()?, environment);
        let cache = &self.caches().evaluations;
        if evaluation.artifacts.is_empty() {
            cache.remove(&key);
            return Ok(());
        }
        let many = evaluation.artifacts.len() > MANY_EVALUATIONS;
        let measured = self.compute().run_if(many, move || evaluation.with_size()).await;
        // If the compute pool is full, skip caching; the report must not fail.
        if let Ok(evaluation) = measured {
            cache.insert(key, Arc::new(evaluation));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
