//! Artifacts: reported, and looked up by fingerprint and by commit (specification, Artifacts).

use evidence_core::id::ID_PATTERN;

use crate::support::prelude::*;

fn report() -> Value {
    json!({"fingerprint": "a".repeat(64), "filename": "app", "build_url": "b", "commit_url": "c"})
}

#[apply(on_every_store)]
async fn an_artifact_tells_what_was_reported_and_what_follows_from_it(api: Api) {
    api.given_flow("shop", TEMPLATE).await;
    api.artifact("a", "cli").await;
    let artifact = api.get(&format!("/artifacts/acme/shop/fingerprint/{}", "a".repeat(64))).await.ok();
    let id = artifact["id"].as_str().unwrap();
    assert!(regex::Regex::new(ID_PATTERN).unwrap().is_match(id));
    let expected = json!({
        "fingerprint": "a".repeat(64), "filename": "cli.bin", "created_at": "1783538510.000000",
        "last_modified_at": "1783538510.000000", "evidence": {}, "flow_name": "shop", "trail_name": "t",
        "template_reference_name": "cli", "git_commit": COMMIT, "repo_url": "", "user_data": null,
        "git_commit_info": {"sha1": COMMIT, "message": "", "author": "", "author_username": "", "branch": "main",
            "timestamp": 1_783_530_000, "url": "", "parents": [], "verified": false, "signature_state": ""},
        "repo_info": {"name": "", "url": "", "id": "", "description": "", "provider": "", "vcs_instance": "",
            "namespace_path": [], "additional_info": {}, "short_name": ""},
        "html_url": format!("http://localhost:8001/acme/flows/shop/artifacts/{}?artifact_id={id}", "a".repeat(64)),
        "external_urls": {}, "annotations": {}, "state": "INCOMPLETE", "template": ["foo", "bar"],
        "running": [], "exited": [], "history": [{"event": "cli reported", "timestamp": 1_783_538_510.0}],
    });
    api.get(&format!("/artifacts/acme/shop/fingerprint/{}?attestation_id={id}", "a".repeat(64)))
        .await
        .expect(200, expected);
}

#[apply(on_every_store)]
async fn an_artifact_without_a_trail_has_empty_values_of_their_types(api: Api) {
    api.post("/artifacts/acme/old").json(report()).await.expect_exactly(201, json!({"message": "OK"}));
    let expected = json!({
        "trail_name": "", "template_reference_name": "", "git_commit": "", "state": "COMPLIANT", "template": [],
        "git_commit_info": {"sha1": "", "timestamp": 0, "verified": false},
        "history": [{"event": "Artifact created"}],
    });
    api.get(&format!("/artifacts/acme/old/fingerprint/{}", "a".repeat(64))).await.expect(200, expected);
}

#[apply(on_every_store)]
async fn a_report_without_a_trail_goes_into_any_flow_with_the_commits_before_it(api: Api) {
    api.given_flow("shop", TEMPLATE).await;
    let commit = |digit: &str| {
        json!({
            "sha1": digit.repeat(40), "message": "m", "author": "a <a@e.org>", "branch": "main", "timestamp": 1,
            "url": "", "parents": [],
        })
    };
    let mut body = report();
    body["git_commit"] = json!("1".repeat(40));
    body["repo_url"] = json!("");
    body["commits_list"] = json!([commit("1"), commit("2")]);
    for _ in 0..2 {
        api.post("/artifacts/acme/shop").json(&body).await.expect_exactly(201, json!({"message": "OK"}));
    }
    let path = format!("/artifacts/acme/shop/fingerprint/{}", "a".repeat(64));
    // It has no name in the template, and lacks what that asks of the trail.
    let expected = json!({"trail_name": "", "state": "INCOMPLETE", "git_commit": "1".repeat(40)});
    api.get(&path).await.expect(200, expected);
    // Only the list shows the commit that the artifact was built from.
    let mut built_from = commit("1");
    built_from.as_object_mut().unwrap().extend(
        json!({"author_username": "", "verified": false, "signature_state": ""}).as_object().unwrap().clone(),
    );
    assert_eq!(api.get(&path).await.ok()["git_commit_info"], built_from);
    let latest = format!("/artifacts/acme/shop/{}/latest_commit?branch=main", "a".repeat(64));
    api.get(&latest).await.expect_exactly(200, json!({"latest_commit": "1".repeat(40)}));
    let history = json!([{"event": "Commit 1111111", "timestamp": 1.0}, {"event": "Artifact created"}]);
    let found = json!({"artifacts": [{"history": history}]});
    api.get(&format!("/search/acme/sha/{}", "a".repeat(64))).await.expect(200, found);
    // The template that the flow has when it is reported again is the one that counts.
    api.put_flow("shop").template("version: 1\n").await.ok();
    api.get(&path).await.expect(200, json!({"state": "INCOMPLETE"}));
    api.post("/artifacts/acme/shop").json(&body).await.created();
    api.get(&path).await.expect(200, json!({"state": "COMPLIANT"}));
    api.get("/artifacts/acme?flow_name=shop")
        .await
        .expect(200, json!([{"state": "COMPLIANT"}, {"state": "INCOMPLETE"}, {"state": "INCOMPLETE"}]));
}

#[apply(on_every_store)]
async fn links_and_remarks_come_back_as_they_were_sent(api: Api) {
    let urls = json!({
        "the ticket": {"href": "https://tracker.example.com/1"},
        "log": {"href": "https://ci.example.com/log", "fingerprint": "e".repeat(64)},
    });
    let remarks = json!({"report_url": "https://ci.example.com/report", "a b": {"deep": [1, null]}});
    let mut body = report();
    body.as_object_mut().unwrap().extend([
        ("external_urls".to_owned(), urls.clone()),
        ("annotations".to_owned(), remarks.clone()),
        ("template".to_owned(), json!(["one", "two"])),
        ("is_compliant".to_owned(), json!(true)),
    ]);
    api.post("/artifacts/acme/shop").json(&body).await.created();
    let mut found = urls;
    found["the ticket"]["fingerprint"] = Value::Null;
    let listed =
        json!([{"external_urls": found, "annotations": remarks, "template": [], "state": "COMPLIANT"}]);
    api.get("/artifacts/acme").await.expect(200, listed);
    for key in ["a.b", "a=b", ""] {
        body["external_urls"] = json!({key: {"href": "x"}});
        let refused = api.post("/artifacts/acme/shop").json(&body).await;
        refused.expect_message(400, INVALID);
    }
    body["external_urls"] = json!({"a": {}});
    api.post("/artifacts/acme/shop").json(&body).await.expect_field_error(400, "external_urls.a.href");
}

#[apply(on_every_store)]
async fn a_report_is_validated_field_by_field_and_stores_nothing_when_refused(api: Api) {
    let table = [
        (json!({"fingerprint": "A".repeat(64)}), "fingerprint"),
        (json!({"fingerprint": "a".repeat(63)}), "fingerprint"),
        (json!({"fingerprint": "a".repeat(65)}), "fingerprint"),
        (json!({"fingerprint": null}), "fingerprint"),
        (json!({"filename": ""}), "filename"),
        (json!({"filename": 1}), "filename"),
        (json!({"build_url": null}), "build_url"),
        (json!({"commit_url": []}), "commit_url"),
        (json!({"commit_url": "c".repeat(8193)}), "commit_url"),
        (json!({"build_url": "b".repeat(8193)}), "build_url"),
        (json!({"repo_url": "r".repeat(8193)}), "repo_url"),
        (json!({"git_commit": "a".repeat(39)}), "git_commit"),
        (json!({"git_commit": "A".repeat(40)}), "git_commit"),
        (json!({"git_commit": "g".repeat(40)}), "git_commit"),
        (json!({"trail_name": "a b"}), "trail_name"),
        (json!({"trail_name": "a".repeat(256)}), "trail_name"),
        (json!({"template_reference_name": "a.b"}), "template_reference_name"),
        (json!({"template_reference_name": ""}), "template_reference_name"),
        (json!({"annotations": ""}), "annotations"),
        (json!({"is_compliant": false}), "is_compliant"),
        (json!({"is_compliant": 0}), "is_compliant"),
        (json!({"user_data": 5}), "user_data"),
        (json!({"git_commit_info": {"sha1": COMMIT, "timestamp": true}}), "git_commit_info.timestamp"),
        (
            json!({"external_urls": {"x": {"href": "y", "fingerprint": "7509e5bda0"}}}),
            "external_urls.x.fingerprint",
        ),
    ];
    for (change, field) in table {
        let body = merged(report(), &change);
        let refused = api
            .post("/artifacts/acme/shop")
            .json(&body)
            .await
            .expect(400, json!({"message": INVALID}))
            .json();
        assert!(refused["errors"][field].is_string(), "{field}: {refused}");
    }
    api.post("/artifacts/acme/a%20b").json(report()).await.expect_message(400, INVALID);
    api.get("/flows/acme/shop").await.expect_message(404, "Flow not found");
    api.get("/artifacts/acme").await.expect_exactly(200, json!([]));
}

#[apply(on_every_store)]
async fn get_fingerprint_takes_5_to_64_hex_digits_and_names_those_that_match(api: Api) {
    let (one, two) = (format!("aaaaa1{}", "0".repeat(58)), format!("aaaaa2{}", "0".repeat(58)));
    for fingerprint in [&two, &one] {
        let mut body = report();
        body["fingerprint"] = json!(fingerprint);
        api.post("/artifacts/acme/shop").json(body).await.created();
    }
    let ambiguous = format!("matches 2 fingerprints: {one}, {two}");
    let refused = json!({"message": INVALID, "errors": {"fingerprint": ambiguous}});
    api.get("/artifacts/acme/shop/fingerprint/aaaaa").await.expect_exactly(400, refused);
    api.get("/artifacts/acme/shop/fingerprint/aaaaa2").await.expect(200, json!({"fingerprint": two}));
    let many: Vec<String> = (10..22).map(|number| format!("bbbbb{number}{}", "0".repeat(57))).collect();
    for fingerprint in many.iter().rev() {
        let mut body = report();
        body["fingerprint"] = json!(fingerprint);
        api.post("/artifacts/acme/many").json(body).await.created();
    }
    let ten = format!("matches 12 fingerprints: {}", many[..10].join(", "));
    api.get("/artifacts/acme/many/fingerprint/bbbbb").await.expect_errors(
        400,
        INVALID,
        &[("fingerprint", &ten)],
    );
    for wrong in ["aaaa", "AAAAA", "ggggg", &"a".repeat(65), "a@b"] {
        let refused = api.get(&format!("/artifacts/acme/shop/fingerprint/{wrong}")).await;
        let text = format!("String should match pattern '^[a-f0-9]{{5,64}}$' [input: {wrong}]");
        refused.expect_exactly(400, json!({"message": INVALID, "errors": {"fingerprint": text}}));
    }
    api.get("/artifacts/acme/shop/fingerprint/bbbbb").await.expect_exactly(
        404,
        json!({"message": "Artifact not found",
               "errors": {"fingerprint": "no artifact named 'bbbbb' in flow 'shop' in organization 'acme'"}}),
    );
    api.get("/artifacts/acme/none/fingerprint/bbbbb").await.expect_message(404, "Flow not found");
}

#[apply(on_every_store)]
async fn get_fingerprint_is_narrowed_by_trail_and_attestation_id(api: Api) {
    for trail in ["one", "two"] {
        let mut body = report();
        body["trail_name"] = json!(trail);
        api.post("/artifacts/acme/shop").json(body).await.created();
    }
    let path = format!("/artifacts/acme/shop/fingerprint/{}", "a".repeat(64));
    let newest = api.get(&path).await.expect(200, json!({"trail_name": "two"})).ok();
    let older = api.get(&format!("{path}?trail=one")).await.expect(200, json!({"trail_name": "one"})).ok();
    let id = older["id"].as_str().unwrap();
    assert_ne!(newest["id"], older["id"]);
    api.get(&format!("{path}?attestation_id={id}")).await.expect(200, json!({"trail_name": "one"}));
    for nothing in
        [format!("trail=two&attestation_id={id}"), "trail=none".to_owned(), "trail=a%20b".to_owned()]
    {
        let missing = json!({"message": "Artifact not found"});
        api.get(&format!("{path}?{nothing}")).await.expect(404, missing);
    }
    for wrong in ["", "x", "00000000-0000-0000-0000-000000000000"] {
        let refused = api.get(&format!("{path}?attestation_id={wrong}")).await;
        let text = format!("String should match pattern '{ID_PATTERN}' [input: {wrong}]");
        refused.expect_exactly(400, json!({"message": INVALID, "errors": {"query.attestation_id": text}}));
    }
}

#[apply(on_every_store)]
async fn get_commit_sha_returns_an_array_newest_first(api: Api) {
    for (digit, trail, commit) in [("a", "t1", COMMIT), ("b", "t2", COMMIT), ("c", "t2", &"0".repeat(40))] {
        api.post_artifact("shop", digit.repeat(64))
            .with(json!({"filename": digit, "trail_name": trail, "git_commit": commit}))
            .await
            .created();
    }
    let names = |names: &[&str]| names.iter().map(|name| json!({"filename": name})).collect::<Vec<_>>();
    let path = "/artifacts/acme/shop/commit_sha";
    api.get(&format!("{path}/{COMMIT}")).await.expect(200, json!(names(&["b", "a"])));
    api.get(&format!("{path}/{}", &COMMIT[..7])).await.expect(200, json!(names(&["b", "a"])));
    api.get(&format!("{path}/{COMMIT}?trail=t1")).await.expect(200, json!(names(&["a"])));
    api.get(&format!("{path}/{COMMIT}?trail=none")).await.expect_exactly(200, json!([]));
    api.get(&format!("{path}/fffff")).await.expect_exactly(200, json!([]));
    for wrong in ["ffff", "FFFFF", &"f".repeat(41)] {
        api.get(&format!("{path}/{wrong}")).await.expect_message(400, INVALID);
    }
    api.get("/artifacts/acme/none/commit_sha/fffff").await.expect_message(404, "Flow not found");
}

#[apply(on_every_store)]
async fn get_latest_commit_is_the_newest_reports_or_empty(api: Api) {
    for (branch, commit) in [("main", "1".repeat(40)), ("dev", "2".repeat(40))] {
        let mut body = report();
        body["git_commit"] = json!(commit);
        body["git_commit_info"] = json!({"sha1": commit, "branch": branch});
        api.post("/artifacts/acme/shop").json(body).await.created();
    }
    api.post("/artifacts/acme/shop").json(report()).await.created();
    let path = format!("/artifacts/acme/shop/{}/latest_commit", "a".repeat(64));
    api.get(&path).await.expect_exactly(200, json!({"latest_commit": "2".repeat(40)}));
    api.get(&format!("{path}?branch=main"))
        .await
        .expect_exactly(200, json!({"latest_commit": "1".repeat(40)}));
    api.get(&format!("{path}?branch=none")).await.expect_exactly(200, json!({"latest_commit": ""}));
    let unknown = format!("/artifacts/acme/shop/{}/latest_commit", "f".repeat(64));
    api.get(&unknown).await.expect_exactly(200, json!({"latest_commit": ""}));
    api.get("/artifacts/acme/shop/aaaa/latest_commit").await.expect_message(400, INVALID);
    api.get("/artifacts/acme/none/aaaaa/latest_commit").await.expect_message(404, "Flow not found");
}

#[apply(on_every_store)]
async fn artifacts_are_listed_newest_first_by_flow_and_repo(api: Api) {
    let repo =
        json!({"name": "acme/shop", "url": "https://github.com/acme/shop", "id": "7", "provider": "github"});
    for (digit, flow, repo) in [("a", "shop", Some(&repo)), ("b", "shop", None), ("c", "other", Some(&repo))]
    {
        let report =
            api.post_artifact(flow, digit.repeat(64)).with(json!({"filename": digit, "repo_info": repo}));
        report.await.created();
    }
    let names = |names: &[&str]| names.iter().map(|name| json!({"filename": name})).collect::<Vec<_>>();
    api.get("/artifacts/acme").await.expect(200, json!(names(&["c", "b", "a"])));
    api.get("/artifacts/acme?per_page=2&page=2").await.expect(200, json!(names(&["a"])));
    api.get("/artifacts/acme?page=3").await.expect_exactly(200, json!([]));
    api.get("/artifacts/acme?flow_name=shop").await.expect(200, json!(names(&["b", "a"])));
    api.get("/artifacts/acme?repo_name=acme%2Fshop").await.expect(200, json!(names(&["c", "a"])));
    api.get("/artifacts/acme?repo_name=none").await.expect_message(404, "Repo not found");
    api.get("/artifacts/acme?flow_name=none").await.expect_message(404, "Flow not found");
    api.get("/artifacts/acme?flow_name=a%20b").await.expect_message(400, INVALID);
}

/// The resolution of a search: fingerprints and commits, each as a digit.
fn resolved(kind: &str, fingerprints: &[&str], commits: &[&str]) -> Value {
    let matches = |kind: &str, digits: &[&str], len| {
        let matches = Vec::from_iter(digits.iter().map(|digit| digit.repeat(len)));
        json!({"type": kind, "count": digits.len(), "matches": matches})
    };
    let (fingerprints, commits) = (matches("fingerprint", fingerprints, 64), matches("commit", commits, 40));
    let full_match = fingerprints["matches"].get(0).or(commits["matches"].get(0)).unwrap().clone();
    json!({"type": kind, "full_match": full_match, "fingerprints": fingerprints, "commits": commits})
}

#[apply(on_every_store)]
async fn a_search_finds_what_begins_so_in_each_flow_newest_first(api: Api) {
    api.given_environments("docker", &["prod", "test"]).await;
    api.given_flow_with_template().await;
    api.given_artifact('a', "t").await;
    api.given_test('a', "t", true).await;
    for _ in 0..2 {
        let url = json!({"commit_url": "d"});
        api.post_artifact("old", "a".repeat(64)).with(url).await.created();
    }
    for environment in ["test", "prod"] {
        api.report_running(environment, &[('a', &[1])]).await.created();
    }
    api.report_running("test", &[]).await.created();
    let fingerprint = "a".repeat(64);
    let now = 1_783_538_510.0;
    let ran = [
        "Started running in prod#1 environment",
        "Started running in test#1 environment",
        "No longer running in test#2 environment",
    ];
    let history = |events: &[&str]| {
        Vec::from_iter(events.iter().map(|event| json!({"event": event, "timestamp": now})))
    };
    let mut in_web = vec![json!({"event": "Commit ccccccc", "timestamp": 1000.0})];
    in_web.extend(history(&[&["api reported", "test evidence received"], &ran[..]].concat()));
    let in_web = json!({
        "fingerprint": fingerprint, "name": "api:1", "has_provenance": true, "git_commit": "c".repeat(40),
        "pipeline": "web", "flow": "web", "trail": "t", "template_reference_name": "api",
        "build_url": "http://b/1", "commit_url": "http://c/1", "compliance_state": "COMPLIANT",
        "running_in": ["prod"], "exited_from": ["test"],
        "html_url": format!("http://localhost:8001/acme/flows/web/artifacts/{fingerprint}"),
        "api_url": format!("http://localhost:8001/api/v2/artifacts/acme/web/fingerprint/{fingerprint}"),
        "history": in_web,
    });
    let in_old = json!({
        "fingerprint": fingerprint, "name": "app", "has_provenance": true, "git_commit": "",
        "pipeline": "old", "flow": "old", "trail": "", "template_reference_name": "",
        "build_url": "b", "commit_url": "d", "compliance_state": "COMPLIANT",
        "running_in": ["prod"], "exited_from": ["test"],
        "html_url": format!("http://localhost:8001/acme/flows/old/artifacts/{fingerprint}"),
        "api_url": format!("http://localhost:8001/api/v2/artifacts/acme/old/fingerprint/{fingerprint}"),
        "history": history(&[&["Artifact created"], &ran[..]].concat()),
    });
    let both = json!({"resolved_to": resolved("fingerprint", &["a"], &[]), "artifacts": [in_old, in_web]});
    for value in ["aaaaa", &fingerprint] {
        api.get(&format!("/search/acme/sha/{value}")).await.expect_exactly(200, both.clone());
    }
    let one = json!({"resolved_to": resolved("commit", &[], &["c"]), "artifacts": [in_web]});
    for value in ["ccccccc", &"c".repeat(40)] {
        api.get(&format!("/search/acme/sha/{value}")).await.expect_exactly(200, one.clone());
    }
    api.given_artifact('c', "t").await;
    let flows = json!([{"fingerprint": "c".repeat(64)}, {"fingerprint": fingerprint, "flow": "web"}]);
    let several = json!({"resolved_to": resolved("multiple", &["c"], &["c"]), "artifacts": flows});
    api.get("/search/acme/sha/ccccc").await.expect(200, several);
}

#[apply(on_every_store)]
async fn a_search_finds_what_has_run_and_was_never_reported(api: Api) {
    api.given_environments("docker", &["prod", "test"]).await;
    for environment in ["prod", "test"] {
        api.report_running(environment, &[('b', &[1])]).await.created();
    }
    api.report_running("test", &[]).await.created();
    let found = api.get("/search/acme/sha/bbbbb").await.ok();
    assert_eq!(found["resolved_to"], resolved("fingerprint", &["b"], &[]));
    let artifact = json!({
        "fingerprint": "b".repeat(64), "name": "image-b", "has_provenance": false, "git_commit": "", "pipeline": "",
        "flow": "", "trail": "", "template_reference_name": "", "build_url": "", "commit_url": "",
        "compliance_state": "NON-COMPLIANT", "running_in": ["prod"], "exited_from": ["test"], "html_url": "",
        "api_url": "",
        "history": [
            {"event": "Started running in prod#1 environment", "timestamp": 1_783_538_510.0},
            {"event": "Started running in test#1 environment", "timestamp": 1_783_538_510.0},
            {"event": "No longer running in test#2 environment", "timestamp": 1_783_538_510.0},
        ],
    });
    assert_eq!(found["artifacts"], json!([artifact]));
}

#[apply(on_every_store)]
async fn a_search_takes_5_to_64_hex_digits_and_says_when_nothing_begins_so(api: Api) {
    api.post("/artifacts/acme/shop").json(report()).await.created();
    for value in ["fffff", &"f".repeat(40), &"f".repeat(64), &format!("{}b", "a".repeat(63))] {
        let message = format!("No matches for '{value}'.");
        let looked_for = format!("no fingerprint or commit begins with '{value}' in organization 'acme'");
        let expected = json!({"message": message, "errors": {"search_value": looked_for}});
        api.get(&format!("/search/acme/sha/{value}")).await.expect_exactly(404, expected);
    }
    for wrong in ["aaaa", "AAAAA", "ggggg", "aaaaa%25", &"a".repeat(65)] {
        let input = wrong.replace("%25", "%");
        let text = format!("String should match pattern '^[a-f0-9]{{5,64}}$' [input: {input}]");
        let expected = json!({"message": INVALID, "errors": {"search_value": text}});
        api.get(&format!("/search/acme/sha/{wrong}")).await.expect_exactly(400, expected);
    }
}

#[apply(with_every_store)]
async fn a_search_shows_100_of_each_and_counts_all(api: Api, _: Arc<dyn Store>) {
    let fingerprint = |number: u64| format!("abcde{number:059x}");
    for number in 0..101 {
        let mut body = report();
        body["fingerprint"] = json!(fingerprint(number));
        body["git_commit"] = json!(format!("abcde{number:035x}"));
        api.post("/artifacts/acme/shop").json(body).await.created();
    }
    let found = api.get("/search/acme/sha/abcde").await.ok();
    for kind in ["fingerprints", "commits"] {
        assert_eq!(found["resolved_to"][kind]["count"], 101, "{kind}");
        assert_eq!(found["resolved_to"][kind]["matches"].as_array().unwrap().len(), 100, "{kind}");
    }
    let shown = Vec::from_iter(found["artifacts"].as_array().unwrap().iter().map(|one| &one["fingerprint"]));
    let newest = Vec::from_iter((1..101).rev().map(|number| json!(fingerprint(number))));
    assert_eq!(shown, Vec::from_iter(&newest));
}
