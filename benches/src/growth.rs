//! The durations of reads as a store grows. There is one store per size. All are filled first and then read
//! in turns, so that other work of the machine affects all of them equally. Nothing is cached, because a
//! cached response measures nothing of the store.

use crate::{Engine, Request, Result, Row, Server, durations_ms, percentile};

const SIZES: &str = "EVIDENCE_BENCH_GROWTH";
const USUAL: &str = "10000,100000";
/// The number of rounds.
const ROUNDS: usize = 20;
/// The number of reads per store and round.
const READS: usize = 25;

/// The reads, with their names.
pub type Reads = Vec<(&'static str, Request)>;

/// A store of one size.
#[derive(Debug)]
pub struct Grown {
    /// The API over it.
    pub server: Server,
    /// The number of records in it.
    pub size: usize,
    /// The reads, the same for each size.
    pub reads: Reads,
}

/// Returns the measured sizes: `EVIDENCE_BENCH_GROWTH`, or those that take less than minutes to fill.
///
/// # Errors
/// If the variable is not a list of numbers.
pub fn sizes() -> Result<Vec<usize>> {
    let sizes = std::env::var(SIZES).unwrap_or_else(|_| USUAL.to_owned());
    Ok(sizes.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?)
}

/// Measures every read at each size, and compares the last size with the first.
///
/// # Errors
/// The first read that fails.
pub async fn growth(engine: Engine, of: &str, grown: &[Grown]) -> Result<Vec<Row>> {
    let names = grown.first().into_iter().flat_map(|grown| &grown.reads).map(|(name, _)| *name);
    let sizes: Vec<String> = grown.iter().map(|grown| grown.size.to_string()).collect();
    let sizes = sizes.join(", ");
    let mut rows = vec![Row::orientation(
        format!("P4 {engine}, {of}"),
        format!("{sizes}: each figure is in milliseconds, the ratio that of the last p99 to the first"),
    )];
    for (number, name) in names.enumerate() {
        let mut taken = vec![Vec::new(); grown.len()];
        for _ in 0..ROUNDS {
            for (Grown { server, reads, .. }, taken) in grown.iter().zip(&mut taken) {
                let (_, request) = reads.get(number).ok_or("no such read")?;
                let mut client = server.client().await?;
                client.send(request).await?;
                taken.extend(durations_ms(READS, async |_| client.send(request).await.map(drop)).await?);
            }
        }
        rows.push(row(format!("P4 {engine}, {name}"), &taken));
    }
    Ok(rows)
}

fn row(what: String, taken: &[Vec<f64>]) -> Row {
    let at = |share: usize| taken.iter().map(move |taken| percentile(taken.iter().copied(), share));
    let figures =
        |share: usize| at(share).map(|millis| format!("{millis:.2}")).collect::<Vec<_>>().join(", ");
    let ratio = at(99).next_back().zip(at(99).next()).map_or(0.0, |(last, first)| last / first);
    let figure = format!("p50 {}; p99 {}", figures(50), figures(99));
    Row { ratio: Some(ratio), ..Row::new(what, figure, "≤ 2", ratio <= 2.0) }
}
