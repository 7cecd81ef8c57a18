//! Attachments, stored by content beside the records. They are durable before a record names them. They are written and
//! read in chunks, so that no attachment is in memory as a whole.

use std::ops::Deref;

use async_trait::async_trait;
use bytes::Bytes;

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::name::Fingerprint;
use crate::store::error::{StoreError, StoreResult};

/// The size of a stored chunk, in bytes; the last one of a blob may be smaller.
pub const CHUNK: usize = 256 << 10;

/// The name of the object beside the blobs with the id of the store that they belong to ([`OutsideBlobs::marker`]). Error
/// messages name it.
pub const MARKER: &str = "evidence-marker";

/// Bytes that arrive in chunks, from memory, a temporary file or a store.
#[async_trait]
pub trait Chunks: Send {
    /// Returns the next chunk, of any size above zero; `None` at the end.
    async fn next(&mut self) -> std::io::Result<Option<Bytes>>;
}

/// Bytes in memory, as one chunk.
#[derive(Debug)]
pub struct Whole(Option<Bytes>);

impl Whole {
    /// Wraps these bytes.
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

/// Content split into parts of one size, for stores that write such parts.
pub struct Parts<'a> {
    content: &'a mut dyn Chunks,
    size: usize,
    /// The rest of the last chunk, which belongs to the next part.
    rest: Bytes,
}

impl std::fmt::Debug for Parts<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("size", &self.size).finish_non_exhaustive()
    }
}

impl<'a> Parts<'a> {
    /// Splits `content` into parts of `size` bytes, at least one.
    pub fn new(content: &'a mut dyn Chunks, size: usize) -> Self {
        Self { content, size: size.max(1), rest: Bytes::new() }
    }

    /// Returns the next part; `None` at the end. Only the last part may be shorter than the size.
    ///
    /// # Errors
    /// [`StoreError::Failed`] if the received content cannot be read back.
    pub async fn next(&mut self) -> StoreResult<Option<Vec<u8>>> {
        let mut part = Vec::new();
        while part.len() < self.size {
            if self.rest.is_empty() {
                let next = self.content.next().await.map_err(|error| StoreError::Failed(error.into()))?;
                let Some(piece) = next else { break };
                self.rest = piece;
            }
            let missing = self.size - part.len();
            let piece = self.rest.split_to(missing.min(self.rest.len()));
            if !part.is_empty() && part.capacity() - part.len() < piece.len() {
                // Reserves a whole chunk at once, because each growth of the buffer copies it.
                part.reserve_exact(missing.min(part.len().max(CHUNK)));
            }
            part.extend_from_slice(&piece);
        }
        Ok((!part.is_empty()).then_some(part))
    }
}

/// A file of a form, which was received and hashed. It is in memory or in a temporary file.
pub struct Upload {
    /// The last segment of the file name in the request.
    pub file_name: String,
    /// Its media type as sent, else `application/octet-stream`.
    pub media_type: String,
    /// Its size in bytes.
    pub size: u64,
    /// The SHA-256 of its content.
    pub sha256: Fingerprint,
    /// The content, which can be read once.
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
    /// Reads the whole content into memory, for templates and other documents. Do not use it for attachments.
    ///
    /// # Errors
    /// [`Error::Internal`] if the received content cannot be read back.
    pub async fn read(mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.size).unwrap_or_default());
        while let Some(piece) = self.content.next().await.map_err(unreadable)? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}

/// Returns the error for a received file that can no longer be read from memory or disk.
pub(crate) fn unreadable(source: std::io::Error) -> Error {
    Error::Internal { what: "a received file could not be read back", source: source.into() }
}

/// Stores attachments by organization and content.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Stores `content` under its digest. It is durable once this returns. Storing the same content again changes nothing,
    /// except that it repairs content that was lost or damaged meanwhile ([`is_whole`]).
    async fn put(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()>;

    /// Returns chunk `number` of a blob, from 0. All but the last have [`CHUNK`] bytes. Returns `None` past the end, and if
    /// there is no such blob.
    async fn get_chunk(&self, org: Id, sha256: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>>;
}

/// A place for attachments outside of the store: a directory, a bucket.
#[async_trait]
pub trait OutsideBlobs: Blobs {
    /// Removes a blob, if there is one. After [`StoreError::Unavailable`], this call did not remove it and will not. After any
    /// other error it may be removed at any time.
    async fn remove(&self, org: Id, sha256: &Fingerprint) -> StoreResult<()>;

    /// Returns the id in this place's marker, the object [`MARKER`] beside the blobs; `None` without a marker. The service
    /// compares it before and after each write: an empty directory may be the mount point of a volume that is not mounted.
    async fn marker(&self) -> StoreResult<Option<Id>>;

    /// Writes the marker. It is durable once this returns.
    async fn put_marker(&self, id: Id) -> StoreResult<()>;

    /// Checks that blobs can be written, by writing a small object that every call overwrites.
    async fn ready(&self) -> StoreResult<()>;
}

/// Returns whether a blob can be read to its end and has the content of its digest. This reads all of it, which costs about
/// as much as receiving it again.
///
/// # Errors
/// The error that prevents reading it, except damage.
pub async fn is_whole(blobs: &dyn Blobs, org: Id, sha256: &Fingerprint) -> StoreResult<bool> {
    let read = async {
        let mut kept = BlobReader::open(blobs, org, sha256.clone(), None).await?;
        while kept.chunk().await?.is_some() {}
        Ok::<_, StoreError>(())
    };
    match read.await {
        Ok(()) => Ok(true),
        Err(StoreError::Corrupt { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads a blob chunk by chunk. If the content does not have the digest, returns an error instead of the last chunk, so that
/// the reader does not take damaged content for a whole blob.
pub(crate) struct BlobReader<B> {
    blobs: B,
    org: Id,
    sha256: Fingerprint,
    /// The number of the chunk to read next.
    next: u64,
    /// The number of bytes that are still to be read, if it is known.
    rest: Option<u64>,
    digest: Digest,
    is_read: bool,
    /// A chunk that was read and not returned yet.
    ahead: Option<Bytes>,
}

impl<B: Deref<Target: Blobs> + Send + Sync> BlobReader<B> {
    /// Reads the first chunk.
    pub(crate) async fn open(blobs: B, org: Id, sha256: Fingerprint, size: Option<u64>) -> StoreResult<Self> {
        let digest = Digest::default();
        let mut kept = Self { blobs, org, sha256, next: 0, rest: size, digest, is_read: false, ahead: None };
        kept.ahead = kept.read().await?;
        Ok(kept)
    }

    /// Returns the next chunk; `None` at the end.
    pub(crate) async fn chunk(&mut self) -> StoreResult<Option<Bytes>> {
        let chunk = self.ahead.take();
        if chunk.is_some() && !self.is_read {
            self.ahead = self.read().await?;
        }
        Ok(chunk)
    }

    async fn read(&mut self) -> StoreResult<Option<Bytes>> {
        let chunk = self.blobs.get_chunk(self.org, &self.sha256, self.next).await?.unwrap_or_default();
        let rest = self.rest.map(|rest| rest.checked_sub(chunk.len() as u64));
        self.digest.update(&chunk);
        self.next += 1;
        self.rest = rest.flatten();
        self.is_read = chunk.len() < CHUNK || self.rest == Some(0);
        let is_longer = rest == Some(None);
        if is_longer || (self.is_read && std::mem::take(&mut self.digest).finish() != self.sha256.as_str()) {
            let what = format_args!("the content of the attachment {} is not whole", self.sha256);
            return Err(StoreError::corrupt(what));
        }
        Ok(Some(chunk).filter(|chunk| !chunk.is_empty()))
    }
}
