//! Deployments: what began to run where, listed and counted.

use crate::support::prelude::*;

const LIST: &str = "/deployments/acme";
/// When everything is reported.
const NOW: f64 = 1_783_538_510.0;

/// Reports the artifact whose fingerprint consists of this digit, built a day before from a commit of this repo.
async fn built(api: &Api, digit: char, repo: &Value) {
    let commit = json!({
        "sha1": "c".repeat(40), "message": "m", "author": "a", "branch": "main", "timestamp": NOW - 86_400.0,
    });
    api.post_artifact("shop", fingerprint(digit))
        .with(json!({
            "build_url": "", "commit_url": "", "trail_name": "t", "git_commit": "c".repeat(40),
            "git_commit_info": commit, "repo_info": repo,
        }))
        .await
        .created();
}

fn shop() -> Value {
    json!({"name": "acme/shop", "url": "https://github.com/acme/shop", "id": "7", "provider": "github"})
}

/// Another repo of the same name.
fn fork() -> Value {
    json!({"name": "acme/shop", "url": "https://gitlab.com/acme/shop", "id": "8", "provider": "gitlab"})
}

macro_rules! with_deployments {
    ($($case:tt)*) => { case_of! { with_deployments: $($case)* } };
}

/// Runs a case with five deployments: `a` to `prod` and `test`, `b`, which is of another repo of that name, to `prod` twice,
/// and `c`, which nobody reported, to `test`. What goes on running is deployed once; the logical `all` has both.
fn with_deployments(case: impl AsyncFn(Api)) {
    on_every_store(async |api| {
        built(&api, 'a', &shop()).await;
        built(&api, 'b', &fork()).await;
        api.given_environments("docker", &["prod", "test"]).await;
        api.put_logical_environment("all", ["prod", "test"]).await.created();
        api.report_running("prod", &[('a', &[1]), ('b', &[1])]).await.created();
        api.report_running("prod", &[('a', &[1, 2])]).await.created();
        api.report_running("test", &[('c', &[1]), ('a', &[1])]).await.created();
        api.report_running("prod", &[('a', &[1]), ('b', &[1])]).await.created();
        case(api).await;
    });
}

/// The environments and the first digits of the fingerprints of a list, as `prod b`.
fn places(list: &Value) -> String {
    let place = |one: &Value| {
        let digit = &one["fingerprint"].as_str().unwrap()[..1];
        format!("{} {digit}", one["environment_name"].as_str().unwrap())
    };
    let places: Vec<_> = list["deployments"].as_array().unwrap().iter().map(place).collect();
    assert!(list["total_count"].as_u64().unwrap() >= places.len() as u64, "{list}");
    places.join(", ")
}

async fn listed(api: &Api, path: &str) -> String {
    places(&api.get(path).await.ok())
}

async fn inner_id(api: &Api, provider: &str) -> String {
    let repos = api.get(&format!("/repos/acme?provider={provider}")).await.ok();
    repos["repos"][0]["id"].as_str().unwrap().to_owned()
}

#[apply(with_deployments)]
async fn a_deployment_is_an_artifact_that_begins_to_run(api: Api) {
    let list = api.get(LIST).await.ok();
    assert_eq!(places(&list), "prod b, test c, test a, prod b, prod a");
    let known = ["_links", "deployments", "page", "per_page", "total_count", "total_pages"];
    assert_eq!(fields(&list), known);
    assert_eq!((&list["total_count"], &list["total_pages"]), (&json!(5), &json!(1)));
    let environment = api.get("/environments/acme/prod").await.ok();
    let newest = &list["deployments"][0];
    let expected = json!({
        "deployed_at": NOW, "environment_id": newest["environment_id"], "environment_name": "prod",
        "environment_type": "docker", "snapshot_index": 3, "fingerprint": fingerprint('b'),
        "artifact_name": "image-b", "compliant": null, "flow_name": "shop", "trail_name": "t",
        "git_commit": "c".repeat(40), "lead_time_seconds": 86_400.0,
        "repo_info": {"name": "acme/shop", "repo_id": "8"}, "_links": newest["_links"],
        "deployment_diff": newest["deployment_diff"],
    });
    assert_eq!(newest, &expected, "{environment}");
    // Without a name in the template, of whatever ran of the flow.
    let (before, commit) = (&newest["deployment_diff"], "c".repeat(40));
    let diff_url = format!("https://gitlab.com/acme/shop/-/compare/{commit}...{commit}");
    let expected = json!({
        "diff_url": diff_url, "previous_git_commit": commit, "previous_fingerprint": fingerprint('a'),
        "previous_artifact_name": "image-a", "previous_artifact_compliance_state": "COMPLIANT",
        "previous_running": true, "previous_git_commit_url": "", "previous_trail_name": "t",
        "previous_template_reference_name": null,
    });
    assert_eq!(before, &expected);
    let others = list["deployments"].as_array().unwrap().iter().skip(1);
    let diffs = Vec::from_iter(others.map(|one| one["deployment_diff"].clone()));
    assert_eq!(diffs, [(); 4].map(|()| json!(null)), "nothing ran before, or began together");
    let links = &newest["_links"];
    let snapshot = api.get("/snapshots/acme/prod/3").await.ok();
    assert_eq!(links["html"]["href"], snapshot["html_url"]);
    let report = api.get(&format!("/artifacts/acme/shop/fingerprint/{}", fingerprint('b'))).await.ok();
    assert_eq!(links["artifact"]["href"], report["api_url"]);
    assert!(links["snapshot"]["href"].as_str().unwrap().ends_with("/snapshots/acme/prod/3"), "{links}");
    let unknown = json!({
        "flow_name": "", "trail_name": "", "git_commit": "", "lead_time_seconds": null, "repo_info": null,
        "fingerprint": fingerprint('c'),
    });
    api.get(LIST).await.expect(200, json!({"deployments": [{}, unknown, {}, {}, {}]}));
    assert_eq!(list["deployments"][1]["_links"].get("artifact"), None);
}

#[apply(with_deployments)]
async fn deployments_are_narrowed_and_paged(api: Api) {
    let table = [
        ("env_name=prod", "prod b, prod b, prod a"),
        ("env_name=all", "prod b, test c, test a, prod b, prod a"),
        ("env_name=", "prod b, test c, test a, prod b, prod a"),
        ("repo_name=acme/shop", "prod b, test a, prod b, prod a"),
        ("repo_name=acme/shop&env_name=test", "test a"),
        ("repo_name=acme/shop&env_name=all&per_page=1&page=2", "test a"),
        ("per_page=2&page=2", "test a, prod b"),
        ("per_page=2&page=4", ""),
        ("per_page=0", ""),
        ("start_ts=1783538510&end_ts=1783538510", "prod b, test c, test a, prod b, prod a"),
        ("start_ts=1783538510.000001&end_ts=1783538511", ""),
        ("end_ts=1783538509.999999", ""),
        ("end_ts=1785957711", ""),
        ("start_ts=1783538511&end_ts=1783538509", ""),
    ];
    for (query, expected) in table {
        assert_eq!(listed(&api, &format!("{LIST}?{query}")).await, expected, "{query}");
    }
    let page = api.get(&format!("{LIST}?per_page=2&page=2&env_name=prod&start_ts=0")).await.ok();
    assert_eq!((&page["total_count"], &page["total_pages"]), (&json!(3), &json!(2)));
    let previous = page["_links"]["prev"]["href"].as_str().unwrap();
    assert!(previous.ends_with("page=1&per_page=2&env_name=prod&start_ts=0.000000"), "{previous}");
    for (query, field) in [
        ("per_page=51", "query.per_page"),
        ("per_page=-1", "query.per_page"),
        ("page=0", "query.page"),
        ("start_ts=x", "query.start_ts"),
    ] {
        api.get(&format!("{LIST}?{query}")).await.expect_field_error(400, field);
    }
    api.get(&format!("{LIST}?env_name=none")).await.expect_field_error(404, "query.env_name");
    api.get(&format!("{LIST}?repo_name=none")).await.expect_field_error(404, "query.repo_name");
}

#[apply(with_deployments)]
async fn deployments_of_a_repo_are_listed_and_told_by_environment(api: Api) {
    let (github, gitlab) = (inner_id(&api, "github").await, inner_id(&api, "gitlab").await);
    let of = |repo: &str, query: &str| format!("/repos/acme/{repo}/deployments?{query}");
    assert_eq!(listed(&api, &of(&github, "")).await, "test a, prod a");
    assert_eq!(listed(&api, &of(&gitlab, "")).await, "prod b, prod b");
    assert_eq!(listed(&api, &of(&github, "env=prod")).await, "prod a");
    assert_eq!(listed(&api, &of(&github, "env=test&env=prod")).await, "test a, prod a");
    assert_eq!(listed(&api, &of(&github, "env=all&per_page=1&page=2")).await, "prod a");
    assert_eq!(listed(&api, &of(&github, "end_ts=1783538509")).await, "");
    let statistics = api.get(&format!("/repos/acme/{gitlab}/deployment-statistics")).await.ok();
    let prod = json!({
        "environment_id": statistics["environments"][0]["environment_id"], "environment_name": "prod",
        "deployed_at": [NOW, NOW], "lead_time_seconds": [86_400.0, 86_400.0],
    });
    let (start, end) = (NOW - 28.0 * 86_400.0, NOW);
    let expected = json!({"start_ts": start, "end_ts": end, "count": 2, "environments": [prod]});
    assert_eq!(statistics, expected);
    let path = format!("/repos/acme/{github}/deployment-statistics");
    let names = async |query: &str| {
        let found = api.get(&format!("{path}?{query}")).await.ok();
        found["environments"].as_array().unwrap().iter().map(|one| one["environment_name"].clone()).collect()
    };
    assert_eq!(Value::Array(names("").await), json!(["prod", "test"]));
    assert_eq!(Value::Array(names("env=test").await), json!(["test"]));
    assert_eq!(Value::Array(names("end_ts=0").await), json!([]));
    for path in [of("7", ""), of("acme", ""), "/repos/acme/x/deployment-statistics".to_owned()] {
        api.get(&path).await.expect_field_error(404, "repo");
    }
    for path in [of(&github, "env=none"), format!("{path}?env=none")] {
        api.get(&path).await.expect_field_error(404, "query.env");
    }
}

#[apply(with_deployments)]
async fn deployments_to_an_environment_are_listed_and_counted(api: Api) {
    let of = |environment: &str, query: &str| format!("/environments/acme/{environment}/deployments?{query}");
    assert_eq!(listed(&api, &of("prod", "")).await, "prod b, prod b, prod a");
    assert_eq!(listed(&api, &of("all", "page_size=2&page=2")).await, "test a, prod b");
    let page = api.get(&of("prod", "page_size=2&page=2")).await.ok();
    assert_eq!(fields(&page), ["deployments", "page", "page_size", "total_count", "total_pages"]);
    assert_eq!(
        (&page["total_count"], &page["total_pages"], &page["page_size"]),
        (&json!(3), &json!(2), &json!(2))
    );
    // 2026-07-08T19:21:50Z is the time of all.
    for (query, expected) in [
        ("from=2026-07-08", "prod b, prod b, prod a"),
        ("from=2026-07-08T19:21:50Z&to=2026-07-08T21:21:50%2B02:00", "prod b, prod b, prod a"),
        ("from=2026-07-08T19:21:51Z", ""),
        ("to=2026-07-08T19:21:49", ""),
        ("from=2026-07-09&to=2026-07-01", ""),
    ] {
        assert_eq!(listed(&api, &of("prod", query)).await, expected, "{query}");
    }
    for (query, field) in [
        ("from=yesterday", "query.from"),
        ("to=1783538510", "query.to"),
        ("to=2026-07-08T19:21:50[Europe/Paris]", "query.to"),
        ("to=2026-07-08T19:21:50%2B99:00", "query.to"),
        ("page_size=0", "query.page_size"),
        ("page_size=101", "query.page_size"),
    ] {
        api.get(&of("prod", query)).await.expect_field_error(400, field);
    }
    let frequency = |environment: &str| format!("/environments/acme/{environment}/deployment_frequency");
    let expected = json!({
        "start_ts": NOW - 28.0 * 86_400.0, "end_ts": NOW, "count": 3, "deployments_per_day": 3.0 / 28.0,
        "deployed_at": [NOW, NOW, NOW],
    });
    api.get(&frequency("prod")).await.expect_exactly(200, expected);
    let flow = api.get("/flows/acme/shop").await.ok();
    let of_flow = format!("?flow_id={}", flow["id"].as_str().unwrap());
    for (environment, query, count) in [("all", "", 5), ("test", "", 2), ("test", &of_flow, 1)] {
        let path = frequency(environment) + query;
        api.get(&path).await.expect(200, json!({ "count": count }));
    }
    api.get(&format!("{}?flow_id=none", frequency("prod"))).await.expect_field_error(404, "query.flow_id");
    for path in [of("none", ""), frequency("none")] {
        api.get(&path).await.expect_field_error(404, "env_name");
    }
}

#[apply(with_deployments)]
async fn the_last_deployment_of_an_artifact_is_found(api: Api) {
    let of = |environment: &str, fingerprint: &str| format!("{LIST}/{environment}/{fingerprint}");
    let b = api.get(&of("prod", &fingerprint('b'))).await.ok();
    let list = api.get(LIST).await.ok();
    assert_eq!(b, list["deployments"][0]);
    // A deployment stays listed after the artifact stopped.
    api.report_running("prod", &[('a', &[1])]).await.created();
    assert_eq!(api.get(&of("prod", &fingerprint('b'))).await.ok(), b);
    let never = format!(
        "Artifact with fingerprint '{}' has never been deployed to environment 'prod'",
        fingerprint('c')
    );
    let refused = api.get(&of("prod", &fingerprint('c'))).await;
    refused.expect_errors(404, "Deployment not found", &[("fingerprint", &never)]);
    api.get(&of("prod", "bbbbb")).await.expect_field_error(404, "fingerprint");
    api.get(&of("none", &fingerprint('a'))).await.expect_field_error(404, "env_name");
}

#[apply(with_deployments)]
async fn deployments_to_members_are_those_of_a_logical_environment(api: Api) {
    let last = async |digit: char| {
        let found = api.get(&format!("{LIST}/all/{}", fingerprint(digit))).await.ok();
        (found["environment_name"].clone(), found["snapshot_index"].clone())
    };
    assert_eq!(last('b').await, (json!("prod"), json!(3)));
    assert_eq!(last('a').await, (json!("test"), json!(1)));
    assert_eq!(
        listed(&api, "/environments/acme/all/deployments").await,
        "prod b, test c, test a, prod b, prod a"
    );
    api.put("/environments/acme/prod/archive").json(json!({})).await.ok();
    assert_eq!(listed(&api, "/environments/acme/all/deployments").await, "test c, test a");
    assert_eq!(listed(&api, &format!("{LIST}?env_name=all")).await, "test c, test a");
    assert_eq!(last('a').await, (json!("test"), json!(1)));
    let gone = api.get(&format!("{LIST}/all/{}", fingerprint('b'))).await;
    let sentence = format!(
        "Artifact with fingerprint '{}' has never been deployed to environment 'all'",
        fingerprint('b')
    );
    gone.expect(404, json!({"message": "Deployment not found", "errors": {"fingerprint": sentence}}));
}
