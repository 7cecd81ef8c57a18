//! From JSON and from URL parameters to Rust types, with errors that name the field and quote what was sent.
//!
//! One serde deserializer over [`JsonValue`] serves both: parameters are strings that read as integers and booleans
//! where the type wants them, and as lists where they repeat. The texts follow the validation messages that users
//! of the public command-line client know.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor,
};
use serde_json::{Map, Number, Value};

use crate::json::{JsonText, JsonValue};

const MAX_ECHO: usize = 200;

/// One thing wrong with an input: where, what, and what was there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidField {
    path: Vec<Segment>,
    text: String,
    input: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Field(String),
    Item(usize),
}

impl InvalidField {
    /// A misfit of the field named `field`.
    pub fn of(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: vec![Segment::Field(field.into())], text: text.into(), input: None }
    }

    /// The misfit of a required field that was not sent.
    pub fn missing(field: impl Into<String>) -> Self {
        Self { input: Some("None".to_owned()), ..Self::of(field, "Field required") }
    }

    /// The field's path, such as `artifacts[0].digests`, each name shortened; empty for the input as a whole.
    pub fn field(&self) -> String {
        let mut path = String::new();
        for segment in self.path.iter().rev() {
            match segment {
                Segment::Field(name) if path.is_empty() => path.push_str(&shortened(name)),
                Segment::Field(name) => path.extend([".", &shortened(name)]),
                Segment::Item(index) => path.push_str(&format!("[{index}]")),
            }
        }
        path
    }

    /// The message, with the input quoted: `Field required [input: None]`.
    pub fn message(&self) -> String {
        match &self.input {
            Some(input) => format!("{} [input: {input}]", self.text),
            None => self.text.clone(),
        }
    }

    fn about(mut self, value: &JsonValue) -> Self {
        self.input.get_or_insert_with(|| echo(value));
        self
    }

    fn below(mut self, segment: Segment) -> Self {
        self.path.push(segment);
        self
    }
}

/// What was sent, shortened: strings bare, everything else as JSON, null as `None`.
fn echo(value: &JsonValue) -> String {
    let text = match value {
        JsonValue::String(text) => text.clone(),
        JsonValue::Null => "None".to_owned(),
        JsonValue::Bool(_) | JsonValue::Number(_) | JsonValue::Array(_) | JsonValue::Object(_) => {
            serde_json::to_string(value).unwrap_or_default()
        }
    };
    shortened(&text).into_owned()
}

/// The beginning of a text that somebody sent, as errors tell it.
pub(crate) fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_ECHO) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field(), self.message())
    }
}

impl std::error::Error for InvalidField {}

impl de::Error for InvalidField {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self { path: Vec::new(), text: text.to_string(), input: None }
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(wanted(&expected.to_string()))
    }

    fn invalid_value(unexpected: Unexpected<'_>, expected: &dyn Expected) -> Self {
        match unexpected {
            Unexpected::Signed(..0) => Self::custom("Input should be greater than or equal to 0"),
            _ => Self::invalid_type(unexpected, expected),
        }
    }

    fn unknown_variant(_: &str, variants: &'static [&'static str]) -> Self {
        Self::custom(format_args!("Input should be {}", alternatives(variants)))
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Self::of(field, "Extra inputs are not permitted")
    }

    fn missing_field(field: &'static str) -> Self {
        Self::missing(field)
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::of(field, "Field given twice")
    }
}

fn wanted(expected: &str) -> &'static str {
    let is = |words: &[&str]| words.iter().any(|word| expected.contains(word));
    if is(&["struct", "map"]) {
        "Input should be a valid dictionary"
    } else if is(&["string", "character"]) {
        "Input should be a valid string"
    } else if is(&["sequence", "tuple", "array"]) {
        "Input should be a valid list"
    } else if is(&["bool"]) {
        "Input should be a valid boolean"
    } else if is(&["f64", "f32", "float"]) {
        "Input should be a valid number"
    } else if is(&["i64", "u64", "i32", "u32", "u8", "integer"]) {
        "Input should be a valid integer"
    } else {
        "Input is of the wrong type"
    }
}

/// `'a', 'b' or 'c'`.
fn alternatives(variants: &[&str]) -> String {
    let quoted: Vec<String> = variants.iter().map(|variant| format!("'{variant}'")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => "absent".to_owned(),
    }
}

/// Reads a JSON value as a `T`.
pub fn from_json<T: DeserializeOwned>(value: &JsonValue) -> Result<T, InvalidField> {
    T::deserialize(Reader { value, from_text: false })
}

/// Reads URL parameters as a `T`: every value in `parameters` is a string, or a list of them where one repeats.
pub fn from_parameters<T: DeserializeOwned>(parameters: Map<String, Value>) -> Result<T, InvalidField> {
    let fields = Vec::from_iter(parameters.into_iter().map(|(name, value)| (name, value.into())));
    T::deserialize(ObjectReader::new(&fields, true))
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    value: &'a JsonValue,
    /// Whether strings read as numbers and booleans, and lists as their last item.
    from_text: bool,
}

impl<'a> Reader<'a> {
    /// The single value: of a repeated parameter the last one wins.
    fn single(self) -> Self {
        match self.value {
            JsonValue::Array(items) if self.from_text => {
                items.last().map_or(self, |value| Self { value, ..self })
            }
            _ => self,
        }
    }

    fn text(self) -> Option<&'a str> {
        match self.value {
            JsonValue::String(text) if self.from_text => Some(text),
            _ => None,
        }
    }

    fn any<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        match self.value {
            JsonValue::Null => visitor.visit_unit(),
            JsonValue::Bool(value) => visitor.visit_bool(*value),
            JsonValue::Number(text) => {
                let number = serde_json::from_str::<Number>(text).ok();
                let number = number.map(|number| (number.as_u64(), number.as_i64(), number.as_f64()));
                match number.unwrap_or_default() {
                    (Some(value), ..) => visitor.visit_u64(value),
                    (_, Some(value), _) => visitor.visit_i64(value),
                    (.., Some(value)) => visitor.visit_f64(value),
                    (None, None, None) => Err(de::Error::invalid_type(Unexpected::Other("number"), &visitor)),
                }
            }
            JsonValue::String(text) => no_nul(text).and_then(|text| visitor.visit_str(text)),
            JsonValue::Array(items) => {
                visitor.visit_seq(ItemReader { items: items.iter().enumerate(), from_text: self.from_text })
            }
            JsonValue::Object(fields) => visitor.visit_map(ObjectReader::new(fields, self.from_text)),
        }
    }

    fn integer<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        match self.text() {
            Some(text) => match (text.parse::<u64>(), text.parse::<i64>()) {
                (Ok(value), _) => visitor.visit_u64(value),
                (_, Ok(value)) => visitor.visit_i64(value),
                (Err(_), Err(_)) => Err(de::Error::custom(
                    "Input should be a valid integer, unable to parse string as an integer",
                )),
            },
            None => self.any(visitor),
        }
    }
}

fn no_nul(text: &str) -> Result<&str, InvalidField> {
    if text.contains('\0') {
        Err(de::Error::custom("String should not contain the NUL character"))
    } else {
        Ok(text)
    }
}

/// Refuses a string with a NUL, which no database keeps, anywhere in a value whose type nothing else says of.
fn free_of_nul(value: &JsonValue) -> Result<(), InvalidField> {
    let found = match value {
        JsonValue::Null | JsonValue::Bool(_) | JsonValue::Number(_) => Ok(()),
        JsonValue::String(text) => no_nul(text).map(|_| ()),
        JsonValue::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            free_of_nul(item).map_err(|misfit| misfit.below(Segment::Item(index)))
        }),
        JsonValue::Object(fields) => fields.iter().try_for_each(|(name, value)| {
            let name_is = no_nul(name)
                .map_err(|misfit| InvalidField { input: Some(shortened(name).into_owned()), ..misfit });
            name_is
                .and_then(|_| free_of_nul(value))
                .map_err(|misfit| misfit.below(Segment::Field(name.clone())))
        }),
    };
    found.map_err(|misfit| misfit.about(value))
}

macro_rules! integers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
            let this = self.single();
            this.integer(visitor).map_err(|misfit| misfit.about(this.value))
        }
    )*};
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = InvalidField;

    integers! { deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        self.any(visitor).map_err(|misfit| misfit.about(self.value))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        let this = self.single();
        match this.text() {
            Some(text) if ["true", "1"].iter().any(|yes| text.eq_ignore_ascii_case(yes)) => {
                visitor.visit_bool(true)
            }
            Some(text) if ["false", "0"].iter().any(|no| text.eq_ignore_ascii_case(no)) => {
                visitor.visit_bool(false)
            }
            Some(_) => Err(de::Error::custom("Input should be a valid boolean, unable to interpret input")),
            None => this.any(visitor),
        }
        .map_err(|misfit: InvalidField| misfit.about(this.value))
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        let this = self.single();
        match this.text().map(str::parse::<f64>) {
            Some(Ok(number)) if number.is_finite() => visitor.visit_f64(number),
            Some(_) => {
                Err(de::Error::custom("Input should be a valid number, unable to parse string as a number"))
            }
            None => this.any(visitor),
        }
        .map_err(|misfit: InvalidField| misfit.about(this.value))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        self.single().deserialize_any(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        self.single().deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        if *self.value == JsonValue::Null { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, InvalidField> {
        if name != JsonText::NAME {
            return visitor.visit_newtype_struct(self);
        }
        free_of_nul(self.value)?;
        visitor.visit_str(&serde_json::to_string(self.value).map_err(de::Error::custom)?)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        free_of_nul(self.value)?;
        visitor.visit_unit()
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        match self.value {
            JsonValue::String(_) if self.from_text => {
                let items = std::slice::from_ref(self.value).iter().enumerate();
                visitor.visit_seq(ItemReader { items, from_text: true })
            }
            _ => self.deserialize_any(visitor),
        }
    }

    /// Serde would also fill a struct from a list, by position; here only an object will do.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, InvalidField> {
        match self.value {
            JsonValue::Object(_) => self.deserialize_any(visitor),
            _ => {
                Err(InvalidField::about(de::Error::custom("Input should be a valid dictionary"), self.value))
            }
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, InvalidField> {
        let this = self.single();
        match this.value {
            JsonValue::String(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            _ => Err(de::Error::unknown_variant("", variants)),
        }
        .map_err(|misfit: InvalidField| misfit.about(this.value))
    }

    serde::forward_to_deserialize_any! { f32 i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct map identifier }
}

struct ItemReader<'a> {
    items: std::iter::Enumerate<std::slice::Iter<'a, JsonValue>>,
    from_text: bool,
}

impl<'de> de::SeqAccess<'de> for ItemReader<'_> {
    type Error = InvalidField;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, InvalidField> {
        let Some((index, value)) = self.items.next() else { return Ok(None) };
        let read = seed.deserialize(Reader { value, from_text: self.from_text });
        read.map(Some).map_err(|misfit: InvalidField| misfit.about(value).below(Segment::Item(index)))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.items.len())
    }
}

struct ObjectReader<'a> {
    fields: std::slice::Iter<'a, (String, JsonValue)>,
    current: Option<&'a (String, JsonValue)>,
    from_text: bool,
}

impl<'a> ObjectReader<'a> {
    fn new(fields: &'a [(String, JsonValue)], from_text: bool) -> Self {
        Self { fields: fields.iter(), current: None, from_text }
    }
}

impl<'de> de::MapAccess<'de> for ObjectReader<'_> {
    type Error = InvalidField;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, InvalidField> {
        self.current = self.fields.next();
        let Some((name, value)) = self.current else { return Ok(None) };
        let read = no_nul(name).and_then(|name| seed.deserialize(name.into_deserializer()));
        read.map(Some).map_err(|misfit: InvalidField| match misfit.path.is_empty() {
            true => InvalidField { input: Some(shortened(name).into_owned()), ..misfit }
                .below(Segment::Field(name.clone())),
            false => misfit.about(value),
        })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, InvalidField> {
        let Some((name, value)) = self.current.take() else {
            return Err(de::Error::custom("a value was read before its key"));
        };
        let read = seed.deserialize(Reader { value, from_text: self.from_text });
        read.map_err(|misfit: InvalidField| misfit.about(value).below(Segment::Field(name.clone())))
    }
}

impl<'de> Deserializer<'de> for ObjectReader<'_> {
    type Error = InvalidField;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        visitor.visit_map(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// A value that may be left out and may not be null.
pub(crate) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A field that has two spellings, of which one is sent, or both with one value.
pub(crate) fn either_spelling<T: PartialEq, E: de::Error>(
    field: &'static str,
    spelling: Option<T>,
    other: Option<T>,
) -> Result<T, E> {
    match (spelling, other) {
        (Some(one), Some(another)) if one != another => Err(E::duplicate_field(field)),
        (Some(value), _) | (None, Some(value)) => Ok(value),
        (None, None) => Err(E::missing_field(field)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::name::{FlowName, TagKey};

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only read")]
    struct Body {
        name: FlowName,
        kind: Option<Kind>,
        #[serde(default)]
        counts: Vec<u64>,
        #[serde(default)]
        tags: BTreeMap<TagKey, String>,
        inner: Option<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read")]
    struct Inner {
        flag: bool,
        size: Option<f64>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum Kind {
        Public,
        Private,
    }

    #[test]
    fn every_misfit_names_its_field_and_quotes_its_input() {
        let table = [
            (json!({}), "name", "Field required [input: None]"),
            (json!({"name": null}), "name", "Input should be a valid string [input: None]"),
            (json!({"name": 5}), "name", "Input should be a valid string [input: 5]"),
            (
                json!({"name": "foo bar"}),
                "name",
                r"String should match pattern '^[a-zA-Z0-9][a-zA-Z0-9\.\-_~]*$' [input: foo bar]",
            ),
            (json!({"name": "x", "kind": ""}), "kind", "Input should be 'public' or 'private' [input: ]"),
            (
                json!({"name": "x", "kind": {"a": 1}}),
                "kind",
                "Input should be 'public' or 'private' [input: {\"a\":1}]",
            ),
            (json!({"name": "x", "more": 1}), "more", "Extra inputs are not permitted [input: 1]"),
            (
                json!({"name": "x", "counts": [1, "2"]}),
                "counts[1]",
                "Input should be a valid integer [input: 2]",
            ),
            (
                json!({"name": "x", "counts": [-1]}),
                "counts[0]",
                "Input should be greater than or equal to 0 [input: -1]",
            ),
            (
                json!({"name": "x", "counts": [1.5]}),
                "counts[0]",
                "Input should be a valid integer [input: 1.5]",
            ),
            (json!({"name": "x", "counts": ""}), "counts", "Input should be a valid list [input: ]"),
            (json!({"name": "x", "tags": ""}), "tags", "Input should be a valid dictionary [input: ]"),
            (json!({"name": "x", "tags": {"a": 1}}), "tags.a", "Input should be a valid string [input: 1]"),
            (
                json!({"name": "x", "tags": {"a": "\u{0}"}}),
                "tags.a",
                "String should not contain the NUL character [input: \u{0}]",
            ),
            (
                json!({"name": "x", "inner": [true]}),
                "inner",
                "Input should be a valid dictionary [input: [true]]",
            ),
            (
                json!({"name": "x", "inner": {"flag": "true"}}),
                "inner.flag",
                "Input should be a valid boolean [input: true]",
            ),
            (
                json!({"name": "x", "inner": {"flag": true, "size": ""}}),
                "inner.size",
                "Input should be a valid number [input: ]",
            ),
            (json!([]), "", "Input should be a valid dictionary [input: []]"),
        ];
        for (input, field, message) in table {
            let misfit = from_json::<Body>(&input.clone().into()).expect_err(&input.to_string());
            assert_eq!((misfit.field().as_str(), misfit.message().as_str()), (field, message), "{input}");
        }
        let misfit = from_json::<Body>(&json!({"name": "x", "tags": {"a b": ""}}).into()).unwrap_err();
        assert_eq!(misfit.field(), "tags.a b");
    }

    #[test]
    fn a_number_beyond_all_types_is_told_what_is_wanted_like_any_other() {
        for (text, field, message) in [
            (r#"{"name": 1e400}"#, "name", "Input should be a valid string [input: 1e400]"),
            (
                r#"{"name": "x", "counts": [1e400]}"#,
                "counts[0]",
                "Input should be a valid integer [input: 1e400]",
            ),
            (r#"{"name": "x", "tags": 1e400}"#, "tags", "Input should be a valid dictionary [input: 1e400]"),
            (
                r#"{"name": "x", "inner": {"flag": -1e400}}"#,
                "inner.flag",
                "Input should be a valid boolean [input: -1e400]",
            ),
            (
                r#"{"name": "x", "inner": {"flag": true, "size": 1e400}}"#,
                "inner.size",
                "Input should be a valid number [input: 1e400]",
            ),
        ] {
            let misfit = from_json::<Body>(&crate::json::parse(text.as_bytes()).unwrap()).expect_err(text);
            assert_eq!((misfit.field().as_str(), misfit.message().as_str()), (field, message), "{text}");
        }
    }

    #[derive(Debug, Deserialize)]
    struct Query {
        page: Option<i64>,
        reverse: Option<bool>,
        #[serde(default)]
        tag: Vec<String>,
        kind: Option<Kind>,
    }

    #[test]
    fn parameters_read_as_what_the_type_wants() {
        let Value::Object(parameters) = json!({"page": ["1", "2"], "reverse": "True", "tag": "one", "kind": ["junk", "private"], "other": ""})
        else {
            unreachable!()
        };
        let query: Query = from_parameters(parameters).unwrap();
        assert_eq!((query.page, query.reverse, query.kind), (Some(2), Some(true), Some(Kind::Private)));
        assert_eq!(query.tag, ["one"]);
    }

    #[test]
    fn parameters_of_the_wrong_form_are_named() {
        let table = [
            (
                json!({"page": ""}),
                "page",
                "Input should be a valid integer, unable to parse string as an integer [input: ]",
            ),
            (
                json!({"page": "99999999999999999999"}),
                "page",
                "Input should be a valid integer, unable to parse string as an integer [input: 99999999999999999999]",
            ),
            (
                json!({"page": "9223372036854775808"}),
                "page",
                "Input should be a valid integer [input: 9223372036854775808]",
            ),
            (
                json!({"reverse": ""}),
                "reverse",
                "Input should be a valid boolean, unable to interpret input [input: ]",
            ),
        ];
        for (input, field, message) in table {
            let Value::Object(parameters) = input.clone() else { unreachable!() };
            let misfit = from_parameters::<Query>(parameters).unwrap_err();
            assert_eq!((misfit.field().as_str(), misfit.message().as_str()), (field, message), "{input}");
        }
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Closed {}

    #[test]
    fn a_long_key_is_told_by_its_beginning_wherever_it_is() {
        let (key, told) = ("é".repeat(100_000), format!("{}…", "é".repeat(MAX_ECHO)));
        let misfit = from_json::<Closed>(&json!({ &key: 1 }).into()).unwrap_err();
        assert_eq!(misfit.field(), told);
        let misfit = from_json::<BTreeMap<String, Query>>(&json!({ &key: {"page": []} }).into()).unwrap_err();
        assert_eq!(misfit.field(), format!("{told}.page"));
        let misfit = from_json::<BTreeMap<u64, u64>>(&json!({ &key: 1 }).into()).unwrap_err();
        assert_eq!(misfit.field(), told);
        assert!(misfit.message().ends_with(&format!("[input: {told}]")), "{}", misfit.message());
    }
}
