//! One organization sends what the database cannot store. The writes of another are not affected.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

use crate::support::{Database, ORG, Server, answer, program};
use crate::{cluster, random_text};

/// The numbers of clients and writes of the quiet organization.
const CLIENTS: usize = 6;
const WRITES: usize = 150;

/// The number of clients of the noisy organization.
const NOISY_CLIENTS: usize = 3;

/// Creates a user with an organization, and returns the user's key.
fn seed(database: &Database, user: &str, org: &str) -> String {
    let seeded = program(&["seed", "--database-url", &database.url, "--user", user, "--org", org]).output();
    let seeded = seeded.unwrap();
    assert!(seeded.status.success(), "{}", String::from_utf8_lossy(&seeded.stderr));
    String::from_utf8(seeded.stdout).unwrap().trim_end().to_owned()
}

/// Sends a POST, and returns the status of the response.
fn post(server: &Server, key: &str, path: &str, media_type: &str, body: &str) -> u16 {
    let stream: TcpStream = server.send(&format!(
        "POST /api/v2{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: {media_type}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    ));
    answer(stream).0
}

/// Returns a name with this number of characters of four bytes each.
fn wide_name(length: usize) -> String {
    let random = RandomState::new();
    let character =
        |number: usize| char::from_u32(0x2_0000 + u32::try_from(random.hash_one(number) % 0xA000).ok()?);
    (0..length).filter_map(character).collect()
}

/// Returns a report whose texts have these lengths.
fn report(name: usize, address: usize, text: usize) -> String {
    let [name, title, author, branch] = [(); 4].map(|()| wide_name(name));
    let [repo, build, commit] =
        [(); 3].map(|()| format!("https://x.example/{}", random_text(address.saturating_sub(18))));
    let [message, description] = [(); 2].map(|()| random_text(text));
    let fingerprint = random_text(64);
    let sha = random_text(40);
    format!(
        r#"{{"fingerprint":"{fingerprint}","filename":"{title}","git_commit":"{sha}","description":"{description}",
            "build_url":"{build}","commit_url":"{commit}",
            "git_commit_info":{{"sha1":"{sha}","message":"{message}","author":"{author}","branch":"{branch}",
                "timestamp":1776252299,"url":"{commit}"}},
            "repo_info":{{"name":"{name}","url":"{repo}","description":"{description}"}}}}"#
    )
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn what_one_organization_sends_fails_no_write_of_another() {
    let (_cluster, database) = cluster();
    let server = Server::start(&database);
    let noisy = seed(&database, "eve", "noise");
    let done = AtomicBool::new(false);
    scope(|threads| {
        for _ in 0..NOISY_CLIENTS {
            threads.spawn(|| {
                // The documented maximum, and more than some index of PostgreSQL can store.
                let reports = [
                    ((255, 2048, 4096), 201),
                    ((255, 6000, 4096), 400),
                    ((6000, 2048, 4096), 400),
                    ((255, 2048, 60_000), 201),
                ];
                for ((name, address, text), expected) in reports.into_iter().cycle() {
                    let body = report(name, address, text);
                    let status = post(&server, &noisy, "/artifacts/noise/build", "application/json", &body);
                    assert_eq!(status, expected, "{name} {address} {text}");
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let quiet: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let server = &server;
                threads.spawn(move || {
                    let path = format!("/attestations/{ORG}/build/trail/trail-{client}/generic");
                    let body = "--x\r\ncontent-disposition: form-data; name=\"data_json\"\r\n\r\n\
                        {\"attestation_name\":\"scan\",\"is_compliant\":true}\r\n--x--\r\n";
                    let media_type = "multipart/form-data; boundary=x";
                    let statuses = (0..WRITES).map(|_| post(server, &server.key, &path, media_type, body));
                    statuses.filter(|status| *status != 201).collect::<Vec<_>>()
                })
            })
            .collect();
        let failed: Vec<_> = quiet.into_iter().flat_map(|client| client.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        assert_eq!(failed, Vec::<u16>::new(), "of {}", CLIENTS * WRITES);
    });
}
