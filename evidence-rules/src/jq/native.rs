//! Functions of values. Each charges the budget before it reads or creates anything whose size a filter
//! controls.

use std::sync::Arc;

use super::eval::{Machine, Run, Stop, error};
use super::order::{extreme_item, sorted};
use super::paths;
use super::text::{
    both_texts, explode, from_json, implode, join, letters, repeated, split, to_json, to_number, trim,
    trim_space,
};
use super::time;
use super::tree::{Math, Native};
use super::value::{Array, Fields, ITEM, Object, STRING, Value};

/// Calls a function. Lowering has checked the number of arguments.
pub(super) fn call(
    machine: &mut Machine<'_>,
    native: Native,
    input: &Value,
    arguments: &[Value],
) -> Run<Value> {
    machine.step()?;
    let argument = arguments.first().unwrap_or(&Value::Null);
    match native {
        Native::Length => length(machine, input),
        Native::Utf8ByteLength => match input {
            Value::Str(text) => Ok(count(text.len())),
            other => refuse(other, "only strings have UTF-8 byte length"),
        },
        Native::Not => Ok(Value::Bool(!input.is_truthy())),
        // The fields of an object are always sorted.
        Native::Keys | Native::KeysUnsorted => keys(machine, input),
        Native::Has => has(machine, input, argument),
        Native::In => has(machine, argument, input),
        Native::Contains => Ok(Value::Bool(contains(machine, input, argument)?)),
        Native::Inside => Ok(Value::Bool(contains(machine, argument, input)?)),
        Native::Index => index_of(machine, input, argument),
        Native::Indices => indices(machine, input, argument),
        Native::LastIndex => {
            let all = indices(machine, input, argument)?;
            index(machine, &all, &Value::Int(-1))
        }
        Native::SetPath => {
            let value = arguments.get(1).unwrap_or(&Value::Null);
            paths::set_path(machine, input, argument, value)
        }
        Native::DelPaths => paths::delete_paths(machine, input, argument),
        Native::FromJson => from_json(machine, input),
        Native::Explode => explode(machine, input),
        Native::Implode => implode(machine, input),
        Native::Trim => trim_space(machine, input, str::trim),
        Native::TrimLeft => trim_space(machine, input, str::trim_start),
        Native::TrimRight => trim_space(machine, input, str::trim_end),
        Native::TrimBoth => {
            let begun = trim(machine, input, argument, |text, part| text.strip_prefix(part))?;
            trim(machine, &begun, argument, |text, part| text.strip_suffix(part))
        }
        Native::Sqrt => mathematical(input, f64::sqrt),
        Native::Trunc => rounded(input, f64::trunc),
        Native::FAbs => mathematical(input, f64::abs),
        Native::Log => mathematical(input, f64::ln),
        Native::Log2 => mathematical(input, f64::log2),
        Native::Log10 => mathematical(input, f64::log10),
        Native::Exp => mathematical(input, f64::exp),
        Native::Exp2 => mathematical(input, f64::exp2),
        Native::Exp10 => mathematical(input, |power| 10_f64.powf(power)),
        Native::Pow => match (argument.as_float(), arguments.get(1).and_then(Value::as_float)) {
            (Some(base), Some(power)) => float(base.powf(power)),
            _ => refuse(argument, "number required"),
        },
        Native::Now => float(machine.now.as_micros() as f64 / 1e6),
        Native::MakeTime => time::make_time(input),
        Native::Gmtime => time::gmtime(machine, input),
        Native::FormatTime => time::format_time(machine, input, argument),
        Native::ParseTime => time::parse_time(machine, input, argument),
        Native::Type => machine.string(input.kind()),
        Native::Add => match input {
            Value::Object(object) => sum(machine, object.fields.values()),
            other => sum(machine, items(other)?.items.iter()),
        },
        Native::Min => extreme_item(machine, input, false),
        Native::Max => extreme_item(machine, input, true),
        Native::Sort | Native::Unique => sorted(machine, input, native == Native::Unique),
        Native::Reverse => reverse(machine, input),
        Native::Flatten => flatten(machine, input, usize::MAX),
        Native::FlattenTo => match argument {
            Value::Int(depth) if *depth >= 0 => {
                flatten(machine, input, usize::try_from(*depth).unwrap_or(usize::MAX))
            }
            other => refuse(other, "is no depth to flatten to"),
        },
        Native::ToEntries => to_entries(machine, input),
        Native::FromEntries => from_entries(machine, input),
        Native::GetPath => get_path(machine, input, argument),
        Native::FromDate => time::from_date(machine, input),
        Native::StartsWith => {
            both_texts(machine, input, argument, "startswith", |text, part| text.starts_with(part))
        }
        Native::EndsWith => {
            both_texts(machine, input, argument, "endswith", |text, part| text.ends_with(part))
        }
        Native::TrimStart => trim(machine, input, argument, |text, part| text.strip_prefix(part)),
        Native::TrimEnd => trim(machine, input, argument, |text, part| text.strip_suffix(part)),
        Native::Downcase => letters(machine, input, |letter| letter.to_ascii_lowercase()),
        Native::Upcase => letters(machine, input, |letter| letter.to_ascii_uppercase()),
        Native::Split => split(machine, input, argument),
        Native::Join => join(machine, input, argument),
        Native::ToNumber => to_number(machine, input),
        Native::ToString => match input {
            Value::Str(_) => Ok(input.clone()),
            other => to_json(machine, other),
        },
        Native::ToJson => to_json(machine, input),
        Native::Floor => rounded(input, f64::floor),
        Native::Ceil => rounded(input, f64::ceil),
        Native::Round => rounded(input, f64::round),
        Native::Abs => match input {
            Value::Int(_) | Value::Float(_) => length(machine, input),
            other => refuse(other, "has no absolute value"),
        },
        Native::Nth => index(machine, input, argument),
        Native::FirstOf => index(machine, input, &Value::Int(0)),
        Native::LastOf => index(machine, input, &Value::Int(-1)),
        Native::Error => Err(Stop::Error(input.clone())),
        Native::ErrorOf => Err(Stop::Error(argument.clone())),
    }
}

pub(super) fn refuse<T>(value: &Value, why: &str) -> Run<T> {
    error(format!("{} ({}) {why}", value.kind(), value.shown()))
}

pub(super) fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

pub(super) fn items(value: &Value) -> Run<&Arc<Array>> {
    match value {
        Value::Array(array) => Ok(array),
        other => refuse(other, "is no array"),
    }
}

pub(super) fn text(value: &Value) -> Run<&Arc<str>> {
    match value {
        Value::Str(text) => Ok(text),
        other => refuse(other, "is no string"),
    }
}

fn float(number: f64) -> Run<Value> {
    Value::number(number).map_or_else(|| error("the result is not a number"), Ok)
}

fn length(machine: &mut Machine<'_>, input: &Value) -> Run<Value> {
    Ok(match input {
        Value::Null => Value::Int(0),
        Value::Bool(_) => return refuse(input, "has no length"),
        Value::Int(number) => match number.checked_abs() {
            Some(number) => Value::Int(number),
            None => return float(-(i64::MIN as f64)),
        },
        Value::Float(number) => return float(number.abs()),
        Value::Str(text) => {
            machine.budget.read(text.len())?;
            count(text.chars().count())
        }
        Value::Array(array) => count(array.items.len()),
        Value::Object(object) => count(object.fields.len()),
    })
}

fn keys(machine: &mut Machine<'_>, input: &Value) -> Run<Value> {
    let mut keys = Vec::new();
    match input {
        Value::Object(object) => {
            for name in object.fields.keys() {
                machine.keep(&mut keys, Value::Str(Arc::clone(name)))?;
            }
        }
        Value::Array(array) => {
            for position in 0..array.items.len() {
                machine.keep(&mut keys, count(position))?;
            }
        }
        other => return refuse(other, "has no keys"),
    }
    machine.list(keys)
}

fn has(machine: &mut Machine<'_>, input: &Value, key: &Value) -> Run<Value> {
    if let Value::Str(name) = key {
        machine.budget.read(name.len())?;
    }
    Ok(Value::Bool(match (input, key) {
        (Value::Object(object), Value::Str(name)) => object.fields.contains_key(name),
        (Value::Array(array), Value::Int(at)) => usize::try_from(*at).is_ok_and(|at| at < array.items.len()),
        (Value::Array(array), Value::Float(at)) => *at >= 0.0 && *at < array.items.len() as f64,
        (input, key) => {
            return error(format!("Cannot check whether {} has a {} key", input.kind(), key.kind()));
        }
    }))
}

fn contains(machine: &mut Machine<'_>, one: &Value, other: &Value) -> Run<bool> {
    if one.kind() != other.kind() {
        return error(format!(
            "{} ({}) and {} ({}) cannot have their containment checked",
            one.kind(),
            one.shown(),
            other.kind(),
            other.shown()
        ));
    }
    holds(machine, one, other)
}

fn holds(machine: &mut Machine<'_>, one: &Value, other: &Value) -> Run<bool> {
    machine.step()?;
    match (one, other) {
        (Value::Str(one), Value::Str(other)) => {
            machine.budget.read(one.len() + other.len())?;
            Ok(one.contains(&**other))
        }
        (Value::Array(one), Value::Array(other)) => {
            for wanted in &other.items {
                let mut found = false;
                for item in &one.items {
                    found = holds(machine, item, wanted)?;
                    if found {
                        break;
                    }
                }
                if !found {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Object(one), Value::Object(other)) => {
            for (name, wanted) in &other.fields {
                machine.budget.steps(1)?;
                machine.budget.read(name.len())?;
                let Some(value) = one.fields.get(name) else { return Ok(false) };
                if !holds(machine, value, wanted)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (one, other) => Ok(one.equals(other, machine.budget)?),
    }
}

fn index_of(machine: &mut Machine<'_>, input: &Value, wanted: &Value) -> Run<Value> {
    match (input, wanted) {
        (Value::Null, _) => Ok(Value::Null),
        (Value::Str(within), Value::Str(part)) => {
            machine.budget.read(within.len() + part.len())?;
            let found = if part.is_empty() { None } else { within.find(&**part) };
            let letters = found.and_then(|at| within.get(..at)).map(|before| before.chars().count());
            Ok(letters.map_or(Value::Null, count))
        }
        (Value::Array(_), Value::Array(_)) => {
            refuse(wanted, "cannot be looked for in an array: it is one itself")
        }
        (Value::Array(array), wanted) => {
            for (position, item) in array.items.iter().enumerate() {
                if item.equals(wanted, machine.budget)? {
                    return Ok(count(position));
                }
            }
            Ok(Value::Null)
        }
        (input, wanted) => {
            error(format!("Cannot determine indices of {} in {}", wanted.kind(), input.kind()))
        }
    }
}

/// `indices`: the positions of a string or a list within another one, or of a value in a list.
fn indices(machine: &mut Machine<'_>, input: &Value, wanted: &Value) -> Run<Value> {
    let mut found = Vec::new();
    match (input, wanted) {
        (Value::Null, _) => return Ok(Value::Null),
        (Value::Str(within), Value::Str(part)) => {
            for (letters, (at, _)) in within.char_indices().enumerate().filter(|_| !part.is_empty()) {
                machine.budget.steps(1 + part.len() / 16)?;
                if within.get(at..).is_some_and(|rest| rest.starts_with(&**part)) {
                    machine.keep(&mut found, count(letters))?;
                }
            }
        }
        (Value::Array(array), Value::Array(part)) => {
            for (at, window) in array.items.windows(part.items.len().max(1)).enumerate() {
                machine.step()?;
                let mut same = !part.items.is_empty();
                for (item, wanted) in window.iter().zip(&part.items) {
                    same = same && item.equals(wanted, machine.budget)?;
                }
                if same {
                    machine.keep(&mut found, count(at))?;
                }
            }
        }
        (Value::Array(array), wanted) => {
            for (at, item) in array.items.iter().enumerate() {
                if item.equals(wanted, machine.budget)? {
                    machine.keep(&mut found, count(at))?;
                }
            }
        }
        (input, wanted) => {
            return error(format!("Cannot determine indices of {} in {}", wanted.kind(), input.kind()));
        }
    }
    machine.list(found)
}

/// `.[f]`
pub(super) fn index(machine: &mut Machine<'_>, of: &Value, key: &Value) -> Run<Value> {
    machine.step()?;
    match (of, key) {
        (Value::Object(object), Value::Str(name)) => {
            machine.budget.read(name.len())?;
            Ok(object.fields.get(name).cloned().unwrap_or(Value::Null))
        }
        (Value::Array(array), Value::Int(_) | Value::Float(_)) => {
            let position = position(key, array.items.len(), f64::floor).and_then(|at| array.items.get(at));
            Ok(position.cloned().unwrap_or(Value::Null))
        }
        (Value::Null, Value::Str(_) | Value::Int(_) | Value::Float(_) | Value::Null) => Ok(Value::Null),
        (of, Value::Str(name)) => {
            let name = Value::Str(Arc::clone(name)).shown();
            error(format!("Cannot index {} with string {name}", of.kind()))
        }
        (of, key) => error(format!("Cannot index {} with {}", of.kind(), key.kind())),
    }
}

/// Returns the position in a list of this length; a negative number counts from the end. Returns `None` if it
/// is before the beginning.
fn position(number: &Value, length: usize, whole: fn(f64) -> f64) -> Option<usize> {
    let number = whole(number.as_float()?);
    let from_begin = if number < 0.0 { number + length as f64 } else { number };
    (from_begin >= 0.0).then(|| from_begin.min(length as f64) as usize)
}

/// Returns the positions of the bounds of a slice; the first is at most the second.
fn between(from: &Value, to: &Value, length: usize) -> (usize, usize) {
    let from = if matches!(from, Value::Null) { 0 } else { position(from, length, f64::floor).unwrap_or(0) };
    let to = if matches!(to, Value::Null) { length } else { position(to, length, f64::ceil).unwrap_or(0) };
    (from, to.max(from))
}

/// Returns the positions of the bounds of a slice that is a key of a path.
pub(super) fn slice_bounds(key: &Value, length: usize) -> (usize, usize) {
    let Value::Object(bounds) = key else { return (0, 0) };
    let bound = |name: &str| bounds.fields.get(name).unwrap_or(&Value::Null);
    between(bound("start"), bound("end"), length)
}

/// `.[f:g]`
pub(super) fn slice(machine: &mut Machine<'_>, of: &Value, from: &Value, to: &Value) -> Run<Value> {
    machine.step()?;
    let bound = |bound: &Value| matches!(bound, Value::Null | Value::Int(_) | Value::Float(_));
    if !bound(from) || !bound(to) {
        return error(format!(
            "Start and end indices of an array slice must be numbers, not {} and {}",
            from.kind(),
            to.kind()
        ));
    }
    let range = |length: usize| {
        let (from, to) = between(from, to, length);
        (from, to - from)
    };
    match of {
        Value::Null => Ok(Value::Null),
        Value::Array(array) => {
            let (from, many) = range(array.items.len());
            let mut items = Vec::new();
            for item in array.items.iter().skip(from).take(many) {
                machine.keep(&mut items, item.clone())?;
            }
            machine.list(items)
        }
        Value::Str(text) => {
            machine.budget.read(text.len())?;
            let (from, many) = range(text.chars().count());
            Ok(Value::text(text.chars().skip(from).take(many), text.len(), machine.budget)?)
        }
        other => error(format!("Cannot index {} with object", other.kind())),
    }
}

pub(super) fn math(machine: &mut Machine<'_>, op: Math, left: &Value, right: &Value) -> Run<Value> {
    if let (Some(one), Some(other)) = (left.as_float(), right.as_float()) {
        let exact = match (left, right) {
            (Value::Int(left), Value::Int(right)) => Some((*left, *right)),
            _ => None,
        };
        return numbers(op, (one, other), exact).map_or_else(|| impossible(op, left, right), Ok);
    }
    match (op, left, right) {
        (Math::Add, Value::Null, other) | (Math::Add, other, Value::Null) => Ok(other.clone()),
        (Math::Add, Value::Str(left), Value::Str(right)) => {
            machine.budget.bytes(left.len() + right.len())?;
            machine.string(&format!("{left}{right}"))
        }
        (Math::Add, Value::Array(left), Value::Array(right)) => {
            let mut all = Vec::new();
            for item in left.items.iter().chain(&right.items) {
                machine.keep(&mut all, item.clone())?;
            }
            machine.list(all)
        }
        (Math::Add, Value::Object(left), Value::Object(right)) => {
            machine.budget.steps(left.fields.len() + right.fields.len())?;
            machine.budget.allocate((left.fields.len() + right.fields.len()).saturating_mul(2 * ITEM))?;
            let mut fields = left.fields.clone();
            add_fields(machine, &mut fields, right)?;
            machine.object(fields)
        }
        (Math::Subtract, Value::Array(left), Value::Array(right)) => {
            let mut rest = Vec::new();
            for item in &left.items {
                machine.step()?;
                let mut there = false;
                for other in &right.items {
                    there = item.equals(other, machine.budget)?;
                    if there {
                        break;
                    }
                }
                if !there {
                    machine.keep(&mut rest, item.clone())?;
                }
            }
            machine.list(rest)
        }
        (Math::Multiply, Value::Object(left), Value::Object(right)) => merge(machine, left, right),
        (Math::Divide, Value::Str(_), Value::Str(_)) => split(machine, left, right),
        (Math::Multiply, Value::Str(text), times) | (Math::Multiply, times, Value::Str(text))
            if times.as_float().is_some() =>
        {
            repeated(machine, text, times.as_float().unwrap_or_default())
        }
        _ => impossible(op, left, right),
    }
}

fn impossible<T>(op: Math, left: &Value, right: &Value) -> Run<T> {
    let done = match op {
        Math::Add => "added",
        Math::Subtract => "subtracted",
        Math::Multiply => "multiplied",
        Math::Divide => "divided",
        Math::Remainder => "divided for a remainder",
    };
    error(format!(
        "{} ({}) and {} ({}) cannot be {done}",
        left.kind(),
        left.shown(),
        right.kind(),
        right.shown()
    ))
}

/// Computes the result, or `None` if it is not a number.
fn numbers(op: Math, (left, right): (f64, f64), exact: Option<(i64, i64)>) -> Option<Value> {
    let exactly =
        |of: fn(i64, i64) -> Option<i64>| exact.and_then(|(left, right)| of(left, right)).map(Value::Int);
    match op {
        Math::Add => exactly(i64::checked_add).or_else(|| Value::number(left + right)),
        Math::Subtract => exactly(i64::checked_sub).or_else(|| Value::number(left - right)),
        Math::Multiply => exactly(i64::checked_mul).or_else(|| Value::number(left * right)),
        Math::Divide if right == 0.0 => None,
        Math::Divide => Value::number(left / right),
        Math::Remainder => {
            let (left, right) = exact.unwrap_or((left as i64, right as i64));
            // The sign of the divisor has no effect.
            let right = right.unsigned_abs();
            let rest = left.unsigned_abs().checked_rem(right)?;
            let rest = i64::try_from(rest).ok()?;
            Some(Value::Int(if left < 0 { -rest } else { rest }))
        }
    }
}

/// Merges the fields of both objects; fields that are objects in both are merged recursively. The recursion
/// is bounded by the depth limit of values.
fn merge(machine: &mut Machine<'_>, left: &Arc<Object>, right: &Arc<Object>) -> Run<Value> {
    machine.budget.steps(left.fields.len() + right.fields.len())?;
    machine.budget.allocate((left.fields.len() + right.fields.len()).saturating_mul(2 * ITEM))?;
    let mut fields = left.fields.clone();
    for (name, value) in &right.fields {
        machine.step()?;
        machine.budget.read(name.len())?;
        let merged = match (fields.get(name), value) {
            (Some(Value::Object(before)), Value::Object(value)) => {
                merge(machine, &Arc::clone(before), value)?
            }
            _ => value.clone(),
        };
        fields.insert(Arc::clone(name), merged);
    }
    machine.object(fields)
}

/// Returns the sum of values. Lists, strings and objects are appended in place.
pub(super) fn sum<'v>(machine: &mut Machine<'_>, values: impl Iterator<Item = &'v Value>) -> Run<Value> {
    let mut total = Value::Null;
    let mut values = values.peekable();
    while let Some(value) = values.next() {
        machine.step()?;
        match (&total, value) {
            (Value::Null, Value::Array(first)) => {
                let mut all = Vec::new();
                for item in &first.items {
                    machine.keep(&mut all, item.clone())?;
                }
                while let Some(Value::Array(more)) = values.next_if(|value| matches!(value, Value::Array(_)))
                {
                    machine.step()?;
                    for item in &more.items {
                        machine.keep(&mut all, item.clone())?;
                    }
                }
                total = machine.list(all)?;
            }
            (Value::Null, Value::Str(first)) => {
                let mut all = String::new();
                machine.budget.bytes(first.len())?;
                all.push_str(first);
                while let Some(Value::Str(more)) = values.next_if(|value| matches!(value, Value::Str(_))) {
                    machine.budget.bytes(more.len() + 1)?;
                    all.push_str(more);
                }
                total = machine.string(&all)?;
            }
            (Value::Null, Value::Object(first)) => {
                let mut all = Fields::new();
                add_fields(machine, &mut all, first)?;
                while let Some(Value::Object(more)) =
                    values.next_if(|value| matches!(value, Value::Object(_)))
                {
                    machine.step()?;
                    add_fields(machine, &mut all, more)?;
                }
                total = machine.object(all)?;
            }
            (total_so_far, value) => total = math(machine, Math::Add, total_so_far, value)?,
        }
    }
    Ok(total)
}

fn add_fields(machine: &mut Machine<'_>, all: &mut Fields, more: &Object) -> Run {
    for (name, value) in &more.fields {
        machine.step()?;
        machine.budget.read(name.len())?;
        machine.budget.allocate(2 * ITEM)?;
        all.insert(Arc::clone(name), value.clone());
    }
    Ok(())
}

fn reverse(machine: &mut Machine<'_>, input: &Value) -> Run<Value> {
    let mut reversed = Vec::new();
    match input {
        Value::Null => {}
        Value::Str(text) => {
            return Ok(Value::text(text.chars().rev(), text.len(), machine.budget)?);
        }
        other => {
            for item in items(other)?.items.iter().rev() {
                machine.keep(&mut reversed, item.clone())?;
            }
        }
    }
    machine.list(reversed)
}

fn flatten(machine: &mut Machine<'_>, input: &Value, depth: usize) -> Run<Value> {
    let mut flat = Vec::new();
    let mut open = vec![(items(input)?, 0)];
    while let Some((array, at)) = open.pop() {
        machine.step()?;
        let Some(item) = array.items.get(at) else { continue };
        open.push((array, at + 1));
        match item {
            Value::Array(inner) if open.len() <= depth => open.push((inner, 0)),
            item => machine.keep(&mut flat, item.clone())?,
        }
    }
    machine.list(flat)
}

pub(super) fn to_entries(machine: &mut Machine<'_>, input: &Value) -> Run<Value> {
    let Value::Object(object) = input else { return refuse(input, "has no keys") };
    let (key, of): (Arc<str>, Arc<str>) = ("key".into(), "value".into());
    machine.budget.allocate(2 * (STRING + "value".len()))?;
    let mut entries = Vec::new();
    for (name, value) in &object.fields {
        let entry = [(Arc::clone(&key), Value::Str(Arc::clone(name))), (Arc::clone(&of), value.clone())];
        let entry = machine.object(Fields::from(entry))?;
        machine.keep(&mut entries, entry)?;
    }
    machine.list(entries)
}

pub(super) fn from_entries(machine: &mut Machine<'_>, input: &Value) -> Run<Value> {
    const KEYS: [&str; 6] = ["key", "k", "name", "Name", "Key", "K"];
    const VALUES: [&str; 4] = ["value", "v", "Value", "V"];
    let mut fields = Fields::new();
    for entry in &items(input)?.items {
        machine.budget.steps(KEYS.len() + VALUES.len())?;
        let Value::Object(entry) = entry else { return refuse(entry, "is no object of key and value") };
        let key =
            KEYS.iter().filter_map(|name| entry.fields.get(*name)).find(|key| !matches!(key, Value::Null));
        let value = VALUES.iter().find_map(|name| entry.fields.get(*name)).cloned().unwrap_or(Value::Null);
        let key = match key {
            Some(Value::Str(name)) => Arc::clone(name),
            Some(key @ (Value::Bool(_) | Value::Int(_) | Value::Float(_))) => {
                let text = key.json(machine.budget)?;
                machine.budget.allocate(STRING + text.len())?;
                text.into()
            }
            Some(other) => return refuse(other, "cannot be an object's key"),
            None => "null".into(),
        };
        machine.budget.read(key.len())?;
        machine.budget.allocate(2 * ITEM)?;
        fields.insert(key, value);
    }
    machine.object(fields)
}

pub(super) fn get_path(machine: &mut Machine<'_>, input: &Value, path: &Value) -> Run<Value> {
    let Value::Array(path) = path else { return error("Path must be specified as an array") };
    let mut found = input.clone();
    for key in &path.items {
        found = index(machine, &found, key)?;
    }
    Ok(found)
}

fn mathematical(input: &Value, function: fn(f64) -> f64) -> Run<Value> {
    match input.as_float() {
        Some(number) => float(function(number)),
        None => refuse(input, "number required"),
    }
}

fn rounded(input: &Value, round: fn(f64) -> f64) -> Run<Value> {
    match input {
        Value::Int(_) => Ok(input.clone()),
        Value::Float(number) => float(round(*number)),
        other => refuse(other, "number required"),
    }
}
