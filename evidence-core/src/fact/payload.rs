//! The payload of a ledger entry: a JSON object with a fact under its kind, and the name of the actor under `by`.
//!
//! The name is there and not in the leaf, so that it can be redacted with the payload.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};

use super::Fact;
use crate::decode::recorded;
use crate::store::error::{StoreError, StoreResult};

/// The key of the actor's name. No kind of fact has it.
const BY: &str = "by";

/// Returns the payload of a fact that this actor caused.
pub(crate) fn write(fact: &Fact, by: &str) -> serde_json::Result<String> {
    let mut payload = serde_json::to_string(fact)?;
    // A fact is an object of one key, so its last character is the closing brace.
    payload.pop();
    for part in [",\"", BY, "\":", &serde_json::to_string(by)?, "}"] {
        payload.push_str(part);
    }
    Ok(payload)
}

/// Parses a payload: its fact, and the name of its actor, if the payload has it.
///
/// # Errors
/// The payload is no fact that this version knows.
pub fn read_payload(payload: &str) -> serde_json::Result<(Fact, Option<String>)> {
    struct WithActor;
    impl<'de> Visitor<'de> for WithActor {
        type Value = (Fact, Option<String>);

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a fact as a map of one kind")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let fact = Fact::deserialize(MapAccessDeserializer::new(&mut map))?;
            let by = rest(map, fact.kind())?;
            Ok((fact, by))
        }
    }
    let read = || {
        let mut deserializer = serde_json::Deserializer::from_str(payload);
        let read = deserializer.deserialize_map(WithActor)?;
        deserializer.end().map(|()| read)
    };
    recorded(read)
}

/// Reads what follows the fact of this kind: the name of its actor, and whatever a newer version records beside. A repeated
/// key would let two readers see two facts.
fn rest<'de, A: MapAccess<'de>>(mut map: A, kind: &str) -> Result<Option<String>, A::Error> {
    let mut by = None;
    while let Some(key) = map.next_key::<Cow<'de, str>>()? {
        if key == kind || (key == BY && by.is_some()) {
            return Err(de::Error::custom(format_args!("the key {key} is there twice")));
        }
        if key == BY {
            by = Some(map.next_value()?);
        } else {
            map.next_value::<IgnoredAny>()?;
        }
    }
    Ok(by)
}

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
            let kind = map.next_key::<String>()?.filter(|kind| kind != BY);
            let kind = kind.ok_or_else(|| de::Error::custom("a payload without a fact"))?;
            let fact = map.next_value()?;
            rest(map, &kind)?;
            Ok(fact)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn text_kept() -> Fact {
        Fact::TextKept { text: "a".to_owned() }
    }

    #[test]
    fn a_payload_is_exactly_these_bytes() {
        let cases = [
            ("jane", r#"{"text_kept":{"text":"a"},"by":"jane"}"#),
            ("\"\\é\u{1}", r#"{"text_kept":{"text":"a"},"by":"\"\\é\u0001"}"#),
            ("", r#"{"text_kept":{"text":"a"},"by":""}"#),
        ];
        for (by, payload) in cases {
            assert_eq!(write(&text_kept(), by).unwrap(), payload);
            assert_eq!(read_payload(payload).unwrap(), (text_kept(), Some(by.to_owned())));
        }
    }

    #[test]
    fn what_newer_versions_record_beside_a_fact_is_ignored() {
        let cases = [
            (r#"{"text_kept":{"text":"a"}}"#, None),
            (r#"{"text_kept":{"text":"a"},"more":[{}],"by":"jane","and":1}"#, Some("jane")),
        ];
        for (payload, by) in cases {
            assert_eq!(read_payload(payload).unwrap(), (text_kept(), by.map(str::to_owned)), "{payload}");
            let fields: serde_json::Value = decode_payload(payload).unwrap();
            assert_eq!(fields, serde_json::json!({"text": "a"}), "{payload}");
        }
    }

    #[test]
    fn what_is_no_payload_is_refused() {
        for payload in [
            "",
            "[]",
            "{}",
            r#"{"by":"jane"}"#,
            r#"{"by":"jane","text_kept":{"text":"a"}}"#,
            r#"{"text_kept":{"text":"a"},"text_kept":{"text":"b"}}"#,
            r#"{"text_kept":{"text":"a"},"by":"x","by":"y"}"#,
            r#"{"text_kept":{"text":"a"},"by":1}"#,
            r#"{"text_kept":{"text":"a"}}x"#,
        ] {
            assert!(read_payload(payload).is_err(), "{payload}");
            assert!(decode_payload::<serde_json::Value>(payload).is_err(), "{payload}");
        }
    }
}
