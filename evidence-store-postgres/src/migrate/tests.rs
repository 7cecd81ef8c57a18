//! Two versions of the program on one store. The second one rederives a table in another form from the
//! ledgers.

use std::sync::Arc;

use evidence_core::auth::{Actor, ActorKind};
use evidence_core::digest::hex;
use evidence_core::fact::UnknownFields;
use evidence_core::flows::{Flow, FlowStore, Visibility};
use evidence_core::id::{Id, SystemRandom};
use evidence_core::orgs::OrgStore;
use evidence_core::seed::Seed;
use evidence_core::store::{Health, LedgerStore, Recorder, StoreResult};
use evidence_core::tags::Tags;
use evidence_core::time::Timestamp;
use evidence_core::{Evidence, Fact, Settings, StoreError, Write};
use evidence_test_postgres::SchemaName as Fresh;
use sqlx::FromRow;
use sqlx::postgres::PgRow;

use super::*;
use crate::connections::{Connections, Pool};
use crate::db::{Options, Postgres, PostgresStore};
use crate::schema::TABLES;

const NOW: Timestamp = Timestamp::from_seconds(1_776_252_299);

/// The number of records before the new version starts, and the number of records in one write.
const RECORDS: usize = 30_000;
const AT_ONCE: usize = 1000;

const FIRST: Migration =
    Migration { min_writer_version: 1, steps: &[Step::Sql(include_str!("../../migrations/0001_first.sql"))] };

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn every_table_is_known_with_what_writing_takes() {
    let fresh = Fresh::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
    let options = Options { schema: fresh.name.clone(), ..Options::default() };
    PostgresStore::connect_with(&fresh.url, &options).await.unwrap().close().await;
    let mut connection = PgConnection::connect(&fresh.url).await.unwrap();
    let tables =
        "SELECT tablename::text FROM pg_tables WHERE schemaname = $1 ORDER BY tablename COLLATE \"C\"";
    let tables = sqlx::query_scalar::<_, String>(tables).bind(&fresh.name);
    assert_eq!(tables.fetch_all(&mut connection).await.unwrap(), TABLES.map(|(table, _)| table));
}

/// Records with their ids first in the key, and an index in the order of the ledger.
const SECOND: Migration = Migration {
    min_writer_version: 2,
    steps: &[
        Step::Sql(
            "DROP TABLE evidence.record;
            CREATE TABLE evidence.record (
                org          bytea NOT NULL,
                id           text COLLATE \"C\" NOT NULL,
                kind         text COLLATE \"C\" NOT NULL,
                name         text COLLATE \"C\" NOT NULL,
                archived     boolean NOT NULL,
                tags         jsonb NOT NULL,
                ledger_index bigint NOT NULL,
                PRIMARY KEY (org, id, kind)
            );
            CREATE INDEX record_name ON evidence.record (org, (kind || ''), name)",
        ),
        Step::RederiveTables(&["record"]),
        Step::Index { name: "record_newest", on: "evidence.record (org, ledger_index)" },
    ],
};

/// Adds a column to the table that the second version rederives.
const THIRD: Migration = Migration {
    min_writer_version: 3,
    steps: &[Step::Sql("ALTER TABLE evidence.record ADD COLUMN note text")],
};

static NEW: [Migration; 2] = [FIRST, SECOND];

fn address(fresh: &Fresh) -> Address {
    let options = fresh.url.parse().unwrap();
    Address { options, statement_timeout: Options::default().statement_timeout }
}

async fn open(fresh: &Fresh, migrations: &'static [Migration]) -> Result<PostgresStore, ConnectError> {
    open_with(fresh, Options::default(), migrations).await
}

async fn open_with(
    fresh: &Fresh,
    options: Options,
    migrations: &'static [Migration],
) -> Result<PostgresStore, ConnectError> {
    let options = Options { schema: fresh.name.clone(), connections: 2, ..options };
    let pool = Pool::new(address(fresh), options.connections, options.acquire_timeout);
    Postgres::start(Connections::Own(Arc::new(pool)), &options, migrations).await.map(PostgresStore::new)
}

/// A store of the first version, with the organization `acme` and others.
struct Bench {
    fresh: Fresh,
    store: Arc<PostgresStore>,
    org: Id,
    actor: Actor,
}

impl Bench {
    async fn new(others: usize) -> Self {
        let fresh = Fresh::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
        let store = Arc::new(open(&fresh, &MIGRATIONS).await.unwrap());
        let orgs = (0..others).map(|number| format!("other{number}").parse().unwrap());
        let orgs = ["acme".parse().unwrap()].into_iter().chain(orgs).collect();
        let seed = Seed { user: "jane".parse().unwrap(), orgs, api_key: None };
        Evidence::new(store.clone(), Settings::default()).seed(&seed).await.unwrap();
        let user = store.user("jane").await.unwrap().unwrap();
        let actor = Actor { id: user.id, name: "jane".to_owned(), kind: ActorKind::User };
        let org = store.org_role("acme", user.id).await.unwrap().unwrap().organization.id;
        Self { fresh, store, org, actor }
    }

    fn flow(&self, name: &str) -> Fact {
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
        Fact::FlowCreated { record }
    }

    async fn record(&self, store: &PostgresStore, facts: Vec<Fact>) -> StoreResult<()> {
        let (org, by) = (self.org, self.actor.clone());
        store.record(Write::new(org, by, NOW, facts, &SystemRandom)).await.map(drop)
    }

    async fn execute(&self, sql: &str) {
        let schema = Schema::new(&self.fresh.name).unwrap();
        let mut connection = PgConnection::connect(&self.fresh.url).await.unwrap();
        sqlx::raw_sql(schema.statement(sql)).execute(&mut connection).await.unwrap();
    }

    async fn row<R: for<'r> FromRow<'r, PgRow> + Send + Unpin>(&self, sql: &str) -> R {
        let schema = Schema::new(&self.fresh.name).unwrap();
        let mut connection = PgConnection::connect(&self.fresh.url).await.unwrap();
        sqlx::query_as(schema.statement(sql)).fetch_one(&mut connection).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn an_older_program_stops_when_a_newer_one_comes_and_nothing_is_lost() {
    let bench = Arc::new(Bench::new(0).await);
    for number in 0..RECORDS / AT_ONCE {
        let facts = (0..AT_ONCE).map(|n| bench.flow(&format!("flow-{number}-{n}"))).collect();
        bench.record(&bench.store, facts).await.unwrap();
    }
    bench.record(&bench.store, vec![bench.flow("late-0")]).await.unwrap();
    let writing = {
        let bench = bench.clone();
        tokio::spawn(async move {
            for written in 1.. {
                let fact = bench.flow(&format!("late-{written}"));
                if let Err(error) = bench.record(&bench.store, vec![fact]).await {
                    return (written, error);
                }
            }
            unreachable!()
        })
    };
    let new = open(&bench.fresh, &NEW).await.unwrap();
    let (written, error) = writing.await.unwrap();
    let told = match error {
        StoreError::Unavailable(told) => told.to_string(),
        other => panic!("{other}"),
    };
    assert!(told.starts_with("a newer program has changed the tables"), "{told}");
    assert!(matches!(bench.store.ready().await, Err(StoreError::Unavailable(_))));
    let last = format!("late-{}", written - 1);
    assert!(bench.store.flow(bench.org, &last).await.unwrap().is_some(), "the older program reads");
    let older = open(&bench.fresh, &MIGRATIONS).await.unwrap_err();
    assert!(matches!(older, ConnectError::NewerSchema { found: 2, known: 1 }), "{older}");
    assert!(matches!(bench.store.rebuild().await, Err(StoreError::Unavailable(_))));

    new.ready().await.unwrap();
    bench.record(&new, vec![bench.flow("new")]).await.unwrap();
    let entries = 1 + RECORDS + written + 1;
    assert!(new.ledger_head(bench.org).await.unwrap().unwrap().size() >= entries as u64);
    for name in ["flow-0-0", "flow-29-999", &last, "new"] {
        assert!(new.flow(bench.org, name).await.unwrap().is_some(), "{name}");
    }
    assert_eq!(new.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_migration_that_broke_off_goes_on_where_it_was() {
    let bench = Bench::new(40).await;
    bench.record(&bench.store, vec![bench.flow("build")]).await.unwrap();
    // About in the middle of the store.
    let (org,): (Vec<u8>,) = bench
        .row("SELECT key FROM evidence.organization WHERE name LIKE 'other%' ORDER BY key OFFSET 30 LIMIT 1")
        .await;
    let damage = format!(
        "UPDATE evidence.ledger SET payload = 'x' || payload WHERE org = '\\x{}' AND idx = 0",
        hex(&org)
    );
    bench.execute(&damage).await;
    let error = open(&bench.fresh, &NEW).await.unwrap_err();
    assert!(error.to_string().contains("organization other"), "{error}");
    let (steps, upto): (i64, Option<Vec<u8>>) = bench
        .row("SELECT steps_done, rederived_through_org FROM evidence._evidence_migrations WHERE NOT done")
        .await;
    assert!(steps == 3 && upto.as_ref().is_some_and(|upto| *upto < org), "{upto:?}");
    let refused = bench.record(&bench.store, vec![bench.flow("late")]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");

    bench.execute(&damage.replace("'x' || payload", "substr(payload, 2)")).await;
    // Also simulates an index from an interrupted build.
    bench.execute("UPDATE evidence._evidence_migrations SET steps_done = 2 WHERE version = 2").await;
    let left = format!(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{}.record_newest'::regclass",
        bench.fresh.name
    );
    bench.execute(&left).await;
    let new = open(&bench.fresh, &NEW).await.unwrap();
    assert!(new.flow(bench.org, "build").await.unwrap().is_some());
    assert_eq!(new.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_program_that_a_newer_one_leaves_in_place_goes_on() {
    static BESIDE: [Migration; 2] = [
        Migration {
            min_writer_version: 1,
            steps: &[Step::Sql(include_str!("../../migrations/0001_first.sql"))],
        },
        Migration {
            min_writer_version: 1,
            steps: &[Step::Index { name: "more", on: "evidence.record (ledger_index)" }],
        },
    ];
    let bench = Bench::new(0).await;
    open(&bench.fresh, &BESIDE).await.unwrap();
    bench.record(&bench.store, vec![bench.flow("build")]).await.unwrap();
    bench.store.ready().await.unwrap();
    open(&bench.fresh, &MIGRATIONS).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn what_is_unique_may_go_from_a_row_of_one_part_to_a_row_of_another() {
    let bench = Bench::new(0).await;
    let another = Seed { user: "jane".parse().unwrap(), orgs: vec![], api_key: None };
    Evidence::new(bench.store.clone(), Settings::default()).seed(&another).await.unwrap();
    let swap = "
        CREATE TEMP TABLE was AS SELECT id, hash FROM evidence.api_key;
        UPDATE evidence.api_key SET hash = id;
        UPDATE evidence.api_key k SET hash = (SELECT was.hash FROM was WHERE was.id <> k.id)";
    bench.execute(swap).await;
    assert_eq!(bench.store.fsck().await.unwrap().problems.len(), 2);
    let begun = "INSERT INTO evidence._evidence_migrations (version, min_writer_version, steps_done, done) VALUES (2, 1, 0, false)";
    bench.execute(begun).await;
    let due = Rederivation { version: 2, tables: vec!["api_key"], part: 1 };
    let schema = Schema::new(&bench.fresh.name).unwrap();
    rederive(&schema, &address(&bench.fresh), &MIGRATIONS, &due).await.unwrap();
    bench.execute("DELETE FROM evidence._evidence_migrations WHERE version = 2").await;
    assert_eq!(bench.store.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn servers_that_start_at_once_pass_every_step_and_a_version_may_be_left_out() {
    static LATER: [Migration; 3] = [FIRST, SECOND, THIRD];
    for migrations in [&NEW as &'static [Migration], &LATER] {
        let bench = Bench::new(3).await;
        bench.record(&bench.store, vec![bench.flow("build")]).await.unwrap();
        let open = || open(&bench.fresh, migrations);
        let (one, two, three) = tokio::join!(open(), open(), open());
        for store in [one, two, three] {
            let store = store.unwrap();
            assert!(store.flow(bench.org, "build").await.unwrap().is_some());
            assert_eq!(store.fsck().await.unwrap().problems, Vec::<String>::new());
        }
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn from_a_ledger_with_a_gap_nothing_is_made() {
    let bench = Bench::new(0).await;
    for name in ["a", "b", "c"] {
        bench.record(&bench.store, vec![bench.flow(name)]).await.unwrap();
    }
    let org = hex(bench.org.as_bytes());
    bench.execute(&format!("DELETE FROM evidence.ledger WHERE org = '\\x{org}' AND idx = 3")).await;
    let error = open(&bench.fresh, &NEW).await.unwrap_err();
    assert!(error.to_string().contains("ledger entry 3 is missing"), "{error}");
}

#[test]
fn versions_that_would_let_the_wrong_programs_write_are_refused() {
    const fn version(min_writer_version: i64, steps: &'static [Step]) -> Migration {
        Migration { min_writer_version, steps }
    }
    assert!(writers_are_consistent(&NEW));
    assert!(writers_are_consistent(&[version(1, &[]), version(1, &[Step::Sql("")])]));
    for wrong in [
        [version(1, &[]), version(2, &[]), version(1, &[])].as_slice(),
        &[version(1, &[]), version(1, &[Step::RederiveTables(&["record"])])],
        &[version(2, &[])],
    ] {
        assert!(!writers_are_consistent(wrong), "{wrong:?}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_store_that_is_opened_as_it_is_is_neither_made_nor_brought_up_to_date() {
    let bench = Bench::new(0).await;
    let open_as_it_is = async |fresh: &Fresh, migrations: &'static [Migration]| {
        open_with(fresh, Options { migrate: false, ..Options::default() }, migrations).await
    };
    let older = open_as_it_is(&bench.fresh, &NEW).await.unwrap_err();
    assert!(matches!(older, ConnectError::OlderSchema { found: 1, known: 2 }), "{older}");
    bench.record(&bench.store, vec![bench.flow("build")]).await.unwrap();
    let same = open_as_it_is(&bench.fresh, &MIGRATIONS).await.unwrap();
    assert!(same.flow(bench.org, "build").await.unwrap().is_some());
    open(&bench.fresh, &NEW).await.unwrap();
    let newer = open_as_it_is(&bench.fresh, &MIGRATIONS).await.unwrap_err();
    assert!(matches!(newer, ConnectError::NewerSchema { found: 2, known: 1 }), "{newer}");

    let nothing = Fresh::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
    for _ in 0..2 {
        let none = open_as_it_is(&nothing, &MIGRATIONS).await.unwrap_err();
        assert!(matches!(none, ConnectError::NoStore { .. }), "{none}");
    }
}
