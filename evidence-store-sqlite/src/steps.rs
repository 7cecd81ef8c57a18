//! Runs the steps of migrations, and records them.

use evidence_store_sql::migrate::{Migration, Step, latest};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

/// `rederived_through_org` is the last organization whose tables were rederived, until all are.
pub(crate) const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS _evidence_migrations (
        version               INTEGER NOT NULL PRIMARY KEY,
        min_writer_version    INTEGER NOT NULL,
        steps_done            INTEGER NOT NULL,
        rederived_through_org INTEGER,
        done                  INTEGER NOT NULL
    ) STRICT";

const BEGUN: &str = "
    INSERT INTO _evidence_migrations (version, min_writer_version, steps_done, done) VALUES ($1, $2, 0, 0) ON CONFLICT DO NOTHING";

const STEPS: &str = "SELECT steps_done FROM _evidence_migrations WHERE version = $1 AND NOT done";

// Numbered explicitly: SQLite numbers named parameters in the order of their first use in the text.
const STEP_DONE: &str = "UPDATE _evidence_migrations SET steps_done = ?2 WHERE version = ?1";

pub(crate) const DONE: &str = "UPDATE _evidence_migrations SET done = 1 WHERE version <= $1";

/// Creates the tables of the latest version in an empty database.
pub(crate) fn make(connection: &mut Connection, migrations: &[Migration]) -> rusqlite::Result<()> {
    connection.execute_batch(TABLE)?;
    for (version, migration) in (1..).zip(migrations) {
        advance(connection, version, migration)?;
    }
    connection.execute(DONE, [latest(migrations)]).map(drop)
}

/// Runs the steps to a version, each in its own transaction.
pub(crate) fn advance(
    connection: &mut Connection,
    version: i64,
    migration: &Migration,
) -> rusqlite::Result<()> {
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

fn step(transaction: &Transaction<'_>, sql: &str, version: i64, steps: i64) -> rusqlite::Result<()> {
    transaction.execute_batch(sql)?;
    transaction.execute(STEP_DONE, [version, steps + 1]).map(drop)
}
