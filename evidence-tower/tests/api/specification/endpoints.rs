//! Endpoints: what the descriptions say of parts and parameters beyond the rows of the other tables.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};

use crate::support::prelude::*;

/// Adds a pull-request attestation with these pull requests, and answers how they read back.
async fn read_back(api: &Api, pull_requests: Value) -> Value {
    let document =
        json!({"attestation_name": "review", "git_provider": "github", "pull_requests": pull_requests});
    api.attest("pull_request", &document).await.created();
    let found = api.get("/attestations/acme/shop/trail/t/review").await.ok();
    found[0]["pull_requests"].clone()
}

fn pull_request(field: &str, value: Value) -> Value {
    let mut pull_request = json!({
        "url": "https://git.example.com/pr/1", "state": "MERGED", "title": "T", "author": "ann", "head_ref": "f",
        "merge_commit": COMMIT, "created_at": 1, "merged_at": 2, "approvers": [], "commits": [],
    });
    pull_request[field] = value;
    pull_request
}

#[apply(on_every_store)]
async fn pull_request_attestation_has_its_three_parts(api: Api) {
    let document = json!({"attestation_name": "review", "git_provider": "git", "pull_requests": []});
    let post = api.post_attestation("shop", "t", "pull_request");
    let parts = [
        ("name=\"attachment_file\"", "as plain text"),
        ("name=\"attachment_file.0\"; filename=\"zero.txt\"", "0"),
        ("name=\"attachment_file.1\"; filename=\"one.txt\"", "1"),
        ("name=\"data_json\"", &document.to_string()),
    ];
    post.form(&parts).await.expect_exactly(201, "OK");
    let names = ["attachment.txt", "zero.txt", "one.txt"].map(|name| json!({"file_name": name}));
    let found = api.get("/attestations/acme/shop/trail/t/review").await;
    found.expect(200, json!([{"attachments": names}]));
    let twice = [parts[3], parts[3]];
    api.post_attestation("shop", "t", "pull_request").form(&twice).await.expect_field_error(400, "data_json");
}

#[apply(on_every_store)]
async fn pull_request_approvers_are_read_in_every_shape_and_answered_with_both_spellings(api: Api) {
    let table = [
        (json!([{"author": "bob", "state": "APPROVED", "timestamp": 3}]), json!("APPROVED"), json!(3)),
        (json!([{"username": "bob", "state": "APPROVED", "timestamp": 3.0}]), json!("APPROVED"), json!(3)),
    ];
    for (sent, state, timestamp) in table {
        let found = read_back(&api, json!([pull_request("approvers", sent)])).await;
        let approver = &found[0]["approvers"][0];
        assert_eq!((&approver["author"], &approver["username"]), (&json!("bob"), &json!("bob")));
        assert_eq!((&approver["state"], &approver["timestamp"]), (&state, &timestamp));
    }
    let plain = json!([{"url": "u", "state": "MERGED", "merge_commit": "", "approvers": ["bob"]}]);
    assert_eq!(read_back(&api, plain).await[0]["approvers"][0]["author"], "bob");
}

#[apply(on_every_store)]
async fn pull_request_commits_may_lack_their_url(api: Api) {
    let commit = json!({"sha": COMMIT, "message": "m", "author": "a", "branch": "main", "timestamp": 4});
    let mut linked = commit.clone();
    linked["url"] = json!("https://git.example.com/c");
    let found = read_back(&api, json!([pull_request("commits", json!([commit, linked]))])).await;
    let urls: Vec<&Value> =
        found[0]["commits"].as_array().unwrap().iter().map(|commit| &commit["url"]).collect();
    assert_eq!(urls[1], "https://git.example.com/c");
    assert_ne!(urls[0], urls[1]);
    for field in ["sha", "sha1"] {
        assert_eq!(found[0]["commits"][0][field], COMMIT, "{field}");
    }
}

#[apply(on_every_store)]
async fn pull_request_times_are_integers(api: Api) {
    let found = read_back(&api, json!([pull_request("created_at", json!(1.75))])).await;
    assert_eq!((&found[0]["created_at"], &found[0]["merged_at"]), (&json!(1), &json!(2)));
}

#[apply(on_every_store)]
async fn artifact_look_ups_take_a_flow_name_of_its_pattern(api: Api) {
    for look_up in ["fingerprint/aaaaa", "commit_sha/aaaaa", "aaaaa/latest_commit"] {
        for name in ["-a", "a%20b", "a%0A", "%C3%A9", &"a".repeat(256)] {
            let refused = api.get(&format!("/artifacts/acme/{name}/{look_up}")).await;
            refused.expect_field_error(400, "flow_name");
        }
        let unknown = api.get(&format!("/artifacts/acme/a.b-c_d~e/{look_up}")).await;
        assert_eq!(unknown.error_message(404), "Flow not found");
    }
}

#[apply(on_every_store)]
async fn of_a_repeated_parameter_the_last_one_counts_and_unknown_ones_do_not(api: Api) {
    api.given_environment("prod").await;
    api.report_running("prod", &[]).await.created();
    let one = json!([{"index": 1}]);
    for query in ["per_page=0&per_page=1", "interval=x&interval=1", "page=9&page=1", "more=1&more=2"] {
        api.get(&format!("/snapshots/acme/prod?{query}")).await.expect(200, one.clone());
    }
    api.get("/snapshots/acme/prod?per_page=1&per_page=0").await.expect_field_error(400, "query.per_page");
}

#[apply(on_every_store)]
async fn what_is_open_takes_unknown_properties_and_never_keeps_them(api: Api) {
    let account =
        json!({"name": "ci", "created_at": 1, "for_webhook": true, "creating_user_id": "x", "id": "y"});
    let made = api.post("/service-accounts/acme").json(account).await.created();
    assert_eq!(made["for_webhook"], false);
    assert_ne!(made["created_at"], 1);
    let patch = json!({"name": "other", "display_name": "other", "for_webhook": true, "created_at": 1});
    assert_eq!(api.patch("/service-accounts/acme/ci").json(patch).await.ok(), made);
    api.post_artifact("shop", "a".repeat(64))
        .with(json!({
            "state": "COMPLIANT", "id": "00000000-0000-0000-0000-00000000", "created_at": "1",
            "flow_name": "other", "template": ["a"],
        }))
        .await
        .created();
    let artifact = api.get("/artifacts/acme/shop/fingerprint/aaaaa").await;
    let artifact = artifact.expect(200, json!({"flow_name": "shop", "template": []})).json();
    assert_ne!(artifact["id"], "00000000-0000-0000-0000-00000000");
    assert_ne!(artifact["created_at"], "1");
}

#[apply(on_every_store)]
async fn a_json_body_needs_no_content_type_and_a_get_or_delete_may_carry_one(api: Api) {
    api.post("/service-accounts/acme").json(json!({"name": "ci"})).await.created();
    let untyped = Full::new(Bytes::from_static(br#"{"description": "x"}"#));
    let patch =
        api.patch("/service-accounts/acme/ci").body(untyped.map_err(|never| match never {}).boxed_unsync());
    patch.await.expect(200, json!({"description": "x"}));
    let key =
        api.post("/service-accounts/acme/ci/api-keys").json(json!({"description": "x"})).await.created();
    let path = format!("/service-accounts/acme/ci/api-keys/{}", key["id"].as_str().unwrap());
    api.get(&path).json(json!({})).await.ok();
    assert_eq!(api.delete(&path).json(json!({"any": "thing"})).await.ok(), "OK");
}

#[apply(on_every_store)]
async fn a_flow_that_a_literal_path_would_hide_cannot_be_created(api: Api) {
    for name in ["template_file", "list_attestations_for_criteria"] {
        api.put_flow(name).await.expect_field_error(400, "name");
        api.post_artifact(name, "a".repeat(64)).await.expect_field_error(400, "flow_name");
    }
    api.get("/flows/acme").await.expect_exactly(200, json!([]));
}

#[tokio::test]
async fn without_implicit_flows_a_report_names_a_flow_that_exists() {
    let settings = Settings { implicit_flows: false, ..Settings::default() };
    let api = Api::new(in_memory_with(settings).await, Mount::Tower, "memory").await;
    let generic = json!({"attestation_name": "x", "is_compliant": true});
    let report = || api.post_artifact("shop", "a".repeat(64));
    for reply in [
        report().await,
        api.attest("generic", &generic).await,
        api.put_trail("shop", &json!({"name": "t"})).await,
    ] {
        reply.expect_errors(
            404,
            "Flow not found",
            &[("flow_name", "no flow named 'shop' in organization 'acme'")],
        );
    }
    api.given_flow("shop", "version: 1\n").await;
    report().await.created();
    api.attest("generic", &generic).await.created();
}
