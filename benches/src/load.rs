//! Rounds of load: many concurrent workers for a while, and the results.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::{Client, Request, Result};

/// A worker that repeats one action.
pub trait Worker: Send + 'static {
    /// Performs the action once.
    fn work(&mut self) -> impl Future<Output = Result> + Send;
}

/// A client that repeats one request on its own connection.
#[derive(Debug)]
pub struct Repeater {
    client: Client,
    request: Request,
    status: u16,
}

impl Repeater {
    /// Creates clients that require this status of every response.
    ///
    /// # Errors
    /// If nothing listens.
    pub async fn several(
        address: SocketAddr,
        request: &Request,
        status: u16,
        clients: usize,
    ) -> Result<Vec<Self>> {
        let mut repeaters = Vec::new();
        for _ in 0..clients {
            let client = Client::connect(address).await?;
            repeaters.push(Self { client, request: request.clone(), status });
        }
        Ok(repeaters)
    }
}

impl Worker for Repeater {
    async fn work(&mut self) -> Result {
        let status = self.client.execute(&self.request).await?.status;
        if status == self.status {
            Ok(())
        } else {
            Err(format!("status {status}, not {}", self.status).into())
        }
    }
}

/// The results of a round.
#[derive(Debug, Clone, Copy)]
pub struct Round {
    /// The number of actions per second.
    pub per_second: f64,
    /// The CPU time of this process per action, without its clients, in microseconds; 0 if it cannot be read.
    pub cpu_micros: f64,
    /// The CPU time of the clients.
    pub client_micros: f64,
    /// The CPU time of the processes of PostgreSQL on this machine.
    pub database_micros: f64,
    /// The median duration of an action, in milliseconds.
    pub p50: f64,
    /// The 99th percentile of the durations, in milliseconds.
    pub p99: f64,
}

impl Round {
    /// Returns the medians of several rounds, per figure.
    pub fn medians(rounds: &[Self]) -> Self {
        let of = |figure: fn(&Self) -> f64| median(rounds.iter().map(figure));
        Self {
            per_second: of(|round| round.per_second),
            cpu_micros: of(|round| round.cpu_micros),
            client_micros: of(|round| round.client_micros),
            database_micros: of(|round| round.database_micros),
            p50: of(|round| round.p50),
            p99: of(|round| round.p99),
        }
    }
}

impl std::fmt::Display for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { per_second, cpu_micros, database_micros, p50, p99, .. } = self;
        write!(f, "{per_second:.0}/s, {cpu_micros:.0} ")?;
        if *database_micros >= 1.0 {
            write!(f, "+ {database_micros:.0} ")?;
        }
        write!(f, "µs CPU, p50 {p50:.1} ms, p99 {p99:.1} ms")
    }
}

/// Runs the workers concurrently for `length`, and returns them.
///
/// # Errors
/// The first failure of a worker.
pub async fn round<W: Worker>(workers: Vec<W>, length: Duration) -> Result<(Vec<W>, Round)> {
    measure(workers, length, None).await
}

/// Runs the workers for `length` with this total number of actions per second. The duration of an action
/// starts when it is due, so that it includes waiting for a late worker. The clock that wakes workers has a
/// resolution of a millisecond.
///
/// # Errors
/// The first failure of a worker.
pub async fn paced<W: Worker>(workers: Vec<W>, per_second: u32, length: Duration) -> Result<(Vec<W>, Round)> {
    let every = Duration::from_secs(1) * u32::try_from(workers.len())? / per_second;
    measure(workers, length, Some(every)).await
}

/// Runs the workers. Each acts again at once, or once in each interval `every`.
async fn measure<W: Worker>(
    workers: Vec<W>,
    length: Duration,
    every: Option<Duration>,
) -> Result<(Vec<W>, Round)> {
    let (begun, cpu, count) = (Instant::now(), CpuTimes::now(), u32::try_from(workers.len())?);
    let mut tasks = JoinSet::new();
    for (number, mut worker) in (0..count).zip(workers) {
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            let mut due = begun + every.unwrap_or_default() * number / count;
            loop {
                let started = match every {
                    Some(_) => {
                        sleep_until(due.into()).await;
                        due
                    }
                    None => Instant::now(),
                };
                if started.duration_since(begun) >= length {
                    return Result::Ok((worker, latencies));
                }
                worker.work().await?;
                latencies.push(started.elapsed());
                due += every.unwrap_or_default();
            }
        });
    }
    let (mut workers, mut latencies) = (Vec::new(), Vec::new());
    while let Some(ended) = tasks.join_next().await {
        let (worker, more) = ended??;
        workers.push(worker);
        latencies.extend(more.iter().map(millis));
    }
    let (elapsed, spent) = (begun.elapsed(), CpuTimes::now());
    let count = latencies.len().max(1);
    let each = |time: fn(&CpuTimes) -> Duration| {
        time(&spent).saturating_sub(time(&cpu)).as_secs_f64() * 1e6 / real(count)
    };
    let measured = Round {
        per_second: real(count) / elapsed.as_secs_f64(),
        cpu_micros: each(|times| times.server),
        client_micros: each(|times| times.clients),
        database_micros: each(|times| times.database),
        p50: percentile(latencies.iter().copied(), 50),
        p99: percentile(latencies.iter().copied(), 99),
    };
    Ok((workers, measured))
}

#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
const fn real(count: usize) -> f64 {
    count as f64
}

fn millis(time: &Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// CPU times as reported by Linux, in hundredths of a second, without threads and processes that have ended.
#[derive(Debug, Default)]
struct CpuTimes {
    /// The threads of this process, without its clients.
    server: Duration,
    /// The clients' threads.
    clients: Duration,
    /// The processes of PostgreSQL, of any user.
    database: Duration,
}

impl CpuTimes {
    fn now() -> Self {
        let mut times = Self::default();
        let main = std::process::id().to_string();
        for (id, name, time) in cpu_times("/proc/self/task") {
            // The main thread is a client too.
            let of =
                if id == main || name.starts_with(CLIENT) { &mut times.clients } else { &mut times.server };
            *of += time;
        }
        let database = cpu_times("/proc").filter(|(_, name, _)| name == "postgres");
        times.database = database.map(|(.., time)| time).sum();
        times
    }
}

/// Returns the threads or processes in a directory of `/proc`: the id, the name and the time.
fn cpu_times(directory: &str) -> impl Iterator<Item = (String, String, Duration)> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let id = entry.file_name().into_string().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The second field is a name in parentheses; user and system time are the 14th and 15th.
        let (name, fields) = stat.split_once(" (")?.1.rsplit_once(')')?;
        let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
        Some((id, name.to_owned(), Duration::from_millis(ticks.sum::<u64>() * 10)))
    })
}

/// The name of the clients' threads.
const CLIENT: &str = "client";

/// Runs a benchmark program. `work` and the tasks that it spawns are clients, on separate threads. The handle
/// is that of the threads for servers and stores.
///
/// # Errors
/// The error of `work`.
pub fn run<F: Future<Output = Result>>(work: impl FnOnce(Handle) -> F) -> Result {
    let threads = |name: &str| Builder::new_multi_thread().enable_all().thread_name(name).build();
    let (servers, clients) = (threads("server")?, threads(CLIENT)?);
    clients.block_on(work(servers.handle().clone()))
}

/// Returns the median; 0 without values.
pub fn median(figures: impl Iterator<Item = f64>) -> f64 {
    percentile(figures, 50)
}

/// Returns the value that this share of a hundred is below; 0 without values.
pub fn percentile(figures: impl Iterator<Item = f64>, share: usize) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() * share / 100).copied().unwrap_or_default()
}

/// Returns the duration of each of `count` runs of `work`, in milliseconds.
///
/// # Errors
/// The first failure of `work`.
pub async fn durations_ms(count: usize, mut work: impl AsyncFnMut(usize) -> Result) -> Result<Vec<f64>> {
    let mut taken = Vec::with_capacity(count);
    for turn in 0..count {
        let started = Instant::now();
        work(turn).await?;
        taken.push(millis(&started.elapsed()));
    }
    Ok(taken)
}

/// Returns the median duration of `count` runs of `work`, in milliseconds.
///
/// # Errors
/// The first failure of `work`.
pub async fn median_ms(count: usize, work: impl AsyncFnMut(usize) -> Result) -> Result<f64> {
    Ok(median(durations_ms(count, work).await?.into_iter()))
}

/// Sends many requests on a few connections, in any order.
///
/// # Errors
/// The first request that does not succeed.
pub async fn send_all(address: SocketAddr, requests: Vec<Request>) -> Result {
    const CONNECTIONS: usize = 32;
    let mut tasks = JoinSet::new();
    let share = requests.len().div_ceil(CONNECTIONS).max(1);
    for requests in requests.chunks(share).map(<[Request]>::to_vec) {
        tasks.spawn(async move {
            let mut client = Client::connect(address).await?;
            for request in &requests {
                client.send(request).await?;
            }
            Result::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}
