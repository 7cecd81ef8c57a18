//! Actions, and the same of environments under the path that calls them notifications.

use std::collections::BTreeSet;

use evidence_core::actions::egress::Egress;
use futures_util::future::join_all;

use crate::support::prelude::*;

const ACTIONS: &str = "/actions/acme";
const ENVIRONMENTS: &str = "/actions/acme/environments";
const FLOWS: &str = "/actions/acme/flows";
const NOTIFICATIONS: &str = "/organizations/acme/environments_notifications";
const HOOK: &str = "https://hooks.example.com/services/T0/B0/secret";

fn about(name: &str, environments: &[&str]) -> Value {
    json!({
        "name": name, "type": "env", "environments": environments, "triggers": ["ON_STARTED_ARTIFACT"],
        "targets": [{"type": "WEBHOOK", "webhook": HOOK}],
    })
}

fn of_flows(name: &str, flows: &[&str]) -> Value {
    json!({"name": name, "flows": flows, "triggers": ["ON_STARTED_TRAIL"], "targets": []})
}

/// The numbers of the listed actions.
async fn numbers(api: &Api, path: &str) -> Vec<u64> {
    let listed = api.get(path).await.ok();
    listed.as_array().unwrap().iter().map(|action| action["number"].as_u64().unwrap()).collect()
}

#[apply(on_every_store)]
async fn an_action_comes_back_as_it_was_sent_but_for_its_secrets(api: Api) {
    api.given_environments("docker", &["prod", "test"]).await;
    api.given_flow("shop", "version: 1").await;
    assert_eq!(api.get(ACTIONS).await.ok(), json!([]));
    let context = json!({"channel_id": "C1", "channel_name": "releases", "team_id": "T1"});
    let sent = json!({
        "name": "on/start", "environments": ["test", "prod"],
        "triggers": ["ON_SCALED_ARTIFACT", "ON_ALLOWED_ARTIFACT"],
        "targets": [
            {"webhook": HOOK},
            {"type": "SLACK", "webhook": HOOK, "context": context, "last_success_at": 1.5},
            {"type": "EMAIL", "emails": ["joe@example.com", "jane@example.com"]},
        ],
    });
    api.put(ENVIRONMENTS).json(&sent).await.expect_exactly(201, json!("OK"));
    api.put(ENVIRONMENTS).json(&sent).await.expect_exactly(200, json!("OK"));
    let shown = api.get("/actions/acme/1").await.ok();
    let expected = json!({
        "name": "on/start", "type": "env", "number": 1,
        "targets": [
            {"type": "WEBHOOK", "webhook": "", "payload_version": "1.0", "last_success_at": null,
             "last_failure_at": null},
            {"type": "SLACK", "webhook": "", "context": context, "last_success_at": null,
             "last_failure_at": null},
            {"type": "EMAIL", "emails": ["joe@example.com", "jane@example.com"], "last_success_at": null,
             "last_failure_at": null},
        ],
        "triggers": ["ON_SCALED_ARTIFACT", "ON_ALLOWED_ARTIFACT"], "created_by": "jane",
        "is_created_from_slack_app": false, "is_failing": false, "last_success_timestamp": null,
        "last_failure_timestamp": null, "created_at": shown["created_at"],
        "last_modified_at": shown["last_modified_at"], "environments": ["test", "prod"], "flows": null,
    });
    assert_eq!(shown, expected);
    api.get(&format!("{NOTIFICATIONS}/1")).await.expect_exactly(200, expected.clone());
    api.put(FLOWS).json(of_flows("begun", &["shop"])).await.created();
    let listed = api.get(ACTIONS).await.ok();
    assert_eq!(listed[0], expected);
    assert_eq!(
        (&listed[1]["number"], &listed[1]["flows"], &listed[1]["environments"]),
        (&json!(2), &json!(["shop"]), &json!(null))
    );
    api.get(NOTIFICATIONS).await.expect_exactly(200, json!([expected]));
}

#[test]
fn the_urls_of_targets_are_in_no_ledger_and_go_with_their_targets() {
    with_every_store(async |api, store| {
        api.given_environments("docker", &["prod"]).await;
        let org = acme(&*store).await;
        let urls = async || {
            let listed = store.actions_listed(org).await.unwrap();
            let ids = Vec::from_iter(listed.iter().map(|action| action.id));
            let actions = store.actions_by_id(org, &ids).await.unwrap();
            actions.iter().flat_map(|action| action.record.urls()).map(|url| url.id).collect::<Vec<_>>()
        };
        let with = |hooks: &[&str]| {
            let targets =
                Vec::from_iter(hooks.iter().map(|hook| json!({"webhook": format!("{HOOK}/{hook}")})));
            json!({"name": "alert", "environments": ["prod"], "triggers": [], "targets": targets})
        };
        api.put(ENVIRONMENTS).json(with(&["a", "b"])).await.created();
        let first = urls().await;
        assert_eq!(store.secret_urls(org, &first).await.unwrap().len(), 2);
        api.put(ENVIRONMENTS).json(with(&["c", "b"])).await.ok();
        let second = urls().await;
        assert!(first[0] != second[0] && first[1] == second[1], "{first:?} {second:?}");
        let kept = store.secret_urls(org, &[&first[..], &second[..]].concat()).await.unwrap();
        let kept = BTreeSet::from_iter(kept.into_iter().map(|(id, _)| id));
        assert_eq!(kept, BTreeSet::from_iter(second.clone()));
        // The same request changes nothing.
        let size = store.ledger_head(org).await.unwrap().unwrap().size();
        api.put(ENVIRONMENTS).json(with(&["c", "b"])).await.ok();
        assert_eq!(store.ledger_head(org).await.unwrap().unwrap().size(), size);
        api.delete("/actions/acme/1").await.ok();
        assert_eq!(store.secret_urls(org, &second).await.unwrap(), Vec::new());
        let entries = store.ledger_entries(org, 0, 1000).await.unwrap();
        let payloads = String::from_iter(entries.into_iter().map(|entry| entry.payload));
        assert!(payloads.contains("hooks.example.com") && !payloads.contains("services"), "{payloads}");
    });
}

#[test]
fn a_secret_url_that_is_lost_changed_or_left_over_is_named() {
    block_on(async {
        for StoreUnderTest { name, store, guard, tables, .. } in stores().await {
            let Some(tables) = tables else { continue };
            let api = Api::new(fixture(store, Settings::default()).await, Mount::Tower, name).await;
            api.given_environments("docker", &["prod"]).await;
            let alert = json!({
                "name": "alert", "environments": ["prod"], "triggers": [],
                "targets": [{"webhook": "https://a.example/1"}, {"webhook": "https://b.example/2"}],
            });
            api.put(ENVIRONMENTS).json(alert).await.created();
            assert_eq!(tables.problems().await, Vec::<String>::new(), "{name}");
            let at = |host: &str, flaw: &str| {
                format!(
                    "organization acme: a target of action 1 at {host}.example: {flaw}: send the action's targets again"
                )
            };
            let (damaged, lost) = ("its URL is damaged in the store", "the store has lost its URL");
            let steps = [
                (
                    "UPDATE secret_url SET content = replace(content, 'a.example', 'c.example')",
                    vec![at("a", damaged)],
                ),
                ("UPDATE secret_url SET content = '{}'", vec![at("a", damaged), at("b", damaged)]),
                (
                    "UPDATE secret_url SET id = 'x' WHERE id = (SELECT min(id) FROM secret_url)",
                    vec![
                        at("a", lost),
                        at("b", damaged),
                        "organization acme: the secret URL x belongs to no target".to_owned(),
                    ],
                ),
                ("DELETE FROM secret_url", vec![at("a", lost), at("b", lost)]),
            ];
            for (damage, expected) in steps {
                tables.execute(damage).await;
                assert_eq!(tables.problems().await, expected, "{name}: {damage}");
            }
            drop(guard);
        }
    });
}

#[apply(on_every_store)]
async fn a_name_leads_to_one_action_and_a_number_is_never_given_again(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.given_flow("shop", "version: 1").await;
    for name in ["a", "b", "c"] {
        api.put(NOTIFICATIONS).json(about(name, &["prod"])).await.created();
    }
    let other = api.put(FLOWS).json(of_flows("a", &["shop"])).await;
    other.expect_field_error(400, "name");
    api.delete("/actions/acme/3").await.expect_exactly(200, json!("OK"));
    api.delete(&format!("{NOTIFICATIONS}/2")).await.expect_exactly(200, json!("OK"));
    assert_eq!(numbers(&api, ACTIONS).await, [1]);
    api.put(FLOWS).json(of_flows("c", &["shop"])).await.created();
    assert_eq!(numbers(&api, ACTIONS).await, [1, 4]);
    assert_eq!(numbers(&api, NOTIFICATIONS).await, [1]);
    for (method, path, field) in [
        ("GET", "/actions/acme/2", "action_number"),
        ("DELETE", "/actions/acme/2", "action_number"),
        ("GET", "/actions/acme/0", "action_number"),
        ("GET", "/actions/acme/-1", "action_number"),
        ("GET", "/organizations/acme/environments_notifications/4", "notification_number"),
        ("DELETE", "/organizations/acme/environments_notifications/4", "notification_number"),
        ("PUT", "/organizations/acme/environments_notifications/4", "notification_number"),
    ] {
        let request = api.request(method.parse().unwrap(), path);
        let reply = if method == "PUT" { request.json(about("x", &["prod"])).await } else { request.await };
        let number = path.rsplit('/').next().unwrap();
        let text = format!("no action has number {number} in organization 'acme'");
        reply.expect_errors(404, "Action not found", &[(field, &text)]);
    }
    api.get("/actions/acme/x").await.expect_field_error(400, "action_number");
    assert_eq!(api.get("/actions/foobar/1").key(JOHN).await.error_message(404), "Action not found");
}

#[apply(on_every_store)]
async fn what_is_archived_leaves_its_actions_and_ends_those_that_it_leaves_empty(api: Api) {
    api.given_environments("docker", &["prod", "test"]).await;
    api.given_flow("shop", "version: 1").await;
    api.put(ENVIRONMENTS).json(about("both", &["prod", "test", "prod"])).await.created();
    api.put(ENVIRONMENTS).json(about("prod", &["prod"])).await.created();
    api.put(ENVIRONMENTS).json(about("none", &[])).await.created();
    api.put(FLOWS).json(of_flows("shop", &["shop"])).await.created();
    api.put("/environments/acme/prod/rename").json(json!({"new_name": "live"})).await.ok();
    api.get("/actions/acme/1").await.expect(200, json!({"environments": ["live", "test", "live"]}));
    api.put("/environments/acme/live/archive").await.ok();
    api.get("/actions/acme/1").await.expect(200, json!({"environments": ["test"]}));
    assert_eq!(numbers(&api, ACTIONS).await, [1, 3, 4]);
    assert_eq!(numbers(&api, NOTIFICATIONS).await, [1, 3]);
    for path in ["/actions/acme/2", "/organizations/acme/environments_notifications/2"] {
        assert_eq!(api.get(path).await.error_message(404), "Action not found");
        assert_eq!(api.delete(path).await.error_message(404), "Action not found");
    }
    let gone = api.put(ENVIRONMENTS).json(about("new", &["live"])).await;
    gone.expect_errors(
        404,
        "Environment not found",
        &[("environments", "environment 'live' in organization 'acme' is archived")],
    );
    // The name is free, and a new environment of the old name is another.
    api.given_environments("docker", &["live"]).await;
    assert_eq!(numbers(&api, ACTIONS).await, [1, 3, 4]);
    api.put(FLOWS).json(of_flows("prod", &["shop"])).await.created();
    api.put("/flows/acme/shop/archive").await.ok();
    assert_eq!(numbers(&api, ACTIONS).await, [1, 3]);
    let rename = api.put(&format!("{NOTIFICATIONS}/1")).json(about("shop", &["live"])).await;
    rename.expect_exactly(200, json!("OK"));
    api.get("/actions/acme/1").await.expect(200, json!({"name": "shop", "environments": ["live"]}));
}

#[apply(on_every_store)]
async fn bad_input_is_named_and_nothing_is_stored(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.given_flow("shop", "version: 1").await;
    let with = |field: &str, value: Value| {
        let mut body = about("a", &["prod"]);
        body[field] = value;
        body
    };
    let target = |target: Value| with("targets", json!([{"webhook": HOOK}, target]));
    for (body, field) in [
        (with("name", json!("a b")), "name"),
        (with("name", json!("/a")), "name"),
        (with("name", json!("")), "name"),
        (with("type", json!("flow")), "type"),
        (with("triggers", json!(["ON_STARTED_TRAIL"])), "triggers[0]"),
        (with("triggers", json!(["ON_STARTED_ARTIFACT", "ON_APPROVAL"])), "triggers[1]"),
        (with("triggers", json!("ON_STARTED_ARTIFACT")), "triggers"),
        (with("flows", json!([])), "flows"),
        (with("targets", Value::Array(vec![json!({"webhook": HOOK}); 21])), "targets"),
        (with("triggers", Value::Array(vec![json!("ON_STARTED_ARTIFACT"); 21])), "triggers"),
        (with("environments", json!("prod")), "environments"),
        (with("environments", json!(null)), "environments"),
        (target(json!("x")), "targets[1]"),
        (target(json!({})), "targets[1].webhook"),
        (target(json!({"type": "PIGEON"})), "targets[1].type"),
        (target(json!({"webhook": HOOK, "payload_version": "2.0"})), "targets[1].payload_version"),
        (target(json!({"webhook": HOOK, "secret": "x"})), "targets[1].secret"),
        (target(json!({"type": "WEBHOOK", "webhook": HOOK, "emails": []})), "targets[1].emails"),
        (
            target(json!({"type": "SLACK", "webhook": HOOK, "payload_version": "1.0"})),
            "targets[1].payload_version",
        ),
        (
            target(json!({"type": "SLACK", "webhook": HOOK, "context": {"team_id": "x"}})),
            "targets[1].context.channel_id",
        ),
        (target(json!({"type": "EMAIL"})), "targets[1].emails"),
        (target(json!({"emails": ["a@b.example", "a b@c.example"]})), "targets[1].emails[1]"),
        (target(json!({"emails": ["a@b.example\r\nBcc: c@d.example"]})), "targets[1].emails[0]"),
        (target(json!({"webhook": "hooks.example.com"})), "targets[1].webhook"),
        (target(json!({"webhook": "http://hooks.example.com/"})), "targets[1].webhook"),
        (target(json!({"webhook": "https://127.1/"})), "targets[1].webhook"),
        (target(json!({"webhook": "https://0xa9fea9fe/latest/meta-data"})), "targets[1].webhook"),
        (target(json!({"webhook": "https://[::ffff:10.0.0.1]/"})), "targets[1].webhook"),
        (target(json!({"webhook": "https://metadata.google.internal/"})), "targets[1].webhook"),
        (target(json!({"webhook": "https://jane:pw@hooks.example.com/"})), "targets[1].webhook"),
    ] {
        for path in [ENVIRONMENTS, NOTIFICATIONS] {
            let reply = api.put(path).json(&body).await;
            let errors = reply.json()["errors"].clone();
            assert_eq!(reply.status, 400, "{body}: {reply:?}");
            assert!(errors[field].is_string() && errors.as_object().unwrap().len() == 1, "{field}: {errors}");
        }
    }
    let unknown = api.put(ENVIRONMENTS).json(about("a", &["prod", "none"])).await;
    let text = "no environment named 'none' in organization 'acme'";
    unknown.expect_errors(404, "Environment not found", &[("environments", text)]);
    let unknown = api.put(FLOWS).json(of_flows("a", &["shop", "none"])).await;
    unknown.expect_errors(404, "Flow not found", &[("flows", "no flow named 'none' in organization 'acme'")]);
    let both = api.put(FLOWS).json(about("a", &["prod"])).await;
    assert_eq!(both.status, 400, "{both:?}");
    for field in ["name", "environments", "triggers", "targets"] {
        let mut body = about("a", &["prod"]);
        body.as_object_mut().unwrap().remove(field);
        api.put(ENVIRONMENTS).json(&body).await.expect_field_error(400, field);
    }
    assert_eq!(api.get(ACTIONS).await.ok(), json!([]));
}

#[apply(with_every_store)]
async fn of_64_that_put_a_name_one_creates_it(api: Api, _: Arc<dyn Store>) {
    api.given_environments("docker", &["prod"]).await;
    let put = async |name: String| api.put(ENVIRONMENTS).json(about(&name, &["prod"])).await.status.as_u16();
    let mut statuses = join_all((0..64).map(|_| put("a".to_owned()))).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200; 63], vec![201]].concat());
    let statuses = join_all((0..64).map(|n| put(format!("b{n}")))).await;
    assert_eq!(statuses, [201; 64]);
    assert_eq!(numbers(&api, ACTIONS).await, Vec::from_iter(1..=65));
}

#[tokio::test]
async fn an_organization_has_no_more_actions_than_it_may_and_those_that_are_over_do_not_count() {
    let limits = evidence_core::Limits { actions: 2, ..evidence_core::Limits::default() };
    let api =
        Api::new(in_memory_with(Settings { limits, ..Settings::default() }).await, Mount::Tower, "memory")
            .await;
    api.given_environments("docker", &["prod", "test"]).await;
    api.put(ENVIRONMENTS).json(about("a", &["prod"])).await.created();
    api.put(ENVIRONMENTS).json(about("b", &["test"])).await.created();
    api.put(ENVIRONMENTS).json(about("c", &["test"])).await.expect_field_error(400, "name");
    api.put(ENVIRONMENTS).json(about("b", &["test", "prod"])).await.ok();
    api.put("/environments/acme/prod/archive").await.ok();
    api.put(ENVIRONMENTS).json(about("c", &["test"])).await.created();
    assert_eq!(numbers(&api, ACTIONS).await, [2, 3]);
}

#[tokio::test]
async fn the_operator_allows_targets_within() {
    let egress = Egress { allowed: vec!["127.0.0.0/8".parse().unwrap()] };
    let api =
        Api::new(in_memory_with(Settings { egress, ..Settings::default() }).await, Mount::Tower, "memory")
            .await;
    api.given_environments("docker", &["prod"]).await;
    for (url, status) in
        [("http://localhost:9000/x", 201), ("http://127.0.0.1/", 200), ("http://10.0.0.1/", 400)]
    {
        let mut body = about("a", &["prod"]);
        body["targets"][0]["webhook"] = json!(url);
        assert_eq!(api.put(ENVIRONMENTS).json(&body).await.status, status, "{url}");
    }
}
