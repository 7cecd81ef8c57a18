//! What goes wrong inside: callers get an answer without the cause, the log gets the cause, writes are never cut in half.

use std::future::IntoFuture;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use evidence_conformance::memory::MemoryStore;
use evidence_core::admission::Admission;
use evidence_core::auth::{Access, Credential, Principal, Target};
use evidence_core::blobs::{Blobs, CHUNK, Chunks, OutsideBlobs};
use evidence_core::compute::Compute;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::operation::Answer;
use evidence_core::store::StoreResult;
use evidence_core::{
    Error, Evidence, EvidenceService, Limits, Operation, Result, Settings, StoreError, Wording, service,
};
use evidence_tower::EvidenceApi;
use futures_util::FutureExt;
use http::header::RETRY_AFTER;
use http_body_util::{BodyExt, Empty};
use serde_json::json;
use tokio::sync::Notify;
use tower::ServiceExt;
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

use crate::intercepting_store::{Call, InterceptingStore};
use crate::mounts::{MOUNTS, Mount};
use crate::support::{Api, JANE, Marker, fixture, in_memory};

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

    fn wording(&self) -> Wording {
        self.evidence.wording()
    }

    fn limits(&self) -> Limits {
        self.evidence.limits()
    }

    fn compute(&self) -> Compute {
        self.evidence.compute()
    }

    fn admission(&self) -> Admission {
        self.evidence.admission()
    }

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
        // Where just one dispatcher is known, `tracing` asks the thread that first comes to an event whether anybody is
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
        let form = [("name=\"data_json\"", r#"{"name": "web", "description": ""}"#)];
        for is_write in [false, true] {
            let log = Log::default();
            let guard = log.start();
            let reply = if is_write {
                api.put("/flows/acme/template_file").form(&form).await
            } else {
                api.get("/flows/acme").await
            };
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

/// An object store that stops answering, or that has lost its attachments.
#[derive(Default)]
struct Nowhere {
    marker: Marker,
    is_away: AtomicBool,
}

#[async_trait]
impl Blobs for Nowhere {
    async fn put(&self, _: Id, _: &Fingerprint, _: &mut dyn Chunks) -> StoreResult<()> {
        Ok(())
    }

    async fn get_chunk(&self, _: Id, _: &Fingerprint, _: u64) -> StoreResult<Option<Bytes>> {
        if self.is_away.load(Ordering::Relaxed) {
            Err(StoreError::Unavailable(SECRET.into()))
        } else {
            Ok(None)
        }
    }
}

#[async_trait]
impl OutsideBlobs for Nowhere {
    async fn ready(&self) -> StoreResult<()> {
        if self.is_away.load(Ordering::Relaxed) {
            Err(StoreError::Unavailable(SECRET.into()))
        } else {
            Ok(())
        }
    }

    async fn remove(&self, _: Id, _: &Fingerprint) -> StoreResult<()> {
        Ok(())
    }

    async fn marker(&self) -> StoreResult<Option<Id>> {
        Ok(self.marker.get())
    }

    async fn put_marker(&self, id: Id) -> StoreResult<()> {
        self.marker.put(id)
    }
}

#[tokio::test]
async fn a_download_of_what_is_not_to_be_had_fails_before_it_begins() {
    for (is_away, status) in [(true, 503), (false, 500)] {
        let attachments = Arc::new(Nowhere::default());
        let evidence = in_memory().await.with_attachments(attachments.clone());
        let api = Api::new(evidence, Mount::Tower, "nowhere").await;
        let flow = [("name=\"data_json\"", r#"{"name": "shop", "description": ""}"#)];
        api.put("/flows/acme/template_file").form(&flow).await.created();
        let parts = [
            ("name=\"data_json\"", r#"{"attestation_name": "one", "is_compliant": true}"#),
            ("name=\"attachment_file\"; filename=\"report.txt\"", "hello"),
        ];
        api.post("/attestations/acme/shop/trail/t/generic").form(&parts).await.created();
        let found = api.get("/attestations/acme/shop/trail/t/one").await.ok();
        let id = found[0]["attestation_id"].as_str().unwrap();
        attachments.is_away.store(is_away, Ordering::Relaxed);
        let download = api.get(&format!("/attestations/acme/shop/trail/t/attestation/{id}/evidence")).await;
        download.expect(status, json!({}));
    }
}

/// An object store that has lost all but the first chunk, or that answers more than was put.
struct Lossy {
    marker: Marker,
    repeats: bool,
}

#[async_trait]
impl Blobs for Lossy {
    async fn put(&self, _: Id, _: &Fingerprint, _: &mut dyn Chunks) -> StoreResult<()> {
        Ok(())
    }

    async fn get_chunk(&self, _: Id, _: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>> {
        let is_there = self.repeats || number == 0;
        Ok(is_there.then(|| Bytes::from(vec![b'x'; CHUNK])))
    }
}

#[async_trait]
impl OutsideBlobs for Lossy {
    async fn ready(&self) -> StoreResult<()> {
        Ok(())
    }

    async fn remove(&self, _: Id, _: &Fingerprint) -> StoreResult<()> {
        Ok(())
    }

    async fn marker(&self) -> StoreResult<Option<Id>> {
        Ok(self.marker.get())
    }

    async fn put_marker(&self, id: Id) -> StoreResult<()> {
        self.marker.put(id)
    }
}

#[tokio::test]
async fn a_download_that_lost_a_chunk_breaks_off_and_never_ends_as_if_it_were_whole() {
    for repeats in [false, true] {
        let evidence =
            in_memory().await.with_attachments(Arc::new(Lossy { repeats, marker: Marker::default() }));
        let api = Api::new(evidence.clone(), Mount::Tower, "lossy").await;
        let file = "x".repeat(CHUNK + 1);
        let parts = [
            ("name=\"data_json\"", r#"{"attestation_name": "one", "is_compliant": true}"#),
            ("name=\"attachment_file\"; filename=\"report.txt\"", file.as_str()),
        ];
        api.post("/attestations/acme/shop/trail/t/generic").form(&parts).await.created();
        let found = api.get("/attestations/acme/shop/trail/t/one").await.ok();
        let id = found[0]["attestation_id"].as_str().unwrap();
        let request =
            http::Request::get(format!("/api/v2/attestations/acme/shop/trail/t/attestation/{id}/evidence"));
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

    fn wording(&self) -> Wording {
        self.evidence.wording()
    }

    fn limits(&self) -> Limits {
        self.evidence.limits()
    }

    fn compute(&self) -> Compute {
        self.evidence.compute()
    }

    fn admission(&self) -> Admission {
        self.evidence.admission()
    }

    async fn ready(&self) -> Result<()> {
        self.evidence.ready().await
    }
}

#[tokio::test]
async fn a_write_whose_caller_hangs_up_is_done_all_the_same() {
    let evidence = in_memory().await;
    let [begun, go, done] = [(); 3].map(|()| Arc::new(Notify::new()));
    let slow = Slow { evidence: evidence.clone(), begun: begun.clone(), go: go.clone(), done: done.clone() };
    let form = [("name=\"data_json\"", r#"{"name": "web", "description": ""}"#)];
    let ask = Api::new(slow, Mount::Tower, "slow").await.put("/flows/acme/template_file").form(&form);
    tokio::select! {
        reply = ask.into_future() => panic!("answered too early: {reply:?}"),
        () = begun.notified() => {}
    }
    go.notify_one();
    tokio::time::timeout(Duration::from_secs(60), done.notified()).await.expect("the write is done");
    Api::new(evidence, Mount::Tower, "memory")
        .await
        .get("/flows/acme/web")
        .await
        .expect(200, json!({"name": "web"}));
}

#[tokio::test]
async fn a_host_that_stops_waits_for_the_writes_whose_callers_hung_up() {
    let evidence = in_memory().await;
    let [begun, go, done] = [(); 3].map(|()| Arc::new(Notify::new()));
    let slow = Slow { evidence: evidence.clone(), begun: begun.clone(), go: go.clone(), done };
    let api = EvidenceApi::new(slow);
    api.finish_writes().await;
    let form = [("name=\"data_json\"", r#"{"name": "web", "description": ""}"#)];
    let ask = Api::of(api.clone(), Mount::Tower, "slow").await.put("/flows/acme/template_file").form(&form);
    tokio::select! {
        reply = ask.into_future() => panic!("answered too early: {reply:?}"),
        () = begun.notified() => {}
    }
    assert!(api.finish_writes().now_or_never().is_none(), "the write has not been done");
    go.notify_one();
    tokio::time::timeout(Duration::from_secs(60), api.finish_writes()).await.expect("the write is done");
    let api = Api::new(evidence, Mount::Tower, "memory").await;
    api.get("/flows/acme/web").await.expect(200, json!({"name": "web"}));
}
