//! The canonical header of an entry, and the exact bytes that its leaf hash covers.

use super::{Hash, Salt};

/// RFC 6962 §2.1: the prefix that separates leaf hashes from node hashes.
const LEAF_PREFIX: [u8; 1] = [0x00];

/// The header of a ledger entry, to which its leaf commits. It includes the payload only as a salted digest, and no name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<'a> {
    /// The position of the entry in its organization's log, from 0.
    pub index: u64,
    /// The kind of the fact, such as `trail_begun`.
    pub kind: &'a str,
    /// The time of recording: microseconds since the Unix epoch, UTC.
    pub at: i64,
    /// The user or account that caused the fact: its kind and its id.
    pub actor: &'a str,
    /// The [salted digest](payload_hash) of the payload's bytes.
    pub payload_hash: Hash,
}

impl Header<'_> {
    /// Returns the bytes of the leaf in UTF-8: one JSON object with these keys in this order and no white
    /// space.
    ///
    /// ```text
    /// {"index":0,"kind":"trail_begun","at":1776252299785510,"actor":"user:019d…","payload_hash":"44…8a"}
    /// ```
    ///
    /// Numbers are decimal integers. In strings, `"` and `\` are preceded by `\`. The characters U+0008,
    /// U+0009, U+000A, U+000C and U+000D are `\b`, `\t`, `\n`, `\f` and `\r`. The other characters below
    /// U+0020 are `\u00xx` with lower-case digits; all others are literal. This form must never change,
    /// because every root depends on it.
    #[must_use]
    pub fn canonical(&self) -> String {
        format!(
            r#"{{"index":{},"kind":{},"at":{},"actor":{},"payload_hash":"{}"}}"#,
            self.index,
            json_string(self.kind),
            self.at,
            json_string(self.actor),
            self.payload_hash,
        )
    }

    /// Returns the hash of the leaf: SHA-256 of a zero byte followed by the [canonical](Self::canonical)
    /// bytes (RFC 6962 §2.1).
    #[must_use]
    pub fn leaf_hash(&self) -> Hash {
        Hash::of_parts(&[&LEAF_PREFIX, self.canonical().as_bytes()])
    }
}

/// Returns the digest by which a leaf commits to a payload: the SHA-256 of the salt's 16 bytes followed by the payload's
/// bytes. Once the salt is destroyed, nobody can test a guess of the payload.
#[must_use]
pub fn payload_hash(salt: &Salt, payload: impl AsRef<[u8]>) -> Hash {
    Hash::of_parts(&[salt.as_bytes(), payload.as_ref()])
}

/// Returns the text as a JSON string, escaped as [`Header::canonical`] specifies.
fn json_string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            '\u{8}' => json.push_str("\\b"),
            '\t' => json.push_str("\\t"),
            '\n' => json.push_str("\\n"),
            '\u{c}' => json.push_str("\\f"),
            '\r' => json.push_str("\\r"),
            '\0'..' ' => json.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => json.push(character),
        }
    }
    json.push('"');
    json
}
