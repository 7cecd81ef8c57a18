//! Rights, and the order of checks.

use std::future::IntoFuture;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use evidence_conformance::memory::MemoryStore;
use evidence_core::api_keys::{CreateApiKey, GetApiKey, ListApiKeys, NewApiKey, RevokeApiKey, RotateApiKey};
use evidence_core::auth::{Credential, Principal, Target};
use evidence_core::environments::PutEnvironment;
use evidence_core::flows::{GetFlow, ListFlows, PutFlow};
use evidence_core::id::SystemRandom;
use evidence_core::operation::{Created, Form, Json};
use evidence_core::seed::Seed;
use evidence_core::service_accounts::{CreateServiceAccount, PatchServiceAccount};
use evidence_core::{Error, EvidenceService, Operation};
use futures_util::future::join_all;
use futures_util::stream;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde::de::DeserializeOwned;
use serde_json::from_value;

use crate::intercepting_store::{InterceptingStore, take_counts, take_queries};
use crate::mounts::SentBody;
use crate::support::prelude::*;
use crate::support::{EXPIRED, KEYS, REVOKED, every_store};

#[test]
fn without_a_valid_credential_everything_is_unauthorized() {
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
    on_every_store(async |api| {
        let refused = json!({"message": "Unauthorized"});
        let anonymous = api.get("/flows/acme").anonymous().await;
        anonymous.expect_exactly(401, refused.clone()).expect_header(WWW_AUTHENTICATE, "Bearer");
        for credential in &table {
            let reply = api.get("/flows/acme").header(AUTHORIZATION, credential.as_str()).await;
            reply.expect_exactly(401, refused.clone()).expect_header(WWW_AUTHENTICATE, "Bearer");
        }
        let binary = HeaderValue::from_bytes(b"Bearer \xff").unwrap();
        api.get("/flows/acme").header(AUTHORIZATION, binary).await.expect_exactly(401, refused);
    });
}

#[apply(on_every_store)]
async fn the_case_of_the_scheme_does_not_matter(api: Api) {
    for credential in ["bearer jane-key", "BEARER jane-key", "Bearer  jane-key "] {
        api.get("/flows/acme").header(AUTHORIZATION, credential).await.expect_exactly(200, json!([]));
    }
}

#[apply(on_every_store)]
async fn the_repo_list_takes_the_key_as_the_user_of_basic_too(api: Api) {
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
}

#[apply(on_every_store)]
async fn a_role_reads_or_writes_as_far_as_it_goes(api: Api) {
    for (role, key) in KEYS {
        api.get("/flows/acme").key(key).await.expect_exactly(200, json!([]));
        let put = api.put("/flows/acme/template_file").key(key).await;
        // A caller with the right to write gets as far as the missing form.
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
}

#[apply(on_every_store)]
async fn checks_come_in_their_order(api: Api) {
    let junk = "multipart/form-data; boundary=b";
    let put = |path: &str| api.put(path).bytes(junk, "junk");
    put("/nowhere").anonymous().await.expect_message(404, "Not found");
    put("/flows/acme/shop").anonymous().await.expect_message(405, "Method not allowed");
    put("/flows/nobody/template_file").anonymous().await.expect_message(401, "Unauthorized");
    let unknown = put("/flows/nobody/template_file").await;
    unknown.expect(
        404,
        json!({"message": "Organization not found", "errors": {"org": "no organization named 'nobody'"}}),
    );
    put("/flows/acme/template_file").key(JOHN).await.expect(403, json!({}));
    put("/flows/acme/template_file").await.expect(400, json!({"errors": {}}));
    api.get("/flows/acme/a%00b").key(JOHN).await.expect(403, json!({}));
    api.get("/flows/acme/a%00b").await.expect(400, json!({"errors": {}}));
    api.get("/flows/acme/unknown").await.expect_message(404, "Flow not found");
}

#[apply(on_every_store)]
async fn what_cannot_name_an_organization_does_not_exist(api: Api) {
    for org in ["-a", "a%00", "a%2Fb", "%ff", "%20", "a%0a", &"a".repeat(65)] {
        let reply = api.request(Method::GET, &format!("/flows/{org}")).await;
        reply.expect_message(404, "Organization not found");
    }
}

#[apply(on_every_store)]
async fn a_personal_organization_is_its_users_alone(api: Api) {
    api.get("/flows/jane").await.expect_exactly(200, json!([]));
    for key in [JOHN, "admin-key"] {
        api.get("/flows/jane").key(key).await.expect(403, json!({}));
    }
}

/// A server over this store whose clock shows so many seconds after [`NOW`], and the clock.
fn server(store: &Arc<dyn Store>, seconds: i64) -> (Evidence, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    clock.set(seconds);
    let (settings, random) = (Settings::default(), Arc::new(SystemRandom));
    (Evidence::with_sources(Arc::clone(store), settings, Arc::clone(&clock) as _, random), clock)
}

/// Jane, and a key of a service account of hers.
async fn bot_of_jane(server: &Evidence) -> (Principal, NewApiKey) {
    let seed = Seed { user: "jane".parse().unwrap(), orgs: vec!["acme".parse().unwrap()], api_key: None };
    let jane = server.seed(&seed).await.unwrap();
    let jane = server.authenticate(Credential::Bearer(jane.reveal())).await.unwrap();
    let of_bot = json!({"org": "acme", "name": "bot"});
    let account: CreateServiceAccount = from_value(of_bot.clone()).unwrap();
    let privileges = from_value(json!({"name": "bot", "privilege": "reader"})).unwrap();
    server.call(&jane, account, Json(privileges)).await.unwrap();
    let create: CreateApiKey = from_value(of_bot).unwrap();
    let description = Json(from_value(json!({"description": "ci"})).unwrap());
    let Created(key) = server.call(&jane, create, description).await.unwrap();
    (jane, key)
}

async fn accepts(server: &Evidence, key: &str) -> bool {
    server.authenticate(Credential::Bearer(key)).await.is_ok()
}

/// The operation on this key of the service account.
fn on<T: DeserializeOwned>(key: &NewApiKey) -> T {
    from_value(json!({"org": "acme", "name": "bot", "key_id": key.record.id})).unwrap()
}

/// Replaces this key, which works on for an hour.
async fn rotate(server: &Evidence, jane: &Principal, key: &NewApiKey) {
    let rotation = Json(from_value(json!({"grace_period_hours": 1})).unwrap());
    server.call(jane, on::<RotateApiKey>(key), rotation).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_revoked_key_is_refused_here_at_once_and_by_other_servers_within_a_second() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let ((here, clock), (there, _)) = (server(&store, 0), server(&store, -3600));
    let (jane, key) = bot_of_jane(&here).await;
    assert!(accepts(&here, &key.key).await && accepts(&there, &key.key).await);

    here.call(&jane, on::<RevokeApiKey>(&key), ()).await.unwrap();
    assert!(!accepts(&here, &key.key).await);
    tokio::time::advance(Duration::from_micros(999_999)).await;
    assert!(!accepts(&there, &key.key).await, "by a server whose clock is behind");
    clock.set(-3600);
    assert!(!accepts(&here, &key.key).await, "once the clock is set back");
}

#[tokio::test(start_paused = true)]
async fn a_rotated_key_works_until_its_grace_period_ends_unless_it_is_revoked_before() {
    for revoked in [false, true] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let ((here, clock), (there, _)) = (server(&store, 0), server(&store, -3600));
        let (jane, key) = bot_of_jane(&here).await;
        rotate(&here, &jane, &key).await;
        if revoked {
            here.call(&jane, on::<RevokeApiKey>(&key), ()).await.unwrap();
        }
        for (seconds, works) in [(3599, !revoked), (3600, false)] {
            clock.set(seconds);
            assert_eq!(accepts(&here, &key.key).await, works, "{seconds} s, revoked: {revoked}");
        }
        assert_eq!(accepts(&there, &key.key).await, !revoked);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_has_expired_by_one_servers_clock_is_revoked_for_all() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let ((here, clock), (there, _)) = (server(&store, 0), server(&store, 0));
    let (jane, key) = bot_of_jane(&here).await;
    rotate(&here, &jane, &key).await;
    let (operator, user) = (here.administration(&"ops".parse().unwrap()), "jane".parse().unwrap());
    let expires_at = NOW.as_micros() / 1_000_000 + 3600;
    let input = from_value(json!({"description": "laptop", "expires_at": expires_at})).unwrap();
    let laptop = operator.create_key(&user, &input).await.unwrap();
    for key in [&key, &laptop] {
        assert!(accepts(&there, &key.key).await);
    }

    clock.set(7200);
    let gone = here.call(&jane, on::<GetApiKey>(&key), ()).await;
    assert_eq!(gone.unwrap_err().status(), 404);
    here.call(&jane, on::<RevokeApiKey>(&key), ()).await.unwrap();
    let again = here.call(&jane, on::<RevokeApiKey>(&key), ()).await;
    assert_eq!(again.unwrap_err().status(), 404);
    operator.revoke_key(&user, laptop.record.id).await.unwrap();
    let again = operator.revoke_key(&user, laptop.record.id).await;
    assert_eq!(again.unwrap_err().status(), 404);
    tokio::time::advance(Duration::from_millis(500)).await;
    for key in [&key, &laptop] {
        assert!(!accepts(&there, &key.key).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_looked_up_again_after_half_a_second() {
    let (store, answered) = InterceptingStore::measured(Arc::new(MemoryStore::new()));
    let evidence = fixture(Arc::new(store), Settings::default()).await;
    let api = Api::new(evidence, Mount::Tower, "measured").await;
    take_queries(&answered);
    for _ in 0..2 {
        for _ in 0..3 {
            api.get("/service-accounts/acme").await.ok();
        }
        assert_eq!(take_counts(&answered, ["key_holder", "org_role"]), [1, 1]);
        tokio::time::advance(Duration::from_millis(500)).await;
    }
}

/// The id of the one key of a service account.
pub(crate) async fn key_of(api: &Api, account: &str) -> String {
    let keys = api.get(&format!("/service-accounts/acme/{account}/api-keys")).await.ok();
    keys[0]["id"].as_str().unwrap().to_owned()
}

/// A body whose bytes come after `meanwhile` was answered.
fn after(meanwhile: RequestBuilder, bytes: &Value) -> SentBody {
    let bytes = Bytes::from(bytes.to_string());
    let pieces = stream::once(async move {
        assert!(meanwhile.await.status.is_success());
        Ok(Frame::data(bytes))
    });
    StreamBody::new(pieces).boxed_unsync()
}

#[apply(on_every_store)]
async fn what_was_revoked_while_the_body_came_is_refused_and_nothing_is_recorded(api: Api) {
    let environment = |name: &str| json!({"name": name, "type": "server", "description": ""});
    let key = key_of(&api, "member-key").await;
    let revoke = || api.delete(&format!("/service-accounts/acme/member-key/api-keys/{key}"));
    let put = api.put("/environments/acme").key("member-key");
    let put = put.header(CONTENT_TYPE, "application/json").body(after(revoke(), &environment("late")));
    put.await.expect_message(401, "Unauthorized");

    let lowered = json!({"privilege": "reader"});
    let lower = || api.patch("/service-accounts/acme/admin-key").json(&lowered);
    let put = api.put("/environments/acme").key("admin-key");
    let put = put.header(CONTENT_TYPE, "application/json").body(after(lower(), &environment("late")));
    put.await.expect(403, json!({}));
    api.get("/environments/acme").await.expect_exactly(200, json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_that_is_used_all_the_time_never_comes_back_after_its_revocation() {
    every_store(async |api| {
        let keys = "/service-accounts/acme/reader-key/api-keys";
        for round in 0..10 {
            let made = api.post(keys).json(json!({"description": "ci"})).await.created();
            let (key, id) = (made["key"].as_str().unwrap(), made["id"].as_str().unwrap());
            let revoked = Arc::new(AtomicBool::new(false));
            let uses: Vec<_> = (0..3)
                .map(|_| {
                    let (api, key, revoked) = (api.clone(), key.to_owned(), Arc::clone(&revoked));
                    tokio::spawn(async move {
                        while !revoked.load(Ordering::SeqCst) {
                            api.get("/flows/acme").key(&key).await;
                            tokio::task::yield_now().await;
                        }
                        // These begin after the revocation was answered.
                        let late =
                            join_all((0..4).map(|_| api.get("/flows/acme").key(&key).into_future())).await;
                        late.into_iter().map(|reply| reply.status.as_u16()).collect::<Vec<_>>()
                    })
                })
                .collect();
            assert_eq!(api.delete(&format!("{keys}/{id}")).await.status, 200);
            revoked.store(true, Ordering::SeqCst);
            for statuses in join_all(uses).await {
                assert_eq!(statuses.unwrap(), [401; 4], "round {round}");
            }
        }
    })
    .await;
}

/// An operation with these parameters.
fn of<O: Operation>(parameters: Value) -> O {
    from_value(parameters).unwrap()
}

#[tokio::test]
async fn an_access_is_good_for_what_it_was_given_for_alone() {
    let service = in_memory().await;
    let jane = service.authenticate(Credential::Bearer(JANE)).await.unwrap();
    let list = |org: &str| of::<ListFlows>(json!({"org": org}));
    let access = service.authorize(&jane, &Target::of(&list("acme"))).await.unwrap();
    service.run(&access, list("acme"), ()).await.unwrap();
    let another_org = service.run(&access, list("jane"), ()).await;
    assert!(matches!(another_org, Err(Error::Forbidden)), "{another_org:?}");
    let put = of::<PutEnvironment>(json!({"org": "acme"}));
    let environment =
        || Json(from_value(json!({"name": "prod", "type": "server", "description": ""})).unwrap());
    let another_operation = service.run(&access, put, environment()).await;
    assert!(matches!(another_operation, Err(Error::Forbidden)), "{another_operation:?}");

    let form = |name: &str, visibility: &str| {
        Form::of(from_value(json!({"name": name, "description": "", "visibility": visibility})).unwrap())
    };
    for (name, visibility) in [("shop", "public"), ("vault", "private")] {
        service.call(&jane, of::<PutFlow>(json!({"org": "acme"})), form(name, visibility)).await.unwrap();
    }
    let john = service.authenticate(Credential::Bearer(JOHN)).await.unwrap();
    let get = |flow: &str| of::<GetFlow>(json!({"org": "acme", "flow_name": flow}));
    let access = service.authorize(&john, &Target::of(&get("shop"))).await.unwrap();
    service.run(&access, get("shop"), ()).await.unwrap();
    let another_flow = service.run(&access, get("vault"), ()).await;
    assert!(matches!(another_flow, Err(Error::Forbidden)), "{another_flow:?}");
    service.call(&jane, of::<PutFlow>(json!({"org": "acme"})), form("shop", "private")).await.unwrap();
    let no_longer_public = service.run(&access, get("shop"), ()).await;
    assert!(matches!(no_longer_public, Err(Error::Forbidden)), "{no_longer_public:?}");
}

#[tokio::test]
async fn a_caller_whom_a_host_keeps_loses_what_is_taken_away() {
    let service = in_memory().await;
    let jane = service.authenticate(Credential::Bearer(JANE)).await.unwrap();
    let bot = service.authenticate(Credential::Bearer("member-key")).await.unwrap();
    let put = || of::<PutEnvironment>(json!({"org": "acme"}));
    let environment =
        || Json(from_value(json!({"name": "prod", "type": "server", "description": ""})).unwrap());
    service.call(&bot, put(), environment()).await.unwrap();
    let account = json!({"org": "acme", "name": "member-key"});
    let lower = Json(from_value(json!({"privilege": "reader"})).unwrap());
    service.call(&jane, of::<PatchServiceAccount>(account.clone()), lower).await.unwrap();
    let lowered = service.call(&bot, put(), environment()).await;
    assert!(matches!(lowered, Err(Error::Forbidden)), "{lowered:?}");
    let Json(keys) = service.call(&jane, of::<ListApiKeys>(account), ()).await.unwrap();
    let key = json!({"org": "acme", "name": "member-key", "key_id": keys[0].id});
    service.call(&jane, of::<RevokeApiKey>(key), ()).await.unwrap();
    let revoked = service.call(&bot, put(), environment()).await;
    assert!(matches!(revoked, Err(Error::Unauthenticated)), "{revoked:?}");
}
