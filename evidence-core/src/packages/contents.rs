//! What a package contains besides the ledger entries that it is made of.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::fact::Fact;
use crate::name::Fingerprint;
use crate::operation::json_text;
use crate::spill_buffer::{HashedContent, HashingBuffer, TemporarySpace};
use crate::store::error::StoreError;
use crate::texts::record::TextRef;

/// The name of the format in the manifest.
const FORMAT: &str = "evidence-package/1";

/// A file of a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ManifestFile {
    pub(super) path: String,
    pub(super) size: u64,
    pub(super) sha256: String,
}

/// A file that should be in the package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Flaw {
    pub(super) path: String,
    pub(super) problem: String,
}

/// The list of a package's files, its last file. It is written while the files are sent, so that it takes no memory.
pub(super) struct Manifest {
    text: HashingBuffer,
    /// Whether a file is listed already.
    has_files: bool,
    /// What is missing or damaged.
    pub(super) problems: Vec<Flaw>,
}

/// The beginning of a manifest.
#[derive(Debug, Serialize)]
pub(super) struct Head {
    format: &'static str,
    /// The name of the ledger.
    pub(super) origin: String,
    /// The record that the package is about.
    pub(super) subject: String,
    /// The number of entries that the checkpoint covers.
    pub(super) size: u64,
}

impl Head {
    pub(super) fn new(origin: String, subject: String, size: u64) -> Self {
        Self { format: FORMAT, origin, subject, size }
    }
}

fn unwritable(source: std::io::Error) -> Error {
    Error::Store(StoreError::Unavailable(source.into()))
}

impl Manifest {
    /// Begins a manifest, which uses this space.
    pub(super) async fn new(head: &Head, space: TemporarySpace) -> Result<Self> {
        let mut text = HashingBuffer::new(space);
        let head = json_text(head)?;
        let (_, members) = head.split_last().unwrap_or((&0, &[]));
        text.push(members).await.map_err(unwritable)?;
        text.push(b",\"files\":[").await.map_err(unwritable)?;
        Ok(Self { text, has_files: false, problems: Vec::new() })
    }

    /// Lists a file.
    pub(super) async fn file(&mut self, file: &ManifestFile) -> Result<()> {
        let comma = if std::mem::replace(&mut self.has_files, true) { ",\n" } else { "\n" };
        let line = [comma.as_bytes(), &json_text(file)?].concat();
        self.text.push(&line).await.map_err(unwritable)
    }

    /// Returns the whole manifest. Nothing can be listed afterwards.
    pub(super) async fn finish(&mut self) -> Result<HashedContent> {
        let mut text = std::mem::replace(&mut self.text, HashingBuffer::new(TemporarySpace::default()));
        let end = [b"],\n\"problems\":", json_text(&self.problems)?.as_slice(), b"}\n"].concat();
        text.push(&end).await.map_err(unwritable)?;
        text.finish().await.map_err(unwritable)
    }
}

/// Content that the payload of an entry names by its digest.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Named {
    /// An attachment, with its size.
    Attachment(Fingerprint, u64),
    /// A long text.
    Text(TextRef),
}

impl Named {
    pub(super) fn path(&self) -> String {
        match self {
            Self::Attachment(sha256, _) => format!("attachments/{sha256}"),
            Self::Text(text) => format!("texts/{}", text.sha256),
        }
    }
}

/// Returns the content that a fact names.
pub(super) fn named(fact: &Fact) -> Vec<Named> {
    let text = |text: Option<TextRef>| text.map(Named::Text);
    match fact {
        Fact::AttestationAdded { record } => {
            let files = record.attachments.iter().chain(&record.evidence);
            let files = files.map(|file| Named::Attachment(file.sha256.clone(), file.size));
            files.chain(text(record.data)).collect()
        }
        Fact::ArtifactReported { record } => text(record.template).into_iter().collect(),
        Fact::TrailBegun { record } | Fact::TrailUpdated { record, .. } => {
            text(record.template).into_iter().collect()
        }
        Fact::FlowCreated { record }
        | Fact::FlowUpdated { record }
        | Fact::FlowTagged { record }
        | Fact::FlowRenamed { record, .. }
        | Fact::FlowArchived { record, .. } => text(record.template).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Returns the text for those who open the package first.
pub(super) fn readme(subject: &str, origin: &str) -> String {
    format!(
        "Audit package: {subject}

This package has what the ledger {origin} knows of it, so that you can check it without the server.

trail-page.pdf, *.json       for reading. The server made them from the entries, and no proof covers them
entries/N.json               entry N of the ledger: its leaf, its payload and the salt of the payload
proofs/N.tlog-proof          the proof that the ledger has leaf N (https://c2sp.org/tlog-proof)
proofs/N.cose                the same as a COSE receipt (RFC 9942); N.former.cose is signed with the key before
attachments/, texts/         content that payloads name by its SHA-256
checkpoint.txt               the signed checkpoint to which all proofs lead (https://c2sp.org/tlog-checkpoint)
keys.txt                     the keys that the server names. Compare them with what you got in another way
manifest.json                the SHA-256 of every file, and what is missing or damaged

To verify it:

    evidence-server verify PACKAGE --key KEY

KEY is a file with the verifier key of the ledger that you trust, one line of keys.txt. Without --key, the keys of the package
are used, which proves only that the package fits together.

By hand: SHA-256(salt, payload) is the payload_hash of the leaf. SHA-256 of a zero byte and the leaf is the hash of the leaf, and
the proof leads from it to the root in the checkpoint.
"
    )
}
