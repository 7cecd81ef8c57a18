//! Content that is being received: held in memory while it is short, and in an unnamed temporary file from then on, so that many
//! large files at once cost disk rather than memory ([`SpillBuffer`]); hashed as it comes, where its digest is wanted before it
//! is kept ([`Spool`]). Memory and files count against budgets that tenants share ([`TemporarySpace`]). How many such files are
//! open at a time is the host's to say ([`limit_files`]): each takes a descriptor.

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

/// Content up to this size stays in memory, if its tenant's share of the memory has room.
pub const IN_MEMORY: usize = 64 << 10;
/// Content stays in memory while the tenant uses at most this part of its share. The rest is for whole bodies that are loaded:
/// otherwise requests that have short files in memory would wait for each other.
const MEMORY_PART: u64 = 4;
/// How much of a temporary file is written or read at once.
const PIECE: usize = 64 << 10;
/// How much temporary space is reserved at once.
const RESERVED_AT_ONCE: u64 = 1 << 20;

/// How many temporary files this process may have open, shared by its tenants: descriptors are the process's.
static FILES: OnceLock<Arc<FairBudget>> = OnceLock::new();

/// Lets this process have at most so many temporary files open at a time, which have no limit otherwise. A tenant may have half
/// of what the others leave. What needs one more is refused at once. Call it once, before any file is open: later it has no
/// effect.
pub fn limit_files(most: usize) {
    FILES.get_or_init(|| FairBudget::new(most as u64));
}

fn files() -> Arc<FairBudget> {
    Arc::clone(FILES.get_or_init(|| FairBudget::new(u64::MAX)))
}

/// The temporary space of a request: what its files take counts against the tenant's share of a budget until the last of them
/// is gone, and what it holds in memory against the share of another. Without budgets, which is the default, the disk is the
/// limit.
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
    /// None before something was reserved.
    reserved: Option<Reservation>,
    /// How much of it no file takes yet.
    unused: u64,
}

impl TemporarySpace {
    /// Temporary space within this budget, on behalf of this tenant, and short content within this budget for memory.
    pub fn new(budget: Arc<FairBudget>, memory: Arc<FairBudget>, tenant: Tenant) -> Self {
        Self(Some(Arc::new(Space { budget, memory, tenant, used: Mutex::default() })))
    }

    /// Reserves space for so many bytes before they come.
    ///
    /// # Errors
    /// [`io::ErrorKind::QuotaExceeded`] where the tenant's share has less.
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

/// Content that is being received.
pub struct SpillBuffer {
    size: u64,
    memory: BytesMut,
    /// The reservation of what is in memory; none without a budget.
    reserved: Option<Reservation>,
    file: Option<Temporary>,
    files: Arc<FairBudget>,
    space: TemporarySpace,
}

/// A temporary file, its place among those that may be open, and its space.
type Temporary = (File, Reservation, TemporarySpace);

impl std::fmt::Debug for SpillBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpillBuffer").field("size", &self.size).finish_non_exhaustive()
    }
}

impl SpillBuffer {
    /// No content yet. It takes this space.
    pub fn new(space: TemporarySpace) -> Self {
        Self { size: 0, memory: BytesMut::new(), reserved: None, file: None, files: files(), space }
    }

    /// The bytes received so far.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// When the temporary file cannot be made or written: [`io::ErrorKind::QuotaExceeded`] when too many are open, or the
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

    /// Reserves so many more bytes of memory, if the part of the tenant's share that is for this has room.
    fn reserve(&mut self, bytes: usize) -> bool {
        let Some(space) = &self.space.0 else { return true };
        if self.reserved.is_none() {
            // Of nothing, for what grows never exceeds the share.
            self.reserved = space.memory.try_reserve(space.tenant, 0);
        }
        self.reserved.as_mut().is_some_and(|reserved| reserved.grow_within(bytes as u64, MEMORY_PART))
    }

    /// The temporary file, with everything in it that was in memory.
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

    /// Takes the content out where it is in memory, with the reservation of that memory.
    pub fn take_memory(&mut self) -> Option<(Bytes, Option<Reservation>)> {
        let memory = self.file.is_none().then(|| std::mem::take(&mut self.memory))?;
        Some((memory.freeze(), self.reserved.take()))
    }

    /// The whole content, wherever it is.
    ///
    /// # Errors
    /// When the temporary file cannot be written or read.
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

/// Content that is being received and hashed.
pub struct Spool {
    hasher: Sha256,
    buffer: SpillBuffer,
}

/// Content that was spooled.
pub struct Spooled {
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256, in lower-case hex.
    pub sha256: String,
    /// Its content.
    pub content: Box<dyn Chunks>,
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool").field("size", &self.size()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Spooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { size, sha256, .. } = self;
        f.debug_struct("Spooled").field("size", size).field("sha256", sha256).finish_non_exhaustive()
    }
}

impl Spool {
    /// No content yet. It takes this space.
    pub fn new(space: TemporarySpace) -> Self {
        Self { hasher: Sha256::default(), buffer: SpillBuffer::new(space) }
    }

    /// The bytes received so far.
    pub const fn size(&self) -> u64 {
        self.buffer.size()
    }

    /// Takes the next piece.
    ///
    /// # Errors
    /// Those of [`SpillBuffer::push`].
    pub async fn push(&mut self, piece: &[u8]) -> io::Result<()> {
        self.hasher.update(piece);
        self.buffer.push(piece).await
    }

    /// The whole content.
    ///
    /// # Errors
    /// When the temporary file cannot be written or read.
    pub async fn finish(self) -> io::Result<Spooled> {
        let Self { hasher, buffer } = self;
        let size = buffer.size();
        Ok(Spooled { size, sha256: digest::hex(&hasher.finalize()), content: buffer.finish().await? })
    }
}

/// Short content, and the reservation of its memory.
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

    async fn spooled(size: usize, piece: usize) -> (Spooled, Vec<u8>) {
        let bytes: Vec<u8> = (0..=250).cycle().take(size).collect();
        let mut spool = Spool::new(TemporarySpace::default());
        for piece in bytes.chunks(piece) {
            spool.push(piece).await.unwrap();
        }
        (spool.finish().await.unwrap(), bytes)
    }

    #[tokio::test]
    async fn a_file_reads_back_as_it_came_on_both_sides_of_the_limit() {
        for (size, piece) in [(0, 1), (1, 1), (IN_MEMORY, 1000), (IN_MEMORY + 1, 1000), (1 << 20, 70_000)] {
            let (mut file, bytes) = spooled(size, piece).await;
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
        // Of which a tenant has half.
        let files = FairBudget::new(4);
        let buffer =
            || SpillBuffer { files: Arc::clone(&files), ..SpillBuffer::new(TemporarySpace::default()) };
        let spool = || Spool { buffer: buffer(), ..Spool::new(TemporarySpace::default()) };
        let long = async || {
            let mut spool = spool();
            spool.push(&[0; IN_MEMORY + 1]).await.map(|()| spool)
        };
        let (first, second) = (long().await.unwrap(), long().await.unwrap().finish().await.unwrap());
        for _ in 0..3 {
            assert_eq!(long().await.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        }
        let mut short = spool();
        short.push(&[0; IN_MEMORY]).await.unwrap();
        drop(second);
        long().await.unwrap().finish().await.unwrap();
        drop(first);
        assert_eq!(files.used(), 0);
    }

    #[tokio::test]
    async fn temporary_files_count_against_the_tenants_share_until_they_are_gone() {
        const MIB: u64 = 1 << 20;
        let (budget, memory) = (FairBudget::new(8 * MIB), FairBudget::new(8 * MIB));
        let piece = vec![0; 1 << 20];
        let spool = async |space: &TemporarySpace, pieces| {
            let mut spool = Spool::new(space.clone());
            for _ in 0..pieces {
                spool.push(&piece).await?;
            }
            spool.finish().await
        };
        // What stays in memory takes nothing of it.
        let space = TemporarySpace::new(Arc::clone(&budget), Arc::clone(&memory), None);
        let mut short = Spool::new(space.clone());
        short.push(&[0; IN_MEMORY]).await.unwrap();
        assert_eq!(budget.used(), 0);
        // Both files of a request share its space, of which some was reserved ahead.
        space.reserve(2 * MIB).unwrap();
        assert_eq!(budget.used(), 2 * MIB);
        let (one, two) = (spool(&space, 2).await.unwrap(), spool(&space, 1).await.unwrap());
        assert_eq!(budget.used(), 3 * MIB);
        let other = TemporarySpace::new(Arc::clone(&budget), Arc::clone(&memory), None);
        assert_eq!(spool(&other, 2).await.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(other.reserve(2 * MIB).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        drop(other);
        drop((space, short, one));
        assert_eq!(budget.used(), 3 * MIB);
        drop(two);
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn short_content_counts_against_the_tenants_memory_and_goes_to_a_file_where_there_is_none() {
        const SIZE: u64 = IN_MEMORY as u64;
        let (disk, memory) = (FairBudget::new(64 << 20), FairBudget::new(16 * SIZE));
        let space = TemporarySpace::new(Arc::clone(&disk), Arc::clone(&memory), None);
        let short = async || {
            let mut spool = Spool::new(space.clone());
            for piece in [0; IN_MEMORY].chunks(1000) {
                spool.push(piece).await.unwrap();
            }
            spool
        };
        // Of which a tenant has half, and short content a quarter of that.
        let (one, two) = (short().await, short().await.finish().await.unwrap());
        assert_eq!((memory.used(), disk.used()), (2 * SIZE, 0));
        let three = short().await;
        assert_eq!((memory.used(), disk.used()), (2 * SIZE, RESERVED_AT_ONCE));
        drop(two);
        assert_eq!(memory.used(), SIZE);
        // What grows too long gives its memory back.
        let mut one = one;
        one.push(&[1]).await.unwrap();
        assert_eq!(memory.used(), 0);
        drop((one, three, space));
        assert_eq!(disk.used(), 0);
    }
}
