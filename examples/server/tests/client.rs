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
struct Bench {
    server: Server,
    client: PathBuf,
    directory: TempDir,
}

impl Bench {
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
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {printed}{told}");
        printed + &told
    }

    /// Runs a command that must succeed and say this.
    fn says(&self, arguments: &[&str], expected: &str) {
        let printed = self.does(arguments);
        assert!(printed.contains(expected), "{arguments:?} does not say {expected:?}: {printed}");
    }

    /// Runs a command that must fail and say this.
    fn refuses(&self, arguments: &[&str], expected: &str) {
        let output = self.run(arguments);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(told.contains(expected), "{arguments:?} does not say {expected:?}: {told}");
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
    let mut bench = Bench::new();
    bench.says(&["status"], "OK");
    bench.server.key = "ev_wrong".to_owned();
    bench.refuses(&["list", "flows"], "Unauthorized");
}

#[test]
fn a_flow_and_its_trails_over_the_history_of_this_repository() {
    let bench = Bench::new();
    bench.create_flow();
    let template = bench.file("template.yml", TEMPLATE);
    bench.says(&["create", "flow", "delivery", "--template-file", &template], "was updated");
    let flow = bench.reads(&["get", "flow", "delivery"]);
    assert_eq!(flow["template"], TEMPLATE);
    assert_eq!(flow["visibility"], "private");
    assert_eq!(bench.reads(&["list", "flows"])[0]["name"], "delivery");

    let commits = bench.git(&["log", "-n", "3", "--format=%H"]);
    for commit in commits.lines() {
        bench.begin_trail(commit, commit);
    }
    bench.says(&["begin", "trail", "trail-1", "--flow", "delivery", "--commit", "HEAD"], "was begun");
    let again =
        ["begin", "trail", "trail-1", "--flow", "delivery", "--description", "Again", "--commit", "HEAD"];
    bench.says(&again, "was updated");
    let trail = bench.reads(&["get", "trail", "trail-1", "--flow", "delivery"]);
    assert_eq!(trail["description"], "Again");
    assert_eq!(trail["compliance_state"], "INCOMPLETE");
    assert_eq!(trail["git_commit_info"]["sha1"], bench.git(&["rev-parse", "HEAD"]));
    bench.says(&["get", "trail", "trail-1", "--flow", "delivery"], "INCOMPLETE");
    let trails = bench.reads(&["list", "trails", "--flow", "delivery"]);
    assert_eq!(trails["data"][0]["name"], "trail-1");
    assert_eq!(trails["pagination"]["total"], commits.lines().count() + 1);
    bench.refuses(
        &["get", "trail", "nowhere", "--flow", "delivery"],
        "Trail with name 'nowhere' does not exist for Organization 'acme' and Flow 'delivery'",
    );
    bench.refuses(&["begin", "trail", "foo?$bar", "--flow", "delivery"], "foo?$bar");
}

#[test]
fn an_artifact_its_attestations_and_the_tests_of_this_project() {
    let bench = Bench::new();
    bench.create_flow();
    bench.begin_trail("trail-1", "HEAD");
    let (_, fingerprint) = bench.attest_artifact("trail-1");
    let by_fingerprint = format!("delivery@{fingerprint}");
    let artifact = bench.reads(&["get", "artifact", &by_fingerprint]);
    assert_eq!(artifact["state"], "INCOMPLETE");
    bench.says(&["get", "artifact", &format!("delivery@{}", &fingerprint[..12])], &fingerprint);
    bench
        .says(&["get", "artifact", &format!("delivery:{}", bench.git(&["rev-parse", "HEAD"]))], &fingerprint);
    bench.says(&["list", "artifacts", "--flow", "delivery"], &fingerprint);

    let attachment = bench.file("scan.txt", "nothing found");
    let place = ["--flow", "delivery", "--trail", "trail-1"];
    let scan =
        ["attest", "generic", "--name", "scan", "--fingerprint", &fingerprint, "--attachments", &attachment];
    bench.says(&[&scan[..], &place].concat(), "scan");

    let results = from_xtask("EVIDENCE_TEST_RESULTS");
    let junit = ["attest", "junit", "--name", "tests", "--results-dir", results.to_str().unwrap()];
    bench.says(&[&junit[..], &place].concat(), "tests");
    assert_eq!(bench.reads(&["get", "artifact", &by_fingerprint])["state"], "COMPLIANT");
    let trail = bench.reads(&["get", "trail", "trail-1", "--flow", "delivery"]);
    assert_eq!(trail["compliance_state"], "COMPLIANT");
    assert_eq!(trail["compliance_status"]["attestations_statuses"][0]["attestation_type"], "junit");
    for attestation in [&["scan", "--fingerprint", &fingerprint][..], &["tests", "--trail", "trail-1"]] {
        let found = bench.reads(&[&["get", "attestation"], attestation, &["--flow", "delivery"]].concat());
        assert_eq!(found[0]["is_compliant"], true, "{found}");
        let id = found[0]["attestation_id"].as_str().unwrap();
        bench.says(&["get", "attestation", "--attestation-id", id], attestation[0]);
    }

    let refused = ["attest", "generic", "--name", "extra", "--compliant=false"];
    bench.does(&[&refused[..], &place].concat());
    bench.says(&["get", "trail", "trail-1", "--flow", "delivery"], "NON-COMPLIANT");
}

#[test]
fn a_pull_request_and_the_repo_it_names() {
    let bench = Bench::new();
    bench.create_flow();
    let begin = ["begin", "trail", "trail-1", "--flow", "delivery", "--commit", "HEAD"];
    let repo = ["--repo-id", "17", "--repo-url", "https://git.example.com/a/b", "--repository", "a/b"];
    bench.says(&[&begin[..], &repo, &["--repo-provider", "gitlab"]].concat(), "was begun");

    let document = json!({
        "attestation_name": "pull-request",
        "git_provider": "gitlab",
        "pull_requests": [{
            "url": "https://git.example.com/a/b/merge_requests/1",
            "merge_commit": bench.git(&["rev-parse", "HEAD"]),
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
    let (status, text) = bench.server.ask("POST", &path, "multipart/form-data; boundary=x", &form);
    assert_eq!(status, 201, "{text}");
    let found =
        bench.reads(&["get", "attestation", "pull-request", "--flow", "delivery", "--trail", "trail-1"]);
    assert_eq!(found[0]["attestation_type"], "pull_request");
    assert_eq!(found[0]["is_compliant"], true);

    let repos = bench.reads(&["list", "repos"]);
    assert_eq!(repos["repos"][0]["name"], "a/b");
    let id = repos["repos"][0]["id"].as_str().unwrap();
    bench.does(&["tag", "repo", "--repo-id", id, "--set", "tier=one"]);
    assert_eq!(bench.reads(&["list", "repos", "--tag", "tier:one"])["total_count"], 1);
}

#[test]
fn an_environment_its_snapshots_and_what_is_allowed_there() {
    let bench = Bench::new();
    bench.create_flow();
    bench.begin_trail("trail-1", "HEAD");
    let (file, fingerprint) = bench.attest_artifact("trail-1");
    bench
        .says(&["create", "environment", "prod", "--type", "server", "--description", "Live"], "was created");
    bench.does(&["create", "environment", "all", "--type", "logical"]);
    bench.does(&["join", "environment", "--logical", "all", "--physical", "prod"]);
    assert_eq!(bench.reads(&["get", "environment", "prod"])["type"], "server");
    bench.says(&["list", "environments"], "prod");

    bench.says(&["snapshot", "server", "prod", "--paths", &file], "[1] artifacts were reported");
    let stranger = bench.file("stranger", "unknown to every trail");
    bench.says(
        &["snapshot", "path", "prod", "--path", &stranger, "--name", "stranger"],
        "[1] artifacts were reported",
    );
    let snapshots = bench.reads(&["list", "snapshots", "prod"]);
    assert_eq!(snapshots[0]["index"], 2);
    assert_eq!(snapshots[1]["index"], 1);
    let first = bench.reads(&["get", "snapshot", "prod#1"]);
    assert_eq!(first["artifacts"][0]["fingerprint"], fingerprint);
    assert_eq!(first["artifacts"][0]["flow_name"], "delivery");
    bench.says(&["get", "snapshot", "prod"], "stranger");

    let allow = ["allow", "artifact", &stranger, "--artifact-type", "file", "--environment", "prod"];
    bench.does(&[&allow[..], &["--reason", "a known tool"]].concat());
}

#[test]
fn a_policy_decides_whether_a_snapshot_complies() {
    let bench = Bench::new();
    bench.create_flow();
    bench.begin_trail("trail-1", "HEAD");
    let (file, _) = bench.attest_artifact("trail-1");
    bench.does(&["create", "environment", "prod", "--type", "server"]);
    let policy = bench.file("policy.yml", POLICY);
    bench.says(&["create", "policy", "known-only", &policy], "was created");
    bench.says(&["attach-policy", "known-only", "--environment", "prod"], "attached");
    assert_eq!(bench.reads(&["get", "policy", "known-only"])["name"], "known-only");
    bench.says(&["list", "policies"], "known-only");

    bench.does(&["snapshot", "server", "prod", "--paths", &file]);
    bench.says(&["assert", "snapshot", "prod"], "COMPLIANT");
    let stranger = bench.file("stranger", "unknown to every trail");
    bench.does(&["snapshot", "server", "prod", "--paths", &stranger]);
    bench.refuses(&["assert", "snapshot", "prod"], "NON-COMPLIANT");
}

#[test]
fn tags_are_set_and_removed() {
    let bench = Bench::new();
    bench.create_flow();
    bench.does(&["create", "environment", "prod", "--type", "server"]);
    bench.does(&["tag", "flow", "delivery", "--set", "team=a", "--set", "tier=one"]);
    bench.does(&["tag", "flow", "delivery", "--unset", "tier"]);
    assert_eq!(bench.reads(&["get", "flow", "delivery"])["tags"], json!({ "team": "a" }));
    bench.does(&["tag", "env", "prod", "--set", "region=north"]);
    assert_eq!(bench.reads(&["get", "environment", "prod"])["tags"], json!({ "region": "north" }));
}

#[test]
fn service_accounts_and_their_keys() {
    let mut bench = Bench::new();
    let create =
        ["create", "service-account", "ci", "--privilege", "reader", "--description", "The pipeline"];
    bench.does(&create);
    bench.does(&["update", "service-account", "ci", "--privilege", "member"]);
    assert_eq!(bench.reads(&["get", "service-account", "ci"])["privilege"], "member");
    bench.says(&["list", "service-accounts"], "ci");

    let made = bench.reads(&["create", "api-key", "--service-account", "ci", "--description", "for CI"]);
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    bench.says(&["list", "api-keys", "--service-account", "ci"], "for CI");
    assert_eq!(bench.reads(&["get", "api-key", id, "--service-account", "ci"])["description"], "for CI");

    let rotated = bench.reads(&["rotate", "api-key", id, "--service-account", "ci"]);
    assert_ne!(rotated[0]["key"], key);
    bench.does(&["delete", "api-key", id, "--service-account", "ci", "--assume-yes"]);
    bench.server.key = key.to_owned();
    bench.refuses(&["list", "flows"], "Unauthorized");
}
