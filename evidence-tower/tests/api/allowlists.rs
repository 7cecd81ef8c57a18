//! The allowlist (specification, Allowlist record; GET /allowlists/{org}).

use serde_json::{Value, json};

use crate::support::json::{FORBIDDEN, INVALID};
use crate::support::{JOHN, on_every_store_and_mount};

const LIST: &str = "/allowlists/acme";
const PRODUCTION: &str = "/allowlists/acme/production";

fn allowance(digit: &str, reason: &str) -> Value {
    json!({"artifact_name": "shop", "artifact_fingerprint": digit.repeat(64), "description": reason})
}

#[tokio::test]
async fn a_record_has_every_field_of_the_table() {
    on_every_store_and_mount(async |api| {
        api.environment("production").await;
        assert_eq!(api.get(LIST).await.ok(), json!([]));
        let sent = allowance("a", "known");
        assert_eq!(api.put(PRODUCTION).json(&sent).await.created(), sent);
        let records = api.get(LIST).await.ok();
        let record = &records[0];
        assert!(record["timestamp"].is_i64(), "{record}");
        let expected = json!([{
            "artifact_name": "shop",
            "description": "known",
            "environment_name": "production",
            "fingerprint": "a".repeat(64),
            "timestamp": record["timestamp"],
            "user_name": "jane",
        }]);
        assert_eq!(records, expected);
    })
    .await;
}

#[tokio::test]
async fn the_newest_record_of_an_environment_and_fingerprint_is_listed_newest_first() {
    on_every_store_and_mount(async |api| {
        api.environment("production").await;
        api.environment("staging").await;
        api.put(PRODUCTION).json(allowance("a", "first")).await.created();
        api.put(PRODUCTION).json(allowance("b", "second")).await.created();
        api.put("/allowlists/acme/staging").json(allowance("a", "third")).await.created();
        api.put(PRODUCTION).json(allowance("a", "fourth")).await.created();
        let records = api.get(LIST).await.ok();
        let reasons: Vec<&Value> =
            records.as_array().unwrap().iter().map(|record| &record["description"]).collect();
        assert_eq!(reasons, ["fourth", "third", "second"]);
    })
    .await;
}

#[tokio::test]
async fn the_body_is_closed_and_every_field_is_required() {
    on_every_store_and_mount(async |api| {
        api.environment("production").await;
        let without = |field: &str| {
            let mut body = allowance("a", "");
            body.as_object_mut().unwrap().remove(field);
            body
        };
        let with = |field: &str, value: Value| {
            let mut body = allowance("a", "");
            body[field] = value;
            body
        };
        let pattern = "String should match pattern '^[a-f0-9]{64}$'";
        let refused = [
            (json!(null), "body", "Field required [input: None]".to_owned()),
            (without("artifact_name"), "artifact_name", "Field required [input: None]".to_owned()),
            (
                without("artifact_fingerprint"),
                "artifact_fingerprint",
                "Field required [input: None]".to_owned(),
            ),
            (without("description"), "description", "Field required [input: None]".to_owned()),
            (with("artifact_fingerprint", json!("")), "artifact_fingerprint", format!("{pattern} [input: ]")),
            (
                with("artifact_fingerprint", json!("A".repeat(64))),
                "artifact_fingerprint",
                format!("{pattern} [input: {}]", "A".repeat(64)),
            ),
            (
                with("artifact_fingerprint", json!("a".repeat(63))),
                "artifact_fingerprint",
                format!("{pattern} [input: {}]", "a".repeat(63)),
            ),
            (
                with("description", json!(null)),
                "description",
                "Input should be a valid string [input: None]".to_owned(),
            ),
            (with("more", json!(1)), "more", "Extra inputs are not permitted [input: 1]".to_owned()),
        ];
        for (body, field, text) in refused {
            api.put(PRODUCTION).json(&body).await.refused(400, INVALID, &[(field, &text)]);
        }
        assert_eq!(api.get(LIST).await.ok(), json!([]));
    })
    .await;
}

#[tokio::test]
async fn the_environment_must_exist_and_the_caller_may_write() {
    on_every_store_and_mount(async |api| {
        let body = allowance("a", "");
        api.put(PRODUCTION).json(&body).await.refused(
            404,
            "Environment not found",
            &[("env_name", "no environment named 'production' in organization 'acme'")],
        );
        api.put("/allowlists/acme/-").json(&body).await.refuses_field(400, "env_name");
        api.environment("production").await;
        for role in ["reader", "snapshotter"] {
            let other = &format!("{role}-key");
            assert_eq!(api.put(PRODUCTION).json(&body).key(other).await.message(403), FORBIDDEN, "{role}");
            assert_eq!(api.get(LIST).key(other).await.ok(), json!([]), "{role}");
        }
        assert_eq!(api.get("/allowlists/nowhere").await.message(404), "Organization not found");
        assert_eq!(api.get(LIST).anonymous().await.message(401), "Unauthorized");
        assert_eq!(api.get(LIST).key(JOHN).await.message(403), FORBIDDEN);
    })
    .await;
}
