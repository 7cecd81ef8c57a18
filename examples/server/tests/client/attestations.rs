//! Attestations of trails and artifacts, and their effect on compliance.

use serde_json::{Value, json};

use crate::fixture::{Fixture, TO, from_xtask};

/// Returns the command that reads the attestations of this name in `trail-1`.
pub(crate) fn read(name: &str) -> [&str; 7] {
    ["get", "attestation", name, TO[0], TO[1], TO[2], TO[3]]
}

/// Returns the client's output for an attestation without a commit.
pub(crate) fn shown(name: &str, kind: &str, is_compliant: bool) -> String {
    format!(
        "Name: {name}\nType: {kind}\nCompliance: {is_compliant}\nCreated at: THEN\n\
         Attestation URL: HOST/acme/flows/delivery/trails/trail-1?attestation_id=ID"
    )
}

/// Returns the client's output for an attestation that names the commit.
pub(crate) fn shown_of_commit(fixture: &Fixture, name: &str, kind: &str, is_compliant: bool) -> String {
    format!(
        "Name: {name}\nType: {kind}\nCompliance: {is_compliant}\nCreated at: THEN\nGit Commit Info:\nSha1: {}\n\
         Author: Ada <ada@example.com>\nBranch: main\nCommit URL:\nTimestamp: THEN\n\
         Attestation URL: HOST/acme/flows/delivery/trails/trail-1?attestation_id=ID",
        fixture.commit
    )
}

/// Returns the path of a link in a response.
fn path(link: &Value) -> String {
    let (_, path) = link["href"].as_str().unwrap().split_once("/api/").unwrap();
    format!("/api/{path}")
}

pub(crate) fn a_trail_becomes_compliant_by_what_is_attested(fixture: &mut Fixture) {
    fixture.begin();
    let (_, fingerprint) = fixture.attest_artifact(&[]);
    let state = |fixture: &Fixture| {
        fixture.reads(&["get", "trail", "trail-1", "--flow", "delivery"])["compliance_state"].clone()
    };
    let results = from_xtask("EVIDENCE_TEST_RESULTS");
    let junit = ["attest", "junit", "--name", "tests", "--results-dir", results.to_str().unwrap()];
    let said = |name: &str| format!("attestation '{name}' is reported to trail: trail-1");
    fixture.says(&[&junit[..], &TO].concat(), &said("tests"));
    fixture.prints(&read("tests"), &shown("tests", "junit", true));
    assert_eq!(state(fixture), "INCOMPLETE");

    // With two files, which the client packs, and with one.
    let (log, data) = (fixture.file("log.txt", "nothing found"), fixture.file("data.json", r#"{"n": [1]}"#));
    let of_artifact = ["--fingerprint", &fingerprint];
    let scan = ["attest", "generic", "--name", "scan", "--user-data", &data, "--description", "Clean"];
    let links = ["--external-url", "log=https://x.org", "--annotate", "tool=own", "--attachments", &log];
    fixture.says(&[&scan[..], &of_artifact, &links, &TO].concat(), &said("scan"));
    let of_content = ["get", "attestation", "scan", "--flow", "delivery", "--fingerprint", &fingerprint];
    fixture.prints(
        &of_content,
        &format!(
            "Name: scan\nType: generic\nCompliance: true\nCreated at: THEN\nArtifact fingerprint: {fingerprint}\n\
             Attestation URL: HOST/acme/flows/delivery/trails/trail-1?attestation_id=ID"
        ),
    );
    let found = &fixture.reads(&of_content)[0];
    assert_eq!((&found["user_data"], &found["description"]), (&json!({"n": [1]}), &json!("Clean")));
    assert_eq!(
        (&found["annotations"], &found["attachments"][0]["file_name"]),
        (&json!({"tool": "own"}), &json!("log.txt"))
    );
    let (status, answer) =
        fixture.server.call("GET", &path(&found["_links"]["evidence"]), "application/json", "");
    assert_eq!((status, answer.ends_with("\r\n\r\nnothing found")), (200, true), "{answer}");
    assert_eq!(state(fixture), "COMPLIANT");
    let several = format!("{log},{data}");
    let named_false = ["attest", "generic", "--name", "false", "--attachments", &several];
    fixture.says(&[&named_false[..], &TO].concat(), &said("false"));
    let found = &fixture.reads(&read("false"))[0];
    assert_eq!(
        (&found["is_compliant"], &found["attachments"][0]["file_name"]),
        (&json!(true), &json!("evidence.tgz"))
    );

    // By its id, and by unknown names and ids.
    let id = found["attestation_id"].as_str().unwrap();
    let by_id = ["get", "attestation", "--attestation-id", id];
    fixture.prints(&by_id, &shown("false", "generic", true));
    assert_eq!(fixture.reads(&by_id)["data"][0]["attestation_id"], id);
    let none = "No attestations found.";
    fixture.prints(&read("unknown"), none);
    assert_eq!(fixture.reads(&read("unknown")), json!([]));
    fixture.prints(&["get", "attestation", "--attestation-id", "00000000-0000-0000-0000-00000000"], none);
    let elsewhere = ["get", "attestation", "x", "--flow", "delivery", "--trail", "foo"];
    let unknown = "Trail with name 'foo' does not exist for Organization 'acme' and Flow 'delivery'";
    fixture.refuses(&elsewhere, unknown);

    // About an artifact that is built later, by its name and commit.
    let late = ["attest", "generic", "--name", "other.late"];
    let needs = "requires at least one of: specifying the fingerprint";
    let output = fixture.run(&[&late[..], &TO].concat());
    assert!(String::from_utf8_lossy(&output.stderr).contains(needs), "{output:?}");
    fixture.says(&[&late[..], &TO, &["--commit", "HEAD"]].concat(), &said("late"));
    fixture.says(&["get", "trail", "trail-1", "--flow", "delivery"], "reported for other.late");

    // The trail does not have this content.
    let unknown = "f".repeat(64);
    fixture.refuses(
        &[&["attest", "generic", "--name", "x", "--fingerprint", &unknown], &TO[..]].concat(),
        &format!(
            "Artifact with fingerprint {unknown} does not exist in trail \"trail-1\" of flow \"delivery\" \
             belonging to organization \"acme\""
        ),
    );
    // An attestation that no template requires, with a failure; and a trail that does not exist.
    let extra = ["attest", "generic", "--name", "extra", "--compliant=false", "--commit", "HEAD"];
    fixture.says(&[&extra[..], &TO].concat(), &said("extra"));
    fixture.prints(&read("extra"), &shown_of_commit(fixture, "extra", "generic", false));
    assert_eq!(state(fixture), "NON-COMPLIANT");
    let markdown = ["get", "trail", "trail-1", "--flow", "delivery", "--output", "markdown"];
    fixture.says(&markdown, "❌ non-compliant (+)");
    let unbegun = ["--flow", "delivery", "--trail", "unbegun"];
    fixture.does(&[&["attest", "generic", "--name", "x"], &unbegun[..]].concat());
    fixture.says(&["get", "trail", "unbegun", "--flow", "delivery"], "INCOMPLETE");
}

/// A scan in Snyk's format, with one finding.
const SARIF: &str = r#"{
  "$schema": "https://raw.githubusercontent.com/oasis-tcs/sarif-spec/master/Schemata/sarif-schema-2.1.0.json",
  "version": "2.1.0",
  "runs": [{
    "tool": { "driver": {
      "name": "Snyk Open Source", "semanticVersion": "1.2.3", "informationUri": "https://docs.snyk.io/",
      "rules": [{ "id": "S1", "shortDescription": { "text": "High severity - x" } }]
    } },
    "results": [{
      "ruleId": "S1", "level": "error", "message": { "text": "bad" },
      "locations": [{ "physicalLocation": { "artifactLocation": { "uri": "go.mod" } } }]
    }]
  }]
}"#;

pub(crate) fn a_scan_is_overridden(fixture: &mut Fixture) {
    fixture.begin();
    let (_, fingerprint) = fixture.attest_artifact(&[]);
    let about = [&["--name", "scan", "--fingerprint", &fingerprint], &TO[..]].concat();
    let scan = fixture.file("scan.sarif", SARIF);
    let attest = [&["attest", "snyk", "--scan-results", &scan], &about[..]].concat();
    fixture.says(&attest, "snyk attestation 'scan' is reported to trail: trail-1");
    let read_scan = ["get", "attestation", "scan", "--fingerprint", &fingerprint, "--flow", "delivery"];
    let found = fixture.reads(&read_scan);
    assert_eq!((&found[0]["attestation_type"], &found[0]["is_compliant"]), (&json!("snyk"), &json!(false)));
    assert_eq!(found[0]["processed_snyk_results"]["results"][0]["high_count"], 1);

    let accept = ["attest", "override", "--reason", "accepted", "--new-compliance-status=true"];
    let exempt = [&accept[..], &["--original-attestation-type", "snyk"], &about].concat();
    fixture.says(&exempt, "attestation 'scan' has been overridden in trail: trail-1");
    let found = fixture.reads(&read_scan);
    assert_eq!((&found[0]["is_compliant"], &found[0]["reason"]), (&json!(true), &json!("accepted")));
    assert_eq!(found[1]["is_compliant"], false);
    let trail = fixture.reads(&["get", "trail", "trail-1", "--flow", "delivery"]);
    let status = &trail["compliance_status"]["artifacts_statuses"]["binary"]["attestations_statuses"][0];
    assert_eq!(
        (&status["is_compliant"], &status["attestation_id"]),
        (&json!(true), &found[1]["attestation_id"])
    );
    assert_eq!(status["overridden_attestation_id"], found[0]["attestation_id"]);

    // An attestation that was never reported can be overridden as well, with or without a commit.
    let reject = ["attest", "override", "--reason", "missing", "--original-attestation-type", "generic"];
    fixture.does(
        &[&reject[..], &["--name", "never", "--new-compliance-status=false", "--commit", "HEAD"], &TO]
            .concat(),
    );
    fixture.prints(&read("never"), &shown_of_commit(fixture, "never", "generic", false));
    // A custom type is identified by its name.
    let custom =
        [&accept[..], &["--name", "x", "--original-attestation-type"], &["custom:person"], &TO].concat();
    fixture.does(&custom);
    assert_eq!(fixture.reads(&read("x"))[0]["original_attestation_type"], "custom:person");
    fixture.refuses(
        &[&accept[..], &["--name", "x", "--original-attestation-type", "custom"], &TO].concat(),
        "Input payload validation failed: map[original_attestation_type:Input should be 'generic', 'junit', …",
    );
}

pub(crate) fn a_bill_of_materials(fixture: &mut Fixture) {
    fixture.begin();
    let bill = r#"{"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": []}"#;
    let bill = fixture.file("bill.json", bill);
    let attest = [&["attest", "sbom", "--name", "bill", "--sbom-file", &bill], &TO[..]].concat();
    fixture.says(&attest, "sbom attestation 'bill' is reported to trail: trail-1");
    fixture.prints(&read("bill"), &shown("bill", "system:sbom", true));
    let found = &fixture.reads(&read("bill"))[0];
    assert_eq!(found["attachments"][0]["file_name"], "bill.json");
    assert_eq!(found["annotations"]["sbom_sha256"], found["attachments"][0]["sha256"]);
}
