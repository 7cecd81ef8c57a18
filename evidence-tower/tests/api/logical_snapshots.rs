//! Snapshots of logical environments: those of their members, and one for each change of the members that shows.

use evidence_core::id::SystemRandom;
use evidence_core::time::Clock;

use crate::support::prelude::*;

/// A policy that asks for a test.
const TEST: &str = "_schema: https://example.com/schemas/policy/v1\nartifacts:\n  attestations:\n    - name: test\n      type: generic\n";

/// When the clock begins.
const NOW: f64 = 1_783_538_510.0;

async fn put_all(api: &Api, members: &[&str]) {
    api.put_logical_environment("all", members).await.created();
}

async fn archive(api: &Api, environment: &str) {
    api.put(&format!("/environments/acme/{environment}/archive")).json(json!({})).await.ok();
}

/// `eu` runs 1 (snapshot 1), then 1 and 2 (2); `us` runs 1 twice (1), before it joins.
///
/// | `all` | because |
/// |---|---|
/// | 1 | `eu` 1 |
/// | 2 | `us` joins, with 1 |
/// | 3 | `eu` 2 |
/// | 4 | `us` 2: nothing |
/// | 5 | `eu` leaves |
/// | 6 | `eu` is back |
/// | 7 | `us` is archived |
async fn given_a_story(api: &Api) {
    api.given_environments("docker", &["eu", "us"]).await;
    put_all(api, &["eu"]).await;
    api.report_running("eu", &[('1', &[10])]).await.created();
    api.report_running("us", &[('1', &[11, 12])]).await.created();
    api.put("/environments/acme/all/join").json(json!({"physical_env_name": "us"})).await.ok();
    api.report_running("eu", &[('1', &[10]), ('2', &[20])]).await.created();
    api.report_running("us", &[]).await.created();
    put_all(api, &["us"]).await;
    // Reports of a former member cause no event.
    api.report_running("eu", &[('2', &[20])]).await.created();
    // Neither does a description.
    api.patch("/environments/acme/all").json(json!({"description": "d"})).await.ok();
    put_all(api, &["us", "eu"]).await;
    // Nor another order.
    put_all(api, &["eu", "us"]).await;
    put_all(api, &["us", "eu"]).await;
    archive(api, "us").await;
}

/// The digit, the annotation and the numbers of instances of each artifact.
fn shown(snapshot: &Value) -> Vec<(char, String, u64, u64)> {
    let one = |artifact: &Value| {
        let digit = artifact["fingerprint"].as_str().unwrap().chars().next().unwrap();
        let annotation = &artifact["annotation"];
        let count = |key: &str| annotation[key].as_u64().unwrap();
        (digit, annotation["type"].as_str().unwrap().to_owned(), count("was"), count("now"))
    };
    snapshot["artifacts"].as_array().unwrap().iter().map(one).collect()
}

#[apply(on_every_store)]
async fn a_logical_environment_has_the_snapshots_of_its_members(api: Api) {
    given_a_story(&api).await;
    let unchanged = |digit, count| (digit, "unchanged", count, count);
    let expected: [&[(char, &str, u64, u64)]; 7] = [
        &[('1', "started-unknown", 0, 1)],
        &[unchanged('1', 1), ('1', "started-unknown", 0, 2)],
        &[('2', "started-unknown", 0, 1), unchanged('1', 1), unchanged('1', 2)],
        &[unchanged('2', 1), unchanged('1', 1), ('1', "exited", 2, 0)],
        &[('2', "exited", 1, 0), ('1', "exited", 1, 0)],
        &[('2', "started-unknown", 0, 1)],
        &[unchanged('2', 1)],
    ];
    let list = api.get("/snapshots/acme/all").key("reader-key").await.ok();
    let indexes = Vec::from_iter(list.as_array().unwrap().iter().map(|row| row["index"].as_u64().unwrap()));
    assert_eq!(indexes, [7, 6, 5, 4, 3, 2, 1]);
    for (index, expected) in (1..).zip(expected) {
        let snapshot = api.get(&format!("/snapshots/acme/all/{index}")).key("reader-key").await.ok();
        let expected =
            expected.iter().map(|(digit, kind, was, now)| (*digit, (*kind).to_owned(), *was, *now));
        assert_eq!(shown(&snapshot), Vec::from_iter(expected), "{index}");
        assert_eq!((&snapshot["index"], &snapshot["type"]), (&json!(index), &json!("logical")));
        assert_eq!(snapshot["is_latest"], json!(index == 7), "{index}");
        let next = &snapshot["next_snapshot_timestamp"];
        assert_eq!(next.is_null(), index == 7, "{index}: {next}");
        let running = snapshot["artifacts"].as_array().unwrap();
        let running = running.iter().filter(|one| one["annotation"]["now"] != json!(0)).count();
        let count = json!({"true": 0, "false": 0, "null": running});
        assert_eq!(snapshot["artifact_compliance_count"], count, "{index}");
    }
    let table = [
        ("-1", Some(7)),
        ("~2", Some(5)),
        ("%233", Some(3)),
        ("now", Some(7)),
        ("@%7Bnow%7D", Some(7)),
        ("@%7B2099-01-01T00:00:00%7D", Some(7)),
        ("@%7B2001-01-01T00:00:00%7D", None),
        ("8", None),
        ("0", None),
        ("~7", None),
    ];
    for (expression, expected) in table {
        let reply = api.get(&format!("/snapshots/acme/all/{expression}")).await;
        match expected {
            Some(index) => assert_eq!(reply.ok()["index"], json!(index), "{expression}"),
            None => {
                reply.expect_message(404, "Snapshot not found");
            }
        }
    }
    let pages: [(&str, &[u64]); 6] = [
        ("per_page=2", &[7, 6]),
        ("per_page=2&page=4", &[1]),
        ("per_page=3&reverse=true&page=2", &[4, 5, 6]),
        ("interval=2..4", &[4, 3, 2]),
        ("interval=~1..NOW&reverse=true", &[6, 7]),
        ("interval=9..12", &[]),
    ];
    for (query, expected) in pages {
        let page = api.get(&format!("/snapshots/acme/all?{query}")).await.ok();
        let page = page.as_array().unwrap();
        // As in the whole list, the end of each included.
        let whole = expected.iter().map(|index| &list[usize::try_from(7 - index).unwrap()]);
        assert_eq!(page.iter().collect::<Vec<_>>(), Vec::from_iter(whole), "{query}");
    }
}

/// The state and the latest snapshot of a logical environment say the same, whatever its members are and do.
#[apply(on_every_store)]
async fn the_state_of_a_logical_environment_is_that_of_its_latest_snapshot(api: Api) {
    api.given_environments("docker", &["good", "bad", "free", "idle", "gone"]).await;
    api.put_policy("p", PROVENANCE).await.created();
    for environment in ["good", "bad", "idle", "gone"] {
        api.attach(environment, "p").await;
    }
    api.report_running("bad", &[('1', &[1])]).await.created();
    api.report_running("free", &[]).await.created();
    put_all(&api, &["idle", "good"]).await;
    let expect = async |step: &str, snapshots: usize, state: Value| {
        let environment = api.get("/environments/acme/all").await.ok();
        assert_eq!(environment["state"], state, "{step}");
        let list = api.get("/snapshots/acme/all").await.ok();
        let list = list.as_array().unwrap();
        assert_eq!(list.len(), snapshots, "{step}");
        let Some(latest) = list.first() else { return };
        assert_eq!(latest["compliant"], json!(state == true), "{step}: {latest}");
        let snapshot = api.get("/snapshots/acme/all/-1").await.ok();
        assert_eq!(snapshot["compliant"], latest["compliant"], "{step}");
    };
    // There is no snapshot before the first one of a member.
    expect("no member was reported on", 0, json!(null)).await;
    api.report_running("good", &[]).await.created();
    expect("one member was not reported on", 1, json!(null)).await;
    put_all(&api, &["good"]).await;
    expect("it left", 2, json!(true)).await;
    api.put("/environments/acme/all/join").json(json!({"physical_env_name": "idle"})).await.ok();
    expect("it is back", 3, json!(null)).await;
    api.report_running("idle", &[]).await.created();
    expect("it is reported on", 4, json!(true)).await;
    api.put("/environments/acme/all/join").json(json!({"physical_env_name": "gone"})).await.ok();
    expect("another", 5, json!(null)).await;
    archive(&api, "gone").await;
    expect("it is archived", 6, json!(true)).await;
    api.put("/environments/acme/all/join").json(json!({"physical_env_name": "free"})).await.ok();
    expect("a member has no policies", 7, json!(null)).await;
    api.put("/environments/acme/all/join").json(json!({"physical_env_name": "bad"})).await.ok();
    expect("a member is not compliant", 8, json!(false)).await;
    put_all(&api, &["good"]).await;
    expect("one is left", 9, json!(true)).await;
    // Older snapshots do not change.
    let list = api.get("/snapshots/acme/all").await.ok();
    let verdicts = Vec::from_iter(list.as_array().unwrap().iter().map(|row| row["compliant"] == true));
    assert_eq!(verdicts, [true, false, false, true, false, true, false, true, false]);
}

#[apply(on_every_store)]
async fn a_logical_environment_without_reports_has_no_snapshots(api: Api) {
    api.given_environments("docker", &["a", "b"]).await;
    put_all(&api, &[]).await;
    api.get("/snapshots/acme/all").await.expect_exactly(200, json!([]));
    put_all(&api, &["a", "b"]).await;
    archive(&api, "b").await;
    api.get("/snapshots/acme/all").await.expect_exactly(200, json!([]));
    api.get("/snapshots/acme/all/1").await.expect_message(404, "Snapshot not found");
    api.get("/environments/acme/all/events").await.expect_exactly(200, json!([]));
    let log = api.get("/environments/acme/all/auditlog").await;
    assert_eq!(log.body.iter().filter(|byte| **byte == b'\n').count(), 1);
    let diff = api.get("/env-diff/acme?snappish1=all&snappish2=a").await;
    diff.expect_message(404, "Snapshot not found");
}

#[apply(on_every_store)]
async fn a_logical_snapshot_has_the_verdicts_of_its_members(api: Api) {
    api.given_environments("docker", &["eu", "us"]).await;
    put_all(&api, &["eu", "us"]).await;
    api.put_policy("p", PROVENANCE).await.created();
    api.put_policy("q", PROVENANCE).await.created();
    api.given_artifact('1', "t1").await;
    api.attach("eu", "p").await;
    api.attach("us", "q").await;
    // A member without a snapshot is unknown.
    api.report_running("us", &[('1', &[10])]).await.created();
    api.report_running("eu", &[('1', &[10])]).await.created();
    api.report_running("us", &[('1', &[10]), ('2', &[20])]).await.created();
    let list = api.get("/snapshots/acme/all?reverse=true").await.ok();
    let verdicts = Vec::from_iter(list.as_array().unwrap().iter().map(|row| row["compliant"].clone()));
    assert_eq!(verdicts, [json!(false), json!(true), json!(false)]);
    let snapshot = api.get("/snapshots/acme/all/now").await.ok();
    assert_eq!(snapshot["compliant"], json!(false));
    assert_eq!(snapshot["artifact_compliance_count"], json!({"true": 2, "false": 1, "null": 0}));
    let failing = |policy: &Value| (policy["name"].clone(), policy["failing_artifacts"].clone());
    let policies = Vec::from_iter(snapshot["applied_policies"].as_array().unwrap().iter().map(failing));
    assert_eq!(policies, [(json!("p"), json!([])), (json!("q"), json!([fingerprint('2')]))]);
    let decided = |artifact: &Value| artifact["policy_decisions"][0]["policy_name"].clone();
    let decided = Vec::from_iter(snapshot["artifacts"].as_array().unwrap().iter().map(decided));
    assert_eq!(decided, [json!("p"), json!("q"), json!("q")]);
    let reasons = &snapshot["artifacts"][1]["reasons_for_incompliance"];
    assert!(reasons[0].as_str().unwrap().contains("policy 'q'"), "{reasons}");
}

/// Its own policies count in its state, in its snapshots and at the gate, and in nothing of its members.
#[apply(on_every_store)]
async fn what_runs_in_the_members_complies_with_the_policies_of_a_logical_environment(api: Api) {
    api.given_environments("docker", &["eu", "us"]).await;
    put_all(&api, &["eu", "us"]).await;
    for (policy, text) in [("p", PROVENANCE), ("test", TEST)] {
        api.put_policy(policy, text).await.created();
    }
    for (digit, trail) in [('1', "t1"), ('2', "t2")] {
        api.given_artifact(digit, trail).await;
    }
    for member in ["eu", "us"] {
        api.attach(member, "p").await;
    }
    api.report_running("eu", &[('1', &[10])]).await.created();
    api.report_running("us", &[('2', &[10])]).await.created();
    // The state is that of the last evaluation. The gate evaluates the evidence of now.
    let expect = async |step: &str, state: Value, may_run: [bool; 2]| {
        let all = api.get("/environments/acme/all").await.ok();
        assert_eq!(all["state"], state, "{step}");
        let listed = api.get("/environments/acme").await.ok();
        assert!(listed.as_array().unwrap().contains(&all), "{step}");
        let list = api.get("/snapshots/acme/all").await.ok();
        let snapshot = api.get("/snapshots/acme/all/-1").await.ok();
        for shown in [&list[0], &snapshot] {
            assert_eq!(shown["compliant"], json!(state == true), "{step}: {shown}");
        }
        // The members are as they are without it.
        for member in ["eu", "us"] {
            assert_eq!(api.get(&format!("/environments/acme/{member}")).await.ok()["state"], true, "{step}");
            let own = api.get(&format!("/snapshots/acme/{member}/-1")).await.ok();
            assert_eq!(own["compliant"], true, "{step}");
            let applied =
                Vec::from_iter(own["applied_policies"].as_array().unwrap().iter().map(|one| &one["name"]));
            assert_eq!(applied, [&json!("p")], "{step}");
            let decisions = own["artifacts"][0]["policy_decisions"].as_array().unwrap();
            assert_eq!(decisions.len(), 1, "{step}");
        }
        for (digit, may_run) in ['1', '2'].into_iter().zip(may_run) {
            let gate = format!("/asserts/acme/fingerprint/{}?environment_name=all", fingerprint(digit));
            assert_eq!(api.get(&gate).await.ok()["compliant"], may_run, "{step}: {digit}");
        }
        snapshot
    };
    expect("it has no policies", json!(true), [true; 2]).await;
    api.attach("all", "test").await;
    let snapshot = expect("nothing was tested", json!(false), [false; 2]).await;
    assert_eq!(snapshot["artifact_compliance_count"], json!({"true": 0, "false": 2, "null": 0}));
    let applied = &snapshot["applied_policies"];
    let names = Vec::from_iter(applied.as_array().unwrap().iter().map(|one| one["name"].clone()));
    assert_eq!(names, [json!("p"), json!("test")]);
    assert_eq!(applied[1]["failing_artifacts"].as_array().unwrap().len(), 2, "{applied}");
    let artifact = &snapshot["artifacts"][0];
    let reasons = artifact["reasons_for_incompliance"].as_array().unwrap();
    assert!(reasons[0].as_str().unwrap().contains("policy 'test'"), "{artifact}");
    // Evidence tells at the next report of the member.
    for (digit, trail) in [('1', "t1"), ('2', "t2")] {
        api.given_test(digit, trail, true).await;
    }
    api.report_running("eu", &[('1', &[10])]).await.created();
    expect("one member is reported on", json!(false), [true; 2]).await;
    api.report_running("us", &[('2', &[10])]).await.created();
    expect("the other one is, too", json!(true), [true; 2]).await;
    // An allowlist is a member's own.
    api.given_test('1', "t1", false).await;
    let allowed =
        json!({"artifact_name": "a", "artifact_fingerprint": fingerprint('1'), "description": "known"});
    api.put("/allowlists/acme/eu").json(&allowed).await.created();
    api.report_running("eu", &[('1', &[10])]).await.created();
    expect("it is allowed in a member", json!(false), [false, true]).await;
    api.given_test('1', "t1", true).await;
    api.report_running("eu", &[('1', &[10])]).await.created();
    expect("it complies", json!(true), [true; 2]).await;
    // A new version of the policy, or its end, counts at once.
    api.put_policy("test", &TEST.replace("name: test", "name: scan")).await.ok();
    expect("the policy asks for something else", json!(false), [false; 2]).await;
    let detach = api.delete("/environments/acme/all/policies").json(json!({"policy_names": ["test"]}));
    detach.await.expect_exactly(200, json!("OK"));
    expect("it is detached", json!(true), [true; 2]).await;
    api.patch("/environments/acme/all").json(json!({"policies": ["test"]})).await.ok();
    expect("it is back", json!(false), [false; 2]).await;
    // So does what members join and leave.
    put_all(&api, &[]).await;
    put_all(&api, &["us"]).await;
    let all = api.get("/environments/acme/all").await.ok();
    assert_eq!(all["state"], false);
    archive(&api, "us").await;
    assert_eq!(api.get("/environments/acme/all").await.ok()["state"], json!(null));
    // Older snapshots do not change.
    let list = api.get("/snapshots/acme/all?reverse=true&per_page=100").await.ok();
    let verdicts = Vec::from_iter(list.as_array().unwrap().iter().map(|row| row["compliant"] == true));
    assert!(verdicts.contains(&true) && verdicts.contains(&false), "{verdicts:?}");
}

/// A member joins a logical environment whose policy it violates: from the entry of the change on it is not compliant, also before
/// the member is evaluated by that policy.
#[apply(on_every_store)]
async fn a_member_that_joins_makes_no_snapshot_compliant_before_it_is_evaluated(api: Api) {
    api.given_environments("docker", &["eu", "us"]).await;
    for (policy, text) in [("p", PROVENANCE), ("test", TEST)] {
        api.put_policy(policy, text).await.created();
    }
    api.given_artifact('1', "t1").await;
    for member in ["eu", "us"] {
        api.attach(member, "p").await;
        api.report_running(member, &[('1', &[10])]).await.created();
    }
    let logical = |name: &str, members: &[&str]| {
        json!({
            "name": name, "type": "logical", "description": "", "included_environments": members,
            "policies": ["test"],
        })
    };
    // It is made with the member; the member joins, leaves and comes back; two join.
    let table: [(&str, &[&[&str]]); 4] = [
        ("made", &[&["eu"]]),
        ("joined", &[&[], &["eu"]]),
        ("again", &[&["eu"], &[], &["eu"]]),
        ("both", &[&[], &["eu"], &["eu", "us"], &["us"]]),
    ];
    for (name, steps) in table {
        for members in steps {
            let reply = api.put("/environments/acme").json(logical(name, members)).await;
            assert!(reply.status.is_success(), "{name}: {}", reply.status);
        }
        let list = api.get(&format!("/snapshots/acme/{name}?reverse=true")).await.ok();
        let list = list.as_array().unwrap();
        assert!(list.len() > 1, "{name}: {list:?}");
        for row in list {
            let one = api.get(&format!("/snapshots/acme/{name}/{}", row["index"])).await.ok();
            assert_eq!([&row["compliant"], &one["compliant"]], [false, false], "{name}: {row}");
        }
        assert_eq!(api.get(&format!("/environments/acme/{name}")).await.ok()["state"], false, "{name}");
    }
    // Without the policy only the members count, and what was shown before stays.
    let before = api.get("/snapshots/acme/made?reverse=true").await.ok();
    let detach = api.delete("/environments/acme/made/policies").json(json!({"policy_names": ["test"]}));
    detach.await.expect_exactly(200, json!("OK"));
    let after = api.get("/snapshots/acme/made?reverse=true").await.ok();
    let verdicts =
        |list: &Value| Vec::from_iter(list.as_array().unwrap().iter().map(|row| row["compliant"] == true));
    let (before, after) = (verdicts(&before), verdicts(&after));
    assert_eq!((after.last(), &after[..before.len()]), (Some(&true), &before[..]));
    api.attach("made", "test").await;
    api.patch("/environments/acme/made").json(json!({"description": "other"})).await.ok();
    let later = api.get("/snapshots/acme/made?reverse=true").await.ok();
    assert_eq!(verdicts(&later)[..after.len()], after);
}

/// A policy of a logical environment that its member has, too, and one that another logical environment has.
#[apply(on_every_store)]
async fn policies_of_logical_environments_count_where_they_are_attached(api: Api) {
    api.given_environments("docker", &["eu"]).await;
    for (policy, text) in [("p", PROVENANCE), ("test", TEST)] {
        api.put_policy(policy, text).await.created();
    }
    api.given_artifact('1', "t1").await;
    api.report_running("eu", &[('1', &[10])]).await.created();
    for (name, policy) in [("one", "p"), ("two", "test")] {
        api.put_logical_environment(name, ["eu"]).with(json!({"policies": [policy]})).await.created();
    }
    let state = async |name: &str| api.get(&format!("/environments/acme/{name}")).await.ok()["state"].clone();
    // The member has no policies, so that nothing is known of it but what is violated.
    assert_eq!(
        [state("eu").await, state("one").await, state("two").await],
        [json!(null), json!(null), json!(false)]
    );
    api.attach("eu", "p").await;
    assert_eq!(
        [state("eu").await, state("one").await, state("two").await],
        [json!(true), json!(true), json!(false)]
    );
    api.attach("eu", "test").await;
    assert_eq!([state("eu").await, state("one").await], [json!(false), json!(false)]);
    let detach = api.delete("/environments/acme/eu/policies").json(json!({"policy_names": ["test"]}));
    detach.await.expect_exactly(200, json!("OK"));
    assert_eq!(
        [state("eu").await, state("one").await, state("two").await],
        [json!(true), json!(true), json!(false)]
    );
    let snapshot = api.get("/snapshots/acme/one/-1").await.ok();
    assert_eq!(snapshot["applied_policies"].as_array().unwrap().len(), 1, "{snapshot}");
    archive(&api, "two").await;
    assert_eq!([state("eu").await, state("one").await], [json!(true), json!(true)]);
}

#[apply(on_every_store)]
async fn a_logical_environment_has_the_events_of_its_members(api: Api) {
    given_a_story(&api).await;
    let events = "/environments/acme/all/events";
    let told = |event: &Value| {
        let digit = event["sha256"].as_str().unwrap().chars().next().unwrap();
        (event["snapshot_index"].as_u64().unwrap(), digit, event["description"].as_str().unwrap().to_owned())
    };
    let all = [
        (1, '1', "1 instance started running in eu (from 0 to 1)"),
        (3, '2', "1 instance started running in eu (from 0 to 1)"),
        (4, '1', "2 instances stopped running in us (from 2 to 0)"),
    ];
    let all = all.map(|(index, digit, told)| (index, digit, told.to_owned()));
    let table: [(&str, &[usize]); 9] = [
        ("", &[2, 1, 0]),
        ("reverse=true", &[0, 1, 2]),
        ("per_page=1", &[2]),
        ("per_page=1&page=2", &[1]),
        ("per_page=1&page=3", &[0]),
        ("interval=2..4", &[2, 1]),
        ("start=2&end=3", &[1]),
        ("interval=5..7", &[]),
        ("end_ts=1.5", &[]),
    ];
    for (query, expected) in table {
        let page = api.get(&format!("{events}?{query}")).key("reader-key").await.ok();
        let page = Vec::from_iter(page.as_array().unwrap().iter().map(told));
        assert_eq!(page, Vec::from_iter(expected.iter().map(|place| all[*place].clone())), "{query}");
    }
    let one = api.get(&format!("{events}?interval=3")).await.expect_header("x-total-count", "1").ok();
    assert_eq!(one[0]["environment_name"], json!("all"));
    let link = "http://localhost:8001/api/v2/snapshots/acme/all/3";
    assert_eq!(one[0]["_links"]["snapshot"]["self"], json!(link));
    api.get(&format!("{events}?repo_name=x")).await.expect_field_error(400, "query.repo_name");
    let log = api.get("/environments/acme/all/auditlog").await;
    let log = String::from_utf8(log.body.to_vec()).unwrap();
    let cells = log.lines().skip(1).map(|line| Vec::from_iter(line.split(',').skip(1).take(5)).join(","));
    let line = |(index, _, told): &(u64, char, String)| {
        let kind = if told.contains("stopped") { "exited,exited" } else { "started,started-unknown" };
        format!("all,{index},{kind},{told}")
    };
    assert_eq!(Vec::from_iter(cells), Vec::from_iter(all.iter().map(line)));
}

#[apply(on_every_store)]
async fn what_members_run_is_compared_together(api: Api) {
    given_a_story(&api).await;
    let sections = async |first: &str, second: &str| {
        let diff = api.get(&format!("/env-diff/acme?snappish1={first}&snappish2={second}")).await.ok();
        let section = |key: &str| {
            let artifact = |artifact: &Value| {
                let digit = artifact["fingerprint"].as_str().unwrap().chars().next().unwrap();
                let count = |key: &str| artifact[key].as_u64().unwrap_or_default();
                (digit, count("s1_instance_count"), count("instance_count"))
            };
            Vec::from_iter(diff[key]["artifacts"].as_array().unwrap().iter().map(artifact))
        };
        ["snappish1", "snappish2", "changed", "not-changed"].map(section)
    };
    // Of 1 there are three instances in two members from 2 on.
    assert_eq!(sections("all%231", "all%232").await, [vec![], vec![], vec![('1', 1, 3)], vec![]]);
    assert_eq!(sections("all%232", "all%233").await, [vec![], vec![('2', 0, 1)], vec![], vec![('1', 0, 3)]]);
    assert_eq!(
        sections("all%234", "all%235").await,
        [vec![('1', 0, 1), ('2', 0, 1)], vec![], vec![], vec![]]
    );
    assert_eq!(sections("all", "eu").await, [vec![], vec![], vec![], vec![('2', 0, 1)]]);
}

/// Whatever the members do, what a snapshot shows when it is the current one it shows forever after; and the current one is
/// what the members run.
#[apply(with_every_store)]
async fn snapshots_of_logical_environments_stay_as_they_were(api: Api, _: Arc<dyn Store>) {
    const MEMBERS: [&str; 4] = ["a", "b", "c", "d"];
    api.given_environments("docker", &MEMBERS).await;
    api.put_policy("p", PROVENANCE).await.created();
    api.given_artifact('1', "t1").await;
    api.given_artifact('2', "t2").await;
    for member in MEMBERS {
        api.attach(member, "p").await;
    }
    put_all(&api, &["a", "b"]).await;
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let (mut members, mut archived) = (vec!["a", "b"], Vec::new());
    let mut seen: Vec<(Value, Value)> = Vec::new();
    for step in 0..70 {
        let member = MEMBERS[usize::try_from(random(4)).unwrap()];
        match random(10) {
            0 | 1 if !archived.contains(&member) => {
                members.retain(|one| !archived.contains(one));
                match members.iter().position(|one| *one == member) {
                    Some(place) => drop(members.remove(place)),
                    None => members.push(member),
                }
                put_all(&api, &members).await;
            }
            2 if step > 40 && archived.len() < 2 && !archived.contains(&member) => {
                archive(&api, member).await;
                archived.push(member);
            }
            _ if !archived.contains(&member) => {
                let running = [('1', &[1][..]), ('2', &[2, 3]), ('3', &[4])];
                let count = usize::try_from(random(4)).unwrap();
                let report = api.report_running(member, &running[..count]).await;
                assert!(report.status.is_success(), "{}", report.status);
            }
            _ => {}
        }
        let list = api.get("/snapshots/acme/all?reverse=true&per_page=1000").await.ok();
        let list = list.as_array().unwrap();
        assert!(list.len() >= seen.len() && list.len() <= seen.len() + 1, "step {step}");
        let stays = |row: &Value| [row["index"].clone(), row["from"].clone(), row["compliant"].clone()];
        for (row, (before, _)) in list.iter().zip(&seen) {
            assert_eq!(stays(row), stays(before), "step {step}");
        }
        if let Some(row) = list.get(seen.len()) {
            let current = api.get("/snapshots/acme/all/now").await.ok();
            seen.push((row.clone(), current["artifacts"].clone()));
        }
        let (mut of_members, mut verdicts) = (Vec::new(), Vec::new());
        for member in members.iter().filter(|member| !archived.contains(member)) {
            let reply = api.get(&format!("/snapshots/acme/{member}/now")).await;
            if reply.status == 200 {
                let snapshot = reply.json();
                of_members.extend(running(&snapshot["artifacts"]));
                verdicts.push(snapshot["compliant"].as_bool().unwrap());
            }
        }
        of_members.sort_unstable();
        let mut current = seen.last().map(|(_, artifacts)| running(artifacts)).unwrap_or_default();
        current.sort_unstable();
        assert_eq!(current, of_members, "step {step}");
        let expected = !verdicts.is_empty() && verdicts.iter().all(|compliant| *compliant);
        if let Some((row, _)) = seen.last() {
            assert_eq!(row["compliant"], json!(expected), "step {step}");
        }
    }
    assert!(seen.len() > 20, "{}", seen.len());
    for (index, (_, artifacts)) in (1..).zip(&seen) {
        let snapshot = api.get(&format!("/snapshots/acme/all/{index}")).await.ok();
        assert_eq!(&snapshot["artifacts"], artifacts, "snapshot {index}");
    }
    // Pages of events are those of the whole list, and each is told as its snapshot is.
    let events = "/environments/acme/all/events?reverse=true";
    let whole = api.get(&format!("{events}&per_page=100")).await.ok();
    for event in whole.as_array().unwrap() {
        let (row, _) = &seen[usize::try_from(event["snapshot_index"].as_u64().unwrap()).unwrap() - 1];
        assert_eq!(event["snapshot_compliance"], row["compliant"], "{event}");
    }
    let log = api.get("/environments/acme/all/auditlog").await;
    for line in String::from_utf8(log.body.to_vec()).unwrap().lines().skip(1) {
        let cells = Vec::from_iter(line.split(','));
        let (row, _) = &seen[cells[2].parse::<usize>().unwrap() - 1];
        assert_eq!(cells[9], row["compliant"].to_string(), "{line}");
    }
    let verdicts = seen.iter().filter(|(row, _)| row["compliant"] == json!(true)).count();
    assert!(verdicts > 0 && verdicts < seen.len(), "{verdicts}");
    let mut pages = Vec::new();
    for page in 1..=whole.as_array().unwrap().len().div_ceil(3) {
        let page = api.get(&format!("{events}&per_page=3&page={page}")).await.ok();
        pages.extend(page.as_array().unwrap().clone());
    }
    assert_eq!(Value::from(pages), whole);
}

/// The clocks of two servers differ, or a large report takes longer than a small one.
#[tokio::test]
async fn snapshots_of_logical_environments_are_of_the_ledgers_time() {
    for StoreUnderTest { name, store, guard: _guard, .. } in stores().await {
        fixture(Arc::clone(&store), Settings::default()).await;
        let clock = Arc::new(ManualClock::default());
        let now = Arc::clone(&clock) as Arc<dyn Clock>;
        let service = Evidence::with_sources(store, Settings::default(), now, Arc::new(SystemRandom));
        let api = Api::new(service, Mount::Tower, name).await;
        api.given_environments("docker", &["eu", "us"]).await;
        put_all(&api, &["eu", "us"]).await;
        for (member, digit, seconds) in [("eu", '1', 100), ("us", '2', 90), ("eu", '3', 95), ("us", '4', 110)]
        {
            clock.set(seconds);
            api.report_running(member, &[(digit, &[1])]).await.created();
        }
        clock.set(200);
        let seconds = |value: &Value| value.as_f64().unwrap() - NOW;
        let list = api.get("/snapshots/acme/all?reverse=true").await.ok();
        let from = Vec::from_iter(list.as_array().unwrap().iter().map(|row| seconds(&row["from"])));
        assert_eq!(from, [100.0, 100.0, 100.0, 110.0], "{name}");
        for (at, expected) in [(99, 0), (100, 4), (109, 4), (110, 6)] {
            let end = NOW + f64::from(at);
            let events = api.get(&format!("/environments/acme/all/events?end_ts={end}")).await.ok();
            let times =
                Vec::from_iter(events.as_array().unwrap().iter().map(|event| seconds(&event["reported_at"])));
            assert_eq!(times.len(), expected, "{name}, until {at}");
            assert!(times.iter().all(|time| *time <= f64::from(at)), "{name}: {times:?}");
        }
    }
}

#[apply(on_every_store)]
async fn policies_of_a_logical_snapshot_are_told_by_id(api: Api) {
    api.given_environments("docker", &["eu", "us"]).await;
    // The newer one first.
    for policy in ["p", "q"] {
        api.put_policy(policy, PROVENANCE).await.created();
    }
    api.attach("eu", "q").await;
    api.attach("us", "p").await;
    api.attach("us", "q").await;
    put_all(&api, &["eu", "us"]).await;
    api.report_running("eu", &[('1', &[1])]).await.created();
    api.report_running("us", &[('2', &[1])]).await.created();
    let snapshot = api.get("/snapshots/acme/all/now").await.ok();
    let policies = snapshot["applied_policies"].as_array().unwrap();
    let told = |policy: &Value| (policy["name"].clone(), policy["failing_artifacts"].clone());
    let [one, two] = ['1', '2'].map(fingerprint);
    let expected = [(json!("p"), json!([two])), (json!("q"), json!([one, two]))];
    assert_eq!(Vec::from_iter(policies.iter().map(told)), expected);
    let ids = Vec::from_iter(policies.iter().map(|policy| policy["id"].as_str().unwrap()));
    assert!(ids.is_sorted(), "{ids:?}");
}

/// The running instances of these artifacts.
fn running(artifacts: &Value) -> Vec<(String, u64)> {
    let one = |artifact: &Value| {
        let now = artifact["annotation"]["now"].as_u64().unwrap();
        (artifact["fingerprint"].as_str().unwrap().to_owned(), now)
    };
    artifacts.as_array().unwrap().iter().map(one).filter(|(_, now)| *now > 0).collect()
}
