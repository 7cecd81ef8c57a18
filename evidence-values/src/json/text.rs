//! JSON stored as text.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use super::scan::compact;
use super::{JsonValue, check, parse};

/// The text of a JSON value. Text from the API has no white space between its parts. Strings and keys are
/// spelled as `serde_json` does, and numbers as they were sent.
///
/// It can only be read from and written to JSON text. Serde's intermediate values do not keep the text, so it
/// cannot be read through an untagged or internally tagged enum or a flattened field. From a
/// [`serde_json::Value`] it gets the numbers of that value.
///
/// Clones share the text, which may be many megabytes.
#[derive(Debug, Clone)]
pub struct JsonText(Arc<RawValue>);

impl JsonText {
    /// The name by which the request decoder recognizes this type.
    pub(crate) const NAME: &'static str = "evidence_values::JsonText";

    /// Serializes a value to its text.
    ///
    /// # Errors
    /// The value cannot be serialized as JSON, such as a map whose keys are not strings.
    pub fn of(value: &impl Serialize) -> serde_json::Result<Self> {
        RawValue::from_string(serde_json::to_string(value)?).map(Self::from)
    }

    /// Returns `{}`.
    pub fn empty_object() -> Self {
        Self::of(&JsonValue::Object(Vec::new())).unwrap_or_default()
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Returns whether it is `null` or `{}`.
    pub fn is_empty(&self) -> bool {
        matches!(self.as_str(), "null" | "{}")
    }

    /// Returns the text on several lines, indented by two spaces for each level.
    pub fn pretty(&self) -> String {
        let value = parse(self.as_str().as_bytes()).ok();
        value.and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| self.to_string())
    }
}

impl From<Box<RawValue>> for JsonText {
    fn from(text: Box<RawValue>) -> Self {
        Self(text.into())
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_ref().serialize(serializer)
    }
}

/// Returns `null`.
impl Default for JsonText {
    fn default() -> Self {
        RawValue::NULL.to_owned().into()
    }
}

/// Parses text with the checks of a request body ([`check`]).
impl FromStr for JsonText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = compact(check(text.as_bytes())?.as_str()).and_then(RawValue::from_string);
        text.map(Self::from).map_err(|error| error.to_string())
    }
}

/// Compares the content: the order of an object's fields does not matter, but the spelling of a number does.
impl PartialEq for JsonText {
    fn eq(&self, other: &Self) -> bool {
        let (one, other) = (self.as_str(), other.as_str());
        let reordered = || parse(one.as_bytes()).is_ok_and(|one| parse(other.as_bytes()) == Ok(one));
        one == other || (one.len() == other.len() && reordered())
    }
}

impl Eq for JsonText {}

impl fmt::Display for JsonText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl<'de> Visitor<'de> for Written {
            type Value = JsonText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<JsonText, D::Error> {
                Box::<RawValue>::deserialize(deserializer).map(JsonText::from)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<JsonText, E> {
                self.visit_string(text.to_owned())
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<JsonText, E> {
                RawValue::from_string(text).map(JsonText::from).map_err(E::custom)
            }
        }
        deserializer.deserialize_newtype_struct(Self::NAME, Written)
    }
}

impl JsonSchema for JsonText {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "JsonText".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        serde_json::Value::json_schema(generator)
    }
}

/// The fields of a JSON object, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JsonFields(Vec<(String, JsonText)>);

impl JsonFields {
    /// Returns whether there are no fields.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &JsonText)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Appends a field.
    pub fn push(&mut self, name: String, value: JsonText) {
        self.0.push((name, value));
    }

    /// Removes and returns the value of this name.
    pub fn remove(&mut self, name: &str) -> Option<JsonText> {
        let place = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(place).1)
    }
}

impl Serialize for JsonFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for JsonFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = JsonFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonFields, A::Error> {
                let mut fields = JsonFields::default();
                while let Some((name, value)) = map.next_entry()? {
                    fields.push(name, value);
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::bounded::UserData;
    use crate::decode;

    /// The text of any JSON number.
    fn numbers() -> impl Strategy<Value = String> {
        "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,40})?([eE][+-]?[0-9]{1,5})?"
    }

    proptest! {
        #[test]
        fn numbers_of_any_form_are_read_and_written_as_they_are(
            numbers in proptest::collection::vec(numbers(), 0..8),
            space in "[ \t\r\n]{0,3}",
        ) {
            let list = numbers.join(",");
            let compact = format!(r#"{{"a":[{list}],"b":{{"1e5":[{{}},"\\\"\n",[{list}]]}}}}"#);
            let spaced = format!(r#"{space}{{{space}"a"{space}:{space}[{space}{}{space}],"b":{{"1e5":[{{{space}}},"\\\"\n",[{list}]]}}}}{space}"#, numbers.join(&format!("{space},{space}")));
            let sent: UserData = decode::from_json(check(spaced.as_bytes()).unwrap()).unwrap();
            prop_assert_eq!(sent.0.as_str(), &compact);
            let kept: JsonText = serde_json::from_str(&serde_json::to_string(&sent.0).unwrap()).unwrap();
            prop_assert_eq!(kept.as_str(), &compact);
            let pretty = parse(kept.pretty().as_bytes()).unwrap();
            prop_assert_eq!(JsonText::of(&pretty).unwrap(), kept);
        }
    }

    #[test]
    fn strings_are_written_in_one_way_and_numbers_are_not() {
        let table = [
            (r#"{"\u0061" : "\/\u00e9\ud83d\ude00\u0007"}"#, r#"{"a":"/é😀\u0007"}"#),
            ("[ 1e400 , -0 , 1.0 , 1E5 ]", "[1e400,-0,1.0,1E5]"),
            ("[null,true,false,[],{}]", "[null,true,false,[],{}]"),
        ];
        for (sent, kept) in table {
            let read: UserData = decode::from_json(check(sent.as_bytes()).unwrap()).unwrap();
            assert_eq!(read.0.as_str(), kept, "{sent}");
        }
    }

    #[test]
    fn the_order_of_fields_makes_no_difference_and_digits_do() {
        let text = |text: &str| text.parse::<JsonText>().unwrap();
        let one = text(r#"{"a":{"b":1,"c":[1.0,2]},"d":3}"#);
        assert_eq!(one, text(r#"{"d":3,"a":{"c":[1.0,2],"b":1}}"#));
        for other in [r#"{"a":{"b":1,"c":[2,1.0]},"d":3}"#, r#"{"a":{"b":1,"c":[1e0,2]},"d":3}"#, "{}"] {
            assert_ne!(one, text(other), "{other}");
        }
    }

    #[test]
    fn a_long_number_stands_on_a_line_of_its_own() {
        let text: JsonText = serde_json::from_str(r#"{"a":[1e400,-0],"b":{}}"#).unwrap();
        assert_eq!(text.pretty(), "{\n  \"a\": [\n    1e400,\n    -0\n  ],\n  \"b\": {}\n}");
    }

    #[test]
    fn fields_keep_their_order_and_their_numbers() {
        let text = r#"{"b":1e400,"a":[-0],"c":null}"#;
        let mut fields: JsonFields = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&fields).unwrap(), text);
        assert_eq!(fields.remove("a").unwrap().as_str(), "[-0]");
        assert_eq!(fields.remove("a"), None);
        assert_eq!(fields.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn nothing_but_text_is_read_through_a_value() {
        let text: JsonText = serde_json::from_value(serde_json::json!({"a": [1.5, null]})).unwrap();
        assert_eq!(text.as_str(), r#"{"a":[1.5,null]}"#);
        let value: Value = serde_json::to_value(&text).unwrap();
        assert_eq!(value, serde_json::json!({"a": [1.5, null]}));
    }
}
