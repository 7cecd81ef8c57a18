//! Bringing the tables up to date, step by step: by statements, by making tables again from the ledgers, by building
//! indexes. Each version names the oldest program that may write beside it, and every statement that writes looks: so an
//! older one that is still running stops. Where it breaks off, a migration goes on when a program is started again.
//!
//! One program at a time does this, under a lock a schema, and only if something is missing: so that many servers may
//! start at once, and each finds all of a version or waits for it.

use std::collections::BTreeSet;
use std::time::Duration;

use evidence_core::StoreError;
use evidence_core::store::StoreResult;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::time::{Instant, sleep};

use crate::connections::Address;
use crate::error::ConnectError;
use crate::fsck::{check_page, parts};
use crate::rebuild::{Range, Scratch};
use crate::schema::Schema;

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
    /// Builds an index of this name, on a table and columns, while others read and write.
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

/// The oldest server that the statements were tried on.
const OLDEST_SERVER: i64 = 15;

const SERVER: &str =
    "SELECT current_setting('server_version_num')::bigint / 10000, current_setting('server_encoding')";

/// One lock a schema, held by the session: some steps are more than a transaction. Tried again and again, and not waited
/// for: who waits has a snapshot, for whose end building an index waits.
const LOCK: &str = "SELECT pg_try_advisory_lock(hashtextextended('evidence migrations: ' || $1, 0))";

const UNLOCK: &str = "SELECT pg_advisory_unlock(hashtextextended('evidence migrations: ' || $1, 0))";

/// How long to wait for another server that is at it, and how long between two attempts.
const WAITING: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// For as long as it takes.
const WORKING: &str = "SET lock_timeout = 0; SET statement_timeout = 0";

/// Nobody writes until the end of the transaction: what writes locks rows of these tables, and so waits for its lock on
/// the table before it takes the snapshot in which it looks who may write. Whoever comes later waits behind this, so that
/// it does not wait for long.
const EXCLUDE_WRITERS: &str = "
    SET LOCAL lock_timeout = '30s';
    LOCK TABLE evidence.head, evidence.blob, evidence.blob_chunk IN EXCLUSIVE MODE";

// These read the catalog's rows. `to_regclass` and the like answer from a session's cache, which says no for a while yet
// after another server has made what was missing and given up the lock: of ten servers at once, some failed.

const SCHEMA_EXISTS: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)";

const TABLE_EXISTS: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = '_evidence_migrations')";

/// Whether an index is there, and whether it was built to its end.
const INDEX: &str = "
    SELECT i.indisvalid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2";

/// steps: how many are done. upto: the last organization whose tables were made again, until all were. rebuilt: how often
/// `rebuild` has made them again: a store that looked before must look again.
const TABLE: &str = "
    CREATE TABLE evidence._evidence_migrations (
        version bigint NOT NULL PRIMARY KEY,
        writer  bigint NOT NULL,
        steps   bigint NOT NULL,
        upto    text COLLATE \"C\",
        done    boolean NOT NULL,
        rebuilt bigint NOT NULL DEFAULT 0
    )";

/// The last version that was begun, the last that has ended, and the oldest whose programs may write.
const VERSION: &str = "
    SELECT coalesce(max(version), 0), coalesce(max(version) FILTER (WHERE done), 0), coalesce(max(writer), 0)
    FROM evidence._evidence_migrations";

const BEGUN: &str = "
    INSERT INTO evidence._evidence_migrations (version, writer, steps, done) VALUES ($1, $2, 0, false)
    ON CONFLICT DO NOTHING";

const STEPS: &str =
    "SELECT steps FROM evidence._evidence_migrations WHERE version = $1 AND NOT done FOR UPDATE";

const STEP_DONE: &str = "UPDATE evidence._evidence_migrations SET steps = $2 WHERE version = $1";

const BEHIND: &str = "SELECT version FROM evidence._evidence_migrations WHERE NOT done";

const DONE: &str = "UPDATE evidence._evidence_migrations SET done = true WHERE version <= $1";

/// The oldest version whose programs may write.
pub(crate) const WRITER: &str =
    "SELECT writer FROM evidence._evidence_migrations ORDER BY version DESC LIMIT 1";

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

/// Refuses a schema without a store, or whose tables this program would bring up to date first.
pub(crate) async fn expect_migrated(
    schema: &Schema,
    connection: &mut PgConnection,
    migrations: &[Migration],
) -> Result<(), ConnectError> {
    check_server(connection).await?;
    let known = latest(migrations);
    match migrated(schema, connection, migrations, ConnectError::connecting).await? {
        None => Err(ConnectError::NoStore { schema: schema.name().to_owned() }),
        Some(found) if found < known => Err(ConnectError::OlderSchema { found, known }),
        Some(_) => Ok(()),
    }
}

/// Refuses a server on which the statements do not work.
async fn check_server(connection: &mut PgConnection) -> Result<(), ConnectError> {
    let (server, encoding): (i64, String) =
        sqlx::query_as(SERVER).fetch_one(connection).await.map_err(ConnectError::connecting)?;
    if server < OLDEST_SERVER {
        return Err(ConnectError::OldServer(server));
    }
    if encoding != "UTF8" {
        return Err(ConnectError::Encoding(encoding));
    }
    Ok(())
}

/// Brings the tables of a schema up to date, if they are not.
pub(crate) async fn migrate(
    schema: &Schema,
    connection: &mut PgConnection,
    address: &Address,
    migrations: &'static [Migration],
) -> Result<(), ConnectError> {
    check_server(connection).await?;
    let failed = |version| move |source| ConnectError::migrating(schema.name(), version, source);
    // Nothing is locked or made where nothing is missing: a user with no such right, or a standby, will do.
    if is_latest(schema, connection, migrations, failed(0)).await? {
        return Ok(());
    }
    let until = Instant::now() + WAITING;
    while !sqlx::query_scalar(LOCK)
        .bind(schema.name())
        .fetch_one(&mut *connection)
        .await
        .map_err(failed(0))?
    {
        if Instant::now() > until {
            return Err(ConnectError::Busy);
        }
        sleep(PAUSE).await;
    }
    if !is_latest(schema, connection, migrations, failed(0)).await? {
        sqlx::raw_sql(WORKING).execute(&mut *connection).await.map_err(failed(0))?;
        prepare(schema, connection).await.map_err(failed(0))?;
        for (version, migration) in (1..).zip(migrations) {
            advance(schema, connection, version, migration).await.map_err(failed(version))?;
        }
        let version = latest(migrations);
        let due = due(schema, connection, migrations).await.map_err(failed(version))?;
        if due.tables.is_empty() {
            let done = sqlx::query(schema.statement(DONE)).bind(version);
            done.execute(&mut *connection).await.map_err(failed(version))?;
        } else {
            reindex(schema, address, migrations, &due)
                .await
                .map_err(|source| ConnectError::Reindex { version, source })?;
        }
    }
    sqlx::query(UNLOCK).bind(schema.name()).execute(connection).await.map(drop).map_err(failed(0))
}

/// Whether nothing is missing.
async fn is_latest(
    schema: &Schema,
    connection: &mut PgConnection,
    migrations: &[Migration],
    failed: impl Fn(sqlx::Error) -> ConnectError,
) -> Result<bool, ConnectError> {
    let done = migrated(schema, connection, migrations, failed).await?;
    Ok(done.is_some_and(|done| done >= latest(migrations)))
}

/// The last version that was reached; nothing where there are no tables. Tables that a newer program has changed are as
/// good, unless it does not let this one write.
async fn migrated(
    schema: &Schema,
    connection: &mut PgConnection,
    migrations: &[Migration],
    failed: impl Fn(sqlx::Error) -> ConnectError,
) -> Result<Option<i64>, ConnectError> {
    let exists = sqlx::query_scalar(TABLE_EXISTS).bind(schema.name()).fetch_one(&mut *connection).await;
    if !exists.map_err(&failed)? {
        return Ok(None);
    }
    let found = sqlx::query_as(schema.statement(VERSION)).fetch_one(connection).await;
    let ((found, done, writer), known): ((i64, i64, i64), _) = (found.map_err(&failed)?, latest(migrations));
    if writer > known { Err(ConnectError::NewerSchema { found, known }) } else { Ok(Some(done)) }
}

/// Makes the schema and the table of versions where they are missing.
async fn prepare(schema: &Schema, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    if sqlx::query_scalar(TABLE_EXISTS).bind(schema.name()).fetch_one(&mut *connection).await? {
        return Ok(());
    }
    let mut transaction = connection.begin().await?;
    // `IF NOT EXISTS` would ask for the right to make a schema that is there.
    if !sqlx::query_scalar(SCHEMA_EXISTS).bind(schema.name()).fetch_one(&mut *transaction).await? {
        let create = AssertSqlSafe(format!("CREATE SCHEMA \"{}\"", schema.name()));
        sqlx::raw_sql(create).execute(&mut *transaction).await?;
    }
    sqlx::raw_sql(schema.statement(TABLE)).execute(&mut *transaction).await?;
    transaction.commit().await
}

/// Makes the tables of the latest version, in a schema that has none.
pub(crate) async fn make(
    schema: &Schema,
    connection: &mut PgConnection,
    migrations: &[Migration],
) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(schema.statement(TABLE)).execute(&mut *connection).await?;
    for (version, Migration { writer, steps }) in (1_i64..).zip(migrations) {
        for step in *steps {
            let sql = match step {
                Step::Sql(sql) => (*sql).to_owned(),
                Step::Index { name, on } => format!("CREATE INDEX {name} ON {on}"),
                // There is no ledger to make anything from.
                Step::Reindex(_) => continue,
            };
            sqlx::raw_sql(schema.statement(&sql)).execute(&mut *connection).await?;
        }
        let steps = i64::try_from(steps.len()).unwrap_or(i64::MAX);
        for query in [
            sqlx::query(schema.statement(BEGUN)).bind(version).bind(writer),
            sqlx::query(schema.statement(STEP_DONE)).bind(version).bind(steps),
            sqlx::query(schema.statement(DONE)).bind(version),
        ] {
            query.execute(&mut *connection).await?;
        }
    }
    Ok(())
}

/// Takes the steps to a version.
async fn advance(
    schema: &Schema,
    connection: &mut PgConnection,
    version: i64,
    migration: &Migration,
) -> Result<(), sqlx::Error> {
    loop {
        let mut transaction = connection.begin().await?;
        if version > 1 {
            sqlx::raw_sql(schema.statement(EXCLUDE_WRITERS)).execute(&mut *transaction).await?;
        }
        let begun = sqlx::query(schema.statement(BEGUN)).bind(version).bind(migration.writer);
        begun.execute(&mut *transaction).await?;
        let steps = sqlx::query_scalar::<_, i64>(schema.statement(STEPS)).bind(version);
        let Some(steps) = steps.fetch_optional(&mut *transaction).await? else { return Ok(()) };
        let step: Option<&Step> =
            usize::try_from(steps).ok().and_then(|steps: usize| migration.steps.get(steps));
        let done = sqlx::query(schema.statement(STEP_DONE)).bind(version).bind(steps + 1);
        match step {
            None => return transaction.commit().await,
            Some(Step::Sql(sql)) => {
                sqlx::raw_sql(schema.statement(sql)).execute(&mut *transaction).await?;
                done.execute(&mut *transaction).await?;
                transaction.commit().await?;
            }
            Some(Step::Reindex(_)) => {
                done.execute(&mut *transaction).await?;
                transaction.commit().await?;
            }
            Some(Step::Index { name, on }) => {
                transaction.commit().await?;
                build(schema, connection, name, on).await?;
                done.execute(&mut *connection).await?;
            }
        }
    }
}

/// The tables to make again for all versions that are not done, in the form that the last one gives them.
async fn due(
    schema: &Schema,
    connection: &mut PgConnection,
    migrations: &[Migration],
) -> Result<Reindex, sqlx::Error> {
    let behind: Vec<i64> = sqlx::query_scalar(schema.statement(BEHIND)).fetch_all(connection).await?;
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

/// Builds an index while others read and write, in no transaction. What was left of one that broke off goes first.
async fn build(
    schema: &Schema,
    connection: &mut PgConnection,
    name: &str,
    on: &str,
) -> Result<(), sqlx::Error> {
    let found = sqlx::query_scalar(INDEX).bind(schema.name()).bind(name);
    let found: Option<bool> = found.fetch_optional(&mut *connection).await?;
    if found == Some(false) {
        let left = schema.statement(&format!("DROP INDEX CONCURRENTLY evidence.{name}"));
        sqlx::raw_sql(left).execute(&mut *connection).await?;
    }
    if found != Some(true) {
        let build = schema.statement(&format!("CREATE INDEX CONCURRENTLY {name} ON {on}"));
        sqlx::raw_sql(build).execute(connection).await?;
    }
    Ok(())
}

/// Makes tables again from the ledgers. Nobody writes facts meanwhile: programs of older versions may not, those of this
/// one wait for the end. Where the lock was lost and another one does the same, each transaction finds out whether that
/// was faster, or a newer one has begun, which makes them again then.
async fn reindex(
    schema: &Schema,
    address: &Address,
    migrations: &'static [Migration],
    due: &Reindex,
) -> StoreResult<()> {
    let mut scratch = Scratch::beside(address, schema, migrations).await?;
    let quota = parts(&scratch.ledgers(None).await?);
    while let Some(after) = scratch.reindexed(due.version).await? {
        let range = replay(&mut scratch, after.as_deref(), quota).await?;
        for table in &due.tables {
            // A later version may have dropped it.
            if !scratch.has(table) {
                continue;
            }
            let rows = scratch.mark(table, &range).await?;
            let ours = match put(&mut scratch, due.version, due.part, after.as_deref(), table, rows).await {
                // What is unique goes from a row of one part to a row of another: all of them are one part then.
                Err(StoreError::Conflict) => {
                    scratch.roll_back().await?;
                    put(&mut scratch, due.version, usize::MAX, after.as_deref(), table, rows).await?
                }
                ours => ours?,
            };
            if !ours {
                return scratch.end().await;
            }
        }
        scratch.begin_changing().await?;
        if scratch.reindexed(due.version).await?.as_ref() == Some(&after) {
            scratch.note_reindexed(due.version, &range).await?;
        }
        scratch.commit().await?;
        scratch.clear().await?;
    }
    scratch.end().await
}

/// Puts the rows of a table that differ in their place, part by part; answers whether nobody else was faster.
async fn put(
    scratch: &mut Scratch,
    version: i64,
    part: usize,
    after: Option<&str>,
    table: &str,
    rows: u64,
) -> StoreResult<bool> {
    for from in (0..rows).step_by(part) {
        scratch.begin_changing().await?;
        if scratch.reindexed(version).await?.as_ref().map(Option::as_deref) != Some(after) {
            return Ok(false);
        }
        scratch.exchange(table, from, from.saturating_add(part as u64).min(rows)).await?;
        scratch.commit().await?;
    }
    Ok(true)
}

/// Replays the ledgers after an organization until so many entries were read, and answers how far that was.
async fn replay(scratch: &mut Scratch, after: Option<&str>, quota: u64) -> StoreResult<Range> {
    const PAGE: u64 = 256;
    let hashes = scratch.key_hashes().await?;
    let (mut range, mut read) = (Range { after: after.map(str::to_owned), ..Range::default() }, 0);
    for (org, name, _) in scratch.ledgers(after).await? {
        if range.upto.is_some() && read >= quota {
            return Ok(range);
        }
        let mut next = 0;
        loop {
            let page = scratch.entries(&org, next, PAGE).await?;
            if page.is_empty() {
                break;
            }
            check_page(next, &page).map_err(|error| of(&name, error))?;
            next += page.len() as u64;
            scratch.replay(&org, &page, &hashes).await.map_err(|error| of(&name, error))?;
        }
        read += next;
        range.upto = Some(org);
    }
    Ok(Range { upto: None, ..range })
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
