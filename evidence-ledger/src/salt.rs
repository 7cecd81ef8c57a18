//! The random bytes that hide a payload behind its digest.

use std::fmt;
use std::str::FromStr;

use super::LedgerError;
use super::hash::{bytes_of_hex, write_hex};

/// Sixteen random bytes that [`payload_hash`](super::payload_hash) puts before a payload. They are kept with the payload and
/// destroyed with it. Text form: 32 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Salt([u8; Self::LEN]);

impl Salt {
    /// The length in bytes.
    pub const LEN: usize = 16;

    /// Creates a salt from its bytes, which must be unpredictable.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Display for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Salt {
    type Err = LedgerError;

    fn from_str(text: &str) -> Result<Self, LedgerError> {
        bytes_of_hex(text.as_bytes()).map(Self).ok_or(LedgerError::MalformedSalt)
    }
}
