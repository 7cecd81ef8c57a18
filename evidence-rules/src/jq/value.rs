//! The values of filters: JSON with shared containers that store their depth. Only a sole owner changes a
//! container in place.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::Arc;

use super::budget::{Budget, Limit};
use evidence_values::json::JsonValue;

/// A JSON value. A number that is an integer and fits is stored as one, otherwise as a float. Numbers are
/// always finite, so the order of values is total.
#[derive(Debug, Clone)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A finite number that is not an integer, or that is beyond 53 bits and was not a 64-bit integer.
    Float(f64),
    /// A string.
    Str(Arc<str>),
    /// A list.
    Array(Arc<Array>),
    /// An object, its fields by name.
    Object(Arc<Object>),
}

/// The items of a list.
#[derive(Debug, Clone)]
pub struct Array {
    pub(super) items: Vec<Value>,
    depth: usize,
}

/// The fields of an object.
#[derive(Debug, Clone)]
pub struct Object {
    pub(super) fields: Fields,
    depth: usize,
}

impl Array {
    /// Replaces an item.
    pub(super) fn put(&mut self, at: usize, item: Value) {
        self.depth = self.depth.max(1 + item.depth());
        if let Some(place) = self.items.get_mut(at) {
            *place = item;
        }
    }
}

impl Object {
    /// Inserts or replaces a field.
    pub(super) fn put(&mut self, name: &Arc<str>, value: Value) {
        self.depth = self.depth.max(1 + value.depth());
        self.fields.insert(Arc::clone(name), value);
    }
}

/// Values by field name.
pub(super) type Fields = BTreeMap<Arc<str>, Value>;

/// Maximum nesting depth of values. Dropping a value uses stack for each level.
pub(super) const MAX_DEPTH: usize = 192;

/// Bytes charged for a list item, or for a value that is kept for later.
pub(super) const ITEM: usize = size_of::<Value>();

/// Bytes charged for a string in addition to its text.
pub(super) const STRING: usize = 32;

/// Bytes charged for a list in addition to its items.
const LIST: usize = 64;

/// Bytes charged for an object in addition to its fields, and for each field.
const OBJECT: usize = 400;
const FIELD: usize = 48;

/// From this size on, floats cannot represent all integers exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Value {
    /// Returns the value of a number, or `None` for NaN. Numbers beyond the range of floats become the
    /// largest float.
    pub(super) fn number(float: f64) -> Option<Self> {
        if float.is_nan() {
            return None;
        }
        let float = float.clamp(f64::MIN, f64::MAX);
        let number = match float.fract() == 0.0 && float.abs() < EXACT {
            true => Self::Int(float as i64),
            false => Self::Float(float),
        };
        Some(number)
    }

    /// Parses the text of a JSON number.
    pub(super) fn read_number(text: &str) -> Option<Self> {
        match text.parse() {
            Ok(integer) => Some(Self::Int(integer)),
            Err(_) => text.parse().ok().and_then(Self::number),
        }
    }

    /// Converts JSON. Its nesting must not exceed the limit for callers' JSON.
    pub fn of(json: &JsonValue) -> Self {
        match json {
            JsonValue::Null => Self::Null,
            JsonValue::Bool(value) => Self::Bool(*value),
            JsonValue::Number(text) => Self::read_number(text).unwrap_or(Self::Null),
            JsonValue::String(text) => Self::Str(text.as_str().into()),
            JsonValue::Array(items) => Self::list(items.iter().map(Self::of).collect()),
            JsonValue::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| (name.as_str().into(), Self::of(value)));
                Self::fields(fields.collect())
            }
        }
    }

    /// Returns the elements of a list, or `None` for other values.
    pub fn elements(&self) -> Option<&[Self]> {
        match self {
            Self::Array(array) => Some(&array.items),
            _ => None,
        }
    }

    fn list(items: Vec<Self>) -> Self {
        let depth = 1 + items.iter().map(Self::depth).max().unwrap_or(0);
        Self::Array(Arc::new(Array { items, depth }))
    }

    fn fields(fields: Fields) -> Self {
        let depth = 1 + fields.values().map(Self::depth).max().unwrap_or(0);
        Self::Object(Arc::new(Object { fields, depth }))
    }

    fn depth(&self) -> usize {
        match self {
            Self::Array(array) => array.depth,
            Self::Object(object) => object.depth,
            _ => 0,
        }
    }

    /// Creates a list. The memory of its items was charged when they were collected (`Machine::keep`).
    pub(super) fn array(items: Vec<Self>, budget: &mut Budget) -> Result<Self, Limit> {
        budget.steps(items.len())?;
        budget.allocate(LIST)?;
        Self::list(items).shallow()
    }

    /// Creates an object with these fields.
    pub(super) fn object(fields: Fields, budget: &mut Budget) -> Result<Self, Limit> {
        budget.steps(fields.len())?;
        budget.allocate(OBJECT + fields.len().saturating_mul(FIELD))?;
        Self::fields(fields).shallow()
    }

    pub(super) fn shallow(self) -> Result<Self, Limit> {
        if self.depth() > MAX_DEPTH { Err(Limit::Depth) } else { Ok(self) }
    }

    /// Creates a string, after charging its memory.
    pub(super) fn string(text: &str, budget: &mut Budget) -> Result<Self, Limit> {
        budget.bytes(STRING + text.len())?;
        Ok(Self::Str(text.into()))
    }

    /// Creates a string from characters of another one with this number of bytes, all of which may have to be
    /// read.
    pub(super) fn text(
        text: impl Iterator<Item = char>,
        bytes: usize,
        budget: &mut Budget,
    ) -> Result<Self, Limit> {
        budget.bytes(STRING + bytes)?;
        Ok(Self::Str(text.collect::<String>().into()))
    }

    /// Returns whether it is neither `null` nor `false`.
    pub(super) const fn is_truthy(&self) -> bool {
        !matches!(self, Self::Null | Self::Bool(false))
    }

    /// Returns the name of its type.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Int(_) | Self::Float(_) => "number",
            Self::Str(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// Returns the rank of its type in the order of values.
    const fn rank(&self) -> u8 {
        match self {
            Self::Null => 0,
            Self::Bool(_) => 1,
            Self::Int(_) | Self::Float(_) => 2,
            Self::Str(_) => 3,
            Self::Array(_) => 4,
            Self::Object(_) => 5,
        }
    }

    /// Returns the number as a float.
    pub(super) const fn as_float(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// Compares two values in the order of all values: null, booleans, numbers, strings, lists, objects.
    pub(super) fn compare(&self, other: &Self, budget: &mut Budget) -> Result<Ordering, Limit> {
        budget.steps(1)?;
        Ok(match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => one.cmp(other),
            (Self::Int(one), Self::Int(other)) => one.cmp(other),
            (Self::Int(one), Self::Float(other)) => integer_to_float(*one, *other),
            (Self::Float(one), Self::Int(other)) => integer_to_float(*other, *one).reverse(),
            (Self::Float(one), Self::Float(other)) => one.total_cmp(other),
            (Self::Str(one), Self::Str(other)) => {
                budget.read(one.len().min(other.len()))?;
                one.cmp(other)
            }
            (Self::Array(one), Self::Array(other)) => {
                for (one, other) in one.items.iter().zip(&other.items) {
                    let order = one.compare(other, budget)?;
                    if order.is_ne() {
                        return Ok(order);
                    }
                }
                one.items.len().cmp(&other.items.len())
            }
            (Self::Object(one), Self::Object(other)) => {
                for (one, other) in one.fields.keys().zip(other.fields.keys()) {
                    budget.steps(1)?;
                    budget.read(one.len().min(other.len()))?;
                    let order = one.cmp(other);
                    if order.is_ne() {
                        return Ok(order);
                    }
                }
                let order = one.fields.len().cmp(&other.fields.len());
                if order.is_ne() {
                    return Ok(order);
                }
                for (one, other) in one.fields.values().zip(other.fields.values()) {
                    let order = one.compare(other, budget)?;
                    if order.is_ne() {
                        return Ok(order);
                    }
                }
                Ordering::Equal
            }
            (one, other) => one.rank().cmp(&other.rank()),
        })
    }

    /// Returns whether two values are equal.
    pub(super) fn equals(&self, other: &Self, budget: &mut Budget) -> Result<bool, Limit> {
        Ok(self.compare(other, budget)?.is_eq())
    }

    /// Appends its JSON text to `text`.
    pub(super) fn write(&self, text: &mut String, budget: &mut Budget) -> Result<(), Limit> {
        budget.steps(1)?;
        match self {
            Self::Null => push(text, "null", budget),
            Self::Bool(true) => push(text, "true", budget),
            Self::Bool(false) => push(text, "false", budget),
            Self::Int(value) => push(text, &value.to_string(), budget),
            Self::Float(value) => push(text, &float_text(*value), budget),
            Self::Str(value) => quote(text, value, budget),
            Self::Array(array) => {
                for (position, item) in array.items.iter().enumerate() {
                    push(text, if position == 0 { "[" } else { "," }, budget)?;
                    item.write(text, budget)?;
                }
                push(text, if array.items.is_empty() { "[]" } else { "]" }, budget)
            }
            Self::Object(object) => {
                for (position, (name, value)) in object.fields.iter().enumerate() {
                    push(text, if position == 0 { "{" } else { "," }, budget)?;
                    quote(text, name, budget)?;
                    push(text, ":", budget)?;
                    value.write(text, budget)?;
                }
                push(text, if object.fields.is_empty() { "{}" } else { "}" }, budget)
            }
        }
    }

    /// Returns its JSON text.
    pub(super) fn json(&self, budget: &mut Budget) -> Result<String, Limit> {
        let mut text = String::new();
        self.write(&mut text, budget)?;
        Ok(text)
    }

    /// Returns its JSON text, or `None` if it has more than `most` bytes.
    pub fn to_json(&self, most: usize) -> Option<String> {
        self.json(&mut Budget::new(usize::MAX, most.saturating_mul(2))).ok().filter(|text| text.len() <= most)
    }

    /// Returns the beginning of its JSON text for a message, in bounded time.
    pub(super) fn shown(&self) -> String {
        let (mut text, mut budget) = (String::new(), Budget::new(SHOWN, SHOWN));
        let whole = self.write(&mut text, &mut budget).is_ok() && text.len() <= SHOWN;
        if whole { text } else { text.chars().take(SHOWN / 2).chain(['…']).collect() }
    }
}

/// Approximate number of bytes of a value that a message shows.
const SHOWN: usize = 40;

fn push(text: &mut String, more: &str, budget: &mut Budget) -> Result<(), Limit> {
    budget.bytes(more.len())?;
    text.push_str(more);
    Ok(())
}

fn quote(text: &mut String, value: &str, budget: &mut Budget) -> Result<(), Limit> {
    budget.bytes(value.len() + 2)?;
    text.push('"');
    for letter in value.chars() {
        match letter {
            '"' => push(text, "\\\"", budget)?,
            '\\' => push(text, "\\\\", budget)?,
            '\n' => push(text, "\\n", budget)?,
            '\r' => push(text, "\\r", budget)?,
            '\t' => push(text, "\\t", budget)?,
            '\u{8}' => push(text, "\\b", budget)?,
            '\u{c}' => push(text, "\\f", budget)?,
            '\0'..'\u{20}' | '\u{7f}' => {
                budget.bytes(6)?;
                // Writing to a string cannot fail.
                let _: fmt::Result = write!(text, "\\u{:04x}", u32::from(letter));
            }
            letter => text.push(letter),
        }
    }
    text.push('"');
    Ok(())
}

/// Returns the shortest text that parses to this number, with an exponent if it would be long.
fn float_text(value: f64) -> String {
    match value.abs() {
        1e-5..1e17 => value.to_string(),
        _ => {
            let text = format!("{value:e}");
            match text.split_once('e') {
                Some((digits, exponent)) if !exponent.starts_with('-') => format!("{digits}e+{exponent}"),
                _ => text,
            }
        }
    }
}

/// Compares an integer with a float exactly.
fn integer_to_float(integer: i64, float: f64) -> Ordering {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if float >= BEYOND {
        return Ordering::Less;
    }
    if float < -BEYOND {
        return Ordering::Greater;
    }
    let whole = float.trunc() as i64;
    let fraction = float.fract();
    integer.cmp(&whole).then_with(|| 0.0.partial_cmp(&fraction).unwrap_or(Ordering::Equal))
}
