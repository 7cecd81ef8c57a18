//! The API under load: an attestation written, an artifact found by its digest, an attestation by its id and the newest 50
//! trails, at 1 to 1,024 connections; and how long reads take at a fixed rate. Client, server and database share the machine.
//!
//! `EVIDENCE_BENCH_STORED` says how many attestations there are, 10,000 unless it does. Words after `--` narrow the figures,
//! as in `-- write sqlite`.

use std::sync::Arc;
use std::time::Duration;

use evidence_benches::{
    Attester, Engine, FLOW, Filter, ORG, Point, Repeater, Request, Result, Round, Row, Server, Stores,
    Worker, attestation, attestation_document, bare, paced, print, round, run, send_all,
};
use evidence_core::digest::sha256_hex;
use serde_json::{Value, json};
use tokio::runtime::Handle;

/// How many clients there are, each with a connection of its own.
const CONNECTIONS: [usize; 5] = [1, 8, 64, 256, 1024];
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_millis(2000);
/// The connections and the rate of the reads that come at a fixed rate.
const PACED: (usize, u32) = (64, 5000);
/// Attestations of a trail.
const PER_TRAIL: usize = 8;
/// The variable that says how many attestations there are.
const STORED: &str = "EVIDENCE_BENCH_STORED";

fn main() -> Result {
    run(|servers| async move {
        let stores = Stores::below(env!("CARGO_TARGET_TMPDIR"))?;
        let filter = Filter::from_arguments();
        let stored: usize = std::env::var(STORED).map_or(Ok(10_000), |count| count.parse())?;
        for engine in stores.engines() {
            let server = Arc::new(Server::start(&servers, &stores, engine, "loads").await?);
            fill(&server, stored).await?;
            let rows = figures(&servers, &server, engine, &filter).await?;
            if !rows.is_empty() {
                println!(
                    "\n{engine}, {stored} attestations stored; the CPU is that of the server + the database."
                );
                print(&rows);
            }
        }
        Ok(())
    })
}

/// Trails with an artifact each, and attestations.
async fn fill(server: &Server, attestations: usize) -> Result {
    let trails = attestations.div_ceil(PER_TRAIL);
    send_all(server.address, vec![server.flow(None)]).await?;
    let artifact = |number: usize| {
        let body = json!({
            "trail_name": trail(number), "fingerprint": fingerprint(number), "git_commit": &fingerprint(number)[..40],
            "filename": format!("registry.example.com/api:{number}"),
            "build_url": "https://ci.example.com/runs/1", "commit_url": "https://git.example.com/1",
        });
        server.json("POST", &format!("/artifacts/{ORG}/{FLOW}"), &body)
    };
    send_all(server.address, (0..trails).map(artifact).collect()).await?;
    let attested =
        |number: usize| attestation(server, ORG, &trail(number / PER_TRAIL), &attestation_document("test"));
    send_all(server.address, (0..attestations).map(attested).collect()).await
}

fn trail(number: usize) -> String {
    format!("build-{number}")
}

fn fingerprint(number: usize) -> String {
    sha256_hex(&number.to_be_bytes())
}

async fn figures(
    servers: &Handle,
    server: &Arc<Server>,
    engine: Engine,
    filter: &Filter,
) -> Result<Vec<Row>> {
    let by_id = attestation_by_id(server).await?;
    let by_digest = server.get(&format!("/artifacts/{ORG}/{FLOW}/fingerprint/{}", fingerprint(7)));
    let newest = server.get(&format!("/trails/{ORG}?per_page=50"));
    let mut rows = Vec::new();
    let wants = |what: &str| filter.wants(&format!("{what} {engine}"));
    for (what, request) in [
        ("an artifact by its digest", &by_digest),
        ("an attestation by its id", &by_id),
        ("the newest 50 trails", &newest),
    ] {
        if wants(what) {
            for connections in CONNECTIONS {
                let readers = Repeater::several(server.address, request, 200, connections).await?;
                rows.push(row(what, engine, connections, measured(readers).await?));
            }
        }
    }
    if wants("nothing but HTTP") {
        let answer = server.client().await?.send(&by_id).await?;
        let probe = bare(servers, answer.body.into()).await?;
        for connections in CONNECTIONS {
            let readers = Repeater::several(probe, &by_id, 200, connections).await?;
            rows.push(row("nothing but HTTP", engine, connections, measured(readers).await?));
        }
    }
    let what = format!("an artifact by its digest, {} reads a second", PACED.1);
    if wants(&what) {
        let readers = Repeater::several(server.address, &by_digest, 200, PACED.0).await?;
        let (_, came) = paced(readers, PACED.1, ROUND * 3).await?;
        let figure = came.to_string();
        rows.push(Row::new(format!("{engine}, {what}"), figure, "p99 ≤ 5 ms", came.p99 <= 5.0));
    }
    let what = "write an attestation";
    if wants(what) {
        for connections in CONNECTIONS {
            let writers = Attester::several(server, &[ORG.to_owned()], connections).await?;
            rows.push(row(what, engine, connections, measured(writers).await?));
        }
    }
    Ok(rows)
}

/// A request for one attestation.
async fn attestation_by_id(server: &Server) -> Result<Request> {
    let list = server.get(&format!("/attestations/{ORG}/{FLOW}/trail/{}/test", trail(3)));
    let list: Value = serde_json::from_slice(&server.client().await?.send(&list).await?.body)?;
    let id = list[0]["attestation_id"].as_str().ok_or("there is no attestation")?;
    Ok(server.get(&format!("/attestations/{ORG}?attestation_id={id}")))
}

/// The medians of some rounds, after one that does not count.
async fn measured<W: Worker>(workers: Vec<W>) -> Result<Round> {
    let (mut workers, _) = round(workers, ROUND / 4).await?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (again, came) = round(workers, ROUND).await?;
        workers = again;
        rounds.push(came);
    }
    Ok(Round::medians(&rounds))
}

fn row(what: &str, engine: Engine, connections: usize, came: Round) -> Row {
    let figure = format!("{came}, the clients' {:.0} µs", came.client_micros);
    let line = if what == "nothing but HTTP" { "bare hyper".to_owned() } else { engine.to_string() };
    #[expect(clippy::cast_precision_loss, reason = "so many connections are far below 2^53")]
    let x = connections as f64;
    let plot = what.to_owned();
    let point = Some(Point { plot, line, x, y: came.per_second });
    let what = format!("{engine}, {what}, {connections} connections");
    Row { point, ..Row::orientation(what, figure) }
}
