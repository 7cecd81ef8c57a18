//! Data of attestations above 64 KiB: stored once by digest, read by the answer about one attestation, and by no list.

use bytes::Bytes;
use evidence_core::attestations::Details;
use evidence_core::digest::sha256_hex;
use evidence_core::fact::Fact;
use evidence_tower::EvidenceApi;
use futures_util::future::join_all;
use http_body_util::{BodyExt, Empty};
use tower::ServiceExt;

use crate::bytes_read::{expect_at_most, forget, measured};
use crate::support::prelude::*;

/// Data whose JSON has so many bytes.
fn data(bytes: usize) -> Value {
    json!({"a": "x".repeat(bytes - r#"{"a":""}"#.len())})
}

async fn given_type(api: &Api) {
    let document = json!({"name": "any", "evaluator": {"content_type": "jq", "rules": [".a | length > 9"]}});
    api.post("/custom-attestation-types/acme").data_json(&document).await.created();
}

fn custom(name: &str, data: &Value) -> Value {
    json!({"attestation_name": name, "type_name": "any", "attestation_data": data})
}

/// The texts in the ledger of `acme`.
async fn texts(store: &dyn Store) -> Vec<String> {
    let entries = store.ledger_entries(acme(store).await, 0, 10_000).await.unwrap();
    let facts = entries.iter().map(|entry| Fact::read(&entry.payload).unwrap());
    facts.filter_map(|fact| if let Fact::TextKept { text } = fact { Some(text) } else { None }).collect()
}

/// The newest attestation of this name, as the list of its name shows it.
async fn listed(api: &Api, name: &str) -> Value {
    api.get(&format!("/attestations/acme/shop/trail/t/{name}")).await.ok()[0].clone()
}

/// The attestation, as the answer about it alone shows it.
async fn one(api: &Api, listed: &Value) -> Value {
    let id = listed["attestation_id"].as_str().unwrap();
    api.get(&format!("/attestations/acme?attestation_id={id}")).await.ok()["data"][0].clone()
}

#[apply(with_every_store)]
async fn data_are_stored_apart_from_64_kib_on_and_once(api: Api, store: Arc<dyn Store>) {
    given_type(&api).await;
    for (name, bytes, apart) in [("short", 64 << 10, false), ("long", (64 << 10) + 1, true)] {
        let data = data(bytes);
        api.attest("custom", &custom(name, &data)).await.created();
        let found = listed(&api, name).await;
        let whole = one(&api, &found).await;
        assert_eq!(whole["attestation_data"], data, "{name}");
        assert!(whole.get("omitted_data").is_none());
        assert_eq!(
            (&found["is_compliant"], &found["rule_results"][0]["outcome"]),
            (&json!(true), &json!("passed"))
        );
        if apart {
            let text = data.to_string();
            let id = found["attestation_id"].as_str().unwrap();
            let href = found["omitted_data"]["href"].as_str().unwrap();
            assert!(href.ends_with(&format!("/api/v2/attestations/acme?attestation_id={id}")), "{href}");
            let omitted = json!({"key": "attestation_data", "size": bytes, "sha256": sha256_hex(text.as_bytes()), "href": href});
            assert_eq!((&found["attestation_data"], &found["omitted_data"]), (&Value::Null, &omitted));
            assert_eq!(texts(&*store).await, [text]);
        } else {
            assert_eq!((&found["attestation_data"], found.get("omitted_data")), (&data, None));
            assert_eq!(texts(&*store).await, Vec::<String>::new());
        }
    }
    // The same data are stored once, whatever the attestations are called.
    api.attest("custom", &custom("again", &data((64 << 10) + 1))).await.created();
    assert_eq!(texts(&*store).await.len(), 1);
    api.attest("custom", &custom("other", &data((64 << 10) + 2))).await.created();
    assert_eq!(texts(&*store).await.len(), 2);
}

#[test]
fn data_of_every_type_are_given_back_as_they_were_sent() {
    let text = |n: usize| format!("{n}{}", "m".repeat(200));
    let suites: Vec<_> = (0..400)
        .map(|n| json!({"name": text(n), "failures": 0, "errors": 0, "skipped": 0, "total": 2, "duration": 0.5, "timestamp": null}))
        .collect();
    let commits: Vec<_> =
        (0..400).map(|n| json!({"sha1": format!("{n:040x}"), "message": text(n)})).collect();
    let pull_request = json!({"url": "https://example.com/1", "state": "MERGED", "commits": commits});
    let issues: Vec<_> = (0..400)
        .map(|n| json!({"issue_id": text(n % 10), "issue_url": text(n), "issue_exists": n > 0}))
        .collect();
    let finding = |n| json!({"id": "A", "message": text(n), "locations": []});
    let findings: Vec<_> = (0..400).map(finding).collect();
    // Findings that are listed count, whatever the report says.
    let project = json!({"low_count": 0, "medium_count": 0, "high_count": 3, "high": findings});
    let scan = json!({"tool": {"name": "Snyk", "version": "1"}, "results": [project]});
    let decision = json!({"is_compliant": false, "because": text(1).repeat(400)});
    let table = [
        ("junit", json!({"junit_results": suites}), Some(("junit_results", json!(suites)))),
        ("pull_request", json!({"git_provider": "github", "pull_requests": [pull_request]}), None),
        ("jira", json!({"jira_results": issues}), Some(("jira_results", json!(issues)))),
        ("snyk", json!({"snyk_results": scan}), None),
        (
            "system",
            json!({"type_name": "decision", "control": "C-1", "attestation_data": decision}),
            Some(("attestation_data", decision.clone())),
        ),
    ];
    with_every_store(async |api: Api, store: Arc<dyn Store>| {
        for (kind, document, expected) in &table {
            let mut document = document.clone();
            document["attestation_name"] = json!(kind);
            api.attest(kind, &document).await.created();
            let found = listed(&api, kind).await;
            let whole = one(&api, &found).await;
            assert_eq!(found["is_compliant"], json!(*kind == "pull_request" || *kind == "junit"), "{kind}");
            if let Some((key, expected)) = expected {
                assert_eq!((&found[*key], &whole[*key]), (&Value::Null, expected), "{kind}");
                assert_eq!(found["omitted_data"]["key"], json!(key));
            }
        }
        let pull_requests = one(&api, &listed(&api, "pull_request").await).await["pull_requests"].clone();
        assert_eq!(pull_requests[0]["commits"].as_array().unwrap().len(), 400);
        assert_eq!(pull_requests[0]["commits"][399]["message"], json!(text(399)));
        assert_eq!(listed(&api, "pull_request").await["pull_requests"], Value::Null);
        // Of a scan lists have the counts.
        let scan = listed(&api, "snyk").await;
        let counts = json!({"low_count": 0, "medium_count": 0, "high_count": 400});
        assert_eq!(scan["processed_snyk_results"]["results"], json!([counts]));
        assert_eq!(scan["omitted_data"]["key"], json!("processed_snyk_results"));
        let whole = one(&api, &scan).await["processed_snyk_results"]["results"][0].clone();
        assert_eq!((&whole["high"], &whole["high_count"]), (&json!(findings), &json!(400)));
        // The text in the ledger is the report as it was sent.
        let org = acme(&*store).await;
        let id = scan["attestation_id"].as_str().unwrap().parse().unwrap();
        let record = store.attestation(org, id).await.unwrap().unwrap();
        assert!(
            matches!(&record.details, Details::Snyk(details) if details.snyk_results.results.0[0].high.is_none())
        );
        let found = store.texts(org, &[record.data.unwrap().sha256]).await.unwrap();
        let found: Value = serde_json::from_str(&found[0]).unwrap();
        assert_eq!(
            (&found["results"][0]["high"], &found["results"][0]["high_count"]),
            (&json!(findings), &json!(3))
        );
        assert_eq!(texts(&*store).await.len(), table.len());
        // A decision shows its data, too.
        let decisions = api.get("/controls/acme/C-1/decisions").await;
        assert_eq!(decisions.status, 404, "there is no such control");
    });
}

#[apply(with_every_store)]
async fn lists_pdfs_and_evaluations_read_no_large_data(api: Api, store: Arc<dyn Store>) {
    const MANY: usize = 30;
    given_type(&api).await;
    api.given_environment("prod").await;
    let fingerprint = "a".repeat(64);
    let artifact = json!({
        "trail_name": "t", "template_reference_name": "app", "fingerprint": fingerprint, "filename": "app",
        "build_url": "b", "commit_url": "c", "git_commit": "5".repeat(40),
    });
    api.post("/artifacts/acme/shop").json(artifact).await.created();
    let data = data(1 << 20);
    for number in 0..MANY {
        let mut document = custom("bom", &data);
        if number % 2 == 0 {
            document["artifact_fingerprint"] = json!(fingerprint);
        }
        api.attest("custom", &document).await.created();
    }
    let policy = "_schema: https://example.com/v1\nartifacts:\n  attestations:\n    - type: custom:any\n";
    api.put_policy("p", policy).await.created();
    api.attach("prod", "p").await;
    let (api, answered) = measured(&store).await;
    for path in [
        "/attestations/acme?per_page=100".to_owned(),
        "/attestations/acme/shop?per_page=100".to_owned(),
        "/attestations/acme/shop/trail/t/bom".to_owned(),
        format!("/attestations/acme/shop/artifact/{fingerprint}/bom"),
        format!("/attestations/acme/list_attestations_for_criteria?commit_list={}", "5".repeat(40)),
        "/trails/acme/shop/t".to_owned(),
        "/trails/acme/shop/t?expand=attestations".to_owned(),
        "/artifacts/acme".to_owned(),
        format!("/artifacts/acme/shop/fingerprint/{fingerprint}"),
        format!("/asserts/acme/fingerprint/{fingerprint}?policy_name=p"),
        "/trails/acme/shop/t/audit_pdf".to_owned(),
    ] {
        forget(&answered);
        let reply = api.get(&path).await;
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        expect_at_most(&answered, 150_000, &path);
    }
    forget(&answered);
    api.report_running("prod", &[('a', &[1])]).await.created();
    expect_at_most(&answered, 50_000, "a report of what runs");
    let whole = one(&api, &listed(&api, "bom").await).await;
    assert_eq!(whole["attestation_data"], data);
    assert_eq!(texts(&*store).await.len(), 1);
}

/// As by readers whose connections take nothing: each answer is in memory until it is sent.
#[tokio::test(start_paused = true)]
async fn answers_with_long_data_that_nobody_takes_are_bounded_and_keep_no_report_out() {
    let limits = Limits { request_memory: 32 << 20, ..Limits::default() };
    let evidence = in_memory_with(Settings { limits, ..Settings::default() }).await;
    let api = Api::new(evidence.clone(), Mount::Tower, "memory").await;
    given_type(&api).await;
    api.post_control("C-1").await.created();
    let decision = json!({"is_compliant": true, "because": "x".repeat((2 << 20) - 100)});
    let system = json!({"attestation_name": "decision", "type_name": "decision", "control": "C-1", "attestation_data": decision});
    api.attest("custom", &custom("one", &data(2 << 20))).await.created();
    api.attest("system", &system).await.created();
    let id = |found: Value| found["attestation_id"].as_str().unwrap().to_owned();
    let (one, decision) = (id(listed(&api, "one").await), id(listed(&api, "decision").await));
    let tower = EvidenceApi::new(evidence);
    for path in [
        format!("/attestations/acme?attestation_id={one}"),
        format!("/controls/acme/C-1/decisions/{decision}"),
    ] {
        let get = async || {
            let request = http::Request::get(format!("/api/v2{path}"));
            let request = request.header("authorization", format!("Bearer {JANE}"));
            tower.clone().oneshot(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
        };
        let mut answers = join_all((0..20).map(|_| get())).await;
        answers.retain(|answer| {
            assert!(answer.status() == 200 || answer.status() == 503, "{path}: {}", answer.status());
            answer.status() == 200
        });
        // Each is two mebibytes long. The organization has four for answers that are being sent.
        assert_eq!(answers.len(), 2, "{path}");
        // This takes twelve of the sixteen mebibytes for what is being worked on.
        api.attest("custom", &custom("other", &data(3 << 20))).await.created();
        let (held, sent) = (answers.pop().unwrap(), answers.pop().unwrap());
        let mut body = sent.into_body();
        let mut sent = Vec::new();
        while let Some(frame) = body.frame().await {
            sent.push(frame.unwrap().into_data().unwrap());
        }
        drop(body);
        assert!(sent.iter().map(Bytes::len).sum::<usize>() > (2 << 20) - 100, "{path}");
        // A transport holds what it took and did not send yet.
        assert_eq!(get().await.status(), 503, "{path}");
        drop(sent);
        assert_eq!(get().await.status(), 200, "{path}");
        drop(held);
    }
}
