//! Checks that `fsck` reports every change of a row outside the store.

use std::sync::Arc;

use evidence_conformance::{self, Check};
use evidence_store_postgres::sqlx::{self, AssertSqlSafe, Connection, PgConnection};
use evidence_store_postgres::{FsckReport, Options, PostgresStore};
use evidence_test_postgres::SchemaName;

#[path = "../../evidence-store-sql/tests/support/dice.rs"]
mod dice;
use dice::{Dice, is_thorough, seed};

/// The number of stores that are tested at a time.
const LANES: u64 = 4;

/// Returns a store after a check of the store contract. Together the checks leave rows of every kind.
async fn filled(check: &Check) -> (SchemaName, Arc<PostgresStore>) {
    let schema = SchemaName::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
    let options = Options { schema: schema.name.clone(), connections: 2, ..Options::default() };
    let store = Arc::new(PostgresStore::connect_with(&schema.url, &options).await.unwrap());
    (check.run)(store.clone()).await.unwrap();
    (schema, store)
}

/// Checks that a store matches its ledgers after a check has filled it. Returns the report of `fsck`.
async fn sound(check: &Check, store: &PostgresStore) -> FsckReport {
    let report = store.fsck().await.unwrap();
    // The check does not store a terabyte of content.
    let missing = u64::from(check.name.ends_with("large_attachments_read_back"));
    assert_eq!((&*report.problems, report.missing_attachments), ([].as_slice(), missing), "{}", check.name);
    report
}

/// A table with rows, and its description.
struct Table {
    schema: String,
    name: String,
    columns: Vec<(String, String)>,
    key: Vec<String>,
    rows: u64,
}

impl Table {
    async fn all(schema: &str, connection: &mut PgConnection) -> Vec<Self> {
        // No ledger determines leases, cursors, deliveries, signed checkpoints and pending attachments.
        let names = "SELECT tablename::text FROM pg_tables WHERE schemaname = $1 AND tablename NOT IN ('lease', 'cursor', 'delivery', 'checkpoint', 'attachment_pending', 'attachment_place') ORDER BY 1";
        let names: Vec<String> =
            sqlx::query_scalar(names).bind(schema).fetch_all(&mut *connection).await.unwrap();
        let mut tables = Vec::new();
        for name in names {
            let rows = AssertSqlSafe(format!("SELECT count(*) FROM {schema}.{name}"));
            let rows: i64 = sqlx::query_scalar(rows).fetch_one(&mut *connection).await.unwrap();
            let columns = "
                SELECT quote_ident(a.attname), format_type(a.atttypid, NULL), coalesce(a.attnum = ANY((i.indkey::smallint[])[0:i.indnkeyatts - 1]), false)
                FROM pg_attribute a
                LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
                -- How often tables were rebuilt has no right value.
                WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND a.attname <> 'rebuild_count' ORDER BY a.attnum";
            let columns: Vec<(String, String, bool)> = sqlx::query_as(columns)
                .bind(format!("{schema}.{name}"))
                .fetch_all(&mut *connection)
                .await
                .unwrap();
            let key =
                columns.iter().filter(|(.., is_key)| *is_key).map(|(column, ..)| column.clone()).collect();
            let columns = columns.into_iter().map(|(column, kind, _)| (column, kind)).collect();
            let schema = schema.to_owned();
            tables.push(Self { schema, name, columns, key, rows: u64::try_from(rows).unwrap() });
        }
        tables.retain(|table| table.rows > 0);
        tables
    }

    /// Selects the key of row `number` in key order.
    fn row(&self, number: u64) -> String {
        let (schema, name, key) = (&self.schema, &self.name, self.key.join(", "));
        format!("(SELECT {key} FROM {schema}.{name} ORDER BY {key} LIMIT 1 OFFSET {number})")
    }

    /// Returns a statement that changes a row or a column, or swaps two rows. It may have no effect.
    fn tampering(&self, dice: &mut Dice) -> String {
        let Self { schema, name, columns, key, rows } = self;
        let (one, other) = (self.row(dice.roll(*rows)), self.row(dice.roll(*rows)));
        let ((column, kind), keys, place) = (dice.pick(columns), key.join(", "), dice.roll(80));
        let changed = |column: &str, kind: &str| match kind {
            "bigint" | "integer" => format!("coalesce({column} + 1, 7)"),
            "boolean" => format!("coalesce(NOT {column}, true)"),
            "bytea" => format!("coalesce(set_byte({column}, 0, 255 - get_byte({column}, 0)), '\\x07')"),
            "jsonb" => format!("coalesce({column}, '{{}}') || '{{\"added\": \"later\"}}'"),
            _ => {
                let place = format!("{place} % greatest(length({column}), 1) + 1");
                format!(
                    "coalesce(overlay({column} PLACING
                        CASE substr({column}, {place}, 1) WHEN 'a' THEN 'b' ELSE 'a' END FROM {place} FOR 1), '7')"
                )
            }
        };
        match dice.roll(4) {
            // A blob that no fact references may be an interrupted upload.
            0 if name != "blob" => format!("DELETE FROM {schema}.{name} WHERE ({keys}) = {one}"),
            // So may a chunk without a blob.
            1 if name != "blob_chunk" => {
                let renamed = dice.pick(key);
                let copy = columns.iter().map(|(column, kind)| {
                    if column == renamed { changed(column, kind) } else { column.clone() }
                });
                let copy = copy.collect::<Vec<_>>().join(", ");
                format!(
                    "INSERT INTO {schema}.{name} SELECT {copy} FROM {schema}.{name} WHERE ({keys}) = {one}"
                )
            }
            0..=2 => {
                let changed = changed(column, kind);
                format!("UPDATE {schema}.{name} SET {column} = {changed} WHERE ({keys}) = {one}")
            }
            _ => {
                let of =
                    |row: &str| key.iter().map(|key| format!("{row}.{key}")).collect::<Vec<_>>().join(", ");
                let (taken, given, same) = (of("a"), of("b"), of("t"));
                format!(
                    "UPDATE {schema}.{name} t SET {column} = b.{column} FROM {schema}.{name} a, {schema}.{name} b
                    WHERE ({same}) = ({taken}) AND a.{column} IS DISTINCT FROM b.{column}
                        AND (({taken}) = {one} AND ({given}) = {other} OR ({taken}) = {other} AND ({given}) = {one})"
                )
            }
        }
    }
}

/// Returns the tables with rows that are derived from the ledgers.
async fn derived(schema: &str, connection: &mut PgConnection) -> Vec<Table> {
    let rest = [
        "ledger",
        "node",
        "head",
        "blob",
        "blob_chunk",
        "secret_url",
        "known_organization",
        "_evidence_migrations",
    ];
    let mut tables = Table::all(schema, connection).await;
    tables.retain(|table| !rest.contains(&table.name.as_str()));
    tables
}

/// Deletes every derived row. Of API keys only the hashes remain.
async fn lose_all(schema: &str, connection: &mut PgConnection) {
    for Table { name, .. } in derived(schema, connection).await {
        let lost = match name.as_str() {
            "api_key" => format!(
                "UPDATE {schema}.api_key SET org = org || 'x', id = id || 'x', owner = '{{}}',
                owner_id = '', created_at = 1, expires_at = 1, revoked_at = 1"
            ),
            name => format!("DELETE FROM {schema}.{name}"),
        };
        sqlx::query(AssertSqlSafe(lost)).execute(&mut *connection).await.unwrap();
    }
}

/// Sets nullable columns to null, deletes some rows, and changes others.
async fn damage(schema: &str, connection: &mut PgConnection, dice: &mut Dice) {
    // No ledger contains the hashes that keys are looked up by.
    let tables = derived(schema, connection).await.into_iter().filter(|table| table.name != "api_key");
    let (organizations, tables): (Vec<_>, Vec<_>) = tables.partition(|table| table.name == "organization");
    let mut statements = Vec::new();
    for Table { name, columns, .. } in &tables {
        statements
            .extend(columns.iter().map(|(column, _)| format!("UPDATE {schema}.{name} SET {column} = NULL")));
    }
    let times = if tables.is_empty() { 0 } else { 20 };
    statements.extend((0..times).map(|_| dice.pick(&tables).tampering(dice)));
    // An organization that was changed beyond recognition counts as one without a ledger.
    statements.extend(organizations.iter().map(|table| table.tampering(dice)));
    for statement in statements {
        // A change that a constraint refuses has no effect.
        sqlx::query(AssertSqlSafe(statement)).execute(&mut *connection).await.ok();
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn an_organization_is_made_again_for_as_long_as_it_is_recognized() {
    let checks = evidence_conformance::checks();
    let two = checks.iter().find(|check| check.name.ends_with("flows_by_id_pass_over_unknown_ids")).unwrap();
    for (change, is_recognized) in [
        ("key = key || 'x'", true),
        ("id = id || 'x'", true),
        ("name = name || 'x'", true),
        ("record = record || 'x'", true),
        ("id = id || 'x', record = ''", true),
        ("name = name || 'x', record = ''", true),
        ("id = id || 'x', name = name || 'x'", false),
    ] {
        let (schema, store) = filled(two).await;
        let sound = store.fsck().await.unwrap();
        let mut connection = PgConnection::connect(&schema.url).await.unwrap();
        let table = format!("{}.organization", schema.name);
        let changed = format!("UPDATE {table} SET {change} WHERE id = (SELECT max(id) FROM {table})");
        let changed = sqlx::query(AssertSqlSafe(changed)).execute(&mut connection).await.unwrap();
        assert_eq!(changed.rows_affected(), 1, "{change}");
        connection.close().await.unwrap();
        let damaged = store.fsck().await.unwrap();
        let is_named = |problem: &String| problem.starts_with("table organization: row ");
        assert!(damaged.problems.iter().any(is_named), "{change}: {damaged:?}");
        let rebuilt = store.rebuild().await.unwrap();
        if is_recognized {
            assert_eq!((rebuilt.rows > 0, rebuilt.problems), (true, vec![]), "{change}");
            assert_eq!(store.fsck().await.unwrap(), sound, "{change}");
        } else {
            let gone = "the ledger of an organization is gone: foobarx".to_owned();
            assert_eq!((rebuilt.rows, rebuilt.problems), (0, vec![gone]), "{change}");
            assert_eq!(store.fsck().await.unwrap(), damaged, "{change}");
        }
        store.close().await;
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn whatever_is_lost_of_the_tables_is_made_again() {
    let checks = evidence_conformance::checks();
    let lane = async |lane: u64| {
        let (mut dice, mut mended) = (Dice(seed() + lane), 0);
        let taken =
            |number: u64| number % LANES == lane && (is_thorough() || number / LANES % 4 == seed() % 4);
        for check in checks.iter().zip(0..).filter(|(_, number)| taken(*number)).map(|(check, _)| check) {
            let (schema, store) = filled(check).await;
            let mut connection = PgConnection::connect(&schema.url).await.unwrap();
            let report = sound(check, &store).await;
            for all in [true, false] {
                if report.entries == 0 {
                    continue;
                }
                if all {
                    lose_all(&schema.name, &mut connection).await;
                } else {
                    damage(&schema.name, &mut connection, &mut dice).await;
                }
                let rebuilt = store.rebuild().await.unwrap();
                assert_eq!((rebuilt.entries, rebuilt.problems), (report.entries, vec![]), "{}", check.name);
                assert_eq!(store.fsck().await.unwrap(), report, "{}", check.name);
                mended += rebuilt.rows;
            }
            connection.close().await.unwrap();
            store.close().await;
        }
        mended
    };
    let mended: [u64; LANES as usize] = tokio::join!(lane(0), lane(1), lane(2), lane(3)).into();
    assert!(mended.iter().sum::<u64>() > 250, "{mended:?}");
}

/// Tampers with the tables until something changes. Returns the statement.
async fn tamper(schema: &SchemaName, dice: &mut Dice) -> String {
    let mut connection = PgConnection::connect(&schema.url).await.unwrap();
    let tables = Table::all(&schema.name, &mut connection).await;
    let done = loop {
        let statement = dice.pick(&tables).tampering(dice);
        // A change that a constraint refuses has no effect.
        let outcome = sqlx::query(AssertSqlSafe(statement.clone())).execute(&mut connection).await;
        if outcome.is_ok_and(|outcome| outcome.rows_affected() > 0) {
            break statement;
        }
    };
    connection.close().await.unwrap();
    done
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn every_tampering_is_named() {
    let checks = evidence_conformance::checks();
    let in_a_lane = if is_thorough() { 24 } else { 6 };
    let lane = async |lane: u64| {
        let mut dice = Dice(seed() + lane);
        let (mut tampered, mut unnoticed) = (0, Vec::new());
        while tampered < in_a_lane {
            let check = dice.pick(&checks);
            let (schema, store) = filled(check).await;
            let before = sound(check, &store).await;
            // Tampering would not show in an empty store, nor beside a missing attachment.
            if before.missing_attachments == 0 && before.entries > 0 {
                let statement = tamper(&schema, &mut dice).await;
                let report = store.fsck().await.unwrap();
                if report.problems.is_empty() && report.missing_attachments == 0 {
                    unnoticed.push(format!("{}: {statement}", check.name));
                }
                tampered += 1;
            }
            store.close().await;
        }
        unnoticed
    };
    let unnoticed = tokio::join!(lane(0), lane(1), lane(2), lane(3));
    let unnoticed = Vec::from_iter(<[_; LANES as usize]>::from(unnoticed).into_iter().flatten());
    assert!(unnoticed.is_empty(), "{} of {}: {unnoticed:#?}", unnoticed.len(), LANES * in_a_lane);
}
