//! The allowlist (specification, Allowlist record; GET /allowlists/{org}).

use std::time::Duration;

use evidence_core::StoreError;
use evidence_core::allowlists::ReevaluateEnded;
use evidence_core::background::LEASE;
use evidence_core::id::SystemRandom;
use tokio::time::{Instant, sleep};

use crate::intercepting_store::{Failure, InterceptingStore};
use crate::support::prelude::*;

const LIST: &str = "/allowlists/acme";
const PRODUCTION: &str = "/allowlists/acme/production";

fn allowlist_entry(digit: &str, reason: &str) -> Value {
    json!({"artifact_name": "shop", "artifact_fingerprint": digit.repeat(64), "description": reason})
}

#[apply(on_every_store)]
async fn a_record_has_every_field_of_the_table(api: Api) {
    api.given_environment("production").await;
    assert_eq!(api.get(LIST).await.ok(), json!([]));
    let sent = allowlist_entry("a", "known");
    assert_eq!(api.put(PRODUCTION).json(&sent).await.created(), sent);
    let records = api.get(LIST).await.ok();
    let record = &records[0];
    assert!(record["timestamp"].is_i64(), "{record}");
    let expected = json!([{
        "artifact_name": "shop",
        "description": "known",
        "environment_name": "production",
        "fingerprint": "a".repeat(64),
        "timestamp": record["timestamp"],
        "user_name": "jane",
    }]);
    assert_eq!(records, expected);
}

#[apply(on_every_store)]
async fn the_newest_record_of_an_environment_and_fingerprint_is_listed_newest_first(api: Api) {
    api.given_environment("production").await;
    api.given_environment("staging").await;
    api.put(PRODUCTION).json(allowlist_entry("a", "first")).await.created();
    api.put(PRODUCTION).json(allowlist_entry("b", "second")).await.created();
    api.put("/allowlists/acme/staging").json(allowlist_entry("a", "third")).await.created();
    api.put(PRODUCTION).json(allowlist_entry("a", "fourth")).await.created();
    let records = api.get(LIST).await.ok();
    let reasons: Vec<&Value> =
        records.as_array().unwrap().iter().map(|record| &record["description"]).collect();
    assert_eq!(reasons, ["fourth", "third", "second"]);
}

#[apply(on_every_store)]
async fn the_body_is_closed_and_every_field_is_required(api: Api) {
    api.given_environment("production").await;
    let without = |field: &str| {
        let mut body = allowlist_entry("a", "known");
        body.as_object_mut().unwrap().remove(field);
        body
    };
    let with = |field: &str, value: Value| {
        let mut body = allowlist_entry("a", "known");
        body[field] = value;
        body
    };
    let pattern = "String should match pattern '^[a-f0-9]{64}$'";
    let refused = [
        (json!(null), "body", "Field required [input: None]".to_owned()),
        (without("artifact_name"), "artifact_name", "Field required [input: None]".to_owned()),
        (without("artifact_fingerprint"), "artifact_fingerprint", "Field required [input: None]".to_owned()),
        (without("description"), "description", "Field required [input: None]".to_owned()),
        (with("artifact_fingerprint", json!("")), "artifact_fingerprint", format!("{pattern} [input: ]")),
        (
            with("artifact_fingerprint", json!("A".repeat(64))),
            "artifact_fingerprint",
            format!("{pattern} [input: {}]", "A".repeat(64)),
        ),
        (
            with("artifact_fingerprint", json!("a".repeat(63))),
            "artifact_fingerprint",
            format!("{pattern} [input: {}]", "a".repeat(63)),
        ),
        (
            with("description", json!(null)),
            "description",
            "Input should be a valid string [input: None]".to_owned(),
        ),
        (with("more", json!(1)), "more", "Extra inputs are not permitted [input: 1]".to_owned()),
    ];
    for (body, field, text) in refused {
        api.put(PRODUCTION).json(&body).await.expect_errors(400, INVALID, &[(field, &text)]);
    }
    assert_eq!(api.get(LIST).await.ok(), json!([]));
}

#[apply(on_every_store)]
async fn the_environment_must_exist_and_the_caller_may_write(api: Api) {
    let body = allowlist_entry("a", "known");
    api.put(PRODUCTION).json(&body).await.expect_errors(
        404,
        "Environment not found",
        &[("env_name", "no environment named 'production' in organization 'acme'")],
    );
    api.put("/allowlists/acme/-").json(&body).await.expect_field_error(400, "env_name");
    api.given_environment("production").await;
    for role in ["reader", "snapshotter"] {
        let other = &format!("{role}-key");
        assert_eq!(api.put(PRODUCTION).json(&body).key(other).await.error_message(403), FORBIDDEN, "{role}");
        assert_eq!(api.get(LIST).key(other).await.ok(), json!([]), "{role}");
    }
    assert_eq!(api.get("/allowlists/nowhere").await.error_message(404), "Organization not found");
    assert_eq!(api.get(LIST).anonymous().await.error_message(401), "Unauthorized");
    assert_eq!(api.get(LIST).key(JOHN).await.error_message(403), FORBIDDEN);
}

/// The seconds of [`NOW`], and so many more.
fn seconds(more: i64) -> i64 {
    NOW.as_micros() / 1_000_000 + more
}

#[apply(on_every_store)]
async fn an_entry_is_withdrawn_and_the_environment_is_evaluated_again(api: Api) {
    api.given_environments("docker", &["production", "other"]).await;
    api.put_policy("p", PROVENANCE).await.created();
    let runs = [('a', &[10][..])];
    for environment in ["production", "other"] {
        api.attach(environment, "p").await;
        api.put(&format!("/allowlists/acme/{environment}"))
            .json(allowlist_entry("a", "known"))
            .await
            .created();
        api.report_running(environment, &runs).await.created();
        api.get(&format!("/environments/acme/{environment}")).await.expect(200, json!({"state": true}));
    }
    let entry = format!("{PRODUCTION}/{}", "a".repeat(64));
    api.delete(&entry).await.expect_exactly(200, json!("OK"));
    api.get("/environments/acme/production").await.expect(200, json!({"state": false}));
    let artifact =
        json!({"compliant": false, "annotation": {"type": "became-non-compliant", "was": 1, "now": 1}});
    api.get("/snapshots/acme/production/-1").await.expect(200, json!({"artifacts": [artifact]}));
    api.get("/environments/acme/other").await.expect(200, json!({"state": true}));
    // Neither a report nor the gate counts it any more.
    api.report_running("production", &runs).await.ok();
    api.get("/environments/acme/production").await.expect(200, json!({"state": false}));
    let gate = format!("/asserts/acme/fingerprint/{}?environment_name=production", "a".repeat(64));
    assert_eq!(api.get(&gate).await.error_message(404), "Artifact not found");
    let of = |records: &Value| {
        let records = records.as_array().unwrap().iter();
        Vec::from_iter(records.map(|one| one["environment_name"].as_str().unwrap().to_owned()))
    };
    assert_eq!(of(&api.get(LIST).await.ok()), ["other"]);
    let all = api.get(&format!("{LIST}?include_ended=true")).await.ok();
    assert_eq!(of(&all), ["production", "other"]);
    assert_eq!((&all[0]["withdrawn_by"], &all[0]["ended_at"]), (&json!("jane"), &json!(seconds(0))));
    assert_eq!((&all[0]["description"], all[1].get("ended_at")), (&json!("known"), None));
    // Once; and it may be allowed again.
    let missing =
        format!("the allowlist of environment 'production' has no entry in force for '{}'", "a".repeat(64));
    api.delete(&entry).await.expect_errors(404, "Allowlist entry not found", &[("fingerprint", &missing)]);
    api.put(PRODUCTION).json(allowlist_entry("a", "again")).await.created();
    api.report_running("production", &runs).await.created();
    api.get("/environments/acme/production").await.expect(200, json!({"state": true}));
    assert_eq!(of(&api.get(LIST).await.ok()), ["production", "other"]);
    for role in ["reader", "snapshotter"] {
        assert_eq!(api.delete(&entry).key(&format!("{role}-key")).await.error_message(403), FORBIDDEN);
    }
    assert_eq!(
        api.delete(&entry.replace("production", "nowhere")).await.error_message(404),
        "Environment not found"
    );
    api.delete(&format!("{PRODUCTION}/xyz")).await.expect_field_error(400, "fingerprint");
}

#[apply(on_every_store)]
async fn an_end_is_in_the_future_and_in_seconds(api: Api) {
    api.given_environment("production").await;
    let until = |end: Value| {
        let mut body = allowlist_entry("a", "known");
        body["expires_at"] = end;
        body
    };
    let in_seconds = "Input should be in epoch seconds, not in milliseconds, microseconds or nanoseconds";
    let past = "expires_at cannot be in the past; it is in epoch seconds";
    for (end, text) in [
        (json!(seconds(0)), past.to_owned()),
        (json!(-1), past.to_owned()),
        (json!(0), past.to_owned()),
        (json!(seconds(9) * 1_000), format!("{in_seconds} [input: {}]", seconds(9) * 1_000)),
        (json!(seconds(9) * 1_000_000_000), format!("{in_seconds} [input: {}]", seconds(9) * 1_000_000_000)),
    ] {
        let refused = api.put(PRODUCTION).json(until(end)).await;
        refused.expect_errors(400, INVALID, &[("expires_at", &text)]);
    }
    for end in [json!("2026-01-01"), json!(1.5), json!(true)] {
        api.put(PRODUCTION).json(until(end)).await.expect_field_error(400, "expires_at");
    }
    assert_eq!(api.get(&format!("{LIST}?include_ended=true")).await.ok(), json!([]));
    let sent = until(json!(seconds(1)));
    assert_eq!(api.put(PRODUCTION).json(&sent).await.created(), sent);
    let listed = &api.get(LIST).await.ok()[0];
    assert_eq!((&listed["expires_at"], listed.get("ended_at")), (&json!(seconds(1)), None));
}

/// An expired entry counts neither in the gate nor in a report, and without a report the job turns the environment red.
#[tokio::test]
async fn an_entry_expires_and_the_environment_is_evaluated_again() {
    for stored in stores().await {
        drop(fixture(Arc::clone(&stored.store), Settings::default()).await);
        let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SystemRandom));
        let (store, settings) = (Arc::clone(&stored.store), Settings::default());
        let evidence = Evidence::with_sources(store, settings, Arc::clone(&clock) as _, random);
        let api = Api::new(evidence.clone(), Mount::Tower, stored.name).await;
        api.given_environments("docker", &["reported", "idle"]).await;
        api.put_policy("p", PROVENANCE).await.created();
        let runs = [('a', &[10][..]), ('b', &[10][..])];
        for environment in ["reported", "idle"] {
            api.attach(environment, "p").await;
            let path = format!("/allowlists/acme/{environment}");
            let mut until = allowlist_entry("a", "for now");
            until["expires_at"] = json!(seconds(60));
            api.put(&path).json(until).await.created();
            api.put(&path).json(allowlist_entry("b", "for ever")).await.created();
            api.report_running(environment, &runs).await.created();
        }
        let state = async |environment: &str| {
            api.get(&format!("/environments/acme/{environment}")).await.ok()["state"].clone()
        };
        let gate =
            |digit: &str| format!("/asserts/acme/fingerprint/{}?environment_name=reported", digit.repeat(64));
        clock.set(59);
        api.report_running("reported", &runs).await.ok();
        let passes = api.get(&gate("a")).await.ok();
        assert_eq!(
            (&passes["compliant"], &passes["allow_listing"]["expires_at"]),
            (&json!(true), &json!(seconds(60)))
        );
        assert_eq!((state("reported").await, state("idle").await), (json!(true), json!(true)));
        clock.set(60);
        assert_eq!(api.get(&gate("a")).await.error_message(404), "Artifact not found");
        assert_eq!(api.get(&gate("b")).await.ok()["compliant"], true);
        // The evaluation before the end is still cached.
        api.report_running("reported", &runs).await.created();
        assert_eq!(state("reported").await, json!(false), "{}: a report", stored.name);
        assert_eq!(state("idle").await, json!(true));
        let background = evidence.background(LEASE, vec![Arc::new(ReevaluateEnded::default())]);
        let begun = Instant::now();
        while state("idle").await != json!(false) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{}: no report", stored.name);
            sleep(Duration::from_millis(10)).await;
        }
        background.stop().await;
        for environment in ["reported", "idle"] {
            let expected =
                json!({"compliant": false, "artifacts": [{"compliant": false}, {"compliant": true}]});
            api.get(&format!("/snapshots/acme/{environment}/-1")).await.expect(200, expected);
            api.expect_snapshots(environment, 2).await;
        }
        let all = api.get(&format!("{LIST}?include_ended=true")).await.ok();
        let ended =
            all.as_array().unwrap().iter().filter(|one| one["ended_at"] == json!(seconds(60))).count();
        assert_eq!((ended, api.get(LIST).await.ok().as_array().unwrap().len()), (2, 2));
        drop(stored.guard);
    }
}

/// A server whose clock is behind records entries that end before one that was handled already, or with it.
#[tokio::test]
async fn an_entry_that_ends_before_others_that_were_handled_is_handled_too() {
    for stored in stores().await {
        drop(fixture(Arc::clone(&stored.store), Settings::default()).await);
        let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SystemRandom));
        let (store, settings) = (Arc::clone(&stored.store), Settings::default());
        let evidence = Evidence::with_sources(store, settings, Arc::clone(&clock) as _, random);
        let api = Api::new(evidence.clone(), Mount::Tower, stored.name).await;
        let environments = ["runs", "before", "with"];
        api.given_environments("docker", &environments).await;
        api.put_policy("p", PROVENANCE).await.created();
        let allow = async |environment: &str, digit: &str, end: i64| {
            let mut until = allowlist_entry(digit, "for now");
            until["expires_at"] = json!(seconds(end));
            api.put(&format!("/allowlists/acme/{environment}")).json(until).await.created();
        };
        for environment in environments {
            api.attach(environment, "p").await;
            allow(environment, "a", 60).await;
        }
        let state = async |environment: &str| {
            api.get(&format!("/environments/acme/{environment}")).await.ok()["state"].clone()
        };
        let job = Arc::new(ReevaluateEnded::default());
        let run_until_red = async |environments: &[&str]| {
            let background = evidence.background(LEASE, vec![Arc::clone(&job) as _]);
            let begun = Instant::now();
            for environment in environments {
                while state(environment).await != json!(false) {
                    assert!(begun.elapsed() < Duration::from_secs(9), "{}: {environment}", stored.name);
                    sleep(Duration::from_millis(10)).await;
                }
            }
            // It notes what it has handled.
            sleep(Duration::from_millis(100)).await;
            background.stop().await;
        };
        api.report_running("runs", &[('a', &[10])]).await.created();
        clock.set(60);
        run_until_red(&["runs"]).await;

        clock.set(40);
        for (environment, end) in [("before", 50), ("with", 60)] {
            allow(environment, "b", end).await;
            api.report_running(environment, &[('b', &[10])]).await.created();
            assert_eq!(state(environment).await, json!(true), "{}: {environment}", stored.name);
        }
        clock.set(60);
        run_until_red(&["before", "with"]).await;
        drop(stored.guard);
    }
}

/// A query that was answered, and how long the answer was.
type Answered = (&'static str, usize);

/// Ends that were read are not read again for the sake of one organization, however long it cannot be evaluated.
#[tokio::test]
async fn an_environment_that_could_not_be_evaluated_is_evaluated_later_without_reading_all_ends_again() {
    let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let failure = Failure::default();
    let (store, answered) = InterceptingStore::measured(inner);
    let store: Arc<dyn Store> = Arc::new(store.failing("environments_by_id", Arc::clone(&failure)));
    drop(fixture(Arc::clone(&store), Settings::default()).await);
    let (clock, random) = (Arc::new(ManualClock::default()), Arc::new(SystemRandom));
    let evidence = Evidence::with_sources(store, Settings::default(), Arc::clone(&clock) as _, random);
    let api = Api::new(evidence.clone(), Mount::Tower, "memory").await;
    api.given_environments("docker", &["idle"]).await;
    api.put_policy("p", PROVENANCE).await.created();
    api.attach("idle", "p").await;
    let mut until = allowlist_entry("a", "for now");
    until["expires_at"] = json!(seconds(60));
    api.put("/allowlists/acme/idle").json(until).await.created();
    api.report_running("idle", &[('a', &[10])]).await.created();

    let job = Arc::new(ReevaluateEnded::default());
    // Whether each run since then read no ends.
    let run_until = async |done: &dyn Fn(&[Answered]) -> bool| {
        answered.lock().unwrap().clear();
        let background = evidence.background(LEASE, vec![Arc::clone(&job) as _]);
        let begun = Instant::now();
        while !done(&answered.lock().unwrap()) {
            assert!(begun.elapsed() < Duration::from_secs(9));
            sleep(Duration::from_millis(10)).await;
        }
        // It notes what it has handled.
        sleep(Duration::from_millis(100)).await;
        background.stop().await;
        let answered = answered.lock().unwrap();
        let ends = answered.iter().filter(|(query, _)| *query == "ended_allowlist_entries");
        ends.map(|(_, length)| *length).all(|length| length == "Ok([])".len())
    };
    let was_asked =
        |query: &'static str| move |answered: &[Answered]| answered.iter().any(|(asked, _)| *asked == query);
    clock.set(60);
    *failure.lock().unwrap() = Some(|| StoreError::corrupt("damaged"));
    assert!(!run_until(&was_asked("ended_allowlist_entries")).await);
    // Ends of the last quarter of an hour are read once more.
    clock.set(60 + 20 * 60);
    run_until(&was_asked("ended_allowlist_entries")).await;
    *failure.lock().unwrap() = None;
    assert!(run_until(&was_asked("environments_by_id")).await, "the ends were read again");
    assert_eq!(api.get("/environments/acme/idle").await.ok()["state"], json!(false));
}
