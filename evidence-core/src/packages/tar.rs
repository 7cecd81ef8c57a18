//! The frame of a tar (POSIX ustar) around files that are written while they are sent.

use crate::error::{Error, Result};
use crate::time::Timestamp;

/// The size of a block: files are padded to whole ones.
const BLOCK: u64 = 512;

/// The end of a tar: two empty blocks.
pub(super) const END: [u8; 1024] = [0; 1024];

/// Returns the header of a file that only its owner can write.
///
/// # Errors
/// [`Error::Internal`] if the path is too long for a tar.
pub(super) fn header(path: &str, size: u64, at: Timestamp) -> Result<Vec<u8>> {
    let mut header = tar::Header::new_ustar();
    let named = header.set_path(path);
    named.map_err(|source| Error::Internal {
        what: "a file of a package has a bad path",
        source: source.into(),
    })?;
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(at.as_micros().max(0).unsigned_abs() / 1_000_000);
    header.set_cksum();
    Ok(header.as_bytes().to_vec())
}

/// Returns the zeros that fill the last block of a file of this size.
pub(super) fn padding(size: u64) -> &'static [u8] {
    let missing = size.next_multiple_of(BLOCK) - size;
    usize::try_from(missing).map_or(&[], |missing| &END[..missing])
}
