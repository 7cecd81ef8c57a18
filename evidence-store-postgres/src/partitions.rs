//! Tests the store on tables that are hash-partitioned by organization: it must pass the conformance checks,
//! and each statement of a request must touch one partition.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use evidence_conformance::{Running, checks, transfer_checks};
use evidence_store_sql::migrate::{Migration, Step};
use sqlx::{Connection, PgConnection};

use crate::connections::{Address, PreparedConnection};
use crate::db::{Options, PostgresStore};
use crate::error::ConnectError;
use crate::migrate::MIGRATIONS;
use crate::plans::explain;
use crate::schema::{Schema, TABLES};
use crate::statements_run::run_in;
use crate::steps::make;

const PARTITIONS: usize = 4;

/// The unpartitioned tables of the whole store. Some have names or hashes that are unique across
/// organizations. The others are memberships (looked up by an organization's name), leases, and the place of
/// the attachments.
const WHOLE: [&str; 7] =
    ["organization", "known_organization", "user", "membership", "api_key", "lease", "attachment_place"];

/// Statements that read several partitions: a part of the statement, and the reason.
const EXCEPTIONS: [(&str, &str); 8] = [
    ("SELECT 1 FROM evidence.checkpoint", "whether any organization has a signed checkpoint"),
    ("SELECT n.org FROM evidence.delivery n", "what is due is looked for in all organizations"),
    ("SELECT size FROM evidence.head WHERE org = o.key", "several organizations are asked about at once"),
    ("FROM evidence.head h) x", "the newest entry of all organizations is asked for"),
    ("SELECT a.ends_at", "what has ended is looked for in all organizations"),
    ("WHERE (p.org, p.sha256) >", "the sweep goes through all organizations"),
    ("SELECT o.id, a.sha256 FROM evidence.attachment a", "an attachment of any organization is looked for"),
    (
        "FROM evidence.api_key k",
        "the key tells the organization, by which others are left out while it is executed",
    ),
];

/// The tables that are derived from the ledgers only.
const DERIVED: [&str; 24] = [
    "allowance",
    "allowed",
    "artifact",
    "attachment",
    "attestation",
    "build",
    "clock_correction",
    "commit_trail",
    "deployment",
    "environment_member",
    "environment_report",
    "flow_repo",
    "instance",
    "interned_text",
    "membership",
    "name",
    "record",
    "record_tag",
    "repo",
    "run_origin",
    "snapshot",
    "trail",
    "trail_entry",
    "version",
];

/// The migrations, with all other tables partitioned.
static PARTITIONED: LazyLock<[Migration; 1]> = LazyLock::new(|| {
    let [Migration { min_writer_version, steps: [Step::Sql(sql)] }] = &MIGRATIONS else {
        panic!("{MIGRATIONS:?}")
    };
    let steps: Box<[Step]> = Box::new([Step::Sql(partitioned(sql).leak())]);
    [Migration { min_writer_version: *min_writer_version, steps: Box::leak(steps) }]
});

/// Rewrites statements to create partitioned tables.
fn partitioned(sql: &str) -> String {
    let mut tables = sql.split("CREATE TABLE evidence.");
    let mut text = tables.next().unwrap().to_owned();
    for table in tables {
        let (name, _) = table.split_once(' ').unwrap();
        let (columns, rest) = table.split_once("\n)").unwrap();
        let (options, rest) = rest.split_once(';').unwrap();
        write!(text, "CREATE TABLE evidence.{columns}\n)").unwrap();
        if WHOLE.contains(&name) {
            write!(text, "{options};").unwrap();
        } else {
            write!(text, " PARTITION BY HASH (org);").unwrap();
            for number in 0..PARTITIONS {
                write!(
                    text,
                    "CREATE TABLE evidence.{name}_{number} PARTITION OF evidence.{name}
                        FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number}){options};"
                )
                .unwrap();
            }
        }
        text.push_str(rest);
    }
    text
}

/// Partitioned tables in a schema of their own.
struct Partitioned {
    fresh: evidence_test_postgres::SchemaName,
    schema: Schema,
}

impl Partitioned {
    async fn fresh() -> Self {
        let fresh =
            evidence_test_postgres::SchemaName::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
        let schema = Schema::new(&fresh.name).unwrap();
        let partitioned = Self { fresh, schema };
        partitioned.execute(&format!("CREATE SCHEMA {}", partitioned.schema.name())).await;
        let mut connection = PgConnection::connect(&partitioned.fresh.url).await.unwrap();
        make(&partitioned.schema, &mut connection, &*PARTITIONED).await.unwrap();
        partitioned
    }

    async fn execute(&self, sql: &str) {
        let mut connection = PgConnection::connect(&self.fresh.url).await.unwrap();
        sqlx::raw_sql(self.schema.statement(sql)).execute(&mut connection).await.unwrap();
    }

    async fn empty(&self, tables: impl Iterator<Item = &str>) {
        let deletes = tables.map(|table| format!("DELETE FROM evidence.\"{table}\";"));
        self.execute(&deletes.collect::<String>()).await;
    }

    /// Runs a test on a store with empty tables, and leaves its data.
    async fn try_out(
        &self,
        name: &str,
        run: impl FnOnce(Arc<PostgresStore>) -> Running,
    ) -> Arc<PostgresStore> {
        let tables = TABLES.iter().map(|(table, _)| *table);
        self.empty(tables.filter(|table| *table != "_evidence_migrations")).await;
        let store = self.store().await.unwrap();
        run(Arc::clone(&store)).await.unwrap_or_else(|failure| panic!("{name}: {failure}"));
        store
    }

    async fn store(&self) -> Result<Arc<PostgresStore>, ConnectError> {
        let options = Options { schema: self.fresh.name.clone(), mixed_groups: false, ..Options::default() };
        PostgresStore::connect_with(&self.fresh.url, &options).await.map(Arc::new)
    }
}

/// Returns the partitions that the steps of a plan read, without those that are pruned before execution.
fn partitions(steps: &[String]) -> BTreeSet<&str> {
    let scans = steps.iter().filter(|step| step.contains(" Scan "));
    let read = scans.filter_map(|step| step.split_once(" on ")?.1.split(' ').next()?.rsplit_once('_'));
    // Partition names end in a number. An index of an unpartitioned table ends in `_pkey`.
    let is_number = |text: &str| text.parse::<usize>().is_ok();
    let partitions =
        read.filter(|(name, number)| is_number(number) && TABLES.iter().any(|(table, _)| table == name));
    partitions.map(|(_, number)| number).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn partitioned_tables_keep_every_promise_and_statements_touch_one_partition() {
    let tables = Partitioned::fresh().await;
    for check in checks() {
        tables.try_out(check.name, |store| (check.run)(store)).await.close().await;
    }
    let mut rebuilt = 0;
    for check in transfer_checks() {
        let store = tables.try_out(check.name, |store| (check.run)(store)).await;
        let found = store.fsck().await.unwrap();
        if found.problems.is_empty() {
            tables.empty(DERIVED.into_iter()).await;
            let report = store.rebuild().await.unwrap();
            assert_eq!(report.problems, found.problems, "{}", check.name);
            rebuilt += report.rows;
            assert_eq!(store.fsck().await.unwrap(), found, "{}", check.name);
        }
        let of_tables = found.problems.iter().filter(|problem| problem.contains("table"));
        assert_eq!(of_tables.collect::<Vec<_>>(), Vec::<&String>::new(), "{}", check.name);
        store.close().await;
    }
    assert!(rebuilt > 0, "no row was made again");
    let statements = run_in([tables.schema.name()]);
    assert!(statements.len() > 50, "{} statements", statements.len());
    let address =
        Address { options: tables.fresh.url.parse().unwrap(), statement_timeout: Duration::from_secs(60) };
    let mut session = PreparedConnection::connect(&address).await.unwrap();
    let (mut found, mut used) = (BTreeMap::new(), BTreeSet::new());
    for (sql, types) in &statements {
        let steps = explain(session.ready().await.unwrap(), &tables.schema, sql, types).await;
        if partitions(&steps).len() > 1 {
            match EXCEPTIONS.iter().find(|(part, _)| sql.contains(part)) {
                Some(exception) => drop(used.insert(exception)),
                None => drop(found.insert(sql, steps)),
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
    let unused: Vec<_> = EXCEPTIONS.iter().filter(|exception| !used.contains(exception)).collect();
    assert!(unused.is_empty(), "{unused:#?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn what_a_partition_has_besides_is_named() {
    let tables = Partitioned::fresh().await;
    let store = tables.store().await.unwrap();
    tables.execute("CREATE INDEX more ON evidence.trail_1 (name)").await;
    tables.execute("ALTER TABLE evidence.trail_1 ENABLE ROW LEVEL SECURITY").await;
    let odd = |what: &str| format!("a table or index is not as it was made: {what}");
    let index = odd("more on trail false true 4 USING btree (name)");
    let problems = BTreeSet::from_iter(store.fsck().await.unwrap().problems);
    assert_eq!(problems, BTreeSet::from([index, odd("trail with row-level security")]));
    tables.execute("ALTER TABLE evidence.ledger_2 SET UNLOGGED").await;
    let refused = tables.store().await;
    let unlogged = tables.schema.table("ledger_2");
    assert!(matches!(&refused, Err(ConnectError::Unlogged(table)) if *table == unlogged), "{refused:?}");
}
