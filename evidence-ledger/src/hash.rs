//! The hash type of the ledger: 32 bytes, always written as 64 lower-case hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::LedgerError;

/// A SHA-256 digest of a payload, a leaf, a node or a whole tree. Text and JSON form: 64 lower-case hex
/// digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The length of the text form.
    pub(super) const HEX_LEN: usize = 64;

    /// Returns the SHA-256 of `bytes`, without any prefix.
    #[must_use]
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self::of_parts(&[bytes.as_ref()])
    }

    /// Returns the SHA-256 of the concatenated `parts`.
    pub(super) fn of_parts(parts: &[&[u8]]) -> Self {
        let mut sha256 = Sha256::new();
        for part in parts {
            sha256.update(part);
        }
        Self(sha256.finalize().into())
    }

    /// Creates a hash from its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes of the hash.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses the text form. Returns `None` for any other text, so that a hash has exactly one spelling.
    pub(super) fn from_hex(text: &[u8]) -> Option<Self> {
        bytes_of_hex(text).map(Self)
    }
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Writes at most 32 bytes as lower-case hexadecimal digits.
pub(super) fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = [0; Hash::HEX_LEN];
    for (byte, pair) in bytes.iter().zip(text.as_chunks_mut::<2>().0) {
        *pair = [HEX_DIGITS[usize::from(byte >> 4)], HEX_DIGITS[usize::from(byte & 15)]];
    }
    let digits = text.get(..2 * bytes.len()).ok_or(fmt::Error)?;
    f.write_str(std::str::from_utf8(digits).map_err(|_| fmt::Error)?)
}

/// Reads exactly `N` bytes from lower-case hexadecimal digits.
pub(super) fn bytes_of_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(bytes)
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = LedgerError;

    fn from_str(text: &str) -> Result<Self, LedgerError> {
        Self::from_hex(text.as_bytes()).ok_or(LedgerError::MalformedHash)
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(feature = "serde")]
mod text_form {
    use std::borrow::Cow;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    use super::Hash;

    impl Serialize for Hash {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_str(self)
        }
    }

    impl<'de> Deserialize<'de> for Hash {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let text = Cow::<'de, str>::deserialize(deserializer)?;
            text.parse().map_err(de::Error::custom)
        }
    }
}
