//! Attachments outside the database: in a directory, in an S3-compatible store (feature `s3`), in memory for tests, or
//! wherever an [`object_store::ObjectStore`] of the host's leads.
//!
//! Everything else stays in the store; only the content of attachments goes here, under `{organization}/{sha256}`, so
//! that the same content is kept once an organization and only ever overwritten where it is no longer what it was.
//!
//! ```
//! use std::sync::Arc;
//!
//! use evidence_core::memory::MemoryStore;
//! use evidence_core::{Evidence, Settings};
//! use evidence_object_store::ObjectBlobs;
//!
//! # fn main() -> Result<(), evidence_object_store::OpenError> {
//! let attachments = ObjectBlobs::open("memory:")?;
//! let service = Evidence::new(Arc::new(MemoryStore::new()), Settings::default())
//!     .with_attachments(Arc::new(attachments));
//! # drop(service);
//! # Ok(())
//! # }
//! ```

mod open;

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use evidence_core::StoreError;
use evidence_core::blobs::{Blobs, CHUNK, Chunks, OutsideBlobs, Parts};
use evidence_core::digest::Digest;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::store::StoreResult;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};

pub use open::OpenError;

/// How much is sent at a time: the least that S3 takes as a part of a larger object. Smaller content is one request.
const PART: usize = 5 << 20;

/// Attachments in an object store.
#[derive(Debug, Clone)]
pub struct ObjectBlobs {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl ObjectBlobs {
    /// Attachments in this store, each a `{organization}/{sha256}` below `prefix`. What the store has answered must be
    /// durable: a [`object_store::local::LocalFileSystem`] needs `with_fsync(true)` for that.
    pub fn new(objects: Arc<dyn ObjectStore>, prefix: Path) -> Self {
        Self { objects, prefix }
    }

    fn path(&self, org: Id, sha256: &Fingerprint) -> Path {
        self.prefix.clone().join(org.to_string()).join(sha256.as_str())
    }

    /// The size of an object; nothing when there is none.
    async fn size(&self, path: &Path) -> StoreResult<Option<u64>> {
        match self.objects.head(path).await {
            Ok(found) => Ok(Some(found.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Whether there is an object, and it is what its digest says. It is read as it comes, with one request.
    async fn is_whole(&self, path: &Path, sha256: &Fingerprint) -> StoreResult<bool> {
        let mut content = match self.objects.get(path).await {
            Ok(found) => found.into_stream(),
            Err(Error::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(unavailable(error)),
        };
        let mut digest = Digest::default();
        while let Some(piece) = content.try_next().await.map_err(unavailable)? {
            digest.update(&piece);
        }
        Ok(digest.finish() == sha256.as_str())
    }

    /// Sends a first part and the rest behind it. An upload that breaks off is given up, and leaves nothing to be read.
    async fn put_in_parts(&self, path: &Path, first: Vec<u8>, rest: Parts<'_>) -> StoreResult<()> {
        let mut upload = self.objects.put_multipart(path).await.map_err(unavailable)?;
        let sent = send(&mut *upload, first, rest).await;
        if sent.is_err() {
            // Parts that cannot be given up now are swept by the store's own rules; what went wrong first is told.
            let _ = upload.abort().await;
        }
        sent
    }
}

async fn send(upload: &mut dyn MultipartUpload, first: Vec<u8>, mut rest: Parts<'_>) -> StoreResult<()> {
    let mut part = Some(first);
    while let Some(bytes) = part {
        upload.put_part(bytes.into()).await.map_err(unavailable)?;
        part = rest.next().await?;
    }
    upload.complete().await.map(drop).map_err(unavailable)
}

/// What the client of an object store says. Its errors repeat their sources, and S3's answers have several lines: told
/// once, in one.
#[derive(Debug, thiserror::Error)]
#[error("the place of the attachments: {0}")]
struct Refusal(String);

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn unavailable(error: Error) -> StoreError {
    let words = error.to_string();
    let words: Vec<&str> = words.split_whitespace().collect();
    StoreError::Unavailable(Refusal(words.join(" ")).into())
}

/// The bytes of chunk `number`; nothing beyond what any object can hold.
fn range(number: u64) -> Option<Range<u64>> {
    let chunk = CHUNK as u64;
    let start = number.checked_mul(chunk)?;
    Some(start..start.checked_add(chunk)?)
}

#[async_trait]
impl Blobs for ObjectBlobs {
    async fn keep(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()> {
        let path = self.path(org, sha256);
        if self.is_whole(&path, sha256).await? {
            return Ok(());
        }
        let mut parts = Parts::new(content, PART);
        match parts.next().await? {
            Some(first) if first.len() == PART => self.put_in_parts(&path, first, parts).await,
            small => {
                let payload = PutPayload::from(small.unwrap_or_default());
                self.objects.put(&path, payload).await.map(drop).map_err(unavailable)
            }
        }
    }

    async fn chunk(&self, org: Id, sha256: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>> {
        let path = self.path(org, sha256);
        let Some(range) = range(number) else { return Ok(None) };
        let start = range.start;
        match self.objects.get_range(&path, range).await {
            Ok(bytes) => Ok(Some(bytes).filter(|bytes| !bytes.is_empty())),
            Err(Error::NotFound { .. }) => Ok(None),
            // Stores differ in how they refuse a range past the end.
            Err(error) => match self.size(&path).await? {
                Some(size) if start < size => Err(unavailable(error)),
                Some(_) | None => Ok(None),
            },
        }
    }
}

#[async_trait]
impl OutsideBlobs for ObjectBlobs {
    async fn remove(&self, org: Id, sha256: &Fingerprint) -> StoreResult<()> {
        match self.objects.delete(&self.path(org, sha256)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(unavailable(error)),
        }
    }
}
