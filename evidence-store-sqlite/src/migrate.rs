//! Migrates the tables step by step: by statements, by rederiving tables from the ledgers, and by building
//! indexes. Each version names the oldest program that may write beside it. Every write transaction checks
//! this, so an older program that is still running stops writing. An interrupted migration continues at the
//! next start of a program.

use std::path::Path;
use std::time::Duration;

use evidence_core::store::StoreResult;
use evidence_store_sql::migrate::{Migration, Rederivation, Step, latest, writers_are_consistent};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use crate::db::{BUSY_TIMEOUT, block_on};
use crate::error::{ConnectError, store_error};
use crate::scratch::ScratchDatabase;

/// The migrations up to the current version.
pub(crate) static MIGRATIONS: [Migration; 1] =
    [Migration { min_writer_version: 1, steps: &[Step::Sql(include_str!("../migrations/0001_first.sql"))] }];

const _: () = assert!(
    writers_are_consistent(&MIGRATIONS),
    "a version lets programs write that its tables are not made for"
);

const TABLE_EXISTS: &str =
    "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_evidence_migrations')";

/// `rederived_through_org` is the last organization whose tables were rederived, until all are.
const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS _evidence_migrations (
        version               INTEGER NOT NULL PRIMARY KEY,
        min_writer_version    INTEGER NOT NULL,
        steps_done            INTEGER NOT NULL,
        rederived_through_org INTEGER,
        done                  INTEGER NOT NULL
    ) STRICT";

/// Selects the last version that was begun, the last that is done, and the oldest whose programs may write.
const VERSION: &str = "
    SELECT coalesce(max(version), 0), coalesce(max(version) FILTER (WHERE done), 0), coalesce(max(min_writer_version), 0)
    FROM _evidence_migrations";

const BEGUN: &str = "
    INSERT INTO _evidence_migrations (version, min_writer_version, steps_done, done) VALUES ($1, $2, 0, 0) ON CONFLICT DO NOTHING";

const STEPS: &str = "SELECT steps_done FROM _evidence_migrations WHERE version = $1 AND NOT done";

// Numbered explicitly: SQLite numbers named parameters in the order of their first use in the text.
const STEP_DONE: &str = "UPDATE _evidence_migrations SET steps_done = ?2 WHERE version = ?1";

const BEHIND: &str = "SELECT version FROM _evidence_migrations WHERE NOT done";

const DONE: &str = "UPDATE _evidence_migrations SET done = 1 WHERE version <= $1";

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

/// Creates the tables of the latest version in an empty database.
pub(crate) fn make(connection: &mut Connection, migrations: &[Migration]) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)?;
    for (version, migration) in (1..).zip(migrations) {
        advance(connection, version, migration)?;
    }
    connection.execute(DONE, [latest(migrations)]).map(drop)
}

/// Runs the steps to a version, each in its own transaction.
fn advance(connection: &mut Connection, version: i64, migration: &Migration) -> rusqlite::Result<()> {
    loop {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute(BEGUN, [version, migration.min_writer_version])?;
        let steps = transaction.query_row(STEPS, [version], |row| row.get::<_, i64>(0)).optional()?;
        // The version is done, perhaps by another program.
        let Some(steps) = steps else { return Ok(()) };
        match usize::try_from(steps).ok().and_then(|steps| migration.steps.get(steps)) {
            None => return transaction.commit(),
            Some(Step::Sql(sql)) => step(&transaction, sql, version, steps)?,
            Some(Step::Index { name, on }) => {
                step(&transaction, &format!("CREATE INDEX IF NOT EXISTS {name} ON {on}"), version, steps)?;
            }
            Some(Step::RederiveTables(_)) => step(&transaction, "", version, steps)?,
        }
        transaction.commit()?;
    }
}

/// Returns the tables to rederive for all versions that are not done, in the form of the latest version.
fn due(connection: &Connection, migrations: &[Migration]) -> rusqlite::Result<Rederivation> {
    let behind: Vec<i64> =
        connection.prepare(BEHIND)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(Rederivation::due(migrations, &behind))
}

fn step(transaction: &Transaction<'_>, sql: &str, version: i64, steps: i64) -> rusqlite::Result<()> {
    transaction.execute_batch(sql)?;
    transaction.execute(STEP_DONE, [version, steps + 1]).map(drop)
}

/// Rederives tables from the ledgers. The work waits for nothing but this thread.
fn rederive(file: &Path, migrations: &'static [Migration], due: &Rederivation) -> StoreResult<()> {
    let session = ScratchDatabase::open(file, migrations).map_err(store_error)?;
    block_on(due.run(session))
}

#[cfg(test)]
mod tests;
