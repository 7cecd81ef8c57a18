//! Webhooks, as seen by a receiver in another language: each event arrives signed and with one id, even if
//! the server is killed meanwhile.
#![cfg(unix)]

#[path = "support/receiving.rs"]
mod receiving;
mod support;

use std::thread::sleep;
use std::time::{Duration, Instant};

use receiving::{
    Attempt, JSON, PATIENCE, Receiver, assert_each_is_told_once, prepare, put, report, secret, serve,
};
use support::{Database, ORG, Server, program};

/// Another server takes over within three seconds.
const LEASE: Option<u32> = Some(3);

/// The number of kills, unless `EVIDENCE_TEST_KILLS` sets another.
const KILLS: usize = 10;

/// The number of artifacts that start between two kills.
const STARTED: usize = 12;

#[test]
fn every_event_comes_under_one_id_however_often_the_server_is_killed() {
    let kills = std::env::var("EVIDENCE_TEST_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let database = Database::default();
    let key = Server::start(&database).key.clone();
    let receiver = Receiver::start(&secret(&database), 1);
    let mut server = serve(&database, &key, LEASE);
    prepare(&server, receiver.port, r#""ON_STARTED_ARTIFACT""#);
    let mut started = 0;
    for round in 0..kills {
        started += STARTED;
        report(&server, 0..started);
        let before = receiver.attempts().len();
        // Some deliveries are under way when the server is killed, a different number in each round.
        receiver.until("deliveries of a round", |attempts| attempts.len() > before + round % STARTED / 2);
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        server = serve(&database, &key, LEASE);
    }
    assert_each_is_told_once(receiver.until_taken(started), started, kills);
}

#[test]
fn a_target_that_fails_is_shown_and_holds_up_no_other_and_can_be_told_again() {
    let database = Database::default();
    let key = Server::start(&database).key.clone();
    let receiver = Receiver::start(&secret(&database), 0);
    let server = serve(&database, &key, LEASE);
    let triggers = r#""ON_STARTED_ARTIFACT","ON_EXITED_ARTIFACT""#;
    prepare(&server, receiver.port, triggers);
    // Nothing listens at this address.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = format!(
        r#"{{"name":"dead","environments":["prod"],"triggers":[{triggers}],
            "targets":[{{"webhook":"http://{closed}/"}}]}}"#
    );
    put(&server, &format!("/api/v2/actions/{ORG}/environments"), &dead);
    report(&server, 0..3);
    report(&server, 1..4);
    let first = receiver.until("five events", |attempts| attempts.len() == 5);
    let types: Vec<&str> = first.iter().map(|attempt| attempt.event_type.as_str()).collect();
    assert_eq!(
        types,
        ["STARTED_ARTIFACT"; 3]
            .iter()
            .chain(&["STARTED_ARTIFACT", "EXITED_ARTIFACT"])
            .copied()
            .collect::<Vec<_>>()
    );
    let shown = |number: usize| server.call("GET", &format!("/api/v2/actions/{ORG}/{number}"), JSON, "").1;
    let begun = Instant::now();
    while !shown(2).contains(r#""is_failing":true"#) {
        assert!(begun.elapsed() < PATIENCE, "{}", shown(2));
        sleep(Duration::from_millis(50));
    }
    assert!(
        shown(1).contains(r#""is_failing":false"#) && !shown(1).contains(r#""last_success_timestamp":null"#)
    );
    assert!(shown(2).contains(r#""last_success_timestamp":null"#), "{}", shown(2));
    let replay = ["notifications", "replay", ORG, "1", "--since", "0", "--database-url", &database.url];
    let output = program(&replay).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1 targets receive the events again\n");
    let again = receiver.until("all of it again", |attempts| attempts.len() == 10);
    let ids = |attempts: &[Attempt]| attempts.iter().map(|attempt| attempt.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&again[5..]), ids(&first));
}
