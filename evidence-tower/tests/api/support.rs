//! A service with a few people in it, on every store, and builders for requests.

pub(crate) mod environments;
pub(crate) mod given;
pub(crate) mod json;
pub(crate) mod prelude;
pub(crate) mod stubs;

use std::any::Any;
use std::borrow::Borrow;
use std::fmt::Display;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use evidence_conformance::memory::MemoryStore;
use evidence_core::auth::{Actor, ActorKind, ApiKey, Role};
use evidence_core::fact::UnknownFields;
use evidence_core::fact::{Fact, Key, Precondition, Secrets, Write};
use evidence_core::id::{Id, Random, SystemRandom};
use evidence_core::seed::Seed;
use evidence_core::service_accounts::{ApiKeyRecord, ServiceAccount};
use evidence_core::store::StoreResult;
use evidence_core::time::{Clock, Timestamp};
use evidence_core::{Evidence, EvidenceService, Settings, Store};
use evidence_store_postgres::PostgresStore;
use evidence_store_sqlite::{Sqlite, SqliteStore};
use evidence_test_postgres::SchemaName;
use evidence_tower::EvidenceApi;
use futures_util::future::join_all;
use http::header::{AUTHORIZATION, AsHeaderName, CONTENT_LENGTH, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use serde_json::Value;

use crate::mounts::{Carrier, MOUNTS, Mount, SentBody};
use crate::rebuilding::{SentGets, Tables};
use crate::support::stubs::SignedInMemory;

/// Returns the configuration of a test with random input: this many cases, or as many as `PROPTEST_CASES` asks for.
pub(crate) fn random_cases(cases: u32) -> proptest::test_runner::Config {
    let asked = proptest::test_runner::Config { failure_persistence: None, ..Default::default() };
    let is_asked = std::env::var_os("PROPTEST_CASES").is_some();
    if is_asked { asked } else { proptest::test_runner::Config { cases, ..asked } }
}

/// Makes a test of a case, which this function runs.
macro_rules! case_of {
    ($run:path: $(#[$attribute:meta])* async fn $name:ident($($arguments:tt)*) $body:block) => {
        $(#[$attribute])*
        #[test]
        fn $name() {
            $run(async |$($arguments)*| $body);
        }
    };
}

/// `#[apply(on_every_store)]` makes a test of a case; see [`on_every_store`].
macro_rules! on_every_store {
    ($($case:tt)*) => { case_of! { $crate::support::on_every_store: $($case)* } };
}

/// The same for [`with_every_store`].
macro_rules! with_every_store {
    ($($case:tt)*) => { case_of! { $crate::support::with_every_store: $($case)* } };
}

/// The same for [`on_every_mount`].
macro_rules! on_every_mount {
    ($($case:tt)*) => { case_of! { $crate::support::on_every_mount: $($case)* } };
}

/// The instant at which every test runs.
pub(crate) const NOW: Timestamp = Timestamp::from_seconds(1_783_538_510);
/// No case meets a time limit of a store, on a machine however slow.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(300);
/// The name of the ledgers.
pub(crate) const LEDGERS: &str = "evidence.example.com";
/// The key of `jane`, who administers the organization `acme`.
pub(crate) const JANE: &str = "jane-key";
/// The key of `john`, who administers the organization `foobar`.
pub(crate) const JOHN: &str = "john-key";
/// Keys of acme's service accounts, by their roles.
pub(crate) const KEYS: [(Role, &str); 4] = [
    (Role::Admin, "admin-key"),
    (Role::Member, "member-key"),
    (Role::Snapshotter, "snapshotter-key"),
    (Role::Reader, "reader-key"),
];
/// A key of acme's that ends now.
pub(crate) const EXPIRED: &str = "expired-key";
/// A key of acme's that was revoked just now.
pub(crate) const REVOKED: &str = "revoked-key";

/// The marker of an object store of a test.
#[derive(Clone, Default)]
pub(crate) struct Marker(Arc<OnceLock<Id>>);

impl Marker {
    pub(crate) fn get(&self) -> Option<Id> {
        self.0.get().copied()
    }

    pub(crate) fn put(&self, id: Id) -> StoreResult<()> {
        self.0.get_or_init(|| id);
        Ok(())
    }
}

/// An empty store, with what a case may need of its database.
pub(crate) struct StoreUnderTest {
    pub(crate) name: &'static str,
    pub(crate) store: Arc<dyn Store>,
    /// Deletes the files or the schema when dropped.
    pub(crate) guard: Box<dyn Any + Send>,
    /// Access for losing and rebuilding tables; `None` for the memory store.
    pub(crate) tables: Option<Tables>,
}

impl StoreUnderTest {
    fn new(
        name: &'static str,
        store: Arc<impl Store>,
        guard: impl Any + Send,
        tables: Option<Tables>,
    ) -> Self {
        Self { name, store, guard: Box::new(guard), tables }
    }
}

pub(crate) async fn sqlite(directory: &tempfile::TempDir) -> SqliteStore {
    let options = evidence_store_sqlite::Options {
        acquire_timeout: TEST_TIMEOUT,
        queue_timeout: TEST_TIMEOUT,
        ..Default::default()
    };
    Sqlite::open_with(directory.path().join("evidence.db"), &options).await.unwrap()
}

/// Every store that the cases run over: PostgreSQL is among them where there is a server for tests, as under `cargo
/// xtask test`.
pub(crate) async fn stores() -> Vec<StoreUnderTest> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("evidence.db");
    let sqlite = Arc::new(sqlite(&directory).await);
    let tables = Some(Tables::Sqlite(Arc::clone(&sqlite), file));
    let memory = StoreUnderTest::new("memory", Arc::new(MemoryStore::new()), (), None);
    let mut stores = vec![memory, StoreUnderTest::new("sqlite", sqlite, directory, tables)];
    if let Some(schema) = SchemaName::unused() {
        let options = evidence_store_postgres::Options {
            schema: schema.name.clone(),
            connections: 4,
            acquire_timeout: TEST_TIMEOUT,
            queue_timeout: TEST_TIMEOUT,
            statement_timeout: TEST_TIMEOUT,
            ..Default::default()
        };
        let postgres = Arc::new(PostgresStore::connect_with(&schema.url, &options).await.unwrap());
        let (url, name) = (schema.url.clone(), schema.name.clone());
        let tables = Some(Tables::Postgres { store: Arc::clone(&postgres), url, schema: name });
        stores.push(StoreUnderTest::new("postgres", postgres, schema, tables));
    }
    stores
}

#[tokio::test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
async fn the_cases_run_on_postgresql_too() {
    let names: Vec<_> = stores().await.into_iter().map(|stored| stored.name).collect();
    assert_eq!(names, ["memory", "sqlite", "postgres"]);
}

/// Runs a case on a runtime of its own, as `#[tokio::test]` does.
pub(crate) fn block_on<T>(case: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(case)
}

/// Runs a case over a memory store at every mount.
pub(crate) fn on_every_mount(case: impl AsyncFn(Api)) {
    block_on(async {
        for mount in MOUNTS {
            case(Api::new(in_memory().await, mount, "memory").await).await;
        }
    });
}

/// Runs a case over every store, with a fresh fixture each. Mounts have tests of their own, so each store has one mount. If
/// `EVIDENCE_TEST_THOROUGH` is set, each store has every mount. Afterwards rebuilds, as [`with_every_store`] does.
pub(crate) fn on_every_store(case: impl AsyncFn(Api)) {
    block_on(every_store(case));
}

/// The same on the runtime of the caller.
pub(crate) async fn every_store(case: impl AsyncFn(Api)) {
    if std::env::var_os("EVIDENCE_TEST_THOROUGH").is_some() {
        for mount in MOUNTS {
            at([mount; 3], &case).await;
        }
    } else {
        at([Mount::Rocket, Mount::Axum, Mount::Tower], &case).await;
    }
}

/// Runs a case over every store with a fresh fixture, with the store beside the API. Afterwards drops all derived tables,
/// rebuilds them, and repeats every GET of the case.
pub(crate) fn with_every_store(case: impl AsyncFn(Api, Arc<dyn Store>)) {
    block_on(every_store_itself(case));
}

/// The same on the runtime of the caller.
pub(crate) async fn every_store_itself(case: impl AsyncFn(Api, Arc<dyn Store>)) {
    for StoreUnderTest { name, store, guard, tables } in stores().await {
        let evidence = fixture(Arc::clone(&store), Settings::default()).await;
        let api = Api::new(evidence, Mount::Tower, name).await;
        case(api.clone(), store).await;
        if let Some(tables) = tables {
            tables.prove(&api).await;
        }
        drop(guard);
    }
}

/// Runs a case over the stores side by side, each at its mount, so that one works while another waits for its database.
async fn at(mounts: [Mount; 3], case: &impl AsyncFn(Api)) {
    let cases = stores().await.into_iter().zip(mounts).map(|(stored, mount)| async move {
        let StoreUnderTest { name, store, guard, tables } = stored;
        let api = Api::new(fixture(store, Settings::default()).await, mount, name).await;
        case(api.clone()).await;
        if let Some(tables) = tables {
            tables.prove(&api).await;
        }
        drop(guard);
    });
    join_all(cases).await;
}

/// A service over a memory store, for what does not depend on the store.
pub(crate) async fn in_memory() -> Evidence {
    in_memory_with(Settings::default()).await
}

/// The same, set up like this.
pub(crate) async fn in_memory_with(settings: Settings) -> Evidence {
    fixture(Arc::new(MemoryStore::new()), settings).await
}

/// A service over a SQLite store, and the store, whose file lives as long as the folder.
pub(crate) async fn service_on_sqlite() -> (Evidence, Arc<SqliteStore>, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(sqlite(&folder).await);
    let evidence = fixture(Arc::clone(&store) as _, Settings::default()).await;
    (evidence, store, folder)
}

/// A clock that stands at [`NOW`] until it is moved.
#[derive(Debug)]
pub(crate) struct ManualClock(AtomicI64);

impl Default for ManualClock {
    fn default() -> Self {
        Self(AtomicI64::new(NOW.as_micros()))
    }
}

impl ManualClock {
    /// Moves it on by so much.
    pub(crate) fn advance(&self, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }

    /// Sets it to so many seconds after [`NOW`].
    pub(crate) fn set(&self, seconds: i64) {
        self.0.store(NOW.as_micros() + seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// The id of an organization in which this user has a role.
pub(crate) async fn org_id(store: &dyn Store, user: &str, org: &str) -> Id {
    let user = store.user(user).await.unwrap().unwrap().id;
    store.org_role(org, user).await.unwrap().unwrap().organization.id
}

/// The id of the organization `acme`.
pub(crate) async fn acme(store: &dyn Store) -> Id {
    org_id(store, "jane", "acme").await
}

/// Gives the numbers from 1.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Random for Counter {
    fn fill(&self, bytes: &mut [u8]) {
        let number = (self.0.fetch_add(1, Ordering::Relaxed) + 1).to_be_bytes();
        for (byte, digit) in bytes.iter_mut().rev().zip(number.into_iter().rev()) {
            *byte = digit;
        }
    }
}

pub(crate) async fn fixture(store: Arc<dyn Store>, settings: Settings) -> Evidence {
    let random = Arc::new(Counter::default());
    let clock = Arc::new(ManualClock::default());
    let evidence = Evidence::with_sources(Arc::clone(&store), settings, clock, Arc::clone(&random) as _);
    for (user, org, key) in [("jane", "acme", JANE), ("john", "foobar", JOHN)] {
        let api_key = Some(ApiKey::imported(key.to_owned()));
        let seed = Seed { user: user.parse().unwrap(), orgs: vec![org.parse().unwrap()], api_key };
        evidence.seed(&seed).await.unwrap();
    }
    let jane = store.user("jane").await.unwrap().unwrap();
    let by = Actor { id: jane.id, name: "jane".to_owned(), kind: ActorKind::User };
    let acme = acme(&*store).await;
    let new_id = || Id::new(NOW, &*random);
    for (role, key) in KEYS {
        add_account(&*store, acme, &by, Account { role, key, ends: None, revoked: None }, &new_id).await;
    }
    for (key, ends, revoked) in [(EXPIRED, Some(NOW), None), (REVOKED, None, Some(NOW))] {
        add_account(&*store, acme, &by, Account { role: Role::Admin, key, ends, revoked }, &new_id).await;
    }
    evidence.with_ledger_keys(SignedInMemory::default().keys(LEDGERS, 7))
}

struct Account {
    role: Role,
    key: &'static str,
    ends: Option<Timestamp>,
    revoked: Option<Timestamp>,
}

/// Records a service account named as its key, and the key.
async fn add_account(store: &dyn Store, org: Id, by: &Actor, account: Account, new_id: &dyn Fn() -> Id) {
    let Account { role, key, ends, revoked } = account;
    let record = ServiceAccount {
        id: new_id(),
        name: key.parse().unwrap(),
        description: None,
        privilege: role,
        created_by: by.clone(),
        created_at: NOW,
        unknown: UnknownFields::default(),
    };
    let owner = Actor { id: record.id, name: key.to_owned(), kind: ActorKind::ServiceAccount };
    let hash = ApiKey::imported(key.to_owned()).hash();
    let api_key = ApiKeyRecord {
        id: new_id(),
        owner,
        description: String::new(),
        created_at: NOW,
        expires_at: ends,
        grace_period_expires_at: None,
        revoked_at: revoked,
        hash_sha256: hash.fingerprint(),
        unknown: UnknownFields::default(),
    };
    let preconditions = vec![Precondition::Vacant(Key::ServiceAccount(record.name.clone()))];
    let secrets = Secrets { key_hashes: vec![(api_key.id, hash)], ..Secrets::default() };
    let facts = vec![Fact::ServiceAccountCreated { record }, Fact::ApiKeyCreated { record: api_key }];
    let write = Write::new(org, by.clone(), NOW, facts, &SystemRandom);
    let write = Write { preconditions, secrets, ..write };
    store.record(write).await.unwrap();
}

/// The API, as a caller sees it.
#[derive(Clone)]
pub(crate) struct Api {
    carrier: Carrier,
    pub(crate) mount: Mount,
    store: &'static str,
    sent_gets: SentGets,
}

impl Api {
    /// The API of a service over the store of this name, as a host mounts it.
    pub(crate) async fn new(service: impl EvidenceService, mount: Mount, store: &'static str) -> Self {
        Self::of(EvidenceApi::new(service), mount, store).await
    }

    /// The same, of an API that was set up already.
    pub(crate) async fn of(
        api: EvidenceApi<impl EvidenceService>,
        mount: Mount,
        store: &'static str,
    ) -> Self {
        Self { carrier: mount.carrier(api).await, mount, store, sent_gets: SentGets::default() }
    }

    /// The GET requests that were sent.
    pub(crate) fn sent_gets(&self) -> &SentGets {
        &self.sent_gets
    }

    /// A GET with exactly this path, without the prefix of the mount, and with these headers.
    pub(crate) fn get_raw(&self, path: &str, headers: HeaderMap) -> RequestBuilder {
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        RequestBuilder {
            api: self.clone(),
            method: Method::GET,
            path: path.to_owned(),
            headers,
            body,
            parts: Vec::new(),
            document: None,
        }
    }

    /// A request by jane, without a body.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let headers = HeaderMap::from_iter([(AUTHORIZATION, bearer(JANE))]);
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let path = format!("{}{path}", self.mount.prefix());
        RequestBuilder { api: self.clone(), method, path, headers, body, parts: Vec::new(), document: None }
    }

    /// A GET by jane.
    pub(crate) fn get(&self, path: &str) -> RequestBuilder {
        self.request(Method::GET, path)
    }

    /// A PUT by jane.
    pub(crate) fn put(&self, path: &str) -> RequestBuilder {
        self.request(Method::PUT, path)
    }
}

fn bearer(key: &str) -> HeaderValue {
    format!("Bearer {key}").parse().unwrap()
}

const FORM: &str = "multipart/form-data; boundary=b";
/// The end of a form.
const END: &str = "--b--\r\n";

/// A part of a form, by what `Content-Disposition` says after `form-data; `.
fn part(disposition: &str, content: impl Display) -> String {
    format!("--b\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{content}\r\n")
}

/// A request. It is sent by awaiting it.
#[must_use = "a request is sent by awaiting it"]
pub(crate) struct RequestBuilder {
    api: Api,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: SentBody,
    /// The parts of a form; if there are any, the form replaces the body.
    parts: Vec<String>,
    /// A document that is not finished: it is sent as JSON or, in a form, as `data_json`.
    document: Option<(Document, Value)>,
}

/// The encoding of a document in a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Document {
    Json,
    Form,
}

impl RequestBuilder {
    /// Sent with this key.
    pub(crate) fn key(self, key: &str) -> Self {
        self.header(AUTHORIZATION, bearer(key))
    }

    /// Sent without any credential.
    pub(crate) fn anonymous(mut self) -> Self {
        self.headers.remove(AUTHORIZATION);
        self
    }

    /// Sent with this header, in place of one of the same name.
    pub(crate) fn header(
        mut self,
        name: HeaderName,
        value: impl TryInto<HeaderValue, Error: std::fmt::Debug>,
    ) -> Self {
        self.headers.insert(name, value.try_into().unwrap());
        self
    }

    /// Sent with these bytes of this type.
    pub(crate) fn bytes(self, media_type: &str, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let length = HeaderValue::from(bytes.len());
        let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
        self.header(CONTENT_TYPE, media_type).header(CONTENT_LENGTH, length).body(body)
    }

    /// Sent with this body.
    pub(crate) fn body(mut self, body: SentBody) -> Self {
        self.body = body;
        self
    }

    /// Sent as a form of these parts: what `Content-Disposition` says after `form-data; `, and the content.
    pub(crate) fn form(self, parts: &[(&str, &str)]) -> Self {
        let part = |(disposition, content): &(&str, &str)| part(disposition, content);
        self.bytes(FORM, parts.iter().map(part).chain([END.to_owned()]).collect::<String>())
    }

    /// Sent as a form with this document as `data_json`.
    pub(crate) fn data_json(mut self, document: impl Display) -> Self {
        self.parts.push(part("name=\"data_json\"", document));
        self
    }

    /// Sent as a form with this document as `payload`.
    pub(crate) fn payload(mut self, document: impl Display) -> Self {
        self.parts.push(part("name=\"payload\"", document));
        self
    }

    /// Sent with this document as JSON, unless [`RequestBuilder::with`] changes it.
    fn default_json(self, document: Value) -> Self {
        Self { document: Some((Document::Json, document)), ..self }
    }

    /// Sent as a form with this document, unless [`RequestBuilder::with`] changes it.
    fn default_form(self, document: Value) -> Self {
        Self { document: Some((Document::Form, document)), ..self }
    }

    /// Sent with these fields in place of the document's own.
    pub(crate) fn with(mut self, fields: impl Borrow<Value>) -> Self {
        let (_, document) = self.document.as_mut().expect("a document with defaults");
        document.as_object_mut().unwrap().extend(fields.borrow().as_object().unwrap().clone());
        self
    }

    /// Sent as a form with this file.
    pub(crate) fn file(mut self, field: &str, name: &str, content: impl Display) -> Self {
        self.parts.push(part(&format!("name=\"{field}\"; filename=\"{name}\""), content));
        self
    }
}

impl IntoFuture for RequestBuilder {
    type Output = Reply;
    type IntoFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        match self.document.take() {
            Some((Document::Json, document)) => self = self.bytes("application/json", document.to_string()),
            Some((Document::Form, document)) => self.parts.insert(0, part("name=\"data_json\"", document)),
            None => {}
        }
        if !self.parts.is_empty() {
            let form = self.parts.drain(..).chain([END.to_owned()]).collect::<String>();
            self = self.bytes(FORM, form);
        }
        let Self { api, method, path, headers, body, .. } = self;
        let context = format!("{method} {path} ({} store, {:?} mount)", api.store, api.mount);
        if method == Method::GET {
            let key = format!("{path} {headers:?}");
            api.sent_gets.lock().unwrap().insert(key, (path.clone(), headers.clone()));
        }
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        *request.headers_mut() = headers;
        Box::pin(async move {
            let (head, body) = (api.carrier)(request).await.into_parts();
            Reply { context, status: head.status, headers: head.headers, body }
        })
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Reply {
    context: String,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    /// Asserts the status, and that the JSON body has everything in `body`: objects may have more keys.
    #[track_caller]
    pub(crate) fn expect(self, status: u16, body: impl Into<Value>) -> Self {
        let body = body.into();
        let found = self.json();
        assert_eq!(self.status.as_u16(), status, "{}: {found}", self.context);
        assert!(has(&found, &body), "{}: {found} has not {body}", self.context);
        self
    }

    /// Asserts the status, and that the JSON body is exactly `body`.
    #[track_caller]
    pub(crate) fn expect_exactly(self, status: u16, body: impl Into<Value>) -> Self {
        let found = self.json();
        assert_eq!((self.status.as_u16(), found), (status, body.into()), "{}", self.context);
        self
    }

    /// Asserts a header.
    #[track_caller]
    pub(crate) fn expect_header(self, name: impl AsHeaderName, value: &str) -> Self {
        let found = self.headers.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(found, Some(value), "{}", self.context);
        self
    }

    /// The JSON body.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.headers.get(CONTENT_TYPE).unwrap(), "application/json", "{}", self.context);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{}: {error}", self.context))
    }
}

fn has(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| found.get(key).is_some_and(|found| has(found, wanted)))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(found, wanted)| has(found, wanted))
        }
        _ => found == wanted,
    }
}
