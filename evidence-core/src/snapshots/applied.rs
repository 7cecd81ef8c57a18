//! The policies that a snapshot was evaluated against, and their decisions.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::context::Context;
use crate::error::Result;
use crate::id::Id;
use crate::ledger::Hash;
use crate::name::PolicyName;
use crate::rules::compliance::State;
use crate::rules::policy::{self, FlowContext, Policy, PolicyDump, RuleEvaluation};
use crate::snapshots::record::{AppliedPolicy, PolicyDecision, RunningArtifact, Snapshot};
use crate::snapshots::sources::FlowReason;

/// A policy that a snapshot was evaluated against.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct AppliedPolicyView {
    /// The policy's id.
    pub id: Id,
    /// The policy's name.
    pub name: PolicyName,
    /// The newest version when the snapshot was taken.
    pub version: u64,
    /// The content of that version, as parsed.
    // Shared and converted only when it is serialized: for many policies, the converted form needs much
    // memory.
    #[serde(serialize_with = "as_dump")]
    #[schemars(with = "PolicyDump")]
    pub policy_dump: Arc<Policy>,
    /// The fingerprints of the running artifacts that are not allowed because of this policy; empty for one
    /// without a digest.
    #[schemars(with = "Vec<String>")]
    pub failing_artifacts: FailingArtifacts,
}

fn as_dump<S: Serializer>(policy: &Arc<Policy>, serializer: S) -> Result<S::Ok, S::Error> {
    PolicyDump::from(&**policy).serialize(serializer)
}

/// The fingerprints of the running artifacts that one policy does not allow. All policies of a snapshot share
/// the list of denied artifacts.
#[derive(Clone)]
pub struct FailingArtifacts {
    pub(super) denied: Arc<[DeniedArtifact]>,
    /// The index of the policy among those that the snapshot was evaluated against.
    pub(super) place: u16,
}

/// A running artifact that is not allowed.
pub(super) struct DeniedArtifact {
    pub(super) fingerprint: String,
    /// The indexes of the policies that it violates, ascending.
    pub(super) violates: Vec<u16>,
}

impl FailingArtifacts {
    /// Iterates over the fingerprints, in the order of the snapshot's artifacts.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let fails = |denied: &&DeniedArtifact| denied.violates.binary_search(&self.place).is_ok();
        self.denied.iter().filter(fails).map(|denied| denied.fingerprint.as_str())
    }
}

impl std::fmt::Debug for FailingArtifacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl PartialEq for FailingArtifacts {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Serialize for FailingArtifacts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

/// The policies that a snapshot was evaluated against, sorted by id.
#[derive(Default)]
pub(super) struct AppliedVersions {
    pub(super) digest: Option<Hash>,
    pub(super) policies: Vec<AppliedVersion>,
    /// Whether the environment's own policies are among them.
    pub(super) has_own: bool,
}

/// A version of a policy, with the parts that can be found.
#[derive(Clone)]
pub(super) struct AppliedVersion {
    pub(super) id: Id,
    pub(super) version: u64,
    pub(super) name: Option<PolicyName>,
    pub(super) policy: Option<Arc<Policy>>,
    pub(super) counts: CountsFor,
}

/// The verdicts that a policy of a snapshot counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountsFor {
    /// The verdicts of the snapshot itself.
    Own,
    /// The verdicts of the logical environment that is shown, which demands the policy.
    Demanded,
    /// Neither: another logical environment demands the policy, so it is not shown.
    Elsewhere,
}

impl AppliedVersions {
    /// Reads the policies of a snapshot that is shown itself, or as part of a snapshot of a logical
    /// environment.
    pub(super) async fn read(snapshot: Snapshot, logical: Option<Id>, cx: &Context<'_>) -> Result<Self> {
        let Snapshot { policies: applied, demanded, logical: verdicts, .. } = snapshot;
        let Some(digest) = AppliedPolicy::digest(&applied) else { return Ok(Self::default()) };
        let here = verdicts.into_iter().find(|verdict| Some(verdict.environment) == logical);
        let here = here.map(|verdict| verdict.policies).unwrap_or_default();
        let counts = |id: &Id| match (here.contains(id), demanded.contains(id)) {
            (true, _) => CountsFor::Demanded,
            (false, true) => CountsFor::Elsewhere,
            (false, false) => CountsFor::Own,
        };
        let ids: Vec<Id> = applied.iter().map(|applied| applied.policy).collect();
        let policies = cx.store().policies_by_id(cx.org()?, &ids).await?;
        let mut names: BTreeMap<Id, PolicyName> =
            policies.into_iter().map(|policy| (policy.record.id, policy.record.name)).collect();
        let versions = Vec::from_iter(applied.iter().map(|applied| (applied.policy, applied.version)));
        let mut parsed = BTreeMap::new();
        for part in cx.policies_in_parts(&versions).await? {
            parsed.extend(cx.parsed_policies(&part).await?);
        }
        let version = |(id, version)| AppliedVersion {
            id,
            version,
            name: names.remove(&id),
            policy: parsed.remove(&(id, version)),
            counts: counts(&id),
        };
        let has_own = ids.iter().any(|id| !demanded.contains(id));
        Ok(Self { digest: Some(digest), policies: versions.into_iter().map(version).collect(), has_own })
    }

    /// Returns the policies that are shown, each with its index among all.
    pub(super) fn shown(&self) -> impl Iterator<Item = (u16, &AppliedVersion)> {
        (0..=u16::MAX).zip(&self.policies).filter(|(_, version)| version.counts != CountsFor::Elsewhere)
    }

    /// Returns the indexes of the policies that the shown logical environment demands.
    pub(super) fn demanded(&self) -> impl Iterator<Item = u16> {
        self.shown().filter(|(_, version)| version.counts == CountsFor::Demanded).map(|(place, _)| place)
    }

    /// Returns the decisions on an instance that was reported in these flows.
    pub(super) fn decisions(
        &self,
        instance: &RunningArtifact,
        contexts: &[FlowContext],
    ) -> Vec<PolicyDecision> {
        let artifact = instance.to_policy_artifact();
        let decision = |(place, version): (u16, &AppliedVersion)| {
            let satisfied = instance.violates.binary_search(&place).is_err();
            let outcome = instance.outcomes.iter().find(|outcome| outcome.policy == place);
            let evaluation =
                version.policy.as_ref().and_then(|policy| match (&instance.not_evaluated, outcome) {
                    (Some(why), _) => Some(policy::not_evaluated(policy, why)),
                    (None, Some(outcome)) => {
                        policy::explain_outcome(policy, &outcome.rules, &outcome.unknown, contexts)
                    }
                    // Other results depend on data that a snapshot does not contain.
                    (None, None) => {
                        policy.follows_from_states().then(|| policy::evaluate(policy, artifact, contexts))
                    }
                });
            // The recorded verdict counts. If the policy gives another one now, for example because its text
            // was damaged, its rules do not explain the verdict.
            let evaluation = evaluation.filter(|evaluation| evaluation.satisfied == satisfied);
            Some(PolicyDecision {
                policy_name: version.name.clone()?,
                policy_version: version.version,
                status: if satisfied { State::Compliant } else { State::NonCompliant },
                rule_evaluations: evaluation.map(|evaluation| evaluation.rules).unwrap_or_default(),
            })
        };
        self.shown().filter_map(decision).collect()
    }
}

/// Returns the reasons why an artifact is not compliant, for the gate and for snapshots: a sentence for each
/// of these flows in which it is not compliant, and for each rule of these policies that it violates in a
/// flow.
pub(crate) fn reasons_for_incompliance<'a>(
    flows: impl Iterator<Item = (&'a str, &'a [FlowReason])>,
    decisions: &[PolicyDecision],
) -> Vec<String> {
    let in_flow = |(flow, reasons): (&str, &[FlowReason])| {
        let sentence = |why: &FlowReason| {
            format!("the artifact is {} in flow '{flow}': {}", why.artifact_compliance_state, why.reason)
        };
        Vec::from_iter(reasons.iter().map(sentence))
    };
    let mut reasons: Vec<String> = flows.flat_map(in_flow).collect();
    for PolicyDecision { policy_name, policy_version, status, rule_evaluations } in decisions {
        if status.is_compliant() {
            continue;
        }
        let before = reasons.len();
        let violated = rule_evaluations.iter().flat_map(RuleEvaluation::violations);
        reasons
            .extend(violated.map(|why| format!("policy '{policy_name}' (version {policy_version}): {why}")));
        if reasons.len() == before {
            reasons.push(format!("policy '{policy_name}' (version {policy_version}) is violated"));
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::policy::RuleKind;

    /// A snapshot contains neither attestations nor tags, but the results derived from them.
    #[test]
    fn rules_are_shown_by_what_was_recorded_of_them() {
        let schema = "_schema: https://example.com/schemas/policy/v1\nartifacts:\n";
        let both = vec![RuleKind::Provenance, RuleKind::TrailCompliance];
        let three = vec![RuleKind::Provenance, RuleKind::TrailCompliance, RuleKind::Attestation];
        let required = "  provenance:\n    required: true\n";
        let attestations = "  attestations:\n    - type: junit\n";
        let exceptions =
            "  provenance:\n    required: true\n    exceptions:\n      - if: ${{ flow.name == 'a' }}\n";
        let table = [
            (required, None, both.clone()),
            (attestations, Some("--m"), three),
            (attestations, Some("--+"), Vec::new()),
            (attestations, Some("--"), Vec::new()),
            (attestations, None, Vec::new()),
            (exceptions, Some("p-"), both),
            (exceptions, None, Vec::new()),
        ];
        for (text, outcome, shown) in table {
            let policy = Arc::new(Policy::stored(&format!("{schema}{text}")));
            assert!(policy.is_readable(), "{text}");
            let version = AppliedVersion {
                id: "00000000-0000-0000-0000-00000001".parse().unwrap(),
                version: 1,
                name: Some("p".parse().unwrap()),
                policy: Some(policy),
                counts: CountsFor::Own,
            };
            let applied = AppliedVersions { policies: vec![version], ..AppliedVersions::default() };
            let outcome = outcome.map(|rules| serde_json::json!({"policy": 0, "rules": rules}));
            let outcomes =
                outcome.map(|outcome| serde_json::from_value(outcome).unwrap()).into_iter().collect();
            let decisions = applied.decisions(
                &RunningArtifact { violates: vec![0], outcomes, ..RunningArtifact::example() },
                &[],
            );
            let kinds = Vec::from_iter(decisions[0].rule_evaluations.iter().map(|one| one.rule.kind));
            assert_eq!((decisions[0].status, kinds), (State::NonCompliant, shown), "{text}");
        }
    }
}
