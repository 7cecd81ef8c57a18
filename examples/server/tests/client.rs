//! The public command-line client drives the server over this repository's own history: what an unrelated program
//! sends is accepted, what it reads it finds. `cargo xtask client` fetches the client and says where it is.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use support::{Database, ORG, Server};
use tempfile::TempDir;

const TEMPLATE: &str = "\
version: 1
trail:
  attestations:
    - name: tests
      type: junit
  artifacts:
    - name: binary
      attestations:
        - name: scan
          type: generic
";
const POLICY: &str = "\
_schema: https://example.com/schemas/policy/environment/v1
artifacts:
  provenance:
    required: true
";

/// A server, the client, and a clone of this repository that the client runs in.
struct ClientFixture {
    server: Server,
    client: PathBuf,
    directory: TempDir,
}

impl ClientFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        // A plain clone, whatever form the checkout has that the tests run in.
        let cloned = Command::new("git")
            .args(["clone", "--quiet", concat!(env!("CARGO_MANIFEST_DIR"), "/../.."), "repo"])
            .current_dir(&directory)
            .status()
            .unwrap();
        assert!(cloned.success());
        Self {
            server: Server::start(&Database::default()),
            client: from_xtask("EVIDENCE_TEST_CLIENT"),
            directory,
        }
    }

    fn repo(&self) -> PathBuf {
        self.directory.path().join("repo")
    }

    /// A file with this content, beside the clone.
    fn file(&self, name: &str, content: &str) -> String {
        let file = self.directory.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, content).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(&self.client)
            .args(arguments)
            .current_dir(self.repo())
            .env_clear()
            .envs([
                ("HOME", self.directory.path().to_str().unwrap()),
                ("KOSLI_HOST", &format!("http://{}", self.server.address)),
                ("KOSLI_API_TOKEN", &self.server.key),
                ("KOSLI_ORG", ORG),
            ])
            .output()
            .unwrap()
    }

    /// Runs a command that must succeed; answers what it printed.
    fn does(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let printed = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {printed}{stderr}");
        printed + &stderr
    }

    /// Runs a command that must succeed and say this.
    fn says(&self, arguments: &[&str], expected: &str) {
        let printed = self.does(arguments);
        assert!(printed.contains(expected), "{arguments:?} does not say {expected:?}: {printed}");
    }

    /// Runs a command that must fail and say this.
    fn refuses(&self, arguments: &[&str], expected: &str) {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(stderr.contains(expected), "{arguments:?} does not say {expected:?}: {stderr}");
    }

    /// What a command answers as JSON.
    fn reads(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--output", "json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git").args(arguments).current_dir(self.repo()).output().unwrap();
        assert!(output.status.success(), "git {arguments:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    fn create_flow(&self) {
        let template = self.file("template.yml", TEMPLATE);
        self.says(&["create", "flow", "delivery", "--template-file", &template], "was created");
    }

    fn begin_trail(&self, trail: &str, commit: &str) {
        let begin = ["begin", "trail", trail, "--flow", "delivery", "--commit", commit];
        self.says(&begin, "was begun");
    }

    /// Attests a file as the artifact `binary` of a trail; answers the file and its fingerprint.
    fn attest_artifact(&self, trail: &str) -> (String, String) {
        let file = self.file("binary", "the program");
        let fingerprint = self.does(&["fingerprint", &file, "--artifact-type", "file"]).trim().to_owned();
        let known = ["--flow", "delivery", "--trail", trail, "--name", "binary", "--commit", "HEAD"];
        let links =
            ["--build-url", "https://ci.example.com/1", "--commit-url", "https://git.example.com/c/1"];
        let attest = ["attest", "artifact", &file, "--artifact-type", "file"];
        self.says(&[&attest[..], &known, &links].concat(), &fingerprint);
        (file, fingerprint)
    }
}

fn from_xtask(variable: &str) -> PathBuf {
    let Some(path) = std::env::var_os(variable) else {
        panic!("{variable} is not set: this test is run by `cargo xtask test` and `cargo xtask client`");
    };
    Path::new(&path).to_owned()
}

#[test]
fn the_server_is_found_and_a_stranger_is_refused() {
    let mut fixture = ClientFixture::new();
    fixture.says(&["status"], "OK");
    fixture.server.key = "ev_wrong".to_owned();
    fixture.refuses(&["list", "flows"], "Unauthorized");
}

#[test]
fn a_flow_and_its_trails_over_the_history_of_this_repository() {
    let fixture = ClientFixture::new();
    fixture.create_flow();
    let template = fixture.file("template.yml", TEMPLATE);
    fixture.says(&["create", "flow", "delivery", "--template-file", &template], "was updated");
    let flow = fixture.reads(&["get", "flow", "delivery"]);
    assert_eq!(flow["template"], TEMPLATE);
    assert_eq!(flow["visibility"], "private");
    assert_eq!(fixture.reads(&["list", "flows"])[0]["name"], "delivery");

    let commits = fixture.git(&["log", "-n", "3", "--format=%H"]);
    for commit in commits.lines() {
        fixture.begin_trail(commit, commit);
    }
    fixture.says(&["begin", "trail", "trail-1", "--flow", "delivery", "--commit", "HEAD"], "was begun");
    let again =
        ["begin", "trail", "trail-1", "--flow", "delivery", "--description", "Again", "--commit", "HEAD"];
    fixture.says(&again, "was updated");
    let trail = fixture.reads(&["get", "trail", "trail-1", "--flow", "delivery"]);
    assert_eq!(trail["description"], "Again");
    assert_eq!(trail["compliance_state"], "INCOMPLETE");
    assert_eq!(trail["git_commit_info"]["sha1"], fixture.git(&["rev-parse", "HEAD"]));
    fixture.says(&["get", "trail", "trail-1", "--flow", "delivery"], "INCOMPLETE");
    let trails = fixture.reads(&["list", "trails", "--flow", "delivery"]);
    assert_eq!(trails["data"][0]["name"], "trail-1");
    assert_eq!(trails["pagination"]["total"], commits.lines().count() + 1);
    fixture.refuses(
        &["get", "trail", "nowhere", "--flow", "delivery"],
        "Trail with name 'nowhere' does not exist for Organization 'acme' and Flow 'delivery'",
    );
    fixture.refuses(&["begin", "trail", "foo?$bar", "--flow", "delivery"], "foo?$bar");
}

#[test]
fn an_artifact_its_attestations_and_the_tests_of_this_project() {
    let fixture = ClientFixture::new();
    fixture.create_flow();
    fixture.begin_trail("trail-1", "HEAD");
    let (_, fingerprint) = fixture.attest_artifact("trail-1");
    let by_fingerprint = format!("delivery@{fingerprint}");
    let artifact = fixture.reads(&["get", "artifact", &by_fingerprint]);
    assert_eq!(artifact["state"], "INCOMPLETE");
    fixture.says(&["get", "artifact", &format!("delivery@{}", &fingerprint[..12])], &fingerprint);
    fixture.says(
        &["get", "artifact", &format!("delivery:{}", fixture.git(&["rev-parse", "HEAD"]))],
        &fingerprint,
    );
    fixture.says(&["list", "artifacts", "--flow", "delivery"], &fingerprint);

    let attachment = fixture.file("scan.txt", "nothing found");
    let trail_options = ["--flow", "delivery", "--trail", "trail-1"];
    let scan =
        ["attest", "generic", "--name", "scan", "--fingerprint", &fingerprint, "--attachments", &attachment];
    fixture.says(&[&scan[..], &trail_options].concat(), "scan");

    let results = from_xtask("EVIDENCE_TEST_RESULTS");
    let junit = ["attest", "junit", "--name", "tests", "--results-dir", results.to_str().unwrap()];
    fixture.says(&[&junit[..], &trail_options].concat(), "tests");
    assert_eq!(fixture.reads(&["get", "artifact", &by_fingerprint])["state"], "COMPLIANT");
    let trail = fixture.reads(&["get", "trail", "trail-1", "--flow", "delivery"]);
    assert_eq!(trail["compliance_state"], "COMPLIANT");
    assert_eq!(trail["compliance_status"]["attestations_statuses"][0]["attestation_type"], "junit");
    for attestation in [&["scan", "--fingerprint", &fingerprint][..], &["tests", "--trail", "trail-1"]] {
        let found = fixture.reads(&[&["get", "attestation"], attestation, &["--flow", "delivery"]].concat());
        assert_eq!(found[0]["is_compliant"], true, "{found}");
        let id = found[0]["attestation_id"].as_str().unwrap();
        fixture.says(&["get", "attestation", "--attestation-id", id], attestation[0]);
    }

    let refused = ["attest", "generic", "--name", "extra", "--compliant=false"];
    fixture.does(&[&refused[..], &trail_options].concat());
    fixture.says(&["get", "trail", "trail-1", "--flow", "delivery"], "NON-COMPLIANT");
}

#[test]
fn a_pull_request_and_the_repo_it_names() {
    let fixture = ClientFixture::new();
    fixture.create_flow();
    let begin = ["begin", "trail", "trail-1", "--flow", "delivery", "--commit", "HEAD"];
    let repo = ["--repo-id", "17", "--repo-url", "https://git.example.com/a/b", "--repository", "a/b"];
    fixture.says(&[&begin[..], &repo, &["--repo-provider", "gitlab"]].concat(), "was begun");

    let document = json!({
        "attestation_name": "pull-request",
        "git_provider": "gitlab",
        "pull_requests": [{
            "url": "https://git.example.com/a/b/merge_requests/1",
            "merge_commit": fixture.git(&["rev-parse", "HEAD"]),
            "state": "MERGED",
            "author": "ada",
            "approvers": [{ "username": "grace", "state": "APPROVED", "timestamp": 1_767_600_000 }],
            "commits": [],
        }],
        "user_data": {},
    });
    let form =
        format!("--x\r\ncontent-disposition: form-data; name=\"data_json\"\r\n\r\n{document}\r\n--x--\r\n");
    let path = format!("/api/v2/attestations/{ORG}/delivery/trail/trail-1/pull_request");
    let (status, text) = fixture.server.ask("POST", &path, "multipart/form-data; boundary=x", &form);
    assert_eq!(status, 201, "{text}");
    let found =
        fixture.reads(&["get", "attestation", "pull-request", "--flow", "delivery", "--trail", "trail-1"]);
    assert_eq!(found[0]["attestation_type"], "pull_request");
    assert_eq!(found[0]["is_compliant"], true);

    let repos = fixture.reads(&["list", "repos"]);
    assert_eq!(repos["repos"][0]["name"], "a/b");
    let id = repos["repos"][0]["id"].as_str().unwrap();
    fixture.does(&["tag", "repo", "--repo-id", id, "--set", "tier=one"]);
    assert_eq!(fixture.reads(&["list", "repos", "--tag", "tier:one"])["total_count"], 1);
}

#[test]
fn an_environment_its_snapshots_and_what_is_allowed_there() {
    let fixture = ClientFixture::new();
    fixture.create_flow();
    fixture.begin_trail("trail-1", "HEAD");
    let (file, fingerprint) = fixture.attest_artifact("trail-1");
    fixture
        .says(&["create", "environment", "prod", "--type", "server", "--description", "Live"], "was created");
    fixture.does(&["create", "environment", "all", "--type", "logical"]);
    fixture.does(&["join", "environment", "--logical", "all", "--physical", "prod"]);
    assert_eq!(fixture.reads(&["get", "environment", "prod"])["type"], "server");
    fixture.says(&["list", "environments"], "prod");

    fixture.says(&["snapshot", "server", "prod", "--paths", &file], "[1] artifacts were reported");
    let stranger = fixture.file("stranger", "unknown to every trail");
    fixture.says(
        &["snapshot", "path", "prod", "--path", &stranger, "--name", "stranger"],
        "[1] artifacts were reported",
    );
    let snapshots = fixture.reads(&["list", "snapshots", "prod"]);
    assert_eq!(snapshots[0]["index"], 2);
    assert_eq!(snapshots[1]["index"], 1);
    let first = fixture.reads(&["get", "snapshot", "prod#1"]);
    assert_eq!(first["artifacts"][0]["fingerprint"], fingerprint);
    assert_eq!(first["artifacts"][0]["flow_name"], "delivery");
    fixture.says(&["get", "snapshot", "prod"], "stranger");

    let allow = ["allow", "artifact", &stranger, "--artifact-type", "file", "--environment", "prod"];
    fixture.does(&[&allow[..], &["--reason", "a known tool"]].concat());
}

#[test]
fn a_policy_decides_whether_a_snapshot_complies() {
    let fixture = ClientFixture::new();
    fixture.create_flow();
    fixture.begin_trail("trail-1", "HEAD");
    let (file, _) = fixture.attest_artifact("trail-1");
    fixture.does(&["create", "environment", "prod", "--type", "server"]);
    let policy = fixture.file("policy.yml", POLICY);
    fixture.says(&["create", "policy", "known-only", &policy], "was created");
    fixture.says(&["attach-policy", "known-only", "--environment", "prod"], "attached");
    assert_eq!(fixture.reads(&["get", "policy", "known-only"])["name"], "known-only");
    fixture.says(&["list", "policies"], "known-only");

    fixture.does(&["snapshot", "server", "prod", "--paths", &file]);
    fixture.says(&["assert", "snapshot", "prod"], "COMPLIANT");
    let stranger = fixture.file("stranger", "unknown to every trail");
    fixture.does(&["snapshot", "server", "prod", "--paths", &stranger]);
    fixture.refuses(&["assert", "snapshot", "prod"], "NON-COMPLIANT");
}

#[test]
fn tags_are_set_and_removed() {
    let fixture = ClientFixture::new();
    fixture.create_flow();
    fixture.does(&["create", "environment", "prod", "--type", "server"]);
    fixture.does(&["tag", "flow", "delivery", "--set", "team=a", "--set", "tier=one"]);
    fixture.does(&["tag", "flow", "delivery", "--unset", "tier"]);
    assert_eq!(fixture.reads(&["get", "flow", "delivery"])["tags"], json!({ "team": "a" }));
    fixture.does(&["tag", "env", "prod", "--set", "region=north"]);
    assert_eq!(fixture.reads(&["get", "environment", "prod"])["tags"], json!({ "region": "north" }));
}

#[test]
fn service_accounts_and_their_keys() {
    let mut fixture = ClientFixture::new();
    let create =
        ["create", "service-account", "ci", "--privilege", "reader", "--description", "The pipeline"];
    fixture.does(&create);
    fixture.does(&["update", "service-account", "ci", "--privilege", "member"]);
    assert_eq!(fixture.reads(&["get", "service-account", "ci"])["privilege"], "member");
    fixture.says(&["list", "service-accounts"], "ci");

    let made = fixture.reads(&["create", "api-key", "--service-account", "ci", "--description", "for CI"]);
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    fixture.says(&["list", "api-keys", "--service-account", "ci"], "for CI");
    assert_eq!(fixture.reads(&["get", "api-key", id, "--service-account", "ci"])["description"], "for CI");

    let rotated = fixture.reads(&["rotate", "api-key", id, "--service-account", "ci"]);
    assert_ne!(rotated[0]["key"], key);
    fixture.does(&["delete", "api-key", id, "--service-account", "ci", "--assume-yes"]);
    fixture.server.key = key.to_owned();
    fixture.refuses(&["list", "flows"], "Unauthorized");
}

/// A scan as Snyk writes it, with one finding.
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

#[test]
fn a_scan_is_overridden() {
    let fixture = ClientFixture::new();
    fixture.create_flow();
    fixture.begin_trail("trail-1", "HEAD");
    let (_, fingerprint) = fixture.attest_artifact("trail-1");
    let about = ["--name", "scan", "--flow", "delivery", "--trail", "trail-1", "--fingerprint", &fingerprint];
    let scan = fixture.file("scan.sarif", SARIF);
    let attest = [&["attest", "snyk", "--scan-results", &scan], &about[..]].concat();
    fixture.says(&attest, "snyk attestation 'scan' is reported");
    let read = ["get", "attestation", "scan", "--fingerprint", &fingerprint, "--flow", "delivery"];
    let found = fixture.reads(&read);
    assert_eq!((&found[0]["attestation_type"], &found[0]["is_compliant"]), (&json!("snyk"), &json!(false)));
    let reason =
        ["--reason", "accepted", "--new-compliance-status=true", "--original-attestation-type", "snyk"];
    let exempt = [&["attest", "override"], &reason[..], &about].concat();
    fixture.says(&exempt, "attestation 'scan' has been overridden");
    assert_eq!(fixture.reads(&read)[0]["is_compliant"], true);
}

#[test]
fn a_custom_type_decides_until_it_is_archived() {
    let fixture = ClientFixture::new();
    fixture.create_flow();
    fixture.begin_trail("trail-1", "HEAD");
    let schema = fixture.file("schema.json", r#"{"type": "object", "required": ["age"]}"#);
    let create = ["create", "attestation-type", "person", "--schema", &schema, "--jq", ".age >= 18"];
    fixture.says(&create, "attestation-type person was created");
    let attest = |name: &str, data: &str| {
        let data = fixture.file("data.json", data);
        let to = ["--name", name, "--attestation-data", &data, "--flow", "delivery", "--trail", "trail-1"];
        [&["attest", "custom", "--type", "person"], &to[..]].concat().into_iter().map(str::to_owned).collect()
    };
    for (name, data, is_compliant) in [("old", r#"{"age": 20}"#, true), ("young", r#"{"age": 3}"#, false)] {
        let arguments: Vec<String> = attest(name, data);
        let arguments = Vec::from_iter(arguments.iter().map(String::as_str));
        fixture.says(&arguments, &format!("custom:person attestation '{name}' is reported"));
        let read = ["get", "attestation", name, "--trail", "trail-1", "--flow", "delivery"];
        assert_eq!(fixture.reads(&read)[0]["is_compliant"], is_compliant);
    }
    let without: Vec<String> = attest("nobody", "{}");
    fixture.refuses(&Vec::from_iter(without.iter().map(String::as_str)), "attestation_data");
    fixture.says(&["archive", "attestation-type", "person"], "was archived");
    let late: Vec<String> = attest("late", r#"{"age": 20}"#);
    fixture.refuses(&Vec::from_iter(late.iter().map(String::as_str)), "is archived");
}

#[test]
fn a_control_and_the_decisions_about_it() {
    let fixture = ClientFixture::new();
    fixture.create_flow();
    fixture.begin_trail("trail-1", "HEAD");
    fixture.says(&["create", "control", "SDLC-1", "--name", "Reviewed"], "control SDLC-1 was created");
    let decide = ["attest", "decision", "--name", "review", "--control", "SDLC-1", "--compliant=false"];
    let to = ["--flow", "delivery", "--trail", "trail-1"];
    fixture.says(&[&decide[..], &to].concat(), "decision attestation 'review' is reported");
    let found = fixture.reads(&[&["get", "attestation", "review"], &to[..]].concat());
    assert_eq!(found[0]["attestation_type"], "system:decision");
    assert_eq!(found[0]["is_compliant"], false);
    fixture.does(&["tag", "control", "SDLC-1", "--set", "framework=own"]);
    assert_eq!(fixture.reads(&["get", "control", "SDLC-1"])["tags"], json!({ "framework": "own" }));
    fixture.says(&["list", "controls"], "SDLC-1");
    fixture.does(&["archive", "control", "SDLC-1"]);
    fixture.says(&["list", "controls"], "No controls were found");

    let bill = r#"{"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": []}"#;
    let bill = fixture.file("bill.json", bill);
    let attest = ["attest", "sbom", "--name", "bill", "--sbom-file", &bill];
    fixture.says(&[&attest[..], &to].concat(), "sbom attestation 'bill' is reported");
}

#[test]
fn a_flow_is_renamed_and_archived() {
    let fixture = ClientFixture::new();
    fixture.create_flow();
    fixture.says(&["rename", "flow", "delivery", "shipping"], "was renamed to shipping");
    assert_eq!(fixture.reads(&["get", "flow", "delivery"])["name"], "shipping");
    fixture.says(&["archive", "flow", "shipping"], "was archived");
    fixture.says(&["list", "flows"], "No flows were found");
    fixture.refuses(&["get", "flow", "shipping"], "shipping");
}

#[test]
fn a_repo_and_what_was_built_of_it_are_found() {
    let fixture = ClientFixture::new();
    fixture.create_flow();
    let repo =
        ["--repo-id", "7", "--repository", "acme/app", "--repo-url", "https://git.example.com/acme/app"];
    let begin = ["begin", "trail", "trail-1", "--flow", "delivery", "--commit", "HEAD"];
    fixture.says(&[&begin[..], &repo].concat(), "was begun");
    let (_, fingerprint) = fixture.attest_artifact("trail-1");
    assert_eq!(fixture.reads(&["get", "repo", "acme/app"])["name"], "acme/app");
    fixture.does(&["tag", "repo", "acme/app", "--set", "team=a"]);
    assert_eq!(fixture.reads(&["get", "repo", "acme/app"])["tags"], json!({ "team": "a" }));
    fixture.says(&["list", "repos"], "acme/app");
    fixture.says(&["search", &fingerprint[..8]], &fingerprint);
    fixture.says(&["search", &fixture.git(&["rev-parse", "HEAD"])], &fingerprint);
    fixture.refuses(&["search", "deadbeef1"], "No matches for 'deadbeef1'");
}
