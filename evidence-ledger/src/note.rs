//! Signed notes ([C2SP signed-note](https://c2sp.org/signed-note@v1.0.0)): a text, and Ed25519 signatures of it.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{SECRET_KEY_LENGTH, Signature, Signer, SigningKey, VerifyingKey};

use crate::Hash;

/// Maximum length of a signed note in bytes.
const MAX_NOTE: usize = 1 << 20;
/// Maximum number of signatures of a note.
const MAX_SIGNATURES: usize = 100;
/// What separates the text from the signatures: the last blank line, before the first signature.
const SIGNATURES: &str = "\n\n\u{2014} ";
/// The prefix of a signature line.
const SIGNATURE: &str = "\u{2014} ";

/// The reason why a note or a key is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoteError {
    /// A key name is empty, or has a space, a plus sign or a control character.
    #[error("the key name '{0}' is empty, or has a space, '+' or a control character")]
    KeyName(String),
    /// A verifier key is not `name+id+key`.
    #[error("'{0}' is not a verifier key: name, '+', 8 hexadecimal digits, '+', and the key in Base64")]
    MalformedKey(String),
    /// The id of a verifier key does not belong to its name and key.
    #[error("the verifier key of '{0}' has an id that does not belong to it: a part of it was changed")]
    KeyId(String),
    /// A verifier key is of a type that this crate cannot verify.
    #[error("the verifier key of '{name}' has the type {algorithm}, which is not supported")]
    UnsupportedKey {
        /// The name of the key.
        name: String,
        /// The type.
        algorithm: u8,
    },
    /// The text is not a signed note.
    #[error("this is not a signed note: {0}")]
    MalformedNote(&'static str),
    /// A signature of a known key does not match.
    #[error("the signature of '{0}' does not match the text: one of them was changed")]
    WrongSignature(String),
    /// No known key signed the note.
    #[error("none of the given keys signed it; it has signatures of {0}")]
    NotSigned(String),
    /// The text of a note is not a checkpoint.
    #[error("this is not a checkpoint: {0}")]
    MalformedCheckpoint(&'static str),
}

/// The types of signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum SignatureType {
    /// Ed25519 over the text.
    Ed25519 = 1,
    /// Ed25519 over the text and a time, by a witness
    /// ([C2SP tlog-cosignature](https://c2sp.org/tlog-cosignature)).
    Cosignature = 4,
}

impl SignatureType {
    fn of(byte: u8) -> Option<Self> {
        [Self::Ed25519, Self::Cosignature].into_iter().find(|known| *known as u8 == byte)
    }
}

fn check_name(name: &str) -> Result<(), NoteError> {
    let bad = |c: char| c.is_whitespace() || c.is_control() || c == '+';
    if name.is_empty() || name.contains(bad) { Err(NoteError::KeyName(name.to_owned())) } else { Ok(()) }
}

/// A key that signs notes, with the name under which it does.
pub struct NoteSigner {
    key: SigningKey,
    verifier: VerifierKey,
}

impl fmt::Debug for NoteSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoteSigner").field("verifier", &self.verifier).finish_non_exhaustive()
    }
}

impl NoteSigner {
    /// Creates a signer from the seed of an Ed25519 key (RFC 8032 §5.1.5).
    ///
    /// # Errors
    /// [`NoteError::KeyName`].
    pub fn new(name: &str, seed: &[u8; SECRET_KEY_LENGTH]) -> Result<Self, NoteError> {
        let key = SigningKey::from_bytes(seed);
        let verifier = VerifierKey::new(name, SignatureType::Ed25519, key.verifying_key())?;
        Ok(Self { key, verifier })
    }

    /// Returns the key with which others verify its signatures.
    pub const fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    /// Signs bytes that are not a note, such as a COSE structure.
    pub fn sign_bytes(&self, bytes: &[u8]) -> [u8; 64] {
        self.key.sign(bytes).to_bytes()
    }

    /// Returns the signature line of a text, with its line break.
    pub fn line(&self, text: &str) -> String {
        let VerifierKey { name, id, .. } = &self.verifier;
        let signature = STANDARD.encode([id.as_slice(), &self.sign_bytes(text.as_bytes())].concat());
        format!("{SIGNATURE}{name} {signature}\n")
    }
}

/// Returns the note of this text with the signatures of all signers.
#[must_use]
pub fn sign_note<'a>(text: &str, signers: impl IntoIterator<Item = &'a NoteSigner>) -> String {
    let lines = signers.into_iter().map(|signer| signer.line(text));
    format!("{text}\n{}", lines.collect::<String>())
}

/// A public key with the name of its owner. Its text is `name+id+key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    algorithm: SignatureType,
    id: [u8; 4],
    key: VerifyingKey,
}

impl VerifierKey {
    fn new(name: &str, algorithm: SignatureType, key: VerifyingKey) -> Result<Self, NoteError> {
        check_name(name)?;
        let signed = [name.as_bytes(), b"\n", &[algorithm as u8], key.as_bytes()].concat();
        let [a, b, c, d, ..] = *Hash::of(signed).as_bytes();
        Ok(Self { name: name.to_owned(), algorithm, id: [a, b, c, d], key })
    }

    /// Returns the name: for the key of a log, its origin.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether both have the same public key, whatever their names.
    pub fn is_same_key(&self, other: &Self) -> bool {
        self.key == other.key
    }

    /// Returns the type of its signatures.
    pub const fn algorithm(&self) -> SignatureType {
        self.algorithm
    }

    /// Returns the id of the key: the first bytes of the SHA-256 of name, type and key.
    pub const fn id(&self) -> [u8; 4] {
        self.id
    }

    /// Returns whether this is the Ed25519 signature of these bytes.
    #[must_use]
    pub fn verify_bytes(&self, bytes: &[u8], signature: &[u8; 64]) -> bool {
        self.key.verify_strict(bytes, &Signature::from_bytes(signature)).is_ok()
    }

    /// Verifies a signature of a text. Returns the time of a cosignature in seconds, or 0; `None` if the signature does not
    /// match.
    fn verify(&self, text: &str, signature: &[u8]) -> Option<u64> {
        match self.algorithm {
            SignatureType::Ed25519 => {
                self.verify_bytes(text.as_bytes(), signature.try_into().ok()?).then_some(0)
            }
            SignatureType::Cosignature => {
                let (time, signature) = signature.split_first_chunk()?;
                let time = u64::from_be_bytes(*time);
                let signed = format!("cosignature/v1\ntime {time}\n{text}");
                self.verify_bytes(signed.as_bytes(), signature.try_into().ok()?).then_some(time)
            }
        }
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, algorithm, id, key } = self;
        let key = STANDARD.encode([&[*algorithm as u8], key.as_bytes().as_slice()].concat());
        write!(f, "{name}+{:08x}+{key}", u32::from_be_bytes(*id))
    }
}

impl FromStr for VerifierKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let malformed = || NoteError::MalformedKey(text.to_owned());
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(malformed());
        };
        let key = STANDARD.decode(key).map_err(|_| malformed())?;
        let (&algorithm, key) = key.split_first().ok_or_else(malformed)?;
        let unsupported = || NoteError::UnsupportedKey { name: name.to_owned(), algorithm };
        let algorithm = SignatureType::of(algorithm).ok_or_else(unsupported)?;
        let key =
            key.try_into().ok().and_then(|key| VerifyingKey::from_bytes(key).ok()).ok_or_else(malformed)?;
        let verifier = Self::new(name, algorithm, key)?;
        if id != format!("{:08x}", u32::from_be_bytes(verifier.id)) {
            return Err(NoteError::KeyId(name.to_owned()));
        }
        Ok(verifier)
    }
}

/// A signature of a note, not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NoteSignature {
    name: String,
    key_id: [u8; 4],
    signature: Vec<u8>,
}

/// A note whose signatures are not verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    text: String,
    signatures: Vec<NoteSignature>,
}

/// A verified signature of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signed<'a> {
    /// The key that signed.
    pub by: &'a VerifierKey,
    /// The time of a cosignature, in seconds since 1970-01-01T00:00:00Z.
    pub at: Option<u64>,
}

impl SignedNote {
    /// Returns the text. Do not trust it before [`Self::verify`] succeeds.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the names of those who claim to have signed, in the order of the note.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.signatures.iter().map(|signature| signature.name.as_str())
    }

    /// Returns the verified signatures of these keys: at least one. Signatures of other keys are ignored.
    ///
    /// # Errors
    /// [`NoteError::WrongSignature`] if a signature of one of the keys does not match; [`NoteError::NotSigned`] if there is
    /// none.
    pub fn verify<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a VerifierKey>,
    ) -> Result<Vec<Signed<'a>>, NoteError> {
        let mut signed = Vec::new();
        for by in keys {
            let its = |signature: &&NoteSignature| (&signature.name, signature.key_id) == (&by.name, by.id);
            for NoteSignature { signature, .. } in self.signatures.iter().filter(its) {
                let time = by.verify(&self.text, signature);
                let time = time.ok_or_else(|| NoteError::WrongSignature(by.name.clone()))?;
                let at = (by.algorithm == SignatureType::Cosignature).then_some(time);
                signed.push(Signed { by, at });
            }
        }
        if signed.is_empty() {
            let names = Vec::from_iter(self.names().map(|name| format!("'{name}'")));
            return Err(NoteError::NotSigned(names.join(", ")));
        }
        Ok(signed)
    }
}

impl FromStr for SignedNote {
    type Err = NoteError;

    fn from_str(note: &str) -> Result<Self, NoteError> {
        let malformed = NoteError::MalformedNote;
        if note.len() > MAX_NOTE {
            return Err(malformed("it has more than 1 MiB"));
        }
        if note.contains(|c: char| c < ' ' && c != '\n') {
            return Err(malformed("it has a control character"));
        }
        let (text, _) = note.rsplit_once(SIGNATURES).ok_or(malformed("it has no signature"))?;
        let (text, lines) = note.split_at(text.len() + 1);
        let lines = lines.strip_prefix('\n').and_then(|lines| lines.strip_suffix('\n'));
        let lines = lines.ok_or(malformed("the last line does not end"))?;
        let signatures = lines.split('\n').map(|line| {
            let line = line
                .strip_prefix(SIGNATURE)
                .ok_or(malformed("a signature does not begin with '\u{2014} '"))?;
            let (name, signature) = line.split_once(' ').ok_or(malformed("a signature has no key name"))?;
            check_name(name)?;
            let signature =
                STANDARD.decode(signature).map_err(|_| malformed("a signature is not in Base64"))?;
            let (&key_id, signature) =
                signature.split_first_chunk().ok_or(malformed("a signature is too short"))?;
            Ok(NoteSignature { name: name.to_owned(), key_id, signature: signature.to_owned() })
        });
        let signatures = signatures.take(MAX_SIGNATURES + 1).collect::<Result<Vec<_>, _>>()?;
        if signatures.len() > MAX_SIGNATURES {
            return Err(malformed("it has more than 100 signatures"));
        }
        Ok(Self { text: text.to_owned(), signatures })
    }
}
