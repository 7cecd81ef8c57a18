//! Flows, end to end.

use crate::intercepting_store::{InterceptingStore, take_counts};
use crate::support::prelude::*;

const TEMPLATE: &str = "version: 1\ntrail:\n  attestations:\n    - name: jira\n      type: jira\n";

#[apply(on_every_store)]
async fn a_flow_is_put_got_and_listed(api: Api) {
    let put = api.put_flow("web").with(json!({"description": "The site"})).await;
    put.expect_exactly(201, "OK");
    let put = api
        .put("/flows/acme/template_file")
        .key("member-key")
        .template(TEMPLATE)
        .data_json(json!({"name": "web", "description": "The site"}))
        .await;
    put.expect_exactly(200, "OK");

    let flow = json!({"name": "web", "description": "The site", "visibility": "private", "org": "acme", "template": TEMPLATE, "tags": {}});
    api.get("/flows/acme/web").key("reader-key").await.expect(200, flow.clone());
    api.get("/flows/acme").await.expect(200, json!([flow.clone()]));
    api.get("/flows/acme?per_page=1").await.expect(200, json!({"data": [flow], "pagination": {"total": 1}}));
    api.get("/flows/foobar").key(JOHN).await.expect_exactly(200, json!([]));
}

#[apply(on_every_store)]
async fn an_outsider_reads_a_public_flow_by_name_and_nothing_else(api: Api) {
    for (name, visibility) in [("open", "public"), ("closed", "private")] {
        let put = api.put_flow(name).with(json!({"visibility": visibility})).await;
        put.expect_exactly(201, "OK");
    }
    let refused = json!({"message": "You don't have permission to access this resource"});
    let found = api.get("/flows/acme/open").key(JOHN).await;
    found.expect(200, json!({"name": "open", "visibility": "public"}));
    for path in ["/flows/acme/closed", "/flows/acme/unknown", "/flows/acme"] {
        api.get(path).key(JOHN).await.expect_exactly(403, refused.clone());
    }
}

#[tokio::test]
async fn a_long_list_of_flows_is_read_some_flows_at_a_time() {
    let (store, answered) = InterceptingStore::measured(Arc::new(MemoryStore::new()));
    let api = Api::new(fixture(Arc::new(store), Settings::default()).await, Mount::Tower, "memory").await;
    let names = Vec::from_iter((0..70).map(|number| format!("flow{number:02}")));
    // The list is by name, whatever the order that they were made in.
    for name in names.iter().rev() {
        api.put_flow(name).with(json!({"description": "x".repeat(60 << 10)})).await.created();
    }
    api.put_trail("flow69", &json!({"name": "t"})).await.created();
    let about_flows = || take_counts(&answered, ["flows", "flows_by_id", "newest_trails"]);
    about_flows();
    let found = api.get("/flows/acme").await.ok();
    let found = found.as_array().unwrap();
    let listed = found.iter().map(|flow| flow["name"].as_str().unwrap());
    assert_eq!(Vec::from_iter(listed), names);
    assert!(found[69]["latest_state"].is_string() && found[0]["latest_state"].is_null());
    // Each is of sixty kilobytes, of which a megabyte is read at once.
    assert_eq!(about_flows(), [1, 5, 5]);
    let page = api.get("/flows/acme?page=7&per_page=11").await.ok();
    let listed = page["data"].as_array().unwrap().iter().map(|flow| flow["name"].as_str().unwrap());
    assert_eq!(
        (Vec::from_iter(listed), &page["pagination"]["total"]),
        (vec!["flow66", "flow67", "flow68", "flow69"], &json!(70))
    );
}

async fn put(api: &Api, name: &str) -> Reply {
    api.put_flow(name).with(json!({"description": "put"})).await
}

async fn rename(api: &Api, name: &str, new_name: &str) -> Reply {
    api.put(&format!("/flows/acme/{name}/rename")).json(json!({"new_name": new_name})).await
}

async fn attest(api: &Api, flow: &str, name: &str) -> Reply {
    api.post_generic_attestation(flow, name, true).await
}

/// The names of the flows that the list has.
async fn listed(api: &Api) -> Vec<String> {
    let list = api.get("/flows/acme").await.ok();
    list.as_array().unwrap().iter().map(|flow| flow["name"].as_str().unwrap().to_owned()).collect()
}

#[apply(on_every_store)]
async fn a_renamed_flow_answers_to_its_former_name_until_another_takes_that(api: Api) {
    put(&api, "web").await.created();
    attest(&api, "web", "a").await.created();
    let before = api.get("/flows/acme/web").await.ok();
    rename(&api, "web", "shop").await.expect_exactly(200, "OK");
    let mut after = before.clone();
    after["name"] = json!("shop");
    for name in ["web", "shop"] {
        api.get(&format!("/flows/acme/{name}")).await.expect_exactly(200, after.clone());
        api.get(&format!("/trails/acme/{name}/t")).await.expect(200, json!({"flow": {"name": "shop"}}));
        rename(&api, name, "shop").await.expect_exactly(200, "OK");
    }
    attest(&api, "web", "b").await.created();
    assert_eq!(listed(&api).await, ["shop"]);

    put(&api, "web").await.created();
    assert_eq!(listed(&api).await, ["shop", "web"]);
    assert_ne!(api.get("/flows/acme/web").await.ok()["id"], before["id"]);
    api.get("/trails/acme/web/t").await.error_message(404);
    let trail = api.get("/trails/acme/shop/t").await.ok();
    let statuses = trail["compliance_status"]["attestations_statuses"].as_array().unwrap();
    assert_eq!(statuses.len(), 2, "{trail}");

    let taken = [("new_name", "'web' is the name of another flow")];
    rename(&api, "shop", "web").await.expect_errors(400, INVALID, &taken);
    rename(&api, "web", "site").await.ok();
    rename(&api, "shop", "web").await.ok();
    assert_eq!(listed(&api).await, ["site", "web"]);
    assert_eq!(api.get("/flows/acme/web").await.ok()["id"], before["id"]);
}

#[apply(on_every_store)]
async fn a_flow_has_no_name_that_breaks_the_rules(api: Api) {
    put(&api, "web").await.created();
    let pattern = r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\.\-_~]*$' [input: new illegal name]";
    for (body, field, text) in [
        (json!({"new_name": "new illegal name"}), "new_name", pattern),
        (json!({"new_name": "template_file"}), "new_name", "'template_file' is a reserved word of the API"),
        (json!({}), "new_name", "Field required [input: None]"),
        (json!(null), "body", "Field required [input: None]"),
    ] {
        let refused = api.put("/flows/acme/web/rename").json(&body).await;
        refused.expect_errors(400, INVALID, &[(field, text)]);
    }
    assert_eq!(listed(&api).await, ["web"]);
}

#[apply(on_every_store)]
async fn an_archived_flow_is_in_no_list_and_takes_nothing_more(api: Api) {
    put(&api, "old").await.created();
    rename(&api, "old", "web").await.ok();
    attest(&api, "web", "a").await.created();
    let before = api.get("/flows/acme/web").await.ok();
    api.put("/flows/acme/web/archive").bytes("application/json", "null").await.expect_exactly(200, "OK");
    assert_eq!(listed(&api).await, [""; 0]);
    for path in ["/flows/acme/web", "/flows/acme/old", "/trails/acme/web/t"] {
        assert_eq!(api.get(path).await.error_message(404), "Flow not found", "{path}");
    }
    assert_eq!(api.put("/flows/acme/web/archive").await.error_message(404), "Flow not found");

    // The reports are found under the name that archiving gave the flow.
    let trails = api.get("/trails/acme").await.ok();
    let name = trails["data"][0]["flow"]["name"].as_str().unwrap().to_owned();
    let at = name.strip_prefix("web-archived-at-").unwrap_or_else(|| panic!("{name}"));
    assert!(at.parse::<u64>().is_ok(), "{name}");
    let mut after = before.clone();
    after["name"] = json!(name);
    api.get(&format!("/flows/acme/{name}")).await.expect_exactly(200, after);
    let found = api.get(&format!("/attestations/acme/{name}/trail/t/a")).await.ok();
    assert_eq!(found[0]["flow_name"], json!(name));

    let text = format!("flow '{name}' in organization 'acme' is archived");
    let gone = |field| [(field, text.as_str())];
    attest(&api, &name, "b").await.expect_errors(404, "Flow not found", &gone("flow_name"));
    api.put_trail(&name, &json!({"name": "u"})).await.expect_errors(
        404,
        "Flow not found",
        &gone("flow_name"),
    );
    let artifact = json!({
        "trail_name": "t", "fingerprint": "a".repeat(64), "filename": "x", "build_url": "", "commit_url": "",
    });
    let artifact = api.post(&format!("/artifacts/acme/{name}")).json(artifact).await;
    artifact.expect_errors(404, "Flow not found", &gone("flow_name"));
    put(&api, &name).await.expect_errors(404, "Flow not found", &gone("name"));
    rename(&api, &name, "web").await.expect_errors(404, "Flow not found", &gone("flow_name"));
    let archive = api.put(&format!("/flows/acme/{name}/archive")).await;
    archive.expect_errors(404, "Flow not found", &gone("flow_name"));
    let tags = api.patch(&format!("/tags/acme/flow/{name}")).json(json!({"set_tags": {"a": "b"}})).await;
    assert_eq!(tags.error_message(404), "Resource not found");

    // The name is free, and the next flow of that name is another.
    attest(&api, "web", "c").await.created();
    assert_ne!(api.get("/flows/acme/web").await.ok()["id"], before["id"]);
    for _ in 0..2 {
        api.put("/flows/acme/web/archive").await.ok();
        put(&api, "web").await.created();
    }
    assert_eq!(listed(&api).await, ["web"]);
}

#[apply(on_every_store)]
async fn a_flow_has_at_most_twenty_former_names(api: Api) {
    put(&api, "f0").await.created();
    for number in 0..20 {
        api.put(&format!("/flows/acme/f{number}/rename"))
            .json(json!({"new_name": format!("f{}", number + 1)}))
            .await
            .ok();
    }
    let rename =
        async |new_name: &str| api.put("/flows/acme/f20/rename").json(json!({"new_name": new_name})).await;
    rename("f21").await.expect_field_error(400, "new_name");
    // One that it had already.
    rename("f3").await.ok();
    api.put("/flows/acme/f3/archive").await.ok();
}

#[apply(on_every_store)]
async fn nothing_is_in_a_space(api: Api) {
    put(&api, "web").await.created();
    api.get("/flows/acme?space_id=a&space_id=b").await.expect_exactly(200, json!([]));
    let page = api.get("/flows/acme?space_id=a&per_page=5").await;
    page.expect(200, json!({"data": [], "pagination": {"total": 0, "page_count": 0}}));
}

#[apply(on_every_store)]
async fn older_clients_put_a_flow_with_a_list_of_names(api: Api) {
    let body = json!({"name": "web", "description": "Site", "template": ["artifact", "unit-test", ""]});
    api.put("/flows/acme").json(&body).await.expect_exactly(201, "OK");
    api.put("/flows/acme").json(&body).await.expect_exactly(200, "OK");
    let flow = json!({
        "name": "web", "description": "Site", "visibility": "private",
        "template": ["artifact", "unit-test", ""],
    });
    api.get("/flows/acme/web").await.expect(200, flow.clone());
    api.get("/flows/acme").await.expect(200, json!([flow]));

    // A trail expects the artifact, and each of the names of it.
    api.put("/flows/acme")
        .json(json!({"name": "web", "description": "", "template": ["unit-test"]}))
        .await
        .ok();
    api.put_trail("web", &json!({"name": "t"})).await.created();
    let missing = json!({"status": "INCOMPLETE", "artifacts_statuses": {"artifact": {"status": "MISSING"}}});
    api.get("/trails/acme/web/t").await.expect(200, json!({"compliance_status": missing}));
    api.post_artifact("web", "a".repeat(64)).in_trail("t").named("artifact").await.created();
    let document = json!({
        "attestation_name": "unit-test", "is_compliant": true, "artifact_fingerprint": "a".repeat(64),
    });
    api.post_attestation("web", "t", "generic").data_json(&document).await.created();
    api.get("/trails/acme/web/t").await.expect(200, json!({"compliance_state": "COMPLIANT"}));

    // Clients that send such lists know neither trails nor the names of a template.
    api.post_artifact("web", "b".repeat(64))
        .with(json!({"filename": "y", "git_commit": "c".repeat(40)}))
        .await
        .created();
    let path = format!("/artifacts/acme/web/fingerprint/{}", "b".repeat(64));
    api.get(&path).await.expect(200, json!({"state": "INCOMPLETE"}));

    // A template in the place of the list, and a list in the place of a template.
    api.put_flow("web").template(TEMPLATE).await.expect_exactly(200, "OK");
    api.get("/flows/acme/web").await.expect(200, json!({"template": TEMPLATE}));
    let empty = json!({"name": "web", "description": "", "visibility": "public", "template": []});
    api.put("/flows/acme").json(empty).await.ok();
    api.get("/flows/acme/web").await.expect(200, json!({"template": [], "visibility": "public"}));

    let pattern = r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\.\-_~]*$' [input: foo bar]";
    for (body, field, text) in [
        (json!({"name": "foo bar", "description": "", "template": []}), "name", pattern),
        (json!({"name": "x", "template": []}), "description", "Field required [input: None]"),
        (json!({"name": "x", "description": ""}), "template", "Field required [input: None]"),
    ] {
        api.put("/flows/acme").json(&body).await.expect_errors(400, INVALID, &[(field, text)]);
    }
    let request = api.put_flow("web").template(r#"["unit-test"]"#);
    request.await.expect_field_error(400, "template_file");
}

#[apply(on_every_store)]
async fn the_repo_of_a_flow_is_the_one_that_was_reported_last(api: Api) {
    let artifact = |digit: char, trail: &str, repo_url: &str, repo: Value| {
        json!({
            "fingerprint": digit.to_string().repeat(64), "filename": "f", "build_url": "https://c/1",
            "commit_url": "https://g/1", "trail_name": trail, "repo_url": repo_url, "repo_info": repo,
        })
    };
    let repo = |url: &str| json!({"name": "example/app", "url": url});
    let shows = async |expected: &str| {
        assert_eq!(api.get("/flows/acme/ru").await.ok()["repo_url"], expected);
        let listed = api.get("/flows/acme").await.ok();
        let flow = listed.as_array().unwrap().iter().find(|flow| flow["name"] == "ru").unwrap();
        assert_eq!(flow["repo_url"], expected);
    };
    api.given_flow("ru", TEMPLATE).await;
    api.given_flow("other", TEMPLATE).await;
    shows("").await;
    let post = |body: Value| api.post("/artifacts/acme/ru").json(body);
    post(artifact('a', "t", "", Value::Null)).await.created();
    shows("").await;
    post(artifact('b', "t", "https://github.com/example/app", Value::Null)).await.created();
    shows("https://github.com/example/app").await;
    post(artifact('c', "u", "", Value::Null)).await.created();
    shows("https://github.com/example/app").await;
    post(artifact('d', "u", "https://e/other", repo("https://e/told"))).await.created();
    shows("https://e/told").await;
    let trail = json!({"name": "v", "description": "", "repo_info": repo("https://e/trail")});
    api.put_trail("ru", &trail).await.created();
    shows("https://e/trail").await;
    let generic =
        json!({"attestation_name": "x", "is_compliant": true, "repo_info": repo("https://e/attested")});
    api.post_attestation("ru", "v", "generic").data_json(&generic).await.created();
    shows("https://e/attested").await;
    // A description is no news of a repo.
    api.put_trail("ru", &json!({"name": "v", "description": "new"})).await.ok();
    shows("https://e/attested").await;
    assert_eq!(api.get("/flows/acme/other").await.ok()["repo_url"], "");
}
