//! JSON Schemas of custom attestation types: what their data must fit. A tenant writes them and the service checks by them,
//! beside everybody else's requests, so that a schema says beforehand what checking by it may cost.
//!
//! Before a schema is compiled it is walked (`walk`): it refers to nothing but its own definitions, and to none within
//! itself, so that it can be thought of as a tree, whose size is bounded. What checking takes is at most that size times the
//! size of the data, which is bounded too. Patterns run in linear time. Formats are remarks.

mod walk;

use std::fmt;

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Number, Value};

use crate::decode::shortened;
use crate::json::JsonValue;
use walk::Weight;

/// What a pattern is compiled to is no larger than this. It takes up to 2.5 µs a byte of text.
const MAX_PATTERN_BYTES: usize = 32 << 10;

/// Checking takes no more steps than this, of some 80 ns each.
const MAX_STEPS: usize = 20_000_000;

/// So many bytes of text are counted, or compared, in a step.
const BYTES_PER_STEP: usize = 64;

/// The steps that a pattern may take for a byte of text.
const STEPS_PER_BYTE: usize = 32;

/// All that does not fit is looked for where it takes no more steps than this: each error of each branch takes memory.
const MAX_EXPLAINED: usize = 200_000;

/// So many places that do not fit are named.
const MAX_MISFITS: usize = 20;

/// What a schema within a schema takes, and what a pattern takes with what it remembers of the texts that it was run on.
const SUBSCHEMA_BYTES: usize = 1 << 10;
const PATTERN_BYTES: usize = 256 << 10;

/// What a value of a schema takes, such as a constant, of which there are copies.
const VALUE_BYTES: usize = 160;

/// So many copies of a text of a schema are kept.
const COPIES: usize = 3;

/// More steps take more than some ten milliseconds.
const MANY_STEPS: usize = 200_000;

/// A place in a JSON document, and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// A JSON pointer; empty for the whole.
    pub place: String,
    /// What is wrong.
    pub text: String,
}

impl SchemaError {
    fn new(place: impl Into<String>, text: impl Into<String>) -> Self {
        Self { place: place.into(), text: text.into() }
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, text } = self;
        match place.as_str() {
            "" => f.write_str(text),
            place => write!(f, "at {}: {text}", shortened(place)),
        }
    }
}

/// A compiled JSON Schema.
#[derive(Debug)]
pub struct Schema {
    validator: Validator,
    weight: Weight,
}

/// Data as schemas see them.
#[derive(Debug, Clone)]
pub struct Data {
    value: Value,
    /// How many values there are.
    values: usize,
    /// The bytes of its strings and names.
    bytes: usize,
}

impl Data {
    /// The data of JSON. A number that is too large for a float is the largest one.
    pub fn of(json: &JsonValue) -> Self {
        let mut data = Self { value: Value::Null, values: 0, bytes: 0 };
        data.value = data.read(json);
        data
    }

    fn read(&mut self, json: &JsonValue) -> Value {
        self.values += 1;
        match json {
            JsonValue::Null => Value::Null,
            JsonValue::Bool(value) => Value::Bool(*value),
            JsonValue::Number(text) => Value::Number(number(text)),
            JsonValue::String(text) => {
                self.bytes += text.len();
                Value::String(text.clone())
            }
            JsonValue::Array(items) => Value::Array(items.iter().map(|item| self.read(item)).collect()),
            JsonValue::Object(fields) => {
                let mut read = Map::new();
                for (name, value) in fields {
                    self.bytes += name.len();
                    read.insert(name.clone(), self.read(value));
                }
                Value::Object(read)
            }
        }
    }
}

/// The number that text of JSON is, in whatever comes nearest.
fn number(text: &str) -> Number {
    let integer = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
    integer.unwrap_or_else(|_| {
        let float = text.parse::<f64>().unwrap_or_default().clamp(f64::MIN, f64::MAX);
        Number::from_f64(float).unwrap_or_else(|| Number::from(0))
    })
}

impl Schema {
    /// Compiles a schema: of draft 7 where it does not say which.
    ///
    /// # Errors
    /// The place in the schema, and why it is refused.
    pub fn compile(schema: &JsonValue) -> Result<Self, SchemaError> {
        let Data { mut value, .. } = Data::of(schema);
        let weight = walk::weigh(&value)?;
        let draft = draft(&value)?;
        // Neither it nor what is in it is known by an address, so that none leads there; and unknown keywords take no memory.
        walk::prune(&mut value);
        let weight = weight.with_values_of(&value);
        let compiled = jsonschema::options()
            .with_draft(draft)
            .offline()
            .should_validate_formats(false)
            .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
            .build(&value);
        let validator = compiled.map_err(|error| {
            let place = error.instance_path().as_str().to_owned();
            SchemaError::new(place, shortened(&error.masked().to_string()))
        })?;
        Ok(Self { validator, weight })
    }

    /// About how many bytes of memory it takes.
    pub(crate) const fn bytes(&self) -> usize {
        let Weight { subschemas, patterns, place_bytes, values, bytes, .. } = self.weight;
        subschemas * SUBSCHEMA_BYTES
            + patterns * PATTERN_BYTES
            + place_bytes
            + values * VALUE_BYTES
            + bytes * COPIES
    }

    /// Whether checking this many bytes of JSON may take longer than a short job.
    pub(crate) const fn may_take_long(&self, bytes: usize) -> bool {
        self.steps(bytes, bytes) > MANY_STEPS
    }

    /// At most so many steps does checking take of so many values, whose strings and names have so many bytes.
    const fn steps(&self, values: usize, bytes: usize) -> usize {
        let Weight { tree, pattern_tree, .. } = self.weight;
        tree.saturating_mul(values.saturating_add(bytes / BYTES_PER_STEP))
            .saturating_add(pattern_tree.saturating_mul(bytes).saturating_mul(STEPS_PER_BYTE))
    }

    /// Checks data; the places that do not fit, or the first of them.
    ///
    /// # Errors
    /// What does not fit, at least one.
    pub fn check(&self, data: &Data) -> Result<(), Vec<SchemaError>> {
        let steps = self.steps(data.values, data.bytes);
        if steps > MAX_STEPS {
            return Err(vec![SchemaError::new(
                "",
                "The data are too large to be checked by a schema of this size",
            )]);
        }
        if self.validator.is_valid(&data.value) {
            return Ok(());
        }
        if steps > MAX_EXPLAINED {
            return Err(vec![SchemaError::new("", "The data do not fit the type's schema")]);
        }
        let misfits = self.validator.iter_errors(&data.value).take(MAX_MISFITS).map(|error| {
            let place = error.instance_path().as_str().to_owned();
            SchemaError::new(place, shortened(&error.masked().to_string()))
        });
        Err(misfits.collect())
    }
}

/// The dialect that a schema is written in.
fn draft(schema: &Value) -> Result<Draft, SchemaError> {
    let Some(named) = schema.get("$schema") else { return Ok(Draft::Draft7) };
    let name = named.as_str().unwrap_or_default().trim_end_matches('#');
    let name = name.trim_start_matches("http://").trim_start_matches("https://");
    Ok(match name {
        "json-schema.org/draft-04/schema" => Draft::Draft4,
        "json-schema.org/draft-06/schema" => Draft::Draft6,
        "json-schema.org/draft-07/schema" | "json-schema.org/schema" => Draft::Draft7,
        "json-schema.org/draft/2019-09/schema" => Draft::Draft201909,
        "json-schema.org/draft/2020-12/schema" => Draft::Draft202012,
        _ => {
            let text = "Input should be draft-04, draft-06, draft-07, 2019-09 or 2020-12 of json-schema.org";
            return Err(SchemaError::new("/$schema", text));
        }
    })
}

#[cfg(test)]
mod tests;
