//! The details of an attestation's type in the report: tables for some types, names and values for the
//! others.

use crate::attestations::details::{CustomDetails, Details, JunitSuite};
use crate::attestations::jira::JiraItem;
use crate::attestations::pull_requests::PullRequest;
use crate::attestations::snyk::SnykResultsSummary;
use crate::attestations::sonar::SonarResults;
use crate::bounded::or_empty;
use crate::json::JsonText;
use crate::pdf;
use crate::texts::record::TextRef;

/// Returns the part for the attestation's type. For data stored separately, shows only the size and the
/// digest.
pub(super) fn shown(details: &Details, data: Option<TextRef>) -> pdf::Details {
    let note = data
        .map(|data| format!("{} bytes, which this report does not show; SHA-256 {}", data.size, data.sha256));
    let facts: Vec<(String, String)> = match details {
        Details::Snyk(details) => {
            let findings = note.map(|note| fact("findings", note));
            scan(&details.snyk_results).into_iter().chain(findings).collect()
        }
        Details::Custom(details) => evaluation(details, note),
        other if note.is_some() => {
            let key = other.data_key().unwrap_or_default();
            let fields = other.clone().view_without_data().fields();
            let shown = |(name, value): (&str, &JsonText)| match &note {
                Some(note) if name == key => fact(name, note.as_str()),
                _ => fact(name, text(value)),
            };
            fields.iter().map(shown).collect()
        }
        Details::Junit(details) => {
            return pdf::Details::Suites(details.junit_results.iter().cloned().map(suite).collect());
        }
        Details::PullRequest(details) => {
            let pull_requests = details.pull_requests.iter().cloned().map(pull_request).collect();
            return pdf::Details::PullRequests(pull_requests);
        }
        Details::Jira(details) => details.jira_results.iter().map(issue).collect(),
        Details::Sonar(details) => analysis(&details.sonar_results),
        other => {
            other.clone().view().fields().iter().map(|(name, value)| (name.to_owned(), text(value))).collect()
        }
    };
    if facts.is_empty() { pdf::Details::None } else { pdf::Details::Facts(facts) }
}

/// Returns the value if it is a string, otherwise its JSON.
fn text(value: &JsonText) -> String {
    serde_json::from_str::<String>(value.as_str()).unwrap_or_else(|_| value.to_string())
}

fn fact(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

fn issue(issue: &JiraItem) -> (String, String) {
    let exists = if issue.issue_exists { "exists" } else { "does not exist" };
    fact(&issue.issue_id, format!("{exists} ({})", issue.issue_url))
}

fn scan(found: &SnykResultsSummary) -> Vec<(String, String)> {
    let tool = fact("tool", format!("{} {}", found.tool.name, found.tool.version));
    let project = |(number, [low, medium, high]): (usize, [i64; 3])| {
        fact(&format!("project {}", number + 1), format!("{high} high, {medium} medium, {low} low"))
    };
    [tool].into_iter().chain(found.counts().enumerate().map(project)).collect()
}

fn analysis(results: &SonarResults) -> Vec<(String, String)> {
    let gate = results.quality_gate.as_ref();
    let mut facts = vec![
        fact("project", results.project.key.as_str()),
        fact("address", results.project.url.as_str()),
        fact("analysed at", results.analysed_at.as_str()),
        fact("revision", results.revision.as_str()),
        fact("quality gate", gate.map_or("none", |gate| gate.status.as_str())),
    ];
    facts.extend(results.status.as_ref().map(|status| fact("task", status.as_str())));
    let conditions = gate.into_iter().flat_map(|gate| &gate.conditions.0);
    facts.extend(conditions.map(|one| {
        let value = or_empty(one.value.as_deref());
        fact(&one.metric, format!("{} ({value} {} {})", one.status, one.operator, one.error_threshold))
    }));
    facts
}

/// Returns the facts of a custom attestation. For data stored separately, shows the note.
fn evaluation(details: &CustomDetails, note: Option<String>) -> Vec<(String, String)> {
    let mut facts = vec![
        fact("type_name", details.type_name.as_str()),
        fact("type_version", details.type_version.to_string()),
        fact("attestation_data", note.unwrap_or_else(|| details.attestation_data.to_string())),
    ];
    facts.extend(details.summary.iter().map(|row| {
        let item = row.item.map(|item| format!(" ({})", item.saturating_add(1))).unwrap_or_default();
        fact(&format!("{}{item}", row.name), row.shown())
    }));
    facts.extend(details.rule_results.iter().zip(1..).map(|(result, number)| {
        let message = result.message.as_ref().map(|message| format!(" ({message})")).unwrap_or_default();
        let text = result.rule.as_ref().map(|rule| format!("{rule}: ")).unwrap_or_default();
        fact(&format!("rule {number}"), format!("{text}{}{message}", result.outcome.as_str()))
    }));
    facts
}

fn suite(suite: JunitSuite) -> pdf::Suite {
    pdf::Suite {
        total: suite.total,
        failures: suite.failures,
        errors: suite.errors,
        skipped: suite.skipped,
        duration: suite.duration,
        name: suite.name.into_string(),
    }
}

fn pull_request(one: PullRequest) -> pdf::PullRequest {
    pdf::PullRequest {
        url: one.url.into_string(),
        state: one.state.into_string(),
        title: or_empty(one.title.as_deref()),
        author: or_empty(one.author.as_deref()),
        head_ref: or_empty(one.head_ref.as_deref()),
        merge_commit: one.merge_commit.map(|sha| sha.as_str().to_owned()).unwrap_or_default(),
        created_at: one.created_at.map(|at| at.0),
        merged_at: one.merged_at.map(|at| at.0),
        approvers: one
            .approvers
            .items
            .into_iter()
            .map(|approver| pdf::Approver {
                name: approver.username.into_string(),
                state: or_empty(approver.state.as_deref()),
                at: approver.timestamp.map(|at| at.0),
            })
            .collect(),
        commits: one.commits.0.iter().map(super::commit).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_without_a_table_shows_names_and_values() {
        let shown = |details: &str| match shown(&serde_json::from_str(details).unwrap(), None) {
            pdf::Details::Facts(facts) => {
                facts.into_iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
            }
            other => panic!("{other:?}"),
        };
        let table: [(&str, &[&str]); 5] = [
            (
                r#"{"type":"jira","jira_results":[{"issue_id":"ML-1","issue_url":"u","issue_exists":true},
                    {"issue_id":"ML-2","issue_url":"v","issue_exists":false}]}"#,
                &["ML-1: exists (u)", "ML-2: does not exist (v)"],
            ),
            (
                r#"{"type":"snyk","snyk_results":{"tool":{"name":"Snyk","version":"1"},"results":[
                    {"low_count":1,"medium_count":2,"high_count":3}]}}"#,
                &["tool: Snyk 1", "project 1: 3 high, 2 medium, 1 low"],
            ),
            (
                r#"{"type":"sonar","sonar_results":{"status":"FAILED","analysedAt":"1","revision":"r","project":{"key":"k","url":"u"},
                    "qualityGate":{"status":"ERROR","conditions":[
                        {"metric":"coverage","errorThreshold":"80","operator":"LESS_THAN","status":"ERROR","value":"7"}]}}}"#,
                &[
                    "project: k",
                    "address: u",
                    "analysed at: 1",
                    "revision: r",
                    "quality gate: ERROR",
                    "task: FAILED",
                    "coverage: ERROR (7 LESS_THAN 80)",
                ],
            ),
            (
                r#"{"type":"custom","type_name":"t","type_id":"01234567-89ab-cdef-0123-456789ab","type_version":2,
                    "attestation_data":{"n":1},"rule_results":[{"outcome":"passed"},
                        {"rule":".n | f","outcome":"limit","message":"fuel"},{"outcome":"skipped"}],
                    "summary":[{"name":"Score","values":[1e400]},{"name":"By","item":0,"values":["ann \"x\"",null]},
                        {"name":"By","item":1,"values":[],"error":"no name"}]}"#,
                &[
                    "type_name: t",
                    "type_version: 2",
                    "attestation_data: {\"n\":1}",
                    "Score: 1e400",
                    "By (1): ann \"x\", null",
                    "By (2): error: no name",
                    "rule 1: passed",
                    "rule 2: .n | f: limit (fuel)",
                    "rule 3: skipped",
                ],
            ),
            (r#"{"type":"of tomorrow","n":1e400}"#, &["type: of tomorrow", "n: 1e400"]),
        ];
        for (details, expected) in table {
            assert_eq!(shown(details), expected);
        }
    }

    #[test]
    fn of_data_that_are_stored_apart_the_size_and_the_digest_are_shown() {
        let data = TextRef::of(&"x".repeat(70_000));
        let note = format!("70000 bytes, which this report does not show; SHA-256 {}", data.sha256);
        let table = [
            (r#"{"type":"junit","junit_results":[]}"#, "junit_results"),
            (r#"{"type":"pull_request","git_provider":"github","pull_requests":[]}"#, "pull_requests"),
            (r#"{"type":"jira","jira_results":[]}"#, "jira_results"),
            (r#"{"type":"sbom","attestation_data":null}"#, "attestation_data"),
            (
                r#"{"type":"custom","type_name":"t","type_id":"01234567-89ab-cdef-0123-456789ab","type_version":2,
                    "attestation_data":null,"rule_results":[]}"#,
                "attestation_data",
            ),
            (
                r#"{"type":"snyk","snyk_results":{"tool":{"name":"Snyk","version":"1"},"results":[]}}"#,
                "findings",
            ),
        ];
        for (details, key) in table {
            let pdf::Details::Facts(facts) = shown(&serde_json::from_str(details).unwrap(), Some(data))
            else {
                panic!("{details}")
            };
            assert!(facts.contains(&(key.to_owned(), note.clone())), "{details}: {facts:?}");
        }
    }

    #[test]
    fn counts_are_shown_as_they_were_recorded() {
        let count = -1;
        let recorded = JunitSuite {
            name: "s".parse().unwrap(),
            failures: count,
            errors: count,
            skipped: count,
            total: i64::MIN,
            duration: 0.5,
            timestamp: None,
        };
        let pdf::Suite { total, failures, errors, skipped, .. } = suite(recorded);
        let shown = [failures, errors, skipped, total].map(|count| count.to_string());
        assert_eq!(shown, ["-1", "-1", "-1", "-9223372036854775808"]);
    }
}
