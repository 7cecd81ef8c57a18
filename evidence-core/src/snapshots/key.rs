//! The key of a running artifact in an environment.

use serde::{Deserialize, Serialize};

use crate::digest::sha256_hex;
use crate::name::{Fingerprint, InvalidText};

/// The prefix of the digest of a name.
const NAMED: &str = "name:";

/// The key that identifies an artifact among those running in an environment: its fingerprint, or the SHA-256
/// of its name if it has no digest. The length is limited, so that the key fits in an index. Its text, also
/// in JSON, is 64 lower-case hex digits, prefixed with `name:` if they are of a name. Keys are ordered as
/// these texts, so fingerprints come first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct ArtifactKey(String);

impl ArtifactKey {
    /// The pattern that matches every key, whole string.
    pub const PATTERN: &'static str = "^(name:)?[a-f0-9]{64}$";

    /// Returns the key of an artifact with this digest or, without one, with this name.
    pub fn new(fingerprint: Option<&Fingerprint>, name: &str) -> Self {
        fingerprint.map_or_else(|| Self(format!("{NAMED}{}", sha256_hex(name.as_bytes()))), Self::from)
    }

    /// Returns the digest, if the artifact has one.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.0.parse().ok()
    }

    /// Returns the key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&Fingerprint> for ArtifactKey {
    fn from(fingerprint: &Fingerprint) -> Self {
        Self(fingerprint.to_string())
    }
}

impl TryFrom<String> for ArtifactKey {
    type Error = InvalidText;

    fn try_from(text: String) -> Result<Self, InvalidText> {
        let digest = text.strip_prefix(NAMED).unwrap_or(&text);
        match digest.parse::<Fingerprint>() {
            Ok(_) => Ok(Self(text)),
            Err(_) => Err(InvalidText::Pattern(Self::PATTERN)),
        }
    }
}

impl std::fmt::Display for ArtifactKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    #[test]
    fn a_key_is_the_fingerprint_or_the_digest_of_the_name() {
        let fingerprint: Fingerprint = "a".repeat(64).parse().unwrap();
        let abc = "name:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(ArtifactKey::new(Some(&fingerprint), "abc").as_str(), fingerprint.as_str());
        assert_eq!(ArtifactKey::new(None, "abc").as_str(), abc);
        let of_its_text = ArtifactKey::new(None, fingerprint.as_str());
        assert_ne!(of_its_text, ArtifactKey::from(&fingerprint));
    }

    proptest! {
        #[test]
        fn a_key_is_bounded_and_reads_back_from_its_text(digest in proptest::option::of("[a-f0-9]{64}"), name: String) {
            let fingerprint: Option<Fingerprint> = digest.map(|digest| digest.parse().unwrap());
            let key = ArtifactKey::new(fingerprint.as_ref(), &name);
            prop_assert!(key.as_str().len() <= 69);
            let json = serde_json::to_string(&key).unwrap();
            prop_assert_eq!(&json, &format!("\"{key}\""));
            prop_assert_eq!(serde_json::from_str::<ArtifactKey>(&json).unwrap(), key);
        }

        #[test]
        fn what_fits_the_pattern_is_a_key(text in "(name:|NAME:|name)?[a-f0-9]{63,65}|[A-F0-9]{64}|\\PC{0,8}") {
            let fits = Regex::new(&format!("\\A(?:{})\\z", ArtifactKey::PATTERN)).unwrap().is_match(&text);
            prop_assert_eq!(ArtifactKey::try_from(text).is_ok(), fits);
        }
    }
}
