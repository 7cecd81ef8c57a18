//! How SQLite answers the statements of the store: by indexes that lead to the rows. The statements are those that the
//! conformance checks run, so that a new query is looked at without being listed here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use evidence_core::conformance::checks;
use evidence_core::store::Store;
use rusqlite::{Connection, OpenFlags};

use crate::db::{Sqlite, connection};
use crate::migrate::{MIGRATIONS, make};

/// The statements that were run in this process.
static RUN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Notes a statement.
pub(crate) fn note(sql: &str) {
    RUN.lock().unwrap_or_else(PoisonError::into_inner).insert(sql.to_owned());
}

/// What reads more than it answers, and why that is right: a part of the statement, and the step.
const EXCEPTIONS: [(&str, &str, &str); 13] = [
    ("page AS MATERIALIZED", "SCAN x LEFT-JOIN", "the page itself"),
    (
        "page AS MATERIALIZED",
        "TEMP B-TREE",
        "the rows of a page, and lists by what has no index of their order",
    ),
    ("_evidence_migrations m", "SCAN m", "a row a version"),
    ("FROM allowance a", "TEMP B-TREE", "an allowlist is read whole, by organization"),
    ("a.name = $3", "TEMP B-TREE", "the attestations of one name in some trails"),
    ("bytes_before", "TEMP B-TREE", "a page of a ledger"),
    ("FROM membership m", "TEMP B-TREE", "the members of an organization"),
    ("FROM json_each($2) w ORDER BY w.value", "TEMP B-TREE", "the entries that were asked for"),
    ("pair (artifact, environment)", "TEMP B-TREE", "the runs that are answered"),
    ("WITH entry AS", "TEMP B-TREE", "the entries of a trail"),
    ("SELECT DISTINCT fingerprint", "TEMP B-TREE", "the fingerprints that begin so"),
    ("WITH fingerprint AS MATERIALIZED", "TEMP B-TREE", "what begins so"),
    ("SELECT DISTINCT t.key", "TEMP B-TREE", "the tags of all controls"),
];

/// The steps of a statement that read a table from end to end, or sort what they read.
fn costly_steps(connection: &Connection, sql: &str) -> Vec<String> {
    // Other tests of this process run statements on tables of their own.
    let Ok(mut explain) = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")) else { return Vec::new() };
    let (mut rows, mut steps) = (explain.raw_query(), Vec::new());
    while let Some(row) = rows.next().unwrap() {
        steps.push(row.get::<_, String>(3).unwrap());
    }
    let tables: BTreeSet<String> = {
        let names = "SELECT name FROM sqlite_schema WHERE type = 'table'";
        let mut names = connection.prepare(names).unwrap();
        names.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let aliases = |alias: &str| {
        tables.iter().any(|table| {
            let (named, renamed) = (format!("{table} {alias} "), format!("{table} AS {alias} "));
            let sql = format!("{} ", sql.replace(['\n', ',', ')'], " "));
            table == alias || sql.contains(&named) || sql.contains(&renamed)
        })
    };
    let costly = |step: &String| {
        let scanned = step.strip_prefix("SCAN ").and_then(|scan| scan.split(' ').next());
        step.contains("TEMP B-TREE") || scanned.is_some_and(aliases)
    };
    steps.into_iter().filter(costly).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_finds_its_rows_by_an_index() {
    let directory = tempfile::tempdir().unwrap();
    for (number, check) in checks().into_iter().enumerate() {
        let store = Sqlite::open(directory.path().join(format!("{number}.db"))).await.unwrap();
        (check.run)(Arc::new(store) as Arc<dyn Store>).await.unwrap();
    }
    let mut connection =
        connection(directory.path().join("e.db").as_path(), OpenFlags::SQLITE_OPEN_CREATE).unwrap();
    make(&mut connection, &MIGRATIONS).unwrap();
    let statements = RUN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let queries =
        statements.iter().filter(|sql| !sql.contains("sqlite_schema") && !sql.starts_with("PRAGMA"));
    let (mut found, mut used) = (BTreeMap::new(), BTreeSet::new());
    for sql in queries {
        let steps = costly_steps(&connection, sql);
        let mut expected = |step: &String| {
            let exception =
                EXCEPTIONS.iter().find(|(part, scan, _)| sql.contains(part) && step.contains(scan));
            exception.map(|exception| used.insert(exception)).is_some()
        };
        let steps: Vec<_> = steps.into_iter().filter(|step| !expected(step)).collect();
        if !steps.is_empty() {
            found.insert(sql.as_str(), steps);
        }
    }
    assert!(statements.len() > 60, "{} statements", statements.len());
    assert!(found.is_empty(), "{found:#?}");
    let unused: Vec<_> = EXCEPTIONS.iter().filter(|exception| !used.contains(exception)).collect();
    assert!(unused.is_empty(), "{unused:#?}");
}
