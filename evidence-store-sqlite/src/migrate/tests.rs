//! Two versions of the program on one store. The second one rederives a table in another form from the
//! ledgers.

use std::path::PathBuf;
use std::sync::Arc;

use evidence_core::auth::{Actor, ActorKind};
use evidence_core::fact::UnknownFields;
use evidence_core::flows::{Flow, FlowStore, Visibility};
use evidence_core::id::{Id, SystemRandom};
use evidence_core::orgs::OrgStore;
use evidence_core::seed::Seed;
use evidence_core::store::{Health, LedgerStore, Recorder, StoreResult};
use evidence_core::tags::Tags;
use evidence_core::time::Timestamp;
use evidence_core::{Evidence, Fact, Settings, StoreError, Write};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use super::*;
use crate::db::{Options, Sqlite, SqliteStore};

const NOW: Timestamp = Timestamp::from_seconds(1_776_252_299);

/// The number of records before the new version starts, and the number of records in one write.
const RECORDS: usize = 30_000;
const AT_ONCE: usize = 1000;

const FIRST: Migration =
    Migration { min_writer_version: 1, steps: &[Step::Sql(include_str!("../../migrations/0001_first.sql"))] };

/// Records with their ids first in the key, and an index in the order of the ledger.
const SECOND: Migration = Migration {
    min_writer_version: 2,
    steps: &[
        Step::Sql(
            "DROP TABLE record;
            CREATE TABLE record (
                org          INTEGER NOT NULL,
                id           TEXT NOT NULL,
                kind         TEXT NOT NULL,
                name         TEXT NOT NULL,
                archived     INTEGER NOT NULL,
                tags         TEXT NOT NULL,
                ledger_index INTEGER NOT NULL,
                PRIMARY KEY (org, id, kind)
            ) STRICT, WITHOUT ROWID;
            CREATE INDEX record_name ON record (org, kind, name)",
        ),
        Step::RederiveTables(&["record"]),
        Step::Index { name: "record_newest", on: "record (org, ledger_index)" },
    ],
};

/// Adds a column to the table that the second version rederives.
const THIRD: Migration =
    Migration { min_writer_version: 3, steps: &[Step::Sql("ALTER TABLE record ADD COLUMN note TEXT")] };

static NEW: [Migration; 2] = [FIRST, SECOND];

async fn open(file: PathBuf, migrations: &'static [Migration]) -> Result<SqliteStore, ConnectError> {
    spawn_blocking(move || Sqlite::start(&file, &Options::default(), migrations).map(SqliteStore::new))
        .await
        .unwrap()
}

/// A store of the first version, with the organization `acme` and others.
struct Bench {
    file: PathBuf,
    store: Arc<SqliteStore>,
    org: Id,
    actor: Actor,
    _directory: TempDir,
}

impl Bench {
    async fn new(others: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("e.db");
        let store = Arc::new(open(file.clone(), &MIGRATIONS).await.unwrap());
        let orgs = (0..others).map(|number| format!("other{number}").parse().unwrap());
        let orgs = ["acme".parse().unwrap()].into_iter().chain(orgs).collect();
        let seed = Seed { user: "jane".parse().unwrap(), orgs, api_key: None };
        Evidence::new(store.clone(), Settings::default()).seed(&seed).await.unwrap();
        let user = store.user("jane").await.unwrap().unwrap();
        let actor = Actor { id: user.id, name: "jane".to_owned(), kind: ActorKind::User };
        let org = store.org_role("acme", user.id).await.unwrap().unwrap().organization.id;
        Self { file, store, org, actor, _directory: directory }
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

    async fn record(&self, store: &SqliteStore, facts: Vec<Fact>) -> StoreResult<()> {
        let (org, by) = (self.org, self.actor.clone());
        store.record(Write::new(org, by, NOW, facts, &SystemRandom)).await.map(drop)
    }

    fn execute(&self, sql: &str) {
        Connection::open(&self.file).unwrap().execute_batch(sql).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
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
    let new = open(bench.file.clone(), &NEW).await.unwrap();
    let (written, error) = writing.await.unwrap();
    let told = match error {
        StoreError::Unavailable(told) => told.to_string(),
        other => panic!("{other}"),
    };
    assert!(told.starts_with("a newer program has changed the tables"), "{told}");
    assert!(matches!(bench.store.ready().await, Err(StoreError::Unavailable(_))));
    let last = format!("late-{}", written - 1);
    assert!(bench.store.flow(bench.org, &last).await.unwrap().is_some(), "the older program reads");
    let older = open(bench.file.clone(), &MIGRATIONS).await.unwrap_err();
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
async fn a_migration_that_broke_off_goes_on_where_it_was() {
    let bench = Bench::new(40).await;
    bench.record(&bench.store, vec![bench.flow("build")]).await.unwrap();
    bench.execute("UPDATE ledger SET payload = 'x' || payload WHERE org = 30 AND idx = 0");
    let error = open(bench.file.clone(), &NEW).await.unwrap_err();
    assert!(error.to_string().contains("organization other"), "{error}");
    let done = Connection::open(&bench.file).unwrap();
    let done = done.query_row(
        "SELECT steps_done, rederived_through_org FROM _evidence_migrations WHERE NOT done",
        [],
        |row| row.try_into(),
    );
    let (steps, upto): (i64, i64) = done.unwrap();
    assert!(steps == 3 && (1..30).contains(&upto), "{upto}");
    let refused = bench.record(&bench.store, vec![bench.flow("late")]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");

    bench.execute("UPDATE ledger SET payload = substr(payload, 2) WHERE org = 30 AND idx = 0");
    let new = open(bench.file.clone(), &NEW).await.unwrap();
    assert!(new.flow(bench.org, "build").await.unwrap().is_some());
    assert_eq!(new.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test]
async fn a_program_that_a_newer_one_leaves_in_place_goes_on() {
    static BESIDE: [Migration; 2] = [
        Migration {
            min_writer_version: 1,
            steps: &[Step::Sql(include_str!("../../migrations/0001_first.sql"))],
        },
        Migration {
            min_writer_version: 1,
            steps: &[Step::Index { name: "more", on: "record (ledger_index)" }],
        },
    ];
    let bench = Bench::new(0).await;
    open(bench.file.clone(), &BESIDE).await.unwrap();
    bench.record(&bench.store, vec![bench.flow("build")]).await.unwrap();
    bench.store.ready().await.unwrap();
    open(bench.file.clone(), &MIGRATIONS).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_unique_may_go_from_a_row_of_one_part_to_a_row_of_another() {
    let bench = Bench::new(0).await;
    let another = Seed { user: "jane".parse().unwrap(), orgs: vec![], api_key: None };
    Evidence::new(bench.store.clone(), Settings::default()).seed(&another).await.unwrap();
    bench.execute(
        "CREATE TEMP TABLE was AS SELECT id, hash FROM api_key;
        UPDATE api_key SET hash = id;
        UPDATE api_key SET hash = (SELECT was.hash FROM was WHERE was.id <> api_key.id)",
    );
    assert_eq!(bench.store.fsck().await.unwrap().problems.len(), 2);
    bench.execute("INSERT INTO _evidence_migrations (version, min_writer_version, steps_done, done) VALUES (2, 1, 0, 0)");
    let due = Rederivation { version: 2, tables: vec!["api_key"], part: 1 };
    let file = bench.file.clone();
    spawn_blocking(move || rederive(&file, &MIGRATIONS, &due)).await.unwrap().unwrap();
    bench.execute("DELETE FROM _evidence_migrations WHERE version = 2");
    assert_eq!(bench.store.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_may_be_left_out() {
    static LATER: [Migration; 3] = [FIRST, SECOND, THIRD];
    let bench = Bench::new(3).await;
    bench.record(&bench.store, vec![bench.flow("build")]).await.unwrap();
    let store = open(bench.file.clone(), &LATER).await.unwrap();
    assert!(store.flow(bench.org, "build").await.unwrap().is_some());
    assert_eq!(store.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test]
async fn from_a_ledger_with_a_gap_nothing_is_made() {
    let bench = Bench::new(0).await;
    for name in ["a", "b", "c"] {
        bench.record(&bench.store, vec![bench.flow(name)]).await.unwrap();
    }
    bench.execute("DELETE FROM ledger WHERE idx = 3");
    let error = open(bench.file.clone(), &NEW).await.unwrap_err();
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
async fn a_store_that_is_opened_as_it_is_is_not_brought_up_to_date() {
    let bench = Bench::new(0).await;
    let open_as_it_is = async |migrations: &'static [Migration]| {
        let (file, options) = (bench.file.clone(), Options { migrate: false, ..Options::default() });
        spawn_blocking(move || Sqlite::start(&file, &options, migrations).map(SqliteStore::new))
            .await
            .unwrap()
    };
    let older = open_as_it_is(&NEW).await.unwrap_err();
    assert!(matches!(older, ConnectError::OlderSchema { found: 1, known: 2 }), "{older}");
    bench.record(&bench.store, vec![bench.flow("build")]).await.unwrap();
    let same = open_as_it_is(&MIGRATIONS).await.unwrap();
    assert!(same.flow(bench.org, "build").await.unwrap().is_some());
    open(bench.file.clone(), &NEW).await.unwrap();
    let newer = open_as_it_is(&MIGRATIONS).await.unwrap_err();
    assert!(matches!(newer, ConnectError::NewerSchema { found: 2, known: 1 }), "{newer}");
}
