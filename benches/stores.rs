//! A store in its file: how long the server takes from its start until it is ready, on an empty store and on one with
//! many attestations (P8).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use evidence_benches::{Client, ORG, Outcome, Request, Row, attestation_document, evidence, print, times};
use evidence_core::attestations::{Attestation, Binding};
use evidence_core::auth::{Actor, ActorKind};
use evidence_core::id::{Id, SystemRandom};
use evidence_core::orgs::OrgStore;
use evidence_core::store::Recorder;
use evidence_core::time::{Clock, SystemClock};
use evidence_core::{Fact, Write};
use evidence_store_sqlite::SqliteStore;
use serde_json::json;

/// The variable that names the server's program; `cargo xtask bench` sets it.
const PROGRAM: &str = "EVIDENCE_BENCH_SERVER";
/// The variable that says how many attestations the full store has.
const ATTESTATIONS: &str = "EVIDENCE_BENCH_ATTESTATIONS";
/// How many facts a write of the filling has.
const BATCH: usize = 4096;

#[tokio::main]
async fn main() -> Outcome {
    let Some(program) = std::env::var_os(PROGRAM).map(PathBuf::from) else {
        println!("P8 is left out: {PROGRAM} names no server");
        return Ok(());
    };
    let count: usize = std::env::var(ATTESTATIONS).map_or(Ok(1_000_000), |count| count.parse())?;
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let (empty, full) = (directory.path().join("empty.db"), directory.path().join("full.db"));
    SqliteStore::open(&empty).await?.close().await;
    let begun = Instant::now();
    fill(&full, count).await?;
    let filled = begun.elapsed().as_secs_f64();

    let probe = times(15, async |_| process("true".as_ref())).await?;
    let empty = times(9, async |_| until_ready(&program, &empty).await).await?;
    let full = times(9, async |_| until_ready(&program, &full).await).await?;
    let figure = |millis: f64| format!("{millis:.0} ms");
    let ratio = |millis: f64| Some(millis / probe);
    let on_empty = Row::new("P8 start to ready, empty store", figure(empty), "< 200 ms", empty < 200.0);
    let on_full =
        Row::new(format!("P8 start to ready, {count} attestations"), figure(full), "< 1 s", full < 1000.0);
    print(&[
        Row::orientation("P8 probe: a process that does nothing", format!("{probe:.1} ms")),
        Row { ratio: ratio(empty), ..on_empty },
        Row { ratio: ratio(full), ..on_full },
        Row::orientation(
            "P8 filling that store, one writer",
            format!("{filled:.0} s, {:.0}/s", rate(count, filled)),
        ),
    ]);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
fn rate(count: usize, seconds: f64) -> f64 {
    count as f64 / seconds
}

/// Fills a fresh store with attestations, eight to a trail, many to a write.
async fn fill(file: &Path, count: usize) -> Outcome {
    let store = Arc::new(SqliteStore::open(file).await?);
    evidence(Arc::clone(&store) as _).await?;
    let jane = store.user("jane").await?.ok_or("no user")?;
    let by = Actor { id: jane.id, name: jane.name.to_string(), kind: ActorKind::User };
    let org = store.standing(ORG, jane.id).await?.ok_or("no organization")?.organization.id;
    let mut record = attestation(&by)?;
    let numbers: Vec<usize> = (0..count).collect();
    for numbers in numbers.chunks(BATCH) {
        let mut facts = Vec::with_capacity(numbers.len());
        for number in numbers {
            record.id = new_id();
            if number % 8 == 0 {
                record.trail = new_id();
            }
            facts.push(Fact::AttestationAdded { record: record.clone() });
        }
        let write =
            Write { org, by: by.clone(), at: record.created_at, facts, guards: vec![], secrets: vec![] };
        store.record(write).await?;
    }
    store.close().await;
    Ok(())
}

fn new_id() -> Id {
    Id::new(SystemClock.now(), &SystemRandom)
}

fn attestation(by: &Actor) -> Outcome<Attestation> {
    Ok(Attestation {
        id: new_id(),
        flow: new_id(),
        trail: new_id(),
        name: "test".parse()?,
        kind: "generic".to_owned(),
        is_compliant: true,
        binding: Binding::Trail,
        description: None,
        origin_url: String::new(),
        git_commit_info: None,
        repo_info: None,
        repo: None,
        external_urls: None,
        annotations: None,
        user_data: serde_json::from_str(&attestation_document("test"))?,
        details: json!({}),
        attachments: Vec::new(),
        evidence: None,
        created_at: SystemClock.now(),
        created_by: by.clone(),
    })
}

/// Starts a process and waits for its end.
fn process(program: &Path) -> Outcome {
    if Command::new(program).status()?.success() { Ok(()) } else { Err("a process failed".into()) }
}

/// Starts the server on this store, waits until it says that it is ready, and ends it.
async fn until_ready(program: &Path, file: &Path) -> Outcome {
    let mut server = Command::new(program)
        .args(["serve", "--listen", "127.0.0.1:0", "--database-url"])
        .arg(format!("sqlite://{}", file.display()))
        .env("EVIDENCE_LOG_FILTER", "warn")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(server.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let address = line.trim_end().strip_prefix("Listening on http://").ok_or("no address")?.parse()?;
    Client::connect(address).await?.send(&Request::plain("/ready")).await?;
    server.kill()?;
    server.wait()?;
    Ok(())
}
