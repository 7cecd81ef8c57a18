//! Migrates the tables step by step: by statements, by rederiving tables from the ledgers, and by building
//! indexes. Each version names the oldest program that may write beside it. Every statement that writes
//! checks this, so an older program that is still running stops writing. An interrupted migration continues
//! at the next start of a program.
//!
//! One program at a time migrates a schema, under a lock, and only if something is missing. So many servers
//! may start at once: each finds a version complete, or waits for it.

use std::time::Duration;

use evidence_core::store::StoreResult;
use evidence_store_sql::migrate::{Migration, Rederivation, Step, latest, writers_are_consistent};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::time::{Instant, sleep};

use crate::connections::Address;
use crate::error::{ConnectError, store_error};
use crate::schema::Schema;
use crate::scratch::ScratchDatabase;
use crate::steps::{BEGUN, DONE, STEP_DONE, TABLE};

/// The migrations up to the current version.
pub(crate) static MIGRATIONS: [Migration; 1] =
    [Migration { min_writer_version: 1, steps: &[Step::Sql(include_str!("../migrations/0001_first.sql"))] }];

const _: () = assert!(
    writers_are_consistent(&MIGRATIONS),
    "a version lets programs write that its tables are not made for"
);

/// The oldest server version that the statements were tested on.
const OLDEST_SERVER: i64 = 15;

const SERVER: &str =
    "SELECT current_setting('server_version_num')::bigint / 10000, current_setting('server_encoding')";

/// Acquires the lock of a schema. The session holds it, because some steps take more than one transaction.
/// The lock is polled: a blocked session would hold a snapshot, and a concurrent index build waits for all
/// older snapshots.
const LOCK: &str = "SELECT pg_try_advisory_lock(hashtextextended('evidence migrations: ' || $1, 0))";

const UNLOCK: &str = "SELECT pg_advisory_unlock(hashtextextended('evidence migrations: ' || $1, 0))";

/// The time to wait for another server's migration, and the pause between two attempts.
const WAITING: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(100);

/// Migrations have no time limit.
const NO_TIMEOUTS: &str = "SET lock_timeout = 0; SET statement_timeout = 0";

/// Blocks other writers until the transaction ends. A statement that writes locks rows of these tables. So it
/// waits for the table lock before it takes the snapshot in which it checks the allowed version. Later
/// sessions queue behind this lock, so the wait for it has a time limit.
const EXCLUDE_WRITERS: &str = "
    SET LOCAL lock_timeout = '30s';
    LOCK TABLE evidence.head, evidence.blob, evidence.blob_chunk IN EXCLUSIVE MODE";

// These read the rows of the catalog. `to_regclass` and similar functions use the session's cache. For a
// while after another server has created an object and released the lock, the cache still reports it as
// missing: of ten servers that started at once, some failed.

const SCHEMA_EXISTS: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1)";

const TABLE_EXISTS: &str = "SELECT EXISTS (SELECT FROM pg_catalog.pg_tables WHERE schemaname = $1 AND tablename = '_evidence_migrations')";

/// Selects whether an index is valid. Returns no row if it does not exist.
const INDEX: &str = "
    SELECT i.indisvalid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2";

/// Selects the last version that was begun, the last that is done, and the oldest whose programs may write.
const VERSION: &str = "
    SELECT coalesce(max(version), 0), coalesce(max(version) FILTER (WHERE done), 0), coalesce(max(min_writer_version), 0)
    FROM evidence._evidence_migrations";

const STEPS: &str =
    "SELECT steps_done FROM evidence._evidence_migrations WHERE version = $1 AND NOT done FOR UPDATE";

const BEHIND: &str = "SELECT version FROM evidence._evidence_migrations WHERE NOT done";

/// Selects the oldest version whose programs may write.
pub(crate) const MIN_WRITER_VERSION: &str =
    "SELECT min_writer_version FROM evidence._evidence_migrations ORDER BY version DESC LIMIT 1";

/// Checks that the schema contains a store and needs no migration.
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

/// Checks that the server supports the statements.
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

/// Migrates the tables of a schema, if necessary.
pub(crate) async fn migrate(
    schema: &Schema,
    connection: &mut PgConnection,
    address: &Address,
    migrations: &'static [Migration],
) -> Result<(), ConnectError> {
    check_server(connection).await?;
    let failed = |version| move |source| ConnectError::migrating(schema.name(), version, source);
    // If nothing is missing, nothing is locked or created. So a user without the privilege, or a standby, is
    // sufficient.
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
        sqlx::raw_sql(NO_TIMEOUTS).execute(&mut *connection).await.map_err(failed(0))?;
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
            rederive(schema, address, migrations, &due)
                .await
                .map_err(|source| ConnectError::Rederive { version, source })?;
        }
    }
    sqlx::query(UNLOCK).bind(schema.name()).execute(connection).await.map(drop).map_err(failed(0))
}

/// Returns whether the tables have the latest version.
async fn is_latest(
    schema: &Schema,
    connection: &mut PgConnection,
    migrations: &[Migration],
    failed: impl Fn(sqlx::Error) -> ConnectError,
) -> Result<bool, ConnectError> {
    let done = migrated(schema, connection, migrations, failed).await?;
    Ok(done.is_some_and(|done| done >= latest(migrations)))
}

/// Returns the last completed version, or `None` if there are no tables. Tables of a newer version are
/// acceptable unless the newer program excludes this one from writing.
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
    let found = found.map_err(|source| ConnectError::reading(schema.name(), source).unwrap_or_else(failed));
    let ((found, done, min_writer), known): ((i64, i64, i64), _) = (found?, latest(migrations));
    if min_writer > known { Err(ConnectError::NewerSchema { found, known }) } else { Ok(Some(done)) }
}

/// Creates the schema and the table of versions if they are missing.
async fn prepare(schema: &Schema, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    if sqlx::query_scalar(TABLE_EXISTS).bind(schema.name()).fetch_one(&mut *connection).await? {
        return Ok(());
    }
    let mut transaction = connection.begin().await?;
    // `IF NOT EXISTS` would require the privilege to create a schema that already exists.
    if !sqlx::query_scalar(SCHEMA_EXISTS).bind(schema.name()).fetch_one(&mut *transaction).await? {
        let create = AssertSqlSafe(format!("CREATE SCHEMA \"{}\"", schema.name()));
        sqlx::raw_sql(create).execute(&mut *transaction).await?;
    }
    sqlx::raw_sql(schema.statement(TABLE)).execute(&mut *transaction).await?;
    transaction.commit().await
}

/// Runs the steps to a version.
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
        let begun = sqlx::query(schema.statement(BEGUN)).bind(version).bind(migration.min_writer_version);
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
            Some(Step::RederiveTables(_)) => {
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

/// Returns the tables to rederive for all versions that are not done, in the form of the latest version.
async fn due(
    schema: &Schema,
    connection: &mut PgConnection,
    migrations: &[Migration],
) -> Result<Rederivation, sqlx::Error> {
    let behind: Vec<i64> = sqlx::query_scalar(schema.statement(BEHIND)).fetch_all(connection).await?;
    Ok(Rederivation::due(migrations, &behind))
}

/// Builds an index concurrently with reads and writes, outside a transaction. First drops what an interrupted
/// build left.
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

/// Rederives tables from the ledgers.
async fn rederive(
    schema: &Schema,
    address: &Address,
    migrations: &'static [Migration],
    due: &Rederivation,
) -> StoreResult<()> {
    due.run(ScratchDatabase::open(address, schema, migrations).await.map_err(store_error)?).await
}

#[cfg(test)]
mod tests;
