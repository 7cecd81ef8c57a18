//! A receiver of webhooks in another language, and servers that send to it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{Database, ORG, Server, program};

pub(crate) const JSON: &str = "application/json";
const SIGNING_KEY: &str = "a signing key of a test, which is long enough";

/// The maximum time to wait for the next event.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A receiver in Python. Dropping it stops the receiver.
pub(crate) struct Receiver {
    child: Child,
    pub(crate) port: u16,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

/// A line of its log: an attempt at a delivery.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) id: String,
    pub(crate) taken: bool,
    pub(crate) genuine: bool,
    pub(crate) event_type: String,
    pub(crate) artifact: String,
}

impl Receiver {
    pub(crate) fn start(secret: &str, refused: usize) -> Self {
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

    pub(crate) fn attempts(&self) -> Vec<Attempt> {
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

    /// Waits until the received attempts satisfy the condition, as long as more arrive.
    pub(crate) fn until(&self, what: &str, fits: impl Fn(&[Attempt]) -> bool) -> Vec<Attempt> {
        let (mut last, mut came) = (Instant::now(), 0);
        loop {
            let attempts = self.attempts();
            if fits(&attempts) {
                return attempts;
            }
            if attempts.len() > came {
                (last, came) = (Instant::now(), attempts.len());
            }
            assert!(last.elapsed() < PATIENCE, "{what}: {} attempts", attempts.len());
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

/// Starts a server that may send to this machine. With a lease duration, another server takes over after it.
pub(crate) fn serve(database: &Database, key: &str, lease_seconds: Option<u32>) -> Server {
    let mut program = program(&[]);
    program.env("EVIDENCE_WEBHOOK_SECRET", SIGNING_KEY).env("EVIDENCE_NOTIFY_ALLOW", "127.0.0.0/8");
    program.env("EVIDENCE_LOG_FILTER", "error");
    if let Some(seconds) = lease_seconds {
        program.env("EVIDENCE_LEASE_SECONDS", seconds.to_string());
    }
    Server::run(program, database, key)
}

pub(crate) fn secret(database: &Database) -> String {
    let mut command = program(&["notifications", "secret", ORG, "--database-url", &database.url]);
    let output = command.env("EVIDENCE_WEBHOOK_SECRET", SIGNING_KEY).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

pub(crate) fn put(server: &Server, path: &str, body: &str) {
    let (status, text) = server.call("PUT", path, JSON, body);
    assert!(status == 200 || status == 201, "{path}: {text}");
}

pub(crate) fn prepare(server: &Server, port: u16, triggers: &str) {
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

pub(crate) fn fingerprint(number: usize) -> String {
    format!("{number:064x}")
}

/// Reports that exactly these artifacts run.
pub(crate) fn report(server: &Server, running: impl Iterator<Item = usize>) {
    let artifact =
        |number| format!(r#"{{"digests":{{"app":"{}"}},"creationTimestamp":1}}"#, fingerprint(number));
    let artifacts: Vec<String> = running.map(artifact).collect();
    let body = format!(r#"{{"artifacts":[{}]}}"#, artifacts.join(","));
    put(server, &format!("/api/v2/environments/{ORG}/prod/report/docker"), &body);
}

/// Asserts that the start of each artifact was reported with one id. A kill interrupts at most one attempt,
/// which is repeated.
pub(crate) fn assert_each_is_told_once(attempts: Vec<Attempt>, started: usize, kills: usize) {
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    for attempt in attempts {
        assert!(attempt.genuine && attempt.event_type == "STARTED_ARTIFACT", "{attempt:?}");
        ids.entry(attempt.artifact).or_default().insert(attempt.id.clone());
        *taken.entry(attempt.id).or_default() += usize::from(attempt.taken);
    }
    let expected: BTreeSet<String> = (0..started).map(fingerprint).collect();
    assert_eq!(ids.keys().cloned().collect::<BTreeSet<_>>(), expected);
    assert!(ids.values().all(|ids| ids.len() == 1), "an event came under several ids: {ids:?}");
    let repeated: usize = taken.values().map(|times| times - 1).sum();
    assert!(repeated <= kills, "{repeated} repetitions");
}

impl Receiver {
    /// Waits until the start of this many artifacts was received.
    pub(crate) fn until_taken(&self, started: usize) -> Vec<Attempt> {
        self.until("all deliveries", |attempts| {
            let taken = attempts.iter().filter(|attempt| attempt.taken).map(|attempt| &attempt.artifact);
            taken.collect::<BTreeSet<_>>().len() == started
        })
    }
}
