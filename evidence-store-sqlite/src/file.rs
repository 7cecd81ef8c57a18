//! The file that a store was opened in, told from another that takes its place: as when a backup is put back under a
//! running server. What is written then would be in a file that has no name any more.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, Error, ffi};

/// A file, and how the system numbers it.
#[derive(Debug, Clone)]
pub(crate) struct OpenFile {
    path: PathBuf,
    number: Option<(u64, u64)>,
}

impl OpenFile {
    /// The file of a connection.
    pub(crate) fn of(connection: &Connection) -> Self {
        let path = PathBuf::from(connection.path().unwrap_or_default());
        let number = number(&path);
        Self { path, number }
    }

    /// Fails where another file is in its place, or none.
    pub(crate) fn check(&self) -> rusqlite::Result<()> {
        if self.number.is_none() || self.number == number(&self.path) {
            return Ok(());
        }
        let file = self.path.display();
        let replaced =
            format!("'{file}' is not the file any more that the store was opened in: start the server anew");
        Err(Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), Some(replaced)))
    }
}

#[cfg(unix)]
fn number(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn number(_: &Path) -> Option<(u64, u64)> {
    None
}
