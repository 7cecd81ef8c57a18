//! The credentials of callers, and the stored form of API keys.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::id::Random;

/// A credential that a caller presents.
#[derive(Clone, Copy)]
pub enum Credential<'a> {
    /// `Authorization: Bearer <key>`.
    Bearer(&'a str),
    /// `Authorization: Basic <base64 of key:anything>`, already decoded. Only some operations accept it.
    Basic {
        /// The key, sent as the user name.
        key: &'a str,
    },
}

impl<'a> Credential<'a> {
    /// Returns its API key.
    pub const fn key(self) -> &'a str {
        match self {
            Self::Bearer(key) | Self::Basic { key } => key,
        }
    }
}

impl std::fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bearer(_) => "Bearer(…)",
            Self::Basic { .. } => "Basic(…)",
        })
    }
}

/// An API key in plain text: `ev_`, 43 base62 characters of 256 random bits, and a checksum of six. It is
/// never stored, and never printed by `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

const PREFIX: &str = "ev_";

const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

impl ApiKey {
    /// Generates a new key.
    pub fn generate(random: &dyn Random) -> Self {
        let mut secret = [0; 32];
        random.fill(&mut secret);
        let secret = base62(&secret, 43);
        let checksum = base62(&Sha256::digest(secret.as_bytes())[..4], 6);
        Self(format!("{PREFIX}{secret}{checksum}"))
    }

    /// Returns a key that a host provides. Any text is allowed.
    pub const fn imported(text: String) -> Self {
        Self(text)
    }

    /// Returns the text, to be shown to its holder once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the hash that is stored instead of the key.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(&self.0)
    }
}

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiKey(…)")
    }
}

/// Returns `bytes` as a big-endian number in base 62, with exactly `width` digits.
fn base62(bytes: &[u8], width: usize) -> String {
    let mut number = bytes.to_vec();
    let mut digits = vec![BASE62[0]; width];
    for digit in digits.iter_mut().rev() {
        let mut remainder = 0_u32;
        for byte in &mut number {
            let value = remainder << 8 | u32::from(*byte);
            *byte = (value / 62).to_be_bytes()[3];
            remainder = value % 62;
        }
        *digit = BASE62[remainder as usize];
    }
    digits.into_iter().map(char::from).collect()
}

/// The SHA-256 of an API key in lower-case hex. Stores hold it and look keys up by it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyHash(String);

impl KeyHash {
    /// Returns the hash of this key.
    pub fn of(key: &str) -> Self {
        Self(crate::digest::sha256_hex(key.as_bytes()))
    }

    /// Wraps a stored hash.
    pub const fn stored(hex: String) -> Self {
        Self(hex)
    }

    /// Returns the hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the digest of the hash. The ledger may contain it, because it cannot be used to authenticate.
    pub fn fingerprint(&self) -> String {
        crate::digest::sha256_hex(self.0.as_bytes())
    }

    /// Compares in constant time.
    pub fn matches(&self, other: &Self) -> bool {
        subtle::ConstantTimeEq::ct_eq(self.0.as_bytes(), other.0.as_bytes()).into()
    }
}

impl std::fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::SystemRandom;

    #[test]
    fn a_key_has_its_recognisable_form_and_a_right_checksum() {
        let key = ApiKey::generate(&SystemRandom);
        let text = key.reveal();
        assert!(regex::Regex::new("^ev_[0-9A-Za-z]{49}$").unwrap().is_match(text), "{text}");
        let (secret, checksum) = text[PREFIX.len()..].split_at(43);
        assert_eq!(base62(&Sha256::digest(secret.as_bytes())[..4], 6), checksum);
        assert_ne!(ApiKey::generate(&SystemRandom), key);
    }

    #[test]
    fn base62_counts() {
        assert_eq!(base62(&[0, 61], 3), "00z");
        assert_eq!(base62(&[0, 62], 3), "010");
        assert_eq!(base62(&[0xff; 32], 43).len(), 43);
    }

    #[test]
    fn nothing_prints_a_secret() {
        let key = ApiKey::imported("hunter2".to_owned());
        let printed = format!("{key:?} {:?} {:?}", key.hash(), Credential::Bearer("hunter2"));
        assert!(!printed.contains("hunter2") && !printed.contains(key.hash().as_str()), "{printed}");
    }
}
