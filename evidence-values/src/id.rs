//! Identifiers: 112 bits written as `8-4-4-4-8`, the form of attestation ids in the specification. The first
//! 48 bits are milliseconds, so ids sort by age and are efficient index keys; the other 64 bits are random.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::hex_pair;
use crate::time::Timestamp;

/// The pattern of an [`Id`] (specification, Artifacts: the internal artifact attestation id).
pub const ID_PATTERN: &str = "^[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{8}$";

const GROUPS: [usize; 5] = [4, 2, 2, 2, 4];
/// Length of an [`Id`] in bytes.
pub const ID_LENGTH: usize = 14;
const TEXT_LENGTH: usize = ID_LENGTH * 2 + GROUPS.len() - 1;

/// An identifier that the service generated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id([u8; ID_LENGTH]);

impl Id {
    /// The id that no record has; no clock generates it.
    #[doc(hidden)]
    pub const NONE: Self = Self([0; ID_LENGTH]);

    /// Generates an id: `at` in milliseconds, then 64 random bits.
    pub fn new(at: Timestamp, random: &dyn Random) -> Self {
        let millis = at.as_micros().div_euclid(1000).to_be_bytes();
        let mut bytes = [0; ID_LENGTH];
        let (time, noise) = bytes.split_at_mut(6);
        time.copy_from_slice(&millis[2..]);
        random.fill(noise);
        Self(bytes)
    }

    /// Returns its bytes, in sort order.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; ID_LENGTH] {
        &self.0
    }

    /// Creates an id from its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; ID_LENGTH]) -> Self {
        Self(bytes)
    }
}

impl Id {
    /// Calls `with` with the text of the id. The text is built on the stack, because every row and response
    /// contains ids.
    fn with_text<T>(self, with: impl FnOnce(&str) -> T) -> T {
        let mut text = [b'-'; TEXT_LENGTH];
        let mut places = text.iter_mut();
        let mut bytes = self.0.into_iter();
        for width in GROUPS {
            let digits = bytes.by_ref().take(width).flat_map(hex_pair);
            digits.zip(&mut places).for_each(|(digit, place)| *place = digit);
            places.next();
        }
        with(str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error: the text is not an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("String should match pattern '{ID_PATTERN}'")]
pub struct ParseIdError;

impl FromStr for Id {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let text: &[u8; TEXT_LENGTH] = text.as_bytes().try_into().map_err(|_| ParseIdError)?;
        let mut bytes = [0; ID_LENGTH];
        let mut places = bytes.iter_mut();
        let mut rest = text.as_slice();
        for width in GROUPS {
            let (group, further) = rest.split_at_checked(width * 2).ok_or(ParseIdError)?;
            for (pair, place) in group.chunks_exact(2).zip(&mut places) {
                *place =
                    hex_digit(pair[0]).ok_or(ParseIdError)? << 4 | hex_digit(pair[1]).ok_or(ParseIdError)?;
            }
            rest = match further {
                [] => further,
                [b'-', further @ ..] => further,
                _ => return Err(ParseIdError),
            };
        }
        Ok(Self(bytes))
    }
}

const fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.with_text(|text| serializer.serialize_str(text))
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Reader)
    }
}

/// Decodes an id from the borrowed text, because rows and payloads contain many ids.
struct Reader;

impl serde::de::Visitor<'_> for Reader {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Id, E> {
        text.parse().map_err(E::custom)
    }
}

impl JsonSchema for Id {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Id".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": ID_PATTERN, "maxLength": 32 })
    }
}

/// A source of random bytes for ids and API keys.
pub trait Random: Send + Sync + 'static {
    /// Fills `bytes` with unpredictable values.
    fn fill(&self, bytes: &mut [u8]);
}

/// The operating system's random source.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    /// # Panics
    /// The operating system has no entropy source. No secure operation is possible without one.
    #[expect(clippy::disallowed_methods, reason = "the one place that draws randomness")]
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the operating system gives random bytes");
    }
}

/// A record's id, and the number of one of its versions.
pub type VersionKey = (Id, u64);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_sort_by_age_and_fit_the_pattern() {
        let older = Id::new(Timestamp::from_seconds(1_700_000_000), &SystemRandom);
        let newer = Id::new(Timestamp::from_seconds(1_700_000_001), &SystemRandom);
        assert!(older < newer && older.to_string() < newer.to_string());
        assert!(regex::Regex::new(ID_PATTERN).unwrap().is_match(&older.to_string()));
    }

    proptest! {
        #[test]
        fn an_id_reads_back_as_itself(bytes: [u8; ID_LENGTH]) {
            prop_assert_eq!(Id(bytes).to_string().parse(), Ok(Id(bytes)));
        }

        #[test]
        fn a_text_is_an_id_iff_it_fits_the_pattern(
            text in "[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{8}|[a-fA-F0-9-]{0,34}|\\PC*"
        ) {
            let fits = regex::Regex::new(ID_PATTERN).unwrap().is_match(&text);
            prop_assert_eq!(text.parse::<Id>().is_ok(), fits);
        }
    }
}
