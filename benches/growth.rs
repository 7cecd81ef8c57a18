//! Reads as a store grows (P4): an artifact by its fingerprint, and the first, middle and last page of
//! trails, artifacts and snapshots.
//!
//! `EVIDENCE_BENCH_GROWTH` has the sizes, such as `10000,100000,1000000`. The default omits the last, which
//! takes minutes to fill. Each size has its own store. The stores are read in turns, so that other work of
//! the machine affects all of them equally. A word after `--` selects the engine.

use evidence_benches::{
    FLOW, Filter, Grown, ORG, Reads, Request, Result, Server, Stores, growth, member, new_id, print, run,
    sizes,
};
use evidence_core::artifacts::{Artifact, ArtifactFilter};
use evidence_core::digest::sha256_hex;
use evidence_core::id::SystemRandom;
use evidence_core::page::PageRequest;
use evidence_core::trails::Trail;
use evidence_core::{Fact, Write};
use serde_json::json;

/// The number of trails and artifacts per write when filling.
const BATCH: usize = 2048;
/// The number of artifacts per snapshot. Each snapshot needs the previous one.
const PER_SNAPSHOT: usize = 20;
const ENVIRONMENT: &str = "production";

fn main() -> Result {
    run(|servers| async move {
        let sizes = sizes()?;
        let stores = Stores::below(env!("CARGO_TARGET_TMPDIR"))?;
        let filter = Filter::from_arguments();
        for engine in stores.engines().into_iter().filter(|engine| filter.wants(&engine.to_string())) {
            let mut grown = Vec::new();
            for &size in &sizes {
                let server = Server::uncached(&servers, &stores, engine, &format!("grown_{size}")).await?;
                fill(&server, size).await?;
                println!("{engine}: {size} trails and artifacts are there");
                grown.push(Grown { reads: reads(&server, size), server, size });
            }
            stores.settle(engine).await?;
            print(&growth(engine, "trails and artifacts", &grown).await?);
        }
        Ok(())
    })
}

fn reads(server: &Server, size: usize) -> Reads {
    let get = |path: String| server.get(&path);
    let last = |per_page: usize, rows: usize| rows.div_ceil(per_page).max(1);
    let middle = |per_page: usize, rows: usize| last(per_page, rows).div_ceil(2);
    let trails = |page: usize| get(format!("/trails/{ORG}?page={page}&per_page=50"));
    let artifacts = |page: usize| get(format!("/artifacts/{ORG}?page={page}&per_page=50"));
    let snapshots = |page: usize| get(format!("/snapshots/{ORG}/{ENVIRONMENT}?page={page}&per_page=20"));
    let taken = size.div_ceil(PER_SNAPSHOT);
    let by_fingerprint = get(format!("/artifacts/{ORG}/{FLOW}/fingerprint/{}", fingerprint(size / 2)));
    vec![
        ("artifact by fingerprint", by_fingerprint),
        ("trails, first page", trails(1)),
        ("trails, middle page", trails(middle(50, size))),
        ("trails, last page", trails(last(50, size))),
        ("artifacts, first page", artifacts(1)),
        ("artifacts, middle page", artifacts(middle(50, size))),
        ("artifacts, last page", artifacts(last(50, size))),
        ("snapshots, first page", snapshots(1)),
        ("snapshots, middle page", snapshots(middle(20, taken))),
        ("snapshots, last page", snapshots(last(20, taken))),
    ]
}

/// Creates a trail and an artifact for each number, and some snapshots. The first ones are sent to the API.
/// The others are recorded as copies of them, because separate requests would take a quarter of an hour for a
/// million.
async fn fill(server: &Server, size: usize) -> Result {
    let environment = json!({ "name": ENVIRONMENT, "type": "docker", "description": "" });
    let mut client = server.client().await?;
    client.send(&server.flow(None)).await?;
    client.send(&server.json("PUT", &format!("/environments/{ORG}"), &environment)).await?;
    client.send(&reported_artifact(server)).await?;
    let store = server.store.store();
    let (by, org) = member(&*store).await?;
    let first = store.artifacts(org, &ArtifactFilter::default(), PageRequest { offset: 0, limit: 1 }).await?;
    let artifact = first.items.first().ok_or("no artifact")?;
    let trail = store.trail(org, artifact.flow, &trail_name(0)).await?.ok_or("no trail")?.record;
    let numbers: Vec<usize> = (1..size).collect();
    for numbers in numbers.chunks(BATCH) {
        let mut facts = Vec::with_capacity(2 * BATCH);
        for number in numbers {
            facts.extend(another(&trail, artifact, *number)?);
        }
        let (by, at) = (by.clone(), trail.created_at);
        store.record(Write::new(org, by, at, facts, &SystemRandom)).await?;
    }
    // A new connection, because the server closes idle ones.
    let mut client = server.client().await?;
    for number in (0..size).step_by(PER_SNAPSHOT) {
        client.send(&report(server, number)).await?;
    }
    Ok(())
}

/// Returns copies of a trail and its artifact.
fn another(trail: &Trail, artifact: &Artifact, number: usize) -> Result<[Fact; 2]> {
    let trail = Trail { id: new_id(), name: trail_name(number).parse()?, ..trail.clone() };
    let artifact = Artifact {
        id: new_id(),
        trail: Some(trail.id),
        fingerprint: fingerprint(number).parse()?,
        filename: filename(number),
        git_commit: Some(fingerprint(number)[..40].parse()?),
        ..artifact.clone()
    };
    Ok([Fact::TrailBegun { record: trail }, Fact::ArtifactReported { record: artifact }])
}

fn fingerprint(number: usize) -> String {
    sha256_hex(&number.to_be_bytes())
}

fn trail_name(number: usize) -> String {
    format!("build-{number}")
}

fn filename(number: usize) -> String {
    format!("registry.example.com/api:{number}")
}

/// Reports the first artifact, which also begins the first trail.
fn reported_artifact(server: &Server) -> Request {
    let body = json!({
        "trail_name": trail_name(0), "template_reference_name": "api",
        "fingerprint": fingerprint(0), "filename": filename(0),
        "git_commit": &fingerprint(0)[..40], "build_url": "https://ci.example.com/runs/1",
        "commit_url": "https://git.example.com/1",
    });
    server.json("POST", &format!("/artifacts/{ORG}/{FLOW}"), &body)
}

/// Reports that another artifact runs.
fn report(server: &Server, number: usize) -> Request {
    let artifacts =
        json!([{ "digests": { filename(number): fingerprint(number) }, "creationTimestamp": 1_700_000_000 }]);
    let path = format!("/environments/{ORG}/{ENVIRONMENT}/report/docker");
    server.json("PUT", &path, &json!({ "artifacts": artifacts }))
}
