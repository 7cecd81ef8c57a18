//! Inclusion proofs as files ([C2SP tlog-proof](https://c2sp.org/tlog-proof)).

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::checkpoint::{decimal, hash};
use crate::note::{NoteError, Signed, SignedNote, VerifierKey};
use crate::{Checkpoint, Hash, verify_inclusion};

/// The first line.
const HEADER: &str = "c2sp.org/tlog-proof@v1";
/// Maximum number of hashes of a proof: one for each level of a tree.
const MAX_PATH: usize = 63;

/// A proof that a log has a leaf, with the checkpoint that it leads to. Its text is the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlogProof {
    /// Data for the reader, such as the record's id. The proof does not cover it.
    pub extra: Vec<u8>,
    /// The index of the leaf.
    pub index: u64,
    /// The audit path from the leaf upwards.
    pub path: Vec<Hash>,
    /// The checkpoint, as a signed note.
    pub checkpoint: String,
}

/// The reason why a proof does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// The file is not a proof.
    #[error("this is not a tlog-proof: {0}")]
    Malformed(&'static str),
    /// The checkpoint cannot be read, or the given keys did not sign it.
    #[error("the checkpoint: {0}")]
    Checkpoint(#[from] NoteError),
    /// The origin is not the name of a key that signed.
    #[error("the checkpoint is of the log '{0}', but was signed by others only")]
    Origin(String),
    /// The path does not lead from the leaf to the root.
    #[error("the log of this checkpoint does not have this entry at index {0}")]
    NotIncluded(u64),
}

impl TlogProof {
    /// Verifies that the log has this leaf, by a checkpoint that the log itself signed with one of these keys. Returns the
    /// checkpoint and the verified signatures.
    ///
    /// # Errors
    /// [`ProofError`] with the reason.
    pub fn verify<'a>(
        &self,
        leaf: Hash,
        keys: impl IntoIterator<Item = &'a VerifierKey>,
    ) -> Result<(Checkpoint, Vec<Signed<'a>>), ProofError> {
        let note: SignedNote = self.checkpoint.parse()?;
        let signed = note.verify(keys)?;
        let checkpoint: Checkpoint = note.text().parse()?;
        if !signed.iter().any(|signed| signed.by.name() == checkpoint.origin) {
            return Err(ProofError::Origin(checkpoint.origin));
        }
        let Self { index, path, .. } = self;
        if !verify_inclusion(leaf, *index, checkpoint.size, path, checkpoint.root) {
            return Err(ProofError::NotIncluded(*index));
        }
        Ok((checkpoint, signed))
    }
}

impl fmt::Display for TlogProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { extra, index, path, checkpoint } = self;
        writeln!(f, "{HEADER}")?;
        if !extra.is_empty() {
            writeln!(f, "extra {}", STANDARD.encode(extra))?;
        }
        writeln!(f, "index {index}")?;
        path.iter().try_for_each(|hash| writeln!(f, "{}", STANDARD.encode(hash.as_bytes())))?;
        write!(f, "\n{checkpoint}")
    }
}

impl FromStr for TlogProof {
    type Err = ProofError;

    fn from_str(file: &str) -> Result<Self, ProofError> {
        let malformed = ProofError::Malformed;
        let (head, checkpoint) = file.split_once("\n\n").ok_or(malformed("it has no checkpoint"))?;
        let mut lines = head.split('\n').peekable();
        if lines.next() != Some(HEADER) {
            return Err(malformed("the first line is not 'c2sp.org/tlog-proof@v1'"));
        }
        let extra = lines.next_if(|line| line.starts_with("extra "));
        let extra = extra.map(|line| STANDARD.decode(&line["extra ".len()..])).transpose();
        let extra = extra.map_err(|_| malformed("'extra' is not in Base64"))?.unwrap_or_default();
        let index = lines.next().and_then(|line| line.strip_prefix("index ")).and_then(decimal);
        let index = index.ok_or(malformed("it has no index"))?;
        let path = lines.take(MAX_PATH + 1).map(hash).collect::<Option<Vec<_>>>();
        let path = path.ok_or(malformed("a line of the path is not a hash"))?;
        if path.len() > MAX_PATH {
            return Err(malformed("the path is longer than that of any tree"));
        }
        Ok(Self { extra, index, path, checkpoint: checkpoint.to_owned() })
    }
}
