//! A database that neither answers nor breaks a connection: whoever asks is told to try again, soon; what was refused
//! does not happen later; and memory does not grow with what clients keep sending.

use std::process::Command;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use crate::support::{ORG, Server, answer};
use crate::writing::WriteOutcome;
use crate::{cluster, create, hold, random_text, release, sound_entries};

/// How long a caller may wait: the documented times to wait for a turn and for a statement, and as much again for a busy
/// machine.
const SOON: Duration = Duration::from_secs(40);

/// How soon writes succeed once the database goes on: five seconds, and some more for a busy machine.
const RECOVERY: Duration = Duration::from_secs(30);

/// How much memory the requests of clients that hang up may take, in KiB: several times the budget of what waits.
const GROWTH: u64 = 300 << 10;

/// Clients that send and hang up, how often each of them does, and how long they wait for an answer.
const CLIENTS: usize = 16;
const TIMES: usize = 60;
const CLIENT_TIMEOUT: Duration = Duration::from_millis(150);

/// A request that attests something, with so many bytes of data that cannot be compressed.
fn attestation(server: &Server, name: &str, size: usize) -> String {
    let body = format!(
        "--x\r\ncontent-disposition: form-data; name=\"data_json\"\r\n\r\n\
         {{\"attestation_name\":\"{name}\",\"is_compliant\":true,\"user_data\":{{\"text\":\"{}\"}}}}\r\n--x--\r\n",
        random_text(size)
    );
    format!(
        "POST /api/v2/attestations/{ORG}/build/trail/first/generic HTTP/1.1\r\nhost: x\r\n\
         authorization: Bearer {}\r\ncontent-type: multipart/form-data; boundary=x\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        server.key,
        body.len()
    )
}

fn attest(server: &Server, name: &str) -> (u16, String) {
    answer(server.send(&attestation(server, name, 16)))
}

/// Attests, and is told to try again, soon.
fn refused(server: &Server, name: &str) {
    let begun = Instant::now();
    let (status, text) = attest(server, name);
    assert!(status == 503 && text.contains("\r\nretry-after: "), "{status} {text}");
    assert!(text.contains("\r\nevidence-write-outcome: "), "{text}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

/// How much memory the program has, in KiB.
fn memory(server: &Server) -> u64 {
    let ps = Command::new("ps").args(["-o", "rss=", "-p", &server.child.id().to_string()]).output().unwrap();
    String::from_utf8(ps.stdout).unwrap().trim().parse().unwrap()
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn a_database_that_hangs_is_answered_with_503_and_nothing_happens_twice() {
    let (cluster, database) = cluster();
    let server = Server::start(&database);
    assert_eq!(attest(&server, "before").0, 201);
    let entries = sound_entries(&database);
    let names: Vec<_> = (0..CLIENTS).map(|client| format!("client-{client}")).collect();

    let frozen = cluster.freeze().unwrap();
    scope(|threads| {
        for name in &names {
            threads.spawn(|| refused(&server, name));
        }
        let begun = Instant::now();
        assert_eq!(server.ask("GET", "/ready", "text/plain", "").0, 503);
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    });
    drop(frozen);

    let back = Instant::now();
    while create(&server.address, &server.key, "written-again") != WriteOutcome::Acknowledged {
        assert!(back.elapsed() < RECOVERY, "{:?}", back.elapsed());
    }
    for name in &names {
        assert_eq!(attest(&server, name).0, 201);
    }
    assert_eq!(sound_entries(&database), entries + 1 + names.len());
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn writes_that_were_given_up_take_bounded_memory_and_never_happen() {
    let (cluster, database) = cluster();
    let server = Server::start(&database);
    assert_eq!(attest(&server, "before").0, 201);
    let entries = sound_entries(&database);
    let before = memory(&server);

    // The writer hangs; whatever else a request asks is answered.
    hold(&cluster, "LOCK TABLE evidence.head IN ACCESS EXCLUSIVE MODE");
    let request = attestation(&server, "given-up", 200 << 10);
    scope(|threads| {
        for _ in 0..CLIENTS {
            threads.spawn(|| {
                for _ in 0..TIMES {
                    let client = server.send(&request);
                    sleep(CLIENT_TIMEOUT);
                    drop(client);
                }
            });
        }
    });
    let growth = memory(&server).saturating_sub(before);
    println!("{growth} KiB for {} requests", CLIENTS * TIMES);
    refused(&server, "patient");
    release(&cluster);

    let back = Instant::now();
    while attest(&server, "after").0 != 201 {
        assert!(back.elapsed() < RECOVERY, "{:?}", back.elapsed());
    }
    assert_eq!(sound_entries(&database), entries + 1);
    assert!(growth < GROWTH, "{growth} KiB");
}
