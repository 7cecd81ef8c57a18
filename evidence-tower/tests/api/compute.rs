//! CPU-bound work leaves the runtime: while it waits for its thread, other requests are answered.

use std::collections::VecDeque;
use std::future::IntoFuture;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use evidence_core::blobs::CHUNK;
use evidence_core::compute::{ComputePool, Job, MAX_WAITING};
use evidence_tower::EvidenceApi;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use http_body_util::{BodyExt, Empty};
use tokio::sync::Notify;
use tower::ServiceExt;

use crate::faults::Log;
use crate::support::prelude::*;
use crate::support::stubs::StubBlobs;

/// A pool whose jobs wait until they are taken.
#[derive(Clone)]
struct ManualPool {
    slots: usize,
    jobs: Arc<Mutex<VecDeque<Job>>>,
    given: Arc<Notify>,
}

impl ComputePool for ManualPool {
    fn parallelism(&self) -> usize {
        self.slots
    }

    fn spawn(&self, job: Job) {
        self.jobs.lock().unwrap().push_back(job);
        self.given.notify_one();
    }
}

impl ManualPool {
    /// The next job, once there is one.
    async fn next(&self) -> Job {
        loop {
            let job = self.jobs.lock().unwrap().pop_front();
            match job {
                Some(job) => return job,
                None => self.given.notified().await,
            }
        }
    }
}

async fn manual_pool() -> (Api, ManualPool) {
    manual_pool_of(1).await
}

/// A pool of so many slots.
async fn manual_pool_of(slots: usize) -> (Api, ManualPool) {
    let pool = ManualPool { slots, jobs: Arc::default(), given: Arc::default() };
    let evidence = in_memory().await.with_compute_pool(pool.clone());
    (Api::new(evidence, Mount::Tower, "memory").await, pool)
}

/// Sends `request`, and another request before each of the jobs that it gives to the pool. Answers how many these were.
async fn answered_meanwhile(api: &Api, pool: &ManualPool, request: RequestBuilder) -> (Reply, usize) {
    let mut reply = request.into_future();
    for jobs in 0.. {
        tokio::select! {
            reply = &mut reply => return (reply, jobs),
            job = pool.next() => {
                api.get("/flows/acme/web").await.ok();
                job();
            }
        }
    }
    unreachable!("there are fewer jobs than numbers")
}

/// A template with so many attestations, about fifty bytes each.
fn template(attestations: usize) -> String {
    let line = |n| format!("    - name: check-{n}\n      type: generic\n");
    format!("version: 1\ntrail:\n  attestations:\n{}", (0..attestations).map(line).collect::<String>())
}

/// A report of so many artifacts, about a hundred and twenty bytes each.
fn report(artifacts: usize) -> Value {
    let artifact = |n| json!({"digests": {format!("image-{n}"): format!("{n:064x}")}, "creationTimestamp": 1_700_000_000});
    json!({"artifacts": Vec::from_iter((0..artifacts).map(artifact))})
}

#[tokio::test]
async fn other_requests_are_answered_while_a_long_one_is_worked_on() {
    let (api, pool) = manual_pool().await;
    api.given_flow_with_template().await;
    api.given_environments("docker", &["prod"]).await;
    api.given_artifact('a', "t").await;
    let long = template(200);
    let padded = format!("# {}\n{PROVENANCE}", "x".repeat(8 << 10));
    let kind = json!({"name": "scan", "description": ""});
    let schema = json!({"description": "x".repeat(100 << 10)});
    let suite = |n| json!({"name": format!("suite-{n}"), "failures": 0, "errors": 0, "skipped": 0, "total": 1, "duration": 1.5});
    let suites = Vec::from_iter((0..2_000).map(suite));
    // Long results are stored apart from the history; what the user adds is part of it.
    let user_data = json!({"x": "x".repeat(100 << 10)});
    let junit =
        json!({"attestation_name": "unit", "junit_results": suites, "user_data": user_data}).to_string();
    let scan = json!({"attestation_name": "scan", "is_compliant": true});
    let file = fingerprint('f').repeat(1 << 10);
    let table: [(&str, RequestBuilder, u16); 9] = [
        ("a PDF", api.get("/trails/acme/web/t/audit_pdf"), 200),
        ("a flow's template", api.put_flow("web").template(&long), 200),
        ("a trail's template", api.put_trail("web", &json!({"name": "t"})).template(&long), 200),
        ("a policy", api.put_policy("p", &padded), 201),
        (
            "a type's schema",
            api.post("/custom-attestation-types/acme").data_json(&kind).file(
                "type_schema",
                "s.json",
                &schema,
            ),
            201,
        ),
        ("a form", api.post_attestation("web", "t", "junit").data_json(&junit), 201),
        ("a long history", api.get("/trails/acme/web/t"), 200),
        (
            "an archive",
            api.post_attestation("web", "t", "generic")
                .data_json(&scan)
                .file("attachment_file.1", "a", &file)
                .file("attachment_file.2", "b", "short"),
            201,
        ),
        ("a report", api.put("/environments/acme/prod/report/docker").json(report(1_000)), 201),
    ];
    for (what, request, status) in table {
        let (reply, jobs) = answered_meanwhile(&api, &pool, request).await;
        assert_eq!((reply.status.as_u16(), jobs > 0), (status, true), "{what}: {:?}", reply.body);
    }
}

#[tokio::test]
async fn what_a_long_trail_has_is_evaluated_off_the_runtime_however_little_runs() {
    let (api, pool) = manual_pool().await;
    api.given_flow_with_template().await;
    api.given_environments("docker", &["prod"]).await;
    api.given_artifact('a', "t").await;
    for n in 0..300 {
        let data = json!({"attestation_name": format!("check-{n}"), "is_compliant": true}).to_string();
        api.post_attestation("web", "t", "generic").data_json(&data).await.created();
    }
    let artifact = json!({"digests": {"image": fingerprint('a')}, "creationTimestamp": 1});
    let request = api.put("/environments/acme/prod/report/docker").json(json!({"artifacts": [artifact]}));
    let (reply, jobs) = answered_meanwhile(&api, &pool, request).await;
    assert_eq!((reply.status.as_u16(), jobs), (201, 1), "{:?}", reply.body);
    // The trail is read and the artifact evaluated once, until something else is reported.
    let artifact = format!("/artifacts/acme/web/fingerprint/{}", fingerprint('a'));
    for (path, expected) in [("/artifacts/acme", 2), (&artifact, 0)] {
        let (reply, jobs) = answered_meanwhile(&api, &pool, api.get(path)).await;
        assert_eq!((reply.status.as_u16(), jobs), (200, expected), "{path}: {:?}", reply.body);
    }
    let (reply, jobs) = answered_meanwhile(&api, &pool, api.get("/trails/acme")).await;
    assert_eq!((reply.status.as_u16(), jobs), (200, 1), "{:?}", reply.body);
}

#[tokio::test]
async fn what_a_long_template_asks_for_is_evaluated_off_the_runtime_however_little_was_reported() {
    let (api, pool) = manual_pool().await;
    api.given_flow_with_template().await;
    // So short that no answer is long JSON.
    let line = |n| format!("  - {{name: c{n}, type: '*'}}\n");
    let long = format!("trail:\n  attestations:\n{}", (0..260).map(line).collect::<String>());
    let put = api.put_flow("web").template(&long);
    answered_meanwhile(&api, &pool, put).await.0.ok();
    api.given_environments("docker", &["prod"]).await;
    api.given_artifact('a', "t").await;
    let artifact = json!({"digests": {"image": fingerprint('a')}, "creationTimestamp": 1});
    let report = api.put("/environments/acme/prod/report/docker").json(json!({"artifacts": [artifact]}));
    let table = [
        ("a list of trails", api.get("/trails/acme"), 200, 1),
        ("a trail: evaluated, made and written", api.get("/trails/acme/web/t"), 200, 3),
        ("the newest trail of a flow", api.get("/flows/acme"), 200, 1),
        ("an artifact", api.get("/artifacts/acme"), 200, 1),
        ("what runs", report, 201, 1),
    ];
    for (what, request, status, expected) in table {
        let (reply, jobs) = answered_meanwhile(&api, &pool, request).await;
        assert_eq!((reply.status.as_u16(), jobs), (status, expected), "{what}: {:?}", reply.body);
    }
}

#[tokio::test]
async fn what_runs_is_evaluated_a_bounded_part_at_a_time_so_that_others_come_in_between() {
    let (api, pool) = manual_pool().await;
    api.given_flow_with_template().await;
    let names = Vec::from_iter((0..10).map(|n| format!("p{n}")));
    for name in &names {
        api.put_policy(name, PROVENANCE).await.created();
    }
    let mut jobs = Vec::new();
    for (environment, policies) in [("by-one", &names[..1]), ("by-ten", &names)] {
        let body = json!({"name": environment, "type": "docker", "description": "", "policies": policies});
        api.put("/environments/acme").json(&body).await.created();
        let request = api.put(&format!("/environments/acme/{environment}/report/docker")).json(report(3_000));
        let (reply, done) = answered_meanwhile(&api, &pool, request).await;
        assert_eq!(reply.status, 201, "{:?}", reply.body);
        jobs.push(done);
    }
    assert_eq!(jobs[1], jobs[0] + 2, "thirty thousand evaluations are three parts");
}

#[tokio::test]
async fn what_a_large_report_says_is_put_together_off_the_runtime_before_it_is_refused() {
    let (api, pool) = manual_pool().await;
    api.given_flow_with_template().await;
    api.given_environments("docker", &["prod"]).await;
    let request = api.put("/environments/acme/prod/report/docker").json(report(10_001));
    let (reply, jobs) = answered_meanwhile(&api, &pool, request).await;
    assert_eq!((reply.status.as_u16(), jobs), (400, 2), "its JSON, and its artifacts: {:?}", reply.body);
}

/// Sends these at once, each of which takes long jobs: of four places they leave two to what is shorter. All are answered in
/// the end.
async fn answered_on_half_of_the_places(
    api: &Api,
    pool: &ManualPool,
    requests: Vec<RequestBuilder>,
    what: &str,
) -> Vec<Reply> {
    let many = requests.len();
    let mut long: FuturesUnordered<_> = requests.into_iter().map(RequestBuilder::into_future).collect();
    let mut polls = 0;
    while polls < 100 {
        assert!(long.next().now_or_never().is_none(), "{what}");
        tokio::task::yield_now().await;
        polls += usize::from(pool.jobs.lock().unwrap().len() >= 2);
    }
    let at_once = Vec::from_iter(pool.jobs.lock().unwrap().drain(..));
    assert_eq!(at_once.len(), 2, "{what} at once");
    let other = api.put("/environments/acme/prod/report/docker").json(report(1_000));
    let (reply, jobs) = answered_meanwhile(api, pool, other).await;
    assert_eq!((reply.status.is_success(), jobs > 0), (true, true), "{what}: {:?}", reply.body);
    at_once.into_iter().for_each(|job| job());
    let mut replies = Vec::new();
    while replies.len() < many {
        tokio::select! {
            reply = long.next() => replies.push(reply.expect("a reply for each")),
            job = pool.next() => job(),
        }
    }
    replies
}

#[tokio::test]
async fn drawing_leaves_half_of_the_places_to_what_is_shorter() {
    let (api, pool) = manual_pool_of(4).await;
    api.given_flow_with_template().await;
    api.given_environments("docker", &["prod"]).await;
    api.given_artifact('a', "t").await;
    let requests = Vec::from_iter((0..5).map(|_| api.get("/trails/acme/web/t/audit_pdf")));
    for reply in answered_on_half_of_the_places(&api, &pool, requests, "PDFs").await {
        reply.expect_header("content-type", "application/pdf");
    }
}

#[tokio::test]
async fn compiling_a_type_and_evaluating_by_it_leave_half_of_the_places_to_what_is_shorter() {
    let (api, pool) = manual_pool_of(4).await;
    api.given_flow_with_template().await;
    api.given_environments("docker", &["prod"]).await;
    let kind = |number: usize| {
        let kind = json!({"name": format!("scan{number}"), "evaluator": {"rules": [".ok"]}}).to_string();
        api.post("/custom-attestation-types/acme").data_json(&kind).file(
            "type_schema",
            "s.json",
            r#"{"type": "object"}"#,
        )
    };
    let attest = |number: usize| {
        let data = json!({"attestation_name": "a", "type_name": format!("scan{number}"), "attestation_data": {"ok": true}});
        api.post_attestation("web", "t", "custom").data_json(&data)
    };
    // The first attestations compile the types again; the second ones are evaluated at once.
    let cases: [(&str, &dyn Fn(usize) -> RequestBuilder); 3] = [
        ("types", &kind),
        ("attestations of types that are not compiled yet", &attest),
        ("attestations of types that are", &attest),
    ];
    for (what, request) in cases {
        let requests = Vec::from_iter((0..5).map(request));
        for reply in answered_on_half_of_the_places(&api, &pool, requests, what).await {
            assert_eq!(reply.status, 201, "{what}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn work_that_fails_is_a_500_for_its_own_request() {
    let (api, pool) = manual_pool().await;
    api.given_flow_with_template().await;
    api.given_artifact('a', "t").await;
    let pdf = api.get("/trails/acme/web/t/audit_pdf").into_future();
    let (reply, ()) = tokio::join!(pdf, async { drop(pool.next().await) });
    reply.expect(500, json!({}));
    let (reply, jobs) = answered_meanwhile(&api, &pool, api.get("/trails/acme/web/t/audit_pdf")).await;
    assert_eq!((reply.status.as_u16(), jobs), (200, 1));
}

#[tokio::test]
async fn only_so_much_waits_and_what_comes_beyond_is_told_to_come_again() {
    let (api, pool) = manual_pool().await;
    api.given_flow_with_template().await;
    api.given_artifact('a', "t").await;
    // One has its slot, so many wait, and one comes beyond.
    let requests = (0..MAX_WAITING + 2).map(|_| api.get("/trails/acme/web/t/audit_pdf").into_future());
    let mut requests = FuturesUnordered::from_iter(requests);
    let refused = requests.next().await.expect("the one that is refused");
    refused.expect(503, json!({"message": "Service unavailable"})).expect_header("retry-after", "1");
    drop(requests);
    let unwanted = pool.next().await;
    unwanted();
    let (reply, jobs) = answered_meanwhile(&api, &pool, api.get("/trails/acme/web/t/audit_pdf")).await;
    assert_eq!((reply.status.as_u16(), jobs), (200, 1));
}

/// Fills the pool: one has its slot, and as many wait as may.
async fn filled(api: &Api) -> FuturesUnordered<<RequestBuilder as IntoFuture>::IntoFuture> {
    let long = format!("# {}\n{PROVENANCE}", "x".repeat(8 << 10));
    let requests = (0..MAX_WAITING + 2).map(|_| api.put_policy("other", &long).into_future());
    let mut requests = FuturesUnordered::from_iter(requests);
    requests.next().await.expect("the one that is refused").expect(503, json!({}));
    requests
}

/// Awaits `work`, which is begun while nothing is done, and then while the jobs that were given to the pool are done, one
/// after the other.
async fn run_with_jobs<T>(
    pool: &ManualPool,
    mut others: FuturesUnordered<<RequestBuilder as IntoFuture>::IntoFuture>,
    work: impl Future<Output = T>,
) -> T {
    let mut work = std::pin::pin!(work);
    for _ in 0..1_000 {
        if let Some(done) = (&mut work).now_or_never() {
            return done;
        }
        tokio::task::yield_now().await;
    }
    loop {
        tokio::select! {
            done = &mut work => return done,
            Some(other) = others.next() => assert!(other.status.is_success(), "{other:?}"),
            job = pool.next() => job(),
        }
    }
}

#[tokio::test]
async fn neither_a_stranger_nor_who_downloads_much_stops_the_writes_of_an_organization() {
    for reader in [JOHN, JANE] {
        let (api, pool) = manual_pool().await;
        api.given_flow_with_template().await;
        let open = json!({"name": "open", "description": "", "visibility": "public"}).to_string();
        api.put("/flows/acme/template_file").data_json(&open).await.created();
        // It is read off the runtime, before the PDF is drawn.
        let long = json!({"attestation_name": "foo", "is_compliant": true, "user_data": {"x": "x".repeat(100 << 10)}});
        let long = long.to_string();
        let attest = api.post_attestation("open", "t", "generic");
        let attest = attest.data_json(&long);
        answered_meanwhile(&api, &pool, attest).await.0.created();
        let log = Log::default();
        let logging = log.start();
        let pdf = || api.get("/trails/acme/open/t/audit_pdf").key(reader).into_future();
        let mut pdfs = FuturesUnordered::from_iter((0..MAX_WAITING + 2).map(|_| pdf()));
        pdfs.next().await.expect("the one that is refused").expect(503, json!({}));
        assert!(!log.text().contains("ERROR"), "{}", log.text());
        drop(logging);
        let padded = format!("# {}\n{PROVENANCE}", "x".repeat(8 << 10));
        let put = api.put_policy("p", &padded).into_future();
        run_with_jobs(&pool, pdfs, put).await.created();
    }
}

#[tokio::test]
async fn the_service_accounts_of_another_organization_have_one_share_of_the_pool_together() {
    let (api, pool) = manual_pool().await;
    api.put_flow("web").with(json!({"visibility": "public"})).await.created();
    api.given_artifact('a', "t").await;
    let mut keys = Vec::new();
    for name in ["ci", "cd"] {
        let account = json!({"name": name, "privilege": "reader"});
        api.post("/service-accounts/foobar").json(account).key(JOHN).await.created();
        let made = api
            .post(&format!("/service-accounts/foobar/{name}/api-keys"))
            .json(json!({"description": "laptop"}))
            .key(JOHN)
            .await
            .created();
        keys.push(made["key"].as_str().unwrap().to_owned());
    }
    let pdf = |key: &str| api.get("/trails/acme/web/t/audit_pdf").key(key).into_future();
    let mut pdfs = FuturesUnordered::from_iter((0..MAX_WAITING + 2).map(|_| pdf(&keys[0])));
    pdfs.next().await.expect("the one that is refused").expect(503, json!({}));
    let mut other = pdf(&keys[1]);
    let mut answer = None;
    for _ in 0..1_000 {
        answer = answer.or_else(|| (&mut other).now_or_never());
        tokio::task::yield_now().await;
    }
    answer.expect("it finds no room to wait").expect(503, json!({}));
    // The organization's own have theirs.
    run_with_jobs(&pool, pdfs, pdf(JANE)).await.expect_header("content-type", "application/pdf");
}

#[tokio::test]
async fn a_write_that_was_recorded_is_answered_however_much_waits() {
    let (api, pool) = manual_pool().await;
    api.given_flow_with_template().await;
    api.given_artifact('a', "t").await;
    let put = |text: &str| api.put_policy("p", text);
    let long = format!("# {}\n{PROVENANCE}", "x".repeat(100 << 10));
    let (reply, jobs) = answered_meanwhile(&api, &pool, put(&long)).await;
    assert_eq!((reply.status.as_u16(), jobs > 0), (201, true), "{:?}", reply.body);
    // The request is short; the response has both versions.
    let others = filled(&api).await;
    let reply = run_with_jobs(&pool, others, put(PROVENANCE).into_future()).await;
    let versions = reply.expect(200, json!({"name": "p"})).ok()["versions"].as_array().map(Vec::len);
    assert_eq!(versions, Some(2));
}

#[tokio::test]
async fn an_answer_that_is_being_sent_waits_for_its_turn_however_much_waits() {
    let pool = ManualPool { slots: 1, jobs: Arc::default(), given: Arc::default() };
    let evidence = in_memory().await.with_compute_pool(pool.clone());
    let api = Api::new(evidence.clone(), Mount::Tower, "memory").await;
    let long = format!("version: 1\n# {}\n", "x".repeat(100 << 10));
    let put = api.put_flow("web").template(&long).into_future();
    run_with_jobs(&pool, FuturesUnordered::new(), put).await.created();
    for trail in ["t", "u", "v"] {
        api.put_trail("web", &json!({"name": trail})).await.created();
    }
    let request = http::Request::get("/api/v2/trails/acme").header("authorization", format!("Bearer {JANE}"));
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let begun = async {
        let mut body = EvidenceApi::new(evidence).oneshot(request).await.unwrap().into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        (body, first.to_vec())
    };
    let (mut body, mut text) = run_with_jobs(&pool, FuturesUnordered::new(), begun).await;
    let others = filled(&api).await;
    let rest = async {
        while let Some(frame) = body.frame().await {
            text.extend_from_slice(&frame.expect("the answer goes on").into_data().unwrap());
        }
        text
    };
    let text = run_with_jobs(&pool, others, rest).await;
    let answer: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(answer["data"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn files_and_their_archive_are_never_in_memory_whole() {
    let longest = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&longest);
    let put = move |length| {
        noted.fetch_max(length, Ordering::Relaxed);
    };
    let attachments = StubBlobs { put: Box::new(put), ..StubBlobs::default() };
    let evidence = in_memory().await.with_attachments(Arc::new(attachments));
    let api = Api::new(evidence, Mount::Tower, "memory").await;
    // Digests of numbers hardly compress.
    let digest = |n: usize| evidence_core::digest::sha256_hex(&n.to_be_bytes());
    let text: String = (0..4 * CHUNK / 64).map(digest).collect();
    let attest = api.post_attestation("web", "t", "generic");
    let attest = attest.data_json(json!({"attestation_name": "scan", "is_compliant": true}));
    attest.file("attachment_file.1", "a", &text).file("attachment_file.2", "b", "short").await.created();
    let longest = longest.load(Ordering::Relaxed);
    assert!((1..=CHUNK).contains(&longest), "{longest}");
}
