//! A database server restarts while many clients write.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use evidence_test_postgres::{Cluster, Stop};

use crate::support::Server;
use crate::writing::{Record, WRITERS, WriteOutcome, missing};
use crate::{cluster, sound_entries};

/// The time until a write succeeds after the restart: five seconds, and a margin for a busy machine.
const RECOVERY: Duration = Duration::from_secs(30);

/// The pause of a client after a response to try again.
const PAUSE: Duration = Duration::from_millis(50);

type Written = (Record, WriteOutcome);

/// Writes, ignoring failures, until it is told to stop. The server itself stays.
fn write(server: &Server, writer: usize, stop: &AtomicBool, sender: &Sender<Written>) {
    let (mut round, mut number) = (0, 0);
    loop {
        let record = Record::nth(&format!("env-{writer}-{round}"), number);
        let outcome = record.write(&server.address, &server.key);
        assert_ne!(outcome, WriteOutcome::Gone);
        sender.send((record, outcome)).unwrap();
        number += 1;
        if outcome == WriteOutcome::Unavailable {
            // The following records would need one that may not exist.
            (round, number) = (round + 1, 0);
            sleep(PAUSE);
        }
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Collects the outcomes of writers until this many writes have this outcome. Keeps the acknowledged records.
fn listen(outcomes: &Receiver<Written>, wanted: WriteOutcome, times: usize, acknowledged: &mut Vec<Record>) {
    let mut seen = 0;
    for (record, outcome) in outcomes {
        if outcome == WriteOutcome::Acknowledged {
            acknowledged.push(record);
        }
        seen += usize::from(outcome == wanted);
        if seen == times {
            return;
        }
    }
    panic!("the writers ended after {seen} writes that were {wanted:?}");
}

/// Restarts the database server. Every evidence server writes again soon afterwards.
fn restart(
    cluster: &Cluster,
    how: Stop,
    servers: &[Server; 2],
    outcomes: &Receiver<Written>,
    acknowledged: &mut Vec<Record>,
) {
    listen(outcomes, WriteOutcome::Acknowledged, 10 * WRITERS, acknowledged);
    cluster.stop(how).unwrap();
    listen(outcomes, WriteOutcome::Unavailable, 2 * WRITERS, acknowledged);
    cluster.resume().unwrap();
    let back = Instant::now();
    for server in servers {
        let again = Record::nth("written-again", 0);
        while again.write(&server.address, &server.key) != WriteOutcome::Acknowledged {
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
        let (sender, outcomes) = channel();
        for writer in 0..WRITERS {
            let (server, stop, sender) = (&servers[writer % 2], &stop, sender.clone());
            threads.spawn(move || write(server, writer, stop, &sender));
        }
        drop(sender);
        for how in [Stop::Fast, Stop::Immediate] {
            restart(&cluster, how, &servers, &outcomes, &mut acknowledged);
        }
        listen(&outcomes, WriteOutcome::Acknowledged, WRITERS, &mut acknowledged);
        stop.store(true, Ordering::Relaxed);
        acknowledged.extend(
            outcomes
                .iter()
                .filter(|(_, outcome)| *outcome == WriteOutcome::Acknowledged)
                .map(|(record, _)| record),
        );
    });

    for server in &servers {
        let missing = missing(&acknowledged, server);
        assert!(missing.is_empty(), "of {}: {missing:?}", acknowledged.len());
    }
    sound_entries(&database);
}
