//! Bringing the tables up to date, step by step: by statements, by making tables again from the ledgers, by building
//! indexes. Each version names the oldest program that may write beside it, and every transaction that writes looks: so an
//! older one that is still running stops. Where it breaks off, a migration goes on when a program is started again.

use std::path::Path;
use std::time::Duration;

use evidence_core::store::StoreResult;
use evidence_store_sql::migrate::{Migration, Rederivation, Step, latest, writers_are_consistent};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use crate::db::{BUSY_TIMEOUT, block_on};
use crate::error::{ConnectError, store_error};
use crate::scratch::ScratchDatabase;

/// What brought the tables to this version.
pub(crate) static MIGRATIONS: [Migration; 1] =
    [Migration { min_writer_version: 1, steps: &[Step::Sql(include_str!("../migrations/0001_first.sql"))] }];

const _: () = assert!(
    writers_are_consistent(&MIGRATIONS),
    "a version lets programs write that its tables are not made for"
);

const TABLE_EXISTS: &str =
    "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_evidence_migrations')";

/// rederived_through_org: the last organization whose tables were derived again, until all were.
const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS _evidence_migrations (
        version               INTEGER NOT NULL PRIMARY KEY,
        min_writer_version    INTEGER NOT NULL,
        steps_done            INTEGER NOT NULL,
        rederived_through_org INTEGER,
        done                  INTEGER NOT NULL
    ) STRICT";

/// The last version that was begun, the last that has ended, and the oldest whose programs may write.
const VERSION: &str = "
    SELECT coalesce(max(version), 0), coalesce(max(version) FILTER (WHERE done), 0), coalesce(max(min_writer_version), 0)
    FROM _evidence_migrations";

const BEGUN: &str = "
    INSERT INTO _evidence_migrations (version, min_writer_version, steps_done, done) VALUES ($1, $2, 0, 0) ON CONFLICT DO NOTHING";

const STEPS: &str = "SELECT steps_done FROM _evidence_migrations WHERE version = $1 AND NOT done";

// Numbered by hand: SQLite numbers what is named as it comes up in the text.
const STEP_DONE: &str = "UPDATE _evidence_migrations SET steps_done = ?2 WHERE version = ?1";

const BEHIND: &str = "SELECT version FROM _evidence_migrations WHERE NOT done";

const DONE: &str = "UPDATE _evidence_migrations SET done = 1 WHERE version <= $1";

/// The oldest version whose programs may write.
pub(crate) const MIN_WRITER_VERSION: &str =
    "SELECT coalesce(max(min_writer_version), 0) FROM _evidence_migrations";

/// How long a step waits for its turn: others write meanwhile, again and again.
const TURN: Duration = Duration::from_secs(60);

/// Whether programs of the version that these migrations lead to may write to the store that is open as this.
pub(crate) fn may_write(connection: &Connection, migrations: &[Migration]) -> rusqlite::Result<bool> {
    let min_writer: i64 = connection.prepare_cached(MIN_WRITER_VERSION)?.query_row([], |row| row.get(0))?;
    Ok(min_writer <= latest(migrations))
}

/// Refuses a file that is no store, or whose tables this program would bring up to date first.
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

/// The last version that was reached. Tables that a newer program has changed are as good, unless it does not let this
/// one write.
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

/// Brings the tables of the store in `file` up to date, over a connection to it.
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

/// Makes the tables of the latest version where there are none.
pub(crate) fn make(connection: &mut Connection, migrations: &[Migration]) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)?;
    for (version, migration) in (1..).zip(migrations) {
        advance(connection, version, migration)?;
    }
    connection.execute(DONE, [latest(migrations)]).map(drop)
}

/// Takes the steps to a version, a transaction each.
fn advance(connection: &mut Connection, version: i64, migration: &Migration) -> rusqlite::Result<()> {
    loop {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute(BEGUN, [version, migration.min_writer_version])?;
        let steps = transaction.query_row(STEPS, [version], |row| row.get::<_, i64>(0)).optional()?;
        // Done, perhaps by another program.
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

/// The tables to make again for all versions that are not done, in the form that the last one gives them.
fn due(connection: &Connection, migrations: &[Migration]) -> rusqlite::Result<Rederivation> {
    let behind: Vec<i64> =
        connection.prepare(BEHIND)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(Rederivation::due(migrations, &behind))
}

fn step(transaction: &Transaction<'_>, sql: &str, version: i64, steps: i64) -> rusqlite::Result<()> {
    transaction.execute_batch(sql)?;
    transaction.execute(STEP_DONE, [version, steps + 1]).map(drop)
}

/// Makes tables again from the ledgers. Nothing of it waits for anything but this thread.
fn rederive(file: &Path, migrations: &'static [Migration], due: &Rederivation) -> StoreResult<()> {
    let session = ScratchDatabase::open(file, migrations).map_err(store_error)?;
    block_on(due.run(session))
}

#[cfg(test)]
mod tests;
