//! Functions of strings.

use super::eval::{Machine, Run, error};
use super::native::{items, refuse, text};
use super::value::Value;

/// Returns the text of a value within a string.
pub(super) fn to_text(machine: &mut Machine<'_>, value: &Value) -> Run<String> {
    match value {
        Value::Str(text) => {
            machine.budget.bytes(text.len())?;
            Ok(text.to_string())
        }
        other => Ok(other.json(machine.budget)?),
    }
}

pub(super) fn to_json(machine: &mut Machine<'_>, value: &Value) -> Run<Value> {
    let text = value.json(machine.budget)?;
    machine.string(&text)
}

pub(super) fn both_texts(
    machine: &mut Machine<'_>,
    input: &Value,
    part: &Value,
    name: &str,
    holds: fn(&str, &str) -> bool,
) -> Run<Value> {
    let (Value::Str(within), Value::Str(part)) = (input, part) else {
        return error(format!("{name}() requires string inputs"));
    };
    machine.budget.read(part.len())?;
    Ok(Value::Bool(holds(within, part)))
}

pub(super) fn trim(
    machine: &mut Machine<'_>,
    input: &Value,
    part: &Value,
    strip: for<'a> fn(&'a str, &str) -> Option<&'a str>,
) -> Run<Value> {
    match (input, part) {
        (Value::Str(within), Value::Str(part)) => {
            machine.budget.read(part.len())?;
            match strip(within, part) {
                Some(rest) => machine.string(rest),
                None => Ok(input.clone()),
            }
        }
        _ => Ok(input.clone()),
    }
}

pub(super) fn letters(machine: &mut Machine<'_>, input: &Value, change: fn(char) -> char) -> Run<Value> {
    let text = text(input)?;
    Ok(Value::text(text.chars().map(change), text.len(), machine.budget)?)
}

pub(super) fn split(machine: &mut Machine<'_>, input: &Value, by: &Value) -> Run<Value> {
    let (Value::Str(within), Value::Str(by)) = (input, by) else {
        return error("split input and separator must be strings");
    };
    let mut parts = Vec::new();
    if by.is_empty() {
        for letter in within.chars() {
            let part = machine.string(letter.encode_utf8(&mut [0; 4]))?;
            machine.keep(&mut parts, part)?;
        }
    } else if !within.is_empty() {
        machine.budget.read(within.len() + by.len())?;
        for part in within.split(&**by) {
            let part = machine.string(part)?;
            machine.keep(&mut parts, part)?;
        }
    }
    machine.list(parts)
}

pub(super) fn join(machine: &mut Machine<'_>, input: &Value, by: &Value) -> Run<Value> {
    let array = items(input)?;
    let mut joined = String::new();
    for (position, item) in array.items.iter().enumerate() {
        machine.step()?;
        if position > 0 {
            let by = text(by)?;
            machine.budget.bytes(by.len())?;
            joined.push_str(by);
        }
        match item {
            Value::Null => {}
            Value::Array(_) | Value::Object(_) => return refuse(item, "cannot be joined"),
            other => joined.push_str(&to_text(machine, other)?),
        }
    }
    machine.string(&joined)
}

/// Returns a repeated string, or null if the count is not positive.
pub(super) fn repeated(machine: &mut Machine<'_>, text: &str, times: f64) -> Run<Value> {
    if times <= 0.0 {
        return Ok(Value::Null);
    }
    let times = times.max(1.0) as usize;
    machine.budget.bytes(text.len().saturating_mul(times))?;
    machine.string(&text.repeat(times))
}

pub(super) fn trim_space(machine: &mut Machine<'_>, input: &Value, strip: fn(&str) -> &str) -> Run<Value> {
    let text = text(input)?;
    machine.budget.read(text.len())?;
    machine.string(strip(text))
}

pub(super) fn explode(machine: &mut Machine<'_>, input: &Value) -> Run<Value> {
    let text = text(input)?;
    let mut points = Vec::new();
    for letter in text.chars() {
        machine.keep(&mut points, Value::Int(i64::from(u32::from(letter))))?;
    }
    machine.list(points)
}

pub(super) fn implode(machine: &mut Machine<'_>, input: &Value) -> Run<Value> {
    let mut letters = String::new();
    for point in &items(input)?.items {
        machine.step()?;
        let letter = match point {
            Value::Int(point) => u32::try_from(*point).ok().and_then(char::from_u32),
            _ => None,
        };
        let Some(letter) = letter else { return refuse(point, "is no Unicode codepoint") };
        machine.budget.allocate(letter.len_utf8())?;
        letters.push(letter);
    }
    machine.string(&letters)
}

/// Approximate memory of parsed values for each byte of JSON text.
const READ: usize = 32;

pub(super) fn from_json(machine: &mut Machine<'_>, input: &Value) -> Run<Value> {
    let text = text(input)?;
    machine.budget.steps(text.len())?;
    machine.budget.allocate(text.len().saturating_mul(READ))?;
    match evidence_values::json::parse(text.as_bytes()) {
        Ok(json) => Ok(Value::of(&json)),
        Err(why) => error(format!("{} ({why})", input.shown())),
    }
}

pub(super) fn to_number(machine: &mut Machine<'_>, input: &Value) -> Run<Value> {
    let Value::Str(text) = input else {
        return match input.as_float() {
            Some(_) => Ok(input.clone()),
            None => refuse(input, "cannot be parsed as a number"),
        };
    };
    machine.budget.read(text.len().saturating_mul(2))?;
    // Rust's parser accepts more than JSON allows, such as the words for infinity and NaN.
    let is_json = serde_json::from_str::<&serde_json::value::RawValue>(text)
        .is_ok_and(|raw| raw.get().starts_with(|first: char| first == '-' || first.is_ascii_digit()));
    let number = is_json.then(|| Value::read_number(text.trim())).flatten();
    number.map_or_else(|| refuse(input, "cannot be parsed as a number"), Ok)
}
