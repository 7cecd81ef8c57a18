//! Who may ask, and what is checked before what.

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderValue, Method};
use serde_json::json;

use crate::support::{EXPIRED, JOHN, KEYS, REVOKED, for_each_store};

#[tokio::test]
async fn without_a_valid_credential_everything_is_unauthorized() {
    let long = format!("Bearer {}", "k".repeat(10_000));
    let table = [
        "",
        "Bearer",
        "Bearer ",
        "jane-key",
        "Token jane-key",
        "Bearer unknown",
        "Bearer jane-key x",
        "Bearerjane-key",
        // The user name is jane's key, but no operation here takes Basic.
        "Basic amFuZS1rZXk6eA==",
        &long,
        &format!("Bearer {EXPIRED}"),
        &format!("Bearer {REVOKED}"),
    ]
    .map(str::to_owned);
    for_each_store(async |api| {
        let refused = json!({"message": "Unauthorized"});
        let anonymous = api.get("/flows/acme").anonymous().await;
        anonymous.expect_exactly(401, refused.clone()).expect_header(WWW_AUTHENTICATE, "Bearer");
        for credential in &table {
            let reply = api.get("/flows/acme").header(AUTHORIZATION, credential.as_str()).await;
            reply.expect_exactly(401, refused.clone()).expect_header(WWW_AUTHENTICATE, "Bearer");
        }
        let binary = HeaderValue::from_bytes(b"Bearer \xff").unwrap();
        api.get("/flows/acme").header(AUTHORIZATION, binary).await.expect_exactly(401, refused);
    })
    .await;
}

#[tokio::test]
async fn the_case_of_the_scheme_does_not_matter() {
    for_each_store(async |api| {
        for credential in ["bearer jane-key", "BEARER jane-key", "Bearer  jane-key "] {
            api.get("/flows/acme").header(AUTHORIZATION, credential).await.expect_exactly(200, json!([]));
        }
    })
    .await;
}

#[tokio::test]
async fn the_repo_list_takes_the_key_as_the_user_of_basic_too() {
    for_each_store(async |api| {
        // jane-key:, jane-key:any:thing
        for credential in ["Basic amFuZS1rZXk6", "basic amFuZS1rZXk6YW55OnRoaW5n"] {
            let reply = api.get("/repos/acme").header(AUTHORIZATION, credential).await;
            assert_eq!(reply.status, 200, "{reply:?}");
        }
        // jane-key, :jane-key, and no base64
        for credential in ["Basic amFuZS1rZXk=", "Basic OmphbmUta2V5", "Basic jane-key:", "Basic"] {
            let reply = api.get("/repos/acme").header(AUTHORIZATION, credential).await;
            reply.expect_exactly(401, json!({"message": "Unauthorized"}));
        }
    })
    .await;
}

#[tokio::test]
async fn a_role_reads_or_writes_as_far_as_it_goes() {
    for_each_store(async |api| {
        for (role, key) in KEYS {
            api.get("/flows/acme").key(key).await.expect_exactly(200, json!([]));
            let put = api.put("/flows/acme/template_file").key(key).await;
            // Who may write gets as far as the missing form.
            let (status, message) = match role {
                evidence_core::auth::Role::Admin | evidence_core::auth::Role::Member => {
                    (400, "Input payload validation failed")
                }
                evidence_core::auth::Role::Snapshotter | evidence_core::auth::Role::Reader => {
                    (403, "You don't have permission to access this resource")
                }
            };
            put.expect(status, json!({"message": message}));
        }
    })
    .await;
}

#[tokio::test]
async fn checks_come_in_their_order() {
    for_each_store(async |api| {
        let junk = "multipart/form-data; boundary=b";
        let put = |path: &str| api.put(path).bytes(junk, "junk");
        put("/nowhere").anonymous().await.expect(404, json!({"message": "Not found"}));
        put("/flows/acme").anonymous().await.expect(405, json!({"message": "Method not allowed"}));
        put("/flows/nobody/template_file").anonymous().await.expect(401, json!({"message": "Unauthorized"}));
        let unknown = put("/flows/nobody/template_file").await;
        unknown.expect(
            404,
            json!({"message": "Organization not found", "errors": {"org": "no organization named 'nobody'"}}),
        );
        put("/flows/acme/template_file").key(JOHN).await.expect(403, json!({}));
        put("/flows/acme/template_file").await.expect(400, json!({"errors": {}}));
        api.get("/flows/acme/a%00b").key(JOHN).await.expect(403, json!({}));
        api.get("/flows/acme/a%00b").await.expect(400, json!({"errors": {}}));
        api.get("/flows/acme/unknown").await.expect(404, json!({"message": "Flow not found"}));
    })
    .await;
}

#[tokio::test]
async fn what_cannot_name_an_organization_does_not_exist() {
    for_each_store(async |api| {
        for org in ["-a", "a%00", "a%2Fb", "%ff", "%20", "a%0a", &"a".repeat(65)] {
            let reply = api.request(Method::GET, &format!("/flows/{org}")).await;
            reply.expect(404, json!({"message": "Organization not found"}));
        }
    })
    .await;
}

#[tokio::test]
async fn a_personal_organization_is_its_users_alone() {
    for_each_store(async |api| {
        api.get("/flows/jane").await.expect_exactly(200, json!([]));
        for key in [JOHN, "admin-key"] {
            api.get("/flows/jane").key(key).await.expect(403, json!({}));
        }
    })
    .await;
}
