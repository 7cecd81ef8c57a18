//! Signatures of webhooks: HMAC-SHA256 (RFC 2104) over id, time and body, according to Standard Webhooks.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use evidence_core::actions::UrlKey;
use evidence_core::id::Id;
use evidence_core::notifications::Message;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The key from which the secrets of all organizations are derived, so that no organization can sign for
/// another.
#[derive(Clone)]
pub struct SigningKey(Vec<u8>);

impl SigningKey {
    /// The minimum length of a key in bytes.
    pub const LEAST: usize = 32;

    /// Creates a key from this text. Returns `None` if it has less than [`Self::LEAST`] bytes.
    pub fn new(text: &str) -> Option<Self> {
        (text.len() >= Self::LEAST).then(|| Self(text.as_bytes().to_vec()))
    }

    /// Returns the secret of an organization for its receivers: `whsec_` and 32 bytes in Base64.
    pub fn secret(&self, org: Id) -> String {
        format!("whsec_{}", STANDARD.encode(self.bytes(org)))
    }

    /// Returns the key that encrypts the URLs of targets in the store ([`Settings::url_key`](evidence_core::Settings::url_key)).
    pub fn url_key(&self) -> UrlKey {
        UrlKey::new(hmac(&self.0, &[b"URLs of targets"]))
    }

    fn bytes(&self, org: Id) -> [u8; 32] {
        hmac(&self.0, &[b"webhooks of ", org.to_string().as_bytes()])
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(…)")
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC accepts keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// Returns the headers of a webhook. Without a key it is not signed.
pub(crate) fn headers(message: &Message, key: Option<&SigningKey>) -> Vec<(&'static str, String)> {
    let timestamp = message.at.whole_seconds().0.to_string();
    let mut headers = vec![("webhook-id", message.id.clone()), ("webhook-timestamp", timestamp.clone())];
    if let Some(key) = key {
        let signed = [message.id.as_bytes(), b".", timestamp.as_bytes(), b".", message.payload.as_bytes()];
        let signature = STANDARD.encode(hmac(&key.bytes(message.org), &signed));
        headers.push(("webhook-signature", format!("v1,{signature}")));
    }
    headers
}

#[cfg(test)]
mod tests {
    use evidence_core::actions::Destination;
    use evidence_core::time::Timestamp;

    use super::*;

    /// RFC 4231, test cases 1 and 2.
    #[test]
    fn codes_are_those_of_the_rfc() {
        let hex = |code: [u8; 32]| code.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let first = hmac(&[0x0b; 20], &[b"Hi There"]);
        assert_eq!(hex(first), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        let second = hmac(b"Jefe", &[b"what do ya want ", b"for nothing?"]);
        assert_eq!(hex(second), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn each_organization_has_a_secret_and_short_keys_are_none() {
        let key = SigningKey::new(&"k".repeat(32)).unwrap();
        let ids: [Id; 2] = ["00000000-0000-0000-0000-00000001", "00000000-0000-0000-0000-00000002"]
            .map(|id| id.parse().unwrap());
        assert_ne!(key.secret(ids[0]), key.secret(ids[1]));
        assert_eq!(key.secret(ids[0]).len(), "whsec_".len() + 44);
        assert!(SigningKey::new(&"k".repeat(31)).is_none());
        assert!(!format!("{key:?}").contains('k'), "{key:?}");
        let addresses = Vec::new();
        let message = Message {
            id: "d".to_owned(),
            org: ids[0],
            at: Timestamp::from_seconds(5),
            destination: Destination::Email { addresses },
            payload: "{}".to_owned(),
            text: String::new(),
            subject: String::new(),
            link: None,
        };
        let unsigned = headers(&message, None);
        assert_eq!(unsigned, [("webhook-id", "d".to_owned()), ("webhook-timestamp", "5".to_owned())]);
        let expected = STANDARD.encode(hmac(&key.bytes(ids[0]), &[b"d.5.{}"]));
        assert_eq!(headers(&message, Some(&key))[2], ("webhook-signature", format!("v1,{expected}")));
    }
}
