//! Flows, end to end.

use serde_json::json;

use crate::support::{JOHN, for_each_store};

const TEMPLATE: &str = "version: 1\ntrail:\n  attestations:\n    - name: jira\n      type: jira\n";

#[tokio::test]
async fn a_flow_is_put_got_and_listed() {
    for_each_store(async |api| {
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
    for_each_store(async |api| {
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
