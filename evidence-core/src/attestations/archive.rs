//! Builds `evidence.tgz`, a gzipped tar of several files. The same files give the same bytes, in whatever
//! order they arrive. The archive is built while the files are streamed, so its memory use does not depend on
//! their size.

use std::collections::BTreeSet;
use std::io::{self, Write};

use async_trait::async_trait;
use bytes::Bytes;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};

use crate::blobs::{CHUNK, Chunks, Upload};
use crate::compute::Compute;
use crate::spill_buffer::{HashedContent, HashingBuffer, TemporarySpace};

/// Chunks larger than this take about a millisecond to compress.
const LONG: usize = 16 << 10;
/// The block size of a tar, in bytes.
const BLOCK: usize = 512;

/// Sorts files by name and content, and returns them with their paths in the archive. The first of several
/// files with one name keeps the name; each other file gets a number that makes its path unique.
pub(super) fn paths(mut files: Vec<Upload>) -> Vec<(String, Upload)> {
    files.sort_by(|one, other| (&one.file_name, &one.sha256).cmp(&(&other.file_name, &other.sha256)));
    let mut taken: BTreeSet<String> = files.iter().map(|file| file.file_name.clone()).collect();
    let mut last = None;
    let path = |file: Upload| {
        let name = file.file_name.clone();
        let path = if last.as_ref() == Some(&name) {
            (2_usize..).map(|n| format!("{n}-{name}")).find(|path| !taken.contains(path)).unwrap_or_default()
        } else {
            name.clone()
        };
        taken.insert(path.clone());
        last = Some(name);
        (path, file)
    };
    files.into_iter().map(path).collect()
}

/// An archive under construction.
pub(super) struct Archive {
    /// The compressor; `None` while it runs elsewhere, and after an error.
    gzip: Option<GzEncoder<Vec<u8>>>,
    output: HashingBuffer,
    compute: Compute,
}

impl Archive {
    /// Creates an empty archive that uses this temporary space.
    pub(super) fn new(compute: Compute, space: TemporarySpace) -> Self {
        let gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
        Self { gzip: Some(gzip), output: HashingBuffer::new(space), compute }
    }

    /// Begins the next file, which has `size` bytes. Read the content through the returned entry.
    pub(super) async fn entry<'a>(
        &'a mut self,
        path: &str,
        size: u64,
        content: &'a mut dyn Chunks,
    ) -> io::Result<Entry<'a>> {
        self.write(header(path, size)?.into()).await?;
        Ok(Entry { archive: self, content, size, left: size })
    }

    /// Completes the archive and returns its content.
    pub(super) async fn finish(mut self) -> io::Result<HashedContent> {
        self.write(vec![0; 2 * BLOCK].into()).await?;
        let gzip = self.gzip.take().ok_or_else(broken)?;
        let rest = self.compute.run(move || gzip.finish()).await.map_err(io::Error::other)??;
        self.output.push(&rest).await?;
        self.output.finish().await
    }

    async fn write(&mut self, mut bytes: Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(CHUNK));
            let mut gzip = self.gzip.take().ok_or_else(broken)?;
            let heavy = piece.len() > LONG;
            let compress = move || {
                gzip.write_all(&piece)?;
                let compressed = std::mem::take(gzip.get_mut());
                Ok::<_, io::Error>((gzip, compressed))
            };
            let (gzip, compressed) =
                self.compute.run_if(heavy, compress).await.map_err(io::Error::other)??;
            self.gzip = Some(gzip);
            self.output.push(&compressed).await?;
        }
        Ok(())
    }
}

/// Returns the error for an archive whose compressor was lost in an earlier error.
fn broken() -> io::Error {
    io::Error::other("an archive failed before")
}

/// Returns the tar blocks before a file's content.
fn header(path: &str, size: u64) -> io::Result<Vec<u8>> {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(0);
    let mut tar = tar::Builder::new(Vec::new());
    tar.append_data(&mut header, path, io::empty())?;
    let mut blocks = tar.into_inner()?;
    // Remove the end-of-archive blocks.
    blocks.truncate(blocks.len().saturating_sub(2 * BLOCK));
    Ok(blocks)
}

/// A file that is added to an archive. Everything read from it is also written to the archive.
pub(super) struct Entry<'a> {
    archive: &'a mut Archive,
    content: &'a mut dyn Chunks,
    size: u64,
    left: u64,
}

impl Entry<'_> {
    /// Reads and archives the rest of the content, then completes the file.
    ///
    /// # Errors
    /// `UnexpectedEof` if the content is shorter than announced.
    pub(super) async fn finish(mut self) -> io::Result<()> {
        while self.next().await?.is_some() {}
        if self.left > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let beyond = usize::try_from(self.size % BLOCK as u64).map_err(io::Error::other)?;
        self.archive.write(vec![0; (BLOCK - beyond) % BLOCK].into()).await
    }
}

#[async_trait]
impl Chunks for Entry<'_> {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let Some(piece) = self.content.next().await? else { return Ok(None) };
        let longer = || io::Error::other("a file is longer than was said");
        self.left = self.left.checked_sub(piece.len() as u64).ok_or_else(longer)?;
        self.archive.write(piece.clone()).await?;
        Ok(Some(piece))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::digest::sha256_hex;

    /// Content in chunks of a fixed size.
    struct Pieces(Bytes, usize);

    #[async_trait]
    impl Chunks for Pieces {
        async fn next(&mut self) -> io::Result<Option<Bytes>> {
            let piece = self.0.split_to(self.1.min(self.0.len()));
            Ok((!piece.is_empty()).then_some(piece))
        }
    }

    fn uploads(files: &[(&str, &[u8])], piece: usize) -> Vec<Upload> {
        let upload = |(name, content): &(&str, &[u8])| Upload {
            file_name: (*name).to_owned(),
            media_type: String::new(),
            size: content.len() as u64,
            sha256: sha256_hex(content).parse().unwrap(),
            content: Box::new(Pieces(Bytes::copy_from_slice(content), piece)),
        };
        files.iter().map(upload).collect()
    }

    /// Builds an archive whose entries nobody else reads, from content in chunks.
    async fn archive(files: &[(&str, &[u8])], piece: usize) -> Vec<u8> {
        let mut archive = Archive::new(Compute::default(), TemporarySpace::default());
        for (path, mut file) in paths(uploads(files, piece)) {
            archive.entry(&path, file.size, &mut *file.content).await.unwrap().finish().await.unwrap();
        }
        let HashedContent { size, sha256, mut content } = archive.finish().await.unwrap();
        let mut bytes = Vec::new();
        while let Some(piece) = content.next().await.unwrap() {
            bytes.extend_from_slice(&piece);
        }
        assert_eq!((size, sha256), (bytes.len() as u64, sha256_hex(&bytes)));
        bytes
    }

    fn read(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(archive));
        let read = |entry: io::Result<tar::Entry<'_, _>>| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (path, content)
        };
        tar.entries().unwrap().map(read).collect()
    }

    #[tokio::test]
    async fn an_archive_is_the_same_whatever_the_order_and_keeps_files_of_equal_names_apart() {
        let names = |archive: &[u8]| Vec::from_iter(read(archive).into_iter().map(|(name, _)| name));
        let one = archive(&[("b", b"2"), ("a", b"1"), ("a", b"0")], 1).await;
        let other = archive(&[("a", b"0"), ("b", b"2"), ("a", b"1")], 1).await;
        assert_eq!(one, other);
        assert_eq!(names(&one), ["a", "2-a", "b"]);
        let own = archive(&[("a", b"0"), ("a", b"1"), ("2-a", b"2"), ("a", b"3")], 1).await;
        assert_eq!(names(&own), ["2-a", "a", "3-a", "4-a"]);
    }

    #[tokio::test]
    async fn an_archive_made_in_pieces_is_the_one_that_is_made_at_once() {
        let words = |length: usize| Vec::from_iter((0..length).map(|n| (n * n % 251) as u8));
        let (long_name, long) = ("n".repeat(200), words(CHUNK + BLOCK + 1));
        let files: [(&str, &[u8]); 4] =
            [("empty", b""), ("long", &long), (&long_name, b"short"), ("whole", &long[..BLOCK])];
        let mut tar = tar::Builder::new(GzBuilder::new().mtime(0).write(Vec::new(), Compression::default()));
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            header.set_mtime(0);
            tar.append_data(&mut header, name, content).unwrap();
        }
        let at_once = tar.into_inner().unwrap().finish().unwrap();
        for piece in [1000, LONG + 1, usize::MAX] {
            let archive = archive(&files, piece).await;
            assert_eq!(read(&archive), files.map(|(name, content)| (name.to_owned(), content.to_vec())));
            assert!(archive == at_once, "pieces of {piece} bytes");
        }
    }

    #[tokio::test]
    async fn a_file_of_another_size_than_was_said_is_an_error() {
        for size in [2, 4] {
            let mut archive = Archive::new(Compute::default(), TemporarySpace::default());
            let mut content = Pieces(Bytes::from_static(b"abc"), 2);
            let entry = archive.entry("a", size, &mut content).await.unwrap();
            assert!(entry.finish().await.is_err(), "{size}");
        }
    }
}
