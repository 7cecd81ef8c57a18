//! The deployment gate: an artifact asserted by its flows, by an environment, and by policies.

use crate::bytes_read::{forget, measured};
use crate::intercepting_store::take_counts;
use crate::support::prelude::*;

impl Api {
    /// The assertion about artifact 1 for this query.
    async fn asserted(&self, query: &str) -> Value {
        self.get(&format!("/asserts/acme/fingerprint/{}{query}", fingerprint('1'))).await.ok()
    }
}

/// A policy that asks for an attestation of this name where the flow is tagged so.
fn scan(name: &str) -> String {
    format!(
        "_schema: https://example.com/v1\nartifacts:\n  attestations:\n    - name: {name}\n      type: generic\n      if: ${{{{ flow.tags.kind != 'draft' and matches(artifact.name, '^api:') }}}}\n"
    )
}

#[apply(on_every_store)]
async fn an_artifact_is_asserted_in_each_flow_it_was_reported_to(api: Api) {
    api.given_flow_with_template().await;
    api.given_artifact('1', "t").await;
    let missing = json!({"attestation_name": "test", "attestation_type": "generic", "status": "MISSING", "is_compliant": null, "unexpected": false});
    let status = json!({
        "artifact_fingerprint": fingerprint('1'), "status": "INCOMPLETE", "is_compliant": false, "unexpected": false,
        "attestations_statuses": [missing],
    });
    let first = json!({
        "scope": "flow", "fingerprint": fingerprint('1'), "flow": "web", "trail": "t", "compliant": false,
        "compliance_status": status,
        "flows": [{"flow": "web", "trail": "t", "compliant": false, "compliance_status": status}],
    });
    let asserted = api.get(&format!("/asserts/acme/fingerprint/{}", fingerprint('1'))).await;
    let asserted = asserted.expect(200, first).ok();
    for absent in ["environment", "policy_evaluations", "allow_listing"] {
        assert_eq!(asserted.get(absent), None, "{absent}");
    }
    let page = asserted["html_url"].as_str().unwrap();
    assert!(page.contains(&format!("/acme/flows/web/artifacts/{}?artifact_id=", fingerprint('1'))), "{page}");
    assert_eq!(asserted["flows"][0]["html_url"], page);
    api.given_test('1', "t", true).await;
    assert_eq!(api.asserted("").await["compliant"], true);

    let report =
        api.post_artifact("shop", fingerprint('1')).with(json!({"filename": "api:1", "trail_name": "u"}));
    report.await.created();
    api.post_attestation("shop", "u", "generic")
        .data_json(json!({"attestation_name": "audit", "is_compliant": false}))
        .await
        .created();
    let both = api.asserted("").await;
    let told = |flow: &Value| (flow["flow"].clone(), flow["compliant"].clone());
    let flows = Vec::from_iter(both["flows"].as_array().unwrap().iter().map(told));
    assert_eq!(flows, [(json!("web"), json!(true)), (json!("shop"), json!(false))]);
    assert_eq!((&both["compliant"], &both["flow"]), (&json!(false), &json!("web")));
    // Attestations of its trail count for it, and are shown with it.
    let lines = &both["flows"][1]["compliance_status"]["attestations_statuses"];
    assert_eq!((&lines[0]["attestation_name"], &lines[0]["is_compliant"]), (&json!("audit"), &json!(false)));
    assert_eq!(api.asserted("?flow_name=web").await["compliant"], true);
    assert_eq!(api.asserted("?flow_name=shop").await["flow"], "shop");
}

#[apply(on_every_store)]
async fn a_report_to_a_flow_as_a_whole_is_asserted_without_lines(api: Api) {
    api.post_artifact("web", fingerprint('1')).with(json!({"filename": "api:1"})).await.created();
    let asserted = api.asserted("").await;
    assert_eq!((&asserted["trail"], &asserted["compliant"]), (&json!(""), &json!(true)));
    assert_eq!(asserted["compliance_status"], Value::Null);
}

#[apply(on_every_store)]
async fn an_environment_asserts_by_its_policies_and_its_allowlist(api: Api) {
    api.given_flow_with_template().await;
    api.given_artifact('1', "t").await;
    api.given_environments("docker", &["prod", "free"]).await;
    for (name, text) in [("compliance", COMPLIANCE), ("scanned", &scan("scan"))] {
        api.put_policy(name, text).await.created();
        api.attach("prod", name).await;
    }
    // Without policies the flows decide.
    let free = api.asserted("?environment_name=free").await;
    assert_eq!((&free["compliant"], free.get("policy_evaluations")), (&json!(false), None));
    assert_eq!((&free["scope"], &free["environment"]), (&json!("environment"), &json!("free")));
    assert_eq!(free["compliance_status"], api.asserted("").await["compliance_status"]);
    let statuses = |asserted: &Value| {
        let policies = asserted["policy_evaluations"].as_array().unwrap().iter();
        Vec::from_iter(policies.map(|one| format!("{} {}", one["policy_name"], one["status"])))
    };
    let gate = api.asserted("?environment_name=prod").await;
    assert_eq!(gate["compliant"], false);
    assert_eq!(statuses(&gate), [r#""compliance" "NON-COMPLIANT""#, r#""scanned" "NON-COMPLIANT""#]);
    let rules = &gate["policy_evaluations"][1]["rule_evaluations"];
    assert_eq!(rules[2]["rule"]["definition"]["name"], "scan");
    let condition = "flow.tags.kind != 'draft' and matches(artifact.name, '^api:')";
    let why = format!("the condition '{condition}' is unknown, because the flow has no tag 'kind'");
    let context = json!({"flow_name": "web", "trail_name": "t", "artifact_status": null, "reason": why});
    let resolution = json!({"type": "missing_attestation", "context": context});
    assert_eq!(rules[2]["resolutions"], json!([resolution]));
    api.given_test('1', "t", true).await;
    assert_eq!(api.asserted("?environment_name=free").await["compliant"], true);
    let tags = json!({"set_tags": {"kind": "draft"}});
    api.patch("/tags/acme/flow/web").json(&tags).await.ok();
    assert_eq!(api.asserted("?environment_name=prod").await["compliant"], true);
    api.patch("/tags/acme/flow/web").json(json!({"remove_tags": ["kind"]})).await.ok();
    let allowed =
        json!({"artifact_name": "a", "artifact_fingerprint": fingerprint('1'), "description": "it is known"});
    api.put("/allowlists/acme/prod").json(&allowed).await.created();
    let gate = api.asserted("?environment_name=prod").await;
    assert_eq!(gate["compliant"], true);
    assert_eq!(statuses(&gate), [r#""compliance" "COMPLIANT""#, r#""scanned" "NON-COMPLIANT""#]);
    assert_eq!(gate["allow_listing"]["description"], "it is known");
    assert!(
        gate["allow_listing"]["allowlist_id"].is_string() && gate["allow_listing"]["timestamp"].is_number()
    );
    // It is allowed there alone.
    assert_eq!(api.asserted("?policy_name=scanned").await["compliant"], false);
}

#[apply(on_every_store)]
async fn policies_assert_in_the_order_in_which_they_are_named_attached_or_not(api: Api) {
    api.given_artifact('1', "t").await;
    for (name, text) in [("b", PROVENANCE), ("a", &scan("scan"))] {
        api.put_policy(name, text).await.created();
    }
    let asserted = api.asserted("?policy_name=b&policy_name=a&policy_name=b").await;
    assert_eq!((&asserted["scope"], &asserted["compliant"]), (&json!("policy"), &json!(false)));
    let told =
        |one: &Value| (one["policy_name"].clone(), one["policy_version"].clone(), one["status"].clone());
    let policies = Vec::from_iter(asserted["policy_evaluations"].as_array().unwrap().iter().map(told));
    let told = |name: &str, status: &str| (json!(name), json!(1), json!(status));
    assert_eq!(policies, [told("b", "COMPLIANT"), told("a", "NON-COMPLIANT")]);
    let attest = api.post_attestation("web", "t", "generic");
    let data = json!({"attestation_name": "scan", "is_compliant": true}).to_string();
    attest.data_json(&data).await.created();
    assert_eq!(api.asserted("?policy_name=b&policy_name=a").await["compliant"], true);
}

#[apply(on_every_store)]
async fn what_cannot_be_asserted_says_why(api: Api) {
    api.given_artifact('1', "t").await;
    api.given_environments("docker", &["prod"]).await;
    api.given_flow("empty", "version: 1").await;
    let of = |digit: char, query: &str| format!("/asserts/acme/fingerprint/{}{query}", fingerprint(digit));
    let text = "Cannot specify both 'environment_name' and 'policy_name' at the same time";
    let both =
        json!({"message": text, "errors": {"query.environment_name": text, "query.policy_name": text}});
    api.get(&of('1', "?environment_name=prod&policy_name=p")).await.expect_exactly(400, both);
    let table = [
        (of('2', ""), "Artifact not found", "fingerprint"),
        (of('2', "?environment_name=prod"), "Artifact not found", "fingerprint"),
        (of('1', "?flow_name=empty"), "Artifact not found", "fingerprint"),
        (of('1', "?flow_name=none"), "Flow not found", "query.flow_name"),
        (of('1', "?environment_name=none"), "Environment not found", "query.environment_name"),
        (of('1', "?policy_name=none"), "Policy not found", "query.policy_name"),
    ];
    for (path, message, field) in table {
        let reply = api.get(&path).await;
        let errors = reply.json()["errors"].clone();
        assert!(errors[field].is_string(), "{path}: {errors}");
        reply.expect(404, json!({ "message": message }));
    }
    for short in ["abcde", &"g".repeat(64)] {
        let refused = json!({"message": "Input payload validation failed"});
        api.get(&format!("/asserts/acme/fingerprint/{short}")).await.expect(400, refused);
    }
}

#[apply(on_every_store)]
async fn what_is_allowed_may_run_though_nobody_reported_it(api: Api) {
    api.given_environments("docker", &["prod", "test"]).await;
    api.put_policy("provenance", PROVENANCE).await.created();
    let waived =
        format!("{PROVENANCE}    exceptions:\n      - if: ${{{{ matches(artifact.name, '^agent$') }}}}\n");
    api.put_policy("waived", &waived).await.created();
    for policy in ["provenance", "waived"] {
        api.attach("prod", policy).await;
    }
    let allowed =
        json!({"artifact_name": "agent", "artifact_fingerprint": fingerprint('1'), "description": "ours"});
    api.put("/allowlists/acme/prod").json(allowed).await.created();
    let asserted = api.asserted("?environment_name=prod").await;
    let expected = [
        ("scope", json!("environment")),
        ("compliant", json!(true)),
        ("flow", json!("")),
        ("trail", json!("")),
        ("html_url", json!("")),
        ("compliance_status", Value::Null),
        ("flows", json!([])),
    ];
    for (field, value) in expected {
        assert_eq!(asserted[field], value, "{field}");
    }
    assert_eq!(asserted["allow_listing"]["description"], "ours");
    assert_eq!(asserted["policy_evaluations"][0]["status"], "NON-COMPLIANT");
    // It is called as whoever allowed it calls it.
    assert_eq!(asserted["policy_evaluations"][1]["status"], "COMPLIANT");
    let of_one = format!("/asserts/acme/fingerprint/{}", fingerprint('1'));
    for elsewhere in ["", "?environment_name=test", "?policy_name=provenance"] {
        let missing = json!({"message": "Artifact not found"});
        api.get(&format!("{of_one}{elsewhere}")).await.expect(404, missing);
    }
    // Nor to the flow that is looked at, whatever others it was reported to.
    api.given_flow("empty", "version: 1").await;
    assert_eq!(api.asserted("?environment_name=prod&flow_name=empty").await, asserted);
    api.given_artifact('1', "t").await;
    assert_eq!(api.asserted("?environment_name=prod&flow_name=empty").await, asserted);
    let missing = json!({"message": "Artifact not found"});
    api.get(&format!("{of_one}?environment_name=test&flow_name=empty")).await.expect(404, missing);
}

#[apply(with_every_store)]
async fn an_environment_without_policies_asks_not_what_an_artifact_is_called(
    api: Api,
    store: Arc<dyn Store>,
) {
    api.given_artifact('1', "t").await;
    api.given_environments("docker", &["prod", "free"]).await;
    api.put_policy("scanned", &scan("scan")).await.created();
    api.attach("prod", "scanned").await;
    let (api, answered) = measured(&store).await;
    for (environment, reports) in [("prod", 1), ("free", 0)] {
        forget(&answered);
        api.asserted(&format!("?environment_name={environment}")).await;
        assert_eq!(take_counts(&answered, ["artifacts_by_id"]), [reports], "{environment}");
    }
}

#[apply(on_every_store)]
async fn a_logical_environment_asks_the_policies_of_its_members(api: Api) {
    api.given_artifact('1', "t").await;
    api.given_environments("docker", &["prod", "test", "gone"]).await;
    api.given_environments("logical", &["all"]).await;
    for (environment, policy, text) in [
        ("prod", "provenance", PROVENANCE),
        ("test", "scanned", &scan("scan")),
        ("gone", "other", &scan("other")),
    ] {
        api.put_policy(policy, text).await.created();
        api.attach(environment, policy).await;
        api.put("/environments/acme/all/join").json(json!({"physical_env_name": environment})).await.ok();
    }
    api.put("/environments/acme/gone/archive").await.ok();
    let asserted = async || {
        let asserted = api.asserted("?environment_name=all").await;
        let policies = asserted["policy_evaluations"].as_array().unwrap().iter();
        let told = |one: &Value| format!("{} {}", one["policy_name"], one["status"]);
        (asserted["compliant"] == true, Vec::from_iter(policies.map(told)))
    };
    let provenance = r#""provenance" "COMPLIANT""#.to_owned();
    let scanned = |status: &str| format!("\"scanned\" \"{status}\"");
    assert_eq!(asserted().await, (false, vec![provenance.clone(), scanned("NON-COMPLIANT")]));
    // An allowlist entry of one member does not count in another.
    let allowed =
        json!({"artifact_name": "a", "artifact_fingerprint": fingerprint('1'), "description": "known"});
    api.put("/allowlists/acme/test").json(&allowed).await.created();
    assert_eq!(asserted().await, (false, vec![provenance.clone(), scanned("NON-COMPLIANT")]));
    // It has no allowlist of its own.
    api.put("/allowlists/acme/all").json(&allowed).await.expect_field_error(400, "env_name");
    assert_eq!(api.get("/allowlists/acme").await.ok().as_array().unwrap().len(), 1);
    api.post_generic_attestation("web", "scan", true).await.created();
    assert_eq!(asserted().await, (true, vec![provenance, scanned("COMPLIANT")]));
}

/// One member has policies, the next has none: for that one the flows decide, as they do where it is asked alone.
#[apply(on_every_store)]
async fn members_without_policies_ask_the_flows_beside_the_policies_of_others(api: Api) {
    api.given_flow_with_template().await;
    api.given_artifact('1', "t").await;
    api.given_environments("docker", &["prod", "free"]).await;
    let strict = json!({"name": "strict", "type": "docker", "description": "", "require_provenance": true});
    api.put("/environments/acme").json(&strict).await.created();
    api.put_policy("provenance", PROVENANCE).await.created();
    api.attach("prod", "provenance").await;
    for members in [["prod", "free"], ["prod", "strict"]] {
        let name = members[1].replace("free", "one").replace("strict", "two");
        api.put_logical_environment(name, members).await.created();
    }
    for compliant in [false, true] {
        if compliant {
            api.given_test('1', "t", true).await;
        }
        assert_eq!(api.asserted("?environment_name=prod").await["compliant"], true);
        for (group, member) in [("one", "free"), ("two", "strict")] {
            let alone = api.asserted(&format!("?environment_name={member}")).await;
            let together = api.asserted(&format!("?environment_name={group}")).await;
            assert_eq!((&alone["compliant"], &together["compliant"]), (&json!(compliant), &json!(compliant)));
            assert_eq!(together["reasons_for_incompliance"], alone["reasons_for_incompliance"]);
            assert_eq!(together["policy_evaluations"][0]["status"], "COMPLIANT");
        }
    }
}

/// A flow that was called so is not left out by another name.
#[apply(on_every_store)]
async fn neither_renaming_nor_archiving_a_flow_waives_what_it_had_to_comply_with(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    let but =
        |name: &str| format!("{COMPLIANCE}    exceptions:\n      - if: ${{{{ flow.name != '{name}' }}}}\n");
    for name in ["web", "shop"] {
        api.put_policy(name, &but(name)).await.created();
        api.attach("prod", name).await;
    }
    api.given_flow_with_template().await;
    api.given_artifact('1', "t").await;
    let gate = async |step: &str, policies: [bool; 2]| {
        let mut found = Vec::new();
        for policy in ["web", "shop"] {
            found.push(api.asserted(&format!("?policy_name={policy}")).await["compliant"] == true);
        }
        assert_eq!(found, policies, "{step}");
        api.report_running("prod", &[('1', &[1])]).await;
        let snapshot = api.get("/snapshots/acme/prod/-1").await.ok();
        let decisions = snapshot["artifacts"][0]["policy_decisions"].as_array().unwrap().iter();
        let found = Vec::from_iter(decisions.map(|one| one["status"] == "COMPLIANT"));
        assert_eq!(found, policies, "{step}");
        snapshot["artifacts"][0]["reasons_for_incompliance"].to_string()
    };
    gate("it is called web", [false, true]).await;
    api.put("/flows/acme/web/rename").json(json!({"new_name": "shop"})).await.ok();
    let reasons = gate("it was called web", [false, false]).await;
    assert!(reasons.contains("it does not hold alike for the flow's names 'shop', 'web'"), "{reasons}");
    api.put("/flows/acme/shop/rename").json(json!({"new_name": "web"})).await.ok();
    gate("it is called so again", [false, false]).await;
    api.put("/flows/acme/web/archive").await.ok();
    gate("it is archived", [false, false]).await;
}

#[apply(on_every_store)]
async fn the_gate_looks_at_the_names_by_which_an_artifact_runs_as_its_environment_does(api: Api) {
    api.given_flow_with_template().await;
    api.given_artifact('1', "t").await;
    api.given_environments("docker", &["prod"]).await;
    let named = |name: &str| {
        format!("{COMPLIANCE}    exceptions:\n      - if: ${{{{ matches(artifact.name, '^{name}') }}}}\n")
    };
    for (policy, name) in [("ran", "image-1"), ("reported", "api:")] {
        api.put_policy(policy, &named(name)).await.created();
    }
    let gate = async |query: &str| api.asserted(query).await["compliant"] == true;
    // The file's name in the report is all that is known of it.
    assert_eq!((gate("?policy_name=ran").await, gate("?policy_name=reported").await), (false, true));
    for (policy, compliant) in [("ran", true), ("reported", false)] {
        api.attach("prod", policy).await;
        api.report_running("prod", &[('1', &[1])]).await;
        api.get("/snapshots/acme/prod/-1").await.expect(200, json!({"compliant": compliant}));
        assert_eq!(gate("?environment_name=prod").await, compliant, "{policy}");
        assert_eq!(gate(&format!("?policy_name={policy}")).await, compliant, "{policy}");
        let detach = api.delete("/environments/acme/prod/policies").json(json!({"policy_names": [policy]}));
        detach.await.expect_exactly(200, json!("OK"));
    }
    // Reports of several names agree, or the exception waives nothing.
    api.report_running("prod", &[]).await;
    let report =
        api.post_artifact("shop", fingerprint('1')).with(json!({"filename": "other", "trail_name": "t"}));
    report.await.created();
    assert!(!gate("?policy_name=reported").await);
    let asserted = api.asserted("?policy_name=reported").await;
    let reason =
        &asserted["policy_evaluations"][0]["rule_evaluations"][1]["resolutions"][0]["context"]["reason"];
    assert!(reason.as_str().unwrap().contains("it does not hold alike"), "{reason}");
}

/// Each rule has to hold by each name, whatever the order of the report, and re-evaluations know all names.
#[apply(on_every_store)]
async fn an_artifact_that_runs_under_several_names_has_to_comply_by_each(api: Api) {
    api.given_flow_with_template().await;
    api.given_artifact('1', "t").await;
    api.given_environments("docker", &["waives", "leaves-out"]).await;
    let waives =
        format!("{COMPLIANCE}    exceptions:\n      - if: ${{{{ matches(artifact.name, '^agent') }}}}\n");
    let leaves_out = "_schema: https://example.com/v1\nartifacts:\n  attestations:\n    - name: scan\n      \
                      type: generic\n      if: ${{ not matches(artifact.name, '^agent') }}\n";
    for (environment, policy) in [("waives", waives.as_str()), ("leaves-out", leaves_out)] {
        api.put_policy(environment, policy).await.created();
        api.attach(environment, environment).await;
        let expect = async |compliant: bool, what: &dyn std::fmt::Debug| {
            let snapshot = api.get(&format!("/snapshots/acme/{environment}/-1")).await.ok();
            let gate = api.asserted(&format!("?environment_name={environment}")).await;
            let verdicts = json!([snapshot["compliant"], gate["compliant"]]);
            assert_eq!(verdicts, json!([compliant, compliant]), "{environment} {what:?}");
            let reasons = &snapshot["artifacts"][0]["reasons_for_incompliance"];
            assert_eq!(*reasons, gate["reasons_for_incompliance"], "{environment} {what:?}");
            snapshot
        };
        for (names, compliant) in [
            (&["agent:1"][..], true),
            (&["agent:2", "agent:1"], true),
            (&["shop:1"], false),
            (&["agent:1"], true),
            (&["shop:1", "agent:1"], false),
            (&["agent:1"], true),
            (&["agent:1", "shop:1", "agent:1", "agent:0"], false),
        ] {
            let element = |name: &&str| json!({"digests": {*name: fingerprint('1')}, "creationTimestamp": 1});
            let apart = Vec::from_iter(names.iter().map(element));
            let together: serde_json::Map<_, _> =
                names.iter().map(|name| ((*name).to_owned(), json!(fingerprint('1')))).collect();
            for artifacts in [json!(apart), json!([{"digests": together, "creationTimestamp": 1}])] {
                let reply = api
                    .put(&format!("/environments/acme/{environment}/report/docker"))
                    .json(json!({ "artifacts": artifacts }))
                    .await;
                assert!(reply.status.is_success(), "{reply:?}");
                expect(compliant, &artifacts).await;
            }
        }
        let snapshot = expect(false, &"the last").await;
        let artifact = &snapshot["artifacts"][0];
        assert_eq!(
            (&artifact["name"], &artifact["other_names"]),
            (&json!("agent:1"), &json!(["agent:0", "shop:1"]))
        );
        let reason = "it does not hold alike for the artifact's names 'agent:0', 'agent:1', 'shop:1'";
        assert!(artifact["reasons_for_incompliance"].to_string().contains(reason), "{artifact}");
        let policy = [waives.as_str(), leaves_out][usize::from(environment == "leaves-out")];
        assert_eq!(api.put_policy(environment, &format!("{policy}# again\n")).await.status, 200);
        let again = expect(false, &"another version").await;
        assert_eq!(again["index"].as_u64(), snapshot["index"].as_u64().map(|index| index + 1));
    }
}

/// By a name that comes to others the gate waives nothing, also where the snapshot's own verdict does not change.
#[apply(on_every_store)]
async fn the_gate_knows_a_name_more_by_which_an_artifact_runs(api: Api) {
    api.given_flow_with_template().await;
    api.given_artifact('1', "t").await;
    api.given_environments("docker", &["prod"]).await;
    let policy = format!("{COMPLIANCE}    exceptions:\n      - if: ${{{{ artifact.name == 'app' }}}}\n");
    api.put_policy("waives", &policy).await.created();
    for (names, snapshots, compliant) in
        [(&["app"][..], 1, true), (&["app", "db"], 2, false), (&["db", "app"], 2, false)]
    {
        let element = |name: &&str| json!({"digests": {*name: fingerprint('1')}, "creationTimestamp": 1});
        let artifacts = Vec::from_iter(names.iter().map(element));
        let reply =
            api.put("/environments/acme/prod/report/docker").json(json!({ "artifacts": artifacts })).await;
        assert!(reply.status.is_success(), "{reply:?}");
        api.expect_snapshots("prod", snapshots).await;
        let gate = api.asserted("?policy_name=waives").await;
        assert_eq!(gate["compliant"], compliant, "{names:?} {gate}");
    }
}

#[apply(on_every_store)]
async fn an_artifact_whose_name_the_template_does_not_know_says_so(api: Api) {
    api.given_flow_with_template().await;
    let artifact = json!({
        "trail_name": "t", "template_reference_name": "mistyped", "fingerprint": fingerprint('1'), "filename": "api:1",
        "build_url": "", "commit_url": "",
    });
    api.post("/artifacts/acme/web").json(&artifact).await.created();
    let why = "The template expects no artifact named 'mistyped', so that it needs only what the trail needs";
    let asserted = api.asserted("").await;
    assert_eq!(
        (&asserted["compliant"], &asserted["compliance_status"]["state_info"]),
        (&json!(true), &json!(why))
    );
    let shown = api.get(&format!("/artifacts/acme/web/fingerprint/{}", fingerprint('1'))).await.ok();
    assert_eq!(shown["state"], "COMPLIANT");
    assert!(shown["state_info"].as_str().unwrap().contains(why), "{shown}");
    let listed = json!({"artifacts_statuses": {"mistyped": {"status": "COMPLIANT", "state_info": why}}});
    api.get("/trails/acme/web/t").await.expect(200, json!({"compliance_status": listed}));
}
