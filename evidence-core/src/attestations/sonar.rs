//! The results of code analyses in Sonar attestations, in Sonar's own spelling.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attestations::pull_requests::null_as_empty;
use crate::bounded::{Address, AnyJson, List, LongText, ShortText};

/// The results of an analysis. Other properties are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SonarResults {
    /// The server that ran the analysis; null if not reported.
    #[serde(default)]
    pub server_url: Option<Address>,
    /// The server's id of the task; null if not reported.
    #[serde(default)]
    pub task_id: Option<ShortText>,
    /// The status of the task, in the server's words; null if not reported. Any status except `SUCCESS` is
    /// not compliant. Without it, the quality gate alone decides.
    #[serde(default)]
    pub status: Option<ShortText>,
    /// The time of the analysis, in the server's words.
    pub analysed_at: ShortText,
    /// The commit that was analysed.
    pub revision: ShortText,
    /// When the status of the quality gate changed, in the server's words; null if not reported.
    #[serde(default)]
    pub changed_at: Option<ShortText>,
    /// The project.
    pub project: SonarProject,
    /// The branch that was analysed; absent if not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<AnyJson>,
    /// The pull request that was analysed; absent if not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<AnyJson>,
    /// The quality gate, which decides the verdict; null if the project has none.
    #[serde(default)]
    pub quality_gate: Option<QualityGate>,
}

/// A project that is analysed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SonarProject {
    /// Its name; null means none.
    #[serde(default, deserialize_with = "null_as_empty")]
    #[schemars(extend("type" = ["string", "null"]))]
    pub name: ShortText,
    /// Its key.
    pub key: LongText,
    /// The URL of its page.
    pub url: Address,
}

/// A quality gate, with its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QualityGate {
    /// Its name; null if not reported.
    #[serde(default)]
    pub name: Option<ShortText>,
    /// `OK` if the code passed it; any other status is not compliant. A failed condition overrules it.
    pub status: ShortText,
    /// Its conditions.
    pub conditions: List<QualityGateCondition>,
}

/// The condition of a quality gate on one metric.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QualityGateCondition {
    /// The metric.
    pub metric: ShortText,
    /// The threshold at which it fails.
    pub error_threshold: ShortText,
    /// The comparison operator.
    pub operator: ShortText,
    /// Whether it is met, in the server's words.
    pub status: ShortText,
    /// The metric's value; null if not reported.
    #[serde(default)]
    pub value: Option<ShortText>,
    /// Whether it applies to new code only; null if not reported.
    #[serde(default)]
    pub on_leak_period: Option<bool>,
}

impl SonarResults {
    /// Returns whether the task succeeded and the code passed its quality gate, with every condition met.
    pub(crate) fn is_compliant(&self) -> bool {
        // The public client sends an empty status if the server no longer has the task of an analysis.
        let succeeded = self.status.as_deref().is_none_or(|status| matches!(status, "" | "SUCCESS"));
        let is_met = |one: &QualityGateCondition| matches!(one.status.as_str(), "OK" | "NO_VALUE");
        let passed =
            |gate: &QualityGate| gate.status.as_str() == "OK" && gate.conditions.0.iter().all(is_met);
        succeeded && self.quality_gate.as_ref().is_some_and(passed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decode::from_value;

    fn analysis(gate: &Value) -> Value {
        json!({
            "analysedAt": "1724052982", "revision": "649a", "project": {"key": "k", "url": "https://s/k"},
            "qualityGate": gate,
        })
    }

    #[test]
    fn the_quality_gate_decides() {
        let condition = |status: &str| json!({"metric": "m", "errorThreshold": "1", "operator": "GREATER_THAN", "status": status});
        let table = [
            (json!({"status": "OK", "conditions": []}), true),
            (json!({"status": "OK", "conditions": [condition("OK"), condition("NO_VALUE")]}), true),
            (json!({"status": "OK", "conditions": [condition("OK"), condition("ERROR")]}), false),
            (json!({"status": "OK", "conditions": [condition("")]}), false),
            (json!({"status": "ERROR", "conditions": [condition("OK")]}), false),
            (json!({"status": "ERROR", "conditions": []}), false),
            (json!({"status": "ok", "conditions": []}), false),
            (json!({"status": "", "conditions": []}), false),
            (Value::Null, false),
        ];
        for (gate, compliant) in table {
            let results: SonarResults = from_value(&analysis(&gate)).unwrap();
            assert_eq!(results.is_compliant(), compliant, "{gate}");
        }
        let mut without = analysis(&Value::Null);
        without.as_object_mut().unwrap().remove("qualityGate");
        assert!(!from_value::<SonarResults>(&without).unwrap().is_compliant());
    }

    #[test]
    fn a_task_that_did_not_succeed_is_not_compliant_whatever_the_quality_gate_says() {
        let mut sent = analysis(&json!({"status": "OK", "conditions": []}));
        for (status, compliant) in [
            (json!("SUCCESS"), true),
            (json!(""), true),
            (Value::Null, true),
            (json!("FAILED"), false),
            (json!("CANCELED"), false),
            (json!("PENDING"), false),
            (json!("IN_PROGRESS"), false),
            (json!("success"), false),
            (json!("of tomorrow"), false),
        ] {
            sent["status"] = status;
            assert_eq!(from_value::<SonarResults>(&sent).unwrap().is_compliant(), compliant, "{sent}");
        }
    }

    #[test]
    fn what_is_read_is_kept_in_the_same_spelling() {
        let mut sent = analysis(&json!({
            "name": "gate", "status": "OK",
            "conditions": [{"metric": "m", "errorThreshold": "1", "operator": "o", "status": "OK", "value": "0", "onLeakPeriod": true}],
        }));
        sent["branch"] = json!({"name": "main", "type": "BRANCH"});
        sent["pullRequest"] = json!("17");
        sent["serverUrl"] = json!("https://s");
        let results: SonarResults = from_value(&sent).unwrap();
        let kept = serde_json::to_string(&results).unwrap();
        assert_eq!(serde_json::from_str::<SonarResults>(&kept).unwrap(), results);
        let kept: Value = serde_json::from_str(&kept).unwrap();
        for (name, value) in sent.as_object().unwrap() {
            match name.as_str() {
                "project" => {
                    assert_eq!(kept["project"], json!({"name": "", "key": "k", "url": "https://s/k"}))
                }
                _ => assert_eq!(&kept[name], value, "{name}"),
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let table = [
            (json!({"status": "OK"}), "qualityGate.conditions"),
            (json!({"conditions": []}), "qualityGate.status"),
            (
                json!({"status": "OK", "conditions": [{"metric": "m"}]}),
                "qualityGate.conditions[0].errorThreshold",
            ),
            (json!("OK"), "qualityGate"),
        ];
        for (gate, field) in table {
            assert_eq!(from_value::<SonarResults>(&analysis(&gate)).unwrap_err().field(), field);
        }
    }
}
