//! Checkpoints ([C2SP tlog-checkpoint](https://c2sp.org/tlog-checkpoint@v1.0.0)): the size and the root of a log, as the
//! text of a signed note.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::Hash;
use crate::note::{NoteError, NoteSigner, sign_note};

/// The size and the root of a log. Its text is the text of a note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The name of the log.
    pub origin: String,
    /// The number of entries.
    pub size: u64,
    /// The root of the tree of these entries.
    pub root: Hash,
}

impl Checkpoint {
    /// Returns the checkpoint as a note with the signatures of all signers.
    #[must_use]
    pub fn sign<'a>(&self, signers: impl IntoIterator<Item = &'a NoteSigner>) -> String {
        sign_note(&self.to_string(), signers)
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, size, root } = self;
        write!(f, "{origin}\n{size}\n{}\n", STANDARD.encode(root.as_bytes()))
    }
}

/// Parses a decimal number as C2SP writes it: without a sign and without leading zeros.
pub(crate) fn decimal(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with('0');
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    (canonical && digits).then(|| text.parse().ok()).flatten()
}

/// Parses a hash in Base64.
pub(crate) fn hash(text: &str) -> Option<Hash> {
    STANDARD.decode(text).ok()?.try_into().ok().map(Hash::from_bytes)
}

impl FromStr for Checkpoint {
    type Err = NoteError;

    /// Parses the text of a note. Ignores extension lines.
    fn from_str(text: &str) -> Result<Self, NoteError> {
        let malformed = NoteError::MalformedCheckpoint;
        let text = text.strip_suffix('\n').ok_or(malformed("the last line does not end"))?;
        let mut lines = text.split('\n');
        let mut next = |what| lines.next().filter(|line| !line.is_empty()).ok_or(malformed(what));
        let origin = next("it has no origin")?.to_owned();
        let size = decimal(next("it has no size")?).ok_or(malformed("its size is not a number"))?;
        let root = hash(next("it has no root")?).ok_or(malformed("its root is not a hash"))?;
        if lines.any(str::is_empty) {
            return Err(malformed("it has an empty line"));
        }
        Ok(Self { origin, size, root })
    }
}
