//! Connects to the database, and implements the driver of the store in a schema.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use evidence_core::StoreError;
use evidence_core::id::Id;
use evidence_core::limiter::FairSemaphore;
use evidence_core::queue::{Queue, QueueLimits, Refused, Reply};
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

use crate::connections::{Address, Connections, Pool, PreparedConnection, connect};
use crate::error::{ConnectError, MayNotWrite, expect_known_parameters, store_error};
use crate::migrate::{MIGRATIONS, MIN_WRITER_VERSION, expect_migrated, migrate};
use crate::name_batcher::{self, Lookup};
use crate::reader::Reader;
use crate::schema::{Schema, TABLES};
use crate::scratch::ScratchDatabase;
use crate::writer::{Job, Writer};

/// The time limit for opening the first connection.
pub(crate) const CONNECTING: Duration = Duration::from_secs(30);

/// Selects one of the tables `$2` of the schema `$1` on which the user lacks the privilege in `$3`, and that
/// privilege. Only necessary privileges are checked: an operator may revoke others, for example on ledgers,
/// which are never changed. Reads the catalog.
const NOT_WRITABLE: &str = "
    SELECT c.relname::text, p.privilege FROM UNNEST($2::text[], $3::text[]) AS p (name, privilege)
    JOIN pg_catalog.pg_class c ON c.relname = p.name::name
    WHERE c.relnamespace = (SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = $1) AND c.relkind IN ('r', 'p')
        AND NOT has_table_privilege(c.oid, p.privilege)
    ORDER BY c.relname, p.privilege LIMIT 1";

/// Selects one of the tables `$2` of the schema `$1` that a crash empties, or a partition of one.
const UNLOGGED: &str = "
    SELECT c.relname::text FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_class t
        ON t.oid = CASE WHEN c.relispartition THEN pg_partition_root(c.oid)::oid ELSE c.oid END
    JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
    WHERE n.nspname = $1 AND t.relname = ANY($2) AND c.relkind = 'r' AND c.relpersistence <> 'p'
    ORDER BY c.relname LIMIT 1";

/// Options for opening a store. Create them with `..Options::default()`, so that a new field is not a
/// breaking change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The schema that contains the tables; created if it does not exist. Default: `evidence`.
    pub schema: String,
    /// The maximum number of connections for queries. The writer uses one more, and the cancellation of
    /// abandoned queries another. Default: 8.
    pub connections: u32,
    /// The time that a query waits for a free connection before it fails as unavailable. A long query first
    /// waits up to the same time for its organization's limit, so at most twice this time in total. Default:
    /// 5 seconds.
    pub acquire_timeout: Duration,
    /// The time that a write, or a query by name, waits in the queue before it fails as unavailable. A job
    /// that failed this way is never executed later. Default: 10 seconds.
    pub queue_timeout: Duration,
    /// The number of bytes that may wait in the write queue before writes fail as unavailable. An
    /// organization may use half of what the others leave. A single write that exceeds that half waits
    /// outside the limit, one at a time. Default: 64 MiB.
    pub queue_bytes: usize,
    /// The time limit of a statement, and of opening a connection, before the call fails as unavailable.
    /// Default: 10 seconds.
    pub statement_timeout: Duration,
    /// Whether one transaction may contain writes of several organizations. This is about six times as fast
    /// if many organizations write. Set it to false for databases that distribute the tables over machines by
    /// organization, such as Citus, where each transaction should run on one machine.
    pub mixed_groups: bool,
    /// Whether to create a missing schema and to migrate the tables. If false, the store is opened unchanged,
    /// and refused if this program cannot use it in that form. Default: true.
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

/// A store in one schema of a PostgreSQL database. Other servers may use it at the same time. The writer task
/// ends when the store is dropped or closed.
pub type PostgresStore = SqlStore<Postgres>;

/// The schema of a store, with its connections and its writer.
#[derive(Debug)]
pub struct Postgres {
    pub(crate) reader: Reader,
    pub(crate) queue: Queue<Job>,
    lookups: mpsc::Sender<Lookup>,
    mixed_groups: bool,
}

impl Postgres {
    /// Opens the store in a schema of the database of a host's pool. Queries share the pool; the writer opens
    /// a connection of its own with the pool's options.
    ///
    /// The store does not change the settings of the pool's connections. PostgreSQL therefore plans each
    /// query on them again, unless the host runs `SET plan_cache_mode = force_generic_plan` (for example in
    /// `PgPoolOptions::after_connect`). The host decides this, because it has queries of its own.
    ///
    /// # Errors
    /// Returns a [`ConnectError`], which explains the problem and the remedy.
    pub async fn from_pool(pool: PgPool, schema: &str) -> Result<PostgresStore, ConnectError> {
        Self::from_pool_with(pool, &Options { schema: schema.to_owned(), ..Options::default() }).await
    }

    /// Opens the store like [`Self::from_pool`], with these options. The pool determines the options about
    /// connections.
    ///
    /// # Errors
    /// Returns a [`ConnectError`], which explains the problem and the remedy.
    pub async fn from_pool_with(pool: PgPool, options: &Options) -> Result<PostgresStore, ConnectError> {
        let connections = Connections::Host { pool, statement_timeout: options.statement_timeout };
        Self::start(connections, options, &MIGRATIONS).await.map(SqlStore::new)
    }

    /// Opens the store like a program with these migrations.
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
        let long_queries = FairSemaphore::for_long_queries(connections.max_connections());
        let reader = Reader { connections, long_queries, schema, migrations };
        // A started write takes one statement, and perhaps another that looks up its outcome.
        let grace = Some(address.client_timeout() * 2);
        let limits = QueueLimits { bytes: options.queue_bytes, wait: options.queue_timeout, grace };
        let (queue, jobs) = Queue::new(limits);
        tokio::spawn(Writer::new(session, reader.clone(), options.mixed_groups).run(jobs));
        let lookups = name_batcher::open(&reader);
        Ok(Self { reader, queue, lookups, mixed_groups: options.mixed_groups })
    }

    async fn submit<T>(&self, job: impl FnOnce(Reply<T>) -> Job) -> StoreResult<T> {
        let (reply, outcome) = self.queue.outcome();
        self.queue.submit(job(reply), outcome).await
    }
}

/// The number of JSON bytes that decode in about a millisecond.
const LONG: usize = 64 << 10;

/// Decodes rows of this many bytes. Large results are decoded on a thread for slow work, so that they do not
/// delay other requests.
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

    /// The address is `postgres://user:password@host:port/database`. Some parameters of libpq addresses are
    /// supported: `?host=/directory` is the directory of a socket. Others are refused.
    async fn connect(url: &str, options: &Options) -> Result<Self, ConnectError> {
        expect_known_parameters(url)?;
        let address =
            PgConnectOptions::from_str(url).map_err(|source| ConnectError::InvalidUrl { source })?;
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
            return name_batcher::look_up(&self.lookups, self.queue.wait(), (org, kind, flow, name)).await;
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

    /// A statement may run again after a dead connection, like a query, because repeating it changes nothing
    /// more.
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
        let query = |sql, values| self.reader.rows(Statement { sql, values, org: None, cost: Cost::Short });
        let min_writer = query(MIN_WRITER_VERSION.into(), vec![]).await.map_err(store_error)?;
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
        let missing = query(NOT_WRITABLE.into(), values).await.map_err(store_error)?;
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

    /// Also closes a host's pool.
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
        // They hold their connections until the database has ended their statements.
        slow.shutdown().await;
        flows("acme").await.unwrap();
    }
}
