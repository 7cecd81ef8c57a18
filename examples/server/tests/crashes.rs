//! A server that is killed while many clients write, or that cannot write any more: whatever it had acknowledged is
//! there when it is started again.
#![cfg(unix)]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{scope, sleep};
use std::time::Duration;

use support::{ORG, Server, database_url, directory, program};

const WRITERS: usize = 32;

/// After how many milliseconds of writing the server is killed, run after run.
const LIVES: [u64; 5] = [130, 270, 190, 510, 350];

/// Creates an environment, and answers whether the server said so.
fn create(address: &str, key: &str, name: &str) -> bool {
    let body = format!(r#"{{"name":"{name}","type":"server","description":"written before a crash"}}"#);
    let request = format!(
        "PUT /api/v2/environments/{ORG} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    // Every error is a server that is gone: it acknowledged nothing.
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let mut answer = Vec::new();
    stream.write_all(request.as_bytes()).is_ok()
        && stream.read_to_end(&mut answer).is_ok()
        && answer.starts_with(b"HTTP/1.1 201 ")
        && answer.ends_with(b"\"OK\"")
}

/// Writes from many threads until the server is killed; the names that were acknowledged.
fn write_until_killed(server: &mut Server, life: usize, milliseconds: u64) -> Vec<String> {
    let acknowledged = Mutex::new(Vec::new());
    let Server { child, address, key, .. } = server;
    let write = |writer: usize| {
        let names = (0..).map(|number| format!("env-{life}-{writer}-{number}"));
        for name in names.take_while(|name| create(address, key, name)) {
            acknowledged.lock().unwrap().push(name);
        }
    };
    scope(|threads| {
        for writer in 0..WRITERS {
            let write = &write;
            threads.spawn(move || write(writer));
        }
        sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
    });
    acknowledged.into_inner().unwrap()
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let directory = directory();
    let mut server = Server::start(Arc::clone(&directory));
    let mut acknowledged = Vec::new();
    for (life, milliseconds) in LIVES.into_iter().enumerate() {
        acknowledged.extend(write_until_killed(&mut server, life, milliseconds));
        server = Server::serve(Arc::clone(&directory), &server.key);
        let url = database_url(&directory);
        let checked = program(&["fsck", "--database-url", &url]).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    }
    assert!(acknowledged.len() > WRITERS, "too few writes to tell: {}", acknowledged.len());
    let (status, list) = server.ask("GET", &format!("/api/v2/environments/{ORG}"), "application/json", "");
    assert_eq!(status, 200, "{list}");
    let lost: Vec<_> = acknowledged.iter().filter(|name| !list.contains(&format!("\"{name}\""))).collect();
    assert!(lost.is_empty(), "{} of {} acknowledged writes: {lost:?}", lost.len(), acknowledged.len());
}

/// The program, whose files may not grow beyond a megabyte or two: what a full disk is to it.
fn cramped() -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 2048; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_evidence-server")).env("EVIDENCE_LOG_FILTER", "off").stdin(Stdio::null());
    command
}

/// Puts an environment that takes some room, and answers the status and the whole answer.
fn put_large(server: &Server, number: usize) -> (u16, String) {
    let description = "x".repeat(60_000);
    let body = format!(r#"{{"name":"env-{number}","type":"server","description":"{description}"}}"#);
    server.ask("PUT", &format!("/api/v2/environments/{ORG}"), "application/json", &body)
}

#[test]
fn a_full_disk_refuses_writes_and_nothing_else_and_needs_no_repair() {
    let directory = directory();
    let key = Server::start(Arc::clone(&directory)).key.clone();
    let server = Server::run(cramped(), Arc::clone(&directory), &key);
    let written = (0..100).take_while(|number| put_large(&server, *number).0 == 201).count();
    assert!((1..100).contains(&written), "{written}");
    let (status, text) = put_large(&server, written);
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("retry-after: 1\r\n") && text.contains("Service unavailable"), "{text}");
    let last = format!("/api/v2/environments/{ORG}/env-{}", written - 1);
    for path in [last.as_str(), "/ready"] {
        assert_eq!(server.ask("GET", path, "application/json", "").0, 200, "{path}");
    }
    drop(server);

    let server = Server::serve(Arc::clone(&directory), &key);
    assert_eq!(server.ask("GET", &last, "application/json", "").0, 200);
    assert_eq!(put_large(&server, written).0, 201);
    let checked = program(&["fsck", "--database-url", &database_url(&directory)]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
