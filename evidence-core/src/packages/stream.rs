//! A package while it is sent. A part of it is in memory at a time: a batch of entries, or a chunk of an attachment.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::contents::{Flaw, Manifest, ManifestFile, Named, named};
use super::tar;
use crate::blobs::{BlobReader, Blobs, CHUNK, Chunks};
use crate::checkpoints::signing::SignedCheckpoint;
use crate::context::{AnswerMemory, OwnedContext};
use crate::digest::{Digest, sha256_hex};
use crate::error::{Error, Result};
use crate::fact::Fact;
use crate::ledger::cose::receipt;
use crate::ledger::{Needs, TlogProof, inclusion, inclusion_needs};
use crate::operation::json_text;
use crate::page::in_batches;
use crate::proofs::EntryView;
use crate::spill_buffer::HashedContent;
use crate::store::entry::StoredEntry;
use crate::store::error::StoreError;
use crate::texts::record::TextRef;
use crate::time::Timestamp;
use crate::trails::store::TrailEntry;

/// The number of entries that are read at once.
const ENTRIES_AT_ONCE: usize = 64;

/// A part of a package that is still to be sent.
pub(super) enum Part {
    /// A file in memory.
    File(String, Vec<u8>),
    /// A file from elsewhere, with its size and its digest.
    Content { path: String, size: u64, sha256: String, content: Box<dyn Chunks> },
    /// A file that could not be made.
    Missing(Flaw),
    /// Entries of the ledger with their proofs.
    Entries(Vec<u64>),
    /// All content that the entries before name.
    AllNamed,
    /// Content that an entry names.
    Named(Named),
    /// The list of all files, and the end.
    End,
}

/// A package.
pub(super) struct Package {
    parts: VecDeque<Part>,
    /// The file that is being sent.
    open: Option<Open>,
    manifest: Manifest,
    named: BTreeSet<Named>,
    signed: SignedCheckpoint,
    at: Timestamp,
    owned: OwnedContext,
    /// The reservations for the text that is being sent.
    memory: AnswerMemory,
}

/// A file that is being sent.
struct Open {
    /// The path, and the digest that the content should have; `None` for the manifest, which ends the package.
    listed: Option<(String, String)>,
    /// The number of bytes that were announced, and are still to be sent.
    rest: u64,
    size: u64,
    digest: Digest,
    content: Box<dyn Chunks>,
}

/// The content of an attachment.
struct Stored(BlobReader<Arc<dyn Blobs>>);

#[async_trait]
impl Chunks for Stored {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        self.0.chunk().await.map_err(io::Error::other)
    }
}

/// A text, in pieces that are hashed without delaying other requests.
struct Pieces(Bytes);

#[async_trait]
impl Chunks for Pieces {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let piece = self.0.split_to(self.0.len().min(CHUNK));
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }
}

impl Package {
    /// Creates a package about `subject` with these files in memory, then these others, then the entries with what they
    /// name. All files have the time `at`.
    pub(super) fn new(
        manifest: Manifest,
        files: Vec<Part>,
        mut entries: Vec<TrailEntry>,
        (signed, at, owned): (SignedCheckpoint, Timestamp, OwnedContext),
    ) -> Self {
        entries.sort_unstable_by_key(|entry| entry.index);
        entries.dedup_by_key(|entry| entry.index);
        let entries =
            in_batches(entries.into_iter().map(|entry| (entry.index, entry.bytes)), ENTRIES_AT_ONCE);
        let parts = files.into_iter().chain(entries.into_iter().map(Part::Entries));
        let parts = parts.chain([Part::AllNamed, Part::End]).collect();
        Self {
            parts,
            open: None,
            manifest,
            named: BTreeSet::new(),
            signed,
            at,
            owned,
            memory: AnswerMemory::default(),
        }
    }

    /// Returns the next bytes; `None` at the end.
    async fn piece(&mut self) -> Result<Option<Bytes>> {
        loop {
            let bytes = match &mut self.open {
                Some(open) if open.rest > 0 => Some(open.piece().await?),
                Some(_) => self.close().await?,
                None => match self.parts.pop_front() {
                    Some(part) => self.begin(part).await?.map(Bytes::from),
                    None => return Ok(None),
                },
            };
            if let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) {
                return Ok(Some(bytes));
            }
        }
    }

    async fn begin(&mut self, part: Part) -> Result<Option<Vec<u8>>> {
        match part {
            Part::File(path, content) => self.file(path, &content).await.map(Some),
            Part::Content { path, size, sha256, content } => {
                let header = tar::header(&path, size, self.at)?;
                let digest = Digest::default();
                self.open = Some(Open { rest: size, size, listed: Some((path, sha256)), digest, content });
                Ok(Some(header))
            }
            Part::Missing(flaw) => {
                self.manifest.problems.push(flaw);
                Ok(None)
            }
            Part::Entries(indexes) => self.entries(indexes).await.map(Some),
            Part::AllNamed => {
                let named = std::mem::take(&mut self.named);
                for content in named.into_iter().rev() {
                    self.parts.push_front(Part::Named(content));
                }
                Ok(None)
            }
            Part::Named(content) => {
                let part = self.content(content).await?;
                self.parts.push_front(part);
                Ok(None)
            }
            Part::End => {
                let HashedContent { size, content, .. } = self.manifest.finish().await?;
                self.open = Some(Open { content, rest: size, size, listed: None, digest: Digest::default() });
                tar::header("manifest.json", size, self.at).map(Some)
            }
        }
    }

    /// Returns the bytes of a file.
    async fn file(&mut self, path: String, content: &[u8]) -> Result<Vec<u8>> {
        let size = content.len() as u64;
        let bytes = [&tar::header(&path, size, self.at)?, content, tar::padding(size)].concat();
        self.manifest.file(&ManifestFile { path, size, sha256: sha256_hex(content) }).await?;
        Ok(bytes)
    }

    /// Returns the bytes of these entries and their proofs. Damaged entries are named in the manifest.
    async fn entries(&mut self, indexes: Vec<u64>) -> Result<Vec<u8>> {
        let context = self.owned.context();
        let (org, store) = (context.org()?, context.store());
        let size = self.signed.checkpoint.size;
        let needs = Needs::merged(indexes.iter().map(|index| inclusion_needs(*index, size)));
        let known = store.ledger_hashes(org, &needs).await?;
        let mut entries = store.ledger_entries_at(org, &indexes).await?;
        entries.sort_unstable_by_key(|entry| entry.index);
        let mut bytes = Vec::new();
        for index in indexes {
            let name = format!("{index:012}");
            let found = entries.iter().find(|entry| entry.index == index);
            let sound = found
                .filter(|entry| entry.payload_matches() && entry.header().leaf_hash() == entry.leaf_hash);
            let Some(entry) = sound else {
                let problem = "the ledger entry is missing or damaged".to_owned();
                self.manifest.problems.push(Flaw { path: format!("entries/{name}.json"), problem });
                continue;
            };
            if let Ok(fact) = Fact::read(&entry.payload) {
                self.named.extend(named(&fact));
            }
            let path = inclusion(index, size, &known).map_err(StoreError::corrupt)?;
            let root = self.signed.checkpoint.root;
            let cose = |signer| {
                receipt(signer, index, size, &path, root).map_err(|source| Error::Internal {
                    what: "a receipt could not be encoded",
                    source: source.to_string().into(),
                })
            };
            let receipts = [Some(self.signed.signer()), self.signed.former_signer()];
            let [cose, former] = receipts.map(|signer| signer.map(cose).transpose());
            let (cose, former) = (cose?, former?);
            let proof = TlogProof { extra: Vec::new(), index, path, checkpoint: self.signed.note.clone() };
            let entry = json_text(&EntryView::from(StoredEntry::clone(entry)))?;
            bytes.extend(self.file(format!("entries/{name}.json"), &entry).await?);
            bytes.extend(self.file(format!("proofs/{name}.tlog-proof"), proof.to_string().as_bytes()).await?);
            for (kind, receipt) in [("cose", cose), ("former.cose", former)] {
                if let Some(receipt) = receipt {
                    bytes.extend(self.file(format!("proofs/{name}.{kind}"), &receipt).await?);
                }
            }
        }
        Ok(bytes)
    }

    /// Opens content that an entry names.
    async fn content(&mut self, content: Named) -> Result<Part> {
        let context = self.owned.context();
        let (org, path) = (context.org()?, content.path());
        let damaged = |path, problem: &str| Part::Missing(Flaw { path, problem: problem.to_owned() });
        Ok(match content {
            Named::Text(TextRef { sha256, size }) => {
                context.reserve_for_data(size).await?;
                let text = context.store().texts(org, &[sha256]).await?.into_iter().next();
                self.memory = context.take_answer_memory();
                match text.filter(|text| text.len() as u64 == size) {
                    Some(text) => {
                        let content = Box::new(Pieces(text.into()));
                        Part::Content { path, size, sha256: sha256.to_string(), content }
                    }
                    None => damaged(path, "the text is missing or damaged"),
                }
            }
            Named::Attachment(sha256, size) => {
                let blobs = Arc::clone(context.attachments());
                match BlobReader::open(blobs, org, sha256.clone(), Some(size)).await {
                    Ok(reader) => {
                        let (sha256, content) = (sha256.to_string(), Box::new(Stored(reader)));
                        Part::Content { path, size, sha256, content }
                    }
                    Err(StoreError::Corrupt { .. }) => damaged(path, "the attachment is missing or damaged"),
                    Err(error) => return Err(error.into()),
                }
            }
        })
    }

    /// Adds the file that was sent to the manifest. Returns its padding, and after the manifest the end of the package.
    async fn close(&mut self) -> Result<Option<Bytes>> {
        let Some(Open { size, listed, digest, .. }) = self.open.take() else { return Ok(None) };
        self.memory = AnswerMemory::default();
        let Some((path, sha256)) = listed else {
            return Ok(Some([tar::padding(size), &tar::END].concat().into()));
        };
        let found = digest.finish();
        if found != sha256 {
            let problem = "the content is damaged; the missing rest of it is filled with zeros".to_owned();
            self.manifest.problems.push(Flaw { path: path.clone(), problem });
        }
        self.manifest.file(&ManifestFile { path, size, sha256: found }).await?;
        Ok(Some(Bytes::from_static(tar::padding(size))))
    }
}

impl Open {
    /// Returns the next bytes of the file. Content that ends early is filled with zeros, because its size was announced.
    async fn piece(&mut self) -> Result<Bytes> {
        let piece = match self.content.next().await {
            Ok(piece) => piece.unwrap_or_default(),
            Err(error) if is_damage(&error) => Bytes::new(),
            Err(source) => {
                let what = "the content of a package cannot be read";
                return Err(Error::Internal { what, source: source.into() });
            }
        };
        let piece = if piece.is_empty() { Bytes::from_static(&tar::END) } else { piece };
        let rest = usize::try_from(self.rest).unwrap_or(usize::MAX);
        let piece = piece.slice(..piece.len().min(rest));
        self.digest.update(&piece);
        self.rest -= piece.len() as u64;
        Ok(piece)
    }
}

/// Returns whether the content is damaged, so that reading it again would not help.
fn is_damage(error: &io::Error) -> bool {
    let source = error.get_ref().and_then(|source| source.downcast_ref::<StoreError>());
    matches!(source, Some(StoreError::Corrupt { .. }))
}

#[async_trait]
impl Chunks for Package {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        self.piece().await.map_err(io::Error::other)
    }
}
