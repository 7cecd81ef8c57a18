//! Operations that a host adds, and what they can do beyond JSON: headers in and out, bytes as they are, and answers of a
//! length that nobody knows, which never end as if they were complete where they break off.

use std::net::SocketAddr;

use async_trait::async_trait;
use bytes::Bytes;
use evidence_core::auth::{Access, Credential, Principal, Role, Scope, Target};
use evidence_core::blobs::Chunks;
use evidence_core::bounded::{Description, ShortText};
use evidence_core::compute::Compute;
use evidence_core::context::Context;
use evidence_core::digest::sha256_hex;
use evidence_core::fact::read_payload;
use evidence_core::flows::{FlowInput, PutFlow};
use evidence_core::name::{FlowName, OrgName, ServiceAccountName};
use evidence_core::operation::{
    Acknowledged, Answer, Form, Header, JsonList, Method, Operations, Put, Raw, Streamed, Visitor,
    WithHeaders,
};
use evidence_core::page::PerPage;
use evidence_core::schemas::GetFlowTemplateSchema;
use evidence_core::service::Call;
use evidence_core::{Error, EvidenceService, Operation, Result, StoreError};
use evidence_tower::EvidenceApi;
use futures_util::{StreamExt, stream};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, LINK};
use http::{HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::mounts::MOUNTS;
use crate::support::prelude::*;
use crate::support::stubs::decorates;

struct Host;

impl Operations for Host {
    fn visit(v: &mut impl Visitor) {
        v.visit::<Echo>();
        v.visit::<Items>();
        v.visit::<Octets>();
        v.visit::<Hook>();
    }
}

/// Answers the bytes that were sent, and says which headers it saw.
#[derive(Debug, Deserialize, JsonSchema)]
struct Echo {
    org: OrgName,
    idempotency_key: Option<String>,
    x_per_page: Option<PerPage<50>>,
}

impl Operation for Echo {
    const NAME: &'static str = "echo";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/host/{org}/echo";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Answers what was sent";
    const REQUEST_HEADERS: &'static [&'static str] = &["Idempotency-Key", "X-Per-Page"];
    const ANSWER_HEADERS: &'static [&'static str] = &["Link", "X-Seen"];
    type Body = Raw;
    type Output = WithHeaders<Raw>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    fn body_limit(_: &Limits) -> u64 {
        1 << 10
    }

    async fn run(self, body: Raw, _: &Context<'_>) -> Result<Self::Output> {
        let seen = format!("{:?} {:?}", self.idempotency_key, self.x_per_page.map(PerPage::get));
        let headers = vec![
            Header::new("Link", "<?page=2>; rel=\"next\"")?,
            Header::new("Link", "<?page=9>; rel=\"last\"")?,
            Header::new("X-Seen", seen)?,
        ];
        Ok(WithHeaders { headers, reply: body })
    }
}

/// How an answer in pieces ends.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum End {
    Complete,
    Fails,
    Panics,
}

/// Numbers, each with a text of 1,000 bytes.
#[derive(Debug, Deserialize, JsonSchema)]
struct Items {
    org: OrgName,
    count: u64,
    end: End,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Item {
    number: u64,
    text: String,
}

impl Operation for Items {
    const NAME: &'static str = "items";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/host/{org}/items";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists numbers";
    type Body = ();
    type Output = JsonList<Item>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), _: &Context<'_>) -> Result<Self::Output> {
        let Self { count, end, .. } = self;
        let item = move |number| match end {
            End::Fails if number == count => Err(Error::Store(StoreError::Unavailable("away".into()))),
            End::Panics if number == count => panic!("an item panics"),
            End::Complete | End::Fails | End::Panics => Ok(Item { number, text: "x".repeat(1000) }),
        };
        let items = if matches!(end, End::Complete) { count } else { count + 1 };
        let items = stream::iter(0..items).then(move |number| async move {
            // As one that asks a store: what was made before is sent meanwhile.
            tokio::task::yield_now().await;
            item(number)
        });
        Ok(JsonList::of(items))
    }
}

/// Pieces of 1,000 bytes.
#[derive(Debug, Deserialize, JsonSchema)]
struct Octets {
    org: OrgName,
    count: u64,
    end: End,
}

struct Pieces {
    left: u64,
    end: End,
}

#[async_trait]
impl Chunks for Pieces {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        tokio::task::yield_now().await;
        match (self.left.checked_sub(1), self.end) {
            (Some(left), _) => self.left = left,
            (None, End::Complete) => return Ok(None),
            (None, End::Fails) => return Err(std::io::Error::other("away")),
            (None, End::Panics) => panic!("a piece panics"),
        }
        Ok(Some(Bytes::from(vec![7; 1000])))
    }
}

impl Operation for Octets {
    const NAME: &'static str = "octets";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/host/{org}/octets";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Answers bytes";
    type Body = ();
    type Output = Streamed;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), _: &Context<'_>) -> Result<Self::Output> {
        let content = Box::new(Pieces { left: self.count, end: self.end });
        Ok(Streamed { media_type: "application/x-sevens".to_owned(), content })
    }
}

/// Takes what another program has signed with a secret that it shares with the host, and makes a flow of it.
#[derive(Debug, Deserialize, JsonSchema)]
struct Hook {
    org: OrgName,
    x_signature: Option<ShortText>,
}

/// The signed bytes.
#[derive(Debug, Deserialize)]
struct Event {
    flow: FlowName,
    account: Option<ServiceAccountName>,
    operator: Option<OrgName>,
}

fn signature(body: &[u8]) -> String {
    sha256_hex(&[b"our secret", body].concat())
}

impl Operation for Hook {
    const NAME: &'static str = "hook";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/host/{org}/hook";
    const SCOPE: Scope = Scope::Open;
    const SUMMARY: &'static str = "Takes what another program has signed";
    const REQUEST_HEADERS: &'static [&'static str] = &["X-Signature"];
    type Body = Raw;
    type Output = Put<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, body: Raw, cx: &Context<'_>) -> Result<Self::Output> {
        if self.x_signature.as_deref() != Some(&signature(&body.bytes)) {
            return Err(Error::Unauthenticated);
        }
        let event: Event =
            serde_json::from_slice(&body.bytes).map_err(|error| Error::invalid("body", error.to_string()))?;
        let flow = FlowInput { name: event.flow, description: Description::default(), visibility: None };
        let put = PutFlow { org: self.org };
        match (&event.account, &event.operator) {
            (Some(account), _) => {
                put.run(Form::of(flow), &cx.as_service_account(account, Role::Member).await?).await
            }
            (None, Some(operator)) => put.run(Form::of(flow), &cx.as_operator(operator)?).await,
            (None, None) => put.run(Form::of(flow), cx).await,
        }
    }
}

async fn api() -> EvidenceApi<evidence_core::Evidence> {
    EvidenceApi::new(in_memory().await).with_operations::<Host>()
}

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const PER_PAGE: HeaderName = HeaderName::from_static("x-per-page");
const SIGNATURE: HeaderName = HeaderName::from_static("x-signature");

#[tokio::test]
async fn bytes_and_headers_go_in_and_out_as_they_are() {
    for mount in MOUNTS {
        let api = Api::of(api().await, mount, "memory").await;
        let request = || api.request(http::Method::POST, "/host/acme/echo");
        let sent: &[u8] = b"\0\xff{ not json";
        let reply =
            request().bytes("application/x-odd; a=b", sent).header(KEY, "a, b").header(PER_PAGE, "7").await;
        let reply = reply.expect_header(CONTENT_TYPE, "application/x-odd; a=b");
        let reply = reply.expect_header("x-seen", "Some(\"a, b\") Some(7)");
        assert_eq!((reply.status.as_u16(), reply.body.as_ref()), (200, sent), "{mount:?}");
        let links: Vec<&HeaderValue> = reply.headers.get_all(LINK).iter().collect();
        assert_eq!(links, ["<?page=2>; rel=\"next\"", "<?page=9>; rel=\"last\""], "{mount:?}");

        let reply = request().await.expect_header("x-seen", "None None");
        assert_eq!((reply.status.as_u16(), reply.body.len()), (200, 0), "{mount:?}");
        assert_eq!(reply.headers[CONTENT_TYPE], "application/octet-stream");
        assert_eq!(reply.headers[CONTENT_LENGTH], "0");
    }
}

#[tokio::test]
async fn a_header_is_checked_as_parameters_are_and_no_query_takes_its_place() {
    for mount in MOUNTS {
        let api = Api::of(api().await, mount, "memory").await;
        let request = |query: &str| api.request(http::Method::POST, &format!("/host/acme/echo{query}"));
        for sent in ["51", "many"] {
            let reply = request("").header(PER_PAGE, sent).await;
            let body: Value = reply.json();
            let fields: Vec<&String> = body["errors"].as_object().unwrap().keys().collect();
            assert_eq!(fields, ["header.X-Per-Page"], "{mount:?}");
            assert_eq!(reply.status, 400, "{mount:?}");
        }
        request("?idempotency_key=forged&x_per_page=9").await.expect_header("x-seen", "None None");
        // Rocket drops what is no UTF-8.
        if mount != Mount::Rocket {
            let reply = request("").header(KEY, HeaderValue::from_bytes(b"\xff").unwrap()).await;
            let body = reply.expect(400, json!({})).json();
            assert!(body["errors"]["header.Idempotency-Key"].is_string(), "{mount:?}: {body}");
        }
    }
}

#[tokio::test]
async fn bytes_are_refused_beyond_the_limit_and_where_they_are_encoded() {
    for mount in MOUNTS {
        let api = Api::of(api().await, mount, "memory").await;
        let request =
            |length: usize| api.request(http::Method::POST, "/host/acme/echo").bytes("a/b", vec![0; length]);
        assert_eq!(request(1 << 10).await.body.len(), 1 << 10);
        request((1 << 10) + 1).await.expect_message(413, "Request body too large");
        request(1).header(CONTENT_ENCODING, "gzip").await.expect(415, json!({}));
    }
}

#[tokio::test]
async fn an_operation_of_the_host_is_checked_as_those_of_the_api() {
    for mount in MOUNTS {
        let api = Api::of(api().await, mount, "memory").await;
        let request = || api.get("/host/acme/items?count=1&end=complete");
        request().await.expect(200, json!([{"number": 0}]));
        request().anonymous().await.expect(401, json!({}));
        request().key("john-key").await.expect(403, json!({}));
        api.get("/host/acme/items?count=1&end=never").await.expect(400, json!({}));
        api.get("/host/nobody/items?count=1&end=complete").await.expect(404, json!({}));
        api.request(http::Method::PUT, "/host/acme/items").await.expect(405, json!({}));
        api.get("/flows/acme").await.expect(200, json!([]));
    }
}

#[tokio::test]
async fn an_operation_without_a_credential_records_as_whom_the_host_names() {
    for mount in MOUNTS {
        let evidence = in_memory().await;
        let api = EvidenceApi::new(evidence.clone()).with_operations::<Host>();
        let api = Api::of(api, mount, "memory").await;
        let account = json!({"name": "robot", "privilege": "member"});
        api.post("/service-accounts/acme").json(account).await.created();
        let account = json!({"name": "looker", "privilege": "reader"});
        api.post("/service-accounts/acme").json(account).await.created();
        let store = evidence.store();
        let org = acme(store).await;
        let entries = async || store.ledger_entries(org, 0, 1000).await.unwrap();
        let before = entries().await.len();
        let request = |org: &str, event: &Value, secret: &[u8]| {
            let body = event.to_string();
            let signature = sha256_hex(&[secret, body.as_bytes()].concat());
            let request = api.request(http::Method::POST, &format!("/host/{org}/hook")).anonymous();
            request
                .bytes("application/json", body)
                .header(SIGNATURE, HeaderValue::from_str(&signature).unwrap())
        };
        let ours = b"our secret";
        let event = |flow: &str, key: &str, name: &str| json!({"flow": flow, key: name});

        request("acme", &event("a", "operator", "forge"), b"another").await.expect(401, json!({}));
        request("nobody", &event("a", "operator", "forge"), ours).await.expect(404, json!({}));
        request("acme", &event("a", "account", "nobody"), ours).await.expect(404, json!({}));
        request("acme", &event("a", "account", "looker"), ours).await.expect(403, json!({}));
        // It forgot to say as whom: nothing is recorded as nobody.
        request("acme", &json!({"flow": "a"}), ours).await.expect(500, json!({}));
        assert_eq!(entries().await.len(), before, "{mount:?}");

        request("acme", &event("a", "operator", "forge"), ours).await.expect(201, json!("OK"));
        request("acme", &event("b", "account", "robot"), ours).await.expect(201, json!("OK"));
        // A credential is not looked at.
        request("acme", &event("c", "operator", "forge"), ours).key("no-key").await.expect(201, json!("OK"));
        let actors: Vec<_> = entries()
            .await
            .drain(before..)
            .map(|entry| {
                let kind = entry.actor.split(':').next().unwrap_or_default().to_owned();
                (kind, read_payload(&entry.payload).unwrap().1.unwrap())
            })
            .collect();
        let expected = [("operator", "forge"), ("service-account", "robot"), ("operator", "forge")];
        let expected = expected.map(|(kind, name)| (kind.to_owned(), name.to_owned()));
        assert_eq!(actors, expected, "{mount:?}");
    }
}

#[tokio::test]
async fn nobody_may_do_nothing_that_asks_for_a_credential() {
    let evidence = in_memory().await;
    let nobody = Principal::nobody();
    let org = || "acme".parse().unwrap();
    let refused = evidence.call(&nobody, Items { org: org(), count: 1, end: End::Complete }, ()).await;
    assert!(matches!(refused, Err(Error::Unauthenticated)));
    let put = FlowInput { name: "a".parse().unwrap(), description: Description::default(), visibility: None };
    let refused = evidence.call(&nobody, PutFlow { org: org() }, Form::of(put)).await;
    assert!(matches!(refused, Err(Error::Unauthenticated)));
    let refused = evidence.call(&nobody, GetFlowTemplateSchema {}, ()).await;
    assert!(matches!(refused, Err(Error::Unauthenticated)));
}

#[tokio::test]
async fn a_list_is_the_same_document_however_long_it_is() {
    for mount in MOUNTS {
        let api = Api::of(api().await, mount, "memory").await;
        for count in [0, 1, 16, 17, 100, 1000] {
            let reply = api.get(&format!("/host/acme/items?count={count}&end=complete")).await;
            let wanted: Vec<Value> =
                (0..count).map(|number| json!({"number": number, "text": "x".repeat(1000)})).collect();
            let is_short = count < 17;
            // A host that gathers an answer knows its length.
            let has_length = is_short || mount == Mount::Rocket;
            assert_eq!(reply.headers.contains_key(CONTENT_LENGTH), has_length, "{count} {mount:?}");
            reply.expect_exactly(200, wanted);
        }
    }
}

/// The answer as it came over a socket: the head, and all that follows it until the connection closes.
async fn received(address: SocketAddr, path: &str) -> (String, Vec<u8>) {
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\nauthorization: Bearer {JANE}\r\n\r\n"
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A connection that is reset has broken off, too.
    drop(stream.read_to_end(&mut answer).await);
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    let body = answer.split_off(end);
    (String::from_utf8(answer).unwrap().to_lowercase(), body)
}

/// The last chunk of an answer of unknown length: without it, no client takes the answer for complete.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[tokio::test]
async fn what_breaks_off_midway_never_ends_as_a_complete_answer() {
    for mount in MOUNTS {
        let address = mount.serve(api().await).await;
        for operation in ["items", "octets"] {
            for end in ["complete", "fails", "panics"] {
                let path = format!("{}/host/acme/{operation}?count=100&end={end}", mount.prefix());
                let (head, body) = received(address, &path).await;
                let context = format!("{mount:?} {operation} {end}: {head}");
                match (mount, end) {
                    (Mount::Rocket, "complete") => {
                        let length = format!("content-length: {}\r\n", body.len());
                        assert!(head.starts_with("http/1.1 200") && head.contains(&length), "{context}");
                        assert!(body.len() > 100_000 - 1, "{context}");
                    }
                    (Mount::Rocket, _) => assert!(head.starts_with("http/1.1 500"), "{context}"),
                    (_, end) => {
                        assert!(head.starts_with("http/1.1 200") && head.contains("chunked"), "{context}");
                        assert_eq!(body.ends_with(LAST_CHUNK), end == "complete", "{context}");
                        assert!(body.len() > 50_000, "{context}");
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_list_that_fails_at_its_beginning_is_told_by_the_status() {
    for mount in MOUNTS {
        let api = Api::of(api().await, mount, "memory").await;
        for (end, status) in [("fails", 503), ("panics", 500)] {
            for count in [0, 3] {
                let reply = api.get(&format!("/host/acme/items?count={count}&end={end}")).await;
                reply.expect(status, json!({}));
            }
        }
    }
}

#[tokio::test]
async fn the_document_tells_of_the_hosts_operations_and_their_headers() {
    let api = api().await;
    let document = api.openapi();
    assert!(document["paths"]["/flows/{org}"]["get"].is_object());
    let echo = &document["paths"]["/host/{org}/echo"]["post"];
    let parameters: Vec<(&str, &str)> = echo["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|parameter| (parameter["in"].as_str().unwrap(), parameter["name"].as_str().unwrap()))
        .collect();
    assert_eq!(parameters, [("path", "org"), ("header", "Idempotency-Key"), ("header", "X-Per-Page")]);
    assert_eq!(echo["requestBody"]["content"], json!({"*/*": {}}));
    let headers: Vec<&String> = echo["responses"]["200"]["headers"].as_object().unwrap().keys().collect();
    let own = headers.into_iter().filter(|name| *name != "Evidence-Ignored-Parameters");
    let of_writes = ["Evidence-Ledger-Index", "Evidence-Leaf-Hash", "Evidence-Record-Id"];
    assert_eq!(Vec::from_iter(own), [["Link", "X-Seen"].as_slice(), &of_writes].concat());
    assert_eq!(echo["security"], json!([{"bearer": []}]));
    assert_eq!(document["paths"]["/host/{org}/hook"]["post"]["security"], json!([]));
    let items = &document["paths"]["/host/{org}/items"]["get"]["responses"]["200"]["content"];
    assert_eq!(items["application/json"]["schema"]["type"], "array");
    let headers = document["paths"]["/host/{org}/items"]["get"]["responses"]["200"]["headers"].as_object();
    assert_eq!(Vec::from_iter(headers.unwrap().keys()), ["Evidence-Ignored-Parameters"]);

    let served = Api::of(api, Mount::Tower, "memory").await.get("/openapi.json").anonymous().await;
    assert_eq!(served.json(), document);
    assert!(!evidence_tower::openapi().to_string().contains("/host/"));
}

/// A service that records nothing.
#[derive(Clone)]
struct ReadOnly(Evidence);

impl EvidenceService for ReadOnly {
    async fn authenticate(&self, credential: Credential<'_>) -> Result<Principal> {
        self.0.authenticate(credential).await
    }

    async fn authorize(&self, caller: &Principal, target: &Target) -> Result<Access> {
        self.0.authorize(caller, target).await
    }

    async fn run<O: Operation>(&self, access: &Access, operation: O, body: O::Body) -> Result<O::Output> {
        if O::METHOD != Method::Get {
            return Err(Error::Forbidden);
        }
        self.0.run(access, operation, body).await
    }

    async fn answer(&self, access: &Access, call: Call, request: &str, compute: &Compute) -> Result<Answer> {
        if call.method() != Method::Get {
            return Err(Error::Forbidden);
        }
        self.0.answer(access, call, request, compute).await
    }

    decorates!(0);

    async fn ready(&self) -> Result<()> {
        self.0.ready().await
    }
}

#[tokio::test]
async fn a_decorator_that_refuses_writes_lets_none_through() {
    let evidence = in_memory().await;
    let service = ReadOnly(evidence.clone());
    for mount in MOUNTS {
        let api = Api::new(service.clone(), mount, "memory").await;
        let refused = api.post("/controls/acme").json(json!({"identifier": "C-1", "name": "Review"})).await;
        assert_eq!(refused.status, 403, "{mount:?}: {refused:?}");
        assert_eq!(api.get("/controls/acme/C-1").await.status, 404, "{mount:?}");
    }
    let caller = evidence.principal_of_user("jane").await.unwrap();
    let put = PutFlow { org: "acme".parse().unwrap() };
    let flow =
        FlowInput { name: "shop".parse().unwrap(), description: Description::default(), visibility: None };
    let refused = service.call(&caller, put, Form::of(flow)).await;
    assert!(matches!(refused, Err(Error::Forbidden)), "{refused:?}");
}
