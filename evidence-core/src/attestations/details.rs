//! The part of an attestation that belongs to its type, as it is recorded: a variant of its own for each type, so that
//! nothing of what a type needs is looked for among what reporters say.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{GitProvider, JunitSuite, PullRequest};
use crate::id::Id;

/// What an attestation says beyond what all say. Recorded as an object with a `type`, this variant's name, beside its
/// fields; what this version knows no variant for is kept as it was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub enum Details {
    /// Nothing more: the verdict is all.
    Generic,
    /// Test results.
    Junit(JunitDetails),
    /// Pull requests.
    PullRequest(PullRequestDetails),
    /// A decision that stands in for the verdict of other attestations.
    Override(OverrideDetails),
    /// Of a type that this version has no variant for.
    Other(Value),
}

/// The results of test suites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JunitDetails {
    /// The suites, in the order in which they were reported.
    pub junit_results: Vec<JunitSuite>,
}

/// The pull requests that brought a change in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PullRequestDetails {
    /// The host's kind.
    pub git_provider: GitProvider,
    /// The pull requests, in the order in which they were reported.
    pub pull_requests: Vec<PullRequest>,
}

/// A decision about the verdict of the attestations of a name in a scope, whether one was reported or not. An
/// attestation that is reported later decides for itself again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverrideDetails {
    /// Why.
    pub reason: String,
    /// The type of what is overridden, as its reporter named it; the type of the record, too.
    pub original_attestation_type: String,
    /// The attestation whose verdict no longer counts; none where there was none yet.
    pub original_attestation_id: Option<Id>,
}

const TYPE: &str = "type";
const GENERIC: &str = "generic";
const JUNIT: &str = "junit";
const PULL_REQUEST: &str = "pull_request";
const OVERRIDE: &str = "override";

impl Details {
    /// Whether it overrides other attestations.
    pub const fn is_override(&self) -> bool {
        matches!(self, Self::Override(_))
    }

    /// The type's own keys, as they are recorded (`junit_results`, `pull_requests`, …).
    pub fn fields(&self) -> Map<String, Value> {
        match Value::from(self.clone()) {
            Value::Object(mut fields) => {
                if !matches!(self, Self::Other(_)) {
                    fields.remove(TYPE);
                }
                fields
            }
            _ => Map::new(),
        }
    }
}

impl From<Details> for Value {
    fn from(details: Details) -> Self {
        // Plain data with keys that are texts is always JSON.
        let (name, fields) = match details {
            Details::Generic => (GENERIC, Ok(json!({}))),
            Details::Junit(details) => (JUNIT, serde_json::to_value(details)),
            Details::PullRequest(details) => (PULL_REQUEST, serde_json::to_value(details)),
            Details::Override(details) => (OVERRIDE, serde_json::to_value(details)),
            Details::Other(value) => return value,
        };
        let mut fields = fields.unwrap_or_default();
        fields[TYPE] = name.into();
        fields
    }
}

impl From<Value> for Details {
    fn from(value: Value) -> Self {
        fn read<T: for<'de> Deserialize<'de>>(value: &Value) -> Option<T> {
            T::deserialize(value).ok()
        }
        let known = match value.get(TYPE).and_then(Value::as_str) {
            Some(GENERIC) if value.as_object().is_some_and(|fields| fields.len() == 1) => Some(Self::Generic),
            Some(JUNIT) => read(&value).map(Self::Junit),
            Some(PULL_REQUEST) => read(&value).map(Self::PullRequest),
            Some(OVERRIDE) => read(&value).map(Self::Override),
            _ => None,
        };
        known.unwrap_or(Self::Other(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attestations::PullRequests;
    use crate::decode::from_json;

    #[test]
    fn details_read_back_as_they_are_recorded_and_what_is_unknown_stays() {
        let suite =
            json!({"name": "s", "failures": 1, "errors": 0, "skipped": 0, "total": 2, "duration": 0.5});
        let pull_request = json!({"url": "u", "state": "open", "merge_commit": "", "approvers": ["ann"]});
        let reported = json!({"git_provider": "azure", "pull_requests": [pull_request]});
        let reported: PullRequests = from_json(&reported).unwrap();
        let pull_requests = PullRequestDetails {
            git_provider: reported.git_provider,
            pull_requests: reported.pull_requests.0,
        };
        let overriding = OverrideDetails {
            reason: "r".to_owned(),
            original_attestation_type: "junit".to_owned(),
            original_attestation_id: Some("01234567-89ab-cdef-0123-456789ab".parse().unwrap()),
        };
        let table = [
            Details::Generic,
            Details::from(json!({"type": "junit", "junit_results": [suite]})),
            Details::PullRequest(pull_requests),
            Details::Override(overriding),
            Details::Other(json!({"type": "of tomorrow", "a": [1.5, null]})),
            // What it does not fit is no reason to lose it.
            Details::Other(json!({"type": "junit", "junit_results": "none"})),
            Details::Other(json!({"type": "generic", "more": 1})),
            Details::Other(json!({})),
            Details::Other(Value::Null),
        ];
        assert!(matches!(table[1], Details::Junit(_)), "{:?}", table[1]);
        for details in table {
            let text = serde_json::to_string(&details).unwrap();
            assert_eq!(serde_json::from_str::<Details>(&text).unwrap(), details, "{text}");
        }
    }

    #[test]
    fn what_reporters_say_makes_no_override() {
        for said in
            [json!({"override": true}), json!({"type": "override"}), json!({"type": "override", "reason": 1})]
        {
            assert!(!Details::from(said.clone()).is_override(), "{said}");
        }
    }
}
