//! How much the API takes in: what a host sets is what is taken, and what is refused stores nothing.

use evidence_core::limits::Unit;

use crate::support::prelude::*;

async fn limited(limits: Limits) -> Api {
    Api::new(in_memory_with(Settings { limits, ..Settings::default() }).await, Mount::Tower, "memory").await
}

#[tokio::test]
async fn an_environment_has_so_many_policies_and_members_and_no_more() {
    let limits = Limits { environment_policies: 2, environment_members: 2, ..Limits::default() };
    let api = limited(limits).await;
    let refused = |field: &str| json!({"message": "Input payload validation failed", "errors": {field: "There should be at most 2 items, not 3"}});
    for name in ["p1", "p2", "p3"] {
        api.put_policy(name, PROVENANCE).await.expect(201, json!({"name": name}));
    }
    api.given_environments("docker", &["e1", "e2", "e3"]).await;
    api.given_environments("logical", &["all"]).await;

    let put = |body| api.put("/environments/acme").json(body);
    let three = json!({"name": "all", "type": "logical", "description": "", "included_environments": ["e1", "e2", "e3"]});
    put(&three).await.expect_exactly(400, refused("included_environments"));
    let three = json!({"name": "e1", "type": "docker", "description": "", "policies": ["p1", "p2", "p3"]});
    put(&three).await.expect_exactly(400, refused("policies"));

    for (member, status, answer) in
        [("e1", 200, json!("OK")), ("e2", 200, json!("OK")), ("e3", 400, refused("physical_env_name"))]
    {
        let request = api.put("/environments/acme/all/join").json(json!({ "physical_env_name": member }));
        request.await.expect_exactly(status, answer);
    }
    for (policy, status, answer) in
        [("p1", 200, json!("OK")), ("p2", 200, json!("OK")), ("p3", 400, refused("policy_names"))]
    {
        let request = api.post("/environments/acme/e1/policies").json(json!({ "policy_names": [policy] }));
        request.await.expect_exactly(status, answer);
    }
    api.get("/environments/acme/e1").await.expect(200, json!({"policies": ["p1", "p2"]}));
    api.get("/environments/acme/all").await.expect(200, json!({"included_environments": ["e1", "e2"]}));
}

#[tokio::test]
async fn a_trail_takes_so_many_reports_and_no_more() {
    let api = limited(Limits { trail_artifacts: 2, trail_attestations: 3, ..Limits::default() }).await;
    let refused = |reports: &str| {
        let text = format!("Trail 't' has {reports} and takes no more");
        json!({"message": "Input payload validation failed", "errors": {"trail_name": text}})
    };
    let artifact = |digit: &str| api.post_artifact("shop", digit.repeat(64)).in_trail("t");
    artifact("1").await.created();
    artifact("1").await.created();
    artifact("2").await.expect_exactly(400, refused("2 artifacts"));
    let attest = || api.post_generic_attestation("shop", "scan", true);
    for _ in 0..3 {
        attest().await.created();
    }
    attest().await.expect_exactly(400, refused("3 attestations"));
    let with_file = attest().file("attachment_file", "a.txt", "a").await;
    with_file.expect_exactly(400, refused("3 attestations"));
    let events = api.get("/trails/acme/shop/t").await.ok()["events"].as_array().unwrap().len();
    assert_eq!(events, 1 + 2 + 3);
    // Only this trail is full.
    api.post_artifact("shop", "2".repeat(64)).in_trail("u").await.created();
}

#[tokio::test]
async fn a_pdf_shows_so_many_bytes_and_no_more() {
    let api = limited(Limits { audit_pdf: 5_000, ..Limits::default() }).await;
    let attest = |description: String| {
        api.post_generic_attestation("shop", "scan", true).with(json!({"description": description}))
    };
    attest(String::new()).await.created();
    assert_eq!(api.get("/trails/acme/shop/t/audit_pdf").await.status, 200);
    attest("x".repeat(5_000)).await.created();
    let reply = api.get("/trails/acme/shop/t/audit_pdf").await.expect(400, json!({}));
    let message = reply.json()["errors"]["trail_name"].as_str().unwrap().to_owned();
    assert!(message.ends_with("bytes of reports; a PDF shows 5000 at most"), "{message}");
    api.get("/trails/acme/shop/t").await.ok();
}

#[tokio::test]
async fn a_resource_has_a_hundred_tags_and_no_more() {
    let api = limited(Limits::default()).await;
    api.given_environments("docker", &["prod"]).await;
    let tags = |from: usize, to: usize| {
        let tags: serde_json::Map<_, _> = (from..to).map(|n| (format!("k{n}"), json!("v"))).collect();
        api.request(http::Method::PATCH, "/tags/acme/environment/prod").json(json!({ "set_tags": tags }))
    };
    tags(0, 100).await.expect_exactly(200, json!("OK"));
    let text = "There should be at most 100 items, not 101";
    let refused = json!({"message": "Input payload validation failed", "errors": {"set_tags": text}});
    tags(100, 101).await.expect_exactly(400, refused);
    tags(99, 100).await.expect_exactly(200, json!("OK"));
}

#[tokio::test]
async fn every_size_is_the_one_that_the_host_sets() {
    let limits = Limits {
        url: 200,
        body: 300,
        report: 400,
        document: 100,
        file: 2 << 20,
        files: 2,
        template: 50,
        policy: 60,
        type_schema: 70,
        ..Limits::default()
    };
    let api = limited(limits).await;
    let too_large = |part: &str, bytes: u64| {
        let text = format!("Input should have at most {bytes} bytes");
        json!({"message": "Request body too large", "errors": {part: text}})
    };
    let text = |start: &str, size: usize| format!("{start}{}", "#".repeat(size - start.len()));

    let flow = |template: &str| api.put_flow("web").template(template);
    flow(&text("version: 1\n", 51)).await.expect_exactly(413, too_large("template_file", 50));
    flow(&text("version: 1\n", 50)).await.expect_exactly(201, json!("OK"));
    let trail = |template: &str| api.put_trail("web", &json!({"name": "t"})).template(template);
    trail(&text("version: 1\n", 51)).await.expect_exactly(413, too_large("template_file", 50));
    trail(&text("version: 1\n", 50)).await.expect_exactly(201, json!("OK"));
    let policy = "_schema: https://example.com/schemas/policy/v1\n";
    api.put_policy("p", &text(policy, 61)).await.expect_exactly(413, too_large("policy_file", 60));
    api.put_policy("p", &text(policy, 60)).await.expect(201, json!({"name": "p"}));
    let schema = |size: usize| {
        let post = api.post("/custom-attestation-types/acme").data_json(json!({"name": "review"}));
        post.file("type_schema", "s", format!("{{}}{}", " ".repeat(size - 2)))
    };
    schema(71).await.expect_exactly(413, too_large("type_schema", 70));
    schema(70).await.expect_exactly(201, json!("OK"));

    api.given_environments("docker", &["prod"]).await;
    let padded = |path: &str, body: Value, size: usize| {
        api.put(path).bytes("application/json", format!("{:<size$}", body.to_string()))
    };
    let environment = |size| {
        padded("/environments/acme", json!({"name": "prod", "type": "docker", "description": ""}), size)
    };
    environment(301).await.expect_exactly(413, too_large("body", 300));
    environment(300).await.expect_exactly(201, json!("OK"));
    let report = |size| padded("/environments/acme/prod/report/docker", json!({"artifacts": []}), size);
    report(401).await.expect_exactly(413, too_large("body", 400));
    report(400).await.expect_exactly(201, json!("OK"));

    let attest = |document: usize, file: usize| {
        let data = json!({"attestation_name": "x", "is_compliant": true}).to_string();
        let data = format!("{data}{}", " ".repeat(document - data.len()));
        api.post_attestation("web", "t", "generic").data_json(&data).file(
            "attachment_file",
            "f",
            "x".repeat(file),
        )
    };
    attest(101, 1).await.expect_exactly(413, too_large("data_json", 100));
    attest(100, (2 << 20) + 1).await.expect_exactly(413, json!({"message": "File size exceeds 2MB limit"}));
    attest(100, 2 << 20).await.expect_exactly(201, json!("OK"));

    let path = |size: usize| {
        format!(
            "/flows/acme?search_by_name={}",
            "x".repeat(size - "/api/v2/flows/acme?search_by_name=".len())
        )
    };
    assert_eq!(api.get(&path(201)).await.status, 414);
    api.get(&path(200)).await.expect_exactly(200, json!([]));
}

/// Real input that former versions refused: data of bills of materials, messages of squashed commits, pull requests of many
/// commits, and scans with many findings. The limits keep their proportions, because a document has to fit all of them.
#[tokio::test]
async fn large_input_is_accepted_up_to_the_limit_and_the_error_names_it() {
    let Limits { attestation_data, commit_message, commits, findings, junit_suites, .. } = Limits::default();
    let defaults = (attestation_data, commit_message, commits, findings, junit_suites);
    assert_eq!(defaults, (16 << 20, 1 << 20, 10_000, 100_000, 100_000));
    // Smaller limits of the same proportions, so that debug builds read the input quickly.
    let smaller = if std::env::var_os("EVIDENCE_TEST_THOROUGH").is_some() { 1 } else { 64 };
    let mut limits = Limits::default();
    for limit in limits.all() {
        limits.set(&format!("{}={}", limit.name, limit.value / smaller)).unwrap();
    }
    let limits = Limits { files: limits.files.max(1), url: 8 << 10, ..limits };
    limits.check().unwrap();
    let api = limited(limits).await;
    api.post("/custom-attestation-types/acme").data_json(json!({"name": "any"})).await.created();

    let custom = |data: Value| {
        let document = json!({"attestation_name": "bom", "type_name": "any", "attestation_data": data});
        api.attest("custom", &document)
    };
    // Two bytes are the quotation marks.
    let text = |bytes: usize| json!({"a": "x".repeat(bytes - r#"{"a":""}"#.len())});
    let most = limits.attestation_data;
    custom(text(most)).await.created();
    custom(json!(text(most).to_string())).await.created();
    let excess = format!("Input should have at most {most} bytes as JSON (limit attestation_data)");
    let refused = custom(text(most + 1)).await.expect(400, json!({}));
    let told = refused.json()["errors"]["attestation_data"].as_str().unwrap().to_owned();
    assert!(told.starts_with(&excess), "{told}");
    let component = |n| json!({"name": format!("lib-{n}"), "purl": format!("pkg:npm/lib-{n}@1.0.0")});
    let components = Vec::from_iter((0..100_000 / smaller).map(component));
    custom(json!({ "components": components })).await.created();

    let trail = |bytes: usize| {
        let commit = json!({"sha1": "a".repeat(40), "message": "m".repeat(bytes)});
        api.put_trail("shop", &json!({"name": "t", "git_commit_info": commit}))
    };
    trail(limits.commit_message).await.ok();
    trail(limits.commit_message + 1).await.expect_field_error(400, "git_commit_info.message");

    let commits = |many: usize| {
        let commit = |n: usize| json!({"sha1": format!("{n:040x}"), "message": "Fix the build", "author": "Ann <a@example.com>"});
        let commits: Vec<_> = (0..many).map(commit).collect();
        let pull_request = json!({"url": "https://example.com/1", "state": "MERGED", "commits": commits});
        let pull_requests = json!([pull_request]);
        let document =
            json!({"attestation_name": "pr", "git_provider": "github", "pull_requests": pull_requests});
        api.attest("pull_request", &document)
    };
    commits(limits.commits).await.created();
    commits(limits.commits + 1).await.expect_field_error(400, "pull_requests[0].commits");

    let findings = |low: usize, high: usize| {
        let finding =
            json!({"id": "SNYK-1", "message": "m".repeat(200), "locations": [{"uri": "a.js", "lines": "1"}]});
        let project = json!({
            "low_count": low, "medium_count": 0, "high_count": high,
            "low": vec![&finding; low], "high": vec![&finding; high],
        });
        let results = json!({"tool": {"name": "Snyk", "version": "1"}, "results": [project]});
        api.attest("snyk", &json!({"attestation_name": "scan", "snyk_results": results}))
    };
    let (most, high) = (limits.findings, limits.findings * 2 / 5);
    findings(most - high, high).await.created();
    findings(most - high, high + 1).await.expect_field_error(400, "snyk_results.results");
    findings(0, most + 1).await.expect_field_error(400, "snyk_results.results[0].high");

    let suites = |many: usize| {
        let suite =
            json!({"name": "s", "failures": 0, "errors": 0, "skipped": 0, "total": 2, "duration": 0.5});
        api.attest("junit", &json!({"attestation_name": "unit", "junit_results": vec![suite; many]}))
    };
    suites(limits.junit_suites).await.created();
    suites(limits.junit_suites + 1).await.expect_field_error(400, "junit_results");
}

#[tokio::test]
async fn the_sizes_of_parts_are_those_that_the_host_sets() {
    let limits = Limits {
        attestation_data: 20,
        user_data: 10,
        commit_message: 5,
        commits: 2,
        findings: 3,
        junit_suites: 1,
        json_values: 40,
        ..Limits::default()
    };
    let api = limited(limits).await;
    api.post("/custom-attestation-types/acme").data_json(json!({"name": "any"})).await.created();
    let custom = |data: &str| json!({"attestation_name": "x", "type_name": "any", "attestation_data": data});
    let commit =
        |message: &str| json!({"name": "t", "git_commit_info": {"sha1": "a".repeat(40), "message": message}});
    let pull_requests = |commits: usize| {
        let commits = vec![json!({"sha1": "a".repeat(40)}); commits];
        let pull_request = json!({"url": "u", "state": "open", "commits": commits});
        json!({"attestation_name": "x", "git_provider": "github", "pull_requests": [pull_request]})
    };
    let findings = |low: usize, high: usize| {
        let finding = json!({"id": "a", "message": "m"});
        let project = json!({"low_count": 1, "medium_count": 0, "high_count": 1,
                             "low": vec![&finding; low], "high": vec![&finding; high]});
        let results = json!({"tool": {"name": "Snyk", "version": "1"}, "results": [project]});
        json!({"attestation_name": "x", "snyk_results": results})
    };
    let suite = json!({"name": "s", "failures": 0, "errors": 0, "skipped": 0, "total": 2, "duration": 0.5});
    let suites = |many: usize| json!({"attestation_name": "x", "junit_results": vec![&suite; many]});
    let with_user_data =
        |data: Value| json!({"attestation_name": "x", "is_compliant": true, "user_data": data});
    let values = |many: usize| with_user_data(json!(vec![1; many]));

    api.put_trail("shop", &commit("é123")).await.created();
    api.put_trail("shop", &commit("é1234")).await.expect_field_error(400, "git_commit_info.message");
    let table = [
        ("custom", custom("[1,2,3,4,5,6,7,8,90]"), None),
        ("custom", custom("[1,2,3,4,5,6,7,8,900]"), Some("attestation_data")),
        ("pull_request", pull_requests(2), None),
        ("pull_request", pull_requests(3), Some("pull_requests[0].commits")),
        ("snyk", findings(2, 1), None),
        ("snyk", findings(2, 2), Some("snyk_results.results")),
        ("snyk", findings(4, 0), Some("snyk_results.results[0].low")),
        ("junit", suites(1), None),
        ("junit", suites(2), Some("junit_results")),
        ("generic", with_user_data(json!([1, 2, 3456])), None),
        ("generic", with_user_data(json!([1, 2, 34567])), Some("user_data")),
        ("generic", values(40), Some("data_json")),
    ];
    for (kind, body, refused) in table {
        let reply = api.attest(kind, &body).await;
        match refused {
            None => drop(reply.created()),
            Some(field) => reply.expect_field_error(400, field),
        }
    }
}

#[tokio::test]
async fn a_template_over_100_mb_is_a_file_that_is_too_large() {
    let template = "x".repeat((100 << 20) + 1);
    let reply = limited(Limits::default()).await.put("/flows/acme/template_file").template(&template).await;
    reply.expect_exactly(413, json!({"message": "File size exceeds 100MB limit"}));
}

#[tokio::test]
async fn the_limits_are_shown_to_every_caller_as_the_host_set_them() {
    let limits = Limits { file: 7 << 20, runs: 3, ..Limits::default() };
    let api = limited(limits).await;
    let shown = api.get("/limits").await.ok();
    let expected = limits.all().into_iter().map(|limit| {
        let unit = if limit.unit == Unit::Bytes { "bytes" } else { "count" };
        json!({"name": limit.name, "unit": unit, "value": limit.value, "default": limit.default, "bounds": limit.bounds})
    });
    assert_eq!(shown, json!({"limits": expected.collect::<Vec<_>>()}));
    let value = |name: &str| {
        let limits = shown["limits"].as_array().unwrap();
        limits.iter().find(|limit| limit["name"] == name).map(|limit| limit["value"].clone()).unwrap()
    };
    assert_eq!([value("file"), value("runs"), value("files")], [json!(7 << 20), json!(3), json!(32)]);
}

#[tokio::test]
async fn an_environment_runs_so_many_different_artifacts_and_no_more() {
    let api = limited(Limits { running_artifacts: 2, ..Limits::default() }).await;
    api.given_environments("docker", &["prod"]).await;
    api.report_running("prod", &[('1', &[1, 2, 3]), ('2', &[1])]).await.expect_exactly(201, json!("OK"));
    let text = "There should be at most 2 items, not 3";
    let refused = json!({"message": "Invalid report data", "errors": {"artifacts": text}});
    let three = api.report_running("prod", &[('1', &[1]), ('2', &[1]), ('3', &[1])]).await;
    three.expect_exactly(400, refused);
    api.expect_snapshots("prod", 1).await;
}

/// An artifact that was reported to many flows, under policies of many rules.
#[tokio::test]
async fn what_is_too_much_to_evaluate_is_not_compliant_and_says_so() {
    let api = limited(Limits { resolutions: 8, evaluations: 20, ..Limits::default() }).await;
    api.given_environments("docker", &["prod", "test"]).await;
    for flow in ["one", "two"] {
        let report =
            api.post_artifact(flow, fingerprint('1')).with(json!({"filename": "api", "trail_name": "t"}));
        report.await.created();
    }
    for name in ["a", "b", "c"] {
        api.put_policy(name, PROVENANCE).await.created();
    }
    let gate = |query: &str| api.get(&format!("/asserts/acme/fingerprint/{}?{query}", fingerprint('1')));
    let resolutions = "The policies produce more than 8 rule results for one artifact";
    let refused_by_gate = || {
        let resolution = json!({"type": "not_evaluated", "context": {"reason": resolutions}});
        let rule = json!({"rule": {"type": "policy"}, "satisfied": false, "resolutions": [resolution]});
        let policy = json!({"status": "NON-COMPLIANT", "rule_evaluations": [rule]});
        json!({"compliant": false, "policy_evaluations": [policy, policy, policy]})
    };
    gate("policy_name=a&policy_name=b").await.expect(200, json!({"compliant": true}));
    let three = "policy_name=a&policy_name=b&policy_name=c";
    gate(three).await.expect(200, refused_by_gate());
    gate(&format!("{three}&flow_name=one")).await.expect(200, json!({"compliant": true}));

    // A running artifact that cannot be evaluated does not stay compliant.
    let attach =
        |names: &[&str]| api.post("/environments/acme/prod/policies").json(json!({ "policy_names": names }));
    let detach =
        |name: &str| api.delete("/environments/acme/prod/policies").json(json!({ "policy_names": [name] }));
    let expect = async |compliant: bool, artifacts: usize, reason: Option<&str>| {
        api.get("/environments/acme/prod").await.expect(200, json!({"state": compliant}));
        let snapshot =
            api.get("/snapshots/acme/prod/-1").await.expect(200, json!({"compliant": compliant})).ok();
        let all = snapshot["artifacts"].as_array().unwrap().iter();
        let shown = Vec::from_iter(all.filter(|artifact| artifact["annotation"]["type"] != "exited"));
        assert_eq!(shown.len(), artifacts);
        for artifact in shown {
            let reasons = artifact["reasons_for_incompliance"].to_string();
            assert_eq!(reasons.contains("the artifact was not evaluated"), reason.is_some(), "{reasons}");
            assert!(reasons.contains(reason.unwrap_or_default()), "{reasons}");
        }
    };
    attach(&["a", "b"]).await.ok();
    api.report_running("prod", &[('1', &[1])]).await.created();
    expect(true, 1, None).await;
    attach(&["c"]).await.ok();
    expect(false, 1, Some(resolutions)).await;
    api.report_running("prod", &[('1', &[1])]).await.expect_exactly(200, json!("OK"));
    expect(false, 1, Some(resolutions)).await;
    detach("c").await.ok();
    expect(true, 1, None).await;
    // More artifacts than all policies can evaluate, with one that was evaluated before.
    let many = [('1', &[1_i64] as &[i64]), ('2', &[1]), ('3', &[1]), ('4', &[1]), ('5', &[1])];
    let evaluations = "The policies evaluate more than 20 rules and parts of conditions";
    api.report_running("prod", &many).await.created();
    expect(false, 5, Some(evaluations)).await;
    api.report_running("prod", &many[..4]).await.created();
    let snapshot = api.get("/snapshots/acme/prod/-1").await.ok();
    let compliant =
        Vec::from_iter(snapshot["artifacts"].as_array().unwrap().iter().map(|one| &one["compliant"]));
    assert_eq!(compliant.iter().filter(|one| ***one == true).count(), 1, "{snapshot}");
    api.report_running("prod", &many[..1]).await.created();
    expect(true, 1, None).await;
    // A new version of a policy.
    let rule = "    - type: junit\n";
    let asking = format!("_schema: https://example.com/v1\nartifacts:\n  attestations:\n{}", rule.repeat(3));
    api.put_policy("a", &asking).await.expect(200, json!({"versions": [{}, {"version": 2}]}));
    expect(false, 1, Some(resolutions)).await;
    // Allowed artifacts may still run.
    let allowed =
        json!({"artifact_name": "a", "artifact_fingerprint": fingerprint('1'), "description": "known"});
    api.put("/allowlists/acme/prod").json(allowed).await.created();
    api.report_running("prod", &many[..1]).await.created();
    expect(true, 1, None).await;
    // The gate says what the environment says.
    let settings = json!({"policies": ["a", "b", "c"]});
    api.patch("/environments/acme/test").json(&settings).await.ok();
    gate("environment_name=test").await.expect(200, refused_by_gate());
}

/// More attestations than are evaluated, and more than is recorded.
#[tokio::test]
async fn what_is_too_much_to_keep_or_to_record_is_not_compliant_and_says_so() {
    let asking = "_schema: https://example.com/v1\nartifacts:\n  attestations:\n    - type: generic\n";
    for (limits, reason) in [
        (
            Limits { evaluated_attestations: 3, ..Limits::default() },
            "The policies require more than 3 attestations in total",
        ),
        (
            Limits { snapshot: 1_500, ..Limits::default() },
            "The artifacts and their origins need more than 1500 bytes",
        ),
    ] {
        let api = limited(limits).await;
        api.given_environments("docker", &["prod"]).await;
        api.put_policy("p", asking).await.created();
        api.attach("prod", "p").await;
        let report = async |flow: &str| {
            api.post_artifact(flow, fingerprint('1'))
                .with(json!({"filename": "api", "trail_name": "t"}))
                .await
                .created();
            api.post_generic_attestation(flow, "a", true).await.created();
        };
        report("one").await;
        let reply = api.report_running("prod", &[('1', &[1])]).await;
        assert!(reply.status.is_success(), "{reply:?}");
        api.get("/environments/acme/prod").await.expect(200, json!({"state": true}));
        for number in 0..20 {
            report(&format!("flow{number}")).await;
        }
        let reply = api.report_running("prod", &[('1', &[1])]).await;
        assert!(reply.status.is_success(), "{reply:?}");
        api.get("/environments/acme/prod").await.expect(200, json!({"state": false}));
        let snapshot = api.get("/snapshots/acme/prod/-1").await.ok();
        let reasons = snapshot["artifacts"][0]["reasons_for_incompliance"].to_string();
        assert!(reasons.contains(reason), "{reasons}");
    }
}

/// A host may permit less than it did. Whatever changes then, what was recorded before is evaluated by it, and what does not fit
/// is not compliant.
#[tokio::test]
async fn what_is_too_large_when_it_is_evaluated_again_is_not_compliant_and_says_so() {
    let reason = "The artifacts and their origins need more than 1500 bytes";
    for change in ["withdraw", "version", "attach", "require"] {
        let store = Arc::new(MemoryStore::new());
        let before = fixture(Arc::clone(&store) as _, Settings::default()).await;
        let api = Api::new(before, Mount::Tower, "memory").await;
        api.given_flow_with_template().await;
        api.given_environments("K8S", &["prod"]).await;
        for policy in ["p", "q"] {
            api.put_policy(policy, PROVENANCE).await.created();
        }
        api.attach("prod", "p").await;
        for digit in ['2', '3'] {
            api.given_artifact(digit, "t").await;
        }
        let allowed =
            json!({"artifact_name": "a", "artifact_fingerprint": fingerprint('1'), "description": "known"});
        api.put("/allowlists/acme/prod").json(allowed).await.created();
        let owner = json!({"apiVersion": "v1", "kind": "k".repeat(250), "name": "n".repeat(250), "uid": "u"});
        let pod = |digit: char| {
            let digests = json!({format!("{}{digit}", "x".repeat(700)): fingerprint(digit)});
            json!({"podName": format!("pod-{digit}"), "namespace": "n", "creationTimestamp": 1, "digests": digests, "owners": [owner]})
        };
        let report = |running: &[char]| {
            let artifacts = Vec::from_iter(running.iter().copied().map(pod));
            api.put("/environments/acme/prod/report/K8S").json(json!({"artifacts": artifacts}))
        };
        report(&['1', '2', '3']).await.created();
        api.get("/environments/acme/prod").await.expect(200, json!({"state": true}));

        let settings =
            Settings { limits: Limits { snapshot: 1_500, ..Limits::default() }, ..Settings::default() };
        let api = Api::new(Evidence::new(store, settings), Mount::Tower, "memory").await;
        let is_allowed = change != "withdraw";
        match change {
            "withdraw" => {
                let entry = format!("/allowlists/acme/prod/{}", fingerprint('1'));
                api.delete(&entry).await.expect_exactly(200, json!("OK"));
            }
            "version" => assert_eq!(api.put_policy("p", &format!("{PROVENANCE}# again\n")).await.status, 200),
            "attach" => api.attach("prod", "q").await,
            _ => {
                api.put_environment("prod", "K8S").with(json!({"require_provenance": true})).await.created();
                // That alone changes no verdict.
                api.get("/environments/acme/prod").await.expect(200, json!({"state": true}));
                let detach = api.delete("/environments/acme/prod/policies");
                detach.json(json!({"policy_names": ["p"]})).await.ok();
            }
        }
        api.get("/environments/acme/prod").await.expect(200, json!({"state": false}));
        let snapshot = api.get("/snapshots/acme/prod/-1").await.expect(200, json!({"compliant": false})).ok();
        let artifacts = snapshot["artifacts"].as_array().unwrap();
        assert_eq!(artifacts.len(), 3, "{change}: {snapshot}");
        for artifact in artifacts {
            let allowed = is_allowed && artifact["fingerprint"] == fingerprint('1');
            assert_eq!(
                (&artifact["compliant"], &artifact["pods"]),
                (&json!(allowed), &Value::Null),
                "{change}"
            );
            let reasons = artifact["reasons_for_incompliance"].to_string();
            assert_eq!(reasons.contains(reason), !allowed, "{change}: {reasons}");
        }
        // A snapshot that fits is evaluated as usual.
        api.put("/environments/acme/prod/report/K8S").json(json!({"artifacts": []})).await.created();
        api.get("/environments/acme/prod").await.expect(200, json!({"state": true}));
    }
}

fn refused_field(field: &str, text: &str) -> serde_json::Value {
    json!({"message": INVALID, "errors": {field: text}})
}

/// Archived members count nowhere.
#[tokio::test]
async fn archived_members_make_room_for_others() {
    let api = limited(Limits { environment_members: 2, ..Limits::default() }).await;
    api.given_environments("docker", &["a", "b", "c"]).await;
    api.given_environments("logical", &["all"]).await;
    let join = |name: &str| api.put("/environments/acme/all/join").json(json!({"physical_env_name": name}));
    for name in ["a", "b"] {
        join(name).await.expect_exactly(200, json!("OK"));
    }
    let text = "There should be at most 2 items, not 3";
    join("c").await.expect_exactly(400, refused_field("physical_env_name", text));
    api.put("/environments/acme/a/archive").await.ok();
    join("c").await.expect_exactly(200, json!("OK"));
    api.get("/environments/acme/all").await.expect(200, json!({"included_environments": ["b", "c"]}));
}

/// An artifact that starts and stops again and again.
#[tokio::test]
async fn an_artifact_shows_its_first_run_and_the_newest() {
    let api = limited(Limits { runs: 2, ..Limits::default() }).await;
    api.given_environments("docker", &["prod"]).await;
    api.given_flow_with_template().await;
    api.put_trail("web", &json!({"name": "t"})).await.created();
    api.given_artifact('1', "t").await;
    for _ in 0..4 {
        api.report_running("prod", &[('1', &[1])]).await.created();
        // Another number of instances is part of the run.
        api.report_running("prod", &[('1', &[1, 2]), ('2', &[1])]).await.created();
        api.report_running("prod", &[]).await.created();
    }
    let artifact = api.get(&format!("/artifacts/acme/web/fingerprint/{}", fingerprint('1'))).await.ok();
    let exited = artifact["exited"].as_array().unwrap().iter().map(|interval| &interval["snapshot_index"]);
    assert_eq!(exited.collect::<Vec<_>>(), [3, 9, 12]);
    let trail = api.get("/trails/acme/web/t").await.ok();
    let of = |kind: &str| {
        let events = trail["events"].as_array().unwrap().iter().filter(|event| event["type"] == kind);
        events.map(|event| event["snapshot_index"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(of("artifact_started_running"), [1, 7, 10]);
    assert_eq!(of("artifact_stopped_running"), [3, 9, 12]);
}

/// Two artifacts of the trail `t` that take turns: the first runs twice, at last for good, and the other twice, too.
async fn taking_turns(limits: Limits) -> Api {
    let api = limited(limits).await;
    api.given_environments("docker", &["prod"]).await;
    api.given_flow_with_template().await;
    api.put_trail("web", &json!({"name": "t"})).await.created();
    for digit in ['1', '2'] {
        api.given_artifact(digit, "t").await;
    }
    let (one, other) = (('1', [1].as_slice()), ('2', [1].as_slice()));
    for running in [vec![one], vec![other], vec![one], vec![one, other], vec![one]] {
        api.report_running("prod", &running).await.created();
    }
    api
}

#[tokio::test]
async fn a_trail_shows_the_newest_runs_of_its_artifacts() {
    for (most, from, until) in [
        (4, vec![1, 2, 3, 4], vec![2, 3, 5]),
        (3, vec![2, 3, 4], vec![3, 5]),
        (1, vec![3], vec![]),
        (0, vec![], vec![]),
    ] {
        let api = taking_turns(Limits { trail_runs: most, ..Limits::default() }).await;
        let trail = api.get("/trails/acme/web/t").await.ok();
        let of = |kind: &str| {
            let events = trail["events"].as_array().unwrap().iter().filter(|event| event["type"] == kind);
            let mut shown = Vec::from_iter(events.map(|event| event["snapshot_index"].as_u64().unwrap()));
            shown.sort_unstable();
            shown
        };
        assert_eq!(of("artifact_started_running"), from, "{most}");
        assert_eq!(of("artifact_stopped_running"), until, "{most}");
        assert_eq!(api.get("/trails/acme/web/t/audit_pdf").await.status, 200, "{most}");
    }
}

#[tokio::test]
async fn the_runs_that_a_pdf_shows_count_for_its_size() {
    let bytes = async |most| {
        let limits = Limits { trail_runs: most, audit_pdf: 1, ..Limits::default() };
        let reply =
            taking_turns(limits).await.get("/trails/acme/web/t/audit_pdf").await.expect(400, json!({}));
        let message = reply.json()["errors"]["trail_name"].as_str().unwrap().to_owned();
        let (_, after) = message.split_once(" has ").unwrap();
        after.split_once(' ').unwrap().0.parse::<u64>().unwrap()
    };
    let reports = bytes(0).await;
    assert_eq!(bytes(3).await, reports + 3 * 200);
}

#[tokio::test]
async fn a_snapshot_that_is_too_large_is_refused_and_changes_nothing() {
    let api = limited(Limits { snapshot: 2_000, ..Limits::default() }).await;
    api.given_environments("docker", &["prod"]).await;
    api.report_running("prod", &[('1', &[1])]).await.expect_exactly(201, json!("OK"));
    let many: Vec<i64> = (0..1_000).collect();
    let text = "The artifacts and their origins need more than 2000 bytes";
    let refused = json!({"message": "Invalid report data", "errors": {"artifacts": text}});
    api.report_running("prod", &[('1', &[1]), ('2', &many)]).await.expect_exactly(400, refused);
    api.expect_snapshots("prod", 1).await;

    // Together, their decisions exceed the size of a record, so they are not recorded.
    let names: Vec<String> = (0..9).map(|number| format!("p{number}")).collect();
    for name in &names {
        api.put_policy(name, PROVENANCE).await.created();
    }
    let request = api.post("/environments/acme/prod/policies").json(json!({ "policy_names": names }));
    request.await.expect_exactly(200, json!("OK"));
    let snapshot = api.get("/snapshots/acme/prod/2").await.expect(200, json!({"compliant": false}));
    let snapshot = snapshot.ok();
    let decisions = snapshot["artifacts"][0]["policy_decisions"].as_array().unwrap();
    let reason =
        |decision: &serde_json::Value| decision["rule_evaluations"][0]["resolutions"][0]["type"].clone();
    assert!(decisions.iter().all(|decision| reason(decision) == "missing_provenance"), "{snapshot}");
    assert_eq!(decisions.len(), 9);
    assert!(snapshot["artifacts"].to_string().len() > 2_000);
}

#[tokio::test]
async fn a_key_an_allowlist_entry_and_a_version_too_many_are_refused() {
    let limits = Limits {
        api_keys: 2,
        environment_allowances: 2,
        policy_versions: 2,
        attestation_type_versions: 2,
        ..Limits::default()
    };
    let api = limited(limits).await;
    let refused = refused_field;
    api.post("/service-accounts/acme").json(json!({"name": "ci", "privilege": "reader"})).await.created();
    let keys = "/service-accounts/acme/ci/api-keys";
    let create = || api.post(keys).json(json!({"description": "laptop"}));
    let first = create().await.created()["id"].as_str().unwrap().to_owned();
    create().await.created();
    let text = "Service account 'ci' has 2 keys that work and takes no more";
    create().await.expect_exactly(400, refused("name", text));
    let request = api.post(&format!("{keys}/{first}/rotate")).json(json!({}));
    request.await.expect_exactly(400, refused("name", text));
    api.delete(&format!("{keys}/{first}")).await.ok();
    create().await.created();

    api.given_environments("docker", &["prod", "test"]).await;
    let allow = |environment: &str, digit: &str| {
        let body =
            json!({"artifact_name": "a", "artifact_fingerprint": digit.repeat(64), "description": "known"});
        api.put(&format!("/allowlists/acme/{environment}")).json(body)
    };
    for digit in ["1", "2", "1"] {
        allow("prod", digit).await.created();
    }
    let text = "Environment 'prod' allows 2 artifacts and takes no more";
    allow("prod", "3").await.expect_exactly(400, refused("artifact_fingerprint", text));
    allow("test", "3").await.created();

    for version in [PROVENANCE, COMPLIANCE, COMPLIANCE] {
        assert!(api.put_policy("p", version).await.status.is_success());
    }
    let text = "Policy 'p' has 2 versions and takes no more";
    api.put_policy("p", PROVENANCE).await.expect_exactly(400, refused("policy_file", text));

    let post = |description: &str| {
        api.post("/custom-attestation-types/acme").data_json(json!({"name": "t", "description": description}))
    };
    for description in ["a", "b", "b"] {
        post(description).await.created();
    }
    let text = "Custom attestation type 't' has 2 versions and takes no more";
    post("a").await.expect_exactly(400, refused("name", text));
}

#[tokio::test]
async fn the_longest_lists_that_are_documented_fit_a_body() {
    let document = evidence_tower::openapi();
    let longest = |schema: &str, list: &str| {
        let longest = &document["components"]["schemas"][schema]["properties"][list]["maxItems"];
        usize::try_from(longest.as_u64().unwrap()).unwrap()
    };
    let api = limited(Limits::default()).await;
    api.given_environments("docker", &["prod"]).await;
    let most = longest("DockerReport", "artifacts");
    let artifact = json!({"digests": {"app": fingerprint('1')}, "creationTimestamp": 1});
    let report = |many| {
        let body = json!({"type": "docker", "artifacts": vec![artifact.clone(); many]});
        api.put("/environments/acme/prod/report/docker").json(body)
    };
    report(most).await.created();
    assert_eq!(report(most + 1).await.status, 400);

    let most = longest("JUnitAttestationPostInput", "junit_results");
    let suite = json!({"name": "s", "failures": 0, "errors": 0, "skipped": 0, "total": 0, "duration": 0});
    let attest = |many| {
        api.attest("junit", &json!({"attestation_name": "t", "junit_results": vec![suite.clone(); many]}))
    };
    attest(most).await.created();
    assert_eq!(attest(most + 1).await.status, 400);
}

#[tokio::test]
async fn image_references_and_titles_may_be_long() {
    let api = limited(Limits::default()).await;
    api.given_environments("docker", &["prod"]).await;
    let reference = |length: usize| {
        format!("registry.example.com/{}@sha256:{}", "a".repeat(length - 93), fingerprint('1'))
    };
    for (length, status) in [(4_096, 201), (4_097, 400)] {
        let name = reference(length);
        let artifact = json!({"trail_name": "t", "fingerprint": fingerprint('1'), "filename": name, "build_url": "b",
                              "commit_url": "c"});
        let report =
            json!({"artifacts": [{"digests": {name.clone(): fingerprint('2')}, "creationTimestamp": 1}]});
        let allowlist_entry =
            json!({"artifact_name": name, "artifact_fingerprint": fingerprint('1'), "description": "known"});
        let pull_request = json!({"url": "https://example.com/1", "merge_commit": "c".repeat(40), "state": "MERGED",
                                  "title": "x".repeat(length), "approvers": []});
        let pull_requests =
            json!({"attestation_name": "pr", "git_provider": "github", "pull_requests": [pull_request]});
        let requests = [
            api.post("/artifacts/acme/shop").json(artifact),
            api.put("/environments/acme/prod/report/docker").json(report),
            api.put("/allowlists/acme/prod").json(allowlist_entry),
            api.attest("pull_request", &pull_requests),
        ];
        for request in requests {
            let reply = request.await;
            assert_eq!(reply.status, status, "{}", String::from_utf8_lossy(&reply.body));
        }
    }
}
