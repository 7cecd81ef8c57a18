//! Tests damage to the tables outside the store: it is reported, it hides nothing else, and it blocks nothing
//! else.

use std::sync::Arc;
use std::time::Duration;

use evidence_core::blobs::{Blobs, Whole};
use evidence_core::digest::{hex, sha256_hex};
use evidence_core::id::Id;
use evidence_core::orgs::OrgStore;
use evidence_core::seed::Seed;
use evidence_core::store::Health;
use evidence_core::sweep::PendingStore;
use evidence_core::time::{Clock, SystemClock, Timestamp};
use evidence_core::{Evidence, Fact, Settings, Store, StoreError};
use evidence_store_postgres::sqlx::{self, AssertSqlSafe, Connection, PgConnection};
use evidence_store_postgres::{ConnectError, Options, PostgresStore};
use evidence_test_postgres::SchemaName;

use crate::lost_rows::Damaged;

#[path = "../../evidence-store-sql/tests/support/future.rs"]
mod future;
#[path = "../../evidence-store-sql/tests/support/lost_rows.rs"]
mod lost_rows;

const NOW: Timestamp = Timestamp::from_seconds(1_776_252_299);

/// A store in a schema of its own.
struct Bench {
    store: Arc<PostgresStore>,
    options: Options,
    schema: SchemaName,
}

impl Bench {
    async fn empty() -> Self {
        let schema = SchemaName::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
        let options = Options { schema: schema.name.clone(), connections: 2, ..Options::default() };
        let store = Arc::new(PostgresStore::connect_with(&schema.url, &options).await.unwrap());
        Self { store, options, schema }
    }

    /// Creates a store with the organizations `acme` and `beta`.
    async fn new() -> Self {
        let bench = Self::empty().await;
        seed(&bench.store, "jane", &["acme", "beta"]).await.unwrap();
        bench
    }

    /// Executes statements in which `{}` stands for the schema.
    async fn execute(&self, sql: &str) {
        let mut connection = PgConnection::connect(&self.schema.url).await.unwrap();
        let sql = AssertSqlSafe(sql.replace("{}", &self.schema.name));
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    async fn org(&self, name: &str) -> Id {
        let nobody = "00000000-0000-0000-0000-00000001".parse().unwrap();
        self.store.org_role(name, nobody).await.unwrap().unwrap().organization.id
    }

    async fn problems(&self) -> Vec<String> {
        self.store.fsck().await.unwrap().problems
    }
}

async fn seed(store: &Arc<PostgresStore>, user: &str, orgs: &[&str]) -> Result<(), evidence_core::Error> {
    let orgs = orgs.iter().map(|org| org.parse().unwrap()).collect();
    let seed = Seed { user: user.parse().unwrap(), orgs, api_key: None };
    Evidence::new(store.clone(), Settings::default()).seed(&seed).await.map(drop)
}

#[track_caller]
fn has(problems: &[String], expected: &str) {
    assert!(problems.iter().any(|problem| problem.contains(expected)), "{expected}: {problems:#?}");
}

/// Keys that no organization has: below all, above all, and one that needs escaping.
const NOBODY: [&str; 3] = ["", "zz", "it''s"];

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_key_of_no_organization_is_named_and_stops_what_would_lose_its_hash() {
    for org in NOBODY {
        let bench = Bench::new().await;
        bench
            .execute(&format!(
                "INSERT INTO {{}}.organization VALUES ('{org}', '{org}', 'zz', '{{}}');
                INSERT INTO {{}}.api_key (org, id, owner, owner_id, hash, created_at)
                SELECT '{org}', 'forged', owner, owner_id, 'known', created_at FROM {{}}.api_key"
            ))
            .await;
        let problems = bench.problems().await;
        for expected in [
            "table organization: row",
            "table api_key: row",
            "the ledger of an organization is gone: zz",
            "no ledger tells of an API key: forged",
        ] {
            has(&problems, expected);
        }
        let report = bench.store.rebuild().await.unwrap();
        has(&report.problems, "no ledger tells of an API key: forged");
        assert_eq!(report.rows, 0);
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn rows_of_no_organization_are_named_and_removed() {
    let rows = [
        ("membership", "'u', 'admin'"),
        ("record", "'flow', 'i', 'n', 0, false, '{}'"),
        ("name", "'flow', 'n', 'i', false"),
        ("trail_entry", "'t', 0"),
        ("allowance", "'e', 'f', 0, NULL, false"),
        ("allowed", "'e', 'f', 0, 0"),
        ("interned_text", "'t', 0"),
        ("record_tag", "'control', 'c', 'k', 'v'"),
        ("attachment", "'s', 1"),
        ("\"user\"", "'i', 'nobody', '{}', 0"),
    ];
    for org in NOBODY {
        let bench = Bench::new().await;
        for (table, values) in rows {
            let values = values.replace("{}", "[]");
            bench.execute(&format!("INSERT INTO {{}}.{table} VALUES ('{org}', {values})")).await;
        }
        let problems = bench.problems().await;
        for (table, _) in rows {
            let table = table.trim_matches('"');
            has(&problems, &format!("table {table}: row"));
            has(&problems, &format!("rows of an organization that does not exist: {table}"));
        }
        let report = bench.store.rebuild().await.unwrap();
        assert_eq!((report.rows, report.problems), (rows.len() as u64, vec![]));
        assert_eq!(bench.problems().await, Vec::<String>::new());
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_content_of_the_least_organization_is_read_too() {
    let bench = Bench::new().await;
    bench.execute("INSERT INTO {}.blob VALUES ('', '', 1)").await;
    has(&bench.problems().await, "the attachment  does not match its hash");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn the_size_of_a_damaged_head_hides_nothing() {
    for size in [-1000, i64::MIN, i64::MAX] {
        let bench = Bench::new().await;
        bench
            .execute(&format!(
                "UPDATE {{}}.head SET size = '{size}'
                    WHERE org IN (SELECT key FROM {{}}.organization WHERE name <> 'beta');
                DELETE FROM {{}}.membership WHERE org = (SELECT key FROM {{}}.organization WHERE name = 'beta');
                INSERT INTO {{}}.blob VALUES ('1', '', 1), ('1', 'a', 1)"
            ))
            .await;
        let problems = bench.problems().await;
        has(&problems, "table membership: row");
        has(&problems, "the attachment a does not match its hash");
        for org in ["acme", "jane"] {
            let of_org = problems.iter().filter(|line| line.starts_with(&format!("organization {org}: ")));
            assert_eq!(of_org.count(), 1, "{problems:#?}");
        }
        assert!(!bench.store.rebuild().await.unwrap().problems.is_empty());
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn entries_without_a_head_are_checked() {
    let bench = Bench::new().await;
    let entries = bench.store.fsck().await.unwrap().entries;
    let of = |org: &str| format!("WHERE org = (SELECT key FROM {{}}.organization WHERE name = '{org}')");
    bench
        .execute(&format!("DELETE FROM {{}}.head {}; DELETE FROM {{}}.head {}", of("acme"), of("beta")))
        .await;
    bench.execute(&format!("UPDATE {{}}.ledger SET payload = '[]' {} AND idx = 1", of("acme"))).await;
    let mut report = bench.store.fsck().await.unwrap();
    assert_eq!(report.entries, entries);
    report.problems.sort_unstable();
    assert_eq!(
        report.problems,
        [
            "organization acme: its ledger has no head",
            "organization acme: the payload of ledger entry 1 does not match its hash",
            "organization beta: its ledger has no head"
        ]
    );
    bench.execute(&format!("DELETE FROM {{}}.ledger {} AND idx = 0", of("beta"))).await;
    has(&bench.problems().await, "organization beta: ledger entry 0 is missing");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn notes_that_cannot_be_read_are_passed_over() {
    let bench = Bench::new().await;
    let org = bench.org("acme").await;
    let contents = ["a", "b", "c"].map(|content| sha256_hex(content.as_bytes()).parse().unwrap());
    for content in &contents {
        assert!(bench.store.put_pending(org, content, NOW).await.unwrap());
    }
    bench
        .execute(
            "INSERT INTO {}.attachment_pending SELECT DISTINCT x.org, v.value, 0, NULL::bigint
            FROM (SELECT org FROM {}.attachment_pending UNION SELECT '' UNION SELECT 'zz') x,
                UNNEST('{\"\", \"!\", \"4nothex\", \"nothex\"}'::text[]) v (value)",
        )
        .await;
    for limit in [1, 2, 100] {
        let (mut found, mut last) = (Vec::new(), None);
        while let Some(next) = bench.store.pending(last.as_ref(), limit).await.unwrap().into_iter().next() {
            found.push(next.sha256.clone());
            last = Some(next);
        }
        let mut wanted = contents.to_vec();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{limit}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_store_that_may_not_write_any_more_is_not_available() {
    let bench = Bench::new().await;
    let role = format!("{}_role", bench.schema.name);
    bench
        .execute(&format!(
            "CREATE ROLE {role}; GRANT USAGE ON SCHEMA {{}} TO {role};
            GRANT ALL ON ALL TABLES IN SCHEMA {{}} TO {role}"
        ))
        .await;
    let separator = if bench.schema.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{separator}options=-c%20role%3D{role}", bench.schema.url);
    let options = Options { migrate: false, ..bench.options.clone() };
    let store = Arc::new(PostgresStore::connect_with(&url, &options).await.unwrap());
    store.ready().await.unwrap();
    seed(&store, "john", &["gamma"]).await.unwrap();
    let mut refusals = Vec::new();
    // Ledgers are never changed.
    bench.execute(&format!("REVOKE UPDATE, DELETE ON {{}}.ledger, {{}}.node FROM {role}")).await;
    seed(&store, "june", &["epsilon"]).await.unwrap();
    // The user has no privilege on this table, and the store needs none.
    bench.execute("CREATE UNLOGGED TABLE {}.somebody_elses (n integer)").await;
    store.ready().await.unwrap();
    seed(&store, "jill", &["zeta"]).await.unwrap();
    for lost in ["INSERT ON {}.ledger", "UPDATE ON {}.head", "UPDATE ON {}.membership", "SELECT ON {}.name"] {
        bench.execute(&format!("REVOKE {lost} FROM {role}")).await;
        refusals.push((lost, store.ready().await, seed(&store, "judy", &["delta"]).await));
        bench.execute(&format!("GRANT {lost} TO {role}")).await;
        store.ready().await.unwrap();
    }
    store.close().await;
    let mut unread = Vec::new();
    bench.execute(&format!("REVOKE SELECT ON {{}}._evidence_migrations FROM {role}")).await;
    for migrate in [true, false] {
        let options = Options { migrate, ..options.clone() };
        unread.push(PostgresStore::connect_with(&url, &options).await.unwrap_err());
    }
    bench.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    for error in unread {
        assert!(matches!(error, ConnectError::MayNotRead { .. }), "{error}");
    }
    for (lost, ready, written) in refusals {
        assert!(matches!(ready, Err(StoreError::Unavailable(_))), "{lost}: {ready:?}");
        let unavailable = matches!(written, Err(evidence_core::Error::Store(StoreError::Unavailable(_))));
        assert!(unavailable, "{lost}: {written:?}");
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn tables_that_a_crash_empties_are_refused() {
    for table in ["ledger", "head", "blob_chunk", "user"] {
        let bench = Bench::new().await;
        bench.execute(&format!("ALTER TABLE {{}}.\"{table}\" SET UNLOGGED")).await;
        has(&bench.problems().await, "a table or index is not as it was made: ");
        for migrate in [true, false] {
            let options = Options { migrate, ..bench.options.clone() };
            let refused = PostgresStore::connect_with(&bench.schema.url, &options).await.unwrap_err();
            let remedy = format!("ALTER TABLE \"{}\".\"{table}\" SET LOGGED", bench.schema.name);
            assert!(refused.to_string().contains(&remedy), "{refused}");
        }
        bench.execute(&format!("ALTER TABLE {{}}.\"{table}\" SET LOGGED")).await;
        assert_eq!(bench.problems().await, Vec::<String>::new());
        bench.execute("CREATE UNLOGGED TABLE {}.somebody_elses (n integer)").await;
        PostgresStore::connect_with(&bench.schema.url, &bench.options).await.unwrap().close().await;
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn tables_that_are_not_as_they_were_made_are_named() {
    for change in [
        "ALTER TABLE {}.record ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE {}.record FORCE ROW LEVEL SECURITY",
        "ALTER TABLE {}.record ALTER archived SET DEFAULT false",
        "ALTER TABLE {}.record ADD CONSTRAINT named CHECK (name <> '')",
        "DROP INDEX {}.record_name; CREATE INDEX record_name ON {}.record (org, (kind || ''), name DESC)",
        "DROP INDEX {}.record_name; CREATE INDEX record_name ON {}.record (org, (kind || '!'), name)",
        "CREATE RULE none AS ON DELETE TO {}.name DO INSTEAD NOTHING",
        "ALTER TABLE {}.record DISABLE TRIGGER ALL; CREATE TABLE {}.another (n integer)",
    ] {
        let bench = Bench::new().await;
        bench.execute(change).await;
        let problems = bench.problems().await;
        has(&problems, "a table or index is not as it was made: ");
    }
}

/// Returns the value of the column `org` for an organization.
fn key(org: Id) -> String {
    format!("'\\x{}'::bytea", hex(org.as_bytes()))
}

/// Returns statements that simulate a damaged page: reading this column in the rows of an organization fails.
fn damaged(table: &str, column: &str, org: Id) -> String {
    let owner = if table == "organization" { "key" } else { "org" };
    let org = key(org);
    format!(
        "CREATE FUNCTION {{}}.met(org bytea, value anyelement) RETURNS anyelement STABLE LANGUAGE plpgsql AS $$ BEGIN
            IF org = {org} THEN
                RAISE EXCEPTION 'invalid page in block 7 of relation {table}' USING ERRCODE = 'XX001';
            END IF;
            RETURN value;
        END $$;
        ALTER TABLE {{}}.{table} RENAME TO met_{table};
        DO $$ BEGIN EXECUTE (
            SELECT 'CREATE VIEW {{}}.{table} AS SELECT ' || string_agg(
                CASE a.attname WHEN '{column}' THEN '{{}}.met({owner}, {column}) AS {column}'
                    ELSE quote_ident(a.attname) END, ', ' ORDER BY a.attnum)
                || ' FROM {{}}.met_{table}'
            FROM pg_attribute a WHERE a.attrelid = '{{}}.met_{table}'::regclass AND a.attnum > 0); END $$"
    )
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_page_that_cannot_be_read_is_named_and_hides_nothing_else() {
    let cases = [
        ("ledger", "payload", "organization acme: ledger entries from 0 on cannot be read: "),
        ("ledger", "org", "table ledger cannot be read: "),
        ("head", "frontier", "organization acme: its head cannot be read: "),
        ("head", "size", "table head cannot be read: "),
        ("node", "org", "organization acme: its ledger cannot be read: "),
        ("organization", "name", "table organization cannot be read: "),
        ("record", "name", "table record cannot be read: "),
        ("api_key", "hash", "table api_key cannot be read: "),
        ("blob", "size", "table blob cannot be read: "),
        ("blob_chunk", "data", "cannot be read: "),
    ];
    for (table, column, expected) in cases {
        let bench = Bench::new().await;
        let whose = if table == "api_key" { "jane" } else { "acme" };
        let (acme, beta) = (bench.org("acme").await, bench.org("beta").await);
        for org in [acme, beta] {
            let sha256 = sha256_hex(b"content").parse().unwrap();
            bench.store.put(org, &sha256, &mut Whole::new("content")).await.unwrap();
        }
        let (acme, beta) = (key(acme), key(beta));
        bench
            .execute(&format!(
                "UPDATE {{}}.blob_chunk SET data = '' WHERE org = {beta};
                DELETE FROM {{}}.membership WHERE org = {beta};
                CREATE TABLE {{}}.another (org text)"
            ))
            .await;
        if table == "node" {
            // Short ledgers have no stored nodes.
            bench.execute(&format!("INSERT INTO {{}}.node VALUES ({acme}, 4, 0, '')")).await;
        }
        bench.execute(&damaged(table, column, bench.org(whose).await)).await;
        let problems = bench.problems().await;
        let said = format!("error returned from database: invalid page in block 7 of relation {table}");
        has(&problems, &format!("{expected}{said}"));
        // Every query for an organization's rows uses this column.
        if column != "org" {
            has(&problems, "table membership: row");
        }
        has(&problems, "does not match its hash");
        has(&problems, "another");
        if ["ledger", "head", "node"].contains(&table) {
            let report = bench.store.rebuild().await.unwrap();
            assert!(!report.problems.is_empty() && report.rows == 0, "{table}.{column}: {report:?}");
        }
    }
}

impl Damaged for Bench {
    async fn empty() -> Self {
        Self::empty().await
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn execute(&self, sql: &str) {
        Self::execute(self, &sql.replace("{}", "{}.")).await;
    }

    async fn rebuild(&self) -> Vec<String> {
        self.store.rebuild().await.unwrap().problems
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_row_that_is_lost_hides_no_later_one_from_a_binary_search() {
    lost_rows::are_passed_over_by_binary_searches::<Bench>().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn the_number_of_a_snapshot_that_is_lost_is_not_given_again() {
    lost_rows::of_snapshots_give_no_number_again::<Bench>().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_deployment_that_lost_its_number_hides_no_other_one() {
    lost_rows::of_numbers_hide_no_other_deployment::<Bench>().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_build_that_lost_its_number_hides_no_other_one() {
    lost_rows::of_numbers_hide_no_other_build::<Bench>().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_decision_that_lost_its_number_hides_no_other_one() {
    lost_rows::of_numbers_hide_no_other_decision::<Bench>().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_trail_that_is_lost_leaves_all_others_in_pages() {
    lost_rows::of_trails_leave_all_others_in_pages::<Bench>().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn an_organization_whose_rows_are_all_gone_is_missed() {
    let bench = Bench::new().await;
    bench
        .execute(
            "DO $$ DECLARE t text; BEGIN
                FOR t IN SELECT table_name FROM information_schema.columns WHERE table_schema = '{}' AND column_name = 'org' LOOP
                    EXECUTE format('DELETE FROM {}.%I WHERE org = (SELECT key FROM {}.organization WHERE name = ''beta'')', t);
                END LOOP;
                DELETE FROM {}.organization WHERE name = 'beta';
            END $$",
        )
        .await;
    for _ in 0..2 {
        let problems = bench.problems().await;
        has(&problems, "an organization was created, and its row is gone: beta (");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(bench.store.rebuild().await.unwrap().rows, 0);
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn chunks_of_no_attachment_are_named() {
    let bench = Bench::new().await;
    let sha256 = sha256_hex(b"lost");
    let lost =
        format!("INSERT INTO {{}}.blob_chunk SELECT key, '{sha256}', 0, ''::bytea FROM {{}}.organization");
    bench.execute(&lost).await;
    assert_eq!(bench.problems().await, [format!("chunks belong to no attachment: {sha256}")]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn entries_from_the_future_are_named_until_the_clock_is_corrected() {
    let bench = Bench::new().await;
    let org = bench.org("acme").await;
    future::add(&*bench.store, org, "one").await;
    let problems = bench.problems().await;
    has(&problems, "organization acme: 1 ledger entries lie in the future, from entry ");
    assert_eq!(problems.len(), 1, "{problems:?}");
    let evidence = Evidence::new(bench.store.clone(), Settings::default());
    let ended = evidence.administration(&"host".parse().unwrap()).end_future(&"acme".parse().unwrap()).await;
    assert_eq!(ended.unwrap().entries, 1);
    assert_eq!(bench.problems().await, Vec::<String>::new());
    assert_eq!(bench.store.rebuild().await.unwrap().rows, 0);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_correction_of_a_clock_sets_back_what_was_derived_before_and_nothing_after_it() {
    let bench = Bench::new().await;
    let org = bench.org("acme").await;
    let environment = "00000000-0000-0000-0000-00000007".parse().unwrap();
    let reported = || Fact::EnvironmentReported { environment };
    // More entries than a page of `fsck`, before the correction.
    future::add_facts(&*bench.store, org, future::FUTURE, (0..300).map(|_| reported()).collect()).await;
    let evidence = Evidence::new(bench.store.clone(), Settings::default());
    let ended = evidence.administration(&"host".parse().unwrap()).end_future(&"acme".parse().unwrap()).await;
    assert_eq!(ended.unwrap().entries, 300);
    future::add_facts(&*bench.store, org, SystemClock.now(), vec![reported()]).await;
    assert_eq!(bench.problems().await, Vec::<String>::new());
    assert_eq!(bench.store.rebuild().await.unwrap().rows, 0);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_clock_is_corrected_however_long_it_takes_to_set_all_rows_back() {
    let bench = Bench::new().await;
    let org = bench.org("acme").await;
    future::add(&*bench.store, org, "one").await;
    // Simulates very many rows.
    let slow = ["artifact", "build", "attestation"].map(|table| {
        format!("CREATE TRIGGER slow BEFORE UPDATE ON {{}}.{table} EXECUTE FUNCTION {{}}.slow();")
    });
    let function = "CREATE FUNCTION {}.slow() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(0.9); RETURN NULL; END $$;";
    bench.execute(&(function.to_owned() + &slow.concat())).await;
    let short = Duration::from_millis(500);
    let options = Options { statement_timeout: short, queue_timeout: short, ..bench.options.clone() };
    let store = Arc::new(PostgresStore::connect_with(&bench.schema.url, &options).await.unwrap());
    let evidence = Evidence::new(store.clone(), Settings::default());
    let ended = evidence.administration(&"host".parse().unwrap()).end_future(&"acme".parse().unwrap()).await;
    assert_eq!(ended.unwrap().entries, 1);
    store.close().await;
    bench
        .execute(
            "DROP TRIGGER slow ON {}.artifact; DROP TRIGGER slow ON {}.build; DROP TRIGGER slow ON {}.attestation;
            DROP FUNCTION {}.slow()",
        )
        .await;
    assert_eq!(bench.problems().await, Vec::<String>::new());
}
