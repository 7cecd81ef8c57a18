//! Limits and Versioning: each row, at its borders and one beyond them.

use http::header::CONTENT_TYPE;

use crate::support::prelude::*;

/// Asserts that each of the values is accepted, and that each of the others is refused by this field.
async fn expect_borders(api: &Api, prefix: &str, accepted: &[&str], field: &str, refused: &[&str]) {
    for value in accepted {
        api.get(&format!("{prefix}{value}")).await.ok();
    }
    for value in refused {
        api.get(&format!("{prefix}{value}")).await.expect_field_error(400, field);
    }
}

const GREATEST: &str = "9223372036854775807";
const BEYOND: &str = "9223372036854775808";

#[apply(on_every_store)]
async fn limit_repo_list_per_page_and_page(api: Api) {
    let list = "/repos/acme?";
    expect_borders(&api, &format!("{list}per_page="), &["1", "50"], "query.per_page", &["0", "51"]).await;
    expect_borders(&api, &format!("{list}page="), &["1", GREATEST], "query.page", &["0", BEYOND]).await;
    api.get("/repos/acme").await.expect(200, json!({"page": 1, "per_page": 15}));
}

#[apply(on_every_store)]
async fn limit_snapshot_list_page_and_per_page(api: Api) {
    api.given_environment("prod").await;
    for name in ["page", "per_page"] {
        let prefix = format!("/snapshots/acme/prod?{name}=");
        expect_borders(&api, &prefix, &["1", GREATEST], &format!("query.{name}"), &["0", BEYOND]).await;
    }
}

#[apply(on_every_store)]
async fn a_page_far_past_the_end_of_any_list_is_empty(api: Api) {
    api.given_artifact_from_repo(&json!({"name": "acme/shop", "url": "https://git.example.com/acme/shop"}))
        .await;
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    api.given_environment("prod").await;
    api.report_running("prod", &[]).await.created();
    let lists = [
        ("/flows/acme", 100, "/data"),
        ("/trails/acme", 100, "/data"),
        ("/environments/acme", 50, "/environments"),
        ("/repos/acme", 50, "/repos"),
        ("/artifacts/acme", 1000, ""),
        ("/snapshots/acme/prod", 1000, ""),
    ];
    for (path, per_page, items) in lists {
        for (page, count) in [("1", 1), ("2", 0), (GREATEST, 0)] {
            let list = api.get(&format!("{path}?page={page}&per_page={per_page}")).await.ok();
            assert_eq!(
                list.pointer(items).unwrap().as_array().unwrap().len(),
                count,
                "{path} {page}: {list}"
            );
        }
        api.get(&format!("{path}?page={BEYOND}")).await.expect_field_error(400, "query.page");
    }
}

#[apply(on_every_store)]
async fn limit_service_account_path_parameter_length(api: Api) {
    let (longest, longer) = ("a".repeat(64), "a".repeat(65));
    for name in ["a", &longest] {
        api.post("/service-accounts/acme").json(json!({"name": name})).await.created();
        api.patch(&format!("/service-accounts/acme/{name}")).json(json!({})).await.ok();
    }
    let refused = api.patch(&format!("/service-accounts/acme/{longer}")).json(json!({})).await;
    refused.expect_field_error(400, "name");
    // A path without the parameter is another one.
    assert_eq!(api.patch("/service-accounts/acme/").json(json!({})).await.error_message(404), "Not found");
}

#[apply(on_every_store)]
async fn limit_artifact_name_like_field_maximum_length(api: Api) {
    let report = |flow: &str, trail: &str, reference: &str| {
        api.post_artifact(flow, "a".repeat(64)).in_trail(trail).named(reference)
    };
    let (longest, longer) = ("a".repeat(255), "a".repeat(256));
    report(&longest, &longest, &longest).await.created();
    report(&longer, "t", "r").await.expect_field_error(400, "flow_name");
    report("f", &longer, "r").await.expect_field_error(400, "trail_name");
    report("f", "t", &longer).await.expect_field_error(400, "template_reference_name");
    let names = json!({"flow_name": longest, "trail_name": longest, "template_reference_name": longest});
    api.get(&format!("/artifacts/acme/{longest}/fingerprint/aaaaa")).await.expect(200, names);
}

#[apply(on_every_store)]
async fn limit_artifact_fingerprint_lookup_length(api: Api) {
    api.given_artifact_from_repo(&json!({"name": "acme/shop", "url": "https://git.example.com/acme/shop"}))
        .await;
    let lengths = [4, 5, 64, 65].map(|length| "a".repeat(length));
    let [shorter, shortest, longest, longer] = lengths.each_ref().map(String::as_str);
    let lookup = "/artifacts/acme/shop/fingerprint/";
    expect_borders(&api, lookup, &[shortest, longest], "fingerprint", &[shorter, longer, "AAAAA", "aaaag"])
        .await;
    for length in [shortest, longest] {
        api.get(&format!("/artifacts/acme/shop/{length}/latest_commit")).await.ok();
    }
    for length in [shorter, longer] {
        let refused = api.get(&format!("/artifacts/acme/shop/{length}/latest_commit")).await;
        refused.expect_field_error(400, "fingerprint");
    }
}

#[apply(on_every_store)]
async fn versioning_the_flow_template_schema_has_its_version_in_its_path(api: Api) {
    let schema = api.get("/schemas/flow-template/v1").await;
    schema.expect_header(CONTENT_TYPE, "application/json").ok();
    for other in ["v2", "v0", "1", "V1"] {
        let path = format!("/schemas/flow-template/{other}");
        assert_eq!(api.get(&path).await.error_message(404), "Not found", "{path}");
    }
}

#[apply(on_every_store)]
async fn versioning_of_custom_attestation_types_is_by_a_query_parameter(api: Api) {
    for description in ["first", "second"] {
        let post = api
            .post("/custom-attestation-types/acme")
            .data_json(json!({"name": "review", "description": description}));
        post.await.created();
    }
    let path = "/custom-attestation-types/acme/review";
    for version in [1, 2] {
        let selected = json!({"versions": [{"version": version}]});
        api.get(&format!("{path}?version={version}")).await.expect(200, selected);
    }
    api.get(path).await.expect(200, json!({"versions": [{"version": 2}, {"version": 1}]}));
    assert_eq!(api.get(&format!("{path}?version=x")).await.error_message(400), INVALID);
}

#[apply(on_every_store)]
async fn versioning_repos_are_captured_from_attestations_trails_and_artifacts(api: Api) {
    let repo = |name: &str| json!({"name": name, "url": format!("https://git.example.com/{name}")});
    api.given_artifact_from_repo(&repo("acme/artifact")).await;
    api.put_trail("shop", &json!({"name": "t", "repo_info": repo("acme/trail")})).await.created();
    let attestation =
        json!({"attestation_name": "x", "is_compliant": true, "repo_info": repo("acme/attestation")});
    api.attest("generic", &attestation).await.created();
    api.attest("generic", &attestation).await.created();
    let repos = ["acme/artifact", "acme/attestation", "acme/trail"].map(|name| json!({"name": name}));
    api.get("/repos/acme").await.expect(200, json!({"total_count": 3, "repos": repos}));
}
