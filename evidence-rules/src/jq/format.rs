//! The formats of strings, such as `@csv`.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};

use super::eval::{Machine, Run, error};
use super::native::{items, refuse};
use super::text::to_text;
use super::value::Value;

/// A format of strings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
    Csv,
    Tsv,
    Html,
    Uri,
    Sh,
    Base64,
    Base64Decoded,
}

/// Formats by their names.
const FORMATS: [(&str, Format); 9] = [
    ("@text", Format::Text),
    ("@json", Format::Json),
    ("@csv", Format::Csv),
    ("@tsv", Format::Tsv),
    ("@html", Format::Html),
    ("@uri", Format::Uri),
    ("@sh", Format::Sh),
    ("@base64", Format::Base64),
    ("@base64d", Format::Base64Decoded),
];

/// Maximum number of bytes that an escape creates from one byte.
const MOST_PER_BYTE: usize = 6;

/// Base64 with or without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

impl Format {
    /// Returns the format of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        FORMATS.iter().find(|(known, _)| *known == name).map(|(_, format)| *format)
    }

    /// Renders a value in this format.
    pub(super) fn of(self, machine: &mut Machine<'_>, value: &Value) -> Run<String> {
        match self {
            Self::Text => to_text(machine, value),
            Self::Json => Ok(value.json(machine.budget)?),
            Self::Csv => row(machine, value, ",", "csv", |text| format!("\"{}\"", text.replace('"', "\"\""))),
            Self::Tsv => row(machine, value, "\t", "tsv", |text| {
                escaped(text, |letter| match letter {
                    '\t' => Some("\\t"),
                    '\n' => Some("\\n"),
                    '\r' => Some("\\r"),
                    '\\' => Some("\\\\"),
                    _ => None,
                })
            }),
            Self::Html => {
                let text = to_text(machine, value)?;
                made(machine, &text, |text| {
                    escaped(text, |letter| match letter {
                        '<' => Some("&lt;"),
                        '>' => Some("&gt;"),
                        '&' => Some("&amp;"),
                        '\'' => Some("&#39;"),
                        '"' => Some("&quot;"),
                        _ => None,
                    })
                })
            }
            Self::Uri => {
                let text = to_text(machine, value)?;
                made(machine, &text, percent_encoded)
            }
            Self::Sh => shell(machine, value),
            Self::Base64 => {
                let text = to_text(machine, value)?;
                made(machine, &text, |text| STANDARD.encode(text))
            }
            Self::Base64Decoded => {
                let text = to_text(machine, value)?;
                machine.budget.bytes(text.len())?;
                match LENIENT.decode(&text) {
                    Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
                    Err(_) => refuse(value, "is not valid base64 data"),
                }
            }
        }
    }
}

/// Runs `make` on text. Charges the steps of the largest possible result, and the memory of the text and the
/// actual result.
fn made(machine: &mut Machine<'_>, text: &str, make: impl FnOnce(&str) -> String) -> Run<String> {
    machine.budget.read(text.len().saturating_mul(MOST_PER_BYTE))?;
    machine.budget.allocate(text.len())?;
    let made = make(text);
    machine.budget.allocate(made.len())?;
    Ok(made)
}

fn escaped(text: &str, escape: fn(char) -> Option<&'static str>) -> String {
    let mut all = String::with_capacity(text.len());
    for letter in text.chars() {
        match escape(letter) {
            Some(instead) => all.push_str(instead),
            None => all.push(letter),
        }
    }
    all
}

fn percent_encoded(text: &str) -> String {
    let mut all = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            all.push(char::from(byte));
        } else {
            all.push_str(&format!("%{byte:02X}"));
        }
    }
    all
}

/// Renders the items of a list as one line.
fn row(
    machine: &mut Machine<'_>,
    value: &Value,
    separator: &str,
    name: &str,
    quote: fn(&str) -> String,
) -> Run<String> {
    let Value::Array(array) = value else {
        return error(format!(
            "{} ({}) cannot be {name}-formatted, only an array can be",
            value.kind(),
            value.shown()
        ));
    };
    let mut line = String::new();
    for (position, item) in array.items.iter().enumerate() {
        machine.step()?;
        if position > 0 {
            line.push_str(separator);
        }
        match item {
            Value::Null => {}
            Value::Str(text) => line.push_str(&made(machine, text, quote)?),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => line.push_str(&item.json(machine.budget)?),
            Value::Array(_) | Value::Object(_) => {
                return refuse(item, &format!("is not valid in a {name} row"));
            }
        }
    }
    Ok(line)
}

/// Renders a value as words of a shell command.
fn shell(machine: &mut Machine<'_>, value: &Value) -> Run<String> {
    let one = std::slice::from_ref(value);
    let words = if matches!(value, Value::Array(_)) { items(value)?.items.as_slice() } else { one };
    let mut line = String::new();
    for (position, word) in words.iter().enumerate() {
        machine.step()?;
        if position > 0 {
            line.push(' ');
        }
        match word {
            Value::Str(text) => {
                let quoted = made(machine, text, |text| format!("'{}'", text.replace('\'', "'\\''")))?;
                line.push_str(&quoted);
            }
            Value::Array(_) | Value::Object(_) => return refuse(word, "can not be escaped for shell"),
            other => line.push_str(&other.json(machine.budget)?),
        }
    }
    Ok(line)
}
