//! Environments as gates: what leaves a running artifact non-compliant, whatever is reported beside it or after it.

use crate::support::prelude::*;

const RUNNING: [ReportedArtifact<'static>; 1] = [('1', &[10])];

/// A report of the artifact `digit` to the flow `web`, with this much more.
fn artifact(digit: char, more: Value) -> Value {
    let mut body = json!({
        "fingerprint": fingerprint(digit), "filename": "api:1", "build_url": "http://b/1", "commit_url": "http://c/1",
    });
    let Value::Object(more) = more else { panic!("{more} is no object") };
    body.as_object_mut().expect("an object").extend(more);
    body
}

impl Api {
    async fn report_to_web(&self, digit: char, more: Value) {
        let request = self.post("/artifacts/acme/web").json(artifact(digit, more));
        request.await.expect(201, json!({"message": "OK"}));
    }

    async fn attest_in_web(&self, trail: &str, data: Value) {
        self.post_attestation("web", trail, "generic")
            .data_json(&data)
            .await
            .expect_exactly(201, json!("OK"));
    }

    /// An environment `prod` where every artifact needs provenance and compliance in its trail, and the flow `web`.
    async fn given_gate(&self) {
        self.given_environments("docker", &["prod"]).await;
        self.given_flow_with_template().await;
        for (name, text) in [("provenance", PROVENANCE), ("compliance", COMPLIANCE)] {
            self.put_policy(name, text).await.created();
            self.attach("prod", name).await;
        }
    }

    /// Reports that the artifact 1 runs, and what the latest snapshot then says.
    async fn expect_at_gate(&self, compliant: bool) {
        let reply = self.report_running("prod", &RUNNING).await;
        assert!(reply.status.is_success(), "{reply:?}");
        let expected = json!({"compliant": compliant, "artifacts": [{"compliant": compliant}]});
        self.get("/snapshots/acme/prod/-1").await.expect(200, expected);
        self.get("/environments/acme/prod").await.expect(200, json!({"state": compliant}));
    }
}

#[apply(on_every_store)]
async fn a_report_without_a_trail_does_not_stand_for_the_trail_where_the_artifact_fails(api: Api) {
    api.given_gate().await;
    api.given_artifact('1', "t").await;
    api.given_test('1', "t", false).await;
    api.expect_at_gate(false).await;
    api.report_to_web('1', json!({})).await;
    api.expect_at_gate(false).await;
    api.report_to_web('1', json!({"template_reference_name": "other"})).await;
    api.expect_at_gate(false).await;
    // A later trail does.
    api.given_artifact('1', "t2").await;
    api.given_test('1', "t2", true).await;
    api.expect_at_gate(true).await;
}

#[apply(on_every_store)]
async fn content_needs_what_its_trail_asks_of_it_though_it_is_reported_again_without_its_name(api: Api) {
    api.given_gate().await;
    api.given_artifact('1', "t").await;
    api.expect_at_gate(false).await;
    // Without its name, and under another that asks for nothing.
    api.report_to_web('1', json!({"trail_name": "t"})).await;
    api.expect_at_gate(false).await;
    api.report_to_web('1', json!({"trail_name": "t", "template_reference_name": "other"})).await;
    api.expect_at_gate(false).await;
    let api_status = json!({"artifacts_statuses": {"api": {"status": "INCOMPLETE", "artifact_fingerprint": fingerprint('1')}}});
    api.get("/trails/acme/web/t").await.expect(200, json!({"compliance_status": api_status}));
    api.given_test('1', "t", true).await;
    api.expect_at_gate(true).await;
    api.given_test('1', "t", false).await;
    api.expect_at_gate(false).await;
}

#[apply(on_every_store)]
async fn a_report_of_other_content_by_its_name_lifts_nothing_that_content_needs(api: Api) {
    api.given_gate().await;
    api.given_artifact('1', "wrong").await;
    api.given_artifact('2', "wrong").await;
    api.expect_at_gate(false).await;
    api.report_to_web('1', json!({"trail_name": "wrong", "template_reference_name": "other"})).await;
    api.given_test('2', "wrong", true).await;
    api.expect_at_gate(false).await;
    let incomplete = json!({"state": "INCOMPLETE"});
    let path = format!("/artifacts/acme/web/fingerprint/{}", fingerprint('1'));
    api.get(&path).await.expect(200, incomplete);
    let asserted = format!("/asserts/acme/fingerprint/{}", fingerprint('1'));
    api.get(&asserted).await.expect(200, json!({"compliant": false}));
    api.given_test('1', "wrong", true).await;
    api.expect_at_gate(true).await;
    api.get(&path).await.expect(200, json!({"state": "COMPLIANT"}));
    api.get(&asserted).await.expect(200, json!({"compliant": true}));
    // A report without a name calls it nothing else.
    api.given_artifact('1', "right").await;
    api.given_artifact('2', "right").await;
    api.report_to_web('1', json!({"trail_name": "right"})).await;
    api.expect_at_gate(false).await;
}

#[apply(on_every_store)]
async fn a_commit_told_with_its_message_alone_is_the_artifacts_commit(api: Api) {
    api.given_gate().await;
    let commit = "c".repeat(40);
    let info = json!({"sha1": commit, "message": "m", "author": "a", "branch": "main", "timestamp": 1000});
    let more = json!({"trail_name": "t", "template_reference_name": "api", "git_commit_info": info});
    api.report_to_web('1', more).await;
    let data = |compliant: bool| {
        json!({
            "attestation_name": "test", "target_artifacts": ["api"], "git_commit_info": info, "is_compliant": compliant,
        })
    };
    api.attest_in_web("t", data(false)).await;
    api.expect_at_gate(false).await;
    let trail = api.get("/trails/acme/web/t").await.ok();
    let statuses = &trail["compliance_status"]["artifacts_statuses"];
    assert_eq!(statuses.as_object().map(serde_json::Map::len), Some(1), "{statuses}");
    assert_eq!(statuses["api"]["status"], "NON-COMPLIANT", "{statuses}");
    let by_commit = json!([{"fingerprint": fingerprint('1'), "git_commit": commit}]);
    api.get("/artifacts/acme/web/commit_sha/ccccc").await.expect(200, by_commit);
    let latest = api.get(&format!("/artifacts/acme/web/{}/latest_commit", fingerprint('1'))).await;
    latest.expect_exactly(200, json!({"latest_commit": commit}));
    api.attest_in_web("t", data(true)).await;
    api.expect_at_gate(true).await;
}

#[apply(on_every_store)]
async fn of_two_commits_the_artifacts_own_counts(api: Api) {
    api.given_gate().await;
    let (own, other) = ("a".repeat(40), "c".repeat(40));
    let info = json!({"sha1": other, "message": "m", "author": "a", "branch": "main", "timestamp": 1000});
    let more = json!({
        "trail_name": "t", "template_reference_name": "api", "git_commit": own, "git_commit_info": info,
    });
    api.report_to_web('1', more).await;
    let latest = api.get(&format!("/artifacts/acme/web/{}/latest_commit", fingerprint('1'))).await;
    latest.expect_exactly(200, json!({"latest_commit": own}));
    let found = json!([{"git_commit": own, "git_commit_info": {"sha1": other}}]);
    api.get("/artifacts/acme/web/commit_sha/aaaaa").await.expect(200, found);
    api.get("/artifacts/acme/web/commit_sha/ccccc").await.expect_exactly(200, json!([]));
}

#[apply(on_every_store)]
async fn content_that_still_stands_in_its_trail_stays_what_was_said_of_it_by_another_name(api: Api) {
    api.given_gate().await;
    let built = |name: &str, commit: &str| json!({"trail_name": "t", "template_reference_name": name, "git_commit": commit.repeat(40)});
    let attestation = |commit: &str, compliant: bool| {
        json!({
            "attestation_name": "test", "target_artifacts": ["api"], "git_commit_info": {"sha1": commit.repeat(40)},
            "is_compliant": compliant,
        })
    };
    api.report_to_web('1', built("api", "1")).await;
    api.attest_in_web("t", attestation("1", false)).await;
    api.expect_at_gate(false).await;
    api.report_to_web('1', built("other", "1")).await;
    api.expect_at_gate(false).await;
    api.report_to_web('2', built("api", "2")).await;
    api.attest_in_web("t", attestation("2", true)).await;
    api.expect_at_gate(false).await;
    let line = json!({"attestation_name": "test", "is_compliant": false, "unexpected": false});
    let statuses = json!({
        "api": {"status": "COMPLIANT", "artifact_fingerprint": fingerprint('2')},
        "other": {
            "status": "NON-COMPLIANT", "artifact_fingerprint": fingerprint('1'), "attestations_statuses": [line],
        },
    });
    let status = json!({"status": "NON-COMPLIANT", "artifacts_statuses": statuses});
    api.get("/trails/acme/web/t").await.expect(200, json!({"compliance_status": status}));
    let artifact = json!({"state": "NON-COMPLIANT", "evidence": {"test": {"is_compliant": false}}});
    let path = format!("/artifacts/acme/web/fingerprint/{}", fingerprint('1'));
    api.get(&path).await.expect(200, artifact);
    // Once it is replaced there too, the trail is rid of it; where it runs, it still fails.
    api.report_to_web('3', built("other", "3")).await;
    let status = json!({"status": "COMPLIANT"});
    api.get("/trails/acme/web/t").await.expect(200, json!({"compliance_status": status}));
    api.expect_at_gate(false).await;
    api.attest_in_web("t", attestation("1", true)).await;
    api.expect_at_gate(true).await;
}

#[apply(on_every_store)]
async fn a_commit_is_compared_as_it_was_told(api: Api) {
    api.given_gate().await;
    for (number, commit) in ["abcdef123456", &"ABCDE".repeat(8), "r1234 \u{fc}"].into_iter().enumerate() {
        let trail = format!("t{number}");
        let info = json!({"sha1": commit});
        let more = json!({"trail_name": trail, "template_reference_name": "api", "git_commit_info": info});
        api.report_to_web('1', more).await;
        let attestation = |compliant: bool| {
            json!({
                "attestation_name": "test", "target_artifacts": ["api"], "git_commit_info": info,
                "is_compliant": compliant,
            })
        };
        api.attest_in_web(&trail, attestation(false)).await;
        api.expect_at_gate(false).await;
        let failing = json!({"api": {"status": "NON-COMPLIANT", "artifact_fingerprint": fingerprint('1')}});
        let status = json!({"status": "NON-COMPLIANT", "artifacts_statuses": failing});
        let path = format!("/trails/acme/web/{trail}");
        let trail_now = api.get(&path).await;
        trail_now.expect(200, json!({"compliance_status": status}));
        let path = format!("/artifacts/acme/web/fingerprint/{}", fingerprint('1'));
        let shown = json!({"state": "NON-COMPLIANT", "git_commit": "", "git_commit_info": {"sha1": commit}});
        api.get(&path).await.expect(200, shown);
        let path = format!("/attestations/acme/web/artifact/{}/test", fingerprint('1'));
        let found = api.get(&path).await.ok();
        assert_eq!(found[0]["is_compliant"], false, "{found}");
        api.attest_in_web(&trail, attestation(true)).await;
        api.expect_at_gate(true).await;
    }
    // Look-ups are by hashes in full.
    api.get("/artifacts/acme/web/commit_sha/abcde").await.expect_exactly(200, json!([]));
    let latest = api.get(&format!("/artifacts/acme/web/{}/latest_commit", fingerprint('1'))).await;
    latest.expect_exactly(200, json!({"latest_commit": ""}));
}

#[apply(on_every_store)]
async fn content_without_a_name_in_a_new_trail_needs_what_that_asks_of_every_name_it_was_given(api: Api) {
    api.given_gate().await;
    api.given_artifact('1', "t").await;
    api.given_test('1', "t", false).await;
    api.expect_at_gate(false).await;
    api.report_to_web('1', json!({"trail_name": "t2"})).await;
    api.expect_at_gate(false).await;
    let snapshot = api.get("/snapshots/acme/prod/-1").await.ok().to_string();
    assert!(
        snapshot.contains("It is evaluated as 'api' too, which an earlier report called it"),
        "{snapshot}"
    );
    // The trail and the artifact say the same.
    let why = "It is evaluated as 'api' too, which an earlier report called it";
    let unnamed = json!({fingerprint('1'): {"status": "INCOMPLETE", "unexpected": true, "state_info": why}});
    let artifact = format!("/artifacts/acme/web/fingerprint/{}", fingerprint('1'));
    api.get(&artifact).await.expect(200, json!({"state": "INCOMPLETE", "trail_name": "t2"}));
    let status = json!({"status": "INCOMPLETE", "artifacts_statuses": unnamed});
    api.get("/trails/acme/web/t2").await.expect(200, json!({"compliance_status": status}));
    api.given_test('1', "t2", true).await;
    api.expect_at_gate(true).await;
    // Another name is another one, and takes none of them away.
    api.report_to_web('1', json!({"trail_name": "t3", "template_reference_name": "other"})).await;
    api.expect_at_gate(true).await;
    api.report_to_web('1', json!({"trail_name": "t4"})).await;
    api.expect_at_gate(false).await;
    api.given_test('1', "t4", true).await;
    api.expect_at_gate(true).await;
    // So it is of reports to no trail, which need what every name requires.
    for (digit, names, compliant) in [
        ('2', &["api", "other", ""][..], false),
        ('3', &["api", "other"], false),
        ('4', &["other", ""], true),
    ] {
        for name in names {
            let name = Some(name).filter(|name| !name.is_empty());
            let named = name.map(|name| json!({"template_reference_name": name}));
            api.report_to_web(digit, named.unwrap_or_else(|| json!({}))).await;
        }
        let state = if compliant { "COMPLIANT" } else { "INCOMPLETE" };
        let artifact = format!("/artifacts/acme/web/fingerprint/{}", fingerprint(digit));
        api.get(&artifact).await.expect(200, json!({"state": state, "trail_name": ""}));
        let gate = api.get(&format!("/asserts/acme/fingerprint/{}", fingerprint(digit))).await.ok();
        assert_eq!(gate["compliant"], compliant, "{names:?} {gate}");
    }
}

#[apply(on_every_store)]
async fn content_without_a_name_is_what_its_trails_called_it_in_all_that_is_said_of_it(api: Api) {
    api.given_gate().await;
    api.given_artifact('1', "t").await;
    api.given_test('1', "t", true).await;
    let commit = json!({"sha1": "c".repeat(40)});
    api.report_to_web('1', json!({"trail_name": "t2", "git_commit_info": commit})).await;
    api.given_test('1', "t2", true).await;
    api.expect_at_gate(true).await;
    // By the name that it has not there.
    let failing = json!({
        "attestation_name": "scan", "target_artifacts": ["api"], "git_commit_info": commit, "is_compliant": false,
    });
    api.attest_in_web("t2", failing).await;
    api.expect_at_gate(false).await;

    // A report to no trail gives no name to content that is evaluated in one.
    api.report_to_web('1', json!({"trail_name": "t3"})).await;
    api.expect_at_gate(false).await;
    api.report_to_web('1', json!({"template_reference_name": "junk"})).await;
    api.expect_at_gate(false).await;
}

#[apply(on_every_store)]
async fn a_report_without_a_name_or_a_trail_does_not_hide_that_the_flow_expects_the_artifact(api: Api) {
    api.given_gate().await;
    api.report_to_web('1', json!({})).await;
    api.expect_at_gate(true).await;
    api.report_to_web('1', json!({"template_reference_name": "api"})).await;
    api.expect_at_gate(false).await;
    api.report_to_web('1', json!({})).await;
    api.expect_at_gate(false).await;
    let artifact = format!("/artifacts/acme/web/fingerprint/{}", fingerprint('1'));
    api.get(&artifact).await.expect(200, json!({"state": "INCOMPLETE", "trail_name": ""}));
}

impl Api {
    /// Why the artifact 1 is not compliant in its trail, as the latest snapshot shows it.
    async fn reason_at_gate(&self) -> Value {
        let snapshot = self.get("/snapshots/acme/prod/-1").await.ok();
        let decisions = snapshot["artifacts"][0]["policy_decisions"].as_array().expect("decisions").iter();
        let decision = decisions.into_iter().find(|decision| decision["policy_name"] == "compliance");
        decision.expect("a policy")["rule_evaluations"][1]["resolutions"][0]["context"]["reason"].clone()
    }
}

#[apply(on_every_store)]
async fn a_snapshot_names_the_name_that_an_artifact_fails_by_where_its_newest_report_has_another(api: Api) {
    api.given_gate().await;
    let by_name = json!("It is evaluated as 'api' too, which an earlier report called it");
    // A requirement of its own report needs no reason.
    api.given_artifact('1', "t").await;
    api.expect_at_gate(false).await;
    assert_eq!(api.reason_at_gate().await, Value::Null);
    for name in [json!({"template_reference_name": "other"}), json!({})] {
        let mut more = name;
        more["trail_name"] = json!("t");
        api.report_to_web('1', more).await;
        api.expect_at_gate(false).await;
        assert_eq!(api.reason_at_gate().await, by_name);
    }
    // Nor does what failed.
    api.given_test('1', "t", false).await;
    api.expect_at_gate(false).await;
    assert_eq!(api.reason_at_gate().await, Value::Null);
    // A name from another trail of the flow counts, too.
    api.given_artifact('1', "t2").await;
    api.report_to_web('1', json!({"trail_name": "t3"})).await;
    api.expect_at_gate(false).await;
    assert_eq!(api.reason_at_gate().await, by_name);
}

#[apply(on_every_store)]
async fn what_a_trail_lacks_is_not_said_to_be_for_an_artifacts_name(api: Api) {
    api.given_gate().await;
    let text = "version: 1\ntrail:\n  attestations:\n    - name: review\n      type: generic\n";
    let flow = api.put_flow("web").template(text).await;
    assert!(flow.status.is_success(), "{flow:?}");
    // In no trail, and in some.
    for (named, unnamed) in
        [(json!({}), json!({})), (json!({"trail_name": "t"}), json!({"trail_name": "t2"}))]
    {
        let mut named = named;
        named["template_reference_name"] = json!("api");
        api.report_to_web('1', named).await;
        api.report_to_web('1', unnamed).await;
        api.expect_at_gate(false).await;
        assert_eq!(api.reason_at_gate().await, Value::Null);
    }
}

#[apply(on_every_store)]
async fn a_commit_in_full_is_the_same_in_whatever_case(api: Api) {
    api.given_gate().await;
    for (number, length) in [40, 64].into_iter().enumerate() {
        let trail = format!("t{number}");
        let (lower, upper) = ("ab".repeat(length / 2), "AB".repeat(length / 2));
        let more = json!({
            "trail_name": trail, "template_reference_name": "api", "git_commit_info": {"sha1": lower},
        });
        api.report_to_web('1', more).await;
        let attestation = |commit: &str, compliant: bool| {
            json!({
                "attestation_name": "test", "target_artifacts": ["api"], "git_commit_info": {"sha1": commit},
                "is_compliant": compliant,
            })
        };
        api.attest_in_web(&trail, attestation(&lower, true)).await;
        api.expect_at_gate(true).await;
        api.attest_in_web(&trail, attestation(&upper, false)).await;
        api.expect_at_gate(false).await;
        let found = api.get(&format!("/attestations/acme/web/artifact/{}/test", fingerprint('1'))).await;
        let found = found.ok();
        let newest = Vec::from_iter(found.as_array().unwrap().iter().take(2));
        for (one, commit) in newest.iter().zip([&upper, &lower]) {
            assert_eq!(one["git_commit_info"]["sha1"], **commit, "{found}");
        }
        assert_eq!(newest.len(), 2, "{found}");
        api.attest_in_web(&trail, attestation(&upper, true)).await;
        api.expect_at_gate(true).await;
    }
}

/// Content 1 has an earlier name in its trail, and content 2 a name without a commit.
#[apply(on_every_store)]
async fn what_failed_by_a_name_counts_and_is_listed_and_overridden_without_a_template_too(api: Api) {
    let commit = "c".repeat(40);
    for (digit, more) in [
        ('1', json!({"trail_name": "t0", "template_reference_name": "app", "git_commit": commit})),
        ('1', json!({"trail_name": "t1", "git_commit": commit})),
        ('2', json!({"trail_name": "t2", "template_reference_name": "app"})),
    ] {
        api.post("/artifacts/acme/plain").json(artifact(digit, more)).await.created();
    }
    for (digit, trail) in [('1', "t1"), ('2', "t2")] {
        let attest = async |kind: &str, data: Value| {
            api.post_attestation("plain", trail, kind).data_json(&data).await.created();
        };
        let failed = json!({
            "attestation_name": "unit", "target_artifacts": ["app"], "git_commit_info": {"sha1": commit},
            "is_compliant": false,
        });
        attest("generic", failed).await;
        let path = format!("/artifacts/acme/plain/fingerprint/{}", fingerprint(digit));
        api.get(&path).await.expect(200, json!({"state": "NON-COMPLIANT", "trail_name": trail}));
        let gate = api.get(&format!("/asserts/acme/fingerprint/{}", fingerprint(digit))).await.ok();
        assert_eq!(gate["compliant"], false, "{gate}");
        let failed = json!({"compliance_status": {"status": "NON-COMPLIANT"}});
        api.get(&format!("/trails/acme/plain/{trail}")).await.expect(200, failed);
        let list = format!("/attestations/acme/plain/artifact/{}/unit", fingerprint(digit));
        let listed = api.get(&list).await.ok();
        assert_eq!(listed[0]["is_compliant"], false, "{listed}");
        let overriding = json!({
            "attestation_name": "unit", "artifact_fingerprint": fingerprint(digit), "reason": "seen",
            "new_compliance_status": true, "original_attestation_type": "generic",
        });
        let request = api.post(&format!("/attestations/acme/plain/trail/{trail}/override")).json(overriding);
        request.await.created();
        let after = api.get(&list).await.ok();
        let original = &after[0]["original_attestation_id"];
        assert!(original.is_string() && *original == listed[0]["attestation_id"], "{after}");
        api.get(&path).await.expect(200, json!({"state": "COMPLIANT"}));
    }
}
