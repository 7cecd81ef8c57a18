//! Checks that `fsck` reports every change of a row outside the store.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;

use evidence_conformance::{self, Check};
use evidence_store_sqlite::rusqlite::Connection;
use evidence_store_sqlite::{FsckReport, Sqlite};

#[path = "../../evidence-store-sql/tests/support/dice.rs"]
mod dice;
use dice::{Dice, is_thorough, seed};

/// The number of tampered rows, each in a store of its own. Unless all cases run, it is a quarter of them.
fn tamperings() -> u64 {
    if is_thorough() { 320 } else { 80 }
}

/// The store that a check of the store contract leaves behind: between them they have rows of every kind.
async fn filled(check: &Check, file: &Path) {
    let store = Arc::new(Sqlite::open(file).await.unwrap());
    (check.run)(store.clone()).await.unwrap();
    store.close().await;
}

/// Checks that a store matches its ledgers after a check has filled it. Returns the report of `fsck`.
async fn sound(check: &Check, file: &Path) -> FsckReport {
    let store = Sqlite::open(file).await.unwrap();
    let report = store.fsck().await.unwrap();
    store.close().await;
    // The check does not store a terabyte of content.
    let missing = u64::from(check.name.ends_with("large_attachments_read_back"));
    assert_eq!((&*report.problems, report.missing_attachments), ([].as_slice(), missing), "{}", check.name);
    report
}

/// A table that has rows, and what is known of it.
struct Table {
    name: String,
    columns: Vec<String>,
    key: Vec<String>,
    rows: u64,
}

impl Table {
    fn all(connection: &Connection) -> Vec<Self> {
        // No ledger determines leases, cursors, deliveries, signed checkpoints and pending attachments.
        let names = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('lease', 'cursor', 'delivery', 'checkpoint', 'attachment_pending', 'attachment_place') ORDER BY name";
        let mut names = connection.prepare(names).unwrap();
        let names = names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap);
        let tables = names.map(|name| Self::of(connection, name));
        tables.filter(|table| table.rows > 0).collect()
    }

    fn of(connection: &Connection, name: String) -> Self {
        let rows = format!("SELECT count(*) FROM {name}");
        let rows: i64 = connection.query_row(&rows, [], |row| row.get(0)).unwrap();
        let mut columns =
            connection.prepare("SELECT name, pk FROM pragma_table_info($1) ORDER BY cid").unwrap();
        let columns = columns.query_map([&name], |row| row.try_into()).unwrap();
        let columns: Vec<(String, i64)> = columns.map(Result::unwrap).collect();
        let key = columns.iter().filter(|(_, pk)| *pk > 0).map(|(column, _)| column.clone()).collect();
        let columns = columns.into_iter().map(|(column, _)| column).collect();
        Self { name, columns, key, rows: u64::try_from(rows).unwrap() }
    }

    /// Selects the key of row `number` in key order.
    fn row(&self, number: u64) -> String {
        let (name, key) = (&self.name, self.key.join(", "));
        format!("(SELECT {key} FROM {name} ORDER BY {key} LIMIT 1 OFFSET {number})")
    }

    /// Returns a statement that changes a row or a column, or swaps two rows. It may have no effect.
    fn tampering(&self, dice: &mut Dice) -> String {
        let Self { name, columns, key, rows } = self;
        let (one, other) = (self.row(dice.roll(*rows)), self.row(dice.roll(*rows)));
        let (column, keys, place) = (dice.pick(columns), key.join(", "), dice.roll(80));
        let changed = |column: &str| {
            format!(
                "CASE typeof({column}) WHEN 'integer' THEN {column} + 1 WHEN 'null' THEN 7
                 WHEN 'blob' THEN CAST('?' || substr({column}, 2) AS BLOB)
                 ELSE substr({column}, 1, {place} % max(length({column}), 1))
                    || iif(substr({column}, {place} % max(length({column}), 1) + 1, 1) = 'a', 'b', 'a')
                    || substr({column}, {place} % max(length({column}), 1) + 2) END"
            )
        };
        match dice.roll(4) {
            // A blob that no fact references may be an interrupted upload.
            0 if name != "blob" => format!("DELETE FROM {name} WHERE ({keys}) = {one}"),
            // So may a chunk without a blob.
            1 if name != "blob_chunk" => {
                let renamed = dice.pick(key);
                let copy = columns.iter().map(|c| if c == renamed { changed(c) } else { c.clone() });
                let copy = copy.collect::<Vec<_>>().join(", ");
                format!("INSERT INTO {name} SELECT {copy} FROM {name} WHERE ({keys}) = {one}")
            }
            0..=2 => format!("UPDATE {name} SET {column} = {} WHERE ({keys}) = {one}", changed(column)),
            _ => {
                let taken = key.iter().map(|key| format!("a.{key}")).collect::<Vec<_>>().join(", ");
                let given = key.iter().map(|key| format!("b.{key}")).collect::<Vec<_>>().join(", ");
                let same = key.iter().map(|key| format!("v.{key} = {name}.{key}")).collect::<Vec<_>>();
                format!(
                    "UPDATE {name} SET {column} = v.given FROM (
                        SELECT {taken}, b.{column} AS given FROM {name} a, {name} b
                        WHERE a.{column} IS NOT b.{column}
                            AND (({taken}) = {one} AND ({given}) = {other} OR ({taken}) = {other} AND ({given}) = {one})
                     ) v WHERE {}",
                    same.join(" AND ")
                )
            }
        }
    }
}

/// Returns the tables that are derived from the ledgers.
fn derived(connection: &Connection) -> Vec<Table> {
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
    Table::all(connection).into_iter().filter(|table| !rest.contains(&table.name.as_str())).collect()
}

/// Deletes every derived row. Of API keys only the hashes remain.
fn lose_all(file: &Path) {
    let connection = Connection::open(file).unwrap();
    for Table { name, .. } in derived(&connection) {
        let lost = match name.as_str() {
            "api_key" => "UPDATE api_key SET org = org + 7, id = id || 'x', owner = '{}', owner_id = '', created_at = 1,
                expires_at = 1, revoked_at = 1".to_owned(),
            name => format!("DELETE FROM {name}"),
        };
        connection.execute_batch(&lost).unwrap();
    }
}

/// Sets nullable columns to null, deletes some rows, and changes others.
fn damage(file: &Path, dice: &mut Dice) {
    let connection = Connection::open(file).unwrap();
    // No ledger contains the hashes that keys are looked up by.
    let tables = derived(&connection).into_iter().filter(|table| table.name != "api_key");
    let (organizations, tables): (Vec<_>, Vec<_>) = tables.partition(|table| table.name == "organization");
    for Table { name, columns, .. } in &tables {
        for column in columns {
            // Columns that are not nullable refuse this.
            connection.execute(&format!("UPDATE {name} SET {column} = NULL"), []).ok();
        }
    }
    let times = if tables.is_empty() { 0 } else { 40 };
    for _ in 0..times {
        connection.execute(&dice.pick(&tables).tampering(dice), []).ok();
    }
    // An organization that was changed beyond recognition counts as one without a ledger.
    for table in &organizations {
        connection.execute(&table.tampering(dice), []).ok();
    }
}

#[tokio::test]
async fn an_organization_is_made_again_for_as_long_as_it_is_recognized() {
    let directory = tempfile::tempdir().unwrap();
    let checks = evidence_conformance::checks();
    let two = checks.iter().find(|check| check.name.ends_with("flows_by_id_pass_over_unknown_ids")).unwrap();
    for (number, (change, is_recognized)) in [
        ("key = key + 1", true),
        ("id = id || 'x'", true),
        ("name = name || 'x'", true),
        ("record = record || 'x'", true),
        ("key = key + 1, id = id || 'x', record = ''", true),
        ("key = key + 1, name = name || 'x', record = ''", true),
        ("id = id || 'x', name = name || 'x'", false),
    ]
    .into_iter()
    .enumerate()
    {
        let file = directory.path().join(format!("{number}.db"));
        let store = Arc::new(Sqlite::open(&file).await.unwrap());
        (two.run)(store.clone()).await.unwrap();
        let sound = store.fsck().await.unwrap();
        let changed =
            format!("UPDATE organization SET {change} WHERE key = (SELECT max(key) FROM organization)");
        assert_eq!(Connection::open(&file).unwrap().execute(&changed, []).unwrap(), 1, "{change}");
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
async fn numbers_with_a_gap_are_named_and_given_again() {
    let directory = tempfile::tempdir().unwrap();
    let (builds, decisions) = ("builds_of_any_window_are_paged", "decisions_about_each_control_are_paged");
    for (number, (check, table, column, change)) in [
        (builds, "build", "ordinal", "ordinal + 1"),
        (builds, "build", "repo_ordinal", "repo_ordinal + 1"),
        (builds, "build", "at", "at + 1"),
        (decisions, "attestation", "control_ordinal", "control_ordinal + 1"),
    ]
    .into_iter()
    .enumerate()
    {
        let check = evidence_conformance::checks().into_iter().find(|one| one.name.ends_with(check)).unwrap();
        let file = directory.path().join(format!("{number}.db"));
        let store = Arc::new(Sqlite::open(&file).await.unwrap());
        (check.run)(store.clone()).await.unwrap();
        let sound = store.fsck().await.unwrap();
        let change = format!(
            "UPDATE {table} SET {column} = {change} WHERE {column} = (SELECT max({column}) FROM {table})"
        );
        assert!(Connection::open(&file).unwrap().execute(&change, []).unwrap() > 0, "{change}");
        let named = store.fsck().await.unwrap().problems;
        assert!(
            named.iter().any(|problem| problem.starts_with(&format!("table {table}: row "))),
            "{named:?}"
        );
        let rebuilt = store.rebuild().await.unwrap();
        assert_eq!((rebuilt.rows > 0, rebuilt.problems), (true, vec![]), "{change}");
        assert_eq!(store.fsck().await.unwrap(), sound, "{change}");
        store.close().await;
    }
}

#[tokio::test]
async fn the_tables_follow_from_the_ledger_and_whatever_is_lost_of_them_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let (mut dice, mut mended) = (Dice(seed()), 0);
    for (number, check) in evidence_conformance::checks().into_iter().enumerate() {
        let file = directory.path().join(format!("{number}.db"));
        filled(&check, &file).await;
        let report = sound(&check, &file).await;
        if report.entries == 0 {
            continue;
        }
        for all in [true, false] {
            if all {
                lose_all(&file)
            } else {
                damage(&file, &mut dice)
            }
            let store = Sqlite::open(&file).await.unwrap();
            let rebuilt = store.rebuild().await.unwrap();
            assert_eq!((rebuilt.entries, rebuilt.problems), (report.entries, vec![]), "{}", check.name);
            assert_eq!(store.fsck().await.unwrap(), report, "{}", check.name);
            mended += rebuilt.rows;
            let again = store.rebuild().await.unwrap();
            assert_eq!((again.rows, again.problems), (0, vec![]), "{}", check.name);
            store.close().await;
        }
    }
    assert!(mended > 1000, "{mended}");
}

/// Tampers with the file until something changes. Returns the statement.
fn tamper(file: &Path, dice: &mut Dice) -> String {
    let connection = Connection::open(file).unwrap();
    let tables = Table::all(&connection);
    loop {
        let statement = dice.pick(&tables).tampering(dice);
        // A change that a constraint refuses has no effect.
        if connection.execute(&statement, []).is_ok_and(|changed| changed > 0) {
            return statement;
        }
    }
}

#[tokio::test]
async fn every_tampering_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (checks, mut stores) = (evidence_conformance::checks(), BTreeMap::new());
    let mut dice = Dice(seed());
    let (mut tampered, mut unnoticed) = (0, Vec::new());
    while tampered < tamperings() {
        let check = dice.pick(&checks);
        let file = directory.path().join(check.name.replace("::", "."));
        let before = match stores.entry(check.name) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                filled(check, &file).await;
                new.insert(sound(check, &file).await)
            }
        };
        // Tampering would not show in an empty store, nor beside a missing attachment.
        if before.missing_attachments > 0 || before.entries == 0 {
            continue;
        }
        let copy = directory.path().join("tampered.db");
        std::fs::copy(&file, &copy).unwrap();
        let store = Sqlite::open(&copy).await.unwrap();
        let statement = tamper(&copy, &mut dice);
        let FsckReport { problems, missing_attachments, .. } = store.fsck().await.unwrap();
        if problems.is_empty() && missing_attachments == 0 {
            unnoticed.push(format!("{}: {statement}", check.name));
        }
        tampered += 1;
        store.close().await;
    }
    assert!(unnoticed.is_empty(), "{} of {tampered}: {unnoticed:#?}", unnoticed.len());
}
