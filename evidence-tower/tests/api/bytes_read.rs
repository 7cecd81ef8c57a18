//! How much answers read: what they show and what they rest on, and not all that lies beside it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;

use crate::intercepting_store::{Answered, Call, InterceptingStore, take_counts};
use crate::support::prelude::*;

/// A service that remembers nothing yet, over a store that notes how large its answers are.
pub(crate) async fn measured(store: &Arc<dyn Store>) -> (Api, Answered) {
    let (store, answered) = InterceptingStore::measured(Arc::clone(store));
    // Cached values do not expire, however slow the machine is.
    let settings = Settings { cache_ttl: Duration::from_secs(3600), ..Settings::default() };
    let evidence = Evidence::new(Arc::new(store), settings);
    (Api::new(evidence, Mount::Tower, "measured").await, answered)
}

/// Forgets what was answered so far.
pub(crate) fn forget(answered: &Answered) {
    answered.lock().unwrap().clear();
}

/// Asserts that all answers since the last time come to no more than so many bytes.
#[track_caller]
pub(crate) fn expect_at_most(answered: &Answered, most: usize, what: &str) {
    let answered = std::mem::take(&mut *answered.lock().unwrap());
    let bytes: usize = answered.iter().map(|(_, bytes)| bytes).sum();
    assert!(bytes <= most, "{what} reads {bytes} bytes, more than {most}: {answered:?}");
}

const KEYS: &str = "/service-accounts/acme/ci/api-keys";

#[apply(with_every_store)]
async fn one_key_is_read_of_those_that_an_account_has_had(api: Api, store: Arc<dyn Store>) {
    api.post("/service-accounts/acme").json(json!({"name": "ci", "privilege": "reader"})).await.created();
    let input = json!({"description": "k".repeat(256)});
    let create = async || api.post(KEYS).json(&input).await.created()["id"].as_str().unwrap().to_owned();
    let kept = create().await;
    for _ in 0..30 {
        api.delete(&format!("{KEYS}/{}", create().await)).await.ok();
    }
    let (api, answered) = measured(&store).await;
    let one = format!("{KEYS}/{kept}");
    let rotate = format!("{one}/rotate");
    let table = [
        ("listing", api.get(KEYS)),
        ("getting", api.get(&one)),
        ("rotating", api.post(&rotate).json(json!({}))),
        ("revoking", api.delete(&one)),
    ];
    for (what, request) in table {
        forget(&answered);
        assert!(request.await.status.is_success(), "{what}");
        expect_at_most(&answered, 6_000, what);
    }
}

fn digest(number: usize) -> String {
    format!("{number:064x}")
}

/// A report of so many artifacts.
fn running(many: usize) -> Value {
    let entry = |number| json!({"digests": {"app": digest(number)}, "creationTimestamp": 1});
    json!({"artifacts": (0..many).map(entry).collect::<Vec<_>>()})
}

#[apply(with_every_store)]
async fn a_pdf_reads_of_snapshots_what_it_shows(api: Api, store: Arc<dyn Store>) {
    api.given_environment("prod").await;
    api.post_artifact("shop", digest(0)).in_trail("t").await.created();
    api.put("/environments/acme/prod/report/docker").json(running(300)).await.created();
    let (api, answered) = measured(&store).await;
    assert_eq!(api.get("/trails/acme/shop/t/audit_pdf").await.status, 200);
    expect_at_most(&answered, 20_000, "the PDF");
}

#[apply(with_every_store)]
async fn evaluating_reads_which_artifacts_are_allowed_and_not_why(api: Api, store: Arc<dyn Store>) {
    api.given_environment("prod").await;
    for number in 0..12 {
        let description = "d".repeat(60_000);
        let body = json!({
            "artifact_name": "app", "artifact_fingerprint": digest(number), "description": description,
        });
        api.put("/allowlists/acme/prod").json(body).await.created();
    }
    let (api, answered) = measured(&store).await;
    api.put("/environments/acme/prod/report/docker").json(running(3)).await.created();
    expect_at_most(&answered, 20_000, "a report");
}

#[apply(with_every_store)]
async fn a_logical_environment_reads_nothing_of_members_that_never_had_a_snapshot(
    api: Api,
    store: Arc<dyn Store>,
) {
    let mut members = vec!["prod".to_owned()];
    api.given_environment("prod").await;
    for number in 0..12 {
        let name = format!("idle{number}");
        let put = api.put_environment(&name, "docker").with(json!({"description": "d".repeat(60_000)}));
        put.await.created();
        members.push(name);
    }
    api.put_logical_environment("all", &members).await.created();
    api.put("/environments/acme/prod/report/docker").json(running(3)).await.created();
    let (api, answered) = measured(&store).await;
    for path in ["/snapshots/acme/all", "/snapshots/acme/all/-1"] {
        forget(&answered);
        api.get(path).await.ok();
        expect_at_most(&answered, 20_000, path);
    }
}

/// A policy of so many bytes.
fn policy(name: &str, bytes: usize) -> String {
    format!("{}# {name}{}\n", crate::support::environments::PROVENANCE, "x".repeat(bytes))
}

#[apply(with_every_store)]
async fn a_policy_is_compared_with_its_latest_version_and_shown_a_few_versions_at_a_time(
    api: Api,
    store: Arc<dyn Store>,
) {
    const MANY: usize = 12;
    let text = |number: usize| policy(&number.to_string(), 300_000);
    for number in 0..MANY {
        assert!(api.put_policy("large", &text(number)).await.status.is_success());
    }
    let (api, answered) = measured(&store).await;
    let shown = |policy: &Value| {
        let versions = policy["versions"].as_array().unwrap();
        assert_eq!(versions.len(), MANY);
        for (number, version) in versions.iter().enumerate() {
            assert_eq!(
                (&version["version"], &version["policy_yaml"]),
                (&json!(number + 1), &json!(text(number)))
            );
        }
    };
    let largest = || {
        let answered = std::mem::take(&mut *answered.lock().unwrap());
        answered.into_iter().map(|(_, bytes)| bytes).max().unwrap()
    };
    shown(&api.get("/policies/acme/large").await.ok());
    let bytes = largest();
    assert!(bytes < 1_500_000, "getting a policy reads {bytes} bytes at once");
    shown(&api.get("/policies/acme").await.ok()[0]);
    let bytes = largest();
    assert!(bytes < 1_500_000, "listing policies reads {bytes} bytes at once");
    shown(&api.put_policy("large", &text(MANY - 1)).await.ok());
    let bytes = largest();
    assert!(bytes < 1_500_000, "putting a policy reads {bytes} bytes at once");
}

#[apply(with_every_store)]
async fn an_environment_is_evaluated_by_a_few_large_policies_at_a_time(api: Api, store: Arc<dyn Store>) {
    const MANY: usize = 6;
    api.given_environment("prod").await;
    for number in 0..MANY {
        let name = format!("p{number}");
        api.put_policy(&name, &policy(&name, 700_000)).await.created();
        api.attach("prod", &name).await;
    }
    let (api, answered) = measured(&store).await;
    api.put("/environments/acme/prod/report/docker").json(running(2)).await.created();
    let largest = answered.lock().unwrap().iter().map(|(_, bytes)| *bytes).max().unwrap();
    assert!(largest < 1_500_000, "a report reads {largest} bytes at once");
    let snapshot = api.get("/snapshots/acme/prod/-1").await.ok();
    for artifact in snapshot["artifacts"].as_array().unwrap() {
        let decisions = artifact["policy_decisions"].as_array().unwrap();
        assert!(decisions.iter().all(|decision| decision["status"] == "NON-COMPLIANT"));
        assert_eq!(decisions.len(), MANY);
    }
    let largest = answered.lock().unwrap().iter().map(|(_, bytes)| *bytes).max().unwrap();
    assert!(largest < 1_500_000, "a snapshot reads {largest} bytes at once");
}

#[apply(with_every_store)]
async fn a_snapshot_reads_of_trails_their_names(api: Api, store: Arc<dyn Store>) {
    api.given_environment("prod").await;
    api.post_artifact("shop", digest(0)).in_trail("t").await.created();
    for _ in 0..40 {
        api.post_generic_attestation("shop", "scan", true).await.created();
    }
    api.put("/environments/acme/prod/report/docker").json(running(1)).await.created();
    let (api, answered) = measured(&store).await;
    let snapshot = api.get("/snapshots/acme/prod/1").await.ok();
    assert_eq!(snapshot["artifacts"][0]["flows"][0]["trail_name"], "t");
    expect_at_most(&answered, 6_000, "a snapshot");
}

#[apply(with_every_store)]
async fn a_snapshot_reads_a_few_commits_at_a_time(api: Api, store: Arc<dyn Store>) {
    const MANY: usize = 40;
    api.given_environment("prod").await;
    for number in 0..MANY {
        let commit = json!({"sha1": COMMIT, "message": "m".repeat(60_000), "author": "a", "branch": "b",
                            "timestamp": 1, "url": ""});
        api.post_artifact("shop", digest(number))
            .in_trail("t")
            .with(json!({"git_commit_info": commit}))
            .await
            .created();
    }
    api.put("/environments/acme/prod/report/docker").json(running(MANY)).await.created();
    let (api, answered) = measured(&store).await;
    let snapshot = api.get("/snapshots/acme/prod/1").await.ok();
    let message = |one: &Value| one["flows"][0]["git_commit_info"]["message"].as_str().map(str::len);
    let messages = Vec::from_iter(snapshot["artifacts"].as_array().unwrap().iter().map(message));
    assert_eq!(messages, [Some(60_000); MANY]);
    let largest = answered.lock().unwrap().iter().map(|(_, bytes)| *bytes).max().unwrap();
    assert!(largest < 1_500_000, "a snapshot reads {largest} bytes at once");
}

#[apply(with_every_store)]
async fn where_the_artifacts_of_a_trail_ran_is_read_for_some_at_a_time(api: Api, store: Arc<dyn Store>) {
    const MANY: usize = 130;
    api.given_environment("prod").await;
    for number in 0..MANY {
        api.post_artifact("shop", digest(number)).in_trail("t").await.created();
    }
    api.put("/environments/acme/prod/report/docker").json(running(MANY)).await.created();
    let (api, answered) = measured(&store).await;
    for path in ["/trails/acme/shop/t", "/trails/acme/shop/t/audit_pdf", "/flows/acme"] {
        forget(&answered);
        assert_eq!(api.get(path).await.status, 200, "{path}");
        assert_eq!(take_counts(&answered, ["runs"]), [2], "{path}");
    }
    let trail = api.get("/trails/acme/shop/t").await.ok();
    let started = |event: &&Value| event["type"] == "artifact_started_running";
    assert_eq!(trail["events"].as_array().unwrap().iter().filter(started).count(), MANY);
}

#[apply(with_every_store)]
async fn lists_of_policies_and_of_types_read_a_few_at_a_time(api: Api, store: Arc<dyn Store>) {
    const MANY: usize = 20;
    api.given_environment("prod").await;
    api.given_environment("a").await;
    let names = Vec::from_iter((0..MANY).map(|number| format!("n{number:02}")));
    for name in &names {
        let document = json!({"name": name, "description": "ü".repeat(60_000)}).to_string();
        api.put("/policies/acme")
            .payload(&document)
            .file("policy_file", "p.yml", crate::support::environments::PROVENANCE)
            .await
            .created();
        api.post("/custom-attestation-types/acme").data_json(&document).await.created();
    }
    for environment in ["prod", "a"] {
        api.post(&format!("/environments/acme/{environment}/policies"))
            .json(json!({"policy_names": [names[MANY - 1]]}))
            .await
            .ok();
    }
    let (api, answered) = measured(&store).await;
    let policies = api.get("/policies/acme").await.ok();
    let types = api.get("/custom-attestation-types/acme").await.ok();
    let named = |list: &Value| {
        let names = list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned());
        Vec::from_iter(names)
    };
    assert_eq!(named(&policies), names);
    assert_eq!(named(&types), Vec::from_iter(names.iter().rev().cloned()));
    let consumers = policies.as_array().unwrap().iter().map(|policy| policy["consuming_envs"].clone());
    let mut expected = vec![json!([]); MANY];
    expected[MANY - 1] = json!(["a", "prod"]);
    assert_eq!(Vec::from_iter(consumers), expected);
    let largest = answered.lock().unwrap().iter().map(|(_, bytes)| *bytes).max().unwrap();
    assert!(largest < 1_500_000, "a list reads {largest} bytes at once");
}

/// Makes the public flow `open`, and reports so many artifacts to it, each to the trail `t` and then to `u`.
async fn given_artifacts(api: &Api, many: usize) {
    api.put_flow("open").with(json!({"visibility": "public"})).await.created();
    for number in 0..many {
        for trail in ["t", "u"] {
            report(api, trail, number).await;
        }
    }
}

async fn report(api: &Api, trail: &str, number: usize) {
    api.post_artifact("open", digest(number))
        .in_trail(trail)
        .with(json!({"template_reference_name": "app", "git_commit": COMMIT}))
        .await
        .created();
}

async fn attest(api: &Api, document: &Value) {
    api.post_attestation("open", "t", "generic").data_json(document).await.created();
}

#[apply(with_every_store)]
async fn a_trail_is_read_once_until_something_is_reported_to_it(api: Api, store: Arc<dyn Store>) {
    const MANY: usize = 70;
    given_artifacts(&api, MANY).await;
    for (number, is_compliant) in [(0, false), (MANY - 1, true)] {
        let foo = json!({"attestation_name": "foo", "is_compliant": is_compliant,
                         "artifact_fingerprint": digest(number)});
        attest(&api, &foo).await;
    }
    let (api, answered) = measured(&store).await;
    let by_commit = format!("/artifacts/acme/open/commit_sha/{COMMIT}");
    for (what, path, key, many, read) in [
        ("a page", "/artifacts/acme?per_page=1000", JANE, 2 * MANY, 1),
        ("those of a commit", &by_commit, JOHN, 2 * MANY, 0),
        ("those of a trail", &format!("{by_commit}?trail=t"), JANE, MANY, 0),
    ] {
        forget(&answered);
        let listed = api.get(path).key(key).await.ok();
        assert_eq!(take_counts(&answered, ["trail_contents", "trail_versions"]), [read, 1], "{what}");
        let listed = listed.as_array().unwrap();
        assert_eq!(listed.len(), many, "{what}");
        let on = |trail: &str, number: usize| {
            let is_it = |one: &&Value| one["trail_name"] == trail && one["fingerprint"] == digest(number);
            listed.iter().find(is_it).unwrap()
        };
        for (number, state, evidence) in [
            (0, "NON-COMPLIANT", vec!["foo"]),
            (1, "COMPLIANT", vec![]),
            (MANY - 1, "COMPLIANT", vec!["foo"]),
        ] {
            let path = format!("/artifacts/acme/open/fingerprint/{}?trail=t", digest(number));
            let one = on("t", number);
            let alone = api.get(&path).key(key).await.ok();
            assert_eq!(&alone, one, "{what}");
            let names = Vec::from_iter(one["evidence"].as_object().unwrap().keys().map(String::as_str));
            assert_eq!((&one["state"], names), (&json!(state), evidence), "{what}");
        }
        if many > MANY {
            assert_eq!((&on("u", 0)["state"], &on("u", 0)["evidence"]), (&json!("COMPLIANT"), &json!({})));
        }
    }
}

#[apply(with_every_store)]
async fn what_is_reported_to_a_trail_that_was_read_shows_at_once(api: Api, store: Arc<dyn Store>) {
    given_artifacts(&api, 1).await;
    let (api, answered) = measured(&store).await;
    let paths = [
        &format!("/artifacts/acme/open/fingerprint/{}?trail=t", digest(0)),
        "/trails/acme?flow=open",
        "/trails/acme/open",
    ];
    let expect_read = async |times: usize, what: &str| {
        let (other, _) = measured(&store).await;
        forget(&answered);
        for path in paths {
            assert_eq!(api.get(path).await.ok(), other.get(path).await.ok(), "{path}: {what}");
        }
        assert_eq!(take_counts(&answered, ["trail_contents"]), [times], "{what}");
    };
    // The two trails, of which the first is read alone.
    expect_read(2, "at first").await;
    let about = json!({"attestation_name": "foo", "is_compliant": false, "artifact_fingerprint": digest(0)});
    attest(&api, &about).await;
    expect_read(1, "an attestation").await;
    report(&api, "t", 0).await;
    expect_read(1, "an artifact").await;
    api.put_trail("open", &json!({"name": "t", "description": "begun again"})).await.ok();
    expect_read(1, "a trail that is begun again").await;
    api.given_flow("another", "version: 1\n").await;
    expect_read(0, "a flow").await;
}

#[apply(with_every_store)]
async fn a_trail_that_is_reported_to_while_it_is_listed_is_read_once_for_the_answer(
    api: Api,
    store: Arc<dyn Store>,
) {
    const MANY: usize = 70;
    given_artifacts(&api, MANY).await;
    for (cache_ttl, reads_again) in [(Duration::ZERO, 1), (Duration::from_secs(3600), 0)] {
        let reads = Arc::new(AtomicUsize::new(0));
        let before = {
            let (api, reads) = (api.clone(), Arc::clone(&reads));
            move |call| {
                let is_first =
                    call == Call::Query("trail_contents") && reads.fetch_add(1, Ordering::SeqCst) == 0;
                let api = api.clone();
                async move {
                    if is_first {
                        report(&api, "t", 0).await;
                    }
                }
                .boxed()
            }
        };
        let settings = Settings { cache_ttl, ..Settings::default() };
        let evidence = Evidence::new(Arc::new(InterceptingStore::new(Arc::clone(&store), before)), settings);
        let listing = Api::new(evidence, Mount::Tower, "intercepted").await;
        let list = async || {
            let listed = listing.get("/artifacts/acme?per_page=1000").await.ok();
            (listed.as_array().map(Vec::len) >= Some(2 * MANY), reads.swap(1, Ordering::SeqCst))
        };
        assert_eq!(list().await, (true, 1), "{cache_ttl:?}");
        assert_eq!(list().await, (true, 1 + reads_again), "{cache_ttl:?}, once more");
    }
}

#[apply(with_every_store)]
async fn a_list_of_artifacts_reads_a_few_attestations_at_a_time(api: Api, store: Arc<dyn Store>) {
    const MANY: usize = 40;
    given_artifacts(&api, MANY).await;
    for number in 0..MANY {
        for name in ["a", "b", "c", "d"] {
            let document = json!({"attestation_name": name, "is_compliant": true, "user_data": {"x": "x".repeat(15_000)},
                                  "artifact_fingerprint": digest(number)});
            attest(&api, &document).await;
        }
    }
    let (api, answered) = measured(&store).await;
    let listed = api.get("/artifacts/acme").await.ok();
    assert_eq!(listed.as_array().map(Vec::len), Some(15));
    let listed = api.get("/artifacts/acme?per_page=1000").await.ok();
    let names = |one: &Value| one["evidence"].as_object().map(serde_json::Map::len);
    let names = listed.as_array().unwrap().iter().filter_map(names).sum::<usize>();
    assert_eq!(names, 4 * MANY);
    let largest = answered.lock().unwrap().iter().map(|(_, bytes)| *bytes).max().unwrap();
    assert!(largest < 1_500_000, "a list reads {largest} bytes at once");
}

#[apply(with_every_store)]
async fn a_search_reads_no_evidence(api: Api, store: Arc<dyn Store>) {
    given_artifacts(&api, 1).await;
    let document = json!({"attestation_name": "a", "is_compliant": false, "user_data": {"x": "x".repeat(200_000)},
                          "artifact_fingerprint": digest(0)});
    attest(&api, &document).await;
    let (api, answered) = measured(&store).await;
    let found = api.get(&format!("/search/acme/sha/{}", digest(0))).await.ok();
    let found = &found["artifacts"][0];
    // The newest report is to a trail that has none.
    assert_eq!((&found["trail"], &found["compliance_state"]), (&json!("u"), &json!("COMPLIANT")));
    report(&api, "t", 0).await;
    forget(&answered);
    let found = api.get(&format!("/search/acme/sha/{}", digest(0))).await.ok();
    let found = &found["artifacts"][0];
    assert_eq!((&found["trail"], &found["compliance_state"]), (&json!("t"), &json!("NON-COMPLIANT")));
    let mut events: Vec<_> =
        found["history"].as_array().unwrap().iter().map(|event| event["event"].as_str()).collect();
    events.sort_unstable();
    assert_eq!(events, [Some("a evidence received"), Some("app reported")]);
    expect_at_most(&answered, 20_000, "a search");
}

#[apply(with_every_store)]
async fn of_the_attestations_in_trails_that_name_commits_those_about_them_are_read(
    api: Api,
    store: Arc<dyn Store>,
) {
    const MANY: usize = 40;
    given_artifacts(&api, 0).await;
    let commit = |number: usize| format!("{number:040x}");
    for number in 0..MANY {
        let commit = json!({"sha1": commit(number), "message": "m", "author": "a", "timestamp": 1});
        let document = json!({"attestation_name": "a", "is_compliant": true, "git_commit_info": commit,
                              "user_data": {"x": "x".repeat(15_000)}});
        attest(&api, &document).await;
    }
    let (api, answered) = measured(&store).await;
    let about = async |numbers: &[usize]| {
        let commits = numbers.iter().map(|number| format!("&commit_list={}", commit(*number)));
        let query = commits.collect::<String>();
        let found = api.get(&format!("/attestations/acme/list_attestations_for_criteria?{}", &query[1..]));
        let found = found.await.ok();
        for number in numbers {
            let of_commit = found[commit(*number)].as_array().unwrap();
            assert_eq!(of_commit.len(), 1);
            assert_eq!(of_commit[0]["git_commit_info"]["sha1"], commit(*number));
        }
    };
    about(&[3]).await;
    expect_at_most(&answered, 50_000, "one of many");
    about(&[0, 7, 20, MANY - 1]).await;
    assert_eq!(take_counts(&answered, ["trail_contents", "attestations_by_id"]), [1, 4]);
}
