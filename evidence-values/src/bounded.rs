//! Bounded values of request bodies: texts, lists and dictionaries here, addresses and free-form JSON in
//! submodules. The maximum is part of the type, and thus of the JSON Schema. Limits apply to requests only;
//! stored records may exceed them, because another version of the program may have written them.

mod addresses;
mod free_form;
mod urls;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::decode::{is_recorded, shortened};
use crate::limits;
use crate::name::InvalidText;

pub use addresses::{Address, Mailbox, WebUrl, WebhookUrl};
pub use free_form::{AnyJson, AttestationData, DataObject, FreeForm, UserData};

/// A text of `MIN` to `MAX` characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text<const MAX: usize, const MIN: usize = 0>(String);

/// A name, a title or an identifier: at most 255 characters.
pub type ShortText = Text<255>;

/// A tag by which a list is filtered: a key, and a value of at most 1,024 characters.
pub type TagText = Text<1280>;

/// A tag's value: at most 1,024 characters.
pub type TagValue = Text<1024>;

/// A text between a short text and a description: at most 4,096 characters.
pub type LongText = Text<{ 4 << 10 }>;

/// A description: at most 64 Ki characters.
pub type Description = Text<{ 64 << 10 }>;

impl<const MAX: usize, const MIN: usize> Text<MAX, MIN> {
    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text by value.
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
    type Error = InvalidText;

    fn try_from(text: String) -> Result<Self, InvalidText> {
        match text.chars().count() {
            length if length < MIN => Err(InvalidText::TooShort(MIN)),
            length if length > MAX => Err(InvalidText::TooLong(MAX)),
            _ => Ok(Self(text)),
        }
    }
}

impl<const MAX: usize, const MIN: usize> FromStr for Text<MAX, MIN> {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
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
                text.parse().map(Self).map_err(|error: InvalidText| error.to_string())
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
    /// The label of a link.
    LinkLabel = "Label" "^[^=.]+$", |text| !text.contains(['=', '.']);
    /// The key of an annotation.
    AnnotationKey = "Key" "^[A-Za-z0-9_-]+$",
        |text| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
}

/// A dictionary of at most `MAX` values.
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
        let excess = || format!("List should have at most {MAX} items");
        at_most_items(deserializer, MAX, excess).map(Self)
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

/// A list of at most `MAX` items that a program collected. Null items carry no information, so they are
/// skipped and counted.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct LenientList<T, const MAX: usize = 1000> {
    /// The items, without the skipped ones.
    pub items: Vec<T>,
    #[serde(skip)]
    skipped: usize,
}

impl<T, const MAX: usize> LenientList<T, MAX> {
    /// Returns the number of skipped items.
    pub const fn skipped(&self) -> usize {
        self.skipped
    }
}

impl<T, const MAX: usize> Default for LenientList<T, MAX> {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl<T, const MAX: usize> From<Vec<T>> for LenientList<T, MAX> {
    fn from(items: Vec<T>) -> Self {
        Self { items, skipped: 0 }
    }
}

/// Skipped items are not part of the list.
impl<T: PartialEq, const MAX: usize> PartialEq for LenientList<T, MAX> {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items
    }
}

impl<T: Eq, const MAX: usize> Eq for LenientList<T, MAX> {}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for LenientList<T, MAX> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let List(sent) = List::<Option<T>, MAX>::deserialize(deserializer)?;
        let count = sent.len();
        let items = Vec::from_iter(sent.into_iter().flatten());
        Ok(Self { skipped: count - items.len(), items })
    }
}

impl<T: JsonSchema, const MAX: usize> JsonSchema for LenientList<T, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("LenientList{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        List::<Option<T>, MAX>::json_schema(generator)
    }
}

/// Decodes a list of at most `most` items. It stops at the first item beyond them, so that excess items take
/// no memory.
#[doc(hidden)]
pub fn at_most_items<'de, T, D>(
    deserializer: D,
    most: usize,
    excess: impl FnOnce() -> String,
) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    struct Items<T>(usize, PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
        /// `None` if there are more.
        type Value = Option<Vec<T>>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a sequence")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut items = Vec::new();
            while let Some(item) = seq.next_element()? {
                if items.len() == self.0 && !is_recorded() {
                    return Ok(None);
                }
                items.push(item);
            }
            Ok(Some(items))
        }
    }

    let items = deserializer.deserialize_seq(Items(most, PhantomData))?;
    items.ok_or_else(|| serde::de::Error::custom(excess()))
}

#[doc(hidden)]
pub use crate::limited_lists;

/// Defines lists whose maximum length is one of the server's [limits](crate::limits::Limits).
#[doc(hidden)]
#[macro_export]
macro_rules! limited_lists {
    ($($(#[$doc:meta])* $name:ident($item:ty) = $limit:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Default, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(pub Vec<$item>);

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let most = $crate::limits::in_force().$limit;
                let excess =
                    || format!("List should have at most {most} items (limit {})", stringify!($limit));
                $crate::bounded::at_most_items(deserializer, most, excess).map(Self)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let items = generator.subschema_for::<$item>();
                let most = $crate::limits::in_force().$limit;
                schemars::json_schema!({ "type": "array", "items": items, "maxItems": most })
            }
        }
    )*};
}

/// The message of a git commit. Its maximum length in bytes is one of the server's [limits](crate::limits::Limits).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct CommitMessage(String);

impl std::ops::Deref for CommitMessage {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for CommitMessage {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let most = limits::in_force().commit_message;
        if text.len() > most && !is_recorded() {
            let excess = format_args!("String should have at most {most} bytes (limit commit_message)");
            return Err(serde::de::Error::custom(excess));
        }
        Ok(Self(text))
    }
}

impl FromStr for CommitMessage {
    type Err = InvalidText;

    fn from_str(text: &str) -> Result<Self, InvalidText> {
        let most = limits::in_force().commit_message;
        if text.len() > most { Err(InvalidText::TooLong(most)) } else { Ok(Self(text.to_owned())) }
    }
}

impl JsonSchema for CommitMessage {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CommitMessage".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let most = limits::in_force().commit_message;
        schemars::json_schema!({ "type": "string", "maxLength": most, "x-max-bytes": most })
    }
}

/// Returns the text, or an empty one.
#[doc(hidden)]
pub fn or_empty(text: Option<&str>) -> String {
    text.unwrap_or_default().to_owned()
}

/// Maximum number of events that a record itself lists, because each of its facts repeats the list.
const MAX_REPEATED: usize = 100;

/// Appends to a list in a record, which keeps the newest 100 items.
#[doc(hidden)]
pub fn push_newest<T>(list: &mut Vec<T>, newest: T) {
    list.push(newest);
    list.drain(..list.len().saturating_sub(MAX_REPEATED));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;
    use crate::decode::from_value;
    use crate::links::ExternalUrls;

    /// Returns whether `value` decodes; asserts that it is then serialized as `value` again.
    pub(super) fn accepts<T: DeserializeOwned + Serialize>(value: &Value) -> bool {
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
            let accepted = accepts::<Dictionary<AnnotationKey, LongText>>(&value);
            prop_assert_eq!(accepted, fits(r"^[A-Za-z0-9_-]+$", &key), "{}", value);
        }

        #[test]
        fn a_text_is_accepted_iff_it_is_short_enough(text in "\\PC{0,12}") {
            prop_assert_eq!(accepts::<Text<8>>(&json!(text)), text.chars().count() <= 8);
        }

        #[test]
        fn a_collected_list_is_the_same_without_its_nulls(items in proptest::collection::vec(any::<Option<u8>>(), 0..8)) {
            let read = from_value::<LenientList<u8, 4>>(&json!(items));
            prop_assert_eq!(read.is_ok(), items.len() <= 4);
            if let Ok(read) = read {
                prop_assert_eq!(read.skipped() + read.items.len(), items.len());
                prop_assert_eq!(json!(read), json!(Vec::from_iter(items.into_iter().flatten())));
            }
        }

        #[test]
        fn a_list_is_accepted_iff_it_is_short_enough(items in proptest::collection::vec(any::<u8>(), 0..8)) {
            prop_assert_eq!(accepts::<List<u8, 4>>(&json!(items)), items.len() <= 4);
        }
    }
}
