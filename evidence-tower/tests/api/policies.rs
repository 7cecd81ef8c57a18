//! Policies, end to end: versions, texts that are refused, and what a new version does to environments.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evidence_conformance::memory::MemoryStore;
use evidence_core::background::LEASE;
use evidence_core::policies::Reevaluate;
use futures_util::FutureExt;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

use crate::intercepting_store::{Call, InterceptingStore, take_queries};
use crate::support::prelude::*;

const EMPTY: &str = "_schema: https://example.com/schemas/policy/v1\n";

#[apply(on_every_store)]
async fn a_policy_is_created_with_201_and_gets_a_version_with_each_new_text(api: Api) {
    let now = json!(NOW.seconds());
    let version = |version: u64, text: &str| json!({"version": version, "comment": "", "timestamp": now, "created_by": "jane", "policy_yaml": text});
    let event = |kind: &str| json!({"type": kind, "timestamp": now, "user": "jane", "data": {}});
    let policy = |versions: &[serde_json::Value], events: &[serde_json::Value]| {
        json!({
            "name": "p", "description": "", "created_by": "jane", "created_at": now, "last_modified_at": now,
            "archived": false, "versions": versions, "events": events, "consuming_envs": []
        })
    };
    let first = policy(&[version(1, PROVENANCE)], &[event("creation")]);
    api.put_policy("p", PROVENANCE).await.expect_exactly(201, first.clone());
    api.put_policy("p", PROVENANCE).await.expect_exactly(200, first);
    let versions = [version(1, PROVENANCE), version(2, COMPLIANCE)];
    let second = policy(&versions, &[event("creation"), event("new_version")]);
    api.put_policy("p", COMPLIANCE).await.expect_exactly(200, second.clone());
    api.get("/policies/acme/p").key("reader-key").await.expect_exactly(200, second.clone());
    api.put_policy("a", EMPTY).await.expect(201, json!({"name": "a"}));
    api.get("/policies/acme").await.expect(200, json!([{"name": "a"}, second]));
}

#[apply(with_every_store)]
async fn a_policy_and_a_trail_do_not_grow_with_each_of_their_facts(api: Api, store: Arc<dyn Store>) {
    api.put_policy("p", EMPTY).await.created();
    let acme = acme(&*store).await;
    let mut sizes = BTreeMap::<String, Vec<usize>>::new();
    for n in 1000..1120 {
        let text = format!("{EMPTY}# {n}\n");
        let payload = json!({"name": "p", "description": n.to_string()}).to_string();
        api.put("/policies/acme").payload(&payload).file("policy_file", "p", &text).await.ok();
        let repo = json!({"name": format!("a/{n}"), "url": format!("https://e/{n}")});
        let trail = json!({"name": "t", "description": n.to_string(), "repo_info": repo});
        let written = api.put_trail("shop", &trail).await;
        assert!(written.status.is_success(), "{:?}", written.body);
    }
    for entry in store.ledger_entries(acme, 0, 1000).await.unwrap() {
        sizes.entry(entry.kind).or_default().push(entry.payload.len());
    }
    for kind in ["policy_updated", "trail_updated"] {
        let sizes = &sizes[kind];
        // Numbers get longer.
        assert!(sizes[sizes.len() - 1].abs_diff(sizes[sizes.len() - 11]) < 50, "{kind}: {sizes:?}");
    }
    let policy = api.get("/policies/acme/p").await.ok();
    let events = policy["events"].as_array().unwrap();
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!([of("creation"), of("new_version"), of("metadata_update")], [1, 120, 100]);
    assert_eq!(events.last().unwrap()["type"], "new_version");
    assert_eq!(events[events.len() - 2]["type"], "metadata_update");
    let trail = api.get("/trails/acme/shop/t").await.ok();
    assert_eq!(trail["repo_ids"].as_array().unwrap().len(), 100);
}

#[apply(on_every_store)]
async fn comment_and_description_are_kept_and_a_text_may_be_left_out_of_an_update(api: Api) {
    let put = |payload: serde_json::Value, text: Option<&str>| {
        let payload = payload.to_string();
        let mut parts = vec![("name=\"payload\"", payload.as_str())];
        parts.extend(text.map(|text| ("name=\"policy_file\"; filename=\"p.yml\"", text)));
        api.put("/policies/acme").key("member-key").form(&parts)
    };
    let full = json!({"name": "p", "description": "d", "type": "env", "comment": "c"});
    put(full, Some(EMPTY)).await.expect(201, json!({"description": "d", "versions": [{"comment": "c"}]}));
    let described = json!({"name": "p", "description": "e"});
    let events = json!([{"type": "creation"}, {"type": "metadata_update"}]);
    let expected = json!({"description": "e", "versions": [{"comment": "c"}], "events": events});
    put(described, None).await.expect(200, expected.clone());
    put(json!({"name": "p"}), None).await.expect(200, expected.clone());
    // Repeating the last comment records nothing, and neither does an empty comment.
    for (comment, text) in [("c", Some(EMPTY)), ("c", None), ("", None)] {
        put(json!({"name": "p", "comment": comment}), text).await.expect(200, expected.clone());
    }
    let commented = |comment: &str, description: &str| json!({"name": "p", "comment": comment, "description": description});
    for (payload, text, added) in [
        (commented("other", "e"), None, Some("other")),
        (commented("other", "e"), Some(EMPTY), None),
        (commented("third", "e"), Some(EMPTY), Some("third")),
        (commented("fourth", "f"), None, Some("fourth")),
        (commented("fourth", "e"), None, Some("")),
    ] {
        let before = api.get("/policies/acme/p").await.ok()["events"].as_array().unwrap().len();
        let shown = put(payload, text).await.ok();
        let events = &shown["events"].as_array().unwrap()[before..];
        let data = |comment: &str| if comment.is_empty() { json!({}) } else { json!({ "comment": comment }) };
        let added = added.map(|comment| ("metadata_update", data(comment)));
        let found = events.iter().map(|event| (event["type"].as_str().unwrap(), event["data"].clone()));
        assert_eq!(Vec::from_iter(found), Vec::from_iter(added));
        assert_eq!(shown["versions"].as_array().unwrap().len(), 1);
    }
    let versions = json!([{"comment": "c"}, {"comment": "other"}]);
    put(commented("other", "e"), Some(PROVENANCE)).await.expect(200, json!({ "versions": versions }));
}

#[apply(with_every_store)]
async fn a_comment_on_a_new_description_is_in_the_ledger(api: Api, store: Arc<dyn Store>) {
    api.put_policy("p", EMPTY).await.created();
    let put = |description: &str, comment: &str| {
        let payload = json!({"name": "p", "description": description, "comment": comment}).to_string();
        api.put("/policies/acme").payload(&payload).file("policy_file", "p", EMPTY)
    };
    for (description, comment) in [("a", "told why"), ("a", "told why"), ("b", "")] {
        put(description, comment).await.ok();
    }
    let acme = acme(&*store).await;
    let entries = store.ledger_entries(acme, 0, 1000).await.unwrap();
    let facts = entries.iter().filter(|entry| entry.kind == "policy_updated");
    let facts = facts.map(|entry| serde_json::from_str::<serde_json::Value>(&entry.payload).unwrap());
    let comments = Vec::from_iter(facts.map(|fact| fact["policy_updated"].get("comment").cloned()));
    assert_eq!(comments, [Some(json!("told why")), None]);
}

#[apply(on_every_store)]
async fn a_policy_that_cannot_be_read_or_kept_is_refused(api: Api) {
    for text in ["", "[", "a: b\n", "_schema: https://x.org/v2\n"] {
        let reply = api.put_policy("p", text).await;
        assert!(String::from_utf8_lossy(&reply.body).contains("policy_file"), "{text}: {reply:?}");
        reply.expect_message(400, "Input payload validation failed");
    }
    let table = [
        (json!({}), "name", "Field required [input: None]"),
        (json!({"name": "p", "type": "flow"}), "type", "Input should be 'env' [input: flow]"),
        (
            json!({"name": "p", "description": null}),
            "description",
            "Input should be a valid string [input: None]",
        ),
        (json!({"name": "p", "more": 1}), "more", "Extra inputs are not permitted [input: 1]"),
        (
            json!({"name": "a b"}),
            "name",
            r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\-_\.~]*$' [input: a b]",
        ),
        (json!({"name": "p"}), "policy_file", "Field required [input: None]"),
    ];
    for (payload, field, text) in table {
        let refused = json!({"message": "Input payload validation failed", "errors": {field: text}});
        let put = api.put("/policies/acme").payload(&payload).await;
        put.expect_exactly(400, refused);
    }
    let missing = json!({"errors": {"payload": "Field required [input: None]"}});
    api.put("/policies/acme").file("policy_file", "p.yml", EMPTY).await.expect(400, missing);
    api.get("/policies/acme").await.expect_exactly(200, json!([]));
}

#[apply(on_every_store)]
async fn an_unknown_policy_is_not_found_and_only_writers_put(api: Api) {
    let text = "no policy named 'p' in organization 'acme'";
    let missing = json!({"message": "Policy not found", "errors": {"policy_name": text}});
    api.get("/policies/acme/p").await.expect_exactly(404, missing);
    for key in ["snapshotter-key", "reader-key"] {
        api.put("/policies/acme").key(key).await.expect(403, json!({}));
    }
}

#[apply(on_every_store)]
async fn a_new_version_evaluates_what_runs_where_it_is_attached(api: Api) {
    api.given_environments("docker", &["b", "a", "idle", "free"]).await;
    api.put_policy("p", EMPTY).await;
    for name in ["b", "a", "idle"] {
        api.attach(name, "p").await;
    }
    for name in ["b", "a", "free"] {
        api.report_running(name, &[('1', &[1])]).await.expect_exactly(201, json!("OK"));
    }
    api.get("/environments/acme/a").await.expect(200, json!({"state": true}));
    api.put_policy("p", PROVENANCE).await.expect(200, json!({"consuming_envs": ["a", "b", "idle"]}));
    for name in ["a", "b"] {
        api.expect_snapshots(name, 2).await;
        let expected = json!({
            "compliant": false, "applied_policies": [{"name": "p", "version": 2}],
            "artifacts": [{"annotation": {"type": "became-non-compliant", "was": 1, "now": 1}}]
        });
        api.get(&format!("/snapshots/acme/{name}/-1")).await.expect(200, expected);
        api.get(&format!("/environments/acme/{name}")).await.expect(200, json!({"state": false}));
        api.report_running(name, &[('1', &[1])]).await.expect_exactly(200, json!("OK"));
    }
    api.get("/snapshots/acme/a/1")
        .await
        .expect(200, json!({"compliant": true, "applied_policies": [{"version": 1}]}));
    api.expect_snapshots("free", 1).await;
    api.expect_snapshots("idle", 0).await;
}

#[tokio::test]
async fn environments_that_a_new_version_did_not_reach_are_evaluated_by_it_in_the_background() {
    for stored in stores().await {
        let (armed, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let is_armed = Arc::clone(&armed);
        // The version is recorded, and no snapshot: as of a server that is killed then.
        let before = move |call: Call| {
            let armed = is_armed.load(Ordering::SeqCst) && call == Call::Write;
            let dies = armed && writes.fetch_add(1, Ordering::SeqCst) > 0;
            async move {
                if dies {
                    pending().await
                }
            }
            .boxed()
        };
        let interposed = Arc::new(InterceptingStore::new(Arc::clone(&stored.store), before));
        let api = Api::new(fixture(interposed, Settings::default()).await, Mount::Tower, stored.name).await;
        api.given_environments("docker", &["a", "b"]).await;
        api.put_policy("p", EMPTY).await.created();
        for name in ["a", "b"] {
            api.attach(name, "p").await;
            api.report_running(name, &[('1', &[1])]).await.created();
        }
        armed.store(true, Ordering::SeqCst);
        let put = api.put_policy("p", PROVENANCE).into_future();
        timeout(Duration::from_secs(1), put).await.map(|_| "it answered").unwrap_err();
        let evidence = Evidence::new(Arc::clone(&stored.store), Settings::default());
        let api = Api::new(evidence.clone(), Mount::Tower, stored.name).await;
        let background = evidence.background(LEASE, vec![Arc::new(Reevaluate::default())]);
        for name in ["a", "b"] {
            let path = format!("/environments/acme/{name}");
            let begun = Instant::now();
            while api.get(&path).await.ok()["state"] != json!(false) {
                assert!(begun.elapsed() < Duration::from_secs(20), "{}: {name}", stored.name);
                sleep(Duration::from_millis(10)).await;
            }
            api.expect_snapshots(name, 2).await;
        }
        background.stop().await;
        drop(stored.guard);
    }
}

#[apply(with_every_store)]
async fn a_client_that_hangs_up_cuts_no_write_in_half(_: Api, store: Arc<dyn Store>) {
    let (armed, writes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (reached, goes_on) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let gates = (Arc::clone(&armed), Arc::clone(&reached), Arc::clone(&goes_on));
    // The version is recorded, the snapshots wait.
    let before = move |call: Call| {
        let (armed, reached, goes_on) = gates.clone();
        let armed = armed.load(Ordering::SeqCst) && call == Call::Write;
        let waits = armed && writes.fetch_add(1, Ordering::SeqCst) > 0;
        async move {
            if waits {
                reached.notify_one();
                goes_on.acquire().await.unwrap().forget();
            }
        }
        .boxed()
    };
    let holding = Arc::new(InterceptingStore::new(store, before));
    let evidence = Evidence::new(holding, Settings::default());
    let api = Api::new(evidence, Mount::Tower, "holding").await;
    api.given_environments("docker", &["a", "b"]).await;
    api.put_policy("p", EMPTY).await.created();
    for environment in ["a", "b"] {
        api.attach(environment, "p").await;
        api.report_running(environment, &[('1', &[1])]).await.created();
    }
    armed.store(true, Ordering::SeqCst);
    tokio::select! {
        reply = api.put_policy("p", PROVENANCE).into_future() => panic!("{reply:?}"),
        () = reached.notified() => {}
    }
    goes_on.add_permits(2);
    for environment in ["a", "b"] {
        let path = format!("/environments/acme/{environment}");
        let begun = Instant::now();
        while api.get(&path).await.ok()["state"] != json!(false) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{environment}");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_version_is_read_when_it_is_first_evaluated_by_and_no_older_one_is() {
    let (store, answered) = InterceptingStore::measured(Arc::new(MemoryStore::new()));
    let evidence = fixture(Arc::new(store), Settings::default()).await;
    let api = Api::new(evidence, Mount::Tower, "memory").await;
    let about_policies = || {
        let about = |query: &&'static str| query.starts_with("polic");
        Vec::from_iter(take_queries(&answered).into_iter().filter(about))
    };
    api.given_environments("docker", &["prod"]).await;
    api.report_running("prod", &[('1', &[10])]).await.created();
    api.put_policy("p", PROVENANCE).await.created();
    api.put_policy("p", COMPLIANCE).await.ok();
    about_policies();
    api.attach("prod", "p").await;
    let first = ["policies_named", "policy_version_sizes", "policy_versions_by_number"];
    assert_eq!(about_policies(), first, "attaching");
    let reports: [&[ReportedArtifact<'_>]; 2] = [&[('1', &[10])], &[('2', &[10])]];
    for running in reports {
        api.report_running("prod", running).await;
        assert_eq!(about_policies(), ["policies_by_id"], "a report");
    }
    api.get("/snapshots/acme/prod/-1").await.ok();
    assert_eq!(about_policies(), ["policies_by_id"], "a snapshot");
}
