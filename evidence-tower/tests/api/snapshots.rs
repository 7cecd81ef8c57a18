//! Snapshots, end to end: the specification's rows for the list, and one snapshot in full.

use evidence_core::fact::Fact;
use evidence_core::snapshots::{Annotation, RunningArtifact, Snapshot};
use evidence_tower::EvidenceApi;
use http_body_util::{BodyExt, Empty};
use tower::ServiceExt;

use crate::support::prelude::*;
use crate::unreadable::{inject, on_every_store_without_rebuild};

/// Three snapshots: 1 and 2 instances of `1` and `2`, then `2` alone, then `2` and `3`.
async fn given_three_snapshots(api: &Api) {
    api.given_environments("docker", &["prod"]).await;
    let reports: [&[ReportedArtifact<'_>]; 3] =
        [&[('1', &[10]), ('2', &[20, 21])], &[('2', &[20, 21])], &[('2', &[20]), ('3', &[15])]];
    for running in reports {
        api.report_running("prod", running).await.expect_exactly(201, json!("OK"));
    }
}

#[apply(on_every_store)]
async fn the_list_has_integers_and_0_as_the_end_of_the_current_snapshot(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.get("/snapshots/acme/prod").key("reader-key").await.expect_exactly(200, json!([]));
    api.report_running("prod", &[]).await;
    api.report_running("prod", &[('1', &[1])]).await;
    let now = NOW.whole_seconds();
    api.get("/snapshots/acme/prod").await.expect_exactly(
        200,
        json!([
            {"index": 2, "from": now, "to": 0, "compliant": false, "duration": 0},
            {"index": 1, "from": now, "to": now, "compliant": false, "duration": 0},
        ]),
    );
}

#[apply(on_every_store)]
async fn the_list_is_paged_reversed_and_narrowed_to_an_interval(api: Api) {
    given_three_snapshots(&api).await;
    let table: [(&str, &[u64]); 26] = [
        ("", &[3, 2, 1]),
        ("page=1&per_page=2", &[3, 2]),
        ("page=2&per_page=2", &[1]),
        ("page=3&per_page=2", &[]),
        ("page=9223372036854775807", &[]),
        ("per_page=1", &[3]),
        ("per_page=9223372036854775807", &[3, 2, 1]),
        ("reverse=True", &[1, 2, 3]),
        ("reverse=true&per_page=1", &[1]),
        ("reverse=1", &[1, 2, 3]),
        ("reverse=False", &[3, 2, 1]),
        ("reverse=0", &[3, 2, 1]),
        ("interval=", &[3, 2, 1]),
        ("interval=2", &[2]),
        ("interval=NOW", &[3]),
        ("interval=1..2", &[2, 1]),
        ("interval=1..2&reverse=true", &[1, 2]),
        ("interval=~1..NOW", &[3, 2]),
        ("interval=-2..", &[3, 2]),
        ("interval=2..1", &[]),
        ("interval=0..99", &[3, 2, 1]),
        ("interval=9", &[]),
        ("interval=9..12", &[]),
        ("interval=@%7Bnow%7D", &[3]),
        ("interval=@%7B1.hour.ago%7D", &[]),
        ("interval=@%7B2000-01-01T00:00:00%7D..2", &[2, 1]),
    ];
    for (query, indexes) in table {
        let expected: Vec<_> = indexes.iter().map(|index| json!({ "index": index })).collect();
        api.get(&format!("/snapshots/acme/prod?{query}")).await.expect(200, json!(expected));
    }
}

#[apply(on_every_store)]
async fn a_parameter_of_the_list_that_breaks_its_rule_is_named(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    let integer = "Input should be a valid integer, unable to parse string as an integer [input: ]";
    let table = [
        ("page=0", "query.page", "Input should be greater than or equal to 1 [input: 0]"),
        ("page=-1", "query.page", "Input should be greater than or equal to 1 [input: -1]"),
        ("page=", "query.page", integer),
        ("per_page=0", "query.per_page", "Input should be greater than or equal to 1 [input: 0]"),
        ("per_page=", "query.per_page", integer),
        ("reverse=", "query.reverse", "Input should be a valid boolean, unable to interpret input [input: ]"),
        ("interval=x", "query.interval", "Invalid interval value: x"),
        ("interval=1..2..3", "query.interval", "Invalid interval value: 1..2..3"),
    ];
    for (query, field, text) in table {
        let refused = json!({"message": "Input payload validation failed", "errors": {field: text}});
        api.get(&format!("/snapshots/acme/prod?{query}")).await.expect_exactly(400, refused);
    }
}

#[apply(on_every_store)]
async fn an_unknown_environment_has_no_snapshots_and_is_told_as_the_specification_tells_it(api: Api) {
    let missing = json!({
        "message": "Flow not found",
        "errors": {"env_name": "no environment named 'none' in organization 'acme'"}
    });
    for path in ["/snapshots/acme/none", "/snapshots/acme/none/1"] {
        api.get(path).await.expect_exactly(404, missing.clone());
    }
}

#[apply(on_every_store)]
async fn a_snapshot_is_found_by_every_form_of_expression(api: Api) {
    given_three_snapshots(&api).await;
    let table = [
        ("1", 1),
        ("3", 3),
        ("%231", 1),
        ("-1", 3),
        ("-3", 1),
        ("~0", 3),
        ("~2", 1),
        ("NOW", 3),
        ("@%7Bnow%7D", 3),
        ("@%7B0.hours.ago%7D", 3),
        ("@%7B2100-01-01T00:00:00%7D", 3),
    ];
    for (expression, index) in table {
        api.get(&format!("/snapshots/acme/prod/{expression}")).await.expect(200, json!({ "index": index }));
    }
}

#[apply(on_every_store)]
async fn an_expression_that_names_no_snapshot_says_what_it_came_to(api: Api) {
    given_three_snapshots(&api).await;
    api.given_environments("docker", &["empty"]).await;
    let table = [
        ("prod", "23", "prod#23", "prod#23", 3),
        ("prod", "0", "prod#0", "prod#0", 3),
        ("prod", "-4", "prod#-4", "prod#0", 3),
        ("prod", "~3", "prod~3", "prod#0", 3),
        ("prod", "@%7B1.day.ago%7D", "prod@{1.days.ago}", "prod#0", 3),
        ("empty", "-1", "empty#-1", "empty#0", 0),
    ];
    for (environment, expression, asked, resolved, count) in table {
        let text = format!(
            "Org: 'acme'. Snapshot '{asked}' resolves to '{resolved}'. len(snapshots) == {count}. Indexes are 1-based"
        );
        let missing = json!({"message": "Snapshot not found", "errors": {"snapshot_expression": text}});
        api.get(&format!("/snapshots/acme/{environment}/{expression}")).await.expect_exactly(404, missing);
    }
    let text = "Invalid snapshot expression: five";
    let refused =
        json!({"message": "Input payload validation failed", "errors": {"snapshot_expression": text}});
    api.get("/snapshots/acme/prod/five").await.expect_exactly(400, refused);
}

#[apply(on_every_store)]
async fn a_snapshot_shows_the_newest_first_and_what_exited_last(api: Api) {
    given_three_snapshots(&api).await;
    let artifact = |digit: char, kind: &str, was: u64, now: u64, created: &[i64]| {
        json!({
            "fingerprint": fingerprint(digit), "creationTimestamp": created, "compliant": null,
            "annotation": {"type": kind, "was": was, "now": now}
        })
    };
    let snapshots = [
        vec![
            artifact('2', "started-unknown", 0, 2, &[20, 21]),
            artifact('1', "started-unknown", 0, 1, &[10]),
        ],
        vec![artifact('2', "unchanged", 2, 2, &[20, 21]), artifact('1', "exited", 1, 0, &[10])],
        vec![artifact('2', "unchanged", 2, 1, &[20]), artifact('3', "started-unknown", 0, 1, &[15])],
    ];
    let now = json!(NOW.seconds());
    for (index, artifacts) in (1..).zip(snapshots) {
        let running = artifacts.iter().filter(|artifact| artifact["annotation"]["now"] != json!(0)).count();
        let expected = json!({
            "index": index, "is_latest": index == 3, "timestamp": now, "type": "docker", "compliant": false,
            "next_snapshot_timestamp": if index == 3 { Value::Null } else { now.clone() },
            "html_url": format!("http://localhost:8001/acme/environments/prod/snapshots/{index}"),
            "artifact_compliance_count": {"true": 0, "false": 0, "null": running},
            "applied_policies": [], "artifacts": artifacts
        });
        api.get(&format!("/snapshots/acme/prod/{index}")).await.expect(200, expected);
    }
}

#[apply(on_every_store)]
async fn an_artifact_without_provenance_has_empty_and_null_fields(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.put_policy("p", PROVENANCE).await;
    api.attach("prod", "p").await;
    api.report_running("prod", &[('1', &[10])]).await;
    let resolution = json!({"type": "missing_provenance", "context": {"flow_name": null, "trail_name": null, "artifact_status": null}});
    let ignored = json!({"type": "rule_not_applicable", "context": {"flow_name": null, "trail_name": null, "artifact_status": null}});
    let decision = json!({
        "policy_name": "p", "policy_version": 1, "status": "NON-COMPLIANT",
        "rule_evaluations": [
            {
                "rule": {"type": "provenance", "definition": {"required": true, "exceptions": []}},
                "satisfied": false, "ignored": false, "resolutions": [resolution]
            },
            {
                "rule": {"type": "trail-compliance", "definition": {"required": false, "exceptions": []}},
                "satisfied": null, "ignored": true, "resolutions": [ignored]
            }
        ]
    });
    let artifact = json!({
        "name": "image-1", "fingerprint": fingerprint('1'), "compliant": false, "deployments": [],
        "creationTimestamp": [10], "pods": null, "ecs_context": null,
        "annotation": {"type": "started-non-compliant", "was": 0, "now": 1},
        "reasons_for_incompliance":
            ["policy 'p' (version 1): provenance is required, and the artifact was reported in no flow"],
        "flow_name": "", "git_commit": "", "commit_url": "", "html_url": "", "flow_html_url": "",
        "deployment_diff": null, "commit_lead_time": null, "flows": [], "policy_decisions": [decision]
    });
    let policy = json!({
        "name": "p", "version": 1, "failing_artifacts": [fingerprint('1')],
        "policy_dump": {"schema_version": "1", "artifacts": {"provenance": {"required": true, "exceptions": []}}}
    });
    let expected = json!({"artifacts": [artifact], "applied_policies": [policy]});
    api.get("/snapshots/acme/prod/1").await.expect(200, expected);
}

#[apply(on_every_store)]
async fn an_artifact_with_provenance_shows_its_flow_trail_and_commit(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.given_artifact('1', "t1").await;
    api.report_running("prod", &[('1', &[1600, 1500])]).await;
    let commit = "c".repeat(40);
    let flow = json!({
        "flow_name": "web", "trail_name": "t1", "template_reference_name": "api", "git_commit": commit,
        "commit_url": "http://c/1", "git_commit_info": {"sha1": commit, "timestamp": 1000},
        "flow_html_url": "http://localhost:8001/acme/flows/web", "deployment_diff": null,
        "commit_lead_time": 500.0, "artifact_compliance_in_flow": true, "flow_reasons_for_non_compliance": []
    });
    let artifact = json!({
        "compliant": null, "creationTimestamp": [1500, 1600], "flow_name": "web", "git_commit": commit,
        "commit_url": "http://c/1", "flow_html_url": "http://localhost:8001/acme/flows/web",
        "commit_lead_time": 500.0, "flows": [flow], "policy_decisions": []
    });
    api.get("/snapshots/acme/prod/1").await.expect(200, json!({"artifacts": [artifact]}));
}

/// No report of a kind that the service takes yet leaves any; what is recorded is shown and evaluated all the same.
#[test]
fn what_has_no_digest_is_shown_with_its_context_and_evaluated_as_without_provenance() {
    on_every_store_without_rebuild(async |api, store, acme| {
        api.given_environments("ECS", &["prod"]).await;
        let environment = store.environment(acme, "prod").await.unwrap().unwrap().record.id;
        let task = json!({"task_arn": "arn:1", "cluster_name": "shop", "service_name": null});
        let pods = json!({"web-1": {"namespace": "shop"}});
        let instance = |name: &str, created: i64, context: &Value| RunningArtifact {
            fingerprint: None,
            name: name.to_owned(),
            other_names: vec![],
            created: vec![created],
            context: serde_json::from_str(&context.to_string()).unwrap(),
            from: 1,
            since: 1,
            annotation: Annotation { kind: "started-unknown".to_owned(), was: 0, now: 1 },
            compliant: None,
            provenance: vec![],
            source: None,
            judged_by: None,
            violates: vec![],
            outcomes: vec![],
            inputs: None,
            not_evaluated: None,
            allowed_by: None,
        };
        let snapshot = Snapshot {
            environment,
            index: 1,
            at: NOW,
            compliant: false,
            reported: true,
            rests_on: None,
            requires_provenance: false,
            events_before: 0,
            skipped_elements: 0,
            policies: vec![],
            demanded: vec![],
            logical: vec![],
            changes: vec![
                instance("task", 20, &json!({"ecs_context": task, "containers": ["a"]})),
                instance("web", 10, &json!({"pods": pods})),
            ],
            exits: vec![],
        };
        inject(store, acme, Fact::SnapshotTaken { snapshot }).await;
        let artifact = |name: &str, pods: &Value, ecs_context: &Value, compliant: Option<bool>| {
            json!({
                "name": name, "fingerprint": "", "compliant": compliant, "pods": pods, "ecs_context": ecs_context,
                "flow_name": "", "html_url": "", "flows": [],
            })
        };
        let shown = |compliant| {
            [
                artifact("task", &Value::Null, &task, compliant),
                artifact("web", &pods, &Value::Null, compliant),
            ]
        };
        let first = api.get("/snapshots/acme/prod/1").await;
        first.expect(200, json!({"artifacts": shown(None), "applied_policies": []}));

        api.put_policy("p", PROVENANCE).await.created();
        api.attach("prod", "p").await;
        let second = api.get("/snapshots/acme/prod/2").await;
        let applied = json!([{"name": "p", "failing_artifacts": ["", ""]}]);
        let evaluated =
            json!({"compliant": false, "artifacts": shown(Some(false)), "applied_policies": applied});
        second.expect(200, evaluated);
        api.expect_snapshots("prod", 2).await;
    });
}

#[tokio::test]
async fn what_fails_is_told_policy_after_policy_and_never_held_whole() {
    const POLICIES: usize = 20;
    const RUNNING: usize = 300;
    let evidence = in_memory().await;
    let api = Api::new(evidence.clone(), Mount::Tower, "memory").await;
    api.given_environments("docker", &["prod"]).await;
    for number in 0..POLICIES {
        let name = format!("p{number}");
        api.put_policy(&name, PROVENANCE).await.created();
        api.attach("prod", &name).await;
    }
    let digest = |number: usize| format!("{number:064x}");
    let entry = |number| json!({"digests": {"app": digest(number)}, "creationTimestamp": 1});
    let running = json!({"artifacts": Vec::from_iter((0..RUNNING).map(entry))});
    api.put("/environments/acme/prod/report/docker").json(running).await.created();
    let request = http::Request::get("/api/v2/snapshots/acme/prod/1");
    let request = request.header("authorization", format!("Bearer {JANE}"));
    let request = request.body(Empty::<bytes::Bytes>::new()).unwrap();
    let mut body = EvidenceApi::new(evidence).oneshot(request).await.unwrap().into_body();
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        let piece = frame.unwrap().into_data().unwrap();
        // Of one policy it is 20,000 bytes.
        assert!(piece.len() < 60_000, "a piece of {} bytes", piece.len());
        text.extend_from_slice(&piece);
    }
    let snapshot: Value = serde_json::from_slice(&text).unwrap();
    let policies = snapshot["applied_policies"].as_array().unwrap();
    assert_eq!((policies.len(), snapshot["artifacts"].as_array().map(Vec::len)), (POLICIES, Some(RUNNING)));
    for policy in policies {
        let mut failing = Vec::from_iter(policy["failing_artifacts"].as_array().unwrap().iter().cloned());
        failing.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
        assert_eq!(failing, Vec::from_iter((0..RUNNING).map(|number| json!(digest(number)))));
    }
}
