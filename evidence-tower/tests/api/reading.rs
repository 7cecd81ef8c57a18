//! How much answers read: what they show and what they rest on, and not all that lies beside it.

use std::sync::Arc;

use evidence_core::{Evidence, Settings, Store};
use serde_json::{Value, json};

use crate::interposed::{Answered, Interposed};
use crate::mounts::Mount;
use crate::support::{Api, each_store};

/// A service that remembers nothing yet, over a store that notes how large its answers are.
pub(crate) async fn measured(store: &Arc<dyn Store>) -> (Api, Answered) {
    let (store, answered) = Interposed::measured(Arc::clone(store));
    let evidence = Evidence::new(Arc::new(store), Settings::default());
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

#[tokio::test]
async fn one_key_is_read_of_those_that_an_account_has_had() {
    each_store(async |api: Api, store: Arc<dyn Store>| {
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
        for (what, ask) in table {
            forget(&answered);
            assert!(ask.await.status.is_success(), "{what}");
            expect_at_most(&answered, 6_000, what);
        }
    })
    .await;
}

fn digest(number: usize) -> String {
    format!("{number:064x}")
}

/// A report of so many artifacts.
fn running(many: usize) -> Value {
    let entry = |number| json!({"digests": {"app": digest(number)}, "creationTimestamp": 1});
    json!({"artifacts": (0..many).map(entry).collect::<Vec<_>>()})
}

#[tokio::test]
async fn a_pdf_reads_of_snapshots_what_it_shows() {
    each_store(async |api: Api, store: Arc<dyn Store>| {
        api.environment("prod").await;
        let artifact = json!({
            "trail_name": "t", "fingerprint": digest(0), "filename": "app", "build_url": "b", "commit_url": "c",
        });
        api.post("/artifacts/acme/shop").json(artifact).await.created();
        api.put("/environments/acme/prod/report/docker").json(running(300)).await.created();
        let (api, answered) = measured(&store).await;
        assert_eq!(api.get("/trails/acme/shop/t/audit_pdf").await.status, 200);
        expect_at_most(&answered, 20_000, "the PDF");
    })
    .await;
}

#[tokio::test]
async fn judging_reads_which_artifacts_are_allowed_and_not_why() {
    each_store(async |api: Api, store: Arc<dyn Store>| {
        api.environment("prod").await;
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
    })
    .await;
}

/// A policy of so many bytes.
fn policy(name: &str, bytes: usize) -> String {
    format!("{}# {name}{}\n", crate::scenery::PROVENANCE, "x".repeat(bytes))
}

#[tokio::test]
async fn a_policy_is_compared_with_its_latest_version_and_shown_a_few_versions_at_a_time() {
    const MANY: usize = 12;
    each_store(async |api: Api, store: Arc<dyn Store>| {
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
    })
    .await;
}

#[tokio::test]
async fn an_environment_is_judged_by_a_few_large_policies_at_a_time() {
    const MANY: usize = 6;
    each_store(async |api: Api, store: Arc<dyn Store>| {
        api.environment("prod").await;
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
    })
    .await;
}

#[tokio::test]
async fn a_snapshot_reads_of_trails_their_names() {
    each_store(async |api: Api, store: Arc<dyn Store>| {
        api.environment("prod").await;
        let artifact = json!({
            "trail_name": "t", "fingerprint": digest(0), "filename": "app", "build_url": "b", "commit_url": "c",
        });
        api.post("/artifacts/acme/shop").json(artifact).await.created();
        for _ in 0..40 {
            let attestation = json!({"attestation_name": "scan", "is_compliant": true});
            api.attest("generic", &attestation).await.created();
        }
        api.put("/environments/acme/prod/report/docker").json(running(1)).await.created();
        let (api, answered) = measured(&store).await;
        let snapshot = api.get("/snapshots/acme/prod/1").await.ok();
        assert_eq!(snapshot["artifacts"][0]["flows"][0]["trail_name"], "t");
        expect_at_most(&answered, 6_000, "a snapshot");
    })
    .await;
}
