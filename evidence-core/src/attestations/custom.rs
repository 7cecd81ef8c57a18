//! What became of the rules of a custom attestation type.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules::jq::{self, Limit};

/// What became of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuleResult {
    /// The outcome.
    pub outcome: RuleOutcome,
    /// What the error is, or which limit was met: `fuel` (steps), `memory`, `depth` or `outputs`; absent for another outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How a rule ended. The data are compliant where all passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RuleOutcome {
    /// It has results, and all of them are `true`.
    Passed,
    /// It has no result, or one that is something else.
    Failed,
    /// It ended in an error, such as a number that is added to an object.
    Error,
    /// It needs more than a rule may have.
    Limit,
    /// What a newer version of the program recorded.
    #[serde(untagged)]
    #[schemars(skip)]
    Other(String),
}

impl RuleOutcome {
    /// Its name, as it is recorded and answered.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Error => "error",
            Self::Limit => "limit",
            Self::Other(name) => name,
        }
    }
}

impl RuleResult {
    /// Whether the data fit the rule.
    pub fn has_passed(&self) -> bool {
        self.outcome == RuleOutcome::Passed
    }
}

impl From<jq::Outcome> for RuleResult {
    fn from(outcome: jq::Outcome) -> Self {
        let (outcome, message) = match outcome {
            jq::Outcome::True => (RuleOutcome::Passed, None),
            jq::Outcome::False => (RuleOutcome::Failed, None),
            jq::Outcome::Error(text) => (RuleOutcome::Error, Some(text)),
            jq::Outcome::Limit(limit) => (RuleOutcome::Limit, Some(Limit::as_str(limit).to_owned())),
        };
        Self { outcome, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_recorded_by_their_names_and_those_of_newer_versions_are_kept() {
        for name in ["passed", "failed", "error", "limit", "skipped"] {
            let text = format!(r#"{{"outcome":"{name}"}}"#);
            let result: RuleResult = serde_json::from_str(&text).unwrap();
            assert_eq!(result.outcome.as_str(), name);
            assert_eq!(matches!(result.outcome, RuleOutcome::Other(_)), name == "skipped");
            assert_eq!(result.has_passed(), name == "passed");
            assert_eq!(serde_json::to_string(&result).unwrap(), text);
        }
    }
}
