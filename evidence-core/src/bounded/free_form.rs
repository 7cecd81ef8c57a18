//! Free-form JSON of a bounded size.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decode::{self, is_recorded};
use crate::json::{self, JsonText};

/// The greatest size of free-form JSON, in bytes as it is written without white space.
const MAX_FREE_FORM: usize = 256 << 10;

/// Reads free-form JSON that is one of these, as its beginning tells, and not too large.
fn free_form<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
    begins: &[char],
    expected: &'static str,
) -> Result<JsonText, D::Error> {
    let text = JsonText::deserialize(deserializer)?;
    if !text.as_str().starts_with(begins) {
        return Err(serde::de::Error::custom(expected));
    }
    at_most(MAX_FREE_FORM, text)
}

/// The JSON, of at most so many bytes.
fn at_most<E: serde::de::Error>(bytes: usize, text: JsonText) -> Result<JsonText, E> {
    if text.as_str().len() > bytes && !is_recorded() {
        return Err(E::custom(format_args!("Input should have at most {bytes} bytes as JSON")));
    }
    Ok(text)
}

/// Any JSON value, of at most 256 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct AnyJson(pub JsonText);

impl<'de> Deserialize<'de> for AnyJson {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        at_most(MAX_FREE_FORM, JsonText::deserialize(deserializer)?).map(Self)
    }
}

impl JsonSchema for AnyJson {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AnyJson".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "x-max-bytes": MAX_FREE_FORM })
    }
}

/// The greatest size of an attestation's data, in bytes as they are written without white space.
const MAX_DATA: usize = 1 << 20;

/// The data of an attestation of a custom or system type: any JSON value but null of at most 1 MiB, or a string that holds the
/// text of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct AttestationData(pub JsonText);

impl<'de> Deserialize<'de> for AttestationData {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sent = JsonText::deserialize(deserializer)?;
        if sent.as_str() == "null" {
            return Err(serde::de::Error::custom("Input should be JSON other than null"));
        }
        let data = match serde_json::from_str::<String>(sent.as_str()) {
            Ok(text) => json_in(&text).map_err(|why| {
                serde::de::Error::custom(format_args!("String should hold the text of a JSON value: {why}"))
            })?,
            Err(_) => sent,
        };
        at_most(MAX_DATA, data).map(Self)
    }
}

/// The JSON value that a string holds the text of.
fn json_in(text: &str) -> Result<JsonText, String> {
    let checked = json::check(text.as_bytes())?;
    decode::from_json(checked).map_err(|misfit| misfit.message())
}

impl JsonSchema for AttestationData {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AttestationData".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "contentMediaType": "application/json", "x-max-bytes": MAX_DATA })
    }
}

/// Anything a reporter wants kept along: a JSON object or list of at most 256 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct UserData(pub JsonText);

impl<'de> Deserialize<'de> for UserData {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        free_form(deserializer, &['{', '['], "Input should be a valid dictionary or list").map(Self)
    }
}

impl JsonSchema for UserData {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "UserData".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["object", "array"], "x-max-bytes": MAX_FREE_FORM })
    }
}

/// A JSON object with whatever a reporter puts into it, of at most 256 KiB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct FreeForm(pub JsonText);

/// `{}`.
impl Default for FreeForm {
    fn default() -> Self {
        Self(JsonText::empty_object())
    }
}

impl<'de> Deserialize<'de> for FreeForm {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        free_form(deserializer, &['{'], "Input should be a valid dictionary").map(Self)
    }
}

impl JsonSchema for FreeForm {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "FreeForm".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "object", "x-max-bytes": MAX_FREE_FORM })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bounded::tests::accepts;

    #[test]
    fn user_data_is_an_object_or_a_list() {
        for (data, fits) in [
            (json!({}), true),
            (json!({"a": [1.5, null, {"b": true}]}), true),
            (json!([]), true),
            (json!([1, "x"]), true),
            (json!(null), false),
            (json!("x"), false),
            (json!(1), false),
            (json!(true), false),
        ] {
            assert_eq!(accepts::<UserData>(&data), fits, "{data}");
        }
    }
}
