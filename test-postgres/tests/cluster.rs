//! Tests what other tests expect of their own servers.
#![cfg(unix)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use evidence_test_postgres::{Cluster, Durability, Programs, SERVER_URL_VARIABLE, SchemaName, Stop};

/// Set in the process that starts a cluster and is then killed.
const VICTIM: &str = "EVIDENCE_TEST_VICTIM";

fn cluster(durability: Durability) -> Cluster {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    Cluster::start(&Programs::find().unwrap(), parent, durability).unwrap()
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn what_was_committed_outlives_a_crash_of_the_server() {
    let cluster = cluster(Durability::Full);
    assert_eq!(cluster.sql("postgres", &["SHOW fsync", "SHOW synchronous_commit"]).unwrap(), "on\non");
    cluster.sql("postgres", &["CREATE TABLE kept (x int)", "INSERT INTO kept VALUES (1)"]).unwrap();
    cluster.stop(Stop::Immediate).unwrap();
    cluster.sql("postgres", &["SELECT 1"]).unwrap_err();
    cluster.resume().unwrap();
    assert_eq!(cluster.sql("postgres", &["SELECT x FROM kept"]).unwrap(), "1");
    cluster.stop(Stop::Fast).unwrap();
    cluster.stop(Stop::Fast).unwrap_err();
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn only_the_superuser_needs_no_password_and_the_order_is_not_that_of_bytes() {
    let cluster = cluster(Durability::None);
    cluster
        .sql("postgres", &["CREATE ROLE jane LOGIN PASSWORD 'p&ss=ö'", "CREATE DATABASE \"a b\""])
        .unwrap();
    let may_connect = |password: &str| {
        let url = cluster.url_as("jane", password, "a b");
        let psql = Programs::find().unwrap().directory().join("psql");
        Command::new(psql).args(["-X", "-c", "SELECT 1", "-d", &url]).output().unwrap().status.success()
    };
    assert!(may_connect("p&ss=ö") && !may_connect("wrong"));
    assert_eq!(cluster.sql("a b", &["SHOW fsync", "SELECT 'a' < 'B'"]).unwrap(), "off\nt");
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn a_killed_test_leaves_no_server_behind() {
    let test = "a_killed_test_leaves_no_server_behind";
    if std::env::var_os(VICTIM).is_some() {
        let cluster = cluster(Durability::None);
        println!("\nstarted {}", cluster.sql("postgres", &["SHOW data_directory"]).unwrap());
        loop {
            std::thread::park();
        }
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--include-ignored", "--nocapture", "--exact", test])
        .env(VICTIM, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map(Result::unwrap);
    let data = lines.find_map(|line| line.strip_prefix("started ").map(str::to_owned)).unwrap();
    assert!(Path::new(&data).join("postmaster.pid").exists());
    victim.kill().unwrap();
    victim.wait().unwrap();
    // The cleanup process removes the files after the server has ended.
    while Path::new(&data).exists() {
        sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn the_server_that_tests_share_is_there() {
    let schema = SchemaName::unused()
        .unwrap_or_else(|| panic!("{SERVER_URL_VARIABLE} is not set: run cargo xtask test"));
    assert_ne!(schema.name, SchemaName::unused().unwrap().name);
}
