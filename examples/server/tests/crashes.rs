//! A server is killed while many clients write, or cannot write any more. After a restart, everything that it
//! acknowledged exists.
#![cfg(unix)]

mod support;
#[path = "support/writing.rs"]
mod writing;

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread::{scope, sleep};
use std::time::Duration;

use support::{Database, ORG, Server, program};
use writing::{Record, WRITERS, WriteOutcome, missing};

/// The numbers of acknowledged writes after which the server is killed, by round.
const WRITES_BEFORE_KILL: [usize; 5] = [1, 100, 40, 250, 150];

/// Writes from many threads until this many writes are acknowledged and the server is killed. Returns the
/// acknowledged records.
fn write_until_killed(server: &mut Server, round: usize, writes: usize) -> Vec<Record> {
    let acknowledged = Mutex::new(Vec::new());
    let Server { child, address, key, .. } = server;
    let write = |writer: usize| {
        let records = (0..).map(|number| Record::nth(&format!("env-{round}-{writer}"), number));
        for record in records.take_while(|record| record.write(address, key) == WriteOutcome::Acknowledged) {
            acknowledged.lock().unwrap().push(record);
        }
    };
    scope(|threads| {
        let write = &write;
        let writers: Vec<_> = (0..WRITERS).map(|writer| threads.spawn(move || write(writer))).collect();
        while acknowledged.lock().unwrap().len() < writes {
            assert!(!writers.iter().all(|writer| writer.is_finished()), "the server is gone");
            sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    });
    acknowledged.into_inner().unwrap()
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let database = Database::default();
    let mut server = Server::start(&database);
    let mut acknowledged = Vec::new();
    for (round, writes) in WRITES_BEFORE_KILL.into_iter().enumerate() {
        acknowledged.extend(write_until_killed(&mut server, round, writes));
        server = Server::serve(&database, &server.key);
        let checked = program(&["fsck", "--database-url", &database.url]).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
    let missing = missing(&acknowledged, &server);
    assert!(missing.is_empty(), "of {}: {missing:?}", acknowledged.len());
}

/// Returns the program with a limit for the size of its files, in blocks of half a kilobyte or one: the
/// equivalent of a full disk.
fn cramped(blocks: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"")]);
    command.arg(env!("CARGO_BIN_EXE_evidence-server")).env("EVIDENCE_LOG_FILTER", "off").stdin(Stdio::null());
    command
}

/// Puts a large environment. Returns the status and the whole response.
fn put_large(server: &Server, number: usize) -> (u16, String) {
    put(server, &format!("env-{number}"), &"x".repeat(60_000))
}

fn put(server: &Server, name: &str, description: &str) -> (u16, String) {
    let body = format!(r#"{{"name":"{name}","type":"server","description":"{description}"}}"#);
    server.call("PUT", &format!("/api/v2/environments/{ORG}"), "application/json", &body)
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else_and_needs_no_repair() {
    let database = Database::default();
    let key = Server::start(&database).key.clone();
    let server = Server::run(cramped("2048"), &database, &key);
    let written = (0..100).take_while(|number| put_large(&server, *number).0 == 201).count();
    assert!((1..100).contains(&written), "{written}");
    let (status, text) = put_large(&server, written);
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("retry-after: 1\r\n") && text.contains("Service unavailable"), "{text}");
    assert!(text.contains("\r\nevidence-write-outcome: "), "{text}");
    let small = (0..1000).take_while(|number| put(&server, &format!("small-{number}"), "").0 == 201).count();
    assert!(small < 1000);
    let last = format!("/api/v2/environments/{ORG}/env-{}", written - 1);
    assert_eq!(server.call("GET", &last, "application/json", "").0, 200);
    let (status, text) = server.call("GET", "/ready", "text/plain", "");
    assert!(status == 503 && text.contains("\"Not ready: "), "{text}");
    drop(server);

    let server = Server::serve(&database, &key);
    for path in [last.as_str(), "/ready"] {
        assert_eq!(server.call("GET", path, "application/json", "").0, 200, "{path}");
    }
    assert_eq!(put_large(&server, written).0, 201);
    let checked = program(&["fsck", "--database-url", &database.url]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn a_disk_that_is_full_at_the_start_is_reported_and_nothing_is_half_made() {
    let database = Database::default();
    let seed = ["seed", "--user", "jane", "--database-url", &database.url];
    for blocks in ["8", "16", "32", "64"] {
        let output = cramped(blocks).args(seed).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
        assert!(stderr.contains("that the disk has room"), "{stderr}");
    }
    assert!(program(&seed).status().unwrap().success());
    assert!(program(&["fsck", "--database-url", &database.url]).status().unwrap().success());
}
