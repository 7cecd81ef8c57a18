//! The API over a socket on SQLite, client and server sharing the machine: writing attestations (P1) and reporting
//! what runs (P5).

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evidence_benches::{
    Client, FLOW, Insert, ORG, Outcome, RawInserts, Request, Round, Row, Server, Worker,
    attestation_document, form, print, round, send_all, times,
};
use evidence_core::digest::sha256_hex;
use serde_json::{Value, json};

const CLIENTS: usize = 64;
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1500);
/// Every so many attestations a client begins a new trail.
const PER_TRAIL: usize = 8;

const TEMPLATE: &str = "version: 1\ntrail:\n  artifacts:\n    - name: api\n      attestations:\n        - name: test\n          type: generic\n";
const POLICY: &str = "_schema: https://example.com/schemas/policy/v1\nartifacts:\n  provenance:\n    required: true\n  trail-compliance:\n    required: true\n";
/// How many artifacts the environments run.
const SIZES: [usize; 4] = [1, 80, 800, 8000];

#[tokio::main]
async fn main() -> Outcome {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let mut rows = attestations(directory.path()).await?;
    rows.extend(reports(directory.path()).await?);
    print(&rows);
    Ok(())
}

/// A client that attests over its own connection, to trails of its own.
struct Attester {
    server: Arc<Server>,
    client: Client,
    number: usize,
    turn: usize,
    request: Request,
}

impl Attester {
    async fn new(server: Arc<Server>, number: usize) -> Outcome<Self> {
        let client = server.client().await?;
        Ok(Self { client, number, turn: 0, request: Request::plain("/live"), server })
    }
}

impl Worker for Attester {
    async fn work(&mut self) -> Outcome {
        if self.turn.is_multiple_of(PER_TRAIL) {
            let trail = format!("trail-{}-{}", self.number, self.turn);
            self.request = attestation(&self.server, &trail, &attestation_document("test"));
        }
        self.turn += 1;
        self.client.send(&self.request).await.map(drop)
    }
}

fn attestation(server: &Server, trail: &str, document: &str) -> Request {
    let (media_type, body) = form(&[("name=\"data_json\"", document)]);
    let path = format!("/attestations/{ORG}/{FLOW}/trail/{trail}/generic");
    server.request("POST", &path, (&media_type, &body))
}

/// P1: attestations against raw inserts of as many bytes, in turns.
async fn attestations(directory: &Path) -> Outcome<Vec<Row>> {
    let server = Arc::new(Server::start(&directory.join("p1.db")).await?);
    let raw = RawInserts::open(&directory.join("raw.db")).await?;
    let payload = attestation_document("test");
    let mut inserts: Vec<Insert> = (0..CLIENTS).map(|_| raw.client(payload.clone())).collect();
    let mut attesters = Vec::new();
    for number in 0..CLIENTS {
        attesters.push(Attester::new(Arc::clone(&server), number).await?);
    }
    let (mut ours, mut probe) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (again, measured) = round(inserts, ROUND).await?;
        inserts = again;
        probe.push(measured);
        let (again, measured) = round(attesters, ROUND).await?;
        attesters = again;
        ours.push(measured);
    }
    let (ours, probe) = (Round::medians(&ours), Round::medians(&probe));
    let ratio = ours.per_second / probe.per_second;
    let figure = Row::new("P1 attestation POST, 64 connections", ours.to_string(), "≥ 0.4", ratio >= 0.4);
    Ok(vec![
        Row::orientation("P1 probe: raw grouped inserts, 64 clients", probe.to_string()),
        Row { ratio: Some(ratio), ..figure },
    ])
}

/// P5: reports of environments whose artifacts were all reported to trails, judged by a policy.
async fn reports(directory: &Path) -> Outcome<Vec<Row>> {
    let server = Server::start(&directory.join("p5.db")).await?;
    furnish(&server).await?;
    let mut client = server.client().await?;
    let (mut statements, mut rows) = (Vec::new(), Vec::new());
    for size in SIZES {
        let environment = given_environment(&server, &mut client, size).await?;
        let report = |first: usize| reported(&server, &environment, first..first + size);
        let (one, other) = (report(0), report(1));
        client.send(&one).await?;
        let before = server.store.statements();
        client.send(&one).await?;
        let unchanged = server.store.statements();
        client.send(&other).await?;
        statements.push((unchanged - before, server.store.statements() - unchanged));
        if size == 800 {
            let same = times(31, async |_| client.send(&other).await.map(drop)).await?;
            let turns = [&one, &other];
            let changed = times(31, async |turn| client.send(turns[turn % 2]).await.map(drop)).await?;
            rows.push(Row::new(
                "P5 report of 800, unchanged",
                format!("{same:.1} ms"),
                "≤ 20 ms",
                same <= 20.0,
            ));
            rows.push(Row::new(
                "P5 report of 800, one replaced",
                format!("{changed:.1} ms"),
                "≤ 40 ms",
                changed <= 40.0,
            ));
        }
    }
    let few = statements.iter().all(|(unchanged, changed)| *unchanged <= 12 && *changed <= 12);
    let figure = statements.iter().map(|(unchanged, changed)| format!("{unchanged}/{changed}"));
    let figure = figure.collect::<Vec<_>>().join(", ");
    rows.push(Row::new("P5 statements, unchanged/changed, 1, 80, 800, 8,000", figure, "≤ 12", few));
    Ok(rows)
}

/// A flow, a policy, and every artifact in a trail of its own with the attestation that the template asks for.
async fn furnish(server: &Server) -> Outcome {
    let most = SIZES.into_iter().max().unwrap_or_default() + 1;
    let flow = json!({ "name": FLOW, "description": "" }).to_string();
    let parts =
        [("name=\"data_json\"", flow.as_str()), ("name=\"template_file\"; filename=\"t.yml\"", TEMPLATE)];
    let (media_type, body) = form(&parts);
    let path = format!("/flows/{ORG}/template_file");
    let flow = server.request("PUT", &path, (&media_type, &body));
    let parts =
        [("name=\"payload\"", r#"{"name": "strict"}"#), ("name=\"policy_file\"; filename=\"p.yml\"", POLICY)];
    let (media_type, body) = form(&parts);
    let policy = server.request("PUT", &format!("/policies/{ORG}"), (&media_type, &body));
    send_all(server.address, vec![flow, policy]).await?;
    send_all(server.address, (0..most).map(|number| artifact(server, number)).collect()).await?;
    let attested = |number: usize| {
        let data = json!({ "attestation_name": "test", "artifact_fingerprint": fingerprint(number), "is_compliant": true });
        attestation(server, &format!("build-{number}"), &data.to_string())
    };
    send_all(server.address, (0..most).map(attested).collect()).await
}

fn fingerprint(number: usize) -> String {
    sha256_hex(&number.to_be_bytes())
}

fn artifact(server: &Server, number: usize) -> Request {
    let commit = &fingerprint(number)[..40];
    let body = json!({
        "trail_name": format!("build-{number}"), "template_reference_name": "api",
        "fingerprint": fingerprint(number), "filename": format!("registry.example.com/api:{number}"),
        "git_commit": commit, "build_url": "https://ci.example.com/runs/1", "commit_url": "https://git.example.com/1",
    });
    server.json("POST", &format!("/artifacts/{ORG}/{FLOW}"), &body)
}

/// An environment with the policy attached; its name.
async fn given_environment(server: &Server, client: &mut Client, size: usize) -> Outcome<String> {
    let name = format!("production-{size}");
    let body = json!({ "name": name, "type": "docker", "description": "" });
    client.send(&server.json("PUT", &format!("/environments/{ORG}"), &body)).await?;
    let path = format!("/environments/{ORG}/{name}/policies");
    client.send(&server.json("POST", &path, &json!({ "policy_names": ["strict"] }))).await?;
    Ok(name)
}

fn reported(server: &Server, environment: &str, artifacts: Range<usize>) -> Request {
    let artifact = |number: usize| json!({ "digests": { format!("registry.example.com/api:{number}"): fingerprint(number) }, "creationTimestamp": 1_700_000_000 });
    let artifacts: Vec<Value> = artifacts.map(artifact).collect();
    let path = format!("/environments/{ORG}/{environment}/report/docker");
    server.json("PUT", &path, &json!({ "artifacts": artifacts }))
}
