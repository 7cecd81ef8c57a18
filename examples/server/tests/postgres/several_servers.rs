//! Several servers on one database.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{scope, sleep};
use std::time::Duration;

use crate::support::{ORG, Server, program};
use crate::writing::{Record, WRITERS, WriteOutcome, missing};
use crate::{cluster, environments, sound_entries};

/// The number of times that one of the two servers is killed.
const KILLS: usize = 6;

/// Returns the number of writes before the next kill.
fn random_writes_before_kill() -> usize {
    // The only source of randomness in the standard library.
    let random = RandomState::new().hash_one(0) % 300;
    20 + usize::try_from(random).unwrap()
}

/// Writes through both servers, and kills one of them meanwhile. Returns the acknowledged records. The other
/// server accepts every write.
fn write_until_one_is_killed(servers: &mut [Server; 2], round: usize) -> Vec<Record> {
    let victim = round % 2;
    let writes = random_writes_before_kill();
    println!("server {victim} is killed after {writes} writes");
    let stop = AtomicBool::new(false);
    let addresses = servers.each_ref().map(|server| server.address.clone());
    let key = servers[0].key.clone();
    let write = |writer: usize, sender: Sender<Record>| {
        for number in 0.. {
            let record = Record::nth(&format!("env-{round}-{writer}"), number);
            match record.write(&addresses[writer % 2], &key) {
                WriteOutcome::Acknowledged => sender.send(record).unwrap(),
                outcome => return assert_eq!((outcome, writer % 2), (WriteOutcome::Gone, victim)),
            }
            if stop.load(Ordering::Relaxed) {
                return;
            }
        }
    };
    scope(|threads| {
        let (sender, acknowledgements) = channel();
        for writer in 0..WRITERS {
            let (write, sender) = (&write, sender.clone());
            threads.spawn(move || write(writer, sender));
        }
        drop(sender);
        let mut acknowledged: Vec<Record> = acknowledgements.iter().take(writes).collect();
        servers[victim].child.kill().unwrap();
        servers[victim].child.wait().unwrap();
        acknowledged.extend(acknowledgements.iter().take(3 * WRITERS));
        stop.store(true, Ordering::Relaxed);
        acknowledged.extend(acknowledgements);
        acknowledged
    })
}

/// Begins a trail in a new flow: the last entry of the ledger.
fn begin_last_trail(server: &Server) {
    for (path, name) in [("flows/acme/template_file", "delivery"), ("trails/acme/delivery", "last")] {
        let form = format!(
            "--b\r\ncontent-disposition: form-data; name=\"data_json\"\r\n\r\n\
             {{\"name\":\"{name}\",\"description\":\"\"}}\r\n--b--\r\n"
        );
        let media_type = "multipart/form-data; boundary=b";
        let (status, text) = server.call("PUT", &format!("/api/v2/{path}"), media_type, &form);
        assert_eq!(status, 201, "{text}");
    }
}

/// Returns the digest of that trail's page. The page has the root of the whole ledger up to the trail, so the
/// server computes it.
fn page_digest(server: &Server) -> String {
    let path = format!("/api/v2/trails/{ORG}/delivery/last/audit_pdf");
    let (status, text) = server.call("GET", &path, "application/json", "");
    assert_eq!(status, 200, "{text}");
    text.lines().find(|line| line.starts_with("etag: ")).unwrap().to_owned()
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn two_servers_keep_one_ledger_and_lose_nothing_when_one_is_killed() {
    let (_cluster, database) = cluster();
    let first = Server::start(&database);
    let seeded = sound_entries(&database);
    let second = Server::serve(&database, &first.key);
    let mut servers = [first, second];
    let mut acknowledged = Vec::new();
    for round in 0..KILLS {
        acknowledged.extend(write_until_one_is_killed(&mut servers, round));
        servers[round % 2] = Server::serve(&database, &servers[0].key);
    }

    let lists = servers.each_ref().map(environments);
    assert_eq!(lists[0], lists[1]);
    for server in &servers {
        let missing = missing(&acknowledged, server);
        assert!(missing.is_empty(), "of {}: {missing:?}", acknowledged.len());
    }
    assert!(sound_entries(&database) - seeded >= acknowledged.len());
    begin_last_trail(&servers[0]);
    let [first, second] = servers.each_ref().map(page_digest);
    assert_eq!(first, second);
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn ten_servers_start_at_once_on_an_empty_database() {
    let (_cluster, database) = cluster();
    let servers: Vec<Server> = scope(|threads| {
        let starting: Vec<_> =
            (0..10).map(|_| threads.spawn(|| Server::serve(&database, "no key"))).collect();
        starting.into_iter().map(|starting| starting.join().unwrap()).collect()
    });
    for server in &servers {
        assert_eq!(server.call("GET", "/ready", "text/plain", "").0, 200);
    }
    assert_eq!(sound_entries(&database), 0);
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn when_the_server_that_does_the_background_work_is_killed_another_does_it() {
    let (cluster, database) = cluster();
    let sql = |statement: &str| cluster.sql("evidence", &[statement]).unwrap();
    // An attachment that was marked as pending long ago.
    let leave_one = || {
        sql("INSERT INTO evidence.attachment_pending (org, sha256, kept_at)
            SELECT key, repeat('a', 64), 1 FROM evidence.organization WHERE name = 'acme'");
    };
    let until_swept = || {
        while sql("SELECT count(*) FROM evidence.attachment_pending") != "0" {
            sleep(Duration::from_millis(100));
        }
        sql("SELECT holder FROM evidence.lease WHERE name = 'sweep-attachments'")
    };
    let seeded = program(&["seed", "--database-url", &database.url, "--user", "jane", "--org", ORG]).status();
    assert!(seeded.unwrap().success());
    leave_one();
    let mut first = Server::serve(&database, "no key");
    let holder = until_swept();
    let _second = Server::serve(&database, "no key");
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    leave_one();
    assert_ne!(until_swept(), holder);
}
