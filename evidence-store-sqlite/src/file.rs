//! The file that a store was opened in, told from another that takes its place: as when a backup is put back under a
//! running server. What is written then would be in a file that has no name any more, and the write-ahead log
//! beside it would be taken for that of the other file at the next start.
//!
//! SQLite does not tell whose a write-ahead log is. So one is never left where another file is: it is put aside as soon as
//! that is noticed. When the writer ends, what the log has is moved into its own file where that has another name by now;
//! else the log is left aside, for it is all that is left of what was written last. Systems other than unix do not number
//! files: there nothing is noticed. Windows lets nobody replace a file that is open. Whether a file has a name is known on
//! Linux.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rusqlite::{Connection, Error, ffi};

use crate::address::Address;

/// How the system numbers a file, where it does.
type FileId = Option<(u64, u64)>;

/// A file, and how the system numbers it.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// The file itself, whatever links led there.
    path: PathBuf,
    /// What SQLite is told to open it again.
    open_name: PathBuf,
    id: FileId,
    /// Of the write-ahead log, and of its index.
    wal: FileId,
    shm: FileId,
    /// The file by whatever name it has.
    handle: Handle,
    /// Where the write-ahead log was put since another file is in its file's place: it is not used any more.
    aside: OnceLock<PathBuf>,
}

impl OpenFile {
    /// The file of a connection that was just made by this name.
    pub(crate) fn of(connection: &Connection, name: &Path) -> Self {
        let path = connection.path().map(PathBuf::from);
        // SQLite's is text.
        let path = path.or_else(|| name.canonicalize().ok()).unwrap_or_else(|| name.to_owned());
        let open_name = Address::renamed(name, &path);
        let id = file_id(&path).ok().flatten();
        let handle = Handle::of(&path);
        Self { path, open_name, id, wal: None, shm: None, handle, aside: OnceLock::new() }
    }

    /// Whether there is no file by this name, and a write-ahead log of one.
    pub(crate) fn wal_without_file(name: &Path) -> bool {
        let path = Address::path_of(name);
        !path.exists() && beside(&path, "-wal").exists()
    }

    /// The write-ahead log that was put aside for a file of this inode, if it has anything. Systems give the inode of a
    /// file that is gone to another: whose the log is, is not known.
    pub(crate) fn left_aside(&self) -> Option<PathBuf> {
        let aside = self.aside_path();
        aside.metadata().is_ok_and(|wal| wal.len() > 0).then_some(aside)
    }

    fn aside_path(&self) -> PathBuf {
        let inode = self.id.map_or(0, |(_, inode)| inode);
        self.beside(&format!("-wal.replaced-{inode}"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What SQLite is told to open it again.
    pub(crate) fn open_name(&self) -> &Path {
        &self.open_name
    }

    /// Whether the file is empty and has a write-ahead log, which SQLite would remove.
    pub(crate) fn is_empty_with_wal(&self) -> bool {
        // In this order: a log that another program begins now is that of a file which is not empty any more.
        self.beside("-wal").exists() && self.path.metadata().is_ok_and(|file| file.len() == 0)
    }

    /// Notes that the connection has opened the write-ahead log.
    pub(crate) fn note_wal(&mut self) {
        let [wal, shm] = ["-wal", "-shm"].map(|part| file_id(&self.beside(part)).ok().flatten());
        (self.wal, self.shm) = (wal, shm);
    }

    /// Fails where another file is in its place, or was, or none is.
    pub(crate) fn check(&self) -> rusqlite::Result<()> {
        if self.id.is_none() {
            return Ok(());
        }
        let file = self.path.display();
        let replaced = || {
            format!(
                "'{file}' was replaced while the store was open, and nothing is written any more: start the server anew, \
                 which then uses the file that is there"
            )
        };
        let what = match file_id(&self.path) {
            _ if self.aside.get().is_some() => replaced(),
            Ok(found) if found == self.id => return Ok(()),
            Ok(_) => {
                self.aside.get_or_init(|| self.put_aside());
                replaced()
            }
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => format!(
                "'{file}' was removed while the store was open, and nothing is written until it is back: to use a backup \
                 instead, stop the server, put the backup there, and start the server anew"
            ),
            Err(error) => {
                format!("'{file}' cannot be looked at, and nothing is written until it can: {error}")
            }
        };
        Err(Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), Some(what)))
    }

    /// Takes the write-ahead log and its index from where the other file's would be, as far as they are this file's.
    fn put_aside(&self) -> PathBuf {
        let (wal, shm) = (self.beside("-wal"), self.beside("-shm"));
        let aside = self.aside_path();
        let is =
            |path: &Path, noted: FileId| noted.is_some() && file_id(path).is_ok_and(|found| found == noted);
        let wal_is_there = is(&wal, self.wal);
        let mut put = if wal_is_there { std::fs::rename(&wal, &aside) } else { Ok(()) };
        if put.is_ok() && is(&shm, self.shm) {
            put = std::fs::remove_file(&shm);
        }
        let (file, aside_at) = (self.path.display(), aside.display());
        match put {
            Ok(()) if wal_is_there => {
                tracing::warn!(%file, aside = %aside_at, "a file has lost its place, and its log was put aside")
            }
            Ok(()) => {
                tracing::warn!(%file, "a file has lost its place, and its log is no longer beside it");
            }
            Err(error) => tracing::error!(
                %file, %error, "a file has lost its place, and its log cannot be put aside: move it before a start"
            ),
        }
        aside
    }

    /// Where the file has lost its place: moves what its write-ahead log has into it, where it has another name, so that it
    /// is whole and the log empty; else puts the log aside. The other connections are closed.
    pub(crate) fn finish_replaced(&self, connection: &Connection) {
        if self.check().is_ok() {
            return;
        }
        let file = self.path.display();
        if !self.handle.has_a_name() {
            // What is moved into a file without a name is lost.
            self.aside.get_or_init(|| self.put_aside());
            return;
        }
        match connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0)) {
            Ok(0) => {
                let aside =
                    self.aside.get().filter(|aside| file_id(aside).is_ok_and(|found| found == self.wal));
                if let Some(Err(error)) = aside.map(std::fs::remove_file) {
                    tracing::warn!(%file, %error, "the log of a file that was replaced is left, and empty");
                }
            }
            Ok(_) => {
                tracing::warn!(%file, "the log of a file that has lost its place is in use and left as it is")
            }
            Err(error) => {
                tracing::warn!(%file, %error, "the log of a file that has lost its place is left as it is")
            }
        }
    }

    /// The path of what SQLite keeps beside the file.
    fn beside(&self, part: &str) -> PathBuf {
        beside(&self.path, part)
    }
}

fn beside(path: &Path, part: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(part);
    path.into()
}

/// A file that is not opened to be read or written: to close that would end the locks that SQLite has on it.
#[derive(Debug)]
struct Handle {
    #[cfg(target_os = "linux")]
    file: Option<std::os::fd::OwnedFd>,
}

#[cfg(target_os = "linux")]
impl Handle {
    fn of(path: &Path) -> Self {
        use rustix::fs::{Mode, OFlags, open};
        Self { file: open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok() }
    }

    /// Whether the file is known to be in a directory.
    fn has_a_name(&self) -> bool {
        self.file.as_ref().is_some_and(|file| rustix::fs::fstat(file).is_ok_and(|stat| stat.st_nlink > 0))
    }
}

#[cfg(not(target_os = "linux"))]
impl Handle {
    fn of(_: &Path) -> Self {
        Self {}
    }

    fn has_a_name(&self) -> bool {
        false
    }
}

#[cfg(unix)]
pub(crate) fn file_id(path: &Path) -> io::Result<FileId> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).map(|file| Some((file.dev(), file.ino())))
}

#[cfg(not(unix))]
pub(crate) fn file_id(_: &Path) -> io::Result<FileId> {
    Ok(None)
}
