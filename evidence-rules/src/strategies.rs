//! The documents that callers write and upload: flow templates, policies, and the schemas of custom
//! attestation types. They are generated in YAML's flow style, which is JSON.

use evidence_values::name::{AttestationName, TemplateReferenceName};
use evidence_values::strategies::{Invalid, Object, Shape};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

const KINDS: [&str; 8] =
    ["generic", "junit", "snyk", "pull_request", "jira", "sonar", "decision", "custom:review"];

/// A document: accepted texts, and texts that are rejected for exactly one error.
#[derive(Debug, Clone)]
pub struct Texts {
    /// Accepted texts.
    pub valid: BoxedStrategy<String>,
    /// Rejected texts.
    pub invalid: BoxedStrategy<String>,
}

impl Texts {
    fn of(shape: &Shape) -> Self {
        Self {
            valid: shape.valid().prop_map(|value| value.to_string()).boxed(),
            invalid: shape.invalid().prop_map(|invalid| invalid.value.to_string()).boxed(),
        }
    }

    fn or_invalid(self, texts: &'static [&'static str]) -> Self {
        let more = select(texts).prop_map(str::to_owned);
        Self { invalid: prop_oneof![4 => self.invalid, 1 => more].boxed(), ..self }
    }
}

/// Flow templates.
pub fn templates() -> Texts {
    let attestations = || distinct(&requirement());
    let artifact = Object::new()
        .required("name", Shape::of::<TemplateReferenceName>())
        .always("attestations", attestations())
        .closed();
    let trail =
        Object::new().always("attestations", attestations()).always("artifacts", distinct(&artifact.shape()));
    let version = Shape::with_invalid(Just(json!(1)), vec![json!(0), json!(2), json!("1"), json!(null)]);
    let template =
        Object::new().always("version", version).optional("trail", trail.closed().shape()).closed();
    Texts::of(&template.shape()).or_invalid(&["version: [", "\t", "version: 1\nversion: 1", "&a [*a, *a]"])
}

fn requirement() -> Shape {
    let kinds = prop_oneof![select(&KINDS), Just("*")].prop_map(Value::from);
    Object::new()
        .required("name", Shape::of::<AttestationName>())
        .required("type", Shape::with_invalid(kinds, vec![json!("nonsense"), json!(7)]))
        .closed()
        .shape()
}

/// A list of named items with distinct names.
fn distinct(item: &Shape) -> Shape {
    let list = Shape::list(item, 0..3);
    let valid = list.valid().prop_map(|items| {
        let mut seen = std::collections::BTreeSet::new();
        let items = items.as_array().cloned().unwrap_or_default().into_iter();
        items.filter(|item| seen.insert(item["name"].to_string())).collect()
    });
    Shape::new(valid, list.invalid())
}

/// Expressions that evaluate to true or false, each of another form.
const EXPRESSIONS: [&str; 14] = [
    "true",
    "exists(flow)",
    "not exists(flow.tags.team)",
    "flow.name == \"web\"",
    "flow.name in ['web', 'shop', 3]",
    "flow.tags.team == \"x\" or flow.tags.tier != 'y'",
    "flow.tags.tier < 3",
    "not flow.tags.risk-level >= '2' and exists(artifact.fingerprint)",
    "matches(artifact.name, \"^ap+i\")",
    "matches(flow.tags.team, 'x')",
    "artifact.name in [flow.name, flow.tags.key.with.dots,]",
    "(artifact.fingerprint != '') and (1 < 2.5)",
    "-1 <= flow.tags.tier",
    "not (exists(artifact.name) and not false)",
];

/// Expressions that are rejected.
const NO_EXPRESSIONS: [&str; 12] = [
    "${{ flow.name }}",
    "${{ flow }}",
    "${{ 'a' < 3 }}",
    "${{ flow.name = 'a' }}",
    "${{ flow.name == 'a' and }}",
    "${{ flow.owner == 'a' }}",
    "${{ matches(flow.name, '(') }}",
    "${{ flow.name in 'a' }}",
    "${{ (true }}",
    "${{ }}",
    "flow.name == 'a'",
    "",
];

/// A condition, or null.
fn condition() -> Shape {
    let valid = prop_oneof![
        1 => Just(Value::Null),
        8 => select(&EXPRESSIONS).prop_map(|text| Value::from(format!("${{{{ {text} }}}}"))),
    ];
    let wrong = NO_EXPRESSIONS.iter().map(|text| json!(text)).chain([json!(true), json!([])]);
    Shape::with_invalid(valid, wrong.collect())
}

/// A boolean, also as one of YAML 1.1's words.
fn boolean() -> Shape {
    let valid = [json!(true), json!(false), json!("yes"), json!("Off"), json!("TRUE"), json!("n")];
    Shape::with_invalid(
        select(valid.to_vec()),
        vec![json!("maybe"), json!(""), json!(0), json!([]), json!({})],
    )
}

/// A rule about attestations: of a name, of a type, or about one of these controls.
fn attestation_rule(controls: &[String]) -> Shape {
    let kinds =
        || Shape::with_invalid(select(&KINDS).prop_map(Value::from), vec![json!("nonsense"), json!(7)]);
    let names = || {
        Shape::with_invalid(
            select(&["test", "api", "scan"]).prop_map(Value::from),
            vec![json!(7), json!(null)],
        )
    };
    let any = || Shape::new(Just(json!("*")), Just(Invalid::whole(json!("nonsense"))));
    let with = |rule: Object| {
        rule.optional("if", condition()).always("must_be_compliant", boolean()).closed().shape()
    };
    let of_kind = with(Object::new().required("type", kinds()).always("name", names()));
    let named = with(Object::new().required("type", any()).required("name", names()));
    let mut shapes = vec![of_kind, named];
    if !controls.is_empty() {
        let control =
            Shape::with_invalid(select(controls.to_vec()).prop_map(Value::from), vec![json!(7), json!([])]);
        let decision = Shape::new(Just(json!("decision")), any().invalid());
        shapes.push(with(Object::new().required("type", decision).always("for_control", control)));
    }
    Shape::any_of(&shapes)
}

/// Policies, which require decisions only about these controls.
pub fn policies(controls: &[String]) -> Texts {
    let exception = Object::new().optional("if", condition()).closed().shape();
    let exceptions = Shape::list(&exception, 0..3);
    let rule = Object::new().always("required", boolean()).always("exceptions", exceptions).closed().shape();
    let both_any = Just(Invalid::whole(json!([{"name": "*", "type": "*"}])));
    let no_control = Just(Invalid::whole(json!([{"type": "decision", "for_control": "no-such-control"}])));
    let attestations =
        Shape::list(&attestation_rule(controls), 0..4).or_invalid(both_any).or_invalid(no_control);
    let artifacts = Object::new()
        .always("provenance", rule.clone())
        .always("trail-compliance", rule)
        .always("attestations", attestations)
        .closed();
    let schema = select(&["https://example.com/schemas/policy/v1", "https://example.com/v1?x#y"]);
    let wrong = vec![json!("https://example.com/schemas/policy/v2"), json!("v1"), json!(7), json!("")];
    let policy = Object::new()
        .required("_schema", Shape::with_invalid(schema.prop_map(Value::from), wrong))
        .always("artifacts", artifacts.shape())
        .closed();
    Texts::of(&policy.shape()).or_invalid(&["", "_schema: [", "- a"])
}

/// The JSON Schemas of custom attestation types.
pub fn type_schemas() -> Texts {
    let place = vec![
        json!({"$ref": "https://example.com/s"}),
        json!({"allOf": [{"$ref": "#/properties/none"}]}),
        json!({"pattern": "("}),
        json!(1),
    ];
    let field = || {
        let accepted = vec![
            json!({}),
            json!(true),
            json!({"type": "integer", "minimum": 0}),
            json!({"pattern": "^a+$"}),
        ];
        Shape::with_invalid(select(accepted), place.clone())
    };
    let properties = Object::new().always("age", field()).always("tags", field());
    let schema = Object::new()
        .always("type", Shape::choice(&["object"]))
        .always("properties", properties.shape())
        .shape();
    Texts::of(&schema).or_invalid(&["", "[]", "null", "{", "\"x\""])
}
