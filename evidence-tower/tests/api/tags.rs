//! Tags of flows, environments, repos and controls.

use crate::support::prelude::*;

macro_rules! with_resources {
    ($($case:tt)*) => { case_of! { with_resources: $($case)* } };
}

/// Runs a case where a flow, an environment, a control and a repo exist, with the repo's id.
#[expect(clippy::needless_pass_by_value, reason = "cases are closures written at the call")]
fn with_resources(case: impl AsyncFn(Api, &str)) {
    on_every_store(async |api| {
        api.given_environment("production").await;
        api.post_control("c.1").await.created();
        api.given_artifact_from_repo(&json!({"name": "acme/shop", "url": "https://github.com/acme/shop"}))
            .await;
        let repos = api.get("/repos/acme").await.ok();
        case(api, repos["repos"][0]["id"].as_str().unwrap()).await;
    });
}

async fn tags_of_repo(api: &Api) -> Value {
    api.get("/repos/acme").await.ok()["repos"][0]["tags"].clone()
}

#[apply(with_resources)]
async fn every_spelling_of_a_resource_type_is_accepted(api: Api, repo: &str) {
    let table = [
        ("flow", "shop"),
        ("flows", "shop"),
        ("environment", "production"),
        ("environments", "production"),
        ("env", "production"),
        ("repo", repo),
        ("repos", repo),
        ("control", "c.1"),
        ("controls", "c.1"),
    ];
    for (kind, id) in table {
        let body = json!({"set_tags": {kind: "yes"}});
        assert_eq!(api.patch(&format!("/tags/acme/{kind}/{id}")).json(&body).await.ok(), "OK", "{kind}");
    }
    assert_eq!(api.get("/flows/acme/shop").await.ok()["tags"], json!({"flow": "yes", "flows": "yes"}));
    assert_eq!(tags_of_repo(&api).await, json!({"repo": "yes", "repos": "yes"}));
    let control = json!({"tags": {"control": "yes", "controls": "yes"}, "version": 1});
    api.get("/controls/acme/c.1").await.expect(200, control);
}

#[apply(with_resources)]
async fn tags_are_set_and_removed_and_either_may_be_null_or_absent(api: Api, repo: &str) {
    let path = format!("/tags/acme/repo/{repo}");
    let steps = [
        (json!({"set_tags": {"team": "core", "tier": "1"}}), json!({"team": "core", "tier": "1"})),
        (json!({}), json!({"team": "core", "tier": "1"})),
        (json!({"set_tags": null, "remove_tags": null}), json!({"team": "core", "tier": "1"})),
        (json!({"set_tags": {"tier": ""}, "remove_tags": ["team"]}), json!({"tier": ""})),
        (json!({"set_tags": {}, "remove_tags": ["absent", ""]}), json!({"tier": ""})),
        (json!({"remove_tags": ["tier"]}), json!({})),
    ];
    for (body, tags) in steps {
        assert_eq!(api.patch(&path).json(&body).await.ok(), "OK", "{body}");
        assert_eq!(tags_of_repo(&api).await, tags, "{body}");
    }
}

#[apply(with_resources)]
async fn the_body_is_closed_and_keys_fit_their_pattern(api: Api, repo: &str) {
    let path = format!("/tags/acme/repo/{repo}");
    let refused = [
        (json!(null), "body", "Field required [input: None]"),
        (json!({"set_tags": ""}), "set_tags", "Input should be a valid dictionary [input: ]"),
        (json!({"set_tags": {"a": 1}}), "set_tags.a", "Input should be a valid string [input: 1]"),
        (json!({"set_tags": {"a": null}}), "set_tags.a", "Input should be a valid string [input: None]"),
        (json!({"remove_tags": "a"}), "remove_tags", "Input should be a valid list [input: a]"),
        (json!({"remove_tags": [1]}), "remove_tags[0]", "Input should be a valid string [input: 1]"),
        (json!({"more": 1}), "more", "Extra inputs are not permitted [input: 1]"),
        (json!({"set_tags": {"a": "1"}, "remove_tags": ["a"]}), "remove_tags", "'a' is in set_tags as well"),
    ];
    for (body, field, text) in refused {
        api.patch(&path).json(&body).await.expect_errors(400, INVALID, &[(field, text)]);
    }
    for key in ["", "-a", "a b", "a:b", "é"] {
        let body = json!({"set_tags": {key: "x"}});
        assert_eq!(api.patch(&path).json(&body).await.error_message(400), INVALID, "{key:?}");
    }
    assert_eq!(tags_of_repo(&api).await, json!({}));
}

#[apply(with_resources)]
async fn an_unknown_type_is_refused_and_an_unknown_resource_is_not_found(api: Api, repo: &str) {
    let body = json!({"set_tags": {"a": "b"}});
    for kind in ["policy", "Flow", "flowss"] {
        let patch = api.patch(&format!("/tags/acme/{kind}/shop")).json(&body);
        patch.await.expect_field_error(400, "resource_type");
    }
    let unknown = ["flow/none", "env/none", "repo/none", "repo/acme%2Fshop", "control/c1", "controls/c1"];
    for resource in unknown {
        let found = api.patch(&format!("/tags/acme/{resource}")).json(&body).await;
        assert_eq!(found.error_message(404), "Resource not found", "{resource}");
    }
    assert_eq!(
        api.patch(&format!("/tags/jane/repo/{repo}")).json(&body).await.error_message(404),
        "Resource not found"
    );
}

#[apply(with_resources)]
async fn tagging_needs_the_right_to_write(api: Api, _: &str) {
    let (path, body) = ("/tags/acme/flow/shop", json!({"set_tags": {"a": "b"}}));
    for role in ["reader", "snapshotter"] {
        let other = &format!("{role}-key");
        assert_eq!(api.patch(path).json(&body).key(other).await.error_message(403), FORBIDDEN, "{role}");
    }
    assert_eq!(api.patch(path).json(&body).key("member-key").await.ok(), "OK");
    assert_eq!(api.patch(path).json(&body).anonymous().await.error_message(401), "Unauthorized");
    assert_eq!(
        api.patch("/tags/nowhere/flow/shop").json(&body).await.error_message(404),
        "Organization not found"
    );
}
