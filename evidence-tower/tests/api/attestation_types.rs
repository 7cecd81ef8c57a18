//! Custom attestation types (specification, Custom attestation types).

use crate::intercepting_store::{InterceptingStore, take_queries};
use crate::support::prelude::*;

const LIST: &str = "/custom-attestation-types/acme";
const REVIEW: &str = "/custom-attestation-types/acme/review";
const SCHEMA: &str = r#"{"type": "object", "properties": {"ok": {"type": "boolean"}}}"#;

async fn post(api: &Api, document: &Value, schema: Option<&str>) -> Reply {
    let document = document.to_string();
    let mut parts = vec![("name=\"data_json\"", document.as_str())];
    parts.extend(schema.map(|schema| ("name=\"type_schema\"; filename=\"schema.json\"", schema)));
    api.post(LIST).form(&parts).await
}

fn full() -> Value {
    json!({
        "name": "review",
        "description": "looked at",
        "evaluator": {"content_type": "jq", "rules": [".ok == true"]},
        "summary": [{"name": "Reviewer", "expression": ".by"}],
    })
}

#[apply(on_every_store)]
async fn a_type_answers_all_that_it_was_made_with(api: Api) {
    post(&api, &full(), Some(SCHEMA)).await.expect_exactly(201, json!("OK"));
    let found = api.get(REVIEW).await.ok();
    let expected = json!({
        "name": "review",
        "description": "looked at",
        "org": "acme",
        "archived": false,
        "created_by": "jane",
        "created_at": found["created_at"],
        "last_modified_at": found["last_modified_at"],
        "versions": [{
            "version": 1,
            "timestamp": found["created_at"],
            "created_by": "jane",
            "type_schema": {"type": "object", "properties": {"ok": {"type": "boolean"}}},
            "evaluator": {"content_type": "jq", "rules": [".ok == true"]},
            "summary": [{"name": "Reviewer", "expression": ".by"}],
        }],
    });
    assert_eq!(found, expected);
    assert!(found["created_at"].is_number());
    assert_eq!(api.get(LIST).await.ok(), json!([expected]));
}

#[apply(on_every_store)]
async fn what_a_type_lacks_is_absent_but_for_its_summary_and_its_evaluator(api: Api) {
    for sent in [json!({"name": "review"}), json!({"name": "review", "description": null, "evaluator": null})]
    {
        post(&api, &sent, None).await.created();
    }
    let found = api.get(REVIEW).await.ok();
    assert_eq!(found.get("description"), None);
    let version = json!({
        "version": 1, "timestamp": found["created_at"], "created_by": "jane",
        "evaluator": {"content_type": "default"}, "summary": null,
    });
    assert_eq!(found["versions"], json!([version]));
}

#[apply(on_every_store)]
async fn every_change_adds_a_version_and_the_same_again_does_not(api: Api) {
    let with = |field: &str, value: Value| {
        let mut document = full();
        document[field] = value;
        document
    };
    let steps = [
        (full(), Some(SCHEMA), 1),
        (full(), Some(SCHEMA), 1),
        (full(), Some(r#"{"properties":{"ok":{"type":"boolean"}},"type":"object"}"#), 1),
        (full(), None, 2),
        (with("description", json!("changed")), None, 3),
        (with("description", json!("changed")), None, 3),
        (with("summary", json!([])), None, 4),
        (with("evaluator", json!({"rules": [".ok == true"]})), None, 5),
        (full(), None, 5),
        (with("evaluator", json!(null)), None, 6),
    ];
    for (position, (document, schema, newest)) in steps.into_iter().enumerate() {
        post(&api, &document, schema).await.expect_exactly(201, json!("OK"));
        let found = api.get(REVIEW).await.ok();
        let versions: Vec<u64> = found["versions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|version| version["version"].as_u64().unwrap())
            .collect();
        assert_eq!(versions, (1..=newest).rev().collect::<Vec<_>>(), "after step {position}");
    }
}

#[apply(on_every_store)]
async fn a_version_is_selected_without_who_made_the_type_and_when(api: Api) {
    post(&api, &full(), Some(SCHEMA)).await.created();
    post(&api, &full(), None).await.created();
    let found = api.get(&format!("{REVIEW}?version=1")).await.ok();
    assert_eq!(fields(&found), ["archived", "description", "name", "org", "versions"]);
    assert_eq!(found["versions"].as_array().unwrap().len(), 1);
    assert_eq!(found["versions"][0]["version"], 1);
    for version in ["0", "3", "-1", "9223372036854775807"] {
        let text = format!("version {version} does not exist for custom attestation type 'review'");
        let reply = api.get(&format!("{REVIEW}?version={version}")).await;
        reply.expect_errors(404, "Custom attestation type version not found", &[("query.version", &text)]);
    }
    for version in ["", "x", "1.5", "9223372036854775808"] {
        api.get(&format!("{REVIEW}?version={version}")).await.expect_field_error(400, "query.version");
    }
}

#[tokio::test]
async fn versions_are_read_a_megabyte_at_a_time_and_none_that_is_not_asked_for() {
    let (store, answered) = InterceptingStore::measured(Arc::new(MemoryStore::new()));
    let evidence = fixture(Arc::new(store), Settings::default()).await;
    let api = Api::new(evidence, Mount::Tower, "memory").await;
    let about_versions = || {
        let about = |query: &'static str| query.strip_prefix("attestation_type_version");
        Vec::from_iter(take_queries(&answered).into_iter().filter_map(about))
    };
    for letter in ["a", "b", "c", "d"] {
        let schema = json!({ "description": letter.repeat(600 << 10) }).to_string();
        about_versions();
        post(&api, &full(), Some(&schema)).await.created();
    }
    assert_eq!(about_versions(), ["s_by_number"], "a new version");
    for path in [LIST, REVIEW] {
        let found = api.get(path).await.ok();
        let found = found.get(0).unwrap_or(&found);
        let lengths = found["versions"].as_array().unwrap().iter().map(|version| {
            let text = version["type_schema"]["description"].as_str().unwrap();
            (version["version"].as_u64().unwrap(), &text[..1], text.len())
        });
        let expected =
            [(4, "d"), (3, "c"), (2, "b"), (1, "a")].map(|(number, text)| (number, text, 600 << 10));
        assert_eq!(Vec::from_iter(lengths), expected);
        let part = "s_by_number";
        assert_eq!(about_versions(), ["_sizes", part, part, part, part], "{path}");
    }
    api.get(&format!("{REVIEW}?version=2")).await.ok();
    assert_eq!(about_versions(), ["_sizes", "s_by_number"], "one of them");
}

#[apply(on_every_store)]
async fn types_are_listed_newest_first(api: Api) {
    assert_eq!(api.get(LIST).await.ok(), json!([]));
    for name in ["b", "a", "c"] {
        post(&api, &json!({"name": name}), None).await.created();
    }
    post(&api, &json!({"name": "b", "description": "newer"}), None).await.created();
    api.get(LIST).await.expect(200, json!([{"name": "c"}, {"name": "a"}, {"name": "b"}]));
}

#[apply(on_every_store)]
async fn the_document_is_closed_and_its_fields_are_checked(api: Api) {
    let pattern = r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\-_~.]*$'";
    let refused = [
        (json!({}), "name", "Field required [input: None]".to_owned()),
        (json!({"name": "a b"}), "name", format!("{pattern} [input: a b]")),
        (json!({"name": "~a"}), "name", format!("{pattern} [input: ~a]")),
        (json!({"name": "a", "more": 1}), "more", "Extra inputs are not permitted [input: 1]".to_owned()),
        (
            json!({"name": "a", "description": 1}),
            "description",
            "Input should be a valid string [input: 1]".to_owned(),
        ),
        (
            json!({"name": "a", "evaluator": {"rules": [""]}}),
            "evaluator.rules[0]",
            "String should have at least 1 character [input: ]".to_owned(),
        ),
        (
            json!({"name": "a", "evaluator": {"content_type": "rego", "rules": []}}),
            "evaluator.content_type",
            "Input should be 'jq' or 'default' [input: rego]".to_owned(),
        ),
        (json!([]), "data_json", "Input should be a valid dictionary [input: []]".to_owned()),
    ];
    for (document, field, text) in refused {
        post(&api, &document, None).await.expect_errors(400, INVALID, &[(field, &text)]);
    }
    let long = json!({"name": "a", "evaluator": {"rules": ["x".repeat(4097)]}});
    post(&api, &long, None).await.expect_field_error(400, "evaluator.rules[0]");
    let rule = format!("\"{}\"", "x".repeat(4094));
    let longest = json!({"name": "a-_~.9", "evaluator": {"rules": [rule]}});
    post(&api, &longest, None).await.created();
}

#[apply(on_every_store)]
async fn the_form_needs_its_document_and_a_schema_that_is_an_object(api: Api) {
    let missing = "Field required [input: None]";
    api.post(LIST).json(full()).await.expect_errors(400, INVALID, &[("data_json", missing)]);
    let alone = api.post(LIST).file("type_schema", "schema.json", SCHEMA).await;
    alone.expect_errors(400, INVALID, &[("data_json", missing)]);
    for schema in ["", "{", "[]", "null", "\"x\"", "\u{fffd}"] {
        post(&api, &full(), Some(schema)).await.expect_field_error(400, "type_schema");
    }
    assert_eq!(api.get(LIST).await.ok(), json!([]));
}

#[apply(on_every_store)]
async fn what_a_rule_may_not_say_is_named_and_nothing_is_kept(api: Api) {
    let deep = format!("{}1{}", "(".repeat(2_000), ")".repeat(2_000));
    let refused = [
        ("env.HOME", "not allowed: env/0: a rule knows nothing of the server (at character 1)"),
        (".a | halt", "not allowed: halt/0: a rule answers by its results alone (at character 6)"),
        ("$ENV", "not allowed: $ENV: a rule knows nothing of the server (at character 1)"),
        ("def f: g; f", "not allowed: g/0 (at character 8)"),
        ("input", "not allowed: input/0: a rule reads nothing but the data (at character 1)"),
        (".age >", "expected term (at character 7)"),
        (deep.as_str(), "nests more than 48 levels (at character 49)"),
    ];
    for (rule, text) in refused {
        let document = json!({"name": "a", "evaluator": {"content_type": "jq", "rules": [".ok", rule]}});
        let text = format!("Input should be a jq filter of the kind that is allowed: {text}");
        post(&api, &document, None).await.expect_errors(400, INVALID, &[("evaluator.rules[1]", &text)]);
    }
    let summary = json!({"name": "a", "summary": [{"name": "A", "expression": ".a"}, {"name": "B", "expression": "env"}]});
    let text = "Input should be a jq filter of the kind that is allowed: not allowed: env/0: a rule knows nothing of the \
                server (at character 1)";
    post(&api, &summary, None).await.expect_errors(400, INVALID, &[("summary[1].expression", text)]);
    assert_eq!(api.get(LIST).await.ok(), json!([]));
    // Rules that are not evaluated are stored unchanged.
    let unused = json!({"name": "a", "evaluator": {"content_type": "default", "rules": ["env"]}});
    post(&api, &unused, None).await.created();
}

#[apply(on_every_store)]
async fn the_rules_of_a_type_are_bounded_together(api: Api) {
    let typed = |rules: Vec<String>| json!({"name": "a", "evaluator": {"rules": rules}});
    let patterns = |many: usize| vec!["test(\"^a+$\")".to_owned(); many];
    post(&api, &typed(patterns(16)), None).await.created();
    post(&api, &typed(patterns(17)), None).await.expect_field_error(400, "evaluator.rules[16]");
    let long = |many: usize| vec![format!("[{}.]", ".,".repeat(100)); many];
    post(&api, &typed(long(50)), None).await.created();
    post(&api, &typed(long(100)), None).await.expect_field_error(400, "evaluator.rules[81]");
}

#[apply(on_every_store)]
async fn what_a_schema_may_not_say_is_named_and_nothing_is_kept(api: Api) {
    let refused = [
        (r#"{"properties": {"a": {"$ref": "https://example.com/s"}}}"#, "at /properties/a/$ref: "),
        (r#"{"$ref": "file:///etc/passwd"}"#, "at /$ref: "),
        (r##"{"$ref": "#"}"##, "not allowed: $ref to itself that does not descend into the data"),
        (r#"{"type": "nonsense"}"#, "at /type: "),
        (r#"{"properties": {"a": {"pattern": "("}}}"#, "at /properties/a/pattern: "),
        (r#"{"pattern": "(?=a)b"}"#, "at /pattern: "),
        (r#"{"$schema": "https://example.com/own"}"#, "at /$schema: "),
    ];
    for (schema, place) in refused {
        let reply = post(&api, &full(), Some(schema)).await;
        let text = reply.json()["errors"]["type_schema"].as_str().map(str::to_owned);
        assert!(text.as_ref().is_some_and(|text| text.starts_with(place)), "{schema}: {text:?}");
        reply.expect_field_error(400, "type_schema");
    }
    assert_eq!(api.get(LIST).await.ok(), json!([]));
}

#[apply(on_every_store)]
async fn reading_takes_any_role_and_writing_the_right_to_write(api: Api) {
    post(&api, &full(), None).await.created();
    let document = full().to_string();
    for role in ["reader-key", "snapshotter-key"] {
        assert_eq!(
            api.post(LIST).key(role).data_json(&document).await.error_message(403),
            FORBIDDEN,
            "{role}"
        );
        api.get(REVIEW).key(role).await.ok();
    }
    api.post(LIST).key("member-key").data_json(&document).await.created();
    assert_eq!(api.get(LIST).anonymous().await.error_message(401), "Unauthorized");
    assert_eq!(api.get(LIST).key(JOHN).await.error_message(403), FORBIDDEN);
    assert_eq!(
        api.get("/custom-attestation-types/nowhere").await.error_message(404),
        "Organization not found"
    );
    api.get("/custom-attestation-types/acme/other").await.expect_errors(
        404,
        "Custom attestation type not found",
        &[(
            "custom_attestation_type_name",
            "no custom attestation type named 'other' in organization 'acme'",
        )],
    );
}

async fn attest(api: &Api, data: &Value) -> Reply {
    api.attest("custom", &json!({"attestation_name": "r", "type_name": "review", "attestation_data": data}))
        .await
}

#[apply(on_every_store)]
async fn data_of_a_type_are_evaluated_by_its_latest_version_and_keep_their_verdict(api: Api) {
    let missing = json!({
        "message": "Custom attestation type not found",
        "errors": {"type_name": "no custom attestation type named 'review' in organization 'acme'"},
    });
    attest(&api, &json!({})).await.expect_exactly(404, missing);
    post(&api, &full(), Some(SCHEMA)).await.created();
    attest(&api, &json!({"ok": true, "n": 1.50})).await.expect_exactly(201, json!("OK"));
    attest(&api, &json!(r#"{"ok": false}"#)).await.created();
    let version = json!({"name": "review", "evaluator": {"rules": ["has(\"ok\")", ".ok", ".ok + 1"]}});
    post(&api, &version, None).await.created();
    attest(&api, &json!({"ok": true})).await.created();
    post(&api, &json!({"name": "review"}), None).await.created();
    attest(&api, &json!([null, "anything"])).await.created();
    let results =
        |outcomes: &[&str]| Value::from_iter(outcomes.iter().map(|outcome| json!({ "outcome": outcome })));
    let expected = json!([
        {"type_version": 3, "is_compliant": true, "rule_results": [], "attestation_data": [null, "anything"]},
        {"type_version": 2, "is_compliant": false, "rule_results": [
            {"rule": "has(\"ok\")", "outcome": "passed"}, {"rule": ".ok", "outcome": "passed"},
            {"rule": ".ok + 1", "outcome": "error"},
        ]},
        {"type_version": 1, "is_compliant": false, "rule_results": results(&["failed"]), "attestation_data": {"ok": false}},
        {"type_version": 1, "is_compliant": true, "rule_results": results(&["passed"]), "attestation_data": {"ok": true, "n": 1.50},
         "attestation_type": "custom:review", "type_name": "review"},
    ]);
    api.get("/attestations/acme/shop/trail/t/r").await.expect(200, expected);
}

/// A schema that recurses, rules with definitions, patterns and the time of the record, and a summary.
#[test]
fn a_summary_is_shown_with_the_attestation_and_has_no_part_in_the_verdict() {
    on_every_store(async |api| {
        let schema = r##"{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
            "properties": {"suite": {"$ref": "#/definitions/suite"}},
            "definitions": {"suite": {"type": "object", "properties": {"name": {"type": "string"},
                "suites": {"type": "array", "items": {"$ref": "#/definitions/suite"}}}}}}"##;
        let version = json!({
            "name": "review",
            "evaluator": {"rules": [
                "def names: .name, (.suites[]? | names); [.suite | names] | all(test(\"^[a-z]+$\"))",
                "now > (\"2020-01-01T00:00:00Z\" | fromdate)",
            ]},
            "summary": [
                {"name": "Suites", "expression": "[.suite | .. | .name? // empty] | join(\" / \")"},
                {"name": "All", "expression": ".suite.suites[].name"},
                {"name": "Broken", "expression": ".suite | tonumber"},
            ],
        });
        post(&api, &version, Some(schema)).await.created();
        attest(&api, &json!({"suite": {"name": "a", "suites": [{"name": 1}]}}))
            .await
            .expect_field_error(400, "attestation_data");
        attest(&api, &json!({"suite": {"name": "a", "suites": [{"name": "b"}, {"name": "c"}]}}))
            .await
            .created();
        let found = api.get("/attestations/acme/shop/trail/t/r").await.ok();
        let error = found[0]["summary"][2]["error"].clone();
        assert!(
            error.as_str().is_some_and(|error| error.contains("cannot be parsed as a number")),
            "{error}"
        );
        let summary = json!([
            {"name": "Suites", "values": ["a / b / c"]},
            {"name": "All", "values": ["b", "c"]},
            {"name": "Broken", "values": [], "error": error},
        ]);
        assert_eq!((&found[0]["summary"], &found[0]["is_compliant"]), (&summary, &json!(true)));
        // Each element of a list has its rows.
        let of_list = json!({"name": "review", "summary": [{"name": "N", "expression": ".n"}]});
        post(&api, &of_list, None).await.created();
        attest(&api, &json!([{"n": 1}, {"n": "https://example.com"}])).await.created();
        let found = api.get("/attestations/acme/shop/trail/t/r").await.ok();
        let summary = json!([
            {"name": "N", "item": 0, "values": [1]},
            {"name": "N", "item": 1, "values": ["https://example.com"]},
        ]);
        assert_eq!(found[0]["summary"], summary);
        // Without a summary there is none.
        post(&api, &json!({"name": "review"}), None).await.created();
        attest(&api, &json!({})).await.created();
        let found = api.get("/attestations/acme/shop/trail/t/r").await.ok();
        assert_eq!(found[0].get("summary"), None);
    });
}

#[apply(on_every_store)]
async fn data_that_do_not_fit_are_refused_and_nothing_is_recorded(api: Api) {
    post(&api, &full(), Some(SCHEMA)).await.created();
    for data in [json!({"ok": 1}), json!([]), json!("{"), json!(""), json!(r#"{"ok":true,"ok":true}"#)] {
        let refused = attest(&api, &data).await.expect(400, json!({ "message": INVALID })).json();
        assert_eq!(fields(&refused["errors"]), ["attestation_data"], "{data}");
    }
    for (name, value) in [("type_name", json!("-")), ("attestation_data", Value::Null), ("more", json!(1))] {
        let mut document = json!({"attestation_name": "r", "type_name": "review", "attestation_data": {}});
        document[name] = value;
        api.attest("custom", &document).await.expect_field_error(400, name);
    }
    api.get("/trails/acme/shop/t").await.expect(404, json!({}));
}

/// Rules that crash a process or occupy a core if they have no limits.
#[apply(on_every_store)]
async fn rules_that_never_end_or_grow_without_end_are_not_true(api: Api) {
    let rules = [
        ("[range(0; 1e9)] | length > 0", "fuel"),
        ("last(range(1e18)) > 0", "fuel"),
        ("reduce range(0; 100000) as $x (null; [.])", "depth"),
        ("[range(0; 1e6) | {}] | length > 0", "memory"),
        ("reduce range(0; 100) as $x (\"ab\"; . + .) | length > 0", "fuel"),
        ("[limit(5000; range(1e9))] | .[]", "outputs"),
        ("try last(range(1e18)) catch true", "fuel"),
        ("def f: f; f", "depth"),
        ("def f: f, f; try f catch true", "depth"),
        ("last(repeat(true))", "fuel"),
        ("def f: [., f]; f", "depth"),
    ];
    for (rule, limit) in rules {
        let version = json!({"name": "review", "evaluator": {"rules": [rule]}});
        post(&api, &version, None).await.created();
        attest(&api, &json!({})).await.created();
        let found = api.get("/attestations/acme/shop/trail/t/r").await.ok();
        let result = json!([{"rule": rule, "outcome": "limit", "message": limit}]);
        assert_eq!(
            (&found[0]["rule_results"], &found[0]["is_compliant"]),
            (&result, &json!(false)),
            "{rule}"
        );
    }
    for rule in ["env", "input", "halt", "localtime", "def f: g; f"] {
        let version = json!({"name": "review", "evaluator": {"rules": [rule]}});
        post(&api, &version, None).await.expect_field_error(400, "evaluator.rules[0]");
    }
}

#[apply(on_every_store)]
async fn an_archived_type_takes_no_attestations_and_stays_readable(api: Api) {
    post(&api, &full(), None).await.created();
    attest(&api, &json!({"ok": true})).await.created();
    for _ in 0..2 {
        api.put("/custom-attestation-types/acme/review/archive").await.expect_exactly(200, json!("OK"));
    }
    assert_eq!(api.get(LIST).await.ok(), json!([]));
    api.get(REVIEW).await.expect(200, json!({"archived": true, "versions": [{"version": 1}]}));
    let archived = json!({
        "message": "Custom attestation type 'review' is archived for org 'acme'",
        "errors": {"type_name": "An archived type takes no attestations"},
    });
    attest(&api, &json!({"ok": true})).await.expect_exactly(400, archived);
    // An archived type cannot be restored, so a new version of it would be useless. Creating the same types again is not
    // refused.
    let archived = json!({
        "message": "Custom attestation type 'review' is archived for org 'acme'",
        "errors": {"name": "An archived type takes no new version"},
    });
    post(&api, &json!({"name": "review"}), None).await.expect_exactly(400, archived);
    post(&api, &full(), None).await.expect_exactly(201, json!("OK"));
    let found = api.get(REVIEW).await.ok();
    assert_eq!((&found["archived"], found["versions"].as_array().map(Vec::len)), (&json!(true), Some(1)));
    api.get("/attestations/acme/shop/trail/t/r").await.expect(200, json!([{"is_compliant": true}]));
    api.put("/custom-attestation-types/acme/none/archive").await.expect(404, json!({}));
}
