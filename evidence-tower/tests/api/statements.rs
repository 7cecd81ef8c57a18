//! Every read takes a bounded number of SQL statements: as many with many items as with one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use evidence_core::auth::{Actor, ActorKind};
use evidence_core::blobs::{CHUNK, Whole};
use evidence_core::digest::sha256_hex;
use evidence_core::id::SystemRandom;
use evidence_core::store::StoreResult;
use evidence_core::{Fact, Write};
use evidence_tower::EvidenceApi;
use futures_util::FutureExt;
use futures_util::future::{join_all, ready, try_join_all};
use http::header::AUTHORIZATION;
use http::{Method, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Empty};
use tower::ServiceExt;

use crate::executed::Counted;
use crate::intercepting_store::{Call, InterceptingStore};
use crate::operation_paths::{self, routes};
use crate::support::LEDGERS;
use crate::support::prelude::*;
use crate::support::stubs::SignedInMemory;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The API over a SQLite store that is counted.
async fn on_sqlite() -> (Api, Counted) {
    let counted = Counted::sqlite().await;
    let evidence = fixture(Arc::clone(&counted.store), Settings::default()).await;
    (Api::new(evidence, Mount::Tower, "SQLite").await, counted)
}

/// Every GET of the API, of what [`fill`] makes, by the name of the operation.
pub(crate) async fn reads(api: &Api) -> BTreeMap<&'static str, String> {
    let id = async |path: &str, key: &str| {
        let listed = api.get(path).await.ok();
        listed[0][key].as_str().unwrap_or_else(|| panic!("{path}: {listed}")).to_owned()
    };
    let mut names = BTreeMap::from([
        ("org", "acme".to_owned()),
        ("flow_name", "shop".to_owned()),
        ("trail_name", "t0".to_owned()),
        ("fingerprint", fingerprint(0)),
        ("commit_sha", COMMIT.to_owned()),
        ("search_value", COMMIT.to_owned()),
        ("attestation_id", id("/attestations/acme/shop/trail/t0/bar", "attestation_id").await),
        ("custom_attestation_type_name", "type0".to_owned()),
        ("identifier", "control0".to_owned()),
        ("decision_id", id("/attestations/acme/shop/trail/t0/decided", "attestation_id").await),
        ("version_number", "1".to_owned()),
        ("action_number", "1".to_owned()),
        ("notification_number", "1".to_owned()),
        ("env_name", "prod".to_owned()),
        ("snapshot_expression", "-1".to_owned()),
        ("policy_name", "policy0".to_owned()),
        ("repo_name", "acme/repo0".to_owned()),
        (
            "repo",
            api.get("/repos/acme?name=acme/repo0").await.ok()["repos"][0]["id"].as_str().unwrap().to_owned(),
        ),
        ("name", "account0".to_owned()),
        ("index", "0".to_owned()),
        ("record_id", "0".to_owned()),
        ("tile", "0/000.p/1".to_owned()),
        ("key_id", id("/service-accounts/acme/account0/api-keys", "id").await),
    ]);
    let mut reads = BTreeMap::new();
    for (operation, (_, template)) in routes().into_iter().filter(|(_, (method, _))| method == Method::GET) {
        let attestation = if operation == "get_artifact_attestation" { "foo" } else { "bar" };
        names.insert("attestation_name", attestation.to_owned());
        let query = match operation {
            // Answered whole, some dozens at a time: so few that they are read at once.
            "list_attestations_for_criteria" => format!("?commit_list={COMMIT}&attestation_name=bar"),
            "get_ledger_consistency" => "?from=1".to_owned(),
            "environment_diff" => "?snappish1=prod%231&snappish2=prod".to_owned(),
            "get_env_events" => "?repo_name=acme/repo0&per_page=100".to_owned(),
            _ => String::new(),
        };
        reads.insert(operation, operation_paths::path(template, &names, file!()) + &query);
    }
    reads
}

fn fingerprint(number: usize) -> String {
    format!("{number:064x}")
}

/// Makes `many` of everything: on one trail, on trails of their own, in one environment and in environments of their own. A
/// page of any list shows as many where nobody says how many it has.
pub(crate) async fn fill(api: &Api, many: usize) {
    api.given_flow("shop", TEMPLATE).await;
    api.put("/user/acme").await.ok();
    let environment = |name: &str| json!({"name": name, "type": "server", "description": ""});
    api.put("/environments/acme").json(environment("prod")).await.created();
    let mut running = Vec::new();
    for number in 0..many {
        api.given_flow(&format!("flow{number}"), TEMPLATE).await;
        api.put("/environments/acme").json(environment(&format!("env{number}"))).await.created();
        let payload = json!({"name": format!("policy{number}")}).to_string();
        let policy =
            "_schema: https://example.com/policy/v1\nartifacts:\n  provenance:\n    required: true\n";
        api.put("/policies/acme").payload(&payload).file("policy_file", "p.yml", policy).await.created();
        if number < Limits::default().environment_policies {
            let attached = json!({"policy_names": [format!("policy{number}")]});
            api.post("/environments/acme/prod/policies").json(attached).await.ok();
        }
        let request =
            api.post("/custom-attestation-types/acme").data_json(json!({"name": format!("type{number}")}));
        request.await.created();
        api.post_control(format!("control{number}")).with(json!({"name": "one of many"})).await.created();
        let control = json!({"description": format!("version {number}")});
        api.put("/controls/acme/control0").json(control).await.ok();
        let tag = json!({"set_tags": {format!("key{number}"): "x"}});
        api.patch(&format!("/tags/acme/control/control{number}")).json(tag).await.ok();
        let action = json!({"name": format!("action{number}"), "environments": ["prod", format!("env{number}")],
                            "triggers": [], "targets": [{"webhook": format!("https://hooks.example.com/{number}")}]});
        api.put("/actions/acme/environments").json(action).await.created();
        let action = json!({"name": format!("of-flows{number}"), "flows": [format!("flow{number}")], "triggers": [],
                            "targets": []});
        api.put("/actions/acme/flows").json(action).await.created();
        let account = format!("account{number}");
        let request =
            api.post("/service-accounts/acme").json(json!({"name": account, "privilege": "reader"}));
        request.await.created();
        let key = json!({"description": "one of many"});
        api.post("/service-accounts/acme/account0/api-keys").json(key).await.created();
        for trail in ["t0".to_owned(), format!("t{number}")] {
            report(api, &trail, number).await;
        }
        api.post_artifact("shop", fingerprint(1000 + number))
            .with(json!({"repo_info": repo(0)}))
            .await
            .created();
        running.push(json!({"digests": {"app": fingerprint(1000 + number)}, "creationTimestamp": 1}));
        let artifact = json!({"digests": {"app": fingerprint(number)}, "creationTimestamp": 1});
        running.push(artifact.clone());
        report_running(api, &[artifact]).await;
        let allowed = json!({"artifact_name": "a", "artifact_fingerprint": fingerprint(number), "description": "known"});
        api.put("/allowlists/acme/prod").json(allowed).await.created();
    }
    report_running(api, &running).await;
}

async fn report_running(api: &Api, artifacts: &[Value]) {
    let report = json!({ "artifacts": artifacts });
    let reply = api.put("/environments/acme/prod/report/server").json(report).await;
    assert!(reply.status.is_success(), "{reply:?}");
}

fn repo(number: usize) -> Value {
    json!({"name": format!("acme/repo{number}"), "url": format!("https://git.example.com/acme/{number}")})
}

async fn report_built(api: &Api, trail: &str, number: usize) {
    api.post_artifact("shop", fingerprint(number))
        .with(json!({
            "trail_name": trail, "template_reference_name": "cli", "git_commit": COMMIT,
            "repo_info": repo(number),
        }))
        .await
        .created();
}

async fn report(api: &Api, trail: &str, number: usize) {
    report_built(api, trail, number).await;
    let attest = async |document: Value| {
        let path = format!("/attestations/acme/shop/trail/{trail}/generic");
        api.post(&path).data_json(&document).file("attachment_file", "a.txt", "evidence").await.created();
    };
    attest(json!({"attestation_name": "bar", "is_compliant": true})).await;
    let on_artifact =
        json!({"attestation_name": "foo", "is_compliant": true, "artifact_fingerprint": fingerprint(number)});
    attest(on_artifact).await;
    let decision = json!({"attestation_name": "decided", "type_name": "decision", "control": "control0",
                          "attestation_data": {"is_compliant": true}});
    api.post_attestation("shop", trail, "system").data_json(&decision).await.created();
}

#[tokio::test]
async fn a_read_takes_as_many_statements_of_sqlite_with_many_items_as_with_one() {
    a_read_takes_as_many_statements(Counted::sqlite, OF_SQLITE).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
async fn a_read_takes_as_many_statements_of_postgresql_with_many_items_as_with_one() {
    a_read_takes_as_many_statements(Counted::postgres, 1).await;
}

/// The most queries of a read by a service that remembers nothing: of names and of what it answers.
const COLD: usize = 14;

/// The same for an artifact by its digest: the ledger's head, the artifact with its flow and runs, the reports of its trail,
/// its template, and what its attestations say.
const COLD_ARTIFACT: usize = 5;

/// The most look-ups of its caller by a read: three times of the key and twice of the role, where half a second passes between
/// them, and some operations ask for the role themselves.
const LOOK_UPS: usize = 6;

/// The most queries of a read by a service that was asked for the same before.
const WARM: usize = 2;

/// Reads that take more, and how many: what they answer is in several tables, which are asked one after the other.
const WARM_AND_MORE: [(&str, usize); 48] = [
    ("get_ledger_checkpoint", 4),
    ("get_ledger_consistency", 4),
    ("get_ledger_proof", 5),
    ("assert_artifact", 5),
    ("download_trail_audit_pdf", 8),
    ("get_action", 3),
    ("get_artifact_attestation", 6),
    ("get_artifact_by_commit_sha", 6),
    ("get_attestation_evidence", 4),
    ("get_attestations", 5),
    ("environment_diff", 12),
    ("get_control", 3),
    ("get_control_coverage", 4),
    ("get_control_decision", 7),
    ("get_custom_attestation_type", 3),
    ("get_custom_attestation_types", 4),
    ("get_environment_notification", 3),
    ("get_environment_notifications", 4),
    ("get_flow_attestations", 5),
    ("get_flow", 3),
    ("get_flows", 7),
    ("get_policy", 5),
    ("get_repo_live_artifacts", 5),
    ("get_search", 6),
    ("get_env_auditlog", 7),
    ("get_env_events", 11),
    ("get_snapshot", 11),
    ("get_trail", 6),
    ("get_trail_attestation", 4),
    ("get_user_default_org", 3),
    ("list_actions", 5),
    ("list_allowlist", 4),
    ("list_artifacts", 7),
    ("list_attestations_for_criteria", 7),
    ("list_builds", 4),
    ("list_deployments", 10),
    ("list_env_deployments", 11),
    ("list_repo_deployments", 11),
    ("get_deployment", 11),
    ("get_deployment_frequency", 3),
    ("get_repo_deployment_statistics", 4),
    ("list_control_decisions", 6),
    ("list_control_versions", 3),
    ("list_envs", 3),
    ("list_policies", 6),
    ("list_repo_filter_options", 3),
    ("list_trails", 5),
    ("list_trails_for_org", 4),
];

/// SQLite executes so many statements for one query: it looks up the key of the organization, and runs the query.
const OF_SQLITE: usize = 2;

async fn a_read_takes_as_many_statements(store: impl AsyncFn() -> Counted, of_a_query: usize) {
    let mut counts: BTreeMap<&str, Vec<[usize; 2]>> = BTreeMap::new();
    let cached = operation_paths::cached();
    for many in [1, 12] {
        let counted = store().await;
        let evidence = fixture(Arc::clone(&counted.store), Settings::default()).await;
        let api = Api::new(evidence, Mount::Tower, "counted").await;
        fill(&api, many).await;
        // A package reads entries and attachments in batches while it is sent.
        let is_package = |operation: &str| operation.ends_with("audit_package");
        for (operation, path) in reads(&api).await.into_iter().filter(|(operation, _)| !is_package(operation))
        {
            let (before, looked_up) = (counted.statements(), counted.look_ups());
            let reply = request(&counted.store, &path).await;
            assert_eq!(reply.status(), 200, "{operation} {path}: make what it reads in {}", file!());
            reply.into_body().collect().await.unwrap();
            let cold = counted.statements() - before;
            let look_ups = counted.look_ups() - looked_up;
            let least = usize::from(operation != "list_ledger_keys");
            assert!((least..=LOOK_UPS).contains(&look_ups), "{operation}: {look_ups} look-ups of its caller");
            assert_eq!(api.get(&path).await.status, 200, "{operation} {path}");
            let asked = async |path: &str| {
                let before = counted.statements();
                assert_eq!(api.get(path).await.status, 200, "{operation} {path}");
                counted.statements() - before
            };
            // The same with a parameter that nothing reads, so that the answer is not cached.
            let warm = asked(&format!("{path}{}unread=1", if path.contains('?') { '&' } else { '?' })).await;
            if cached.contains(operation) {
                let again = asked(&path).await;
                assert!(
                    (1..=of_a_query).contains(&again),
                    "{operation}: {again} statements of a cached answer"
                );
            }
            counts.entry(operation).or_default().push([cold, warm]);
        }
    }
    let (more, mut over) = (BTreeMap::from(WARM_AND_MORE), Vec::new());
    for (operation, counts) in counts {
        let [one, many] = counts[..] else { panic!("{operation}: {counts:?}") };
        assert!(many[0] <= one[0] && many[1] <= one[1], "{operation}: one item {one:?}, many {many:?}");
        let [cold, warm] = one.map(|statements| statements.div_ceil(of_a_query));
        // With cached responses, the ledger's head is read as well.
        let most = more.get(operation).copied().unwrap_or(WARM) + usize::from(cached.contains(operation));
        let most_cold = if operation == "get_artifact_by_fingerprint" { COLD_ARTIFACT } else { COLD };
        assert!(cold <= most_cold, "{operation}: {cold} queries");
        if warm > most {
            over.push(format!("{operation}: {warm} queries of what was asked for before, not {most}"));
        }
    }
    assert!(over.is_empty(), "{over:#?}");
}

#[tokio::test]
async fn what_is_named_is_asked_for_together() {
    let (api, counted) = on_sqlite().await;
    fill(&api, 12).await;
    let gate = async |count: usize| {
        let names = Vec::from_iter((0..count).map(|number| format!("policy_name=policy{number}")));
        let path = format!("/asserts/acme/fingerprint/{}?{}", fingerprint(0), names.join("&"));
        api.get(&path).await.ok();
        let before = counted.statements();
        api.get(&path).await.ok();
        counted.statements() - before
    };
    let put = async |name: &str, count: usize| {
        let rules =
            (0..count).map(|number| format!("    - {{type: decision, for_control: control{number}}}\n"));
        let policy = format!(
            "_schema: https://example.com/policy/v1\nartifacts:\n  attestations:\n{}",
            rules.collect::<String>()
        );
        let payload = json!({ "name": name }).to_string();
        let before = counted.statements();
        api.put("/policies/acme").payload(&payload).file("policy_file", "p.yml", &policy).await.created();
        counted.statements() - before
    };
    assert_eq!(gate(12).await, gate(1).await, "by policies");
    let (one, many) = (put("of-one", 1).await, put("of-many", 12).await);
    // Entries of the ledger are hashed together now and then.
    assert!(many <= one + 2, "about one control {one} statements, about many {many}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
async fn a_report_takes_few_statements_of_postgresql_however_many_artifacts_it_is_of() {
    for many in [1, 80, 800, 8000] {
        let counted = Counted::postgres().await;
        let evidence = fixture(Arc::clone(&counted.store), Settings::default()).await;
        let api = Api::new(evidence, Mount::Tower, "counted").await;
        api.given_flow("shop", TEMPLATE).await;
        api.put_environment("prod", "server").await.created();
        let report = async |number| match number {
            0..80 => report(&api, &format!("t{number}"), number).await,
            _ => report_built(&api, &format!("t{number}"), number).await,
        };
        for part in Vec::from_iter(0..many).chunks(64) {
            join_all(part.iter().map(|number| report(*number))).await;
        }
        let artifact = |number| json!({"digests": {"app": fingerprint(number)}, "creationTimestamp": 1});
        let running = Vec::from_iter((0..many).map(artifact));
        let taken = async |artifacts: &[Value]| {
            let before = counted.statements();
            report_running(&api, artifacts).await;
            counted.statements() - before
        };
        for (what, artifacts) in [("new", &running[..]), ("the same", &running), ("less", &running[1..])] {
            let statements = taken(artifacts).await;
            assert!(
                (1..=REPORT).contains(&statements),
                "{what} of {many} artifacts: {statements} statements"
            );
        }
    }
}

/// The most statements of a report.
const REPORT: usize = 12;

#[tokio::test]
async fn a_write_takes_a_statement_a_row_of_sqlite() {
    let counted = Counted::sqlite().await;
    let texts = texts(&counted).await;
    let one = taken(&counted, counted.store.record(texts(1))).await;
    let many = taken(&counted, counted.store.record(texts(1000))).await;
    assert!((4..=12).contains(&one), "{one} statements for one text");
    // A text, its entry in the ledger, and the hashes of 16 and of 256 entries.
    let rows = 2 * 999 + 1000_usize.div_ceil(16) + 1000_usize.div_ceil(256);
    assert!((2000..=one + rows).contains(&many), "{one} statements for one text, {many} for 1000");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
async fn a_write_takes_two_statements_of_postgresql() {
    let counted = Counted::postgres().await;
    let texts = texts(&counted).await;
    for many in [1, 1000] {
        assert_eq!(taken(&counted, counted.store.record(texts(many))).await, 2, "{many}");
    }
    let together = try_join_all((0..64).map(|_| counted.store.record(texts(1))));
    let statements = taken(&counted, together).await;
    assert!(statements <= 64, "{statements} statements for 64 writes");
}

#[tokio::test]
async fn what_comes_together_shares_transactions_of_sqlite() {
    let counted = Counted::sqlite().await;
    let (store, texts) = (&counted.store, texts(&counted).await);
    let org = texts(0).org;
    let digest = |content: &[u8]| sha256_hex(content).parse().unwrap();
    let before = counted.sqlite_transactions();
    try_join_all((0..64).map(|_| store.record(texts(1)))).await.unwrap();
    let writes = counted.sqlite_transactions() - before;
    assert!((1..32).contains(&writes), "{writes} transactions for 64 writes");

    let before = counted.sqlite_transactions();
    let notes = (0..64_u8).map(|number| digest(&[number]));
    let noted = join_all(notes.map(async |sha256| store.put_pending(org, &sha256, NOW).await.unwrap())).await;
    assert_eq!(noted, [true; 64]);
    let notes = counted.sqlite_transactions() - before;
    assert!((1..32).contains(&notes), "{notes} transactions for 64 notes");

    let before = counted.sqlite_transactions();
    let uploads = (0..32_u8).map(|number| vec![number; 4 * CHUNK]);
    let upload = async |content: Vec<u8>| store.put(org, &digest(&content), &mut Whole::new(content)).await;
    try_join_all(uploads.map(upload)).await.unwrap();
    let steps = counted.sqlite_transactions() - before;
    assert!((5..80).contains(&steps), "{steps} transactions for 32 uploads of 5 steps");
}

/// How many statements something takes.
async fn taken<T>(counted: &Counted, work: impl Future<Output = StoreResult<T>>) -> usize {
    let before = counted.statements();
    work.await.unwrap();
    counted.statements() - before
}

/// Makes writes of so many new texts, by a user in an organization of theirs.
async fn texts(counted: &Counted) -> impl Fn(usize) -> Write {
    fixture(Arc::clone(&counted.store), Settings::default()).await;
    let jane = counted.store.user("jane").await.unwrap().unwrap();
    let org = counted.store.org_role("acme", jane.id).await.unwrap().unwrap().organization.id;
    let by = Actor { id: jane.id, name: "jane".to_owned(), kind: ActorKind::User };
    let numbers = AtomicUsize::new(0);
    move |many| {
        let text = |_| Fact::TextKept { text: numbers.fetch_add(1, Ordering::Relaxed).to_string() };
        let facts = (0..many).map(text).collect();
        Write::new(org, by.clone(), NOW, facts, &SystemRandom)
    }
}

/// A GET of a service that remembers nothing.
async fn request(store: &Arc<dyn Store>, path: &str) -> Response<impl Body<Data = Bytes, Error: Debug>> {
    let keys = SignedInMemory::default().keys(LEDGERS, 7);
    let evidence = Evidence::new(Arc::clone(store), Settings::default()).with_ledger_keys(keys);
    let request = Request::get(format!("/api/v2{path}")).header(AUTHORIZATION, format!("Bearer {JANE}"));
    EvidenceApi::new(evidence).oneshot(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap()
}

/// Trails with a template of 500,000 bytes of their own, an artifact on each, and flows with such templates.
const LARGE: usize = 8;

/// The response of a service with empty caches, and the number of statements before each piece.
async fn sent(counted: &Counted, path: &str) -> (Vec<u8>, Vec<usize>) {
    let before = counted.statements();
    let mut body = pin!(request(&counted.store, path).await.into_body());
    let (mut text, mut statements) = (Vec::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let piece = frame.unwrap().into_data().unwrap();
        assert!(piece.len() < 600_000, "{path}: a piece of {} bytes", piece.len());
        text.extend_from_slice(&piece);
        statements.push(counted.statements() - before);
    }
    (text, statements)
}

#[tokio::test]
async fn a_snapshot_is_read_while_it_is_sent_and_never_held_whole() {
    let (api, counted) = on_sqlite().await;
    api.put_environment("prod", "server").await.created();
    let mut running = Vec::new();
    for number in 0..BODIES {
        let commit = json!({"sha1": COMMIT, "message": "\u{1F600}".repeat(50_000), "author": "a", "branch": "b",
                            "timestamp": 1, "url": ""});
        api.post_artifact("shop", fingerprint(number))
            .in_trail("t")
            .with(json!({"git_commit_info": commit}))
            .await
            .created();
        running.push(json!({"digests": {"app": fingerprint(number)}, "creationTimestamp": 1}));
    }
    api.put("/environments/acme/prod/report/server").json(json!({ "artifacts": running })).await.created();
    let (text, statements) = sent(&counted, "/snapshots/acme/prod/1").await;
    let snapshot: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(snapshot["artifacts"].as_array().map(Vec::len), Some(BODIES));
    // Five fit a read of a megabyte, and each read is of reports, flows and trails.
    let (first, last) = (statements[0], statements[statements.len() - 1]);
    assert!(last >= first + 3 * 3, "{statements:?}");
}

/// Attestations of 200,000 bytes.
const BODIES: usize = 20;

#[tokio::test]
async fn attestations_are_read_while_they_are_sent_and_never_held_whole() {
    let (api, counted) = on_sqlite().await;
    api.given_flow("shop", TEMPLATE).await;
    report(&api, "t", 0).await;
    let attest = async |more: Value| {
        let user_data = json!({"text": "x".repeat(200_000)});
        let large = json!({"attestation_name": "large", "is_compliant": true, "user_data": user_data});
        let document = merged(large, &more);
        api.post_attestation("shop", "t", "generic").data_json(&document).await.created();
    };
    for _ in 0..BODIES {
        attest(json!({})).await;
        attest(json!({"artifact_fingerprint": fingerprint(0)})).await;
    }
    let artifact = format!("/attestations/acme/shop/artifact/{}/large", fingerprint(0));
    for path in ["/attestations/acme/shop/trail/t/large", &artifact] {
        let (text, statements) = sent(&counted, path).await;
        let answer: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(answer.as_array().map(Vec::len), Some(BODIES), "{path}");
        // Five fit a read of a megabyte.
        let (first, last) = (statements[0], statements[statements.len() - 1]);
        assert!(last >= first + 3, "{path}: {statements:?}");
    }
    // Of what is told of each event little is shown, and all of it is read.
    let (text, statements) = sent(&counted, "/trails/acme/shop/t").await;
    let trail: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(trail["events"].as_array().map(Vec::len), Some(5 + 2 * BODIES));
    assert!(statements[statements.len() - 1] >= 12, "{statements:?}");
    let (text, statements) = sent(&counted, "/trails/acme/shop/t?expand=attestations").await;
    let trail: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(trail["attestations"].as_array().map(Vec::len), Some(3 + 2 * BODIES));
    let (first, last) = (statements[0], statements[statements.len() - 1]);
    assert!(last >= first + 6, "{statements:?}");
}

#[apply(with_every_store)]
async fn trails_that_do_not_fit_memory_together_are_read_one_part_after_the_other(
    _: Api,
    store: Arc<dyn Store>,
) {
    let read = Arc::new(AtomicUsize::new(0));
    let note = Arc::clone(&read);
    let noting = InterceptingStore::new(store, move |call| {
        note.fetch_add(usize::from(call == Call::Query("trail_contents")), Ordering::Relaxed);
        ready(()).boxed()
    });
    // Every list reads them.
    let settings = Settings { cache_ttl: Duration::ZERO, ..Settings::default() };
    let evidence = Evidence::new(Arc::new(noting), settings);
    let api = Api::new(evidence, Mount::Tower, "noting").await;
    let mut running = Vec::new();
    for number in 0..24 {
        let (flow, user_data) = (format!("f{number}"), json!({"text": "x".repeat(200_000)}));
        api.given_flow(&flow, TEMPLATE).await;
        api.put_trail(&flow, &json!({"name": "t", "user_data": user_data})).await.created();
        api.post_artifact(flow, fingerprint(number)).in_trail("t").await.created();
        running.push(json!({"digests": {"app": fingerprint(number)}, "creationTimestamp": 1}));
    }
    api.put_environment("prod", "server").await.created();
    let report = api.put("/environments/acme/prod/report/server").json(json!({ "artifacts": running }));
    // Five fit a read of a megabyte, and twenty one of the four that a report reads at once.
    for (what, request, expected) in [
        ("flows", api.get("/flows/acme"), 5),
        ("trails", api.get("/trails/acme?per_page=100"), 5),
        ("artifacts", api.get("/artifacts/acme?per_page=100"), 5),
        ("a report", report, 2),
    ] {
        read.store(0, Ordering::Relaxed);
        let reply = request.await;
        assert!(reply.status.is_success(), "{what}: {reply:?}");
        let parts = read.load(Ordering::Relaxed);
        assert_eq!(parts, expected, "{what}");
    }
}

#[apply(with_every_store)]
async fn no_record_is_read_for_its_name_or_its_template_alone(_: Api, store: Arc<dyn Store>) {
    let asked = Arc::new(Mutex::new(BTreeSet::new()));
    let note = Arc::clone(&asked);
    let noting = InterceptingStore::new(store, move |call| {
        if let Call::Query(name) = call {
            note.lock().unwrap().insert(name);
        }
        ready(()).boxed()
    });
    let evidence = Evidence::new(Arc::new(noting), Settings::default());
    let api = Api::new(evidence, Mount::Tower, "noting").await;
    api.given_flow("shop", TEMPLATE).await;
    report(&api, "t", 0).await;
    api.post_artifact("shop", fingerprint(1)).await.created();
    api.put_environment("prod", "server").await.created();
    let bar = api.get("/attestations/acme/shop/trail/t/bar").await.ok();
    let by_id = format!("/attestations/acme?attestation_id={}", bar[0]["attestation_id"].as_str().unwrap());
    let running = [0, 1].map(|n| json!({"digests": {"app": fingerprint(n)}, "creationTimestamp": 1}));
    let running = api.put("/environments/acme/prod/report/server").json(json!({ "artifacts": running }));
    let of_artifact = format!("/attestations/acme/shop/artifact/{}/foo", fingerprint(0));
    let step = async |what: &str, request: RequestBuilder, never: &str| {
        asked.lock().unwrap().clear();
        let reply = request.await;
        assert!(reply.status.is_success(), "{what}: {reply:?}");
        let asked = asked.lock().unwrap();
        assert!(!asked.contains(never), "{what}: {asked:?}");
    };
    step("a report", running, "artifacts_by_id").await;
    step("a snapshot", api.get("/snapshots/acme/prod/1"), "trail_contents").await;
    step("an attestation", api.get(&by_id), "trail_contents").await;
    step("attestations of an artifact", api.get(&of_artifact), "artifacts").await;
    let snapshot = api.get("/snapshots/acme/prod/1").await.ok();
    let flows =
        snapshot["artifacts"].as_array().unwrap().iter().map(|one| one["flows"][0]["trail_name"].clone());
    assert_eq!(Vec::from_iter(flows), [json!("t"), Value::Null]);
}

#[tokio::test]
async fn a_list_of_large_records_is_read_while_it_is_sent_and_never_held_whole() {
    let (api, counted) = on_sqlite().await;
    api.given_flow("shop", TEMPLATE).await;
    for number in 0..LARGE {
        let template = |filling: &str| format!("{TEMPLATE}# {number} {}\n", filling.repeat(500_000));
        api.put_trail_with_template("shop", &format!("t{number}"), &template("x")).await.created();
        report(&api, &format!("t{number}"), number).await;
        api.given_flow(&format!("flow{number}"), &template("y")).await;
    }
    // The artifacts of a list carry no template: what is large there stays out of the answer.
    for (path, items, least) in [
        ("/trails/acme?per_page=100", LARGE, LARGE * 500_000),
        ("/trails/acme/shop", LARGE, LARGE * 500_000),
        ("/flows/acme", LARGE + 1, LARGE * 500_000),
        ("/artifacts/acme?per_page=1000", LARGE, 0),
    ] {
        let (text, statements) = sent(&counted, path).await;
        let answer: Value = serde_json::from_slice(&text).unwrap();
        let listed = answer.get("data").unwrap_or(&answer).as_array().unwrap();
        assert_eq!(listed.len(), items, "{path}");
        assert!(text.len() >= least, "{path}: {} bytes", text.len());
        if least > 0 {
            // At most two fit a read of a megabyte: with the first piece, most are still to be read.
            let (first, last) = (statements[0], statements[statements.len() - 1]);
            assert!(last >= first + 3, "{path}: {statements:?}");
        }
    }
}
