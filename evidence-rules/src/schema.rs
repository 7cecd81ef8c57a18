//! JSON Schemas of custom attestation types, which validate their data. Tenants write them, and the service
//! validates with them beside the requests of all other tenants, so the work is bounded.
//!
//! Before a schema is compiled, its references are resolved within the document, and it becomes a graph of
//! the schemas that apply to a value. A schema may refer to itself if each cycle descends into the data.
//! Before data are validated, the steps for these data are counted; data that would exceed the budget are
//! rejected. Patterns run in linear time. Formats are annotations and are not checked.

mod graph;
mod keywords;
mod meter;
mod references;

use std::fmt;

use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::{Map, Number, Value};

use crate::deep;
use evidence_values::decode::shortened;
use evidence_values::json::JsonValue;
use graph::{Graph, Node, Weight};
use meter::Meter;

/// Maximum size of a compiled pattern in bytes.
const MAX_PATTERN_BYTES: usize = 256 << 10;

/// Maximum number of steps of one validation. A step takes about 80 ns.
const MAX_STEPS: usize = 20_000_000;

/// Number of bytes of text that are counted or compared in one step.
const BYTES_PER_STEP: usize = 64;

/// Maximum length in bytes of the pointer to a schema, and of the pointers of all keywords together. Each
/// pointer repeats the names above it.
const MAX_PLACE: usize = 16 << 10;
const MAX_PLACE_BYTES: usize = 8 << 20;

/// Maximum number of steps for which up to `MAX_MISFITS` misfits are reported. Beyond it, only the first
/// misfit is reported. If a choice (`anyOf`, `oneOf`) alone takes more steps, the error names no place,
/// because each error of each branch takes memory.
const MAX_EXPLAINED: usize = 400_000;

/// Maximum number of misfits in a report.
const MAX_MISFITS: usize = 20;

/// Approximate memory use in bytes of a compiled subschema, and of a pattern with its caches.
const SUBSCHEMA_BYTES: usize = 1 << 10;
const PATTERN_BYTES: usize = 256 << 10;

/// Approximate memory use in bytes of a value in a schema, such as a constant.
const VALUE_BYTES: usize = 160;

/// Number of copies of each text of a schema in memory.
const COPIES: usize = 3;

/// Above either limit (bytes of data, number of schemas), a validation may take more than about ten
/// milliseconds.
const MANY_BYTES: usize = 4 << 10;
const MANY_SCHEMAS: usize = 200;

/// An error at a place in a JSON document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaError {
    /// A JSON pointer; empty for the whole document.
    pub place: String,
    /// The description of the error.
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
    nodes: Vec<Node>,
    weight: Weight,
}

/// Data in the form that schemas validate.
#[derive(Debug, Clone)]
pub struct Data(Value);

impl Data {
    /// Converts JSON to data. A number beyond the range of floats becomes the largest float.
    pub fn of(json: &JsonValue) -> Self {
        Self(read(json))
    }
}

fn read(json: &JsonValue) -> Value {
    match json {
        JsonValue::Null => Value::Null,
        JsonValue::Bool(value) => Value::Bool(*value),
        JsonValue::Number(text) => Value::Number(number(text)),
        JsonValue::String(text) => Value::String(text.clone()),
        JsonValue::Array(items) => Value::Array(items.iter().map(read).collect()),
        JsonValue::Object(fields) => {
            Value::Object(Map::from_iter(fields.iter().map(|(name, value)| (name.clone(), read(value)))))
        }
    }
}

/// Returns the number nearest to its text.
fn number(text: &str) -> Number {
    let integer = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
    integer.unwrap_or_else(|_| {
        let float = text.parse::<f64>().unwrap_or_default().clamp(f64::MIN, f64::MAX);
        Number::from_f64(float).unwrap_or_else(|| Number::from(0))
    })
}

impl Schema {
    /// Compiles a schema. The default dialect is draft 7.
    ///
    /// # Errors
    /// Returns the place in the schema and the reason why it is rejected.
    pub fn compile(schema: &JsonValue) -> Result<Self, SchemaError> {
        let schema = read(schema);
        deep::run(|| Self::compile_value(&schema)).unwrap_or_else(|_| Err(SchemaError::new("", NO_THREAD)))
    }

    fn compile_value(schema: &Value) -> Result<Self, SchemaError> {
        let draft = draft(schema)?;
        let Graph { nodes, weight, schema } = Graph::of(schema, draft)?;
        let compiled = jsonschema::options()
            .with_draft(draft)
            .offline()
            .should_validate_formats(false)
            .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
            .build(&schema);
        let validator = compiled.map_err(|error| {
            let place = error.instance_path().as_str().to_owned();
            SchemaError::new(place, shortened(&error.masked().to_string()))
        })?;
        Ok(Self { validator, nodes, weight })
    }

    /// Returns the approximate memory use in bytes.
    pub const fn bytes(&self) -> usize {
        let Weight { subschemas, patterns, place_bytes, values, bytes } = self.weight;
        subschemas * SUBSCHEMA_BYTES
            + patterns * PATTERN_BYTES
            + place_bytes
            + values * VALUE_BYTES
            + bytes * COPIES
    }

    /// Returns whether validating this many bytes of JSON may take longer than a short job.
    #[doc(hidden)]
    pub const fn may_take_long(&self, bytes: usize) -> bool {
        bytes > MANY_BYTES || self.nodes.len() > MANY_SCHEMAS
    }

    /// Validates data.
    ///
    /// # Errors
    /// Returns the misfits, or only the first of them: at least one.
    pub fn check(&self, data: &Data) -> Result<(), Vec<SchemaError>> {
        deep::run(|| self.check_value(&data.0)).unwrap_or_else(|_| Err(vec![SchemaError::new("", NO_THREAD)]))
    }

    fn check_value(&self, data: &Value) -> Result<(), Vec<SchemaError>> {
        let whole = |text: &str| Err(vec![SchemaError::new("", text)]);
        let Some(steps) = Meter::count(&self.nodes, data, MAX_STEPS) else {
            return whole(
                "The data are too large to be checked by this schema: it would take too many steps",
            );
        };
        if self.validator.is_valid(data) {
            return Ok(());
        }
        let misfit = |error: ValidationError<'_>| {
            let place = error.instance_path().as_str().to_owned();
            SchemaError::new(place, shortened(&error.masked().to_string()))
        };
        if steps.all <= MAX_EXPLAINED {
            return Err(self.validator.iter_errors(data).take(MAX_MISFITS).map(misfit).collect());
        }
        if steps.to_choose > MAX_EXPLAINED {
            return whole("The data do not fit the type's schema; they are too large to say where");
        }
        // The validation stops at the first error, which holds no more errors than one choice collects.
        self.validator.validate(data).map_err(|error| vec![misfit(error)])
    }
}

fn too_long() -> SchemaError {
    SchemaError::new("", "Names of properties that schemas stand below are too long")
}

const NO_THREAD: &str = "The server has no thread to check this at the moment";

/// Returns the dialect of a schema; the default is draft 7.
fn draft(schema: &Value) -> Result<Draft, SchemaError> {
    let Some(named) = schema.get("$schema") else { return Ok(Draft::Draft7) };
    dialect(named).ok_or_else(|| {
        let text = "Input should be draft-04, draft-06, draft-07, 2019-09 or 2020-12 of json-schema.org";
        SchemaError::new("/$schema", text)
    })
}

/// Returns the dialect with this URI.
fn dialect(named: &Value) -> Option<Draft> {
    let name = named.as_str()?.trim_end_matches('#');
    let name = name.trim_start_matches("http://").trim_start_matches("https://");
    match name {
        "json-schema.org/draft-04/schema" => Some(Draft::Draft4),
        "json-schema.org/draft-06/schema" => Some(Draft::Draft6),
        "json-schema.org/draft-07/schema" | "json-schema.org/schema" => Some(Draft::Draft7),
        "json-schema.org/draft/2019-09/schema" => Some(Draft::Draft201909),
        "json-schema.org/draft/2020-12/schema" => Some(Draft::Draft202012),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
