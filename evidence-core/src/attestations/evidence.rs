//! The files that come with an attestation: kept by content before the record that names them, and given back as the
//! one file, or as an archive of several that is made once, when they arrive.

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
use crate::store::StoreError;

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
    let mut taken = std::collections::BTreeMap::<String, usize>::new();
    for (name, bytes) in contents {
        let count = taken.entry(name.clone()).or_default();
        *count += 1;
        let path = if *count == 1 { name } else { format!("{count}-{name}") };
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
        let missing = format_args!("the content of the attachment {} is missing", file.sha256);
        return Err(StoreError::corrupt(missing).into());
    }
    Ok(Download {
        media_type: file.media_type.clone(),
        file_name: file.file_name.clone(),
        size: file.size,
        etag: Some(file.sha256.to_string()),
        content: Box::new(Stored { first, blobs, org, sha256: file.sha256.clone(), next: 1 }),
    })
}

/// A blob read chunk by chunk.
struct Stored {
    first: Option<Bytes>,
    blobs: Arc<dyn Blobs>,
    org: Id,
    sha256: Fingerprint,
    next: u64,
}

#[async_trait]
impl crate::blobs::Chunks for Stored {
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        let chunk =
            self.blobs.chunk(self.org, &self.sha256, self.next).await.map_err(std::io::Error::other)?;
        self.next += 1;
        Ok(chunk.filter(|chunk| !chunk.is_empty()))
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
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(one.as_slice()));
        let names: Vec<String> = tar
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(names, ["a", "2-a", "b"]);
    }
}
