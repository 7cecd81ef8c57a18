//! Opens the file, migrates its tables, and implements the driver of the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use evidence_core::id::Id;
use evidence_core::queue::{Queue, QueueLimits, Refused, Reply};
use evidence_core::store::{ReferenceClock, StoreResult};
use evidence_core::time::Timestamp;
use evidence_store_sql::migrate::{Migration, latest};
use evidence_store_sql::{
    BlobWrite, Cost, Dialect, Driver, FromRow, Outdated, Row, ScratchWork, SqlStore, Statement,
};
use rusqlite::{Connection, OpenFlags, types};
use tokio::task::spawn_blocking;

use crate::address::Address;
use crate::bind::{QueryTexts, key_of, rows};
use crate::clock::SteadyClock;
use crate::connection::{CACHE_SIZE, connection};
use crate::error::{ConnectError, store_error};
use crate::file::{OpenFile, make_private, warn_unless_private};
use crate::last_write::LastWrite;
use crate::migrate::{MIGRATIONS, MIN_WRITER_VERSION, expect_migrated, migrate};
use crate::readers::Readers;
use crate::scratch::{ScratchDatabase, block_on};
use crate::writer::{Job, Writer};

/// The size in bytes to which a checkpoint truncates the write-ahead log.
const WAL_SIZE_LIMIT: i64 = 64 << 20;

/// Options for opening a store. Create them with `..Options::default()`, so that a new field is not a
/// breaking change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The time that a query waits for a free connection before it fails as unavailable. A long query first
    /// waits up to the same time for its organization's limit, so at most twice this time in total. Default:
    /// 5 seconds.
    pub acquire_timeout: Duration,
    /// The time that a write waits in the queue before it fails as unavailable. A write that failed this way
    /// is never executed later. Default: 10 seconds.
    pub queue_timeout: Duration,
    /// The number of bytes that may wait in the write queue before writes fail as unavailable. An
    /// organization may use half of what the others leave. A single write that exceeds that half waits
    /// outside the limit, one at a time. Default: 64 MiB.
    pub queue_bytes: usize,
    /// Whether to create a missing file and to migrate the tables. If false, the store is opened unchanged,
    /// and refused if this program cannot use it in that form. Default: true.
    pub migrate: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            acquire_timeout: Duration::from_secs(5),
            queue_timeout: Duration::from_secs(10),
            queue_bytes: 64 << 20,
            migrate: true,
        }
    }
}

/// A store in one SQLite file. Readers never wait for the writer. The writer thread ends when the store is
/// dropped or closed.
pub type SqliteStore = SqlStore<Sqlite>;

/// The SQLite file of a store, with its readers and its writer.
#[derive(Debug)]
pub struct Sqlite {
    pub(crate) readers: Arc<Readers>,
    pub(crate) queue: Queue<Job>,
    pub(crate) migrations: &'static [Migration],
    texts: QueryTexts,
    clock: Arc<SteadyClock>,
}

impl Sqlite {
    /// Returns the file that the address `sqlite://path` names, whether or not it exists.
    ///
    /// # Errors
    /// Returns a [`ConnectError`] if the address is invalid.
    pub fn file_at(url: &str) -> Result<PathBuf, ConnectError> {
        Ok(Address::read(url)?.file())
    }

    /// Opens the store in the file at `path`, like [`SqliteStore::connect`].
    ///
    /// # Errors
    /// Returns a [`ConnectError`], which explains the problem and the remedy.
    pub async fn open(path: impl AsRef<Path>) -> Result<SqliteStore, ConnectError> {
        Self::open_with(path, &Options::default()).await
    }

    /// Opens the store in the file at `path` with these options.
    ///
    /// # Errors
    /// Returns a [`ConnectError`], which explains the problem and the remedy.
    pub async fn open_with(path: impl AsRef<Path>, options: &Options) -> Result<SqliteStore, ConnectError> {
        let (file, options) = (path.as_ref().to_owned(), options.clone());
        let start = spawn_blocking(move || Self::start(&file, &options, &MIGRATIONS)).await;
        let driver = start
            .unwrap_or_else(|ended| Err(ConnectError::Thread { source: std::io::Error::other(ended) }))?;
        Ok(SqlStore::new(driver))
    }

    /// Opens the store like a program with these migrations.
    pub(crate) fn start(
        file: &Path,
        options: &Options,
        migrations: &'static [Migration],
    ) -> Result<Self, ConnectError> {
        // The path without links. `ATTACH` takes it as text.
        let path =
            std::path::absolute(Address::path_of(file)).map(|path| path.canonicalize().unwrap_or(path));
        if let Some(path) = path.ok().filter(|path| path.to_str().is_none()) {
            return Err(ConnectError::PathNotText { file: path.display().to_string() });
        }
        let unopened = |source| ConnectError::opening(file, source);
        let flags = if options.migrate { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
        if OpenFile::wal_without_file(file) {
            return Err(ConnectError::Lost { file: Address::path_of(file).display().to_string() });
        }
        let is_new = options.migrate && !Address::path_of(file).exists();
        let mut connection = connection(file, flags).map_err(unopened)?;
        let mut opened = OpenFile::of(&connection, file);
        if is_new {
            // The file contains hashes of API keys and the content of attachments.
            make_private(opened.path()).map_err(|error| {
                let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
                unopened(rusqlite::Error::SqliteFailure(code, Some(error.to_string())))
            })?;
        } else {
            warn_unless_private(opened.path());
        }
        let name = || opened.path().display().to_string();
        if opened.is_empty_with_wal() {
            return Err(ConnectError::Lost { file: name() });
        }
        if let Some(wal) = opened.left_aside() {
            return Err(ConnectError::WalAside { file: name(), wal: wal.display().to_string() });
        }
        if !options.migrate {
            // Check before any setting is changed, because that would modify the file of another program.
            expect_migrated(&connection, file, migrations)?;
        }
        connection.pragma_update(None, "journal_mode", "WAL").map_err(unopened)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(unopened)?;
        connection.pragma_update(None, "journal_size_limit", WAL_SIZE_LIMIT).map_err(unopened)?;
        connection.pragma_update(None, "cache_size", CACHE_SIZE).map_err(unopened)?;
        // If SQLite cannot apply a setting, for example on some file systems, it silently keeps the old one.
        for (setting, wanted) in [("journal_mode", "wal"), ("synchronous", "2")] {
            let read = |row: &rusqlite::Row<'_>| row.get::<_, types::Value>(0);
            let found = match connection.pragma_query_value(None, setting, read).map_err(unopened)? {
                types::Value::Text(text) => text,
                types::Value::Integer(number) => number.to_string(),
                other => format!("{other:?}"),
            };
            if found != wanted {
                return Err(ConnectError::Unsafe { file: file.display().to_string(), setting, found });
            }
        }
        if options.migrate {
            migrate(&mut connection, opened.open_name(), migrations)?;
        }
        opened.note_wal();
        let opened = Arc::new(opened);
        // No grace period: a transaction always ends once it has begun, so callers wait for it.
        let limits = QueueLimits { bytes: options.queue_bytes, wait: options.queue_timeout, grace: None };
        let (queue, jobs) = Queue::new(limits);
        let file = Arc::clone(&opened);
        let clock = Arc::new(SteadyClock::start());
        let last_write = LastWrite::beside(opened.path());
        last_write.check(&connection);
        let writer =
            Writer { connection, file, migrations, blob_bytes: 0, clock: Arc::clone(&clock), last_write };
        let started = thread::Builder::new().name("evidence-writer".to_owned()).spawn(|| writer.run(jobs));
        started.map_err(|source| ConnectError::Thread { source })?;
        let readers = Arc::new(Readers::new(opened, options.acquire_timeout));
        Ok(Self { readers, queue, migrations, texts: QueryTexts::default(), clock })
    }

    async fn submit<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> StoreResult<T> {
        let (reply, outcome) = self.queue.outcome();
        self.queue.submit(job(reply), outcome).await
    }
}

/// The maximum number of items in a query with a short result.
const FEW: usize = 16;

impl Driver for Sqlite {
    const DIALECT: Dialect = Dialect::Sqlite;
    type Options = Options;
    type ConnectError = ConnectError;
    type ScratchSession = ScratchDatabase;
    type Job = Job;

    async fn connect(url: &str, options: &Options) -> Result<Self, ConnectError> {
        let (file, options) = (Address::read(url)?.uri(), options.clone());
        let start = spawn_blocking(move || Self::start(file.as_ref(), &options, &MIGRATIONS)).await;
        start.unwrap_or_else(|ended| Err(ConnectError::Thread { source: std::io::Error::other(ended) }))
    }

    async fn read<T: Send + 'static>(
        &self,
        statement: Statement,
        read: impl FnOnce(Vec<Row>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let Statement { sql, mut values, org, cost } = statement;
        let long = match cost {
            Cost::Short => false,
            Cost::PerItem(things) => things > FEW,
            Cost::Long => true,
        };
        let sql = self.texts.resolved(sql, &mut values);
        let found =
            move |connection: &Connection| rows(connection, &sql, &values, |org| key_of(connection, org));
        self.readers.read(org, long, found, read).await
    }

    async fn by_name(
        &self,
        org: Id,
        kind: &'static str,
        flow: Option<Id>,
        name: String,
    ) -> StoreResult<Option<Row>> {
        let statement = Statement::by_name(Self::DIALECT, org, kind, flow, name);
        self.read(statement, |rows| Ok(rows.into_iter().next())).await
    }

    fn queue(&self) -> &Queue<Job> {
        &self.queue
    }

    async fn write_blob(&self, write: BlobWrite) -> StoreResult<()> {
        self.submit(|reply| Job::Blob(write, reply)).await
    }

    async fn change(&self, statements: Vec<Statement>) -> StoreResult<bool> {
        self.submit(|reply| Job::Change(statements, reply)).await
    }

    async fn with_scratch<T: Send + 'static>(&self, work: ScratchWork<ScratchDatabase, T>) -> StoreResult<T> {
        let (file, migrations) = (Arc::clone(self.readers.opened()), self.migrations);
        let work = move || {
            // Opening would create a missing file.
            file.check().map_err(store_error)?;
            block_on(work(ScratchDatabase::open(file.open_name(), migrations).map_err(store_error)?))
        };
        spawn_blocking(work).await.map_err(|_| Refused::Closed)?
    }

    fn version(&self) -> i64 {
        latest(self.migrations)
    }

    async fn ready(&self) -> StoreResult<()> {
        if self.queue.is_closed() {
            return Err(Refused::Closed.into());
        }
        self.readers.opened().check().map_err(store_error)?;
        let statement =
            Statement { sql: MIN_WRITER_VERSION.into(), values: Vec::new(), org: None, cost: Cost::Short };
        let min_writer =
            self.read(statement, |rows| rows.into_iter().map(<(i64,)>::from_row).next().transpose());
        if min_writer.await?.is_some_and(|(version,)| version > latest(self.migrations)) {
            return Err(Outdated.into());
        }
        Ok(())
    }

    async fn write_probe(&self, statement: Statement) -> StoreResult<()> {
        self.change(vec![statement]).await.map(drop)
    }

    async fn check_clock(&self, now: Timestamp) -> StoreResult<()> {
        ReferenceClock::Monotonic.check(now, self.clock.now())
    }

    async fn close(&self) {
        self.readers.close().await;
        self.queue.stop(Job::Stop).await;
    }
}

#[cfg(test)]
mod tests {
    use evidence_core::store::Health;

    use super::*;

    #[tokio::test]
    async fn a_store_whose_writer_has_ended_is_not_ready() {
        let directory = tempfile::tempdir().unwrap();
        let store = Sqlite::open(directory.path().join("e.db")).await.unwrap();
        store.ready().await.unwrap();
        store.driver().queue.stop(Job::Stop).await;
        assert!(matches!(store.ready().await, Err(evidence_core::StoreError::Unavailable(_))));
    }

    #[tokio::test]
    async fn every_connection_waits_for_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let store = Sqlite::open(directory.path().join("e.db")).await.unwrap();
        let durable = "SELECT 1 FROM pragma_journal_mode, pragma_synchronous
            WHERE journal_mode = 'wal' AND synchronous = 2";
        assert!(
            store.driver().change(vec![Statement::change(durable, vec![])]).await.unwrap(),
            "the writer's"
        );
        let reading = Statement::change(durable, vec![]);
        assert_eq!(store.driver().read(reading, |rows| Ok(rows.len())).await.unwrap(), 1, "a reader's");
    }
}
