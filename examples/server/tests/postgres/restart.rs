//! A database server that is restarted while many clients write.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use evidence_test_postgres::{Cluster, Stop};

use crate::support::Server;
use crate::writing::{Outcome, Record, WRITERS, missing};
use crate::{cluster, sound_entries};

/// How soon a write succeeds once the database server is back: five seconds, and some more for a busy machine.
const RECOVERY: Duration = Duration::from_secs(30);

/// How long a client waits that was asked to try again.
const PAUSE: Duration = Duration::from_millis(50);

type Told = (Record, Outcome);

/// Writes, whatever is answered, until it is asked to stop. The server itself stays.
fn write(server: &Server, writer: usize, stop: &AtomicBool, tell: &Sender<Told>) {
    let (mut life, mut number) = (0, 0);
    loop {
        let record = Record::nth(&format!("env-{writer}-{life}"), number);
        let outcome = record.write(&server.address, &server.key);
        assert_ne!(outcome, Outcome::Gone);
        tell.send((record, outcome)).unwrap();
        number += 1;
        if outcome == Outcome::Unavailable {
            // What comes next would need what may not be there.
            (life, number) = (life + 1, 0);
            sleep(PAUSE);
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Listens to the writers until so many writes ended like this; keeps the records that were acknowledged.
fn listen(told: &Receiver<Told>, wanted: Outcome, times: usize, acknowledged: &mut Vec<Record>) {
    let mut seen = 0;
    for (record, outcome) in told {
        if outcome == Outcome::Acknowledged {
            acknowledged.push(record);
        }
        seen += usize::from(outcome == wanted);
        if seen == times {
            return;
        }
    }
    panic!("the writers ended after {seen} writes that were {wanted:?}");
}

/// Restarts the database server; every server of ours writes again soon after.
fn restart(
    cluster: &Cluster,
    how: Stop,
    servers: &[Server; 2],
    told: &Receiver<Told>,
    acknowledged: &mut Vec<Record>,
) {
    listen(told, Outcome::Acknowledged, 10 * WRITERS, acknowledged);
    cluster.stop(how).unwrap();
    listen(told, Outcome::Unavailable, 2 * WRITERS, acknowledged);
    cluster.resume().unwrap();
    let back = Instant::now();
    for server in servers {
        let again = Record::nth("written-again", 0);
        while again.write(&server.address, &server.key) != Outcome::Acknowledged {
            sleep(PAUSE);
        }
    }
    let recovery = back.elapsed();
    println!("{how:?}: written again after {} ms", recovery.as_millis());
    assert!(recovery < RECOVERY, "{recovery:?}");
}

#[test]
#[ignore = "needs PostgreSQL: run cargo xtask test"]
fn a_restart_of_postgresql_is_answered_with_503_and_loses_nothing() {
    let (cluster, database) = cluster();
    let first = Server::start(&database);
    let second = Server::serve(&database, &first.key);
    let servers = [first, second];
    let stop = AtomicBool::new(false);
    let mut acknowledged = Vec::new();
    scope(|threads| {
        let (tell, told) = channel();
        for writer in 0..WRITERS {
            let (server, stop, tell) = (&servers[writer % 2], &stop, tell.clone());
            threads.spawn(move || write(server, writer, stop, &tell));
        }
        drop(tell);
        for how in [Stop::Fast, Stop::Immediate] {
            restart(&cluster, how, &servers, &told, &mut acknowledged);
        }
        listen(&told, Outcome::Acknowledged, WRITERS, &mut acknowledged);
        stop.store(true, Ordering::Relaxed);
        acknowledged.extend(
            told.iter().filter(|(_, outcome)| *outcome == Outcome::Acknowledged).map(|(record, _)| record),
        );
    });

    for server in &servers {
        let missing = missing(&acknowledged, server);
        assert!(missing.is_empty(), "of {}: {missing:?}", acknowledged.len());
    }
    sound_entries(&database);
}
