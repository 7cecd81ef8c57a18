//! Environments, their snapshots, and their policies.

use serde_json::json;

use crate::fixture::Fixture;

const POLICY: &str = "\
_schema: https://example.com/schemas/policy/environment/v1
artifacts:
  provenance:
    required: true
";

pub(crate) fn an_environment_its_snapshots_and_what_is_allowed_there(fixture: &mut Fixture) {
    fixture.begin();
    let (file, fingerprint) = fixture.attest_artifact(&[]);
    fixture
        .says(&["create", "environment", "prod", "--type", "server", "--description", "Live"], "was created");
    fixture.does(&["create", "environment", "all", "--type", "logical"]);
    fixture.does(&["join", "environment", "--logical", "all", "--physical", "prod"]);
    assert_eq!(fixture.reads(&["get", "environment", "prod"])["type"], "server");
    fixture.says(&["get", "environment", "prod"], "Live");
    assert_eq!(fixture.reads(&["list", "environments"])[1]["name"], "prod");
    fixture.says(&["list", "environments"], "prod");

    fixture.says(&["snapshot", "server", "prod", "--paths", &file], "[1] artifacts were reported");
    let stranger = fixture.file("stranger", "unknown to every trail");
    fixture.says(
        &["snapshot", "path", "prod", "--path", &stranger, "--name", "stranger"],
        "[1] artifacts were reported",
    );
    let snapshots = fixture.reads(&["list", "snapshots", "prod"]);
    assert_eq!((&snapshots[0]["index"], &snapshots[1]["index"]), (&json!(2), &json!(1)));
    fixture.does(&["list", "snapshots", "prod"]);
    let first = fixture.reads(&["get", "snapshot", "prod#1"]);
    assert_eq!(first["artifacts"][0]["fingerprint"], fingerprint);
    assert_eq!(first["artifacts"][0]["flow_name"], "delivery");
    fixture.says(&["get", "snapshot", "prod"], "stranger");
    let tool = fixture.file("hammer", "another that no trail knows");
    let paths = format!("version: 1\nartifacts:\n  tool:\n    path: {tool}\n");
    let paths = fixture.file("paths.yml", &paths);
    fixture.says(&["snapshot", "paths", "prod", "--paths-file", &paths], "[1] artifacts were reported");
    fixture.says(&["get", "snapshot", "prod"], "tool");

    // The logical environment contains the artifacts of its member.
    assert_eq!(fixture.reads(&["list", "snapshots", "all"]), fixture.reads(&["list", "snapshots", "prod"]));
    let first = fixture.reads(&["get", "snapshot", "all#1"]);
    assert_eq!(
        (&first["type"], &first["artifacts"][0]["fingerprint"]),
        (&json!("logical"), &json!(fingerprint))
    );
    fixture.says(&["get", "snapshot", "all"], "tool");
    fixture.says(&["log", "environment", "all"], "started running in prod");
    let diff = fixture.reads(&["diff", "snapshots", "all~1", "prod~1"]);
    assert_eq!(diff["not-changed"]["artifacts"].as_array().map(Vec::len), Some(1));

    let allow = ["allow", "artifact", &stranger, "--artifact-type", "file", "--environment", "prod"];
    fixture.does(&[&allow[..], &["--reason", "a known tool"]].concat());
}

pub(crate) fn a_policy_decides_whether_a_snapshot_complies(fixture: &mut Fixture) {
    fixture.begin();
    let (file, _) = fixture.attest_artifact(&[]);
    fixture.does(&["create", "environment", "prod", "--type", "server"]);
    let policy = fixture.file("policy.yml", POLICY);
    fixture.says(&["create", "policy", "known-only", &policy], "was created");
    fixture.says(&["attach-policy", "known-only", "--environment", "prod"], "attached");
    assert_eq!(fixture.reads(&["get", "policy", "known-only"])["name"], "known-only");
    fixture.says(&["get", "policy", "known-only"], "known-only");
    assert_eq!(fixture.reads(&["list", "policies"])[0]["name"], "known-only");
    fixture.says(&["list", "policies"], "known-only");

    fixture.does(&["snapshot", "server", "prod", "--paths", &file]);
    fixture.says(&["assert", "snapshot", "prod"], "COMPLIANT");
    let artifact = ["assert", "artifact", &file, "--artifact-type", "file"];
    fixture.says(&[&artifact[..], &["--environment", "prod"]].concat(), "COMPLIANT");
    fixture.says(&[&artifact[..], &["--policy", "known-only"]].concat(), "COMPLIANT");
    let stranger = fixture.file("stranger", "unknown to every trail");
    fixture.does(&["snapshot", "server", "prod", "--paths", &stranger]);
    let output = fixture.run(&["assert", "snapshot", "prod"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("NON-COMPLIANT"), "{output:?}");
}

pub(crate) fn what_happened_is_logged_and_compared(fixture: &mut Fixture) {
    fixture.begin();
    let (file, fingerprint) = fixture.attest_artifact(&[]);
    fixture.does(&["create", "environment", "prod", "--type", "server"]);
    fixture.says(&["log", "environment", "prod"], "No environment events were found");
    let refused = fixture.run(&["diff", "snapshots", "prod", "prod~1"]);
    assert!(!refused.status.success());
    let stranger = fixture.file("stranger", "unknown to every trail");
    fixture.does(&["snapshot", "server", "prod", "--paths", &file]);
    fixture.does(&["snapshot", "server", "prod", "--paths", &stranger]);

    let events = fixture.reads(&["log", "environment", "prod"]);
    let told = Vec::from_iter(events.as_array().unwrap().iter().map(|event| event["description"].clone()));
    let started = "1 instance started running (from 0 to 1)";
    assert_eq!(told, [started, "1 instance stopped running (from 1 to 0)", started]);
    fixture.says(&["log", "environment", "prod"], "stopped running");
    let first = fixture.reads(&["log", "environment", "prod", "--interval", "1"]);
    assert_eq!((&first[0]["sha256"], &first[0]["pipeline"]), (&json!(fingerprint), &json!("delivery")));

    let diff = fixture.reads(&["diff", "snapshots", "prod#1", "prod"]);
    assert_eq!(diff["snappish1"]["snapshot_id"], "prod#1");
    assert_eq!(diff["snappish1"]["artifacts"][0]["fingerprint"], fingerprint);
    assert_eq!(diff["snappish2"]["artifacts"].as_array().map(Vec::len), Some(1));
    fixture.says(&["diff", "snapshots", "prod~1", "prod~0"], "stranger");
}

pub(crate) fn an_environment_is_renamed_and_archived(fixture: &mut Fixture) {
    fixture.does(&["create", "environment", "prod", "--type", "server"]);
    let policy = fixture.file("policy.yml", POLICY);
    fixture.does(&["create", "policy", "known-only", &policy]);
    fixture.does(&["attach-policy", "known-only", "--environment", "prod"]);
    let stranger = fixture.file("stranger", "unknown to every trail");
    fixture.does(&["snapshot", "server", "prod", "--paths", &stranger]);
    assert!(!fixture.run(&["assert", "snapshot", "prod"]).status.success());
    fixture.says(&["detach-policy", "known-only", "--environment", "prod"], "detached");
    assert_eq!(fixture.reads(&["get", "environment", "prod"])["policies"], json!([]));

    fixture.says(&["rename", "environment", "prod", "live"], "live");
    assert_eq!(fixture.reads(&["get", "environment", "prod"])["name"], "live");
    fixture.says(&["archive", "environment", "live"], "was archived");
    let output = fixture.run(&["get", "environment", "live"]);
    let text = "Environment named 'live' has been archived for organization";
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains(text), "{output:?}");
    fixture.does(&["create", "environment", "live", "--type", "docker"]);
    assert_eq!(fixture.reads(&["get", "environment", "live"])["type"], "docker");
}

pub(crate) fn an_environment_is_tagged(fixture: &mut Fixture) {
    fixture.does(&["create", "environment", "prod", "--type", "server"]);
    fixture.does(&["tag", "env", "prod", "--set", "region=north"]);
    assert_eq!(fixture.reads(&["get", "environment", "prod"])["tags"], json!({ "region": "north" }));
}
