//! Webhooks as their receivers see them, who are written in another language: each event comes, signed, under one id,
//! whatever becomes of the server meanwhile.
#![cfg(unix)]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use support::{Database, ORG, Server, program};

const JSON: &str = "application/json";
const SIGNING_KEY: &str = "a signing key of a test, which is long enough";

/// How long is waited for what has to come.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often the server is killed, unless `EVIDENCE_TEST_KILLS` says otherwise.
const KILLS: usize = 10;

/// Artifacts that start between two kills.
const STARTED: usize = 12;

/// A receiver in Python; stopped when it is dropped.
struct Receiver {
    child: Child,
    port: u16,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

/// A line of its log: an attempt at a delivery.
#[derive(Debug, Clone)]
struct Attempt {
    id: String,
    taken: bool,
    genuine: bool,
    event_type: String,
    artifact: String,
}

impl Receiver {
    fn start(secret: &str, refused: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("received");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/receiver.py");
        let mut command = Command::new("python3");
        command.arg(script).arg(secret).arg(&log).arg(refused.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().expect("python3 is needed");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim_end().parse().unwrap(), log, _directory: directory }
    }

    fn attempts(&self) -> Vec<Attempt> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let attempt = |line: &str| {
            let [id, taken, genuine, event_type, artifact] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            Attempt {
                id: id.to_owned(),
                taken: taken == "taken",
                genuine: genuine == "genuine",
                event_type: event_type.to_owned(),
                artifact: artifact.to_owned(),
            }
        };
        whole.lines().map(attempt).collect()
    }

    /// Waits until what was received fits.
    fn until(&self, what: &str, fits: impl Fn(&[Attempt]) -> bool) -> Vec<Attempt> {
        let begun = Instant::now();
        loop {
            let attempts = self.attempts();
            if fits(&attempts) {
                return attempts;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: {} attempts", attempts.len());
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server, which may send to this machine, and is followed by another within three seconds.
fn serve(database: &Database, key: &str) -> Server {
    let mut program = program(&[]);
    program.env("EVIDENCE_WEBHOOK_SECRET", SIGNING_KEY).env("EVIDENCE_NOTIFY_ALLOW", "127.0.0.0/8");
    program.env("EVIDENCE_LEASE_SECONDS", "3").env("EVIDENCE_LOG_FILTER", "error");
    Server::run(program, database, key)
}

fn secret(database: &Database) -> String {
    let mut command = program(&["notifications", "secret", ORG, "--database-url", &database.url]);
    let output = command.env("EVIDENCE_WEBHOOK_SECRET", SIGNING_KEY).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

fn put(server: &Server, path: &str, body: &str) {
    let (status, text) = server.ask("PUT", path, JSON, body);
    assert!(status == 200 || status == 201, "{path}: {text}");
}

fn prepare(server: &Server, port: u16, triggers: &str) {
    put(
        server,
        &format!("/api/v2/environments/{ORG}"),
        r#"{"name":"prod","type":"docker","description":""}"#,
    );
    let action = format!(
        r#"{{"name":"a","environments":["prod"],"triggers":[{triggers}],
            "targets":[{{"type":"WEBHOOK","webhook":"http://127.0.0.1:{port}/hook"}}]}}"#
    );
    put(server, &format!("/api/v2/actions/{ORG}/environments"), &action);
}

fn fingerprint(number: usize) -> String {
    format!("{number:064x}")
}

/// Reports that these run, and no other.
fn report(server: &Server, running: impl Iterator<Item = usize>) {
    let artifact =
        |number| format!(r#"{{"digests":{{"app":"{}"}},"creationTimestamp":1}}"#, fingerprint(number));
    let artifacts: Vec<String> = running.map(artifact).collect();
    let body = format!(r#"{{"artifacts":[{}]}}"#, artifacts.join(","));
    put(server, &format!("/api/v2/environments/{ORG}/prod/report/docker"), &body);
}

#[test]
fn every_event_comes_under_one_id_however_often_the_server_is_killed() {
    let kills = std::env::var("EVIDENCE_TEST_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let database = Database::default();
    let key = Server::start(&database).key.clone();
    let receiver = Receiver::start(&secret(&database), 1);
    let mut server = serve(&database, &key);
    prepare(&server, receiver.port, r#""ON_STARTED_ARTIFACT""#);
    let mut started = 0;
    for round in 0..kills {
        started += STARTED;
        report(&server, 0..started);
        let before = receiver.attempts().len();
        // Some of them are on the way when it is killed: another number of them in each round.
        receiver.until("deliveries of a round", |attempts| attempts.len() > before + round % STARTED / 2);
        server.child.kill().unwrap();
        server.child.wait().unwrap();
        server = serve(&database, &key);
    }
    let all = receiver.until("all deliveries", |attempts| {
        let taken = attempts.iter().filter(|attempt| attempt.taken).map(|attempt| &attempt.artifact);
        taken.collect::<BTreeSet<_>>().len() == started
    });
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    for attempt in all {
        assert!(attempt.genuine && attempt.event_type == "STARTED_ARTIFACT", "{attempt:?}");
        ids.entry(attempt.artifact).or_default().insert(attempt.id.clone());
        *taken.entry(attempt.id).or_default() += usize::from(attempt.taken);
    }
    let expected: BTreeSet<String> = (0..started).map(fingerprint).collect();
    assert_eq!(ids.keys().cloned().collect::<BTreeSet<_>>(), expected);
    assert!(ids.values().all(|ids| ids.len() == 1), "an event came under several ids: {ids:?}");
    // Each kill cuts off one attempt at most, which is made again.
    let repeated: usize = taken.values().map(|times| times - 1).sum();
    assert!(repeated <= kills, "{repeated} repetitions");
}

#[test]
fn a_target_that_fails_is_shown_and_holds_up_no_other_and_can_be_told_again() {
    let database = Database::default();
    let key = Server::start(&database).key.clone();
    let receiver = Receiver::start(&secret(&database), 0);
    let server = serve(&database, &key);
    let triggers = r#""ON_STARTED_ARTIFACT","ON_EXITED_ARTIFACT""#;
    prepare(&server, receiver.port, triggers);
    // Nobody listens there.
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
    let shown = |number: usize| server.ask("GET", &format!("/api/v2/actions/{ORG}/{number}"), JSON, "").1;
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
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "1 targets are told again\n");
    let again = receiver.until("all of it again", |attempts| attempts.len() == 10);
    let ids = |attempts: &[Attempt]| attempts.iter().map(|attempt| attempt.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&again[5..]), ids(&first));
}
