//! What a write asks of the store before it records.

use std::sync::Arc;

use evidence_core::Settings;
use serde_json::{Value, json};

use crate::interposed::{Interposed, queries};
use crate::mounts::Mount;
use crate::support::{Api, Ask, Stored, fixture, stores};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn fingerprint(number: usize) -> String {
    format!("{number:064x}")
}

fn repo() -> Value {
    json!({"name": "acme/shop", "url": "https://git.example.com/acme/shop"})
}

fn attest(api: &Api, kind: &str, own: &Value, more: &Value) -> Ask {
    let mut document = json!({"attestation_name": "bar", "repo_info": repo()});
    for part in [own, more] {
        document.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
    }
    let form = [("name=\"data_json\"", &*document.to_string())];
    api.post(&format!("/attestations/acme/shop/trail/t/{kind}")).form(&form)
}

fn artifact(api: &Api, more: &Value) -> Ask {
    let mut artifact = json!({
        "fingerprint": fingerprint(1), "filename": "app", "template_reference_name": "cli", "git_commit": COMMIT,
        "build_url": "b", "commit_url": "c", "repo_info": repo(),
    });
    artifact.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    api.post("/artifacts/acme/shop").json(artifact)
}

fn begin(api: &Api, name: &str, description: &str) -> Ask {
    let document = json!({"name": name, "description": description, "repo_info": repo()}).to_string();
    api.put("/trails/acme/shop").form(&[("name=\"data_json\"", document.as_str())])
}

#[tokio::test]
async fn what_hot_writes_ask() {
    for Stored { name, store, home, .. } in stores().await {
        let (noting, asked) = Interposed::measured(store);
        let api = Api::new(fixture(Arc::new(noting), Settings::default()).await, Mount::Tower, name).await;
        begin(&api, "t", "").await.created();
        artifact(&api, &json!({"trail_name": "t"})).await.created();
        let generic = json!({"is_compliant": true});
        let junit = json!({"junit_results": []});
        let pulls = json!({"git_provider": "github", "pull_requests": []});
        attest(&api, "generic", &generic, &json!({})).await.created();
        let running = json!({"digests": {"app": fingerprint(1)}, "creationTimestamp": 1});
        let running = json!({ "artifacts": [running] });
        api.put("/environments/acme")
            .json(json!({"name": "prod", "type": "server", "description": ""}))
            .await
            .created();
        let report = || api.put("/environments/acme/prod/report/server").json(&running);
        report().await.created();
        queries(&asked);
        let by_fingerprint = json!({"artifact_fingerprint": fingerprint(1)});
        let by_name = json!({"target_artifacts": ["cli"]});
        let in_trail = json!({"trail_name": "t"});
        for (what, ask) in [
            ("generic by trail", attest(&api, "generic", &generic, &json!({}))),
            ("junit by trail", attest(&api, "junit", &junit, &json!({}))),
            ("pull requests by trail", attest(&api, "pull_request", &pulls, &json!({}))),
            ("generic by fingerprint", attest(&api, "generic", &generic, &by_fingerprint)),
            ("generic by template name", attest(&api, "generic", &generic, &by_name)),
            ("artifact to trail", artifact(&api, &in_trail)),
            ("artifact to flow", artifact(&api, &json!({}))),
            ("begin trail", begin(&api, "t2", "")),
            ("attest new trail", attest(&api, "generic", &generic, &json!({}))),
            ("begin trail again, changed", begin(&api, "t", "x")),
            ("begin trail again", begin(&api, "t", "x")),
            ("environment report", report()),
        ] {
            let reply = ask.await;
            assert!(reply.status.is_success(), "{what}: {reply:?}");
            println!("{name} {what}: {:?}", queries(&asked));
        }
        drop(home);
    }
}
