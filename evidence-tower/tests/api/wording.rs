//! The sentences that users of the public command-line client know, in place of the documented ones. Statuses do not
//! differ.

use evidence_core::{Settings, Wording};
use serde_json::{Value, json};

use crate::mounts::Mount;
use crate::support::environments::PROVENANCE;
use crate::support::{Api, JOHN, in_memory_with};
use crate::trails::TEMPLATE;

/// A service that names what is missing.
async fn naming() -> Api {
    let settings = Settings { wording: Wording::Named, ..Settings::default() };
    Api::new(in_memory_with(settings).await, Mount::Tower, "memory").await
}

/// Asserts that each path is answered with status 404 and the sentence alone.
async fn expect_missing(api: &Api, rows: &[(&str, &str)]) {
    for (path, sentence) in rows {
        api.get(path).await.expect_exactly(404, json!({ "message": sentence }));
    }
}

#[tokio::test]
async fn flows_and_trails() {
    let api = naming().await;
    api.flow("shop", TEMPLATE).await;
    let flow = "Flow named 'non-existing' does not exist for organization 'acme'";
    let trail = "Trail with name 'foo' does not exist for Organization 'acme' and Flow 'shop'";
    let rows = [
        ("/flows/acme/non-existing", flow),
        ("/artifacts/acme?flow_name=non-existing", flow),
        ("/artifacts/acme/non-existing/aaaaa/latest_commit", flow),
        ("/artifacts/acme/non-existing/commit_sha/aaaaa", flow),
        ("/trails/acme?flow=", "Flow named '' does not exist for organization 'acme'"),
        ("/trails/acme/non-existing/foo", flow),
        ("/trails/acme/shop/foo", trail),
        ("/attestations/acme/shop/trail/foo/x", trail),
    ];
    expect_missing(&api, &rows).await;
    expect_missing(&api, &[("/search/acme/sha/fffff", "No matches for 'fffff'.")]).await;
    for what in ["archive", "rename"] {
        let ask = api.put(&format!("/flows/acme/non-existing/{what}")).json(json!({"new_name": "x"}));
        ask.await.expect_exactly(404, json!({ "message": flow }));
    }
    api.begin("shop", &json!({"name": "t"})).await.created();
    api.put("/flows/acme/shop/archive").await.ok();
    let trails = api.get("/trails/acme").await.ok();
    let name = trails["data"][0]["flow"]["name"].as_str().unwrap();
    let sentence = format!("Flow named '{name}' has been archived for organization 'acme'");
    api.begin(name, &json!({"name": "u"})).await.expect_exactly(404, json!({ "message": sentence }));
    let empty = api.get("/flows/acme?search_by_name=").await;
    assert_eq!(empty.message(400), "Empty string is not allowed for flow names.");
}

#[tokio::test]
async fn a_template_that_breaks_the_rules() {
    let api = naming().await;
    let wrong = "version: 1\ntrail:\n  attestations:\n    - name: x\n      type: not-supported\n    - type: generic\n";
    let document = ("name=\"data_json\"", r#"{"name": "t", "description": ""}"#);
    let template = ("name=\"template_file\"; filename=\"t.yml\"", wrong);
    let refused = api.put("/trails/acme/shop").form(&[document, template]).await.json();
    assert_eq!(refused["message"], "Input payload validation failed");
    let text = refused["errors"]["template_file"].as_str().unwrap();
    assert!(text.contains(" validation errors for Template\n"), "{text}");
}

#[tokio::test]
async fn artifacts_and_their_attestations() {
    let api = naming().await;
    api.flow("shop", TEMPLATE).await;
    let fingerprint = "a".repeat(64);
    let gone = format!(
        "Artifact with fingerprint '{fingerprint}' does not exist in flow 'shop' belonging to organization 'acme'"
    );
    let rows = [
        (&*format!("/artifacts/acme/shop/fingerprint/{fingerprint}"), &*gone),
        ("/artifacts/acme?repo_name=non-existing", "Repo 'non-existing' not found"),
    ];
    expect_missing(&api, &rows).await;
    let sentence = format!(
        "Artifact with fingerprint {fingerprint} does not exist in trail \"t\" of flow \"shop\" belonging to organization \"acme\""
    );
    let kinds = [
        ("generic", json!({"is_compliant": true})),
        ("junit", json!({"junit_results": []})),
        ("pull_request", json!({"git_provider": "github", "pull_requests": []})),
    ];
    for (kind, mut document) in kinds {
        document["attestation_name"] = json!("x");
        document["artifact_fingerprint"] = json!(fingerprint);
        api.attest(kind, &document).await.expect_exactly(404, json!({"message": sentence}));
    }
    let unbound = json!({"attestation_name": "x", "is_compliant": true, "target_artifacts": ["cli"]});
    let refused = api.attest("generic", &unbound).await.json().to_string();
    assert!(
        refused.contains("requires at least one of: artifact_fingerprint or git_commit_info."),
        "{refused}"
    );
}

#[tokio::test]
async fn environments_and_snapshots() {
    let api = naming().await;
    api.given_environments("docker", &["empty", "prod"]).await;
    for running in [&[][..], &[('1', &[1][..])], &[]] {
        api.report_running("prod", running).await.created();
    }
    let environment = "Environment named 'non-existing' does not exist for organization 'acme'";
    let snapshot = |asked: &str, resolved: &str, count: usize| {
        format!(
            "Org: 'acme'. Snapshot '{asked}' resolves to '{resolved}'. len(snapshots) == {count}. Indexes are 1-based"
        )
    };
    let rows = [
        ("/environments/acme/non-existing", environment),
        ("/snapshots/acme/non-existing", environment),
        ("/snapshots/acme/non-existing/-1", environment),
        ("/snapshots/acme/empty/-1", &*snapshot("empty#-1", "empty#0", 0)),
        ("/snapshots/acme/prod/23", &*snapshot("prod#23", "prod#23", 3)),
    ];
    expect_missing(&api, &rows).await;
    let body = json!({"name": "all", "type": "logical", "description": "", "included_environments": [""]});
    let sentence = "Environment named '' does not exist for organization 'acme'";
    api.put("/environments/acme").json(body).await.expect_exactly(404, json!({"message": sentence}));
}

#[tokio::test]
async fn policies_and_custom_attestation_types() {
    let api = naming().await;
    api.put_policy("p", PROVENANCE).await.created();
    let document = [("name=\"data_json\"", r#"{"name": "review"}"#)];
    api.post("/custom-attestation-types/acme").form(&document).await.created();
    let rows = [
        ("/policies/acme/non-existing", "Policy 'non-existing' does not exist in organization 'acme'"),
        ("/custom-attestation-types/acme/foo", "Custom attestation type 'foo' does not exist for org 'acme'"),
        (
            "/custom-attestation-types/acme/review?version=10",
            "version 10 does not exist for custom attestation type 'review'",
        ),
    ];
    expect_missing(&api, &rows).await;
    let attest = |name: &str| {
        api.attest("custom", &json!({"attestation_name": "x", "type_name": name, "attestation_data": {}}))
    };
    let missing = "Custom attestation type 'foo' does not exist for org 'acme'";
    attest("foo").await.expect_exactly(404, json!({ "message": missing }));
    api.put("/custom-attestation-types/acme/foo/archive")
        .await
        .expect_exactly(404, json!({ "message": missing }));
    api.put("/custom-attestation-types/acme/review/archive").await.expect_exactly(200, json!("OK"));
    let archived = "Custom attestation type 'review' is archived for org 'acme'";
    let refused =
        json!({"message": archived, "errors": {"type_name": "An archived type takes no attestations"}});
    attest("review").await.expect_exactly(400, refused);
}

#[tokio::test]
async fn controls() {
    let api = naming().await;
    let control = json!({"identifier": "my-control", "name": "x"});
    api.post("/controls/acme").json(&control).await.created();
    let rows = [
        ("/controls/acme/no-such-control", "Control 'no-such-control' does not exist in organization 'acme'"),
        (
            "/controls/acme/no-such-control/versions/1",
            "Control 'no-such-control' does not exist in organization 'acme'",
        ),
        ("/controls/acme/my-control/versions/2", "version 2 does not exist for control 'my-control'"),
        (
            "/controls/acme/no-such-control/coverage",
            "Control 'no-such-control' does not exist in organization 'acme'",
        ),
        (
            "/controls/acme/no-such-control/decisions",
            "Control 'no-such-control' does not exist in organization 'acme'",
        ),
        ("/controls/acme/my-control/decisions/none", "Decision not found"),
    ];
    expect_missing(&api, &rows).await;
    let sentence = "A control with identifier 'my-control' already exists in organization 'acme'";
    api.post("/controls/acme").json(control).await.expect_exactly(409, json!({ "message": sentence }));
    let wrong = json!({"identifier": "bad identifier", "name": "x"});
    let text = r"String should match pattern '^[a-zA-Z0-9\-._~]+$' [input: bad identifier]";
    let refused = json!({"message": "Input payload validation failed", "errors": {"identifier": text}});
    api.post("/controls/acme").json(wrong).await.expect_exactly(400, refused);
}

#[tokio::test]
async fn repos() {
    let api = naming().await;
    let rows = [
        ("/repos/acme/no/such-repo", "Repo 'no/such-repo' not found"),
        ("/repos/acme/shop?provider=gitlab", "Repo 'shop' not found"),
        ("/repos/acme/shop?id=no-such-id", "Repo 'no-such-id' not found"),
        ("/repos/acme/live-artifacts/a/b", "Repo 'a/b' not found"),
        ("/builds/acme?repo_name=non-existing", "Repo 'non-existing' not found"),
        ("/builds/acme/statistics?repo_id=8", "Repo '8' not found"),
    ];
    expect_missing(&api, &rows).await;
    for id in ["1", "2"] {
        api.report_from(&json!({"name": "a/b", "url": "https://x.org", "id": id, "provider": "github"}))
            .await;
    }
    let sentence = "Multiple repos named 'a/b' exist (github). Specify the 'provider'";
    assert!(api.get("/repos/acme/a/b").await.message(400).starts_with(sentence));
}

/// The quotation marks around these sentences are a part of them.
#[tokio::test]
async fn tags() {
    let api = naming().await;
    let rows = [
        ("control/no-such-control", "\"Control 'no-such-control' does not exist in organization 'acme'\""),
        ("repo/no-such-repo-id", "\"Repo 'no-such-repo-id' does not exist in organization 'acme'\""),
    ];
    for (resource, sentence) in rows {
        let patch = api.patch(&format!("/tags/acme/{resource}")).json(json!({"set_tags": {"a": "b"}}));
        patch.await.expect_exactly(404, json!({"message": sentence}));
    }
    let patch = api.patch("/tags/acme/flow/x").json(json!({"set_tags": ""})).await;
    patch.expect(400, json!({"errors": {"set_tags": "Input should be a valid dictionary [input: ]"}}));
}

#[tokio::test]
async fn what_has_one_sentence_keeps_it() {
    let api = naming().await;
    api.post("/service-accounts/acme").json(json!({"name": "ci"})).await.created();
    let rows = [
        ("/service-accounts/acme/none", "Service account not found"),
        ("/service-accounts/acme/ci/api-keys/none", "API key not found"),
        ("/repos/nowhere", "Organization not found"),
    ];
    expect_missing(&api, &rows).await;
    let refused: Value = json!({"message": "You don't have permission to access this resource"});
    api.get("/service-accounts/acme").key(JOHN).await.expect_exactly(403, refused);
}
