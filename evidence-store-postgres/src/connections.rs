//! Connections, and what is asked over them: those of the store's own, or those of a host's pool. The store keeps its own
//! without sqlx's pool, which sends every connection that is given back a message to see whether it still answers: for
//! queries as short as ours that is a second round trip each.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use evidence_core::shares::Share;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, FromRow, PgConnection, Postgres, SqlSafeStr, SqlStr};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::error::{ConnectError, is_disconnected, timed_out};

/// How much longer a statement is waited for than it may take: the server says itself that one took too long, unless it
/// hangs.
const MARGIN: Duration = Duration::from_secs(1);

/// How long a statement that was abandoned may take to end once it is cancelled.
const ABANDONED: Duration = Duration::from_secs(5);

/// What is set once on every connection of the store's own, whatever its user, database or server have otherwise.
///
/// A statement is planned for all values alike, when it is sent for the first time: planning takes several times as long
/// as answering. A plan is that of index probes, as every statement here means it: otherwise a table of three rows is read
/// from end to end, and joined by a hash of it.
///
/// What is acknowledged is on the disk, whatever weaker is set; stronger is kept. The `tcp_` settings are for the server to
/// let go of a connection, and of its locks, that our machine no longer answers on.
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

/// What is set besides on connections for work on the whole store: their statements are few and about everything, so they
/// are planned for what there is, and take as long as they take.
const MAINTENANCE_SETTINGS: &str = "
    RESET plan_cache_mode;
    RESET enable_seqscan;
    RESET enable_hashjoin;
    RESET enable_mergejoin;
    SET bytea_output = 'hex';
    SET idle_in_transaction_session_timeout = 0;
    SET statement_timeout = 0";

/// The process by whose number the session's statement is cancelled, and whether the settings that matter hold: a pooler
/// between may have set those of another session.
const READ_BACK_SETTINGS: &str = "
    SELECT pg_backend_pid(), current_setting('synchronous_commit'), current_setting('transaction_isolation')";

const CANCEL: &str = "SELECT pg_cancel_backend($1)";

/// Makes a connection, or gives up.
pub(crate) async fn connect(
    options: &PgConnectOptions,
    connect_timeout: Duration,
) -> Result<PgConnection, sqlx::Error> {
    timeout(connect_timeout, options.connect()).await.unwrap_or_else(|_| Err(timed_out()))
}

/// How sessions are made: where the database is, and how long a statement may take.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) options: PgConnectOptions,
    pub(crate) statement_timeout: Duration,
}

impl Address {
    /// How long the client waits: the server's statement timeout plus [`MARGIN`].
    pub(crate) fn client_timeout(&self) -> Duration {
        self.statement_timeout + MARGIN
    }
}

/// Forgets how statements were planned, though not the statements.
const PLAN_ANEW: &str = "DISCARD PLANS";

/// How long a connection goes by its plans, and for how many statements. Tables grow: in an almost empty one all indexes
/// seem equally good, and PostgreSQL itself plans again only after it has gathered statistics.
const PLAN_LIFETIME: (Duration, u32) = (Duration::from_secs(5), 1024);

/// A connection of the store's own, set as its statements want it.
#[derive(Debug)]
pub(crate) struct PreparedConnection {
    connection: PgConnection,
    backend_pid: i32,
    client_timeout: Duration,
    planned: Instant,
    used: u32,
}

impl PreparedConnection {
    /// Makes a connection.
    pub(crate) async fn connect(address: &Address) -> Result<Self, sqlx::Error> {
        let session = async { Self::of(address.options.connect().await?, address).await };
        timeout(address.client_timeout(), session).await.unwrap_or_else(|_| Err(timed_out()))
    }

    /// Sets a connection that nobody else uses.
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

    /// Makes a connection for work on the whole store.
    pub(crate) async fn connect_for_maintenance(address: &Address) -> Result<PgConnection, sqlx::Error> {
        let mut session = Self::connect(address).await?;
        execute(&mut session.connection, MAINTENANCE_SETTINGS, session.client_timeout).await?;
        Ok(session.connection)
    }

    /// How long the client waits for a statement.
    pub(crate) const fn client_timeout(&self) -> Duration {
        self.client_timeout
    }

    /// The connection, for one more statement.
    pub(crate) async fn ready(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        let (age, uses) = PLAN_LIFETIME;
        if self.used >= uses || self.planned.elapsed() >= age {
            execute(&mut self.connection, PLAN_ANEW, self.client_timeout).await?;
            (self.planned, self.used) = (Instant::now(), 0);
        }
        self.used += 1;
        Ok(&mut self.connection)
    }

    /// Reads what is left of an answer that nobody waits for.
    async fn drain(&mut self) -> Result<(), sqlx::Error> {
        match self.connection.ping().await {
            // How the abandoned statement ended.
            Err(sqlx::Error::Database(_)) => self.connection.ping().await,
            outcome => outcome,
        }
    }

    pub(crate) async fn close(self) -> Result<(), sqlx::Error> {
        timeout(self.client_timeout, self.connection.close()).await.unwrap_or_else(|_| Err(timed_out()))
    }
}

/// The setting of a session that is weaker than the store promises.
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

/// Where the connections that queries use come from.
#[derive(Debug, Clone)]
pub(crate) enum Connections {
    /// Of the store alone.
    Own(Arc<Pool>),
    /// A host's, for its own statements too: so they are left as they are.
    Host {
        /// Its pool.
        pool: PgPool,
        /// How long a statement may take.
        statement_timeout: Duration,
    },
}

impl Connections {
    /// Where the database is.
    pub(crate) fn address(&self) -> Address {
        match self {
            Self::Own(pool) => pool.address.clone(),
            Self::Host { pool, statement_timeout } => Address {
                options: pool.connect_options().as_ref().clone(),
                statement_timeout: *statement_timeout,
            },
        }
    }

    /// How many there are at most.
    pub(crate) fn max_connections(&self) -> u32 {
        match self {
            Self::Own(pool) => pool.max_connections,
            Self::Host { pool, .. } => pool.options().get_max_connections(),
        }
    }

    /// How long a query waits for one.
    pub(crate) fn acquire_timeout(&self) -> Duration {
        match self {
            Self::Own(pool) => pool.acquire_timeout,
            Self::Host { pool, .. } => pool.options().get_acquire_timeout(),
        }
    }

    /// Every row that a statement answers with. The share is held for as long as the connection is used.
    pub(crate) async fn rows<R>(
        &self,
        sql: SqlStr,
        arguments: PgArguments,
        share: Option<Arc<Share>>,
    ) -> Result<Vec<R>, sqlx::Error>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        match self {
            Self::Own(pool) => Pool::take(pool, share).await?.rows(sql, arguments).await,
            Self::Host { pool, statement_timeout } => {
                borrowed(pool.acquire().await?, sql, arguments, *statement_timeout).await
            }
        }
    }

    /// The same where a connection was found dead: after the server was restarted those that were kept are all dead.
    pub(crate) async fn rows_anew<R>(
        &self,
        sql: SqlStr,
        arguments: PgArguments,
        share: Option<Arc<Share>>,
    ) -> Result<Vec<R>, sqlx::Error>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        self.drop_idle();
        match self {
            Self::Own(pool) => Pool::take(pool, share).await?.rows(sql, arguments).await,
            Self::Host { pool, statement_timeout } => {
                let connection = timeout(*statement_timeout, acquire_live(pool))
                    .await
                    .unwrap_or_else(|_| Err(timed_out()))?;
                borrowed(connection, sql, arguments, *statement_timeout).await
            }
        }
    }

    /// Gives up the connections of the store's own that nobody uses: they lead to a server that is not the one any more.
    pub(crate) fn drop_idle(&self) {
        if let Self::Own(pool) = self {
            pool.with_idle(std::mem::take);
        }
    }

    /// Closes every connection, each when it is free.
    pub(crate) async fn close(&self) {
        match self {
            Self::Own(pool) => pool.close().await,
            Self::Host { pool, .. } => pool.close().await,
        }
    }
}

/// A connection of a pool that answers, found by asking each.
async fn acquire_live(pool: &PgPool) -> Result<PoolConnection<Postgres>, sqlx::Error> {
    loop {
        let mut connection = pool.acquire().await?;
        if connection.ping().await.is_ok() {
            return Ok(connection);
        }
        connection.close_on_drop();
    }
}

/// A host's connection in use. Where nobody waits for its answer any more it is closed, for the pool would keep others
/// waiting until the statement ends.
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

/// A few connections, made when they are needed. The one that was used last is used next: it has prepared the most.
#[derive(Debug)]
pub(crate) struct Pool {
    address: Address,
    max_connections: u32,
    acquire_timeout: Duration,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<PreparedConnection>>,
    /// Over which abandoned statements are cancelled, once there was one.
    control: tokio::sync::Mutex<Option<PgConnection>>,
}

impl Pool {
    pub(crate) fn new(address: Address, max_connections: u32, acquire_timeout: Duration) -> Self {
        let permits = Arc::new(Semaphore::new(max_connections.try_into().unwrap_or(Semaphore::MAX_PERMITS)));
        let (idle, control) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { address, max_connections, acquire_timeout, permits, idle, control }
    }

    /// A free connection, or a new one where there may be one more.
    async fn take(pool: &Arc<Self>, share: Option<Arc<Share>>) -> Result<PooledConnection, sqlx::Error> {
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
                held: Some((session, (permit, share))),
                busy: false,
            })
        };
        timeout(pool.acquire_timeout, taken).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    fn with_idle<T>(&self, work: impl FnOnce(&mut Vec<PreparedConnection>) -> T) -> T {
        work(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends a statement that nobody waits for, and keeps the connection where that succeeds. It counts as used until then,
    /// so that whoever asks and hangs up again and again makes no more connections than others.
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

    /// Cancels what a session does. sqlx keeps what the protocol's own request to cancel takes to itself.
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
        // Whoever asks from now on waits behind this and is refused.
        let all = self.permits.acquire_many(self.max_connections).await;
        self.permits.close();
        drop(all);
        for session in self.with_idle(std::mem::take) {
            // An error means that it is closed already.
            session.close().await.ok();
        }
        drop(self.control.lock().await.take());
    }
}

/// A permit to use one connection, and a share of the organization's where the query may take long.
type Permit = (OwnedSemaphorePermit, Option<Arc<Share>>);

/// A connection in use. It goes back when this is dropped, or once what it is busy with has been cancelled.
struct PooledConnection {
    pool: Arc<Pool>,
    /// Nothing once it is given up.
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
