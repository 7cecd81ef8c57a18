//! Reports of each kind of environment: their bodies, and what snapshots show of what only that kind tells.

use crate::support::prelude::*;

/// A kind, a valid entry of its reports, and what is required of it.
fn kinds() -> Vec<(&'static str, Value, Vec<&'static str>)> {
    let digests = json!({"registry.example.com/shop:1": "1".repeat(64)});
    let plain = json!({"digests": digests, "creationTimestamp": 1_700_000_000});
    let with = |more: Value| merged(plain.clone(), &more);
    vec![
        ("docker", plain.clone(), vec![]),
        ("server", plain.clone(), vec![]),
        ("S3", plain.clone(), vec![]),
        ("lambda", plain.clone(), vec![]),
        (
            "K8S",
            with(json!({"podName": "shop-1", "namespace": "web", "owners": null})),
            vec!["podName", "namespace"],
        ),
        (
            "ECS",
            with(json!({"taskArn": "arn:1", "cluster_name": null, "service_name": "shop"})),
            vec!["taskArn"],
        ),
        (
            "azure-apps",
            with(json!({"app_name": "shop", "app_kind": "app", "digests_source": "acr"})),
            vec!["app_name", "app_kind", "digests_source"],
        ),
        (
            "cloud-run",
            with(json!({"kind": "service", "serviceName": "shop", "revisionName": "shop-1"})),
            vec!["kind"],
        ),
    ]
}

#[apply(on_every_store)]
async fn each_kind_of_environment_takes_reports_of_its_kind_alone(api: Api) {
    let kinds = kinds();
    for (kind, ..) in &kinds {
        api.given_environments(kind, &[kind]).await;
    }
    api.given_environments("logical", &["logical"]).await;
    for (kind, entry, _) in &kinds {
        let report = |environment: &str, body: Value| {
            api.put(&format!("/environments/acme/{environment}/report/{kind}")).json(body)
        };
        report(kind, json!({"artifacts": []})).await.expect_exactly(201, json!("OK"));
        report(kind, json!({"artifacts": [entry], "type": kind})).await.expect_exactly(201, json!("OK"));
        report(kind, json!({"artifacts": [entry]})).await.expect_exactly(200, json!("OK"));
        let snapshot = api.get(&format!("/snapshots/acme/{kind}/-1")).await.ok();
        assert_eq!(snapshot["type"], *kind);
        let artifact = &snapshot["artifacts"][0];
        assert_eq!(artifact["name"], "registry.example.com/shop:1");
        assert_eq!(artifact["fingerprint"], "1".repeat(64));
        assert_eq!(artifact["creationTimestamp"], json!([1_700_000_000]));
        for (other, ..) in kinds.iter().filter(|(other, ..)| other != kind) {
            let text = format!(
                "Environment '{other}' is of type '{other}', which takes no reports of type '{kind}'"
            );
            let refused = json!({"message": "Invalid report data", "errors": {"env_name": text}});
            report(other, json!({"artifacts": []})).await.expect_exactly(400, refused);
        }
        assert_eq!(report("logical", json!({"artifacts": []})).await.status, 400);
        assert_eq!(report("none", json!({"artifacts": []})).await.status, 404);
    }
}

#[apply(on_every_store)]
async fn what_is_wrong_in_a_report_is_named_and_nothing_is_recorded(api: Api) {
    for (kind, entry, required) in kinds() {
        api.given_environments(kind, &[kind]).await;
        let refused = async |artifacts: Value, more: Value, field: &str| {
            let body = merged(json!({ "artifacts": artifacts }), &more);
            let reply = api.put(&format!("/environments/acme/{kind}/report/{kind}")).json(body).await;
            assert_eq!(
                (reply.status.as_u16(), &reply.json()["message"]),
                (400, &json!("Invalid report data"))
            );
            assert!(reply.json()["errors"][field].is_string(), "{kind} {field}: {reply:?}");
        };
        for field in required.iter().chain(&["digests", "creationTimestamp"]) {
            let mut less = entry.clone();
            less.as_object_mut().unwrap().remove(*field);
            refused(json!([entry, less]), json!({}), &format!("artifacts[1].{field}")).await;
        }
        let wrong = if kind == "docker" { "server" } else { "docker" };
        refused(json!([]), json!({ "type": wrong }), "type").await;
        refused(json!([]), json!({ "more": 1 }), "more").await;
        let with = |field: &str, value: Value| {
            let mut entry = entry.clone();
            entry[field] = value;
            json!([entry])
        };
        refused(with("more", json!(1)), json!({}), "artifacts[0].more").await;
        refused(with("digests", json!({})), json!({}), "artifacts[0].digests").await;
        refused(with("digests", json!({"a": "x"})), json!({}), "artifacts[0].digests.a").await;
        let without = json!({"a": ""});
        if matches!(kind, "docker" | "server" | "S3" | "lambda") {
            refused(with("digests", without), json!({}), "artifacts[0].digests.a").await;
        }
        assert_eq!(api.get(&format!("/snapshots/acme/{kind}")).await.ok(), json!([]));
    }
}

#[apply(on_every_store)]
async fn an_element_that_has_no_digest_is_skipped_and_counted(api: Api) {
    for (kind, entry, _) in kinds() {
        api.given_environments(kind, &[kind]).await;
        let report = |artifacts: Value| {
            api.put(&format!("/environments/acme/{kind}/report/{kind}")).json(json!({"artifacts": artifacts}))
        };
        let with_digests = |digests: Value| {
            let mut entry = entry.clone();
            entry["digests"] = digests;
            entry
        };
        let (evicted, no_map) = (with_digests(json!({})), with_digests(Value::Null));
        let reply = report(json!([evicted, entry, null, no_map])).await;
        assert_eq!(reply.headers["evidence-skipped-elements"], "3", "{kind}");
        reply.expect_exactly(201, json!("OK"));
        let reply = report(json!([entry])).await;
        assert!(reply.headers.get("evidence-skipped-elements").is_none(), "{kind}");
        reply.expect_exactly(200, json!("OK"));
        let snapshot = api.get(&format!("/snapshots/acme/{kind}/-1")).await.ok();
        assert_eq!(snapshot["artifacts"].as_array().unwrap().len(), 1, "{kind}");
        // Of the report that led to it.
        assert_eq!(snapshot["skipped_elements"], 3, "{kind}");

        // They may all be there because the reporter sees no digest at all.
        for artifacts in [json!([evicted]), json!([null]), json!([no_map, evicted])] {
            assert_eq!(report(artifacts).await.error_message(400), "Invalid report data", "{kind}");
        }
        // It runs, and nobody knows what it is.
        let unknown = with_digests(json!({"registry.example.com/shop:1": "0123"}));
        assert_eq!(report(json!([entry, unknown])).await.error_message(400), "Invalid report data", "{kind}");
        api.expect_snapshots(kind, 1).await;
        api.put_policy(kind, PROVENANCE).await.created();
        api.attach(kind, kind).await;
        // The evaluation uses the artifacts of that report.
        api.get(&format!("/snapshots/acme/{kind}/2")).await.expect(200, json!({"skipped_elements": 3}));
        report(json!([])).await.created();
        let snapshot = api.get(&format!("/snapshots/acme/{kind}/3")).await.ok();
        assert_eq!(snapshot.get("skipped_elements"), None, "{kind}");
    }
}

#[apply(on_every_store)]
async fn a_digest_that_is_null_is_that_of_something_unknown_which_is_not_compliant(api: Api) {
    for (kind, entry, _) in kinds().into_iter().skip(4) {
        api.given_environments(kind, &[kind]).await;
        let mut unknown = entry;
        unknown["digests"] = json!({"registry.example.com/shop:1": null});
        unknown["creationTimestamp"] = Value::Null;
        let path = format!("/environments/acme/{kind}/report/{kind}");
        api.put(&path).json(json!({"artifacts": [unknown]})).await.expect_exactly(201, json!("OK"));
        let snapshot = api.get(&format!("/snapshots/acme/{kind}/-1")).await.ok();
        assert_eq!(snapshot["artifacts"][0]["name"], "registry.example.com/shop:1");
        assert_eq!(snapshot["artifacts"][0]["creationTimestamp"], json!([0]));
    }
}

#[apply(on_every_store)]
async fn what_has_no_digest_is_told_apart_by_its_name_and_takes_one_snapshot(api: Api) {
    for (kind, entry, _) in kinds().into_iter().skip(4) {
        api.given_environments(kind, &[kind]).await;
        let mut entry = entry;
        entry["digests"] = json!({"registry.example.com/shop:1": "", "registry.example.com/till:1": ""});
        let report = || {
            let path = format!("/environments/acme/{kind}/report/{kind}");
            api.put(&path).json(json!({"artifacts": [entry]}))
        };
        report().await.created();
        report().await.expect_exactly(200, json!("OK"));
        let snapshot = api.get(&format!("/snapshots/acme/{kind}/-1")).await.ok();
        let shown = snapshot["artifacts"].as_array().unwrap().iter();
        let shown: Vec<_> = shown.map(|artifact| (&artifact["fingerprint"], &artifact["flows"])).collect();
        assert_eq!(shown, [(&json!(""), &json!([])); 2], "{kind}");
    }
}

#[apply(on_every_store)]
async fn a_snapshot_shows_pods_by_name_and_the_newest_task(api: Api) {
    api.given_environments("K8S", &["cluster"]).await;
    api.given_environments("ECS", &["tasks"]).await;
    let digests = json!({"shop": "1".repeat(64)});
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop", "uid": "u", "controller": true,
                       "generation": 7});
    let pod = |name: &str, namespace: &str, created: u64, owners: Value| {
        json!({"podName": name, "namespace": namespace, "digests": digests, "creationTimestamp": created,
               "owners": owners})
    };
    let pods = json!([
        pod("shop-1", "web", 5, json!([owner])),
        pod("shop-2", "web", 3, json!([])),
        pod("shop-1", "test", 4, Value::Null),
    ]);
    api.put("/environments/acme/cluster/report/K8S").json(json!({ "artifacts": pods })).await.created();
    let artifact = &api.get("/snapshots/acme/cluster/1").await.ok()["artifacts"][0];
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop", "uid": "u", "controller": true});
    let expected = json!({
        "shop-1": {"namespace": "web", "creationTimestamp": 5, "owners": [owner]},
        "shop-2": {"namespace": "web", "creationTimestamp": 3, "owners": []},
        "test/shop-1": {"namespace": "test", "creationTimestamp": 4, "owners": []},
    });
    assert_eq!((&artifact["pods"], &artifact["ecs_context"]), (&expected, &Value::Null));
    assert_eq!(artifact["creationTimestamp"], json!([3, 4, 5]));

    let task = |arn: &str, created: u64| json!({"taskArn": arn, "clusterName": "web", "digests": digests, "creationTimestamp": created});
    let tasks = json!([task("arn:1", 5), task("arn:2", 9), task("arn:3", 7)]);
    api.put("/environments/acme/tasks/report/ECS").json(json!({ "artifacts": tasks })).await.created();
    let artifact = &api.get("/snapshots/acme/tasks/1").await.ok()["artifacts"][0];
    let expected = json!({"task_arn": "arn:2", "cluster_name": "web", "service_name": null});
    assert_eq!((&artifact["pods"], &artifact["ecs_context"]), (&Value::Null, &expected));
}

#[apply(with_every_store)]
async fn what_apps_and_cloud_run_tell_is_recorded_and_shown_of_the_newest(api: Api, store: Arc<dyn Store>) {
    let entries = |older: Value, newer: Value| {
        let with = |more: Value, created: u64| {
            merged(json!({"digests": {"shop": "1".repeat(64)}, "creationTimestamp": created}), &more)
        };
        json!({"artifacts": [with(newer.clone(), 9), with(older, 5), with(newer, 7)]})
    };
    let app =
        |name: &str, source: &str| json!({"app_name": name, "app_kind": "app", "digests_source": source});
    let job = json!({"kind": "job", "jobName": "nightly"});
    let service = json!({"kind": "service", "serviceName": "shop", "revisionName": "shop-1"});
    let table = [
        ("azure-apps", entries(app("old", "logs"), app("shop", "acr")), "azure_context", app("shop", "acr")),
        (
            "cloud-run",
            entries(job.clone(), service.clone()),
            "cloud_run_context",
            json!({"kind": "service", "service_name": "shop", "revision_name": "shop-1", "job_name": null}),
        ),
        (
            "cloud-run",
            entries(service, job),
            "cloud_run_context",
            json!({"kind": "job", "service_name": null, "revision_name": null, "job_name": "nightly"}),
        ),
    ];
    let acme = acme(&*store).await;
    for (number, (kind, report, field, expected)) in table.into_iter().enumerate() {
        let name = format!("{kind}-{number}");
        api.given_environments(kind, &[&name]).await;
        api.put(&format!("/environments/acme/{name}/report/{kind}")).json(report).await.created();
        let environment = store.environment(acme, &name).await.unwrap().unwrap().record.id;
        let running = store.instances(acme, environment, 1).await.unwrap();
        let recorded = serde_json::to_string(&running[0].instance).unwrap();
        let recorded: Value = serde_json::from_str(&recorded).unwrap();
        assert_eq!(recorded["context"], json!({ field: expected }), "{recorded}");
        let shown = api.get(&format!("/snapshots/acme/{name}/1")).await.ok()["artifacts"][0].clone();
        for context in ["pods", "ecs_context", "azure_context", "cloud_run_context"] {
            let expected = if context == field { &expected } else { &Value::Null };
            assert_eq!(shown.get(context), Some(expected), "{kind}: {context}");
        }
    }
}
