use proptest::prelude::*;
use regex::Regex;

use super::*;

const SAMPLE: &str = "\
# yaml-language-server: $schema=https://example.com/template.json
version: 1
trail:
  attestations:
    - {name: bar, type: generic}
  artifacts:
    - name: cli
      attestations:
        - name: foo
          type: junit
";

fn parse(yaml: &str) -> Template {
    Template::parse(yaml).unwrap_or_else(|errors| panic!("{yaml}\n{errors}"))
}

fn refusal(yaml: &str) -> TemplateErrors {
    match Template::parse(yaml) {
        Ok(template) => panic!("{yaml:.200}\nwas read as {template:?}"),
        Err(errors) => errors,
    }
}

#[test]
fn a_list_of_names_expects_an_artifact_and_its_attestations() {
    let table: [(&str, &[&str]); 4] = [
        (r#"["artifact","unit-test","review"]"#, &["review", "unit-test"]),
        (r#"["artifact"]"#, &[]),
        (r#"["review","review",""]"#, &["", "review"]),
        (r#"["artifact","artifact"]"#, &[]),
    ];
    for (text, expected) in table {
        let template = Template::stored(text);
        let artifact = template.artifact("artifact").unwrap();
        let found = artifact.attestations.iter().map(|one| (one.name.as_str(), one.kind.as_str()));
        let expected: Vec<_> = expected.iter().map(|name| (*name, "*")).collect();
        assert_eq!((found.collect::<Vec<_>>(), template.artifacts.len()), (expected, 1), "{text}");
        assert!(template.attestations.is_empty() && template.unreadable().is_none());
        assert_eq!(
            template.names().map(|names| serde_json::to_string(names).unwrap()),
            Some(text.to_owned())
        );
        assert!(Template::parse(text).is_err(), "an upload is no list of names: {text}");
    }
    let empty = Template::stored("[]");
    assert_eq!((empty.requirements(), empty.names()), (0, Some(&[][..])));
    assert!(Template::stored("[1]").unreadable().is_some());
}

#[test]
fn a_template_is_its_requirements_in_order() {
    assert_eq!(
        json!(parse(SAMPLE)),
        json!({
            "attestations": [{ "name": "bar", "type": "generic" }],
            "artifacts": [{
                "name": "cli",
                "attestations": [{ "name": "foo", "type": "junit" }],
            }],
        })
    );
}

#[test]
fn the_empty_template_expects_nothing() {
    for yaml in ["version: 1", "trail: null", "trail: {}", "{}"] {
        assert_eq!(parse(yaml), Template::default(), "{yaml}");
    }
}

#[test]
fn words_that_older_yaml_took_for_booleans_are_names() {
    let template = parse("trail: {artifacts: [{name: no}, {name: on}, {name: y}]}");
    let names: Vec<_> = template.artifacts.iter().map(|a| a.name.as_str()).collect();
    assert_eq!(names, ["no", "on", "y"]);
}

#[test]
fn one_mistake_is_reported_in_the_phrase_of_the_public_client() {
    let errors = refusal("trail: {attestations: [{name: a, type: not-supported}]}");
    assert_eq!(
        errors.to_string(),
        "1 validation errors for Template\n\
         trail.attestations[0].type: Input should be 'generic', 'junit', 'snyk', 'pull_request', \
         'jira', 'sonar', 'decision', 'sbom', 'sarif', 'custom:<name>' or '*' [input: not-supported]"
    );
}

#[test]
fn a_version_in_quotes_is_told_from_a_number() {
    let errors = refusal("version: \"1\"");
    let expected =
        [("version".to_owned(), "Input should be the number 1, without quotes [input: '1']".to_owned())];
    assert_eq!(errors.problems(), expected);
}

#[test]
fn every_mistake_is_reported_with_its_path() {
    let errors = refusal(
        "
version: 2
owner: {team: [a, 1, true, null]}
trail:
  attestations:
    - {name: '', type: generic}
    - {type: generic}
    - {name: twice, type: '*'}
    - {name: twice, type: '*'}
    - plain
  artifacts:
    - {name: a b}
    - {name: 7, attestations: none, kind: docker}
",
    );
    let problems: Vec<_> = errors.problems().iter().map(|(path, text)| format!("{path}: {text}")).collect();
    assert_eq!(
        problems,
        [
            "owner: Extra inputs are not permitted [input: {'team': ['a', 1, True, None]}]",
            "version: Input should be 1 [input: 2]",
            "trail.attestations[3].name: Names should be unique [input: twice]",
            r"trail.attestations[0].name: String should match pattern '^[a-zA-Z0-9\-_,]+$' [input: ]",
            "trail.attestations[1].name: Field required [input: None]",
            "trail.attestations[4]: Input should be a valid dictionary [input: plain]",
            r"trail.artifacts[0].name: String should match pattern '^[a-zA-Z0-9\-_]+$' [input: a b]",
            "trail.artifacts[1].kind: Extra inputs are not permitted [input: docker]",
            "trail.artifacts[1].name: Input should be a valid string [input: 7]",
            "trail.artifacts[1].attestations: Input should be a valid list [input: none]",
        ]
    );
}

#[test]
fn a_report_of_mistakes_stays_short_and_on_its_lines() {
    let long = "x".repeat(10_000);
    let items = vec![json!({ "name": format!("a\n{long}") }); 1_000];
    let errors = refusal(&json!({ "trail": { "artifacts": items } }).to_string());
    assert_eq!(errors.problems().len(), 100);
    let text = errors.to_string();
    assert!(text.len() < 100 * 300, "{} bytes", text.len());
    assert_eq!(text.lines().count(), 101);
}

#[test]
fn what_is_no_yaml_object_is_refused() {
    let texts = [
        "",
        "\n# nothing but a comment\n",
        "---\n...",
        "a: b: c",
        "version: 1\nversion: 1",
        "version: 1\n---\nversion: 1",
        "version: 1\0",
        "trail: *nowhere",
        "[version, 1]",
        "version",
        "!!binary xyz",
    ];
    for yaml in texts {
        assert_eq!(refusal(yaml).problems().len(), 1, "{yaml:?}");
    }
}

#[test]
fn hostile_yaml_is_refused() {
    let names = ["b", "c", "d", "e", "f", "g", "h", "i"];
    let mut laughs = "a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    let mut inner = "a";
    for name in names {
        let uses = vec![format!("*{inner}"); 10].join(", ");
        laughs.push_str(&format!("{name}: &{name} [{uses}]\n"));
        inner = name;
    }
    let huge = "x".repeat(1_000_000);
    let repeated = format!("a: &a {huge}\nb: [{}]", vec!["*a"; 900].join(", "));
    let nested = "[".repeat(100_000);
    let closed = format!("{nested}{}", "]".repeat(100_000));
    let indented: String = (0..2_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    let wide = "- a\n".repeat(200_000);
    for yaml in [laughs, repeated, nested, closed, indented, wide] {
        let errors = refusal(&yaml);
        let (path, text) = &errors.problems()[0];
        assert_eq!(path, "document");
        assert!(text.starts_with("Input should be valid YAML"), "{text}");
    }
}

#[test]
fn a_large_honest_template_is_accepted() {
    let attestations: Vec<_> =
        (0..10).map(|n| json!({ "name": format!("check-{n}"), "type": "*" })).collect();
    let artifacts: Vec<_> = (0..1_000)
        .map(|n| json!({ "name": format!("artifact-{n}"), "attestations": attestations }))
        .collect();
    let yaml = json!({ "trail": { "artifacts": artifacts } }).to_string();
    assert_eq!(parse(&yaml).artifacts.len(), 1_000);
}

#[test]
fn a_kind_says_which_reported_types_it_takes() {
    let table = [
        ("generic", "generic", true),
        ("generic", "junit", false),
        ("decision", "system:decision", true),
        ("decision", "decision", true),
        ("decision", "generic", false),
        ("system:decision", "system:decision", true),
        ("sbom", "system:sbom", true),
        ("system:sbom", "system:sbom", true),
        ("sbom", "system:sarif", false),
        ("sarif", "system:sarif", true),
        ("system:sarif", "system:sarif", true),
        ("sbom", "custom:sbom", false),
        ("*", "system:sarif", true),
        ("generic", "system:decision", false),
        ("custom:a", "custom:a", true),
        ("custom:a", "custom:b", false),
        ("*", "custom:b", true),
        ("*", "system:decision", true),
    ];
    for (kind, reported, expected) in table {
        let parsed: Kind = kind.parse().expect(kind);
        assert_eq!(parsed.matches(reported), expected, "{kind} {reported}");
    }
}

/// Documents, and whether they are valid templates.
const TABLE: [(&str, bool); 34] = [
    ("version: 1", true),
    ("version: 1.0", true),
    ("version: 2", false),
    ("version: '1'", false),
    ("version: null", false),
    ("version: true", false),
    ("name: x", false),
    ("trail: null", true),
    ("trail: []", false),
    ("trail: {}", true),
    ("trail: {steps: []}", false),
    ("trail: {attestations: null}", false),
    ("trail: {attestations: []}", true),
    ("trail: {attestations: {}}", false),
    ("trail: {attestations: [{name: a}]}", false),
    ("trail: {attestations: [{type: junit}]}", false),
    ("trail: {attestations: [{name: a, type: junit}]}", true),
    ("trail: {attestations: [{name: a, type: pull-request}]}", false),
    ("trail: {attestations: [{name: a, type: 'custom:x y'}]}", false),
    ("trail: {attestations: [{name: a, type: 'custom:'}]}", false),
    ("trail: {attestations: [{name: a, type: 'custom:-x'}]}", false),
    ("trail: {attestations: [{name: a, type: 'custom:x.v1~2'}]}", true),
    ("trail: {attestations: [{name: a, type: custom}]}", false),
    ("trail: {attestations: [{name: a, type: '*'}]}", true),
    ("trail: {attestations: [{name: '', type: '*'}]}", false),
    ("trail: {attestations: [{name: 'unit test', type: '*'}]}", false),
    ("trail: {attestations: [{name: 'unit-test,B_1', type: '*'}]}", true),
    (r#"trail: {attestations: [{name: "a\0", type: '*'}]}"#, false),
    ("trail: {attestations: [{name: a, type: '*', x: 1}]}", false),
    ("trail: {artifacts: [{name: a_B-1}]}", true),
    ("trail: {artifacts: [{name: a.b}]}", false),
    (r#"trail: {artifacts: [{name: "a\n"}]}"#, false),
    ("trail: {artifacts: [{attestations: []}]}", false),
    ("trail: {artifacts: [{name: a, attestations: [{}]}]}", false),
];

#[test]
fn schema_and_parser_agree_on_the_table() {
    let schema = schema();
    for (yaml, expected) in TABLE {
        let value: Value = serde_saphyr::from_str(yaml).expect(yaml);
        assert_eq!(Template::parse(yaml).is_ok(), expected, "parser: {yaml}");
        assert_eq!(fits(&schema, &schema, &value), expected, "schema: {yaml}");
    }
}

proptest! {
    #[test]
    fn schema_and_parser_agree_on_any_document(document in arbitrary_document()) {
        let schema = schema();
        let parsed = Template::parse(&document.to_string());
        let only_duplicates = parsed.as_ref().is_err_and(|errors| {
            errors.problems().iter().all(|(_, text)| text.starts_with("Names should be unique"))
        });
        prop_assert_eq!(parsed.is_ok() || only_duplicates, fits(&schema, &schema, &document));
    }

    #[test]
    fn what_a_template_says_of_itself_is_that_template(document in arbitrary_document()) {
        if let Ok(template) = Template::parse(&document.to_string()) {
            let said = json!({ "version": 1, "trail": template });
            prop_assert_eq!(parse(&said.to_string()), template);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[\\PC\n\t\0]{0,80}") {
        if let Err(errors) = Template::parse(&text) {
            prop_assert!(!errors.problems().is_empty());
        }
    }
}

/// Documents of which about half are valid templates.
fn arbitrary_document() -> impl Strategy<Value = Value> {
    let attestations = list_of(object([
        ("name", 19, prop_oneof![19 => "[a-z]{1,4}".prop_map(Value::from), 1 => junk()].boxed()),
        ("type", 19, prop_oneof![19 => kind(), 1 => junk()].boxed()),
        ("more", 1, junk()),
    ]));
    let artifacts = list_of(object([
        ("name", 19, prop_oneof![19 => "[a-z_-]{1,4}".prop_map(Value::from), 1 => junk()].boxed()),
        ("attestations", 10, attestations.clone()),
        ("more", 1, junk()),
    ]));
    let trail =
        object([("attestations", 10, attestations), ("artifacts", 10, artifacts), ("more", 1, junk())]);
    object([
        ("version", 10, prop_oneof![19 => Just(json!(1)), 1 => junk()].boxed()),
        ("trail", 18, prop_oneof![19 => trail, 1 => junk()].boxed()),
        ("more", 1, junk()),
    ])
}

fn kind() -> BoxedStrategy<Value> {
    prop::sample::select(&["generic", "decision", "custom:x", "*", "junit"][..]).prop_map(Value::from).boxed()
}

fn junk() -> BoxedStrategy<Value> {
    let values =
        [json!(null), json!(true), json!(2), json!(""), json!("a b"), json!("nul\0"), json!([]), json!({})];
    prop::sample::select(values.to_vec()).boxed()
}

fn list_of(item: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let items = prop::collection::vec(item, 0..3).prop_map(Value::from);
    prop_oneof![19 => items, 1 => junk()].boxed()
}

/// An object of optional keys, each present with a probability of its weight in twenty.
fn object<const N: usize>(keys: [(&'static str, u32, BoxedStrategy<Value>); N]) -> BoxedStrategy<Value> {
    let pairs: Vec<_> = keys
        .into_iter()
        .map(|(key, weight, value)| {
            prop_oneof![
                weight => value.prop_map(move |value| Some((key.to_owned(), value))),
                20 - weight => Just(None),
            ]
        })
        .collect();
    pairs.prop_map(|pairs| Value::Object(pairs.into_iter().flatten().collect())).boxed()
}

/// Implements the subset of JSON Schema that the schema uses; panics on an unknown keyword.
fn fits(root: &Value, schema: &Value, value: &Value) -> bool {
    let keywords = schema.as_object().expect("a schema is an object");
    keywords.iter().all(|(keyword, rule)| keyword_holds(root, schema, keyword, rule, value))
}

fn keyword_holds(root: &Value, schema: &Value, keyword: &str, rule: &Value, value: &Value) -> bool {
    let in_list = |rule: &Value| rule.as_array().expect("a list").clone();
    match keyword {
        "$schema" | "$id" | "$defs" | "title" | "description" | "default" => true,
        "$ref" => {
            let pointer = rule.as_str().expect("a reference").trim_start_matches('#');
            fits(root, root.pointer(pointer).expect("a definition"), value)
        }
        "type" => match rule.as_str().expect("a type") {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "null" => value.is_null(),
            "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
            other => panic!("type {other}"),
        },
        "const" => value == rule || (rule.is_number() && value.as_f64() == rule.as_f64()),
        "enum" => in_list(rule).contains(value),
        "pattern" => value.as_str().is_none_or(|text| {
            let pattern = rule.as_str().expect("a pattern").replace(r"\u0000", r"\x00");
            Regex::new(&pattern).expect("a pattern").is_match(text)
        }),
        "maxLength" => {
            value.as_str().is_none_or(|text| text.chars().count() as u64 <= rule.as_u64().expect("a length"))
        }
        "anyOf" => in_list(rule).iter().any(|rule| fits(root, rule, value)),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| fits(root, rule, item))),
        "required" => value.as_object().is_none_or(|fields| {
            in_list(rule).iter().all(|key| fields.contains_key(key.as_str().expect("a key")))
        }),
        "properties" => value.as_object().is_none_or(|fields| {
            fields.iter().all(|(key, value)| rule.get(key).is_none_or(|rule| fits(root, rule, value)))
        }),
        "additionalProperties" => value
            .as_object()
            .is_none_or(|fields| fields.keys().all(|key| schema["properties"].get(key).is_some())),
        other => panic!("keyword {other}"),
    }
}

#[test]
fn an_artifact_has_a_name_that_reports_can_have() {
    let template = |length| {
        let name = "a".repeat(length);
        Template::parse(&format!("version: 1\ntrail:\n  artifacts:\n    - name: {name}\n"))
    };
    assert!(template(255).is_ok());
    let refused = template(256).unwrap_err().to_string();
    assert!(
        refused.contains("trail.artifacts[0].name: String should have at most 255 characters"),
        "{refused}"
    );
}
