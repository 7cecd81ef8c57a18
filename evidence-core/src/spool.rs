//! Content whose digest is wanted before it is kept: hashed as it comes, held in memory while it is short and in an unnamed
//! temporary file from then on, so that many large files at once cost disk rather than memory. How many such files are open
//! at a time is the host's to say ([`limit_files`]): each takes a descriptor. What lies in them counts against a budget that
//! tenants share ([`TemporarySpace`]).

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

/// Content up to this size stays in memory.
const IN_MEMORY: usize = 64 << 10;
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
/// is gone. Without a budget, which is the default, the disk is the limit.
#[derive(Debug, Clone, Default)]
pub struct TemporarySpace(Option<Arc<Space>>);

#[derive(Debug)]
struct Space {
    budget: Arc<FairBudget>,
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
    /// Temporary space within this budget, on behalf of this tenant.
    pub fn new(budget: Arc<FairBudget>, tenant: Tenant) -> Self {
        Self(Some(Arc::new(Space { budget, tenant, used: Mutex::default() })))
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

/// Content that is being spooled.
pub struct Spool {
    hasher: Sha256,
    size: u64,
    memory: BytesMut,
    file: Option<Temporary>,
    files: Arc<FairBudget>,
    space: TemporarySpace,
}

/// A temporary file, its place among those that may be open, and its space.
type Temporary = (File, Reservation, TemporarySpace);

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
        f.debug_struct("Spool").field("size", &self.size).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Spooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { size, sha256, .. } = self;
        f.debug_struct("Spooled").field("size", size).field("sha256", sha256).finish_non_exhaustive()
    }
}

impl Spool {
    /// No content yet. What does not fit memory takes this space.
    pub fn new(space: TemporarySpace) -> Self {
        let (hasher, memory) = (Sha256::default(), BytesMut::new());
        Self { hasher, size: 0, memory, file: None, files: files(), space }
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
        self.hasher.update(piece);
        self.size += piece.len() as u64;
        if self.file.is_none() && self.memory.len() + piece.len() <= IN_MEMORY {
            self.memory.extend_from_slice(piece);
            return Ok(());
        }
        let file = self.file().await?;
        file.2.take(piece.len() as u64)?;
        file.0.write_all(piece).await
    }

    /// The temporary file, with everything in it that was in memory.
    async fn file(&mut self) -> io::Result<&mut Temporary> {
        let file = match self.file.take() {
            Some(file) => file,
            None => {
                self.space.take(self.memory.len() as u64)?;
                let mut file = temporary(&self.files, self.space.clone()).await?;
                file.0.write_all(&std::mem::take(&mut self.memory)).await?;
                file
            }
        };
        Ok(self.file.insert(file))
    }

    /// The whole content.
    ///
    /// # Errors
    /// When the temporary file cannot be written or read.
    pub async fn finish(self) -> io::Result<Spooled> {
        let Self { hasher, size, memory, file, .. } = self;
        let content: Box<dyn Chunks> = match file {
            None => Box::new(Whole::new(memory)),
            Some(mut file) => {
                file.0.flush().await?;
                file.0.seek(SeekFrom::Start(0)).await?;
                Box::new(OnDisk(file))
            }
        };
        Ok(Spooled { size, sha256: digest::hex(&hasher.finalize()), content })
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
        let spool = || Spool { files: Arc::clone(&files), ..Spool::new(TemporarySpace::default()) };
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
        let budget = FairBudget::new(8 * MIB);
        let piece = vec![0; 1 << 20];
        let spool = async |space: &TemporarySpace, pieces| {
            let mut spool = Spool::new(space.clone());
            for _ in 0..pieces {
                spool.push(&piece).await?;
            }
            spool.finish().await
        };
        // What stays in memory takes nothing.
        let space = TemporarySpace::new(Arc::clone(&budget), None);
        let mut short = Spool::new(space.clone());
        short.push(&[0; IN_MEMORY]).await.unwrap();
        assert_eq!(budget.used(), 0);
        // Both files of a request share its space, of which some was reserved ahead.
        space.reserve(2 * MIB).unwrap();
        assert_eq!(budget.used(), 2 * MIB);
        let (one, two) = (spool(&space, 2).await.unwrap(), spool(&space, 1).await.unwrap());
        assert_eq!(budget.used(), 3 * MIB);
        let other = TemporarySpace::new(Arc::clone(&budget), None);
        assert_eq!(spool(&other, 2).await.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(other.reserve(2 * MIB).unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        drop(other);
        drop((space, short, one));
        assert_eq!(budget.used(), 3 * MIB);
        drop(two);
        assert_eq!(budget.used(), 0);
    }
}
