//! Attachments outside the database: in a directory, in an S3-compatible store (feature `s3`), or in any
//! [`object_store::ObjectStore`] of the host.
//!
//! Only the content of attachments is stored here; everything else stays in the store. The objects are named
//! `{organization}/{sha256}`. Each organization stores the same content once, and overwrites it only if it no
//! longer matches its digest. The object `evidence-marker` contains the id that the store records. If it is
//! missing, for example because a volume is not mounted, nothing is written.
//!
//! ```
//! use std::sync::Arc;
//!
//! use evidence_conformance::memory::MemoryStore;
//! use evidence_core::{Evidence, Settings};
//! use evidence_object_store::ObjectBlobs;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let directory = directory.path().display();
//! let attachments = ObjectBlobs::open(&format!("file://{directory}"))?;
//! let service = Evidence::new(Arc::new(MemoryStore::new()), Settings::default())
//!     .with_attachments(Arc::new(attachments));
//! # drop(service);
//! # Ok(())
//! # }
//! ```

mod open;

use std::error::Error as _;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use evidence_core::StoreError;
use evidence_core::blobs::{Blobs, CHUNK, Chunks, MARKER, OutsideBlobs, Parts};
use evidence_core::digest::Digest;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::store::StoreResult;
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

pub use open::OpenError;

/// The part size of a multipart upload: the minimum of S3. Smaller content is one request.
const PART: usize = 5 << 20;

/// The size of a marker in bytes: an id and a newline.
const MARKER_SIZE: u64 = 33;

/// The maximum number of concurrent requests. An unanswered request, for example to a directory on a failed
/// disk, occupies a thread of the runtime's pool even after its caller has gone.
const MAX_REQUESTS: usize = 64;

/// The time limit for one request to the object store.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Attachments in an object store.
#[derive(Debug, Clone)]
pub struct ObjectBlobs {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    requests: Arc<Semaphore>,
    /// The directory that contains the objects as files.
    directory: Option<Arc<std::path::Path>>,
}

/// The object that [`OutsideBlobs::ready`] writes. No organization has this id.
const PROBE: &str = "write-probe";

impl ObjectBlobs {
    /// Creates attachments in this object store, each named `{organization}/{sha256}` below `prefix`. The
    /// object store must be durable: it may acknowledge a write only after the sync. A
    /// [`object_store::local::LocalFileSystem`] needs `with_fsync(true)` for that.
    pub fn new(objects: Arc<dyn ObjectStore>, prefix: Path) -> Self {
        Self { objects, prefix, requests: Arc::new(Semaphore::new(MAX_REQUESTS)), directory: None }
    }

    /// Creates the directory of an organization's attachments, durably. Only its owner can read it.
    async fn create_directory(&self, org: Id) -> StoreResult<()> {
        let Some(root) = self.directory.clone() else { return Ok(()) };
        let created = self.request(|_| async move {
            let mut builder = tokio::fs::DirBuilder::new();
            #[cfg(unix)]
            builder.mode(0o700);
            match builder.create(root.join(org.to_string())).await {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
                // A request that created the existing directory may have failed before it synced the root.
                _ => {}
            }
            // `object_store` does the same for the directories that it creates. Other systems cannot open a
            // directory.
            #[cfg(unix)]
            tokio::fs::File::open(&*root).await?.sync_all().await?;
            Ok(())
        });
        created
            .await?
            .map_err(|error| unavailable(Error::Generic { store: "directory", source: error.into() }))
    }

    fn path(&self, org: Id, sha256: &Fingerprint) -> Path {
        self.prefix.clone().join(org.to_string()).join(sha256.as_str())
    }

    /// Sends a request and waits for its outcome. A request that times out continues, and occupies its permit
    /// until it is answered.
    async fn request<T, F>(&self, request: impl FnOnce(Arc<dyn ObjectStore>) -> F) -> StoreResult<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let answer = self.begin(deadline, request).await?;
        let answer = timeout_at(deadline, answer).await.map_err(|_| timed_out())?;
        answer.map_err(|error| StoreError::Failed(error.into()))
    }

    /// Starts a request as soon as fewer than [`MAX_REQUESTS`] run.
    async fn begin<T, F>(
        &self,
        deadline: Instant,
        request: impl FnOnce(Arc<dyn ObjectStore>) -> F,
    ) -> StoreResult<JoinHandle<T>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let turn = timeout_at(deadline, Arc::clone(&self.requests).acquire_owned()).await;
        let turn = turn.map_err(|_| timed_out())?.map_err(|closed| StoreError::Failed(closed.into()))?;
        let request = request(Arc::clone(&self.objects));
        Ok(tokio::spawn(async move {
            let answer = request.await;
            drop(turn);
            answer
        }))
    }

    /// Returns the size of an object, or `None` if it does not exist.
    async fn size(&self, path: &Path) -> StoreResult<Option<u64>> {
        let path = path.clone();
        match self.request(|objects| async move { objects.head(&path).await }).await? {
            Ok(found) => Ok(Some(found.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    /// Returns whether the object exists and matches its digest. It is streamed, with one request.
    async fn is_whole(&self, path: &Path, sha256: &Fingerprint) -> StoreResult<bool> {
        let path = path.clone();
        let mut content = match self.request(|objects| async move { objects.get(&path).await }).await? {
            Ok(found) => found.into_stream(),
            Err(Error::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(unavailable(error)),
        };
        let mut digest = Digest::default();
        loop {
            let next = self.request(|_| async move { (content.next().await, content) }).await?;
            match next {
                (Some(piece), rest) => {
                    digest.update(&piece.map_err(unavailable)?);
                    content = rest;
                }
                (None, _) => return Ok(digest.finish() == sha256.as_str()),
            }
        }
    }

    async fn put(&self, path: &Path, content: PutPayload) -> StoreResult<()> {
        let path = path.clone();
        let put = self.request(|objects| async move { objects.put(&path, content).await });
        put.await?.map(drop).map_err(unavailable)
    }

    /// Uploads a first part and the rest. A failed upload is aborted, and leaves no readable object.
    async fn put_in_parts(&self, path: &Path, first: Vec<u8>, mut rest: Parts<'_>) -> StoreResult<()> {
        let path = path.clone();
        let begun = self.request(|objects| async move { objects.put_multipart(&path).await }).await?;
        let mut upload = begun.map_err(unavailable)?;
        let mut part = Some(first);
        loop {
            let sent = match part {
                Some(bytes) => {
                    let put = upload.put_part(bytes.into());
                    self.request(|_| put).await.and_then(|put| put.map(|()| true).map_err(unavailable))
                }
                None => {
                    let end = |_| async move { (upload.complete().await, upload) };
                    let (completed, kept) = self.request(end).await?;
                    upload = kept;
                    completed.map(|_| false).map_err(unavailable)
                }
            };
            let next = match sent {
                Ok(false) => return Ok(()),
                Ok(true) => rest.next().await,
                Err(error) => Err(error),
            };
            part = match next {
                Ok(next) => next,
                Err(error) => {
                    self.abort(upload).await;
                    return Err(error);
                }
            };
        }
    }

    /// Aborts an upload. If the abort fails, the bucket's lifecycle rules expire the parts; the caller
    /// returns the first error.
    async fn abort(&self, mut upload: Box<dyn MultipartUpload>) {
        let _ = self.request(|_| async move { upload.abort().await }).await;
    }
}

fn timed_out() -> StoreError {
    let seconds = REQUEST_TIMEOUT.as_secs();
    StoreError::Unavailable(ObjectStoreFailure(format!("no answer within {seconds} seconds")).into())
}

/// A failed request, as a single line. The errors of `object_store` repeat their sources, and those of S3
/// have several lines.
#[derive(Debug, thiserror::Error)]
#[error("the object store of the attachments: {0}")]
struct ObjectStoreFailure(String);

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
fn unavailable(error: Error) -> StoreError {
    let text = error.to_string();
    let words: Vec<&str> = text.split_whitespace().collect();
    StoreError::Unavailable(ObjectStoreFailure(words.join(" ")).into())
}

/// Returns the byte range of chunk `number`, or `None` if its end exceeds `u64`.
fn range(number: u64) -> Option<Range<u64>> {
    let chunk = CHUNK as u64;
    let start = number.checked_mul(chunk)?;
    Some(start..start.checked_add(chunk)?)
}

#[async_trait]
impl Blobs for ObjectBlobs {
    async fn put(&self, org: Id, sha256: &Fingerprint, content: &mut dyn Chunks) -> StoreResult<()> {
        let path = self.path(org, sha256);
        if self.is_whole(&path, sha256).await? {
            return Ok(());
        }
        self.create_directory(org).await?;
        let mut parts = Parts::new(content, PART);
        match parts.next().await? {
            Some(first) if first.len() == PART => self.put_in_parts(&path, first, parts).await,
            small => self.put(&path, PutPayload::from(small.unwrap_or_default())).await,
        }
    }

    async fn get_chunk(&self, org: Id, sha256: &Fingerprint, number: u64) -> StoreResult<Option<Bytes>> {
        let path = self.path(org, sha256);
        let Some(range) = range(number) else { return Ok(None) };
        let start = range.start;
        let object = path.clone();
        match self.request(|objects| async move { objects.get_range(&object, range).await }).await? {
            Ok(bytes) => Ok(Some(bytes).filter(|bytes| !bytes.is_empty())),
            Err(Error::NotFound { .. }) => Ok(None),
            // Object stores refuse a range past the end in different ways.
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
        let path = self.path(org, sha256);
        let delete = |objects: Arc<dyn ObjectStore>| async move { objects.delete(&path).await };
        // No timeout: an unanswered delete may still take effect, so the caller must wait for its outcome or
        // treat it as unknown.
        let deleted = self.begin(Instant::now() + REQUEST_TIMEOUT, delete).await?;
        match deleted.await.map_err(|error| StoreError::Failed(error.into()))? {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) if is_certainly_not_done(&error) => Err(unavailable(error)),
            // The server may have received any other request.
            Err(error) => Err(StoreError::Failed(error.into())),
        }
    }

    async fn marker(&self) -> StoreResult<Option<Id>> {
        let path = self.prefix.clone().join(MARKER);
        let found = self.request(|objects| async move { objects.get_range(&path, 0..MARKER_SIZE).await });
        match found.await? {
            Ok(text) => {
                let id = str::from_utf8(&text).ok().and_then(|text| text.trim_end().parse().ok());
                let unreadable = || {
                    let what =
                        format!("'{MARKER}' has no id: remove it, and the next error says what to write");
                    StoreError::Unavailable(ObjectStoreFailure(what).into())
                };
                id.map(Some).ok_or_else(unreadable)
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(unavailable(error)),
        }
    }

    async fn put_marker(&self, id: Id) -> StoreResult<()> {
        self.put(&self.prefix.clone().join(MARKER), format!("{id}\n").into()).await
    }

    async fn ready(&self) -> StoreResult<()> {
        let path = self.prefix.clone().join(PROBE);
        self.put(&path, PutPayload::from_static(b"written to check that attachments can be written\n")).await
    }
}

/// Returns whether the error proves that the request had no effect.
fn is_certainly_not_done(error: &Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let mut sources = std::iter::successors(error.source(), |&source| source.source());
    let may_not = |kind| matches!(kind, PermissionDenied | ReadOnlyFilesystem);
    match error {
        Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::NotImplemented { .. }
        | Error::NotSupported { .. } => true,
        _ => sources
            .any(|source| source.downcast_ref::<std::io::Error>().is_some_and(|error| may_not(error.kind()))),
    }
}
