//! Connecting, and the way to ask: a statement and its values, for all rows or for the first.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use evidence_core::id::Id;
use evidence_core::queue::{Bounds, Queue, Refused};
use evidence_core::shares::Shares;
use evidence_core::store::{Health, StoreResult, readable};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgRow};
use sqlx::{Arguments, AssertSqlSafe, ConnectOptions, Encode, FromRow, Postgres, Row, Type};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::connections::{Address, Connections, Pool, Session, connect};
use crate::error::{ConnectError, MayNotWrite, Outdated, is_cut, store_error};
use crate::lookup::{self, Lookup};
use crate::migrate::{MIGRATIONS, Migration, WRITER, expect_migrated, latest, migrate};
use crate::schema::{Schema, TABLES};
use crate::writer::{Job, Writer};

/// How long the first connection may take to be made.
pub(crate) const CONNECTING: Duration = Duration::from_secs(30);

/// One of the tables `$2` of the schema `$1` of which this user has not the privilege that `$3` says, and which: what an
/// operator takes away besides, as from ledgers that nobody changes, is not missed. It is read from the catalog.
const NOT_WRITABLE: &str = "
    SELECT c.relname::text, p.privilege FROM UNNEST($2::text[], $3::text[]) AS p (name, privilege)
    JOIN pg_catalog.pg_class c ON c.relname = p.name::name
    WHERE c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = $1) AND c.relkind IN ('r', 'p')
        AND NOT has_table_privilege(c.oid, p.privilege)
    ORDER BY c.relname, p.privilege LIMIT 1";

/// One of the tables `$2` of the schema `$1` that a crash empties.
const UNLOGGED: &str = "
    SELECT c.relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = $1 AND c.relname = ANY($2) AND c.relkind = 'r' AND c.relpersistence <> 'p'
    ORDER BY c.relname LIMIT 1";

/// How a store uses its database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The schema that holds the tables; made if it is not there. `evidence` unless said otherwise.
    pub schema: String,
    /// The most connections for reading; one more is for writing, and one for cancelling what nobody waits for any more.
    /// 8 unless said otherwise.
    pub connections: u32,
    /// How long a question waits for a connection before the store counts as not available; one that may take long waits
    /// as long before for the turn of its organization. 5 seconds unless said otherwise.
    pub acquire_timeout: Duration,
    /// How long a write, or a question by name, waits for its turn before the store counts as not available. What was
    /// refused for it is not done afterwards. 10 seconds unless said otherwise.
    pub queue_timeout: Duration,
    /// How many bytes may wait to be written before the store counts as not available. An organization may take half of
    /// what the others leave; a single write that has more than half of it waits beside, one at a time. 64 MiB unless said
    /// otherwise.
    pub queue_bytes: usize,
    /// How long a statement may take, and a connection to be made, before the store counts as not available. 10 seconds
    /// unless said otherwise.
    pub statement_timeout: Duration,
    /// Whether one transaction may hold writes of several organizations, which is about six times as fast where many of
    /// them write. False for databases that spread the tables over machines by organization and want each transaction
    /// on one of them, as Citus does.
    pub mixed_batches: bool,
    /// Whether the schema and its tables are made where there are none, and brought up to date. A store is otherwise
    /// opened as it is, and refused where this program cannot use it so. True unless said otherwise.
    pub migrate: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: "evidence".to_owned(),
            connections: 8,
            acquire_timeout: Duration::from_secs(5),
            queue_timeout: Duration::from_secs(10),
            queue_bytes: 64 << 20,
            statement_timeout: Duration::from_secs(10),
            mixed_batches: true,
            migrate: true,
        }
    }
}

/// A store in one schema of a PostgreSQL database, which other servers may use at the same time. The writer ends when
/// the store is dropped or closed.
#[derive(Debug)]
pub struct PostgresStore {
    pub(crate) reader: Reader,
    pub(crate) queue: Queue<Job>,
    pub(crate) lookups: mpsc::Sender<Lookup>,
}

impl PostgresStore {
    /// Opens the store at `postgres://user:password@host:port/database` and brings its tables up to date
    /// ([`Options::migrate`]). The options of libpq's addresses are understood; `?host=/directory` names the directory of a socket.
    ///
    /// # Errors
    /// [`ConnectError`] says what is wrong and what to do.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::connect_with(url, &Options::default()).await
    }

    /// The same, with other options than the usual ones.
    ///
    /// # Errors
    /// [`ConnectError`] says what is wrong and what to do.
    pub async fn connect_with(url: &str, options: &Options) -> Result<Self, ConnectError> {
        let address = PgConnectOptions::from_str(url).map_err(|source| ConnectError::BadUrl { source })?;
        let address = address.application_name("evidence").disable_statement_logging();
        let address = Address { options: address, statement_timeout: options.statement_timeout };
        let pool = Pool::new(address, options.connections, options.acquire_timeout);
        Self::start(Connections::Own(Arc::new(pool)), options, &MIGRATIONS).await
    }

    /// Opens the store in a schema of the database that a host has a pool for. Questions share the pool; the writer
    /// makes a connection of its own, by the pool's options.
    ///
    /// The pool's connections are left as they are, and PostgreSQL plans each question on them anew, unless the host
    /// tells them `SET plan_cache_mode = force_generic_plan` (as in `PgPoolOptions::after_connect`): that is the host's
    /// to decide, for it asks questions of its own.
    ///
    /// # Errors
    /// [`ConnectError`] says what is wrong and what to do.
    pub async fn from_pool(pool: PgPool, schema: &str) -> Result<Self, ConnectError> {
        let options = Options { schema: schema.to_owned(), ..Options::default() };
        Self::start(Connections::Host(pool, options.statement_timeout), &options, &MIGRATIONS).await
    }

    /// Opens the store as a program does that knows these migrations.
    pub(crate) async fn start(
        connections: Connections,
        options: &Options,
        migrations: &'static [Migration],
    ) -> Result<Self, ConnectError> {
        let schema = Schema::new(&options.schema)?;
        let address = connections.address();
        let mut connection = connect(&address.options, CONNECTING).await.map_err(ConnectError::connecting)?;
        if options.migrate {
            migrate(&schema, &mut connection, &address, migrations).await?;
        } else {
            expect_migrated(&schema, &mut connection, migrations).await?;
        }
        let unlogged = sqlx::query_scalar::<_, String>(UNLOGGED).bind(schema.name()).persistent(false);
        let unlogged = unlogged.bind(TABLES.map(|(table, _)| table)).fetch_optional(&mut connection).await;
        if let Some(table) = unlogged.map_err(ConnectError::connecting)? {
            return Err(ConnectError::Unlogged(schema.table(&table)));
        }
        let session = Session::of(connection, &address).await.map_err(ConnectError::connecting)?;
        let shares = Arc::new(Shares::new(connections.most()));
        let reader = Reader { connections, shares, schema, migrations, statements: Arc::default() };
        // A write that was begun takes a statement, and perhaps one more that looks what became of it.
        let grace = Some(address.statement_timeout() * 2);
        let bounds = Bounds { bytes: options.queue_bytes, wait: options.queue_timeout, grace };
        let (queue, jobs) = Queue::new(bounds);
        tokio::spawn(Writer::new(session, reader.clone(), options.mixed_batches).run(jobs));
        let lookups = lookup::open(&reader);
        Ok(Self { reader, queue, lookups })
    }

    /// Finishes what was handed to the writer and closes every connection, the pool's too. Later calls answer
    /// [`evidence_core::StoreError::Unavailable`].
    pub async fn close(&self) {
        self.reader.connections.close().await;
        self.queue.stop(Job::Stop).await;
    }

    /// How many statements reads and writes have sent so far: tests assert bounds with it.
    pub fn statements(&self) -> u64 {
        self.reader.statements.load(Ordering::Relaxed)
    }

    /// A question, whose values are bound next.
    pub(crate) fn ask(&self, sql: &str) -> Question<'_> {
        self.reader.ask(sql)
    }

    /// A question about one organization, which is its first value.
    pub(crate) fn ask_of(&self, org: Id, sql: &str) -> Question<'_> {
        Question { org: Some(org), ..self.ask(sql) }.bind(org.to_string())
    }
}

/// What reading takes.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(crate) connections: Connections,
    /// Who asks on them what may take long.
    shares: Arc<Shares>,
    pub(crate) schema: Schema,
    pub(crate) migrations: &'static [Migration],
    pub(crate) statements: Arc<AtomicU64>,
}

impl Reader {
    pub(crate) fn ask(&self, sql: &str) -> Question<'_> {
        let (sql, arguments) = (self.schema.statement(sql), Ok(PgArguments::default()));
        Question { reader: self, sql, arguments, org: None, long: false }
    }

    pub(crate) fn count(&self) {
        self.statements.fetch_add(1, Ordering::Relaxed);
    }
}

/// A statement on its way to the database, and its values.
pub(crate) struct Question<'a> {
    reader: &'a Reader,
    sql: AssertSqlSafe<String>,
    arguments: Result<PgArguments, sqlx::error::BoxDynError>,
    org: Option<Id>,
    long: bool,
}

impl Question<'_> {
    /// Binds the next value.
    pub(crate) fn bind<'v>(mut self, value: impl Encode<'v, Postgres> + Type<Postgres> + Send) -> Self {
        self.arguments = self.arguments.and_then(|mut arguments| arguments.add(value).map(|()| arguments));
        self
    }

    /// Says that it may be about many rows: such questions leave connections for others, and for other organizations.
    pub(crate) fn long(mut self) -> Self {
        self.long = true;
        self
    }

    /// Every row.
    pub(crate) async fn all<R>(self) -> StoreResult<Vec<R>>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        self.rows().await.map_err(store_error)
    }

    /// The first row, if there is one. The statement answers one at most.
    pub(crate) async fn first<R>(self) -> StoreResult<Option<R>>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        Ok(self.all().await?.into_iter().next())
    }

    /// What the first row says.
    pub(crate) async fn first_as<R, T>(
        self,
        read: impl FnOnce(R) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<Option<T>>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin + 'static,
        T: Send + 'static,
    {
        self.answer(|rows: Vec<R>| rows.into_iter().next().map(read).transpose()).await
    }

    /// What each row says.
    pub(crate) async fn all_as<R, T>(
        self,
        read: impl FnMut(R) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<Vec<T>>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin + 'static,
        T: Send + 'static,
    {
        self.answer(|rows: Vec<R>| rows.into_iter().map(read).collect()).await
    }

    /// What the rows of a list say, each with the ledger index of its fact: all that can be read.
    pub(crate) async fn readable_as<R, T>(
        self,
        org: Id,
        read: impl FnMut(R) -> (i64, StoreResult<T>) + Send + 'static,
    ) -> StoreResult<Vec<T>>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin + 'static,
        T: Send + 'static,
    {
        self.answer(move |rows: Vec<R>| readable(org, rows.into_iter().map(read))).await
    }

    /// What all rows say together.
    pub(crate) async fn answer<R, T>(
        self,
        read: impl FnOnce(Vec<R>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin + 'static,
        T: Send + 'static,
    {
        let rows = self.all::<Weighed<R>>().await?;
        let bytes = rows.iter().map(|row| row.bytes).sum();
        said(bytes, move || read(rows.into_iter().map(|row| row.row).collect())).await
    }

    /// Every row, asked once more where the connection turned out to be dead: nothing is changed by a question.
    pub(crate) async fn rows<R>(self) -> Result<Vec<R>, sqlx::Error>
    where
        R: for<'r> FromRow<'r, PgRow> + Send + Unpin,
    {
        let Self { reader, sql, arguments, org, long } = self;
        let (sql, arguments) = (sqlx::SqlSafeStr::into_sql_str(sql), arguments.map_err(sqlx::Error::Encode)?);
        let share = if long {
            let share = reader.shares.take(org, reader.connections.acquire_timeout()).await;
            Some(Arc::new(share.ok_or(sqlx::Error::PoolTimedOut)?))
        } else {
            None
        };
        reader.count();
        match reader.connections.rows(sql.clone(), arguments.clone(), share.clone()).await {
            Err(error) if is_cut(&error) => {
                reader.count();
                reader.connections.rows_anew(sql, arguments, share).await
            }
            outcome => outcome,
        }
    }
}

/// Reading more bytes of JSON takes about a millisecond.
const LONG: usize = 64 << 10;

/// What so many bytes of rows say: read on a thread for slow work where they are many, so that they hold up no other request.
async fn said<T: Send + 'static>(
    bytes: usize,
    read: impl FnOnce() -> StoreResult<T> + Send + 'static,
) -> StoreResult<T> {
    if bytes <= LONG {
        return read();
    }
    spawn_blocking(read).await.map_err(|_| Refused::Closed)?
}

/// A row, and how many bytes its values have.
struct Weighed<R> {
    bytes: usize,
    row: R,
}

impl<'r, R: FromRow<'r, PgRow>> FromRow<'r, PgRow> for Weighed<R> {
    fn from_row(row: &'r PgRow) -> Result<Self, sqlx::Error> {
        let mut bytes = 0;
        for column in 0..row.len() {
            bytes += row.try_get_raw(column)?.as_bytes().map_or(0, <[u8]>::len);
        }
        Ok(Self { bytes, row: R::from_row(row)? })
    }
}

#[async_trait]
impl Health for PostgresStore {
    async fn ready(&self) -> StoreResult<()> {
        if self.queue.is_closed() || self.lookups.is_closed() {
            return Err(Refused::Closed.into());
        }
        let writer = self.ask(WRITER).first::<(i64,)>().await?;
        if writer.is_some_and(|(writer,)| writer > latest(self.reader.migrations)) {
            return Err(Outdated.into());
        }
        let taken = TABLES.iter().flat_map(|(table, privileges)| privileges.iter().map(|one| (*table, *one)));
        let (tables, privileges): (Vec<&str>, Vec<&str>) = taken.unzip();
        let schema = &self.reader.schema;
        let missing = self.ask(NOT_WRITABLE).bind(schema.name()).bind(tables).bind(privileges);
        match missing.first::<(String, String)>().await? {
            Some((table, privilege)) => Err(MayNotWrite { table: schema.table(&table), privilege }.into()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use evidence_core::flows::{FlowFilter, FlowStore};
    use evidence_core::page::PageRequest;
    use evidence_core::seed::Seed;
    use evidence_core::transfer::Transfer;
    use evidence_core::{Evidence, Settings, StoreError};
    use evidence_test_postgres::Schema as Fresh;
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn what_is_long_is_read_on_another_thread() {
        let here = std::thread::current().id();
        let reader = || Ok(std::thread::current().id());
        assert_eq!(said(LONG, reader).await.unwrap(), here);
        assert_ne!(said(LONG + 1, reader).await.unwrap(), here);
    }

    #[tokio::test]
    #[ignore = "needs PostgreSQL: cargo xtask test"]
    async fn slow_questions_of_one_organization_keep_no_other_waiting() {
        let schema = Fresh::fresh().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
        let options = Options {
            schema: schema.name.clone(),
            acquire_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(60),
            ..Options::default()
        };
        let store = Arc::new(PostgresStore::connect_with(&schema.url, &options).await.unwrap());
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
        let mut slow = JoinSet::new();
        for _ in 0..2 * options.connections {
            let (store, org) = (Arc::clone(&store), id("acme"));
            slow.spawn(async move {
                let sleeping = store.ask_of(org, "SELECT 1::bigint FROM pg_sleep(50) WHERE $1::text <> ''");
                sleeping.long().all::<(i64,)>().await
            });
        }
        tokio::task::yield_now().await;
        for _ in 0..options.connections {
            flows("beta").await.unwrap();
        }
        let late = flows("acme").await;
        assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
        store.flow(id("acme"), "none").await.unwrap();
        store.ready().await.unwrap();
        evidence.seed(&seed("gamma")).await.unwrap();
        // They hold what they have until the database has ended them.
        slow.shutdown().await;
        flows("acme").await.unwrap();
    }
}
