//! Every fault of a database results in one sentence with the remedy and status 1, or in 503 until it is
//! repaired, but never in a half-created schema.

use std::thread::{scope, sleep};
use std::time::Duration;

use evidence_test_postgres::Cluster;

use crate::support::{Server, program};
use crate::writing::WriteOutcome;
use crate::{cluster, create, environments, hold, release, sound_entries, until_waiting};

/// Returns the message of the program, which must fail to start.
fn refusal(url: &str, schema: &str) -> String {
    // No machine has this address (RFC 5737). If the store opened after all, the program would still end.
    let serve = ["--database-url", url, "--database-schema", schema, "--listen", "192.0.2.1:0"];
    let output = program(&serve).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    stderr
}

/// Returns the number of evidence schemas in a database.
fn schemas(cluster: &Cluster, database: &str) -> String {
    cluster.sql(database, &["SELECT count(*) FROM pg_namespace WHERE nspname = 'evidence'"]).unwrap()
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn a_server_that_cannot_start_says_what_to_do_and_makes_nothing() {
    let (cluster, database) = cluster();
    let arrangement = [
        "CREATE ROLE jane LOGIN PASSWORD 'secret'",
        "CREATE DATABASE read_only",
        "ALTER DATABASE read_only SET default_transaction_read_only = on",
        "CREATE DATABASE full_up CONNECTION LIMIT 0",
        "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE_PROVIDER libc LOCALE 'C'",
        "CREATE DATABASE closed",
        "REVOKE CONNECT ON DATABASE closed FROM PUBLIC",
    ];
    cluster.sql("postgres", &arrangement).unwrap();
    let jane = |database| cluster.url_as("jane", "secret", database);
    for (url, says) in [
        (cluster.url("missing"), "there is no such database: make it, as with createdb"),
        (cluster.url_as("jane", "wrong", "evidence"), "the database refuses the user: check the user's name"),
        (
            cluster.url_as("john", "secret", "evidence"),
            "the database refuses the user: check the user's name",
        ),
        (jane("closed"), "the database refuses the user: check the user's name"),
        (
            jane("evidence"),
            "the user may not make the tables in schema 'evidence': grant CREATE on the database",
        ),
        (jane("full_up"), "the database has no connection left: ask for fewer"),
        (cluster.url("read_only"), "the database is read-only and its tables are not up to date: connect to"),
        (cluster.url("latin"), "the database is encoded as LATIN1: make one that is UTF8"),
        ("postgres://127.0.0.1:1/evidence".to_owned(), "cannot be reached: check that it runs"),
        ("postgres:///evidence?host=/nowhere".to_owned(), "cannot be reached: check that it runs"),
        ("postgres://[/".to_owned(), "write it as postgres://user@host:5432/database"),
        ("mysql://localhost/evidence".to_owned(), "must begin with sqlite:// or postgres://"),
    ] {
        let stderr = refusal(&url, "evidence");
        assert!(stderr.contains(says) && !stderr.contains("secret"), "{url}: {stderr}");
    }
    let stderr = refusal(&database.url, "Evil");
    assert!(stderr.contains("'Evil' is no name for a schema"), "{stderr}");
    for database in ["evidence", "read_only", "full_up", "closed"] {
        assert_eq!(schemas(&cluster, database), "0", "{database}");
    }
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn tables_of_a_later_program_are_left_alone() {
    let (cluster, database) = cluster();
    let server = Server::start(&database);
    cluster
        .sql("evidence", &["INSERT INTO evidence._evidence_migrations VALUES (999, 999, 0, NULL, false)"])
        .unwrap();
    let stderr = refusal(&database.url, "evidence");
    assert!(stderr.contains("version 999") && stderr.contains("use a newer program"), "{stderr}");
    environments(&server);
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn a_read_only_database_is_read_and_writes_are_asked_to_wait() {
    let (cluster, database) = cluster();
    let key = Server::start(&database).key.clone();
    cluster.sql("evidence", &["ALTER DATABASE evidence SET default_transaction_read_only = on"]).unwrap();
    let server = Server::serve(&database, &key);
    assert_eq!(create(&server.address, &key, "prod"), WriteOutcome::Unavailable);
    assert!(!environments(&server).contains("prod"));
    // Whether it becomes the primary again or another one does, no restart is needed.
    cluster.sql("postgres", &["ALTER DATABASE evidence RESET default_transaction_read_only"]).unwrap();
    assert_eq!(create(&server.address, &key, "prod"), WriteOutcome::Acknowledged);
}

/// Waits until a program waits for the lock of the migrating one.
fn until_trying(cluster: &Cluster) {
    let trying = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_try_advisory_lock%'";
    while cluster.sql("evidence", &[trying]).unwrap() == "0" {
        sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn a_server_killed_while_it_migrates_leaves_nothing_and_the_next_goes_on() {
    let (cluster, database) = cluster();
    // Creating the schema now has to wait.
    hold(&cluster, "CREATE SCHEMA evidence");
    let mut first = program(&["--database-url", &database.url, "--listen", "127.0.0.1:0"]).spawn().unwrap();
    until_waiting(&cluster, 1);
    let next = scope(|threads| {
        let next = threads.spawn(|| Server::serve(&database, "no key"));
        until_trying(&cluster);
        first.kill().unwrap();
        first.wait().unwrap();
        assert_eq!(schemas(&cluster, "evidence"), "0");
        release(&cluster);
        next.join().unwrap()
    });
    assert_eq!(next.call("GET", "/ready", "text/plain", "").0, 200);
    assert_eq!(sound_entries(&database), 0);
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn a_pool_in_use_is_answered_with_503_and_whoever_has_it_is_served() {
    let (cluster, database) = cluster();
    let key = Server::start(&database).key.clone();
    let mut single = program(&[]);
    single.env("EVIDENCE_DATABASE_CONNECTIONS", "1");
    let server = Server::run(single, &database, &key);
    hold(&cluster, "LOCK TABLE evidence.api_key IN ACCESS EXCLUSIVE MODE");
    scope(|threads| {
        let first = threads.spawn(|| environments(&server));
        until_waiting(&cluster, 1);
        let (status, text) = server.call("GET", "/ready", "text/plain", "");
        assert_eq!(status, 503, "{text}");
        assert!(text.contains("\r\nretry-after: "), "{text}");
        release(&cluster);
        first.join().unwrap();
    });
    assert_eq!(server.call("GET", "/ready", "text/plain", "").0, 200);
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn a_database_that_becomes_read_only_is_not_ready_until_it_is_writable_again() {
    let (cluster, database) = cluster();
    let server = Server::start(&database);
    let ready = || server.call("GET", "/ready", "text/plain", "");
    assert_eq!(ready().0, 200);
    let read_only = |value: &str| {
        let set = format!("ALTER SYSTEM SET default_transaction_read_only = {value}");
        cluster.sql("postgres", &[&set]).unwrap();
        cluster.sql("postgres", &["SELECT pg_reload_conf()"]).unwrap();
        sleep(Duration::from_secs(1));
    };
    read_only("on");
    let (status, text) = ready();
    assert!(status == 503 && text.contains("Not ready: ") && text.contains("read-only"), "{text}");
    let body = r#"{"name":"prod","type":"server","description":""}"#;
    let (status, text) = server.call("PUT", "/api/v2/environments/acme", "application/json", body);
    assert!(status == 503 && text.contains("\r\nevidence-write-outcome: not-written\r\n"), "{text}");
    read_only("off");
    assert_eq!(ready().0, 200);
    assert_eq!(server.call("PUT", "/api/v2/environments/acme", "application/json", body).0, 201);
}
