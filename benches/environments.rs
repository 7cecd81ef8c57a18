//! A year of an environment. Reports arrive continuously, and in one of five, one artifact has replaced
//! another, so that one stops and one starts. At the end, single artifacts stop and start again.
//!
//! `EVIDENCE_BENCH_REPORTS` is the number of reports, and `EVIDENCE_BENCH_RUNNING` the number of running
//! artifacts. The defaults take a minute. 100000 reports of 800 artifacts are a busy environment's year. A
//! word after `--` selects the engine.

use std::str::FromStr;

use evidence_benches::{
    Client, Engine, FLOW, Filter, ORG, Request, Result, Row, Server, Stores, durations_ms, percentile, print,
    run,
};
use evidence_core::digest::sha256_hex;
use serde_json::{Value, json};

const NAME: &str = "a_year";
const ENVIRONMENT: &str = "production";
/// The number of reports per snapshot.
const PER_SNAPSHOT: usize = 5;
/// The number of timed reports at the beginning and at the end.
const TIMED: usize = 100;
/// The number of times each read is timed.
const READS: usize = 50;
const PER_PAGE: usize = 20;
/// The number of snapshots in which a single artifact stops or starts, unless set by
/// `EVIDENCE_BENCH_CHANGES`. P6 requires about 10,000.
const CHANGES: usize = 500;
/// The maximum size in bytes of a snapshot that changes one artifact (P6).
const MOST: u64 = 2 << 10;

fn main() -> Result {
    run(|servers| async move {
        let reports = number("EVIDENCE_BENCH_REPORTS", 1_000)?.max(2 * TIMED);
        let running = number("EVIDENCE_BENCH_RUNNING", 800)?.max(1);
        let stores = Stores::below(env!("CARGO_TARGET_TMPDIR"))?;
        let filter = Filter::from_arguments();
        for engine in stores.engines().into_iter().filter(|engine| filter.wants(&engine.to_string())) {
            let server = Server::start(&servers, &stores, engine, NAME).await?;
            let rows = year(&server, &stores, engine, reports, running).await?;
            println!("\n{reports} reports of {running} artifacts on {engine}.");
            println!("The ratio is that of the end to the beginning, or of the last page to the first.");
            print(&rows);
        }
        Ok(())
    })
}

/// Returns the value of a variable.
fn number(variable: &str, usual: usize) -> Result<usize> {
    Ok(std::env::var(variable).map_or(Ok(usual), |text| usize::from_str(&text))?)
}

/// The measurements at one end of the year, in milliseconds.
struct End {
    reports: Vec<f64>,
    reads: Vec<(&'static str, Vec<f64>)>,
}

async fn year(
    server: &Server,
    stores: &Stores,
    engine: Engine,
    reports: usize,
    running: usize,
) -> Result<Vec<Row>> {
    let mut year = Year { server, client: server.client().await?, running: Vec::new(), number: 0 };
    year.furnish(running, reports / PER_SNAPSHOT).await?;
    let begin = End { reports: year.report(TIMED).await?, reads: year.reads().await? };
    let (snapshots, before) = (year.snapshots(), stores.bytes(engine, NAME).await?);
    year.report(reports - 2 * TIMED).await?;
    let reported = year.report(TIMED).await?;
    let (taken, after) = (year.snapshots() - snapshots, stores.bytes(engine, NAME).await?);
    let end = End { reports: reported, reads: year.reads().await? };
    let mut rows = vec![row(format!("{engine}, report"), &begin.reports, &end.reports, None)];
    for ((name, first), (_, last)) in begin.reads.iter().zip(&end.reads) {
        rows.push(row(format!("{engine}, {name}"), first, last, None));
    }
    let pages = |wanted: &str| end.reads.iter().find(|(name, _)| *name == wanted).map(|(_, taken)| taken);
    if let Some((first, last)) = pages(FIRST).zip(pages(LAST)) {
        rows.push(row(format!("{engine}, pages of snapshots, first and last"), first, last, Some("≤ 2")));
    }
    let each = after.saturating_sub(before) / u64::try_from(taken.max(1))?;
    let figure = format!("{each} bytes a snapshot of {taken}, {after} in all");
    rows.push(Row::orientation(format!("{engine}, on disk, one artifact in the place of another"), figure));
    let taken = year.single_changes(number("EVIDENCE_BENCH_CHANGES", CHANGES)?).await?;
    let each = stores.bytes(engine, NAME).await?.saturating_sub(after) / u64::try_from(taken.max(1))?;
    let figure = format!("{each} bytes a snapshot of {taken}");
    rows.push(Row::new(
        format!("{engine}, on disk, one artifact stops or starts"),
        figure,
        "≤ 2 KiB",
        each <= MOST,
    ));
    Ok(rows)
}

const FIRST: &str = "first page of snapshots";
const LAST: &str = "last page of snapshots";

fn row(what: String, first: &[f64], last: &[f64], target: Option<&'static str>) -> Row {
    let at = |taken: &[f64], share| percentile(taken.iter().copied(), share);
    let both = |share| format!("{:.2}, {:.2}", at(first, share), at(last, share));
    let figure = format!("p50 {} ms; p99 {} ms", both(50), both(99));
    let ratio = at(last, 50) / at(first, 50);
    let row = match target {
        Some(target) => Row::new(what, figure, target, ratio <= 2.0),
        None => Row::orientation(what, figure),
    };
    Row { ratio: Some(ratio), ..row }
}

/// An environment over time.
struct Year<'s> {
    server: &'s Server,
    client: Client,
    /// The number of the artifact in each place.
    running: Vec<usize>,
    /// The number of reports so far.
    number: usize,
}

impl Year<'_> {
    /// Returns the number of snapshots so far.
    const fn snapshots(&self) -> usize {
        1 + self.number.saturating_sub(1) / PER_SNAPSHOT
    }

    /// Reports all builds in advance, so that only snapshots take space from then on.
    async fn furnish(&mut self, running: usize, changes: usize) -> Result {
        let environment = json!({ "name": ENVIRONMENT, "type": "docker", "description": "" });
        self.client.send(&self.server.flow(None)).await?;
        self.client.send(&self.server.json("PUT", &format!("/environments/{ORG}"), &environment)).await?;
        for number in 0..=running + changes {
            self.build(number).await?;
        }
        self.running.extend(0..running);
        Ok(())
    }

    /// Reports the artifact of this number to a separate trail.
    async fn build(&mut self, number: usize) -> Result {
        let body = json!({
            "trail_name": format!("build-{number}"), "template_reference_name": "api", "fingerprint": fingerprint(number),
            "filename": filename(number), "git_commit": &fingerprint(number)[..40],
            "build_url": "https://ci.example.com/runs/1", "commit_url": "https://git.example.com/1",
        });
        self.client.send(&self.server.json("POST", &format!("/artifacts/{ORG}/{FLOW}"), &body)).await?;
        Ok(())
    }

    /// Sends this many reports, and returns the duration of each.
    async fn report(&mut self, reports: usize) -> Result<Vec<f64>> {
        let mut taken = Vec::with_capacity(reports);
        for _ in 0..reports {
            if self.number > 0 && self.number.is_multiple_of(PER_SNAPSHOT) {
                let change = self.running.len() + self.number / PER_SNAPSHOT;
                let place = change % self.running.len();
                if let Some(running) = self.running.get_mut(place) {
                    *running = change;
                }
            }
            let request = self.running_without(None);
            let client = &mut self.client;
            taken.extend(durations_ms(1, async |_| client.send(&request).await.map(drop)).await?);
            self.number += 1;
        }
        Ok(taken)
    }

    /// Returns a report of the running artifacts, without the one in this place.
    fn running_without(&self, missing: Option<usize>) -> Request {
        let artifact = |number: &usize| json!({ "digests": { filename(*number): fingerprint(*number) }, "creationTimestamp": 1_700_000_000 });
        let reported = (0..).zip(&self.running).filter(|(place, _)| Some(*place) != missing);
        let artifacts: Value = reported.map(|(_, number)| artifact(number)).collect();
        let path = format!("/environments/{ORG}/{ENVIRONMENT}/report/docker");
        self.server.json("PUT", &path, &json!({ "artifacts": artifacts }))
    }

    /// Stops and starts single artifacts. Returns the number of snapshots.
    async fn single_changes(&mut self, snapshots: usize) -> Result<usize> {
        for place in 0..snapshots / 2 {
            for missing in [Some(place % self.running.len()), None] {
                let request = self.running_without(missing);
                self.client.send(&request).await?;
            }
        }
        Ok(snapshots / 2 * 2)
    }

    /// Returns the durations of reads.
    async fn reads(&mut self) -> Result<Vec<(&'static str, Vec<f64>)>> {
        let last = self.snapshots().div_ceil(PER_PAGE).max(1);
        let page = |page: usize| format!("/snapshots/{ORG}/{ENVIRONMENT}?page={page}&per_page={PER_PAGE}");
        let reads = [
            (FIRST, page(1)),
            (LAST, page(last)),
            ("the first snapshot", format!("/snapshots/{ORG}/{ENVIRONMENT}/1")),
            ("the current snapshot", format!("/snapshots/{ORG}/{ENVIRONMENT}/-1")),
            ("events", format!("/environments/{ORG}/{ENVIRONMENT}/events")),
        ];
        let mut rows = Vec::new();
        for (name, path) in reads {
            let request: Request = self.server.get(&path);
            let client = &mut self.client;
            client.send(&request).await?;
            let taken = durations_ms(READS, async |_| client.send(&request).await.map(drop)).await?;
            rows.push((name, taken));
        }
        Ok(rows)
    }
}

fn fingerprint(number: usize) -> String {
    sha256_hex(&number.to_be_bytes())
}

fn filename(number: usize) -> String {
    format!("registry.example.com/api:{number}")
}
