//! The findings of security scans in Snyk attestations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attestations::pull_requests::null_as_empty;
use crate::bounded::{Description, List, LongText, ShortText, limited_lists};
use crate::decode::closed_in_requests;

limited_lists! {
    /// Findings. Their number is [limited](crate::Limits).
    Findings(FoundIssue) = findings;
}

/// The findings of a scan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct SnykResultsSummary {
    /// The version of this format. Defaults to 1.
    #[serde(default = "first_version")]
    pub schema_version: i64,
    /// The scanning tool.
    pub tool: SnykTool,
    /// The results, one for each scanned project.
    pub results: List<ProjectScanResult>,
}

const fn first_version() -> i64 {
    1
}

/// A scanning tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct SnykTool {
    /// Its name.
    pub name: ShortText,
    /// Its version.
    pub version: ShortText,
}

/// The results for one project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct ProjectScanResult {
    /// The number of findings of low severity.
    pub low_count: i64,
    /// The number of findings of medium severity.
    pub medium_count: i64,
    /// The number of findings of high severity.
    pub high_count: i64,
    /// The findings of low severity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Findings>,
    /// The findings of medium severity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub medium: Option<Findings>,
    /// The findings of high severity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<Findings>,
}

closed_in_requests!(SnykResultsSummary, SnykTool, ProjectScanResult);

/// A finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FoundIssue {
    /// The id of the finding, in the tool's words.
    pub id: ShortText,
    /// A description of the problem.
    pub message: Description,
    /// The places where it was found; null means none.
    #[serde(default, deserialize_with = "null_as_empty")]
    #[schemars(extend("type" = ["array", "null"]))]
    pub locations: List<IssueLocation>,
    /// The tool's priority score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_score: Option<f64>,
}

/// The location of a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IssueLocation {
    /// The file.
    pub uri: LongText,
    /// The lines in the file; null means none.
    #[serde(default, deserialize_with = "null_as_empty")]
    #[schemars(extend("type" = ["string", "null"]))]
    pub lines: ShortText,
}

/// The findings of a scan, in responses.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProcessedSnykResults {
    /// The version of the format in which they were reported.
    pub schema_version: i64,
    /// The scanning tool.
    pub tool: SnykTool,
    /// The results, one for each scanned project.
    pub results: Vec<ProjectFindings>,
}

/// The findings of a project. If a report lists more findings than it counts, the listed ones are counted.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProjectFindings {
    /// The number of findings of low severity.
    pub low_count: i64,
    /// The number of findings of medium severity.
    pub medium_count: i64,
    /// The number of findings of high severity.
    pub high_count: i64,
    /// The findings of low severity; absent if not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<Findings>,
    /// The findings of medium severity; absent if not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub medium: Option<Findings>,
    /// The findings of high severity; absent if not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<Findings>,
}

/// Returns the number of findings: the reported count, or the number of listed ones if that is larger.
fn counted(count: i64, listed: Option<&Findings>) -> i64 {
    match listed.map_or(0, |listed| listed.0.len()) {
        // A negative count stays negative, which is not compliant.
        0 => count,
        listed => count.max(i64::try_from(listed).unwrap_or(i64::MAX)),
    }
}

impl ProjectScanResult {
    /// Returns the numbers of findings of low, medium and high severity.
    fn counts(&self) -> [i64; 3] {
        [
            counted(self.low_count, self.low.as_ref()),
            counted(self.medium_count, self.medium.as_ref()),
            counted(self.high_count, self.high.as_ref()),
        ]
    }
}

impl From<&ProjectScanResult> for ProjectFindings {
    fn from(found: &ProjectScanResult) -> Self {
        let [low_count, medium_count, high_count] = found.counts();
        let ProjectScanResult { low, medium, high, .. } = found.clone();
        Self { low_count, medium_count, high_count, low, medium, high }
    }
}

impl SnykResultsSummary {
    /// Drops the findings themselves. The counts become those that responses show.
    pub(crate) fn leave_counts(&mut self) {
        for found in &mut self.results.0 {
            [found.low_count, found.medium_count, found.high_count] = found.counts();
            (found.low, found.medium, found.high) = (None, None, None);
        }
    }

    /// Returns the number of listed findings, of all projects and severities.
    pub(crate) fn findings(&self) -> usize {
        let listed = |found: &ProjectScanResult| {
            [&found.low, &found.medium, &found.high]
                .into_iter()
                .flatten()
                .map(|found| found.0.len())
                .sum::<usize>()
        };
        self.results.0.iter().map(listed).sum()
    }

    /// Returns whether there are no findings of any severity.
    pub(crate) fn is_compliant(&self) -> bool {
        self.counts().all(|found| found == [0, 0, 0])
    }

    /// Returns the numbers of findings of low, medium and high severity for each project.
    pub(crate) fn counts(&self) -> impl Iterator<Item = [i64; 3]> {
        self.results.0.iter().map(ProjectScanResult::counts)
    }
}

impl From<&SnykResultsSummary> for ProcessedSnykResults {
    fn from(found: &SnykResultsSummary) -> Self {
        Self {
            schema_version: found.schema_version,
            tool: found.tool.clone(),
            results: found.results.0.iter().map(ProjectFindings::from).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decode::from_value;

    fn scan(results: &Value) -> Value {
        json!({"tool": {"name": "SnykCode", "version": "1.0.0"}, "results": results})
    }

    fn project(low: i64, medium: i64, high: i64) -> Value {
        json!({"low_count": low, "medium_count": medium, "high_count": high})
    }

    #[test]
    fn a_finding_of_any_severity_in_any_project_is_not_compliant() {
        let table = [
            (json!([]), true),
            (json!([project(0, 0, 0)]), true),
            (json!([project(1, 0, 0)]), false),
            (json!([project(0, 1, 0)]), false),
            (json!([project(0, 0, 1)]), false),
            (json!([project(-1, 0, 0)]), false),
            (json!([project(0, 0, 0), project(0, 0, 0)]), true),
            (json!([project(0, 0, 0), project(0, 0, 2)]), false),
        ];
        for (results, compliant) in table {
            let found: SnykResultsSummary = from_value(&scan(&results)).unwrap();
            assert_eq!(found.is_compliant(), compliant, "{results}");
        }
    }

    #[test]
    fn findings_that_are_listed_count_whatever_the_report_says() {
        let issue = json!({"id": "CWE-1", "message": "m"});
        let of = |severity: &str, count: i64, listed: Value| {
            let mut found = project(0, 0, 0);
            found[format!("{severity}_count")] = json!(count);
            found[severity] = listed;
            let scanned: SnykResultsSummary = from_value(&scan(&json!([found]))).unwrap();
            let shown = json!(ProcessedSnykResults::from(&scanned));
            (scanned.is_compliant(), shown["results"][0][format!("{severity}_count")].as_i64().unwrap())
        };
        for severity in ["low", "medium", "high"] {
            let table = [
                (0, json!([issue]), (false, 1)),
                (1, json!([issue, issue]), (false, 2)),
                (3, json!([issue]), (false, 3)),
                (1, json!([]), (false, 1)),
                (-1, json!([issue]), (false, 1)),
                (-1, json!([]), (false, -1)),
                (0, json!([]), (true, 0)),
                (0, Value::Null, (true, 0)),
            ];
            for (count, listed, expected) in table {
                assert_eq!(of(severity, count, listed.clone()), expected, "{severity}: {count}, {listed}");
            }
        }
    }

    #[test]
    fn answers_have_the_numbers_and_records_what_was_found() {
        let mut found = project(0, 0, 1);
        let location = json!({"uri": "src/a.rs", "more": 1});
        found["high"] =
            json!([{"id": "CWE-1", "message": "m", "locations": [location], "priority_score": 7.5}]);
        found["low"] = Value::Null;
        let found: SnykResultsSummary = from_value(&scan(&json!([found]))).unwrap();
        let high = json!([{"id": "CWE-1", "message": "m", "locations": [{"uri": "src/a.rs", "lines": ""}], "priority_score": 7.5}]);
        assert_eq!(json!(found)["results"][0]["high"], high);
        let mut shown = project(0, 0, 1);
        shown["high"] = high;
        let shown = json!({"schema_version": 1, "tool": {"name": "SnykCode", "version": "1.0.0"}, "results": [shown]});
        assert_eq!(json!(ProcessedSnykResults::from(&found)), shown);
        assert_eq!(from_value::<SnykResultsSummary>(&json!(found)).unwrap(), found);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let with = |name: &str, value: Value| {
            let mut found = project(0, 0, 0);
            found[name] = value;
            from_value::<SnykResultsSummary>(&scan(&json!([found]))).unwrap_err().field()
        };
        let table = [
            (with("critical_count", json!(1)), "results[0].critical_count"),
            (with("high_count", json!("1")), "results[0].high_count"),
            (with("high", json!([{"id": "a"}])), "results[0].high[0].message"),
            (
                with("high", json!([{"id": "a", "message": "m", "locations": [{}]}])),
                "results[0].high[0].locations[0].uri",
            ),
        ];
        for (found, expected) in table {
            assert_eq!(found, expected);
        }
        for (value, field) in [
            (json!({"results": []}), "tool"),
            (json!({"tool": {"name": "a", "version": "b"}}), "results"),
            (json!({"tool": {"name": "a"}, "results": []}), "tool.version"),
        ] {
            assert_eq!(from_value::<SnykResultsSummary>(&value).unwrap_err().field(), field);
        }
    }
}
