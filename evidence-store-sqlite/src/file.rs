//! Detects that the file of an open store, or its write-ahead log, was replaced or removed, for example by
//! restoring a backup under a running server. SQLite does not notice this. It continues to write to files
//! that no longer have a name, and the next start does not find these writes. So the store compares the
//! identity of both files before each transaction, and stops writing if one of them changed.
//!
//! SQLite cannot tell which file a write-ahead log belongs to, and would apply the log of the old file to the
//! new one. So the store renames the log of a replaced file. Files have inodes only on unix, so other systems
//! detect nothing; but Windows does not allow an open file to be replaced.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, Error, ffi};

use crate::address::Address;

/// The suffix of a renamed write-ahead log, before the inode of its file.
const ASIDE: &str = "-wal.replaced-";

/// The device and the inode of a file, if the system has them.
type FileId = Option<(u64, u64)>;

/// An open file and its write-ahead log, with their identities.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The file itself, with links resolved.
    path: PathBuf,
    /// The name by which SQLite opens the file again.
    open_name: PathBuf,
    id: FileId,
    wal: FileId,
    /// The index of the write-ahead log.
    shm: FileId,
}

impl OpenFile {
    /// Identifies the file of a connection that was just opened by this name.
    pub(crate) fn of(connection: &Connection, name: &Path) -> Self {
        let path = connection.path().map(PathBuf::from);
        // The path that SQLite returns is UTF-8.
        let path = path.or_else(|| name.canonicalize().ok()).unwrap_or_else(|| name.to_owned());
        let open_name = Address::renamed(name, &path);
        let id = file_id(&path).ok().flatten();
        Self { path, open_name, id, wal: None, shm: None }
    }

    /// Returns whether a write-ahead log exists, in place or renamed, without its file.
    pub(crate) fn wal_without_file(name: &Path) -> bool {
        let path = Address::path_of(name);
        let Some(file) = path.file_name().filter(|_| !path.exists()) else { return false };
        // It may not be possible to list the directory.
        if beside(&path, "-wal").exists() {
            return true;
        }
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let Ok(files) = directory.unwrap_or(Path::new(".")).read_dir() else { return false };
        let aside = [file.as_encoded_bytes(), ASIDE.as_bytes()].concat();
        files.flatten().any(|found| {
            // An empty log contains no writes.
            let is_empty = found.metadata().is_ok_and(|found| found.len() == 0);
            found.file_name().as_encoded_bytes().starts_with(&aside) && !is_empty
        })
    }

    /// Returns the write-ahead log that was renamed when a file of this inode was replaced, unless it is empty. Systems
    /// reuse inodes, so the log may belong to another file.
    pub(crate) fn left_aside(&self) -> Option<PathBuf> {
        let aside = self.aside_path();
        aside.metadata().is_ok_and(|wal| wal.len() > 0).then_some(aside)
    }

    fn aside_path(&self) -> PathBuf {
        let inode = self.id.map_or(0, |(_, inode)| inode);
        self.beside(&format!("{ASIDE}{inode}"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name by which SQLite opens the file again.
    pub(crate) fn open_name(&self) -> &Path {
        &self.open_name
    }

    /// Returns whether the file is empty and has a write-ahead log. SQLite would delete such a log.
    pub(crate) fn is_empty_with_wal(&self) -> bool {
        // Check in this order: a log that another program creates now belongs to a file that is no longer
        // empty.
        self.beside("-wal").exists() && self.path.metadata().is_ok_and(|file| file.len() == 0)
    }

    /// Identifies the write-ahead log after the connection has opened it. The log exists as long as the
    /// connection.
    pub(crate) fn note_wal(&mut self) {
        let [wal, shm] = ["-wal", "-shm"].map(|part| file_id(&self.beside(part)).ok().flatten());
        (self.wal, self.shm) = (wal, shm);
    }

    /// Fails if the file or its write-ahead log was replaced or removed.
    pub(crate) fn check(&self) -> rusqlite::Result<()> {
        if self.id.is_none() {
            return Ok(());
        }
        let file = self.path.display();
        let reason = match file_id(&self.path) {
            Ok(found) if found == self.id => match self.wal_is_in_place() {
                Ok(true) => return Ok(()),
                Ok(false) => format!(
                    "the write-ahead log '{file}-wal' was removed or replaced while the store was open, and nothing is written \
                     any more: stop the server, which moves what it wrote last into '{file}', and start it again"
                ),
                Err(error) => {
                    format!("'{file}-wal' cannot be read, and nothing is written until it can: {error}")
                }
            },
            Ok(_) => {
                self.put_aside();
                format!(
                    "'{file}' was replaced while the store was open, and nothing is written any more: restart the server to \
                     use the file that is there now"
                )
            }
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => format!(
                "'{file}' was removed while the store was open, and nothing is written until it is back: to restore a backup \
                 instead, stop the server, put the backup there, and start the server"
            ),
            Err(error) => format!("'{file}' cannot be read, and nothing is written until it can: {error}"),
        };
        Err(Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), Some(reason)))
    }

    fn wal_is_in_place(&self) -> io::Result<bool> {
        match file_id(&self.beside("-wal")) {
            _ if self.wal.is_none() => Ok(true),
            Ok(found) => Ok(found == self.wal),
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Renames the write-ahead log and removes its index, if they belong to this store and not to the file
    /// that is there now.
    fn put_aside(&self) {
        let (wal, shm) = (self.beside("-wal"), self.beside("-shm"));
        let is_ours =
            |path: &Path, noted: FileId| noted.is_some() && file_id(path).is_ok_and(|found| found == noted);
        if !is_ours(&wal, self.wal) {
            return;
        }
        let (file, aside) = (self.path.display(), self.aside_path());
        let mut put = std::fs::rename(&wal, &aside);
        if put.is_ok() && is_ours(&shm, self.shm) {
            put = std::fs::remove_file(&shm);
        }
        let log = aside.display();
        match put {
            Ok(()) => {
                tracing::error!(%file, %log, "the file was replaced or removed: its last writes are in this log")
            }
            Err(error) => tracing::error!(
                %file, %error, "the file was replaced or removed, and its log cannot be renamed: move it before the next start"
            ),
        }
    }

    /// Saves the write-ahead log after the last write, with the last connection. Renames the log of a
    /// replaced or removed file, so that it changes no other file. Copies the content of a removed log into
    /// its file.
    pub(crate) fn finish(&self, connection: &Connection) {
        let Err(error) = self.check() else { return };
        tracing::warn!(%error, "the store was closed");
        // A checkpoint into a replaced or removed file would lose the content. A log next to a restored
        // backup would be applied to the backup.
        if file_id(&self.path).is_ok_and(|found| found == self.id) {
            let moved =
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0));
            let file = self.path.display();
            match moved {
                Ok(0) => tracing::info!(%file, "the content of the write-ahead log is in the file"),
                Ok(_) => tracing::error!(%file, "the write-ahead log is in use, and its content is lost"),
                Err(error) => tracing::error!(%file, %error, "the content of the write-ahead log is lost"),
            }
        } else {
            self.put_aside();
        }
    }

    /// Returns the path of a file that SQLite stores beside the database file.
    fn beside(&self, part: &str) -> PathBuf {
        beside(&self.path, part)
    }
}

fn beside(path: &Path, part: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(part);
    path.into()
}

/// Restricts the file to its owner. The file must be new and empty. SQLite gives the log the same
/// permissions.
#[cfg(unix)]
pub(crate) fn make_private(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

#[cfg(not(unix))]
pub(crate) fn make_private(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Returns a lasting identity of a file: its inode and its creation time in nanoseconds, each 0 if the system
/// does not have it. Inodes are reused, and the device number may change with each mount.
pub(crate) fn lasting_id(path: &Path) -> io::Result<(u64, u64)> {
    let made = std::fs::metadata(path)?.created().ok();
    let made = made.and_then(|made| made.duration_since(std::time::UNIX_EPOCH).ok());
    let made = made.and_then(|made| u64::try_from(made.as_nanos()).ok()).unwrap_or_default();
    Ok((file_id(path)?.map_or(0, |(_, inode)| inode), made))
}

/// Logs a warning if other users can read or write the file. It contains hashes of API keys and the content
/// of attachments.
#[cfg(unix)]
pub(crate) fn warn_unless_private(path: &Path) {
    use std::os::unix::fs::MetadataExt;
    if path.metadata().is_ok_and(|file| file.mode() & 0o066 != 0) {
        let file = path.display();
        tracing::warn!(
            "other users can read or write the database file '{file}': run 'chmod 600' on it and on '{file}-wal', or leave it \
             so if they are meant to"
        );
    }
}

#[cfg(not(unix))]
pub(crate) fn warn_unless_private(_: &Path) {}

#[cfg(unix)]
fn file_id(path: &Path) -> io::Result<FileId> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map(|file| Some((file.dev(), file.ino())))
}

#[cfg(not(unix))]
fn file_id(_: &Path) -> io::Result<FileId> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_same_wherever_it_is_moved_and_another_once_it_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let [path, moved] = ["e.db", "moved.db"].map(|name| directory.path().join(name));
        std::fs::write(&path, "one").unwrap();
        let id = lasting_id(&path).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        std::fs::write(&moved, "older").unwrap();
        assert_eq!(lasting_id(&moved).unwrap(), id);
        // Longer than the resolution of file times. The inode may be the same.
        std::thread::sleep(std::time::Duration::from_millis(50));
        std::fs::remove_file(&moved).unwrap();
        std::fs::write(&path, "one").unwrap();
        assert_ne!(lasting_id(&path).unwrap(), id);
    }
}
