//! Records with fields that a newer version of the program added.

use std::fmt;

use serde::Serialize;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, Visitor};

use crate::json::JsonFields;

/// Fields of a record that this version of the program does not know, because a newer version wrote them.
/// They are preserved when the record is recorded again, so that an older server beside a newer one loses
/// nothing. New versions must therefore add fields only at the top level of a record.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct UnknownFields(JsonFields);

/// Implements both serde traits for records with a field `unknown`, on top of derived ones (`remote =
/// "Self"`). Serde's `flatten` would buffer the fields in a value that does not preserve the spelling of
/// numbers.
#[doc(hidden)]
#[macro_export]
macro_rules! keep_unknown_fields {
    ($($record:ty),*) => {$(
        impl serde::Serialize for $record {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                <$record>::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $record {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let mut unknown = $crate::decode::UnknownFields::default();
                let record = <$record>::deserialize(unknown.beside(deserializer))?;
                Ok(Self { unknown, ..record })
            }
        }
    )*};
}
impl UnknownFields {
    /// Returns a deserializer that reads a struct from an object, and collects its unknown fields here.
    #[doc(hidden)]
    pub const fn beside<D>(&mut self, deserializer: D) -> Beside<'_, D> {
        Beside { deserializer, unknown: self }
    }
}

/// The deserializer of [`UnknownFields::beside`].
#[doc(hidden)]
#[derive(Debug)]
pub struct Beside<'a, D> {
    deserializer: D,
    unknown: &'a mut UnknownFields,
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Beside<'_, D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let Self { deserializer, unknown } = self;
        deserializer.deserialize_struct(name, known, Split { visitor, known, unknown })
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.deserializer.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Passes only the known fields to a visitor; as a map access, to the derived code.
struct Split<'a, T> {
    visitor: T,
    known: &'static [&'static str],
    unknown: &'a mut UnknownFields,
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Split<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let Self { visitor, known, unknown } = self;
        visitor.visit_map(Split { visitor: map, known, unknown })
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Split<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        loop {
            match self.visitor.next_key_seed(Name(self.known))? {
                None => return Ok(None),
                Some(Ok(known)) => return seed.deserialize(known.into_deserializer()).map(Some),
                Some(Err(name)) => self.unknown.0.push(name, self.visitor.next_value()?),
            }
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        self.visitor.next_value_seed(seed)
    }
}

/// Reads a field's name: one of these, or an unknown one.
struct Name(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Result<&'static str, String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Result<&'static str, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Self::Value, E> {
        let known = self.0.iter().find(|known| **known == name);
        Ok(known.copied().ok_or_else(|| name.to_owned()))
    }
}
