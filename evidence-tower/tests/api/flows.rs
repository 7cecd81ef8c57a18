//! Flows, end to end.

use std::sync::Arc;

use evidence_core::Settings;
use evidence_core::memory::MemoryStore;
use serde_json::json;

use crate::intercepting_store::{InterceptingStore, take_counts};
use crate::mounts::Mount;
use crate::support::{Api, JOHN, fixture, on_every_store_and_mount};

const TEMPLATE: &str = "version: 1\ntrail:\n  attestations:\n    - name: jira\n      type: jira\n";

#[tokio::test]
async fn a_flow_is_put_got_and_listed() {
    on_every_store_and_mount(async |api| {
        let document = ("name=\"data_json\"", r#"{"name": "web", "description": "The site"}"#);
        let put = api.put("/flows/acme/template_file").form(&[document]).await;
        put.expect_exactly(201, "OK");
        let template = ("name=\"template_file\"; filename=\"template.yml\"", TEMPLATE);
        let put = api.put("/flows/acme/template_file").key("member-key").form(&[template, document]).await;
        put.expect_exactly(200, "OK");

        let flow = json!({"name": "web", "description": "The site", "visibility": "private", "org": "acme", "template": TEMPLATE, "tags": {}});
        api.get("/flows/acme/web").key("reader-key").await.expect(200, flow.clone());
        api.get("/flows/acme").await.expect(200, json!([flow.clone()]));
        api.get("/flows/acme?per_page=1").await.expect(200, json!({"data": [flow], "pagination": {"total": 1}}));
        api.get("/flows/foobar").key(JOHN).await.expect_exactly(200, json!([]));
    })
    .await;
}

#[tokio::test]
async fn an_outsider_reads_a_public_flow_by_name_and_nothing_else() {
    on_every_store_and_mount(async |api| {
        for (name, visibility) in [("open", "public"), ("closed", "private")] {
            let document = json!({"name": name, "description": "", "visibility": visibility}).to_string();
            let put = api.put("/flows/acme/template_file").form(&[("name=\"data_json\"", &document)]).await;
            put.expect_exactly(201, "OK");
        }
        let refused = json!({"message": "You don't have permission to access this resource"});
        api.get("/flows/acme/open")
            .key(JOHN)
            .await
            .expect(200, json!({"name": "open", "visibility": "public"}));
        for path in ["/flows/acme/closed", "/flows/acme/unknown", "/flows/acme"] {
            api.get(path).key(JOHN).await.expect_exactly(403, refused.clone());
        }
    })
    .await;
}

#[tokio::test]
async fn a_long_list_of_flows_is_read_some_flows_at_a_time() {
    let (store, answered) = InterceptingStore::measured(Arc::new(MemoryStore::new()));
    let api = Api::new(fixture(Arc::new(store), Settings::default()).await, Mount::Tower, "memory").await;
    let names = Vec::from_iter((0..70).map(|number| format!("flow{number:02}")));
    // The list is by name, whatever the order that they were made in.
    for name in names.iter().rev() {
        let long = json!({"name": name, "description": "x".repeat(60 << 10)}).to_string();
        api.put("/flows/acme/template_file").form(&[("name=\"data_json\"", &long)]).await.created();
    }
    api.begin("flow69", &json!({"name": "t"})).await.created();
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
