//! Attestations: added with files, read back, downloaded (specification, Attestations).

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::FutureExt;
use futures_util::future::ready;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};

use crate::intercepting_store::{Call, InterceptingStore};
use crate::support::prelude::*;

/// The pull request of the specification's example: approvers with `author`, commits with `sha`.
fn pull_request() -> Value {
    json!({
        "url": "https://git.example.com/pr/1", "state": "MERGED", "title": "T", "author": "ann", "head_ref": "feature",
        "merge_commit": COMMIT, "created_at": 1, "merged_at": 2,
        "approvers": [{"author": "bob", "state": "APPROVED", "timestamp": 3}],
        "commits": [{
            "sha": COMMIT, "message": "m", "author": "a", "author_username": "b", "branch": "main", "timestamp": 4,
            "parents": [COMMIT],
        }],
    })
}

fn document() -> Value {
    json!({
        "attestation_name": "review", "git_provider": "github", "pull_requests": [pull_request()], "user_data": {"k": "v"},
        "git_commit_info": {"author": "A", "branch": "main", "message": "m", "sha1": COMMIT, "timestamp": 5, "url": "u"},
    })
}

#[apply(on_every_store)]
async fn post_pull_request_adds_the_attestation_and_what_it_names(api: Api) {
    api.attest("pull_request", &document()).await.expect_exactly(201, json!("OK"));
    let mut answered = pull_request();
    answered["approvers"][0]["username"] = json!("bob");
    answered["commits"][0]["sha1"] = json!(COMMIT);
    answered["commits"][0]["parents"] = json!([COMMIT]);
    let expected = json!([{
        "schema_version": 2, "attestation_type": "pull_request", "attestation_name": "review", "is_compliant": true,
        "artifact_fingerprint": null, "target_artifacts": null, "git_provider": "github", "pull_requests": [answered],
        "user_data": {"k": "v"}, "flow_name": "shop", "trail_name": "t", "reported_by": "jane", "attachments": [],
        "git_commit_info": {"sha1": COMMIT, "timestamp": 5, "branch": "main"}, "evidence_archive_fingerprint": null,
    }]);
    let found = api.get("/attestations/acme/shop/trail/t/review").await.expect(200, expected.clone()).ok();
    let id = found[0]["attestation_id"].as_str().unwrap();
    api.get(&format!("/attestations/acme?attestation_id={id}")).await.expect(200, json!({"data": expected}));
    api.get("/trails/acme/shop/t").await.expect(200, json!({"compliance_state": "COMPLIANT"}));

    // Among an artifact's evidence it looks the same.
    let fingerprint = "f".repeat(64);
    let more = json!({"git_commit": COMMIT, "build_url": "https://b/1", "commit_url": "https://c/1"});
    api.post_artifact("shop", &fingerprint).in_trail("t").with(more).await.created();
    let mut about = document();
    about["artifact_fingerprint"] = json!(fingerprint);
    api.attest("pull_request", &about).await.created();
    let mut answered = expected[0]["pull_requests"].clone();
    answered[0]["approvers"][0]["timestamp"] = json!(3);
    let artifact = api.get(&format!("/artifacts/acme/shop/fingerprint/{fingerprint}")).await;
    artifact.expect(200, json!({"evidence": {"review": {"pull_requests": answered}}}));
}

#[apply(on_every_store)]
async fn a_pull_request_may_be_sent_back_as_it_was_answered(api: Api) {
    api.attest("pull_request", &document()).await.created();
    let path = "/attestations/acme/shop/trail/t/review";
    let mut answered = api.get(path).await.ok()[0]["pull_requests"].clone();
    let mut again = document();
    again["pull_requests"] = answered.clone();
    api.attest("pull_request", &again).await.created();
    let both = json!([{"pull_requests": answered}, {"pull_requests": answered}]);
    api.get(path).await.expect(200, both);

    answered[0]["approvers"][0]["username"] = json!("somebody else");
    again["pull_requests"] = answered;
    let refused = api.attest("pull_request", &again).await;
    refused.expect_field_error(400, "pull_requests[0].approvers[0].username");
}

#[apply(on_every_store)]
async fn a_null_among_pull_requests_or_approvers_is_skipped_and_counted(api: Api) {
    let mut sent = document();
    let mut pull_request = sent["pull_requests"][0].clone();
    pull_request["approvers"] = json!([null, "bob", null]);
    sent["pull_requests"] = json!([null, pull_request]);
    let reply = api.attest("pull_request", &sent).await;
    assert_eq!(reply.headers["evidence-skipped-elements"], "3");
    reply.created();
    let answered = api.get("/attestations/acme/shop/trail/t/review").await.ok();
    let answered = answered[0]["pull_requests"].as_array().unwrap().clone();
    assert_eq!(answered.len(), 1);
    assert_eq!(answered[0]["approvers"].as_array().unwrap().len(), 1);

    // Nothing is left, and that is not compliant.
    sent["pull_requests"] = json!([null]);
    api.attest("pull_request", &sent).await.created();
    let answered = api.get("/attestations/acme/shop/trail/t/review").await.ok();
    assert_eq!((&answered[0]["is_compliant"], &answered[0]["pull_requests"]), (&json!(false), &json!([])));
}

#[apply(on_every_store)]
async fn what_could_improve_a_verdict_is_never_skipped(api: Api) {
    let suite = json!({"name": "s", "failures": 0, "errors": 0, "skipped": 0, "total": 1, "duration": 1});
    let issue = json!({"issue_id": "A-1", "issue_url": "u", "issue_exists": true});
    let counts = json!({"low_count": 0, "medium_count": 0, "high_count": 0});
    let mut commits = document()["pull_requests"].clone();
    commits[0]["commits"] = json!([null]);
    let table = [
        ("junit", json!({"junit_results": [suite, null]}), "junit_results[1]"),
        ("jira", json!({"jira_results": [issue, null]}), "jira_results[1]"),
        (
            "snyk",
            json!({"snyk_results": {"tool": {"name": "n", "version": "1"}, "results": [counts, null]}}),
            "snyk_results.results[1]",
        ),
        (
            "pull_request",
            json!({"git_provider": "github", "pull_requests": commits}),
            "pull_requests[0].commits[0]",
        ),
    ];
    for (kind, claim, field) in table {
        let sent = merged(json!({"attestation_name": "checked"}), &claim);
        api.attest(kind, &sent).await.expect_field_error(400, field);
    }
}

#[apply(on_every_store)]
async fn field_git_provider_takes_the_repo_providers_and_azure(api: Api) {
    let providers = [
        "github",
        "gitlab",
        "bitbucket",
        "bitbucket_cloud",
        "bitbucket_dc",
        "azure-devops",
        "azure_devops_services",
        "azure_devops_server",
        "circleci",
        "git",
        "subversion",
        "azure",
    ];
    for provider in providers {
        let mut body = document();
        body["git_provider"] = json!(provider);
        api.attest("pull_request", &body).await.created();
    }
    for wrong in [json!(""), json!("GitHub"), json!(1), Value::Null] {
        let mut body = document();
        body["git_provider"] = wrong;
        api.attest("pull_request", &body).await.expect_field_error(400, "git_provider");
    }
}

#[apply(on_every_store)]
async fn no_pull_request_is_not_compliant(api: Api) {
    for none in [json!([]), Value::Null] {
        let mut body = document();
        body["pull_requests"] = none;
        api.attest("pull_request", &body).await.created();
    }
    api.get("/trails/acme/shop/t").await.expect(200, json!({"compliance_state": "NON-COMPLIANT"}));
    let mut body = document();
    body.as_object_mut().unwrap().remove("pull_requests");
    let missing = json!({"message": INVALID, "errors": {"pull_requests": "Field required [input: None]"}});
    api.attest("pull_request", &body).await.expect_exactly(400, missing);
}

#[apply(on_every_store)]
async fn test_results_decide_by_failures_and_errors(api: Api) {
    let suite = |failures: i64| json!({"name": "s", "failures": failures, "errors": 0, "skipped": 1, "total": 5, "duration": 0.5});
    let body = |suites: Value| json!({"attestation_name": "unit", "junit_results": suites});
    api.attest("junit", &body(json!([suite(0)]))).await.created();
    api.attest("junit", &body(json!([suite(0), suite(1)]))).await.created();
    let verdicts =
        json!([{"is_compliant": false, "junit_results": [suite(0), suite(1)]}, {"is_compliant": true}]);
    api.get("/attestations/acme/shop/trail/t/unit").await.expect(200, verdicts);
    let mut wrong = suite(0);
    wrong["more"] = json!(1);
    let refused = api.attest("junit", &body(json!([wrong]))).await;
    refused.expect(
        400,
        json!({"errors": {"junit_results[0].more": "Extra inputs are not permitted [input: 1]"}}),
    );
}

#[apply(on_every_store)]
async fn issues_scans_and_analyses_decide_by_what_they_found(api: Api) {
    let issue = |exists: bool| json!({"issue_id": "ML-50", "issue_url": "u", "issue_exists": exists, "issue_fields": {"n": 1}});
    let project = |high: i64| json!({"low_count": 0, "medium_count": 0, "high_count": high});
    let tool = json!({"name": "Snyk", "version": "1"});
    let finding = json!({"id": "a", "message": "m"});
    let mut found = project(1);
    found["high"] = json!([finding]);
    let mut shown = project(1);
    shown["high"] = json!([{"id": "a", "message": "m", "locations": []}]);
    let gate = |status: &str| json!({"name": null, "status": status, "conditions": []});
    let analysis = |gate: Value| {
        json!({
            "serverUrl": null, "taskId": null, "status": null, "analysedAt": "1", "revision": "r", "changedAt": null,
            "project": {"name": "", "key": "k", "url": "u"}, "qualityGate": gate,
        })
    };
    let counts = |high: i64| json!({"schema_version": 1, "tool": tool, "results": [project(high)]});
    let table = [
        ("jira", json!({"jira_results": []}), false, json!({"jira_results": []})),
        (
            "jira",
            json!({"jira_results": [issue(true), issue(false)]}),
            false,
            json!({"jira_results": [issue(true), issue(false)]}),
        ),
        ("jira", json!({"jira_results": [issue(true)]}), true, json!({"jira_results": [issue(true)]})),
        (
            "snyk",
            json!({"snyk_results": {"tool": tool, "results": [found]}}),
            false,
            json!({"processed_snyk_results": {"schema_version": 1, "tool": tool, "results": [shown]}}),
        ),
        ("snyk", json!({"snyk_results": counts(0)}), true, json!({"processed_snyk_results": counts(0)})),
        (
            "sonar",
            json!({"sonar_results": analysis(Value::Null)}),
            false,
            json!({"sonar_results": analysis(Value::Null)}),
        ),
        (
            "sonar",
            json!({"sonar_results": analysis(gate("ERROR"))}),
            false,
            json!({"sonar_results": analysis(gate("ERROR"))}),
        ),
        (
            "sonar",
            json!({"sonar_results": analysis(gate("OK"))}),
            true,
            json!({"sonar_results": analysis(gate("OK"))}),
        ),
    ];
    for (kind, claim, is_compliant, mut answered) in table {
        let body = merged(json!({"attestation_name": kind}), &claim);
        api.attest(kind, &body).await.expect_exactly(201, json!("OK"));
        answered["attestation_type"] = json!(kind);
        answered["is_compliant"] = json!(is_compliant);
        let found = api.get(&format!("/attestations/acme/shop/trail/t/{kind}")).await.ok();
        for (name, value) in answered.as_object().unwrap() {
            assert_eq!(&found[0][name], value, "{kind} {body}: {name}");
        }
    }
    api.get("/trails/acme/shop/t").await.expect(200, json!({"compliance_state": "COMPLIANT"}));
}

#[apply(on_every_store)]
async fn what_a_scan_found_is_among_the_evidence_of_its_artifact(api: Api) {
    api.artifact("a", "cli").await;
    let counts = json!({"low_count": 1, "medium_count": 0, "high_count": 0});
    let found = json!({"schema_version": 1, "tool": {"name": "Snyk", "version": "1"}, "results": [counts]});
    let scan =
        json!({"attestation_name": "scan", "artifact_fingerprint": "a".repeat(64), "snyk_results": found});
    api.attest("snyk", &scan).await.created();
    let issue = json!({"issue_id": "ML-50", "issue_url": "u", "issue_exists": true});
    let issues =
        json!({"attestation_name": "issue", "artifact_fingerprint": "a".repeat(64), "jira_results": [issue]});
    api.attest("jira", &issues).await.created();
    let evidence = json!({"evidence": {
        "scan": {"evidence_type": "snyk", "is_compliant": false, "snyk_results": found, "jira_results": null},
        "issue": {"evidence_type": "jira", "is_compliant": true, "snyk_results": null, "jira_results": [issue]},
    }});
    api.get("/artifacts/acme/shop/fingerprint/aaaaa").await.expect(200, evidence);
}

#[apply(on_every_store)]
async fn a_decision_keeps_the_version_that_its_control_had(api: Api) {
    let decide = |control: &str, is_compliant: bool| {
        let decision = json!({
            "attestation_name": "reviewed", "type_name": "decision", "control": control, "more": "ignored",
            "attestation_data": {"is_compliant": is_compliant, "by": [1.50, null]},
        });
        api.attest("system", &decision)
    };
    decide("SDLC-4", false).await.expect_exactly(201, json!("OK"));
    api.post_control("SDLC-4").await.created();
    decide("SDLC-4", true).await.created();
    api.put("/controls/acme/SDLC-4").json(json!({"name": "Code review"})).await.ok();
    decide("SDLC-4", false).await.created();
    let decision = |version: Value, is_compliant: bool| {
        json!({
            "attestation_type": "system:decision", "type_name": "decision", "control": "SDLC-4",
            "control_version": version, "is_compliant": is_compliant,
            "attestation_data": {"is_compliant": is_compliant, "by": [1.50, null]},
        })
    };
    let newest_first =
        json!([decision(json!(2), false), decision(json!(1), true), decision(Value::Null, false)]);
    api.get("/attestations/acme/shop/trail/t/reviewed").await.expect(200, newest_first);
    let state = json!({"compliance_state": "NON-COMPLIANT", "compliance_status": {"attestations_statuses": [
        {"attestation_name": "reviewed", "attestation_type": "system:decision", "is_compliant": false},
    ]}});
    api.get("/trails/acme/shop/t").await.expect(200, state);
}

#[apply(on_every_store)]
async fn the_data_of_a_system_type_fit_the_schema_that_is_told(api: Api) {
    let types = api.get("/attestations/system-attestation-types").await.ok();
    let names = Vec::from_iter(types.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()));
    assert_eq!(names, ["decision", "sarif", "sbom"]);
    let sbom = json!({"format": "spdx", "original_fingerprint": OF_ABC, "document": {"package_count": 7}});
    let decision = json!({"is_compliant": true, "control": "c"});
    let sarif = json!({"version": "2.1.0", "runs": [{"tool": {"driver": {"name": "scan"}}, "results": []}]});
    for (kind, data) in types.as_array().unwrap().iter().zip([&decision, &sarif, &sbom]) {
        let (name, version) = (&kind["name"], &kind["versions"][0]);
        assert_eq!(version["version"], 1);
        let is_valid =
            |data: &Value| jsonschema::validator_for(&version["type_schema"]).unwrap().is_valid(data);
        let mut broken = vec![json!([]), json!({})];
        for field in version["type_schema"]["required"].as_array().unwrap() {
            let mut without = data.clone();
            without.as_object_mut().unwrap().remove(field.as_str().unwrap());
            broken.push(without);
        }
        let attest = |data: Value| {
            api.attest(
                "system",
                &json!({"attestation_name": name, "type_name": name, "attestation_data": data}),
            )
        };
        for sent in [data.clone(), json!(data.to_string())] {
            let document = json!({"attestation_name": name, "type_name": name, "attestation_data": sent});
            let parts = [("name=\"data_json\"", &*document.to_string()), ATTACHED_ABC];
            api.post_attestation("shop", "t", "system").form(&parts).await.created();
        }
        assert!(is_valid(data));
        for data in broken {
            assert!(!is_valid(&data), "{data}");
            assert_eq!(attest(data.clone()).await.status, 400, "{data}");
        }
        let answered = json!([{"attestation_type": format!("system:{}", name.as_str().unwrap()), "type_name": name,
                               "is_compliant": true, "attestation_data": data}]);
        let path = format!("/attestations/acme/shop/trail/t/{}", name.as_str().unwrap());
        let found = api.get(&path).await.ok();
        for (field, value) in answered[0].as_object().unwrap() {
            assert_eq!(&found[0][field], value);
        }
    }
    let other = json!({"attestation_name": "x", "type_name": "spdx", "attestation_data": {}});
    let refused = json!({"message": INVALID, "errors": {"type_name": "Input should be 'decision', 'sbom' or 'sarif' [input: spdx]"}});
    api.attest("system", &other).await.expect_exactly(400, refused);
}

/// The SHA-256 of `abc`, and a file that says so.
const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const ATTACHED_ABC: (&str, &str) = ("name=\"attachment_file\"; filename=\"bill.json\"", "abc");

/// Templates and policies ask for bills of materials and for SARIF logs by either spelling of their types; answers have
/// their summaries.
#[apply(on_every_store)]
async fn bills_of_materials_and_sarif_logs_are_asked_for_and_shown_in_short(api: Api) {
    for (flow, sbom, sarif) in [("short", "sbom", "sarif"), ("long", "system:sbom", "system:sarif")] {
        let template = format!(
            "version: 1\ntrail:\n  attestations:\n  - {{name: bill, type: '{sbom}'}}\n  - {{name: scan, type: '{sarif}'}}\n  artifacts:\n  - {{name: app}}\n"
        );
        let document = json!({"name": flow, "description": ""}).to_string();
        api.put("/flows/acme/template_file").data_json(&document).template(template.as_str()).await.created();
        let policy = format!(
            "_schema: https://example.com/v1\nartifacts: {{attestations: [{{type: '{sbom}'}}, {{type: '{sarif}'}}]}}"
        );
        api.put_policy(flow, &policy).await.created();
        let report = api.post_artifact(flow, "a".repeat(64)).in_trail("t").named("app");
        report.with(json!({"filename": "x"})).await.created();
        let attest = async |name: &str, kind: &str, data: Value, files: &[(&str, &str)]| {
            let document =
                json!({"attestation_name": name, "type_name": kind, "attestation_data": data}).to_string();
            api.post_attestation(flow, "t", "system")
                .form(&[&[("name=\"data_json\"", &*document)], files].concat())
                .await
                .created();
        };
        let is_compliant = async || {
            let gate = format!("/asserts/acme/fingerprint/{}", "a".repeat(64));
            let by_flow = api.get(&format!("{gate}?flow_name={flow}")).await.ok()["compliant"].clone();
            let by_policy = api.get(&format!("{gate}?flow_name={flow}&policy_name={flow}")).await.ok();
            assert_eq!(by_policy["compliant"], by_flow, "{flow}");
            by_flow
        };
        let sbom_of = |fingerprint: &str| {
            json!({
                "format": "cyclonedx", "original_fingerprint": fingerprint,
                "document": {"package_count": 7, "tools": ["syft"], "subject": {"name": "shop", "version": "1"}},
            })
        };
        attest("bill", "sbom", sbom_of(OF_ABC), &[ATTACHED_ABC]).await;
        assert_eq!(is_compliant().await, json!(false), "{flow}: no scan");
        let log = |results: Value| {
            json!({
                "version": "2.1.0", "runs": [{"tool": {"driver": {"name": "scan", "version": "2"}}, "results": results}],
            })
        };
        attest("scan", "sarif", log(json!([{"level": "error"}, {"level": "note"}, {"kind": "pass"}])), &[])
            .await;
        assert_eq!(is_compliant().await, json!(false), "{flow}: findings");
        let scan = api.get(&format!("/attestations/acme/{flow}/trail/t/scan")).await.ok();
        let summary = json!({
            "tools": [{"name": "scan", "version": "2"}], "error_count": 1, "warning_count": 0, "note_count": 1,
            "none_count": 1, "suppressed_count": 0, "failed_run_count": 0,
        });
        assert_eq!(
            (&scan[0]["processed_sarif_results"], &scan[0]["is_compliant"]),
            (&summary, &json!(false))
        );
        assert_eq!(
            (&scan[0]["attestation_type"], &scan[0]["type_name"]),
            (&json!("system:sarif"), &json!("sarif"))
        );
        attest("scan", "sarif", log(json!([])), &[]).await;
        assert_eq!(is_compliant().await, json!(true), "{flow}");
        let bill = api.get(&format!("/attestations/acme/{flow}/trail/t/bill")).await.ok();
        let summary = json!({
            "format": "cyclonedx", "component_count": 7, "tools": ["syft"], "subject": "shop", "subject_version": "1",
        });
        assert_eq!(bill[0]["processed_sbom"], summary);
        // One whose document is not attached is recorded, and not compliant.
        let other = "b".repeat(64);
        for (fingerprint, files, reason) in [
            (OF_ABC, &[][..], "The document is not attached"),
            (&other, &[ATTACHED_ABC], "No attachment has the SHA-256 of original_fingerprint"),
        ] {
            attest("bill", "sbom", sbom_of(fingerprint), files).await;
            assert_eq!(is_compliant().await, json!(false), "{flow}: {reason}");
            let bill = api.get(&format!("/attestations/acme/{flow}/trail/t/bill")).await.ok();
            assert_eq!(
                (&bill[0]["is_compliant"], &bill[0]["processed_sbom"]["reason"]),
                (&json!(false), &json!(reason))
            );
        }
    }
}

fn overriding(name: &str, kind: &str, verdict: bool) -> Value {
    json!({
        "attestation_name": name, "reason": "seen by hand", "new_compliance_status": verdict,
        "original_attestation_type": kind,
    })
}

#[apply(on_every_store)]
async fn an_override_decides_in_its_trail_and_both_attestations_are_named(api: Api) {
    let put = |body: Value| api.post("/attestations/acme/shop/trail/t/override").json(body);
    let status = async || {
        let trail = api.get("/trails/acme/shop/t").await.ok();
        (trail["compliance_state"].clone(), trail["compliance_status"]["attestations_statuses"].clone())
    };
    api.post_generic_attestation("shop", "scan", false).await.created();
    let failed = api.get("/attestations/acme/shop/trail/t/scan").await.ok()[0]["attestation_id"].clone();
    put(overriding("scan", "generic", true)).await.expect_exactly(201, json!("OK"));
    let found = api.get("/attestations/acme/shop/trail/t/scan").await.ok();
    for (name, value) in [
        ("attestation_type", json!("generic")),
        ("is_compliant", json!(true)),
        ("reason", json!("seen by hand")),
        ("original_attestation_type", json!("generic")),
        ("original_attestation_id", failed.clone()),
    ] {
        assert_eq!(found[0][name], value, "{name}");
    }
    let (state, statuses) = status().await;
    assert_eq!((state, statuses.as_array().unwrap().len()), (json!("COMPLIANT"), 1));
    let ids =
        Vec::from_iter(["attestation_id", "overridden_attestation_id"].map(|name| statuses[0][name].clone()));
    assert!(ids.contains(&failed) && ids.contains(&found[0]["attestation_id"]), "{statuses}");

    // An override without an attestation, of any type, and with a commit.
    let commit = json!({"sha1": COMMIT});
    for (name, kind) in [("a", "custom:none"), ("b", "system:decision"), ("c", "sonar")] {
        let mut body = overriding(name, kind, false);
        body["git_commit_info"] = commit.clone();
        put(body).await.created();
        let found = api.get(&format!("/attestations/acme/shop/trail/t/{name}")).await.ok();
        assert_eq!(
            (&found[0]["attestation_type"], &found[0]["original_attestation_id"]),
            (&json!(kind), &Value::Null)
        );
    }
    assert_eq!(status().await.0, json!("NON-COMPLIANT"));
}

#[apply(on_every_store)]
async fn an_override_of_an_artifact_decides_about_that_alone(api: Api) {
    api.artifact("a", "cli").await;
    api.artifact("b", "web").await;
    for start in ["a", "b"] {
        let failed = json!({"attestation_name": "scan", "is_compliant": false, "artifact_fingerprint": start.repeat(64)});
        api.attest("generic", &failed).await.created();
    }
    let mut body = overriding("scan", "generic", true);
    body["artifact_fingerprint"] = json!("a".repeat(64));
    api.post("/attestations/acme/shop/trail/t/override").json(body).await.created();
    let states = json!({"compliance_state": "NON-COMPLIANT", "compliance_status": {"artifacts_statuses": {
        "cli": {"is_compliant": true}, "web": {"is_compliant": false},
    }}});
    api.get("/trails/acme/shop/t").await.expect(200, states);
}

#[apply(on_every_store)]
async fn evidence_that_is_overridden_is_still_shown_with_the_verdict_of_the_override(api: Api) {
    api.artifact("a", "cli").await;
    let suite = json!({"name": "s", "failures": 1, "errors": 0, "skipped": 0, "total": 1, "duration": 1.0});
    let of_artifact = |mut body: Value| {
        body["artifact_fingerprint"] = json!("a".repeat(64));
        body
    };
    let put = async |name: &str, verdict: bool| {
        let body = of_artifact(overriding(name, "junit", verdict));
        api.post("/attestations/acme/shop/trail/t/override").json(body).await.created();
    };
    let report = of_artifact(json!({"attestation_name": "unit", "junit_results": [suite]}));
    api.attest("junit", &report).await.created();
    for verdict in [true, false, true] {
        put("unit", verdict).await;
        put("none", verdict).await;
        let evidence = json!({"evidence": {
            "unit": {"evidence_type": "junit", "is_compliant": verdict, "junit_results": [{"failures": 1}]},
            "none": {"evidence_type": "junit", "is_compliant": verdict, "junit_results": null},
        }});
        api.get("/artifacts/acme/shop/fingerprint/aaaaa").await.expect(200, evidence);
    }
    api.attest("junit", &report).await.created();
    let evidence = json!({"evidence": {"unit": {"is_compliant": false}}});
    api.get("/artifacts/acme/shop/fingerprint/aaaaa").await.expect(200, evidence);
}

#[apply(on_every_store)]
async fn an_override_is_json_and_names_what_does_not_fit(api: Api) {
    let path = "/attestations/acme/shop/trail/t/override";
    let body = overriding("scan", "generic", true);
    api.post(path).data_json(&body).await.expect(415, json!({}));
    api.post(path).await.expect_field_error(400, "body");
    for (name, value) in [
        ("attestation_name", json!("a b")),
        ("reason", Value::Null),
        ("reason", json!("")),
        ("reason", json!(" \n\t")),
        ("new_compliance_status", json!("true")),
        ("original_attestation_type", json!("decision")),
        ("original_attestation_type", json!("other:x")),
        ("original_attestation_type", json!("custom:")),
        ("original_attestation_type", json!("custom:x\n")),
        ("more", json!(1)),
    ] {
        let mut body = body.clone();
        body[name] = value;
        api.post(path).json(body).await.expect_field_error(400, name);
    }
    api.get("/flows/acme/shop").await.expect(404, json!({}));
}

#[apply(on_every_store)]
async fn the_document_is_closed_and_validated(api: Api) {
    let table = [
        (json!({"attestation_name": "a b"}), "attestation_name"),
        (json!({"attestation_name": ""}), "attestation_name"),
        (json!({"attestation_name": "a".repeat(256)}), "attestation_name"),
        (json!({"is_compliant": "true"}), "is_compliant"),
        (json!({"is_compliant": null}), "is_compliant"),
        (json!({"more": 1}), "more"),
        (json!({"artifact_fingerprint": ""}), "artifact_fingerprint"),
        (json!({"target_artifacts": ["a.b"]}), "target_artifacts[0]"),
        (json!({"target_artifacts": ["a", "b"]}), "target_artifacts"),
        (json!({"annotations": {"a b": "x"}}), "annotations.a b"),
        (json!({"annotations": {"a": 1}}), "annotations.a"),
        (json!({"origin_url": "nowhere"}), "origin_url"),
        (json!({"user_data": "x"}), "user_data"),
        (json!({"external_urls": {"a=b": {"href": "x"}}}), "external_urls.a=b"),
        (json!({"description": 1}), "description"),
    ];
    for (change, field) in table {
        let body = merged(json!({"attestation_name": "bar", "is_compliant": true}), &change);
        api.attest("generic", &body).await.expect_field_error(400, field);
    }
    api.get("/flows/acme/shop").await.expect_message(404, "Flow not found");
}

#[apply(on_every_store)]
async fn an_attestation_for_an_artifact_needs_it_in_the_trail_or_a_commit(api: Api) {
    api.given_flow("shop", TEMPLATE).await;
    let by_fingerprint =
        json!({"attestation_name": "foo", "is_compliant": true, "artifact_fingerprint": "a".repeat(64)});
    let missing = json!({
        "message": "Artifact not found",
        "errors": {"artifact_fingerprint": format!(
            "no artifact named '{}' in trail 't' of flow 'shop' in organization 'acme'", "a".repeat(64))},
    });
    api.attest("generic", &by_fingerprint).await.expect_exactly(404, missing);
    api.get("/trails/acme/shop/t").await.expect_message(404, "Trail not found");
    let unbound = json!({"attestation_name": "foo", "is_compliant": true, "target_artifacts": ["cli"]});
    let refused = api.attest("generic", &unbound).await.expect(400, json!({"message": INVALID}));
    let text = String::from_utf8(refused.body.to_vec()).unwrap();
    assert!(text.contains("requires at least one of: artifact_fingerprint or git_commit_info."), "{text}");
    api.artifact("a", "cli").await;
    api.attest("generic", &unbound).await.created();
    api.attest("generic", &by_fingerprint).await.created();
    let two = json!([{"artifact_fingerprint": "a".repeat(64)}, {"target_artifacts": ["cli"]}]);
    api.get("/attestations/acme/shop/artifact/aaaaa/foo").await.expect(200, two);
    api.get("/attestations/acme/shop/trail/t/foo").await.expect_exactly(200, json!([]));
    api.get("/attestations/acme/shop/artifact/bbbbb/foo").await.expect_exactly(200, json!([]));
    let evidence = json!({"evidence": {"foo": {"evidence_type": "generic", "is_compliant": true}},
                          "history": [{"event": "cli reported"}, {"event": "foo evidence received"},
                                      {"event": "foo evidence received"}]});
    api.get("/artifacts/acme/shop/fingerprint/aaaaa").await.expect(200, evidence);
}

#[apply(on_every_store)]
async fn reads_of_what_is_not_there(api: Api) {
    api.get("/attestations/acme/none/trail/t/x").await.expect_message(404, "Flow not found");
    api.given_flow("shop", TEMPLATE).await;
    api.get("/attestations/acme/shop/trail/t/x").await.expect_message(404, "Trail not found");
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    api.get("/attestations/acme/shop/trail/t/x").await.expect_exactly(200, json!([]));
    for unknown in ["00000000-0000-0000-0000-00000000", "x", ""] {
        let path = format!("/attestations/acme?attestation_id={unknown}");
        assert_eq!(api.get(&path).await.ok()["data"], json!([]));
    }
    let evidence = "/attestations/acme/shop/trail/t/attestation/00000000-0000-0000-0000-00000000/evidence";
    api.get(evidence).await.expect_message(404, "Attestation not found");
}

#[apply(on_every_store)]
async fn one_file_is_downloaded_as_it_is_and_several_as_an_archive(api: Api) {
    let body = |name: &str| json!({"attestation_name": name, "is_compliant": true}).to_string();
    let path = "/attestations/acme/shop/trail/t/generic";
    let text = ("name=\"attachment_file\"", "plain words");
    let second = ("name=\"attachment_file.7\"; filename=\"b.txt\"", "second");
    let first = ("name=\"attachment_file.0\"; filename=\"a.txt\"", "first");
    api.post(path).file("attachment_file", "dir/report.txt", "hello").data_json(body("one")).await.created();
    api.post(path).form(&[("name=\"data_json\"", &body("text")), text]).await.created();
    api.post(path).form(&[second, ("name=\"data_json\"", &body("many")), text, first]).await.created();
    api.post(path)
        .form(&[("name=\"data_json\"", &body("none")), ("name=\"attachment_file\"", "")])
        .await
        .created();
    let evidence = async |name: &str| {
        let found = api.get(&format!("/attestations/acme/shop/trail/t/{name}")).await.ok();
        let href = found[0]["_links"]["evidence"]["href"].as_str().map(str::to_owned);
        (found[0].clone(), href)
    };
    let (attestation, href) = evidence("one").await;
    assert_eq!(attestation["attachments"][0]["file_name"], "report.txt");
    assert_eq!(attestation["attachments"][0]["size"], 5);
    let href = href.unwrap();
    let local = href.strip_prefix("http://localhost:8001/api/v2").unwrap();
    let download =
        api.get(local).await.expect_header(CONTENT_DISPOSITION, "attachment; filename=\"report.txt\"");
    assert_eq!(download.body, "hello");
    api.get(local).key(JOHN).await.expect(403, json!({}));
    let (attestation, href) = evidence("text").await;
    assert_eq!(attestation["attachments"][0]["media_type"], "text/plain; charset=utf-8");
    let href = href.unwrap();
    let download = api.get(href.strip_prefix("http://localhost:8001/api/v2").unwrap()).await;
    assert_eq!(download.expect_header(CONTENT_TYPE, "text/plain; charset=utf-8").body, "plain words");
    let (attestation, href) = evidence("many").await;
    let names: Vec<_> =
        attestation["attachments"].as_array().unwrap().iter().map(|file| &file["file_name"]).collect();
    assert_eq!(names, ["attachment.txt", "a.txt", "b.txt"]);
    let href = href.unwrap();
    let download = api.get(href.strip_prefix("http://localhost:8001/api/v2").unwrap()).await;
    assert_eq!(&download.body[..2], b"\x1f\x8b");
    let digest = evidence_core::digest::sha256_hex(&download.body);
    assert_eq!(attestation["evidence_archive_fingerprint"], json!(digest));
    let (attestation, href) = evidence("none").await;
    assert_eq!((attestation["attachments"].clone(), href), (json!([]), None));
    let id = attestation["attestation_id"].as_str().unwrap();
    let none = api.get(&format!("/attestations/acme/shop/trail/t/attestation/{id}/evidence")).await;
    none.expect_message(404, "This attestation has no evidence file attached.");
}

#[tokio::test]
async fn nothing_is_kept_of_files_whose_attestation_is_refused() {
    for StoreUnderTest { name, store, guard, .. } in stores().await {
        let kept = Arc::new(AtomicUsize::new(0));
        let note = Arc::clone(&kept);
        let noting = InterceptingStore::new(store, move |call| {
            note.fetch_add(usize::from(call == Call::Query("put")), Ordering::Relaxed);
            ready(()).boxed()
        });
        let settings = Settings { implicit_flows: false, ..Settings::default() };
        let noting: Arc<dyn Store> = Arc::new(noting);
        let strict = Api::new(fixture(Arc::clone(&noting), settings).await, Mount::Tower, name).await;
        let lenient = Api::new(Evidence::new(noting, Settings::default()), Mount::Tower, name).await;
        lenient.given_flow("shop", TEMPLATE).await;
        let attest = |api: &Api, flow: &str, more: Value| {
            let document = merged(json!({"attestation_name": "scan", "is_compliant": true}), &more);
            api.post_attestation(flow, "t", "generic").data_json(&document).file(
                "attachment_file",
                "a.txt",
                "evidence",
            )
        };
        let repo = json!({"repo_info": {"name": "tags", "url": "https://git.example.com/tags"}});
        for (what, request, status) in [
            ("an unknown flow", attest(&strict, "unknown", json!({})), 404),
            ("a word of the API", attest(&lenient, "template_file", json!({})), 400),
            ("a repo", attest(&lenient, "shop", repo), 400),
            ("an unknown artifact", attest(&lenient, "shop", json!({"target_artifacts": ["cli"]})), 400),
        ] {
            let reply = request.await;
            assert_eq!(reply.status, status, "{what}: {reply:?}");
            assert_eq!(kept.load(Ordering::Relaxed), 0, "{what}");
        }
        attest(&lenient, "shop", json!({})).await.created();
        assert_eq!(kept.load(Ordering::Relaxed), 1);
        drop(guard);
    }
}
