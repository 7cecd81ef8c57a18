//! Connecting, and the driver of the store in a schema.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::queue::{Bounds, Queue, Refused, Reply};
use evidence_core::shares::Shares;
use evidence_core::store::{ReferenceClock, StoreResult};
use evidence_core::time::Timestamp;
use evidence_store_sql::migrate::{Migration, latest};
use evidence_store_sql::{
    BlobWrite, CLOCK, Cost, Dialect, Driver, FromRow, Outdated, Row, ScratchWork, SqlStore, Statement, Value,
};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgPool};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::bind::{Cells, arguments};
use crate::connections::{Address, Connections, Pool, PreparedConnection, connect};
use crate::error::{ConnectError, MayNotWrite, expect_known_parameters, is_cut, store_error};
use crate::migrate::{MIGRATIONS, MIN_WRITER_VERSION, expect_migrated, migrate};
use crate::name_batcher::{self, Lookup};
use crate::schema::{Schema, TABLES};
use crate::scratch::ScratchDatabase;
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

/// One of the tables `$2` of the schema `$1` that a crash empties, or a partition of one.
const UNLOGGED: &str = "
    SELECT c.relname::text FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_class t
        ON t.oid = CASE WHEN c.relispartition THEN pg_partition_root(c.oid)::oid ELSE c.oid END
    JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
    WHERE n.nspname = $1 AND t.relname = ANY($2) AND c.relkind = 'r' AND c.relpersistence <> 'p'
    ORDER BY c.relname LIMIT 1";

/// How a store uses its database. Made with `..Options::default()`: a new field is no breaking change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The schema that holds the tables; made if it is not there. `evidence` unless said otherwise.
    pub schema: String,
    /// The most connections for reading; one more is for writing, and one for cancelling what nobody waits for any more.
    /// 8 unless said otherwise.
    pub connections: u32,
    /// How long a query waits for a free connection before it fails as unavailable. A long query first waits up to the
    /// same time for its organization's share, so twice this in all. 5 seconds unless said otherwise.
    pub acquire_timeout: Duration,
    /// How long a write, or a query by name, waits for its turn before the store counts as not available. What was
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
    pub mixed_groups: bool,
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
            mixed_groups: true,
            migrate: true,
        }
    }
}

/// A store in one schema of a PostgreSQL database, which other servers may use at the same time. The writer ends when
/// the store is dropped or closed.
pub type PostgresStore = SqlStore<Postgres>;

/// A schema that a store lies in, the connections to it, and the writer.
#[derive(Debug)]
pub struct Postgres {
    pub(crate) reader: Reader,
    pub(crate) queue: Queue<Job>,
    pub(crate) lookups: mpsc::Sender<Lookup>,
    mixed_groups: bool,
}

impl Postgres {
    /// Opens the store in a schema of the database that a host has a pool for. Queries share the pool; the writer makes a
    /// connection of its own, by the pool's options.
    ///
    /// The pool's connections are left as they are, and PostgreSQL plans each query on them anew, unless the host tells
    /// them `SET plan_cache_mode = force_generic_plan` (as in `PgPoolOptions::after_connect`): that is the host's to
    /// decide, for it asks queries of its own.
    ///
    /// # Errors
    /// [`ConnectError`] says what is wrong and what to do.
    pub async fn from_pool(pool: PgPool, schema: &str) -> Result<PostgresStore, ConnectError> {
        Self::from_pool_with(pool, &Options { schema: schema.to_owned(), ..Options::default() }).await
    }

    /// The same with these options, of which those about connections are the pool's.
    ///
    /// # Errors
    /// [`ConnectError`] says what is wrong and what to do.
    pub async fn from_pool_with(pool: PgPool, options: &Options) -> Result<PostgresStore, ConnectError> {
        let connections = Connections::Host { pool, statement_timeout: options.statement_timeout };
        Self::start(connections, options, &MIGRATIONS).await.map(SqlStore::new)
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
        let session = PreparedConnection::of(connection, &address).await.map_err(ConnectError::connecting)?;
        let shares = Arc::new(Shares::new(connections.max_connections()));
        let reader = Reader { connections, shares, schema, migrations };
        // A write that was begun takes a statement, and perhaps one more that looks what became of it.
        let grace = Some(address.client_timeout() * 2);
        let bounds = Bounds { bytes: options.queue_bytes, wait: options.queue_timeout, grace };
        let (queue, jobs) = Queue::new(bounds);
        tokio::spawn(Writer::new(session, reader.clone(), options.mixed_groups).run(jobs));
        let lookups = name_batcher::open(&reader);
        Ok(Self { reader, queue, lookups, mixed_groups: options.mixed_groups })
    }

    async fn submit<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> StoreResult<T> {
        let (reply, outcome) = self.queue.outcome();
        self.queue.submit(job(reply), outcome).await
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
}

impl Reader {
    /// Every row, asked once more where the connection turned out to be dead: nothing is changed by a query, and by what
    /// changes something nothing more.
    pub(crate) async fn rows(&self, statement: Statement) -> Result<Vec<Cells>, sqlx::Error> {
        let Statement { sql, values, org, cost } = statement;
        #[cfg(test)]
        crate::plans::note(&self.schema, &sql, &values);
        let sql = sqlx::SqlSafeStr::into_sql_str(self.schema.statement(&sql));
        let arguments = arguments(&values)?;
        let share = if cost == Cost::Short {
            None
        } else {
            let share = self.shares.take(org, self.connections.acquire_timeout()).await;
            Some(Arc::new(share.ok_or(sqlx::Error::PoolTimedOut)?))
        };
        match self.connections.rows(sql.clone(), arguments.clone(), share.clone()).await {
            Err(error) if is_cut(&error) => self.connections.rows_anew(sql, arguments, share).await,
            outcome => outcome,
        }
    }
}

/// Reading more bytes of JSON takes about a millisecond.
const LONG: usize = 64 << 10;

/// What so many bytes of rows say: read on a thread for slow work where they are many, so that they hold up no other
/// request.
async fn read_off_runtime_if_long<T: Send + 'static>(
    bytes: usize,
    read: impl FnOnce() -> StoreResult<T> + Send + 'static,
) -> StoreResult<T> {
    if bytes <= LONG {
        return read();
    }
    spawn_blocking(read).await.map_err(|_| Refused::Closed)?
}

impl Driver for Postgres {
    const DIALECT: Dialect = Dialect::Postgres;
    type Options = Options;
    type ConnectError = ConnectError;
    type ScratchSession = ScratchDatabase;
    type Job = Job;

    /// The address is `postgres://user:password@host:port/database`. Some parameters of libpq's addresses are understood:
    /// `?host=/directory` names the directory of a socket. Others are refused.
    async fn connect(url: &str, options: &Options) -> Result<Self, ConnectError> {
        expect_known_parameters(url)?;
        let address = PgConnectOptions::from_str(url).map_err(|source| ConnectError::BadUrl { source })?;
        let address = address.application_name("evidence").disable_statement_logging();
        let address = Address { options: address, statement_timeout: options.statement_timeout };
        let pool = Pool::new(address, options.connections, options.acquire_timeout);
        Self::start(Connections::Own(Arc::new(pool)), options, &MIGRATIONS).await
    }

    async fn read<T: Send + 'static>(
        &self,
        statement: Statement,
        read: impl FnOnce(Vec<Row>) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        let rows = self.reader.rows(statement).await.map_err(store_error)?;
        let bytes = rows.iter().map(|row| row.bytes).sum();
        read_off_runtime_if_long(bytes, move || read(rows.into_iter().map(|cells| cells.row).collect())).await
    }

    async fn by_name(
        &self,
        org: Id,
        kind: &'static str,
        flow: Option<Id>,
        name: String,
    ) -> StoreResult<Option<Row>> {
        if self.mixed_groups {
            return name_batcher::look_up(self, (org, kind, flow, name)).await;
        }
        let statement = Statement::by_name(Self::DIALECT, org, kind, flow, name);
        self.read(statement, |rows| Ok(rows.into_iter().next())).await
    }

    fn queue(&self) -> &Queue<Job> {
        &self.queue
    }

    async fn write_blob(&self, write: BlobWrite) -> StoreResult<()> {
        self.submit(|reply| Job::Blob(write, reply)).await
    }

    /// Asked again on a dead connection, as queries are, a statement changes nothing more.
    async fn change(&self, statements: Vec<Statement>) -> StoreResult<bool> {
        let [statement] = <[Statement; 1]>::try_from(statements)
            .map_err(|_| StoreError::Failed("a change is one statement in PostgreSQL".into()))?;
        Ok(!self.reader.rows(statement).await.map_err(store_error)?.is_empty())
    }

    async fn with_scratch<T: Send + 'static>(&self, work: ScratchWork<ScratchDatabase, T>) -> StoreResult<T> {
        let Reader { connections, schema, migrations, .. } = &self.reader;
        work(ScratchDatabase::open(&connections.address(), schema, migrations).await.map_err(store_error)?)
            .await
    }

    fn version(&self) -> i64 {
        latest(self.reader.migrations)
    }

    async fn ready(&self) -> StoreResult<()> {
        if self.queue.is_closed() || self.lookups.is_closed() {
            return Err(Refused::Closed.into());
        }
        let ask = |sql, values| self.reader.rows(Statement { sql, values, org: None, cost: Cost::Short });
        let min_writer = ask(MIN_WRITER_VERSION.into(), vec![]).await.map_err(store_error)?;
        let min_writer =
            min_writer.into_iter().next().map(|cells| <(i64,)>::from_row(cells.row)).transpose()?;
        if min_writer.is_some_and(|(version,)| version > self.version()) {
            return Err(Outdated.into());
        }
        let taken = TABLES.iter().flat_map(|(table, privileges)| {
            privileges.iter().map(|one| (Some((*table).to_owned()), Some((*one).to_owned())))
        });
        let (tables, privileges) = taken.unzip();
        let schema = &self.reader.schema;
        let values = vec![schema.name().into(), Value::Texts(tables), Value::Texts(privileges)];
        let missing = ask(NOT_WRITABLE.into(), values).await.map_err(store_error)?;
        match missing.into_iter().next().map(|cells| <(String, String)>::from_row(cells.row)).transpose()? {
            Some((table, privilege)) => Err(MayNotWrite { table: schema.table(&table), privilege }.into()),
            None => Ok(()),
        }
    }

    async fn write_probe(&self, statement: Statement) -> StoreResult<()> {
        self.submit(|reply| Job::Probe(statement, reply)).await
    }

    async fn check_clock(&self, now: Timestamp) -> StoreResult<()> {
        let statement = Statement { sql: CLOCK.into(), values: vec![], org: None, cost: Cost::Short };
        let clock =
            self.read(statement, |rows| rows.into_iter().map(<(Timestamp,)>::from_row).next().transpose());
        clock.await?.map_or(Ok(()), |(clock,)| ReferenceClock::Database.check(now, clock))
    }

    /// Closes a host's pool too.
    async fn close(&self) {
        self.reader.connections.close().await;
        self.queue.stop(Job::Stop).await;
    }
}

#[cfg(test)]
mod tests {
    use evidence_core::flows::{FlowFilter, FlowStore};
    use evidence_core::page::PageRequest;
    use evidence_core::seed::Seed;
    use evidence_core::store::Health;
    use evidence_core::transfer::Transfer;
    use evidence_core::{Evidence, Settings, StoreError};
    use evidence_test_postgres::SchemaName as Fresh;
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn what_is_long_is_read_on_another_thread() {
        let here = std::thread::current().id();
        let reader = || Ok(std::thread::current().id());
        assert_eq!(read_off_runtime_if_long(LONG, reader).await.unwrap(), here);
        assert_ne!(read_off_runtime_if_long(LONG + 1, reader).await.unwrap(), here);
    }

    #[tokio::test]
    #[ignore = "needs PostgreSQL: cargo xtask test"]
    async fn slow_queries_of_one_organization_keep_no_other_waiting() {
        let schema = Fresh::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
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
                let sql = "SELECT 1::bigint FROM pg_sleep(50) WHERE $1::text <> ''".into();
                let values = vec![Value::Org(org)];
                let sleeping = Statement { sql, values, org: Some(org), cost: Cost::Long };
                store.driver().read(sleeping, |_| Ok(())).await
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
