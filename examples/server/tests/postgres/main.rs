//! The program on PostgreSQL: several servers on one database, a database that comes and goes, and everything that can
//! be wrong with it. Each test has a PostgreSQL server of its own.
#![cfg(unix)]

mod copy;
#[path = "../support/copying.rs"]
mod copying;
mod faults;
mod restart;
mod several_servers;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/writing.rs"]
mod writing;

use std::path::Path;

use evidence_test_postgres::{Cluster, Durability, Programs};

use support::{Database, ORG, Server, program};

/// A PostgreSQL server that keeps what it acknowledges, and an empty database in it.
fn cluster() -> (Cluster, Database) {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let cluster = Cluster::start(&Programs::find().unwrap(), parent, Durability::Full).unwrap();
    cluster.sql("postgres", &["CREATE DATABASE evidence"]).unwrap();
    let url = cluster.url("evidence");
    (cluster, url.into())
}

/// Every environment, as a server lists them.
fn environments(server: &Server) -> String {
    let (status, text) = server.ask("GET", &format!("/api/v2/environments/{ORG}"), "application/json", "");
    assert_eq!(status, 200, "{text}");
    // The head has a date.
    text.split_once("\r\n\r\n").expect(&text).1.to_owned()
}

/// Checks the whole store, with its ledgers; answers how many entries they have.
fn sound_entries(database: &Database) -> usize {
    let checked = program(&["fsck", "--database-url", &database.url]).output().unwrap();
    let told = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{told}");
    let entries = told.split(", ").find_map(|part| part.strip_suffix(" entries"));
    entries.and_then(|entries| entries.parse().ok()).expect(&told)
}
