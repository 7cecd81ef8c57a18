//! What a version of a custom attestation type says, compiled: its schema and its rules. It is compiled when it is made,
//! so that none is kept that could not be evaluated.

use crate::attestation_types::record::Evaluator;
use crate::bounded::List;
use crate::error::{Error, Result};
use crate::json::{self, JsonText};
use crate::rules::jq::{Filter, MAX_PARTS, MAX_PATTERNS};
use crate::rules::schema::Schema;

/// Compiles the schema of a version.
///
/// # Errors
/// [`Error::Invalid`] with the place in the schema, and what is wrong there.
pub(crate) fn compile_schema(text: &JsonText) -> Result<Schema> {
    let refused = |text: String| Error::invalid("type_schema", text);
    let schema = json::parse(text.as_str().as_bytes()).map_err(refused)?;
    Schema::compile(&schema).map_err(|error| refused(error.to_string()))
}

/// Compiles the rules of a version: none where its data are evaluated by nothing but the schema. It may take a while, for
/// patterns are made into tables.
///
/// # Errors
/// [`Error::Invalid`] with the rule, and the construct in it that is not allowed.
pub(crate) fn compile_rules(evaluator: &Evaluator) -> Result<Vec<Filter>> {
    let Evaluator::Jq { rules: List(rules) } = evaluator else { return Ok(Vec::new()) };
    let (mut compiled, mut parts, mut patterns) = (Vec::new(), 0, 0);
    for (position, rule) in rules.iter().enumerate() {
        let refused = |text: String| Error::invalid(format!("evaluator.rules[{position}]"), text);
        let filter = Filter::compile_with(rule, MAX_PATTERNS - patterns).map_err(|why| {
            refused(format!("Input should be a jq filter of the kind that is allowed: {why}"))
        })?;
        parts += filter.parts();
        patterns += filter.patterns();
        if parts > MAX_PARTS {
            return Err(refused(format!(
                "The rules of a type should have at most {MAX_PARTS} parts together"
            )));
        }
        compiled.push(filter);
    }
    Ok(compiled)
}
