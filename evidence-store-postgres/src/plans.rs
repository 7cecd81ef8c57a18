//! Tests the query plans of PostgreSQL: every statement of the store must find its rows by an index, in
//! tables with and without statistics. The statements are those that the conformance checks run, so new
//! queries are covered without a list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evidence_conformance::checks;
use evidence_core::store::Store;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::connections::{Address, PreparedConnection};
use crate::db::{Options, PostgresStore};
use crate::migrate::{MIGRATIONS, migrate};
use crate::schema::Schema;
use crate::statements_run::run_in;

/// Statements that scan a whole table, or all rows of an organization: a part of the statement, what it
/// scans, and the reason.
const EXCEPTIONS: [(&str, &str, &str); 12] = [
    ("evidence.checkpoint", "checkpoint_pkey of an organization", "one row for each organization"),
    ("_evidence_migrations m", "_evidence_migrations", "a row for each version"),
    ("evidence.cursor k", "cursor_pkey of an organization", "a cursor for each consumer"),
    ("FROM evidence.allowed a", "allowed_end of an organization", "an allowlist is read whole"),
    ("AS value FROM evidence.repo x", "repo_name of an organization", "the values of all repos"),
    ("FROM evidence.repo x", "repo_name of an organization", "repos by name, narrowed by what no index has"),
    (
        "FROM evidence.artifact x",
        "artifact_org of an organization",
        "those of a branch, name or commit of any flow",
    ),
    (
        "FROM evidence.artifact x",
        "artifact_commit of an organization",
        "the same, where nothing is known of them",
    ),
    ("x.repo = ANY", "artifact_repo of an organization", "artifacts of some repos, newest first"),
    (
        "l.kind IN ('member_added'",
        "ledger_member of an organization",
        "changes of roles, which are all it has",
    ),
    ("FROM evidence.membership m", "membership_pkey of an organization", "all members"),
    ("FROM evidence.head h) x", "head", "the last entries of all ledgers"),
];

/// Parts of statements, each with a step that must occur at least this many times, in either scan direction.
const NEEDED: [(&str, &str, usize); 4] = [
    ("s.idx = j.idx::bigint", "Index Only Scan using instance_until on", 2),
    ("WITH reported AS", "Index Scan using instance_lasting on", 1),
    ("UPDATE evidence.instance", "Index Scan using instance_lasting on", 1),
    ("x.control_ordinal AS key", "Index Only Scan using attestation_control on", 2),
];

/// Some thousand rows in every table that the statements query, without statistics.
const FILL: &str = "
    INSERT INTO evidence.artifact SELECT 'o', 'id' || n, 'flow' || n % 9, 'trail' || n % 400, md5(n::text), 'a',
        md5(n::text), 'b' || n % 9, 'repo' || n % 50, NULL, NULL, n, n, n, n FROM generate_series(1, 5000) n;
    INSERT INTO evidence.build SELECT 'o', n, 'id' || n, 'repo' || n % 50, n, n, n
        FROM generate_series(1, 5000) n;
    INSERT INTO evidence.trail SELECT 'o', 'id' || n, 'flow' || n % 9, 't' || n, n, n, n, n
        FROM generate_series(1, 5000) n;
    INSERT INTO evidence.attestation SELECT 'o', 'id' || n, 'flow' || n % 9, 'trail' || n % 400, 'test', 'generic', true,
        false, CASE WHEN n % 4 = 0 THEN 'control' || n % 9 END, NULL, NULL, '{}', NULL, n, n, n, n,
        CASE WHEN n % 4 = 0 THEN n END
        FROM generate_series(1, 5000) n;
    INSERT INTO evidence.commit_trail SELECT 'o', md5(n::text), 'trail' || n % 400, 'flow' || n % 9
        FROM generate_series(1, 5000) n;
    INSERT INTO evidence.flow_repo SELECT 'o', 'flow' || n, 'https://e/' || n FROM generate_series(1, 5000) n;
    INSERT INTO evidence.record SELECT 'o', 'kind' || n % 9, 'id' || n, 'f' || n, n, false, '{}'
        FROM generate_series(1, 5000) n;
    INSERT INTO evidence.name SELECT 'o', 'kind' || n % 9, 'f' || n, 'id' || n, false FROM generate_series(1, 5000) n;
    INSERT INTO evidence.record_tag SELECT 'o', 'kind' || n % 9, 'id' || n, 'key' || n % 9, 'v' || n % 50
        FROM generate_series(1, 5000) n;
    INSERT INTO evidence.api_key SELECT 'o', 'id' || n, '{}', 'owner' || n % 50, md5(n::text), n, n, NULL
        FROM generate_series(1, 5000) n;
    INSERT INTO evidence.organization SELECT ('key' || n)::bytea, 'id' || n, 'o' || n, '{}' FROM generate_series(1, 5000) n;
    INSERT INTO evidence.user SELECT ('key' || n)::bytea, 'id' || n, 'u' || n, '{}', n FROM generate_series(1, 5000) n;
    INSERT INTO evidence.membership SELECT ('key' || n % 9)::bytea, 'id' || n, 'admin' FROM generate_series(1, 5000) n;
    INSERT INTO evidence.head SELECT ('key' || n)::bytea, n, '' FROM generate_series(1, 5000) n;
    INSERT INTO evidence.ledger SELECT 'o', n, 'k', n, 'a', 'h', 'h', 's', '{}' FROM generate_series(1, 5000) n;
    INSERT INTO evidence.snapshot SELECT 'o', ('e' || n % 9)::bytea, true, n, n, n, n FROM generate_series(1, 5000) n;
    INSERT INTO evidence.environment_member SELECT 'o', 'e' || n % 9, n, 'm' || n % 90, true
        FROM generate_series(1, 5000) n;
    INSERT INTO evidence.deployment SELECT 'o', n, ('e' || n % 9)::bytea, n, n, md5(n::text), 'a', true,
        ('id' || n)::bytea, ('flow' || n % 9)::bytea, 'repo' || n % 50, n, n, n, n FROM generate_series(1, 5000) n;
    INSERT INTO evidence.version SELECT 'o', 'id' || n, 1, n FROM generate_series(1, 5000) n;
    INSERT INTO evidence.allowed SELECT 'o', 'e' || n % 9, md5(n::text), n, n FROM generate_series(1, 5000) n;
    INSERT INTO evidence.interned_text SELECT 'o', md5(n::text), n FROM generate_series(1, 5000) n;
    INSERT INTO evidence.attachment_pending SELECT 'o', md5(n::text), n, NULL FROM generate_series(1, 5000) n;
    INSERT INTO evidence.secret_url SELECT 'o', 'id' || n, '{}' FROM generate_series(1, 5000) n;
    INSERT INTO evidence.instance SELECT 'o', ('e' || n % 9)::bytea, md5(n::text), true, n, n,
            CASE WHEN n % 10 = 0 THEN 9223372036854775807 ELSE n + n % 30 END, n, n, '{}'
        FROM generate_series(1, 5000) n;
    INSERT INTO evidence.run_origin SELECT 'o', ('e' || n % 9)::bytea, ('flow' || n % 9)::bytea, 'r' || n % 9, n, md5(n::text),
            ('id' || n)::bytea
        FROM generate_series(1, 5000) n";

/// Gathers the statistics of the tables and their visibility maps. Without the maps, the planner does not
/// choose index-only scans.
const ANALYZE: &str = "
    VACUUM (ANALYZE) evidence.artifact, evidence.build, evidence.trail, evidence.attestation, evidence.record, evidence.name, evidence.api_key,
        evidence.organization, evidence.user, evidence.membership, evidence.head, evidence.ledger, evidence.snapshot,
        evidence.commit_trail, evidence.flow_repo, evidence.record_tag, evidence.version, evidence.allowed, evidence.interned_text, evidence.attachment_pending, evidence.secret_url, evidence.instance,
        evidence.run_origin, evidence.deployment, evidence.environment_member";

/// Adds attestations until nearly all belong to one flow and one control. The statistics reflect this, but
/// the visibility map does not.
const SKEW: &str = "
    INSERT INTO evidence.attestation SELECT 'o', 'skewed' || n, 'o', 'trail' || n % 400, 'test', 'generic', true,
        false, 'o', NULL, NULL, '{}', NULL, n, n, n, n, n
        FROM generate_series(5001, 50000) n;
    ANALYZE evidence.attestation";

/// A session with the store's settings, in a schema of its own.
struct Planner {
    session: PreparedConnection,
    schema: Schema,
    _fresh: evidence_test_postgres::SchemaName,
}

impl Planner {
    /// Creates a planner on empty tables. Autovacuum does not gather statistics of them.
    async fn fresh() -> Self {
        let fresh =
            evidence_test_postgres::SchemaName::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
        let schema = Schema::new(&fresh.name).unwrap();
        let mut connection = PgConnection::connect(&fresh.url).await.unwrap();
        let options = fresh.url.parse().unwrap();
        let address = Address { options, statement_timeout: std::time::Duration::from_secs(60) };
        migrate(&schema, &mut connection, &address, &MIGRATIONS).await.unwrap();
        let session = PreparedConnection::of(connection, &address).await.unwrap();
        let mut planner = Self { session, schema, _fresh: fresh };
        let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = $1";
        let tables: Vec<String> = sqlx::query_scalar(tables)
            .bind(planner.schema.name())
            .fetch_all(planner.session.ready().await.unwrap())
            .await
            .unwrap();
        for table in tables {
            let alone = format!("ALTER TABLE evidence.\"{table}\" SET (autovacuum_enabled = off)");
            planner.execute(&alone).await;
        }
        planner
    }

    async fn execute(&mut self, sql: &str) {
        sqlx::raw_sql(self.schema.statement(sql)).execute(self.session.ready().await.unwrap()).await.unwrap();
    }

    /// Returns the tables that the generic plan of a statement scans, the indexes of which it reads all rows
    /// of an organization, and the required steps that are missing. `types` are the types of the statement's
    /// values.
    async fn scanned(&mut self, sql: &str, types: &[&str], visible: bool) -> BTreeSet<String> {
        let steps = explain(self.session.ready().await.unwrap(), &self.schema, sql, types).await;
        // On pages that are not all-visible, rows are fetched from the table. Then any scan that uses this
        // index is accepted.
        let index = |needed: &str| needed.split(' ').rev().nth(1).unwrap_or_default().to_owned();
        let wanted = |needed: &str| if visible { needed.to_owned() } else { index(needed) };
        let times = |needed: &str| {
            let wanted = wanted(needed);
            steps.iter().filter(|step| step.replace("Scan Backward", "Scan").contains(&wanted)).count()
        };
        let needed = NEEDED.iter().filter(|(part, ..)| sql.contains(part));
        let lacking = needed.filter(|(_, needed, least)| times(needed) < *least);
        let mut lacking = Vec::from_iter(lacking.map(|(_, needed, least)| format!("not {least} {needed}")));
        // With a filter in place of an index condition, a page with a gap would be searched to the end of the
        // list.
        let by_number = |step: &&String| step.trim().starts_with("Filter:") && step.contains("ordinal");
        lacking.extend(steps.iter().filter(by_number).map(|step| format!("no index for {}", step.trim())));
        let scanned = steps.iter().enumerate().filter_map(|(number, step)| {
            if let Some((_, table)) = step.split_once("Seq Scan on ") {
                return Some(table.split(' ').next().unwrap_or_default().to_owned());
            }
            let (_, index) =
                step.split_once(" using ").or_else(|| step.split_once("Bitmap Index Scan on "))?;
            let condition = steps.get(number + 1)?.trim().strip_prefix("Index Cond: ")?;
            let condition = condition.trim_start_matches('(').strip_prefix("org = ")?;
            let index = index.split(' ').next().unwrap_or_default();
            // Without a filter, a scan reads no further than the `Limit` above it: the last row, or a page of
            // numbers. A page at a large offset reads all rows before it. So in statements with an offset,
            // only a subquery for one value counts as limited.
            let above = |levels| {
                number.checked_sub(levels).and_then(|above| steps.get(above)).map(|step| step.trim())
            };
            let is_value =
                above(2).is_some_and(|step| step.starts_with("InitPlan") || step.starts_with("SubPlan"));
            let is_limited = above(1).is_some_and(|step| step.trim_start_matches("->  ") == "Limit")
                && (is_value && !sql.contains("ARRAY(") || !sql.contains("OFFSET $"))
                && steps.get(number + 2).is_none_or(|below| !below.trim().starts_with("Filter:"));
            // An organization has one head.
            let is_narrowed =
                condition.split(" AND ").skip(1).any(|narrowed| !narrowed.contains(" IS NOT NULL"));
            (index != "head_pkey" && !is_narrowed && !is_limited)
                .then(|| format!("{index} of an organization"))
        });
        scanned.chain(lacking).collect()
    }
}

/// Returns the generic plan of a statement whose values have these types. Values of type `bytea` are
/// organizations.
pub(crate) async fn explain(
    connection: &mut PgConnection,
    schema: &Schema,
    sql: &str,
    types: &[&str],
) -> Vec<String> {
    let listed = |items: Vec<&str>| {
        if items.is_empty() { String::new() } else { format!("({})", items.join(", ")) }
    };
    let values =
        types.iter().map(|name| if matches!(*name, "text" | "bytea") { "'o'" } else { "NULL" }).collect();
    let (types, values) = (listed(types.to_vec()), listed(values));
    let prepare = schema.statement(&format!("PREPARE query {types} AS {sql}"));
    sqlx::raw_sql(prepare).execute(&mut *connection).await.unwrap();
    let explain = AssertSqlSafe(format!("EXPLAIN (COSTS OFF) EXECUTE query {values}"));
    let steps = sqlx::raw_sql(explain).fetch_all(&mut *connection).await.unwrap();
    sqlx::raw_sql("DEALLOCATE query").execute(connection).await.unwrap();
    steps.iter().map(|step| step.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn every_statement_finds_its_rows_by_an_index_whatever_the_statistics_say() {
    let mut schemas = Vec::new();
    let checks = [true, false].map(|mixed| checks().into_iter().map(move |check| (check, mixed)));
    for (check, mixed_groups) in checks.into_iter().flatten() {
        let schema =
            evidence_test_postgres::SchemaName::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
        let options = Options { schema: schema.name.clone(), mixed_groups, ..Options::default() };
        let store = PostgresStore::connect_with(&schema.url, &options).await.unwrap();
        (check.run)(Arc::new(store) as Arc<dyn Store>).await.unwrap();
        schemas.push(schema);
    }
    let mut statements = run_in(schemas.iter().map(|schema| schema.name.as_str()));
    assert!(statements.len() > 60, "{} statements", statements.len());
    // The prefetch and write statements, for one organization or several. There must be few, because each is
    // planned repeatedly.
    for (part, texts) in
        [("SELECT 0::bigint, NULL::bigint", 6), ("s.idx = j.idx::bigint", 2), ("swapped AS", 8)]
    {
        assert_eq!(statements.keys().filter(|sql| sql.contains(part)).count(), texts, "{part}");
    }
    // A clock correction is rare, and reads all rows of its organization.
    statements.retain(|sql, _| !(sql.starts_with("UPDATE ") && sql.contains(" = $2 WHERE org = $1 AND ")));
    // Queries read the greatest number from the end of an index, because `max` reads all rows if the planner
    // estimates few. `max` is used only over the rows of a group, and over the rows of a page of ended
    // allowlist entries.
    let is_by_max = |sql: &&String| {
        ["max(r.at)", "max(a.ledger_index)"]
            .into_iter()
            .fold((*sql).clone(), |sql, known| sql.replace(known, ""))
            .contains("max(")
    };
    let by_max: Vec<_> = statements.keys().filter(is_by_max).collect();
    assert!(by_max.is_empty(), "{by_max:#?}");
    let mut used = BTreeSet::new();
    // A table that was analyzed when empty seems to stay empty.
    for (tables, steps) in [
        ("without statistics", [FILL, ""]),
        ("analyzed when empty", [ANALYZE, FILL]),
        ("analyzed", [FILL, ANALYZE]),
        ("analyzed with a skew", [FILL, SKEW]),
    ] {
        let mut planner = Planner::fresh().await;
        for step in steps {
            planner.execute(step).await;
        }
        let mut found = BTreeMap::new();
        for (sql, types) in &statements {
            let scanned = planner.scanned(sql, types, !steps.contains(&SKEW)).await;
            let mut expected = |table: &String| {
                let exception =
                    EXCEPTIONS.iter().find(|(part, scanned, _)| sql.contains(part) && scanned == table);
                exception.map(|exception| used.insert(exception)).is_some()
            };
            let scanned: Vec<_> = scanned.into_iter().filter(|table| !expected(table)).collect();
            if !scanned.is_empty() {
                found.insert(sql.as_str(), scanned);
            }
        }
        assert!(found.is_empty(), "tables {tables}: {found:#?}");
    }
    let unused: Vec<_> = EXCEPTIONS.iter().filter(|exception| !used.contains(exception)).collect();
    assert!(unused.is_empty(), "{unused:#?}");
}
