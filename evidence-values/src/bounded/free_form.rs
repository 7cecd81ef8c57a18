//! Free-form JSON of a bounded size.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decode::{self, is_recorded};
use crate::json::{self, JsonText};
use crate::limits;

/// Decodes free-form JSON that begins with one of these characters and is not too large.
fn free_form<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
    begins: &[char],
    expected: &'static str,
) -> Result<JsonText, D::Error> {
    let text = JsonText::deserialize(deserializer)?;
    if !text.as_str().starts_with(begins) {
        return Err(serde::de::Error::custom(expected));
    }
    within_user_data(text)
}

/// Returns the JSON if it has at most this number of bytes without white space.
fn at_most<E: serde::de::Error>(bytes: usize, limit: &str, text: JsonText) -> Result<JsonText, E> {
    if text.as_str().len() > bytes && !is_recorded() {
        let excess = format_args!("Input should have at most {bytes} bytes as JSON (limit {limit})");
        return Err(E::custom(excess));
    }
    Ok(text)
}

fn within_user_data<E: serde::de::Error>(text: JsonText) -> Result<JsonText, E> {
    at_most(limits::in_force().user_data, "user_data", text)
}

fn within_attestation_data<E: serde::de::Error>(text: JsonText) -> Result<JsonText, E> {
    at_most(limits::in_force().attestation_data, "attestation_data", text)
}

/// Any JSON value, of at most 256 KiB by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct AnyJson(pub JsonText);

impl<'de> Deserialize<'de> for AnyJson {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        within_user_data(JsonText::deserialize(deserializer)?).map(Self)
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
        schemars::json_schema!({ "x-max-bytes": limits::in_force().user_data })
    }
}

/// The data of an attestation of a custom or system type: any JSON value except null, of at most 16 MiB by
/// default, or a string that contains the text of one.
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
        within_attestation_data(data).map(Self)
    }
}

/// Parses the JSON value whose text a string contains.
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
        schemars::json_schema!({ "contentMediaType": "application/json", "x-max-bytes": limits::in_force().attestation_data })
    }
}

/// A JSON object within the data of an attestation, which are limited as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct DataObject(pub JsonText);

impl<'de> Deserialize<'de> for DataObject {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = JsonText::deserialize(deserializer)?;
        if !text.as_str().starts_with('{') {
            return Err(serde::de::Error::custom("Input should be a valid dictionary"));
        }
        within_attestation_data(text).map(Self)
    }
}

impl JsonSchema for DataObject {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DataObject".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "object", "x-max-bytes": limits::in_force().attestation_data })
    }
}

/// Arbitrary data of a reporter: a JSON object or list, of at most 256 KiB by default.
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
        schemars::json_schema!({ "type": ["object", "array"], "x-max-bytes": limits::in_force().user_data })
    }
}

/// A JSON object with arbitrary data of a reporter, of at most 256 KiB by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct FreeForm(pub JsonText);

/// Returns `{}`.
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
        schemars::json_schema!({ "type": "object", "x-max-bytes": limits::in_force().user_data })
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
