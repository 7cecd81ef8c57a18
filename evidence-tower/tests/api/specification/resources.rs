//! Resources and their fields: each table's keys, all of them, in its order, with values of its types.

use Kind::{Any, Boolean, Integer, List, ListOrNull, Object, ObjectOrNull, Text, TextOrNull};

use crate::support::prelude::*;

/// A type in a table of fields.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    TextOrNull,
    Integer,
    Boolean,
    Object,
    ObjectOrNull,
    List,
    ListOrNull,
    Any,
}

impl Kind {
    fn fits(self, value: &Value) -> bool {
        match self {
            Text => value.is_string(),
            TextOrNull => value.is_string() || value.is_null(),
            Integer => value.is_i64() || value.is_u64(),
            Boolean => value.is_boolean(),
            Object => value.is_object(),
            ObjectOrNull => value.is_object() || value.is_null(),
            List => value.is_array(),
            ListOrNull => value.is_array() || value.is_null(),
            Any => true,
        }
    }
}

/// Asserts that an object has the fields of a table and no others.
#[track_caller]
fn expect_table(object: &Value, table: &[(&str, Kind)]) {
    let keys: Vec<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
    let rows: Vec<&str> = table.iter().map(|(field, _)| *field).collect();
    assert_eq!(keys, rows, "{object}");
    for (field, kind) in table {
        assert!(kind.fits(&object[field]), "{field} is no {kind:?}: {object}");
    }
}

const REPO: [(&str, Kind); 12] = [
    ("id", Text),
    ("name", Text),
    ("short_name", TextOrNull),
    ("url", Text),
    ("provider", TextOrNull),
    ("repo_id", TextOrNull),
    ("vcs_instance", TextOrNull),
    ("namespace_path", ListOrNull),
    ("additional_info", ObjectOrNull),
    ("description", TextOrNull),
    ("tags", Object),
    ("_links", ObjectOrNull),
];

const REPO_LIST_RESPONSE: [(&str, Kind); 6] = [
    ("page", Integer),
    ("per_page", Integer),
    ("total_pages", Integer),
    ("total_count", Integer),
    ("repos", List),
    ("_links", ObjectOrNull),
];

const SERVICE_ACCOUNT: [(&str, Kind); 7] = [
    ("name", Text),
    ("display_name", Text),
    ("privilege", Text),
    ("description", TextOrNull),
    ("creating_user_id", Text),
    ("created_at", Integer),
    ("for_webhook", Boolean),
];

const FLOW: [(&str, Kind); 8] = [
    ("id", Text),
    ("name", Text),
    ("description", Text),
    ("visibility", Text),
    ("org", Text),
    ("template", Any),
    ("repo_url", Text),
    ("tags", ObjectOrNull),
];

const ARTIFACT: [(&str, Kind); 28] = [
    ("id", Text),
    ("fingerprint", Text),
    ("filename", Text),
    ("created_at", Text),
    ("last_modified_at", Text),
    ("evidence", Object),
    ("flow_name", Text),
    ("commit_lead_times", Object),
    ("build_lead_times", Object),
    ("trail_name", Text),
    ("template_reference_name", Text),
    ("git_commit", Text),
    ("git_commit_info", Object),
    ("repo_info", Object),
    ("commit_url", Text),
    ("build_url", Text),
    ("repo_url", Text),
    ("html_url", Text),
    ("api_url", Text),
    ("user_data", Any),
    ("external_urls", Object),
    ("annotations", Object),
    ("state", Text),
    ("template", List),
    ("state_info", Text),
    ("running", List),
    ("exited", List),
    ("history", List),
];

const GIT_COMMIT_INFO: [(&str, Kind); 10] = [
    ("sha1", Text),
    ("message", Text),
    ("author", Text),
    ("author_username", Text),
    ("branch", Text),
    ("timestamp", Integer),
    ("url", Text),
    ("parents", List),
    ("verified", Boolean),
    ("signature_state", Text),
];

const REPO_INFO: [(&str, Kind); 9] = [
    ("name", Text),
    ("url", Text),
    ("id", Text),
    ("description", Text),
    ("provider", Text),
    ("vcs_instance", Text),
    ("namespace_path", List),
    ("additional_info", Object),
    ("short_name", Text),
];

const ALLOWLIST_RECORD: [(&str, Kind); 6] = [
    ("artifact_name", Text),
    ("description", Text),
    ("environment_name", Text),
    ("fingerprint", Text),
    ("timestamp", Integer),
    ("user_name", Text),
];

const SNAPSHOT_SUMMARY: [(&str, Kind); 5] =
    [("index", Integer), ("from", Integer), ("to", Integer), ("compliant", Boolean), ("duration", Integer)];

/// Reports an artifact with every field, `a`, and one with as few as possible, `b`, each to a flow of its
/// own.
async fn given_artifacts(api: &Api) {
    let full = json!({
        "trail_name": "t", "template_reference_name": "cli", "fingerprint": "a".repeat(64), "filename": "cli",
        "git_commit": COMMIT, "commit_url": "https://git.example.com/c", "build_url": "https://ci.example.com/1",
        "repo_url": "https://git.example.com/acme/shop", "user_data": [1], "annotations": {"k": "v"},
        "external_urls": {"ticket": {"href": "https://tracker.example.com/1", "fingerprint": "e".repeat(64)}},
        "git_commit_info": {
            "sha1": COMMIT, "message": "m", "author": "A <a@b>", "author_username": "a", "branch": "main",
            "timestamp": 1_783_530_000.75, "url": "https://git.example.com/c", "parents": ["p"], "verified": true,
            "signature_state": "valid",
        },
        "repo_info": {
            "name": "acme/shop", "url": "https://git.example.com/acme/shop", "id": "7", "description": "sells",
            "provider": "git", "namespace_path": ["acme"], "additional_info": {"stars": 3},
        },
    });
    let bare = json!({"fingerprint": "b".repeat(64), "filename": "x", "build_url": "", "commit_url": ""});
    for (flow, artifact) in [("full", full), ("bare", bare)] {
        api.post(&format!("/artifacts/acme/{flow}")).json(artifact).await.created();
    }
    api.given_artifact_from_repo(&json!({"name": "tool", "url": "/srv/git/tool"})).await;
}

#[apply(on_every_store)]
async fn repo_and_repo_list_response(api: Api) {
    given_artifacts(&api).await;
    let list = api.get("/repos/acme").await.ok();
    expect_table(&list, &REPO_LIST_RESPONSE);
    let repos = list["repos"].as_array().unwrap();
    assert_eq!(repos.len(), 2);
    for repo in repos {
        expect_table(repo, &REPO);
    }
}

#[apply(on_every_store)]
async fn service_account(api: Api) {
    let full = json!({"name": "full", "description": "builds", "privilege": "admin"});
    for body in [full, json!({"name": "bare"})] {
        expect_table(&api.post("/service-accounts/acme").json(body).await.created(), &SERVICE_ACCOUNT);
    }
}

#[apply(on_every_store)]
async fn flow(api: Api) {
    given_artifacts(&api).await;
    api.given_flow("shown", crate::trails::TEMPLATE).await;
    for name in ["full", "bare", "shown"] {
        expect_table(&api.get(&format!("/flows/acme/{name}")).await.ok(), &FLOW);
    }
    let implied = json!({"visibility": "private", "template": "version: 1", "description": "", "tags": {}});
    api.get("/flows/acme/bare").await.expect(200, implied);
}

#[apply(on_every_store)]
async fn flow_visibility_is_public_or_private(api: Api) {
    let put = |visibility: Value| api.put_flow("web").with(json!({"visibility": visibility}));
    for (sent, found) in [("public", "public"), ("private", "private")] {
        put(json!(sent)).await;
        api.get("/flows/acme/web").await.expect(200, json!({"visibility": found}));
    }
    for wrong in ["", "Public", "internal"] {
        put(json!(wrong)).await.expect_field_error(400, "visibility");
    }
}

#[apply(on_every_store)]
async fn artifact_with_git_commit_info_and_repo_info(api: Api) {
    given_artifacts(&api).await;
    for (flow, digit) in [("full", "a"), ("bare", "b")] {
        let by_fingerprint = format!("/artifacts/acme/{flow}/fingerprint/{}", digit.repeat(64));
        let artifact = api.get(&by_fingerprint).await.ok();
        expect_table(&artifact, &ARTIFACT);
        expect_table(&artifact["git_commit_info"], &GIT_COMMIT_INFO);
        expect_table(&artifact["repo_info"], &REPO_INFO);
    }
    let shown = json!({
        "repo_url": "https://git.example.com/acme/shop", "user_data": [1], "annotations": {"k": "v"},
        "external_urls": {"ticket": {"href": "https://tracker.example.com/1", "fingerprint": "e".repeat(64)}},
        "git_commit_info": {
            "author_username": "a", "timestamp": 1_783_530_000, "parents": ["p"], "verified": true,
            "signature_state": "valid",
        },
        "repo_info": {
            "id": "7", "description": "sells", "provider": "git", "vcs_instance": "git.example.com",
            "namespace_path": ["acme"], "additional_info": {"stars": 3}, "short_name": "shop",
        },
    });
    api.get(&format!("/artifacts/acme/full/commit_sha/{COMMIT}")).await.expect(200, json!([shown]));
}

#[apply(on_every_store)]
async fn allowlist_record(api: Api) {
    api.given_environment("prod").await;
    let body = json!({"artifact_name": "x", "description": "", "artifact_fingerprint": "a".repeat(64)});
    api.put("/allowlists/acme/prod").json(body).await.created();
    expect_table(&api.get("/allowlists/acme").await.ok()[0], &ALLOWLIST_RECORD);
}

#[apply(on_every_store)]
async fn snapshot_summary(api: Api) {
    api.given_environment("prod").await;
    api.report_running("prod", &[]).await.created();
    api.report_running("prod", &[('1', &[1])]).await.created();
    let snapshots = api.get("/snapshots/acme/prod").await.ok();
    for index in 0..2 {
        expect_table(&snapshots[index], &SNAPSHOT_SUMMARY);
    }
}

#[apply(on_every_store)]
async fn latest_commit_response(api: Api) {
    given_artifacts(&api).await;
    for (flow, digit) in [("full", "a"), ("bare", "b")] {
        let latest = api.get(&format!("/artifacts/acme/{flow}/{}/latest_commit", digit.repeat(64))).await;
        expect_table(&latest.ok(), &[("latest_commit", Text)]);
    }
}

#[apply(on_every_store)]
async fn error_body_is_a_message_and_maybe_errors(api: Api) {
    let bare = api.get("/flows/foobar").await.json();
    expect_table(&bare, &[("message", Text)]);
    for path in ["/flows/nowhere", "/flows/acme/none", "/repos/acme?page=0", "/repos/acme?name=a&search=b"] {
        let body = api.get(path).await.json();
        expect_table(&body, &[("message", Text), ("errors", Object)]);
        let errors = body["errors"].as_object().unwrap();
        assert!(!errors.is_empty() && errors.values().all(Value::is_string), "{body}");
    }
}
