//! Opens connections to the file, with their settings.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use rusqlite::{Connection, OpenFlags};
use tracing::Level;

/// The time that a statement waits for another process's lock.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The page cache of a connection, negative for KiB, as in the pragma. SQLite's default of 2 MB is less than
/// a large report looks up.
pub(crate) const CACHE_SIZE: i64 = -(8 << 10);

/// The number of prepared statements that a connection caches.
const STATEMENTS: usize = 128;

/// Opens a connection to the file, which must exist unless `flags` allow its creation.
pub(crate) fn connection(file: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let always = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_URI
        // A connection is never shared between threads.
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(file, always | flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "foreign_keys", "OFF")?;
    // Otherwise SQLite may plan a statement again for each bound value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    if tracing::enabled!(Level::TRACE) {
        trace(&mut connection)?;
    }
    Ok(connection)
}

/// Logs each statement, without its values, when SQLite begins to execute it.
fn trace(connection: &mut Connection) -> rusqlite::Result<()> {
    let file = connection.path().unwrap_or_default().to_owned();
    let log = move |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(_, sql) = event {
            tracing::trace!(file, sql);
        }
    };
    connection.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(log))
}
