//! Decodes payloads: the requested part of a fact.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{self, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::decode::recorded;
use crate::store::error::{StoreError, StoreResult};

/// Decodes a payload of any kind. The fields of `T` are fields of the fact, as in [`Recorded`].
///
/// # Errors
/// [`StoreError::Corrupt`] if the payload cannot be parsed, or does not have the fields of `T`.
pub fn decode_payload<T: DeserializeOwned>(payload: &str) -> StoreResult<T> {
    struct OfOneKind<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for OfOneKind<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a fact as a map of one kind")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
            let fact = map.next_entry::<IgnoredAny, T>()?;
            fact.map(|(_, fact)| fact).ok_or_else(|| de::Error::custom("a payload without a fact"))
        }
    }
    let read = || {
        let mut deserializer = serde_json::Deserializer::from_str(payload);
        let fact = deserializer.deserialize_map(OfOneKind(PhantomData))?;
        deserializer.end().map(|()| fact)
    };
    recorded(read)
        .map_err(|error| StoreError::corrupt(format_args!("{}: {error}", std::any::type_name::<T>())))
}

/// The record of a fact.
#[derive(Debug, Clone, Deserialize)]
pub struct Recorded<T> {
    /// The state of the record after the fact.
    pub record: T,
}
