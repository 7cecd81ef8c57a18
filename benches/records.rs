//! All reads of changes as a store grows (P4). Attestations arrive over the API on 64 connections, ten per
//! trail with an artifact. Then every list and look-up is read.
//!
//! `EVIDENCE_BENCH_GROWTH` has the numbers of attestations, such as `10000,100000,1000000`. The default omits
//! the last, which takes minutes. With more than 100,000, one trail in a hundred is sent to the API, and the
//! others are recorded as copies. A word after `--` selects the engine.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use evidence_benches::{
    Client, Filter, Grown, ORG, Reads, Request, Result, Row, Server, Stores, attestation_document, form,
    growth, member, new_id, print, run, sizes,
};
use evidence_core::artifacts::Artifact;
use evidence_core::attestations::{Attestation, Binding};
use evidence_core::digest::sha256_hex;
use evidence_core::git::GitCommit;
use evidence_core::id::{Id, SystemRandom};
use evidence_core::time::{Clock, SystemClock, Timestamp};
use evidence_core::trails::Trail;
use evidence_core::{Fact, Store, Write};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const CONNECTIONS: usize = 64;
const PER_TRAIL: usize = 10;
/// The flows of the trails, in turn.
const FLOWS: usize = 10;
/// The number of trails per repo.
const PER_REPO: usize = 1000;
/// The maximum number of trails that are all sent to the API.
const OVER_API: usize = 10_000;
/// The number of trails per write of the copies.
const BATCH: usize = 165;
/// The number of running artifacts, all of the first repo.
const RUNNING: usize = 50;
const TEMPLATE: &str = "version: 1\ntrail:\n  artifacts:\n    - name: api\n      attestations:\n        - name: check-2\n          type: generic\n";

fn main() -> Result {
    run(|servers| async move {
        let sizes = sizes()?;
        let stores = Stores::below(env!("CARGO_TARGET_TMPDIR"))?;
        let filter = Filter::from_arguments();
        for engine in stores.engines().into_iter().filter(|engine| filter.wants(&engine.to_string())) {
            let mut grown = Vec::new();
            for &size in &sizes {
                let name = format!("records_{size}");
                let server = Arc::new(Server::uncached(&servers, &stores, engine, &name).await?);
                let trails = size.div_ceil(PER_TRAIL).max(1);
                furnish(&server).await?;
                let started = Instant::now();
                let middle = fill(&server, trails).await?;
                let seconds = started.elapsed().as_secs_f64();
                println!(
                    "{engine}: {} attestations in {trails} trails in {seconds:.0} s: {:.0} attestations/s",
                    trails * PER_TRAIL,
                    f64::from(u32::try_from(trails * PER_TRAIL)?) / seconds
                );
                let bytes = stores.bytes(engine, &name).await? / u64::try_from(trails * PER_TRAIL)?;
                print(&[Row::orientation(
                    format!("{engine}, on disk, {} attestations", trails * PER_TRAIL),
                    format!("{bytes} bytes each, with its part of a trail and an artifact"),
                )]);
                let server = Arc::into_inner(server).ok_or("a client is left")?;
                run_some(&server).await?;
                let reads = reads(&server, trails, middle).await?;
                grown.push(Grown { reads, server, size });
            }
            stores.settle(engine).await?;
            print(&growth(engine, "attestations", &grown).await?);
        }
        Ok(())
    })
}

/// Creates what the trails need: flows with a template, a control and a custom type.
async fn furnish(server: &Server) -> Result {
    let mut client = server.client().await?;
    for number in 0..FLOWS {
        let data = json!({ "name": flow(number), "description": "" }).to_string();
        let template = ("name=\"template_file\"; filename=\"t.yml\"", TEMPLATE);
        let put = posted(server, "PUT", &format!("/flows/{ORG}/template_file"), &[document(&data), template]);
        client.send(&put).await?;
    }
    let tag = json!({ "set_tags": { "team": "web" } });
    client.send(&server.json("PATCH", &format!("/tags/{ORG}/flow/{}", flow(0)), &tag)).await?;
    let control = json!({ "identifier": "C-1", "name": "Reviewed" });
    client.send(&server.json("POST", &format!("/controls/{ORG}"), &control)).await?;
    let coverage = json!({ "name": "coverage" }).to_string();
    let custom = posted(server, "POST", &format!("/custom-attestation-types/{ORG}"), &[document(&coverage)]);
    client.send(&custom).await?;
    Ok(())
}

/// Records trails. Returns the time when half of them existed, in epoch seconds.
async fn fill(server: &Arc<Server>, trails: usize) -> Result<i64> {
    let seconds = || SystemClock.now().as_micros() / 1_000_000;
    if trails <= OVER_API {
        report_all(server, 0..trails / 2).await?;
        let middle = seconds();
        report_all(server, trails / 2..trails).await?;
        return Ok(middle);
    }
    let store = server.store.store();
    let (by, org) = member(&*store).await?;
    let mut middle = seconds();
    for first in (0..trails).step_by(PER_REPO) {
        let first_entry = store.ledger_head(org).await?.ok_or("no ledger")?.size();
        let reported = first..trails.min(first + FLOWS);
        report_all(server, reported.clone()).await?;
        let patterns = facts_by_flow(&*store, org, first_entry).await?;
        let others: Vec<usize> = (reported.end..trails.min(first + PER_REPO)).collect();
        for numbers in others.chunks(BATCH) {
            let at = SystemClock.now();
            let mut facts = Vec::new();
            for &number in numbers {
                let (trail, pattern) = (new_id(), patterns.get(&flow(number)).ok_or("no pattern")?);
                for fact in pattern {
                    facts.push(renumbered(fact.clone(), trail, number, at)?);
                }
            }
            store.record(Write::new(org, by.clone(), at, facts, &SystemRandom)).await?;
        }
        if (first..first + PER_REPO).contains(&(trails / 2)) {
            middle = seconds();
        }
    }
    Ok(middle)
}

/// Returns the facts about trails from this entry on, by flow. Each flow has one trail.
async fn facts_by_flow(store: &dyn Store, org: Id, mut entry: u64) -> Result<BTreeMap<String, Vec<Fact>>> {
    let (mut flows, mut facts) = (BTreeMap::new(), BTreeMap::<String, Vec<Fact>>::new());
    loop {
        let entries = store.ledger_entries(org, entry, 1000).await?;
        let Some(last) = entries.last() else { return Ok(facts) };
        entry = last.index + 1;
        for entry in &entries {
            let fact = Fact::read(&entry.payload)?;
            let trail = match &fact {
                Fact::TrailBegun { record } => {
                    let number =
                        record.name.as_str().rsplit('-').next().map(str::parse).ok_or("no number")??;
                    flows.insert(record.id, flow(number));
                    Some(record.id)
                }
                Fact::ArtifactReported { record } => record.trail,
                Fact::AttestationAdded { record } => Some(record.trail),
                _ => None,
            };
            if let Some(flow) = trail.and_then(|trail| flows.get(&trail)) {
                facts.entry(flow.clone()).or_default().push(fact);
            }
        }
    }
}

/// Returns a copy of the fact for another trail.
fn renumbered(fact: Fact, trail: Id, number: usize, at: Timestamp) -> Result<Fact> {
    let commit_info = |of: Option<GitCommit>| {
        of.map(|of| Result::Ok(GitCommit { sha1: commit(number).parse()?, ..of })).transpose()
    };
    Ok(match fact {
        Fact::TrailBegun { record } => Fact::TrailBegun {
            record: Trail {
                id: trail,
                name: self::trail(number).parse()?,
                git_commit_info: commit_info(record.git_commit_info)?,
                created_at: at,
                last_modified_at: at,
                ..record
            },
        },
        Fact::ArtifactReported { record } => Fact::ArtifactReported {
            record: Artifact {
                id: new_id(),
                trail: Some(trail),
                fingerprint: fingerprint(number).parse()?,
                filename: filename(number),
                git_commit: Some(commit(number).parse()?),
                git_commit_info: commit_info(record.git_commit_info)?,
                created_at: at,
                ..record
            },
        },
        Fact::AttestationAdded { record } => Fact::AttestationAdded {
            record: Attestation {
                id: new_id(),
                trail,
                binding: match record.binding {
                    Binding::Artifact { target, .. } => {
                        Binding::Artifact { target, fingerprint: fingerprint(number).parse()? }
                    }
                    other => other,
                },
                attachments: Vec::new(),
                evidence: None,
                created_at: at,
                ..record
            },
        },
        other => other,
    })
}

/// Reports these trails over the API, on several connections.
async fn report_all(server: &Arc<Server>, numbers: Range<usize>) -> Result {
    let next = Arc::new(AtomicUsize::new(numbers.start));
    let mut tasks = JoinSet::new();
    for _ in 0..CONNECTIONS.min(numbers.len()) {
        let (server, next) = (Arc::clone(server), Arc::clone(&next));
        tasks.spawn(async move {
            let mut client = server.client().await?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= numbers.end {
                    return Result::Ok(());
                }
                report(&server, &mut client, number).await?;
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// Reports a trail, its artifact, and the attestations of both.
async fn report(server: &Server, client: &mut Client, number: usize) -> Result {
    let (flow, trail) = (flow(number), trail(number));
    let commit = json!({
        "sha1": commit(number), "message": "Change something", "author": "Jane <jane@example.com>", "branch": "main",
        "timestamp": 1_700_000_000, "url": "https://git.example.com/1",
    });
    let repo = json!({ "name": repo(number), "url": format!("https://git.example.com/{}", repo(number)), "provider": "github" });
    let begun = json!({ "name": trail, "description": "", "git_commit_info": commit, "repo_info": repo });
    let begin = posted(server, "PUT", &format!("/trails/{ORG}/{flow}"), &[document(&begun.to_string())]);
    client.send(&begin).await?;
    let artifact = json!({
        "trail_name": trail, "template_reference_name": "api", "fingerprint": fingerprint(number),
        "filename": filename(number), "git_commit": commit["sha1"], "git_commit_info": commit, "repo_info": repo,
        "build_url": "https://ci.example.com/runs/1", "commit_url": "https://git.example.com/1",
    });
    client.send(&server.json("POST", &format!("/artifacts/{ORG}/{flow}"), &artifact)).await?;
    for turn in 0..PER_TRAIL {
        client.send(&attestation(server, &flow, number, turn)).await?;
    }
    Ok(())
}

/// Of ten attestations, one is a decision, one has a custom type, and one is about the artifact. A single one
/// has a file.
fn attestation(server: &Server, flow: &str, number: usize, turn: usize) -> Request {
    const FILE: (&str, &str) = ("name=\"attachment_file\"; filename=\"report.txt\"", "nothing was found");
    let path = |kind: &str| format!("/attestations/{ORG}/{flow}/trail/{}/{kind}", trail(number));
    let (kind, data, file) = match turn {
        0 => {
            let data = json!({
                "attestation_name": "decided", "type_name": "decision", "control": "C-1",
                "attestation_data": { "is_compliant": true },
            });
            ("system", data.to_string(), None)
        }
        1 => {
            let data = json!({
                "attestation_name": "covered", "type_name": "coverage", "attestation_data": { "lines": 81.5 },
            });
            ("custom", data.to_string(), None)
        }
        2 => {
            let data = json!({
                "attestation_name": "check-2", "artifact_fingerprint": fingerprint(number), "is_compliant": true,
            });
            ("generic", data.to_string(), None)
        }
        3 if number == 0 => ("generic", attestation_document("check-3"), Some(FILE)),
        _ => ("generic", attestation_document(&format!("check-{turn}")), None),
    };
    let parts: Vec<_> = [document(&data)].into_iter().chain(file).collect();
    posted(server, "POST", &path(kind), &parts)
}

/// Reports that the first artifacts run.
async fn run_some(server: &Server) -> Result {
    let mut client = server.client().await?;
    let environment = json!({ "name": "production", "type": "docker", "description": "" });
    client.send(&server.json("PUT", &format!("/environments/{ORG}"), &environment)).await?;
    let artifact = |number: usize| json!({ "digests": { filename(number): fingerprint(number) }, "creationTimestamp": 1_700_000_000 });
    let artifacts = (0..RUNNING).map(artifact).collect::<Vec<_>>();
    let path = format!("/environments/{ORG}/production/report/docker");
    client.send(&server.json("PUT", &path, &json!({ "artifacts": artifacts }))).await?;
    Ok(())
}

/// Returns every list and look-up. Long lists have the first, the middle and the last page.
async fn reads(server: &Server, trails: usize, middle: i64) -> Result<Reads> {
    let mut client = server.client().await?;
    let mut first = async |path: &str| -> Result<Value> {
        let answer = client.send(&server.get(&format!("{path}per_page=1"))).await?;
        let answer: Value = serde_json::from_slice(&answer.body)?;
        let list = ["data", "decisions"].into_iter().find_map(|list| answer.get(list)).unwrap_or(&answer);
        Ok(list[0].clone())
    };
    let id = |record: &Value, key: &str| -> Result<String> {
        Ok(record[key].as_str().ok_or_else(|| format!("no {key} in {record}"))?.to_owned())
    };
    let some = 1.max(trails / 2 / FLOWS) * FLOWS;
    let some = if some < trails { some } else { 0 };
    // One of the trails that were not sent to the API, if there are any.
    let some = if trails > OVER_API { some + FLOWS } else { some };
    let (flow, trail, fingerprint, commit) = (flow(some), trail(some), fingerprint(some), commit(some));
    let attested = id(&first(&format!("/attestations/{ORG}?")).await?, "attestation_id")?;
    let decided = id(&first(&format!("/controls/{ORG}/C-1/decisions?")).await?, "decision_id")?;
    let with_file = client
        .send(&server.get(&format!("/attestations/{ORG}/{}/trail/{}/check-3", self::flow(0), self::trail(0))))
        .await?;
    let with_file: Value = serde_json::from_slice(&with_file.body)?;
    let with_file = id(&with_file[0], "attestation_id")?;

    let last = |per_page: usize, rows: usize| rows.div_ceil(per_page).max(1);
    let center = |per_page: usize, rows: usize| last(per_page, rows).div_ceil(2);
    let (of_flow, attestations) = (trails.div_ceil(FLOWS), trails.div_ceil(FLOWS) * PER_TRAIL);
    let repos = trails.div_ceil(PER_REPO);
    let (until, prefix) = (middle + 1, &fingerprint[..12]);
    let get = |path: String| server.get(&path);
    Ok(vec![
        ("trails, first page", get(format!("/trails/{ORG}?per_page=50"))),
        ("trails, middle page", get(format!("/trails/{ORG}?per_page=50&page={}", center(50, trails)))),
        ("trails, last page", get(format!("/trails/{ORG}?per_page=50&page={}", last(50, trails)))),
        ("trails of a flow, first page", get(format!("/trails/{ORG}/{flow}?per_page=50"))),
        (
            "trails of a flow, last page",
            get(format!("/trails/{ORG}/{flow}?per_page=50&page={}", last(50, of_flow))),
        ),
        ("trails by flow tag, first page", get(format!("/trails/{ORG}?flow_tag=team%3Dweb&per_page=50"))),
        ("trails by fingerprint", get(format!("/trails/{ORG}?fingerprint={fingerprint}"))),
        ("trail", get(format!("/trails/{ORG}/{flow}/{trail}"))),
        ("trail with its attestations", get(format!("/trails/{ORG}/{flow}/{trail}?expand=attestations"))),
        ("flows", get(format!("/flows/{ORG}"))),
        ("flow", get(format!("/flows/{ORG}/{flow}"))),
        ("artifacts, first page", get(format!("/artifacts/{ORG}?per_page=50"))),
        ("artifacts, last page", get(format!("/artifacts/{ORG}?per_page=50&page={}", last(50, trails)))),
        ("artifacts of a flow, first page", get(format!("/artifacts/{ORG}?flow_name={flow}&per_page=50"))),
        (
            "artifacts of a flow, last page",
            get(format!("/artifacts/{ORG}?flow_name={flow}&per_page=50&page={}", last(50, of_flow))),
        ),
        ("artifacts of a repo", get(format!("/artifacts/{ORG}?repo_name={}&per_page=50", repo(some)))),
        ("artifact by fingerprint", get(format!("/artifacts/{ORG}/{flow}/fingerprint/{fingerprint}"))),
        ("artifact by commit", get(format!("/artifacts/{ORG}/{flow}/commit_sha/{commit}"))),
        (
            "latest commit of an artifact",
            get(format!("/artifacts/{ORG}/{flow}/{fingerprint}/latest_commit?branch=main")),
        ),
        ("attestations, first page", get(format!("/attestations/{ORG}?per_page=50"))),
        ("attestations of a flow by the cursor", get(format!("/attestations/{ORG}?flow={flow}&per_page=50"))),
        ("attestations by name", get(format!("/attestations/{ORG}?name=covered&per_page=50"))),
        (
            "attestations by a pattern",
            get(format!("/attestations/{ORG}?name_regex=%5Echeck-%5B23%5D$&per_page=50")),
        ),
        ("attestations by type", get(format!("/attestations/{ORG}?type=system:decision&per_page=50"))),
        (
            "attestations of a second",
            get(format!("/attestations/{ORG}?from_timestamp={middle}&to_timestamp={until}&per_page=50")),
        ),
        ("attestation by id", get(format!("/attestations/{ORG}?attestation_id={attested}"))),
        ("attestations of a flow, first page", get(format!("/attestations/{ORG}/{flow}?per_page=50"))),
        (
            "attestations of a flow, middle page",
            get(format!("/attestations/{ORG}/{flow}?per_page=50&page={}", center(50, attestations))),
        ),
        (
            "attestations of a flow, last page",
            get(format!("/attestations/{ORG}/{flow}?per_page=50&page={}", last(50, attestations))),
        ),
        (
            "attestations of a flow, of a second",
            get(format!(
                "/attestations/{ORG}/{flow}?from_timestamp={middle}&to_timestamp={until}&per_page=50"
            )),
        ),
        (
            "attestations about a commit",
            get(format!("/attestations/{ORG}/list_attestations_for_criteria?commit_list={commit}")),
        ),
        ("attestation of a trail", get(format!("/attestations/{ORG}/{flow}/trail/{trail}/check-4"))),
        (
            "attestation of an artifact",
            get(format!("/attestations/{ORG}/{flow}/artifact/{fingerprint}/check-2")),
        ),
        (
            "evidence",
            get(format!(
                "/attestations/{ORG}/{}/trail/{}/attestation/{with_file}/evidence",
                self::flow(0),
                self::trail(0)
            )),
        ),
        ("builds, first page", get(format!("/builds/{ORG}?per_page=50"))),
        ("builds, last page", get(format!("/builds/{ORG}?per_page=50&page={}", last(50, trails)))),
        ("builds of a repo", get(format!("/builds/{ORG}?repo_name={}&per_page=50", repo(some)))),
        ("statistics of builds", get(format!("/builds/{ORG}/statistics"))),
        ("controls", get(format!("/controls/{ORG}"))),
        ("control", get(format!("/controls/{ORG}/C-1"))),
        ("coverage of a control", get(format!("/controls/{ORG}/C-1/coverage"))),
        ("decisions, first page", get(format!("/controls/{ORG}/C-1/decisions?per_page=50"))),
        (
            "decisions, last page",
            get(format!("/controls/{ORG}/C-1/decisions?per_page=50&page={}", last(50, trails))),
        ),
        ("decision", get(format!("/controls/{ORG}/C-1/decisions/{decided}"))),
        ("custom types", get(format!("/custom-attestation-types/{ORG}"))),
        ("repos, first page", get(format!("/repos/{ORG}?per_page=20"))),
        ("repos, last page", get(format!("/repos/{ORG}?per_page=20&page={}", last(20, repos)))),
        ("repo", get(format!("/repos/{ORG}/{}", repo(some)))),
        ("filter options of repos", get(format!("/repos/{ORG}/filter-options"))),
        ("live artifacts of a repo", get(format!("/repos/{ORG}/live-artifacts/{}", repo(0)))),
        ("search by commit", get(format!("/search/{ORG}/sha/{commit}"))),
        ("search by the start of a fingerprint", get(format!("/search/{ORG}/sha/{prefix}"))),
        ("membership audit log", get(format!("/membership-audit-log/{ORG}"))),
    ])
}

fn document(data: &str) -> (&'static str, &str) {
    ("name=\"data_json\"", data)
}

fn posted(server: &Server, method: &str, path: &str, parts: &[(&str, &str)]) -> Request {
    let (media_type, body) = form(parts);
    server.request(method, path, (&media_type, &body))
}

fn flow(number: usize) -> String {
    format!("flow-{}", number % FLOWS)
}

fn trail(number: usize) -> String {
    format!("build-{number}")
}

fn repo(number: usize) -> String {
    format!("acme/repo-{}", number / PER_REPO)
}

fn fingerprint(number: usize) -> String {
    sha256_hex(&number.to_be_bytes())
}

fn commit(number: usize) -> String {
    fingerprint(number)[..40].to_owned()
}

fn filename(number: usize) -> String {
    format!("registry.example.com/api:{number}")
}
