//! Two servers on one database: one of them delivers, and the other when that is killed.

use std::time::{Duration, Instant};

use crate::cluster;
use crate::receiving::{Receiver, assert_each_is_told_once, prepare, report, secret, serve};
use crate::support::{ORG, program};

/// How often the server that delivers is killed.
const KILLS: usize = 2;

/// Artifacts that start between two kills.
const STARTED: usize = 12;

/// The promised 30 seconds, and room for a machine that stalls.
const TAKEN_OVER: Duration = Duration::from_secs(60);

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn one_of_two_servers_delivers_and_the_other_within_30_seconds_of_its_end() {
    let (cluster, database) = cluster();
    // Seeded only: a server would have the lease.
    let seed = ["seed", "--user", "jane", "--org", ORG, "--database-url", &database.url];
    let key = String::from_utf8(program(&seed).output().unwrap().stdout).unwrap().trim_end().to_owned();
    let receiver = Receiver::start(&secret(&database), 0);
    let mut delivering = serve(&database, &key, None);
    prepare(&delivering, receiver.port, r#""ON_STARTED_ARTIFACT""#);
    let holder =
        || cluster.sql("evidence", &["SELECT holder FROM evidence.lease WHERE name = 'notify'"]).unwrap();
    let mut started = 0;
    for _ in 0..KILLS {
        started += STARTED;
        report(&delivering, 0..started);
        let all = receiver.until_taken(started);
        let held_by = holder();
        let other = serve(&database, &key, None);
        // In the middle of what comes next.
        started += STARTED;
        report(&other, 0..started);
        receiver.until("the first of them", |attempts| attempts.len() > all.len());
        delivering.child.kill().unwrap();
        delivering.child.wait().unwrap();
        let killed = Instant::now();
        // The last one comes from the other, even where all else had been delivered before the end.
        started += 1;
        report(&other, 0..started);
        receiver.until_taken(started);
        assert!(killed.elapsed() < TAKEN_OVER, "taken over after {:?}", killed.elapsed());
        assert_ne!(holder(), held_by);
        delivering = other;
    }
    assert_each_is_told_once(receiver.attempts(), started, KILLS);
}
