//! The files that come with an attestation: kept by content before the record that names them, and given back as the
//! one file, or as an archive of several that is made once, when they arrive.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::Attachment;
use crate::blobs::{Blobs, Upload, Whole, unreadable};
use crate::digest::sha256_hex;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::name::Fingerprint;
use crate::operation::Download;
use crate::service::Context;
use crate::store::{StoreError, StoreResult};

const ARCHIVE: &str = "evidence.tgz";

/// Keeps these files; answers their descriptions, and that of what the evidence download gives.
pub(super) async fn keep(
    files: Vec<Upload>,
    cx: &Context<'_>,
) -> Result<(Vec<Attachment>, Option<Attachment>)> {
    let mut attachments = Vec::with_capacity(files.len());
    let several = files.len() > 1;
    let mut contents = Vec::new();
    for mut file in files {
        let described = Attachment {
            file_name: file.file_name.clone(),
            media_type: file.media_type.clone(),
            size: file.size,
            sha256: file.sha256.clone(),
        };
        if several {
            let bytes = file.read().await?;
            cx.attachments().keep(cx.org()?, &described.sha256, &mut Whole::new(bytes.clone())).await?;
            contents.push((described.file_name.clone(), bytes));
        } else {
            cx.attachments().keep(cx.org()?, &described.sha256, &mut *file.content).await?;
        }
        attachments.push(described);
    }
    let evidence =
        if several { Some(keep_archive(contents, cx).await?) } else { attachments.first().cloned() };
    Ok((attachments, evidence))
}

async fn keep_archive(contents: Vec<(String, Vec<u8>)>, cx: &Context<'_>) -> Result<Attachment> {
    let bytes = archive(contents).map_err(unreadable)?;
    let digest = sha256_hex(&bytes);
    let sha256: Fingerprint = digest
        .parse()
        .map_err(|source| Error::Internal { what: "an archive has no digest", source: Box::new(source) })?;
    let described = Attachment {
        file_name: ARCHIVE.to_owned(),
        media_type: "application/gzip".to_owned(),
        size: bytes.len() as u64,
        sha256,
    };
    cx.attachments().keep(cx.org()?, &described.sha256, &mut Whole::new(bytes)).await?;
    Ok(described)
}

/// A gzipped tar of these files, the same bytes for the same files in whatever order: sorted, without times.
fn archive(mut contents: Vec<(String, Vec<u8>)>) -> std::io::Result<Vec<u8>> {
    contents.sort();
    let gzip = flate2::GzBuilder::new().mtime(0).write(Vec::new(), flate2::Compression::default());
    let mut tar = tar::Builder::new(gzip);
    let mut taken: BTreeSet<String> = contents.iter().map(|(name, _)| name.clone()).collect();
    let mut last = None;
    for (name, bytes) in contents {
        // The first of several files of one name keeps it; the others take a number that makes no other's name.
        let path = if last.as_ref() == Some(&name) {
            (2_usize..).map(|n| format!("{n}-{name}")).find(|path| !taken.contains(path)).unwrap_or_default()
        } else {
            name.clone()
        };
        taken.insert(path.clone());
        last = Some(name);
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        tar.append_data(&mut header, path, bytes.as_slice())?;
    }
    let mut gzip = tar.into_inner()?;
    gzip.flush()?;
    gzip.finish()
}

/// A stored file, as a download. Its beginning is read at once, so that a place which does not answer is told by the
/// status and not by a body that breaks off.
pub(super) async fn download(file: &Attachment, org: Id, cx: &Context<'_>) -> Result<Download> {
    let blobs = Arc::clone(cx.attachments());
    let first = blobs.chunk(org, &file.sha256, 0).await?;
    if first.is_none() && file.size > 0 {
        return Err(incomplete(&file.sha256).into());
    }
    Ok(Download {
        media_type: file.media_type.clone(),
        file_name: file.file_name.clone(),
        size: file.size,
        etag: Some(file.sha256.to_string()),
        content: Box::new(Stored {
            first,
            blobs,
            org,
            sha256: file.sha256.clone(),
            next: 0,
            rest: file.size,
        }),
    })
}

/// A blob that is not as long as its record says.
fn incomplete(sha256: &Fingerprint) -> StoreError {
    StoreError::corrupt(format_args!("the content of the attachment {sha256} is not whole"))
}

/// A blob read chunk by chunk. One that is shorter or longer than it should be is an error, which breaks the answer
/// off: an end would tell the caller that this was all.
struct Stored {
    first: Option<Bytes>,
    blobs: Arc<dyn Blobs>,
    org: Id,
    sha256: Fingerprint,
    next: u64,
    /// How many bytes are still to come.
    rest: u64,
}

impl Stored {
    async fn chunk(&mut self) -> StoreResult<Option<Bytes>> {
        let chunk = match self.first.take() {
            Some(first) => Some(first),
            None if self.rest == 0 => return Ok(None),
            None => self.blobs.chunk(self.org, &self.sha256, self.next).await?,
        };
        self.next += 1;
        let chunk = chunk.filter(|chunk| !chunk.is_empty()).ok_or_else(|| incomplete(&self.sha256))?;
        self.rest = self.rest.checked_sub(chunk.len() as u64).ok_or_else(|| incomplete(&self.sha256))?;
        Ok(Some(chunk))
    }
}

#[async_trait]
impl crate::blobs::Chunks for Stored {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        self.chunk().await.map_err(std::io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_the_same_whatever_the_order_and_keeps_files_of_equal_names_apart() {
        let files = |names: &[(&str, &str)]| {
            names
                .iter()
                .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()))
                .collect::<Vec<_>>()
        };
        let one = archive(files(&[("b", "2"), ("a", "1"), ("a", "0")])).unwrap();
        let other = archive(files(&[("a", "0"), ("b", "2"), ("a", "1")])).unwrap();
        assert_eq!(one, other);
        assert_eq!(names(&one), ["a", "2-a", "b"]);
        let own = archive(files(&[("a", "0"), ("a", "1"), ("2-a", "2"), ("a", "3")])).unwrap();
        assert_eq!(names(&own), ["2-a", "a", "3-a", "4-a"]);
    }

    fn names(archive: &[u8]) -> Vec<String> {
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive));
        let entries = tar.entries().unwrap();
        entries.map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect()
    }
}
