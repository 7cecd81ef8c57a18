//! Environments, end to end: the specification's rows for joining and attaching, and the upsert, list and look-up
//! around them.

use evidence_core::fact::Fact;

use crate::intercepting_store::{InterceptingStore, take_counts};
use crate::support::prelude::*;
use crate::unreadable::{inject, on_every_store_without_rebuild};

/// A policy that asks for nothing.
const EMPTY: &str = "_schema: https://example.com/schemas/policy/v1\n";
const ONLY_PHYSICAL: &str = "Can only add physical environments to logical environments";

fn unknown(field: &str, name: &str) -> Value {
    let text = format!("no environment named '{name}' in organization 'acme'");
    json!({"message": "Environment not found", "errors": {field: text}})
}

#[apply(on_every_store)]
async fn an_environment_is_created_and_got(api: Api) {
    for _ in ["created", "updated"] {
        api.put_environment("prod", "K8S")
            .with(json!({"description": "live", "include_scaling": true, "require_provenance": true}))
            .await
            .expect_exactly(201, json!("OK"));
    }
    let now = NOW.seconds();
    api.get("/environments/acme/prod").key("reader-key").await.expect_exactly(
        200,
        json!({
            "org": "acme", "name": "prod", "type": "K8S", "description": "live", "last_modified_at": now,
            "last_reported_at": null, "last_changed_at": null, "state": null, "include_scaling": true,
            "require_provenance": true, "tags": {}, "policies": [], "included_environments": null
        }),
    );
    api.get("/environments/acme/other").await.expect_exactly(404, unknown("env_name", "other"));
}

#[apply(on_every_store)]
async fn an_upsert_keeps_a_description_that_is_not_given_and_never_changes_the_type(api: Api) {
    let put = |kind: &str, description: &str| {
        api.put_environment("prod", kind)
            .with(json!({"description": description, "included_environments": null, "policies": null}))
    };
    put("docker", "live").await.expect_exactly(201, json!("OK"));
    put("docker", "").await.expect_exactly(201, json!("OK"));
    api.get("/environments/acme/prod").await.expect(200, json!({"description": "live"}));
    put("docker", "dead").await.expect_exactly(201, json!("OK"));
    api.get("/environments/acme/prod").await.expect(200, json!({"description": "dead"}));
    let text = "The type of an environment cannot change: this one is 'docker'";
    let refused = json!({"message": "Input payload validation failed", "errors": {"type": text}});
    put("server", "").await.expect_exactly(400, refused);
}

#[apply(on_every_store)]
async fn every_type_is_accepted_and_every_mistake_in_the_body_is_named(api: Api) {
    for kind in ["K8S", "ECS", "S3", "lambda", "server", "docker", "azure-apps", "cloud-run", "logical"] {
        api.given_environments(kind, &[kind]).await;
        api.get(&format!("/environments/acme/{kind}")).await.expect(200, json!({"type": kind}));
    }
    let types = "Input should be 'K8S', 'ECS', 'S3', 'lambda', 'server', 'docker', 'azure-apps', 'cloud-run' or 'logical'";
    let table = [
        (json!({}), "name", "Field required [input: None]".to_owned()),
        (json!({"name": "a", "description": ""}), "type", "Field required [input: None]".to_owned()),
        (json!({"name": "a", "type": "docker"}), "description", "Field required [input: None]".to_owned()),
        (
            json!({"name": "a~b", "type": "docker", "description": ""}),
            "name",
            r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\.\-_]*$' [input: a~b]".to_owned(),
        ),
        (json!({"name": "a", "type": "k8s", "description": ""}), "type", format!("{types} [input: k8s]")),
        (
            json!({"name": "a", "type": "docker", "description": "", "more": 1}),
            "more",
            "Extra inputs are not permitted [input: 1]".to_owned(),
        ),
        (
            json!({"name": "a", "type": "docker", "description": "", "include_scaling": ""}),
            "include_scaling",
            "Input should be a valid boolean [input: ]".to_owned(),
        ),
    ];
    for (body, field, text) in table {
        let refused = json!({"message": "Input payload validation failed", "errors": {field: text}});
        api.put("/environments/acme").json(&body).await.expect_exactly(400, refused);
    }
    api.put("/environments/acme").await.expect_missing_field("body");
}

#[apply(on_every_store)]
async fn a_snapshotter_creates_environments_and_changes_none(api: Api) {
    let put = |key: &'static str, description: &str| {
        let body = json!({"name": "prod", "type": "docker", "description": description});
        api.put("/environments/acme").key(key).json(&body)
    };
    put("reader-key", "live").await.expect(403, json!({}));
    put("snapshotter-key", "live").await.expect_exactly(201, json!("OK"));
    put("snapshotter-key", "live").await.expect_exactly(201, json!("OK"));
    put("snapshotter-key", "").await.expect_exactly(201, json!("OK"));
    put("snapshotter-key", "dead").await.expect(403, json!({}));
    put("member-key", "dead").await.expect_exactly(201, json!("OK"));
}

#[apply(on_every_store)]
async fn a_logical_environment_includes_physical_ones_in_the_order_given(api: Api) {
    api.given_environments("docker", &["a", "b"]).await;
    let put = |kind: &str, members: &[&str]| {
        api.put_environment("all", kind).with(json!({"included_environments": members}))
    };
    put("logical", &["b", "none"]).await.expect_exactly(404, unknown("included_environments", "none"));
    put("logical", &[""]).await.expect_exactly(404, unknown("included_environments", ""));
    put("docker", &["a"]).await.expect(
        400,
        json!({"errors": {"included_environments": "Only a logical environment includes others"}}),
    );
    put("logical", &[]).await.expect_exactly(201, json!("OK"));
    api.get("/environments/acme/all").await.expect(200, json!({"included_environments": [], "state": null}));
    put("logical", &["b", "a", "b"]).await.expect_exactly(201, json!("OK"));
    api.get("/environments/acme/all").await.expect(200, json!({"included_environments": ["b", "a"]}));
    let refused = json!({"message": ONLY_PHYSICAL, "errors": {"included_environments": "'all' is a logical environment"}});
    put("logical", &["all"]).await.expect_exactly(400, refused);
}

#[apply(on_every_store)]
async fn policies_can_be_set_with_the_upsert(api: Api) {
    api.put_policy("b", PROVENANCE).await;
    api.put_policy("a", COMPLIANCE).await;
    let put = |policies: Value| api.put_environment("prod", "docker").with(json!({"policies": policies}));
    let text = "no policy named 'none' in organization 'acme'";
    put(json!(["a", "none"]))
        .await
        .expect_exactly(404, json!({"message": "Policy not found", "errors": {"policies": text}}));
    put(json!(["b", "a"])).await.expect_exactly(201, json!("OK"));
    put(json!(null)).await.expect_exactly(201, json!("OK"));
    api.get("/environments/acme/prod").await.expect(200, json!({"policies": ["a", "b"]}));
    api.report_running("prod", &[]).await.expect_exactly(201, json!("OK"));
    put(json!([])).await.expect_exactly(201, json!("OK"));
    api.get("/environments/acme/prod").await.expect(200, json!({"policies": [], "state": null}));
    api.expect_snapshots("prod", 2).await;
}

#[apply(on_every_store)]
async fn environments_are_listed_filtered_and_sorted(api: Api) {
    api.given_environments("docker", &["beta", "Alpha"]).await;
    api.given_environments("server", &["gamma"]).await;
    let table = [
        ("", vec!["Alpha", "beta", "gamma"]),
        ("?sort=name&sort_direction=desc", vec!["gamma", "beta", "Alpha"]),
        ("?sort=last_modified_at", vec!["Alpha", "beta", "gamma"]),
        ("?sort=last_changed_at&sort_direction=desc", vec!["gamma", "beta", "Alpha"]),
        ("?name=ALPH", vec!["Alpha"]),
        ("?name=", vec!["Alpha", "beta", "gamma"]),
        ("?name=%25", vec![]),
        ("?type=docker", vec!["Alpha", "beta"]),
        ("?type=docker&type=server", vec!["Alpha", "beta", "gamma"]),
        ("?type=S3", vec![]),
        ("?tag=", vec![]),
        ("?tag=a:b", vec![]),
        ("?space_id=nowhere", vec![]),
    ];
    for (query, names) in table {
        let expected: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
        api.get(&format!("/environments/acme{query}")).await.expect(200, json!(expected));
    }
}

#[apply(on_every_store)]
async fn a_page_of_environments_comes_in_an_envelope(api: Api) {
    api.given_environments("docker", &["a", "b", "c"]).await;
    let href = |page: u64| json!({"href": format!("http://localhost:8001/api/v2/environments/acme?page={page}&per_page=2&sort=name&sort_direction=asc&name=")});
    api.get("/environments/acme?per_page=2&name=").await.expect(
        200,
        json!({
            "_links": {"self": href(1), "next": href(2)}, "environments": [{"name": "a"}, {"name": "b"}],
            "page": 1, "per_page": 2, "total_pages": 2, "total_count": 3
        }),
    );
    let past = json!({"environments": [], "page": 9, "per_page": 15, "total_pages": 1, "total_count": 3});
    api.get("/environments/acme?page=9").await.expect(200, past);
    api.get("/environments/acme?per_page=50").await.expect(200, json!({"per_page": 50}));
    let table = [
        ("page=0", "query.page", "Input should be greater than or equal to 1 [input: 0]"),
        ("per_page=0", "query.per_page", "Input should be greater than or equal to 1 [input: 0]"),
        ("per_page=51", "query.per_page", "Input should be less than or equal to 50 [input: 51]"),
        (
            "sort=age",
            "query.sort",
            "Input should be 'name', 'last_modified_at' or 'last_changed_at' [input: age]",
        ),
        ("sort_direction=up", "query.sort_direction", "Input should be 'asc' or 'desc' [input: up]"),
    ];
    for (query, field, text) in table {
        let refused = json!({"message": "Input payload validation failed", "errors": {field: text}});
        api.get(&format!("/environments/acme?{query}")).await.expect_exactly(400, refused);
    }
    api.get("/environments/acme?type=none").await.expect(400, json!({}));
}

#[apply(on_every_store)]
async fn join_adds_a_physical_environment_to_a_logical_one_and_names_what_is_missing_or_unfit(api: Api) {
    api.given_environments("docker", &["a", "b"]).await;
    api.given_environments("logical", &["all", "other"]).await;
    let join = |logical: &str, body: Value| {
        api.put(&format!("/environments/acme/{logical}/join")).key("member-key").json(&body)
    };
    let named = |name: &str| json!({ "physical_env_name": name });
    for name in ["b", "a", "b"] {
        join("all", named(name)).await.expect_exactly(200, json!("OK"));
    }
    api.get("/environments/acme/all").await.expect(200, json!({"included_environments": ["b", "a"]}));

    join("none", named("a")).await.expect_exactly(404, unknown("env_name", "none"));
    join("all", named("none")).await.expect_exactly(404, unknown("physical_env_name", "none"));
    let logical = json!({"physical_env_name": "'other' is a logical environment"});
    join("all", named("other"))
        .await
        .expect_exactly(400, json!({"message": ONLY_PHYSICAL, "errors": logical}));
    let physical = json!({"env_name": "'a' is a physical environment"});
    join("a", named("b")).await.expect_exactly(400, json!({"message": ONLY_PHYSICAL, "errors": physical}));

    join("all", json!({})).await.expect_missing_field("physical_env_name");
    let extra = json!({"physical_env_name": "a", "more": 1});
    join("all", extra)
        .await
        .expect(400, json!({"errors": {"more": "Extra inputs are not permitted [input: 1]"}}));
    for key in ["snapshotter-key", "reader-key"] {
        join("all", named("a"))
            .key(key)
            .await
            .expect_message(403, "You don't have permission to access this resource");
    }
}

#[apply(on_every_store)]
async fn a_logical_environment_is_as_compliant_as_its_members(api: Api) {
    api.given_environments("docker", &["a", "b"]).await;
    api.put_logical_environment("all", ["a", "b"]).await;
    api.put_policy("p", PROVENANCE).await;
    let state = async |state: Value| {
        let expected = json!({"state": state, "last_reported_at": null});
        api.get("/environments/acme/all").await.expect(200, expected);
    };
    state(json!(null)).await;
    for name in ["a", "b"] {
        api.attach(name, "p").await;
        state(json!(null)).await;
        api.report_running(name, &[]).await.expect_exactly(201, json!("OK"));
    }
    state(json!(true)).await;
    api.report_running("b", &[('1', &[1])]).await.expect_exactly(201, json!("OK"));
    state(json!(false)).await;
    api.get("/environments/acme/all").await.expect(200, json!({"last_changed_at": NOW.seconds()}));
}

#[apply(on_every_store)]
async fn attach_adds_policies_all_or_nothing_and_evaluates_the_latest_snapshot_anew(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.put_policy("b", PROVENANCE).await;
    api.put_policy("a", COMPLIANCE).await;
    let attach = |environment: &str, body: Value| {
        api.post(&format!("/environments/acme/{environment}/policies")).key("member-key").json(&body)
    };
    let names = |names: &[&str]| json!({ "policy_names": names });
    attach("prod", names(&["b", "b"])).await.expect_exactly(200, json!("OK"));
    api.expect_snapshots("prod", 0).await;
    api.report_running("prod", &[('1', &[1])]).await.expect_exactly(201, json!("OK"));
    api.expect_snapshots("prod", 1).await;
    attach("prod", names(&["b"])).await.expect_exactly(200, json!("OK"));
    api.expect_snapshots("prod", 1).await;
    let text = "no policy named 'none' in organization 'acme'";
    let missing = json!({"message": "Policy not found", "errors": {"policy_names": text}});
    attach("prod", names(&["a", "none"])).await.expect_exactly(404, missing);
    api.get("/environments/acme/prod").await.expect(200, json!({"policies": ["b"], "state": false}));
    attach("prod", names(&["b", "a"])).await.expect_exactly(200, json!("OK"));
    api.expect_snapshots("prod", 2).await;
    api.get("/environments/acme/prod").await.expect(200, json!({"policies": ["a", "b"], "state": false}));

    attach("none", names(&["a"])).await.expect_exactly(404, unknown("env_name", "none"));
    attach("prod", names(&[]))
        .await
        .expect(400, json!({"errors": {"policy_names": "List should have at least 1 item"}}));
    let many: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
    let too_many = attach("prod", json!({ "policy_names": many })).await;
    too_many.expect_message(400, "Input payload validation failed");
    attach("prod", json!({})).await.expect_missing_field("policy_names");
    let extra = json!({"policy_names": ["a"], "more": 1});
    attach("prod", extra)
        .await
        .expect(400, json!({"errors": {"more": "Extra inputs are not permitted [input: 1]"}}));
    for key in ["snapshotter-key", "reader-key"] {
        attach("prod", names(&["a"])).key(key).await.expect(403, json!({}));
    }
}

#[test]
fn an_archived_member_is_left_out_of_a_logical_environment() {
    on_every_store_without_rebuild(async |api, store, acme| {
        api.given_environments("docker", &["a", "b"]).await;
        api.put_policy("p", PROVENANCE).await.created();
        for (member, running) in [("a", [].as_slice()), ("b", &[('1', [1].as_slice())])] {
            api.attach(member, "p").await;
            api.report_running(member, running).await.created();
        }
        let all =
            json!({"name": "all", "type": "logical", "description": "", "included_environments": ["a", "b"]});
        api.put("/environments/acme").json(&all).await.created();
        let both = json!({"state": false, "included_environments": ["a", "b"]});
        api.get("/environments/acme/all").await.expect(200, both);

        let archive = async |name: &str| {
            let record = store.environment(acme, name).await.unwrap().unwrap().record;
            inject(store, acme, Fact::EnvironmentArchived { record }).await;
        };
        archive("b").await;
        let alone = json!({"state": true, "included_environments": ["a"]});
        api.get("/environments/acme/all").await.expect(200, alone.clone());
        let listed = api.get("/environments/acme?type=logical").await.ok();
        assert_eq!((&listed[0]["state"], &listed[0]["included_environments"]), (&json!(true), &json!(["a"])));
        archive("a").await;
        let none = json!({"state": null, "included_environments": []});
        api.get("/environments/acme/all").await.expect(200, none);
    });
}

#[tokio::test]
async fn a_long_list_of_environments_is_read_some_at_a_time() {
    let (store, answered) = InterceptingStore::measured(Arc::new(MemoryStore::new()));
    let evidence = fixture(Arc::new(store), Settings::default()).await;
    let api = Api::new(evidence, Mount::Tower, "memory").await;
    let names = Vec::from_iter((0..70).map(|number| format!("env{number:02}")));
    for name in names.iter().rev() {
        let put = api.put_environment(name, "docker").with(json!({"description": "x".repeat(60 << 10)}));
        put.await.created();
    }
    let about_environments =
        || take_counts(&answered, ["environments", "environments_listed", "environments_by_id"]);
    about_environments();
    api.put_logical_environment("all", &names).await.created();
    assert_eq!(about_environments(), [0, 1, 5], "what is named");
    // A few are looked up by their names.
    let few =
        json!({"name": "few", "type": "logical", "description": "", "included_environments": names[..4]});
    api.put("/environments/acme").json(few).await.created();
    assert_eq!(about_environments(), [0, 1, 0], "few");
    api.put("/environments/acme/few/archive").json(json!({})).await.ok();
    about_environments();
    api.get("/allowlists/acme").await.ok();
    assert_eq!(about_environments(), [0, 1, 5], "the allowlist");
    let listed = |list: &Value| {
        Vec::from_iter(list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()))
    };
    about_environments();
    let found = api.get("/environments/acme").await.ok();
    assert_eq!(listed(&found)[1..], names);
    assert_eq!(found[0]["included_environments"], json!(names));
    // Each is of sixty kilobytes, of which a megabyte is read at once: what they are sorted by, and what is sent.
    assert_eq!(about_environments(), [0, 1, 10]);
    let page = api.get("/environments/acme?type=docker&sort_direction=desc&page=7&per_page=11").await.ok();
    assert_eq!(listed(&page["environments"]), ["env03", "env02", "env01", "env00"]);
    assert_eq!(
        (&page["total_count"], &page["total_pages"], &page["page"]),
        (&json!(70), &json!(7), &json!(7))
    );
    assert_eq!(about_environments(), [0, 1, 6]);
}

#[test]
fn what_has_no_provenance_may_not_run_where_it_is_required() {
    const WITHOUT: &str = "the environment requires provenance, and the artifact was reported in no flow";
    on_every_store(async |api| {
        api.given_flow_with_template().await;
        api.given_artifact('1', "t").await;
        api.given_test('1', "t", true).await;
        api.given_artifact('3', "u").await;
        let put = |required: Value| {
            api.put_environment("prod", "docker").with(json!({"require_provenance": required}))
        };
        put(Value::Null).await.created();
        let shows = async |state: Option<bool>, expected: &[(char, Option<bool>, Value)]| {
            let environment = api.get("/environments/acme/prod").await.ok();
            assert_eq!(environment["state"], json!(state), "{environment}");
            let snapshot = api.get("/snapshots/acme/prod/-1").await.ok();
            assert_eq!(snapshot["compliant"], json!(state.unwrap_or_default()), "{snapshot}");
            for (digit, compliant, reasons) in expected {
                let artifacts = snapshot["artifacts"].as_array().unwrap();
                let found = artifacts.iter().find(|one| one["fingerprint"] == fingerprint(*digit)).unwrap();
                assert_eq!(found["compliant"], json!(compliant), "{found}");
                assert_eq!(&found["reasons_for_incompliance"], reasons, "{found}");
            }
        };
        let (none, missing) = (json!([]), json!([WITHOUT]));
        let running: [(char, &[i64]); 3] = [('1', &[1]), ('2', &[2]), ('3', &[3])];
        api.report_running("prod", &running).await.created();
        let unknown = [('1', None, none.clone()), ('2', None, none.clone()), ('3', None, none.clone())];
        shows(None, &unknown).await;

        // A new member is evaluated at once, and again by the next report.
        let incomplete = json!([
            "the artifact is INCOMPLETE in flow 'web': An expected attestation of the artifact or of its trail is missing."
        ]);
        let required = [
            ('1', Some(true), none.clone()),
            ('2', Some(false), missing.clone()),
            ('3', Some(false), incomplete),
        ];
        put(json!(true)).await.created();
        assert_eq!(api.get("/environments/acme/prod").await.ok()["require_provenance"], true);
        shows(Some(false), &required).await;
        api.expect_snapshots("prod", 2).await;
        put(Value::Null).await.created();
        api.report_running("prod", &running).await.ok();
        api.expect_snapshots("prod", 2).await;
        put(json!(false)).await.created();
        shows(None, &unknown).await;
        put(json!(true)).await.created();
        shows(Some(false), &required).await;

        // Policies decide about what was reported, and an exception of theirs waives no requirement of the environment.
        api.put_policy("p", EMPTY).await.created();
        api.attach("prod", "p").await;
        let by_policy = [
            ('1', Some(true), none.clone()),
            ('2', Some(false), missing.clone()),
            ('3', Some(true), none.clone()),
        ];
        shows(Some(false), &by_policy).await;
        let allowed =
            json!({"artifact_name": "x", "artifact_fingerprint": fingerprint('2'), "description": "why"});
        api.put("/allowlists/acme/prod").json(allowed).await.created();
        api.report_running("prod", &running).await.created();
        shows(Some(true), &[('2', Some(true), none.clone())]).await;
        api.report_running("prod", &[('1', &[1]), ('4', &[4])]).await.created();
        shows(Some(false), &[('4', Some(false), missing)]).await;

        let logical = |required: bool| json!({"name": "all", "type": "logical", "description": "", "require_provenance": required});
        api.put("/environments/acme").json(logical(true)).await.expect_field_error(400, "require_provenance");
        api.put("/environments/acme").json(logical(false)).await.created();
    });
}
