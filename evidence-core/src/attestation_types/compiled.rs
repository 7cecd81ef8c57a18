//! What a version of a custom attestation type says, compiled: its schema and its rules. It is compiled when it is made, so
//! that none is kept that could not be evaluated, and again when attestations of the type come in.

use std::sync::Arc;

use serde::Deserialize;

use crate::attestation_types::record::{AttestationTypeVersion, Evaluator};
use crate::attestations::custom::RuleResult;
use crate::bounded::List;
use crate::cache::sized::Cache;
use crate::error::{Error, Result};
use crate::id::VersionKey;
use crate::json::{self, JsonText};
use crate::rules::jq::{Budget, Filter, MAX_PARTS, MAX_PATTERNS, Value};
use crate::rules::schema::{Data, Schema};
use crate::service::Context;
use crate::store::error::StoreError;

/// Compiles the schema of a version.
///
/// # Errors
/// [`Error::Invalid`] with the place in the schema, and what is wrong there.
pub(crate) fn compile_schema(text: &JsonText) -> Result<Schema> {
    schema(text).map_err(|why| Error::invalid("type_schema", why))
}

fn schema(text: &JsonText) -> Result<Schema, String> {
    let schema = json::parse(text.as_str().as_bytes())?;
    Schema::compile(&schema).map_err(|error| error.to_string())
}

/// Compiles the rules of a version: none where its data are evaluated by nothing but the schema. It may take a while, for
/// patterns are made into tables.
///
/// # Errors
/// [`Error::Invalid`] with the rule, and the construct in it that is not allowed.
pub(crate) fn compile_rules(evaluator: &Evaluator) -> Result<Vec<Filter>> {
    let Evaluator::Jq { rules: List(rules) } = evaluator else { return Ok(Vec::new()) };
    filters(rules.iter().map(|rule| &**rule))
        .map_err(|(position, why)| Error::invalid(format!("evaluator.rules[{position}]"), why))
}

/// The filters of these rules; else the place of one that is refused, and why.
fn filters<'a>(rules: impl Iterator<Item = &'a str>) -> Result<Vec<Filter>, (usize, String)> {
    let (mut compiled, mut parts, mut patterns) = (Vec::new(), 0, 0);
    for (position, rule) in rules.enumerate() {
        let filter = Filter::compile_with(rule, MAX_PATTERNS - patterns).map_err(|why| {
            (position, format!("Input should be a jq filter of the kind that is allowed: {why}"))
        })?;
        parts += filter.parts();
        patterns += filter.patterns();
        if parts > MAX_PARTS {
            return Err((
                position,
                format!("The rules of a type should have at most {MAX_PARTS} parts together"),
            ));
        }
        compiled.push(filter);
    }
    Ok(compiled)
}

/// A version that data can be evaluated by.
#[derive(Debug)]
pub(crate) struct Compiled {
    schema: Option<Schema>,
    rules: Vec<Filter>,
}

/// Versions of types, compiled: those that were used lately.
pub(crate) type CompiledTypes = Cache<VersionKey, Compiled>;

/// How much memory the types that are remembered take, in bytes.
const BUDGET: usize = 64 << 20;

/// A type without rules and schema takes about so many bytes all the same.
const LEAST: usize = 1 << 10;

/// A service remembers nothing at first.
pub(crate) const fn no_types() -> CompiledTypes {
    CompiledTypes::new(BUDGET)
}

/// An evaluator as it was recorded, by whatever version of the program.
#[derive(Deserialize)]
struct RecordedEvaluator {
    content_type: String,
    #[serde(default)]
    rules: Vec<String>,
}

impl Compiled {
    /// Compiles a version as it was recorded; else why it cannot be evaluated by.
    fn recorded(version: &AttestationTypeVersion) -> Result<Self, String> {
        let evaluator =
            RecordedEvaluator::deserialize(&version.evaluator).map_err(|error| error.to_string())?;
        let rules = match evaluator.content_type.as_str() {
            "jq" => evaluator.rules,
            "default" => Vec::new(),
            other => return Err(format!("the evaluator '{other}' is not known")),
        };
        let rules = filters(rules.iter().map(String::as_str));
        let rules = rules.map_err(|(position, why)| format!("rule {}: {why}", position + 1))?;
        Ok(Self { schema: version.type_schema.as_ref().map(schema).transpose()?, rules })
    }

    /// About how many bytes of memory it takes.
    fn bytes(&self) -> usize {
        let rules = self.rules.iter().map(Filter::bytes).sum::<usize>();
        LEAST + rules + self.schema.as_ref().map_or(0, Schema::bytes)
    }

    /// Whether evaluating these data may take longer than a short job: a short rule may take long, whatever the data are.
    pub(crate) fn may_take_long(&self, data: &JsonText) -> bool {
        let bytes = data.as_str().len();
        !self.rules.is_empty() || self.schema.as_ref().is_some_and(|schema| schema.may_take_long(bytes))
    }

    /// Checks data by the schema, and evaluates them by each of the rules, which have the steps of an attestation together.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the places in the data that do not fit the schema.
    pub(crate) fn evaluate(&self, data: &JsonText) -> Result<Vec<RuleResult>> {
        let refused = |why: String| Error::invalid("attestation_data", why);
        let data = json::parse(data.as_str().as_bytes()).map_err(refused)?;
        if let Some(schema) = &self.schema {
            let misfits = schema.check(&Data::of(&data)).err().unwrap_or_default();
            if !misfits.is_empty() {
                let misfits = Vec::from_iter(misfits.iter().map(ToString::to_string));
                return Err(refused(misfits.join("; ")));
            }
        }
        let (data, mut budget) = (Value::of(&data), Budget::of_rules());
        Ok(self.rules.iter().map(|rule| rule.holds(&data, &mut budget).into()).collect())
    }
}

impl Context<'_> {
    /// This version of a type, read and compiled if it is not remembered.
    ///
    /// # Errors
    /// [`Error::Invalid`] where this version of the program cannot evaluate by it.
    pub(crate) async fn compiled_type(&self, key: VersionKey) -> Result<Arc<Compiled>> {
        let cache = self.type_cache();
        if let Some(compiled) = cache.get(&key) {
            return Ok(compiled);
        }
        let (id, number) = key;
        let found = self.store().attestation_type_versions_by_number(self.org()?, &[key]).await?.pop();
        let lost = || StoreError::corrupt(format_args!("version {number} of attestation type {id} is lost"));
        let version = found.ok_or_else(lost)?;
        let compiled = self.compute().run_long(move || Compiled::recorded(&version)).await?;
        let refused = |why: String| {
            Error::invalid("type_name", format!("Version {number} cannot be evaluated by: {why}"))
        };
        let compiled = Arc::new(compiled.map_err(refused)?);
        cache.put(key, compiled.bytes(), Arc::clone(&compiled));
        Ok(compiled)
    }
}

#[cfg(all(test, feature = "conformance"))]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::attestations::custom::RuleOutcome;
    use crate::conformance::fixtures::{at, free_form, id, jane};

    fn version(evaluator: Json, schema: Option<&str>) -> AttestationTypeVersion {
        AttestationTypeVersion {
            attestation_type: id(1),
            version: 1,
            type_schema: schema.map(free_form),
            evaluator,
            summary: None,
            at: at(1),
            by: jane(),
        }
    }

    fn outcomes(evaluator: Json, data: &str) -> Vec<(RuleOutcome, Option<String>)> {
        let compiled = Compiled::recorded(&version(evaluator, None)).unwrap();
        let results = compiled.evaluate(&free_form(data)).unwrap();
        results.into_iter().map(|result| (result.outcome, result.message)).collect()
    }

    #[test]
    fn each_rule_has_its_outcome() {
        let rules = json!({"content_type": "jq", "rules": [
            ".score >= 80", ".score > 90", "empty", ".score", ".name + 1", ".findings | all(. != null)",
        ]});
        let found = outcomes(rules, r#"{"score":80,"name":"a","findings":[1]}"#);
        let outcomes = Vec::from_iter(found.iter().map(|(outcome, _)| outcome.as_str()));
        assert_eq!(outcomes, ["passed", "failed", "failed", "failed", "error", "passed"]);
        assert_eq!(found.iter().filter(|(_, message)| message.is_some()).count(), 1);
    }

    #[test]
    fn rules_that_are_not_run_and_those_of_no_rule_say_nothing() {
        for evaluator in [
            json!({"content_type": "default", "rules": ["false"]}),
            json!({"content_type": "jq", "rules": []}),
        ] {
            assert_eq!(outcomes(evaluator, "{}"), []);
        }
    }

    #[test]
    fn what_grows_or_never_ends_meets_a_limit_and_takes_nothing_of_the_memory_of_the_next() {
        let doubled = vec![". + ."; 40].join(" | ");
        let nested = format!("{} | length", vec!["[.,.]"; 40].join(" | ") + " | flatten");
        let table = [
            ("[range(0; 1e9)] | length", "fuel"),
            ("last(range(1e18))", "fuel"),
            ("[range(0; 1e6) | {}] | length", "memory"),
            (&*format!(".text | {doubled}"), "fuel"),
            (&*nested, "fuel"),
            ("reduce range(0; 100000) as $x (null; [.])", "depth"),
            ("range(0; 2000)", "outputs"),
            ("try last(range(1e18)) catch true", "fuel"),
        ];
        for (rule, limit) in table {
            let evaluator = json!({"content_type": "jq", "rules": [rule, "true"]});
            let found = outcomes(evaluator, r#"{"text":"0123456789"}"#);
            assert_eq!(found[0], (RuleOutcome::Limit, Some(limit.to_owned())), "{rule}");
            assert_eq!(found[1], (RuleOutcome::Passed, None), "{rule}");
        }
    }

    #[test]
    fn rules_share_their_steps() {
        let rules = vec!["[range(0; 1e9)] | length"; 20];
        let found = outcomes(json!({"content_type": "jq", "rules": rules}), "null");
        assert!(found.iter().all(|(outcome, _)| *outcome == RuleOutcome::Limit));
    }

    #[test]
    fn data_that_do_not_fit_are_refused_with_their_places() {
        let schema = r#"{"type":"object","required":["score"],"properties":{"score":{"type":"integer"},"tags":{"items":{"type":"string"}}}}"#;
        let compiled =
            Compiled::recorded(&version(json!({"content_type": "default"}), Some(schema))).unwrap();
        let check = |data: &str| match compiled.evaluate(&free_form(data)) {
            Ok(_) => String::new(),
            Err(Error::Invalid { fields, .. }) => fields["attestation_data"].clone(),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(check(r#"{"score":1,"tags":["a"]}"#), "");
        assert!(check("{}").contains("score"), "{}", check("{}"));
        let both = check(r#"{"score":"1","tags":["a",2]}"#);
        assert!(
            both.contains("at /score: ") && both.contains("; at /") && both.contains("at /tags/1: "),
            "{both}"
        );
    }

    #[test]
    fn what_another_version_recorded_is_told_and_not_guessed() {
        let table = [
            (json!({"content_type": "rego"}), "the evaluator 'rego' is not known"),
            (json!({"content_type": "jq", "rules": ["def f: f; f"]}), "rule 1: "),
            (json!("jq"), "invalid type"),
        ];
        for (evaluator, expected) in table {
            let why = Compiled::recorded(&version(evaluator, None)).unwrap_err();
            assert!(why.starts_with(expected), "{why}");
        }
        assert!(Compiled::recorded(&version(json!({"content_type": "default"}), Some("[]"))).is_err());
    }

    #[test]
    fn rules_and_many_data_may_take_long() {
        let plain = json!({"content_type": "default"});
        let schema = r#"{"type":"object","properties":{"a":{"pattern":"a"}}}"#;
        let long = format!(r#"{{"a":"{}"}}"#, "a".repeat(100_000));
        for (evaluator, schema, data, expected) in [
            (plain.clone(), None, long.as_str(), false),
            (plain.clone(), Some(schema), "{}", false),
            (plain, Some(schema), long.as_str(), true),
            (json!({"content_type": "jq", "rules": ["true"]}), None, "{}", true),
        ] {
            let compiled = Compiled::recorded(&version(evaluator, schema)).unwrap();
            assert_eq!(compiled.may_take_long(&free_form(data)), expected, "{schema:?}");
        }
    }

    #[test]
    fn what_a_type_takes_grows_with_its_patterns() {
        let bytes = |rule: &str| {
            let evaluator = json!({"content_type": "jq", "rules": [rule]});
            Compiled::recorded(&version(evaluator, None)).unwrap().bytes()
        };
        assert!(bytes("true") < 4 << 10);
        assert!(bytes("test(\"^[a-z]{1,40}$\")") > bytes("test(\"^a$\")"));
    }
}
