//! Compiled versions of custom attestation types: schema, rules and summary. A version is compiled when it is
//! created, to prove that it can be evaluated, and again when attestations of the type are reported.

use serde::Deserialize;

use crate::attestation_types::record::{AttestationTypeVersion, Evaluator, SummaryItem};
use crate::attestations::custom::{RuleResult, SummaryRow, failure_text};
use crate::bounded::List;
use crate::cache::Weigh;
use crate::error::{Error, Result};
use crate::json::{self, JsonText};
use crate::rules::jq::{Budget, Failure, Filter, Limit, MAX_PARTS, MAX_PATTERNS, Value};
use crate::rules::schema::{Data, Schema};
use crate::time::Timestamp;

/// Compiles the schema of a version.
///
/// # Errors
/// [`Error::Invalid`] with the place in the schema and the problem there.
pub(crate) fn compile_schema(text: &JsonText) -> Result<Schema> {
    schema(text).map_err(|why| Error::invalid("type_schema", why))
}

fn schema(text: &JsonText) -> Result<Schema, String> {
    let schema = json::parse(text.as_str().as_bytes())?;
    Schema::compile(&schema).map_err(|error| error.to_string())
}

/// Compiles the rules of a version. Returns none if only the schema applies. May take a while, because
/// patterns are compiled to tables.
///
/// # Errors
/// [`Error::Invalid`] with the rule and the construct in it that is not allowed.
pub(crate) fn compile_rules(evaluator: &Evaluator) -> Result<Vec<Filter>> {
    let Evaluator::Jq { rules: List(rules) } = evaluator else { return Ok(Vec::new()) };
    filters(rules.iter().map(|rule| &**rule))
        .map_err(|(position, why)| Error::invalid(format!("evaluator.rules[{position}]"), why))
}

/// Checks that the expressions of a summary compile.
///
/// # Errors
/// [`Error::Invalid`] with the expression and the construct in it that is not allowed.
pub(crate) fn compile_summary(summary: &List<SummaryItem>) -> Result<()> {
    filters(summary.0.iter().map(|item| &*item.expression))
        .map(drop)
        .map_err(|(position, why)| Error::invalid(format!("summary[{position}].expression"), why))
}

/// Returns the filters of these rules, or the index of a refused rule and the reason.
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

/// A version that data can be evaluated against.
#[derive(Debug)]
pub(crate) struct Compiled {
    schema: Option<Schema>,
    /// The rules, each as text and compiled.
    rules: Vec<(String, Filter)>,
    /// The names and the expressions of the summary. An expression that this version of the program refuses
    /// has the reason.
    summary: Vec<(String, Result<Filter, String>)>,
}

/// The results of evaluating data against a version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Evaluation {
    pub(crate) rule_results: Vec<RuleResult>,
    pub(crate) summary: Vec<SummaryRow>,
}

/// The most elements of a list that a summary shows.
const MAX_SUMMARY_ITEMS: usize = 50;

/// The most values in one row of a summary, and the maximum size of each in bytes.
const MAX_SUMMARY_VALUES: usize = 50;
const MAX_SUMMARY_VALUE: usize = 4 << 10;

/// The maximum size of a summary, in bytes.
const MAX_SUMMARY: usize = 64 << 10;

/// An evaluator as recorded by any version of the program.
#[derive(Deserialize)]
struct RecordedEvaluator {
    content_type: String,
    #[serde(default)]
    rules: Vec<String>,
}

/// An item of a summary, as recorded.
#[derive(Deserialize)]
struct RecordedSummaryItem {
    name: String,
    expression: String,
}

impl Compiled {
    /// Compiles a recorded version, or returns the reason why it cannot be used for evaluation.
    pub(crate) fn recorded(version: &AttestationTypeVersion) -> Result<Self, String> {
        let evaluator =
            RecordedEvaluator::deserialize(&version.evaluator).map_err(|error| error.to_string())?;
        let rules = match evaluator.content_type.as_str() {
            "jq" => evaluator.rules,
            "default" => Vec::new(),
            other => return Err(format!("the evaluator '{other}' is not known")),
        };
        let compiled = filters(rules.iter().map(String::as_str));
        let compiled = compiled.map_err(|(position, why)| format!("rule {}: {why}", position + 1))?;
        let rules = rules.into_iter().zip(compiled).collect();
        let summary = version.summary.as_ref().map(Vec::<RecordedSummaryItem>::deserialize);
        let summary = summary.transpose().map_err(|error| error.to_string())?.unwrap_or_default();
        let summary = summary.into_iter().map(|item| {
            let filter = Filter::compile(&item.expression).map_err(|why| why.to_string());
            (item.name, filter)
        });
        let schema = version.type_schema.as_ref().map(schema).transpose()?;
        Ok(Self { schema, rules, summary: summary.collect() })
    }

    /// Returns its filters.
    fn all_filters(&self) -> impl Iterator<Item = &Filter> {
        self.rules
            .iter()
            .map(|(_, filter)| filter)
            .chain(self.summary.iter().filter_map(|(_, filter)| filter.as_ref().ok()))
    }

    /// Returns whether evaluating these data may take longer than a short job. A short rule may take long for
    /// any data.
    pub(crate) fn may_take_long(&self, data: &JsonText) -> bool {
        let bytes = data.as_str().len();
        self.all_filters().next().is_some()
            || self.schema.as_ref().is_some_and(|schema| schema.may_take_long(bytes))
    }

    /// Returns whether a rule or an expression uses the time of the record.
    pub(crate) fn asks_for_time(&self) -> bool {
        self.all_filters().any(Filter::asks_for_time)
    }

    /// Checks data against the schema and evaluates them, at the time of the record. The rules share the step
    /// budget of an attestation; the summary has an equal budget of its own.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the places in the data that do not match the schema.
    pub(crate) fn evaluate(&self, data: &JsonText, now: Timestamp) -> Result<Evaluation> {
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
        let result =
            |(text, rule): &(String, Filter)| RuleResult::new(text, rule.holds(&data, now, &mut budget));
        let rule_results = self.rules.iter().map(result).collect();
        Ok(Evaluation { rule_results, summary: self.summary(&data, now) })
    }

    /// Returns the results of the summary expressions. If the data are a list, each element has its own rows.
    fn summary(&self, data: &Value, now: Timestamp) -> Vec<SummaryRow> {
        let Some((first_name, _)) = self.summary.first() else { return Vec::new() };
        let mut summary = Summary { rows: Vec::new(), left: MAX_SUMMARY, budget: Budget::of_rules(), now };
        match data.elements() {
            None => summary.add(&self.summary, None, data),
            Some(elements) => {
                for (item, element) in (0_u64..).zip(elements.iter().take(MAX_SUMMARY_ITEMS)) {
                    summary.add(&self.summary, Some(item), element);
                }
                if elements.len() > MAX_SUMMARY_ITEMS {
                    let error = format!("only the first {MAX_SUMMARY_ITEMS} of {} are shown", elements.len());
                    summary.rows.push(SummaryRow {
                        name: first_name.clone(),
                        item: Some(MAX_SUMMARY_ITEMS as u64),
                        values: Vec::new(),
                        error: Some(error),
                    });
                }
            }
        }
        summary.rows
    }
}

impl Weigh for Compiled {
    fn bytes(&self) -> usize {
        let filters = self.all_filters().map(Filter::bytes).sum::<usize>();
        let texts = self.rules.iter().map(|(text, _)| text.len()).sum::<usize>();
        filters + texts + self.schema.as_ref().map_or(0, Schema::bytes)
    }
}

/// The rows of a summary, and the remaining space and budget.
struct Summary {
    rows: Vec<SummaryRow>,
    left: usize,
    budget: Budget,
    now: Timestamp,
}

impl Summary {
    fn add(&mut self, items: &[(String, Result<Filter, String>)], item: Option<u64>, data: &Value) {
        for (name, filter) in items {
            let (values, error) = match self.values(filter, data) {
                Ok(values) => (values, None),
                Err(why) => (Vec::new(), Some(why)),
            };
            self.rows.push(SummaryRow { name: name.clone(), item, values, error });
        }
    }

    fn values(&mut self, filter: &Result<Filter, String>, data: &Value) -> Result<Vec<JsonText>, String> {
        let filter = filter.as_ref().map_err(Clone::clone)?;
        let results = filter.results(data, self.now, &mut self.budget).map_err(failure_text)?;
        if results.len() > MAX_SUMMARY_VALUES {
            return Err(failure_text(Failure::Limit(Limit::Outputs)));
        }
        let mut values = Vec::new();
        for result in results {
            let text = result.to_json(MAX_SUMMARY_VALUE.min(self.left));
            let text = text.ok_or_else(|| "its results are too large to be shown".to_owned())?;
            self.left = self.left.saturating_sub(text.len());
            values.push(serde_json::from_str(&text).map_err(|error| error.to_string())?);
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;
    use crate::attestations::custom::RuleOutcome;
    use crate::fixtures::{at, free_form, id, jane};

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
        let results = compiled.evaluate(&free_form(data), at(1)).unwrap();
        results.rule_results.into_iter().map(|result| (result.outcome, result.message)).collect()
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
        let check = |data: &str| match compiled.evaluate(&free_form(data), at(1)) {
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
            (json!({"content_type": "jq", "rules": ["env"]}), "rule 1: "),
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
    fn a_summary_shows_what_its_expressions_find_and_why_they_find_nothing() {
        let shown = |summary: Json, data: &str| {
            let version = AttestationTypeVersion {
                summary: Some(summary),
                ..version(json!({"content_type": "jq", "rules": ["true"]}), None)
            };
            let found = Compiled::recorded(&version).unwrap().evaluate(&free_form(data), at(1)).unwrap();
            assert!(found.rule_results.iter().all(RuleResult::has_passed), "it has no part in the verdict");
            json!(found.summary)
        };
        let summary = json!([
            {"name": "Score", "expression": ".score"},
            {"name": "Tags", "expression": ".tags[]?"},
            {"name": "Broken", "expression": ".score + \"x\""},
            {"name": "Endless", "expression": "last(repeat(1))"},
            {"name": "Long", "expression": "\"x\" * 5000"},
            {"name": "Of another version", "expression": "input"},
        ]);
        let found = shown(summary.clone(), r#"{"score":1.5,"tags":["a","b"]}"#);
        let expected = json!([
            {"name": "Score", "values": [1.5]},
            {"name": "Tags", "values": ["a", "b"]},
            {"name": "Broken", "values": [], "error": "number (1.5) and string (\"x\") cannot be added"},
            {"name": "Endless", "values": [], "error": "it takes too many steps"},
            {"name": "Long", "values": [], "error": "its results are too large to be shown"},
            {"name": "Of another version", "values": [],
             "error": "not allowed: input/0: a rule reads nothing but the data (at character 1)"},
        ]);
        assert_eq!(found, expected);
        let of_list = shown(json!([{"name": "N", "expression": ".n"}]), r#"[{"n":1},{"n":"x"}]"#);
        let expected =
            json!([{"name": "N", "item": 0, "values": [1]}, {"name": "N", "item": 1, "values": ["x"]}]);
        assert_eq!(of_list, expected);
        let many = format!("[{}]", vec!["{}"; 60].join(","));
        let of_many = shown(json!([{"name": "N", "expression": ".n"}]), &many);
        assert_eq!(of_many[50]["error"], json!("only the first 50 of 60 are shown"));
        let bomb = json!([{"name": "B", "expression": "[range(900)] | tojson"}]);
        let large = shown(bomb, &many);
        let total =
            large.as_array().unwrap().iter().map(|row| row["values"].to_string().len()).sum::<usize>();
        assert!(total < 2 * MAX_SUMMARY, "{total}");
    }

    #[test]
    fn rules_know_the_time_of_the_record() {
        let compiled = |rule: &str| {
            Compiled::recorded(&version(json!({"content_type": "jq", "rules": [rule]}), None)).unwrap()
        };
        let rule = compiled("(.expires | fromdateiso8601) > now");
        assert!(rule.asks_for_time() && !compiled(".a").asks_for_time());
        let data = free_form(r#"{"expires":"2026-07-08T19:21:51Z"}"#);
        for (now, expected) in [(1_783_538_510, true), (1_783_538_511, false)] {
            let found = rule.evaluate(&data, Timestamp::from_seconds(now)).unwrap();
            assert_eq!(found.rule_results.iter().all(RuleResult::has_passed), expected, "{now}");
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
