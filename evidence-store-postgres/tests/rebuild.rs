//! Tests that damage is reported, and that derived tables are rebuilt from the ledgers.

mod bench;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use evidence_core::digest::hex;
use evidence_core::flows::{Flow, FlowFilter, FlowStore};
use evidence_core::ledger::Hash;
use evidence_core::page::PageRequest;
use evidence_core::seed::Seed;
use evidence_core::store::Recorder;
use evidence_core::texts::{TextRef, TextStore};
use evidence_core::{Evidence, Fact, Key, Precondition, Settings, StoreError};
use evidence_store_postgres::sqlx::{self, AssertSqlSafe, Connection, PgConnection};

use bench::Bench;

impl Bench {
    /// Returns the number of rows of a table.
    async fn count(&self, table: &str) -> i64 {
        let mut connection = PgConnection::connect(&self.schema.url).await.unwrap();
        let sql = AssertSqlSafe(format!("SELECT count(*) FROM {}.{table}", self.schema.name));
        let count = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        count
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn damage_is_named() {
    let cases = [
        ("UPDATE {}.ledger SET payload = '{}' WHERE idx = 3", "payload of ledger entry 3"),
        ("UPDATE {}.ledger SET actor = 'user:eve' WHERE idx = 2", "leaf of ledger entry 2"),
        ("DELETE FROM {}.ledger WHERE idx = 4", "ledger entry 4 of"),
        ("UPDATE {}.node SET hash = decode(repeat('00', 32), 'hex')", "node 0 of level 4 does not match"),
        ("DELETE FROM {}.node", "node 0 of level 4 is missing"),
        ("UPDATE {}.head SET frontier = '' WHERE size > 9", "head"),
        ("UPDATE {}.api_key SET hash = NULL", "the hash of an API key is missing"),
    ];
    for (damage, expected) in cases {
        let bench = Bench::new().await;
        for number in 0..20 {
            bench.create(&bench.flow(&format!("flow-{number}"))).await.unwrap();
        }
        bench.execute(damage).await;
        let problems = bench.problems().await;
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{damage}: {problems:?}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn what_is_damaged_hides_nothing_of_its_neighbours() {
    let bench = Bench::new().await;
    for number in 0..200 {
        bench.create(&bench.flow(&format!("flow-{number}"))).await.unwrap();
    }
    // Small organizations are checked in one part with the next.
    let id = hex(bench.org.as_bytes());
    bench
        .execute(&format!("UPDATE {{}}.ledger SET payload = '{{}}' WHERE org = '\\x{id}' AND idx = 1"))
        .await;
    bench.execute(&format!("DELETE FROM {{}}.membership WHERE org <> '\\x{id}'")).await;
    let problems = bench.problems().await;
    for expected in ["the payload of ledger entry 1", "table membership"] {
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{expected}: {problems:?}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn from_a_damaged_ledger_nothing_is_made() {
    for damage in [
        "UPDATE {}.ledger SET payload = '{}' WHERE idx = 3",
        "DELETE FROM {}.ledger WHERE idx = 4",
        "DELETE FROM {}.node",
        "DELETE FROM {}.head WHERE size > 9",
    ] {
        let bench = Bench::new().await;
        for number in 0..20 {
            bench.create(&bench.flow(&format!("flow-{number}"))).await.unwrap();
        }
        bench.execute("DELETE FROM {}.record").await;
        bench.execute(damage).await;
        let report = bench.store.rebuild().await.unwrap();
        assert!(!report.problems.is_empty() && report.rows == 0, "{damage}: {report:?}");
        assert_eq!(bench.count("record").await, 0, "{damage}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn an_organization_whose_ledger_is_gone_is_not_made_to_vanish() {
    let bench = Bench::new().await;
    for table in ["ledger", "node", "head"] {
        let org = hex(bench.org.as_bytes());
        bench.execute(&format!("DELETE FROM {{}}.{table} WHERE org <> '\\x{org}'")).await;
    }
    let report = bench.store.rebuild().await.unwrap();
    assert_eq!(
        report
            .problems
            .iter()
            .filter(|problem| problem.contains("gone: jane") || problem.contains("API key"))
            .count(),
        2,
        "{report:?}"
    );
    assert_eq!((report.rows, bench.count("organization").await, bench.count("api_key").await), (0, 2, 1));
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn tables_that_cannot_be_made_whole_stay_as_they_were() {
    let bench = Bench::new().await;
    bench.create(&bench.flow("build")).await.unwrap();
    bench.execute("DELETE FROM {}.record; DELETE FROM {}.name; DELETE FROM {}.user").await;
    bench.execute("ALTER TABLE {}.user ADD CONSTRAINT refuse CHECK (name = '') NOT VALID").await;
    bench.store.rebuild().await.unwrap_err();
    for table in ["record", "name", "user"] {
        assert_eq!(bench.count(table).await, 0, "{table}");
    }
    bench.execute("ALTER TABLE {}.user DROP CONSTRAINT refuse").await;
    assert_eq!(bench.store.rebuild().await.unwrap().problems, Vec::<String>::new());
    assert_eq!(bench.problems().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_write_that_looked_at_damaged_tables_looks_again_once_they_are_made_again() {
    let bench = Arc::new(Bench::new().await);
    bench.create(&bench.flow("build")).await.unwrap();
    bench.execute("DELETE FROM {}.name").await;
    let mut connection = PgConnection::connect(&bench.schema.url).await.unwrap();
    let mut keeping_out = connection.begin().await.unwrap();
    let lock = AssertSqlSafe(format!("LOCK TABLE {}.head IN EXCLUSIVE MODE", bench.schema.name));
    sqlx::raw_sql(lock).execute(&mut *keeping_out).await.unwrap();
    // First the rebuild waits for the lock, then a write that has prefetched waits behind it.
    let rebuilding = tokio::spawn({
        let store = bench.store.clone();
        async move { store.rebuild().await }
    });
    until_waiting_for_head(&bench, 1).await;
    let writing = tokio::spawn({
        let bench = bench.clone();
        async move {
            let flow = bench.flow("build");
            let precondition = Precondition::Vacant(Key::Flow(flow.name.clone()));
            bench
                .store
                .record(bench.write(vec![Fact::FlowCreated { record: flow }], vec![precondition]))
                .await
        }
    });
    until_waiting_for_head(&bench, 2).await;
    keeping_out.commit().await.unwrap();
    assert_eq!(rebuilding.await.unwrap().unwrap().problems, Vec::<String>::new());
    let written = writing.await.unwrap();
    assert!(matches!(written, Err(StoreError::Conflict)), "{written:?}");
    assert_eq!(bench.problems().await, Vec::<String>::new());
}

/// Waits until this many sessions wait for the table of heads.
async fn until_waiting_for_head(bench: &Bench, sessions: i64) {
    let mut connection = PgConnection::connect(&bench.schema.url).await.unwrap();
    loop {
        let waiting: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
            JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE NOT l.granted AND c.relname = 'head' AND n.nspname = $1",
        )
        .bind(&bench.schema.name)
        .fetch_one(&mut connection)
        .await
        .unwrap();
        if waiting >= sessions {
            return connection.close().await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn tables_are_made_again_while_others_write() {
    let bench = Arc::new(Bench::new().await);
    let mut writes = tokio::task::JoinSet::new();
    for number in 0..100 {
        let bench = bench.clone();
        writes.spawn(async move { bench.create(&bench.flow(&format!("flow-{number}"))).await });
    }
    while !writes.is_empty() {
        assert_eq!(bench.store.rebuild().await.unwrap().problems, Vec::<String>::new());
        writes.join_next().await.unwrap().unwrap().unwrap();
        while let Some(written) = writes.try_join_next() {
            written.unwrap().unwrap();
        }
    }
    let flows = bench.store.flows(bench.org, &FlowFilter::default(), PageRequest::ALL).await.unwrap();
    assert_eq!(flows.total, 100);
    assert_eq!(bench.problems().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_check_takes_a_snapshot_for_each_organization() {
    let bench = Bench::new().await;
    let evidence = Evidence::new(bench.store.clone(), Settings::default());
    let orgs: Vec<_> = (0..12).map(|number| format!("org{number}").parse().unwrap()).collect();
    evidence.seed(&Seed { user: "john".parse().unwrap(), orgs, api_key: None }).await.unwrap();
    let (url, head) = (bench.schema.url.clone(), format!("{}.head", bench.schema.name));
    let snapshots = Arc::new(Mutex::new(Vec::new()));
    let found = Arc::clone(&snapshots);
    let begins = move |_: &str| {
        let runtime = tokio::runtime::Handle::current();
        let begun = tokio::task::block_in_place(|| {
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&url).await.unwrap();
                let of_the_check = "
                SELECT DISTINCT a.xact_start::text
                FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
                WHERE a.state = 'idle in transaction' AND l.relation = to_regclass($1)";
                let begun: Vec<String> =
                    sqlx::query_scalar(of_the_check).bind(&head).fetch_all(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                begun
            })
        });
        assert_eq!(begun.len(), 1, "{begun:?}");
        found.lock().unwrap().extend(begun);
    };
    let report = bench.store.fsck_with(begins).await.unwrap();
    let mut snapshots = std::mem::take(&mut *snapshots.lock().unwrap());
    assert_eq!((report.problems, snapshots.len() as u64), (vec![], report.organizations));
    snapshots.dedup();
    assert!(snapshots.len() > 12, "{snapshots:?}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_text_that_is_referred_to_and_kept_by_no_entry_is_named() {
    let bench = Bench::new().await;
    let (there, lost) = (TextRef::of("there"), TextRef::of("lost"));
    let flow =
        |name: &str, text| Fact::FlowCreated { record: Flow { template: Some(text), ..bench.flow(name) } };
    let kept = Fact::TextKept { text: "there".to_owned() };
    bench.store.record(bench.write(vec![kept, flow("a", there)], vec![])).await.unwrap();
    assert_eq!(bench.problems().await, Vec::<String>::new());
    bench.store.record(bench.write(vec![flow("b", lost), flow("c", lost)], vec![])).await.unwrap();
    let problems = bench.problems().await;
    assert_eq!(problems.len(), 1, "{problems:?}");
    let digest = lost.sha256.to_string();
    assert!(problems[0].starts_with("a text is missing: ") && problems[0].contains(&digest), "{problems:?}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_text_that_is_damaged_is_as_good_as_gone() {
    let bench = Bench::new().await;
    let kept = ["one", "two"].map(|text| Fact::TextKept { text: text.to_owned() });
    bench.store.record(bench.write(kept.to_vec(), vec![])).await.unwrap();
    bench.execute("UPDATE {}.ledger SET payload = 'damaged {' WHERE payload LIKE '%\"one\"%'").await;
    let asked = ["one", "two"].map(Hash::of);
    assert_eq!(bench.store.texts(bench.org, &asked).await.unwrap(), ["two"]);
    // Recording the text again repairs it.
    bench.store.record(bench.write(vec![kept[0].clone(), kept[0].clone()], vec![])).await.unwrap();
    let mut texts = bench.store.texts(bench.org, &asked).await.unwrap();
    texts.sort_unstable();
    assert_eq!(texts, ["one", "two"]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_ledger_of_long_entries_is_checked_and_made_again_page_after_page() {
    let bench = Bench::new().await;
    let before = bench.store.fsck().await.unwrap().entries;
    for number in 0..3 {
        let text = format!("{number}{}", "x".repeat(3 << 20));
        bench.store.record(bench.write(vec![Fact::TextKept { text }], vec![])).await.unwrap();
    }
    let report = bench.store.fsck().await.unwrap();
    assert_eq!((report.entries, report.problems), (before + 3, Vec::new()));
    let report = bench.store.rebuild().await.unwrap();
    assert_eq!((report.entries, report.rows, report.problems), (before + 3, 0, Vec::new()));
}
