//! The API under load, at 1 to 1,024 connections: writing an attestation, reading an artifact by its digest,
//! an attestation by its id, and the newest 50 trails. Also latencies of reads at a fixed rate. Client,
//! server and database share the machine.
//!
//! In most rows nobody writes while others read, so that the service responds from its cache. In rows beside
//! writes, each write invalidates the organization's responses and changes the newest trails. "Uncached"
//! requests have an unknown query parameter with a unique value.
//!
//! `EVIDENCE_BENCH_STORED` is the number of attestations, 10,000 by default. Words after `--` select rows,
//! such as `-- write sqlite`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use evidence_benches::{
    Attester, Client, Engine, FLOW, Filter, ORG, Point, Repeater, Result, Round, Row, Server, Stores, Worker,
    attestation, attestation_document, bare, paced, print, round, run, send_all,
};
use evidence_core::digest::sha256_hex;
use serde_json::{Value, json};
use tokio::runtime::Handle;

/// The numbers of clients. Each has its own connection.
const CONNECTIONS: [usize; 5] = [1, 8, 64, 256, 1024];
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_millis(2000);
const WARM_UP: Duration = Duration::from_millis(500);
/// The numbers of clients of uncached requests.
const UNCACHED: [usize; 3] = [1, 8, 64];
/// The connections and the rate of reads at a fixed rate.
const PACED: (usize, u32) = (64, 5000);
/// The connections of the reads beside writes, and the number of attestations per second.
const BESIDE_WRITES: (usize, u32) = (64, 50);
/// The number of attestations per trail.
const PER_TRAIL: usize = 8;
/// The variable with the number of attestations.
const STORED: &str = "EVIDENCE_BENCH_STORED";

fn main() -> Result {
    run(|servers| async move {
        let stores = Stores::below(env!("CARGO_TARGET_TMPDIR"))?;
        let filter = Filter::from_arguments();
        let stored: usize = std::env::var(STORED).map_or(Ok(10_000), |count| count.parse())?;
        for engine in stores.engines() {
            let server = Arc::new(Server::start(&servers, &stores, engine, "loads").await?);
            fill(&server, stored).await?;
            let trails = stored.div_ceil(PER_TRAIL).max(1);
            let rows = figures(&servers, &server, trails, engine, &filter).await?;
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

/// Creates trails with an artifact each, and attestations.
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
    trails: usize,
    engine: Engine,
    filter: &Filter,
) -> Result<Vec<Row>> {
    let by_id = attestation_by_id(server).await?;
    let by_digest = format!("/artifacts/{ORG}/{FLOW}/fingerprint/{}?", fingerprint(7));
    let newest_trails = format!("/trails/{ORG}?per_page=50");
    let newest_artifacts = format!("/artifacts/{ORG}?per_page=50");
    let mut rows = Vec::new();
    let wants = |what: &str| filter.wants(&format!("{what} {engine}"));
    for (what, path) in [
        ("an artifact by its digest", &by_digest),
        ("an attestation by its id", &by_id),
        ("the newest 50 trails", &newest_trails),
        ("the newest 50 artifacts", &newest_artifacts),
    ] {
        let cached = format!("{what}, cached");
        if wants(&cached) {
            for connections in CONNECTIONS {
                let readers = Repeater::several(server.address, &server.get(path), 200, connections).await?;
                rows.push(row(&cached, engine, connections, measured(readers).await?));
            }
        }
        let (connections, writes) = BESIDE_WRITES;
        let beside = format!("{what}, beside {writes} writes a second");
        if wants(&beside) {
            let readers = Repeater::several(server.address, &server.get(path), 200, connections).await?;
            let writers = AboutNewest::several(server, trails).await?;
            let took = WARM_UP + ROUND * u32::try_from(ROUNDS)?;
            let (came, written) = tokio::try_join!(measured(readers), paced(writers, writes, took))?;
            let row = row(&beside, engine, connections, came);
            let figure = format!("{}, {:.0} writes/s", row.figure, written.1.per_second);
            rows.push(Row { figure, point: None, ..row });
        }
        let what = format!("{what}, uncached");
        if wants(&what) {
            for connections in UNCACHED {
                let readers = Distinct::several(server, path, connections).await?;
                rows.push(row(&what, engine, connections, measured(readers).await?));
            }
        }
    }
    if wants("nothing but HTTP") {
        let request = server.get(&by_id);
        let answer = server.client().await?.send(&request).await?;
        let probe = bare(servers, answer.body.into()).await?;
        for connections in CONNECTIONS {
            let readers = Repeater::several(probe, &request, 200, connections).await?;
            rows.push(row("nothing but HTTP", engine, connections, measured(readers).await?));
        }
    }
    let what = format!("an artifact by its digest, cached, {} reads a second", PACED.1);
    if wants(&what) {
        let readers = Repeater::several(server.address, &server.get(&by_digest), 200, PACED.0).await?;
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

/// A client whose requests each have a unique parameter, so that no response is cached.
struct Distinct {
    server: Arc<Server>,
    client: Client,
    path: String,
    /// Its number, and the number of its last request.
    number: (usize, u64),
}

impl Distinct {
    /// Creates clients of this kind. The path already has a query.
    async fn several(server: &Arc<Server>, path: &str, clients: usize) -> Result<Vec<Self>> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let mut all = Vec::new();
        for _ in 0..clients {
            let (server, client) = (Arc::clone(server), server.client().await?);
            let number = (MADE.fetch_add(1, Ordering::Relaxed), 0);
            all.push(Self { server, client, path: path.to_owned(), number });
        }
        Ok(all)
    }
}

impl Worker for Distinct {
    async fn work(&mut self) -> Result {
        let (client, request) = &mut self.number;
        *request += 1;
        let request = self.server.get(&format!("{}&unread={client}-{request}", self.path));
        match self.client.execute(&request).await?.status {
            200 => Ok(()),
            status => Err(format!("status {status}, not 200").into()),
        }
    }
}

/// A client that attests to the newest 50 trails in turn, so that lists of them change.
struct AboutNewest {
    server: Arc<Server>,
    client: Client,
    trails: usize,
    turn: usize,
}

impl AboutNewest {
    /// Creates several clients, because one write may take long.
    async fn several(server: &Arc<Server>, trails: usize) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for turn in 0..8 {
            let (server, client) = (Arc::clone(server), server.client().await?);
            all.push(Self { server, client, trails, turn });
        }
        Ok(all)
    }
}

impl Worker for AboutNewest {
    async fn work(&mut self) -> Result {
        let newest = trail(self.trails - 1 - self.turn % self.trails.min(50));
        self.turn += 1;
        let request = attestation(&self.server, ORG, &newest, &attestation_document("test"));
        self.client.send(&request).await.map(drop)
    }
}

/// Returns the path of one attestation.
async fn attestation_by_id(server: &Server) -> Result<String> {
    let list = server.get(&format!("/attestations/{ORG}/{FLOW}/trail/{}/test", trail(3)));
    let list: Value = serde_json::from_slice(&server.client().await?.send(&list).await?.body)?;
    let id = list[0]["attestation_id"].as_str().ok_or("there is no attestation")?;
    Ok(format!("/attestations/{ORG}?attestation_id={id}"))
}

/// Returns the medians of some rounds, after a warm-up round.
async fn measured<W: Worker>(workers: Vec<W>) -> Result<Round> {
    let (mut workers, _) = round(workers, WARM_UP).await?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let (again, came) = round(workers, ROUND).await?;
        workers = again;
        rounds.push(came);
    }
    Ok(Round::medians(&rounds))
}

/// The targets by number of connections, each with the figure that it refers to. Some are figures of others,
/// measured once on a machine like that of `README.md` (two shared cores, also for client and database).
/// Others are of this service before an optimization. On another machine they say little. Cached, uncached
/// and concurrent reads have the same targets.
const TO_REACH: [(&str, Engine, usize, f64, f64, &str); 9] = [
    ("an artifact by its digest", Engine::Postgres, 64, 5.0, 1518.0, "Archivista 9ff5e11"),
    ("an attestation by its id", Engine::Postgres, 64, 0.5, 29129.0, "a file, without database and rights"),
    ("an attestation by its id", Engine::Sqlite, 64, 1.0, 29129.0, "a file, without database and rights"),
    ("the newest 50 trails", Engine::Postgres, 64, 2.0, 1668.0, "Archivista's ids and types alone"),
    ("the newest 50 artifacts", Engine::Postgres, 64, 4.0, 366.0, "before"),
    ("the newest 50 artifacts", Engine::Sqlite, 64, 4.0, 806.0, "before"),
    ("write an attestation", Engine::Postgres, 8, 4.0, 1386.0, "Archivista 9ff5e11"),
    ("write an attestation", Engine::Postgres, 64, 10.0, 1282.0, "Archivista 9ff5e11"),
    ("write an attestation", Engine::Sqlite, 1024, 1.2, 11938.0, "Tessera 1.0.4, raw bytes"),
];

fn row(what: &str, engine: Engine, connections: usize, came: Round) -> Row {
    let figure = format!("{came}, the clients' {:.0} µs", came.client_micros);
    let line = if what == "nothing but HTTP" { "bare hyper".to_owned() } else { engine.to_string() };
    #[expect(clippy::cast_precision_loss, reason = "so many connections are far below 2^53")]
    let x = connections as f64;
    let plot = what.to_owned();
    let point = Some(Point { plot, line, x, y: came.per_second });
    let measured = what;
    let what = format!("{engine}, {what}, {connections} connections");
    let to_reach = TO_REACH
        .iter()
        .find(|(of, on, with, ..)| measured.starts_with(of) && (*on, *with) == (engine, connections));
    let row = match to_reach {
        Some((.., times, of, whose)) => {
            let ratio = came.per_second / of;
            let target = format!("≥ {times} × {of:.0}/s ({whose})");
            Row { ratio: Some(ratio), ..Row::new(what, figure, target, ratio >= *times) }
        }
        None => Row::orientation(what, figure),
    };
    Row { point, ..row }
}
