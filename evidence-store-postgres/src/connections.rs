//! Connections, and what is asked over them: those of the store's own, or those of a host's pool. The store keeps its own
//! without sqlx's pool, which sends every connection that is given back a message to see whether it still answers: for
//! questions as short as ours that is a second round trip each.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgRow};
use sqlx::{ConnectOptions, Connection, FromRow, PgConnection, Postgres, SqlStr};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::error::{is_disconnected, timed_out};

/// How long a statement may take, and a connection to be made, before the store counts as not available.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What every connection of the store's own is told once. A statement is planned for all values alike, when it is sent
/// for the first time: planning takes several times as long as answering. A plan is that of index probes, as every
/// statement here means it: otherwise a table of three rows is read from end to end, and joined by a hash of it.
const SETTINGS: &str = "
    SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = off;
    SET enable_hashjoin = off;
    SET enable_mergejoin = off;
    SET jit = off";

/// Makes a connection, or gives up.
pub(crate) async fn connect(address: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    timeout(PATIENCE, address.connect()).await.unwrap_or_else(|_| Err(timed_out()))
}

/// Forgets how statements were planned, though not the statements.
const PLAN_ANEW: &str = "DISCARD PLANS";

/// How long a connection goes by its plans, and for how many statements. Tables grow: in an almost empty one all indexes
/// seem equally good, and PostgreSQL itself plans again only after it has gathered statistics.
const PLANS_LAST: (Duration, u32) = (Duration::from_secs(5), 1024);

/// A connection of the store's own, set as its statements want it.
#[derive(Debug)]
pub(crate) struct Session {
    connection: PgConnection,
    planned: Instant,
    used: u32,
}

impl Session {
    /// Makes a connection.
    pub(crate) async fn connect(address: &PgConnectOptions) -> Result<Self, sqlx::Error> {
        Self::of(connect(address).await?).await
    }

    /// Sets a connection that nobody else uses.
    pub(crate) async fn of(mut connection: PgConnection) -> Result<Self, sqlx::Error> {
        told(&mut connection, SETTINGS).await?;
        Ok(Self { connection, planned: Instant::now(), used: 0 })
    }

    /// The connection, for one more statement.
    pub(crate) async fn ready(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        let (age, uses) = PLANS_LAST;
        if self.used >= uses || self.planned.elapsed() >= age {
            told(&mut self.connection, PLAN_ANEW).await?;
            (self.planned, self.used) = (Instant::now(), 0);
        }
        self.used += 1;
        Ok(&mut self.connection)
    }

    pub(crate) async fn close(self) -> Result<(), sqlx::Error> {
        self.connection.close().await
    }
}

async fn told(connection: &mut PgConnection, what: &'static str) -> Result<(), sqlx::Error> {
    let done = sqlx::raw_sql(what).execute(connection);
    timeout(PATIENCE, done).await.unwrap_or_else(|_| Err(timed_out())).map(drop)
}

/// Where connections to ask on come from.
#[derive(Debug, Clone)]
pub(crate) enum Connections {
    /// Of the store alone.
    Own(Arc<Stack>),
    /// A host's, for its own statements too: so they are left as they are.
    Host(PgPool),
}

impl Connections {
    /// Where the database is.
    pub(crate) fn address(&self) -> PgConnectOptions {
        match self {
            Self::Own(stack) => stack.address.clone(),
            Self::Host(pool) => pool.connect_options().as_ref().clone(),
        }
    }

    /// Every row that a statement answers with.
    pub(crate) async fn rows<R>(&self, sql: SqlStr, arguments: PgArguments) -> Result<Vec<R>, sqlx::Error>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        match self {
            Self::Own(stack) => stack.take().await?.rows(sql, arguments).await,
            Self::Host(pool) => fetched(&mut *pool.acquire().await?, sql, arguments).await,
        }
    }

    /// The same where a connection was found dead: after the server was restarted those that were kept are all dead.
    pub(crate) async fn rows_anew<R>(
        &self,
        sql: SqlStr,
        arguments: PgArguments,
    ) -> Result<Vec<R>, sqlx::Error>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        match self {
            Self::Own(stack) => {
                stack.forget();
                stack.take().await?.rows(sql, arguments).await
            }
            Self::Host(pool) => fetched(&mut *sound(pool).await?, sql, arguments).await,
        }
    }

    /// Closes every connection, each when it is free.
    pub(crate) async fn close(&self) {
        match self {
            Self::Own(stack) => stack.close().await,
            Self::Host(pool) => pool.close().await,
        }
    }
}

/// A connection of a pool that answers, found by asking each.
async fn sound(pool: &PgPool) -> Result<PoolConnection<Postgres>, sqlx::Error> {
    loop {
        let mut connection = pool.acquire().await?;
        if connection.ping().await.is_ok() {
            return Ok(connection);
        }
        connection.close_on_drop();
    }
}

async fn fetched<R>(
    connection: &mut PgConnection,
    sql: SqlStr,
    arguments: PgArguments,
) -> Result<Vec<R>, sqlx::Error>
where
    R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
{
    let rows = sqlx::query_as_with::<_, R, _>(sql, arguments).fetch_all(connection);
    timeout(PATIENCE, rows).await.unwrap_or_else(|_| Err(timed_out()))
}

/// A few connections, made when they are needed. The one that was used last is used next: it has prepared the most.
#[derive(Debug)]
pub(crate) struct Stack {
    address: PgConnectOptions,
    most: u32,
    acquire_timeout: Duration,
    permits: Semaphore,
    idle: Mutex<Vec<Session>>,
}

impl Stack {
    pub(crate) fn new(address: PgConnectOptions, most: u32, acquire_timeout: Duration) -> Self {
        let permits = Semaphore::new(most.try_into().unwrap_or(Semaphore::MAX_PERMITS));
        Self { address, most, acquire_timeout, permits, idle: Mutex::default() }
    }

    /// A free connection, or a new one where there may be one more.
    async fn take(&self) -> Result<Taken<'_>, sqlx::Error> {
        let taken = async {
            let permit = self.permits.acquire().await.map_err(|_| sqlx::Error::PoolClosed)?;
            let idle = self.with_idle(Vec::pop);
            let session = match idle {
                Some(session) => session,
                None => Session::connect(&self.address).await?,
            };
            Ok(Taken { stack: self, session: Some(session), _permit: permit })
        };
        timeout(self.acquire_timeout, taken).await.unwrap_or(Err(sqlx::Error::PoolTimedOut))
    }

    fn with_idle<T>(&self, work: impl FnOnce(&mut Vec<Session>) -> T) -> T {
        work(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Gives up the connections that nobody uses.
    fn forget(&self) {
        self.with_idle(std::mem::take);
    }

    async fn close(&self) {
        // Whoever asks from now on waits behind this and is refused.
        let all = self.permits.acquire_many(self.most).await;
        self.permits.close();
        drop(all);
        for session in self.with_idle(std::mem::take) {
            // An error means that it is closed already.
            session.close().await.ok();
        }
    }
}

/// A connection in use. It goes back when this is dropped, even half way through an answer: sqlx reads what is left of
/// it before it asks anything else.
struct Taken<'a> {
    stack: &'a Stack,
    /// Nothing once it is given up.
    session: Option<Session>,
    _permit: SemaphorePermit<'a>,
}

impl Taken<'_> {
    async fn rows<R>(mut self, sql: SqlStr, arguments: PgArguments) -> Result<Vec<R>, sqlx::Error>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        let session = self.session.as_mut().ok_or(sqlx::Error::PoolClosed)?;
        let outcome = match session.ready().await {
            Ok(connection) => fetched(connection, sql, arguments).await,
            Err(error) => Err(error),
        };
        if outcome.as_ref().is_err_and(is_disconnected) {
            self.session = None;
        }
        outcome
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.stack.with_idle(|idle| idle.push(session));
        }
    }
}
