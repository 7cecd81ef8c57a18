//! The requests of the public Terraform provider in the life of each of its resources: created, read back, planned without
//! differences, updated in place, imported, destroyed, and created again under the same name; ten of each at once, too. The
//! bodies are those that it sends, with every key.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use crate::support::prelude::*;

const TEMPLATE: &str = "version: 1\ntrail:\n  attestations:\n    - name: pull-request\n      type: pull_request\n  \
                        artifacts:\n    - name: backend\n      attestations:\n        - name: unit-tests\n          type: junit\n";
const POLICY: &str =
    "_schema: https://docs.kosli.com/schemas/policy/v1\n\nartifacts:\n  provenance:\n    required: true\n";
const STRICTER: &str = "_schema: https://docs.kosli.com/schemas/policy/v1\n\nartifacts:\n  provenance:\n    required: true\n  \
                        trail-compliance:\n    required: true\n";
const SCHEMA: &str = "{\n  \"$schema\": \"http://json-schema.org/draft-07/schema#\",\n  \"type\": \"object\",\n  \
                      \"properties\": {\"coverage\": {\"type\": \"number\"}},\n  \"required\": [\"coverage\"]\n}\n";

/// A provider's HTTP client: any success will do, and what is written is answered by JSON that is not read.
#[track_caller]
fn done(reply: &Reply) {
    assert!(reply.status.is_success(), "{reply:?}");
    reply.json();
}

/// Returns the response to a GET. A second GET is the same: a plan without differences.
async fn read(api: &Api, path: &str) -> Value {
    let found = api.get(path).await.ok();
    assert_eq!(api.get(path).await.ok(), found, "{path}");
    found
}

/// Asserts that what is read is what was set.
#[track_caller]
fn assert_reads(found: &Value, set: &Value) {
    for (field, value) in set.as_object().unwrap() {
        assert_eq!(found[field], *value, "{field} of {found}");
    }
}

/// A file part, as the provider's language makes it.
fn file(name: &str, file_name: &str) -> String {
    format!("name=\"{name}\"; filename=\"{file_name}\"\r\nContent-Type: application/octet-stream")
}

async fn tag(api: &Api, kind: &str, name: &str, set: Value, remove: &[&str]) {
    let body = json!({"set_tags": set, "remove_tags": remove});
    done(&api.patch(&format!("/tags/acme/{kind}/{name}")).json(body).await);
}

fn put_environment(
    api: &Api,
    name: &str,
    kind: &str,
    description: &str,
    include_scaling: bool,
) -> RequestBuilder {
    api.put_environment(name, kind).with(json!({
        "description": description, "include_scaling": include_scaling, "included_environments": null,
        "policies": null,
    }))
}

fn put_logical_environment(api: &Api, name: &str, description: &str, members: &Value) -> RequestBuilder {
    api.put_logical_environment(name, members)
        .with(json!({"description": description, "include_scaling": false, "policies": null}))
}

async fn environment(api: Api, n: usize) {
    let name = format!("tf-env.{n}");
    let path = format!("/environments/acme/{name}");
    assert_eq!(api.get(&path).await.status, 404);
    done(&put_environment(&api, &name, "K8S", "the cluster", true).await);
    // The provider repeats a create that it is not sure of.
    done(&put_environment(&api, &name, "K8S", "the cluster", true).await);
    tag(&api, "environment", &name, json!({"managed-by": "terraform", "env": "p r o d"}), &[]).await;
    let set = json!({
        "org": "acme", "name": name, "type": "K8S", "description": "the cluster", "include_scaling": true,
        "tags": {"managed-by": "terraform", "env": "p r o d"}, "last_reported_at": null, "policies": [],
    });
    let found = read(&api, &path).await;
    assert_reads(&found, &set);
    assert!(found["last_modified_at"].is_number());

    let update = json!({"description": "", "include_scaling": false});
    done(&api.patch(&path).json(update).await);
    tag(&api, "environment", &name, json!({"env": "test"}), &["managed-by"]).await;
    let set = json!({"type": "K8S", "description": "", "include_scaling": false, "tags": {"env": "test"}});
    assert_reads(&read(&api, &path).await, &set);
    tag(&api, "environment", &name, json!({}), &["env"]).await;
    assert_reads(&read(&api, &path).await, &json!({"tags": {}}));

    done(&api.patch(&path).json(json!({"description": "old", "include_scaling": true})).await);
    tag(&api, "environment", &name, json!({"team": "old"}), &[]).await;
    done(&api.put(&format!("{path}/archive")).await);
    assert_eq!(api.get(&path).await.status, 404);
    assert_eq!(api.patch(&path).json(json!({"description": "x", "include_scaling": true})).await.status, 404);
    done(&put_environment(&api, &name, "docker", "", false).await);
    let set =
        json!({"type": "docker", "description": "", "include_scaling": false, "tags": {}, "policies": []});
    assert_reads(&read(&api, &path).await, &set);
}

async fn logical_environment(api: Api, n: usize) {
    let [name, a, b, c] = ["all", "a", "b", "c"].map(|part| format!("tf-logical-{n}-{part}"));
    let path = format!("/environments/acme/{name}");
    let members =
        join_all([&a, &b, &c].map(|member| put_environment(&api, member, "server", "", false).into_future()));
    members.await.iter().for_each(done);
    done(&put_logical_environment(&api, &name, "", &json!([b, a])).await);
    let set = json!({"type": "logical", "description": "", "included_environments": [b, a], "tags": {}});
    assert_reads(&read(&api, &path).await, &set);
    tag(&api, "environment", &name, json!({"env": "all"}), &[]).await;
    for members in [json!([c, b, a]), json!([a, c]), json!([])] {
        let update = json!({"description": "those", "included_environments": members});
        done(&api.patch(&path).json(update).await);
        let set = json!({"description": "those", "included_environments": members, "tags": {"env": "all"}});
        assert_reads(&read(&api, &path).await, &set);
    }
    let nested = put_logical_environment(&api, &format!("{name}-nested"), "", &json!([name])).await;
    nested.expect_field_error(400, "included_environments");
    done(&api.put(&format!("{path}/archive")).await);
    assert_eq!(api.get(&path).await.status, 404);
    done(&put_logical_environment(&api, &name, "", &json!([])).await);
    let set = json!({"type": "logical", "description": "", "included_environments": [], "tags": {}});
    assert_reads(&read(&api, &path).await, &set);
}

async fn flow(api: Api, n: usize) {
    let name = format!("tf-flow-{n}");
    let path = format!("/flows/acme/{name}");
    let put = async |description: &str, template: Option<&str>| {
        let document = json!({"name": name, "description": description, "visibility": "private"}).to_string();
        let template_file = file("template_file", "template.yml");
        let mut parts = vec![("name=\"data_json\"", document.as_str())];
        parts.extend(template.map(|template| (template_file.as_str(), template)));
        done(&api.put("/flows/acme/template_file").form(&parts).await);
    };
    assert_eq!(api.get(&path).await.status, 404);
    put("builds", Some(TEMPLATE)).await;
    tag(&api, "flow", &name, json!({"team": "platform"}), &[]).await;
    let set = json!({"name": name, "description": "builds", "visibility": "private", "template": TEMPLATE,
                     "tags": {"team": "platform"}});
    assert_reads(&read(&api, &path).await, &set);
    // An update without a template keeps the one that is there.
    put("builds more", None).await;
    tag(&api, "flow", &name, json!({}), &["team"]).await;
    let set = json!({"description": "builds more", "template": TEMPLATE, "tags": {}});
    assert_reads(&read(&api, &path).await, &set);
    put("builds more", Some("version: 1\n")).await;
    assert_reads(&read(&api, &path).await, &json!({"template": "version: 1\n"}));
    done(&api.put(&format!("{path}/archive")).await);
    assert_eq!(api.get(&path).await.status, 404);
    put("", None).await;
    let found = read(&api, &path).await;
    assert_reads(&found, &json!({"description": "", "tags": {}}));
    assert!(found["template"].as_str().is_some_and(|template| !template.is_empty()), "{found}");
}

async fn attestation_type(api: Api, n: usize) {
    let name = format!("tf-type-{n}");
    let path = format!("/custom-attestation-types/acme/{name}");
    let post = async |description: &str, schema: Option<&str>, rules: &[&str]| {
        let mut document = json!({"name": name, "description": description});
        if !rules.is_empty() {
            document["evaluator"] = json!({"content_type": "jq", "rules": rules});
        }
        let (document, schema_file) = (document.to_string(), file("type_schema", "schema.json"));
        let mut parts = vec![("name=\"data_json\"", document.as_str())];
        parts.extend(schema.map(|schema| (schema_file.as_str(), schema)));
        api.post("/custom-attestation-types/acme").form(&parts).await.expect_exactly(201, json!("OK"));
    };
    let rules = [".coverage >= 80", ".coverage != null"];
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    // The first version is the newest.
    let newest = |found: &Value| found["versions"][0].clone();
    post("coverage", Some(SCHEMA), &rules).await;
    post("coverage", Some(SCHEMA), &rules).await;
    let found = read(&api, &path).await;
    assert_reads(&found, &json!({"name": name, "description": "coverage", "org": "acme", "archived": false}));
    let evaluator = json!({"content_type": "jq", "rules": rules});
    assert_reads(&newest(&found), &json!({"version": 1, "type_schema": schema, "evaluator": evaluator}));
    // Each one replaces the whole.
    post("coverage", None, &rules).await;
    let found = read(&api, &path).await;
    assert_reads(&newest(&found), &json!({"version": 2, "evaluator": evaluator}));
    assert_eq!(newest(&found)["type_schema"], Value::Null);
    post("changed", Some(SCHEMA), &[]).await;
    let found = read(&api, &path).await;
    assert_reads(&found, &json!({"description": "changed"}));
    assert_reads(&newest(&found), &json!({"version": 3, "type_schema": schema}));
    assert_ne!(newest(&found)["evaluator"]["content_type"], "jq");
    assert_eq!(found["versions"].as_array().unwrap().len(), 3);
    done(&api.put(&format!("{path}/archive")).await);
    let archived = read(&api, &path).await;
    assert_reads(&archived, &json!({"archived": true, "versions": found["versions"]}));
}

/// A policy, whose destruction asks for nothing, and its attachment to environments of both kinds.
async fn policy(api: Api, n: usize) {
    let name = format!("tf-policy-{n}");
    let path = format!("/policies/acme/{name}");
    let put = async |description: &str, text: &str| {
        let payload =
            json!({"name": name, "description": description, "type": "env", "comment": ""}).to_string();
        let policy_file = file("policy_file", "policy.yaml");
        done(&api.put("/policies/acme").form(&[("name=\"payload\"", &payload), (&policy_file, text)]).await);
    };
    let newest = |found: &Value| {
        let versions = found["versions"].as_array().unwrap().clone();
        versions.into_iter().max_by_key(|version| version["version"].as_u64().unwrap()).unwrap()
    };
    assert_eq!(api.get(&path).await.status, 404);
    put("provenance", POLICY).await;
    let created = read(&api, &path).await;
    assert_reads(&created, &json!({"name": name, "description": "provenance"}));
    assert_reads(&newest(&created), &json!({"version": 1, "policy_yaml": POLICY}));
    put("provenance", STRICTER).await;
    let found = read(&api, &path).await;
    assert_reads(&newest(&found), &json!({"version": 2, "policy_yaml": STRICTER}));
    assert_eq!(found["created_at"], created["created_at"]);
    put("", STRICTER).await;
    assert_reads(&newest(&read(&api, &path).await), &json!({"policy_yaml": STRICTER}));

    // A policy and an environment may share a name.
    let logical = format!("{name}-all");
    done(&put_environment(&api, &name, "ECS", "", false).await);
    done(&put_logical_environment(&api, &logical, "", &json!([name])).await);
    for environment in [&name, &logical] {
        let path = format!("/environments/acme/{environment}");
        let attached = async || {
            let found = read(&api, &path).await["policies"].clone();
            let names = found.as_array().unwrap().iter().map(|policy| {
                let name = if policy.is_string() { policy } else { &policy["name"] };
                name.as_str().unwrap().to_owned()
            });
            names.collect::<Vec<_>>()
        };
        let body = json!({"policy_names": [name]});
        for _ in 0..2 {
            done(&api.post(&format!("{path}/policies")).json(&body).await);
            assert_eq!(attached().await, [name.as_str()]);
        }
        done(&api.delete(&format!("{path}/policies")).json(&body).await);
        assert_eq!(attached().await, [""; 0]);
        done(&api.post(&format!("{path}/policies")).json(&body).await);
        done(&api.put(&format!("{path}/archive")).await);
        // The environment is gone: so is the attachment, which the provider takes for detached.
        assert_eq!(api.get(&path).await.status, 404);
        assert_eq!(api.delete(&format!("{path}/policies")).json(&body).await.status, 404);
    }
    done(&put_environment(&api, &name, "ECS", "", false).await);
    assert_eq!(read(&api, &format!("/environments/acme/{name}")).await["policies"], json!([]));
}

async fn action(api: Api, n: usize) {
    const NOTIFICATIONS: &str = "/organizations/acme/environments_notifications";
    let (name, prod, staging) = (format!("tf/action-{n}"), format!("tf-prod-{n}"), format!("tf-staging-{n}"));
    for environment in [&prod, &staging] {
        done(&put_environment(&api, environment, "lambda", "", false).await);
    }
    // An action is found in the list by its name: the first one is taken.
    let number = async |name: &str| {
        let listed = api.get(NOTIFICATIONS).await.ok();
        let found = listed.as_array().unwrap().iter().find(|action| action["name"] == name).cloned();
        found.map(|action| action["number"].as_u64().unwrap())
    };
    let body = |name: &str, environments: &[&String], triggers: &[&str], path: &str| {
        json!({
            "name": name, "type": "env", "environments": environments, "triggers": triggers,
            "targets": [{"type": "WEBHOOK", "webhook": format!("https://hooks.example.com/{path}")}],
        })
    };
    let sent = body(&name, &[&prod], &["ON_NON_COMPLIANT_ENV", "ON_COMPLIANT_ENV"], "compliance-alerts");
    assert_eq!(number(&name).await, None);
    // A create whose answer was lost is repeated, and makes no second one that nobody would delete.
    done(&api.put(NOTIFICATIONS).json(&sent).await);
    let first = number(&name).await.unwrap();
    done(&api.put(NOTIFICATIONS).json(&sent).await);
    let listed = api.get(NOTIFICATIONS).await.ok();
    let same = listed.as_array().unwrap().iter().filter(|action| action["name"] == name.as_str());
    assert_eq!(same.count(), 1, "{listed}");
    let path = format!("{NOTIFICATIONS}/{first}");
    let created = read(&api, &path).await;
    let reads = async |sent: &Value| {
        let found = read(&api, &path).await;
        let set = json!({
            "name": sent["name"], "type": "env", "environments": sent["environments"], "triggers": sent["triggers"],
            "number": first, "created_by": created["created_by"], "created_at": created["created_at"],
            "is_created_from_slack_app": false, "is_failing": false,
        });
        assert_reads(&found, &set);
        assert!(found["last_modified_at"].is_number() && created["created_by"] != "", "{found}");
        let webhook = &found["targets"][0]["webhook"];
        assert!(webhook == "", "what is neither empty nor the URL would be written into the state");
    };
    reads(&sent).await;
    let changed = body(&name, &[&staging, &prod], &["ON_STARTED_ARTIFACT"], "updated");
    done(&api.put(&path).json(&changed).await);
    reads(&changed).await;
    let renamed = body(&format!("{name}-renamed"), &[&prod, &staging], &["ON_STARTED_ARTIFACT"], "updated");
    done(&api.put(&path).json(&renamed).await);
    reads(&renamed).await;
    assert_eq!((number(&name).await, number(&format!("{name}-renamed")).await), (None, Some(first)));
    done(&api.delete(&path).await);
    assert_eq!(api.get(&path).await.status, 404);
    assert_eq!(api.put(&path).json(&renamed).await.status, 404);
    assert_eq!(api.delete(&path).await.status, 404);
    done(&api.put(NOTIFICATIONS).json(&sent).await);
    let second = number(&name).await.unwrap();
    assert!(second > first);
    // An archived environment leaves the action. An action without environments is deleted.
    done(&api.put(&format!("/environments/acme/{prod}/archive")).await);
    assert_eq!(number(&name).await, None);
    assert_eq!(api.get(&format!("{NOTIFICATIONS}/{second}")).await.status, 404);
}

async fn service_account(api: Api, n: usize) {
    let name = format!("tf-account-{n}");
    let path = format!("/service-accounts/acme/{name}");
    let create = json!({"name": name, "description": "deploys", "privilege": "member"});
    for _ in 0..2 {
        assert_eq!(api.get(&path).await.status, 404);
        let created = api.post("/service-accounts/acme").json(&create).await.created();
        let set = json!({"name": name, "description": "deploys", "privilege": "member"});
        assert_reads(&created, &set);
        let found = read(&api, &path).await;
        assert_reads(&found, &set);
        assert_eq!(found["created_at"], created["created_at"]);
        let listed = api.get("/service-accounts/acme").await.ok();
        assert!(
            listed.as_array().unwrap().iter().any(|account| account["name"] == name.as_str()),
            "{listed}"
        );

        let key = json!({"description": "for pipelines", "expires_at": 4_102_444_800_u64});
        let made = api.post(&format!("{path}/api-keys")).json(key).await.created();
        assert!(made["key"].is_string() && made["expires_at"].is_u64(), "{made}");
        let of_key = format!("{path}/api-keys/{}", made["id"].as_str().unwrap());
        let found = read(&api, &of_key).await;
        assert_reads(
            &found,
            &json!({"id": made["id"], "description": "for pipelines", "expires_at": 4_102_444_800_u64}),
        );
        assert!(found.get("key").is_none(), "{found}");
        let own = api.get("/environments/acme").key(made["key"].as_str().unwrap()).await;
        assert_eq!(own.status, 200);

        done(&api.patch(&path).json(json!({"description": null, "privilege": "reader"})).await);
        let found = read(&api, &path).await;
        assert_reads(&found, &json!({"privilege": "reader"}));
        assert!(matches!(found["description"].as_str(), None | Some("")), "{found}");
        done(&api.delete(&of_key).await);
        assert_eq!(api.get(&of_key).await.status, 404);
        assert_eq!(api.get("/environments/acme").key(made["key"].as_str().unwrap()).await.status, 401);
        done(&api.delete(&path).await);
    }
    assert_eq!(api.get(&path).await.status, 404);
}

/// The lives of one of each resource.
fn lives(api: &Api, n: usize) -> [BoxFuture<'static, ()>; 7] {
    [
        environment(api.clone(), n).boxed(),
        logical_environment(api.clone(), n).boxed(),
        flow(api.clone(), n).boxed(),
        attestation_type(api.clone(), n).boxed(),
        policy(api.clone(), n).boxed(),
        action(api.clone(), n).boxed(),
        service_account(api.clone(), n).boxed(),
    ]
}

#[apply(on_every_store)]
async fn each_resource_lives_as_it_is_managed(api: Api) {
    for life in lives(&api, 0) {
        life.await;
    }
}

#[apply(with_every_store)]
async fn ten_of_each_resource_live_side_by_side(api: Api, _: Arc<dyn Store>) {
    join_all((0..10).flat_map(|n| lives(&api, n))).await;
}

/// A resource that changes its address in the configuration is destroyed and created at the same time, under one name: the
/// provider repeats the create until it reads what it created.
#[apply(with_every_store)]
async fn what_is_destroyed_and_created_at_the_same_time_is_there_in_the_end(api: Api, _: Arc<dyn Store>) {
    for round in 0..5 {
        let name = format!("moved-{round}");
        let path = format!("/environments/acme/{name}");
        done(&put_environment(&api, &name, "K8S", "old", true).await);
        let destroy = api.put(&format!("{path}/archive")).into_future();
        let create = put_environment(&api, &name, "docker", "new", false).into_future();
        let (destroyed, _) = futures_util::future::join(destroy, create).await;
        done(&destroyed);
        if api.get(&path).await.status == 404 {
            done(&put_environment(&api, &name, "docker", "new", false).await);
        }
        let set = json!({"type": "docker", "description": "new", "include_scaling": false});
        assert_reads(&read(&api, &path).await, &set);
    }
}
