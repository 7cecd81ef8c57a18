//! What one value of a body may be, and how large: texts, addresses, lists, dictionaries and free-form JSON. The maximum
//! is a part of the type, and so of the schema. What is recorded may be larger: another version of the program took it.

use std::collections::BTreeMap;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decode::{self, is_recorded, shortened};
use crate::json::{self, JsonText};
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

/// An absolute `http` or `https` URL of at most 2,048 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct WebUrl(String);

/// The greatest length of a URL in a body, in bytes.
const MAX_URL: usize = 2048;

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
        let authority = rest.and_then(|rest| rest.split(['/', '?', '#']).next()).unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        if host.is_empty()
            || host.starts_with(':')
            || text.chars().any(|c| c.is_whitespace() || c.is_control())
        {
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

/// The address of a mailbox, as `jane@example.com`: at most 254 characters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Mailbox(String);

/// The greatest length of a mailbox: a path of 256 (RFC 5321, section 4.5.3.1.3) without its angle brackets.
const MAX_MAILBOX: usize = 254;

impl Mailbox {
    /// The address's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether it is a mailbox as RFC 5321, section 4.1.2, writes it, without quoted local parts and address literals: it
/// stands in headers and in commands to mail servers.
fn is_mailbox(address: &str) -> bool {
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let is_atom = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
    let atoms = |text: &str| text.split('.').all(|atom| !atom.is_empty() && atom.bytes().all(is_atom));
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    local.len() <= 64 && atoms(local) && domain.split('.').all(label)
}

impl<'de> Deserialize<'de> for Mailbox {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > MAX_MAILBOX {
            return Err(serde::de::Error::custom(BadText::TooLong(MAX_MAILBOX)));
        }
        if !is_mailbox(&text) {
            return Err(serde::de::Error::custom("Input should be an address of the form 'local@domain'"));
        }
        Ok(Self(text))
    }
}

impl JsonSchema for Mailbox {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Mailbox".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "email", "maxLength": MAX_MAILBOX })
    }
}

fn check_url<E: serde::de::Error>(text: &str) -> Result<(), E> {
    if text.len() > MAX_URL && !is_recorded() {
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
        let text = String::deserialize(deserializer)?;
        if is_recorded() {
            return Ok(Self(text));
        }
        text.try_into().map_err(serde::de::Error::custom)
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
                let text = String::deserialize(deserializer)?;
                if is_recorded() {
                    return Ok(Self(Text(text)));
                }
                text.parse().map_err(serde::de::Error::custom)
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
        if entries.len() > MAX && !is_recorded() {
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
        if items.len() > MAX && !is_recorded() {
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

/// The text, or the empty one.
pub(crate) fn or_empty(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

/// How many of what happened to a record the record itself lists: each of its facts repeats it.
const MAX_REPEATED: usize = 100;

/// Adds to a list that a record carries, of which the newest 100 are kept.
pub(crate) fn push_newest<T>(list: &mut Vec<T>, newest: T) {
    list.push(newest);
    list.drain(..list.len().saturating_sub(MAX_REPEATED));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::attestations::record::Annotations;
    use crate::decode::from_value;

    #[test]
    fn mailboxes_are_told_from_what_would_end_a_header_or_a_command() {
        let table = [
            ("jane@example.com", true),
            ("jane.doe+ci@mail.example.com", true),
            ("o'hara@example.com", true),
            ("root@localhost", true),
            ("jane", false),
            ("@example.com", false),
            ("jane@", false),
            ("jane@example..com", false),
            ("jane@-example.com", false),
            (".jane@example.com", false),
            ("jane@example.com\r\nBcc: all@example.com", false),
            ("jane@example.com,joe@example.com", false),
            ("<jane@example.com>", false),
            ("Jane <jane@example.com>", false),
            ("jane doe@example.com", false),
            ("jane@[127.0.0.1]", false),
            ("jané@example.com", false),
        ];
        for (address, expected) in table {
            assert_eq!(is_mailbox(address), expected, "{address:?}");
        }
        assert!(is_mailbox(&format!("{}@example.com", "a".repeat(64))));
        assert!(!is_mailbox(&format!("{}@example.com", "a".repeat(65))));
    }
    use crate::links::ExternalUrls;

    /// Reads `value`; where that works, what is written again is `value`.
    fn accepts<T: DeserializeOwned + Serialize>(value: &Value) -> bool {
        let Ok(read) = from_value::<T>(value) else { return false };
        assert_eq!(serde_json::to_value(read).unwrap(), *value);
        true
    }

    fn fits(pattern: &str, text: &str) -> bool {
        regex::Regex::new(pattern).unwrap().is_match(text)
    }

    #[test]
    fn a_long_key_is_told_by_its_beginning() {
        let long = ".".repeat(100_000);
        for told in [long.parse::<AnnotationKey>().unwrap_err(), long.parse::<LinkLabel>().unwrap_err()] {
            assert!(told.len() < 1000, "{}", told.len());
        }
    }

    #[test]
    fn an_origin_is_an_absolute_web_url_of_at_most_2_kib() {
        let longest = format!("https://e/{}", "a".repeat(MAX_URL - 10));
        for url in [
            "http://e",
            "https://e.example/p?q#f",
            "HTTPS://E",
            "http://user@e:80/",
            "http://[::1]/",
            &longest,
        ] {
            assert!(accepts::<WebUrl>(&json!(url)), "{url}");
        }
        let longer = format!("{longest}a");
        let refused = [
            "",
            "e",
            "//e",
            "ftp://e",
            "http:",
            "http://",
            "https:///p",
            "http://?q",
            "http://user@/",
            "http://:80/",
            "http://user@:80/",
            "http://e/ x",
            "http://e\n",
            &longer,
        ];
        for url in refused {
            assert!(!accepts::<WebUrl>(&json!(url)), "{url}");
        }
    }

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

    proptest! {
        #[test]
        fn a_link_is_accepted_iff_its_label_and_fingerprint_fit(
            label in "[a-z]{0,3}[=.]?[a-z]{0,3}|\\PC{0,6}",
            fingerprint in proptest::option::of("[a-f0-9]{63,65}|[A-F0-9]{64}"),
        ) {
            let good = fits(r"^[^=.]+$", &label) && fingerprint.as_deref().is_none_or(|text| fits("^[a-f0-9]{64}$", text));
            let value = json!({label: {"href": "h", "fingerprint": fingerprint}});
            prop_assert_eq!(accepts::<ExternalUrls>(&value), good, "{}", value);
        }

        #[test]
        fn a_remark_is_accepted_iff_its_key_fits(key in "[A-Za-z0-9_-]{0,5}|[a-z]\\.[a-z]|\\PC{0,5}", text in "\\PC{0,9}") {
            let value = json!({key.clone(): text});
            prop_assert_eq!(accepts::<Annotations>(&value), fits(r"^[A-Za-z0-9_-]+$", &key), "{}", value);
        }

        #[test]
        fn a_text_is_accepted_iff_it_is_short_enough(text in "\\PC{0,12}") {
            prop_assert_eq!(accepts::<Text<8>>(&json!(text)), text.chars().count() <= 8);
        }

        #[test]
        fn a_list_is_accepted_iff_it_is_short_enough(items in proptest::collection::vec(any::<u8>(), 0..8)) {
            prop_assert_eq!(accepts::<List<u8, 4>>(&json!(items)), items.len() <= 4);
        }

        #[test]
        fn a_url_reads_back_as_itself_or_is_refused(text in "(https?|ftp|HTTP)://[a-z0-9.:@/?#% \\n-]{0,20}|\\PC{0,20}") {
            accepts::<WebUrl>(&json!(text));
        }
    }
}
