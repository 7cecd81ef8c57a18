//! Bringing the tables up to date, step by step: by statements, by making tables again from the ledgers, by building
//! indexes. Each version names the oldest program that may write beside it, and every transaction that writes looks: so an
//! older one that is still running stops. Where it breaks off, a migration goes on when a program is started again.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use evidence_core::StoreError;
use evidence_core::store::StoreResult;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use crate::db::BUSY_TIMEOUT;
use crate::error::ConnectError;
use crate::fsck::{check_page, parts};
use crate::rebuild::{Range, Scratch};

/// What brings the tables from one version to the next.
#[derive(Debug)]
pub(crate) struct Migration {
    /// The oldest version whose programs may write from the first step on: this one, unless what older ones write is what
    /// the tables should hold. Never older than that of the version before.
    pub(crate) writer: i64,
    /// In their order. They are never changed once a program with them was released.
    pub(crate) steps: &'static [Step],
}

/// A step of a migration.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "the first version has nothing to make from ledgers"))]
pub(crate) enum Step {
    /// Statements, in one transaction.
    Sql(&'static str),
    /// Has these tables made from the ledgers, a few organizations at a time, once every step of every version is done: what
    /// makes rows makes those of the latest version.
    Reindex(&'static [&'static str]),
    /// Builds an index of this name, on a table and columns.
    Index { name: &'static str, on: &'static str },
}

pub(crate) static MIGRATIONS: [Migration; 1] =
    [Migration { writer: 1, steps: &[Step::Sql(include_str!("../migrations/0001_first.sql"))] }];

const _: () = assert!(agree(&MIGRATIONS), "a version lets programs write that its tables are not made for");

/// Whether no version lets programs write that the version before keeps out, or that write to tables while it makes them
/// again.
const fn agree(migrations: &[Migration]) -> bool {
    let (mut version, mut oldest) = (0, 0);
    while version < migrations.len() {
        let Migration { writer, steps } = &migrations[version];
        version += 1;
        if *writer < oldest || *writer > version as i64 {
            return false;
        }
        oldest = *writer;
        let mut step = 0;
        while step < steps.len() {
            if matches!(steps[step], Step::Reindex(_)) && *writer < version as i64 {
                return false;
            }
            step += 1;
        }
    }
    true
}

const TABLE_EXISTS: &str =
    "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_evidence_migrations')";

/// steps: how many are done. upto: the last organization whose tables were made again, until all were.
const TABLE: &str = "
    CREATE TABLE IF NOT EXISTS _evidence_migrations (
        version INTEGER NOT NULL PRIMARY KEY,
        writer  INTEGER NOT NULL,
        steps   INTEGER NOT NULL,
        upto    INTEGER,
        done    INTEGER NOT NULL
    ) STRICT";

/// The last version that was begun, the last that has ended, and the oldest whose programs may write.
const VERSION: &str = "
    SELECT coalesce(max(version), 0), coalesce(max(version) FILTER (WHERE done), 0), coalesce(max(writer), 0)
    FROM _evidence_migrations";

const BEGUN: &str = "
    INSERT INTO _evidence_migrations (version, writer, steps, done) VALUES ($1, $2, 0, 0) ON CONFLICT DO NOTHING";

const STEPS: &str = "SELECT steps FROM _evidence_migrations WHERE version = $1 AND NOT done";

// Numbered by hand: SQLite numbers what is named as it comes up in the text.
const STEP_DONE: &str = "UPDATE _evidence_migrations SET steps = ?2 WHERE version = ?1";

const BEHIND: &str = "SELECT version FROM _evidence_migrations WHERE NOT done";

const DONE: &str = "UPDATE _evidence_migrations SET done = 1 WHERE version <= $1";

/// The oldest version whose programs may write.
pub(crate) const WRITER: &str = "SELECT coalesce(max(writer), 0) FROM _evidence_migrations";

/// How long a step waits for its turn: others write meanwhile, again and again.
const TURN: Duration = Duration::from_secs(60);

/// How many rows of a table one transaction puts in their place.
const ROWS: usize = 4096;

/// Tables that are due to be made again for a version.
#[derive(Debug, Clone)]
struct Reindex {
    version: i64,
    tables: Vec<&'static str>,
    /// How many rows of a table one transaction puts in their place.
    part: usize,
}

/// The version that these migrations lead to.
pub(crate) fn latest(migrations: &[Migration]) -> i64 {
    i64::try_from(migrations.len()).unwrap_or(i64::MAX)
}

/// Whether programs of the version that these migrations lead to may write to the store that is open as this.
pub(crate) fn may_write(
    connection: &Connection,
    database: &str,
    migrations: &[Migration],
) -> rusqlite::Result<bool> {
    let sql = format!("SELECT coalesce(max(writer), 0) FROM {database}._evidence_migrations");
    let writer: i64 = connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
    Ok(writer <= latest(migrations))
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
    let ((found, done, writer), known): ((i64, i64, i64), _) = (version.map_err(failed)?, latest(migrations));
    if writer > known { Err(ConnectError::NewerSchema { found, known }) } else { Ok(done) }
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
            reindex(file, migrations, &due)
                .map_err(|source| ConnectError::Reindex { version: known, source })?;
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
        transaction.execute(BEGUN, [version, migration.writer])?;
        let steps = transaction.query_row(STEPS, [version], |row| row.get::<_, i64>(0)).optional()?;
        // Done, perhaps by another program.
        let Some(steps) = steps else { return Ok(()) };
        match usize::try_from(steps).ok().and_then(|steps| migration.steps.get(steps)) {
            None => return transaction.commit(),
            Some(Step::Sql(sql)) => step(&transaction, sql, version, steps)?,
            Some(Step::Index { name, on }) => {
                step(&transaction, &format!("CREATE INDEX IF NOT EXISTS {name} ON {on}"), version, steps)?;
            }
            Some(Step::Reindex(_)) => step(&transaction, "", version, steps)?,
        }
        transaction.commit()?;
    }
}

/// The tables to make again for all versions that are not done, in the form that the last one gives them.
fn due(connection: &Connection, migrations: &[Migration]) -> rusqlite::Result<Reindex> {
    let behind: Vec<i64> =
        connection.prepare(BEHIND)?.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(Reindex { version: latest(migrations), tables: reindexed(migrations, &behind), part: ROWS })
}

/// The tables that these versions have made again.
fn reindexed(migrations: &[Migration], versions: &[i64]) -> Vec<&'static str> {
    let steps = (1..).zip(migrations).filter(|(version, _)| versions.contains(version));
    let tables = steps.flat_map(|(_, migration)| migration.steps).filter_map(|step| match step {
        Step::Reindex(tables) => Some(*tables),
        Step::Sql(_) | Step::Index { .. } => None,
    });
    BTreeSet::from_iter(tables.flatten().copied()).into_iter().collect()
}

fn step(transaction: &Transaction<'_>, sql: &str, version: i64, steps: i64) -> rusqlite::Result<()> {
    transaction.execute_batch(sql)?;
    transaction.execute(STEP_DONE, [version, steps + 1]).map(drop)
}

/// Makes tables again from the ledgers. Nobody writes facts meanwhile: programs of older versions may not, those of this
/// one wait for the end. Where two of them do this at once, each transaction finds out whether the other was faster, or a
/// newer one has begun, which makes them again then.
fn reindex(file: &Path, migrations: &'static [Migration], due: &Reindex) -> StoreResult<()> {
    let scratch = Scratch::beside(file, migrations)?;
    let quota = parts(&scratch.ledgers(None)?);
    while let Some(after) = scratch.reindexed(due.version)? {
        scratch.begin()?;
        let range = replay(&scratch, after, quota)?;
        // A later version may have dropped one.
        let tables = || due.tables.iter().filter(|table| scratch.has(table));
        let marked = tables().map(|table| scratch.mark(table, &range)).collect::<StoreResult<Vec<_>>>()?;
        scratch.commit()?;
        for (table, rows) in tables().zip(marked) {
            let ours = match put(&scratch, due.version, due.part, after, table, rows) {
                // What is unique goes from a row of one part to a row of another: all of them are one part then.
                Err(StoreError::Conflict) => {
                    scratch.roll_back()?;
                    put(&scratch, due.version, usize::MAX, after, table, rows)?
                }
                ours => ours?,
            };
            if !ours {
                // What is open ends with the connection.
                return Ok(());
            }
        }
        scratch.begin_writing()?;
        if scratch.reindexed(due.version)? == Some(after) {
            scratch.note_reindexed(due.version, &range)?;
        }
        scratch.commit()?;
        scratch.clear()?;
    }
    Ok(())
}

/// Puts the rows of a table that differ in their place, part by part; answers whether nobody else was faster.
fn put(
    scratch: &Scratch,
    version: i64,
    part: usize,
    after: Option<i64>,
    table: &str,
    rows: u64,
) -> StoreResult<bool> {
    for from in (0..rows).step_by(part) {
        scratch.begin_writing()?;
        if scratch.reindexed(version)? != Some(after) {
            return Ok(false);
        }
        scratch.exchange(table, from, from.saturating_add(part as u64).min(rows))?;
        scratch.commit()?;
    }
    Ok(true)
}

/// Replays the ledgers after an organization until so many entries were read, and answers how far that was.
fn replay(scratch: &Scratch, after: Option<i64>, quota: u64) -> StoreResult<Range> {
    const PAGE: u64 = 256;
    let hashes = scratch.key_hashes()?;
    let (mut upto, mut read) = (None, 0);
    for (org, name, _) in scratch.ledgers(after)? {
        match upto {
            Some(upto) if read >= quota => return Ok(Range { upto, ..Range::after(after) }),
            _ => upto = Some(org),
        }
        let (mut next, mut id) = (0, None);
        loop {
            let page = scratch.entries(org, next, PAGE)?;
            if page.is_empty() {
                break;
            }
            check_page(next, &page).map_err(|error| of(&name, error))?;
            next += page.len() as u64;
            scratch.replay(org, &mut id, &page, &hashes).map_err(|error| of(&name, error))?;
        }
        read += next;
    }
    Ok(Range::after(after))
}

/// Names the organization whose ledger is damaged.
fn of(name: &str, error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt { what } => StoreError::corrupt(format_args!("organization {name}: {what}")),
        error => error,
    }
}

#[cfg(test)]
mod tests;
