//! URLs that are credentials: anyone who knows the URL of a webhook can post there. A fact has the host and a salted digest
//! ([`UrlRecord`]). The URL itself is stored beside the ledger ([`StoredUrl`]), encrypted if the operator has a key.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::id::{Id, Random};
use crate::ledger::{Hash, Salt, payload_hash};

/// A URL that is a credential. It is never shown, logged or recorded in a fact.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// Wraps a secret URL.
    pub const fn new(url: String) -> Self {
        Self(url)
    }

    /// Returns the URL, for sending.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the host; empty if the URL has none.
    pub(crate) fn host(&self) -> String {
        Url::parse(&self.0).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretUrl(…)")
    }
}

/// A secret URL as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UrlRecord {
    /// The id under which the URL is stored.
    pub id: Id,
    /// Its host.
    pub host: String,
    /// The [salted digest](payload_hash) of the URL. The salt is stored with the URL.
    pub digest: Hash,
}

/// The operator's key for secret URLs in the database.
#[derive(Clone, PartialEq, Eq)]
pub struct UrlKey([u8; 32]);

impl UrlKey {
    /// Creates a key from these bytes, which must be secret.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for UrlKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UrlKey(…)")
    }
}

/// A secret URL as stores have it: a JSON text with the URL and its salt, or with their encryption.
#[derive(Clone, PartialEq, Eq)]
pub struct StoredUrl(String);

impl fmt::Debug for StoredUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoredUrl(…)")
    }
}

/// The reason why a secret URL cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// The store has no URL of this id.
    #[error("the store has lost its URL: send the action's targets again")]
    Missing,
    /// It is encrypted, and the key is missing or another.
    #[error(
        "its URL is encrypted with another key: start the server with that key, or send the action's targets again"
    )]
    WrongKey,
    /// It is not the URL that the fact names, or cannot be decoded.
    #[error("its URL is damaged in the store: send the action's targets again")]
    Damaged,
}

/// The content of a [`StoredUrl`].
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Content {
    Plain {
        url: String,
        salt: String,
    },
    /// Base64 of a 24-byte nonce and of the JSON of `Plain`, encrypted with XChaCha20-Poly1305. The id is the associated data.
    Encrypted {
        encrypted: String,
    },
}

impl StoredUrl {
    /// Wraps a stored text.
    pub const fn stored(text: String) -> Self {
        Self(text)
    }

    /// Returns the text for the store.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the URL for the fact and for the store.
    pub fn of(url: &SecretUrl, id: Id, key: Option<&UrlKey>, random: &dyn Random) -> (UrlRecord, Self) {
        let mut salt = [0; Salt::LEN];
        random.fill(&mut salt);
        let salt = Salt::from_bytes(salt);
        let record = UrlRecord { id, host: url.host(), digest: payload_hash(&salt, url.expose()) };
        let plain = json(&Content::Plain { url: url.0.clone(), salt: salt.to_string() });
        let stored = key.map_or_else(|| plain.clone(), |key| encrypted(plain.as_bytes(), id, key, random));
        (record, Self(stored))
    }

    /// Returns the URL that this record names.
    ///
    /// # Errors
    /// [`UrlError::WrongKey`] if it is encrypted with another key than this, and [`UrlError::Damaged`] if it is not the URL
    /// of the record.
    pub fn open(&self, record: &UrlRecord, key: Option<&UrlKey>) -> Result<SecretUrl, UrlError> {
        let content = serde_json::from_str(&self.0).map_err(|_| UrlError::Damaged)?;
        let content = match content {
            Content::Encrypted { encrypted } => decrypted(&encrypted, record.id, key)?,
            plain @ Content::Plain { .. } => plain,
        };
        let Content::Plain { url, salt } = content else { return Err(UrlError::Damaged) };
        let salt = salt.parse().map_err(|_| UrlError::Damaged)?;
        if payload_hash(&salt, &url) == record.digest { Ok(SecretUrl(url)) } else { Err(UrlError::Damaged) }
    }
}

fn json(content: &Content) -> String {
    serde_json::to_string(content).expect("strings serialize")
}

fn encrypted(plain: &[u8], id: Id, UrlKey(key): &UrlKey, random: &dyn Random) -> String {
    let mut nonce = [0; 24];
    random.fill(&mut nonce);
    let payload = Payload { msg: plain, aad: &id.as_bytes()[..] };
    let encrypted = XChaCha20Poly1305::new(key.into())
        .encrypt(&XNonce::from(nonce), payload)
        .expect("a URL is far shorter than the cipher's limit");
    json(&Content::Encrypted { encrypted: STANDARD.encode([&nonce[..], &encrypted].concat()) })
}

fn decrypted(text: &str, id: Id, key: Option<&UrlKey>) -> Result<Content, UrlError> {
    let bytes = STANDARD.decode(text).map_err(|_| UrlError::Damaged)?;
    let (nonce, encrypted) = bytes.split_first_chunk::<24>().ok_or(UrlError::Damaged)?;
    let UrlKey(key) = key.ok_or(UrlError::WrongKey)?;
    let payload = Payload { msg: encrypted, aad: &id.as_bytes()[..] };
    let plain = XChaCha20Poly1305::new(key.into()).decrypt(&XNonce::from(*nonce), payload);
    serde_json::from_slice(&plain.map_err(|_| UrlError::WrongKey)?).map_err(|_| UrlError::Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::id;
    use crate::id::SystemRandom;

    const KEY: UrlKey = UrlKey::new([1; 32]);

    fn url() -> SecretUrl {
        SecretUrl::new("https://hooks.example.com:8443/services/T0/B1?token=x".to_owned())
    }

    #[test]
    fn a_url_is_opened_with_its_key_and_its_record_alone() {
        let (other_key, other) =
            (UrlKey::new([2; 32]), SecretUrl::new("https://hooks.example.com/".to_owned()));
        let (another, _) = StoredUrl::of(&other, id(1), None, &SystemRandom);
        let (renumbered, _) = StoredUrl::of(&url(), id(2), None, &SystemRandom);
        for key in [None, Some(&KEY)] {
            let (record, stored) = StoredUrl::of(&url(), id(1), key, &SystemRandom);
            assert_eq!(record.host, "hooks.example.com");
            assert_eq!(stored.open(&record, key), Ok(url()));
            assert!(stored.open(&another, key).is_err() && stored.open(&renumbered, key).is_err());
            let recorded =
                serde_json::to_string(&record).unwrap() + &format!("{record:?} {stored:?} {:?}", url());
            assert!(!recorded.contains("services") && !recorded.contains("token"), "{recorded}");
            assert_eq!(stored.as_str().contains("services"), key.is_none());
        }
        let (record, stored) = StoredUrl::of(&url(), id(1), Some(&KEY), &SystemRandom);
        assert_eq!(stored.open(&record, None), Err(UrlError::WrongKey));
        assert_eq!(stored.open(&record, Some(&other_key)), Err(UrlError::WrongKey));
        // URLs that were stored before there was a key stay readable.
        let (record, stored) = StoredUrl::of(&url(), id(1), None, &SystemRandom);
        assert_eq!(stored.open(&record, Some(&KEY)), Ok(url()));
    }

    #[test]
    fn no_changed_byte_is_opened_as_another_url() {
        for key in [None, Some(&KEY)] {
            let (record, stored) = StoredUrl::of(&url(), id(1), key, &SystemRandom);
            for place in 0..stored.as_str().len() {
                let mut bytes = stored.as_str().as_bytes().to_vec();
                bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
                let opened = StoredUrl::stored(String::from_utf8(bytes).unwrap()).open(&record, key);
                assert!(opened.is_err(), "{place}");
            }
        }
    }

    #[test]
    fn equal_urls_have_different_digests() {
        let digest = || StoredUrl::of(&url(), id(1), None, &SystemRandom).0.digest;
        assert_ne!(digest(), digest());
    }
}
