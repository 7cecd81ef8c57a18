//! The program on PostgreSQL: several servers on one database, a database that restarts, and every fault of a
//! database. Each test has its own PostgreSQL server.
#![cfg(unix)]

mod abandoned;
mod copy;
#[path = "../support/copying.rs"]
mod copying;
mod existing;
mod faults;
mod hanging;
mod noise;
mod notifications;
#[path = "../support/receiving.rs"]
mod receiving;
mod restart;
mod several_servers;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/writing.rs"]
mod writing;

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use evidence_test_postgres::{Cluster, Durability, Programs};

use support::{Database, ORG, Server, program};
use writing::{Kind, Record, WriteOutcome};

/// Returns a durable PostgreSQL server with an empty database.
fn cluster() -> (Cluster, Database) {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let cluster = Cluster::start(&Programs::find().unwrap(), parent, Durability::Full).unwrap();
    cluster.sql("postgres", &["CREATE DATABASE evidence"]).unwrap();
    let url = cluster.url("evidence");
    (cluster, url.into())
}

/// Runs a statement in a transaction that stays open with its locks until [`release`] ends it.
fn hold(cluster: &Cluster, statement: &str) {
    cluster.sql("evidence", &["BEGIN", statement, "PREPARE TRANSACTION 'held'"]).unwrap();
}

/// Ends the transactions of [`hold`].
fn release(cluster: &Cluster) {
    cluster.sql("evidence", &["ROLLBACK PREPARED 'held'"]).unwrap();
}

/// Waits until this many sessions wait for a lock.
fn until_waiting(cluster: &Cluster, sessions: usize) {
    let waiting = || cluster.sql("evidence", &["SELECT count(*) FROM pg_locks WHERE NOT granted"]).unwrap();
    while waiting() != sessions.to_string() {
        sleep(Duration::from_millis(20));
    }
}

/// Returns an incompressible text.
fn random_text(length: usize) -> String {
    // The only source of randomness in the standard library.
    let random = RandomState::new();
    (0..length.div_ceil(16)).map(|number| format!("{:016x}", random.hash_one(number))).collect::<String>()
        [..length]
        .to_owned()
}

/// Creates an environment.
fn create(address: &str, key: &str, name: &str) -> WriteOutcome {
    Record { kind: Kind::Environment, name: name.to_owned() }.write(address, key)
}

/// Returns every environment in the form of the server's list.
fn environments(server: &Server) -> String {
    let (status, text) = server.call("GET", &format!("/api/v2/environments/{ORG}"), "application/json", "");
    assert_eq!(status, 200, "{text}");
    // The head contains a date.
    text.split_once("\r\n\r\n").expect(&text).1.to_owned()
}

/// Verifies the whole store and its ledgers. Returns the number of entries.
fn sound_entries(database: &Database) -> usize {
    let checked = program(&["fsck", "--database-url", &database.url]).output().unwrap();
    let stdout = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{stdout}");
    let summary = stdout.lines().last().expect(&stdout);
    let entries = summary.split(", ").find_map(|part| part.strip_suffix(" entries"));
    entries.and_then(|entries| entries.parse().ok()).expect(&stdout)
}
