//! Decodes JSON and URL parameters to Rust types. Errors name the field and quote the input.
//!
//! One serde deserializer over JSON text serves both. Parameters are strings, which decode as integers and
//! booleans if the type requires them, and as lists if a parameter repeats. It decodes each value once, and
//! returns to the start of a value only to quote it. The messages match the validation messages that users of
//! the public command-line client know.

mod recorded;
mod unknown;

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, Unexpected, Visitor,
};
use serde_json::{Map, Number, Value};

use crate::json::{CheckedJson, JsonText, Scanner, compact};

#[doc(hidden)]
pub use crate::quote::shortened;
#[doc(hidden)]
pub use recorded::{is_recorded, recorded};
pub use unknown::UnknownFields;
#[doc(hidden)]
pub use {crate::closed_in_requests, crate::keep_unknown_fields};

/// One error in an input: the path, the message, and the input.
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
    /// Creates an error about the field named `field`.
    pub fn of(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self { path: vec![Segment::Field(field.into())], text: text.into(), input: None }
    }

    /// Creates the error of a required field that was not sent.
    pub fn missing(field: impl Into<String>) -> Self {
        Self { input: Some("None".to_owned()), ..Self::of(field, "Field required") }
    }

    /// Returns the path of the field, such as `artifacts[0].digests`, with each name shortened; empty for the
    /// input as a whole.
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

    /// Returns the message with the input quoted: `Field required [input: None]`.
    pub fn message(&self) -> String {
        match &self.input {
            Some(input) => format!("{} [input: {input}]", self.text),
            None => self.text.clone(),
        }
    }

    /// Returns the error with this field prepended to its path.
    #[must_use]
    pub fn within(self, field: &str) -> Self {
        self.below(Segment::Field(field.to_owned()))
    }

    /// Quotes the value at `begin`, unless a part of it is already quoted.
    fn about(mut self, begin: Scanner<'_>) -> Self {
        self.input.get_or_insert_with(|| echo(begin));
        self
    }

    fn quoting(self, input: &str) -> Self {
        Self { input: Some(shortened(input).into_owned()), ..self }
    }

    fn below(mut self, segment: Segment) -> Self {
        self.path.push(segment);
        self
    }
}

/// Returns the input, shortened: strings without quotes, null as `None`, everything else as JSON.
fn echo(mut at: Scanner<'_>) -> String {
    let text = match at.peek() {
        Some(b'"') => at.string().unwrap_or_default(),
        Some(b'n') => "None".into(),
        _ => compact(at.value()).unwrap_or_default().into(),
    };
    shortened(&text).into_owned()
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field(), self.message())
    }
}

impl std::error::Error for InvalidField {}

/// Converts the error of a string with half of a surrogate pair, which checked JSON never has.
impl From<serde_json::Error> for InvalidField {
    fn from(error: serde_json::Error) -> Self {
        de::Error::custom(error)
    }
}

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

/// Formats alternatives as `'a', 'b' or 'c'`.
fn alternatives(variants: &[&str]) -> String {
    let quoted: Vec<String> = variants.iter().map(|variant| format!("'{variant}'")).collect();
    match quoted.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => "absent".to_owned(),
    }
}

/// Decodes JSON text as a `T`.
pub fn from_json<'de, T: Deserialize<'de>>(text: CheckedJson<'de>) -> Result<T, InvalidField> {
    T::deserialize(Reader { at: &mut Scanner::new(text.as_str()), from_text: false })
}

/// Decodes those fields of a JSON object whose names are `wanted` as a `T`, ignoring all others.
pub fn from_fields<'de, T: Deserialize<'de>>(
    object: CheckedJson<'de>,
    wanted: fn(&str) -> bool,
) -> Result<T, InvalidField> {
    if !object.is_object() {
        return Err(de::Error::custom("Input should be a valid dictionary"));
    }
    let at = &mut Scanner::new(object.as_str());
    T::deserialize(MapAccessDeserializer::new(Fields { wanted, ..Fields::new(at, false) }))
}

/// Decodes a value as a `T`, as if it had been sent as JSON.
pub fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, InvalidField> {
    T::deserialize(Reader { at: &mut Scanner::new(&value.to_string()), from_text: false })
}

/// Decodes URL parameters as a `T`. Every value in `parameters` is a string, or a list of strings if it
/// repeats.
pub fn from_parameters<T: DeserializeOwned>(parameters: Map<String, Value>) -> Result<T, InvalidField> {
    let text = Value::Object(parameters).to_string();
    T::deserialize(MapAccessDeserializer::new(Fields::new(&mut Scanner::new(&text), true)))
}

/// Decodes the next value.
struct Reader<'r, 'de> {
    at: &'r mut Scanner<'de>,
    /// Whether strings decode as numbers and booleans, and lists as their last item.
    from_text: bool,
}

impl<'de> Reader<'_, 'de> {
    /// Decodes a single value; for a repeated parameter, the last one.
    fn single<T>(
        self,
        read: impl FnOnce(Reader<'_, 'de>) -> Result<T, InvalidField>,
    ) -> Result<T, InvalidField> {
        let Self { at, from_text } = self;
        let mut last;
        let at = if from_text {
            last = last_item(*at);
            at.value();
            &mut last
        } else {
            at
        };
        let begin = *at;
        read(Reader { at, from_text }).map_err(|misfit| misfit.about(begin))
    }

    /// Returns the next string, if strings decode as other types.
    fn text(&mut self) -> Result<Option<Cow<'de, str>>, InvalidField> {
        let comes = self.from_text && self.at.peek() == Some(b'"');
        Ok(comes.then(|| self.at.string()).transpose()?)
    }

    fn any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        let Self { at, from_text } = self;
        match at.peek() {
            Some(b'{') => {
                let value = visitor.visit_map(Fields::new(at, from_text))?;
                at.close();
                Ok(value)
            }
            Some(b'[') => {
                at.open();
                let value = visitor.visit_seq(Items { at: &mut *at, index: 0, from_text, alone: false })?;
                at.close();
                Ok(value)
            }
            Some(b'"') => match at.string()? {
                // The string has no escapes, and therefore no NUL.
                Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                Cow::Owned(text) => {
                    no_nul(&text)?;
                    visitor.visit_string(text)
                }
            },
            _ => match at.scalar() {
                "null" => visitor.visit_unit(),
                "true" => visitor.visit_bool(true),
                "false" => visitor.visit_bool(false),
                number => {
                    let number = serde_json::from_str::<Number>(number).ok();
                    let number = number.map(|number| (number.as_u64(), number.as_i64(), number.as_f64()));
                    match number.unwrap_or_default() {
                        (Some(value), ..) => visitor.visit_u64(value),
                        (_, Some(value), _) => visitor.visit_i64(value),
                        (.., Some(value)) => visitor.visit_f64(value),
                        (None, None, None) => {
                            Err(de::Error::invalid_type(Unexpected::Other("number"), &visitor))
                        }
                    }
                }
            },
        }
    }

    fn integer<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, InvalidField> {
        if let Some(text) = self.text()? {
            let misfit = "Input should be a valid integer, unable to parse string as an integer";
            let misfit = || <InvalidField as de::Error>::custom(misfit);
            return Integer::read(&text).ok_or_else(misfit)?.visit(visitor);
        }
        let mut ahead = *self.at;
        let comes = matches!(ahead.peek(), Some(b'-' | b'0'..=b'9'));
        match comes.then(|| Integer::read(ahead.scalar())).flatten() {
            Some(integer) => {
                *self.at = ahead;
                integer.visit(visitor)
            }
            None => self.any(visitor),
        }
    }
}

/// An integer, which may have a fraction or an exponent, as in JSON Schema.
enum Integer {
    Unsigned(u64),
    Signed(i64),
}

impl Integer {
    /// Parses a number. Returns `None` if it is not an integer, or too large for all types.
    fn read(number: &str) -> Option<Self> {
        let number: Cow<'_, str> =
            if number.contains(['.', 'e', 'E']) { integral(number)?.into() } else { number.into() };
        let signed = |_| number.parse().map(Self::Signed);
        number.parse().map(Self::Unsigned).or_else(signed).ok()
    }

    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        match self {
            Self::Unsigned(value) => visitor.visit_u64(value),
            Self::Signed(value) => visitor.visit_i64(value),
        }
    }
}

/// Maximum number of digits of an integer.
const MAX_DIGITS: usize = 20;

/// Returns the integer value of a number with a fraction or an exponent. It works digit by digit, so nothing
/// is rounded.
fn integral(number: &str) -> Option<String> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let power = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if ![whole, fraction, power].into_iter().all(are_digits) {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some("0".to_owned());
    }
    let point = isize::try_from(whole.len()).ok()?.checked_add(exponent.parse().ok()?)?;
    let zeros = usize::try_from(point).ok()?.checked_sub(significant.len())?;
    let leading = significant.trim_start_matches('0');
    (zeros <= MAX_DIGITS).then(|| format!("{sign}{leading}{}", "0".repeat(zeros)))
}

/// Returns the position of the last item if the next value is a list with items.
fn last_item(mut at: Scanner<'_>) -> Scanner<'_> {
    let mut last = at;
    if at.peek() == Some(b'[') {
        at.open();
        while at.more() {
            last = at;
            at.value();
        }
    }
    last
}

fn no_nul(text: &str) -> Result<(), InvalidField> {
    if text.contains('\0') {
        Err(de::Error::custom("String should not contain the NUL character"))
    } else {
        Ok(())
    }
}

/// Skips a value of unknown type. Rejects a value that contains a NUL, which no database can store.
fn pass_over<'de>(at: &mut Scanner<'de>) -> Result<&'de str, InvalidField> {
    let mut begin = *at;
    let text = at.value();
    // A NUL has no other spelling; a match may also be an escaped backslash and digits.
    if text.contains(r"\u0000") {
        find_nul(&mut begin)?;
    }
    Ok(text)
}

/// Skips a value up to the first string with a NUL.
fn find_nul(at: &mut Scanner<'_>) -> Result<(), InvalidField> {
    let begin = *at;
    let found = match at.peek() {
        Some(b'{') => find_nul_in_fields(at),
        Some(b'[') => find_nul_in_items(at),
        Some(b'"') => at.string().map_err(InvalidField::from).and_then(|text| no_nul(&text)),
        _ => {
            at.scalar();
            Ok(())
        }
    };
    found.map_err(|misfit| misfit.about(begin))
}

fn find_nul_in_items(at: &mut Scanner<'_>) -> Result<(), InvalidField> {
    at.open();
    let mut index = 0;
    while at.more() {
        find_nul(at).map_err(|misfit| misfit.below(Segment::Item(index)))?;
        index += 1;
    }
    at.close();
    Ok(())
}

fn find_nul_in_fields(at: &mut Scanner<'_>) -> Result<(), InvalidField> {
    at.open();
    while at.more() {
        let name = at.name()?;
        no_nul(&name)
            .map_err(|misfit| misfit.quoting(&name))
            .and_then(|()| find_nul(at))
            .map_err(|misfit| misfit.below(Segment::Field(name.into_owned())))?;
    }
    at.close();
    Ok(())
}

macro_rules! integers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
            self.single(|this| this.integer(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for Reader<'_, 'de> {
    type Error = InvalidField;

    integers! { deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        let begin = *self.at;
        self.any(visitor).map_err(|misfit| misfit.about(begin))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        self.single(|mut this| match this.text()? {
            Some(text) if ["true", "1"].iter().any(|yes| text.eq_ignore_ascii_case(yes)) => {
                visitor.visit_bool(true)
            }
            Some(text) if ["false", "0"].iter().any(|no| text.eq_ignore_ascii_case(no)) => {
                visitor.visit_bool(false)
            }
            Some(_) => Err(de::Error::custom("Input should be a valid boolean, unable to interpret input")),
            None => this.any(visitor),
        })
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        self.single(|mut this| match this.text()?.map(|text| text.parse::<f64>()) {
            Some(Ok(number)) if number.is_finite() => visitor.visit_f64(number),
            Some(_) => {
                Err(de::Error::custom("Input should be a valid number, unable to parse string as a number"))
            }
            None => this.any(visitor),
        })
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        self.single(|this| this.any(visitor))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        if self.at.peek() == Some(b'n') {
            self.at.scalar();
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, InvalidField> {
        if name != JsonText::NAME {
            return visitor.visit_newtype_struct(self);
        }
        visitor.visit_string(compact(pass_over(self.at)?)?)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        pass_over(self.at)?;
        visitor.visit_unit()
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, InvalidField> {
        match self.at.peek() {
            Some(b'"') if self.from_text => {
                visitor.visit_seq(Items { at: self.at, index: 0, from_text: true, alone: true })
            }
            _ => self.deserialize_any(visitor),
        }
    }

    /// Serde would also fill a struct from a list by position; this decoder accepts only an object.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, InvalidField> {
        match self.at.peek() {
            Some(b'{') => self.deserialize_any(visitor),
            _ => Err(InvalidField::about(de::Error::custom("Input should be a valid dictionary"), *self.at)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, InvalidField> {
        self.single(|this| match this.at.peek() {
            Some(b'"') => visitor.visit_enum(this.at.string()?.into_deserializer()),
            _ => Err(de::Error::unknown_variant("", variants)),
        })
    }

    serde::forward_to_deserialize_any! { f32 i128 u128 char bytes byte_buf unit unit_struct tuple tuple_struct map identifier }
}

/// Decodes the items of a list.
struct Items<'r, 'de> {
    at: &'r mut Scanner<'de>,
    index: usize,
    from_text: bool,
    /// Whether this is a parameter that was sent once: one item without a list around it.
    alone: bool,
}

impl<'de> de::SeqAccess<'de> for Items<'_, 'de> {
    type Error = InvalidField;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, InvalidField> {
        let comes = if self.alone { self.index == 0 } else { self.at.more() };
        if !comes {
            return Ok(None);
        }
        let begin = *self.at;
        let read = seed.deserialize(Reader { at: &mut *self.at, from_text: self.from_text });
        let read = read.map_err(|misfit| misfit.about(begin).below(Segment::Item(self.index)))?;
        self.index += 1;
        Ok(Some(read))
    }
}

/// Decodes the wanted fields of an object.
struct Fields<'r, 'de> {
    at: &'r mut Scanner<'de>,
    /// The name of the field whose value is next.
    name: Option<Cow<'de, str>>,
    wanted: fn(&str) -> bool,
    from_text: bool,
}

impl<'r, 'de> Fields<'r, 'de> {
    /// Enters the next object.
    fn new(at: &'r mut Scanner<'de>, from_text: bool) -> Self {
        at.open();
        Self { at, name: None, wanted: |_| true, from_text }
    }

    /// Returns the next wanted name.
    fn next(&mut self) -> Result<Option<Cow<'de, str>>, InvalidField> {
        while self.at.more() {
            let name = self.at.name()?;
            if (self.wanted)(&name) {
                return Ok(Some(name));
            }
            self.at.value();
        }
        Ok(None)
    }
}

impl<'de> de::MapAccess<'de> for Fields<'_, 'de> {
    type Error = InvalidField;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, InvalidField> {
        let Some(name) = self.next()? else { return Ok(None) };
        let read = no_nul(&name).and_then(|()| seed.deserialize((&*name).into_deserializer()));
        let read = read.map_err(|misfit: InvalidField| match misfit.path.is_empty() {
            true => misfit.quoting(&name).below(Segment::Field(name.to_string())),
            false => misfit.about(*self.at),
        })?;
        self.name = Some(name);
        Ok(Some(read))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, InvalidField> {
        let Some(name) = self.name.take() else {
            return Err(de::Error::custom("a value was read before its key"));
        };
        let begin = *self.at;
        let read = seed.deserialize(Reader { at: &mut *self.at, from_text: self.from_text });
        read.map_err(|misfit| misfit.about(begin).below(Segment::Field(name.into_owned())))
    }
}

/// Decodes a value that may be absent but not null.
pub fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Returns the value of a field with two spellings. Either may be sent, or both with the same value.
#[doc(hidden)]
pub fn either_spelling<T: PartialEq, E: de::Error>(
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
mod tests;
