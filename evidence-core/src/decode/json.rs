//! JSON text to values, within bounds.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, Visitor};
use serde_json::{Map, Value};

use super::shortened;

/// JSON nested deeper than this is refused.
pub const DEEPEST: usize = 64;

/// JSON of more values is refused: a value of two bytes takes hundreds in memory, so that a limit in bytes alone lets
/// one request take a gigabyte. A report of tens of thousands of artifacts stays below it.
pub const MOST_VALUES: usize = 1 << 18;

/// Parses JSON text that nests at most [`DEEPEST`] levels, holds at most about [`MOST_VALUES`] values, and has no key
/// twice in one object.
pub fn parse(bytes: &[u8]) -> Result<Value, String> {
    match excess(bytes) {
        Some(text) => Err(text),
        None => distinct(bytes).map_err(|error| format!("Input should be valid JSON: {error}")),
    }
}

fn distinct(bytes: &[u8]) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Distinct.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Reads a JSON value and refuses a key that is given twice, of which serde would keep the last.
struct Distinct;

impl<'de> DeserializeSeed<'de> for Distinct {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Distinct {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Self)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(de::Error::custom(format_args!("the key '{}' is given twice", shortened(&key))));
            }
            object.insert(key, entries.next_value_seed(Self)?);
        }
        Ok(object.into())
    }
}

/// What is too much of JSON text, found before it is parsed: a value begins at each bracket and after each comma.
fn excess(bytes: &[u8]) -> Option<String> {
    let (mut depth, mut values) = (0_usize, 0_usize);
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => skip_string(&mut rest),
            b'[' | b'{' => {
                depth += 1;
                values += 1;
            }
            b',' => values += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return Some(format!("Input should nest at most {DEEPEST} levels"));
        }
        if values > MOST_VALUES {
            return Some(format!("Input should hold at most {MOST_VALUES} values"));
        }
    }
    None
}

/// Goes on behind the end of the string that has begun.
fn skip_string(rest: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = rest.next() {
        match byte {
            b'"' => return,
            b'\\' => drop(rest.next()),
            _ => {}
        }
    }
}
