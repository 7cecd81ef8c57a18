//! Snapshots as they are recorded: what changed in an environment, and the verdicts.

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

/// A snapshot as it is recorded: what changed since the one before, and the verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The environment.
    pub environment: Id,
    /// Its number there, from 1.
    pub index: u64,
    /// When it was taken.
    pub at: Timestamp,
    /// Whether everything that runs may.
    pub compliant: bool,
    /// Whether a report led to it, rather than a change of policies.
    pub reported: bool,
    /// How many entries the ledger had when it was evaluated. Artifacts and attestations that were reported later are no
    /// part of it, so that the same can be evaluated again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rests_on: Option<u64>,
    /// How many events the environment had before it: its own are numbered from there on, by which they are found.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub events_before: u64,
    /// Whether the environment required provenance.
    #[serde(default, skip_serializing_if = "is_false")]
    pub requires_provenance: bool,
    /// How many elements were skipped, because they had no digest, in the report that told what runs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_elements: u64,
    /// The policies it was evaluated by, by id.
    pub policies: Vec<AppliedPolicy>,
    /// Those of them that only logical environments demand of which the environment is a member. They count in the verdicts of
    /// these ([`logical`](Self::logical)), and not in its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demanded: Vec<Id>,
    /// Whether what runs complies with the policies of logical environments of which the environment is a member, by their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logical: Vec<LogicalVerdict>,
    /// Artifacts that began to run, or whose data differ from the snapshot before.
    pub changes: Vec<RunningArtifact>,
    /// Artifacts that no longer run.
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
    /// The artifacts of which it tells an event: what no longer runs, with nothing, and what began to run or differs in more
    /// than was seen of it, in the order in which the events are numbered.
    pub fn events(&self) -> impl Iterator<Item = (ArtifactKey, Option<&RunningArtifact>)> {
        let exited = self.exits.iter().map(|artifact| (artifact.clone(), None));
        let told = self.changes.iter().filter(|instance| instance.annotation.is_event());
        exited.chain(told.map(|instance| (instance.key(), Some(instance))))
    }

    /// How many events the environment has with it.
    pub fn events_with(&self) -> u64 {
        self.events_before.saturating_add(self.events().count() as u64)
    }
}

impl Snapshot {
    /// The state of the environment by this snapshot: unknown where no policy was attached and no provenance required.
    pub(crate) fn state(&self) -> Option<bool> {
        let has_policies = self.policies.len() > self.demanded.len();
        environment_state(Some(self.compliant), has_policies || self.requires_provenance)
    }
}

/// What a snapshot of a member says about a logical environment that has policies of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogicalVerdict {
    /// The logical environment.
    pub environment: Id,
    /// Its policies, in the order of their ids.
    pub policies: Vec<Id>,
    /// Whether everything that runs in the member satisfies each of them. Allowlists do not count.
    pub compliant: bool,
}

/// A policy that a snapshot was evaluated by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedPolicy {
    /// The policy.
    pub policy: Id,
    /// The number of its version.
    pub version: u64,
}

impl AppliedPolicy {
    /// What lists of policies are told apart by: the SHA-256 of their ids and versions. Nothing of no policies.
    pub(crate) fn digest(applied: &[Self]) -> Option<Hash> {
        let line = |one: &Self| format!("{} {}\n", one.policy, one.version);
        (!applied.is_empty()).then(|| Hash::of(applied.iter().map(line).collect::<String>()))
    }
}

/// An artifact running in an environment, unchanged since snapshot `from`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningArtifact {
    /// The SHA-256 of what runs; nothing where the environment knows none, as of some ECS tasks, Azure apps and Cloud
    /// Run services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// Its name, as the environment knows it; of several the first in the report.
    pub name: String,
    /// Its other names there, sorted. Each rule of a policy has to hold by each of its names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_names: Vec<String>,
    /// When its instances were created, in epoch seconds, ascending; their number is the instance count.
    pub created: Vec<i64>,
    /// What only environments of its kind tell: pods, tasks, containers, revisions. Answers show what is under `pods`,
    /// `ecs_context`, `azure_context` and `cloud_run_context`. No snapshot is taken because it differs.
    #[serde(default, skip_serializing_if = "JsonFields::is_empty")]
    pub context: JsonFields,
    /// The first snapshot with these data.
    pub from: u64,
    /// The first snapshot of the run that this is a part of.
    pub since: u64,
    /// What made it differ in that snapshot.
    pub annotation: Annotation,
    /// Whether it may run; nothing without policies.
    pub compliant: Option<bool>,
    /// Where it comes from: its newest report in each flow, and its state there.
    pub provenance: Vec<Provenance>,
    /// Of the snapshot in which its run began: where it came from, in one of the flows that it was reported to: one where the
    /// report names a repo, if there is such.
    // Not always the first of `provenance`, which has neither the repo nor the time: with these the rows of deployments follow
    // from the fact alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<DeploymentSource>,
    /// The digest of the policies that it was evaluated by ([`Snapshot::policies`]): the SHA-256 of a line for each, `<id>
    /// <version>` and a line feed. Nothing without policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged_by: Option<Hash>,
    /// Which of these it violates, by their places, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violates: Vec<u16>,
    /// What the rules of these policies came to, where that rests on attestations, tags or names. What the rules of the
    /// others say follows from the provenance, and is evaluated when it is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outcomes: Vec<PolicyOutcome>,
    /// The digest of all that it was evaluated by, policies aside: its names, whether it was on the allowlist, its reports, the
    /// flows with their tags, and the attestations where a policy asks for some. Nothing without policies. A difference in
    /// it alone takes no snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<Hash>,
    /// Why it was not evaluated by the policies, so that it violates all of them: that would have been more than the host
    /// evaluates or records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_evaluated: Option<String>,
    /// The ledger index of the allowlist entry that lets it run, if one was in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_by: Option<u64>,
}

/// What the rules of a policy came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyOutcome {
    /// The policy's place among those that the artifact was evaluated by.
    pub policy: u16,
    /// Each rule in each flow.
    pub rules: RuleOutcomes,
    /// Why rules that are violated applied although their conditions were unknown: the first twenty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<UnknownCondition>,
}

#[cfg(test)]
impl RunningArtifact {
    /// One of which nothing is known but its name.
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
    /// What it is told apart by from all else that runs in the environment.
    pub fn key(&self) -> ArtifactKey {
        ArtifactKey::new(self.fingerprint.as_ref(), &self.name)
    }

    /// Whether it did not run in the snapshot before.
    pub const fn begins_a_run(&self) -> bool {
        self.from == self.since
    }

    /// What conditions of policies look at.
    pub(crate) fn as_policies_see_it(&self) -> Artifact<'_> {
        Artifact {
            name: &self.name,
            other_names: &self.other_names,
            fingerprint: self.fingerprint.as_ref().map(Fingerprint::as_str),
        }
    }
}

/// What a version of a policy said of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "PolicyEvaluationResponse")]
#[non_exhaustive]
pub struct PolicyDecision {
    /// The policy.
    pub policy_name: PolicyName,
    /// The number of its version.
    pub policy_version: u64,
    /// `COMPLIANT` or `NON-COMPLIANT`.
    pub status: State,
    /// What each of its rules said; nothing where that is not known any more.
    pub rule_evaluations: Vec<RuleEvaluation>,
}

/// Where a running artifact comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The artifact report.
    pub artifact: Id,
    /// Its state in that report's trail.
    pub state: State,
    /// Why, where no attestation accounts for it: the template or the trail cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The flow of that report, by which what replaces what there is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Id>,
    /// What that report calls it in the template; empty without a name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reference: String,
}

/// Where an artifact that began to run came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeploymentSource {
    /// The artifact report.
    pub report: Id,
    /// The flow.
    pub flow: Id,
    /// The repo that the report names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<Id>,
    /// When the commit was made that it was built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_at: Option<Timestamp>,
}

/// What made an artifact differ from the snapshot before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Annotation {
    /// `started-compliant`, `started-non-compliant`, `started-unknown`, `became-compliant`, `became-non-compliant`,
    /// `updated-provenance`, `changed`, `unchanged` or `exited`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Instances in the snapshot before.
    pub was: u64,
    /// Instances in this one.
    pub now: u64,
}

impl Annotation {
    /// The kind of an artifact that is shown as it was, or that differs in counts, times, names and context alone.
    pub const UNCHANGED: &'static str = "unchanged";

    /// The kind of an artifact that began to run, by whether it may.
    pub(crate) const fn started(compliant: Option<bool>) -> &'static str {
        match compliant {
            Some(true) => "started-compliant",
            Some(false) => "started-non-compliant",
            None => "started-unknown",
        }
    }

    /// Whether the environment's log tells of it.
    pub fn is_event(&self) -> bool {
        self.kind != Self::UNCHANGED
    }
}
