//! JSON that preserves the input: numbers keep their exact characters at any length. Data that callers expect
//! back is cut out of [`CheckedJson`] and stored as [`JsonText`], without parsing its numbers.

mod parse;
mod scan;
mod text;

use schemars::JsonSchema;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

pub use parse::{CheckedJson, MAX_DEPTH, check, parse};
pub(crate) use scan::{Scanner, compact};
pub use text::{JsonFields, JsonText};

/// The empty object, `{}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct EmptyObject {}

/// A JSON value whose numbers are text.
#[derive(Debug, Clone, Eq)]
pub enum JsonValue {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, in the spelling of JSON.
    Number(String),
    /// A string.
    String(String),
    /// A list.
    Array(Vec<JsonValue>),
    /// An object with its fields in order; names are unique.
    Object(Vec<(String, JsonValue)>),
}

/// Compares values; the order of an object's fields does not matter.
impl PartialEq for JsonValue {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Number(one), Self::Number(other)) | (Self::String(one), Self::String(other)) => {
                one == other
            }
            (Self::Array(one), Self::Array(other)) => one == other,
            (Self::Object(one), Self::Object(other)) => by_name(one) == by_name(other),
            _ => false,
        }
    }
}

fn by_name(fields: &[(String, JsonValue)]) -> Vec<&(String, JsonValue)> {
    let mut fields = Vec::from_iter(fields);
    fields.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    fields
}

impl Serialize for JsonValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(text) => {
                serde_json::from_str::<&RawValue>(text).map_err(S::Error::custom)?.serialize(serializer)
            }
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(fields) => serializer.collect_map(fields.iter().map(|(name, value)| (name, value))),
        }
    }
}
