//! Connections and the queries over them: the store's own connections, or those of a host's pool. For its
//! own, the store does not use sqlx's pool. sqlx checks every returned connection with a message, which would
//! add a second round trip to each of our short queries.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use evidence_core::limiter::{FairPermit, Tenant};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, FromRow, PgConnection, Postgres, SqlSafeStr, SqlStr};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::error::{ConnectError, is_disconnected, timed_out};

/// The time that the client waits beyond the statement timeout. The server reports a timeout itself unless it
/// hangs.
const MARGIN: Duration = Duration::from_secs(1);

/// The time limit for an abandoned statement to end after its cancellation.
const ABANDONED: Duration = Duration::from_secs(5);

/// The settings of every connection of the store's own. They override those of the user, the database and the
/// server.
///
/// A statement is planned once for all values, when it is first sent: planning takes several times as long as
/// execution. Every statement here expects index probes. Without these settings, a table of three rows would
/// be scanned, and joined by a hash.
///
/// An acknowledged write is on the disk: a weaker setting is overridden, a stronger one stays. With the
/// `tcp_` settings, the server closes a connection to a machine that no longer responds, and releases its
/// locks.
const SETTINGS: &str = "
    SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET jit = off;
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply');
    SET default_transaction_isolation = 'read committed';
    SET lock_timeout = 0;
    SET idle_session_timeout = 0;
    SET idle_in_transaction_session_timeout = '60s';
    SET tcp_keepalives_idle = 60;
    SET tcp_keepalives_interval = 10;
    SET tcp_keepalives_count = 6;
    SET tcp_user_timeout = '60s'";

/// The additional settings of connections for work on the whole store. Their statements are few and read
/// everything, so they are planned for the actual data, and have no timeout.
const MAINTENANCE_SETTINGS: &str = "
    RESET plan_cache_mode;
    RESET enable_seqscan;
    RESET enable_hashjoin;
    RESET enable_mergejoin;
    SET bytea_output = 'hex';
    SET idle_in_transaction_session_timeout = 0;
    SET statement_timeout = 0";

/// Selects the process id, which is needed to cancel a statement, and the settings that the store relies on.
/// A pooler in between may have applied the settings to another session.
const READ_BACK_SETTINGS: &str = "
    SELECT pg_backend_pid(), current_setting('synchronous_commit'), current_setting('transaction_isolation')";

const CANCEL: &str = "SELECT pg_cancel_backend($1)";

/// Opens a connection, within the time limit.
pub(crate) async fn connect(
    options: &PgConnectOptions,
    connect_timeout: Duration,
) -> Result<PgConnection, sqlx::Error> {
    timeout(connect_timeout, options.connect()).await.unwrap_or_else(|_| Err(timed_out()))
}

/// The connection options for sessions, and the statement timeout.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) options: PgConnectOptions,
    pub(crate) statement_timeout: Duration,
}

impl Address {
    /// Returns the time limit of the client: the server's statement timeout plus [`MARGIN`].
    pub(crate) fn client_timeout(&self) -> Duration {
        self.statement_timeout + MARGIN
    }
}

/// Discards the cached plans, but not the prepared statements.
const PLAN_ANEW: &str = "DISCARD PLANS";

/// The maximum age of the plans of a connection, and the number of statements that use them. Tables grow: in
/// an almost empty one all indexes seem equally good, and PostgreSQL itself plans again only after it has
/// gathered statistics.
const PLAN_LIFETIME: (Duration, u32) = (Duration::from_secs(5), 1024);

/// A connection of the store's own, with its settings applied.
#[derive(Debug)]
pub(crate) struct PreparedConnection {
    connection: PgConnection,
    backend_pid: i32,
    client_timeout: Duration,
    planned: Instant,
    used: u32,
}

impl PreparedConnection {
    /// Opens a connection and applies the settings.
    pub(crate) async fn connect(address: &Address) -> Result<Self, sqlx::Error> {
        let session = async { Self::of(address.options.connect().await?, address).await };
        timeout(address.client_timeout(), session).await.unwrap_or_else(|_| Err(timed_out()))
    }

    /// Applies the settings to an exclusive connection.
    pub(crate) async fn of(mut connection: PgConnection, address: &Address) -> Result<Self, sqlx::Error> {
        let millis = address.statement_timeout.as_millis();
        let settings = format!("{SETTINGS}; SET statement_timeout = '{millis}ms'");
        let client_timeout = address.client_timeout();
        execute(&mut connection, AssertSqlSafe(settings), client_timeout).await?;
        let read_back = sqlx::query_as(READ_BACK_SETTINGS).persistent(false).fetch_one(&mut connection);
        let (backend_pid, commit, isolation): (i32, String, String) =
            timeout(client_timeout, read_back).await.unwrap_or_else(|_| Err(timed_out()))?;
        if let Some(weak) = weak_setting(&commit, &isolation) {
            return Err(sqlx::Error::Configuration(weak.into()));
        }
        Ok(Self { connection, backend_pid, client_timeout, planned: Instant::now(), used: 0 })
    }

    /// Opens a connection for work on the whole store.
    pub(crate) async fn connect_for_maintenance(address: &Address) -> Result<PgConnection, sqlx::Error> {
        let mut session = Self::connect(address).await?;
        execute(&mut session.connection, MAINTENANCE_SETTINGS, session.client_timeout).await?;
        Ok(session.connection)
    }

    /// Returns the time limit of the client for a statement.
    pub(crate) const fn client_timeout(&self) -> Duration {
        self.client_timeout
    }

    /// Returns the connection for one more statement, and discards outdated plans.
    pub(crate) async fn ready(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        let (age, uses) = PLAN_LIFETIME;
        if self.used >= uses || self.planned.elapsed() >= age {
            execute(&mut self.connection, PLAN_ANEW, self.client_timeout).await?;
            (self.planned, self.used) = (Instant::now(), 0);
        }
        self.used += 1;
        Ok(&mut self.connection)
    }

    /// Reads the rest of an abandoned result.
    async fn drain(&mut self) -> Result<(), sqlx::Error> {
        match self.connection.ping().await {
            // The error of the abandoned statement.
            Err(sqlx::Error::Database(_)) => self.connection.ping().await,
            outcome => outcome,
        }
    }

    pub(crate) async fn close(self) -> Result<(), sqlx::Error> {
        timeout(self.client_timeout, self.connection.close()).await.unwrap_or_else(|_| Err(timed_out()))
    }
}

/// Returns an error if a setting of a session is weaker than the store guarantees.
fn weak_setting(synchronous_commit: &str, isolation: &str) -> Option<ConnectError> {
    let weak = |setting, found: &str| Some(ConnectError::Weak { setting, found: found.to_owned() });
    match (synchronous_commit, isolation) {
        ("on" | "remote_apply", "read committed") => None,
        ("on" | "remote_apply", found) => weak("default_transaction_isolation", found),
        (found, _) => weak("synchronous_commit", found),
    }
}

async fn execute(
    connection: &mut PgConnection,
    sql: impl SqlSafeStr,
    client_timeout: Duration,
) -> Result<(), sqlx::Error> {
    let done = sqlx::raw_sql(sql).execute(connection);
    timeout(client_timeout, done).await.unwrap_or_else(|_| Err(timed_out())).map(drop)
}

/// The source of the connections for queries.
#[derive(Debug, Clone)]
pub(crate) enum Connections {
    /// The store's own connections.
    Own(Arc<Pool>),
    /// A host's pool. The host runs its own statements on it, so the store does not change the settings.
    Host {
        /// The pool.
        pool: PgPool,
        /// The time limit of a statement.
        statement_timeout: Duration,
    },
}

impl Connections {
    /// Returns the address of the database and the statement timeout.
    pub(crate) fn address(&self) -> Address {
        match self {
            Self::Own(pool) => pool.address.clone(),
            Self::Host { pool, statement_timeout } => Address {
                options: pool.connect_options().as_ref().clone(),
                statement_timeout: *statement_timeout,
            },
        }
    }

    /// Returns the maximum number of connections.
    pub(crate) fn max_connections(&self) -> u32 {
        match self {
            Self::Own(pool) => pool.max_connections,
            Self::Host { pool, .. } => pool.options().get_max_connections(),
        }
    }

    /// Returns the time that a query waits for a connection.
    pub(crate) fn acquire_timeout(&self) -> Duration {
        match self {
            Self::Own(pool) => pool.acquire_timeout,
            Self::Host { pool, .. } => pool.options().get_acquire_timeout(),
        }
    }

    /// Returns every row of a statement. The permit of a long query is held as long as the connection is in use.
    pub(crate) async fn rows<R>(
        &self,
        sql: SqlStr,
        arguments: PgArguments,
        long_permit: Option<LongPermit>,
    ) -> Result<Vec<R>, sqlx::Error>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        match self {
            Self::Own(pool) => Pool::take(pool, long_permit).await?.rows(sql, arguments).await,
            Self::Host { pool, statement_timeout } => {
                borrowed(pool.acquire().await?, sql, arguments, *statement_timeout).await
            }
        }
    }

    /// Runs a statement again after it hit a dead connection. After a server restart, all idle connections
    /// are dead, so they are dropped first.
    pub(crate) async fn rows_anew<R>(
        &self,
        sql: SqlStr,
        arguments: PgArguments,
        long_permit: Option<LongPermit>,
    ) -> Result<Vec<R>, sqlx::Error>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        self.drop_idle();
        match self {
            Self::Own(pool) => Pool::take(pool, long_permit).await?.rows(sql, arguments).await,
            Self::Host { pool, statement_timeout } => {
                let connection = timeout(*statement_timeout, acquire_live(pool))
                    .await
                    .unwrap_or_else(|_| Err(timed_out()))?;
                borrowed(connection, sql, arguments, *statement_timeout).await
            }
        }
    }

    /// Closes the store's own idle connections, which lead to a server that no longer exists.
    pub(crate) fn drop_idle(&self) {
        if let Self::Own(pool) = self {
            pool.with_idle(std::mem::take);
        }
    }

    /// Closes every connection as soon as it is free.
    pub(crate) async fn close(&self) {
        match self {
            Self::Own(pool) => pool.close().await,
            Self::Host { pool, .. } => pool.close().await,
        }
    }
}

/// Returns a live connection of a pool. Pings each candidate.
async fn acquire_live(pool: &PgPool) -> Result<PoolConnection<Postgres>, sqlx::Error> {
    loop {
        let mut connection = pool.acquire().await?;
        if connection.ping().await.is_ok() {
            return Ok(connection);
        }
        connection.close_on_drop();
    }
}

/// A connection of a host's pool in use. If its caller abandons the result, the connection is closed: in the
/// pool it would block others until the statement ends.
struct Borrowed {
    connection: PoolConnection<Postgres>,
    busy: bool,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if self.busy {
            self.connection.close_on_drop();
        }
    }
}

async fn borrowed<R>(
    connection: PoolConnection<Postgres>,
    sql: SqlStr,
    arguments: PgArguments,
    statement_timeout: Duration,
) -> Result<Vec<R>, sqlx::Error>
where
    R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
{
    let mut borrowed = Borrowed { connection, busy: true };
    let rows = fetched(&mut borrowed.connection, sql, arguments, statement_timeout).await;
    borrowed.busy = rows.as_ref().is_err_and(is_disconnected);
    rows
}

async fn fetched<R>(
    connection: &mut PgConnection,
    sql: SqlStr,
    arguments: PgArguments,
    client_timeout: Duration,
) -> Result<Vec<R>, sqlx::Error>
where
    R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
{
    let rows = sqlx::query_as_with::<_, R, _>(sql, arguments).fetch_all(connection);
    timeout(client_timeout, rows).await.unwrap_or_else(|_| Err(timed_out()))
}

/// A pool of a few connections, opened on demand. The most recently used one is used next, because it has
/// prepared the most statements.
#[derive(Debug)]
pub(crate) struct Pool {
    address: Address,
    max_connections: u32,
    acquire_timeout: Duration,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<PreparedConnection>>,
    /// The connection that cancels abandoned statements, opened by the first cancellation.
    control: tokio::sync::Mutex<Option<PgConnection>>,
}

impl Pool {
    pub(crate) fn new(address: Address, max_connections: u32, acquire_timeout: Duration) -> Self {
        let permits = Arc::new(Semaphore::new(max_connections.try_into().unwrap_or(Semaphore::MAX_PERMITS)));
        let (idle, control) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { address, max_connections, acquire_timeout, permits, idle, control }
    }

    /// Returns an idle connection, or opens one if the limit allows it.
    async fn take(
        pool: &Arc<Self>,
        long_permit: Option<LongPermit>,
    ) -> Result<PooledConnection, sqlx::Error> {
        let taken = async {
            let permit = Arc::clone(&pool.permits).acquire_owned().await;
            let permit = permit.map_err(|_| sqlx::Error::PoolClosed)?;
            let idle = pool.with_idle(Vec::pop);
            let session = match idle {
                Some(session) => session,
                None => PreparedConnection::connect(&pool.address).await?,
            };
            Ok(PooledConnection {
                pool: Arc::clone(pool),
                held: Some((session, (permit, long_permit))),
                busy: false,
            })
        };
        timeout(pool.acquire_timeout, taken).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    fn with_idle<T>(&self, work: impl FnOnce(&mut Vec<PreparedConnection>) -> T) -> T {
        work(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Cancels an abandoned statement, and keeps the connection if that succeeds. The permit is held until
    /// then, so callers that repeatedly disconnect do not get more connections than others.
    async fn abandon(self: Arc<Self>, mut session: PreparedConnection, permit: Permit) {
        let ended = async {
            self.cancel(session.backend_pid).await?;
            session.drain().await
        };
        match timeout(ABANDONED, ended).await.unwrap_or_else(|_| Err(timed_out())) {
            Ok(()) => self.with_idle(|idle| idle.push(session)),
            Err(error) => tracing::debug!(%error, "an abandoned statement did not end"),
        }
        drop(permit);
    }

    /// Cancels the statement of a session by a query. sqlx does not expose the key that the protocol's cancel
    /// request needs.
    async fn cancel(&self, backend_pid: i32) -> Result<(), sqlx::Error> {
        let mut control = self.control.lock().await;
        let mut connection = match control.take() {
            Some(connection) => connection,
            None => self.address.options.connect().await?,
        };
        sqlx::query(CANCEL).bind(backend_pid).execute(&mut connection).await?;
        *control = Some(connection);
        Ok(())
    }

    async fn close(&self) {
        // Later callers queue behind this call and are then refused.
        let all = self.permits.acquire_many(self.max_connections).await;
        self.permits.close();
        drop(all);
        for session in self.with_idle(std::mem::take) {
            // An error means that the connection is closed already.
            session.close().await.ok();
        }
        drop(self.control.lock().await.take());
    }
}

/// A permit for a long query, shared by the attempts of the query.
pub(crate) type LongPermit = Arc<FairPermit<Tenant>>;

/// A permit for one connection, and the permit for a long query if the query may take long.
type Permit = (OwnedSemaphorePermit, Option<LongPermit>);

/// A connection in use. Dropping it returns it to the pool; if a statement is running, only after its
/// cancellation.
struct PooledConnection {
    pool: Arc<Pool>,
    /// `None` after it was given up.
    held: Option<(PreparedConnection, Permit)>,
    busy: bool,
}

impl PooledConnection {
    async fn rows<R>(mut self, sql: SqlStr, arguments: PgArguments) -> Result<Vec<R>, sqlx::Error>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        let (session, _) = self.held.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        self.busy = true;
        let client_timeout = session.client_timeout;
        let outcome = match session.ready().await {
            Ok(connection) => fetched(connection, sql, arguments, client_timeout).await,
            Err(error) => Err(error),
        };
        self.busy = false;
        if outcome.as_ref().is_err_and(is_disconnected) {
            self.held = None;
        }
        outcome
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let Some((session, permit)) = self.held.take() else { return };
        if !self.busy {
            self.pool.with_idle(|idle| idle.push(session));
        } else if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(Arc::clone(&self.pool).abandon(session, permit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_weaker_than_promised_is_named() {
        let named = |commit, isolation| weak_setting(commit, isolation).map(|weak| weak.to_string());
        for commit in ["on", "remote_apply"] {
            assert_eq!(named(commit, "read committed"), None);
        }
        for commit in ["off", "local", "remote_write"] {
            let weak = named(commit, "read committed").unwrap();
            assert!(weak.starts_with(&format!("a session has synchronous_commit = {commit} ")), "{weak}");
        }
        let weak = named("on", "serializable").unwrap();
        assert!(weak.contains("default_transaction_isolation = serializable"), "{weak}");
    }
}
