//! Reads as a store grows (P4): an artifact by its fingerprint, and the first and the last page of trails, artifacts and
//! snapshots. `EVIDENCE_BENCH_GROWTH` names the sizes, as in `10000,100000,1000000`; the usual ones leave the last out,
//! which takes a quarter of an hour to fill.

use std::ops::Range;

use evidence_benches::{
    Engine, FLOW, ORG, Outcome, Request, Row, Server, Stores, form, percentile, print, run, send_all,
};
use evidence_core::digest::sha256_hex;
use serde_json::json;

const SIZES: &str = "EVIDENCE_BENCH_GROWTH";
const USUAL: &str = "10000,100000";
const READS: usize = 200;
/// There is one snapshot to so many artifacts: each needs the one before.
const PER_SNAPSHOT: usize = 20;
const ENVIRONMENT: &str = "production";

fn main() -> Outcome {
    run(|servers| async move {
        let sizes = std::env::var(SIZES).unwrap_or_else(|_| USUAL.to_owned());
        let sizes = sizes.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        let stores = Stores::below(env!("CARGO_TARGET_TMPDIR"))?;
        for engine in stores.engines() {
            let server = Server::start(&servers, &stores, engine, "growing").await?;
            print(&grown(&server, engine, &sizes).await?);
        }
        Ok(())
    })
}

/// The 99th percentiles of every read at each size, and their growth.
async fn grown(server: &Server, engine: Engine, sizes: &[usize]) -> Outcome<Vec<Row>> {
    prepare(server).await?;
    let mut done = 0;
    let mut columns: Vec<Vec<f64>> = Vec::new();
    for &size in sizes {
        fill(server, done..size).await?;
        done = size;
        columns.push(measured(server, size).await?);
    }
    let names = reads(server, 1).into_iter().map(|(name, _)| name);
    Ok(names
        .enumerate()
        .map(|(number, name)| {
            let at = |column: &Vec<f64>| column.get(number).copied().unwrap_or_default();
            let figures: Vec<f64> = columns.iter().map(at).collect();
            let ratio = figures.last().zip(figures.first()).map_or(0.0, |(last, first)| last / first);
            let figures: Vec<String> = figures.iter().map(|millis| format!("{millis:.1}")).collect();
            let figure = format!("p99 {} ms at {sizes:?}", figures.join(", "));
            Row {
                ratio: Some(ratio),
                ..Row::new(format!("P4 {engine}, {name}"), figure, "≤ 2", ratio <= 2.0)
            }
        })
        .collect())
}

fn reads(server: &Server, size: usize) -> Vec<(&'static str, Request)> {
    let get = |path: String| server.get(&path);
    let last = |per_page: usize, rows: usize| rows.div_ceil(per_page).max(1);
    let snapshots = (size / PER_SNAPSHOT).max(1);
    vec![
        (
            "artifact by fingerprint",
            get(format!("/artifacts/{ORG}/{FLOW}/fingerprint/{}", fingerprint(size / 2))),
        ),
        ("trails, first page", get(format!("/trails/{ORG}?page=1&per_page=50"))),
        ("trails, last page", get(format!("/trails/{ORG}?page={}&per_page=50", last(50, size)))),
        ("artifacts, first page", get(format!("/artifacts/{ORG}?page=1&per_page=50"))),
        ("artifacts, last page", get(format!("/artifacts/{ORG}?page={}&per_page=50", last(50, size)))),
        ("snapshots, first page", get(format!("/snapshots/{ORG}/{ENVIRONMENT}?page=1&per_page=20"))),
        (
            "snapshots, last page",
            get(format!("/snapshots/{ORG}/{ENVIRONMENT}?page={}&per_page=20", last(20, snapshots))),
        ),
    ]
}

async fn measured(server: &Server, size: usize) -> Outcome<Vec<f64>> {
    let mut client = server.client().await?;
    let mut column = Vec::new();
    for (_, request) in reads(server, size) {
        client.send(&request).await?;
        column.push(percentile(READS, async |_| client.send(&request).await.map(drop)).await?);
    }
    Ok(column)
}

async fn prepare(server: &Server) -> Outcome {
    let environment = json!({ "name": ENVIRONMENT, "type": "docker", "description": "" });
    let mut client = server.client().await?;
    client.send(&server.flow(None)).await?;
    client.send(&server.json("PUT", &format!("/environments/{ORG}"), &environment)).await?;
    Ok(())
}

fn fingerprint(number: usize) -> String {
    sha256_hex(&number.to_be_bytes())
}

/// A trail and an artifact for each number, and a snapshot for some.
async fn fill(server: &Server, numbers: Range<usize>) -> Outcome {
    for chunk in numbers.clone().collect::<Vec<_>>().chunks(10_000) {
        send_all(server.address, chunk.iter().map(|number| trail(server, *number)).collect()).await?;
        send_all(server.address, chunk.iter().map(|number| artifact(server, *number)).collect()).await?;
    }
    let mut client = server.client().await?;
    for number in numbers.step_by(PER_SNAPSHOT) {
        client.send(&report(server, number)).await?;
    }
    Ok(())
}

fn trail(server: &Server, number: usize) -> Request {
    let data = json!({ "name": format!("build-{number}") }).to_string();
    let (media_type, body) = form(&[("name=\"data_json\"", &data)]);
    server.request("PUT", &format!("/trails/{ORG}/{FLOW}"), (&media_type, &body))
}

fn artifact(server: &Server, number: usize) -> Request {
    let body = json!({
        "trail_name": format!("build-{number}"), "template_reference_name": "api",
        "fingerprint": fingerprint(number), "filename": format!("registry.example.com/api:{number}"),
        "git_commit": &fingerprint(number)[..40], "build_url": "https://ci.example.com/runs/1",
        "commit_url": "https://git.example.com/1",
    });
    server.json("POST", &format!("/artifacts/{ORG}/{FLOW}"), &body)
}

/// Another artifact runs than before.
fn report(server: &Server, number: usize) -> Request {
    let name = format!("registry.example.com/api:{number}");
    let artifacts = json!([{ "digests": { name: fingerprint(number) }, "creationTimestamp": 1_700_000_000 }]);
    let path = format!("/environments/{ORG}/{ENVIRONMENT}/report/docker");
    server.json("PUT", &path, &json!({ "artifacts": artifacts }))
}
