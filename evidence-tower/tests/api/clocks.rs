//! Clocks that are wrong: a server that is ahead records nothing where that can be told, and a false period ends.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use evidence_conformance::memory::MemoryStore;
use evidence_core::auth::ApiKey;
use evidence_core::id::SystemRandom;
use evidence_core::leases::Lease;
use evidence_core::seed::Seed;
use evidence_core::time::{Clock, SystemClock, Timestamp};
use evidence_core::{EvidenceService, StoreError};
use futures_util::future::join_all;
use http::HeaderMap;

use crate::intercepting_store::{Call, Failure, InterceptingStore};
use crate::support::prelude::*;

/// The machine's clock, and so many seconds.
#[derive(Default)]
struct ShiftedClock(AtomicI64);

impl Clock for ShiftedClock {
    fn now(&self) -> Timestamp {
        let shift = self.0.load(Ordering::SeqCst) * 1_000_000;
        Timestamp::from_micros(SystemClock.now().as_micros() + shift)
    }
}

async fn entries(store: &dyn Store) -> u64 {
    store.ledger_head(acme(store).await).await.unwrap().unwrap().size()
}

#[tokio::test]
async fn a_server_whose_clock_is_ahead_records_nothing_and_is_not_ready() {
    for StoreUnderTest { name, store, guard: _guard, .. } in stores().await {
        let (tolerated, ahead, why) = match name {
            "sqlite" => (50 * 60, 3 * 3600 + 60, "has jumped 3 hours ahead since the server started"),
            "postgres" => (4 * 60, 1100 * 86_400 + 60, "is 1100 days ahead of the database's clock"),
            _ => continue,
        };
        let clock = Arc::new(ShiftedClock::default());
        let now = Arc::clone(&clock) as Arc<dyn Clock>;
        let evidence =
            Evidence::with_sources(Arc::clone(&store), Settings::default(), now, Arc::new(SystemRandom));
        let api_key = Some(ApiKey::imported(JANE.to_owned()));
        let (user, orgs) = ("jane".parse().unwrap(), vec!["acme".parse().unwrap()]);
        evidence.seed(&Seed { user, orgs, api_key }).await.unwrap();
        let api = Api::new(evidence.clone(), Mount::Tower, name).await;
        let put = async |flow: &str| {
            api.put("/flows/acme").json(json!({"name": flow, "description": "", "template": []})).await
        };
        put("before").await.created();
        let before = entries(&*store).await;

        clock.0.store(ahead, Ordering::SeqCst);
        let message = put("ahead").await.error_message(503);
        assert!(message.contains(why) && message.contains("nothing was written"), "{name}: {message}");
        assert_eq!(entries(&*store).await, before, "{name}");
        let ready = api.get_raw("/ready", HeaderMap::new()).await;
        assert!(ready.error_message(503).contains(why), "{name}");
        let (operator, user) = ("host".parse().unwrap(), "judy".parse().unwrap());
        let administration = evidence.administration(&operator);
        let refused = administration.create_user(&user);
        assert_eq!(refused.await.unwrap_err().status(), 503, "{name}");
        // Neither does it take over background work.
        let (holder, lease) = ("00000000-0000-0000-0000-00000001".parse().unwrap(), "notify".to_owned());
        let expires_at = clock.now().plus(Duration::from_secs(20));
        let taken = store.acquire_lease(&Lease { name: lease, holder, expires_at }, clock.now()).await;
        assert!(taken.is_err(), "{name}: {taken:?}");
        api.get("/flows/acme/before").await.ok();

        clock.0.store(tolerated, Ordering::SeqCst);
        put("after").await.created();
        assert_eq!(api.get_raw("/ready", HeaderMap::new()).await.status, 200, "{name}");
    }
}

/// Anybody may send it, as often as they like.
#[tokio::test(start_paused = true)]
async fn requests_for_readiness_share_one_check_which_waits_for_no_warning() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let checks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&checks);
    let store = InterceptingStore::new(inner, move |call| match call {
        Call::Query("newest_entry") => Box::pin(std::future::pending()),
        call => {
            counted.fetch_add(usize::from(call == Call::Query("check_clock")), Ordering::SeqCst);
            Box::pin(std::future::ready(()))
        }
    });
    let evidence = fixture(Arc::new(store), Settings::default()).await;
    let api = Api::new(evidence, Mount::Tower, "memory").await;
    checks.store(0, Ordering::SeqCst);
    let begun = tokio::time::Instant::now();
    let asked = join_all((0..100).map(|_| api.get_raw("/ready", HeaderMap::new()).into_future())).await;
    assert!(asked.iter().all(|answer| answer.status == 200));
    assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
    assert_eq!(checks.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn readiness_says_where_it_cannot_be_checked_whether_entries_are_in_the_future() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let failure = Failure::default();
    let store = InterceptingStore::new(inner, |_| Box::pin(std::future::ready(())));
    let store = store.failing("newest_entry", Arc::clone(&failure));
    let evidence = fixture(Arc::new(store), Settings::default()).await;
    assert_eq!(evidence.warnings().await, Vec::<String>::new());
    *failure.lock().unwrap() = Some(|| StoreError::corrupt("a head is damaged"));
    let expected = ["it could not be checked whether a ledger has entries in the future; the log says why"];
    while evidence.warnings().await != expected {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    *failure.lock().unwrap() = None;
    while !evidence.warnings().await.is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The fingerprints' digits of a list, newest first.
fn digits(list: &Value, key: &str) -> String {
    let digit = |one: &Value| one[key].as_str().unwrap_or_default().chars().next();
    list.as_array().unwrap().iter().filter_map(digit).collect()
}

#[tokio::test]
async fn a_correction_ends_the_time_in_which_a_clock_was_ahead() {
    let seconds = |value: &Value| value.as_f64().unwrap() - NOW.seconds().get();
    let end = |seconds: f64| NOW.seconds().get() + seconds;
    for StoreUnderTest { name, store, guard, tables } in stores().await {
        fixture(Arc::clone(&store), Settings::default()).await;
        let clock = Arc::new(ManualClock::default());
        let now = Arc::clone(&clock) as Arc<dyn Clock>;
        let evidence =
            Evidence::with_sources(Arc::clone(&store), Settings::default(), now, Arc::new(SystemRandom));
        let api = Api::new(evidence.clone(), Mount::Tower, name).await;
        let host = evidence.administration(&"host".parse().unwrap());
        let acme = "acme".parse().unwrap();
        api.given_flow_with_template().await;
        api.given_environments("docker", &["prod"]).await;
        let report = async |digit| {
            api.given_artifact(digit, "t").await;
            api.given_test(digit, "t", true).await;
            api.report_running("prod", &[(digit, &[1])]).await.created();
        };
        report('1').await;
        host.end_future(&acme).await.unwrap_err();
        let before = entries(&*store).await;
        clock.set(30 * 86_400);
        report('2').await;
        clock.set(3600);
        report('3').await;
        // A slow query may miss the first check.
        while evidence.warnings().await.len() != 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let ready = api.get_raw("/ready", HeaderMap::new()).await;
        let text = String::from_utf8(ready.body.to_vec()).unwrap();
        assert!(ready.status == 200 && text.starts_with("OK\nwarning: a ledger has entries in the future"));
        let builds = async |query: &str| {
            digits(&api.get(&format!("/builds/acme?{query}")).await.ok()["builds"], "fingerprint")
        };
        assert_eq!(builds(&format!("end_ts={}", end(7200.0))).await, "1", "{name}: new evidence is hidden");

        let ended = host.end_future(&acme).await.unwrap();
        assert_eq!((ended.first, ended.now), (before, NOW.plus(Duration::from_secs(3600))), "{name}");
        assert_eq!(ended.entries + ended.first + 1, entries(&*store).await, "{name}");
        let again = host.end_future(&acme).await.unwrap_err();
        assert_eq!(again.status(), 400, "{name}: {again}");
        // Earlier results are reused for a while.
        while !evidence.warnings().await.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        clock.set(7200);
        report('4').await;

        for (query, expected) in [
            (format!("end_ts={}", end(0.0)), "1"),
            (format!("end_ts={}", end(3600.0)), "321"),
            (format!("start_ts={}&end_ts={}", end(3600.0), end(3600.0)), "32"),
            (format!("start_ts={}&end_ts={}", end(3601.0), end(7200.0)), "4"),
            (format!("end_ts={}", end(7200.0)), "4321"),
        ] {
            assert_eq!(builds(&query).await, expected, "{name}: builds, {query}");
            let list = api.get(&format!("/deployments/acme?{query}")).await.ok();
            assert_eq!(digits(&list["deployments"], "fingerprint"), expected, "{name}: deployments, {query}");
        }
        let snapshots = api.get("/snapshots/acme/prod?reverse=true").await.ok();
        let snapshots = snapshots.as_array().unwrap();
        let from = Vec::from_iter(snapshots.iter().map(|row| seconds(&row["from"])));
        assert_eq!(from, [0.0, 3600.0, 3600.0, 7200.0], "{name}");
        assert!(snapshots.iter().all(|row| row["duration"].as_i64().unwrap() >= 0), "{name}");
        for (query, count) in
            [(0.0, 1), (3599.0, 1), (3600.0, 3), (7199.0, 3), (7200.0, 4)].map(|(at, count)| (end(at), count))
        {
            let events = api.get(&format!("/environments/acme/prod/events?end_ts={query}")).await.ok();
            let mut numbers =
                Vec::from_iter(events.as_array().unwrap().iter().map(|one| one["snapshot_index"].as_u64()));
            numbers.dedup();
            assert_eq!(numbers.len(), count, "{name}: {events}");
            let list = api.get(&format!("/attestations/acme?to_timestamp={query}")).await.ok();
            assert_eq!(list["data"].as_array().map(Vec::len), Some(count), "{name}: {list}");
        }
        // The same report again: a heartbeat, although the last report seemed to be a month later for a while.
        clock.set(7300);
        api.report_running("prod", &[('4', &[1])]).await.ok();
        let prod = api.get("/environments/acme/prod").await.ok();
        assert_eq!(seconds(&prod["last_reported_at"]), 7300.0, "{name}");
        let flow =
            api.put("/flows/acme").json(json!({"name": "late", "description": "", "template": []})).await;
        flow.created();
        api.put_trail("late", &json!({"name": "t"})).await.created();
        assert_eq!(seconds(&api.get("/trails/acme/late/t").await.ok()["created_at"]), 7300.0, "{name}");
        if let Some(tables) = tables {
            tables.prove(&api).await;
        }
        drop(guard);
    }
}
