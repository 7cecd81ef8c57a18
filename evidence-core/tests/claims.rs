//! Tests the verdicts of attestations by type, from the request to the recorded attestation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;

use serde_json::{Value, from_value, json};

use evidence_conformance::memory::MemoryStore;
use evidence_core::artifacts::ReportArtifact;
use evidence_core::attestation_types::PostAttestationType;
use evidence_core::attestations::{
    Attestation, AttestationBody, AttestationInput, Claim, Claimed, Details, Generic, GetTrailAttestation,
    Junit, Override, OverrideDetails, PostAttestation, PullRequests, Verdict,
};
use evidence_core::auth::Principal;
use evidence_core::context::Context;
use evidence_core::decode;
use evidence_core::fact::RecordKind;
use evidence_core::json::{JsonText, check};
use evidence_core::operation::{Document, Form, Json};
use evidence_core::rules::compliance::State;
use evidence_core::seed::Seed;
use evidence_core::trails::GetTrail;
use evidence_core::{Error, Evidence, EvidenceService, Precondition, Result, Settings};
use schemars::JsonSchema;
use serde::Deserialize;

/// Returns a service with `jane` and her organization `acme`.
async fn service() -> (Evidence, Principal) {
    let service = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
    let seed = Seed { user: "jane".parse().unwrap(), orgs: vec!["acme".parse().unwrap()], api_key: None };
    service.seed(&seed).await.unwrap();
    let jane = service.principal_of_user("jane").await.unwrap();
    (service, jane)
}

fn named<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

/// Adds an attestation to the trail `t` of the flow `shop`.
async fn attest<C: Claim>(service: &Evidence, jane: &Principal, document: Value) -> Result<()> {
    let input = AttestationInput::<C>::read(check(document.to_string().as_bytes()).unwrap()).unwrap();
    let post = PostAttestation::<C>::new(named("acme"), named("shop"), named("t"));
    service.call(jane, post, C::Body::of(input)).await.map(|_| ())
}

async fn recorded(service: &Evidence, name: &str) -> Vec<Attestation> {
    let jane = service.store().user("jane").await.unwrap().unwrap();
    let org = service.store().org_role("acme", jane.id).await.unwrap().unwrap().organization.id;
    let flow = service.store().flow(org, "shop").await.unwrap().unwrap().record.id;
    let trail = service.store().trail(org, flow, "t").await.unwrap().unwrap().record.id;
    let named = service.store().attestations(org, &[trail], name).await.unwrap();
    let mut recorded = Vec::new();
    for one in named {
        recorded.extend(service.store().attestation(org, one.row.id).await.unwrap());
    }
    recorded
}

async fn state(service: &Evidence, jane: &Principal) -> State {
    let trail = GetTrail::new(named("acme"), named("shop"), named("t"));
    service.call(jane, trail, ()).await.unwrap().envelope.trail.compliance_state
}

/// Returns the type and the verdict of one attestation with this document.
async fn verdict<C: Claim>(mut document: Value) -> (String, bool) {
    let (service, jane) = service().await;
    document["attestation_name"] = json!("a");
    attest::<C>(&service, &jane, document).await.unwrap();
    let recorded = recorded(&service, "a").await.remove(0);
    (recorded.kind, recorded.is_compliant)
}

#[tokio::test]
async fn a_generic_claim_carries_its_verdict() {
    for compliant in [true, false] {
        let found = verdict::<Generic>(json!({"is_compliant": compliant})).await;
        assert_eq!(found, ("generic".to_owned(), compliant));
    }
}

#[tokio::test]
async fn test_results_are_compliant_when_nothing_failed_or_broke() {
    let numbers = |failures: i64, errors: i64, skipped: i64, total: i64| json!({"name": "s", "failures": failures, "errors": errors, "skipped": skipped, "total": total, "duration": 1.5});
    let suite = |failures: i64, errors: i64| numbers(failures, errors, 3, 9);
    let table = [
        (json!([]), true),
        (json!([suite(0, 0)]), true),
        (json!([suite(1, 0)]), false),
        (json!([suite(0, 1)]), false),
        (json!([suite(0, 0), suite(0, 2)]), false),
        (json!([numbers(0, 0, 0, 0)]), true),
        (json!([numbers(0, 0, 9, 9)]), true),
        (json!([numbers(0, 0, 10, 9)]), false),
        (json!([numbers(0, 0, -1, 9)]), false),
        (json!([numbers(0, 0, 0, -1)]), false),
        (json!([numbers(-1, 0, 0, 9)]), false),
        (json!([numbers(0, -1, 0, 9)]), false),
    ];
    for (suites, compliant) in table {
        let found = verdict::<Junit>(json!({"junit_results": suites})).await;
        assert_eq!(found, ("junit".to_owned(), compliant), "{suites}");
    }
}

#[tokio::test]
async fn pull_requests_are_compliant_when_there_is_one_whatever_its_state() {
    let closed = json!({"url": "u", "state": "closed", "merge_commit": ""});
    let nameless = json!({"url": "", "state": "MERGED", "merge_commit": ""});
    for (pull_requests, compliant) in [
        (json!([]), false),
        (Value::Null, false),
        (json!([null]), false),
        (json!([nameless]), false),
        (json!([closed]), true),
        (json!([nameless, closed]), true),
    ] {
        let claim = json!({"git_provider": "azure", "pull_requests": pull_requests});
        assert_eq!(verdict::<PullRequests>(claim).await, ("pull_request".to_owned(), compliant));
    }
}

fn overriding(name: &str, verdict: bool) -> Value {
    json!({
        "attestation_name": name, "reason": "seen by hand", "new_compliance_status": verdict,
        "original_attestation_type": "generic",
    })
}

#[tokio::test]
async fn an_override_names_what_it_overrides_and_decides_until_another_report() {
    let (service, jane) = service().await;
    let failed = json!({"attestation_name": "scan", "is_compliant": false});
    attest::<Generic>(&service, &jane, failed.clone()).await.unwrap();
    assert_eq!(state(&service, &jane).await, State::NonCompliant);
    attest::<Override>(&service, &jane, overriding("scan", true)).await.unwrap();
    assert_eq!(state(&service, &jane).await, State::Compliant);
    // An override of an override refers to the original report.
    attest::<Override>(&service, &jane, overriding("scan", true)).await.unwrap();

    let found = recorded(&service, "scan").await;
    let original = found.last().unwrap().id;
    let details = OverrideDetails {
        reason: "seen by hand".to_owned(),
        original_attestation_type: "generic".to_owned(),
        original_attestation_id: Some(original),
    };
    for one in &found[..2] {
        assert_eq!(one.details, Details::Override(details.clone()));
        assert!(one.is_override() && one.is_compliant && one.kind == "generic");
    }
    assert!(!found[2].is_override());
    let get = GetTrailAttestation {
        org: named("acme"),
        flow_name: named("shop"),
        trail_name: named("t"),
        attestation_name: named("scan"),
    };
    let mut answered = service.call(&jane, get, ()).await.unwrap().items;
    let answered = serde_json::to_value(answered.next().await.unwrap().unwrap()).unwrap();
    assert_eq!(answered["reason"], "seen by hand");
    assert_eq!(answered["original_attestation_id"], json!(original));

    attest::<Generic>(&service, &jane, failed).await.unwrap();
    assert_eq!(state(&service, &jane).await, State::NonCompliant);
}

#[tokio::test]
async fn an_override_is_of_its_own_scope_and_needs_no_original() {
    let (service, jane) = service().await;
    let at = |mut document: Value, commit: &str| {
        document["target_artifacts"] = json!(["cli"]);
        document["git_commit_info"] = json!({"sha1": commit.repeat(40)});
        document
    };
    attest::<Override>(&service, &jane, overriding("scan", false)).await.unwrap();
    assert_eq!(state(&service, &jane).await, State::NonCompliant);
    attest::<Override>(&service, &jane, overriding("scan", true)).await.unwrap();
    assert_eq!(state(&service, &jane).await, State::Compliant);
    attest::<Generic>(&service, &jane, at(json!({"attestation_name": "scan", "is_compliant": false}), "a"))
        .await
        .unwrap();
    for (commit, overridden, expected) in [("b", false, State::NonCompliant), ("a", true, State::Compliant)] {
        attest::<Override>(&service, &jane, at(overriding("scan", true), commit)).await.unwrap();
        let Details::Override(details) = recorded(&service, "scan").await.remove(0).details else {
            panic!("an override")
        };
        assert_eq!(details.original_attestation_id.is_some(), overridden, "{commit}");
        assert_eq!(state(&service, &jane).await, expected, "{commit}");
    }
}

#[tokio::test]
async fn an_override_finds_what_was_said_of_the_same_content_under_another_name() {
    let (service, jane) = service().await;
    let report = async |name: &str| {
        let input = json!({
            "trail_name": "t", "template_reference_name": name, "fingerprint": "a".repeat(64), "filename": "app",
            "build_url": "https://ci.example.com/1", "commit_url": "https://git.example.com/1",
        });
        let operation = ReportArtifact { org: named("acme"), flow_name: named("shop") };
        service.call(&jane, operation, Json(from_value(input).unwrap())).await.unwrap();
    };
    let on_it = |mut document: Value| {
        document["artifact_fingerprint"] = json!("a".repeat(64));
        document
    };
    report("cli").await;
    let failed = on_it(json!({"attestation_name": "scan", "is_compliant": false}));
    attest::<Generic>(&service, &jane, failed).await.unwrap();
    report("app").await;
    attest::<Override>(&service, &jane, on_it(overriding("scan", true))).await.unwrap();
    let found = recorded(&service, "scan").await;
    let Details::Override(details) = &found[0].details else { panic!("an override") };
    assert_eq!(details.original_attestation_id, Some(found[1].id));
}

#[tokio::test]
async fn an_override_finds_what_was_said_of_the_same_artifact_by_another_way_of_naming_it() {
    let by_name = |mut document: Value, name: &str| {
        document["target_artifacts"] = json!([name]);
        document["git_commit_info"] = json!({"sha1": "c".repeat(40)});
        document
    };
    let by_content = |mut document: Value, digit: &str| {
        document["artifact_fingerprint"] = json!(digit.repeat(64));
        document
    };
    let failed = json!({"attestation_name": "scan", "is_compliant": false});
    let passed = || overriding("scan", true);
    for (said, over, is_of_it) in [
        (by_name(failed.clone(), "cli"), by_content(passed(), "a"), true),
        (by_content(failed.clone(), "a"), by_name(passed(), "cli"), true),
        (by_name(failed.clone(), "cli"), by_name(passed(), "app"), true),
        (by_name(failed.clone(), "cli"), by_content(passed(), "b"), false),
        (by_name(failed.clone(), "cli"), by_name(passed(), "awaited"), false),
        (by_name(failed.clone(), "cli"), passed(), false),
        (failed.clone(), by_content(passed(), "a"), false),
    ] {
        let (service, jane) = service().await;
        for (name, digit) in [("cli", "a"), ("app", "a"), ("other", "b")] {
            let input = json!({
                "trail_name": "t", "template_reference_name": name, "fingerprint": digit.repeat(64), "filename": "app",
                "git_commit": "c".repeat(40), "build_url": "https://ci.example.com/1", "commit_url": "https://git.example.com/1",
            });
            let operation = ReportArtifact { org: named("acme"), flow_name: named("shop") };
            service.call(&jane, operation, Json(from_value(input).unwrap())).await.unwrap();
        }
        attest::<Generic>(&service, &jane, said.clone()).await.unwrap();
        attest::<Override>(&service, &jane, over.clone()).await.unwrap();
        let found = recorded(&service, "scan").await;
        let Details::Override(details) = &found[0].details else { panic!("an override") };
        let original = is_of_it.then_some(found[1].id);
        assert_eq!(details.original_attestation_id, original, "{said} {over}");
        let state = state(&service, &jane).await;
        assert_eq!(state.is_compliant(), is_of_it, "{said} {over}");
    }
}

#[tokio::test]
async fn what_reporters_say_overrides_nothing() {
    let (service, jane) = service().await;
    let said =
        json!({"override": true, "type": "override", "reason": "x", "original_attestation_type": "generic"});
    let failed = json!({"attestation_name": "scan", "is_compliant": false, "user_data": said});
    attest::<Generic>(&service, &jane, failed).await.unwrap();
    assert!(!recorded(&service, "scan").await[0].is_override());
    assert_eq!(state(&service, &jane).await, State::NonCompliant);
}

#[test]
fn the_fields_of_an_override_are_checked() {
    let table = [
        (json!({}), "reason"),
        (json!({"reason": 1}), "reason"),
        (json!({"reason": "r", "new_compliance_status": "yes"}), "new_compliance_status"),
        (json!({"reason": "r", "new_compliance_status": true}), "original_attestation_type"),
    ];
    for (document, field) in table {
        assert_eq!(decode::from_value::<Override>(&document).unwrap_err().field(), field, "{document}");
    }
    let of = |kind: &str| {
        let document =
            json!({"reason": "r", "new_compliance_status": true, "original_attestation_type": kind});
        decode::from_value::<Override>(&document).map(|_| ()).map_err(|misfit| misfit.field())
    };
    let longest = format!("custom:{}", "x".repeat(255));
    for kind in
        ["generic", "junit", "snyk", "pull_request", "jira", "sonar", "custom:x", "system:x", &longest]
    {
        assert_eq!(of(kind), Ok(()), "{kind}");
    }
    for kind in [
        "",
        "Generic",
        "generic\n",
        "custom",
        "custom:",
        "system:",
        "custom:x\n",
        "custom: x",
        "other:x",
        &format!("{longest}x"),
    ] {
        assert_eq!(of(kind), Err("original_attestation_type".to_owned()), "{kind}");
    }
}

/// A claim that is evaluated against the latest version of a custom type.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Reviewed {
    type_name: String,
}

/// The number of evaluations.
static EVALUATED: AtomicUsize = AtomicUsize::new(0);

impl Claim for Reviewed {
    const OPERATION: &'static str = "post_reviewed_attestation";
    const PATH: &'static str = "/attestations/{org}/{flow_name}/trail/{trail_name}/reviewed";
    const SUMMARY: &'static str = "For tests";
    const SCHEMA: &'static str = "ReviewedAttestationPostInput";
    type Body = Form<AttestationInput<Self>>;

    async fn evaluate(&self, _: &Claimed<'_>, cx: &Context<'_>) -> Result<Verdict> {
        let known = cx.store().attestation_type(cx.org()?, &self.type_name).await?;
        let known = known.ok_or_else(|| Error::invalid("type_name", "No such type"))?;
        if EVALUATED.fetch_add(1, Ordering::Relaxed) == 0 {
            // Simulates a concurrent write by someone else.
            let version = evidence_core::fact::Fact::AttestationTypeVersioned {
                record: evidence_core::attestation_types::AttestationType {
                    version: 2,
                    ..known.record.clone()
                },
                version: cx
                    .store()
                    .attestation_type_versions_by_number(cx.org()?, &[(known.record.id, 1)])
                    .await?
                    .into_iter()
                    .map(|version| evidence_core::attestation_types::AttestationTypeVersion {
                        version: 2,
                        ..version
                    })
                    .next()
                    .ok_or(Error::Forbidden)?,
            };
            let mut draft = evidence_core::context::Draft::default();
            draft.fact(version);
            cx.record(draft).await?;
        }
        let preconditions =
            vec![Precondition::Revision(RecordKind::AttestationType, known.record.id, known.revision)];
        let details = Details::Other(JsonText::of(&json!({"type_version": known.record.version})).unwrap());
        Ok(Verdict { preconditions, ..Verdict::of(format!("custom:{}", self.type_name), true, details) })
    }
}

#[tokio::test]
async fn a_claim_is_evaluated_again_where_what_its_verdict_rests_on_changed() {
    let (service, jane) = service().await;
    let document = json!({"attestation_name": "a", "type_name": "review"});
    let refused = attest::<Reviewed>(&service, &jane, document.clone()).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    let post: PostAttestationType = from_value(json!({"org": "acme"})).unwrap();
    let input = Document::read(check(br#"{"name": "review"}"#).unwrap()).expect("a type");
    service.call(&jane, post, Form::of(input)).await.unwrap();
    attest::<Reviewed>(&service, &jane, document).await.unwrap();
    let recorded = recorded(&service, "a").await;
    assert_eq!((recorded.len(), EVALUATED.load(Ordering::Relaxed)), (1, 2));
    assert_eq!(recorded[0].details, Details::Other(JsonText::of(&json!({"type_version": 2})).unwrap()));
    assert_eq!(recorded[0].kind, "custom:review");
}
