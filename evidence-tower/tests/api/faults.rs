//! Internal failures: the response omits the cause, the log has it, and writes are never cut in half.

use std::future::IntoFuture;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use bytes::Bytes;
use evidence_core::auth::{Access, Credential, Principal, Target};
use evidence_core::blobs::CHUNK;
use evidence_core::compute::Compute;
use evidence_core::operation::Answer;
use evidence_core::{Error, EvidenceService, Operation, Result, StoreError, service};
use evidence_tower::EvidenceApi;
use futures_util::FutureExt;
use http::header::RETRY_AFTER;
use http_body_util::{BodyExt, Empty};
use tokio::sync::Notify;
use tower::ServiceExt;
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

use crate::intercepting_store::{Call, InterceptingStore};
use crate::mounts::MOUNTS;
use crate::support::prelude::*;
use crate::support::stubs::{StubBlobs, decorates};

const SECRET: &str = "password=hunter2";

#[derive(Debug, Clone, Copy)]
enum Fault {
    Panics,
    Fails,
    Damaged,
    Away,
    Contended,
}

/// A service whose operations all fail in one way.
#[derive(Clone)]
struct Faulty {
    evidence: Evidence,
    fault: Fault,
}

impl Fault {
    fn happen<T>(self) -> Result<T> {
        let source = || io::Error::other(SECRET).into();
        Err(Error::Store(match self {
            Self::Panics => panic!("{SECRET}"),
            Self::Fails => StoreError::Failed(source()),
            Self::Damaged => StoreError::corrupt(SECRET),
            Self::Away => StoreError::Unavailable(source()),
            Self::Contended => StoreError::Conflict,
        }))
    }
}

impl EvidenceService for Faulty {
    async fn authenticate(&self, credential: Credential<'_>) -> Result<Principal> {
        self.evidence.authenticate(credential).await
    }

    async fn authorize(&self, caller: &Principal, target: &Target) -> Result<Access> {
        self.evidence.authorize(caller, target).await
    }

    async fn run<O: Operation>(&self, _: &Access, _: O, _: O::Body) -> Result<O::Output> {
        self.fault.happen()
    }

    async fn answer(&self, _: &Access, _: service::Call, _: &str, _: &Compute) -> Result<Answer> {
        self.fault.happen()
    }

    decorates!(evidence);

    async fn ready(&self) -> Result<()> {
        self.fault.happen()
    }
}

/// Collects log lines of this thread while a guard from [`Log::start`] lives.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn start(&self) -> tracing::subscriber::DefaultGuard {
        // With a single dispatcher, `tracing` asks the thread that first reaches an event whether a subscriber is
        // interested in it, and that can be the thread of another test, which has no log.
        static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));
        LazyLock::force(&SECOND);
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone()).finish();
        tracing::subscriber::set_default(subscriber)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[tokio::test]
async fn a_failure_is_answered_without_its_cause_and_logged_with_it() {
    let failed = (500, "Internal server error", None);
    let away = (503, "Service unavailable", Some("1"));
    let table = [
        (Fault::Panics, failed),
        (Fault::Fails, failed),
        (Fault::Damaged, failed),
        (Fault::Away, away),
        (Fault::Contended, away),
    ];
    for (mount, (fault, (status, message, retry))) in
        MOUNTS.into_iter().flat_map(|mount| table.map(|row| (mount, row)))
    {
        let api = Api::new(Faulty { evidence: in_memory().await, fault }, mount, "faulty").await;
        for is_write in [false, true] {
            let log = Log::default();
            let guard = log.start();
            let reply = if is_write { api.put_flow("web").await } else { api.get("/flows/acme").await };
            drop(guard);
            let is_told = is_write && status == 503;
            let outcome = is_told.then_some("not-written");
            let message = match is_told {
                true => format!("{message}: nothing was recorded, so try again later"),
                false => message.to_owned(),
            };
            let reply = reply.expect_exactly(status, json!({"message": message}));
            let told = reply.headers.get("evidence-write-outcome");
            assert_eq!(told.map(|value| value.to_str().unwrap()), outcome, "{fault:?}");
            assert_eq!(
                reply.headers.get(RETRY_AFTER).map(|value| value.to_str().unwrap()),
                retry,
                "{fault:?}"
            );
            // The panic hook logs why something panicked, and a lost race has no cause.
            let cause = match fault {
                Fault::Panics => "panicked",
                Fault::Contended => "the state changed meanwhile",
                Fault::Fails | Fault::Damaged | Fault::Away => SECRET,
            };
            assert!(log.text().contains(cause), "{fault:?}: {}", log.text());
        }
    }
}

#[tokio::test]
async fn a_503_to_a_write_of_which_a_part_was_recorded_says_that_the_outcome_is_unknown() {
    const POLICY: &str = "_schema: https://example.com/schemas/policy/v1\n";
    let store = Arc::new(MemoryStore::new());
    fixture(store.clone(), Settings::default()).await;
    // How many writes are taken before one is refused.
    let (left, refuses) = (Arc::new(AtomicIsize::new(isize::MAX)), Arc::new(AtomicBool::new(false)));
    let (count, refuse) = (Arc::clone(&left), Arc::clone(&refuses));
    let store = InterceptingStore::new(store, move |call| {
        if call == Call::Write && count.fetch_sub(1, Ordering::SeqCst) <= 0 {
            refuse.store(true, Ordering::SeqCst);
        }
        async {}.boxed()
    });
    let evidence = Evidence::new(Arc::new(store.refusing(refuses)), Settings::default());
    let api = Api::new(evidence, Mount::Tower, "refusing").await;
    api.given_environments("docker", &["prod"]).await;
    api.put_policy("p", POLICY).await.created();
    api.attach("prod", "p").await;
    api.report_running("prod", &[('1', &[1])]).await.created();
    // The new version is recorded, and the evaluation by it is not.
    left.store(1, Ordering::SeqCst);
    let version = format!("{POLICY}artifacts:\n  provenance:\n    required: true\n");
    let reply = api.put_policy("p", &version).await;
    let message = reply.expect(503, json!({})).expect_header("evidence-write-outcome", "unknown").json();
    assert!(message["message"].as_str().unwrap().contains("not known whether"), "{message}");
    // Nothing more is recorded from here on.
    let refused = api.put_policy("q", POLICY).await.expect(503, json!({}));
    refused.expect_header("evidence-write-outcome", "not-written");
}

/// Attests a file under the name `one`, and returns the path of its download.
async fn given_attachment(api: &Api, content: &str) -> String {
    let attest = api.post_attestation("shop", "t", "generic");
    let attest = attest.data_json(json!({"attestation_name": "one", "is_compliant": true}));
    attest.file("attachment_file", "report.txt", content).await.created();
    let found = api.get("/attestations/acme/shop/trail/t/one").await.ok();
    let id = found[0]["attestation_id"].as_str().unwrap();
    format!("/attestations/acme/shop/trail/t/attestation/{id}/evidence")
}

#[tokio::test]
async fn a_download_of_what_is_not_to_be_had_fails_before_it_begins() {
    for (is_away, status) in [(true, 503), (false, 500)] {
        let away = Arc::new(AtomicBool::new(false));
        let [of_chunks, of_store] = [Arc::clone(&away), Arc::clone(&away)];
        let answer = |away: &AtomicBool| match away.load(Ordering::Relaxed) {
            true => Err(StoreError::Unavailable(SECRET.into())),
            false => Ok(()),
        };
        let attachments = StubBlobs {
            get_chunk: Box::new(move |_| answer(&of_chunks).map(|()| None)),
            ready: Box::new(move || answer(&of_store)),
            ..StubBlobs::default()
        };
        let evidence = in_memory().await.with_attachments(Arc::new(attachments));
        let api = Api::new(evidence, Mount::Tower, "nowhere").await;
        let download = given_attachment(&api, "hello").await;
        away.store(is_away, Ordering::Relaxed);
        api.get(&download).await.expect(status, json!({}));
    }
}

#[tokio::test]
async fn a_download_that_lost_a_chunk_breaks_off_and_never_ends_as_if_it_were_whole() {
    // The object store has lost all but the first chunk, or returns more than was put.
    for repeats in [false, true] {
        let chunk = move |number| Ok((repeats || number == 0).then(|| Bytes::from(vec![b'x'; CHUNK])));
        let lossy = StubBlobs { get_chunk: Box::new(chunk), ..StubBlobs::default() };
        let evidence = in_memory().await.with_attachments(Arc::new(lossy));
        let api = Api::new(evidence.clone(), Mount::Tower, "lossy").await;
        let download = given_attachment(&api, &"x".repeat(CHUNK + 1)).await;
        let request = http::Request::get(format!("/api/v2{download}"));
        let request = request.header(http::header::AUTHORIZATION, format!("Bearer {JANE}"));
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let Ok(response) = EvidenceApi::new(evidence).oneshot(request).await;
        assert_eq!(response.status(), 200);
        let broken = response.into_body().collect().await.map(|body| body.to_bytes().len());
        assert!(broken.is_err(), "repeats: {repeats}: {broken:?}");
    }
}

/// A service whose operations wait to be let go, and signal that they have begun.
#[derive(Clone)]
struct Slow {
    evidence: Evidence,
    begun: Arc<Notify>,
    go: Arc<Notify>,
    done: Arc<Notify>,
}

impl EvidenceService for Slow {
    async fn authenticate(&self, credential: Credential<'_>) -> Result<Principal> {
        self.evidence.authenticate(credential).await
    }

    async fn authorize(&self, caller: &Principal, target: &Target) -> Result<Access> {
        self.evidence.authorize(caller, target).await
    }

    async fn run<O: Operation>(&self, access: &Access, operation: O, body: O::Body) -> Result<O::Output> {
        self.evidence.run(access, operation, body).await
    }

    async fn answer(
        &self,
        access: &Access,
        call: service::Call,
        request: &str,
        compute: &Compute,
    ) -> Result<Answer> {
        self.begun.notify_one();
        self.go.notified().await;
        let answer = self.evidence.answer(access, call, request, compute).await;
        self.done.notify_one();
        answer
    }

    decorates!(evidence);

    async fn ready(&self) -> Result<()> {
        self.evidence.ready().await
    }
}

#[tokio::test]
async fn a_write_whose_caller_hangs_up_is_done_all_the_same() {
    let evidence = in_memory().await;
    let [begun, go, done] = [(); 3].map(|()| Arc::new(Notify::new()));
    let slow = Slow { evidence: evidence.clone(), begun: begun.clone(), go: go.clone(), done: done.clone() };
    let request = Api::new(slow, Mount::Tower, "slow").await.put_flow("web");
    tokio::select! {
        reply = request.into_future() => panic!("answered too early: {reply:?}"),
        () = begun.notified() => {}
    }
    go.notify_one();
    tokio::time::timeout(Duration::from_secs(60), done.notified()).await.expect("the write is done");
    let api = Api::new(evidence, Mount::Tower, "memory").await;
    api.get("/flows/acme/web").await.expect(200, json!({"name": "web"}));
}

#[tokio::test]
async fn a_host_that_stops_waits_for_the_writes_whose_callers_hung_up() {
    let evidence = in_memory().await;
    let [begun, go, done] = [(); 3].map(|()| Arc::new(Notify::new()));
    let slow = Slow { evidence: evidence.clone(), begun: begun.clone(), go: go.clone(), done };
    let api = EvidenceApi::new(slow);
    api.finish_writes().await;
    let request = Api::of(api.clone(), Mount::Tower, "slow").await.put_flow("web");
    tokio::select! {
        reply = request.into_future() => panic!("answered too early: {reply:?}"),
        () = begun.notified() => {}
    }
    assert!(api.finish_writes().now_or_never().is_none(), "the write has not been done");
    go.notify_one();
    tokio::time::timeout(Duration::from_secs(60), api.finish_writes()).await.expect("the write is done");
    let api = Api::new(evidence, Mount::Tower, "memory").await;
    api.get("/flows/acme/web").await.expect(200, json!({"name": "web"}));
}
