//! Reports evaluate what changed since the last one, and nothing is decided by what no longer holds.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use evidence_core::StoreError;
use evidence_core::environments::replay;
use evidence_core::id::SystemRandom;
use evidence_core::store::LedgerStore;
use evidence_store_sqlite::rusqlite::Connection;
use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::access::key_of;
use crate::intercepting_store::{Answered, Call, Failure, InterceptingStore, take_counts};
use crate::operation_paths::cached;
use crate::replays::Forgetful;
use crate::statements::{fill, reads};
use crate::support::prelude::*;
use crate::support::service_on_sqlite;
use crate::writes::restore;

const RUNNING: [ReportedArtifact<'static>; 5] =
    [('1', &[10]), ('2', &[10]), ('3', &[10]), ('4', &[10]), ('5', &[10])];

/// The queries of a report about the provenance of artifacts.
const EVALUATING: [&str; 2] = ["provenance", "trail_contents"];

impl Api {
    /// Artifacts 1 to 5, each of a trail of its own of the flow `web`, in an environment `prod` whose policy asks for their
    /// compliance.
    async fn given_trails(&self) {
        self.given_flow_with_template().await;
        for (digit, _) in RUNNING {
            self.given_artifact(digit, &format!("t{digit}")).await;
            self.given_test(digit, &format!("t{digit}"), true).await;
        }
        self.given_environments("docker", &["prod"]).await;
        let policy = "_schema: https://example.com/schemas/policy/v1\nartifacts: {trail-compliance: {required: true}}\n";
        self.put_policy("p", policy).await.created();
        self.attach("prod", "p").await;
    }

    async fn report_prod(&self, running: &[ReportedArtifact<'_>], status: u16) {
        let reply = self.report_running("prod", running).await;
        assert_eq!(reply.status.as_u16(), status, "{reply:?}");
    }

    async fn expect_state(&self, compliant: bool) {
        self.get("/snapshots/acme/prod/-1").await.expect(200, json!({"compliant": compliant}));
    }
}

/// A service whose queries are noted, with artifacts 1 to 5 reported.
async fn observed(settings: Settings) -> (Api, Answered, Arc<ManualClock>, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    fixture(Arc::clone(&store), Settings::default()).await;
    let (measured, answered) = InterceptingStore::measured(Arc::clone(&store));
    let clock = Arc::new(ManualClock::default());
    let random = Arc::new(SystemRandom);
    let evidence = Evidence::with_sources(Arc::new(measured), settings, Arc::clone(&clock) as _, random);
    let api = Api::new(evidence, Mount::Tower, "memory").await;
    api.given_trails().await;
    (api, answered, clock, store)
}

#[tokio::test]
async fn a_report_asks_about_what_changed_alone() {
    let (api, answered, _, store) = observed(Settings::default()).await;
    let expect = async |running: &[ReportedArtifact<'_>], status, counts: [usize; 2]| {
        take_counts(&answered, EVALUATING);
        api.report_prod(running, status).await;
        assert_eq!(take_counts(&answered, EVALUATING), counts);
    };
    expect(&RUNNING[..4], 201, [1, 1]).await;
    expect(&RUNNING[..4], 200, [0, 0]).await;
    expect(&RUNNING[..3], 201, [0, 0]).await;
    expect(&RUNNING, 201, [1, 1]).await;
    api.given_test('3', "t3", false).await;
    expect(&RUNNING, 201, [1, 1]).await;
    expect(&RUNNING, 200, [0, 0]).await;
    // Of others' policies, flows and reports.
    api.given_flow("jobs", "version: 1\n").await;
    api.given_environments("docker", &["test"]).await;
    api.report_running("test", &RUNNING).await.created();
    expect(&RUNNING, 200, [0, 0]).await;
    // The new artifact comes from a trail with other running artifacts. That trail is read once more.
    api.given_artifact('6', "t5").await;
    expect(&RUNNING, 200, [1, 1]).await;
    expect(&[&RUNNING[..], &[('6', &[10])]].concat(), 201, [2, 1]).await;
    let org = acme(&*store).await;
    let prod = store.environment(org, "prod").await.unwrap().unwrap();
    for index in 1..=prod.status.snapshots {
        let differences =
            replay(&*store, (org, prod.record.id, index), Arc::new(MemoryStore::new())).await.unwrap();
        assert_eq!(differences, Vec::<String>::new(), "snapshot {index}");
    }
}

#[tokio::test]
async fn an_evaluation_holds_for_an_hour() {
    let (api, answered, clock, _) = observed(Settings::default()).await;
    api.report_prod(&RUNNING, 201).await;
    for (minutes, asked) in [(30, 0), (29, 0), (1, 1), (59, 0), (1, 1)] {
        clock.advance(Duration::from_secs(minutes * 60));
        take_counts(&answered, EVALUATING);
        api.report_prod(&RUNNING, 200).await;
        assert_eq!(take_counts(&answered, EVALUATING), [asked; 2], "after {minutes} minutes more");
    }
}

#[tokio::test]
async fn what_was_damaged_and_mended_is_evaluated_again() {
    let (evidence, store, folder) = service_on_sqlite().await;
    let clock = Arc::new(ManualClock::default());
    let random = Arc::new(SystemRandom);
    drop(evidence);
    let evidence =
        Evidence::with_sources(Arc::clone(&store) as _, Settings::default(), Arc::clone(&clock) as _, random);
    let api = Api::new(evidence, Mount::Tower, "sqlite").await;
    api.given_trails().await;
    let file = Connection::open(folder.path().join("evidence.db")).unwrap();
    file.execute(&format!("DELETE FROM artifact WHERE fingerprint = '{}'", fingerprint('2')), []).unwrap();
    api.report_prod(&RUNNING, 201).await;
    api.expect_state(false).await;
    store.rebuild().await.unwrap();
    clock.advance(Duration::from_secs(3600));
    api.report_prod(&RUNNING, 201).await;
    api.expect_state(true).await;
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_fails_no_report() {
    let (evidence, _store, folder) = service_on_sqlite().await;
    let api = Api::new(evidence, Mount::Tower, "sqlite").await;
    api.given_trails().await;
    let file = Connection::open(folder.path().join("evidence.db")).unwrap();
    for (name, damage) in [
        ("a", "leaf_hash = x'00'"),
        ("b", "kind = CAST(x'ff' AS text)"),
        ("c", "payload = ''"),
        ("d", "payload = 'x', payload_hash = x''"),
    ] {
        assert!(api.report_running("prod", &RUNNING).await.status.is_success());
        api.given_environments("docker", &[name]).await;
        let newest = format!("UPDATE ledger SET {damage} WHERE idx = (SELECT max(idx) FROM ledger)");
        assert_eq!(file.execute(&newest, []).unwrap(), 1);
        api.given_test('2', "t2", name > "b").await;
        let reply = api.report_running("prod", &RUNNING).await;
        assert!(reply.status.is_success(), "{damage}: {reply:?}");
        api.expect_state(name > "b").await;
    }
}

#[tokio::test]
async fn nothing_is_decided_by_a_ledger_that_is_no_more() {
    let (evidence, store, folder) = service_on_sqlite().await;
    let (file, backup) = (folder.path().join("evidence.db"), folder.path().join("backup.db"));
    let api = Api::new(evidence, Mount::Tower, "sqlite").await;
    api.given_trails().await;
    api.report_prod(&RUNNING, 201).await;
    let into = format!("VACUUM INTO '{}'", backup.display());
    Connection::open(&file).unwrap().execute_batch(&into).unwrap();
    let org = acme(&*store).await;
    let entries = async || store.ledger_head(org).await.unwrap().unwrap().size();
    api.given_test('4', "t4", false).await;
    api.report_prod(&RUNNING, 201).await;
    api.expect_state(false).await;
    let before = entries().await;
    restore(&file, &backup);
    // As many entries as before.
    api.given_environments("docker", &["a", "b"]).await;
    assert_eq!(entries().await, before);
    api.report_prod(&RUNNING, 200).await;
    api.expect_state(true).await;
}

#[tokio::test]
async fn so_much_is_evaluated_whatever_was_before() {
    let limits = Limits { evaluated_attestations: 3, ..Limits::default() };
    let (api, ..) = observed(Settings { limits, ..Settings::default() }).await;
    let any = "_schema: https://example.com/schemas/policy/v1\nartifacts: {attestations: [{name: '*', type: generic}]}\n";
    api.put_policy("p", any).await.expect(200, json!({"name": "p"}));
    // Whether it is too much.
    let refused = async |environment: &str, many: usize| {
        let reply = api.report_running(environment, &RUNNING[..many]).await;
        assert!(reply.status.is_success(), "{reply:?}");
        let snapshot = api.get(&format!("/snapshots/acme/{environment}/-1")).await.ok();
        let too_much = "The policies require more than 3 attestations in total";
        let shown = snapshot["artifacts"].as_array().unwrap().iter();
        let is_it = |artifact: &Value| artifact["reasons_for_incompliance"].to_string().contains(too_much);
        let found = Vec::from_iter(shown.map(is_it));
        assert!(found.iter().all(|one| *one == found[0]), "all of it, or none: {snapshot}");
        found[0]
    };
    let (mut one_by_one, mut at_once) = (Vec::new(), Vec::new());
    for (many, fresh) in (1..).zip(["a", "b", "c", "d", "e"]) {
        api.given_environments("docker", &[fresh]).await;
        api.attach(fresh, "p").await;
        at_once.push(refused(fresh, many).await);
        one_by_one.push(refused("prod", many).await);
    }
    assert_eq!(one_by_one, at_once);
    assert_eq!((at_once.first(), at_once.last()), (Some(&false), Some(&true)));
}

#[tokio::test]
async fn no_cached_answer_outlives_a_write() {
    let evidence = fixture(Arc::new(MemoryStore::new()), Settings::default()).await;
    let forgetful = Api::new(Forgetful(evidence.clone()), Mount::Tower, "memory").await;
    let api = Api::new(evidence, Mount::Tower, "memory").await;
    fill(&api, 2).await;
    let (reads, cached) = (reads(&api).await, cached());
    let mut changed = BTreeMap::new();
    let mut before = BTreeMap::new();
    let attest = |name: &str, artifact: Option<String>| {
        let document =
            json!({"attestation_name": name, "is_compliant": false, "artifact_fingerprint": artifact})
                .to_string();
        api.post_attestation("shop", "t0", "generic").data_json(&document)
    };
    let artifact = json!({
        "trail_name": "t0", "fingerprint": fingerprint('e'), "filename": "e", "git_commit": "a".repeat(40),
        "build_url": "b", "commit_url": "c",
    });
    let running = json!({"artifacts": [{"digests": {"app": fingerprint('0')}, "creationTimestamp": 1}]});
    for write in 0..9 {
        match write {
            0 => {}
            1 => drop(attest("bar", None).await.created()),
            2 => drop(attest("foo", Some(fingerprint('0'))).await.created()),
            3 => drop(attest("bar", Some(fingerprint('0'))).await.created()),
            4 => drop(api.post("/artifacts/acme/shop").json(artifact.clone()).await.created()),
            5 => drop(api.put("/environments/acme/env0/report/server").json(running.clone()).await.created()),
            6 => drop(
                api.put("/environments/acme/prod/report/server")
                    .json(json!({"artifacts": []}))
                    .await
                    .created(),
            ),
            7 => drop(api.patch("/tags/acme/flow/shop").json(json!({"set_tags": {"kind": "x"}})).await.ok()),
            _ => drop(
                api.put_flow("shop")
                    .with(json!({"description": "changed"}))
                    .template("version: 1\ntrail: {attestations: [{name: scan, type: generic}]}\n")
                    .await
                    .ok(),
            ),
        }
        for (operation, path) in reads.iter().filter(|(operation, _)| cached.contains(*operation)) {
            let anew = forgetful.get(path).await;
            for _ in 0..2 {
                let reply = api.get(path).await;
                assert_eq!((reply.status, &reply.body), (anew.status, &anew.body), "{write}: {path}");
            }
            if before.insert(operation, anew.body.clone()).is_some_and(|before| before != anew.body) {
                *changed.entry(*operation).or_insert(0) += 1;
            }
        }
    }
    // Else nothing would be said of them.
    let unchanged = Vec::from_iter(cached.iter().filter(|operation| !changed.contains_key(*operation)));
    assert_eq!(unchanged, Vec::<&&str>::new());
}

#[tokio::test(start_paused = true)]
async fn what_lists_show_of_a_trail_is_read_again_after_the_ttl() {
    let settings =
        Settings { answer_cache_bytes: 0, cache_ttl: Duration::from_secs(10), ..Settings::default() };
    let (api, answered, ..) = observed(settings).await;
    take_counts(&answered, ["trail_contents"]);
    for (seconds, reads) in [(0, 1), (9, 0), (1, 1), (9, 0)] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        api.get("/trails/acme").await.ok();
        assert_eq!(take_counts(&answered, ["trail_contents"]), [reads], "after {seconds} seconds more");
    }
}

#[tokio::test]
async fn a_list_holds_a_part_of_its_cached_trails_at_a_time() {
    let settings = Settings { answer_cache_bytes: 0, ..Settings::default() };
    let (api, answered, ..) = observed(settings).await;
    let notes = "a".repeat(250 << 10);
    for number in 0..20 {
        let trail = format!("large-{number}");
        let data = json!({"name": trail, "user_data": {"notes": notes}});
        api.put("/trails/acme/web").data_json(&data).await.created();
        api.given_artifact('6', &trail).await;
    }
    take_counts(&answered, ["trail_contents", "runs"]);
    // The runs are read for each part of the list. Four such trails are read at a time. In the cache each takes a megabyte of
    // memory.
    for counts in [[5, 5], [0, 5]] {
        api.get("/artifacts/acme?per_page=20").await.ok();
        assert_eq!(take_counts(&answered, ["trail_contents", "runs"]), counts);
    }
}

#[tokio::test]
async fn those_who_read_at_the_same_time_share_a_look_at_the_ledger_that_is_none_from_before() {
    for stored in stores().await {
        let (store, looks) = InterceptingStore::holding(Arc::clone(&stored.store), "ledger_head");
        let api =
            Api::new(fixture(Arc::new(store), Settings::default()).await, Mount::Tower, stored.name).await;
        let flow =
            |description: &str| json!({"name": "shop", "description": description, "template": ["artifact"]});
        api.put("/flows/acme").json(flow("before")).await.created();
        let read = || api.get("/flows/acme/shop").into_future();
        read().await.expect(200, json!({"description": "before"}));
        looks.hold();
        let mut first = read();
        while looks.begun.load(Ordering::Relaxed) == 0 {
            assert!((&mut first).now_or_never().is_none());
            tokio::task::yield_now().await;
        }
        api.put("/flows/acme").json(flow("after")).await.ok();
        let mut later = Vec::from_iter((0..8).map(|_| read()));
        // Those that authorize first find what the others asked.
        for _ in 0..100 {
            for one in &mut later {
                assert!(one.now_or_never().is_none(), "{}", stored.name);
            }
            tokio::task::yield_now().await;
        }
        looks.permits.add_permits(9);
        // The first is not polled meanwhile, and holds up nobody.
        for reply in futures_util::future::join_all(later).await {
            reply.expect(200, json!({"description": "after"}));
        }
        first.await.ok();
        assert_eq!(looks.take_begun(), 2, "{}", stored.name);
    }
}

#[tokio::test(start_paused = true)]
async fn equal_requests_share_the_answer_that_one_of_them_makes() {
    let (store, flows) = InterceptingStore::holding(Arc::new(MemoryStore::new()), "flow");
    let failure = Failure::default();
    let store = store.failing("flow", Arc::clone(&failure));
    let api = Api::new(fixture(Arc::new(store), Settings::default()).await, Mount::Tower, "memory").await;
    let written = async |description: &str| {
        flows.release();
        let flow = json!({"name": "shop", "description": description, "template": ["artifact"]});
        api.put("/flows/acme").json(flow).await;
        flows.hold();
    };
    let reads_of = |path| Vec::from_iter((0..8).map(|_| tokio::spawn(api.get(path).into_future())));
    let reads = || reads_of("/flows/acme/shop");
    let millis = async |millis| tokio::time::sleep(Duration::from_millis(millis)).await;
    let begun = || flows.begun.load(Ordering::Relaxed);
    let go_on = |many| flows.permits.add_permits(many);
    // If one action too many is made, none replies.
    let reply_of = async |asked: JoinHandle<Reply>| {
        timeout(Duration::from_secs(60), asked).await.expect("a reply").unwrap()
    };

    // Within a second all wait for one; then each makes its own.
    for (description, after, made) in [("one", 950, 1), ("two", 1_050, 8)] {
        written(description).await;
        let asked = reads();
        millis(after).await;
        assert_eq!(begun(), made, "after {after} ms");
        let since = tokio::time::Instant::now();
        go_on(made);
        for reply in asked {
            reply_of(reply).await.expect(200, json!({"description": description}));
        }
        assert_eq!((begun(), since.elapsed()), (made, Duration::ZERO), "nobody waits any longer");
    }

    written("three").await;
    let before = reads();
    millis(50).await;
    written("four").await;
    let later = reads();
    millis(10).await;
    assert_eq!(begun(), 1, "those who ask after a write share with none from before");
    assert!(before.iter().chain(&later).all(|one| !one.is_finished()));
    go_on(2);
    for reply in before.into_iter().chain(later) {
        reply_of(reply).await.expect(200, json!({"description": "four"}));
    }
    assert_eq!(begun(), 1);

    written("five").await;
    let asked = [(); 2].map(|()| tokio::spawn(api.get("/flows/acme/shop").key("reader-key").into_future()));
    millis(50).await;
    let key = key_of(&api, "reader-key").await;
    api.delete(&format!("/service-accounts/acme/reader-key/api-keys/{key}")).await.ok();
    go_on(1);
    let mut statuses = Vec::new();
    for reply in asked {
        statuses.push(reply_of(reply).await.status.as_u16());
    }
    statuses.sort_unstable();
    assert_eq!((statuses, begun()), (vec![200, 401], 1), "whoever waited may not ask any more");

    written("six").await;
    let asked = [(); 2].map(|()| tokio::spawn(api.get("/flows/acme/shop").key("admin-key").into_future()));
    millis(50).await;
    let lowered = json!({"privilege": "reader"});
    api.patch("/service-accounts/acme/admin-key").json(&lowered).await.ok();
    go_on(2);
    for reply in asked {
        reply_of(reply).await.expect(200, json!({"description": "six"}));
    }
    assert_eq!(begun(), 2, "what one of another role made is not shared");

    written("seven").await;
    let asked = reads_of("/flows/acme/none");
    millis(50).await;
    go_on(1);
    millis(10).await;
    assert_eq!(begun(), 8, "what is wrong with one is wrong with all, and each says so itself");
    go_on(7);
    for reply in asked {
        assert_eq!(reply_of(reply).await.status, 404);
    }

    written("eight").await;
    let asked = reads();
    *failure.lock().unwrap() = Some(|| StoreError::Unavailable("away".into()));
    millis(50).await;
    go_on(1);
    millis(10).await;
    assert_eq!(begun(), 2, "where the store fails for one, another asks it once more");
    *failure.lock().unwrap() = None;
    go_on(1);
    let mut statuses = Vec::new();
    for reply in asked {
        statuses.push(reply_of(reply).await.status.as_u16());
    }
    statuses.sort_unstable();
    assert_eq!((&statuses[..], begun()), (&[200, 200, 200, 200, 200, 200, 200, 503][..], 2));

    written("nine").await;
    let asked = reads();
    *failure.lock().unwrap() = Some(|| StoreError::Failed("damaged".into()));
    millis(50).await;
    go_on(1);
    millis(10).await;
    assert_eq!(begun(), 8, "what is damaged is so for all of them");
    go_on(7);
    for reply in asked {
        assert_eq!(reply_of(reply).await.status, 500);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_no_older_than_its_making_however_long_its_request_waited() {
    let (store, flows) = InterceptingStore::holding(Arc::new(MemoryStore::new()), "flow");
    let settings = Settings { cache_ttl: Duration::from_millis(100), ..Settings::default() };
    let api = Api::new(fixture(Arc::new(store), settings).await, Mount::Tower, "memory").await;
    let flow = json!({"name": "shop", "description": "", "template": ["artifact"]});
    api.put("/flows/acme").json(flow).await.created();
    flows.hold();
    let asked = Vec::from_iter((0..8).map(|_| tokio::spawn(api.get("/flows/acme/shop").into_future())));
    tokio::time::sleep(Duration::from_millis(150)).await;
    flows.permits.add_permits(8);
    for reply in asked {
        reply.await.unwrap().ok();
    }
    assert_eq!(flows.take_begun(), 2, "the answer of the second is shared");
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_list_that_was_too_long_to_be_cached() {
    let (store, lists) = InterceptingStore::holding(Arc::new(MemoryStore::new()), "trails");
    let settings = Settings { cache_ttl: Duration::from_secs(10), ..Settings::default() };
    let api = Api::new(fixture(Arc::new(store), settings).await, Mount::Tower, "memory").await;
    api.given_flow_with_template().await;
    let notes = "a".repeat(250 << 10);
    for name in ["a", "b", "c"] {
        let data = json!({"name": name, "user_data": {"notes": notes}}).to_string();
        api.put("/trails/acme/web").data_json(&data).await.created();
    }
    lists.hold();
    // It takes 50 ms to find out.
    for (millis, begun) in [(0, 1), (9_900, 8), (0, 1)] {
        tokio::time::advance(Duration::from_millis(millis)).await;
        let asked = Vec::from_iter((0..8).map(|_| tokio::spawn(api.get("/trails/acme/web").into_future())));
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(lists.begun.load(Ordering::Relaxed), begun, "after {millis} ms more");
        lists.permits.add_permits(8);
        for reply in asked {
            reply.await.unwrap().ok();
        }
        assert_eq!(lists.take_begun(), 8, "each made its own");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waited_for_the_ledger_is_authorized_again() {
    let (store, looks) = InterceptingStore::holding(Arc::new(MemoryStore::new()), "ledger_head");
    let api = Api::new(fixture(Arc::new(store), Settings::default()).await, Mount::Tower, "memory").await;
    let flow = json!({"name": "shop", "description": "before", "template": ["artifact"]});
    api.put("/flows/acme").json(flow).await.created();
    let key = key_of(&api, "reader-key").await;
    looks.hold();
    let asked = tokio::spawn(api.get("/flows/acme/shop").key("reader-key").into_future());
    tokio::time::sleep(Duration::from_millis(50)).await;
    looks.release();
    api.delete(&format!("/service-accounts/acme/reader-key/api-keys/{key}")).await.ok();
    looks.permits.add_permits(1);
    assert_eq!(asked.await.unwrap().status, 401);
}

#[tokio::test(start_paused = true)]
async fn no_answer_outlives_the_ttl_while_a_request_waits_for_the_ledger() {
    let (waited, flows) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
    let store = {
        let (waited, flows) = (Arc::clone(&waited), Arc::clone(&flows));
        InterceptingStore::new(Arc::new(MemoryStore::new()), move |call| {
            let mut seconds = 0;
            match call {
                Call::Query("ledger_head") => seconds = waited.load(Ordering::Relaxed),
                Call::Query("flow") => drop(flows.fetch_add(1, Ordering::Relaxed)),
                Call::Query(_) | Call::Texts(_) | Call::Write => {}
            }
            Box::pin(tokio::time::advance(Duration::from_secs(seconds)))
        })
    };
    let settings = Settings { cache_ttl: Duration::from_secs(10), ..Settings::default() };
    let api = Api::new(fixture(Arc::new(store), settings).await, Mount::Tower, "memory").await;
    let flow = json!({"name": "shop", "description": "", "template": ["artifact"]});
    api.put("/flows/acme").json(flow).await.created();
    flows.store(0, Ordering::Relaxed);
    for (seconds, asked) in [(0, 1), (9, 0), (1, 1), (9, 0), (9, 1)] {
        waited.store(seconds, Ordering::Relaxed);
        api.get("/flows/acme/shop").await.ok();
        assert_eq!(flows.swap(0, Ordering::Relaxed), asked, "after {seconds} seconds more");
    }
}
