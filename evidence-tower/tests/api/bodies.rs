//! Bodies that are wrong in every way: each is refused with an answer, early, and by name.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use evidence_core::api;
use evidence_core::operation::{Body, BodyKind, Operation, Visitor};
use http::Method;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use proptest::prelude::*;

use crate::mounts::SentBody;
use crate::support::prelude::*;

/// An operation that reads a body of one kind, with a path that fits.
struct Reads {
    method: Method,
    path: String,
    limit: usize,
    invalid: &'static str,
    form: bool,
}

#[derive(Default)]
struct Bodies(Vec<Reads>);

impl Visitor for Bodies {
    fn visit<O: Operation>(&mut self) {
        let form = match O::Body::KIND {
            BodyKind::Empty | BodyKind::Raw => return,
            BodyKind::Json => false,
            BodyKind::Form(_) => true,
        };
        self.0.push(Reads {
            method: format!("{:?}", O::METHOD).to_uppercase().parse().unwrap(),
            path: filled(O::PATH),
            limit: usize::try_from(O::body_limit(&Limits::default())).unwrap(),
            invalid: O::INVALID,
            form,
        });
    }
}

/// A path with something in place of each parameter that fits its pattern.
fn filled(path: &str) -> String {
    let segment = |segment: &str| match segment {
        "{org}" => "acme".to_owned(),
        "{resource_type}" => "flow".to_owned(),
        "{notification_number}" => "1".to_owned(),
        "{fingerprint}" => "a".repeat(64),
        "{commit}" | "{commit_sha}" => "a".repeat(40),
        parameter if parameter.starts_with('{') => "name".to_owned(),
        literal => literal.to_owned(),
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

fn operations(form: bool) -> Vec<Reads> {
    let mut bodies = Bodies::default();
    api::operations(&mut bodies);
    let found: Vec<Reads> = bodies.0.into_iter().filter(|reads| reads.form == form).collect();
    assert!(!found.is_empty());
    found
}

static ZEROS: [u8; 64 << 10] = [b'0'; 64 << 10];

/// The most that is taken of a body whose end is not known, to throw it away.
const THROWN_AWAY: usize = (1 << 20) + ZEROS.len();

/// More than any operation reads.
const PLENTY: usize = 17 << 20;

/// How many bytes were taken of a body.
struct Taken(Arc<AtomicUsize>);

impl Taken {
    /// Asserts that the API has stopped there, where the host hands bodies on as they come.
    #[track_caller]
    fn at_most(&self, most: usize, api: &Api, path: &str) {
        let taken = self.0.load(Ordering::Relaxed);
        assert!(!api.mount.streams() || taken <= most, "{path}: {taken} bytes were taken");
    }
}

/// A body of zeros beyond every limit.
fn endless() -> (SentBody, Taken) {
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&taken);
    let pieces = std::iter::repeat_with(move || {
        counter.fetch_add(ZEROS.len(), Ordering::Relaxed);
        Ok(Frame::data(Bytes::from_static(&ZEROS)))
    });
    let pieces = pieces.take(PLENTY / ZEROS.len());
    (StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync(), Taken(taken))
}

#[test]
fn what_is_no_json_is_refused_by_every_operation_that_reads_json() {
    let deep = "[".repeat(10_000);
    let junk: [&[u8]; 7] = [b"{", b"{]", b" ", b"\"\xff\"", b"{\"a\":\"\xc3\"}", b"{} x", deep.as_bytes()];
    on_every_mount(async |api| {
        for Reads { method, path, invalid, .. } in operations(false) {
            for bytes in junk {
                let reply =
                    api.request(method.clone(), &path).bytes("application/json", bytes.to_vec()).await;
                let reply = reply.expect(400, json!({"message": invalid}));
                let body: Value = serde_json::from_slice(&reply.body).unwrap();
                let fields: Vec<&String> = body["errors"].as_object().unwrap().keys().collect();
                assert_eq!(fields, ["body"], "{method} {path}");
            }
        }
    });
}

#[apply(on_every_mount)]
async fn a_json_that_is_no_object_or_holds_a_nul_is_refused_and_never_an_error_of_ours(api: Api) {
    for Reads { method, path, .. } in operations(false) {
        for bytes in ["null", "[]", "1", "\"x\"", "{\"name\":\"a\\u0000\"}", "{\"\\u0000\":1}"] {
            let reply = api.request(method.clone(), &path).bytes("application/json", bytes).await;
            assert!(reply.status.is_client_error(), "{method} {path} {bytes}: {reply:?}");
        }
    }
}

#[apply(on_every_mount)]
async fn a_foreign_type_or_coding_is_refused(api: Api) {
    let refused = json!({"message": "Unsupported media type"});
    for Reads { method, path, .. } in operations(false) {
        let request = || api.request(method.clone(), &path);
        for media_type in
            ["text/plain", "multipart/form-data; boundary=b", "application/x-www-form-urlencoded"]
        {
            request().bytes(media_type, "{}").await.expect_exactly(415, refused.clone());
        }
        let coded = request().bytes("application/json", "{}").header(CONTENT_ENCODING, "gzip").await;
        coded.expect_exactly(415, refused.clone());
    }
}

#[apply(on_every_mount)]
async fn a_json_over_the_limit_is_refused_by_its_length_or_where_it_exceeds_it(api: Api) {
    for Reads { method, path, limit, .. } in operations(false) {
        let text = format!("Input should have at most {limit} bytes");
        let refused = json!({"message": "Request body too large", "errors": {"body": text}});
        let (body, taken) = endless();
        let request =
            api.request(method.clone(), &path).header(CONTENT_LENGTH, (limit + 1).to_string()).body(body);
        request.await.expect_exactly(413, refused.clone());
        taken.at_most(0, &api, &path);

        let (body, taken) = endless();
        api.request(method.clone(), &path).body(body).await.expect_exactly(413, refused.clone());
        taken.at_most(limit + ZEROS.len() + THROWN_AWAY, &api, &path);
    }
}

#[apply(on_every_mount)]
async fn a_json_of_exactly_the_limit_is_read(api: Api) {
    for Reads { method, path, limit, .. } in operations(false) {
        for (length, refused) in [(limit, false), (limit + 1, true)] {
            let text = format!("{{}}{}", " ".repeat(length - 2));
            let reply = api.request(method.clone(), &path).bytes("application/json", text).await;
            assert_eq!(reply.status == 413, refused, "{method} {path} with {length}: {reply:?}");
        }
    }
}

#[apply(on_every_mount)]
async fn a_json_nests_64_levels_and_no_more(api: Api) {
    for (levels, status) in [(64, 201), (65, 400)] {
        // The body itself is the first.
        let nested = format!("{}{}", "[".repeat(levels - 1), "]".repeat(levels - 1));
        let body = format!(
            r#"{{"fingerprint": "{}", "filename": "x", "build_url": "", "commit_url": "", "user_data": {nested}}}"#,
            "a".repeat(64)
        );
        let reply = api.request(Method::POST, "/artifacts/acme/shop").bytes("application/json", body).await;
        assert_eq!(reply.status, status, "{levels}: {reply:?}");
    }
}

#[apply(on_every_mount)]
async fn what_is_no_form_lacks_the_forms_parts(api: Api) {
    for Reads { method, path, .. } in operations(true) {
        let request = || api.request(method.clone(), &path);
        let replies = [
            request().await,
            request().bytes("application/json", "{}").await,
            request().bytes("text/plain", "x").await,
            request().form(&[]).await,
            request().form(&[("name=\"other\"", "{}")]).await,
        ];
        for reply in replies {
            let reply = reply.expect(400, json!({"message": INVALID}));
            let body: Value = serde_json::from_slice(&reply.body).unwrap();
            let texts: Vec<&Value> = body["errors"].as_object().unwrap().values().collect();
            assert_eq!(texts, ["Field required [input: None]"], "{method} {path}");
        }
    }
}

#[apply(on_every_mount)]
async fn a_malformed_form_is_refused_early(api: Api) {
    for Reads { method, path, .. } in operations(true) {
        let request = || api.request(method.clone(), &path);
        let refused = json!({"message": "Input payload validation failed", "errors": {}});
        for boundary in
            ["", "; boundary=", &format!("; boundary={}", "b".repeat(71)), "; boundary=b; boundary=c"]
        {
            let reply = request().bytes(&format!("multipart/form-data{boundary}"), "--c\r\n\r\n--c--").await;
            reply.expect(400, refused.clone());
        }
        let (body, taken) = endless();
        let reply = request().header(CONTENT_TYPE, "multipart/form-data; boundary=b").body(body).await;
        reply.expect(400, refused);
        taken.at_most((1 << 20) + THROWN_AWAY, &api, &path);
    }
}

#[apply(on_every_mount)]
async fn nobody_reads_a_body_whose_sender_may_not_send_it(api: Api) {
    let refusals = [("acme", "unknown", 401), ("nobody", "jane-key", 404), ("acme", "john-key", 403)];
    for (org, key, status) in refusals {
        let path = format!("/flows/{org}/template_file");
        let request = || api.put(&path).key(key).header(CONTENT_TYPE, "multipart/form-data; boundary=b");
        let (body, taken) = endless();
        request().header(CONTENT_LENGTH, PLENTY.to_string()).body(body).await.expect(status, json!({}));
        taken.at_most(0, &api, &path);

        let (body, taken) = endless();
        request().body(body).await.expect(status, json!({}));
        taken.at_most(THROWN_AWAY, &api, &path);
    }
}

proptest! {
    #[test]
    fn any_bytes_in_a_form_are_answered(
        bytes in "(--b|\r\n|--|Content-Disposition: form-data; |name=\"(data_json|template_file)\"|\\{|\\PC{0,5}|\r\n\r\n){0,24}"
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let reply = runtime.block_on(async {
            let api = Api::new(in_memory().await, Mount::Tower, "memory").await;
            api.put("/flows/acme/template_file").bytes("multipart/form-data; boundary=b", bytes).await
        });
        prop_assert!(reply.status.is_client_error(), "{reply:?}");
    }
}
