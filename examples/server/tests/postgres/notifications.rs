//! Two servers share a database. One delivers notifications, and the other takes over when it is killed.

use std::time::{Duration, Instant};

use crate::cluster;
use crate::receiving::{Receiver, assert_each_is_told_once, prepare, report, secret, serve};
use crate::support::{ORG, program};

/// The number of times that the delivering server is killed.
const KILLS: usize = 2;

/// The number of artifacts that start between two kills.
const STARTED: usize = 12;

/// The promised 30 seconds, and a margin for a machine that stalls.
const TAKEN_OVER: Duration = Duration::from_secs(60);

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn one_of_two_servers_delivers_and_the_other_within_30_seconds_of_its_end() {
    let (cluster, database) = cluster();
    // Only seeded, because a server would acquire the lease.
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
        // During the next deliveries.
        started += STARTED;
        report(&other, 0..started);
        receiver.until("the first of them", |attempts| attempts.len() > all.len());
        delivering.child.kill().unwrap();
        delivering.child.wait().unwrap();
        let killed = Instant::now();
        // The last event comes from the other server, even if everything else was delivered before the kill.
        started += 1;
        report(&other, 0..started);
        receiver.until_taken(started);
        assert!(killed.elapsed() < TAKEN_OVER, "taken over after {:?}", killed.elapsed());
        assert_ne!(holder(), held_by);
        delivering = other;
    }
    assert_each_is_told_once(receiver.attempts(), started, KILLS);
}
