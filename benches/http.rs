//! The API over a socket, with client and server on one machine: writing attestations (P1 on SQLite, P2 on
//! PostgreSQL), reading an artifact (P3), and reporting an environment (P5).

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use evidence_benches::{
    Attester, Client, Engine, FLOW, Filter, Insert, ORG, Pgbench, RawInserts, Repeater, Request, Result,
    Round, Row, Server, Stores, Worker, attestation, attestation_document, bare, form, median, median_ms,
    print, round, run, seed_organization, send_all,
};
use evidence_core::digest::sha256_hex;
use serde_json::{Value, json};
use tokio::runtime::Handle;

const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(1500);
/// The number of organizations in the rows with many organizations.
const ORGANIZATIONS: usize = 50;

const TEMPLATE: &str = "version: 1\ntrail:\n  artifacts:\n    - name: api\n      attestations:\n        - name: test\n          type: generic\n";
const POLICY: &str = "_schema: https://example.com/schemas/policy/v1\nartifacts:\n  provenance:\n    required: true\n  trail-compliance:\n    required: true\n";
/// The number of reported artifacts.
const ARTIFACTS: usize = 8001;
/// The number of artifacts that run in the environment.
const RUNNING: usize = 800;

fn main() -> Result {
    run(|servers| async move {
        let stores = Stores::below(env!("CARGO_TARGET_TMPDIR"))?;
        let filter = Filter::from_arguments();
        for engine in stores.engines() {
            let rows = figures(&servers, &stores, engine, &filter).await?;
            if !rows.is_empty() {
                print(&rows);
            }
        }
        Ok(())
    })
}

/// Measures the selected figures of this engine.
async fn figures(servers: &Handle, stores: &Stores, engine: Engine, filter: &Filter) -> Result<Vec<Row>> {
    let wants = |figure: &str| filter.wants(&format!("{figure} {engine}"));
    let mut rows = match engine {
        Engine::Sqlite if wants("P1") => grouped(servers, stores).await?,
        Engine::Postgres if wants("P2") => against_pgbench(servers, stores).await?,
        Engine::Sqlite | Engine::Postgres => Vec::new(),
    };
    if wants("P3") || wants("P5") {
        let server = Server::start(servers, stores, engine, "reports").await?;
        furnish(&server).await?;
        if wants("P3") {
            rows.extend(reading(servers, &server, engine).await?);
        }
        if wants("P5") {
            rows.extend(reports(&server, engine).await?);
        }
    }
    Ok(rows)
}

/// Measures two kinds of workers in turns, and returns the medians of each.
async fn in_turns<A: Worker, B: Worker>(mut ours: Vec<A>, mut probe: Vec<B>) -> Result<(Round, Round)> {
    let (mut our_rounds, mut probe_rounds) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (again, measured) = round(probe, ROUND).await?;
        probe = again;
        probe_rounds.push(measured);
        let (again, measured) = round(ours, ROUND).await?;
        ours = again;
        our_rounds.push(measured);
    }
    Ok((Round::medians(&our_rounds), Round::medians(&probe_rounds)))
}

async fn raw_clients(
    servers: &Handle,
    stores: &Stores,
    engine: Engine,
    clients: usize,
) -> Result<Vec<Insert>> {
    let raw = RawInserts::open(servers, stores, engine).await?;
    Ok((0..clients).map(|_| raw.client(attestation_document("test"))).collect())
}

/// P1: attestations compared with raw grouped inserts of equal size, in turns.
async fn grouped(servers: &Handle, stores: &Stores) -> Result<Vec<Row>> {
    let server = Arc::new(Server::start(servers, stores, Engine::Sqlite, "writing").await?);
    let attesters = Attester::several(&server, &[ORG.to_owned()], 64).await?;
    let inserts = raw_clients(servers, stores, Engine::Sqlite, 64).await?;
    let (ours, probe) = in_turns(attesters, inserts).await?;
    let ratio = ours.per_second / probe.per_second;
    let figure =
        Row::new("P1 SQLite, attestation POST, 64 connections", ours.to_string(), "≥ 0.4", ratio >= 0.4);
    Ok(vec![
        Row::orientation("P1 probe: raw grouped inserts, 64 clients", probe.to_string()),
        Row { ratio: Some(ratio), ..figure },
    ])
}

/// P2: attestations compared with `pgbench`, in turns, together with raw grouped inserts and with many
/// organizations.
async fn against_pgbench(servers: &Handle, stores: &Stores) -> Result<Vec<Row>> {
    let server = Arc::new(Server::start(servers, stores, Engine::Postgres, "writing").await?);
    let one = [ORG.to_owned()];
    let inserts = raw_clients(servers, stores, Engine::Postgres, 64).await?;
    let pgbench = Pgbench::new(stores, &attestation_document("test"))?;
    let (mut rows, mut alone) = (Vec::new(), 0.0);
    for (clients, target, least) in [(8, "≥ 0.5", 0.5), (32, "≥ 1", 1.0), (64, "≥ 1", 1.0)] {
        let mut attesters = Attester::several(&server, &one, clients).await?;
        let (mut ours, mut probe) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            probe.push(pgbench.run(clients).await?);
            let (again, measured) = round(attesters, ROUND).await?;
            attesters = again;
            ours.push(measured);
        }
        let (ours, probe) = (Round::medians(&ours), median(probe.into_iter()));
        let ratio = ours.per_second / probe;
        alone = ours.per_second;
        rows.push(Row::orientation(format!("P2 probe: pgbench, {clients} clients"), format!("{probe:.0}/s")));
        let what = format!("P2 PostgreSQL, attestation POST, {clients} connections");
        rows.push(Row { ratio: Some(ratio), ..Row::new(what, ours.to_string(), target, ratio >= least) });
    }
    let orgs: Vec<String> = (0..ORGANIZATIONS).map(|number| format!("org-{number}")).collect();
    for org in &orgs {
        seed_organization(&server.evidence, &server.key, org).await?;
    }
    let (many, raw) = in_turns(Attester::several(&server, &orgs, 64).await?, inserts).await?;
    rows.push(Row::orientation("P2 for orientation: raw grouped inserts, 64 clients", raw.to_string()));
    let ratio = many.per_second / alone;
    let what = format!("P2 {ORGANIZATIONS} organizations, 64 connections, of one's");
    rows.push(Row { ratio: Some(ratio), ..Row::new(what, many.to_string(), "≥ 0.5", ratio >= 0.5) });
    Ok(rows)
}

/// P3: an artifact by its fingerprint, compared with the same bytes from hyper alone.
async fn reading(servers: &Handle, server: &Server, engine: Engine) -> Result<Vec<Row>> {
    const CLIENTS: usize = 16;
    let request = server.get(&format!("/artifacts/{ORG}/{FLOW}/fingerprint/{}", fingerprint(7)));
    let answer = server.client().await?.send(&request).await?;
    let probe = bare(servers, answer.body.into()).await?;
    let ours = Repeater::several(server.address, &request, 200, CLIENTS).await?;
    let (ours, probe) = in_turns(ours, Repeater::several(probe, &request, 200, CLIENTS).await?).await?;
    let ratio = ours.per_second / probe.per_second;
    let figure = Row::new(
        format!("P3 {engine}, GET artifact, 16 connections"),
        ours.to_string(),
        "≥ 0.4",
        ratio >= 0.4,
    );
    let most = match engine {
        Engine::Sqlite => 55.0,
        Engine::Postgres => 100.0,
    };
    let cpu = format!("{:.0} µs", ours.cpu_micros);
    Ok(vec![
        Row::orientation("P3 probe: the same JSON from bare hyper", probe.to_string()),
        Row { ratio: Some(ratio), ..figure },
        Row::new(
            format!("P3 {engine}, CPU of the server per request"),
            cpu,
            format!("≤ {most:.0} µs"),
            ours.cpu_micros <= most,
        ),
    ])
}

/// P5: reports of environments whose artifacts were all reported to trails, evaluated against a policy.
async fn reports(server: &Server, engine: Engine) -> Result<Vec<Row>> {
    let mut client = server.client().await?;
    let environment = given_environment(server, &mut client).await?;
    let [one, other] = [0, 1].map(|first| reported(server, &environment, first..first + RUNNING));
    client.send(&one).await?;
    client.send(&other).await?;
    let same = median_ms(31, async |_| client.send(&other).await.map(drop)).await?;
    let turns = [&one, &other];
    let changed = median_ms(31, async |turn| client.send(turns[turn % 2]).await.map(drop)).await?;
    let most = match engine {
        Engine::Sqlite => 12.0,
        Engine::Postgres => 18.0,
    };
    let row = |what: &str, taken: f64, most: f64| {
        let what = format!("P5 {engine}, report of {RUNNING}, {what}");
        Row::new(what, format!("{taken:.1} ms"), format!("≤ {most:.0} ms"), taken <= most)
    };
    Ok(vec![row("unchanged", same, most), row("one replaced", changed, 1.5 * most)])
}

/// Creates a flow, a policy, and every artifact in a separate trail with the required attestation.
async fn furnish(server: &Server) -> Result {
    let flow = server.flow(Some(TEMPLATE));
    let parts =
        [("name=\"payload\"", r#"{"name": "strict"}"#), ("name=\"policy_file\"; filename=\"p.yml\"", POLICY)];
    let (media_type, body) = form(&parts);
    let policy = server.request("PUT", &format!("/policies/{ORG}"), (&media_type, &body));
    send_all(server.address, vec![flow, policy]).await?;
    send_all(server.address, (0..ARTIFACTS).map(|number| artifact(server, number)).collect()).await?;
    let attested = |number: usize| {
        let data = json!({ "attestation_name": "test", "artifact_fingerprint": fingerprint(number), "is_compliant": true });
        attestation(server, ORG, &format!("build-{number}"), &data.to_string())
    };
    send_all(server.address, (0..ARTIFACTS).map(attested).collect()).await
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

/// Creates an environment with the policy attached, and returns its name.
async fn given_environment(server: &Server, client: &mut Client) -> Result<String> {
    let name = "production";
    let body = json!({ "name": name, "type": "docker", "description": "" });
    client.send(&server.json("PUT", &format!("/environments/{ORG}"), &body)).await?;
    let path = format!("/environments/{ORG}/{name}/policies");
    client.send(&server.json("POST", &path, &json!({ "policy_names": ["strict"] }))).await?;
    Ok(name.to_owned())
}

fn reported(server: &Server, environment: &str, artifacts: Range<usize>) -> Request {
    let artifact = |number: usize| json!({ "digests": { format!("registry.example.com/api:{number}"): fingerprint(number) }, "creationTimestamp": 1_700_000_000 });
    let artifacts: Vec<Value> = artifacts.map(artifact).collect();
    let path = format!("/environments/{ORG}/{environment}/report/docker");
    server.json("PUT", &path, &json!({ "artifacts": artifacts }))
}
