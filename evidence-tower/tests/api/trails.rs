//! Trails: begun, changed, evaluated and listed (specification, Trails), and their PDF.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use evidence_core::id::SystemRandom;
use evidence_core::{Fact, Write};
use futures_util::FutureExt;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, ETAG};

use crate::intercepting_store::InterceptingStore;
use crate::support::prelude::*;

/// The template of the examples in the documentation: `bar` on the trail, `cli` with `foo`.
pub(crate) const TEMPLATE: &str = "version: 1\ntrail:\n  attestations:\n    - name: bar\n      type: generic\n  artifacts:\n    - name: cli\n      attestations:\n        - name: foo\n          type: generic\n";
pub(crate) const COMMIT: &str = "9e9a2c4b5d6e7f8091a2b3c4d5e6f70812345678";

impl Api {
    /// Adds an attestation of this kind to the trail `t` of the flow `shop`.
    pub(crate) fn attest(&self, kind: &str, document: &Value) -> RequestBuilder {
        self.post_attestation("shop", "t", kind).data_json(document)
    }

    /// Reports to trail `t` of flow `shop` an artifact with this template name, whose fingerprint is `digit` 64 times.
    pub(crate) async fn artifact(&self, digit: &str, name: &str) {
        self.post_artifact("shop", digit.repeat(64)).with(json!({
            "trail_name": "t", "template_reference_name": name, "filename": "cli.bin", "git_commit": COMMIT,
            "git_commit_info": {"sha1": COMMIT, "timestamp": 1_783_530_000, "branch": "main"},
            "build_url": "https://ci.example.com/1", "commit_url": "https://git.example.com/c/1",
        })).await.expect_exactly(201, json!({"message": "OK"}));
    }
}

#[apply(on_every_store)]
async fn a_trail_is_begun_with_201_and_changed_with_200(api: Api) {
    api.given_flow("shop", TEMPLATE).await;
    let begun = json!({
        "name": "t", "description": "first", "origin_url": "https://ci.example.com/1", "user_data": {"a": 1},
        "git_commit_info": {"sha1": COMMIT, "message": "m", "author": "A <a@b>", "timestamp": 5},
    });
    api.put_trail("shop", &begun).await.expect_exactly(201, json!("OK"));
    let read = json!({
        "name": "t", "description": "first", "origin_url": "https://ci.example.com/1", "user_data": {"a": 1},
        "git_commit_info": {"sha1": COMMIT, "message": "m", "author": "A <a@b>", "timestamp": 5.0, "url": ""},
        "compliance_state": "INCOMPLETE", "is_compliant": false, "created_by": "jane",
        "template": {"version": 1, "content": TEMPLATE}, "flow": {"name": "shop", "tags": {}},
        "html_url": "http://localhost:8001/acme/flows/shop/trails/t",
    });
    api.get("/trails/acme/shop/t").await.expect(200, read.clone());
    // Absent fields stay as they are, and an update without a change is no event.
    api.put_trail("shop", &json!({"name": "t"})).await.expect_exactly(200, json!("OK"));
    let trail = api.get("/trails/acme/shop/t").await.expect(200, read).ok();
    assert_eq!(trail["events"].as_array().unwrap().len(), 1);
    api.put_trail("shop", &json!({"name": "t", "description": "second"}))
        .await
        .expect_exactly(200, json!("OK"));
    let trail = api.get("/trails/acme/shop/t").await.expect(200, json!({"description": "second"})).ok();
    assert_eq!(trail["events"][1]["type"], "trail_updated");
    assert_eq!(trail["events"][1]["changes"], json!(["description"]));
}

#[apply(on_every_store)]
async fn the_commit_of_a_trail_is_null_or_has_every_text_and_a_time(api: Api) {
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    api.get("/trails/acme/shop/t").await.expect(200, json!({"git_commit_info": null}));
    api.put_trail("shop", &json!({"name": "t", "git_commit_info": {"sha1": COMMIT}})).await.ok();
    let commit =
        json!({"sha1": COMMIT, "message": "", "author": "", "branch": "", "timestamp": 0.0, "url": ""});
    api.get("/trails/acme/shop/t").await.expect(200, json!({"git_commit_info": commit}));
}

#[apply(on_every_store)]
async fn a_trail_keeps_its_template_until_it_is_begun_again(api: Api) {
    api.given_flow("shop", TEMPLATE).await;
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    api.put_flow("shop").template("version: 1\n").await.expect_exactly(200, json!("OK"));
    api.get("/trails/acme/shop/t").await.expect(200, json!({"compliance_state": "INCOMPLETE"}));
    api.put_trail("shop", &json!({"name": "t"})).await.expect_exactly(200, json!("OK"));
    let trail =
        api.get("/trails/acme/shop/t").await.expect(200, json!({"compliance_state": "COMPLIANT"})).ok();
    assert_eq!(trail["events"][1]["changes"], json!(["template"]));
}

#[apply(on_every_store)]
async fn a_template_that_breaks_the_rules_is_refused_with_every_mistake(api: Api) {
    let wrong = "version: 1\ntrail:\n  attestations:\n    - name: x\n      type: not-supported\n    - type: generic\n";
    for path in ["/trails/acme/shop", "/flows/acme/template_file"] {
        let refused = api
            .put(path)
            .data_json(json!({"name": "t", "description": ""}))
            .template(wrong)
            .await
            .expect(400, json!({"message": INVALID}))
            .body;
        let refused: Value = serde_json::from_slice(&refused).unwrap();
        let text = refused["errors"]["template_file"].as_str().unwrap();
        assert!(text.starts_with("2 validation errors for Template\n"), "{text}");
    }
    api.get("/flows/acme/shop").await.expect_message(404, "Flow not found");
}

#[apply(on_every_store)]
async fn a_url_is_recorded_as_it_was_sent_or_with_what_the_standard_does_not_allow_encoded(api: Api) {
    let table = [
        (
            "https://dev.azure.com/exampleorg/My Project/_build/results?buildId=12",
            "https://dev.azure.com/exampleorg/My%20Project/_build/results?buildId=12",
        ),
        (
            "https://jenkins.example.com/job/[a]/job/Ü/1/",
            "https://jenkins.example.com/job/%5Ba%5D/job/%C3%9C/1/",
        ),
        ("HTTPS://Example.com:443/a/../b?c=%41", "HTTPS://Example.com:443/a/../b?c=%41"),
        ("https://user:secret@example.com/a", "https://example.com/a"),
        ("https://user@example.com/a", "https://example.com/a"),
    ];
    for (sent, recorded) in table {
        let commit = json!({"sha1": "f".repeat(40), "url": sent});
        let repo = json!({"name": "acme/shop", "url": sent});
        let trail = json!({"name": "t", "origin_url": sent, "external_urls": {"a": {"href": sent}},
                           "git_commit_info": commit, "repo_info": repo});
        api.put_trail("shop", &trail).await;
        let trail = api.get("/trails/acme/shop/t").await.ok();
        assert_eq!(trail["origin_url"], recorded);
        assert_eq!(trail["external_urls"]["a"]["href"], recorded);
        assert_eq!(trail["git_commit_info"]["url"], recorded);
        let repos = api.get("/repos/acme?name=acme/shop").await.ok().to_string();
        assert!(repos.contains(recorded), "{repos}");
        assert!(!repos.contains("secret") && !trail.to_string().contains("secret"), "{sent}");
    }
}

#[apply(on_every_store)]
async fn field_trail_name_pattern_and_length_255(api: Api) {
    let pattern = r"^[a-zA-Z0-9][a-zA-Z0-9\-_.~]*$";
    for name in ["", "-x", "a b", "a/b", "é", "t\n", "foo?$bar"] {
        let refused = api.put_trail("shop", &json!({"name": name})).await;
        let text = format!("String should match pattern '{pattern}' [input: {name}]");
        refused.expect_exactly(400, json!({"message": INVALID, "errors": {"name": text}}));
    }
    api.put_trail("shop", &json!({"name": "x".repeat(256)})).await.expect_message(400, INVALID);
    api.put_trail("shop", &json!({"name": "x".repeat(255)})).await.created();
    api.put_trail("shop", &json!({})).await.expect_missing_field("name");
    api.put_trail("shop", &json!({"name": 5})).await.expect_message(400, INVALID);
}

#[apply(on_every_store)]
async fn optional_parts_of_a_trail_are_validated(api: Api) {
    let table = [
        (json!({"origin_url": ""}), "origin_url"),
        (json!({"origin_url": "ftp://x"}), "origin_url"),
        (json!({"origin_url": "https://"}), "origin_url"),
        (json!({"user_data": "text"}), "user_data"),
        (json!({"external_urls": ""}), "external_urls"),
        (json!({"external_urls": {"a.b": {"href": "x"}}}), "external_urls.a.b"),
        (
            json!({"external_urls": {"a": {"href": "x", "fingerprint": "7509e5bda0"}}}),
            "external_urls.a.fingerprint",
        ),
        (json!({"external_urls": {"a": {"href": "x", "more": 1}}}), "external_urls.a.more"),
        (json!({"git_commit_info": ""}), "git_commit_info"),
        (json!({"git_commit_info": {}}), "git_commit_info.sha1"),
        (json!({"git_commit_info": {"sha1": "x", "timestamp": "now"}}), "git_commit_info.timestamp"),
        (
            json!({"git_commit_info": {"sha1": "x", "timestamp": 1_776_252_299_785_i64}}),
            "git_commit_info.timestamp",
        ),
        (json!({"repo_info": {"url": "u"}}), "repo_info.name"),
        (json!({"repo_info": {"name": "n", "url": "u", "provider": "sourceforge"}}), "repo_info.provider"),
        (json!({"description": 7}), "description"),
        (json!({"description": "a\u{0}b"}), "description"),
    ];
    for (more, field) in table {
        let document = merged(json!({"name": "t"}), &more);
        api.put_trail("shop", &document).await.expect_field_error(400, field);
    }
    api.get("/trails/acme").await.expect(200, json!({"data": [], "pagination": {"total": 0}}));
}

#[apply(on_every_store)]
async fn error_404_unknown_flow_or_trail(api: Api) {
    api.get("/trails/acme/none/t").await.expect_exactly(
        404,
        json!({"message": "Flow not found", "errors": {"flow_name": "no flow named 'none' in organization 'acme'"}}),
    );
    api.given_flow("shop", TEMPLATE).await;
    api.get("/trails/acme/shop/none").await.expect_exactly(
        404,
        json!({"message": "Trail not found",
               "errors": {"trail_name": "no trail named 'none' in flow 'shop' in organization 'acme'"}}),
    );
    for path in ["/trails/acme/none/t/audit_pdf", "/trails/acme/shop/none/audit_pdf"] {
        api.get(path).await.expect_message(404, "Flow or trail not found");
    }
}

#[apply(on_every_store)]
async fn a_trail_is_answered_with_all_that_its_attestations_say(api: Api) {
    api.given_flow("shop", TEMPLATE).await;
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    let expanded = "/trails/acme/shop/t?expand=attestations";
    assert_eq!(api.get(expanded).await.ok()["attestations"], json!([]));
    api.artifact("a", "cli").await;
    let path = "/attestations/acme/shop/trail/t/generic";
    for number in 0..3 {
        for (name, more) in [("bar", json!({})), ("foo", json!({"artifact_fingerprint": "a".repeat(64)}))] {
            let document = merged(
                json!({
                    "attestation_name": name, "is_compliant": number != 1, "description": format!("the {number}"),
                    "user_data": {"number": number},
                }),
                &more,
            );
            api.post(path).data_json(&document).file("attachment_file", "a.txt", "hello").await.created();
        }
    }
    api.put_trail("shop", &json!({"name": "u"})).await.created();
    let elsewhere = json!({"attestation_name": "bar", "is_compliant": true});
    api.post_attestation("shop", "u", "generic").data_json(elsewhere).await.created();

    let plain = api.get("/trails/acme/shop/t").await.ok();
    assert!(plain.get("attestations").is_none(), "{plain}");
    let mut trail = api.get(expanded).await.ok();
    let attestations = trail.as_object_mut().unwrap().remove("attestations").unwrap();
    assert_eq!(trail, plain);
    // Each as it is answered alone, the newest first.
    let alone = async |path: &str| api.get(path).await.ok().as_array().unwrap().clone();
    let bars = alone("/attestations/acme/shop/trail/t/bar").await;
    let foos = alone(&format!("/attestations/acme/shop/artifact/{}/foo", "a".repeat(64))).await;
    let expected: Vec<Value> = foos.into_iter().zip(bars).flat_map(|(foo, bar)| [foo, bar]).collect();
    assert_eq!((attestations, expected.len()), (Value::from(expected), 6));

    for wrong in ["expand=events", "expand=", "expand=attestations&expand=x"] {
        let refused = api.get(&format!("/trails/acme/shop/t?{wrong}")).await.json();
        let fields = refused["errors"].as_object().unwrap();
        assert!(fields.keys().all(|field| field.starts_with("query.expand")), "{wrong}: {refused}");
    }
}

#[apply(on_every_store)]
async fn trails_are_listed_newest_first_in_pages_and_narrowed(api: Api) {
    api.given_flow("shop", TEMPLATE).await;
    for name in ["a", "b", "t"] {
        api.put_trail("shop", &json!({"name": name})).await.created();
    }
    api.put_trail("other", &json!({"name": "o"})).await.created();
    api.artifact("a", "cli").await;
    let page = |names: &[&str], pagination: Value| {
        let data: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"data": data, "pagination": pagination})
    };
    let whole = json!({"total": 4, "page": 1, "per_page": 20, "page_count": 1});
    api.get("/trails/acme").await.expect(200, page(&["o", "t", "b", "a"], whole));
    let second = json!({"total": 4, "page": 2, "per_page": 3, "page_count": 2});
    api.get("/trails/acme?per_page=3&page=2").await.expect(200, page(&["a"], second));
    let past = json!({"total": 4, "page": 9, "per_page": 3, "page_count": 2});
    api.get("/trails/acme?per_page=3&page=9").await.expect(200, page(&[], past));
    api.get("/trails/acme?flow=other").await.expect(200, page(&["o"], json!({"total": 1})));
    api.get("/trails/acme?fingerprint=aaaaa").await.expect(200, page(&["t"], json!({"total": 1})));
    api.get("/trails/acme?flow=other&fingerprint=aaaaa").await.expect(200, page(&[], json!({"total": 0})));
    let patch = api.patch("/tags/acme/flow/other").json(json!({"set_tags": {"team": "x"}}));
    patch.await.expect_exactly(200, json!("OK"));
    api.get("/trails/acme?flow_tag=team%3Dx").await.expect(200, page(&["o"], json!({"total": 1})));
    api.get("/trails/acme?flow_tag=team%3Dy").await.expect(200, page(&[], json!({"total": 0})));
    api.get("/trails/acme?flow=none").await.expect_message(404, "Flow not found");
    for query in ["page=0", "page=", "page=x", "page=9223372036854775808", "per_page=0", "per_page=101"] {
        api.get(&format!("/trails/acme?{query}")).await.expect_message(400, INVALID);
    }
    api.get("/trails/acme?page=9223372036854775807").await.expect(200, json!({"data": []}));
    api.get("/trails/foobar").key(JOHN).await.expect(200, json!({"data": []}));
}

#[apply(on_every_store)]
async fn the_trails_of_a_flow_are_listed_whole_or_in_pages(api: Api) {
    api.given_flow("shop", TEMPLATE).await;
    let none = json!({"total": 0, "page": 1, "per_page": 0, "page_count": 0});
    let none = json!({"data": [], "pagination": none});
    api.get("/trails/acme/shop").await.expect_exactly(200, none);
    let none = json!({"total": 0, "page": 1, "per_page": 5, "page_count": 0});
    let none = json!({"data": [], "pagination": none});
    api.get("/trails/acme/shop?per_page=5").await.expect_exactly(200, none);
    for name in ["a", "b", "t"] {
        api.put_trail("shop", &json!({"name": name})).await.created();
    }
    api.put_trail("other", &json!({"name": "o"})).await.created();
    // Putting it again makes no trail newer.
    api.put_trail("shop", &json!({"name": "a", "description": "again"})).await.ok();
    let named = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
    let all = json!({"total": 3, "page": 1, "per_page": 3, "page_count": 1});
    let all = json!({"data": named(&["t", "b", "a"]), "pagination": all});
    api.get("/trails/acme/shop").await.expect(200, all);
    for (query, names, page, per_page, page_count) in [
        ("page=1", &["t", "b", "a"][..], 1, 20, 1),
        ("page=2", &[], 2, 20, 1),
        ("per_page=100", &["t", "b", "a"][..], 1, 100, 1),
        ("per_page=2", &["t", "b"], 1, 2, 2),
        ("per_page=2&page=2", &["a"], 2, 2, 2),
        ("per_page=2&page=3", &[], 3, 2, 2),
        ("per_page=1&page=9223372036854775807", &[], i64::MAX, 1, 3),
    ] {
        let pagination = json!({"total": 3, "page": page, "per_page": per_page, "page_count": page_count});
        let paged = api.get(&format!("/trails/acme/shop?{query}")).await;
        paged.expect(200, json!({"data": named(names), "pagination": pagination}));
    }
    for query in
        ["page=0", "page=", "page=x", "page=9223372036854775808", "per_page=0", "per_page=", "per_page=101"]
    {
        api.get(&format!("/trails/acme/shop?{query}")).await.expect_message(400, INVALID);
    }
    // Each is as it is in the list of the organization.
    let of_org = api.get("/trails/acme?flow=shop").await.ok();
    let of_flow = api.get("/trails/acme/shop").await.ok();
    assert_eq!(of_flow["data"], of_org["data"]);
    api.get("/trails/acme/none").await.expect_exactly(
        404,
        json!({"message": "Flow not found", "errors": {"flow_name": "no flow named 'none' in organization 'acme'"}}),
    );
    // A flow of this name in another organization has none of them.
    api.put("/trails/foobar/shop").key(JOHN).data_json(r#"{"name": "x"}"#).await.created();
    api.get("/trails/foobar/shop").key(JOHN).await.expect(200, json!({"data": named(&["x"])}));
}

/// The rows of the documented table of states.
#[apply(on_every_store)]
async fn states_follow_from_the_template_and_what_was_reported(api: Api) {
    api.given_flow("shop", TEMPLATE).await;
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    let missing = json!({
        "compliance_state": "INCOMPLETE",
        "compliance_status": {
            "status": "INCOMPLETE",
            "attestations_statuses": [{"attestation_name": "bar", "status": "MISSING", "is_compliant": null,
                                       "attestation_id": null, "unexpected": false}],
            "artifacts_statuses": {"cli": {"status": "MISSING", "is_compliant": null, "artifact_id": null}},
        },
    });
    api.get("/trails/acme/shop/t").await.expect(200, missing);
    api.artifact("a", "cli").await;
    let state = async |trail: &str, artifact: &str| {
        let expected = json!({
            "compliance_state": trail,
            "compliance_status": {"artifacts_statuses": {"cli": {"status": artifact}}},
        });
        api.get("/trails/acme/shop/t").await.expect(200, expected);
        let path = format!("/artifacts/acme/shop/fingerprint/{}", "a".repeat(64));
        api.get(&path).await.expect(200, json!({"state": artifact}));
    };
    state("INCOMPLETE", "INCOMPLETE").await;
    let generic = |name: &str, compliant: bool| json!({"attestation_name": name, "is_compliant": compliant});
    let on_cli = |name: &str, compliant: bool| json!({"attestation_name": name, "is_compliant": compliant, "artifact_fingerprint": "a".repeat(64)});
    api.attest("generic", &on_cli("foo", true)).await.created();
    state("INCOMPLETE", "INCOMPLETE").await;
    api.attest("generic", &generic("bar", true)).await.created();
    state("COMPLIANT", "COMPLIANT").await;
    api.attest("generic", &on_cli("foo", false)).await.created();
    state("NON-COMPLIANT", "NON-COMPLIANT").await;
    api.attest("generic", &on_cli("foo", true)).await.created();
    state("COMPLIANT", "COMPLIANT").await;
    // One that nobody expected counts all the same.
    api.attest("generic", &generic("extra", false)).await.created();
    state("NON-COMPLIANT", "NON-COMPLIANT").await;
    let trail = api.get("/trails/acme/shop/t").await.ok();
    assert_eq!(trail["compliance_status"]["attestations_statuses"][1]["unexpected"], json!(true));
}

#[apply(on_every_store)]
async fn an_attestation_by_template_name_and_commit_waits_for_its_artifact(api: Api) {
    api.given_flow("shop", TEMPLATE).await;
    let named = json!({
        "attestation_name": "foo", "is_compliant": true, "target_artifacts": ["cli"], "git_commit_info": {"sha1": COMMIT},
    });
    api.attest("generic", &named).await.created();
    let other = json!({
        "attestation_name": "foo", "is_compliant": false, "target_artifacts": ["cli"], "git_commit_info": {"sha1": "other"},
    });
    api.attest("generic", &other).await.created();
    api.artifact("b", "cli").await;
    let expected = json!({"attestation_name": "foo", "status": "COMPLETE", "is_compliant": true});
    let statuses =
        json!({"compliance_status": {"artifacts_statuses": {"cli": {"attestations_statuses": [expected]}}}});
    let trail = api.get("/trails/acme/shop/t").await.expect(200, statuses).ok();
    assert_eq!(trail["events"][1]["type"], "trail_attestation_for_artifact_reported");
    assert_eq!(trail["events"][3]["type"], "artifact_creation_reported");
}

#[apply(on_every_store)]
async fn a_failing_attestation_counts_before_its_artifact_and_until_that_is_replaced(api: Api) {
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    let failed = json!({
        "attestation_name": "scan", "is_compliant": false, "target_artifacts": ["cli"],
        "git_commit_info": {"sha1": COMMIT},
    });
    api.attest("generic", &failed).await.created();
    let line =
        json!({"attestation_name": "scan", "is_compliant": false, "unexpected": true, "status": "COMPLETE"});
    let awaited = json!({
        "artifact_fingerprint": null, "status": "MISSING", "is_compliant": null, "unexpected": true,
        "attestations_statuses": [line],
    });
    let listed = |cli: Value| json!({"status": "NON-COMPLIANT", "artifacts_statuses": {"cli": cli}});
    let expect = async |state: &str, status: Value| {
        let trail = json!({"compliance_state": state, "compliance_status": status});
        api.get("/trails/acme/shop/t").await.expect(200, trail.clone());
        api.get("/trails/acme?flow=shop").await.expect(200, json!({"data": [trail]}));
    };
    expect("NON-COMPLIANT", listed(awaited)).await;
    api.artifact("1", "cli").await;
    let reported = json!({"status": "NON-COMPLIANT", "is_compliant": false, "attestations_statuses": [line]});
    expect("NON-COMPLIANT", listed(reported)).await;
    // Another build under the same template name, from another commit: what failed was about the one before.
    let other = json!({
        "trail_name": "t", "template_reference_name": "cli", "fingerprint": "2".repeat(64), "filename": "cli.bin",
        "git_commit": "f".repeat(40), "git_commit_info": {"sha1": "f".repeat(40), "timestamp": 1},
        "build_url": "https://ci.example.com/2", "commit_url": "https://git.example.com/c/2",
    });
    api.post("/artifacts/acme/shop").json(other).await.created();
    let replaced = json!({"cli": {"status": "COMPLIANT", "attestations_statuses": []}});
    expect("COMPLIANT", json!({"artifacts_statuses": replaced})).await;
    let trail = api.get("/trails/acme/shop/t").await.ok();
    let attested = |event: &&Value| event["type"] == "trail_attestation_for_artifact_reported";
    assert_eq!(trail["events"].as_array().unwrap().iter().filter(attested).count(), 1);
    // One more about that commit says nothing of the other build either; about a third one, it does.
    api.attest("generic", &failed).await.created();
    expect("COMPLIANT", json!({"artifacts_statuses": replaced})).await;
    let mut ahead = failed.clone();
    ahead["git_commit_info"]["sha1"] = json!("e".repeat(40));
    api.attest("generic", &ahead).await.created();
    let waiting = json!({"status": "MISSING", "unexpected": true, "attestations_statuses": [line]});
    let key = format!("cli@{}", "e".repeat(40));
    expect("NON-COMPLIANT", json!({"artifacts_statuses": {"cli": {"status": "COMPLIANT"}, key: waiting}}))
        .await;
}

#[apply(on_every_store)]
async fn a_failing_attestation_counts_when_its_artifact_is_reported_again_without_the_commit(api: Api) {
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    api.artifact("1", "cli").await;
    let failed = json!({
        "attestation_name": "scan", "is_compliant": false, "target_artifacts": ["cli"],
        "git_commit_info": {"sha1": COMMIT},
    });
    api.attest("generic", &failed).await.created();
    api.post_artifact("shop", "1".repeat(64))
        .with(json!({
            "trail_name": "t", "template_reference_name": "cli", "filename": "cli.bin",
            "build_url": "https://ci.example.com/2", "commit_url": "https://git.example.com/c/2",
        }))
        .await
        .created();
    let line = json!({"attestation_name": "scan", "is_compliant": false, "unexpected": true});
    let cli = json!({"status": "NON-COMPLIANT", "attestations_statuses": [line]});
    let status = json!({"status": "NON-COMPLIANT", "artifacts_statuses": {"cli": cli}});
    let trail = json!({"compliance_state": "NON-COMPLIANT", "compliance_status": status});
    api.get("/trails/acme/shop/t").await.expect(200, trail);
    let artifact = json!({
        "state": "NON-COMPLIANT", "git_commit": "", "evidence": {"scan": {"is_compliant": false}},
        "history": [{"event": "cli reported"}, {"event": "scan evidence received"}],
    });
    let path = format!("/artifacts/acme/shop/fingerprint/{}", "1".repeat(64));
    api.get(&path).await.expect(200, artifact.clone());
    api.get("/artifacts/acme?flow_name=shop")
        .await
        .expect(200, json!([artifact, {"state": "NON-COMPLIANT"}]));
    let found = json!([{"attestation_name": "scan", "is_compliant": false}]);
    api.get(&format!("/attestations/acme/shop/artifact/{}/scan", "1".repeat(64))).await.expect(200, found);
}

#[apply(on_every_store)]
async fn audit_pdf_downloads_the_trail_report(api: Api) {
    api.given_flow("shop", TEMPLATE).await;
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    api.artifact("a", "cli").await;
    api.post_generic_attestation("shop", "bar", true).await.created();
    let pdf = async || {
        let reply = api.get("/trails/acme/shop/t/audit_pdf").await;
        assert_eq!(reply.status, 200);
        let reply = reply.expect_header(CONTENT_TYPE, "application/pdf");
        reply.expect_header(CONTENT_DISPOSITION, "attachment; filename=\"shop-t.pdf\"")
    };
    let first = pdf().await;
    assert!(first.body.starts_with(b"%PDF-"));
    // Other trails' writes change nothing in it.
    api.put_trail("shop", &json!({"name": "other"})).await.created();
    let second = pdf().await;
    assert_eq!((&first.body, first.headers.get(ETAG)), (&second.body, second.headers.get(ETAG)));
    api.post_generic_attestation("shop", "bar", false).await.created();
    assert_ne!(pdf().await.body, second.body);
}

#[apply(on_every_store)]
async fn an_update_names_who_updated_and_not_who_began(api: Api) {
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    api.put_trail("shop", &json!({"name": "t", "description": "second"})).key("member-key").await.ok();
    let events = api.get("/trails/acme/shop/t").await.ok()["events"].clone();
    let (begun, updated) = (&events[0], &events[1]);
    assert_eq!((&begun["type"], &updated["type"]), (&json!("trail_reported"), &json!("trail_updated")));
    assert_ne!(begun["setting_user_id"], updated["setting_user_id"], "{events}");
    api.put_trail("shop", &json!({"name": "own"})).key("member-key").await.created();
    let own = api.get("/trails/acme/shop/own").await.ok()["events"][0].clone();
    assert_eq!(updated["setting_user_id"], own["setting_user_id"], "{own}");
    for event in [begun, updated] {
        assert_eq!(event["trail_data_json"]["creating_user_id"], begun["setting_user_id"]);
    }
}

#[apply(with_every_store)]
async fn a_trail_is_as_its_last_event_says_whatever_is_written_meanwhile(api: Api, store: Arc<dyn Store>) {
    api.given_flow("shop", TEMPLATE).await;
    api.put_trail("shop", &json!({"name": "t"})).await.created();
    let jane = store.user("jane").await.unwrap().unwrap();
    let org = acme(&*store).await;
    let shop = store.flow(org, "shop").await.unwrap().unwrap().record.id;
    for query in 0.. {
        // Another description, recorded right before this query.
        let mut record = store.trail(org, shop, "t").await.unwrap().unwrap().record;
        record.description = format!("before query {query}");
        let facts = vec![Fact::TrailUpdated { record, changes: vec!["description".to_owned()] }];
        let write = Write::new(org, jane.actor(), NOW, facts, &SystemRandom);
        let pending = Arc::new(Mutex::new(Some(write)));
        let (asked, to_come, whole) = (AtomicUsize::new(0), Arc::clone(&pending), Arc::clone(&store));
        let interposed = InterceptingStore::new(Arc::clone(&store), move |_| {
            let is_here = asked.fetch_add(1, Ordering::Relaxed) == query;
            let write = if is_here { to_come.lock().unwrap().take() } else { None };
            let whole = Arc::clone(&whole);
            async move {
                if let Some(write) = write {
                    whole.record(write).await.unwrap();
                }
            }
            .boxed()
        });
        let evidence = Evidence::new(Arc::new(interposed), Settings::default());
        let trail =
            Api::new(evidence, Mount::Tower, "interposed").await.get("/trails/acme/shop/t").await.ok();
        let last = trail["events"].as_array().unwrap().last().unwrap();
        assert_eq!(trail["description"], last["trail_data_json"]["description"], "query {query}");
        if pending.lock().unwrap().is_some() {
            assert!(query > 0, "the trail is read from the store");
            break;
        }
    }
}

#[apply(on_every_store)]
async fn an_event_names_the_repo_that_was_reported_though_others_were_since(api: Api) {
    let repo = |name: &str| json!({"name": name, "url": format!("https://git.example.com/{name}")});
    for name in ["a", "b", "a"] {
        let written = api.put_trail("shop", &json!({"name": "t", "repo_info": repo(name)})).await;
        assert!(written.status.is_success(), "{written:?}");
    }
    let mut ids = Vec::new();
    for name in ["a", "b"] {
        let found = api.get(&format!("/repos/acme?name={name}")).await.ok();
        ids.push(found["repos"][0]["id"].clone());
    }
    let trail = api.get("/trails/acme/shop/t").await.ok();
    let named = trail["events"].as_array().unwrap().iter().map(|event| &event["repo_info"]["inner_id"]);
    assert_eq!(Vec::from_iter(named), [&ids[0], &ids[1], &ids[0]]);
    assert_eq!(trail["events"][0]["repo_info"]["vcs_instance"], "git.example.com");
    assert_eq!(trail["repo_ids"], json!([ids[1], ids[0]]));
}
