//! Who may ask, and what is checked before what.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use evidence_core::api_keys::{CreateApiKey, RevokeApiKey};
use evidence_core::auth::Credential;
use evidence_core::id::SystemRandom;
use evidence_core::memory::MemoryStore;
use evidence_core::operation::{Created, Json};
use evidence_core::seed::Seed;
use evidence_core::service_accounts::CreateServiceAccount;
use evidence_core::time::{Clock, Timestamp};
use evidence_core::{Evidence, EvidenceService, Settings, Store};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderValue, Method};
use serde_json::{from_value, json};

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

/// A clock that stands still until it is moved.
struct Moved(AtomicI64);

impl Clock for Moved {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }
}

#[tokio::test]
async fn a_revoked_key_is_refused_here_at_once_and_by_other_servers_within_a_second() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let clock = Arc::new(Moved(AtomicI64::new(1_000_000)));
    let server = || {
        let clock = Arc::clone(&clock) as _;
        Evidence::with_sources(Arc::clone(&store), Settings::default(), clock, Arc::new(SystemRandom))
    };
    let (here, there) = (server(), server());
    let seed = Seed { user: "jane".parse().unwrap(), orgs: vec!["acme".parse().unwrap()], api_key: None };
    let jane = here.seed(&seed).await.unwrap();
    let jane = here.authenticate(Credential::Bearer(jane.reveal())).await.unwrap();
    let of_bot = json!({"org": "acme", "name": "bot"});
    let account: CreateServiceAccount = from_value(of_bot.clone()).unwrap();
    let privileges = from_value(json!({"name": "bot", "privilege": "reader"})).unwrap();
    here.call(&jane, account, Json(privileges)).await.unwrap();
    let create: CreateApiKey = from_value(of_bot).unwrap();
    let Created(made) =
        here.call(&jane, create, Json(from_value(json!({"description": "ci"})).unwrap())).await.unwrap();
    let accepted = async |server: &Evidence| server.authenticate(Credential::Bearer(&made.key)).await.is_ok();
    assert!(accepted(&here).await && accepted(&there).await);

    let revoke = json!({"org": "acme", "name": "bot", "key_id": made.record.id});
    let revoke: RevokeApiKey = from_value(revoke).unwrap();
    here.call(&jane, revoke, ()).await.unwrap();
    assert!(!accepted(&here).await);
    clock.0.fetch_add(999_999, Ordering::Relaxed);
    assert!(!accepted(&there).await);
}
