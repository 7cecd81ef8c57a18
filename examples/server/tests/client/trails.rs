//! Trails.

use std::process::Command;

use serde_json::json;

use crate::fixture::{Fixture, TEMPLATE};

pub(crate) fn a_trail_and_what_happened_to_it(fixture: &mut Fixture) {
    fixture.create_flow();
    let flow = ["--flow", "delivery"];
    let data = fixture.file("data.json", r#"{"build": [1, "two"]}"#);
    let begin = ["begin", "trail", "trail-1", "--commit", "HEAD"];
    let about = [
        "--description",
        "First",
        "--origin-url",
        "https://ci.example.com/1",
        "--external-url",
        "log=https://ci.example.com/log",
        "--user-data",
        &data,
    ];
    fixture.says(&[&begin[..], &flow, &about].concat(), "trail 'trail-1' was begun");
    let again = [&begin[..], &flow, &["--description", "Again"]].concat();
    fixture.says(&again, "trail 'trail-1' was updated");

    let get = [&["get", "trail", "trail-1"], &flow[..]].concat();
    let (sha, short) = (&fixture.commit, &fixture.commit[..7]);
    let table = format!(
        "Name: trail-1\nDescription: Again\nCompliance: INCOMPLETE\nLast modified at: THEN\nGit commit:\n\
         Sha1: {sha}\nAuthor: Ada <ada@example.com>\nTimestamp: THEN\nurl:\nmessage: PROJ-1 Begin\n\
         Events:\nTIME DESCRIPTION GIT-COMMIT COMPLIANCE\n\
         THEN trail started {short}\nTHEN trail updated {short}"
    );
    fixture.prints(&get, &table);
    let trail = fixture.reads(&get);
    assert_eq!(trail["compliance_state"], "INCOMPLETE");
    assert_eq!(trail["git_commit_info"]["sha1"], *sha);
    // Values that the second report omits stay.
    assert_eq!(trail["user_data"], json!({"build": [1, "two"]}));
    assert_eq!(trail["external_urls"]["log"]["href"], "https://ci.example.com/log");
    assert_eq!(trail["compliance_status"]["attestations_statuses"][0]["status"], "MISSING");
    let markdown = [&get[..], &["--output", "markdown"]].concat();
    fixture.says(&markdown, "| Compliance | ⏳ INCOMPLETE |");
    fixture.says(&markdown, "| Origin | https://ci.example.com/1 |");
    fixture.says(&markdown, "**binary** — ⏳ MISSING");

    // A separate template, no commit, and a commit without the excluded fields.
    fixture.does(&["create", "flow", "empty", "--use-empty-template"]);
    let template = fixture.file("template.yml", TEMPLATE);
    let own = ["begin", "trail", "own", "--flow", "empty", "--template-file", &template];
    fixture.says(&own, "trail 'own' was begun");
    assert_eq!(fixture.reads(&["get", "trail", "own", "--flow", "empty"])["compliance_state"], "INCOMPLETE");
    fixture.says(&["begin", "trail", "bare", "--flow", "empty"], "trail 'bare' was begun");
    fixture.prints(
        &["get", "trail", "bare", "--flow", "empty"],
        "Name: bare\nDescription:\nCompliance: COMPLIANT\nLast modified at: THEN\n\
         Events:\nTIME DESCRIPTION GIT-COMMIT COMPLIANCE\nTHEN trail started",
    );
    let redacted = ["--commit", "HEAD", "--redact-commit-info", "author,message,branch"];
    fixture.does(&[&["begin", "trail", "silent"], &flow[..], &redacted].concat());
    let silent = fixture.reads(&[&["get", "trail", "silent"], &flow[..]].concat());
    assert_eq!(silent["git_commit_info"]["author"], "**REDACTED**");

    let unknown = "Trail with name 'foo' does not exist for Organization 'acme' and Flow 'delivery'";
    fixture.refuses(&[&["get", "trail", "foo"], &flow[..]].concat(), unknown);
    let unknown = "Flow named 'nowhere' does not exist for organization 'acme'";
    fixture.refuses(&["get", "trail", "foo", "--flow", "nowhere"], unknown);
    let pattern = r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\-_.~]*$' [input: foo?$bar]";
    fixture.refuses(
        &[&["begin", "trail", "foo?$bar"], &flow[..]].concat(),
        &format!("Input payload validation failed: map[name:{pattern}]"),
    );
    let wrong = "version: 1\ntrail:\n  attestations: [{name: bar, type: not-supported}, {type: generic}]\n";
    let wrong = fixture.file("wrong.yml", wrong);
    fixture.refuses(
        &[&["begin", "trail", "wrong", "--template-file", &wrong], &flow[..]].concat(),
        "Input payload validation failed: map[template_file:2 validation errors for Template\n…",
    );
}

pub(crate) fn trails_over_the_history_of_this_repository(fixture: &mut Fixture) {
    // A plain clone, regardless of the form of the checkout in which the tests run.
    let clone = fixture.repo.with_file_name("history");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let cloned = Command::new("git").args(["clone", "--quiet", source]).arg(&clone).status().unwrap();
    assert!(cloned.success());
    fixture.repo = clone;

    fixture.create_flow();
    let list = |options: &[&'static str]| [&["list", "trails"], options].concat();
    fixture.prints(&list(&[]), "No trails were found.");
    let empty = fixture.reads(&list(&[]));
    assert_eq!(empty["pagination"], json!({"total": 0, "page": 1, "per_page": 20, "page_count": 0}));
    let commits = fixture.git(&["log", "-n", "3", "--format=%H"]);
    for commit in commits.lines() {
        let begin = ["begin", "trail", commit, "--flow", "delivery", "--commit", commit];
        fixture.says(&begin, &format!("trail '{commit}' was begun"));
        let trail = fixture.reads(&["get", "trail", commit, "--flow", "delivery"]);
        assert_eq!(trail["git_commit_info"]["sha1"], commit);
    }
    fixture.does(&["create", "flow", "other", "--use-empty-template"]);
    fixture.does(&["begin", "trail", "trail-1", "--flow", "other", "--description", "Alone"]);
    let count = commits.lines().count();
    let head = "NAME DESCRIPTION COMPLIANCE";

    // Newest first.
    let all = fixture.reads(&list(&[]));
    assert_eq!(
        (&all["data"][0]["name"], &all["pagination"]["total"]),
        (&json!("trail-1"), &json!(count + 1))
    );
    fixture.prints(
        &list(&["--flow", "other"]),
        &format!("{head}\ntrail-1 Alone COMPLIANT\nShowing page 1 of 1, total 1 items"),
    );
    let of_delivery = list(&["--flow", "delivery", "--page-limit", "1"]);
    assert_eq!(fixture.reads(&of_delivery)["data"][0]["compliance_state"], "INCOMPLETE");
    fixture.says(&of_delivery, &format!("Showing page 1 of {count}, total {count} items"));
    fixture.prints(&list(&["--page", "9"]), "No trails were found at page number 9.");
    fixture.does(&["tag", "flow", "other", "--set", "team=a"]);
    fixture.says(&list(&["--flow-tag", "team=a"]), "Showing page 1 of 1, total 1 items");
    fixture.prints(&list(&["--flow-tag", "team=b"]), "No trails were found.");
    let unknown = "Flow named 'nowhere' does not exist for organization 'acme'";
    fixture.refuses(&list(&["--flow", "nowhere"]), unknown);
}

/// The client evaluates policies on the trail and each of its attestations.
const POLICY: &str = "\
package policy

import rego.v1

default allow := false

reviewed(trail) if trail.compliance_status.attestations_statuses.review.html_url != \"\"

scanned(trail) if trail.compliance_status.artifacts_statuses.binary.attestations_statuses.scan.user_data.tool == \"own\"

allow if {
	reviewed(input.trail)
	scanned(input.trail)
}

allow if {
	every trail in input.trails { reviewed(trail) }
	count(input.trails) > 0
}

violations contains \"not reviewed\" if not allow
";

pub(crate) fn trails_are_evaluated_against_a_policy_of_the_clients(fixture: &mut Fixture) {
    fixture.begin();
    fixture.begin_trail("trail-2");
    let (_, fingerprint) = fixture.attest_artifact(&[]);
    let policy = fixture.file("policy.rego", POLICY);
    let options = ["--flow", "delivery", "--policy", &policy];
    let one = [&["evaluate", "trail", "trail-1"], &options[..]].concat();
    fixture.refuses(&one, "policy denied: [not reviewed]");
    let data = fixture.file("data.json", r#"{"tool": "own"}"#);
    let scan = ["attest", "generic", "--name", "scan", "--fingerprint", &fingerprint, "--user-data", &data];
    let to = ["--flow", "delivery", "--trail"];
    fixture.does(&[&scan[..], &to, &["trail-1"]].concat());
    let review = ["attest", "generic", "--name", "review"];
    fixture.does(&[&review[..], &to, &["trail-1"]].concat());
    fixture.prints(&one, "RESULT: ALLOWED");
    let shown = fixture.reads(&[&one[..], &["--show-input"]].concat());
    assert_eq!(shown["allow"], true);
    let review_seen = &shown["input"]["trail"]["compliance_status"]["attestations_statuses"]["review"];
    assert_eq!(review_seen["attestation_name"], "review");

    let both = [&["evaluate", "trails", "trail-1", "trail-2"], &options[..]].concat();
    fixture.refuses(&both, "policy denied: [not reviewed]");
    fixture.does(&[&review[..], &to, &["trail-2"]].concat());
    fixture.prints(&both, "RESULT: ALLOWED");
    assert_eq!(fixture.reads(&both)["allow"], true);
    let unknown = "Trail with name 'foo' does not exist for Organization 'acme' and Flow 'delivery'";
    fixture.refuses(&[&["evaluate", "trail", "foo"], &options[..]].concat(), unknown);
    fixture.refuses(&[&["evaluate", "trails", "trail-1", "foo"], &options[..]].concat(), unknown);
}
