//! Ledger payloads that cannot be read any more: lists answer what can be, whoever asks for the damaged record itself is
//! told, and no verdict is better for what was left out.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evidence_conformance::memory::MemoryStore;
use evidence_core::api_keys::ApiKeyInput;
use evidence_core::auth::Role;
use evidence_core::name::OrgName;
use evidence_store_postgres::sqlx::{self, Connection};
use evidence_store_sqlite::rusqlite;
use evidence_test_postgres::SchemaName;
use futures_util::FutureExt;
use tempfile::TempDir;

use crate::faults::Log;
use crate::intercepting_store::InterceptingStore;
use crate::support::prelude::*;

/// The damage to a ledger entry.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Damage {
    NoJson,
    /// PostgreSQL keeps nothing that is no text.
    NoText,
    Gone,
}

/// The database of a store, and what becomes of entries in it.
struct Database {
    guard: Box<dyn Any + Send>,
    damage: Damage,
    service: Evidence,
}

impl Database {
    /// Damages the record of this name in a table of the whole store, where none can be gone.
    async fn damage_named(&self, table: &str, name: &str) {
        let changed = if let Some(folder) = self.guard.downcast_ref::<TempDir>() {
            let connection = rusqlite::Connection::open(folder.path().join("evidence.db")).unwrap();
            let record = match self.damage {
                Damage::NoJson | Damage::Gone => "'damaged {'",
                Damage::NoText => "CAST(X'7BFF7D' AS TEXT)",
            };
            let damage = format!("UPDATE \"{table}\" SET record = {record} WHERE name = $1");
            connection.execute(&damage, [name]).unwrap() as u64
        } else {
            let schema = self.guard.downcast_ref::<SchemaName>().unwrap();
            let damage =
                format!("UPDATE {}.\"{table}\" SET record = 'damaged {{' WHERE name = $1", schema.name);
            let mut connection = sqlx::PgConnection::connect(&schema.url).await.unwrap();
            let damage = sqlx::query(sqlx::AssertSqlSafe(damage)).bind(name);
            damage.execute(&mut connection).await.unwrap().rows_affected()
        };
        assert_eq!(changed, 1, "{table} {name}");
    }

    /// Damages what attestations of this name say of what they are about, in the table; nothing can be gone there.
    async fn damage_binding(&self, name: &str) {
        let changed = if let Some(folder) = self.guard.downcast_ref::<TempDir>() {
            let connection = rusqlite::Connection::open(folder.path().join("evidence.db")).unwrap();
            let binding = match self.damage {
                Damage::NoJson | Damage::Gone => "'damaged {'",
                Damage::NoText => "CAST(X'7BFF7D' AS TEXT)",
            };
            let damage = format!("UPDATE attestation SET binding = {binding} WHERE name = $1");
            connection.execute(&damage, [name]).unwrap() as u64
        } else {
            let schema = self.guard.downcast_ref::<SchemaName>().unwrap();
            let damage =
                format!("UPDATE {}.attestation SET binding = 'damaged {{' WHERE name = $1", schema.name);
            let mut connection = sqlx::PgConnection::connect(&schema.url).await.unwrap();
            let damage = sqlx::query(sqlx::AssertSqlSafe(damage)).bind(name);
            damage.execute(&mut connection).await.unwrap().rows_affected()
        };
        assert_eq!(changed, 1, "{name}");
    }

    /// Damages the one entry of these facts that has this in its payload.
    async fn damage(&self, fact: &str, needle: &str) {
        let changed = if let Some(folder) = self.guard.downcast_ref::<TempDir>() {
            let connection = rusqlite::Connection::open(folder.path().join("evidence.db")).unwrap();
            let damage = match self.damage {
                Damage::NoJson => "UPDATE ledger SET payload = 'damaged {'",
                Damage::NoText => "UPDATE ledger SET payload = CAST(X'7BFF7D' AS TEXT)",
                Damage::Gone => "DELETE FROM ledger",
            };
            let damage = format!("{damage} WHERE kind = $1 AND instr(payload, $2) > 0");
            connection.execute(&damage, [fact, needle]).unwrap()
        } else {
            let schema = self.guard.downcast_ref::<SchemaName>().unwrap();
            let ledger = format!("{}.ledger", schema.name);
            let damage = match self.damage {
                Damage::NoJson => format!("UPDATE {ledger} SET payload = 'damaged {{'"),
                Damage::NoText => unreachable!("PostgreSQL keeps text alone"),
                Damage::Gone => format!("DELETE FROM {ledger}"),
            };
            let damage = format!("{damage} WHERE kind = $1 AND strpos(payload, $2) > 0");
            let mut connection = sqlx::PgConnection::connect(&schema.url).await.unwrap();
            let damage = sqlx::query(sqlx::AssertSqlSafe(damage)).bind(fact).bind(needle);
            let changed = damage.execute(&mut connection).await.unwrap().rows_affected();
            usize::try_from(changed).unwrap()
        };
        assert_eq!(changed, 1, "payloads of {fact} with {needle}");
    }
}

/// So many keys may an account have.
const MAX_KEYS: usize = 4;

macro_rules! over_each_database {
    ($($case:tt)*) => { case_of! { over_each_database: $($case)* } };
}

/// Runs a case over every store that has a database and every damage that it can have, with a fresh fixture.
fn over_each_database(case: impl AsyncFn(Api, Database)) {
    block_on(async {
        for damage in [Damage::NoJson, Damage::NoText, Damage::Gone] {
            for StoreUnderTest { name, store, guard, .. } in stores().await {
                let is_possible = match name {
                    "memory" => false,
                    "postgres" => damage != Damage::NoText,
                    _ => true,
                };
                if is_possible {
                    let limits = Limits { api_keys: MAX_KEYS, ..Limits::default() };
                    // Damage shows at once.
                    let settings = Settings { limits, cache_ttl: Duration::ZERO, ..Settings::default() };
                    let evidence = fixture(store, settings).await;
                    let api = Api::new(evidence.clone(), Mount::Tower, name).await;
                    case(api, Database { guard, damage, service: evidence }).await;
                }
            }
        }
    });
}

/// Returns the `item` of each element in the response's `list`.
async fn listed(api: &Api, path: &str, list: &str, item: &str) -> Vec<Value> {
    let answer = api.get(path).await.ok();
    let items = answer.pointer(list).and_then(Value::as_array).unwrap();
    items.iter().map(|listed| listed[item].clone()).collect()
}

const BROKEN: (u16, &str) = (500, "Internal server error");

async fn expect_broken(api: &Api, path: &str) {
    let (status, message) = BROKEN;
    api.get(path).await.expect(status, json!({ "message": message }));
}

#[apply(over_each_database)]
async fn a_damaged_record_is_left_out_of_lists_and_an_error_alone(api: Api, database: Database) {
    for flow in ["shop", "damaged-flow"] {
        api.given_flow(flow, TEMPLATE).await;
    }
    for trail in ["t", "damaged-trail", "u"] {
        api.put_trail("shop", &json!({ "name": trail })).await.created();
    }
    for digit in ["1", "2", "3"] {
        api.artifact(digit, "cli").await;
    }
    let repo =
        |name: &str| json!({"name": name, "url": format!("https://github.com/{name}"), "provider": "github"});
    for name in ["acme/one", "acme/damaged-repo", "acme/two"] {
        api.given_artifact_from_repo(&repo(name)).await;
    }
    for environment in ["prod", "damaged-environment"] {
        api.given_environments("docker", &[environment]).await;
    }
    for policy in ["one", "damaged-policy"] {
        api.put_policy(policy, PROVENANCE).await.created();
    }
    for kind in ["review", "damaged-type"] {
        api.post("/custom-attestation-types/acme").data_json(json!({ "name": kind })).await.created();
    }
    for control in ["sound", "damaged-control"] {
        api.post_control(control).with(json!({"name": control})).await.created();
    }
    for action in ["sound", "damaged-action"] {
        let action = json!({"name": action, "environments": ["prod"], "triggers": [], "targets": []});
        api.put("/actions/acme/environments").json(action).await.created();
    }
    for (digit, reason) in [("a", "known"), ("b", "damaged-entry"), ("c", "known, too")] {
        let allowlist_entry =
            json!({"artifact_name": "x", "artifact_fingerprint": digit.repeat(64), "description": reason});
        api.put("/allowlists/acme/prod").json(allowlist_entry).await.created();
    }

    let flow = "/flows/acme/damaged-flow";
    let trail = "/trails/acme/shop/damaged-trail";
    let artifact = format!("/artifacts/acme/shop/fingerprint/{}", fingerprint('2'));
    let environment = "/environments/acme/damaged-environment";
    let policy = "/policies/acme/damaged-policy";
    let types = "/custom-attestation-types/acme";
    let kind = "/custom-attestation-types/acme/damaged-type";
    let control = "/controls/acme/damaged-control";
    let account = "/service-accounts/acme/reader-key";
    let digits = fingerprint('2');
    let table = [
        ("flow_created", "damaged-flow", "/flows/acme", "", "name", Some(flow)),
        ("trail_begun", "damaged-trail", "/trails/acme", "/data", "name", Some(trail)),
        ("artifact_reported", &digits, "/artifacts/acme", "", "fingerprint", Some(&artifact)),
        ("repo_reported", "acme/damaged-repo", "/repos/acme", "/repos", "name", None),
        ("environment_created", "damaged-environment", "/environments/acme", "", "name", Some(environment)),
        ("policy_created", "damaged-policy", "/policies/acme", "", "name", Some(policy)),
        ("attestation_type_created", "damaged-type", types, "", "name", Some(kind)),
        ("control_created", "damaged-control", "/controls/acme", "/controls", "name", Some(control)),
        ("service_account_created", "reader-key", "/service-accounts/acme", "", "name", Some(account)),
        ("action_created", "damaged-action", "/actions/acme", "", "name", Some("/actions/acme/2")),
        ("artifact_allowed", "damaged-entry", "/allowlists/acme", "", "description", None),
    ];
    for (fact, needle, path, list, item, alone) in table {
        let before = listed(&api, path, list, item).await;
        database.damage(fact, needle).await;
        let after = listed(&api, path, list, item).await;
        let left: Vec<_> = before.iter().filter(|value| *value != needle).cloned().collect();
        assert_eq!(after, left, "{path}");
        assert_eq!(after.len() + 1, before.len(), "{path}");
        if let Some(alone) = alone {
            expect_broken(&api, alone).await;
        }
    }
    let log = Log::default();
    let guard = log.start();
    api.get("/trails/acme").await.ok();
    drop(guard);
    let warning = log.text();
    for part in ["WARN", "a list leaves out a damaged record", "organization=", "index="] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
}

#[apply(over_each_database)]
async fn who_cannot_be_read_hides_nobody_else_and_gives_no_right(api: Api, database: Database) {
    let name = |text: &str| text.parse::<OrgName>().unwrap();
    let (operator, acme, mary) = (name("ops"), name("acme"), name("mary"));
    let host = database.service.administration(&operator);
    host.create_user(&mary).await.unwrap();
    host.create_user(&name("zoe")).await.unwrap();
    host.create_organization(&name("damaged-org"), &mary).await.unwrap();
    host.set_member(&acme, &mary, Role::Admin).await.unwrap();
    let keys = "/service-accounts/acme/admin-key/api-keys";
    let made =
        async |what: &str| api.post(keys).json(json!({ "description": what })).await.created()["id"].clone();
    made("sound").await;
    let damaged = made("damaged-of-account").await;
    let personal =
        |what: &str| -> ApiKeyInput { serde_json::from_value(json!({ "description": what })).unwrap() };
    host.create_key(&mary, &personal("sound")).await.unwrap();
    let damaged_personal = host.create_key(&mary, &personal("damaged-personal")).await.unwrap().record.id;

    let before = listed(&api, keys, "", "description").await;
    database.damage("api_key_created", "damaged-of-account").await;
    let after = listed(&api, keys, "", "description").await;
    assert_eq!((after.len() + 1, after.contains(&json!("sound"))), (before.len(), true), "{after:?}");
    // It still works, so it counts.
    made("the last").await;
    let text = format!("Service account 'admin-key' has {MAX_KEYS} keys that work and takes no more");
    let refused = json!({"errors": {"name": text}});
    assert_eq!(before.len() + 1, MAX_KEYS);
    api.post(keys).json(json!({"description": "one too many"})).await.expect(400, refused);
    // And it is not reported as missing.
    let path = format!("{keys}/{}", damaged.as_str().unwrap());
    expect_broken(&api, &path).await;
    let (status, message) = BROKEN;
    api.delete(&path).await.expect(status, json!({ "message": message }));
    database.damage("api_key_created", "damaged-personal").await;
    let listed: Vec<_> = host.keys(&mary).await.unwrap().into_iter().map(|key| key.description).collect();
    assert_eq!(listed, ["sound"]);
    assert_eq!(host.revoke_key(&mary, damaged_personal).await.unwrap_err().status(), status);

    // One at a time, so that what is damaged is a page of its own.
    let organizations = async || {
        let (mut names, mut last) = (Vec::new(), None);
        while let Some(one) = host.organizations(last.as_ref(), 1).await.unwrap().pop() {
            names.push(one.name.to_string());
            last = Some(one.name);
        }
        names
    };
    let users = async || {
        let (mut names, mut last) = (Vec::new(), None);
        while let Some(one) = host.users(last.as_ref(), 1).await.unwrap().pop() {
            names.push(one.name.to_string());
            last = Some(one.name);
        }
        names
    };
    let members = async || {
        let found = host.members(&acme).await.unwrap();
        Vec::from_iter(found.into_iter().map(|one| one.user.name.to_string()))
    };
    assert_eq!(members().await, ["jane", "mary"]);
    let all = organizations().await;
    database.damage_named("organization", "damaged-org").await;
    let left: Vec<_> = all.into_iter().filter(|name| name != "damaged-org").collect();
    assert_eq!(organizations().await, left);
    let all = users().await;
    database.damage_named("user", "mary").await;
    let left: Vec<_> = all.into_iter().filter(|name| name != "mary").collect();
    assert_eq!(users().await, left);
    assert_eq!(members().await, ["jane"]);
    assert_eq!(host.set_member(&acme, &mary, Role::Reader).await.unwrap_err().status(), status);
    // It is unknown whether mary can administer acme.
    assert_eq!(host.remove_member(&acme, &name("jane")).await.unwrap_err().status(), 400);
}

#[apply(over_each_database)]
async fn a_damaged_change_of_a_role_hides_no_other(api: Api, database: Database) {
    let host = database.service.administration(&"host".parse().unwrap());
    let (acme, john): (OrgName, OrgName) = ("acme".parse().unwrap(), "john".parse().unwrap());
    for role in [Role::Reader, Role::Snapshotter, Role::Member] {
        host.set_member(&acme, &john, role).await.unwrap();
    }
    database.damage("member_added", "\"role\":\"snapshotter\"").await;
    let log = "/membership-audit-log/acme";
    // Lost entries are not counted. The time and the source of an unreadable entry are known.
    let is_there = u64::from(database.damage != Damage::Gone);
    let all = [("member", "snapshotter"), ("reader", ""), ("admin", "")];
    for (query, events, total) in [
        ("", &all[..], 3 + is_there),
        ("?sort_by=source", &all, 3 + is_there),
        ("?source=script", &all, 3 + is_there),
        ("?search=host", &all, 3),
        ("?source=script&from_timestamp=0", &all, 3 + is_there),
        ("?event_type=added", &all[1..], 2),
        ("?search=john", &all[..2], 2),
    ] {
        let path = format!("{log}{query}");
        let role = |name: &str| if name.is_empty() { Value::Null } else { json!(name) };
        let roles = Vec::from_iter(events.iter().map(|(new, old)| (role(new), role(old))));
        let new = listed(&api, &path, "/events", "new_role").await;
        let old = listed(&api, &path, "/events", "old_role").await;
        assert_eq!(new.into_iter().zip(old).collect::<Vec<_>>(), roles, "{path}");
        api.get(&path).await.expect(200, json!({ "total_count": total }));
    }
    // It has its place in pages, whatever finds them.
    for sort in ["when", "source"] {
        let page = format!("{log}?per_page=1&page={}&sort_by={sort}", 1 + is_there);
        let expected = if is_there == 1 { vec![] } else { vec![json!("member")] };
        assert_eq!(listed(&api, &page, "/events", "new_role").await, expected, "{page}");
    }
}

#[apply(over_each_database)]
async fn no_verdict_is_better_for_what_is_left_out(api: Api, database: Database) {
    api.given_flow("shop", TEMPLATE).await;
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    api.artifact("1", "cli").await;
    let attest = async |name: &str, is_compliant: bool, description: &str| {
        let document =
            json!({"attestation_name": name, "is_compliant": is_compliant, "description": description});
        api.attest("generic", &document).await.created();
    };
    let of_artifact =
        json!({"attestation_name": "foo", "artifact_fingerprint": fingerprint('1'), "is_compliant": true});
    api.attest("generic", &of_artifact).await.created();
    attest("bar", true, "sound").await;
    api.get("/trails/acme/shop/t").await.expect(200, json!({"compliance_state": "COMPLIANT"}));
    api.given_environments("docker", &["prod"]).await;
    api.given_environments("logical", &["all"]).await;
    api.put("/environments/acme/all/join").json(json!({"physical_env_name": "prod"})).await.ok();
    api.put_policy("compliance", COMPLIANCE).await.created();
    api.attach("prod", "compliance").await;
    api.report_running("prod", &[('1', &[1])]).await.created();
    api.get("/environments/acme/all").await.expect(200, json!({"state": true}));

    // The newest attestation of a name fails, and can no longer be read.
    attest("bar", false, "damaged-attestation").await;
    database.damage("attestation_added", "damaged-attestation").await;
    let failing = json!({"compliance_state": "NON-COMPLIANT", "is_compliant": false});
    api.get("/trails/acme").await.expect(200, json!({"data": [failing]}));
    let trail = api.get("/trails/acme/shop/t").await.expect(200, failing.clone()).ok();
    let events = trail["events"].as_array().unwrap().iter();
    let attestations = events.filter(|event| event["type"] == "trail_attestation_reported");
    assert_eq!(attestations.count(), 1, "{trail}");
    expect_broken(&api, "/trails/acme/shop/t/audit_pdf").await;
    // The one before it is no answer to what holds of the name now.
    expect_broken(&api, "/attestations/acme/shop/trail/t/bar").await;
    attest("bar", false, "after").await;
    let newest_first = listed(&api, "/attestations/acme/shop/trail/t/bar", "", "description").await;
    assert_eq!(newest_first, ["after", "sound"]);

    // An unreadable trail is known to exist, and nothing else about it is.
    attest("bar", true, "sound").await;
    database.damage("trail_begun", "\"name\":\"t\"").await;
    let why = json!({"state": "INCOMPLETE", "state_info": "The trail cannot be read"});
    api.get("/artifacts/acme").await.expect(200, json!([why]));
    api.get("/trails/acme").await.expect(200, json!({"data": []}));
    api.get("/flows/acme").await.expect(200, json!([{"latest_state": null}]));

    // A policy that cannot be read is none that may be passed over.
    database.damage("policy_created", "compliance").await;
    let (status, message) = BROKEN;
    let refused = api.report_running("prod", &[('1', &[1]), ('2', &[1])]).await;
    refused.expect(status, json!({ "message": message }));
    let request = api.post("/environments/acme/prod/policies").json(json!({"policy_names": ["compliance"]}));
    request.await.expect(status, json!({ "message": message }));

    // Neither is an environment.
    database.damage("policies_attached", "prod").await;
    api.get("/environments/acme").await.expect(200, json!([{"name": "all", "state": null}]));
    expect_broken(&api, "/environments/acme/prod").await;
}

#[apply(over_each_database)]
async fn a_damaged_row_of_an_attestation_costs_its_trail_and_no_other(api: Api, database: Database) {
    api.given_flow_with_template().await;
    for trail in ["sound", "damaged"] {
        api.put_trail("web", &json!({ "name": trail })).await.created();
    }
    let attest = async |trail: &str, kind: &str, document: Value| {
        api.post_attestation("web", trail, kind).data_json(&document).await.created();
    };
    let control = json!({"identifier": "review", "name": "review"});
    api.post("/controls/acme").json(control).await.created();
    for trail in ["sound", "damaged"] {
        api.given_artifact(if trail == "sound" { '1' } else { '2' }, trail).await;
        let decision = json!({
            "attestation_name": format!("{trail}-decision"), "type_name": "decision", "control": "review",
            "attestation_data": {"is_compliant": true},
        });
        attest(trail, "system", decision).await;
        let failing = json!({"attestation_name": format!("{trail}-check"), "is_compliant": trail == "sound"});
        attest(trail, "generic", failing).await;
    }
    let artifact = |digit| format!("/artifacts/acme/web/fingerprint/{}", fingerprint(digit));
    api.get(&artifact('2')).await.expect(200, json!({"state": "NON-COMPLIANT"}));

    let sound = api.get(&artifact('1')).await.ok();

    // The attestation that fails: without it the trail would be better than it is.
    database.damage_binding("damaged-check").await;
    assert_eq!(listed(&api, "/trails/acme", "/data", "name").await, ["sound"]);
    api.get("/trails/acme/web/sound").await.expect(200, json!({"name": "sound"}));
    expect_broken(&api, "/trails/acme/web/damaged").await;
    let why = json!({"state": "INCOMPLETE", "state_info": "The trail cannot be read"});
    api.get(&artifact('2')).await.expect(200, why);
    assert_eq!(api.get(&artifact('1')).await.ok(), sound);
    expect_broken(&api, "/attestations/acme/web/trail/damaged/damaged-check").await;
    let about = format!("/attestations/acme/list_attestations_for_criteria?commit_list={}", "c".repeat(40));
    expect_broken(&api, &about).await;
    // The overridden attestation is unknown, so nothing is recorded.
    let overriding = json!({"attestation_name": "damaged-check", "reason": "none", "new_compliance_status": true,
                            "original_attestation_type": "generic"});
    let overridden = api.post("/attestations/acme/web/trail/damaged/override").json(overriding).await;
    assert_eq!(overridden.status, 500, "{overridden:?}");
    // Nor does the gate let it pass.
    let gate = format!("/asserts/acme/fingerprint/{}", fingerprint('2'));
    let asserted = json!({"compliant": false, "trail": "", "compliance_status": null});
    api.get(&gate).await.expect(200, asserted);
    // Running, it does not comply, and the report says why.
    api.given_environments("docker", &["prod"]).await;
    api.put_policy("p", COMPLIANCE).await.created();
    let asserted = api.get(&format!("{gate}?policy_name=p")).await.expect(200, json!({"compliant": false}));
    assert!(asserted.json().to_string().contains("The trail cannot be read"), "{asserted:?}");
    api.post("/environments/acme/prod/policies").json(json!({"policy_names": ["p"]})).await.ok();
    api.report_running("prod", &[('2', &[1])]).await.created();
    let running = &api.get("/snapshots/acme/prod/1").await.ok()["artifacts"][0];
    assert_eq!(running["compliant"], false);
    assert!(running.to_string().contains("The trail cannot be read"), "{running}");

    database.damage_binding("damaged-decision").await;
    let decisions = "/controls/acme/review/decisions";
    assert_eq!(listed(&api, decisions, "/decisions", "attestation_name").await, ["sound-decision"]);
}

/// The name that conditions look at is in the newest report.
#[apply(over_each_database)]
async fn the_gate_passes_nothing_whose_newest_report_cannot_be_read(api: Api, database: Database) {
    let artifact = |build: &str| {
        json!({
            "trail_name": "t", "fingerprint": fingerprint('1'), "filename": "api:1",
            "build_url": format!("http://b/{build}"), "commit_url": "",
        })
    };
    api.post("/artifacts/acme/web").json(artifact("newest")).await.created();
    let rule = "{name: scan, type: generic, if: \"${{ matches(artifact.name, '^api:') }}\"}";
    let policy = format!("_schema: https://example.com/v1\nartifacts:\n  attestations: [{rule}]\n");
    api.put_policy("p", &policy).await.created();
    let gate = format!("/asserts/acme/fingerprint/{}?policy_name=p", fingerprint('1'));
    api.get(&gate).await.expect(200, json!({"compliant": false}));
    database.damage("artifact_reported", "http://b/newest").await;
    expect_broken(&api, &gate).await;
}

#[tokio::test]
async fn a_damaged_template_is_put_right_by_uploading_it_again() {
    for StoreUnderTest { name, store, guard, .. } in stores().await {
        if name == "memory" {
            continue;
        }
        let service = fixture(Arc::clone(&store), Settings::default()).await;
        let api = Api::new(service.clone(), Mount::Tower, name).await;
        let database = Database { guard, damage: Damage::NoJson, service };
        api.given_flow("shop", TEMPLATE).await;
        api.put_trail("shop", &json!({"name": "t"})).await.created();
        // Remembers nothing yet.
        let server = async || {
            Api::new(Evidence::new(Arc::clone(&store), Settings::default()), Mount::Tower, name).await
        };
        for of_flow in [true, false] {
            database.damage("text_kept", "cli").await;
            let api = server().await;
            api.get("/flows/acme/shop").await.expect(200, json!({"template": ""}));
            let again = if of_flow {
                api.put_flow("shop").template(TEMPLATE)
            } else {
                api.put_trail_with_template("shop", "t", TEMPLATE)
            };
            again.await.expect(200, json!("OK"));
            for api in [api, server().await] {
                api.get("/flows/acme/shop").await.expect(200, json!({ "template": TEMPLATE }));
                let trail = json!({"compliance_state": "INCOMPLETE", "template": {"content": TEMPLATE}});
                api.get("/trails/acme/shop/t").await.expect(200, trail);
            }
        }
    }
}

#[tokio::test]
async fn a_policy_that_was_damaged_is_read_again() {
    for StoreUnderTest { name, store, guard, .. } in stores().await {
        let Some(folder) = guard.downcast_ref::<TempDir>() else { continue };
        let connection = rusqlite::Connection::open(folder.path().join("evidence.db")).unwrap();
        let replace = |this: &str, that: &str| {
            let sql = "UPDATE ledger SET payload = replace(payload, $1, $2) WHERE kind = 'policy_created'";
            assert_eq!(connection.execute(sql, [this, that]).unwrap(), 1);
        };
        let api = Api::new(fixture(store, Settings::default()).await, Mount::Tower, name).await;
        api.given_environments("docker", &["prod"]).await;
        api.given_flow_with_template().await;
        api.put_trail("web", &json!({"name": "t"})).await.created();
        api.given_artifact('1', "t").await;
        api.put_policy("p", PROVENANCE).await.created();
        api.attach("prod", "p").await;

        replace("provenance", "provenence");
        api.report_running("prod", &[('1', &[1])]).await.created();
        api.get("/snapshots/acme/prod/1").await.expect(200, json!({"compliant": false}));

        replace("provenence", "provenance");
        api.report_running("prod", &[('1', &[1])]).await.created();
        api.get("/snapshots/acme/prod/2").await.expect(200, json!({"compliant": true}));
    }
}

#[tokio::test]
async fn a_version_that_comes_while_a_policy_is_read_is_no_damage() {
    for moment in 1..=12 {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let direct = fixture(Arc::clone(&store), Settings::default()).await;
        let direct = Api::new(direct, Mount::Tower, "memory").await;
        direct.put_policy("one", PROVENANCE).await.created();
        for is_put in [false, true] {
            let (calls, other) = (AtomicU64::new(0), direct.clone());
            let meets = move |_| {
                let is_now = calls.fetch_add(1, Ordering::Relaxed) + 1 == moment;
                let other = other.clone();
                async move {
                    if is_now {
                        let text = if is_put { PROVENANCE } else { COMPLIANCE };
                        other.put_policy("one", text).await.ok();
                    }
                }
                .boxed()
            };
            let met = InterceptingStore::new(Arc::clone(&store), meets);
            let met = Evidence::new(Arc::new(met), Settings::default());
            let met = Api::new(met, Mount::Tower, "met").await;
            if is_put {
                met.put_policy("one", PROVENANCE).await.ok()
            } else {
                met.get("/policies/acme/one").await.ok()
            };
        }
    }
}
