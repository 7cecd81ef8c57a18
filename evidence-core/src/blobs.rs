//! Attachments, kept by content beside the records: written in chunks, durable before the record that names them,
//! read back chunk by chunk so that nothing is ever held whole.

use async_trait::async_trait;
use bytes::Bytes;

use crate::error::{Error, Result};
use crate::id::Id;
use crate::name::Fingerprint;
use crate::store::{StoreError, StoreResult};

/// The size of a stored chunk, in bytes; the last one of a blob may be smaller.
pub const CHUNK: usize = 256 << 10;

/// Bytes that arrive in pieces, from memory, a temporary file or a store.
#[async_trait]
pub trait Chunks: Send {
    /// The next piece, of any size above zero; `None` at the end.
    async fn next(&mut self) -> std::io::Result<Option<Bytes>>;
}

/// Bytes at hand, as one piece.
#[derive(Debug)]
pub struct Whole(Option<Bytes>);

impl Whole {
    /// These bytes.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(Some(bytes.into()).filter(|bytes: &Bytes| !bytes.is_empty()))
    }
}

#[async_trait]
impl Chunks for Whole {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        Ok(self.0.take())
    }
}

/// Content cut anew, into parts of one size: for stores that write it so.
pub struct Parts<'a> {
    content: &'a mut dyn Chunks,
    size: usize,
    /// What the last piece held beyond the last part.
    rest: Bytes,
}

impl std::fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("size", &self.size).finish_non_exhaustive()
    }
}

impl<'a> Parts<'a> {
    /// Parts of `size` bytes, which is at least one.
    pub fn new(content: &'a mut dyn Chunks, size: usize) -> Self {
        Self { content, size: size.max(1), rest: Bytes::new() }
    }

    /// The next part: of exactly the size, or what is left; `None` at the end.
    ///
    /// # Errors
    /// [`StoreError::Failed`] when what was received cannot be read back.
    pub async fn next(&mut self) -> StoreResult<Option<Vec<u8>>> {
        let mut part = Vec::new();
        while part.len() < self.size {
            if self.rest.is_empty() {
                let next = self.content.next().await.map_err(|error| StoreError::Failed(error.into()))?;
                let Some(piece) = next else { break };
                self.rest = piece;
            }
            let missing = self.size - part.len();
            part.extend_from_slice(&self.rest.split_to(missing.min(self.rest.len())));
        }
        Ok((!part.is_empty()).then_some(part))
    }
}

/// A file of a form, already received, hashed and held in memory or in a temporary file.
pub struct Upload {
    /// The last segment of the name it was sent under.
    pub file_name: String,
    /// Its media type as sent, else `application/octet-stream`.
    pub media_type: String,
    /// Its size in bytes.
    pub size: u64,
    /// The SHA-256 of its content.
    pub sha256: Fingerprint,
    /// The content, to be read once.
    pub content: Box<dyn Chunks>,
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload")
            .field("file_name", &self.file_name)
            .field("media_type", &self.media_type)
            .field("size", &self.size)
            .field("sha256", &self.sha256)
            .finish_non_exhaustive()
    }
}

impl Upload {
    /// The whole content in memory: for templates and other documents, never for attachments.
    ///
    /// # Errors
    /// [`Error::Internal`] when what was received cannot be read back.
    pub async fn read(mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.size).unwrap_or_default());
        while let Some(piece) = self.content.next().await.map_err(unreadable)? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}

/// A received file that is gone from memory or disk.
pub(crate) fn unreadable(source: std::io::Error) -> Error {
    Error::Internal { what: "a received file could not be read back", source: source.into() }
}

/// Where attachments are kept: by organization and content.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Keeps `content` under its digest; once this answers, it is durable. Keeping the same content again is no change.
    async fn keep(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()>;

    /// Chunk `number` (from 0, [`CHUNK`] bytes each but the last) of a blob; `None` past its end or when there is no
    /// such blob.
    async fn chunk(&self, org: Id, sha256: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>>;
}

/// A place for attachments outside of the store: a directory, a bucket.
#[async_trait]
pub trait OutsideBlobs: Blobs {
    /// Removes a blob, if it is there.
    async fn remove(&self, org: Id, sha256: &Fingerprint) -> StoreResult<()>;
}
