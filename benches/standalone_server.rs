//! The standalone server as a process: its start-up time with an empty store and with many attestations (P8),
//! its memory (P9), and the size of the program (P10).

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use evidence_benches::{
    Client, Engine, FLOW, ORG, Process, Request, Result, Row, Stores, attestation_document, evidence, form,
    median_ms, member, new_id, print, run,
};
use evidence_core::attestations::{Attestation, Binding, Details};
use evidence_core::auth::Actor;
use evidence_core::id::SystemRandom;
use evidence_core::time::{Clock, SystemClock};
use evidence_core::{Fact, Write};

/// The variable with the number of attestations in the full store.
const ATTESTATIONS: &str = "EVIDENCE_BENCH_ATTESTATIONS";
/// The number of facts per write when filling.
const BATCH: usize = 4096;

fn main() -> Result {
    if Process::program().is_none() {
        println!("P8 to P10 are left out: EVIDENCE_BENCH_SERVER names no server");
        return Ok(());
    }
    run(|_| async move {
        let stores = Stores::below(env!("CARGO_TARGET_TMPDIR"))?;
        let probe = median_ms(15, async |_| process("true".as_ref())).await?;
        let mut rows = vec![
            binary(&stores)?,
            Row::orientation("P8 probe: a process that does nothing", format!("{probe:.1} ms")),
        ];
        for engine in stores.engines() {
            rows.extend(starts(&stores, engine, probe).await?);
            rows.extend(memory(&stores, engine).await?);
        }
        print(&rows);
        Ok(())
    })
}

/// P10: the size of the program without debug symbols.
fn binary(stores: &Stores) -> Result<Row> {
    let stripped = stores.path("stripped");
    let program = Process::program().ok_or("no server")?;
    process_of(Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
    let bytes = std::fs::metadata(stripped)?.len();
    let figure = format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10);
    Ok(Row::new("P10 the server's program, stripped", figure, "< 30 MB", bytes < 30_000_000))
}

/// P8: the time until the server is ready.
async fn starts(stores: &Stores, engine: Engine, probe: f64) -> Result<Vec<Row>> {
    let count: usize = std::env::var(ATTESTATIONS).map_or(Ok(1_000_000), |count| count.parse())?;
    stores.open(engine, "empty").await?.close().await;
    let begun = Instant::now();
    fill(stores, engine, count).await?;
    let filled = begun.elapsed().as_secs_f64();
    let start =
        async |name: &str| median_ms(9, async |_| Process::start(stores, engine, name).await.map(drop)).await;
    let (empty, full) = (start("empty").await?, start("filled").await?);
    let figure = |millis: f64| format!("{millis:.0} ms");
    let ratio = |millis: f64| Some(millis / probe);
    let on_empty = format!("P8 {engine}, start to ready, empty store");
    let on_full = format!("P8 {engine}, start to ready, {count} attestations");
    Ok(vec![
        Row { ratio: ratio(empty), ..Row::new(on_empty, figure(empty), "< 200 ms", empty < 200.0) },
        Row { ratio: ratio(full), ..Row::new(on_full, figure(full), "< 1 s", full < 1000.0) },
        Row::orientation(
            format!("P8 {engine}, filling that store, one writer"),
            format!("{filled:.0} s, {:.0}/s", rate(count, filled)),
        ),
    ])
}

/// P9: the memory of a server after its start, and the growth during ten uploads of 10 MB.
async fn memory(stores: &Stores, engine: Engine) -> Result<Vec<Row>> {
    let (_, key) = {
        let opened = stores.open(engine, "files").await?;
        let seeded = evidence(opened.store()).await?;
        opened.close().await;
        seeded
    };
    let server = Process::start(stores, engine, "files").await?;
    let (idle, _) = server.memory()?;
    let mut client = Client::connect(server.address).await?;
    let mut upload = async |number: usize, size: usize| {
        let file = "0123456789abcde\n".repeat(size / 16) + &number.to_string();
        let document = attestation_document("test");
        let parts = [
            ("name=\"data_json\"", document.as_str()),
            ("name=\"attachment_file\"; filename=\"log.txt\"", &file),
        ];
        let (media_type, body) = form(&parts);
        let path = format!("/attestations/{ORG}/{FLOW}/trail/t/generic");
        let request = Request::new("POST", &path, key.reveal(), (&media_type, &body));
        client.send(&request).await.map(drop)
    };
    // Excludes the memory for the first request.
    upload(0, 16).await?;
    let (_, before) = server.memory()?;
    for number in 1..=10 {
        upload(number, 10_000_000).await?;
    }
    let (_, after) = server.memory()?;
    let growth = after - before;
    Ok(vec![
        Row::new(format!("P9 {engine}, memory, idle"), format!("{idle:.1} MiB"), "< 40 MiB", idle < 40.0),
        Row::new(
            format!("P9 {engine}, growth by uploads of 10 MB"),
            format!("{growth:.1} MiB"),
            "< 2 MiB",
            growth < 2.0,
        ),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
fn rate(count: usize, seconds: f64) -> f64 {
    count as f64 / seconds
}

/// Fills a new store with attestations: eight per trail, many per write.
async fn fill(stores: &Stores, engine: Engine, count: usize) -> Result {
    let opened = stores.open(engine, "filled").await?;
    let store = opened.store();
    evidence(opened.store()).await?;
    let (by, org) = member(&*store).await?;
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
        let write = Write::new(org, by.clone(), record.created_at, facts, &SystemRandom);
        store.record(write).await?;
    }
    opened.close().await;
    Ok(())
}

fn attestation(by: &Actor) -> Result<Attestation> {
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
        details: Details::Generic,
        data: None,
        attachments: Vec::new(),
        evidence: None,
        created_at: SystemClock.now(),
        created_by: by.clone(),
    })
}

/// Starts a process and waits for its end.
fn process(program: &Path) -> Result {
    process_of(&mut Command::new(program))
}

fn process_of(command: &mut Command) -> Result {
    if command.status()?.success() { Ok(()) } else { Err("a process failed".into()) }
}
