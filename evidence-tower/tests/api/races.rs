//! Many callers who create the same thing at the same time: one record is made, no request is answered with a server error,
//! and all callers see the same afterwards.

use std::collections::BTreeMap;

use evidence_core::auth::Role;
use evidence_core::name::OrgName;
use futures_util::future::join_all;
use http::Method;

use crate::support::prelude::*;

const RACERS: usize = 64;

/// How many read afterwards: no more than the connections of the PostgreSQL store under test.
const ONLOOKERS: usize = 4;

/// Sends the same request from many tasks at once, and answers how many were given each status.
async fn race(request: impl Fn(usize) -> RequestBuilder) -> BTreeMap<u16, usize> {
    let racers = (0..RACERS).map(|racer| tokio::spawn(request(racer).into_future()));
    let mut statuses = BTreeMap::new();
    for reply in join_all(racers).await {
        *statuses.entry(reply.unwrap().status.as_u16()).or_default() += 1;
    }
    statuses
}

/// Returns the response at a path, which concurrent readers share.
async fn seen(api: &Api, path: &str) -> Value {
    let replies = join_all((0..ONLOOKERS).map(|_| tokio::spawn(api.get(path).into_future()))).await;
    let mut bodies: Vec<Value> = replies.into_iter().map(|reply| reply.unwrap().ok()).collect();
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "{path}: {bodies:?}");
    bodies.remove(0)
}

async fn expect_one(api: &Api, list: &str) {
    let list = seen(api, list).await;
    let items = list.get("data").unwrap_or(&list);
    assert_eq!(items.as_array().map(Vec::len), Some(1), "{list}");
}

fn put_flow(api: &Api, name: &str) -> RequestBuilder {
    api.put_flow(name)
}

#[apply(on_every_store)]
async fn one_flow(api: Api) {
    let statuses = race(|_| put_flow(&api, "web")).await;
    assert_eq!(statuses, BTreeMap::from([(200, RACERS - 1), (201, 1)]));
    expect_one(&api, "/flows/acme").await;
}

fn rename(api: &Api, flow: &str, new_name: &str) -> RequestBuilder {
    api.put(&format!("/flows/acme/{flow}/rename")).json(json!({"new_name": new_name}))
}

fn attest(api: &Api, flow: &str, name: &str) -> RequestBuilder {
    api.post_generic_attestation(flow, name, true)
}

/// How many attestations of different names each flow has in its trail `t`.
async fn attested(api: &Api) -> BTreeMap<String, usize> {
    let trails = seen(api, "/trails/acme").await;
    let attested = |trail: &Value| {
        let statuses = trail["compliance_status"]["attestations_statuses"].as_array().map(Vec::len);
        (trail["flow"]["name"].as_str().unwrap().to_owned(), statuses.unwrap())
    };
    trails["data"].as_array().unwrap().iter().map(attested).collect()
}

#[apply(on_every_store)]
async fn one_flow_of_a_name_that_many_are_given(api: Api) {
    for racer in 0..RACERS {
        put_flow(&api, &format!("flow{racer}")).await.created();
    }
    let statuses = race(|racer| match racer {
        0 => put_flow(&api, "web"),
        _ => rename(&api, &format!("flow{racer}"), "web"),
    })
    .await;
    // A put of the new name updates the renamed flow.
    let expected =
        [BTreeMap::from([(201, 1), (400, RACERS - 1)]), BTreeMap::from([(200, 2), (400, RACERS - 2)])];
    assert!(expected.contains(&statuses), "{statuses:?}");
    let names = seen(&api, "/flows/acme?search_by_name=web").await;
    assert_eq!(names.as_array().map(Vec::len), Some(1), "{names}");
    let created = usize::from(statuses.contains_key(&201));
    assert_eq!(seen(&api, "/flows/acme").await.as_array().map(Vec::len), Some(RACERS + created));
}

#[apply(on_every_store)]
async fn every_report_reaches_the_flow_that_is_renamed_meanwhile(api: Api) {
    put_flow(&api, "web").await.created();
    let statuses = race(|racer| match racer {
        0..4 => rename(&api, "web", "shop"),
        _ => attest(&api, "web", &format!("a{racer}")),
    })
    .await;
    assert_eq!(statuses, BTreeMap::from([(200, 4), (201, RACERS - 4)]));
    assert_eq!(attested(&api).await, BTreeMap::from([("shop".to_owned(), RACERS - 4)]));
    expect_one(&api, "/flows/acme").await;
}

#[apply(on_every_store)]
async fn every_report_reaches_the_flow_that_is_archived_or_the_next_of_its_name(api: Api) {
    put_flow(&api, "web").await.created();
    attest(&api, "web", "before").await.created();
    let statuses = race(|racer| match racer {
        0 => api.put("/flows/acme/web/archive"),
        _ => attest(&api, "web", &format!("a{racer}")),
    })
    .await;
    assert_eq!(statuses, BTreeMap::from([(200, 1), (201, RACERS - 1)]));
    attest(&api, "web", "after").await.created();
    let attested = attested(&api).await;
    assert_eq!(attested.values().sum::<usize>(), RACERS + 1, "{attested:?}");
    let is_archived = |name: &&String| name.starts_with("web-archived-at-");
    assert_eq!((attested.len(), attested.keys().filter(is_archived).count()), (2, 1), "{attested:?}");
    expect_one(&api, "/flows/acme").await;
}

#[apply(on_every_store)]
async fn one_trail(api: Api) {
    put_flow(&api, "web").await.created();
    let statuses =
        race(|_| api.put("/trails/acme/web").data_json(json!({"name": "t", "description": ""}))).await;
    assert_eq!(statuses, BTreeMap::from([(200, RACERS - 1), (201, 1)]));
    expect_one(&api, "/trails/acme?flow=web").await;
}

#[apply(on_every_store)]
async fn one_environment(api: Api) {
    let statuses = race(|_| api.put_environment("prod", "server")).await;
    assert_eq!(statuses, BTreeMap::from([(201, RACERS)]));
    expect_one(&api, "/environments/acme").await;
}

#[apply(on_every_store)]
async fn one_policy_of_one_version(api: Api) {
    let payload = json!({"name": "strict"}).to_string();
    let text = "_schema: https://example.com/schemas/policy/v1\n";
    let statuses =
        race(|_| api.put("/policies/acme").payload(&payload).file("policy_file", "p.yaml", text)).await;
    assert_eq!(statuses, BTreeMap::from([(200, RACERS - 1), (201, 1)]));
    let policy = seen(&api, "/policies/acme/strict").await;
    assert_eq!(policy["versions"].as_array().map(Vec::len), Some(1), "{policy}");
}

#[apply(on_every_store)]
async fn one_service_account(api: Api) {
    let body = json!({"name": "ci", "privilege": "member"});
    let statuses = race(|_| api.post("/service-accounts/acme").json(&body)).await;
    assert_eq!(statuses, BTreeMap::from([(201, 1), (400, RACERS - 1)]));
    seen(&api, "/service-accounts/acme/ci").await;
}

#[apply(with_every_store)]
async fn one_member(api: Api, store: Arc<dyn Store>) {
    let (acme, john): (OrgName, OrgName) = ("acme".parse().unwrap(), "john".parse().unwrap());
    let host = Arc::new(Evidence::new(store, Settings::default()));
    // A removed member is added again.
    for (round, other) in [Role::Member, Role::Snapshotter].into_iter().enumerate() {
        let adders = (0..RACERS).map(|racer| {
            let (host, acme, john) = (Arc::clone(&host), acme.clone(), john.clone());
            let role = if racer % 2 == 0 { Role::Reader } else { other };
            tokio::spawn(async move {
                let host = host.administration(&"host".parse().unwrap());
                host.set_member(&acme, &john, role).await.unwrap();
            })
        });
        join_all(adders).await.into_iter().for_each(Result::unwrap);
        let log = api.get("/membership-audit-log/acme?per_page=100&search=john&sort_dir=asc").await.ok();
        let events = log["events"].as_array().unwrap();
        assert_eq!(events.iter().filter(|event| event["event_type"] == "added").count(), round + 1, "{log}");
        // Each change tells what the one before it left.
        for pair in events.windows(2) {
            assert_eq!(pair[0]["new_role"], pair[1]["old_role"], "{log}");
        }
        host.administration(&acme).remove_member(&acme, &john).await.unwrap();
    }
}

#[apply(with_every_store)]
async fn one_default_organization(api: Api, store: Arc<dyn Store>) {
    let statuses = race(|_| api.put("/user/acme")).await;
    assert_eq!(statuses, BTreeMap::from([(200, RACERS)]));
    let personal = store.org_role("jane", acme(&*store).await).await.unwrap().unwrap().organization.id;
    let entries = store.ledger_entries(personal, 0, 1_000).await.unwrap();
    assert_eq!(entries.iter().filter(|entry| entry.kind == "user_settings_changed").count(), 1);
}

#[apply(on_every_store)]
async fn one_control_of_one_new_version(api: Api) {
    let statuses = race(|_| api.post_control("SDLC-4").with(json!({"name": "Code review"}))).await;
    assert_eq!(statuses, BTreeMap::from([(201, 1), (409, RACERS - 1)]));
    let path = "/controls/acme/SDLC-4";
    let statuses = race(|_| api.put(path).json(json!({"description": "Somebody else reads it"}))).await;
    assert_eq!(statuses, BTreeMap::from([(200, RACERS)]));
    assert_eq!(seen(&api, path).await["version"], 2);
}

#[apply(on_every_store)]
async fn one_control_of_a_version_for_each_change(api: Api) {
    api.post_control("SDLC-4").with(json!({"name": "Code review"})).await.created();
    let path = "/controls/acme/SDLC-4";
    let statuses = race(|racer| api.put(path).json(json!({"description": format!("{racer}")}))).await;
    assert_eq!(statuses, BTreeMap::from([(200, RACERS)]));
    assert_eq!(seen(&api, path).await["version"], 1 + RACERS);
}

#[apply(on_every_store)]
async fn one_attestation_type_of_one_version(api: Api) {
    let path = "/custom-attestation-types/acme";
    let statuses = race(|_| api.post(path).data_json(json!({"name": "review"}))).await;
    assert_eq!(statuses, BTreeMap::from([(201, RACERS)]));
    let found = seen(&api, "/custom-attestation-types/acme/review").await;
    assert_eq!(found["versions"].as_array().map(Vec::len), Some(1), "{found}");
}

#[apply(on_every_store)]
async fn one_flow_and_one_trail_made_by_the_artifacts_that_name_them(api: Api) {
    let statuses = race(|racer| {
        let body = json!({
            "trail_name": "t", "template_reference_name": "api", "fingerprint": format!("{racer:064x}"),
            "filename": "api", "git_commit": "c".repeat(40), "build_url": "http://b/1",
            "commit_url": "http://c/1",
        });
        api.request(Method::POST, "/artifacts/acme/web").json(&body)
    })
    .await;
    assert_eq!(statuses, BTreeMap::from([(201, RACERS)]));
    expect_one(&api, "/flows/acme").await;
    expect_one(&api, "/trails/acme?flow=web").await;
    let artifacts = seen(&api, "/artifacts/acme?per_page=100").await;
    assert_eq!(artifacts.as_array().map(Vec::len), Some(RACERS));
}

#[apply(on_every_store)]
async fn one_snapshot_of_equal_reports(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    let artifact = json!({"digests": {"image": "a".repeat(64)}, "creationTimestamp": 1});
    let body = json!({ "artifacts": [artifact] });
    let statuses = race(|_| api.put("/environments/acme/prod/report/docker").json(&body)).await;
    assert_eq!(statuses, BTreeMap::from([(200, RACERS - 1), (201, 1)]));
    expect_one(&api, "/snapshots/acme/prod").await;
}

/// Sets a tag of each racer's own on what has this kind and name.
fn tag(api: &Api, resource: &str, racer: usize) -> RequestBuilder {
    let patch = json!({"set_tags": {format!("key{racer}"): format!("value{racer}")}});
    api.patch(&format!("/tags/acme/{resource}")).json(patch)
}

fn report_from_repo(api: &Api, racer: usize) -> RequestBuilder {
    let url = "https://git.example.com/acme/shop";
    api.post_artifact("web", format!("{racer:064x}")).with(json!({
        "git_commit": "c".repeat(40),
        "repo_info": {"name": "acme/shop", "url": url, "description": format!("as {racer} tells it")},
    }))
}

#[apply(on_every_store)]
async fn every_tag_that_many_set_at_once(api: Api) {
    put_flow(&api, "web").await.created();
    api.given_environments("docker", &["prod"]).await;
    api.post_control("SDLC-4").with(json!({"name": "Code review"})).await.created();
    report_from_repo(&api, 0).await.created();
    let repos = api.get("/repos/acme").await.ok();
    let repo = repos["repos"][0]["id"].as_str().unwrap();
    let tags: BTreeMap<String, String> =
        (0..RACERS).map(|racer| (format!("key{racer}"), format!("value{racer}"))).collect();
    for (resource, path) in [
        ("flow/web".to_owned(), "/flows/acme/web"),
        ("environment/prod".to_owned(), "/environments/acme/prod"),
        ("control/SDLC-4".to_owned(), "/controls/acme/SDLC-4"),
        (format!("repo/{repo}"), "/repos/acme/acme%2Fshop"),
    ] {
        for _ in ["different", "the same again"] {
            let statuses = race(|racer| tag(&api, &resource, racer)).await;
            assert_eq!(statuses, BTreeMap::from([(200, RACERS)]), "{resource}");
            assert_eq!(seen(&api, path).await["tags"], json!(tags), "{resource}");
        }
    }
}

#[apply(on_every_store)]
async fn every_tag_of_a_repo_that_is_reported_meanwhile(api: Api) {
    report_from_repo(&api, 0).await.created();
    let repos = api.get("/repos/acme").await.ok();
    let repo = format!("repo/{}", repos["repos"][0]["id"].as_str().unwrap());
    let statuses = race(|racer| match racer % 2 {
        0 => tag(&api, &repo, racer),
        _ => report_from_repo(&api, racer),
    })
    .await;
    assert_eq!(statuses, BTreeMap::from([(200, RACERS / 2), (201, RACERS / 2)]));
    let repos = seen(&api, "/repos/acme").await;
    assert_eq!(repos["total_count"], 1, "{repos}");
    let tags = repos["repos"][0]["tags"].as_object().map(serde_json::Map::len);
    assert_eq!(tags, Some(RACERS / 2), "{repos}");
    assert_ne!(repos["repos"][0]["description"], "as 0 tells it");
}

fn post_type(api: &Api, description: &str) -> RequestBuilder {
    let document = json!({"name": "review", "description": description, "evaluator": {"rules": [".ok"]}});
    api.post("/custom-attestation-types/acme").data_json(&document)
}

#[apply(on_every_store)]
async fn one_attestation_type_of_a_version_for_each_change(api: Api) {
    let statuses = race(|racer| post_type(&api, &format!("{racer}"))).await;
    assert_eq!(statuses, BTreeMap::from([(201, RACERS)]));
    let found = seen(&api, "/custom-attestation-types/acme/review").await;
    assert_eq!(found["versions"].as_array().map(Vec::len), Some(RACERS), "{found}");
}

#[apply(on_every_store)]
async fn every_attestation_of_a_type_that_is_archived_is_recorded_before_or_refused(api: Api) {
    post_type(&api, "").await.created();
    let attest = || {
        let document =
            json!({"attestation_name": "r", "type_name": "review", "attestation_data": {"ok": true}});
        api.post_attestation("web", "t", "custom").data_json(&document)
    };
    attest().await.created();
    let archive = || api.put("/custom-attestation-types/acme/review/archive");
    let statuses = race(|racer| if racer % 16 == 8 { archive() } else { attest() }).await;
    let archived = RACERS / 16;
    let of = |status: u16| statuses.get(&status).copied().unwrap_or_default();
    assert_eq!((of(200), of(201) + of(400)), (archived, RACERS - archived), "{statuses:?}");
    let found = seen(&api, "/attestations/acme/web/trail/t/r").await;
    assert_eq!(found.as_array().map(Vec::len), Some(1 + of(201)));
    attest().await.expect(400, json!({}));
}

#[apply(on_every_store)]
async fn every_decision_has_the_version_of_its_control_that_it_was_recorded_after(api: Api) {
    api.post_control("SDLC-4").with(json!({"name": "Code review"})).await.created();
    let change = |racer| api.put("/controls/acme/SDLC-4").json(json!({"description": format!("{racer}")}));
    let decide = |racer: usize| {
        let document = json!({
            "attestation_name": format!("d{racer}"), "type_name": "decision", "control": "SDLC-4",
            "attestation_data": {"is_compliant": true},
        });
        api.post_attestation("web", "t", "system").data_json(&document)
    };
    let statuses = race(|racer| if racer % 8 == 4 { change(racer) } else { decide(racer) }).await;
    let changes = RACERS / 8;
    assert_eq!(statuses, BTreeMap::from([(200, changes), (201, RACERS - changes)]));
    let list = seen(&api, "/controls/acme/SDLC-4/decisions?per_page=100&sort_direction=asc").await;
    let decisions = list["decisions"].as_array().unwrap().iter();
    let versions = Vec::from_iter(decisions.map(|decision| decision["control_version"].as_u64().unwrap()));
    assert_eq!(versions.len(), RACERS - changes, "{list}");
    assert!(versions.is_sorted() && (1..=1 + changes as u64).contains(&versions[0]), "{versions:?}");
}

#[apply(on_every_store)]
async fn every_policy_that_many_attach_at_once(api: Api) {
    let policies = Vec::from_iter((0..8).map(|number| format!("policy{number}")));
    for policy in &policies {
        api.put_policy(policy, crate::support::environments::PROVENANCE).await.created();
    }
    api.given_environments("docker", &["prod"]).await;
    api.report_running("prod", &[('a', &[1])]).await.created();
    let attach = |policy: &String| {
        api.post("/environments/acme/prod/policies").json(json!({ "policy_names": [policy] }))
    };
    let statuses = race(|racer| attach(&policies[racer % policies.len()])).await;
    assert_eq!(statuses, BTreeMap::from([(200, RACERS)]));
    assert_eq!(seen(&api, "/environments/acme/prod").await["policies"], json!(policies));
}

/// Writes to the environment `prod` while it is renamed, archived, and evaluated by other policies.
#[apply(on_every_store)]
async fn every_change_of_an_environment_comes_before_it_is_renamed_or_after(api: Api) {
    let policies = Vec::from_iter((0..8).map(|number| format!("policy{number}")));
    for policy in &policies {
        api.put_policy(policy, crate::support::environments::PROVENANCE).await.created();
    }
    api.given_environments("docker", &["prod"]).await;
    let change = |racer: usize, path: &str| {
        let names = json!({ "policy_names": [policies[racer % policies.len()]] });
        let digests = json!({"api": format!("{:064x}", racer)});
        let report = json!({"artifacts": [{"digests": digests, "creationTimestamp": 1}]});
        match racer % 4 {
            0 => api.post(&format!("{path}/policies")).json(names),
            1 => api.delete(&format!("{path}/policies")).json(names),
            2 => api.patch(path).json(json!({"description": format!("{racer}")})),
            _ => api.put(&format!("{path}/report/docker")).json(report),
        }
    };
    let statuses = race(|racer| match racer {
        16 => api.put("/environments/acme/prod/rename").json(json!({"new_name": "live"})),
        // Its former name leads there, too.
        _ => change(racer, "/environments/acme/prod"),
    })
    .await;
    // Each report tells of something else, so that each takes a snapshot.
    assert_eq!(statuses, BTreeMap::from([(200, RACERS * 3 / 4), (201, RACERS / 4)]));
    let environment = seen(&api, "/environments/acme/live").await;
    assert_eq!(environment["name"], "live");
    expect_one(&api, "/environments/acme").await;
    // The latest snapshot is evaluated by the policies that are attached.
    let attached = environment["policies"].as_array().unwrap();
    let latest = seen(&api, "/snapshots/acme/live/-1").await;
    assert_eq!(latest["applied_policies"].as_array().unwrap().len(), attached.len(), "{latest}");
    let expected = if attached.is_empty() { Value::Null } else { json!(false) };
    assert_eq!(environment["state"], expected, "{environment}");
}

#[apply(on_every_store)]
async fn every_change_of_an_environment_comes_before_it_is_archived_or_finds_none(api: Api) {
    api.put_policy("p", crate::support::environments::PROVENANCE).await.created();
    api.given_environments("docker", &["prod"]).await;
    let statuses = race(|racer| match racer % 8 {
        3 => api.put("/environments/acme/prod/archive"),
        0 | 4 => api.post("/environments/acme/prod/policies").json(json!({"policy_names": ["p"]})),
        1 | 5 => api.delete("/environments/acme/prod/policies").json(json!({"policy_names": ["p"]})),
        2 | 6 => api.patch("/environments/acme/prod").json(json!({"description": format!("{racer}")})),
        _ => api.put("/environments/acme/prod/report/docker").json(json!({"artifacts": []})),
    })
    .await;
    // One archives it, and whoever comes later finds none.
    let of = |status: u16| statuses.get(&status).copied().unwrap_or_default();
    assert_eq!(of(200) + of(201) + of(404), RACERS, "{statuses:?}");
    assert!(of(200) >= 1 && of(404) >= RACERS / 8 - 1, "{statuses:?}");
    assert_eq!(seen(&api, "/environments/acme").await, json!([]));
    api.given_environments("docker", &["prod"]).await;
    let next = seen(&api, "/environments/acme/prod").await;
    assert_eq!((&next["policies"], &next["last_reported_at"]), (&json!([]), &Value::Null));
}
