//! Environments whose policies ask for attestations, decisions about controls, and under conditions: from the text that is
//! put, over what is reported, to what snapshots say of it for good.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use evidence_core::Fact;
use evidence_core::environments::replay;
use evidence_core::snapshots::Snapshot;
use futures_util::FutureExt;

use crate::intercepting_store::{Call, InterceptingStore};
use crate::support::prelude::*;
use crate::unreadable::{inject, on_every_store_without_rebuild};

const RUNNING: [ReportedArtifact<'static>; 1] = [('1', &[10])];

/// A policy with these artifact rules.
fn policy(artifacts: &str) -> String {
    format!("_schema: https://example.com/schemas/policy/v1\nartifacts:\n  {artifacts}\n")
}

impl Api {
    /// An environment `prod` with a policy `p` of these rules.
    async fn given_policy(&self, artifacts: &str) {
        self.given_environments("docker", &["prod"]).await;
        self.put_policy("p", &policy(artifacts)).await.created();
        self.attach("prod", "p").await;
    }

    async fn given_control(&self, identifier: &str) {
        self.post_control(identifier).await.created();
    }

    /// Reports artifact 1 to a trail of a flow.
    async fn given_built(&self, flow: &str, trail: &str) {
        self.post_artifact(flow, fingerprint('1'))
            .in_trail(trail)
            .with(json!({"filename": "api"}))
            .await
            .created();
    }

    async fn attest_at(&self, at: &str, kind: &str, data: Value) {
        let path = format!("/attestations/acme/{at}/{kind}");
        self.post(&path).data_json(&data).await.created();
    }

    async fn decide(&self, at: &str, name: &str, control: &str, is_compliant: bool) {
        let data = json!({
            "attestation_name": name, "type_name": "decision", "control": control,
            "attestation_data": {"is_compliant": is_compliant},
        });
        self.attest_at(at, "system", data).await;
    }

    async fn tag_flow(&self, flow: &str, key: &str, value: &str) {
        let tags = json!({"set_tags": {key: value}});
        self.patch(&format!("/tags/acme/flow/{flow}")).json(tags).await.ok();
    }

    /// The first artifact in a snapshot of `prod`: a line for each rule that applies.
    async fn rules_in(&self, snapshot: &str) -> Vec<String> {
        let snapshot = self.get(&format!("/snapshots/acme/prod/{snapshot}")).await.ok();
        lines(&snapshot["artifacts"][0]["policy_decisions"][0])
    }

    /// Reports that the artifact runs, and what the latest snapshot then says.
    async fn expect_rules(&self, compliant: bool, rules: &[&str]) {
        let reply = self.report_running("prod", &RUNNING).await;
        assert!(reply.status.is_success(), "{reply:?}");
        assert_eq!(self.rules_in("-1").await, rules);
        let status = if compliant { "COMPLIANT" } else { "NON-COMPLIANT" };
        let failing = if compliant { json!([]) } else { json!([fingerprint('1')]) };
        let expected = json!({
            "compliant": compliant, "applied_policies": [{"name": "p", "failing_artifacts": failing}],
            "artifacts": [{"compliant": compliant, "policy_decisions": [{"status": status}]}],
        });
        self.get("/snapshots/acme/prod/-1").await.expect(200, expected);
        self.get("/environments/acme/prod").await.expect(200, json!({"state": compliant}));
    }
}

/// A policy decision, as a line for each rule that applies.
fn lines(decision: &Value) -> Vec<String> {
    let rules = decision["rule_evaluations"].as_array().unwrap_or_else(|| panic!("{decision}")).iter();
    let line = |rule: &Value| {
        let resolution = |one: &Value| {
            let flow = one["context"]["flow_name"].as_str().unwrap_or("nowhere");
            let control = one["context"]["for_control"].as_str().map(|control| format!(" {control}"));
            format!("{flow} {}{}", one["type"].as_str().unwrap(), control.unwrap_or_default())
        };
        let resolutions = Vec::from_iter(rule["resolutions"].as_array().unwrap().iter().map(resolution));
        format!(
            "{} {}: {}",
            rule["rule"]["type"].as_str().unwrap(),
            rule["satisfied"],
            resolutions.join(", ")
        )
    };
    rules.filter(|rule| rule["ignored"] == false).map(line).collect()
}

#[apply(on_every_store)]
async fn a_gate_asks_for_a_decision_about_a_control(api: Api) {
    api.given_control("C-1").await;
    api.given_policy("attestations: [{type: decision, for_control: C-1}]").await;
    api.get("/controls/acme/C-1/coverage").await.expect(200, json!({"total": 1, "covered": 1}));
    for (name, text) in [("o", "attestations: [{type: decision, for_control: C-1}]"), ("q", "{}")] {
        api.put_policy(name, &policy(text)).await.created();
    }
    let referencing = json!({"identifier": "C-1", "policies_referencing": ["o", "p"]});
    api.get("/controls/acme/C-1").await.expect(200, referencing.clone());
    api.put("/controls/acme/C-1").json(json!({"description": "d"})).await.expect(200, referencing);
    api.put_policy("o", &policy("{}")).await.ok();
    api.get("/controls/acme/C-1").await.expect(200, json!({"policies_referencing": ["p"]}));
    api.expect_rules(false, &["attestation false: nowhere missing_attestation C-1"]).await;
    api.given_built("web", "t").await;
    api.expect_rules(false, &["attestation false: web missing_attestation C-1"]).await;
    // About another control, and of another trail.
    api.decide("web/trail/t", "go", "C-2", true).await;
    api.decide("web/trail/other", "go", "C-1", true).await;
    api.expect_rules(false, &["attestation false: web missing_attestation C-1"]).await;
    api.decide("web/trail/t", "go", "C-1", false).await;
    api.expect_rules(false, &["attestation false: web non_compliant_attestation C-1"]).await;
    // The newest counts, whatever it is called; the name `go` is about another control since.
    api.decide("web/trail/t", "stop", "C-1", true).await;
    api.decide("web/trail/t", "go", "C-2", true).await;
    // The failed attestation still fails the trail; that is another rule.
    api.expect_rules(true, &["attestation true: web rule_satisfied C-1"]).await;
    let data = json!({
        "attestation_name": "stop", "reason": "r", "new_compliance_status": false,
        "original_attestation_type": "system:decision",
    });
    api.post("/attestations/acme/web/trail/t/override").json(data).await.created();
    api.expect_rules(false, &["attestation false: web non_compliant_attestation C-1"]).await;
}

#[apply(on_every_store)]
async fn a_rule_is_asked_in_each_flow_where_its_condition_holds(api: Api) {
    let rule = "{type: junit, if: \"${{ flow.tags.risk-level > 3 or flow.name in ['shop'] }}\"}";
    api.given_policy(&format!("attestations: [{rule}]")).await;
    // A rule with an unknown condition applies.
    api.expect_rules(false, &["attestation false: nowhere missing_attestation"]).await;
    api.given_built("web", "t").await;
    api.expect_rules(false, &["attestation false: web missing_attestation"]).await;
    api.tag_flow("web", "risk-level", "1").await;
    api.expect_rules(true, &[]).await;
    api.given_built("shop", "t").await;
    api.expect_rules(false, &["attestation false: web rule_not_applicable, shop missing_attestation"]).await;
    let suite = |failures: u64| {
        let suite =
            json!({"name": "s", "failures": failures, "errors": 0, "skipped": 0, "total": 1, "duration": 1});
        json!({"attestation_name": "unit", "junit_results": [suite]})
    };
    api.attest_at("shop/trail/t", "junit", suite(1)).await;
    api.expect_rules(false, &["attestation false: web rule_not_applicable, shop non_compliant_attestation"])
        .await;
    api.attest_at("shop/trail/t", "junit", suite(0)).await;
    api.expect_rules(true, &["attestation true: web rule_not_applicable, shop rule_satisfied"]).await;
    api.tag_flow("web", "risk-level", "10").await;
    api.expect_rules(false, &["attestation false: web missing_attestation, shop rule_satisfied"]).await;
    api.attest_at("web/trail/t", "junit", suite(0)).await;
    api.expect_rules(true, &["attestation true: web rule_satisfied, shop rule_satisfied"]).await;
    api.tag_flow("web", "risk-level", "3.0").await;
    api.expect_rules(true, &["attestation true: web rule_not_applicable, shop rule_satisfied"]).await;
}

#[apply(on_every_store)]
async fn an_exception_waives_a_rule_for_an_artifact_or_for_a_flow(api: Api) {
    let by_name = "{if: \"${{ matches(artifact.name, '^image-2$') }}\"}";
    let by_tag = "{if: \"${{ flow.tags.kind == 'draft' }}\"}";
    api.given_policy(&format!(
        "{{provenance: {{required: true, exceptions: [{{}}, {by_name}]}}, trail-compliance: {{required: true, exceptions: [{by_tag}, {by_name}]}}}}"
    ))
    .await;
    api.report_running("prod", &[('1', &[20]), ('2', &[10])]).await.created();
    let expected = json!({
        "compliant": false, "artifacts": [{"compliant": false, "name": "image-1"}, {"compliant": true, "name": "image-2"}],
    });
    api.get("/snapshots/acme/prod/-1").await.expect(200, expected);
    let failing = json!({"attestation_name": "scan", "is_compliant": false});
    api.report_running("prod", &RUNNING).await.created();
    api.given_built("web", "t").await;
    api.attest_at("web/trail/t", "generic", failing).await;
    let rules = ["provenance true: web rule_satisfied", "trail-compliance false: web non_compliant_in_trail"];
    api.expect_rules(false, &rules).await;
    api.tag_flow("web", "kind", "draft").await;
    api.expect_rules(true, &["provenance true: web rule_satisfied"]).await;
    api.given_built("shop", "t").await;
    let rules = [
        "provenance true: web rule_satisfied, shop rule_satisfied",
        "trail-compliance true: web rule_not_applicable, shop rule_satisfied",
    ];
    api.expect_rules(true, &rules).await;
}

#[apply(on_every_store)]
async fn a_rule_may_ask_for_a_custom_type_and_for_presence_alone(api: Api) {
    for name in ["review", "audit"] {
        let data = json!({"name": name}).to_string();
        api.post("/custom-attestation-types/acme").data_json(&data).await.created();
    }
    let rules = "[{type: 'custom:review'}, {name: scan, type: '*', must_be_compliant: false}]";
    api.given_policy(&format!("attestations: {rules}")).await;
    api.given_built("web", "t").await;
    let custom =
        |name: &str| json!({"attestation_name": "checked", "type_name": name, "attestation_data": {}});
    api.attest_at("web/trail/t", "custom", custom("audit")).await;
    let missing = ["attestation false: web missing_attestation"; 2];
    api.expect_rules(false, &missing).await;
    // A name is of the type that it was reported with last.
    api.attest_at("web/trail/t", "custom", custom("review")).await;
    let failing = json!({
        "attestation_name": "scan", "is_compliant": false, "artifact_fingerprint": fingerprint('1'),
    });
    api.attest_at("web/trail/t", "generic", failing).await;
    api.expect_rules(true, &["attestation true: web rule_satisfied"; 2]).await;
    api.attest_at("web/trail/t", "custom", custom("audit")).await;
    let rules = ["attestation false: web missing_attestation", "attestation true: web rule_satisfied"];
    api.expect_rules(false, &rules).await;
}

#[apply(on_every_store)]
async fn what_a_snapshot_says_of_its_rules_is_what_they_said_then(api: Api) {
    api.given_policy("attestations: [{name: scan, type: generic, if: \"${{ flow.name == 'web' }}\"}]").await;
    api.given_built("web", "t").await;
    let missing = ["attestation false: web missing_attestation"];
    api.expect_rules(false, &missing).await;
    let scan = |is_compliant: bool| json!({"attestation_name": "scan", "is_compliant": is_compliant});
    api.attest_at("web/trail/t", "generic", scan(true)).await;
    assert_eq!(api.rules_in("1").await, missing);
    api.expect_rules(true, &["attestation true: web rule_satisfied"]).await;
    api.attest_at("web/trail/t", "generic", scan(false)).await;
    assert_eq!(api.rules_in("2").await, ["attestation true: web rule_satisfied"]);
    let failed = ["attestation false: web non_compliant_attestation"];
    api.expect_rules(false, &failed).await;
    // A rule about the flow stays one by its other name.
    api.put("/flows/acme/web/rename").json(json!({"new_name": "site"})).await.ok();
    let failed = ["attestation false: site non_compliant_attestation"];
    assert_eq!(api.rules_in("3").await, failed);
    api.expect_rules(false, &failed).await;
    // Its reason says so.
    api.expect_snapshots("prod", 4).await;
}

#[apply(on_every_store)]
async fn a_snapshot_is_taken_when_a_rule_says_something_else_and_not_for_evidence_alone(api: Api) {
    api.given_policy("attestations: [{name: scan, type: generic}, {name: unit, type: generic}]").await;
    api.given_built("web", "t").await;
    api.report_running("prod", &RUNNING).await.created();
    let attest = async |name: &str, is_compliant: bool| {
        let data = json!({"attestation_name": name, "is_compliant": is_compliant});
        api.attest_at("web/trail/t", "generic", data).await;
    };
    attest("other", true).await;
    api.report_running("prod", &RUNNING).await.expect_exactly(200, json!("OK"));
    attest("scan", true).await;
    api.report_running("prod", &RUNNING).await.created();
    let changed = json!({"compliant": false, "artifacts": [{"annotation": {"type": "changed"}}]});
    api.get("/snapshots/acme/prod/-1").await.expect(200, changed);
    attest("scan", true).await;
    api.report_running("prod", &RUNNING).await.expect_exactly(200, json!("OK"));
    attest("unit", true).await;
    api.report_running("prod", &RUNNING).await.created();
    let became = json!({"compliant": true, "artifacts": [{"annotation": {"type": "became-compliant"}}]});
    api.get("/snapshots/acme/prod/-1").await.expect(200, became);
    api.expect_snapshots("prod", 3).await;
}

#[apply(on_every_store)]
async fn an_artifact_on_the_allowlist_may_run_whatever_the_rules_say(api: Api) {
    api.given_policy("attestations: [{name: scan, type: generic}]").await;
    api.given_built("web", "t").await;
    let missing = ["attestation false: web missing_attestation"];
    api.expect_rules(false, &missing).await;
    let allowed =
        json!({"artifact_name": "a", "artifact_fingerprint": fingerprint('1'), "description": "known"});
    api.put("/allowlists/acme/prod").json(allowed).await.created();
    api.report_running("prod", &RUNNING).await.created();
    let expected = json!({
        "compliant": true, "artifacts": [{"compliant": true, "policy_decisions": [{"status": "NON-COMPLIANT"}]}],
    });
    api.get("/snapshots/acme/prod/-1").await.expect(200, expected);
    assert_eq!(api.rules_in("-1").await, missing);
}

impl Api {
    /// Why the first resolution of this rule of the policy is what it is, in the latest snapshot.
    async fn reason_of(&self, rule: usize) -> Value {
        let snapshot = self.get("/snapshots/acme/prod/-1").await.ok();
        let rules = &snapshot["artifacts"][0]["policy_decisions"][0]["rule_evaluations"];
        rules[rule]["resolutions"][0]["context"]["reason"].clone()
    }
}

#[apply(on_every_store)]
async fn a_condition_that_is_unknown_waives_nothing_and_says_why(api: Api) {
    api.given_policy("attestations: [{type: snyk, if: '${{ flow.tags.level < 3 }}'}]").await;
    api.given_built("web", "t").await;
    let missing = ["attestation false: web missing_attestation"];
    let why = |what: &str| format!("the condition 'flow.tags.level < 3' is unknown, because {what}");
    api.expect_rules(false, &missing).await;
    assert_eq!(api.reason_of(2).await, why("the flow has no tag 'level'"));
    api.tag_flow("web", "level", "high").await;
    api.expect_rules(false, &missing).await;
    assert_eq!(api.reason_of(2).await, why("flow.tags.level ('high') is not a number"));
    api.tag_flow("web", "level", "4").await;
    api.expect_rules(true, &[]).await;
    // The reason is the one of then, whatever the tags are now.
    let snapshot = api.get("/snapshots/acme/prod/-2").await.ok();
    let reasons = snapshot["artifacts"][0]["reasons_for_incompliance"].to_string();
    assert!(reasons.contains("flow.tags.level ('high') is not a number"), "{reasons}");
    api.tag_flow("web", "level", "2").await;
    api.expect_rules(false, &missing).await;
    assert_eq!(api.reason_of(2).await, Value::Null);
}

#[apply(on_every_store)]
async fn an_exception_about_what_is_missing_waives_nothing(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.put_policy("p", &policy("{}")).await.created();
    api.attach("prod", "p").await;
    let conditions = [
        "flow.name != 'critical'",
        "not flow.name == 'critical'",
        "not matches(flow.name, '^critical')",
        "not flow.name in ['critical']",
        "flow.tags.risk != 'high'",
        "not flow.tags.risk > 3",
        "not exists(flow.tags.risk)",
        "not (flow.name == 'critical' and flow.tags.risk == 'high')",
    ];
    for rule in ["provenance", "trail-compliance"] {
        for condition in conditions {
            let text = policy(&format!(
                "{rule}: {{required: true, exceptions: [{{if: \"${{{{ {condition} }}}}\"}}]}}"
            ));
            assert!(api.put_policy("p", &text).await.status.is_success());
            api.report_running("prod", &RUNNING).await;
            let snapshot = json!({"compliant": false, "artifacts": [{"compliant": false}]});
            api.get("/snapshots/acme/prod/-1").await.expect(200, snapshot);
            let reason = api.reason_of(usize::from(rule != "provenance")).await.to_string();
            assert!(reason.contains("the artifact was reported in no flow"), "{condition}: {reason}");
        }
    }
}

#[apply(on_every_store)]
async fn a_new_version_and_an_attached_policy_are_evaluated_with_their_conditions(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.given_built("web", "t").await;
    api.report_running("prod", &RUNNING).await.created();
    api.put_policy("p", &policy("attestations: [{type: snyk}]")).await.created();
    api.attach("prod", "p").await;
    assert_eq!(api.rules_in("2").await, ["attestation false: web missing_attestation"]);
    let text = policy("attestations: [{type: snyk, if: \"${{ flow.name == 'shop' }}\"}]");
    api.put_policy("p", &text).await.expect(200, json!({"versions": [{}, {"policy_yaml": text}]}));
    let expected = json!({
        "compliant": true, "applied_policies": [{
            "version": 2,
            "policy_dump": {"artifacts": {"attestations": [{"if_condition": {"text": "flow.name == 'shop'"}}]}},
        }],
    });
    api.get("/snapshots/acme/prod/3").await.expect(200, expected);
}

#[apply(on_every_store)]
async fn a_policy_with_a_mistake_in_a_condition_is_refused_and_nothing_is_stored(api: Api) {
    let table = [
        (
            "attestations: [{type: junit, if: '${{ flow.name }}'}]",
            "artifacts.attestations[0].if: Expected what is true or false, as a comparison is (at character 1 of the \
             expression) [input: ${{ flow.name }}]",
        ),
        (
            "attestations: [{type: junit, if: '${{ flow.name == ! }}'}]",
            "artifacts.attestations[0].if: Unexpected character '!' (at character 14 of the expression) \
             [input: ${{ flow.name == ! }}]",
        ),
        (
            "provenance: {exceptions: [{}, {if: \"${{ matches(artifact.name, '(') }}\"}]}",
            "artifacts.provenance.exceptions[1].if: error: unclosed group (at character 24 of the expression) \
             [input: ${{ matches(artifact.name, '(') }}]",
        ),
        (
            "trail-compliance: {exceptions: [{if: \"${{ 'high' < 3 }}\"}]}",
            "artifacts.trail-compliance.exceptions[0].if: It compares a text that is not a number with a number, which is never \
             known (at character 1 of the expression) [input: ${{ 'high' < 3 }}]",
        ),
    ];
    for (artifacts, text) in table {
        let text = format!("1 validation errors for Policy\n{text}");
        let refused = json!({"message": "Input payload validation failed", "errors": {"policy_file": text}});
        api.put_policy("p", &policy(artifacts)).await.expect_exactly(400, refused);
    }
    let unknown = json!({
        "message": "Input payload validation failed",
        "errors": {"policy_file": "for_control: there is no control 'C-2'"},
    });
    api.given_control("C-1").await;
    let rules =
        |control: &str| policy(&format!("attestations: [{{type: decision, for_control: {control}}}]"));
    api.put_policy("p", &rules("C-2")).await.expect_exactly(400, unknown.clone());
    api.get("/policies/acme").await.expect_exactly(200, json!([]));
    api.put_policy("p", &rules("C-1")).await.created();
    api.put_policy("p", &rules("C-2")).await.expect_exactly(400, unknown);
    api.post("/controls/acme/C-1/archive").await.ok();
    api.put_policy("p", &rules("C-1")).await.expect(200, json!({"versions": [{"version": 1}]}));
}

#[apply(with_every_store)]
async fn what_is_reported_while_a_report_is_evaluated_is_no_part_of_it(_: Api, store: Arc<dyn Store>) {
    let (armed, inner) = (Arc::new(AtomicBool::new(false)), Arc::clone(&store));
    let evidence = Evidence::new(inner, Settings::default());
    let meanwhile = Arc::new(Api::new(evidence, Mount::Tower, "meanwhile").await);
    let is_armed = Arc::clone(&armed);
    let before = move |call: Call| {
        let now = call == Call::Query("trail_contents") && is_armed.swap(false, Ordering::SeqCst);
        let api = Arc::clone(&meanwhile);
        async move {
            if now {
                let data = json!({"attestation_name": "scan", "is_compliant": true});
                api.attest_at("web/trail/t", "generic", data).await;
            }
        }
        .boxed()
    };
    let interposed = InterceptingStore::new(Arc::clone(&store), before);
    let api =
        Api::new(Evidence::new(Arc::new(interposed), Settings::default()), Mount::Tower, "interposed").await;
    api.given_policy("attestations: [{name: scan, type: generic}]").await;
    api.given_built("web", "t").await;
    armed.store(true, Ordering::SeqCst);
    api.expect_rules(false, &["attestation false: web missing_attestation"]).await;
    assert!(!armed.load(Ordering::SeqCst));
    api.expect_rules(true, &["attestation true: web rule_satisfied"]).await;
    expect_replays(&*store, 2).await;
}

/// Asserts that `prod` has so many snapshots, and that each follows from what the ledger had.
async fn expect_replays(store: &dyn Store, snapshots: u64) {
    let environment = store.environment(acme(store).await, "prod").await.unwrap().unwrap();
    assert_eq!(environment.status.snapshots, snapshots);
    for index in 1..=snapshots {
        assert_eq!(differences(store, index).await, Vec::<String>::new(), "{index}");
    }
}

/// In what a snapshot of `prod` differs from what follows from the ledger.
async fn differences(store: &dyn Store, index: u64) -> Vec<String> {
    let acme = acme(store).await;
    let environment = store.environment(acme, "prod").await.unwrap().unwrap();
    replay(store, (acme, environment.record.id, index), Arc::new(MemoryStore::new())).await.unwrap()
}

#[test]
fn what_changes_while_a_report_is_evaluated_leaves_a_verdict_that_follows_from_the_ledger() {
    for (query, change) in [
        ("provenance", "report"),
        ("provenance", "name"),
        ("provenance", "allow"),
        ("trail_contents", "policy"),
        ("flows_by_id", "tag"),
    ] {
        with_every_store(async |_, store| {
            let armed = Arc::new(AtomicBool::new(false));
            let evidence = Evidence::new(Arc::clone(&store), Settings::default());
            let meanwhile = Arc::new(Api::new(evidence, Mount::Tower, "meanwhile").await);
            let is_armed = Arc::clone(&armed);
            let before = move |call: Call| {
                let now = call == Call::Query(query) && is_armed.swap(false, Ordering::SeqCst);
                let api = Arc::clone(&meanwhile);
                async move {
                    if now {
                        api.change(change).await;
                    }
                }
                .boxed()
            };
            let interposed = InterceptingStore::new(Arc::clone(&store), before);
            let evidence = Evidence::new(Arc::new(interposed), Settings::default());
            let api = Api::new(evidence, Mount::Tower, "interposed").await;
            let template = "version: 1\ntrail:\n  artifacts:\n    - name: api\n      attestations:\n        - {name: test, type: generic}\n";
            api.given_flow("web", template).await;
            let rule = "{name: scan, type: generic, if: \"${{ flow.tags.kind != 'draft' }}\"}";
            api.given_policy(&format!("{{trail-compliance: {{required: true}}, attestations: [{rule}]}}"))
                .await;
            api.given_built("web", "t").await;
            armed.store(true, Ordering::SeqCst);
            api.report_running("prod", &RUNNING).await.created();
            assert!(!armed.load(Ordering::SeqCst), "{change}");
            // The ledger index does not determine a flow's tags, so the difference shows.
            if change == "tag" {
                assert_ne!(differences(&*store, 1).await, Vec::<String>::new());
            } else {
                expect_replays(&*store, 1).await;
            }
        });
    }
}

impl Api {
    /// Changes something that the evaluation of what runs in `prod` rests on.
    async fn change(&self, change: &str) {
        match change {
            "report" => self.given_built("web", "u").await,
            "name" => self.given_artifact('1', "t").await,
            "allow" => {
                let allowed = json!({"artifact_name": "a", "artifact_fingerprint": fingerprint('1'), "description": "known"});
                self.put("/allowlists/acme/prod").json(allowed).await.created();
            }
            "policy" => {
                self.put_policy("p", &policy("{provenance: {required: true}}")).await.ok();
            }
            "tag" => self.tag_flow("web", "kind", "draft").await,
            other => panic!("{other}"),
        }
    }
}

/// Whatever is reported of what runs while it is evaluated tells at the next report, and is no reason to begin again.
#[test]
fn an_environment_is_evaluated_while_its_artifacts_are_reported_again_and_again() {
    with_every_store(async |_, store| {
        let (armed, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let evidence = Evidence::new(Arc::clone(&store), Settings::default());
        let meanwhile = Arc::new(Api::new(evidence, Mount::Tower, "meanwhile").await);
        let (is_armed, times) = (Arc::clone(&armed), Arc::clone(&asked));
        let before = move |call: Call| {
            let now = call == Call::Query("provenance") && is_armed.load(Ordering::SeqCst);
            let (api, times) = (Arc::clone(&meanwhile), Arc::clone(&times));
            async move {
                if now {
                    times.fetch_add(1, Ordering::SeqCst);
                    for change in ["report", "name", "allow"] {
                        api.change(change).await;
                    }
                }
            }
            .boxed()
        };
        let interposed = InterceptingStore::new(Arc::clone(&store), before);
        let evidence = Evidence::new(Arc::new(interposed), Settings::default());
        let api = Api::new(evidence, Mount::Tower, "interposed").await;
        api.given_flow("web", "version: 1").await;
        api.given_policy("{trail-compliance: {required: true}}").await;
        armed.store(true, Ordering::SeqCst);
        // It was neither reported nor allowed when the first evaluation began.
        for (running, compliant) in [(&RUNNING[..], false), (&[], true), (&RUNNING, true)] {
            api.report_running("prod", running).await.created();
            let snapshot = api.get("/snapshots/acme/prod/@%7Bnow%7D").await.ok();
            assert_eq!(snapshot["compliant"], compliant, "{snapshot}");
        }
        api.report_running("prod", &RUNNING).await.created();
        assert_eq!(asked.load(Ordering::SeqCst), 3, "what runs is evaluated once a report");
        expect_replays(&*store, 4).await;
    });
}

#[apply(with_every_store)]
async fn a_verdict_can_be_reached_again_from_what_the_ledger_had(api: Api, store: Arc<dyn Store>) {
    let rule = "{name: scan, type: generic, if: \"${{ flow.tags.kind != 'draft' }}\"}";
    api.given_control("C-1").await;
    api.given_policy(&format!("attestations: [{rule}, {{type: decision, for_control: C-1}}]")).await;
    api.report_running("prod", &RUNNING).await.created();
    api.given_built("web", "t").await;
    let data = |is_compliant: bool| json!({"attestation_name": "scan", "is_compliant": is_compliant});
    api.attest_at("web/trail/t", "generic", data(false)).await;
    api.report_running("prod", &RUNNING).await.created();
    api.tag_flow("web", "kind", "draft").await;
    api.decide("web/trail/t", "go", "C-1", true).await;
    api.report_running("prod", &[('1', &[10]), ('2', &[11])]).await.created();
    api.tag_flow("web", "kind", "final").await;
    api.put_policy("p", &policy(&format!("attestations: [{rule}]"))).await.ok();
    let allowed =
        json!({"artifact_name": "a", "artifact_fingerprint": fingerprint('1'), "description": "known"});
    api.put("/allowlists/acme/prod").json(allowed).await.created();
    api.report_running("prod", &RUNNING).await.created();
    api.attest_at("web/trail/t", "generic", data(true)).await;
    api.report_running("prod", &RUNNING).await.created();
    expect_replays(&*store, 6).await;
}

#[test]
fn a_verdict_that_does_not_follow_from_the_ledger_shows() {
    on_every_store_without_rebuild(async |api, store, acme| {
        api.given_policy("attestations: [{name: scan, type: generic}]").await;
        api.given_built("web", "t").await;
        api.report_running("prod", &RUNNING).await.created();
        let prod = store.environment(acme, "prod").await.unwrap().unwrap().record.id;
        let taken = store.snapshot(acme, prod, 1).await.unwrap().unwrap().record;
        type Change<'c> = &'c dyn Fn(&mut Snapshot);
        let told = |index: u64, change: Change<'_>| {
            let mut snapshot = Snapshot { index, ..taken.clone() };
            snapshot.changes[0].from = index;
            change(&mut snapshot);
            snapshot
        };
        let cases: [(Change<'_>, &[&str]); 4] = [
            (&|_| {}, &[]),
            (&|snapshot| snapshot.compliant = true, &["the snapshot is recorded as true"]),
            (&|snapshot| snapshot.changes[0].inputs = None, &["image-1: other inputs"]),
            (
                &|snapshot| {
                    snapshot.changes[0].compliant = Some(true);
                    snapshot.changes[0].violates = vec![];
                    snapshot.changes[0].outcomes[0].rules = "--+".into();
                },
                &["image-1: other verdict, violated policies, rules"],
            ),
        ];
        for (index, (change, expected)) in (2..).zip(cases) {
            inject(store, acme, Fact::SnapshotTaken { snapshot: told(index, change) }).await;
            assert_eq!(
                replay(store, (acme, prod, index), Arc::new(MemoryStore::new())).await.unwrap(),
                expected,
                "{index}"
            );
        }
    });
}
