//! The statements that a database executes, as it tells them itself: SQLite by its trace, PostgreSQL by the statistics
//! that `pg_stat_statements` keeps.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, Mutex, Once};

use evidence_core::Store;
use evidence_store_postgres::PostgresStore;
use evidence_test_postgres::{Cluster, Durability, Programs, Stop};
use tempfile::TempDir;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::support::{TEST_TIMEOUT, sqlite};

/// A store that is alone in its database.
pub(crate) struct Counted {
    pub(crate) store: Arc<dyn Store>,
    database: Database,
}

enum Database {
    Sqlite { file: String, _directory: TempDir },
    Postgres(Cluster),
}

impl Counted {
    pub(crate) async fn sqlite() -> Self {
        TRACE.call_once(|| {
            let statements = Targets::new().with_target("evidence_store_sqlite", Level::TRACE);
            let subscriber = tracing_subscriber::registry().with(Trace.with_filter(statements));
            tracing::subscriber::set_global_default(subscriber).unwrap();
        });
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(sqlite(&directory).await);
        let file = directory.path().join("evidence.db").canonicalize().unwrap().display().to_string();
        EXECUTED.lock().unwrap().insert(file.clone(), Vec::new());
        Self { store, database: Database::Sqlite { file, _directory: directory } }
    }

    pub(crate) async fn postgres() -> Self {
        let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let cluster = Cluster::start(&Programs::find().unwrap(), parent, Durability::None).unwrap();
        let preload = "ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'";
        cluster.sql("postgres", &[preload]).unwrap();
        cluster.stop(Stop::Fast).unwrap();
        cluster.resume().expect("PostgreSQL has pg_stat_statements, which some systems package apart");
        cluster.sql("postgres", &["CREATE EXTENSION pg_stat_statements"]).unwrap();
        let options = evidence_store_postgres::Options {
            // A further one would be set up while statements are counted.
            connections: 1,
            acquire_timeout: TEST_TIMEOUT,
            queue_timeout: TEST_TIMEOUT,
            statement_timeout: TEST_TIMEOUT,
            ..Default::default()
        };
        let store = PostgresStore::connect_with(&cluster.url("postgres"), &options).await.unwrap();
        Self { store: Arc::new(store), database: Database::Postgres(cluster) }
    }

    /// How many statements were executed so far, but for look-ups of callers, which are good for half a second of real time.
    pub(crate) fn statements(&self) -> usize {
        self.executed(false)
    }

    /// How many statements looked up a caller so far.
    pub(crate) fn look_ups(&self) -> usize {
        self.executed(true)
    }

    fn executed(&self, look_ups: bool) -> usize {
        match &self.database {
            Database::Sqlite { file, .. } => {
                let is_look_up = |sql: &str| LOOK_UPS.iter().any(|part| sql.contains(part));
                EXECUTED.lock().unwrap()[file].iter().filter(|sql| is_look_up(sql) == look_ups).count()
            }
            Database::Postgres(cluster) => {
                let is_look_up = LOOK_UPS.map(|part| format!("query LIKE '%{part}%'")).join(" OR ");
                let calls = format!("{CALLS} AND ({is_look_up}) = {look_ups}");
                cluster.sql("postgres", &[&calls]).unwrap().parse().unwrap()
            }
        }
    }

    /// How many transactions that write SQLite began so far.
    pub(crate) fn sqlite_transactions(&self) -> usize {
        let Database::Sqlite { file, .. } = &self.database else { panic!("not SQLite") };
        EXECUTED.lock().unwrap()[file].iter().filter(|sql| *sql == "BEGIN IMMEDIATE").count()
    }
}

/// Parts of the statements for the holder of a key, and for an organization and the role of a caller there.
const LOOK_UPS: [&str; 2] = ["WHERE k.hash = ", "AND m.user = "];

/// Plans are discarded as time passes.
const CALLS: &str = "
    SELECT coalesce(sum(calls), 0) FROM pg_stat_statements
    WHERE query NOT LIKE '%pg_stat_statements%' AND query <> 'DISCARD PLANS'";

static TRACE: Once = Once::new();

/// By the file of each store that is [`Counted`].
static EXECUTED: Mutex<BTreeMap<String, Vec<String>>> = Mutex::new(BTreeMap::new());

/// Takes down what the SQLite stores of this process log of their statements.
struct Trace;

impl<S: Subscriber> Layer<S> for Trace {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut statement = Statement::default();
        event.record(&mut statement);
        if let Some(executed) = EXECUTED.lock().unwrap().get_mut(&statement.file) {
            executed.push(statement.sql);
        }
    }
}

/// A statement, and the file that it was executed in.
#[derive(Default)]
struct Statement {
    file: String,
    sql: String,
}

impl Visit for Statement {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "file" => value.clone_into(&mut self.file),
            "sql" => value.clone_into(&mut self.sql),
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}
