//! Public flows for callers of other organizations: records of the flow, and nothing of environments.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use evidence_core::api;
use evidence_core::auth::Scope;
use evidence_core::operation::{Operation, Visitor};
use futures_util::FutureExt;
use http::header::ETAG;

use crate::intercepting_store::{Call, InterceptingStore};
use crate::support::prelude::*;

/// The operations that a stranger may call.
#[derive(Default)]
struct Open(BTreeSet<&'static str>);

impl Visitor for Open {
    fn visit<O: Operation>(&mut self) {
        if O::SCOPE == Scope::ReadFlow {
            self.0.insert(O::NAME);
        }
    }
}

/// The path of each operation for the flow `open`. A missing operation fails the test.
async fn queries(api: &Api) -> BTreeMap<&'static str, String> {
    let trail = "/attestations/acme/open/trail/t";
    let bar = api.get(&format!("{trail}/bar")).await.ok();
    let id = bar[0]["attestation_id"].as_str().unwrap();
    let artifact = fingerprint('a');
    [
        ("get_flow", "/flows/acme/open".to_owned()),
        ("get_trail", "/trails/acme/open/t".to_owned()),
        ("download_trail_audit_pdf", "/trails/acme/open/t/audit_pdf".to_owned()),
        ("get_artifact_by_fingerprint", format!("/artifacts/acme/open/fingerprint/{artifact}")),
        ("get_artifact_by_commit_sha", format!("/artifacts/acme/open/commit_sha/{COMMIT}")),
        ("get_latest_artifact_commit", format!("/artifacts/acme/open/{artifact}/latest_commit")),
        ("get_trail_attestation", format!("{trail}/bar")),
        ("get_artifact_attestation", format!("/attestations/acme/open/artifact/{artifact}/foo")),
        ("get_attestation_evidence", format!("{trail}/attestation/{id}/evidence")),
    ]
    .into()
}

async fn given_an_open_flow(api: &Api) {
    api.put_flow("open").with(json!({"visibility": "public"})).await.created();
    api.post_artifact("open", fingerprint('a'))
        .with(json!({
            "trail_name": "t", "template_reference_name": "cli", "git_commit": COMMIT,
            "git_commit_info": {"sha1": COMMIT, "timestamp": 1_783_530_000},
        }))
        .await
        .created();
    for about in [
        json!({"attestation_name": "bar", "is_compliant": true}),
        json!({"attestation_name": "foo", "is_compliant": true, "artifact_fingerprint": fingerprint('a')}),
    ] {
        api.post_attestation("open", "t", "generic")
            .data_json(&about)
            .file("attachment_file", "a.txt", "hello")
            .await
            .created();
    }
}

/// Everything that this caller is answered.
async fn answers(api: &Api, queries: &BTreeMap<&'static str, String>, key: &str) -> Vec<Reply> {
    let mut answers = Vec::new();
    for path in queries.values() {
        let reply = api.get(path).key(key).await;
        assert_eq!(reply.status, 200, "{reply:?}");
        answers.push(reply);
    }
    answers
}

#[apply(on_every_store)]
async fn a_stranger_learns_nothing_of_environments_from_a_public_flow(api: Api) {
    given_an_open_flow(&api).await;
    let queries = queries(&api).await;
    let mut open = Open::default();
    api::operations(&mut open);
    assert_eq!(BTreeSet::from_iter(queries.keys().copied()), open.0);
    let before = answers(&api, &queries, JOHN).await;
    // Outsiders do not see that nothing runs, either.
    let pdf = &queries["download_trail_audit_pdf"];
    let (strange, own) = (api.get(pdf).key(JOHN).await, api.get(pdf).key(JANE).await);
    assert_ne!(strange.body, own.body);
    api.given_environments("docker", &["vault"]).await;
    api.report_running("vault", &[('a', &[10])]).await.created();
    api.report_running("vault", &[]).await.created();
    api.report_running("vault", &[('a', &[11])]).await.created();

    let (strange, own) = (answers(&api, &queries, JOHN).await, answers(&api, &queries, JANE).await);
    for (((operation, now), before), own) in queries.keys().zip(&strange).zip(&before).zip(&own) {
        assert_eq!(now.body, before.body, "{operation}");
        assert_eq!(now.headers.get(ETAG), before.headers.get(ETAG), "{operation}");
        let text = String::from_utf8_lossy(&now.body);
        assert!(!text.contains("vault") && !text.contains("running in"), "{operation}: {text}");
        // The organization itself sees where it runs.
        let shows = [
            "get_trail",
            "download_trail_audit_pdf",
            "get_artifact_by_fingerprint",
            "get_artifact_by_commit_sha",
        ];
        let differs = own.body != now.body;
        assert_eq!(differs, shows.contains(operation), "{operation}");
        if *operation == "download_trail_audit_pdf" {
            assert_ne!(own.headers[ETAG], now.headers[ETAG]);
        }
    }
    let artifact = api.get(&queries["get_artifact_by_fingerprint"]).key(JOHN).await.ok();
    for (field, empty) in [
        ("running", json!([])),
        ("exited", json!([])),
        ("commit_lead_times", json!({})),
        ("build_lead_times", json!({})),
        ("history", json!([])),
    ] {
        assert_eq!(artifact[field], empty, "{field}");
    }
}

/// An archived flow is its organization's own, whatever its visibility, which can still be changed.
#[apply(on_every_store)]
async fn a_stranger_sees_nothing_of_a_public_flow_that_is_archived(api: Api) {
    given_an_open_flow(&api).await;
    let before = queries(&api).await;
    // These answers are cached.
    answers(&api, &before, JOHN).await;
    answers(&api, &before, JANE).await;
    api.put("/flows/acme/open/archive").await.ok();
    let trails = api.get("/trails/acme").await.ok();
    let name = trails["data"][0]["flow"]["name"].as_str().unwrap();
    assert!(name.starts_with("open-archived-at-"), "{name}");
    let archived = |path: &str| path.replace("/open", &format!("/{name}"));
    let after: BTreeMap<_, _> = before.iter().map(|(operation, path)| (*operation, archived(path))).collect();
    let expect_hidden = async || {
        answers(&api, &after, JANE).await;
        for (operation, path) in before.iter().chain(&after) {
            assert_eq!(api.get(path).key(JOHN).await.status, 403, "{operation}: {path}");
        }
    };
    expect_hidden().await;
    let put = async |key: &str, document: Value| {
        let document = document.to_string();
        api.put("/flows/acme/template_file").key(key).data_json(&document).await
    };
    let visibility = async || api.get(&after["get_flow"]).await.ok()["visibility"].clone();
    for wanted in ["private", "public", "public"] {
        assert_eq!(
            put(JOHN, json!({"name": name, "description": "", "visibility": wanted})).await.status,
            403
        );
        put(JANE, json!({"name": name, "description": "", "visibility": wanted})).await.ok();
        assert_eq!(visibility().await, json!(wanted));
        expect_hidden().await;
    }
    // Its other data cannot be read.
    for document in [
        json!({"name": name, "description": "other", "visibility": "private"}),
        json!({"name": name, "description": ""}),
    ] {
        assert_eq!(put(JANE, document).await.error_message(404), "Flow not found");
    }
    let with_template = api.put_flow(name).with(json!({"visibility": "private"})).template("version: 1");
    assert_eq!(with_template.await.error_message(404), "Flow not found");
    assert_eq!(visibility().await, json!("public"));
}

#[tokio::test]
async fn a_stranger_is_not_shown_a_private_flow_that_takes_the_name_of_a_public_one_meanwhile() {
    for lookup in 0..6 {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let members =
            Api::new(fixture(Arc::clone(&inner), Settings::default()).await, Mount::Tower, "memory").await;
        given_an_open_flow(&members).await;
        let (asked, changing) = (Arc::new(AtomicUsize::new(0)), members.clone());
        let store = InterceptingStore::new(inner, move |call| {
            let is_it = call == Call::Query("flow") && asked.fetch_add(1, Ordering::SeqCst) == lookup;
            let changing = changing.clone();
            async move {
                if is_it {
                    let renaming = json!({"new_name": "former"});
                    changing.put("/flows/acme/open/rename").json(renaming).await.ok();
                    let private = json!({"name": "open", "description": "secret", "visibility": "private"});
                    changing.put("/flows/acme/template_file").data_json(private).await.created();
                }
            }
            .boxed()
        });
        let strangers =
            Api::new(Evidence::new(Arc::new(store), Settings::default()), Mount::Tower, "memory").await;
        let reply = strangers.get("/flows/acme/open").key(JOHN).await;
        assert!([200, 403].contains(&reply.status.as_u16()), "{lookup}: {reply:?}");
        assert!(!String::from_utf8_lossy(&reply.body).contains("secret"), "{lookup}: {reply:?}");
    }
}
