//! A scratch database with the store attached. The scratch database is first on its connection, so that the
//! statements that write rows find its tables by their plain names.

use std::path::Path;
use std::time::Duration;

use evidence_core::store::StoreResult;
use evidence_store_sql::migrate::{Migration, latest};
use evidence_store_sql::{Cell, Dialect, GroupRows, Row, ScratchSession, Value};
use rusqlite::{Connection, OpenFlags};

use crate::address::Address;
use crate::bind::{execute, rows};
use crate::connection::{BUSY_TIMEOUT, connection};
use crate::error::store_error;
use crate::last_write::LastWrite;
use crate::steps::make;

/// The maximum time that readers may delay the reset of the write-ahead log. Writers wait meanwhile.
const CHECKPOINT_TIMEOUT: Duration = Duration::from_millis(50);

/// A scratch database, a temporary file that SQLite deletes, with the store attached as `stored`.
#[derive(Debug)]
pub struct ScratchDatabase {
    connection: Connection,
    migrations: &'static [Migration],
    last_write: LastWrite,
}

impl ScratchDatabase {
    /// Creates the scratch database beside the store in `file`.
    pub(crate) fn open(file: &Path, migrations: &'static [Migration]) -> rusqlite::Result<Self> {
        let mut connection = connection(Path::new(""), OpenFlags::SQLITE_OPEN_CREATE)?;
        make(&mut connection, migrations)?;
        connection.execute("ATTACH DATABASE $1 AS stored", [file.display().to_string()])?;
        connection.execute_batch("PRAGMA stored.synchronous = FULL")?;
        Ok(Self { connection, migrations, last_write: LastWrite::beside(&Address::path_of(file)) })
    }
}

/// Runs a future that never waits for anything but its own thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(future).expect("no statement of SQLite is waited for")
}

/// Returns a key that matches no row, because sessions do not bind organizations by id.
fn no_key(_: evidence_core::id::Id) -> rusqlite::Result<i64> {
    Ok(-1)
}

impl ScratchSession for ScratchDatabase {
    const DIALECT: Dialect = Dialect::Sqlite;

    fn stored(&self) -> &str {
        "stored."
    }

    fn scratch(&self) -> &str {
        "main."
    }

    fn version(&self) -> i64 {
        latest(self.migrations)
    }

    async fn rows(&mut self, sql: &str, values: Vec<Value>) -> StoreResult<Vec<Row>> {
        rows(&self.connection, sql, &values, no_key).map_err(store_error)
    }

    async fn execute(&mut self, sql: &str) -> StoreResult<()> {
        self.connection.execute_batch(sql).map_err(store_error)
    }

    async fn write(&mut self, org: &Cell, written: GroupRows) -> StoreResult<()> {
        let key = if let Cell::Int(key) = org { *key } else { -1 };
        for (sql, values) in written.corrections("main.") {
            execute(&self.connection, &sql, &[values], |_| Ok(key)).map_err(store_error)?;
        }
        for (table, rows) in written.tables() {
            execute(&self.connection, table.sqlite(), rows, |_| Ok(key)).map_err(store_error)?;
        }
        Ok(())
    }

    async fn losses(&mut self) -> StoreResult<Vec<String>> {
        self.last_write.losses(&self.connection, "stored").map_err(store_error)
    }

    async fn checkpoint_wal(&mut self) -> StoreResult<()> {
        self.connection.busy_timeout(CHECKPOINT_TIMEOUT).map_err(store_error)?;
        let relieved = rows(&self.connection, "PRAGMA stored.wal_checkpoint(RESTART)", &[], no_key);
        self.connection.busy_timeout(BUSY_TIMEOUT).map_err(store_error)?;
        relieved.map(drop).map_err(store_error)
    }

    async fn end(self) -> StoreResult<()> {
        Ok(())
    }
}
