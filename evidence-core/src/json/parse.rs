//! JSON text to values, within bounds.

use serde_json::value::RawValue;

use super::JsonValue;
use crate::decode::shortened;

/// JSON nested deeper than this is refused.
pub const MAX_DEPTH: usize = 64;

/// JSON of more values is refused: a value of two bytes takes hundreds in memory, so that a limit in bytes alone lets
/// one request take a gigabyte. A report of tens of thousands of artifacts stays below it.
pub const MAX_VALUES: usize = 1 << 18;

/// Parses JSON text that nests at most [`MAX_DEPTH`] levels, holds at most about [`MAX_VALUES`] values, and has no key
/// twice in one object.
///
/// # Errors
/// What is wrong with the text, as the caller is told.
pub fn parse(bytes: &[u8]) -> Result<JsonValue, String> {
    if let Some(text) = excess(bytes) {
        return Err(text);
    }
    let text: &RawValue = serde_json::from_slice(bytes).map_err(|error| invalid(&error))?;
    Reader { rest: text.get() }.value()
}

fn invalid(error: &serde_json::Error) -> String {
    format!("Input should be valid JSON: {error}")
}

/// Reads text whose grammar is that of JSON: all that can be wrong is what a string spells, and a key that is there twice.
struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// The next byte that is no white space.
    fn next(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        self.rest.bytes().next()
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(length).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn value(&mut self) -> Result<JsonValue, String> {
        match self.next() {
            Some(b'{') => self.fields().map(JsonValue::Object),
            Some(b'[') => self.items().map(JsonValue::Array),
            Some(b'"') => self.string().map(JsonValue::String),
            _ => {
                let end = self.rest.find([',', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(self.rest.len());
                Ok(match self.take(end) {
                    "null" => JsonValue::Null,
                    "true" => JsonValue::Bool(true),
                    "false" => JsonValue::Bool(false),
                    number => JsonValue::Number(number.to_owned()),
                })
            }
        }
    }

    /// What stands between brackets.
    fn within<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T, String>) -> Result<Vec<T>, String> {
        self.take(1);
        let mut all = Vec::new();
        loop {
            match self.next() {
                None | Some(b']' | b'}') => {
                    self.take(1);
                    return Ok(all);
                }
                Some(b',') => drop(self.take(1)),
                Some(_) => all.push(one(self)?),
            }
        }
    }

    fn items(&mut self) -> Result<Vec<JsonValue>, String> {
        self.within(Self::value)
    }

    fn fields(&mut self) -> Result<Vec<(String, JsonValue)>, String> {
        let fields = self.within(|reader| {
            let name = reader.string()?;
            reader.next();
            reader.take(1);
            Ok((name, reader.value()?))
        })?;
        let mut names = Vec::from_iter(fields.iter().map(|(name, _)| name));
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(twice) => {
                Err(format!("Input should be valid JSON: the key '{}' is given twice", shortened(twice[0])))
            }
            None => Ok(fields),
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let (mut bytes, mut end) = (self.rest.bytes().skip(1), 2);
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => break,
                b'\\' => {
                    bytes.next();
                    end += 2;
                }
                _ => end += 1,
            }
        }
        serde_json::from_str(self.take(end)).map_err(|error| invalid(&error))
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
        if depth > MAX_DEPTH {
            return Some(format!("Input should nest at most {MAX_DEPTH} levels"));
        }
        if values > MAX_VALUES {
            return Some(format!("Input should hold at most {MAX_VALUES} values"));
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

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn nesting_is_bounded_and_brackets_in_strings_do_not_count() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(parse(nested(MAX_DEPTH + 1).as_bytes()).is_err());
        assert!(parse(nested(10_000).as_bytes()).is_err());
        assert!(parse(format!("\"{}\\\"\"", "[".repeat(500)).as_bytes()).is_ok());
    }

    #[test]
    fn a_key_given_twice_is_named_wherever_it_is() {
        for text in [r#"{"a":1,"b":2,"a":1}"#, r#"[{"x":{"a":1,"\u0061":null}}]"#] {
            let refused = parse(text.as_bytes()).unwrap_err();
            assert!(refused.contains("the key 'a' is given twice"), "{refused}");
        }
        let apart = r#"{"a":{"a":[{"a":1},{"a":-1.5}]},"b":"\u00e9","c":null,"d":true}"#;
        assert_eq!(parse(apart.as_bytes()).unwrap(), serde_json::from_str::<Value>(apart).unwrap().into());
    }

    #[test]
    fn a_long_key_that_is_given_twice_is_told_by_its_beginning() {
        let (key, told) = ("é".repeat(100_000), format!("{}…", "é".repeat(200)));
        let twice = parse(format!("{{\"{key}\":1,\"{key}\":1}}").as_bytes()).unwrap_err();
        assert!(twice.contains(&format!("the key '{told}' is given twice")) && twice.len() < 1000);
    }

    #[test]
    fn values_are_counted_and_commas_in_strings_are_not() {
        let list = |values: usize| format!("[{}1]", "1,".repeat(values - 1));
        assert!(parse(list(MAX_VALUES).as_bytes()).is_ok());
        assert!(parse(list(MAX_VALUES + 1).as_bytes()).is_err());
        assert!(parse(format!("\"{}\"", ",".repeat(MAX_VALUES + 1)).as_bytes()).is_ok());
    }
}
