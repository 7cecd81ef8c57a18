//! The files of an attestation. They are stored by content before the record that names them. A download
//! returns the only file, or an archive of several, which is built once, when the files arrive.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::archive::Archive;
use crate::attestations::record::Attachment;
use crate::blobs::{BlobReader, Blobs, Chunks, Upload};
use crate::compute::refused::Refused;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::name::Fingerprint;
use crate::operation::Download;
use crate::spill_buffer::HashedContent;
use crate::store::error::StoreError;
use crate::sweep::pending::may_be_named;
use crate::time::Timestamp;

/// The stored files of an attestation.
pub(super) struct StoredFiles {
    /// The descriptions of the files.
    pub(super) attachments: Vec<Attachment>,
    /// The description of the file that the evidence download returns.
    pub(super) evidence: Option<Attachment>,
    since: Timestamp,
}

impl StoredFiles {
    /// Refuses files that were stored so long ago that the sweep may remove them before the attestation is
    /// recorded.
    pub(super) fn check(&self, cx: &Context<'_>) -> Result<()> {
        if self.attachments.is_empty() { Ok(()) } else { Ok(may_be_named(self.since, cx.now())?) }
    }
}

/// Stores these files.
pub(super) async fn store_files(mut files: Vec<Upload>, cx: &Context<'_>) -> Result<StoredFiles> {
    let (attachments, since) = (Vec::from_iter(files.iter().map(described)), cx.now());
    if let [only] = files.as_mut_slice() {
        cx.store_attachment(&only.sha256, &mut *only.content).await?;
    }
    let evidence =
        if files.len() > 1 { Some(store_archive(files, cx).await?) } else { attachments.first().cloned() };
    Ok(StoredFiles { attachments, evidence, since })
}

fn described(file: &Upload) -> Attachment {
    Attachment {
        file_name: file.file_name.clone(),
        media_type: file.media_type.clone(),
        size: file.size,
        sha256: file.sha256.clone(),
    }
}

/// Stores each of these files, and an archive of them that is built in the same pass.
async fn store_archive(files: Vec<Upload>, cx: &Context<'_>) -> Result<Attachment> {
    let mut archive = Archive::new(cx.compute().for_long_request(), cx.temporary_space());
    for (path, mut file) in super::archive::paths(files) {
        let mut entry = archive.entry(&path, file.size, &mut *file.content).await.map_err(archive_error)?;
        let kept = cx.store_attachment(&file.sha256, &mut entry).await;
        kept.map_err(|error| transient_error(&error).unwrap_or(error))?;
        entry.finish().await.map_err(archive_error)?;
    }
    let HashedContent { size, sha256, mut content } = archive.finish().await.map_err(archive_error)?;
    let sha256: Fingerprint = sha256
        .parse()
        .map_err(|source| Error::Internal { what: "an archive has no digest", source: Box::new(source) })?;
    cx.store_attachment(&sha256, &mut *content).await?;
    Ok(Attachment {
        file_name: "evidence.tgz".to_owned(),
        media_type: "application/gzip".to_owned(),
        size,
        sha256,
    })
}

fn archive_error(source: io::Error) -> Error {
    transient_error(&source).unwrap_or_else(|| Error::Internal {
        what: "the archive of an attestation's files could not be made",
        source: source.into(),
    })
}

/// Returns the error of a transient failure to build an archive; `None` for a defect. Transient failures: the
/// compute pool is full, or the directory for temporary files is full or not writable.
fn transient_error(error: &(dyn std::error::Error + 'static)) -> Option<Error> {
    if let Some(refused) = Refused::among(error) {
        return Some(refused.into());
    }
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let why: &io::Error =
        causes.find_map(|cause| cause.downcast_ref().filter(|cause| is_storage_failure(cause)))?;
    Some(StoreError::Unavailable(format!("an archive cannot be held: {why}").into()).into())
}

fn is_storage_failure(error: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(error.kind(), NotFound | PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}

/// Returns a stored file as a download. Reads its beginning first, so that an unreachable store or a lost
/// file gives an error status instead of an interrupted body.
pub(super) async fn download(file: &Attachment, org: Id, cx: &Context<'_>) -> Result<Download> {
    let blobs = Arc::clone(cx.attachments());
    let kept = BlobReader::open(blobs, org, file.sha256.clone(), Some(file.size)).await?;
    Ok(Download {
        media_type: file.media_type.clone(),
        file_name: file.file_name.clone(),
        size: file.size,
        etag: Some(file.sha256.to_string()),
        content: Box::new(Stored(kept)),
    })
}

/// The content of a download.
struct Stored(BlobReader<Arc<dyn Blobs>>);

#[async_trait]
impl Chunks for Stored {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        self.0.chunk().await.map_err(std::io::Error::other)
    }
}
