//! Buffers an upload. Small uploads stay in memory; larger ones spill to an unnamed temporary file ([`SpillBuffer`]).
//! [`HashingBuffer`] also computes the digest of the content.
//!
//! Memory and files count against budgets that tenants share ([`TemporarySpace`]). Each file takes a descriptor of the process,
//! so the host limits their number ([`limit_files`]).

use std::io::{self, SeekFrom};
use std::sync::{Arc, Mutex, OnceLock};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

use crate::blobs::{Chunks, Whole};
use crate::budget::{FairBudget, Reservation, Tenant};
use crate::digest;
use crate::lock::locked;

/// Content up to this size stays in memory if its tenant's share of the memory has room.
pub const IN_MEMORY: usize = 64 << 10;
/// Content stays in memory while the tenant uses at most a quarter of its share. The rest is for bodies that are loaded as a
/// whole. Otherwise requests with short files in memory would wait for each other.
const MEMORY_PART: u64 = 4;
/// The bytes of a temporary file that are written or read at once.
const PIECE: usize = 64 << 10;
/// The bytes of temporary space that are reserved at once.
const RESERVED_AT_ONCE: u64 = 1 << 20;

/// The budget of open temporary files. It is static because the process has one limit of descriptors.
static FILES: OnceLock<Arc<FairBudget>> = OnceLock::new();

/// Limits the number of open temporary files in this process. A tenant may have half of what the others leave. A request that
/// needs one more is refused at once.
///
/// Call it once, before any file is open; later calls have no effect. Without a call there is no limit.
pub fn limit_files(max: usize) {
    FILES.get_or_init(|| FairBudget::new(max as u64));
}

fn files() -> Arc<FairBudget> {
    Arc::clone(FILES.get_or_init(|| FairBudget::new(u64::MAX)))
}

/// The temporary space of a request.
///
/// The files of the request count against the tenant's share of a disk budget until the last of them is deleted. Short content
/// counts against the tenant's share of a memory budget. The default has no budgets.
#[derive(Debug, Clone, Default)]
pub struct TemporarySpace(Option<Arc<Space>>);

#[derive(Debug)]
struct Space {
    budget: Arc<FairBudget>,
    memory: Arc<FairBudget>,
    tenant: Tenant,
    used: Mutex<SpaceUse>,
}

#[derive(Debug, Default)]
struct SpaceUse {
    /// `None` before the first reservation.
    reserved: Option<Reservation>,
    /// The reserved bytes that no file uses yet.
    unused: u64,
}

impl TemporarySpace {
    /// Creates the temporary space of a request, with a budget for files and one for short content in memory.
    pub fn new(budget: Arc<FairBudget>, memory: Arc<FairBudget>, tenant: Tenant) -> Self {
        Self(Some(Arc::new(Space { budget, memory, tenant, used: Mutex::default() })))
    }

    /// Reserves space for this many bytes before they are received.
    ///
    /// # Errors
    /// [`io::ErrorKind::QuotaExceeded`] if the tenant's share has no room.
    pub fn reserve(&self, bytes: u64) -> io::Result<()> {
        let Some(space) = &self.0 else { return Ok(()) };
        let mut used = locked(&space.used);
        if used.unused >= bytes {
            return Ok(());
        }
        let missing = (bytes - used.unused).next_multiple_of(RESERVED_AT_ONCE);
        let is_reserved = match &mut used.reserved {
            Some(reserved) => reserved.grow(missing),
            none => {
                *none = space.budget.try_reserve(space.tenant, missing);
                none.is_some()
            }
        };
        if !is_reserved {
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, "too much temporary space is in use"));
        }
        used.unused += missing;
        Ok(())
    }

    fn tenant(&self) -> Tenant {
        self.0.as_ref().and_then(|space| space.tenant)
    }

    fn take(&self, bytes: u64) -> io::Result<()> {
        self.reserve(bytes)?;
        if let Some(space) = &self.0 {
            locked(&space.used).unused -= bytes;
        }
        Ok(())
    }
}

/// Buffers content in memory while it is short, and in an unnamed temporary file from then on.
pub struct SpillBuffer {
    size: u64,
    memory: BytesMut,
    /// The reservation of `memory`; `None` without a budget.
    reserved: Option<Reservation>,
    file: Option<Temporary>,
    files: Arc<FairBudget>,
    space: TemporarySpace,
}

/// A temporary file, its reservation in the budget of open files, and its space.
type Temporary = (File, Reservation, TemporarySpace);

impl std::fmt::Debug for SpillBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpillBuffer").field("size", &self.size).finish_non_exhaustive()
    }
}

impl SpillBuffer {
    /// Creates an empty buffer that uses this space.
    pub fn new(space: TemporarySpace) -> Self {
        Self { size: 0, memory: BytesMut::new(), reserved: None, file: None, files: files(), space }
    }

    /// Returns the number of bytes received so far.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Appends the next piece.
    ///
    /// # Errors
    /// If the temporary file cannot be created or written. [`io::ErrorKind::QuotaExceeded`] if too many files are open, or the
    /// tenant's temporary space is used up.
    pub async fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        self.size += piece.len() as u64;
        if self.file.is_none() && self.memory.len() + piece.len() <= IN_MEMORY && self.reserve(piece.len()) {
            self.memory.extend_from_slice(piece);
            return Ok(());
        }
        let file = self.file().await?;
        file.2.take(piece.len() as u64)?;
        file.0.write_all(piece).await
    }

    /// Reserves this many more bytes of memory. Returns whether there was room.
    fn reserve(&mut self, bytes: usize) -> bool {
        let Some(space) = &self.space.0 else { return true };
        if self.reserved.is_none() {
            // A reservation that grows never exceeds the share. An initial one could.
            self.reserved = space.memory.try_reserve(space.tenant, 0);
        }
        self.reserved.as_mut().is_some_and(|reserved| reserved.grow_within(bytes as u64, MEMORY_PART))
    }

    /// Returns the temporary file, after moving the content of the memory to it.
    async fn file(&mut self) -> io::Result<&mut Temporary> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                self.space.take(self.memory.len() as u64)?;
                let mut file = temporary(&self.files, self.space.clone()).await?;
                file.0.write_all(&std::mem::take(&mut self.memory)).await?;
                self.reserved = None;
                file
            }
        };
        Ok(self.file.insert(file))
    }

    /// Takes the content and its reservation, if the content is in memory.
    pub fn take_memory(&mut self) -> Option<(Bytes, Option<Reservation>)> {
        let memory = self.file.is_none().then(|| std::mem::take(&mut self.memory))?;
        Some((memory.freeze(), self.reserved.take()))
    }

    /// Returns the content.
    ///
    /// # Errors
    /// If the temporary file cannot be written or read.
    pub async fn finish(mut self) -> io::Result<Box<dyn Chunks>> {
        if let Some((memory, reserved)) = self.take_memory() {
            return Ok(Box::new(InMemory { content: Whole::new(memory), _reserved: reserved }));
        }
        let mut file = self.file.take().ok_or(io::ErrorKind::UnexpectedEof)?;
        file.0.flush().await?;
        file.0.seek(SeekFrom::Start(0)).await?;
        Ok(Box::new(OnDisk(file)))
    }
}

/// Buffers content like a [`SpillBuffer`], and hashes it.
pub struct HashingBuffer {
    hasher: Sha256,
    buffer: SpillBuffer,
}

/// The content of a [`HashingBuffer`].
pub struct HashedContent {
    /// The size in bytes.
    pub size: u64,
    /// The SHA-256 digest, in lower-case hex.
    pub sha256: String,
    /// The content.
    pub content: Box<dyn Chunks>,
}

impl std::fmt::Debug for HashingBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HashingBuffer").field("size", &self.size()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for HashedContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { size, sha256, .. } = self;
        f.debug_struct("HashedContent").field("size", size).field("sha256", sha256).finish_non_exhaustive()
    }
}

impl HashingBuffer {
    /// Creates an empty buffer that uses this space.
    pub fn new(space: TemporarySpace) -> Self {
        Self { hasher: Sha256::default(), buffer: SpillBuffer::new(space) }
    }

    /// Returns the number of bytes received so far.
    pub const fn size(&self) -> u64 {
        self.buffer.size()
    }

    /// Appends the next piece.
    ///
    /// # Errors
    /// The errors of [`SpillBuffer::push`].
    pub async fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        self.hasher.update(piece);
        self.buffer.push(piece).await
    }

    /// Returns the content, its size and its digest.
    ///
    /// # Errors
    /// If the temporary file cannot be written or read.
    pub async fn finish(self) -> io::Result<HashedContent> {
        let Self { hasher, buffer } = self;
        let size = buffer.size();
        Ok(HashedContent { size, sha256: digest::hex(&hasher.finalize()), content: buffer.finish().await? })
    }
}

/// Short content and the reservation of its memory.
struct InMemory {
    content: Whole,
    _reserved: Option<Reservation>,
}

#[async_trait]
impl Chunks for InMemory {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        self.content.next().await
    }
}

async fn temporary(files: &Arc<FairBudget>, space: TemporarySpace) -> io::Result<Temporary> {
    let full = || io::Error::new(io::ErrorKind::QuotaExceeded, "too many temporary files are open");
    let place = files.try_reserve(space.tenant(), 1).ok_or_else(full)?;
    let file = tokio::task::spawn_blocking(tempfile::tempfile).await.map_err(io::Error::other)?;
    let mut file = File::from_std(file?);
    file.set_max_buf_size(PIECE);
    Ok((file, place, space))
}

struct OnDisk(Temporary);

#[async_trait]
impl Chunks for OnDisk {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        let mut piece = BytesMut::with_capacity(PIECE);
        let read = self.0.0.read_buf(&mut piece).await?;
        Ok((read > 0).then(|| piece.freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn buffered(size: usize, piece: usize) -> (HashedContent, Vec<u8>) {
        let bytes: Vec<u8> = (0..=250).cycle().take(size).collect();
        let mut buffer = HashingBuffer::new(TemporarySpace::default());
        for piece in bytes.chunks(piece) {
            buffer.push(piece).await.unwrap();
        }
        (buffer.finish().await.unwrap(), bytes)
    }

    #[tokio::test]
    async fn content_reads_back_as_it_was_pushed_on_both_sides_of_the_limit() {
        for (size, piece) in [(0, 1), (1, 1), (IN_MEMORY, 1000), (IN_MEMORY + 1, 1000), (1 << 20, 70_000)] {
            let (mut file, bytes) = buffered(size, piece).await;
            assert_eq!((file.size, file.sha256), (size as u64, digest::sha256_hex(&bytes)), "{size}");
            let mut read = Vec::new();
            while let Some(piece) = file.content.next().await.unwrap() {
                assert!(!piece.is_empty());
                read.extend_from_slice(&piece);
            }
            assert!(read == bytes, "{size}");
        }
    }

    #[tokio::test]
    async fn one_file_too_many_is_refused_until_another_is_closed() {
        // A tenant may have half of them.
        let files = FairBudget::new(4);
        let buffer =
            || SpillBuffer { files: Arc::clone(&files), ..SpillBuffer::new(TemporarySpace::default()) };
        let long = async || {
            let mut buffer = buffer();
            buffer.push(&[0; IN_MEMORY + 1]).await.map(|()| buffer)
        };
        let (first, second) = (long().await.unwrap(), long().await.unwrap().finish().await.unwrap());
        for _ in 0..3 {
            assert_eq!(long().await.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        }
        let mut short = buffer();
        short.push(&[0; IN_MEMORY]).await.unwrap();
        drop(second);
        long().await.unwrap().finish().await.unwrap();
        drop(first);
        assert_eq!(files.used(), 0);
    }

    #[tokio::test]
    async fn temporary_files_count_against_the_tenants_share_until_they_are_deleted() {
        const MIB: u64 = 1 << 20;
        let (budget, memory) = (FairBudget::new(8 * MIB), FairBudget::new(8 * MIB));
        let piece = vec![0; 1 << 20];
        let buffer = async |space: &TemporarySpace, pieces| {
            let mut buffer = HashingBuffer::new(space.clone());
            for _ in 0..pieces {
                buffer.push(&piece).await?;
            }
            buffer.finish().await
        };
        // Short content uses no disk.
        let space = TemporarySpace::new(Arc::clone(&budget), Arc::clone(&memory), None);
        let mut short = HashingBuffer::new(space.clone());
        short.push(&[0; IN_MEMORY]).await.unwrap();
        assert_eq!(budget.used(), 0);
        // Both files of a request share its space. Some of it was reserved ahead.
        space.reserve(2 * MIB).unwrap();
        assert_eq!(budget.used(), 2 * MIB);
        let (one, two) = (buffer(&space, 2).await.unwrap(), buffer(&space, 1).await.unwrap());
        assert_eq!(budget.used(), 3 * MIB);
        let other = TemporarySpace::new(Arc::clone(&budget), Arc::clone(&memory), None);
        assert_eq!(buffer(&other, 2).await.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(other.reserve(2 * MIB).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        drop(other);
        drop((space, short, one));
        assert_eq!(budget.used(), 3 * MIB);
        drop(two);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn short_content_counts_against_the_tenants_memory_and_spills_to_a_file_if_there_is_no_room() {
        const SIZE: u64 = IN_MEMORY as u64;
        let (disk, memory) = (FairBudget::new(64 << 20), FairBudget::new(16 * SIZE));
        let space = TemporarySpace::new(Arc::clone(&disk), Arc::clone(&memory), None);
        let short = async || {
            let mut buffer = HashingBuffer::new(space.clone());
            for piece in [0; IN_MEMORY].chunks(1000) {
                buffer.push(piece).await.unwrap();
            }
            buffer
        };
        // A tenant may use half of it, and its short content a quarter of that.
        let (one, two) = (short().await, short().await.finish().await.unwrap());
        assert_eq!((memory.used(), disk.used()), (2 * SIZE, 0));
        let three = short().await;
        assert_eq!((memory.used(), disk.used()), (2 * SIZE, RESERVED_AT_ONCE));
        drop(two);
        assert_eq!(memory.used(), SIZE);
        // Content that becomes too long releases its memory.
        let mut one = one;
        one.push(&[1]).await.unwrap();
        assert_eq!(memory.used(), 0);
        drop((one, three, space));
        assert_eq!(disk.used(), 0);
    }
}
