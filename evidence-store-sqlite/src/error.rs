//! The errors of opening a store and of later statements.

use std::borrow::Borrow;
use std::path::Path;

use evidence_core::StoreError;
use rusqlite::ffi;

/// An error of opening a store. Each message is one sentence that includes the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is invalid. The message does not repeat it, because it may be the address of another
    /// database, with a password.
    #[error("the address is not that of an SQLite file: write it as sqlite://evidence.db")]
    InvalidUrl,
    /// The path of the file is not UTF-8.
    #[error("'{file}' is not UTF-8: give the file and its directories names that are")]
    PathNotText {
        /// The path, with invalid bytes replaced.
        file: String,
    },
    /// The address names an in-memory database.
    #[error(
        "a database in memory cannot be shared by the store's connections: name a file, as in sqlite://evidence.db"
    )]
    InMemory,
    /// The file cannot be opened.
    #[error(
        "'{file}' cannot be opened: check that its directory exists and may be written to, and that the disk has room: {}",
        message(.source)
    )]
    Open {
        /// The file.
        file: String,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The file is missing or empty, but the log of its last writes exists.
    #[error(
        "'{file}' is missing or empty, and its write-ahead log is there ('{file}-wal' or '{file}-wal.replaced-…'): put the \
         file back that it is the log of; or move the log elsewhere, to use a backup or to begin again"
    )]
    Lost {
        /// The file.
        file: String,
    },
    /// A renamed write-ahead log may belong to the file.
    #[error(
        "'{wal}' is a log of writes that was put aside when '{file}' lost its place: if '{file}' is that file, put back, \
         move the log to '{file}-wal' if nothing is there; if it is another, as a backup, move the log elsewhere"
    )]
    WalAside {
        /// The file.
        file: String,
        /// The log.
        wal: String,
    },
    /// The file is not an SQLite database.
    #[error("'{file}' is no SQLite file: name another one, which is made if it is not there")]
    NotADatabase {
        /// The file.
        file: String,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The tables cannot be migrated.
    #[error(
        "the tables cannot be brought to version {version} ({}): check that the disk has room and that no other program \
         is at the file; the next start goes on from here",
        message(.source)
    )]
    Migrate {
        /// The version that failed.
        version: i64,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// The tables cannot be rederived from the ledgers.
    #[error(
        "the tables of version {version} cannot be made from the ledgers ({source}): check them with fsck; the next start \
         goes on from here"
    )]
    Rederive {
        /// The version that failed.
        version: i64,
        /// The error of the rederivation.
        source: StoreError,
    },
    /// SQLite cannot store the file as safely as the store requires.
    #[error(
        "'{file}' cannot be kept safely: SQLite goes on with {setting} = {found}; put it on a local disk, and open it \
         without options that change how it is locked"
    )]
    Unsafe {
        /// The file.
        file: String,
        /// The setting that SQLite did not accept.
        setting: &'static str,
        /// Its actual value.
        found: String,
    },
    /// The system cannot start a thread for the writer.
    #[error("no thread could be started: check how many the system allows: {source}")]
    Thread {
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is empty or is not an evidence store.
    #[error("'{file}' has no tables of an evidence store: check the address, or make a store there first")]
    NoStore {
        /// The file.
        file: String,
    },
    /// The tables must be migrated first.
    #[error(
        "the file has tables of version {found} and this program needs {known}: start a server of this version, which \
         brings them up to date"
    )]
    OlderSchema {
        /// The version found.
        found: i64,
        /// The version that this program needs.
        known: i64,
    },
    /// The file was written by a later program.
    #[error("the file has tables of version {found} and this program knows {known}: use a newer program")]
    NewerSchema {
        /// The version found.
        found: i64,
        /// The latest version that this program knows.
        known: i64,
    },
}

impl ConnectError {
    /// Returns the error for a failed connection to this file.
    pub(crate) fn opening(file: &Path, source: rusqlite::Error) -> Self {
        let file = file.display().to_string();
        match primary_code(&source) {
            // SQLite parses addresses itself, and has no specific code for an invalid one.
            Some(ffi::SQLITE_ERROR) => Self::InvalidUrl,
            Some(ffi::SQLITE_NOTADB) => Self::NotADatabase { file, source },
            _ => Self::Open { file, source },
        }
    }
}

/// Returns the message of SQLite or of the system, without the driver's wording.
fn message(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        other => other.to_string(),
    }
}

/// Returns SQLite's primary result code, if the error comes from SQLite.
pub(crate) fn primary_code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|failure| failure.extended_code & 0xff)
}

/// Returns whether a statement names a table or column that no longer exists, because a newer program has
/// dropped it. SQLite has no specific code for this.
fn is_gone(error: &rusqlite::Error) -> bool {
    const GONE: [&str; 4] = ["no such table", "no such column", "has no column named", "no such index"];
    let said = match error {
        rusqlite::Error::SqliteFailure(failure, Some(said)) if failure.extended_code == ffi::SQLITE_ERROR => {
            said
        }
        rusqlite::Error::SqlInputError { msg, .. } => msg,
        _ => return false,
    };
    GONE.iter().any(|gone| said.contains(gone))
}

/// Returns whether a single write of the group may be the cause, so that splitting the group helps.
pub(crate) fn is_row_error(error: &rusqlite::Error) -> bool {
    !is_gone(error) && primary_code(error).is_none_or(|code| !ENVIRONMENTAL.contains(&code))
}

/// Result codes that indicate a problem of the environment and not a defect.
const ENVIRONMENTAL: [i32; 9] = [
    ffi::SQLITE_BUSY,
    ffi::SQLITE_LOCKED,
    ffi::SQLITE_NOMEM,
    ffi::SQLITE_READONLY,
    ffi::SQLITE_INTERRUPT,
    ffi::SQLITE_IOERR,
    ffi::SQLITE_FULL,
    ffi::SQLITE_CANTOPEN,
    ffi::SQLITE_PROTOCOL,
];

const DAMAGED: [i32; 2] = [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB];

/// The codes for a name or a number that another row already has.
const UNIQUE_VIOLATIONS: [i32; 2] = [ffi::SQLITE_CONSTRAINT_UNIQUE, ffi::SQLITE_CONSTRAINT_PRIMARYKEY];

/// Converts the error of a failed statement to a [`StoreError`]. Accepts an owned or a shared error, which
/// becomes the source.
pub(crate) fn store_error<E>(error: E) -> StoreError
where
    E: Borrow<rusqlite::Error> + std::error::Error + Send + Sync + 'static,
{
    use rusqlite::Error::{FromSqlConversionFailure, IntegralValueOutOfRange, InvalidColumnType, Utf8Error};
    match error.borrow() {
        FromSqlConversionFailure(..)
        | IntegralValueOutOfRange(..)
        | InvalidColumnType(..)
        | Utf8Error(..) => {
            return StoreError::corrupt(error);
        }
        failure
            if failure.sqlite_error().is_some_and(|code| UNIQUE_VIOLATIONS.contains(&code.extended_code)) =>
        {
            return StoreError::Conflict;
        }
        missing if is_gone(missing) => return StoreError::Unavailable(error.into()),
        _ => {}
    }
    match primary_code(error.borrow()) {
        Some(code) if ENVIRONMENTAL.contains(&code) => StoreError::Unavailable(error.into()),
        Some(code) if DAMAGED.contains(&code) => StoreError::corrupt(error),
        _ => StoreError::Failed(error.into()),
    }
}

/// The error after a query has waited for a connection until its timeout.
#[derive(Debug, thiserror::Error)]
#[error("no connection of the store came free in time")]
pub(crate) struct Busy;

impl From<Busy> for StoreError {
    fn from(busy: Busy) -> Self {
        Self::Unavailable(busy.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    fn fault(sql: &str) -> StoreError {
        store_error(Connection::open_in_memory().unwrap().execute_batch(sql).unwrap_err())
    }

    #[test]
    fn the_machine_is_told_from_a_lost_race_and_from_a_defect() {
        let full = "PRAGMA max_page_count = 3; CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(99999))";
        assert!(matches!(fault(full), StoreError::Unavailable(_)));
        for gone in [
            "SELECT * FROM t",
            "CREATE TABLE t (x); SELECT y FROM t",
            "CREATE TABLE t (x); INSERT INTO t (y) VALUES (1)",
        ] {
            assert!(matches!(fault(gone), StoreError::Unavailable(_)), "{gone}");
        }
        let read_only = "PRAGMA query_only = ON; CREATE TABLE t (x)";
        assert!(matches!(fault(read_only), StoreError::Unavailable(_)));
        let taken = "CREATE TABLE t (x UNIQUE); INSERT INTO t VALUES (1), (1)";
        assert!(matches!(fault(taken), StoreError::Conflict));
        let missing = "CREATE TABLE t (x NOT NULL); INSERT INTO t VALUES (NULL)";
        assert!(matches!(fault(missing), StoreError::Failed(_)));
    }
}
