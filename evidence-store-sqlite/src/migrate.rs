//! Migrates the tables step by step: by statements, by rederiving tables from the ledgers, and by building
//! indexes. Each version names the oldest program that may write beside it. Every write transaction checks
//! this, so an older program that is still running stops writing. An interrupted migration continues at the
//! next start of a program.

use std::path::Path;
use std::time::Duration;

use evidence_core::store::StoreResult;
use evidence_store_sql::migrate::{Migration, Rederivation, Step, latest, writers_are_consistent};
use rusqlite::Connection;

use crate::connection::BUSY_TIMEOUT;
use crate::error::{ConnectError, store_error};
use crate::scratch::{ScratchDatabase, block_on};
use crate::steps::{DONE, TABLE, advance};

/// The migrations up to the current version.
pub(crate) static MIGRATIONS: [Migration; 1] =
    [Migration { min_writer_version: 1, steps: &[Step::Sql(include_str!("../migrations/0001_first.sql"))] }];

const _: () = assert!(
    writers_are_consistent(&MIGRATIONS),
    "a version lets programs write that its tables are not made for"
);

const TABLE_EXISTS: &str =
    "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_evidence_migrations')";

/// Selects the last version that was begun, the last that is done, and the oldest whose programs may write.
const VERSION: &str = "
    SELECT coalesce(max(version), 0), coalesce(max(version) FILTER (WHERE done), 0), coalesce(max(min_writer_version), 0)
    FROM _evidence_migrations";

const BEHIND: &str = "SELECT version FROM _evidence_migrations WHERE NOT done";

/// Selects the oldest version whose programs may write.
pub(crate) const MIN_WRITER_VERSION: &str =
    "SELECT coalesce(max(min_writer_version), 0) FROM _evidence_migrations";

/// The time that a step waits for the write lock. Other programs write meanwhile, repeatedly.
const TURN: Duration = Duration::from_secs(60);

/// Returns whether programs with these migrations may write to the store of this connection.
pub(crate) fn may_write(connection: &Connection, migrations: &[Migration]) -> rusqlite::Result<bool> {
    let min_writer: i64 = connection.prepare_cached(MIN_WRITER_VERSION)?.query_row([], |row| row.get(0))?;
    Ok(min_writer <= latest(migrations))
}

/// Checks that the file is a store and needs no migration.
pub(crate) fn expect_migrated(
    connection: &Connection,
    file: &Path,
    migrations: &[Migration],
) -> Result<(), ConnectError> {
    let failed = |source| ConnectError::opening(file, source);
    if !connection.query_row(TABLE_EXISTS, [], |row| row.get::<_, bool>(0)).map_err(failed)? {
        return Err(ConnectError::NoStore { file: file.display().to_string() });
    }
    let (found, known) = (migrated(connection, migrations, failed)?, latest(migrations));
    if found < known { Err(ConnectError::OlderSchema { found, known }) } else { Ok(()) }
}

/// Returns the last completed version. Tables of a newer version are acceptable unless the newer program
/// excludes this one from writing.
fn migrated(
    connection: &Connection,
    migrations: &[Migration],
    failed: impl FnOnce(rusqlite::Error) -> ConnectError,
) -> Result<i64, ConnectError> {
    let version = connection.query_row(VERSION, [], |row| row.try_into());
    let ((found, done, min_writer), known): ((i64, i64, i64), _) =
        (version.map_err(failed)?, latest(migrations));
    if min_writer > known { Err(ConnectError::NewerSchema { found, known }) } else { Ok(done) }
}

/// Migrates the tables of the store in `file`, over a connection to it.
pub(crate) fn migrate(
    connection: &mut Connection,
    file: &Path,
    migrations: &'static [Migration],
) -> Result<(), ConnectError> {
    let failed = |version| move |source| ConnectError::Migrate { version, source };
    connection.busy_timeout(TURN).map_err(failed(0))?;
    connection.execute_batch(TABLE).map_err(failed(0))?;
    let known = latest(migrations);
    if migrated(connection, migrations, failed(0))? < known {
        for (version, migration) in (1..).zip(migrations) {
            advance(connection, version, migration).map_err(failed(version))?;
        }
        let due = due(connection, migrations).map_err(failed(known))?;
        if due.tables.is_empty() {
            connection.execute(DONE, [known]).map_err(failed(known))?;
        } else {
            rederive(file, migrations, &due)
                .map_err(|source| ConnectError::Rederive { version: known, source })?;
        }
    }
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed(known))
}

/// Returns the tables to rederive for all versions that are not done, in the form of the latest version.
fn due(connection: &Connection, migrations: &[Migration]) -> rusqlite::Result<Rederivation> {
    let behind: Vec<i64> =
        connection.prepare(BEHIND)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(Rederivation::due(migrations, &behind))
}

/// Rederives tables from the ledgers. The work waits for nothing but this thread.
fn rederive(file: &Path, migrations: &'static [Migration], due: &Rederivation) -> StoreResult<()> {
    let session = ScratchDatabase::open(file, migrations).map_err(store_error)?;
    block_on(due.run(session))
}

#[cfg(test)]
mod tests;
