//! The results of a custom attestation type's rules and of its summary.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::JsonText;
use crate::rules::jq::{self, Failure, Limit};

/// The result of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuleResult {
    /// The rule, as in the type's version; a long rule is truncated. Absent in results that were recorded
    /// without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The outcome.
    pub outcome: RuleOutcome,
    /// The error message, or the exceeded limit: `fuel` (steps), `memory`, `depth` or `outputs`. Absent for
    /// other outcomes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The outcome of a rule. The data are compliant if all rules passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RuleOutcome {
    /// It has results, and all of them are `true`.
    Passed,
    /// It has no result, or a result other than `true`.
    Failed,
    /// It ended in an error, such as adding a number to an object.
    Error,
    /// It exceeded a limit.
    Limit,
    /// An outcome recorded by a newer version of the program.
    #[serde(untagged)]
    #[schemars(skip)]
    Other(String),
}

impl RuleOutcome {
    /// Returns its name, as recorded and returned.
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
    /// Returns whether the data satisfy the rule.
    pub fn has_passed(&self) -> bool {
        self.outcome == RuleOutcome::Passed
    }
}

/// The number of characters of a rule that are recorded with its result.
const MAX_RULE: usize = 1_000;

impl RuleResult {
    /// Returns the result of the rule with this text.
    pub(crate) fn new(rule: &str, outcome: jq::Outcome) -> Self {
        let cut = rule.char_indices().nth(MAX_RULE).and_then(|(at, _)| rule.get(..at));
        let rule = Some(cut.map_or_else(|| rule.to_owned(), |cut| format!("{cut}…")));
        let (outcome, message) = match outcome {
            jq::Outcome::True => (RuleOutcome::Passed, None),
            jq::Outcome::False => (RuleOutcome::Failed, None),
            jq::Outcome::Error(text) => (RuleOutcome::Error, Some(text)),
            jq::Outcome::Limit(limit) => (RuleOutcome::Limit, Some(Limit::as_str(limit).to_owned())),
        };
        Self { rule, outcome, message }
    }
}

/// The result of an expression of the type's summary. It does not affect the verdict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SummaryRow {
    /// The name of the expression.
    pub name: String,
    /// If the data are a list, the index of the element, from 0: each element has its own rows. Absent
    /// otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u64>,
    /// The results of the expression: none, one or several.
    pub values: Vec<JsonText>,
    /// The reason why there are no values: an error, or the exceeded limit. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl SummaryRow {
    /// Returns the results in one line, for display.
    pub fn shown(&self) -> String {
        let values = self.values.iter().map(|value| {
            // Show a string without its quotes.
            serde_json::from_str::<String>(value.as_str()).unwrap_or_else(|_| value.as_str().to_owned())
        });
        match &self.error {
            Some(error) => format!("error: {error}"),
            None => Vec::from_iter(values).join(", "),
        }
    }
}

/// Returns the message for a failure.
pub(crate) fn failure_text(failure: Failure) -> String {
    match failure {
        Failure::Error(text) => text,
        Failure::Limit(Limit::Fuel) => "it takes too many steps".to_owned(),
        Failure::Limit(Limit::Memory) => "it makes too much data".to_owned(),
        Failure::Limit(Limit::Depth) => "its calls or its values nest too deep".to_owned(),
        Failure::Limit(Limit::Outputs) => "it has too many results".to_owned(),
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

    #[test]
    fn a_result_has_the_text_of_its_rule_and_of_a_long_one_the_beginning() {
        let text = |rule: &str| RuleResult::new(rule, jq::Outcome::True).rule.unwrap();
        assert_eq!(text(".score >= 80"), ".score >= 80");
        assert_eq!(text(&"é".repeat(1_000)), "é".repeat(1_000));
        assert_eq!(text(&"é".repeat(1_001)), format!("{}…", "é".repeat(1_000)));
    }
}
