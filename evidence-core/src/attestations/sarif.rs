//! The findings of a scanner in SARIF 2.1.0 (Static Analysis Results Interchange Format): what is read of a log, and the
//! summary that is recorded of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::{List, LongText};

/// A SARIF log. Whatever else it has is kept.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) struct SarifData {
    /// The version of the format.
    #[expect(dead_code, reason = "a log is told by it")]
    version: SarifVersion,
    /// The runs of scanners.
    runs: List<Run>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[schemars(inline)]
enum SarifVersion {
    #[serde(rename = "2.1.0")]
    V2_1_0,
}

/// A run of a scanner.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Run {
    /// The scanner.
    tool: Tool,
    /// What it found. Null or left out where the scan did not come to its end.
    #[serde(default)]
    results: Option<List<Finding, 100_000>>,
    /// How the scanner was run.
    #[serde(default)]
    invocations: Option<List<Invocation>>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
struct Tool {
    /// What of the scanner ran.
    driver: Driver,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Driver {
    /// The name of the scanner.
    name: LongText,
    /// Its version.
    #[serde(default)]
    version: Option<LongText>,
    /// Its version by Semantic Versioning.
    #[serde(default)]
    semantic_version: Option<LongText>,
    /// What it looks for.
    #[serde(default)]
    rules: Option<List<Rule, 100_000>>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Rule {
    /// The id of the rule, by which findings refer to it.
    #[serde(default)]
    id: Option<LongText>,
    /// How severe its findings are, unless they say so themselves.
    #[serde(default)]
    default_configuration: Option<Configuration>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
struct Configuration {
    /// The severity.
    #[serde(default)]
    level: Option<Level>,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Invocation {
    /// Whether the scan came to its end.
    #[serde(default)]
    execution_successful: Option<bool>,
}

/// A finding.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Finding {
    /// How severe it is: that of its rule where it is left out, else `warning`.
    #[serde(default)]
    level: Option<Level>,
    /// What sort of result it is: `fail` where it is left out.
    #[serde(default)]
    kind: Option<Kind>,
    /// The id of its rule.
    #[serde(default)]
    rule_id: Option<LongText>,
    /// The place of its rule among those of the scanner.
    #[serde(default)]
    rule_index: Option<i64>,
    /// Who decided that it does not count.
    #[serde(default)]
    suppressions: Option<List<Suppression>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Level {
    None,
    Note,
    Warning,
    Error,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
enum Kind {
    NotApplicable,
    Pass,
    Fail,
    Review,
    Open,
    Informational,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
struct Suppression {
    /// Whether it is decided: `accepted` where it is left out.
    #[serde(default)]
    status: Option<SuppressionStatus>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
enum SuppressionStatus {
    Accepted,
    UnderReview,
    Rejected,
}

/// The findings of scanners, counted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct SarifSummary {
    /// The scanners, one for each run.
    pub tools: Vec<SarifTool>,
    /// Findings of the level `error`.
    pub error_count: u64,
    /// Findings of the level `warning`.
    pub warning_count: u64,
    /// Findings of the level `note`.
    pub note_count: u64,
    /// Results that are no problem: of the level `none`, or of a kind such as `pass`.
    pub none_count: u64,
    /// Findings that somebody suppressed. They are in no other count.
    pub suppressed_count: u64,
    /// Runs that did not come to their end: without results, or with an invocation that failed.
    pub failed_run_count: u64,
}

/// A scanner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SarifTool {
    /// Its name.
    pub name: String,
    /// Its version, where it says one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl SarifSummary {
    /// Whether every scan came to its end, one at least, and found nothing that counts.
    pub(crate) fn is_compliant(&self) -> bool {
        let findings = [self.error_count, self.warning_count, self.note_count, self.failed_run_count];
        !self.tools.is_empty() && findings == [0; 4]
    }
}

impl From<&SarifData> for SarifSummary {
    fn from(log: &SarifData) -> Self {
        let mut summary = Self::default();
        for run in &log.runs.0 {
            run.add_to(&mut summary);
        }
        summary
    }
}

impl Run {
    fn add_to(&self, summary: &mut SarifSummary) {
        let Driver { name, version, semantic_version, rules } = &self.tool.driver;
        let version = version.as_ref().or(semantic_version.as_ref()).map(ToString::to_string);
        summary.tools.push(SarifTool { name: name.to_string(), version });
        let mut invocations = self.invocations.iter().flat_map(|invocations| &invocations.0);
        let has_failed = invocations.any(|invocation| invocation.execution_successful == Some(false));
        summary.failed_run_count += u64::from(self.results.is_none() || has_failed);
        let rules = rules.as_ref().map_or(&[][..], |rules| &rules.0);
        let by_id: BTreeMap<&str, &Rule> =
            rules.iter().filter_map(|rule| Some((rule.id.as_deref()?, rule))).collect();
        for finding in self.results.iter().flat_map(|results| &results.0) {
            let count = match finding.level(rules, &by_id) {
                _ if finding.is_suppressed() => &mut summary.suppressed_count,
                Level::None => &mut summary.none_count,
                Level::Note => &mut summary.note_count,
                Level::Warning => &mut summary.warning_count,
                Level::Error => &mut summary.error_count,
            };
            *count += 1;
        }
    }
}

impl Finding {
    fn level(&self, rules: &[Rule], by_id: &BTreeMap<&str, &Rule>) -> Level {
        match self.kind {
            Some(Kind::NotApplicable | Kind::Pass | Kind::Informational) => return Level::None,
            // It is open whether there is a problem: it counts.
            Some(Kind::Review | Kind::Open) => {
                return self.level.filter(|level| *level != Level::None).unwrap_or(Level::Warning);
            }
            Some(Kind::Fail) | None => {}
        }
        let of_rule = || {
            let by_index = self.rule_index.and_then(|index| rules.get(usize::try_from(index).ok()?));
            let rule = by_index.or_else(|| by_id.get(self.rule_id.as_deref()?).copied())?;
            rule.default_configuration?.level
        };
        self.level.or_else(of_rule).unwrap_or(Level::Warning)
    }

    /// A finding is suppressed by decisions all of which are accepted.
    fn is_suppressed(&self) -> bool {
        let suppressions = self.suppressions.as_ref().map_or(&[][..], |some| &some.0);
        let accepted = |one: &Suppression| matches!(one.status, None | Some(SuppressionStatus::Accepted));
        !suppressions.is_empty() && suppressions.iter().all(accepted)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decode::from_value;

    fn summary(runs: &Value) -> SarifSummary {
        let log: SarifData = from_value(&json!({"version": "2.1.0", "runs": runs, "$schema": "s"})).unwrap();
        SarifSummary::from(&log)
    }

    #[test]
    fn findings_are_counted_by_their_levels() {
        let rules = json!([{"id": "a", "defaultConfiguration": {"level": "error"}}, {"id": "b"}]);
        // A result, and which count it adds to.
        let table = [
            (json!({"level": "error"}), "error_count"),
            (json!({"level": "warning"}), "warning_count"),
            (json!({"level": "note"}), "note_count"),
            (json!({"level": "none"}), "none_count"),
            (json!({}), "warning_count"),
            (json!({"ruleId": "a"}), "error_count"),
            (json!({"ruleIndex": 0}), "error_count"),
            (json!({"ruleId": "a", "level": "note"}), "note_count"),
            (json!({"ruleId": "b"}), "warning_count"),
            (json!({"ruleId": "unknown", "ruleIndex": 7}), "warning_count"),
            (json!({"ruleIndex": -1}), "warning_count"),
            (json!({"kind": "fail", "level": "error"}), "error_count"),
            (json!({"kind": "pass"}), "none_count"),
            (json!({"kind": "informational", "level": "none"}), "none_count"),
            (json!({"kind": "notApplicable", "ruleId": "a"}), "none_count"),
            (json!({"kind": "open", "level": "none"}), "warning_count"),
            (json!({"kind": "review", "level": "error"}), "error_count"),
            (json!({"level": "error", "suppressions": [{"kind": "inSource"}]}), "suppressed_count"),
            (json!({"level": "error", "suppressions": [{"status": "accepted"}]}), "suppressed_count"),
            (json!({"level": "error", "suppressions": []}), "error_count"),
            (
                json!({"level": "error", "suppressions": [{"status": "accepted"}, {"status": "underReview"}]}),
                "error_count",
            ),
            (json!({"level": "error", "suppressions": [{"status": "rejected"}]}), "error_count"),
        ];
        for (result, expected) in table {
            let driver = json!({"name": "scan", "semanticVersion": "1.2.3", "rules": rules});
            let found = summary(&json!([{"tool": {"driver": driver}, "results": [result]}]));
            let counts = serde_json::to_value(&found).unwrap();
            let counted = counts.as_object().unwrap().iter().filter(|(_, count)| **count == json!(1));
            assert_eq!(Vec::from_iter(counted.map(|(name, _)| name.as_str())), [expected], "{result}");
            assert_eq!(
                found.tools,
                [SarifTool { name: "scan".to_owned(), version: Some("1.2.3".to_owned()) }]
            );
            assert_eq!(
                found.is_compliant(),
                ["none_count", "suppressed_count"].contains(&expected),
                "{result}"
            );
        }
    }

    #[test]
    fn a_scan_that_did_not_end_is_no_scan_without_findings() {
        let tool = json!({"driver": {"name": "scan"}});
        let run = |results: Value, invocations: Value| json!({"tool": tool, "results": results, "invocations": invocations});
        let table = [
            (json!([]), false),
            (json!([run(json!([]), Value::Null)]), true),
            (json!([run(json!([]), json!([{"executionSuccessful": true}]))]), true),
            (
                json!([run(
                    json!([]),
                    json!([{"executionSuccessful": true}, {"executionSuccessful": false}])
                )]),
                false,
            ),
            (json!([run(Value::Null, Value::Null)]), false),
            (json!([{"tool": tool}]), false),
            (json!([run(json!([]), Value::Null), {"tool": tool}]), false),
        ];
        for (runs, compliant) in table {
            assert_eq!(summary(&runs).is_compliant(), compliant, "{runs}");
        }
    }

    #[test]
    fn what_is_no_log_is_refused() {
        let tool = json!({"driver": {"name": "scan"}});
        for (log, field) in [
            (json!({"runs": []}), "version"),
            (json!({"version": "1.0.0", "runs": []}), "version"),
            (json!({"version": "2.1.0"}), "runs"),
            (json!({"version": "2.1.0", "runs": [{}]}), "runs.0.tool"),
            (
                json!({"version": "2.1.0", "runs": [{"tool": tool, "results": [{"level": "fatal"}]}]}),
                "runs.0.results.0.level",
            ),
        ] {
            let refused = from_value::<SarifData>(&log).unwrap_err();
            assert!(refused.field().starts_with(field.split('.').next().unwrap()), "{log}: {refused}");
        }
    }
}
