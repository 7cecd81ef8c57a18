//! Tests the query plans of SQLite: every statement of the store must find its rows by an index. The
//! statements are those that the conformance checks run, so new queries are covered without a list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use evidence_conformance::checks;
use evidence_core::store::Store;
use rusqlite::{Connection, OpenFlags, StatementStatus, ToSql};

use crate::connection::connection;
use crate::db::Sqlite;
use crate::migrate::MIGRATIONS;
use crate::statements_run::RUN;
use crate::steps::make;

/// Statements that read more than they return: a part of the statement, the step, and the reason.
const EXCEPTIONS: [(&str, &str, &str); 36] = [
    ("SELECT 1 FROM checkpoint", "SCAN checkpoint", "whether there is one at all"),
    ("page AS MATERIALIZED", "SCAN x LEFT-JOIN", "the page itself"),
    (
        "page AS MATERIALIZED",
        "TEMP B-TREE",
        "the rows of a page, and lists by what has no index of their order",
    ),
    ("_evidence_migrations m", "SCAN m", "a row a version"),
    ("FROM allowed a", "TEMP B-TREE", "an allowlist is read whole, by organization"),
    ("a.name = $3", "TEMP B-TREE", "the attestations of one name in some trails"),
    ("attestation x ON x.id IN", "TEMP B-TREE", "the newest of each of some flows"),
    ("SELECT o.id, a.sha256 FROM attachment a", "SCAN a", "a few attachments, of any organization"),
    ("max(t.ordinal)", "trail_org (org=?)", "the last of an index"),
    ("ORDER BY x.ordinal DESC LIMIT 1", "trail_org (org=?)", "the last of an index"),
    ("max(a.ordinal)", "artifact_org (org=?)", "the last of an index"),
    ("max(b.ordinal)", "PRIMARY KEY (org=?)", "the last of a table"),
    ("ORDER BY b.ordinal DESC LIMIT 1", "PRIMARY KEY (org=?)", "the last of a table"),
    ("ORDER BY b.idx DESC LIMIT 1", "sqlite_autoindex_ledger_1 (org=?)", "the last of a ledger"),
    ("deployment b", "deployment_org (org=?)", "the last of an index"),
    ("max(d.ordinal)", "deployment_org (org=?)", "the last of an index"),
    ("deployment x", "TEMP B-TREE", "the deployments of several repos by time"),
    (
        "FROM artifact x",
        "artifact_org (org=?)",
        "the newest artifacts, in their order, and those of a branch or name",
    ),
    ("AND +x.name = $11) AS n", "COVERING INDEX artifact_given (org=?)", "how many artifacts have a name"),
    ("FROM repo x", "repo_name (org=?)", "repos by name"),
    ("INDEXED BY ledger_member", "ledger_member (org=?)", "changes of roles, in their order"),
    ("FROM allowed a", "(org=?)", "an allowlist is read whole"),
    ("SELECT a.ends_at", "TEMP B-TREE", "the environments in which entries ended, once each"),
    ("SELECT DISTINCT m.environment", "TEMP B-TREE", "the environments that include some, once each"),
    ("FROM membership m", "PRIMARY KEY (org=?)", "the members of an organization"),
    ("bytes_before", "TEMP B-TREE", "a page of a ledger"),
    ("FROM membership m", "TEMP B-TREE", "the members of an organization"),
    ("FROM json_each($2) w ORDER BY w.value", "TEMP B-TREE", "the entries that were asked for"),
    ("pair (artifact, environment)", "TEMP B-TREE", "the runs that are answered"),
    ("WITH entry AS", "TEMP B-TREE", "the entries of a trail"),
    ("SELECT DISTINCT fingerprint", "TEMP B-TREE", "the fingerprints that begin so"),
    ("WITH reported AS", "TEMP B-TREE", "what of a repo runs, of what was reported lately"),
    ("AS value FROM repo x", "TEMP B-TREE", "the values of all repos"),
    ("string_agg(CAST(t.at AS text)", "TEMP B-TREE", "the builds of several repos by time"),
    ("WITH RECURSIVE reported", "TEMP B-TREE", "what begins so"),
    ("WITH RECURSIVE about", "TEMP B-TREE", "the events about artifacts of some repos, in their order"),
];

/// Parts of statements, each with a step that its plan must contain.
const NEEDED: [(&str, &str); 3] = [
    ("WITH reported AS", "SEARCH i USING INDEX instance_lasting (org=? AND artifact=?)"),
    ("UPDATE instance", "instance_lasting (org=? AND artifact=? AND environment=?)"),
    ("x.control_ordinal AS key", "SEARCH x USING COVERING INDEX attestation_control (org=? AND control=?)"),
];

/// Returns the steps that scan a table or an organization's rows completely, the steps that sort, and the
/// required steps that are missing.
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
        step.contains("TEMP B-TREE") || step.ends_with("(org=?)") || scanned.is_some_and(aliases)
    };
    let needed = NEEDED.iter().filter(|(part, _)| sql.contains(part)).map(|(_, needed)| *needed);
    let lacking = needed.filter(|needed| !steps.iter().any(|step| step.contains(needed)));
    let lacking = Vec::from_iter(lacking.map(|needed| format!("no {needed}")));
    steps.into_iter().filter(costly).chain(lacking).collect()
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
    // A clock correction is rare, and reads all rows of its organization.
    let is_correction = |sql: &str| sql.starts_with("UPDATE ") && sql.contains(" = $2 WHERE org = $1 AND ");
    let is_of_the_schema = |sql: &str| sql.contains("sqlite_schema") || sql.starts_with("PRAGMA");
    let queries = statements.iter().filter(|sql| !is_of_the_schema(sql) && !is_correction(sql));
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

/// Returns the statement with these words that the conformance check of this name runs.
async fn statement_of(check: &str, words: &str) -> String {
    let directory = tempfile::tempdir().unwrap();
    let check = checks().into_iter().find(|one| one.name.ends_with(check)).unwrap();
    let store = Sqlite::open(directory.path().join("e.db")).await.unwrap();
    (check.run)(Arc::new(store) as Arc<dyn Store>).await.unwrap();
    let run = RUN.lock().unwrap_or_else(PoisonError::into_inner);
    run.iter().find(|sql| sql.contains(words)).unwrap().clone()
}

/// Returns the number of SQLite's virtual machine steps for a statement, on tables with this content.
fn steps(sql: &str, values: &[(&str, &dyn ToSql)], fill: &str) -> i32 {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("e.db");
    let mut connection = connection(path.as_path(), OpenFlags::SQLITE_OPEN_CREATE).unwrap();
    make(&mut connection, &MIGRATIONS).unwrap();
    connection.execute_batch(fill).unwrap();
    let mut statement = connection.prepare(sql).unwrap();
    let mut rows = statement.query(values).unwrap();
    while rows.next().unwrap().is_some() {}
    drop(rows);
    statement.get_status(StatementStatus::VmStep)
}

/// Checks that the cost of a statement depends on its result and not on the number of rows with the same
/// result.
async fn takes_the_work_of_what_is_found(
    (check, words): (&str, &str),
    values: &[(&str, &dyn ToSql)],
    fill: impl Fn(usize) -> String,
) {
    let sql = statement_of(check, words).await;
    let [few, many] = [100, 5_000].map(|rows| steps(&sql, values, &fill(rows)));
    assert!(many < few + few / 4, "{few} steps of few rows, and {many} of many");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_takes_the_work_of_what_it_finds_however_often_that_was_reported() {
    let fill = |rows: usize| {
        format!(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows})
            INSERT INTO artifact SELECT 1, 'id' || n, 'flow' || (n % 3), iif(n % 2, NULL, 't'),
                '{artifact}' || (n % 2), 'a', '{commit}' || (n % 2), NULL, NULL, NULL, NULL, n, n, n, n FROM n;
            WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows})
            INSERT INTO instance SELECT 1, 'env' || (n % 3), '{ran}', true, n, n, n + 1, NULL, NULL, '{{}}' FROM n;",
            artifact = "a".repeat(63),
            commit = "a".repeat(39),
            ran = "a".repeat(62) + "ff",
        )
    };
    let values: [(&str, &dyn ToSql); 3] = [("$1", &1), ("$2", &"aaaaa"), ("$3", &10)];
    takes_the_work_of_what_is_found(("what_begins_so_is_found", "unreported"), &values, fill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_names_of_content_take_the_work_of_what_they_are_however_often_it_was_reported() {
    let fill = |rows: usize| {
        format!(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows})
            INSERT INTO artifact SELECT 1, 'id' || n, 'flow', iif(n % 2, NULL, 't'), 'aa', iif(n % 3, 'a' || (n % 3), ''), '',
                NULL, NULL, NULL, NULL, n, n, n, n FROM n;"
        )
    };
    let values: [(&str, &dyn ToSql); 2] = [("$1", &1), ("$2", &r#"[["flow","aa"]]"#)];
    let check = ("content_has_all_names_that_flows_gave_it", "WITH RECURSIVE given");
    takes_the_work_of_what_is_found(check, &values, fill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_of_a_repo_takes_the_work_of_what_runs_however_often_it_ran() {
    let fill = |rows: usize| {
        format!(
            "INSERT INTO artifact SELECT 1, 'id', 'flow', NULL, 'aa', 'a', '', NULL, 'repo', NULL, NULL, 1, 1, 1, 1;
            INSERT INTO record SELECT 1, 'environment', 'env', 'env', 1, false, '{{}}';
            INSERT INTO instance SELECT 1, 'env', 'aa', false, 1000000, 1000000, 9223372036854775807, NULL, NULL, '{{}}';
            WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows})
            INSERT INTO instance SELECT 1, 'env', 'aa', true, n, n, n + 1, NULL, NULL, '{{}}' FROM n;"
        )
    };
    let values: [(&str, &dyn ToSql); 4] = [("$1", &1), ("$2", &"repo"), ("$3", &10), ("$4", &10)];
    takes_the_work_of_what_is_found(("builds_of_a_repo_run", "WITH reported"), &values, fill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_decisions_takes_the_work_of_what_it_shows() {
    let fill = |rows: usize| {
        format!(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows})
            INSERT INTO attestation SELECT 1, 'id' || n, 'flow', 't', 'review', 'decision', true, false, 'control', 1, 'jane',
                '{{}}', NULL, n, n, n, n, n FROM n;"
        )
    };
    let values: [(&str, &dyn ToSql); 4] = [("$1", &1), ("$2", &10), ("$3", &90), ("$4", &"control")];
    for words in ["x.control_ordinal > $3", "x.control_ordinal <= (SELECT n"] {
        let check = ("decisions_about_each_control_are_paged", words);
        takes_the_work_of_what_is_found(check, &values, fill).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_size_of_an_allowlist_takes_the_work_of_what_is_in_force() {
    let fill = |rows: usize| {
        format!(
            "INSERT INTO allowed VALUES (1, 'prod', 'in force', 1, 9223372036854775807);
            WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows})
            INSERT INTO allowed SELECT 1, 'prod', 'over' || n, n, iif(n % 2, n, -9223372036854775808) FROM n;"
        )
    };
    let values: [(&str, &dyn ToSql); 4] = [("$1", &1), ("$2", &1_000_000), ("$3", &"prod"), ("$4", &10)];
    takes_the_work_of_what_is_found(("allowlist_entries_end", "AND a.ends_at > $2 LIMIT"), &values, fill)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_a_window_of_builds_takes_the_work_of_what_it_shows_and_of_some_steps_to_its_ends() {
    let fill = |rows: usize| {
        format!(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows})
            INSERT INTO build SELECT 1, n, 'id' || n, 'repo', n, n, n FROM n;"
        )
    };
    let values: [(&str, &dyn ToSql); 6] =
        [("$1", &1), ("$2", &10), ("$3", &80), ("$4", &5), ("$5", &i64::MAX), ("$6", &"repo")];
    for (words, values) in
        [("x.ordinal < (SELECT high", &values[..5]), ("x.repo_ordinal < (SELECT high", &values[..])]
    {
        let sql = statement_of("builds_of_any_window_are_paged", words).await;
        let [few, many] = [100, 10_000].map(|rows| steps(&sql, values, &fill(rows)));
        assert!(many < 2 * few, "{words}: {few} steps of few rows, and {many} of many");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_take_the_work_of_what_is_found_however_many_have_them() {
    let fill = |rows: usize| {
        format!(
            "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {rows})
            INSERT INTO record_tag SELECT 1, 'control', 'c' || n, 'key' || (n % 3), 'value' || (n % 5) FROM n;"
        )
    };
    let values: [(&str, &dyn ToSql); 5] =
        [("$1", &1), ("$2", &""), ("$3", &""), ("$4", &1_000), ("$5", &"control")];
    takes_the_work_of_what_is_found(("tags_are_told_once", "record_tag b"), &values, fill).await;
}
