//! The documents that callers write and upload: flow templates, policies, and the schemas of custom attestation types.
//! They are given as YAML's flow style, which is JSON.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::shape::{Object, Shape};
use crate::name::{AttestationName, TemplateReferenceName};

const KINDS: [&str; 8] =
    ["generic", "junit", "snyk", "pull_request", "jira", "sonar", "decision", "custom:review"];

/// A document: texts that are accepted, and texts that are refused for one thing.
#[derive(Debug, Clone)]
pub struct Texts {
    /// Accepted ones.
    pub valid: BoxedStrategy<String>,
    /// Refused ones.
    pub broken: BoxedStrategy<String>,
}

impl Texts {
    fn of(shape: &Shape) -> Self {
        Self {
            valid: shape.valid().prop_map(|value| value.to_string()).boxed(),
            broken: shape.broken().prop_map(|broken| broken.value.to_string()).boxed(),
        }
    }

    fn or_broken(self, texts: &'static [&'static str]) -> Self {
        let more = select(texts).prop_map(str::to_owned);
        Self { broken: prop_oneof![4 => self.broken, 1 => more].boxed(), ..self }
    }
}

/// Flow templates.
pub fn templates() -> Texts {
    let attestations = || distinct(&requirement());
    let artifact = Object::new()
        .required("name", Shape::of::<TemplateReferenceName>())
        .given("attestations", attestations())
        .closed();
    let trail =
        Object::new().given("attestations", attestations()).given("artifacts", distinct(&artifact.shape()));
    let version = Shape::or_wrong(Just(json!(1)), vec![json!(0), json!(2), json!("1"), json!(null)]);
    let template = Object::new().given("version", version).optional("trail", trail.closed().shape()).closed();
    Texts::of(&template.shape()).or_broken(&["version: [", "\t", "version: 1\nversion: 1", "&a [*a, *a]"])
}

fn requirement() -> Shape {
    let kinds = prop_oneof![select(&KINDS), Just("*")].prop_map(Value::from);
    Object::new()
        .required("name", Shape::of::<AttestationName>())
        .required("type", Shape::or_wrong(kinds, vec![json!("nonsense"), json!(7)]))
        .closed()
        .shape()
}

/// A list whose items have names, each name once.
fn distinct(item: &Shape) -> Shape {
    let list = Shape::list(item, 0..3);
    let valid = list.valid().prop_map(|items| {
        let mut seen = std::collections::BTreeSet::new();
        let items = items.as_array().cloned().unwrap_or_default().into_iter();
        items.filter(|item| seen.insert(item["name"].to_string())).collect()
    });
    Shape::new(valid, list.broken())
}

/// Policies of the rules that can be evaluated.
pub fn policies() -> Texts {
    let exceptions =
        Shape::or_wrong(Just(json!([])), vec![json!([{}]), json!([{"if": "${{ true }}"}]), json!(1)]);
    let rule =
        Object::new().given("required", Shape::boolean()).given("exceptions", exceptions).closed().shape();
    let unevaluated =
        vec![json!([{"name": "a", "type": "*"}]), json!([{"name": "*", "type": "*"}]), json!("")];
    let artifacts = Object::new()
        .given("provenance", rule.clone())
        .given("trail-compliance", rule)
        .given("attestations", Shape::or_wrong(Just(json!([])), unevaluated))
        .closed();
    let schema = select(&["https://example.com/schemas/policy/v1", "https://example.com/v1?x#y"]);
    let wrong = vec![json!("https://example.com/schemas/policy/v2"), json!("v1"), json!(7), json!("")];
    let policy = Object::new()
        .required("_schema", Shape::or_wrong(schema.prop_map(Value::from), wrong))
        .given("artifacts", artifacts.shape())
        .closed();
    Texts::of(&policy.shape()).or_broken(&["", "_schema: [", "- a"])
}

/// The JSON Schemas of custom attestation types.
pub fn type_schemas() -> Texts {
    let place = vec![
        json!({"$ref": "https://example.com/s"}),
        json!({"$ref": "#"}),
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
        Shape::or_wrong(select(accepted), place.clone())
    };
    let properties = Object::new().given("age", field()).given("tags", field());
    let schema = Object::new()
        .given("type", Shape::choice(&["object"]))
        .given("properties", properties.shape())
        .shape();
    Texts::of(&schema).or_broken(&["", "[]", "null", "{", "\"x\""])
}
