//! The issues of a Jira attestation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::{Address, FreeForm, ShortText};
use crate::decode::{closed_in_requests, given};

/// An issue that a change refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct JiraItem {
    /// The issue's key, such as `ML-50`.
    pub issue_id: ShortText,
    /// The URL of its page.
    pub issue_url: Address,
    /// Whether the issue exists in Jira.
    pub issue_exists: bool,
    /// The issue's fields in Jira; absent if not reported.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "FreeForm")]
    pub issue_fields: Option<FreeForm>,
}

closed_in_requests!(JiraItem);

/// Returns whether there is at least one issue, and each has a key and exists.
pub(crate) fn is_compliant(issues: &[JiraItem]) -> bool {
    !issues.is_empty() && issues.iter().all(|issue| issue.issue_exists && !issue.issue_id.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decode::from_value;

    #[test]
    fn at_least_one_issue_is_named_and_all_of_them_exist() {
        let issue = |exists: bool| json!({"issue_id": "ML-50", "issue_url": "u", "issue_exists": exists});
        let table = [
            (json!([]), false),
            (json!([issue(true)]), true),
            (json!([issue(false)]), false),
            (json!([issue(true), issue(true)]), true),
            (json!([issue(true), issue(false)]), false),
            (json!([{"issue_id": "", "issue_url": "u", "issue_exists": true}]), false),
        ];
        for (issues, compliant) in table {
            assert_eq!(is_compliant(&from_value::<Vec<JiraItem>>(&issues).unwrap()), compliant, "{issues}");
        }
    }

    #[test]
    fn an_issue_is_closed_and_its_fields_are_an_object_of_any_content() {
        let with = |name: &str, value: Value| {
            let mut issue = json!({"issue_id": "a", "issue_url": "u", "issue_exists": true});
            issue[name] = value;
            from_value::<JiraItem>(&issue).map(|issue| serde_json::to_string(&issue).unwrap())
        };
        let fields = with("issue_fields", json!({"summary": "s", "labels": [1.5, null]})).unwrap();
        assert!(fields.ends_with(r#""issue_fields":{"summary":"s","labels":[1.5,null]}}"#), "{fields}");
        assert!(!with("issue_exists", json!(false)).unwrap().contains("issue_fields"));
        for (field, value) in [
            ("issue_fields", Value::Null),
            ("issue_fields", json!([])),
            ("more", json!(1)),
            ("issue_id", json!(1)),
        ] {
            assert_eq!(with(field, value).unwrap_err().field(), field);
        }
    }
}
