//! Jobs, their turns, and the runner.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use tokio::sync::watch;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep, timeout};

use crate::error::Result;
use crate::feed::{Advance, Held, Lease, MAX_LEASE};
use crate::id::Id;
use crate::service::Evidence;
use crate::store::entry::StoredEntry;
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// A kind of background work.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use async_trait::async_trait;
/// use evidence_core::background::{Job, LEASE, Turn};
/// # use evidence_core::memory::MemoryStore;
/// use evidence_core::id::Id;
/// use evidence_core::{Evidence, Result, Settings};
///
/// /// Prints what happens in one organization, each entry at least once.
/// struct Printer {
///     org: Id,
/// }
///
/// #[async_trait]
/// impl Job for Printer {
///     fn name(&self) -> &str {
///         "printer"
///     }
///
///     fn every(&self) -> Duration {
///         Duration::from_secs(1)
///     }
///
///     async fn run(&self, turn: &Turn) -> Result<()> {
///         let batch = turn.next(self.org, 100).await?;
///         for entry in &batch.entries {
///             println!("{} {}", entry.index, entry.kind);
///         }
///         turn.done(&batch).await
///     }
/// }
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
/// # runtime.block_on(async {
/// # let service = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
/// # let org = "00000000-0000-0000-0000-00000001".parse().unwrap();
/// let background = service.background(LEASE, vec![Arc::new(Printer { org })]);
/// // … and when the program ends:
/// background.stop().await;
/// # });
/// ```
#[async_trait]
pub trait Job: Send + Sync + 'static {
    /// Returns the name of the job, its lease and its cursors. It must be unique in a store.
    fn name(&self) -> &str;

    /// Returns the pause after a successful run.
    fn every(&self) -> Duration;

    /// Does the work that is pending now.
    ///
    /// The lease is renewed on other threads of the runtime, if there are any, so a run may compute for long.
    /// The future is dropped at any await point if the lease is lost or the runner stops. The job then starts
    /// again, on this server or another.
    ///
    /// Errors and panics are logged. The pause before the next run doubles with each consecutive failure, up
    /// to a minute, or to [`every`](Self::every) if that is longer. The lease is then acquired anew. A run
    /// that fails after more than a minute starts a new series.
    ///
    /// # Errors
    /// If the run fails for any reason.
    async fn run(&self, turn: &Turn) -> Result<()>;
}

/// The default lease duration. Another server takes over this long after a crash. It checks four times per
/// duration, so it takes over within half a minute.
pub const LEASE: Duration = Duration::from_secs(20);

/// The longest pause after a failed run, unless the job's own pause is longer.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// A period in which a job holds its lease.
#[derive(Debug, Clone)]
pub struct Turn {
    evidence: Evidence,
    name: String,
    /// Unique to this turn, so that the store rejects writes of an earlier turn that are still running.
    holder: Id,
}

/// Entries that the job has not processed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The organization.
    pub org: Id,
    /// The position of the first entry.
    pub from: u64,
    /// The entries, in the order of the ledger; empty if all were processed.
    pub entries: Vec<StoredEntry>,
}

impl Turn {
    /// Returns the service.
    pub const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Returns the job's lease with its holder.
    pub(crate) fn held(&self) -> Held {
        Held { lease: self.name.clone(), holder: self.holder }
    }

    /// Returns at most `limit` entries of an organization's ledger from the job's cursor on. Returns fewer if
    /// they are long ([`LEDGER_PAGE`](crate::store::LEDGER_PAGE)).
    ///
    /// # Errors
    /// [`crate::Error::Store`] if the store fails.
    pub async fn next(&self, org: Id, limit: u64) -> Result<Batch> {
        let store = self.evidence.store();
        let from = store.cursor(&self.name, org).await?;
        let entries = store.ledger_entries(org, from, limit).await?;
        Ok(Batch { org, from, entries })
    }

    /// Moves the job's cursor behind a batch.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the lease was lost or the cursor has moved. The batch is then processed
    /// again.
    pub async fn done(&self, batch: &Batch) -> Result<()> {
        let Some(last) = batch.entries.last() else { return Ok(()) };
        let (consumer, org, holder) = (self.name.clone(), batch.org, self.holder);
        let advance = Advance { consumer, org, holder, from: batch.from, to: last.index + 1 };
        let moved = self.evidence.store().advance_cursor(&advance, self.evidence.now()).await?;
        if moved { Ok(()) } else { Err(StoreError::Conflict.into()) }
    }

    /// Returns the next turn of the same job.
    fn next_turn(&self) -> Self {
        Self { holder: self.evidence.new_id(), ..self.clone() }
    }

    /// Returns a lease that lasts this long from now on, and the current time.
    fn lease(&self, lasts: Duration) -> (Lease, Timestamp) {
        let now = self.evidence.now();
        let micros = i64::try_from(lasts.as_micros()).unwrap_or(i64::MAX);
        let expires_at = Timestamp::from_micros(now.as_micros().saturating_add(micros));
        (Lease { name: self.name.clone(), holder: self.holder, expires_at }, now)
    }

    /// Acquires the lease. Returns when it expires, or `None` if another server holds it.
    async fn acquire(&self, lasts: Duration) -> Result<Option<Timestamp>> {
        let (lease, now) = self.lease(lasts);
        Ok(self.evidence.store().acquire_lease(&lease, now).await?.then_some(lease.expires_at))
    }

    /// Renews the lease. Returns when it expires, or `None` if it was lost.
    async fn renew(&self, lasts: Duration) -> Result<Option<Timestamp>> {
        let (lease, now) = self.lease(lasts);
        Ok(self.evidence.store().renew_lease(&lease, now).await?.then_some(lease.expires_at))
    }

    async fn release(&self) -> Result<()> {
        Ok(self.evidence.store().release_lease(&self.name, self.holder).await?)
    }
}

/// Running background work. Dropping it stops the jobs at once; their leases expire later.
#[derive(Debug)]
pub struct Background {
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
}

impl Background {
    /// Stops every job at its next await point and releases the leases, so that other servers take over at
    /// once.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.running.join_next().await.is_some() {}
    }
}

impl Evidence {
    /// Starts these jobs on the current Tokio runtime. Each runs while this process holds its lease. `lease`
    /// is the duration of the leases, such as [`LEASE`], and at most [`MAX_LEASE`].
    pub fn background(&self, lease: Duration, jobs: Vec<Arc<dyn Job>>) -> Background {
        let lease = lease.min(MAX_LEASE);
        let (stop, stopped) = watch::channel(false);
        let mut running = JoinSet::new();
        for job in jobs {
            let turn = Turn { evidence: self.clone(), name: job.name().to_owned(), holder: self.new_id() };
            let stopped = Stopped(stopped.clone());
            running.spawn(async move {
                work(&*job, turn, lease, stopped).await;
            });
        }
        Background { stop, running }
    }
}

/// The signal that stops the runner.
#[derive(Debug, Clone)]
struct Stopped(watch::Receiver<bool>);

impl Stopped {
    fn is_so(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the signal.
    async fn asked(&mut self) {
        // A dropped runner has already aborted its tasks.
        self.0.wait_for(|stopped| *stopped).await.ok();
    }

    /// Waits for the signal, at most this long.
    async fn asked_within(&mut self, time: Duration) {
        timeout(time, self.asked()).await.ok();
    }
}

/// Waits for the lease, runs the job while it is held, and starts over after it was lost. The request for the
/// lease is not dropped when the runner stops: the store might still grant the lease after it was released.
async fn work(job: &dyn Job, mut turn: Turn, lease: Duration, mut stopped: Stopped) {
    // The previous turn until its lease is released. The lease may last longer than is known here.
    let mut former: Option<Turn> = None;
    // The number of consecutive failures, as long as no other server is known to have run the job.
    let mut failures = 0_u32;
    while !stopped.is_so() {
        let asked = async {
            if let Some(former) = &former {
                former.release().await?;
            }
            former = None;
            turn.acquire(lease).await
        };
        let answer = timeout(lease / 4, asked).await;
        match answer {
            Ok(Ok(Some(expires_at))) => {
                if failures == 0 {
                    tracing::info!(job = turn.name, "this process runs the job from now on");
                }
                let ended = hold(job, &turn, (lease, expires_at), &mut failures, &mut stopped).await;
                let next = turn.next_turn();
                former = Some(std::mem::replace(&mut turn, next));
                match ended {
                    Ended::Failed => continue,
                    Ended::Lost => failures = 0,
                }
            }
            Ok(Ok(None)) => failures = 0,
            Ok(Err(error)) => {
                tracing::warn!(job = turn.name, %error, "the job's lease could not be acquired")
            }
            Err(_) => tracing::warn!(job = turn.name, "the request for the job's lease timed out"),
        }
        stopped.asked_within(lease / 4).await;
    }
    for turn in former.iter().chain([&turn]) {
        if let Err(error) = turn.release().await {
            tracing::debug!(job = turn.name, %error, "a lease was not released; it expires by itself");
        }
    }
}

/// The reason why a turn ended.
enum Ended {
    /// A run failed. Its unfinished work must not be confused with that of the next run.
    Failed,
    /// The lease was lost, or the runner stops.
    Lost,
}

/// Runs the job while its lease is renewed.
async fn hold(
    job: &dyn Job,
    turn: &Turn,
    (lease, expires_at): (Duration, Timestamp),
    failures: &mut u32,
    stopped: &mut Stopped,
) -> Ended {
    // The renewal has its own task, so that it continues while the job computes. It ends with this one.
    let mut renewal = JoinSet::new();
    renewal.spawn(renew(turn.clone(), lease, expires_at, stopped.clone()));
    // It is queued behind this task until its first poll, and no other thread can take it from there.
    yield_now().await;
    let has_failed = matches!(
        select(select(pin!(run(job, turn, failures)), pin!(stopped.asked())), pin!(renewal.join_next()))
            .await,
        Either::Left((Either::Left(_), _))
    );
    if has_failed {
        // A late answer must not renew the lease after it was released.
        renewal.abort_all();
    } else if !stopped.is_so() {
        tracing::warn!(job = turn.name, "the job's lease was lost");
    }
    while renewal.join_next().await.is_some() {}
    if has_failed { Ended::Failed } else { Ended::Lost }
}

/// Runs the job repeatedly until a run fails, then pauses. The lease is kept during that pause, so that
/// servers do not fail in turns.
async fn run(job: &dyn Job, turn: &Turn, failures: &mut u32) {
    loop {
        let begun = Instant::now();
        let outcome = AssertUnwindSafe(job.run(turn)).catch_unwind().await;
        // Some jobs run until they fail.
        if matches!(outcome, Ok(Ok(()))) || begun.elapsed() > LONGEST_REST {
            *failures = 0;
        }
        match outcome {
            Ok(Ok(())) => {
                sleep(job.every()).await;
                continue;
            }
            Ok(Err(error)) => tracing::warn!(job = turn.name, %error, "the job failed and is retried"),
            Err(_) => tracing::error!(job = turn.name, "the job panicked and is retried"),
        }
        sleep(rest(job.every(), *failures)).await;
        *failures = failures.saturating_add(1);
        return;
    }
}

/// Returns the pause after a failed run, by the number of previous consecutive failures.
fn rest(every: Duration, failures: u32) -> Duration {
    every.saturating_mul(2_u32.saturating_pow(failures)).min(LONGEST_REST).max(every)
}

/// Renews the lease until the runner stops, or the lease is lost or has expired. Two unanswered attempts take
/// as long as the lease.
async fn renew(turn: Turn, lease: Duration, mut expires_at: Timestamp, mut stopped: Stopped) {
    while !stopped.is_so() {
        stopped.asked_within(lease / 4).await;
        if stopped.is_so() {
            return;
        }
        match timeout(lease / 4, turn.renew(lease)).await {
            Ok(Ok(Some(renewed))) => expires_at = renewed,
            Ok(Ok(None)) => return,
            Ok(Err(_)) | Err(_) if turn.evidence.now() >= expires_at => return,
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;
    use crate::error::Error;
    use crate::id::SystemRandom;
    use crate::memory::MemoryStore;
    use crate::service::Settings;
    use crate::store::Store;
    use crate::time::Clock;

    /// Records the holder of its lease, and fails.
    struct Failing(Arc<Mutex<Vec<Id>>>);

    #[async_trait]
    impl Job for Failing {
        fn name(&self) -> &str {
            "failing"
        }

        fn every(&self) -> Duration {
            Duration::from_millis(1)
        }

        async fn run(&self, turn: &Turn) -> Result<()> {
            self.0.lock().unwrap().push(turn.held().holder);
            Err(Error::Forbidden)
        }
    }

    #[tokio::test]
    async fn a_run_after_one_that_failed_has_a_lease_of_its_own() {
        let holders = Arc::new(Mutex::new(Vec::new()));
        let service = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
        let background = service.background(LEASE, vec![Arc::new(Failing(Arc::clone(&holders)))]);
        while holders.lock().unwrap().len() < 3 {
            sleep(Duration::from_millis(1)).await;
        }
        background.stop().await;
        let holders = holders.lock().unwrap().clone();
        assert_eq!(holders.iter().collect::<BTreeSet<_>>().len(), holders.len(), "{holders:?}");
    }

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The clock of the runtime, on which pauses end at once.
    struct RuntimeClock(Instant);

    impl Clock for RuntimeClock {
        fn now(&self) -> Timestamp {
            let elapsed = i64::try_from(self.0.elapsed().as_micros()).unwrap();
            Timestamp::from_micros(Timestamp::from_seconds(1_776_252_299).as_micros() + elapsed)
        }
    }

    /// Runs with these durations in seconds and results, and then successful ones. Records when each began
    /// and ended.
    struct Scripted {
        script: Vec<(u64, bool)>,
        runs: Mutex<Vec<(Instant, Instant)>>,
    }

    impl Scripted {
        fn new(script: Vec<(u64, bool)>) -> Arc<Self> {
            Arc::new(Self { script, runs: Mutex::default() })
        }

        fn runs(&self) -> Vec<(Instant, Instant)> {
            self.runs.lock().unwrap().clone()
        }

        /// Waits until it has run this many times.
        async fn has_run(&self, times: usize) {
            while self.runs().len() < times {
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    #[async_trait]
    impl Job for Scripted {
        fn name(&self) -> &str {
            "scripted"
        }

        fn every(&self) -> Duration {
            seconds(1)
        }

        async fn run(&self, _: &Turn) -> Result<()> {
            let (lasts, succeeds) = self.script.get(self.runs().len()).copied().unwrap_or((0, true));
            let begun = Instant::now();
            sleep(seconds(lasts)).await;
            self.runs.lock().unwrap().push((begun, Instant::now()));
            if succeeds { Ok(()) } else { Err(Error::Forbidden) }
        }
    }

    /// Starts a server that runs the job.
    fn serve(store: &Arc<dyn Store>, clock: &Arc<RuntimeClock>, job: &Arc<Scripted>) -> Background {
        let (store, clock) = (Arc::clone(store), Arc::clone(clock) as Arc<dyn Clock>);
        let service = Evidence::with_sources(store, Settings::default(), clock, Arc::new(SystemRandom));
        service.background(LEASE, vec![Arc::clone(job) as _])
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_fails_rests_longer_each_time_up_to_a_minute() {
        let (fails, succeeds, fails_late) = ((0, false), (0, true), (61, false));
        let mut script = vec![fails; 8];
        script.extend([succeeds, fails, fails, fails_late, fails]);
        let job = Scripted::new(script);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let background = serve(&store, &Arc::new(RuntimeClock(Instant::now())), &job);
        job.has_run(14).await;
        background.stop().await;
        let runs = job.runs();
        let rests = runs.iter().zip(&runs[1..]).map(|((_, ended), (begun, _))| (*begun - *ended).as_secs());
        assert_eq!(Vec::from_iter(rests), [1, 2, 4, 8, 16, 32, 60, 60, 1, 1, 2, 1, 2]);
        assert_eq!([0, 9, u32::MAX].map(|failures| rest(seconds(3_600), failures)), [seconds(3_600); 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn another_server_does_the_job_of_one_that_is_killed_while_it_rests() {
        let jobs = [(); 2].map(|()| Scripted::new(vec![(0, false); 99]));
        let (store, clock) =
            (Arc::new(MemoryStore::new()) as Arc<dyn Store>, Arc::new(RuntimeClock(Instant::now())));
        let first = serve(&store, &clock, &jobs[0]);
        jobs[0].has_run(7).await;
        let second = serve(&store, &clock, &jobs[1]);
        sleep(seconds(50)).await;
        assert_eq!([jobs[0].runs().len(), jobs[1].runs().len()], [7, 0], "it rests, and nobody else tries");
        drop(first);
        let killed = Instant::now();
        jobs[1].has_run(1).await;
        assert!(killed.elapsed() <= seconds(30), "{:?}", killed.elapsed());
        second.stop().await;
    }
}
