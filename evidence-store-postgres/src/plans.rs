//! How PostgreSQL answers the statements that requests ask most: by indexes that lead straight to the rows, in tables
//! that it knows nothing of as in those that it has statistics of.

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use crate::connections::{Address, Session};
use crate::migrate::{MIGRATIONS, migrate};
use crate::schema::Schema;
use crate::{
    artifacts, attestations, ledger, lookup, orgs, policies, record, rows, service_accounts, snapshots,
    texts, trails,
};

/// Some thousand rows in every table that the statements ask, without statistics.
const FILL: &str = "
    INSERT INTO evidence.artifact SELECT 'o', 'id' || n, 'flow' || n % 9, 'trail' || n % 400, md5(n::text), 'a',
        md5(n::text), 'b' || n % 9, 'repo' || n % 50, NULL, n, n, n, n FROM generate_series(1, 5000) n;
    INSERT INTO evidence.trail SELECT 'o', 'id' || n, 'flow' || n % 9, 't' || n, n, n, n, n
        FROM generate_series(1, 5000) n;
    INSERT INTO evidence.attestation SELECT 'o', 'id' || n, 'trail' || n % 400, 'test', 'generic', true, false, '{}', n, n
        FROM generate_series(1, 5000) n;
    INSERT INTO evidence.record SELECT 'o', 'kind' || n % 9, 'id' || n, 'f' || n, n, false, '{}'
        FROM generate_series(1, 5000) n;
    INSERT INTO evidence.name SELECT 'o', 'kind' || n % 9, 'f' || n, 'id' || n, false FROM generate_series(1, 5000) n;
    INSERT INTO evidence.api_key SELECT 'o', 'id' || n, '{}', 'owner' || n % 50, md5(n::text), n, n, NULL
        FROM generate_series(1, 5000) n;
    INSERT INTO evidence.organization SELECT 'id' || n, 'o' || n, '{}' FROM generate_series(1, 5000) n;
    INSERT INTO evidence.user SELECT 'id' || n, 'id' || n, 'u' || n, '{}', n FROM generate_series(1, 5000) n;
    INSERT INTO evidence.membership SELECT 'id' || n % 9, 'id' || n, 'admin' FROM generate_series(1, 5000) n;
    INSERT INTO evidence.head SELECT 'id' || n, n, '' FROM generate_series(1, 5000) n;
    INSERT INTO evidence.ledger SELECT 'o', n, 'k', n, 'a', 'h', 'h', '{}' FROM generate_series(1, 5000) n;
    INSERT INTO evidence.snapshot SELECT 'o', 'e' || n % 9, n, n, true, n FROM generate_series(1, 5000) n;
    INSERT INTO evidence.version SELECT 'o', 'id' || n, 1, n FROM generate_series(1, 5000) n;
    INSERT INTO evidence.kept_text SELECT 'o', md5(n::text), n FROM generate_series(1, 5000) n;
    INSERT INTO evidence.instance SELECT 'o', 'e' || n % 9, md5(n::text), n, n,
            CASE WHEN n % 10 = 0 THEN 9223372036854775807 ELSE n + n % 30 END, true, '{}'
        FROM generate_series(1, 5000) n";

/// Statistics of the tables as they are.
const ANALYZE: &str = "
    ANALYZE evidence.artifact, evidence.trail, evidence.attestation, evidence.record, evidence.name, evidence.api_key,
        evidence.organization, evidence.user, evidence.membership, evidence.head, evidence.ledger, evidence.snapshot,
        evidence.version, evidence.kept_text, evidence.instance";

/// A session as the store has it, in a schema of its own.
pub(crate) struct Planner {
    session: Session,
    schema: Schema,
    _fresh: evidence_test_postgres::Schema,
}

impl Planner {
    /// On empty tables.
    async fn fresh() -> Self {
        let fresh =
            evidence_test_postgres::Schema::fresh().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
        let schema = Schema::new(&fresh.name).unwrap();
        let mut connection = PgConnection::connect(&fresh.url).await.unwrap();
        let options = fresh.url.parse().unwrap();
        let address = Address { options, statement_timeout: std::time::Duration::from_secs(60) };
        migrate(&schema, &mut connection, &address, &MIGRATIONS).await.unwrap();
        let session = Session::of(connection, &address).await.unwrap();
        Self { session, schema, _fresh: fresh }
    }

    /// On tables with some thousand rows, of which it has statistics.
    pub(crate) async fn filled() -> Self {
        let mut planner = Self::fresh().await;
        planner.execute(FILL).await;
        planner.execute(ANALYZE).await;
        planner
    }

    /// Keeps the server from gathering statistics meanwhile.
    async fn leave_alone(&mut self) {
        let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = $1";
        let tables: Vec<String> = sqlx::query_scalar(tables)
            .bind(self.schema.name())
            .fetch_all(self.session.ready().await.unwrap())
            .await
            .unwrap();
        for table in tables {
            self.execute(&format!("ALTER TABLE evidence.\"{table}\" SET (autovacuum_enabled = off)")).await;
        }
    }

    pub(crate) async fn execute(&mut self, sql: &str) {
        sqlx::raw_sql(self.schema.statement(sql)).execute(self.session.ready().await.unwrap()).await.unwrap();
    }

    /// The steps of a statement whose values have these types, as for all values alike.
    pub(crate) async fn steps(&mut self, sql: &str, types: &[&str]) -> Vec<String> {
        self.execute(&format!("PREPARE question ({}) AS {sql}", types.join(", "))).await;
        let explain =
            format!("EXPLAIN (COSTS OFF) EXECUTE question ({})", vec!["NULL"; types.len()].join(", "));
        let steps = sqlx::raw_sql(AssertSqlSafe(explain))
            .fetch_all(self.session.ready().await.unwrap())
            .await
            .unwrap();
        self.execute("DEALLOCATE question").await;
        steps.iter().map(|step| step.get::<String, _>(0).trim().to_owned()).collect()
    }

    /// Each index that a statement uses, with the columns by which it is entered; and every table that is read whole.
    async fn ways(&mut self, sql: &str, types: &[&str]) -> BTreeSet<String> {
        let steps = self.steps(sql, types).await;
        let mut ways = BTreeSet::new();
        for (number, step) in steps.iter().enumerate() {
            if let Some((_, table)) = step.split_once("Seq Scan on ") {
                ways.insert(format!("all of {table}"));
            }
            let index = step.split_once(" using ").or_else(|| step.split_once("Bitmap Index Scan on "));
            if let Some((_, index)) = index {
                let index = index.split(' ').next().unwrap_or_default();
                let condition = steps.get(number + 1).and_then(|next| next.strip_prefix("Index Cond: "));
                let columns = condition.into_iter().flat_map(|condition| condition.split(" AND "));
                let columns = columns.map(|column| {
                    column.trim_start_matches('(').split(' ').next().unwrap_or_default().trim_matches('"')
                });
                ways.insert([index].into_iter().chain(columns).collect::<Vec<_>>().join(" "));
            }
        }
        ways
    }
}

/// The statements, the types of their values, and the indexes that they should use.
fn expected() -> Vec<(&'static str, Vec<&'static str>, Vec<&'static str>)> {
    let listed = vec!["text", "text[]"];
    let named = [vec!["bigint[]"], vec!["text[]"; 3]].concat();
    let unscoped = vec!["bigint[]", "text[]"];
    let scoped = |times| vec![named.clone(); times].concat();
    let look = [vec!["text[]"], scoped(2), unscoped.clone(), unscoped, scoped(4)].concat();
    let payload = "ledger_pkey org idx";
    vec![
        (
            record::LOOK,
            look,
            vec![
                "_evidence_migrations_pkey",
                "artifact_trail org trail",
                "head_pkey org",
                "ledger_pkey org idx",
                "name_pkey org kind name",
                "record_pkey org id kind",
                "snapshot_pkey org environment idx",
                "trail_pkey org id",
                "organization_name_key name",
                "trail_org_flow_name_key org flow name",
                "user_name_key name",
            ],
        ),
        (
            lookup::BY_NAMES,
            [vec!["bigint[]"], vec!["text[]"; 4]].concat(),
            vec![
                payload,
                "name_pkey org kind name",
                "record_pkey org id kind",
                "trail_org_flow_name_key org flow name",
            ],
        ),
        (rows::BY_IDS, vec!["text", "text[]", "text"], vec![payload, "record_pkey org id"]),
        (rows::ALL_NAMED, vec!["text", "text"], vec![payload, "record_name org kind"]),
        (orgs::KEY_HOLDER, vec!["text"], vec!["api_key_hash_key hash", payload, "record_pkey org id"]),
        (
            orgs::ORG_ROLE,
            vec!["text", "text"],
            vec!["membership_pkey org user", "organization_name_key name"],
        ),
        (
            service_accounts::KEYS,
            vec!["text", "text", "bigint"],
            vec!["api_key_owner org owner_id", payload, "record_pkey org id"],
        ),
        (service_accounts::KEY_COUNT, vec!["text", "text", "bigint"], vec!["api_key_owner org owner_id"]),
        (ledger::ENTRIES, vec!["text", "bigint", "bigint", "bigint"], vec![payload]),
        (texts::TEXTS, listed.clone(), vec!["kept_text_pkey org sha256", payload]),
        (policies::SIZES, vec!["text", "text[]", "bigint[]"], vec![payload, "version_pkey org id number"]),
        (
            policies::BY_NUMBER,
            vec!["text", "text[]", "bigint[]"],
            vec![payload, "version_pkey org id number"],
        ),
        (artifacts::REPORTS, vec!["text", "text", "text"], vec!["artifact_fingerprint org fingerprint flow"]),
        (
            trails::SIZES,
            listed.clone(),
            vec!["trail_pkey org id", "artifact_trail org trail", "attestation_trail org trail", payload],
        ),
        (trails::NAMES, listed.clone(), vec!["trail_pkey org id"]),
        (artifacts::BY_ID, listed.clone(), vec!["artifact_pkey org id", payload]),
        (artifacts::SIZES, listed.clone(), vec!["artifact_pkey org id", payload]),
        (
            artifacts::PROVENANCE,
            listed.clone(),
            vec![
                "artifact_fingerprint org fingerprint",
                "artifact_fingerprint org fingerprint flow",
                "artifact_named org fingerprint flow",
            ],
        ),
        (
            attestations::ON_TRAILS,
            vec!["text", "text[]", "text"],
            vec!["attestation_trail org trail", payload],
        ),
        (
            trails::CONTENTS,
            listed.clone(),
            vec!["artifact_trail org trail", "attestation_trail org trail", payload, "trail_pkey org id"],
        ),
        (trails::ATTESTATIONS, vec!["text", "text", "bigint"], vec!["attestation_trail org trail"]),
        (attestations::BY_ID, listed.clone(), vec!["attestation_pkey org id", payload]),
        (snapshots::SNAPSHOT_AT, vec!["text", "text", "bigint"], vec!["snapshot_at org environment at"]),
        (
            snapshots::INSTANCES,
            vec!["text", "text", "bigint"],
            vec!["instance_until org environment until_idx from_idx", "snapshot_pkey org environment idx"],
        ),
        (
            snapshots::RUNS,
            vec!["text", "text[]", "bigint"],
            vec![
                "instance_run org artifact",
                "instance_run org artifact environment",
                "record_pkey org id kind",
                "snapshot_pkey org environment idx",
            ],
        ),
    ]
}

/// A statement that writes rows, with parameters in place of their columns' markers.
fn written(sql: &str) -> String {
    let mut pieces = sql.split('$');
    let mut statement = format!("WITH go AS MATERIALIZED (SELECT 1) {}", pieces.next().unwrap());
    for (number, piece) in (1..).zip(pieces) {
        let length = piece.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(piece.len());
        let (kind, rest) = piece.split_at(length);
        statement.push_str(&format!("${number}::{kind}[]{rest}"));
    }
    statement
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn what_every_request_asks_is_probed_for_whatever_the_statistics_say() {
    // Analyzed when empty, a table seems to have no rows ever after.
    for (tables, steps) in [
        ("without statistics", [FILL, ""]),
        ("analyzed when empty", [ANALYZE, FILL]),
        ("analyzed", [FILL, ANALYZE]),
    ] {
        let mut planner = Planner::fresh().await;
        planner.leave_alone().await;
        for step in steps {
            planner.execute(step).await;
        }
        let end_instances = written(snapshots::END_INSTANCES);
        let types = vec!["text[]", "text[]", "text[]", "bigint[]", "boolean[]"];
        let writes = (end_instances.as_str(), types, vec!["instance_lasting org environment artifact"]);
        for (sql, types, wanted) in expected().into_iter().chain([writes]) {
            let ways = planner.ways(sql, &types).await;
            let wanted: BTreeSet<String> = wanted.into_iter().map(str::to_owned).collect();
            assert_eq!(ways, wanted, "tables {tables}: {sql}");
        }
        // The newest report comes first in the index: the others of its fingerprint are neither read nor sorted.
        let steps = planner.steps(artifacts::PROVENANCE, &["text", "text[]"]).await;
        let sorts = steps.iter().filter(|step| step.contains("Sort Key: (") || step.contains("Sort Key: r."));
        assert_eq!(sorts.count(), 0, "tables {tables}: {steps:#?}");
    }
}
