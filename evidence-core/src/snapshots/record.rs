//! The recorded form of snapshots: the changes in an environment, and the verdicts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::Id;
use crate::json::JsonFields;
use crate::ledger::Hash;
use crate::name::{Fingerprint, PolicyName};
use crate::rules::compliance::State;
use crate::rules::policy::{Artifact, RuleEvaluation, RuleOutcomes, UnknownCondition, environment_state};
use crate::snapshots::key::ArtifactKey;
use crate::time::Timestamp;

/// A snapshot as recorded: the changes since the previous one, and the verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The environment.
    pub environment: Id,
    /// Its number in the environment, from 1.
    pub index: u64,
    /// When it was taken.
    pub at: Timestamp,
    /// Whether all running artifacts are allowed.
    pub compliant: bool,
    /// Whether a report caused it, rather than a change of policies.
    pub reported: bool,
    /// The number of entries that the ledger had when it was evaluated. Artifacts and attestations reported
    /// later are not part of it, so the evaluation can be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rests_on: Option<u64>,
    /// The number of events of the environment before it. Its own events are numbered from there on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub events_before: u64,
    /// Whether the environment required provenance.
    #[serde(default, skip_serializing_if = "is_false")]
    pub requires_provenance: bool,
    /// The number of skipped elements in the report of the running artifacts. They were skipped because they
    /// had no digest.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_elements: u64,
    /// The policies that it was evaluated against, sorted by id.
    pub policies: Vec<AppliedPolicy>,
    /// The policies that only logical environments demand of this member. They count in the verdicts of those
    /// environments ([`logical`](Self::logical)), not in its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demanded: Vec<Id>,
    /// Whether the artifacts comply with the policies of logical environments that contain this one, sorted
    /// by their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logical: Vec<LogicalVerdict>,
    /// Artifacts that started running, or whose data differ from the previous snapshot.
    pub changes: Vec<RunningArtifact>,
    /// Artifacts that stopped running.
    pub exits: Vec<ArtifactKey>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
pub(crate) const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Snapshot {
    /// Returns the artifacts with an event, in the order in which the events are numbered. First the stopped
    /// ones, with `None`. Then those that started, or differ in more than the observation.
    pub fn events(&self) -> impl Iterator<Item = (ArtifactKey, Option<&RunningArtifact>)> {
        let exited = self.exits.iter().map(|artifact| (artifact.clone(), None));
        let told = self.changes.iter().filter(|instance| instance.annotation.is_event());
        exited.chain(told.map(|instance| (instance.key(), Some(instance))))
    }

    /// Returns the number of events of the environment, including those of this snapshot.
    pub fn events_with(&self) -> u64 {
        self.events_before.saturating_add(self.events().count() as u64)
    }
}

impl Snapshot {
    /// Returns the state of the environment by this snapshot. Unknown if no policy was attached and no
    /// provenance required.
    pub(crate) fn state(&self) -> Option<bool> {
        let has_policies = self.policies.len() > self.demanded.len();
        environment_state(Some(self.compliant), has_policies || self.requires_provenance)
    }
}

/// The verdict of a member's snapshot for a logical environment that has its own policies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogicalVerdict {
    /// The logical environment.
    pub environment: Id,
    /// Its policies, sorted by id.
    pub policies: Vec<Id>,
    /// Whether all artifacts in the member satisfy each of them. Allowlists do not count.
    pub compliant: bool,
}

/// A policy that a snapshot was evaluated against.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedPolicy {
    /// The policy.
    pub policy: Id,
    /// The number of its version.
    pub version: u64,
}

impl AppliedPolicy {
    /// Returns the digest of a list of policies: the SHA-256 of their ids and versions. `None` for an empty
    /// list.
    pub(crate) fn digest(applied: &[Self]) -> Option<Hash> {
        let line = |one: &Self| format!("{} {}\n", one.policy, one.version);
        (!applied.is_empty()).then(|| Hash::of(applied.iter().map(line).collect::<String>()))
    }
}

/// An artifact running in an environment, unchanged since snapshot `from`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningArtifact {
    /// The SHA-256 of the artifact. `None` if the environment does not know it, as with some ECS tasks, Azure
    /// apps and Cloud Run services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// Its name in the environment; if there are several, the first in the report.
    pub name: String,
    /// Its other names in the environment, sorted. Each rule of a policy must hold for each of its names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_names: Vec<String>,
    /// When its instances were created, in epoch seconds, ascending. Their number is the instance count.
    pub created: Vec<i64>,
    /// Data that only environments of its kind report: pods, tasks, containers, revisions. Responses show the
    /// values under `pods`, `ecs_context`, `azure_context` and `cloud_run_context`. A difference in them
    /// takes no snapshot.
    #[serde(default, skip_serializing_if = "JsonFields::is_empty")]
    pub context: JsonFields,
    /// The first snapshot with these data.
    pub from: u64,
    /// The first snapshot of the run that this belongs to.
    pub since: u64,
    /// The difference to the previous snapshot.
    pub annotation: Annotation,
    /// Whether it is allowed to run; `None` without policies.
    pub compliant: Option<bool>,
    /// Its origin: its newest report in each flow, with its state there.
    pub provenance: Vec<Provenance>,
    /// The origin in one of its flows, as of the snapshot in which its run began. Prefers a flow whose report
    /// names a repo.
    // May differ from the first of `provenance`, which has neither the repo nor the time. With these, the
    // rows of deployments follow from the fact alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DeploymentSource>,
    /// The digest of the policies that it was evaluated against ([`Snapshot::policies`]): the SHA-256 of one
    /// line for each, `<id> <version>` and a line feed. `None` without policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged_by: Option<Hash>,
    /// The indexes of the policies that it violates, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violates: Vec<u16>,
    /// The results of policy rules that depend on attestations, tags or names. The results of other rules
    /// follow from the provenance, and are computed when they are shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<PolicyOutcome>,
    /// The digest of all its inputs except policies. These are its names, whether it was on the allowlist,
    /// its reports, the flows with their tags, and the attestations if a policy requires some. `None` without
    /// policies. A difference in the digest alone takes no snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Hash>,
    /// The reason why it was not evaluated against the policies, and so violates all of them: the evaluation
    /// would have exceeded a limit of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_evaluated: Option<String>,
    /// The ledger index of the allowlist entry that allows it, if one was in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_by: Option<u64>,
}

/// The results of a policy's rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyOutcome {
    /// The policy's index among those that the artifact was evaluated against.
    pub policy: u16,
    /// The result of each rule in each flow.
    pub rules: RuleOutcomes,
    /// The conditions that were unknown, so that their violated rules applied: the first twenty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<UnknownCondition>,
}

#[cfg(test)]
impl RunningArtifact {
    /// Returns an artifact with a name only.
    pub(super) fn example() -> Self {
        Self {
            fingerprint: None,
            name: "api".to_owned(),
            other_names: Vec::new(),
            created: vec![1, 2, 3],
            context: JsonFields::default(),
            from: 1,
            since: 1,
            annotation: Annotation { kind: "unchanged".to_owned(), was: 3, now: 3 },
            compliant: Some(true),
            provenance: Vec::new(),
            source: None,
            judged_by: None,
            violates: Vec::new(),
            outcomes: Vec::new(),
            inputs: None,
            not_evaluated: None,
            allowed_by: None,
        }
    }
}

impl RunningArtifact {
    /// Returns the key that identifies it among the artifacts of the environment.
    pub fn key(&self) -> ArtifactKey {
        ArtifactKey::new(self.fingerprint.as_ref(), &self.name)
    }

    /// Returns whether it did not run in the previous snapshot.
    pub const fn begins_a_run(&self) -> bool {
        self.from == self.since
    }

    /// Returns the data that policy conditions use.
    pub(crate) fn to_policy_artifact(&self) -> Artifact<'_> {
        Artifact {
            name: &self.name,
            other_names: &self.other_names,
            fingerprint: self.fingerprint.as_ref().map(Fingerprint::as_str),
        }
    }
}

/// The decision of a policy version on an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "PolicyEvaluationResponse")]
#[non_exhaustive]
pub struct PolicyDecision {
    /// The policy's name.
    pub policy_name: PolicyName,
    /// The number of its version.
    pub policy_version: u64,
    /// `COMPLIANT` or `NON-COMPLIANT`.
    pub status: State,
    /// The results of its rules; empty if they are no longer known.
    pub rule_evaluations: Vec<RuleEvaluation>,
}

/// The origin of a running artifact in one flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The artifact report.
    pub artifact: Id,
    /// Its state in that report's trail.
    pub state: State,
    /// The reason, if no attestation explains the state: the template or the trail cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The flow of that report. It is needed to find the artifact that a later one replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Id>,
    /// The artifact's template name in that report; empty without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reference: String,
}

/// The origin of an artifact that started running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentSource {
    /// The artifact report.
    pub report: Id,
    /// The flow.
    pub flow: Id,
    /// The repo that the report names, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<Id>,
    /// The time of the commit that it was built from, if reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_at: Option<Timestamp>,
}

/// The difference of an artifact to the previous snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Annotation {
    /// `started-compliant`, `started-non-compliant`, `started-unknown`, `became-compliant`, `became-non-compliant`,
    /// `updated-provenance`, `changed`, `unchanged` or `exited`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The number of instances in the previous snapshot.
    pub was: u64,
    /// The number of instances in this one.
    pub now: u64,
}

impl Annotation {
    /// The kind of an artifact that is unchanged, or differs only in counts, times, names and context.
    pub const UNCHANGED: &'static str = "unchanged";

    /// Returns the kind of an artifact that started running, by whether it is allowed.
    pub(crate) const fn started(compliant: Option<bool>) -> &'static str {
        match compliant {
            Some(true) => "started-compliant",
            Some(false) => "started-non-compliant",
            None => "started-unknown",
        }
    }

    /// Returns whether it is an event in the environment's log.
    pub fn is_event(&self) -> bool {
        self.kind != Self::UNCHANGED
    }
}
