//! What each type of attestation claims: its own part of the report, and the verdict that follows from it. Verdicts
//! are computed when an attestation is recorded and never again.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::pull_requests::{GitProvider, PullRequest, null_as_empty};
use crate::shared::List;

/// One type of attestation.
pub trait Claim: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The operation that adds one.
    const OPERATION: &'static str;
    /// Its path.
    const PATH: &'static str;
    /// What the operation does.
    const SUMMARY: &'static str;
    /// The name of its schema.
    const SCHEMA: &'static str;
    /// The type's name as it is stored and answered.
    fn kind(&self) -> String;
    /// Whether what is claimed is compliant.
    fn verdict(&self) -> bool;
    /// The type's own part of the record.
    fn details(&self) -> Value;
}

/// A claim that carries its own verdict.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Generic {
    /// The verdict.
    pub is_compliant: bool,
}

impl Claim for Generic {
    const OPERATION: &'static str = "post_generic_attestation";
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/generic";
    const SUMMARY: &'static str = "Adds a generic attestation to a trail";
    const SCHEMA: &'static str = "GenericAttestationPostInput";

    fn kind(&self) -> String {
        "generic".to_owned()
    }

    fn verdict(&self) -> bool {
        self.is_compliant
    }

    fn details(&self) -> Value {
        json!({})
    }
}

/// Results of test suites: compliant when nothing failed and nothing broke.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Junit {
    /// The suites.
    pub junit_results: List<JunitSuite, 100_000>,
}

/// The results of one test suite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "JUnitResult")]
#[expect(missing_docs, reason = "the names say it")]
pub struct JunitSuite {
    pub name: String,
    pub failures: i64,
    pub errors: i64,
    pub skipped: i64,
    pub total: i64,
    /// In seconds.
    pub duration: f64,
    #[serde(default)]
    pub timestamp: Option<f64>,
}

impl Claim for Junit {
    const OPERATION: &'static str = "post_junit_attestation";
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/junit";
    const SUMMARY: &'static str = "Adds test results to a trail";
    const SCHEMA: &'static str = "JUnitAttestationPostInput";

    fn kind(&self) -> String {
        "junit".to_owned()
    }

    fn verdict(&self) -> bool {
        self.junit_results.0.iter().all(|suite| suite.failures == 0 && suite.errors == 0)
    }

    fn details(&self) -> Value {
        json!({ "junit_results": self.junit_results })
    }
}

/// Pull requests that brought a change in: compliant when there is at least one (specification, Attestations).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PullRequests {
    /// The host's kind.
    pub git_provider: GitProvider,
    /// The pull requests; null counts as none.
    #[serde(deserialize_with = "null_as_empty")]
    pub pull_requests: List<PullRequest>,
}

impl Claim for PullRequests {
    const OPERATION: &'static str = "post_pull_request_attestation";
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/pull_request";
    const SUMMARY: &'static str = "Adds a pull-request attestation to a trail";
    const SCHEMA: &'static str = "PullRequestAttestationPostInput";

    fn kind(&self) -> String {
        "pull_request".to_owned()
    }

    fn verdict(&self) -> bool {
        !self.pull_requests.0.is_empty()
    }

    fn details(&self) -> Value {
        json!({ "git_provider": self.git_provider, "pull_requests": self.pull_requests })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict<C: Claim>(document: &Value) -> bool {
        crate::decode::from_json::<C>(document).expect("a claim").verdict()
    }

    #[test]
    fn a_generic_claim_carries_its_verdict() {
        assert!(verdict::<Generic>(&json!({"is_compliant": true})));
        assert!(!verdict::<Generic>(&json!({"is_compliant": false})));
    }

    #[test]
    fn test_results_are_compliant_when_nothing_failed_or_broke() {
        let suite = |failures: i64, errors: i64| json!({"name": "s", "failures": failures, "errors": errors, "skipped": 3, "total": 9, "duration": 1.5});
        let table = [
            (json!([]), true),
            (json!([suite(0, 0)]), true),
            (json!([suite(1, 0)]), false),
            (json!([suite(0, 1)]), false),
            (json!([suite(0, 0), suite(0, 2)]), false),
        ];
        for (suites, compliant) in table {
            assert_eq!(verdict::<Junit>(&json!({"junit_results": suites})), compliant, "{suites}");
        }
    }

    #[test]
    fn pull_requests_are_compliant_when_there_is_one_whatever_its_state() {
        let claim = |pull_requests: Value| json!({"git_provider": "azure", "pull_requests": pull_requests});
        assert!(!verdict::<PullRequests>(&claim(json!([]))));
        assert!(!verdict::<PullRequests>(&claim(Value::Null)));
        assert!(verdict::<PullRequests>(&claim(
            json!([{"url": "u", "state": "closed", "merge_commit": ""}])
        )));
    }
}
