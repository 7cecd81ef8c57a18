//! The read connections. A short query runs on the caller's own thread: it takes microseconds from memory,
//! and a thread switch costs more than most results. A query with a possibly long result runs on a thread for
//! slow work, so that it delays no other task. If a short query turns out to be long, it is interrupted and
//! runs again on such a thread.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evidence_core::id::Id;
use evidence_core::limiter::{FairSemaphore, Tenant, UNLIMITED};
use evidence_core::queue::Refused;
use evidence_core::store::StoreResult;
use rusqlite::{Connection, OpenFlags, ffi};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::connection::{CACHE_SIZE, connection};
use crate::error::{Busy, primary_code, store_error};
use crate::file::OpenFile;

/// The number of read connections.
const READERS: u32 = 8;

/// The number of SQLite's virtual machine steps before a query on the caller's thread is interrupted: at
/// least this many, at most about twice. This is a few hundred rows.
const STEPS: i32 = 10_000;

/// The read connections, opened on demand.
#[derive(Debug)]
pub(crate) struct Readers {
    opened: Arc<OpenFile>,
    acquire_timeout: Duration,
    idle: Mutex<Vec<Connection>>,
    permits: Arc<Semaphore>,
    /// Limits long queries, so that connections are left for short queries and for other organizations.
    long_queries: FairSemaphore<Tenant>,
}

impl Readers {
    pub(crate) fn new(opened: Arc<OpenFile>, acquire_timeout: Duration) -> Self {
        let permits = Arc::new(Semaphore::new(READERS.try_into().unwrap_or(Semaphore::MAX_PERMITS)));
        let long_queries = FairSemaphore::for_long_queries(READERS);
        Self { opened, acquire_timeout, idle: Mutex::default(), permits, long_queries }
    }

    /// Returns the file of the store.
    pub(crate) const fn opened(&self) -> &Arc<OpenFile> {
        &self.opened
    }

    /// Waits for running queries and closes every connection.
    pub(crate) async fn close(&self) {
        let all = self.permits.acquire_many(READERS).await;
        self.permits.close();
        drop(all);
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        // A panic cannot leave the list of connections inconsistent.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a statement over a connection and decodes its rows. A query that is `long`, or turns out to be,
    /// runs on a thread for slow work, within the limit of this organization. Other queries run on the
    /// current thread.
    pub(crate) async fn read<R, T>(
        self: &Arc<Self>,
        org: Option<Id>,
        long: bool,
        rows: impl Fn(&Connection) -> rusqlite::Result<R> + Send + 'static,
        read: impl FnOnce(R) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T>
    where
        T: Send + 'static,
    {
        if !long {
            let permit = self.permit().await?;
            let found = self.with_connection(|connection| briefly(connection, &rows));
            drop(permit);
            let interrupted = |error| primary_code(error) == Some(ffi::SQLITE_INTERRUPT);
            if !found.as_ref().is_err_and(interrupted) {
                return read(found.map_err(store_error)?);
            }
        }
        let deadline = Instant::now() + self.acquire_timeout;
        let long_permit = self.long_queries.acquire(org, UNLIMITED, deadline).await.map_err(|_| Busy)?;
        let permit = self.permit().await?;
        let readers = Arc::clone(self);
        let answer = spawn_blocking(move || {
            let rows = readers.with_connection(|connection| rows(connection));
            drop((permit, long_permit));
            read(rows.map_err(store_error)?)
        });
        answer.await.map_err(|_| Refused::Closed)?
    }

    fn with_connection<T>(
        &self,
        read: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let idle = self.idle().pop();
        let mut connection = idle.map_or_else(|| self.connect(), Ok)?;
        let answer = read(&mut connection);
        self.idle().push(connection);
        answer
    }

    /// Waits for a permit until the timeout.
    async fn permit(&self) -> StoreResult<OwnedSemaphorePermit> {
        let permit = timeout(self.acquire_timeout, Arc::clone(&self.permits).acquire_owned()).await;
        let permit = permit.map_err(|_| Busy)?;
        Ok(permit.map_err(|_| Refused::Closed)?)
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let connected = connection(self.opened.open_name(), OpenFlags::empty());
        // If another file was opened, nothing has been read from it yet.
        self.opened.check()?;
        let connection = connected?;
        connection.pragma_update(None, "query_only", "ON")?;
        connection.pragma_update(None, "cache_size", CACHE_SIZE)?;
        Ok(connection)
    }
}

/// Reads over a connection, and interrupts at the second progress call. SQLite counts steps since the
/// statement was prepared, so the first call may come early; [`STEPS`] steps are between the two calls. An
/// early interruption only costs a second run.
fn briefly<R>(
    connection: &mut Connection,
    rows: impl Fn(&Connection) -> rusqlite::Result<R>,
) -> rusqlite::Result<R> {
    let mut called_once = false;
    connection.progress_handler(STEPS, Some(move || std::mem::replace(&mut called_once, true)))?;
    let found = rows(connection);
    connection.progress_handler(0, None::<fn() -> bool>)?;
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::{Options, Sqlite};
    use evidence_core::flows::{FlowFilter, FlowStore};
    use evidence_core::page::PageRequest;
    use evidence_core::seed::Seed;
    use evidence_core::transfer::Transfer;
    use evidence_core::{Evidence, Settings, StoreError};
    use evidence_store_sql::{Cost, Driver, FromRow, Statement};
    use std::sync::mpsc;

    const COUNT: &str = "
        WITH RECURSIVE x (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < $1) SELECT count(*) FROM x";

    #[tokio::test]
    async fn what_takes_long_leaves_the_callers_thread_whatever_was_said_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { acquire_timeout: Duration::from_millis(20), ..Options::default() };
        let store = Sqlite::open_with(directory.path().join("e.db"), &options).await.unwrap();
        let count = async |rows: i64| {
            let (values, cost) = (vec![rows.into()], Cost::Short);
            let count = Statement { sql: COUNT.into(), values, org: None, cost };
            let read = |rows: Vec<_>| <(i64,)>::from_row(rows.into_iter().next().unwrap());
            store.driver().read(count, read).await.map(|(count,)| count)
        };
        let mut taken = Vec::new();
        while let Ok(permit) = store.driver().readers.long_queries.acquire(None, 0, Instant::now()).await {
            taken.push(permit);
        }
        // The statement is prepared once, and its steps are counted since then.
        for _ in 0..100 {
            assert_eq!(count(100).await.unwrap(), 100);
        }
        for _ in 0..3 {
            let refused = count(1_000_000).await;
            assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        }
        drop(taken);
        assert_eq!(count(100_000).await.unwrap(), 100_000);
    }

    #[tokio::test]
    async fn slow_queries_of_one_organization_keep_no_other_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { acquire_timeout: Duration::from_secs(1), ..Options::default() };
        let store = Arc::new(Sqlite::open_with(directory.path().join("e.db"), &options).await.unwrap());
        let seed = |org: &str| Seed {
            user: "jane".parse().unwrap(),
            orgs: vec!["acme".parse().unwrap(), org.parse().unwrap()],
            api_key: None,
        };
        let evidence = Evidence::new(store.clone(), Settings::default());
        evidence.seed(&seed("beta")).await.unwrap();
        let orgs = store.organizations(None, 9).await.unwrap();
        let id = |name: &str| orgs.iter().find(|org| org.name.as_str() == name).unwrap().id;
        let flows = async |org: &str| store.flows(id(org), &FlowFilter::default(), PageRequest::ALL).await;
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        for _ in 0..2 * READERS {
            let (store, ended, org) = (Arc::clone(&store), Arc::clone(&ended), Some(id("acme")));
            let slow = move |_: &Connection| {
                ended.lock().unwrap().recv().ok();
                Ok(())
            };
            tokio::spawn(async move { store.driver().readers.read(org, true, slow, Ok).await });
        }
        tokio::task::yield_now().await;
        for _ in 0..READERS {
            flows("beta").await.unwrap();
        }
        let late = flows("acme").await;
        assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
        // Short queries and writes do not wait for lists.
        evidence.seed(&seed("gamma")).await.unwrap();
        drop(end);
        flows("acme").await.unwrap();
    }
}
