//! Environments changed, renamed and archived, and policies detached from them.

use crate::support::prelude::*;

const PROD: &str = "/environments/acme/prod";

fn archived(field: &str, name: &str) -> Value {
    let text = format!("environment '{name}' in organization 'acme' is archived");
    json!({"message": "Environment not found", "errors": {field: text}})
}

async fn snapshots(api: &Api, name: &str) -> usize {
    api.get(&format!("/snapshots/acme/{name}?per_page=1000")).await.ok().as_array().unwrap().len()
}

#[apply(on_every_store)]
async fn a_patch_changes_what_it_says_and_clears_a_description(api: Api) {
    api.given_environments("docker", &["a", "b"]).await;
    api.put_policy("p", PROVENANCE).await.created();
    let all = json!({"name": "all", "type": "logical", "description": "live", "included_environments": ["b", "a"],
                     "policies": []});
    api.put("/environments/acme").json(all).await.created();
    let a = json!({"name": "a", "type": "docker", "description": "live", "policies": ["p"]});
    api.put("/environments/acme").json(a).await.created();
    let path = "/environments/acme/all";
    let patch = |body: Value| api.patch(path).json(body);
    let is = async |expected: Value| api.get(path).await.expect(200, expected);
    patch(json!({})).await.expect_exactly(200, json!("OK"));
    is(json!({"description": "live", "included_environments": ["b", "a"], "policies": []})).await;
    let nothing = json!({"description": null, "include_scaling": null, "included_environments": null, "policies": null});
    patch(nothing).await.expect_exactly(200, json!("OK"));
    is(json!({"description": "live", "include_scaling": false, "policies": []})).await;
    let nothing = json!({"description": null, "include_scaling": null, "included_environments": null, "policies": null});
    api.patch("/environments/acme/a").json(nothing).await.expect_exactly(200, json!("OK"));
    api.get("/environments/acme/a").await.expect(200, json!({"description": "live", "policies": ["p"]}));
    api.patch("/environments/acme/a").json(json!({"policies": []})).await.ok();
    api.get("/environments/acme/a").await.expect(200, json!({"description": "live", "policies": []}));
    patch(json!({"description": "", "include_scaling": true})).await.ok();
    is(json!({"description": "", "include_scaling": true, "included_environments": ["b", "a"]})).await;
    patch(json!({"included_environments": ["a"], "policies": []})).await.ok();
    is(json!({"included_environments": ["a"], "policies": [], "include_scaling": true})).await;
    for (body, field) in [
        (json!({"type": "docker"}), "type"),
        (json!({"name": "b"}), "name"),
        (json!({"description": 1}), "description"),
        (json!({"included_environments": ["all"]}), "included_environments"),
    ] {
        let reply = patch(body).await;
        assert_eq!(reply.status, 400, "{reply:?}");
        assert!(reply.json()["errors"][field].is_string(), "{reply:?}");
    }
    let text = "no environment named 'none' in organization 'acme'";
    let missing = json!({"message": "Environment not found", "errors": {"included_environments": text}});
    patch(json!({"included_environments": ["none"]})).await.expect_exactly(404, missing);
    patch(json!({"policies": ["none"]})).await.expect_message(404, "Policy not found");
    let a = api.patch("/environments/acme/a").json(json!({"included_environments": ["b"]})).await;
    a.expect(400, json!({"errors": {"included_environments": "Only a logical environment includes others"}}));
    patch(json!({"description": "x"})).key("snapshotter-key").await.expect(403, json!({}));
    api.patch("/environments/acme/none").json(json!({})).await.expect(404, json!({}));
}

#[apply(on_every_store)]
async fn nothing_is_known_to_run_in_an_archived_environment(api: Api) {
    api.given_environments("docker", &["prod", "test"]).await;
    api.given_artifact('1', "t1").await;
    for name in ["prod", "test"] {
        api.report_running(name, &[('1', &[1])]).await.created();
    }
    api.report_running("prod", &[]).await.created();
    api.report_running("prod", &[('1', &[2])]).await.created();
    let path = format!("/artifacts/acme/web/fingerprint/{}", fingerprint('1'));
    let place = |name: &str, index: u64| json!({"environment_name": name, "snapshot_index": index});
    let before = api.get(&path).await.ok();
    assert_eq!(before["running"], json!([place("prod", 3), place("test", 1)]));
    assert_eq!(before["exited"], json!([place("prod", 2)]));
    api.put("/environments/acme/prod/archive").await.ok();
    let after = api.get(&path).await.ok();
    assert_eq!(after["running"], json!([place("test", 1)]));
    // Past events stay.
    assert_eq!((&after["exited"], &after["history"]), (&before["exited"], &before["history"]));
    let found = api.get(&format!("/search/acme/sha/{}", fingerprint('1'))).await.ok();
    assert_eq!(found["artifacts"][0]["running_in"], json!(["test"]), "{found}");
}

#[apply(on_every_store)]
async fn policies_that_are_detached_evaluate_what_runs_no_more(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.put_policy("p", PROVENANCE).await.created();
    api.put_policy("q", COMPLIANCE).await.created();
    api.post(&format!("{PROD}/policies")).json(json!({"policy_names": ["p", "q"]})).await.ok();
    api.report_running("prod", &[('1', &[1])]).await.created();
    api.get(PROD).await.expect(200, json!({"state": false, "policies": ["p", "q"]}));
    let detach = |names: Value| api.delete(&format!("{PROD}/policies")).json(json!({"policy_names": names}));
    detach(json!(["q"])).await.expect_exactly(200, json!("OK"));
    api.get(PROD).await.expect(200, json!({"state": false, "policies": ["p"]}));
    assert_eq!(snapshots(&api, "prod").await, 2);
    // Detaching a policy that is not attached changes nothing.
    detach(json!(["q"])).await.expect_exactly(200, json!("OK"));
    assert_eq!(snapshots(&api, "prod").await, 2);
    detach(json!(["p", "p"])).await.expect_exactly(200, json!("OK"));
    api.get(PROD).await.expect(200, json!({"state": null, "policies": []}));
    assert_eq!(snapshots(&api, "prod").await, 3);
    detach(json!(["none"])).await.expect_message(404, "Policy not found");
    detach(json!([])).await.expect(400, json!({}));
    detach(json!(["p"])).key("reader-key").await.expect(403, json!({}));
}

#[apply(on_every_store)]
async fn a_renamed_environment_answers_to_its_former_name_until_another_takes_it(api: Api) {
    api.given_environments("docker", &["prod", "test"]).await;
    let rename = |of: &str, to: &str| {
        api.put(&format!("/environments/acme/{of}/rename")).json(json!({ "new_name": to }))
    };
    rename("prod", "live").await.expect_exactly(200, json!("OK"));
    rename("prod", "live").await.expect_exactly(200, json!("OK"));
    api.report_running("prod", &[('1', &[1])]).await.created();
    for name in ["prod", "live"] {
        api.get(&format!("/environments/acme/{name}")).await.expect(200, json!({"name": "live"}));
        assert_eq!(snapshots(&api, name).await, 1);
    }
    let list = api.get("/environments/acme").await.ok();
    assert_eq!(list.as_array().unwrap().iter().map(|one| &one["name"]).collect::<Vec<_>>(), ["live", "test"]);
    let taken = json!({"errors": {"new_name": "'test' is the name of another environment"}});
    rename("live", "test").await.expect(400, taken);
    let group =
        json!({"name": "group", "type": "logical", "description": "", "included_environments": ["prod"]});
    api.put("/environments/acme").json(group).await.created();
    let members = json!({"included_environments": ["live"]});
    api.get("/environments/acme/group").await.expect(200, members);
    let action = json!({"name": "a", "environments": ["prod", "group"], "triggers": [], "targets": []});
    api.put("/actions/acme/environments").json(action).await.created();
    let watched = json!({"environments": ["live", "group"]});
    api.get("/actions/acme/1").await.expect(200, watched);
    api.put("/environments/acme/group/archive").json(json!({})).await.ok();
    // An environment of the former name is a new one.
    let server = json!({"name": "prod", "type": "server", "description": "another"});
    api.put("/environments/acme").json(server).await.created();
    api.get(PROD).await.expect(200, json!({"name": "prod", "type": "server"}));
    rename("live", "prod").await.expect(400, json!({}));
    rename("live", "a b").await.expect(400, json!({}));
    rename("none", "other").await.expect(404, json!({}));
    // A former name of one's own may be taken back.
    rename("test", "stage").await.ok();
    rename("stage", "test").await.ok();
    api.get("/environments/acme/stage").await.expect(200, json!({"name": "test"}));
}

#[apply(on_every_store)]
async fn an_archived_environment_is_gone_and_its_name_is_free(api: Api) {
    api.given_environments("docker", &["prod", "test"]).await;
    api.put_policy("p", PROVENANCE).await.created();
    api.post(&format!("{PROD}/policies")).json(json!({"policy_names": ["p"]})).await.ok();
    let all = json!({"name": "all", "type": "logical", "description": "", "included_environments": ["prod", "test"]});
    api.put("/environments/acme").json(all).await.created();
    api.report_running("prod", &[('1', &[1])]).await.created();
    let tag = json!({"set_tags": {"tier": "one"}});
    api.patch("/tags/acme/environment/prod").json(tag).await.ok();
    api.get("/environments/acme/all").await.expect(200, json!({"state": false}));
    let archive = || api.put(&format!("{PROD}/archive"));
    archive().key("snapshotter-key").await.expect(403, json!({}));
    archive().await.expect_exactly(200, json!("OK"));
    api.get(PROD).await.expect_exactly(404, archived("env_name", "prod"));
    for path in ["/snapshots/acme/prod", "/snapshots/acme/prod/-1"] {
        let why = json!({"message": "Flow not found", "errors": archived("env_name", "prod")["errors"]});
        api.get(path).await.expect_exactly(404, why);
    }
    archive().await.expect_exactly(404, archived("env_name", "prod"));
    assert_eq!(api.report_running("prod", &[]).await.status, 404);
    let request = api.put("/environments/acme/all/join").json(json!({"physical_env_name": "prod"}));
    request.await.expect_exactly(404, archived("physical_env_name", "prod"));
    api.get("/environments/acme/all")
        .await
        .expect(200, json!({"included_environments": ["test"], "state": null}));
    // A fresh one of the name, of another type: nothing of the old one comes back.
    api.put_environment("prod", "server").await.created();
    let expected =
        json!({"type": "server", "description": "", "tags": {}, "policies": [], "last_reported_at": null});
    api.get(PROD).await.expect(200, expected);
    assert_eq!(snapshots(&api, "prod").await, 0);
    api.get("/environments/acme/all").await.expect(200, json!({"included_environments": ["test"]}));
    archive().await.ok();
    api.get(PROD).await.expect_exactly(404, archived("env_name", "prod"));
}
