//! What one value of a body may be, and how large: texts, addresses, lists, dictionaries and free-form JSON. The maximum
//! is a part of the type, and so of the schema.

use std::collections::BTreeMap;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decode::shortened;
use crate::json::JsonText;
use crate::name::BadText;

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
    if text.as_str().len() > MAX_FREE_FORM {
        let refused = format_args!("Input should have at most {MAX_FREE_FORM} bytes as JSON");
        return Err(serde::de::Error::custom(refused));
    }
    Ok(text)
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

/// An absolute `http` or `https` URL of at most 2,048 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct WebUrl(String);

/// The greatest length of a URL in a body, in bytes.
pub(super) const MAX_URL: usize = 2048;

impl WebUrl {
    /// The URL's text.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl<'de> Deserialize<'de> for WebUrl {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Err(serde::de::Error::custom("Input should be a valid URL, input is empty"));
        }
        check_url(&text)?;
        let rest = ["https://", "http://"].into_iter().find_map(|scheme| {
            text.get(..scheme.len())
                .filter(|start| start.eq_ignore_ascii_case(scheme))
                .map(|_| &text[scheme.len()..])
        });
        let host = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
        if host.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(serde::de::Error::custom(
                "Input should be a valid URL, absolute and of scheme http or https",
            ));
        }
        Ok(Self(text))
    }
}

impl JsonSchema for WebUrl {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WebUrl".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "uri", "maxLength": MAX_URL })
    }
}

fn check_url<E: serde::de::Error>(text: &str) -> Result<(), E> {
    if text.len() > MAX_URL {
        return Err(E::custom(format_args!("URL should have at most {MAX_URL} bytes")));
    }
    Ok(())
}

/// A text of `MIN` to `MAX` characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text<const MAX: usize, const MIN: usize = 0>(String);

/// A name, a title or an identifier: at most 255 characters.
pub type ShortText = Text<255>;

/// A tag that a list is narrowed by: a key, and a value of at most 1,024 characters.
pub type TagText = Text<1280>;

/// A tag's value: at most 1,024 characters.
pub type TagValue = Text<1024>;

/// What is neither short nor a description: at most 4,096 characters.
pub type LongText = Text<{ 4 << 10 }>;

/// A description: at most 64 Ki characters.
pub type Description = Text<{ 64 << 10 }>;

impl<const MAX: usize, const MIN: usize> Text<MAX, MIN> {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, by value.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl<const MAX: usize, const MIN: usize> std::ops::Deref for Text<MAX, MIN> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize, const MIN: usize> std::fmt::Display for Text<MAX, MIN> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl<const MAX: usize> Default for Text<MAX> {
    fn default() -> Self {
        Self(String::new())
    }
}

impl<const MAX: usize, const MIN: usize> TryFrom<String> for Text<MAX, MIN> {
    type Error = BadText;

    fn try_from(text: String) -> Result<Self, BadText> {
        match text.chars().count() {
            length if length < MIN => Err(BadText::TooShort(MIN)),
            length if length > MAX => Err(BadText::TooLong(MAX)),
            _ => Ok(Self(text)),
        }
    }
}

impl<const MAX: usize, const MIN: usize> FromStr for Text<MAX, MIN> {
    type Err = BadText;

    fn from_str(text: &str) -> Result<Self, BadText> {
        text.to_owned().try_into()
    }
}

impl<'de, const MAX: usize, const MIN: usize> Deserialize<'de> for Text<MAX, MIN> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.try_into().map_err(serde::de::Error::custom)
    }
}

impl<const MAX: usize, const MIN: usize> JsonSchema for Text<MAX, MIN> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Text{MIN}To{MAX}").into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        match MIN {
            0 => schemars::json_schema!({ "type": "string", "maxLength": MAX }),
            _ => schemars::json_schema!({ "type": "string", "minLength": MIN, "maxLength": MAX }),
        }
    }
}

/// A URL as it is reported, of any form or none: at most 2,048 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Address(String);

impl Address {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, by value.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl std::ops::Deref for Address {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Address {
    type Err = serde::de::value::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        check_url(text)?;
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        check_url(&text)?;
        Ok(Self(text))
    }
}

impl JsonSchema for Address {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Address".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "maxLength": MAX_URL, "x-max-bytes": MAX_URL })
    }
}

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident = $word:literal $pattern:literal, |$text:ident| $fits:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(ShortText);

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let fits = |$text: &str| $fits;
                if text.is_empty() || !fits(text) {
                    let told = shortened(text);
                    return Err(format!(concat!($word, " '{}' should match pattern '{}'"), told, $pattern));
                }
                text.parse().map(Self).map_err(|error: BadText| error.to_string())
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern, "maxLength": 255 })
            }
        }
    )*};
}

keys! {
    /// What a link is called.
    LinkLabel = "Label" "^[^=.]+$", |text| !text.contains(['=', '.']);
    /// What a remark is called.
    AnnotationKey = "Key" "^[A-Za-z0-9_-]+$",
        |text| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
}

/// At most `MAX` values by their keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Dictionary<K, V, const MAX: usize = 1000>(pub BTreeMap<K, V>);

impl<K, V, const MAX: usize> Default for Dictionary<K, V, MAX> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'de, K: Deserialize<'de> + Ord, V: Deserialize<'de>, const MAX: usize> Deserialize<'de>
    for Dictionary<K, V, MAX>
{
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let entries = BTreeMap::deserialize(deserializer)?;
        if entries.len() > MAX {
            return Err(serde::de::Error::custom(format_args!("Dictionary should have at most {MAX} items")));
        }
        Ok(Self(entries))
    }
}

impl<K: JsonSchema, V: JsonSchema, const MAX: usize> JsonSchema for Dictionary<K, V, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("{}By{}", V::schema_name(), K::schema_name()).into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let (keys, values) = (generator.subschema_for::<K>(), generator.subschema_for::<V>());
        schemars::json_schema!({
            "type": "object", "propertyNames": keys, "additionalProperties": values, "maxProperties": MAX,
        })
    }
}

/// A list of at most `MAX` items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct List<T, const MAX: usize = 1000>(pub Vec<T>);

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = Vec::deserialize(deserializer)?;
        if items.len() > MAX {
            return Err(serde::de::Error::custom(format_args!("List should have at most {MAX} items")));
        }
        Ok(Self(items))
    }
}

impl<T: JsonSchema, const MAX: usize> JsonSchema for List<T, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("ListOf{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let items = generator.subschema_for::<T>();
        schemars::json_schema!({ "type": "array", "items": items, "maxItems": MAX })
    }
}
