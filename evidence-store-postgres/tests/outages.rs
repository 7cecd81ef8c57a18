//! Tests outages: connections that are cut during a write, callers that disconnect, sessions with other
//! settings, and writers that died.

use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use evidence_core::artifacts::{ArtifactFilter, ArtifactStore};
use evidence_core::auth::{Actor, ActorKind};
use evidence_core::fact::UnknownFields;
use evidence_core::flows::{Flow, FlowStore, Visibility};
use evidence_core::id::{Id, SystemRandom};
use evidence_core::orgs::OrgStore;
use evidence_core::page::PageRequest;
use evidence_core::repos::RepoStore;
use evidence_core::seed::Seed;
use evidence_core::store::{Health, LedgerStore, Recorder, StoreResult};
use evidence_core::tags::Tags;
use evidence_core::time::Timestamp;
use evidence_core::{Entry, Evidence, Fact, Key, Precondition, Settings, StoreError, Write};
use evidence_store_postgres::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use evidence_store_postgres::sqlx::{self, AssertSqlSafe, Connection, PgConnection};
use evidence_store_postgres::{Options, Postgres, PostgresStore};
use evidence_test_postgres::SchemaName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;

const NOW: Timestamp = Timestamp::from_seconds(1_776_252_299);

/// The time limit, on a busy machine, for an event that would otherwise never occur.
const SOON: Duration = Duration::from_secs(60);

/// The organization `acme` in a schema of its own, and a store on it.
struct Bench {
    schema: SchemaName,
    store: Arc<PostgresStore>,
    org: Id,
    actor: Actor,
}

fn schema() -> SchemaName {
    SchemaName::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server")
}

fn seed(user: &str, org: &str) -> Seed {
    Seed { user: user.parse().unwrap(), orgs: vec![org.parse().unwrap()], api_key: None }
}

impl Bench {
    async fn new() -> Self {
        let schema = schema();
        let options = Options { schema: schema.name.clone(), ..Options::default() };
        let store = Arc::new(PostgresStore::connect_with(&schema.url, &options).await.unwrap());
        let key =
            Evidence::new(store.clone(), Settings::default()).seed(&seed("jane", "acme")).await.unwrap();
        let holder = store.key_holder(&key.hash()).await.unwrap().expect("the key that was seeded");
        let actor = Actor { id: holder.actor.id, name: "jane".to_owned(), kind: ActorKind::User };
        let standing = store.org_role("acme", actor.id).await.unwrap().expect("the organization");
        Self { schema, store, org: standing.organization.id, actor }
    }

    /// Opens another store on the same tables, with the database at this address.
    async fn at(&self, url: &str) -> Arc<PostgresStore> {
        let options = Options { schema: self.schema.name.clone(), ..Options::default() };
        Arc::new(PostgresStore::connect_with(url, &options).await.unwrap())
    }

    /// Returns a write that creates a flow.
    fn creation(&self, name: &str) -> Write {
        let record = Flow {
            id: Id::new(NOW, &SystemRandom),
            name: name.parse().unwrap(),
            description: String::new(),
            visibility: Visibility::Private,
            template: None,
            template_id: Id::new(NOW, &SystemRandom),
            tags: Tags::new(),
            created_at: NOW,
            created_by: self.actor.clone(),
            former_names: Vec::new(),
            archived_at: None,
            unknown: UnknownFields::default(),
        };
        let precondition = Precondition::Vacant(Key::Flow(record.name.clone()));
        Write {
            preconditions: vec![precondition],
            ..Write::new(self.org, self.actor.clone(), NOW, vec![Fact::FlowCreated { record }], &SystemRandom)
        }
    }

    async fn entries(&self) -> u64 {
        self.store.ledger_head(self.org).await.unwrap().expect("a head").size()
    }

    /// Executes statements in which `{}` stands for the schema.
    async fn execute(&self, connection: &mut PgConnection, sql: &str) {
        let sql = AssertSqlSafe(sql.replace("{}", &self.schema.name));
        sqlx::raw_sql(sql).execute(connection).await.unwrap();
    }
}

/// The moment at which a connection is cut that writes a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// Before the database receives the group.
    Before,
    /// After the database has written the group, before the response arrives.
    After,
}

trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A proxy between a store and the database. It cuts this many connections that write a group.
#[derive(Clone)]
struct Proxy {
    server: PgConnectOptions,
    cut: Cut,
    left: Arc<AtomicUsize>,
}

impl Proxy {
    /// Starts to listen. Returns the address of the database behind the proxy.
    async fn listen(url: &str, cut: Cut, times: usize) -> (String, Self) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = PgConnectOptions::from_str(url).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (user, database) = (server.get_username(), server.get_database().unwrap());
        let address = format!("postgres://{user}@127.0.0.1:{port}/{database}?sslmode=disable");
        let proxy = Self { server, cut, left: Arc::new(AtomicUsize::new(times)) };
        let passing = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let proxy = passing.clone();
                // The store notices every end of a connection.
                tokio::spawn(async move { proxy.pass(client).await.ok() });
            }
        });
        (address, proxy)
    }

    async fn server(&self) -> std::io::Result<Box<dyn Wire>> {
        let port = self.server.get_port();
        Ok(match self.server.get_socket() {
            Some(directory) => {
                Box::new(UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await?)
            }
            None => Box::new(TcpStream::connect((self.server.get_host(), port)).await?),
        })
    }

    /// The first message with the statement prepares it, the next one executes it.
    async fn pass(&self, mut client: TcpStream) -> std::io::Result<()> {
        let mut server = self.server().await?;
        let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        let mut prepared = false;
        loop {
            tokio::select! {
                read = client.read(&mut asked) => {
                    let message = &asked[..read?];
                    if message.is_empty() {
                        return Ok(());
                    }
                    if prepared && self.left.load(Ordering::SeqCst) > 0 {
                        self.left.fetch_sub(1, Ordering::SeqCst);
                        if self.cut == Cut::After {
                            server.write_all(message).await?;
                            // The server answers after the commit.
                            server.read_u8().await?;
                        }
                        return Ok(());
                    }
                    prepared |= message.windows(10).any(|part| part == b"FOR UPDATE");
                    server.write_all(message).await?;
                }
                read = server.read(&mut answered) => {
                    let answer = &answered[..read?];
                    if answer.is_empty() {
                        return Ok(());
                    }
                    client.write_all(answer).await?;
                }
            }
        }
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_write_whose_connection_was_cut_happens_once_and_is_acknowledged() {
    for (cut, times) in [(Cut::After, 1), (Cut::Before, 1), (Cut::Before, 3)] {
        let bench = Bench::new().await;
        let (url, proxy) = Proxy::listen(&bench.schema.url, cut, times).await;
        let store = bench.at(&url).await;
        let before = bench.entries().await;
        let entries = store.record(bench.creation("build")).await.unwrap();
        assert_eq!(proxy.left.load(Ordering::SeqCst), 0, "{cut:?}");
        let stored = bench.store.ledger_entries(bench.org, before, 9).await.unwrap();
        let stored: Vec<_> =
            stored.iter().map(|entry| Entry { index: entry.index, leaf_hash: entry.leaf_hash }).collect();
        assert_eq!(stored, entries, "{cut:?}");
        // The writer continues on its new connection.
        store.record(bench.creation("next")).await.unwrap();
        assert_eq!(bench.entries().await, before + 2, "{cut:?}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn writes_that_share_a_cut_connection_each_get_their_own_outcome() {
    let bench = Bench::new().await;
    let (url, proxy) = Proxy::listen(&bench.schema.url, Cut::After, 1).await;
    let store = bench.at(&url).await;
    let before = bench.entries().await;
    let mut writes = tokio::task::JoinSet::new();
    for number in 0..20 {
        // Every second write uses a name that another one has.
        let (store, write) = (Arc::clone(&store), bench.creation(&format!("flow-{}", number / 2)));
        writes.spawn(async move { store.record(write).await });
    }
    let outcomes: Vec<StoreResult<_>> = writes.join_all().await;
    let written = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Err(StoreError::Conflict))).count();
    assert_eq!((written, refused, proxy.left.load(Ordering::SeqCst)), (10, 10, 0), "{outcomes:?}");
    assert_eq!(bench.entries().await, before + 10);
    assert_eq!(bench.store.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn an_organization_whose_first_write_was_cut_begins_once() {
    for cut in [Cut::After, Cut::Before] {
        let bench = Bench::new().await;
        let (url, proxy) = Proxy::listen(&bench.schema.url, cut, 1).await;
        let evidence = Evidence::new(bench.at(&url).await, Settings::default());
        evidence.seed(&seed("eve", "evil")).await.unwrap();
        assert_eq!(proxy.left.load(Ordering::SeqCst), 0, "{cut:?}");
        assert_eq!(bench.store.fsck().await.unwrap().problems, Vec::<String>::new());
    }
}

/// Starts a query, cancels it once it waits for a lock, and drops its resources.
async fn abandon(bench: &Bench, query: impl Future<Output: Send> + Send + 'static) {
    let asking = tokio::spawn(query);
    let waiting = "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
        JOIN pg_namespace n ON n.oid = c.relnamespace WHERE NOT l.granted AND n.nspname = $1)";
    let mut connection = PgConnection::connect(&bench.schema.url).await.unwrap();
    loop {
        let query = sqlx::query_scalar::<_, bool>(waiting).bind(&bench.schema.name);
        if query.fetch_one(&mut connection).await.unwrap() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    asking.abort();
    asking.await.map(drop).unwrap_err();
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_hosts_connection_is_not_given_back_while_it_is_busy() {
    let bench = Bench::new().await;
    let address: PgConnectOptions = bench.schema.url.parse().unwrap();
    let pool = PgPoolOptions::new().max_connections(1).connect_with(address).await.unwrap();
    let store = Postgres::from_pool(pool.clone(), &bench.schema.name).await.unwrap();
    let mut holder = PgConnection::connect(&bench.schema.url).await.unwrap();
    bench.execute(&mut holder, "BEGIN; LOCK TABLE {}.artifact IN ACCESS EXCLUSIVE MODE").await;
    let org = bench.org;
    abandon(&bench, async move {
        store.artifacts(org, &ArtifactFilter::default(), PageRequest::ALL).await.map(drop)
    })
    .await;
    let asked = sqlx::query_scalar::<_, i32>("SELECT 1").fetch_one(&pool);
    assert_eq!(timeout(SOON, asked).await.expect("a connection").unwrap(), 1);
    bench.execute(&mut holder, "ROLLBACK").await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn one_bad_query_spoils_nobody_elses() {
    let bench = Bench::new().await;
    bench.store.record(bench.creation("build")).await.unwrap();
    let mut queries = tokio::task::JoinSet::new();
    for number in 0..200 {
        let (store, org) = (Arc::clone(&bench.store), bench.org);
        queries.spawn(async move {
            if number % 20 == 7 {
                // PostgreSQL refuses this character in texts.
                return store.repo_by_identity(org, &format!("{number}\0")).await.map(|_| true);
            }
            store.flow(org, "build").await.map(|found| found.is_some())
        });
    }
    let found = queries.join_all().await;
    assert_eq!(found.iter().filter(|found| matches!(found, Ok(true))).count(), 190, "{found:?}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn sessions_are_as_durable_as_promised_whatever_the_role_has() {
    for (role, expected) in
        [("off", "on"), ("local", "on"), ("remote_write", "on"), ("remote_apply", "remote_apply")]
    {
        let bench = Bench::new().await;
        let mut connection = PgConnection::connect(&bench.schema.url).await.unwrap();
        bench
            .execute(
                &mut connection,
                "CREATE TABLE {}.seen (name text, setting text);
                 CREATE FUNCTION {}.note() RETURNS trigger LANGUAGE plpgsql AS
                    'BEGIN INSERT INTO {}.seen SELECT s.name, s.setting FROM pg_settings s; RETURN NULL; END';
                 CREATE TRIGGER note AFTER INSERT ON {}.record EXECUTE FUNCTION {}.note()",
            )
            .await;
        let options = format!(
            "-c synchronous_commit={role} -c default_transaction_isolation=serializable -c statement_timeout=0 \
             -c lock_timeout=1 -c idle_session_timeout=1000"
        );
        let joint = if bench.schema.url.contains('?') { '&' } else { '?' };
        let options = options.replace(' ', "%20").replace('=', "%3D");
        let url = format!("{}{joint}options={options}", bench.schema.url);
        let store = bench.at(&url).await;
        store.record(bench.creation("build")).await.unwrap();
        let seen = AssertSqlSafe(format!("SELECT name, setting FROM {}.seen", bench.schema.name));
        let seen: Vec<(String, String)> = sqlx::query_as(seen).fetch_all(&mut connection).await.unwrap();
        let setting = |name: &str| {
            seen.iter().find(|(seen, _)| seen == name).map(|(_, setting)| setting.clone()).unwrap_or_default()
        };
        let names = [
            "synchronous_commit",
            "transaction_isolation",
            "statement_timeout",
            "lock_timeout",
            "idle_session_timeout",
            "idle_in_transaction_session_timeout",
        ];
        assert_eq!(names.map(setting), [expected, "read committed", "10000", "0", "0", "60000"], "{role}");
    }
}

#[test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
fn a_store_whose_writer_died_is_not_ready() {
    let (host, other) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let schema = schema();
    let pool = host.block_on(PgPoolOptions::new().connect(&schema.url)).unwrap();
    let store = other.block_on(Postgres::from_pool(pool, &schema.name)).unwrap();
    host.block_on(store.ready()).unwrap();
    // The reader uses the host's pool, which still exists.
    drop(other);
    assert!(host.block_on(store.is_empty()).unwrap());
    let ready = host.block_on(store.ready());
    assert!(matches!(ready, Err(StoreError::Unavailable(_))), "{ready:?}");
}
