//! Events of environments: their logs as pages and as files, differences between snapshots, and replaced artifacts.

use std::time::Duration;

use evidence_conformance::memory::MemoryStore;
use evidence_core::auth::ApiKey;
use evidence_core::seed::Seed;

use crate::support::Counter;
use crate::support::prelude::*;

const EVENTS: &str = "/environments/acme/prod/events";
const LOG: &str = "/environments/acme/prod/auditlog";

/// Five snapshots: 1 and two instances of 2; 2 alone; nothing; 3; and 3 evaluated by a policy, which it violates.
async fn given_a_story(api: &Api) {
    api.given_environments("docker", &["prod"]).await;
    let reports: [&[ReportedArtifact<'_>]; 4] =
        [&[('1', &[10]), ('2', &[20, 21])], &[('2', &[20])], &[], &[('3', &[30])]];
    for running in reports {
        api.report_running("prod", running).await.created();
    }
    api.put_policy("p", PROVENANCE).await.created();
    api.attach("prod", "p").await;
}

/// The snapshot, the artifact's digit and the type of each event.
fn told(events: &Value) -> Vec<(u64, char, String)> {
    let told = |event: &Value| {
        let digit = event["sha256"].as_str().unwrap().chars().next().unwrap();
        (event["snapshot_index"].as_u64().unwrap(), digit, event["type"].as_str().unwrap().to_owned())
    };
    events.as_array().unwrap().iter().map(told).collect()
}

#[apply(on_every_store)]
async fn events_tell_what_began_changed_and_stopped(api: Api) {
    given_a_story(&api).await;
    let all = [
        (1, '1', "started-unknown"),
        (1, '2', "started-unknown"),
        (2, '1', "exited"),
        (3, '2', "exited"),
        (4, '3', "started-unknown"),
        (5, '3', "became-non-compliant"),
    ];
    let all = all.map(|(snapshot, digit, kind)| (snapshot, digit, kind.to_owned()));
    let table: [(&str, &[usize]); 30] = [
        ("", &[5, 4, 3, 2, 1, 0]),
        ("reverse=True", &[0, 1, 2, 3, 4, 5]),
        ("per_page=2", &[5, 4]),
        ("per_page=2&page=3", &[1, 0]),
        ("per_page=4&page=2", &[1, 0]),
        ("per_page=4&page=3", &[]),
        ("per_page=2&page=2&reverse=true", &[2, 3]),
        ("page=9223372036854775807", &[]),
        ("interval=", &[5, 4, 3, 2, 1, 0]),
        ("interval=NOW", &[5]),
        ("interval=1", &[1, 0]),
        ("interval=1..2", &[2, 1, 0]),
        ("interval=~1..NOW", &[5, 4]),
        ("interval=3..2", &[]),
        ("interval=9..12", &[]),
        ("start=4", &[5, 4]),
        ("start=-1", &[5]),
        ("start=2&end=3", &[3, 2]),
        ("start=~4&end=%231", &[1, 0]),
        ("end=-4", &[2, 1, 0]),
        ("start=0&end=9", &[5, 4, 3, 2, 1, 0]),
        ("start=3&end=2", &[]),
        ("start=9", &[]),
        ("interval=1..2&start=5", &[5]),
        ("start=1hour&end=NOW", &[5, 4, 3, 2, 1, 0]),
        ("start=30mins&per_page=1", &[5]),
        ("end=1h", &[]),
        ("start_ts=0", &[5, 4, 3, 2, 1, 0]),
        ("end_ts=1.5", &[]),
        ("start_ts=99999999999", &[]),
    ];
    for (query, expected) in table {
        let events = api.get(&format!("{EVENTS}?{query}")).key("reader-key").await.ok();
        let expected = Vec::from_iter(expected.iter().map(|place| all[*place].clone()));
        assert_eq!(told(&events), expected, "{query}");
    }
}

#[apply(on_every_store)]
async fn headers_tell_where_a_page_of_events_lies(api: Api) {
    given_a_story(&api).await;
    let address = "http://localhost:8001/api/v2/environments/acme/prod/events";
    let link = |page: u64, relation: &str, query: &str| {
        format!("<{address}?page={page}&per_page=2{query}>; rel=\"{relation}\"")
    };
    let page = api.get(&format!("{EVENTS}?per_page=2&page=2")).await;
    let links = [("first", 1), ("prev", 1), ("next", 3), ("last", 3)];
    let links = links.map(|(relation, page)| link(page, relation, "")).join(", ");
    page.expect_header("x-total-count", "6")
        .expect_header("x-per-page", "2")
        .expect_header("x-current-page", "2")
        .expect_header("x-total-pages", "3")
        .expect_header("link", &links);
    let narrowed = api.get(&format!("{EVENTS}?per_page=2&start=1&end=~3&reverse=True")).await;
    let query = "&reverse=true&start=1&end=~3";
    let links = [link(1, "first", query), link(2, "next", query), link(2, "last", query)].join(", ");
    narrowed.expect_header("x-total-count", "3").expect_header("link", &links);
    let whole = api.get(EVENTS).await;
    assert!(whole.headers.get("link").is_none());
    whole
        .expect_header("x-total-count", "6")
        .expect_header("x-per-page", "15")
        .expect_header("x-total-pages", "1");
    let nothing = api.get(&format!("{EVENTS}?end_ts=0")).await;
    nothing
        .expect_header("x-total-count", "0")
        .expect_header("x-total-pages", "0")
        .expect_exactly(200, json!([]));
}

#[apply(on_every_store)]
async fn an_event_names_its_artifact_its_flows_and_its_snapshot(api: Api) {
    api.given_environments("docker", &["prod", "all"]).await;
    api.get(EVENTS).await.expect_exactly(200, json!([]));
    api.given_artifact('1', "t1").await;
    api.report_running("prod", &[('1', &[10, 11])]).await.created();
    api.report_running("prod", &[('2', &[20])]).await.created();
    let from = api.get("/snapshots/acme/prod/2").await.ok()["timestamp"].clone();
    let id =
        api.get(&format!("/artifacts/acme/web/fingerprint/{}", fingerprint('1'))).await.ok()["id"].clone();
    let api_url = "http://localhost:8001/api/v2";
    let page = "http://localhost:8001/acme";
    let snapshot = |index: u64| {
        json!({
            "self": format!("{api_url}/snapshots/acme/prod/{index}"),
            "html": format!("{page}/environments/prod/snapshots/{index}"),
        })
    };
    let artifact = json!({
        "self": format!("{api_url}/artifacts/acme/web/fingerprint/{}", fingerprint('1')),
        "html": format!("{page}/flows/web/artifacts/{}?artifact_id={}", fingerprint('1'), id.as_str().unwrap()),
    });
    let event = |index: u64, digit: char, description: &str, kind: &str, is_known: bool| {
        json!({
            "environment_name": "prod", "snapshot_index": index, "artifact_name": format!("image-{digit}"),
            "sha256": fingerprint(digit), "description": description, "reported_at": from,
            "pipeline": if is_known { "web" } else { "" }, "deployments": [],
            "flows": if is_known { json!([{"flow_name": "web", "deployments": null}]) } else { json!([]) },
            "artifact_compliance": null, "snapshot_compliance": false, "type": kind, "code_diff": null,
            "_links": {"artifact": if is_known { artifact.clone() } else { Value::Null }, "snapshot": snapshot(index)},
        })
    };
    let expected = json!([
        event(2, '2', "1 instance started running (from 0 to 1)", "started-unknown", false),
        event(2, '1', "2 instances stopped running (from 2 to 0)", "exited", true),
        event(1, '1', "2 instances started running (from 0 to 2)", "started-unknown", true),
    ]);
    api.get(EVENTS).await.expect_exactly(200, expected);
}

/// Reports artifact `digit` to a flow, with a commit of a repo at this address.
async fn given_built(api: &Api, digit: char, flow: &str, repo: &str, url: &str) {
    api.post_artifact(flow, fingerprint(digit))
        .with(json!({
            "trail_name": format!("t{digit}"), "template_reference_name": "api", "filename": "api:1",
            "git_commit": fingerprint(digit)[..40], "build_url": "http://b/1",
            "commit_url": format!("http://c/{digit}"), "repo_info": {"name": repo, "url": url, "id": repo},
        }))
        .await
        .created();
}

#[apply(on_every_store)]
async fn events_are_narrowed_to_repos(api: Api) {
    given_built(&api, '1', "web", "acme/web", "https://github.com/acme/web").await;
    given_built(&api, '3', "shop", "acme/shop", "https://github.com/acme/shop").await;
    given_a_story(&api).await;
    let web = [(1, '1', "started-unknown"), (2, '1', "exited")];
    let shop = [(4, '3', "started-unknown"), (5, '3', "changed")];
    let table = [
        ("repo_name=acme/web", web.to_vec(), 2),
        ("repo_name=acme/shop", shop.to_vec(), 2),
        ("repo_name=acme/shop&repo_name=acme/web", [web, shop].concat(), 4),
        ("repo_name=acme/shop&repo_name=acme/web&per_page=3", [web, shop].concat()[1..].to_vec(), 4),
        ("repo_name=acme/web&end=1", web[..1].to_vec(), 1),
        ("repo_name=acme/web&start=3", vec![], 0),
    ];
    for (query, expected, total) in table {
        let reply = api.get(&format!("{EVENTS}?{query}")).await;
        let reply = reply.expect_header("x-total-count", &total.to_string());
        let kinds = Vec::from_iter(told(&reply.ok()).into_iter().map(|(index, digit, _)| (index, digit)));
        let expected = Vec::from_iter(expected.iter().rev().map(|(index, digit, _)| (*index, *digit)));
        assert_eq!(kinds, expected, "{query}");
    }
    // The newest report in a flow tells where an artifact is from, in both logs of the environment.
    given_built(&api, '1', "web", "acme/fork", "https://github.com/acme/fork").await;
    given_built(&api, '3', "jobs", "acme/fork", "https://github.com/acme/fork").await;
    for (repo, count) in [("acme/web", 0), ("acme/shop", 2), ("acme/fork", 4)] {
        let reply = api.get(&format!("{EVENTS}?repo_name={repo}")).await;
        reply.expect_header("x-total-count", &count.to_string());
        let log = api.get(&format!("{LOG}?repo_names={repo}")).await;
        assert_eq!(String::from_utf8_lossy(&log.body).lines().count(), 1 + count, "{repo}");
    }
    let names = |count: usize| vec!["acme/web"; count].join(",");
    assert_eq!(api.get(&format!("{LOG}?repo_names={}", names(100))).await.status, 200);
    api.get(&format!("{LOG}?repo_names={}", names(101))).await.expect_field_error(400, "query.repo_names");
    let missing = json!({"message": "Repo not found", "errors": {"query.repo_name": "no repo named 'acme' in organization 'acme'"}});
    api.get(&format!("{EVENTS}?repo_name=acme/web&repo_name=acme")).await.expect_exactly(404, missing);
    for (query, field) in [
        ("per_page=101", "query.per_page"),
        ("per_page=0", "query.per_page"),
        ("page=0", "query.page"),
        ("start=soon", "query.start"),
        ("end=", "query.end"),
        ("interval=x", "query.interval"),
        ("start_ts=x", "query.start_ts"),
        ("reverse=perhaps", "query.reverse"),
    ] {
        api.get(&format!("{EVENTS}?{query}")).await.expect_field_error(400, field);
    }
    api.get("/environments/acme/none/events").await.expect_message(404, "Environment not found");
}

/// An API whose clock is moved by hand.
async fn with_clock() -> (Api, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::default());
    let random = Arc::new(Counter::default());
    let store = Arc::new(MemoryStore::new());
    let service = Evidence::with_sources(store, Settings::default(), Arc::clone(&clock) as _, random);
    let (user, orgs) = ("jane".parse().unwrap(), vec!["acme".parse().unwrap()]);
    service.seed(&Seed { user, orgs, api_key: Some(ApiKey::imported(JANE.to_owned())) }).await.unwrap();
    (Api::new(service, Mount::Tower, "memory").await, clock)
}

#[tokio::test]
async fn a_window_of_time_has_the_snapshots_that_were_taken_in_it() {
    let (api, clock) = with_clock().await;
    api.given_environments("docker", &["prod"]).await;
    let hour = Duration::from_secs(3600);
    for running in [&[('1', &[1][..])][..], &[], &[('2', &[1])]] {
        api.report_running("prod", running).await.created();
        clock.advance(hour);
    }
    // Taken three, two and one hours ago.
    let begun = api.get("/snapshots/acme/prod/1").await.ok()["timestamp"].as_f64().unwrap();
    let at = |hours: f64| begun + 3600.0 * hours;
    let table = [
        ("start=1hour".to_owned(), vec![3]),
        ("start=59mins".to_owned(), vec![]),
        ("start=2h".to_owned(), vec![3, 2]),
        ("start=1day".to_owned(), vec![3, 2, 1]),
        ("start=3hours&end=2hours".to_owned(), vec![2, 1]),
        ("end=90mins".to_owned(), vec![2, 1]),
        ("end=4hours".to_owned(), vec![]),
        (format!("start_ts={}", at(1.0)), vec![3, 2]),
        (format!("start_ts={:.6}", at(1.0) + 0.5), vec![3]),
        (format!("end_ts={}", at(1.0)), vec![2, 1]),
        (format!("end_ts={:.6}", at(1.0) - 0.5), vec![1]),
        (format!("start_ts={}&start=3&end_ts={}&end=1", at(0.0), at(1.0)), vec![2, 1]),
        (format!("start_ts={}&end_ts={}", at(2.0), at(1.0)), vec![]),
        // A snapshot expression means the snapshot that was current then.
        ("start=@%7B2.hours.ago%7D".to_owned(), vec![3, 2]),
        ("interval=@%7B2.hours.ago%7D..NOW".to_owned(), vec![3, 2]),
    ];
    for (query, expected) in table {
        let events = api.get(&format!("{EVENTS}?{query}")).await.ok();
        let found = Vec::from_iter(told(&events).into_iter().map(|(index, ..)| index));
        assert_eq!(found, expected, "{query}");
    }
    let rows = |reply: Reply| String::from_utf8(reply.body.to_vec()).unwrap().lines().count() - 1;
    for (query, count) in [
        (String::new(), 3),
        (format!("from_timestamp={}", at(1.0)), 2),
        (format!("to_timestamp={}", at(1.0)), 2),
        (format!("from_timestamp={}&to_timestamp={}", at(0.5), at(1.5)), 1),
        (format!("from_timestamp={}", at(2.5)), 0),
    ] {
        assert_eq!(rows(api.get(&format!("{LOG}?{query}")).await), count, "{query}");
    }
}

#[apply(on_every_store)]
async fn the_audit_log_is_a_file_without_formulas(api: Api) {
    api.given_environments("server", &["prod"]).await;
    given_built(&api, '1', "web", "acme/web", "https://github.com/acme/web").await;
    given_built(&api, '1', "shop", "acme/shop", "https://github.com/acme/shop").await;
    given_built(&api, '9', "other", "acme/other", "https://github.com/acme/other").await;
    let artifact =
        |name: &str, digit: char| json!({"digests": {name: fingerprint(digit)}, "creationTimestamp": 1});
    let report = async |artifacts: Value| {
        let request = api.put("/environments/acme/prod/report/server").json(json!({"artifacts": artifacts}));
        request.await.created();
    };
    report(json!([artifact("=HYPERLINK(\"http://x\",1)", '2'), artifact("app", '1')])).await;
    report(json!([artifact("app", '1')])).await;
    api.put_policy("p", PROVENANCE).await.created();
    api.attach("prod", "p").await;
    let [one, two] = ['1', '2'].map(fingerprint);
    let commit = &one[..40];
    let known = format!("web;shop,t1;t1,{commit};{commit},http://c/1;http://c/1");
    let begun = "1 instance started running (from 0 to 1)";
    let at = "2026-04-15T11:25:00Z";
    let lines = [
        "timestamp,environment,snapshot,event_type,event,description,artifact_name,fingerprint,artifact_compliant,snapshot_compliant,flows,trails,git_commits,commit_urls".to_owned(),
        format!("{at},prod,1,started,started-unknown,{begun},app,{one},,false,{known}"),
        format!("{at},prod,1,started,started-unknown,{begun},\"'=HYPERLINK(\"\"http://x\"\",1)\",{two},,false,,,,"),
        format!("{at},prod,2,exited,exited,1 instance stopped running (from 1 to 0),\"'=HYPERLINK(\"\"http://x\"\",1)\",{two},,false,,,,"),
        format!("{at},prod,3,changed,became-compliant,1 instance changed,app,{one},true,true,{known}"),
    ];
    let table: [(&str, &[usize]); 13] = [
        ("", &[1, 2, 3, 4]),
        ("event_types=started", &[1, 2]),
        ("event_types=exited,changed", &[3, 4]),
        ("event_types=", &[1, 2, 3, 4]),
        ("flow_names=web", &[1, 4]),
        ("flow_names=shop,web", &[1, 4]),
        ("flow_names=,%20shop%20,", &[1, 4]),
        ("flow_names=no%20provenance", &[2, 3]),
        ("flow_names=web,no%20provenance&event_types=started", &[1, 2]),
        ("flow_names=other", &[]),
        ("repo_names=acme/shop", &[1, 4]),
        ("repo_names=acme/shop,%20acme/web&event_types=changed", &[4]),
        ("from_timestamp=0&to_timestamp=1", &[]),
    ];
    for (query, places) in table {
        let reply = api.get(&format!("{LOG}?{query}")).key("reader-key").await;
        assert_eq!(reply.status, 200);
        let text = String::from_utf8(reply.body.to_vec()).unwrap();
        let rows = [0].iter().chain(places).map(|place| format!("{}\r\n", mask(&lines[*place])));
        assert_eq!(mask(&text), rows.collect::<String>(), "{query}");
        reply
            .expect_header("content-type", "text/csv; charset=utf-8")
            .expect_header("content-disposition", "attachment; filename=\"acme-prod-auditlog.csv\"");
    }
    for (query, field) in [
        ("event_types=scaled", "query.event_types"),
        ("event_types=started,,scaled", "query.event_types"),
        ("from_timestamp=x", "query.from_timestamp"),
    ] {
        api.get(&format!("{LOG}?{query}")).await.expect_field_error(400, field);
    }
    api.get(&format!("{LOG}?repo_names=acme/none")).await.expect_field_error(404, "query.repo_names");
    for unknown in ["webb", "web,webb", "No%20provenance"] {
        api.get(&format!("{LOG}?flow_names={unknown}")).await.expect_field_error(404, "query.flow_names");
    }
    let many = Vec::from_iter((0..101).map(|number| number.to_string())).join(",");
    api.get(&format!("{LOG}?flow_names={many}")).await.expect_field_error(400, "query.flow_names");
    api.put("/flows/acme/web/rename").json(json!({"new_name": "web2"})).await.ok();
    let [former, present] =
        ["web", "web2"].map(|name| api.get(&format!("{LOG}?flow_names={name}")).into_future());
    let (former, present) = (former.await.body, present.await.body);
    assert!(former == present && former.len() > lines[0].len() + 2);
    api.get("/environments/acme/none/auditlog").await.expect_message(404, "Environment not found");
}

/// The text with the times of its rows left out.
fn mask(text: &str) -> String {
    let line = |line: &str| match line.split_once("Z,") {
        Some((time, rest)) if time.starts_with("20") => format!("T,{rest}"),
        _ => line.to_owned(),
    };
    Vec::from_iter(text.split("\r\n").map(line)).join("\r\n")
}

#[apply(on_every_store)]
async fn two_snapshots_are_compared(api: Api) {
    given_built(&api, '1', "web", "acme/web", "https://github.com/acme/web").await;
    api.given_environments("docker", &["prod", "test", "empty"]).await;
    api.report_running("prod", &[('1', &[10, 12]), ('2', &[20]), ('4', &[40])]).await.created();
    api.report_running("prod", &[('1', &[10]), ('3', &[30]), ('4', &[41])]).await.created();
    api.report_running("test", &[('1', &[11])]).await.created();
    let item = |digit: char, newest: i64, count: u64| {
        json!({
            "fingerprint": fingerprint(digit), "name": format!("image-{digit}"), "most_recent_timestamp": newest,
            "flow": if digit == '1' { "web" } else { "" },
            "commit_url": if digit == '1' { json!("http://c/1") } else { Value::Null },
            "instance_count": count,
        })
    };
    let changed = |mut item: Value, first: u64| {
        item["s1_instance_count"] = json!(first);
        item["s2_instance_count"] = item["instance_count"].clone();
        item
    };
    let diff =
        |first: (&str, Vec<Value>), second: (&str, Vec<Value>), changed: Vec<Value>, same: Vec<Value>| {
            json!({
                "snappish1": {"snapshot_id": first.0, "artifacts": first.1},
                "snappish2": {"snapshot_id": second.0, "artifacts": second.1},
                "changed": {"artifacts": changed},
                "not-changed": {"artifacts": same},
            })
        };
    let two = || ("prod#2", vec![item('3', 30, 1)]);
    let one = || ("prod#1", vec![item('2', 20, 1)]);
    let forth = diff(one(), two(), vec![changed(item('1', 10, 1), 2)], vec![item('4', 41, 1)]);
    let back = diff(two(), one(), vec![changed(item('1', 12, 2), 1)], vec![item('4', 40, 1)]);
    let others = || vec![item('3', 30, 1), item('4', 41, 1)];
    let across = diff(("prod#2", others()), ("test#1", vec![]), vec![], vec![item('1', 11, 1)]);
    let itself =
        diff(("prod#2", vec![]), ("prod#2", vec![]), vec![], [vec![item('1', 10, 1)], others()].concat());
    let table = [
        ("prod%231", "prod%232", forth.clone()),
        ("prod~1", "prod", forth.clone()),
        ("prod%23-2", "prod~0", forth),
        ("prod", "prod%231", back),
        ("prod", "test", across),
        ("prod", "prod", itself.clone()),
        ("prod@%7Bnow%7D", "prod@%7B2099-01-01T00:00:00%7D", itself),
    ];
    for (first, second, expected) in table {
        let path = format!("/env-diff/acme?snappish1={first}&snappish2={second}");
        api.get(&path).key("reader-key").await.expect_exactly(200, expected);
    }
    let missing = json!({"message": "Snapshot not found"});
    for (first, second, field) in [
        ("empty", "none", "query.snappish1"),
        ("prod%233", "none", "query.snappish1"),
        ("prod", "empty", "query.snappish2"),
        ("prod", "prod~2", "query.snappish2"),
        ("prod", "prod%230", "query.snappish2"),
        ("prod@%7B2001-01-01T00:00:00%7D", "prod", "query.snappish1"),
    ] {
        let reply = api.get(&format!("/env-diff/acme?snappish1={first}&snappish2={second}")).await;
        reply.expect(404, missing.clone()).expect_field_error(404, field);
    }
    let none = api.get("/env-diff/acme?snappish1=prod&snappish2=none").await;
    none.expect(404, json!({"message": "Environment not found"})).expect_field_error(404, "query.snappish2");
    for (query, field) in [
        ("snappish1=prod", "query.snappish2"),
        ("snappish2=prod", "query.snappish1"),
        ("snappish1=&snappish2=prod", "query.snappish1"),
        ("snappish1=prod&snappish2=prod%23x", "query.snappish2"),
        ("snappish1=prod&snappish2=%231", "query.snappish2"),
        ("snappish1=a%20b&snappish2=prod", "query.snappish1"),
    ] {
        api.get(&format!("/env-diff/acme?{query}")).await.expect_field_error(400, field);
    }
}

/// The artifacts that the artifact with this digit replaced, by its flows.
async fn diffs(api: &Api, index: &str, digit: char) -> Value {
    let snapshot = api.get(&format!("/snapshots/acme/prod/{index}")).await.ok();
    let artifacts = snapshot["artifacts"].as_array().unwrap();
    let artifact = artifacts.iter().find(|one| one["fingerprint"] == fingerprint(digit)).unwrap();
    assert_eq!(artifact["deployment_diff"], artifact["flows"][0]["deployment_diff"]);
    artifact["flows"].as_array().unwrap().iter().map(|flow| flow["deployment_diff"].clone()).collect()
}

#[apply(on_every_store)]
async fn what_an_artifact_replaced_is_told_with_where_their_commits_are_compared(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    let github = "https://github.com/acme/web.git";
    for (digit, flow) in [('1', "web"), ('2', "web"), ('3', "web"), ('2', "shop"), ('5', "web")] {
        given_built(&api, digit, flow, "acme/web", github).await;
    }
    api.report_running("prod", &[('1', &[10])]).await.created();
    api.report_running("prod", &[('1', &[10]), ('2', &[20])]).await.created();
    api.report_running("prod", &[('2', &[20])]).await.created();
    api.report_running("prod", &[]).await.created();
    // After a while in which nothing ran; and what runs once more.
    api.report_running("prod", &[('3', &[30])]).await.created();
    api.report_running("prod", &[('1', &[40])]).await.created();
    // An unreported artifact replaces nothing until it is reported.
    api.report_running("prod", &[('1', &[40]), ('4', &[50])]).await.created();
    given_built(&api, '4', "web", "acme/web", "https://gitlab.example.com/acme/web").await;
    api.report_running("prod", &[('1', &[40]), ('4', &[50])]).await.created();
    let [one, two, three, four] = ['1', '2', '3', '4'].map(fingerprint);
    let compare = |before: &str, after: &str| {
        format!("https://github.com/acme/web/compare/{}...{}", &before[..40], &after[..40])
    };
    let diff = |digit: char, url: String, running: bool| {
        json!({
            "diff_url": url, "previous_git_commit": fingerprint(digit)[..40], "previous_fingerprint": fingerprint(digit),
            "previous_artifact_name": format!("image-{digit}"), "previous_artifact_compliance_state": "COMPLIANT",
            "previous_running": running, "previous_git_commit_url": format!("http://c/{digit}"),
            "previous_trail_name": format!("t{digit}"), "previous_template_reference_name": "api",
        })
    };
    let table = [
        ("1", '1', json!([null])),
        ("2", '1', json!([null])),
        // Known in two flows, in one of which it is the first.
        ("2", '2', json!([diff('1', compare(&one, &two), true), null])),
        ("3", '2', json!([diff('1', compare(&one, &two), false), null])),
        ("4", '2', json!([diff('1', compare(&one, &two), false), null])),
        ("5", '3', json!([diff('2', compare(&two, &three), false)])),
        ("6", '1', json!([diff('3', compare(&three, &one), false)])),
        ("7", '4', json!([])),
        (
            "8",
            '4',
            json!([diff(
                '1',
                format!("https://gitlab.example.com/acme/web/-/compare/{}...{}", &one[..40], &four[..40]),
                true
            )]),
        ),
    ];
    for (index, digit, expected) in table {
        assert_eq!(diffs(&api, index, digit).await, expected, "{digit} in {index}");
    }
    // The name that it had last counts for a report without one.
    api.post_artifact("web", &four).in_trail("later").with(json!({"git_commit": four[..40]})).await.created();
    api.report_running("prod", &[('1', &[40]), ('4', &[50])]).await.created();
    let named = |diff: &Value| {
        (diff["previous_fingerprint"].clone(), diff["previous_template_reference_name"].clone())
    };
    assert_eq!(named(&diffs(&api, "9", '4').await[0]), (json!(one), json!("api")));
    let events = api.get(&format!("{EVENTS}?start=5&end=6&reverse=true")).await.ok();
    let urls = Vec::from_iter(events.as_array().unwrap().iter().map(|event| event["code_diff"].clone()));
    let expected = [json!(compare(&two, &three)), Value::Null, json!(compare(&three, &one))];
    assert_eq!(urls, expected);
}

#[apply(on_every_store)]
async fn a_snapshot_says_why_an_artifact_may_not_run(api: Api) {
    api.given_environments("docker", &["prod"]).await;
    api.given_flow_with_template().await;
    api.given_artifact('1', "t1").await;
    api.given_artifact('2', "t2").await;
    api.given_test('2', "t2", true).await;
    let rules = "_schema: https://example.com/v1\nartifacts:\n  provenance: {required: true}\n  trail-compliance: {required: true}\n  attestations: [{name: scan, type: snyk}]\n";
    api.put_policy("p", rules).await.created();
    api.put_policy("q", PROVENANCE).await.created();
    api.attach("prod", "p").await;
    api.attach("prod", "q").await;
    api.report_running("prod", &[('1', &[30]), ('2', &[20]), ('3', &[10])]).await.created();
    let p = "policy 'p' (version 1)";
    let scan = "the attestation 'scan' of type 'snyk' is missing";
    let missing = "provenance is required, and the artifact was reported in no flow";
    let state = "An expected attestation of the artifact or of its trail is missing.";
    let expected = json!({"artifacts": [
        {
            "reasons_for_incompliance": [
                format!("{p}: the artifact is INCOMPLETE in trail 't1' of flow 'web'"),
                format!("{p}: {scan} in trail 't1' of flow 'web'"),
            ],
            "flows": [{"flow_reasons_for_non_compliance": [{"artifact_compliance_state": "INCOMPLETE", "reason": state}]}],
        },
        {
            "reasons_for_incompliance": [format!("{p}: {scan} in trail 't2' of flow 'web'")],
            "flows": [{"flow_reasons_for_non_compliance": []}],
        },
        {
            "reasons_for_incompliance": [
                format!("{p}: {missing}"),
                format!("{p}: compliance in a trail is missing, for the artifact was reported in no flow"),
                format!("{p}: {scan} in any flow"),
                format!("policy 'q' (version 1): {missing}"),
            ],
            "flows": [],
        },
    ]});
    api.get("/snapshots/acme/prod/-1").await.expect(200, expected);
    let allowed =
        json!({"artifact_name": "a", "artifact_fingerprint": fingerprint('3'), "description": "known"});
    api.put("/allowlists/acme/prod").json(allowed).await.created();
    api.report_running("prod", &[('3', &[10])]).await.created();
    let reasons = json!({"artifacts": [{"compliant": true, "reasons_for_incompliance": []}, {}, {}]});
    api.get("/snapshots/acme/prod/-1").await.expect(200, reasons);
}
