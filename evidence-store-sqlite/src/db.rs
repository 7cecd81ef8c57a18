//! Opening the file, bringing its tables up to date, and the two ways to ask: all rows, or the first.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use evidence_core::store::{Health, StoreResult};
use sqlx::query::QueryAs;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow,
    SqliteSynchronous,
};
use sqlx::{AssertSqlSafe, ConnectOptions, FromRow, Sqlite, SqliteConnection};
use tokio::sync::{mpsc, oneshot};

use crate::error::{ConnectError, TaskEnded, store_error};
use crate::lookup::{self, Lookup};
use crate::writer::{Job, Writer};

const MIGRATIONS: [&str; 1] = [include_str!("../migrations/0001_first.sql")];

const MIGRATION_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS _evidence_migrations (version INTEGER NOT NULL PRIMARY KEY) STRICT";

const MIGRATED: &str = "SELECT coalesce(max(version), 0) FROM _evidence_migrations";

const MIGRATION_DONE: &str = "INSERT INTO _evidence_migrations (version) VALUES ($1)";

/// How long a statement waits for another process's lock, and a reader for a free connection.
const PATIENCE: Duration = Duration::from_secs(5);

const READERS: u32 = 8;

/// How many jobs may wait for the writer, and how many questions for a lookup; further callers wait for a place.
const QUEUE: usize = 1024;

/// A store in one SQLite file. Readers never wait for the writer. The writer ends when the store is dropped or closed.
#[derive(Debug)]
pub struct SqliteStore {
    readers: SqlitePool,
    jobs: mpsc::Sender<Job>,
    pub(crate) lookups: mpsc::Sender<Lookup>,
    statements: Arc<AtomicU64>,
}

impl SqliteStore {
    /// Opens the store at `sqlite://path`, making the file if there is none and bringing its tables up to date.
    ///
    /// # Errors
    /// [`ConnectError`] says what is wrong and what to do.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        if url.contains(":memory:") || url.contains("mode=memory") {
            return Err(ConnectError::InMemory);
        }
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|source| ConnectError::BadUrl { url: url.to_owned(), source })?;
        Self::start(options).await
    }

    /// Opens the store in the file at `path`, as [`Self::connect`] does.
    ///
    /// # Errors
    /// [`ConnectError`] says what is wrong and what to do.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, ConnectError> {
        Self::start(SqliteConnectOptions::new().filename(path)).await
    }

    async fn start(options: SqliteConnectOptions) -> Result<Self, ConnectError> {
        let file = options.get_filename().display().to_string();
        let unopened = |source| ConnectError::opening(&file, source);
        let options = options
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(false)
            .busy_timeout(PATIENCE)
            .disable_statement_logging();
        let mut connection = options.connect().await.map_err(unopened)?;
        migrate(&mut connection).await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .acquire_timeout(PATIENCE)
            .test_before_acquire(false)
            .connect_with(options.create_if_missing(false).pragma("query_only", "ON"))
            .await
            .map_err(unopened)?;
        let (jobs, queue) = mpsc::channel(QUEUE);
        let statements = Arc::new(AtomicU64::new(0));
        tokio::spawn(Writer::new(connection, Arc::clone(&statements)).run(queue));
        let (lookups, questions) = mpsc::channel(QUEUE);
        tokio::spawn(lookup::answer(readers.clone(), Arc::clone(&statements), questions));
        Ok(Self { readers, jobs, lookups, statements })
    }

    /// Finishes what was handed to the writer and closes every connection. Later calls answer
    /// [`evidence_core::StoreError::Unavailable`].
    pub async fn close(&self) {
        self.readers.close().await;
        let (reply, closed) = oneshot::channel();
        if self.jobs.send(Job::Stop(reply)).await.is_ok() {
            // An error means that the writer has ended already, which is what was asked for.
            closed.await.ok();
        }
    }

    /// How many calls to the database driver reads and writes have made so far: tests assert bounds with it.
    pub fn statements(&self) -> u64 {
        self.statements.load(Ordering::Relaxed)
    }

    /// The file that holds the store.
    pub(crate) fn file(&self) -> String {
        self.readers.connect_options().get_filename().display().to_string()
    }

    /// Hands a job to the writer and waits for its outcome.
    pub(crate) async fn submit<T>(
        &self,
        job: Job,
        outcome: oneshot::Receiver<StoreResult<T>>,
    ) -> StoreResult<T> {
        self.jobs.send(job).await.map_err(|_| TaskEnded)?;
        outcome.await.map_err(|_| TaskEnded)?
    }

    /// Every row of a query.
    pub(crate) async fn all<R>(&self, query: QueryAs<'_, Sqlite, R, SqliteArguments>) -> StoreResult<Vec<R>>
    where
        R: for<'r> FromRow<'r, SqliteRow> + Send + Unpin,
    {
        self.statements.fetch_add(1, Ordering::Relaxed);
        query.fetch_all(&self.readers).await.map_err(store_error)
    }

    /// The first row of a query, if there is one.
    pub(crate) async fn first<R>(
        &self,
        query: QueryAs<'_, Sqlite, R, SqliteArguments>,
    ) -> StoreResult<Option<R>>
    where
        R: for<'r> FromRow<'r, SqliteRow> + Send + Unpin,
    {
        self.statements.fetch_add(1, Ordering::Relaxed);
        query.fetch_optional(&self.readers).await.map_err(store_error)
    }
}

#[async_trait]
impl Health for SqliteStore {
    async fn ready(&self) -> StoreResult<()> {
        self.first(sqlx::query_as::<_, (i64,)>(MIGRATED)).await.map(drop)
    }
}

/// A statement put together from pieces. Callers join constants of this crate alone: every value is bound.
pub(crate) fn statement(pieces: &[&str]) -> AssertSqlSafe<String> {
    AssertSqlSafe(pieces.concat())
}

/// Brings the tables up to date.
pub(crate) async fn migrate(connection: &mut SqliteConnection) -> Result<(), ConnectError> {
    let failed = |version| move |source| ConnectError::Migrate { version, source };
    let first = failed(0);
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *connection).await.map_err(first)?;
    sqlx::raw_sql(MIGRATION_TABLE).execute(&mut *connection).await.map_err(first)?;
    let found: i64 = sqlx::query_scalar(MIGRATED).fetch_one(&mut *connection).await.map_err(first)?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(ConnectError::NewerSchema { found, known });
    }
    for (version, migration) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
        sqlx::raw_sql(migration).execute(&mut *connection).await.map_err(failed(version))?;
        let done = sqlx::query(MIGRATION_DONE).bind(version);
        done.execute(&mut *connection).await.map_err(failed(version))?;
    }
    sqlx::raw_sql("COMMIT").execute(connection).await.map_err(failed(known))?;
    Ok(())
}
