//! Commands that need an existing store neither create nor change one if there is no suitable store.
#![cfg(unix)]

#[expect(dead_code, reason = "no server runs here")]
mod support;

use std::path::Path;

use evidence_store_sqlite::rusqlite::Connection;
use support::{Database, program};

fn file(database: &Database) -> &Path {
    Path::new(database.url.strip_prefix("sqlite://").expect("a file"))
}

/// Expects each of these commands to reject a store with a sentence that contains this text, without changing
/// its file.
fn expect_refused(database: &Database, sentence: &str) {
    let target = Database::default();
    let before = std::fs::read(file(database)).unwrap();
    for arguments in [
        &["fsck", "--database-url", &database.url][..],
        &["fsck", "--rebuild", "--database-url", &database.url],
        &["copy", "--from", &database.url, "--to", &target.url],
        &["member", "set", "acme", "jane", "admin", "--database-url", &database.url],
    ] {
        let refused = program(arguments).output().unwrap();
        let [stdout, stderr] = [refused.stdout, refused.stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!((refused.status.code(), stdout.as_str()), (Some(1), ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(sentence) && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
        assert!(std::fs::read(file(database)).unwrap() == before, "{arguments:?} changed the file");
    }
    assert!(!file(&target).exists(), "nothing is made of what cannot be copied");
}

#[test]
fn a_store_that_is_not_there_is_not_made() {
    let database = Database::default();
    for command in [
        &["user", "add", "jane"][..],
        &["user", "list"],
        &["org", "add", "acme", "--owner", "jane"],
        &["member", "list", "acme"],
        &["key", "list", "jane"],
        &["fsck"],
    ] {
        let refused = program(&[command, &["--database-url", &database.url]].concat()).output().unwrap();
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(
            stderr,
            format!("there is no database file '{}'\n", file(&database).display()),
            "{command:?}"
        );
        assert!(!refused.status.success() && !file(&database).exists(), "{command:?}");
    }
}

#[test]
fn a_file_of_another_program_is_no_store() {
    let database = Database::default();
    let connection = Connection::open(file(&database)).unwrap();
    connection.execute_batch("CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('mine')").unwrap();
    connection.close().unwrap();
    expect_refused(&database, "has no tables of an evidence store");
}

#[test]
fn a_store_of_another_version_is_left_as_it_is() {
    for (change, sentence) in [
        ("UPDATE _evidence_migrations SET done = 0", "has tables of version 0 and this program needs 1"),
        (
            "INSERT INTO _evidence_migrations (version, min_writer_version, steps_done, done) VALUES (99, 99, 0, 0)",
            "has tables of version 99 and this program knows 1",
        ),
    ] {
        let database = Database::default();
        let seed = ["seed", "--database-url", &database.url, "--user", "jane", "--org", "acme"];
        assert!(program(&seed).output().unwrap().status.success());
        let connection = Connection::open(file(&database)).unwrap();
        // Otherwise the log is merged into the file when the last connection is closed.
        connection.execute_batch(&format!("{change}; PRAGMA journal_mode = DELETE")).unwrap();
        connection.close().unwrap();
        expect_refused(&database, sentence);
    }
}

#[test]
fn a_mistyped_database_url_is_never_printed_whole() {
    for url in [
        "postgre://jane:s3cret@db.example.com/evidence",
        "postgres://jane:s3cret@db.example.com:port/evidence",
        "postgres://jane:s3cret@[::1/evidence",
        "sqlite://jane:s3cret@db.example.com/evidence",
        "jane:s3cret@db.example.com/evidence",
    ] {
        for arguments in [
            &["serve", "--database-url", url][..],
            &["--database-url", url, "fsck"],
            &["fsck", "--database-ur", url],
            &["fsck", url],
            &[url],
            &["copy", "--from", url, "--to", url],
        ] {
            let refused = program(arguments).env("EVIDENCE_DATABASE_URL", url).output().unwrap();
            let printed = [refused.stdout, refused.stderr].concat();
            let printed = String::from_utf8(printed).unwrap();
            assert!(!refused.status.success() && !printed.is_empty(), "{arguments:?}");
            assert!(!printed.contains("s3cret"), "{arguments:?}: {printed}");
        }
    }
}
