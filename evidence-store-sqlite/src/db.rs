//! Opening the file, bringing its tables up to date, and asking it questions.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use evidence_core::id::Id;
use evidence_core::queue::{Bounds, Queue, Refused};
use evidence_core::store::{Health, StoreResult};
use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Row};
use tokio::task::spawn_blocking;

use crate::address::Address;
use crate::error::{ConnectError, Outdated, store_error};
use crate::file::OpenFile;
use crate::migrate::{MIGRATIONS, Migration, WRITER, expect_migrated, latest, migrate};
use crate::question::{Question, Readers};
use crate::writer::{Job, Writer};

/// How long a statement waits for another process's lock.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// What the log of writes is cut back to, in bytes, once it is in the file.
const LOG_BYTES: i64 = 64 << 20;

/// How many prepared statements a connection keeps.
const STATEMENTS: usize = 128;

/// How a store uses its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long a question waits for a connection before the store counts as not available; one that may take long waits
    /// as long before for the turn of its organization. 5 seconds unless said otherwise.
    pub acquire_timeout: Duration,
    /// How long a write waits for its turn before the store counts as not available. What was refused for it is not done
    /// afterwards. 10 seconds unless said otherwise.
    pub queue_timeout: Duration,
    /// How many bytes may wait to be written before the store counts as not available. An organization may take half of
    /// what the others leave; a single write that has more than half of it waits beside, one at a time. 64 MiB unless said
    /// otherwise.
    pub queue_bytes: usize,
    /// Whether the file and its tables are made where there are none, and brought up to date. A store is otherwise opened
    /// as it is, and refused where this program cannot use it so. True unless said otherwise.
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

/// A store in one SQLite file. Readers never wait for the writer. The writer ends when the store is dropped or closed.
#[derive(Debug)]
pub struct SqliteStore {
    pub(crate) readers: Arc<Readers>,
    pub(crate) queue: Queue<Job>,
    pub(crate) migrations: &'static [Migration],
}

impl SqliteStore {
    /// Opens the store at `sqlite://path`, making the file if there is none and bringing its tables up to date
    /// ([`Options::migrate`]).
    ///
    /// # Errors
    /// [`ConnectError`] says what is wrong and what to do.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::connect_with(url, &Options::default()).await
    }

    /// Opens the store at `sqlite://path` with these options.
    ///
    /// # Errors
    /// [`ConnectError`] says what is wrong and what to do.
    pub async fn connect_with(url: &str, options: &Options) -> Result<Self, ConnectError> {
        Self::open_with(Address::read(url)?.uri(), options).await
    }

    /// The file that the address `sqlite://path` names, whether or not it is there.
    ///
    /// # Errors
    /// [`ConnectError`] says what is wrong with the address.
    pub fn file_at(url: &str) -> Result<PathBuf, ConnectError> {
        Ok(Address::read(url)?.file())
    }

    /// Opens the store in the file at `path`, as [`Self::connect`] does.
    ///
    /// # Errors
    /// [`ConnectError`] says what is wrong and what to do.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, ConnectError> {
        Self::open_with(path, &Options::default()).await
    }

    /// Opens the store in the file at `path` with these options.
    ///
    /// # Errors
    /// [`ConnectError`] says what is wrong and what to do.
    pub async fn open_with(path: impl AsRef<Path>, options: &Options) -> Result<Self, ConnectError> {
        let (file, options) = (path.as_ref().to_owned(), options.clone());
        let start = spawn_blocking(move || Self::start(&file, &options, &MIGRATIONS)).await;
        start.unwrap_or_else(|ended| Err(ConnectError::Thread { source: std::io::Error::other(ended) }))
    }

    /// Opens the store as a program does that knows these migrations.
    pub(crate) fn start(
        file: &Path,
        options: &Options,
        migrations: &'static [Migration],
    ) -> Result<Self, ConnectError> {
        let unopened = |source| ConnectError::opening(file, source);
        let flags = if options.migrate { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
        if OpenFile::is_gone(file) {
            return Err(ConnectError::Lost { file: Address::path_of(file).display().to_string() });
        }
        let mut connection = connection(file, flags).map_err(unopened)?;
        let mut opened = OpenFile::of(&connection, file);
        let name = || opened.path().display().to_string();
        if opened.is_lost() {
            return Err(ConnectError::Lost { file: name() });
        }
        if let Some(log) = opened.left_aside() {
            return Err(ConnectError::LogAside { file: name(), log: log.display().to_string() });
        }
        if !options.migrate {
            // Before anything is set, which would change the file of another program.
            expect_migrated(&connection, file, migrations)?;
        }
        connection.pragma_update(None, "journal_mode", "WAL").map_err(unopened)?;
        connection.pragma_update(None, "synchronous", "FULL").map_err(unopened)?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES).map_err(unopened)?;
        // SQLite goes on with what it had where it cannot do what it was told: on some file systems, say.
        for (setting, wanted) in [("journal_mode", "wal"), ("synchronous", "2")] {
            let read = |row: &Row<'_>| row.get::<_, Value>(0);
            let found = match connection.pragma_query_value(None, setting, read).map_err(unopened)? {
                Value::Text(text) => text,
                Value::Integer(number) => number.to_string(),
                other => format!("{other:?}"),
            };
            if found != wanted {
                return Err(ConnectError::Unsafe { file: file.display().to_string(), setting, found });
            }
        }
        if options.migrate {
            migrate(&mut connection, opened.name(), migrations)?;
        }
        opened.note_log();
        let opened = Arc::new(opened);
        let statements = Arc::new(AtomicU64::new(0));
        // SQLite ends what was begun, so that its outcome is always heard.
        let bounds = Bounds { bytes: options.queue_bytes, wait: options.queue_timeout, grace: None };
        let (queue, jobs) = Queue::new(bounds);
        let writer = Writer::new(connection, Arc::clone(&opened), migrations, Arc::clone(&statements));
        let started = thread::Builder::new().name("evidence-writer".to_owned()).spawn(|| writer.run(jobs));
        started.map_err(|source| ConnectError::Thread { source })?;
        let readers = Arc::new(Readers::new(opened, options.acquire_timeout, statements));
        Ok(Self { readers, queue, migrations })
    }

    /// Finishes what was handed to the writer and closes every connection. Later calls answer
    /// [`evidence_core::StoreError::Unavailable`].
    pub async fn close(&self) {
        self.readers.close().await;
        self.queue.stop(Job::Stop).await;
    }

    /// How many statements have read so far, and two for each transaction that wrote: one that looks at what is there
    /// and one for what it writes. Tests assert bounds with it.
    pub fn statements(&self) -> u64 {
        self.readers.statements()
    }

    /// A question, whose values are bound next.
    pub(crate) fn ask(&self, sql: impl Into<Cow<'static, str>>) -> Question<'_> {
        Question::new(&self.readers, sql.into())
    }

    /// A question about one organization, which is its first value.
    pub(crate) fn ask_of(&self, org: Id, sql: impl Into<Cow<'static, str>>) -> Question<'_> {
        self.ask(sql).of(org)
    }
}

#[async_trait]
impl Health for SqliteStore {
    async fn ready(&self) -> StoreResult<()> {
        if self.queue.is_closed() {
            return Err(Refused::Closed.into());
        }
        self.readers.opened().check().map_err(store_error)?;
        let writer = self.ask(WRITER).first::<(i64,)>().await?;
        if writer.is_some_and(|(writer,)| writer > latest(self.migrations)) {
            return Err(Outdated.into());
        }
        Ok(())
    }
}

/// A connection to the file, which has to exist unless `flags` say otherwise.
pub(crate) fn connection(file: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let always = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_URI
        // Nobody shares a connection.
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, always | flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "foreign_keys", "OFF")?;
    // Otherwise a statement may be planned anew for each value that is bound to it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_whose_writer_has_ended_is_not_ready() {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(directory.path().join("e.db")).await.unwrap();
        store.ready().await.unwrap();
        store.queue.stop(Job::Stop).await;
        assert!(matches!(store.ready().await, Err(evidence_core::StoreError::Unavailable(_))));
    }
}
