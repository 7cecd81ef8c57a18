//! The last evaluation of an environment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::Weigh;
use crate::id::{Id, VersionKey};
use crate::json::JsonText;
use crate::ledger::{Frontier, Hash};
use crate::rules::policy;
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::record::{DeploymentSource, PolicyOutcome, Provenance, RunningArtifact};
use crate::time::Timestamp;

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
    /// Its approximate size in bytes, after [`with_size`](Self::with_size).
    pub(crate) bytes: usize,
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
pub(super) const LEAST: usize = 512;

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
    /// Returns the same evaluation with its size. This takes a while for many artifacts.
    pub(super) fn with_size(self) -> Self {
        let Self { since: _, ledger, policies, open, artifacts, kept, bytes: _ } = &self;
        let artifacts = artifacts.values().map(|artifact| artifact.bytes()).sum::<usize>();
        let instances = open.1.values().map(instance_bytes).sum::<usize>();
        let trails = kept.len() * size_of::<[usize; 5]>();
        let bytes = ledger.to_bytes().len() + size_of_val(&policies[..]) + artifacts + instances + trails;
        Self { bytes, ..self }
    }
}

impl Weigh for LastEvaluation {
    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Takes out the artifacts of these trails, and of all trails that share artifacts with them, transitively.
/// Returns their keys. The evaluation of a trail is limited for all its running artifacts together, so a
/// trail is evaluated for all of them or for none.
pub(crate) fn take_artifacts_of_trails(
    artifacts: &mut Evaluated,
    trails: &BTreeSet<Id>,
) -> BTreeSet<ArtifactKey> {
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
