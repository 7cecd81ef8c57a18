//! What can go wrong: opening a store, and every later statement.

use std::borrow::Borrow;

use evidence_core::StoreError;
use sqlx::error::{DatabaseError, ErrorKind};

/// Why a store could not be opened, each in one sentence that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address cannot be read.
    #[error("'{url}' is no address of an SQLite file: write it as sqlite://evidence.db")]
    BadUrl {
        /// The address.
        url: String,
        /// What is wrong with it.
        source: sqlx::Error,
    },
    /// The address names a database in memory.
    #[error(
        "a database in memory cannot be shared by the store's connections: name a file, as in sqlite://evidence.db"
    )]
    InMemory,
    /// The file cannot be opened.
    #[error(
        "'{file}' cannot be opened: check that its directory exists and may be written to, and that the disk has room: {}",
        said(.source)
    )]
    Open {
        /// The file.
        file: String,
        /// Why not.
        source: sqlx::Error,
    },
    /// The file is something else.
    #[error("'{file}' is no SQLite file: name another one, which is made if it is not there")]
    NotADatabase {
        /// The file.
        file: String,
        /// What SQLite said.
        source: sqlx::Error,
    },
    /// The tables cannot be brought up to date.
    #[error(
        "the tables cannot be brought to version {version} ({}), and nothing was changed: check that the disk has room \
         and that no other program is at the file",
        said(.source)
    )]
    Migrate {
        /// The version that failed.
        version: i64,
        /// Why.
        source: sqlx::Error,
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
    /// Why no connection was made to this file.
    pub(crate) fn opening(file: &str, source: sqlx::Error) -> Self {
        let file = file.to_owned();
        match &source {
            sqlx::Error::Database(database) if primary_code(&**database) == NOT_A_DATABASE => {
                Self::NotADatabase { file, source }
            }
            _ => Self::Open { file, source },
        }
    }
}

/// What SQLite or the system says, without the driver's words around it.
fn said(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |database| database.message().to_owned())
}

/// The code without its details; 0 where there is none.
fn primary_code(error: &dyn DatabaseError) -> i32 {
    error.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or_default() & 0xff
}

/// SQLite's primary result codes that tell of the machine rather than of a defect: BUSY, LOCKED, NOMEM, READONLY,
/// INTERRUPT, IOERR, FULL, CANTOPEN, PROTOCOL.
const MACHINE: [i32; 9] = [5, 6, 7, 8, 9, 10, 13, 14, 15];

/// NOTADB.
const NOT_A_DATABASE: i32 = 26;

/// CORRUPT and NOTADB.
const DAMAGED: [i32; 2] = [11, NOT_A_DATABASE];

/// Says what a failed statement means to a caller of the store. Takes the error or a shared one, as its source.
pub(crate) fn store_error<E>(error: E) -> StoreError
where
    E: Borrow<sqlx::Error> + std::error::Error + Send + Sync + 'static,
{
    match error.borrow() {
        sqlx::Error::Database(database) if database.kind() == ErrorKind::UniqueViolation => {
            StoreError::Conflict
        }
        sqlx::Error::Database(database) => {
            let code = primary_code(&**database);
            if MACHINE.contains(&code) {
                StoreError::Unavailable(error.into())
            } else if DAMAGED.contains(&code) {
                StoreError::corrupt(error)
            } else {
                StoreError::Failed(error.into())
            }
        }
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed => StoreError::Unavailable(error.into()),
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => StoreError::corrupt(error),
        _ => StoreError::Failed(error.into()),
    }
}

/// A task of the store has ended: the store was closed, or its runtime was.
#[derive(Debug, thiserror::Error)]
#[error("the store was closed")]
pub(crate) struct TaskEnded;

impl From<TaskEnded> for StoreError {
    fn from(ended: TaskEnded) -> Self {
        Self::Unavailable(ended.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::{Connection, SqliteConnection};

    async fn fault(sql: &'static str) -> StoreError {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        store_error(sqlx::raw_sql(sql).execute(&mut connection).await.unwrap_err())
    }

    #[tokio::test]
    async fn the_machine_is_told_from_a_lost_race_and_from_a_defect() {
        let full = "PRAGMA max_page_count = 3; CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(99999))";
        assert!(matches!(fault(full).await, StoreError::Unavailable(_)));
        let read_only = "PRAGMA query_only = ON; CREATE TABLE t (x)";
        assert!(matches!(fault(read_only).await, StoreError::Unavailable(_)));
        let taken = "CREATE TABLE t (x UNIQUE); INSERT INTO t VALUES (1), (1)";
        assert!(matches!(fault(taken).await, StoreError::Conflict));
        let missing = "CREATE TABLE t (x NOT NULL); INSERT INTO t VALUES (NULL)";
        assert!(matches!(fault(missing).await, StoreError::Failed(_)));
    }
}
