//! A policy as snapshots show it as a whole. A rule beside its outcome has a field `if`; here the field is
//! `if_condition`.

use schemars::JsonSchema;
use serde::Serialize;

use super::{AttestationRule, BooleanRule, Condition, Policy, SCHEMA_VERSION};
use crate::template::Kind;

/// A parsed policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
#[non_exhaustive]
pub enum PolicyDump {
    /// A policy that can be read.
    Readable {
        /// The version of the policy format: `1`.
        schema_version: &'static str,
        /// Its requirements for artifacts.
        artifacts: PolicyDumpArtifacts,
    },
    /// A policy that cannot be read, so nothing complies with it.
    Unreadable {
        /// The reason.
        unreadable: String,
    },
}

/// The requirements of a policy for artifacts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PolicyDumpArtifacts {
    /// Whether they must have been reported in a flow.
    pub provenance: BooleanRuleDump,
    /// Whether they must be compliant in every flow they were reported in.
    pub trail_compliance: BooleanRuleDump,
    /// Attestations that they or their trails must have.
    pub attestations: Vec<AttestationRuleDump>,
}

/// A rule that is on or off, with conditions under which it does not apply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct BooleanRuleDump {
    /// Whether the rule applies at all.
    pub required: bool,
    /// The rule is waived if any exception is true. An exception without a condition is never true.
    pub exceptions: Vec<ConditionalRuleDump>,
}

/// An exception of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ConditionalRuleDump {
    /// The condition under which the rule does not apply; null without a condition.
    pub if_condition: Option<Condition>,
}

/// A rule that requires an attestation of the artifact or of its trail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct AttestationRuleDump {
    /// The condition under which the rule applies; null if it always applies.
    pub if_condition: Option<Condition>,
    /// Name of the attestation; `*` matches any name.
    pub name: String,
    /// Type of the attestation; `*` matches any type.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Whether the attestation must be compliant. If false, it only has to exist.
    pub must_be_compliant: bool,
    /// The control that the attestation must be a decision about; null if no decision is required.
    pub for_control: Option<String>,
}

impl From<&Policy> for PolicyDump {
    fn from(policy: &Policy) -> Self {
        if let Some(why) = &policy.unreadable {
            return Self::Unreadable { unreadable: why.clone() };
        }
        let artifacts = PolicyDumpArtifacts {
            provenance: (&policy.provenance).into(),
            trail_compliance: (&policy.trail_compliance).into(),
            attestations: policy.attestations.iter().map(AttestationRuleDump::from).collect(),
        };
        Self::Readable { schema_version: SCHEMA_VERSION, artifacts }
    }
}

impl From<&BooleanRule> for BooleanRuleDump {
    fn from(rule: &BooleanRule) -> Self {
        let exceptions = rule.exceptions.iter();
        let exceptions =
            exceptions.map(|exception| ConditionalRuleDump { if_condition: exception.condition.clone() });
        Self { required: rule.required, exceptions: exceptions.collect() }
    }
}

impl From<&AttestationRule> for AttestationRuleDump {
    fn from(rule: &AttestationRule) -> Self {
        let AttestationRule { condition: if_condition, name, kind, must_be_compliant, for_control } =
            rule.clone();
        Self { if_condition, name, kind, must_be_compliant, for_control }
    }
}
