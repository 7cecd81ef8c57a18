//! A database that neither responds nor closes connections. Callers soon get a response to try again later, a
//! rejected write does not happen later, and memory does not grow with the clients' requests.

use std::process::Command;
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use crate::support::{ORG, Server, answer};
use crate::writing::WriteOutcome;
use crate::{cluster, create, hold, random_text, release, sound_entries};

/// The maximum time that a caller may wait: the documented times for a permit and for a statement, doubled
/// for a busy machine.
const SOON: Duration = Duration::from_secs(40);

/// The time until writes succeed after the database resumes: five seconds, and a margin for a busy machine.
const RECOVERY: Duration = Duration::from_secs(30);

/// The maximum memory of requests whose clients disconnect, in KiB: several times the budget of waiting
/// requests.
const GROWTH: u64 = 300 << 10;

/// The number of clients that send and disconnect, how often each does, and how long they wait for a
/// response.
const CLIENTS: usize = 16;
const TIMES: usize = 60;
const CLIENT_TIMEOUT: Duration = Duration::from_millis(150);

/// Returns a request with an attestation and this many bytes of incompressible data.
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

/// Attests, and expects a response to try again soon.
fn refused(server: &Server, name: &str) {
    let begun = Instant::now();
    let (status, text) = attest(server, name);
    assert!(status == 503 && text.contains("\r\nretry-after: "), "{status} {text}");
    assert!(text.contains("\r\nevidence-write-outcome: "), "{text}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

/// Returns the memory use of the program, in KiB.
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
        assert_eq!(server.call("GET", "/ready", "text/plain", "").0, 503);
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

    // The writer hangs, and all other requests succeed.
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
