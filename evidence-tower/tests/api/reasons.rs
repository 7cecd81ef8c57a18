//! The reason of each verdict: overrides, allowlist entries, rules, and what the gate and snapshots say against an artifact.

use crate::support::prelude::*;

impl Api {
    /// The gate's response about artifact 1 to this query.
    async fn gate(&self, query: &str) -> Value {
        self.get(&format!("/asserts/acme/fingerprint/{}{query}", fingerprint('1'))).await.ok()
    }

    /// The only artifact in the latest snapshot of `prod`.
    async fn shown_in_prod(&self) -> Value {
        self.get("/snapshots/acme/prod/-1").await.ok()["artifacts"][0].clone()
    }
}

#[apply(on_every_store)]
async fn an_override_says_who_and_why_wherever_its_verdict_is_shown(api: Api) {
    api.given_flow_with_template().await;
    api.given_artifact('1', "t").await;
    api.given_test('1', "t", false).await;
    for (verdict, state) in [(true, "COMPLIANT"), (false, "NON-COMPLIANT")] {
        let body = json!({
            "attestation_name": "test", "reason": "seen by hand", "new_compliance_status": verdict,
            "original_attestation_type": "generic", "artifact_fingerprint": fingerprint('1'),
        });
        api.post("/attestations/acme/web/trail/t/override").json(body).await.created();
        let lines = json!([{
            "attestation_name": "test", "is_compliant": verdict,
            "override_info": "overridden by jane: seen by hand",
        }]);
        let status = json!({"status": state, "attestations_statuses": lines});
        let trail = json!({"compliance_status": {"artifacts_statuses": {"api": status}}});
        api.get("/trails/acme/web/t").await.expect(200, trail);
        let gate = json!({
            "compliant": verdict, "compliance_status": status, "flows": [{"compliance_status": status}],
        });
        api.get(&format!("/asserts/acme/fingerprint/{}", fingerprint('1'))).await.expect(200, gate);
        let artifact = json!({"state": state, "evidence": {"test": {
            "is_compliant": verdict, "override_info": "overridden by jane: seen by hand",
        }}});
        let path = format!("/artifacts/acme/web/fingerprint/{}", fingerprint('1'));
        let artifact = api.get(&path).await.expect(200, artifact).ok();
        let history = artifact["history"].to_string();
        assert!(history.contains("test overridden by jane: seen by hand"), "{history}");
    }
    // A newer report counts again.
    api.given_test('1', "t", true).await;
    let line = api.gate("").await["compliance_status"]["attestations_statuses"][0].clone();
    assert_eq!((line["is_compliant"].clone(), line.get("override_info")), (json!(true), None));
}

#[apply(on_every_store)]
async fn a_long_reason_is_cut_where_the_verdict_is_shown(api: Api) {
    let reason = "é".repeat(65_536);
    let body = json!({
        "attestation_name": "scan", "reason": reason, "new_compliance_status": true,
        "original_attestation_type": "generic",
    });
    api.post("/attestations/acme/shop/trail/t/override").json(body).await.created();
    let trail = api.get("/trails/acme/shop/t").await.ok();
    let info = &trail["compliance_status"]["attestations_statuses"][0]["override_info"];
    assert_eq!(*info, format!("overridden by jane: {}…", "é".repeat(500)));
    assert_eq!(api.get("/attestations/acme/shop/trail/t/scan").await.ok()[0]["reason"], reason);
}

#[apply(on_every_store)]
async fn the_gate_says_what_snapshots_say_against_an_artifact(api: Api) {
    api.given_flow_with_template().await;
    api.given_artifact('1', "t").await;
    api.given_environments("docker", &["prod"]).await;
    let rule = "  attestations:\n    - {name: scan, type: snyk, if: '${{ flow.name == \"web\" }}'}\n";
    for (name, policy) in [("provenance", PROVENANCE), ("scanned", &format!("{COMPLIANCE}{rule}"))] {
        api.put_policy(name, policy).await.created();
        api.attach("prod", name).await;
    }
    api.report_running("prod", &[('1', &[10])]).await.created();
    let missing = "An expected attestation of the artifact or of its trail is missing.";
    let in_flow = format!("the artifact is INCOMPLETE in flow 'web': {missing}");
    let gate = api.gate("").await;
    assert_eq!(gate["reasons_for_incompliance"], json!([in_flow]));
    assert_eq!(
        gate["flows"][0]["flow_reasons_for_non_compliance"],
        json!([{"artifact_compliance_state": "INCOMPLETE", "reason": missing}])
    );
    let snapshot = api.shown_in_prod().await;
    let reasons = json!([
        "policy 'scanned' (version 1): the artifact is INCOMPLETE in trail 't' of flow 'web'",
        "policy 'scanned' (version 1): the attestation 'scan' of type 'snyk' is missing in trail 't' of flow 'web'",
    ]);
    assert_eq!(snapshot["reasons_for_incompliance"], reasons);
    assert_eq!(api.gate("?environment_name=prod").await["reasons_for_incompliance"], reasons);
    assert_eq!(api.gate("?policy_name=scanned").await["reasons_for_incompliance"], reasons);
    assert_eq!(api.gate("?policy_name=provenance").await["reasons_for_incompliance"], json!([]));

    // Each rule is shown beside its result, in the words of the policy.
    let of_gate = api.gate("?policy_name=scanned").await["policy_evaluations"][0]["rule_evaluations"].clone();
    let scanned = snapshot["policy_decisions"].as_array().unwrap();
    let scanned = scanned.iter().find(|decision| decision["policy_name"] == "scanned").unwrap();
    for rules in [&of_gate, &scanned["rule_evaluations"]] {
        let texts = [0, 1, 2].map(|place| rules[place]["rule"]["text"].as_str().unwrap());
        let expected = [
            "provenance: required: false",
            "trail-compliance: required: true",
            "attestations: name: scan, type: snyk, if: ${{ flow.name == \"web\" }}",
        ];
        assert_eq!(texts, expected);
    }
}

#[apply(on_every_store)]
async fn a_snapshot_says_who_allow_listed_an_artifact_and_why(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.put_policy("provenance", PROVENANCE).await.created();
    api.attach("prod", "provenance").await;
    api.report_running("prod", &[('1', &[10])]).await.created();
    let before = api.shown_in_prod().await;
    assert_eq!((before["compliant"].clone(), before.get("allow_listing")), (json!(false), None));
    let mut indexes = Vec::new();
    for why in ["known since May", "known since June"] {
        let entry = json!({
            "artifact_name": "agent", "artifact_fingerprint": fingerprint('1'), "description": why,
            "expires_at": 3_900_000_000_i64,
        });
        api.put("/allowlists/acme/prod").json(entry).await.created();
        api.report_running("prod", &[('1', &[10])]).await.created();
        let snapshot = api.get("/snapshots/acme/prod/-1").await.ok();
        indexes.push((snapshot["index"].clone(), why));
        let gate = api.gate("?environment_name=prod").await;
        assert_eq!(snapshot["artifacts"][0]["compliant"], true);
        assert_eq!(snapshot["artifacts"][0]["reasons_for_incompliance"], json!([]));
        assert_eq!(gate["reasons_for_incompliance"], json!([]));
        assert_eq!(snapshot["artifacts"][0]["allow_listing"], gate["allow_listing"]);
    }
    // Each snapshot shows the entry by which it was evaluated, whatever became of that.
    let path = format!("/allowlists/acme/prod/{}", fingerprint('1'));
    assert!(api.delete(&path).await.status.is_success());
    for (index, why) in indexes {
        let snapshot = api.get(&format!("/snapshots/acme/prod/{index}")).await.ok();
        let listing = &snapshot["artifacts"][0]["allow_listing"];
        let shown = [&listing["allowed_by"], &listing["description"], &listing["expires_at"]];
        assert_eq!(shown, [&json!("jane"), &json!(why), &json!(3_900_000_000_i64)], "{snapshot}");
        assert!(listing["timestamp"].is_number() && listing["allowlist_id"].is_string(), "{listing}");
    }
    api.report_running("prod", &[('1', &[10])]).await.ok();
    let after = api.shown_in_prod().await;
    assert_eq!((after["compliant"].clone(), after.get("allow_listing")), (json!(false), None));
}
