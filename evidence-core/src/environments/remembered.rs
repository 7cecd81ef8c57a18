//! What runs in environments as it was evaluated last, so that a report pays for what happened since and not for all that
//! runs: machines report every minute, and mostly that nothing changed.
//!
//! An evaluation rests on the ledger alone, up to some entry. The entries after that one tell which artifacts have to be
//! evaluated again ([`Affected`]); the others came to what they would come to now. That the ledger is the same one, a few
//! entries longer, is checked by its hashes: a backup may have been put back under a service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::sized::Cache;
use crate::compute::LONG_JSON;
use crate::error::Result;
use crate::fact::Fact;
use crate::id::{Id, VersionKey};
use crate::ledger::{Frontier, Hash};
use crate::name::Fingerprint;
use crate::service::Context;
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::record::{DeploymentSource, PolicyOutcome, Provenance, RunningArtifact};
use crate::store::entry::StoredEntry;

/// The last evaluations of environments, each by its organization and its id.
pub(crate) type EvaluationCache = Cache<(Id, Id), LastEvaluation>;

/// How much they come to, in bytes.
const BUDGET: usize = 64 << 20;

/// After more entries everything is evaluated again, and after more than there are artifacts: an entry takes about as long to
/// read as an artifact to evaluate.
const MAX_ENTRIES: usize = 512;

/// A service remembers nothing at first.
pub(crate) const fn no_evaluations() -> EvaluationCache {
    EvaluationCache::new(BUDGET)
}

/// What the latest snapshot of an environment shows running.
pub(crate) type OpenInstances = BTreeMap<ArtifactKey, RunningArtifact>;

/// An environment as it was evaluated.
#[derive(Debug)]
pub(crate) struct LastEvaluation {
    /// The ledger that it rests on.
    pub(crate) ledger: Frontier,
    /// The policies.
    pub(crate) policies: Vec<VersionKey>,
    /// How many snapshots there were, and what the last one shows.
    pub(crate) open: (u64, Arc<OpenInstances>),
    /// What ran.
    pub(crate) artifacts: BTreeMap<ArtifactKey, Arc<ArtifactEvaluation>>,
}

/// What an artifact came to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArtifactEvaluation {
    pub(crate) compliant: Option<bool>,
    pub(crate) provenance: Vec<Provenance>,
    pub(crate) source: Option<DeploymentSource>,
    /// The trails of the reports that it comes from.
    pub(crate) trails: Vec<Id>,
    pub(crate) judged_by: Option<Hash>,
    pub(crate) violates: Vec<u16>,
    pub(crate) outcomes: Vec<PolicyOutcome>,
    pub(crate) inputs: Option<Hash>,
    /// The name by which it was evaluated.
    pub(crate) name: String,
    /// Whether each policy could be read.
    pub(crate) read_all: bool,
}

/// About how many bytes of memory one takes besides its texts and lists.
const LEAST: usize = 400;

impl ArtifactEvaluation {
    fn bytes(&self) -> usize {
        let Self { provenance, trails, violates, outcomes, name, .. } = self;
        LEAST
            + name.len()
            + provenance_bytes(provenance)
            + size_of_val(&trails[..])
            + size_of_val(&violates[..])
            + outcomes_bytes(outcomes)
    }

    /// Whether it would come to the same again, without regard to the ledger: what could not be read may be put right.
    fn is_final(&self) -> bool {
        self.read_all && self.provenance.iter().all(|from| from.reason.is_none())
    }
}

fn provenance_bytes(provenance: &[Provenance]) -> usize {
    let texts = |from: &Provenance| from.reference.len() + from.reason.as_ref().map_or(0, String::len);
    size_of_val(provenance) + provenance.iter().map(texts).sum::<usize>()
}

fn outcomes_bytes(outcomes: &[PolicyOutcome]) -> usize {
    size_of_val(outcomes) + outcomes.iter().map(|outcome| outcome.rules.len()).sum::<usize>()
}

fn instance_bytes(instance: &RunningArtifact) -> usize {
    let RunningArtifact { name, created, context, provenance, outcomes, .. } = instance;
    let context = context.iter().map(|(name, value)| name.len() + value.as_str().len()).sum::<usize>();
    LEAST
        + name.len()
        + size_of_val(&created[..])
        + context
        + provenance_bytes(provenance)
        + outcomes_bytes(outcomes)
}

impl LastEvaluation {
    fn bytes(&self) -> usize {
        let artifacts = self.artifacts.values().map(|artifact| artifact.bytes()).sum::<usize>();
        artifacts + self.open.1.values().map(instance_bytes).sum::<usize>()
    }
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
            Fact::ArtifactAllowed { record } if record.environment == environment => {
                self.fingerprints.insert(record.fingerprint.clone());
            }
            // A text that was damaged may be kept again.
            Fact::TextKept { .. } => self.everything = true,
            Fact::OrganizationCreated { .. }
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
}

impl Remembered {
    /// What the latest snapshot shows, if that is the one of this number.
    pub(crate) fn open(&self, snapshots: u64) -> Option<Arc<OpenInstances>> {
        let (number, open) = &self.last.open;
        (*number == snapshots).then(|| Arc::clone(open))
    }

    /// What an artifact of this name came to, if it would come to the same now.
    pub(crate) fn artifact(&self, key: &ArtifactKey, name: &str) -> Option<&Arc<ArtifactEvaluation>> {
        let artifact = self.last.artifacts.get(key).filter(|artifact| artifact.name == name)?;
        let holds = self.same_policies && artifact.is_final() && !self.affected.has(key, artifact);
        holds.then_some(artifact)
    }
}

impl Context<'_> {
    /// How an environment was evaluated last, as far as that holds in this ledger and by these policies.
    pub(crate) async fn remembered_evaluation(
        &self,
        environment: Id,
        policies: &[VersionKey],
        ledger: &Frontier,
    ) -> Result<Option<Remembered>> {
        let Some(last) = self.evaluation_cache().get(&(self.org()?, environment)) else { return Ok(None) };
        let most = last.artifacts.len().min(MAX_ENTRIES);
        let Some(entries) = self.entries_since(&last.ledger, ledger, most).await? else { return Ok(None) };
        let same_policies = last.policies == policies;
        let long = entries.iter().map(|entry| entry.payload.len()).sum::<usize>() > LONG_JSON;
        let affected = move || {
            let mut affected = Affected::default();
            for entry in &entries {
                match Fact::read(&entry.payload) {
                    Ok(fact) => affected.add(&fact, environment),
                    Err(_) => affected.everything = true,
                }
            }
            affected
        };
        let affected = self.compute().run_if(long, affected).await?;
        Ok(Some(Remembered { last, affected, same_policies }))
    }

    /// The entries by which a ledger has grown, if it has grown from this one, by so many at most.
    async fn entries_since(
        &self,
        before: &Frontier,
        now: &Frontier,
        most: usize,
    ) -> Result<Option<Vec<StoredEntry>>> {
        let grown = now.size().checked_sub(before.size()).filter(|grown| *grown <= most as u64);
        let entries = match grown {
            None => return Ok(None),
            Some(0) => Vec::new(),
            Some(grown) => self.store().ledger_entries(self.org()?, before.size(), grown).await?,
        };
        let mut ledger = before.clone();
        entries.iter().for_each(|entry| drop(ledger.append(entry.leaf_hash)));
        // Also where a page ended before the last entry.
        Ok((ledger == *now).then_some(entries))
    }

    /// Keeps how an environment was evaluated.
    pub(crate) fn remember_evaluation(&self, environment: Id, evaluation: LastEvaluation) -> Result<()> {
        let bytes = evaluation.bytes();
        self.evaluation_cache().put((self.org()?, environment), bytes, Arc::new(evaluation));
        Ok(())
    }
}
