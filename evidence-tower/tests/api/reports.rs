//! Environment reports, end to end: the specification's rows for Docker reports, and what takes a snapshot.

use crate::support::prelude::*;

#[apply(on_every_store)]
async fn a_docker_report_answers_201_with_a_new_snapshot_and_200_without(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    let table: [(&[ReportedArtifact<'_>], u16); 11] = [
        (&[], 201),
        (&[], 200),
        (&[('1', &[10])], 201),
        (&[('1', &[10])], 200),
        // Counts and times alone are nothing new.
        (&[('1', &[10, 11])], 200),
        (&[('1', &[12])], 200),
        (&[('1', &[12]), ('2', &[13])], 201),
        (&[('2', &[13]), ('1', &[12])], 200),
        (&[('2', &[13])], 201),
        (&[('3', &[13])], 201),
        (&[], 201),
    ];
    for (running, status) in table {
        api.report_running("prod", running).await.expect_exactly(status, json!("OK"));
    }
    api.expect_snapshots("prod", 6).await;
    let now = NOW.seconds();
    let times = json!({"last_reported_at": now, "last_changed_at": now, "last_modified_at": now});
    api.get("/environments/acme/prod").await.expect(200, times);
}

#[apply(on_every_store)]
async fn the_same_fingerprint_under_another_name_is_no_change(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    let report = |name: &str| {
        let artifact = json!({"digests": {name: fingerprint('1')}, "creationTimestamp": 1});
        api.put("/environments/acme/prod/report/docker")
            .json(json!({"type": "docker", "artifacts": [artifact]}))
    };
    report("nginx:1").await.expect_exactly(201, json!("OK"));
    report("nginx:2").await.expect_exactly(200, json!("OK"));
}

#[apply(on_every_store)]
async fn an_invalid_docker_report_is_refused_by_field(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    let one = |artifact: Value| json!({ "artifacts": [artifact] });
    let digest = fingerprint('1');
    let pattern = "String should match pattern '^[a-f0-9]{64}$'";
    let upper = digest.replace('1', "A");
    let table = [
        (json!({}), "artifacts", "Field required [input: None]".to_owned()),
        (json!([]), "body", "Input should be a valid dictionary [input: []]".to_owned()),
        (json!({"artifacts": "x"}), "artifacts", "Input should be a valid list [input: x]".to_owned()),
        (json!({"artifacts": [], "more": 1}), "more", "Extra inputs are not permitted [input: 1]".to_owned()),
        (
            json!({"artifacts": [], "type": "server"}),
            "type",
            "Input should be 'docker' [input: server]".to_owned(),
        ),
        (one(json!("")), "artifacts[0]", "Input should be a valid dictionary [input: ]".to_owned()),
        (
            one(json!({"creationTimestamp": 1})),
            "artifacts[0].digests",
            "Field required [input: None]".to_owned(),
        ),
        (
            one(json!({"digests": {}, "creationTimestamp": 1})),
            "artifacts[0].digests",
            "At least one element should have a digest. If nothing runs, send an empty list".to_owned(),
        ),
        (
            one(json!({"digests": {"a": ""}, "creationTimestamp": 1})),
            "artifacts[0].digests.a",
            format!("{pattern} [input: ]"),
        ),
        (
            one(json!({"digests": {"a": upper}, "creationTimestamp": 1})),
            "artifacts[0].digests.a",
            format!("{pattern} [input: {upper}]"),
        ),
        (
            one(json!({"digests": {"a": digest}})),
            "artifacts[0].creationTimestamp",
            "Field required [input: None]".to_owned(),
        ),
        (
            one(json!({"digests": {"a": digest}, "creationTimestamp": -1})),
            "artifacts[0].creationTimestamp",
            "Input should be greater than or equal to 0 [input: -1]".to_owned(),
        ),
        (
            one(json!({"digests": {"a": digest}, "creationTimestamp": 1.5})),
            "artifacts[0].creationTimestamp",
            "Input should be a valid integer [input: 1.5]".to_owned(),
        ),
        (
            one(json!({"digests": {"a": digest}, "creationTimestamp": 1, "podName": "p"})),
            "artifacts[0].podName",
            "Extra inputs are not permitted [input: p]".to_owned(),
        ),
    ];
    let report = || api.put("/environments/acme/prod/report/docker");
    for (body, field, text) in table {
        let refused = json!({"message": "Invalid report data", "errors": {field: text}});
        report().json(&body).await.expect_exactly(400, refused);
    }
    let no_json = report().bytes("application/json", "{").await;
    no_json.expect_message(400, "Invalid report data");
    report().await.expect_message(400, "Invalid report data");
    api.expect_snapshots("prod", 0).await;
}

#[apply(on_every_store)]
async fn a_report_goes_to_an_existing_environment_of_its_kind(api: Api) {
    api.given_environments("docker", &["containers"]).await;
    api.given_environments("server", &["machine"]).await;
    api.given_environments("logical", &["all"]).await;
    let report = |environment: &str, kind: &str| {
        let path = format!("/environments/acme/{environment}/report/{kind}");
        api.put(&path).json(json!({"artifacts": []}))
    };
    let missing = json!({
        "message": "Environment not found",
        "errors": {"env_name": "no environment named 'none' in organization 'acme'"}
    });
    for kind in ["docker", "server"] {
        report("none", kind).await.expect_exactly(404, missing.clone());
    }
    for (environment, kind, is) in [
        ("machine", "docker", "server"),
        ("containers", "server", "docker"),
        ("all", "docker", "logical"),
        ("all", "server", "logical"),
    ] {
        let text =
            format!("Environment '{environment}' is of type '{is}', which takes no reports of type '{kind}'");
        let refused = json!({"message": "Invalid report data", "errors": {"env_name": text}});
        report(environment, kind).await.expect_exactly(400, refused);
    }
    report("machine", "server").key("snapshotter-key").await.expect_exactly(201, json!("OK"));
    report("machine", "server").key("reader-key").await.expect(403, json!({}));
}

#[apply(on_every_store)]
async fn a_changed_verdict_takes_a_snapshot_though_the_same_runs(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.given_flow_with_template().await;
    api.put_policy("p", COMPLIANCE).await;
    api.attach("prod", "p").await;
    let latest = async |kind: &str, compliant: bool, in_flow: bool| {
        let artifact = json!({
            "compliant": compliant, "annotation": {"type": kind},
            "flows": [{"flow_name": "web", "artifact_compliance_in_flow": in_flow}]
        });
        let count = json!({"true": u64::from(compliant), "false": u64::from(!compliant), "null": 0});
        let expected =
            json!({"compliant": compliant, "artifacts": [artifact], "artifact_compliance_count": count});
        api.get("/snapshots/acme/prod/-1").await.expect(200, expected);
        api.get("/environments/acme/prod").await.expect(200, json!({"state": compliant}));
    };
    let running: [ReportedArtifact<'_>; 1] = [('1', &[10])];

    api.given_artifact('1', "t1").await;
    api.report_running("prod", &running).await.expect_exactly(201, json!("OK"));
    latest("started-non-compliant", false, false).await;
    api.given_test('1', "t1", true).await;
    api.report_running("prod", &running).await.expect_exactly(201, json!("OK"));
    latest("became-compliant", true, true).await;
    api.report_running("prod", &running).await.expect_exactly(200, json!("OK"));
    api.given_test('1', "t1", false).await;
    api.report_running("prod", &running).await.expect_exactly(201, json!("OK"));
    latest("became-non-compliant", false, false).await;
    api.given_artifact('1', "t2").await;
    api.report_running("prod", &running).await.expect_exactly(201, json!("OK"));
    latest("updated-provenance", false, false).await;
    api.expect_snapshots("prod", 4).await;
}

#[apply(on_every_store)]
async fn what_is_on_the_allowlist_may_run_whatever_the_policies_say(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.put_policy("p", PROVENANCE).await;
    api.attach("prod", "p").await;
    let running: [ReportedArtifact<'_>; 1] = [('1', &[10])];
    api.report_running("prod", &running).await.expect_exactly(201, json!("OK"));
    api.get("/snapshots/acme/prod/-1").await.expect(200, json!({"compliant": false}));
    let allow =
        json!({"artifact_name": "nginx", "artifact_fingerprint": fingerprint('1'), "description": "known"});
    api.put("/allowlists/acme/prod").json(&allow).await.expect_exactly(201, allow);
    api.report_running("prod", &running).await.expect_exactly(201, json!("OK"));
    let artifact = json!({"compliant": true, "annotation": {"type": "became-compliant", "was": 1, "now": 1}});
    api.get("/snapshots/acme/prod/-1").await.expect(200, json!({"compliant": true, "artifacts": [artifact]}));
}

#[apply(on_every_store)]
async fn what_runs_nothing_is_evaluated_by_its_policies_at_the_next_report(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.report_running("prod", &[]).await.expect_exactly(201, json!("OK"));
    api.get("/environments/acme/prod").await.expect(200, json!({"state": null}));
    api.put_policy("p", PROVENANCE).await.expect(201, json!({"name": "p"}));
    let request = api.post("/environments/acme/prod/policies").json(json!({"policy_names": ["p"]}));
    request.await.expect_exactly(200, json!("OK"));
    // No artifact runs that must not.
    api.get("/environments/acme/prod").await.expect(200, json!({"state": true}));
    api.expect_snapshots("prod", 2).await;
}

#[apply(on_every_store)]
async fn the_same_policy_sent_again_evaluates_nothing_twice(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.put_policy("p", PROVENANCE).await.expect(201, json!({"name": "p"}));
    let request = api.post("/environments/acme/prod/policies").json(json!({"policy_names": ["p"]}));
    request.await.expect_exactly(200, json!("OK"));
    api.report_running("prod", &[('1', &[1])]).await.expect_exactly(201, json!("OK"));
    api.put_policy("p", COMPLIANCE).await.expect(200, json!({"name": "p"}));
    api.expect_snapshots("prod", 2).await;
    api.put_policy("p", COMPLIANCE).await.expect(200, json!({"name": "p"}));
    api.expect_snapshots("prod", 2).await;
}
