//! Organizations, and the schema that belongs to none.

use serde_json::json;

use crate::support::json::FORBIDDEN;
use crate::support::{JOHN, on_every_store_and_mount};

#[tokio::test]
async fn an_organization_tells_its_kind_and_when_it_was_made() {
    on_every_store_and_mount(async |api| {
        for (name, kind) in [("acme", "shared"), ("jane", "personal")] {
            let org = api.get(&format!("/organizations/{name}")).await.ok();
            assert!(org["created_at"].is_number() && org["last_modified_at"].is_number(), "{org}");
            assert_eq!((&org["name"], &org["kind"]), (&json!(name), &json!(kind)));
            assert_eq!(org["experimental_features_enabled"], false);
            assert_eq!(org.as_object().unwrap().len(), 5);
        }
    })
    .await;
}

#[tokio::test]
async fn an_organization_answers_to_its_own() {
    on_every_store_and_mount(async |api| {
        assert_eq!(api.get("/organizations/nowhere").await.message(404), "Organization not found");
        assert_eq!(api.get("/organizations/%20").await.message(404), "Organization not found");
        assert_eq!(api.get("/organizations/acme").anonymous().await.message(401), "Unauthorized");
        assert_eq!(api.get("/organizations/acme").key(JOHN).await.message(403), FORBIDDEN);
    })
    .await;
}

#[tokio::test]
async fn the_flow_template_schema_is_for_every_caller_with_a_credential() {
    on_every_store_and_mount(async |api| {
        let schema = api.get("/schemas/flow-template/v1").key(JOHN).await.ok();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
        assert!(schema["$id"].is_string() && schema["properties"]["trail"].is_object());
        assert_eq!(api.get("/schemas/flow-template/v1").anonymous().await.message(401), "Unauthorized");
    })
    .await;
}
