//! Parses JSON text from outside, within limits.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::JsonValue;
use super::scan::{Scanner, skip_string};
use crate::limits;
use crate::quote::shortened;

/// Maximum nesting depth of JSON.
pub const MAX_DEPTH: usize = 64;

/// JSON text that passed validation:
///
/// - It nests at most [`MAX_DEPTH`] levels.
/// - It has approximately at most as many values as [`Limits::json_values`](crate::limits::Limits::json_values)
///   allows. A value of two bytes takes hundreds in memory.
/// - No object has a key twice.
/// - Its strings are valid text.
#[derive(Debug, Clone, Copy)]
pub struct CheckedJson<'a>(&'a str);

impl<'a> CheckedJson<'a> {
    /// Returns whether it is `null`.
    pub fn is_null(self) -> bool {
        self.0 == "null"
    }

    /// Returns whether it is an object.
    pub fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    /// Returns the text.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// Checks that text meets the rules of [`CheckedJson`].
///
/// # Errors
/// Returns the violated rule, as the caller sees it.
pub fn check(bytes: &[u8]) -> Result<CheckedJson<'_>, String> {
    if let Some(text) = excess(bytes) {
        return Err(text);
    }
    let text: &RawValue = serde_json::from_slice(bytes).map_err(|error| invalid(&error))?;
    Check { at: Scanner::new(text.get()), names: Vec::new() }.value()?;
    Ok(CheckedJson(text.get()))
}

/// Parses JSON text that passes the [`check`].
///
/// # Errors
/// Returns the violated rule, as the caller sees it.
pub fn parse(bytes: &[u8]) -> Result<JsonValue, String> {
    value(&mut Scanner::new(check(bytes)?.as_str())).map_err(|error| invalid(&error))
}

fn value(at: &mut Scanner<'_>) -> serde_json::Result<JsonValue> {
    Ok(match at.peek() {
        Some(b'{') => {
            let mut fields = Vec::new();
            at.open();
            while at.more() {
                fields.push((at.name()?.into_owned(), value(at)?));
            }
            at.close();
            JsonValue::Object(fields)
        }
        Some(b'[') => {
            let mut items = Vec::new();
            at.open();
            while at.more() {
                items.push(value(at)?);
            }
            at.close();
            JsonValue::Array(items)
        }
        Some(b'"') => JsonValue::String(at.string()?.into_owned()),
        _ => match at.scalar() {
            "null" => JsonValue::Null,
            "true" => JsonValue::Bool(true),
            "false" => JsonValue::Bool(false),
            number => JsonValue::Number(number.to_owned()),
        },
    })
}

/// Returns an error and its position, in terms that fit every parser.
fn invalid(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let found = match text.split(" at line ").next().unwrap_or_default() {
        found if found.starts_with("EOF") => "the text ends too early",
        "expected value" => "a value is missing",
        "expected `:`" => "':' is missing after a key",
        "expected `,` or `}`" => "',' or '}' is missing",
        "expected `,` or `]`" => "',' or ']' is missing",
        "expected ident" => "the only words without quotes are true, false and null",
        "key must be a string" => "a key in double quotes is missing",
        "trailing characters" => "more text follows the value",
        "invalid number" | "number out of range" => "a number is not written as JSON writes it",
        found if found.starts_with("control character") => {
            "a string contains a line end or a control character"
        }
        "invalid escape" => "a string contains a backslash that begins no escape sequence",
        "lone leading surrogate in hex escape" | "unexpected end of hex escape" => {
            "a string contains half of a surrogate pair"
        }
        "invalid unicode code point" => "the text should be UTF-8",
        _ => "the text cannot be read",
    };
    let place = match (error.line(), error.column()) {
        (0, _) => String::new(),
        (line, column) => format!(" (line {line}, column {column})"),
    };
    format!("Input should be valid JSON: {found}{place}")
}

/// Checks rules beyond the grammar: strings must be valid text, and keys must be unique.
struct Check<'a> {
    at: Scanner<'a>,
    /// The keys of the enclosing objects, those of the innermost last.
    names: Vec<Cow<'a, str>>,
}

impl Check<'_> {
    fn value(&mut self) -> Result<(), String> {
        match self.at.peek() {
            Some(b'{') => self.object(),
            Some(b'[') => {
                self.at.open();
                while self.at.more() {
                    self.value()?;
                }
                self.at.close();
                Ok(())
            }
            Some(b'"') => self.at.string().map(drop).map_err(|error| invalid(&error)),
            _ => {
                self.at.scalar();
                Ok(())
            }
        }
    }

    fn object(&mut self) -> Result<(), String> {
        let outer = self.names.len();
        self.at.open();
        while self.at.more() {
            let name = self.at.name().map_err(|error| invalid(&error))?;
            self.names.push(name);
            self.value()?;
        }
        self.at.close();
        let names = &mut self.names[outer..];
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            let key = shortened(&twice[0]);
            return Err(format!("Input should be valid JSON: the key '{key}' is given twice"));
        }
        self.names.truncate(outer);
        Ok(())
    }
}

/// Returns which limit JSON text exceeds, before it is parsed. A value begins at each bracket and after each
/// comma.
fn excess(bytes: &[u8]) -> Option<String> {
    let (mut depth, mut values) = (0_usize, 0_usize);
    let most = limits::in_force().json_values;
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
        if values > most {
            return Some(format!("Input should hold at most {most} values (limit json_values)"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::limits::Limits;

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
        let text = serde_json::to_string(&parse(apart.as_bytes()).unwrap()).unwrap();
        let [one, other] = [apart, &text].map(|text| serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(one, other);
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
        let limits = Limits { json_values: 1_000, ..Limits::DEFAULT };
        limits.apply(|| {
            assert!(parse(list(1_000).as_bytes()).is_ok());
            assert!(parse(list(1_001).as_bytes()).is_err());
            assert!(parse(format!("\"{}\"", ",".repeat(1_001)).as_bytes()).is_ok());
        });
    }

    #[test]
    fn a_text_that_is_no_json_is_explained_with_its_place() {
        let table: [(&[u8], &str); 15] = [
            (b"", "the text ends too early (line 1"),
            (b"{\"a\": ", "the text ends too early (line 1, column 6)"),
            (b"{\"a\" 1}", "':' is missing after a key (line 1, column 6)"),
            (b"{\"a\": 1\n \"b\": 2}", "',' or '}' is missing (line 2, column 2)"),
            (b"[1 2]", "',' or ']' is missing (line 1, column 4)"),
            (b"{a: 1}", "a key in double quotes is missing (line 1, column 2)"),
            (b"[1,]", "a value is missing (line 1, column 4)"),
            (b"{\"a\": 1,}", "a key in double quotes is missing (line 1, column 9)"),
            (b"{} {}", "more text follows the value (line 1, column 4)"),
            (b"[tru]", "the only words without quotes are true, false and null (line 1, column 5)"),
            (b"[01]", "a number is not written as JSON writes it (line 1, column 3)"),
            (b"['a']", "a value is missing (line 1, column 2)"),
            (b"[\"a\nb\"]", "a string contains a line end or a control character (line 1, column 3)"),
            (b"[\"\\x\"]", "a string contains a backslash that begins no escape sequence (line 1, column 4)"),
            (b"[\"\xff\"]", "the text should be UTF-8"),
        ];
        for (text, expected) in table {
            let refused = check(text).unwrap_err();
            assert!(
                refused.starts_with(&format!("Input should be valid JSON: {expected}")),
                "{text:?}: {refused}"
            );
        }
    }
}
