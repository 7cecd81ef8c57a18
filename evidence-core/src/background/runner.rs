//! Jobs, and the runner that runs each of them while this process holds the job's lease.

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
use crate::id::Id;
use crate::leases::{Advance, HeldLease, Lease, MAX_LEASE};
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
/// use evidence_core::background::{Job, JobContext, LEASE};
/// # use evidence_conformance::memory::MemoryStore;
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
///     async fn run(&self, cx: &JobContext) -> Result<()> {
///         let batch = cx.next_batch(self.org, 100).await?;
///         for entry in &batch.entries {
///             println!("{} {}", entry.index, entry.kind);
///         }
///         cx.commit(&batch).await
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
    /// Returns the name of the job, its lease and its cursors. It must be unique in the store.
    fn name(&self) -> &str;

    /// Returns the pause after each successful run.
    fn every(&self) -> Duration;

    /// Does the work that there is now.
    ///
    /// The future is dropped at an await point when the lease is lost or the runner stops. The job then begins again, here or
    /// on another server. While the job computes without awaiting, other threads of the runtime renew its lease, if there
    /// are any.
    ///
    /// # Errors
    /// An error or a panic is logged, and the job runs again after a pause, under a new lease. The pause doubles with each
    /// failure in a row, up to a minute, or to [`every`](Self::every) if that is longer. The count starts again after a run
    /// of more than a minute.
    async fn run(&self, cx: &JobContext) -> Result<()>;
}

/// The default duration of a lease. After a crash, another server takes over when the lease expires. It tries every quarter of
/// this time, so it takes over within half a minute.
pub const LEASE: Duration = Duration::from_secs(20);

/// The longest pause after a failed run, unless the job's own pause is longer.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The context of a job while this process holds its lease.
#[derive(Debug, Clone)]
pub struct JobContext {
    evidence: Evidence,
    name: String,
    /// The holder of the lease. Each acquisition has its own, so calls that still run under an earlier lease have another
    /// holder.
    holder: Id,
}

/// Entries that a consumer has not consumed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The organization.
    pub org: Id,
    /// The position of the first entry.
    pub from: u64,
    /// The entries, in the order of the ledger; empty if all were consumed.
    pub entries: Vec<StoredEntry>,
}

impl JobContext {
    /// Returns the service.
    pub const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Returns the job's lease with its holder.
    pub fn held_lease(&self) -> HeldLease {
        HeldLease { name: self.name.clone(), holder: self.holder }
    }

    /// Returns at most `limit` entries of an organization's ledger from the job's cursor on. Returns fewer if they are long
    /// ([`LEDGER_PAGE`](crate::store::LEDGER_PAGE)).
    ///
    /// # Errors
    /// [`crate::Error::Store`] if the store fails.
    pub async fn next_batch(&self, org: Id, limit: u64) -> Result<Batch> {
        let store = self.evidence.store();
        let from = store.cursor(&self.name, org).await?;
        let entries = store.ledger_entries(org, from, limit).await?;
        Ok(Batch { org, from, entries })
    }

    /// Moves the job's cursor past a batch.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another process has acquired the lease or moved the cursor meanwhile.
    pub async fn commit(&self, batch: &Batch) -> Result<()> {
        let Some(last) = batch.entries.last() else { return Ok(()) };
        let (consumer, org, holder) = (self.name.clone(), batch.org, self.holder);
        let advance = Advance { consumer, org, holder, from: batch.from, to: last.index + 1 };
        let moved = self.evidence.store().advance_cursor(&advance, self.evidence.now()).await?;
        if moved { Ok(()) } else { Err(StoreError::Conflict.into()) }
    }

    /// Returns a context of the same job with a new lease holder.
    fn with_new_holder(&self) -> Self {
        Self { holder: self.evidence.new_id(), ..self.clone() }
    }

    /// Returns the lease with its end if it begins now, and the current time.
    fn lease(&self, lasts: Duration) -> (Lease, Timestamp) {
        let now = self.evidence.now();
        let micros = i64::try_from(lasts.as_micros()).unwrap_or(i64::MAX);
        let expires_at = Timestamp::from_micros(now.as_micros().saturating_add(micros));
        (Lease { name: self.name.clone(), holder: self.holder, expires_at }, now)
    }

    /// Acquires the lease. Returns its end, or `None` if another holder has it.
    async fn acquire(&self, lasts: Duration) -> Result<Option<Timestamp>> {
        let (lease, now) = self.lease(lasts);
        Ok(self.evidence.store().acquire_lease(&lease, now).await?.then_some(lease.expires_at))
    }

    /// Renews the lease. Returns its end, or `None` if it was lost.
    async fn renew(&self, lasts: Duration) -> Result<Option<Timestamp>> {
        let (lease, now) = self.lease(lasts);
        Ok(self.evidence.store().renew_lease(&lease, now).await?.then_some(lease.expires_at))
    }

    async fn release(&self) -> Result<()> {
        Ok(self.evidence.store().release_lease(&self.name, self.holder).await?)
    }
}

/// Running background work. If it is dropped, the work ends at once, and the leases end when they expire.
#[derive(Debug)]
pub struct Background {
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
}

impl Background {
    /// Stops every job at its next await point, and releases the leases, so that other servers take over at once.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.running.join_next().await.is_some() {}
    }
}

impl Evidence {
    /// Starts these jobs on the current Tokio runtime. Each runs while this process holds its lease. `lease` is the duration
    /// of a lease without renewal ([`LEASE`]), at most [`MAX_LEASE`].
    pub fn background(&self, lease: Duration, jobs: Vec<Arc<dyn Job>>) -> Background {
        let lease = lease.min(MAX_LEASE);
        let (stop, stopped) = watch::channel(false);
        let mut running = JoinSet::new();
        for job in jobs {
            let cx =
                JobContext { evidence: self.clone(), name: job.name().to_owned(), holder: self.new_id() };
            let stopped = StopSignal(stopped.clone());
            running.spawn(async move {
                acquire_and_run(&*job, cx, lease, stopped).await;
            });
        }
        Background { stop, running }
    }
}

/// A signal that the runner should stop.
#[derive(Debug, Clone)]
struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the signal.
    async fn wait(&mut self) {
        // An error means that the runner was dropped, which ends its tasks.
        self.0.wait_for(|stopped| *stopped).await.ok();
    }

    /// Waits for the signal for at most this time.
    async fn wait_at_most(&mut self, time: Duration) {
        timeout(time, self.wait()).await.ok();
    }
}

/// Waits for the lease, runs the job while the lease is held, and waits again when it is lost, until the runner stops. A
/// call that acquires the lease is not dropped when the runner stops, because the store may still execute it after the
/// lease was released.
async fn acquire_and_run(job: &dyn Job, mut cx: JobContext, lease: Duration, mut stopped: StopSignal) {
    // The previous context, until its lease is released. The lease may end later than this process knows.
    let mut previous: Option<JobContext> = None;
    // The failures in a row, without another server that is known to have held the lease meanwhile.
    let mut failures = 0_u32;
    while !stopped.is_set() {
        let asked = async {
            if let Some(previous) = &previous {
                previous.release().await?;
            }
            previous = None;
            cx.acquire(lease).await
        };
        let answer = timeout(lease / 4, asked).await;
        match answer {
            Ok(Ok(Some(expires_at))) => {
                if failures == 0 {
                    tracing::info!(job = cx.name, "this process does the job from now on");
                }
                let ended = run_under_lease(job, &cx, (lease, expires_at), &mut failures, &mut stopped).await;
                let next = cx.with_new_holder();
                previous = Some(std::mem::replace(&mut cx, next));
                match ended {
                    Ended::Failed => continue,
                    Ended::Lost => failures = 0,
                }
            }
            Ok(Ok(None)) => failures = 0,
            Ok(Err(error)) => {
                tracing::warn!(job = cx.name, %error, "the job's lease could not be asked for")
            }
            Err(_) => tracing::warn!(job = cx.name, "the store does not answer who holds the job's lease"),
        }
        stopped.wait_at_most(lease / 4).await;
    }
    for cx in previous.iter().chain([&cx]) {
        if let Err(error) = cx.release().await {
            tracing::debug!(job = cx.name, %error, "a lease was not given back: it expires by itself");
        }
    }
}

/// The reason why the job stopped running under a lease.
enum Ended {
    /// A run failed. Its calls that still run must not have the same holder as those of the next run.
    Failed,
    /// The lease was lost, or the runner stops.
    Lost,
}

/// Runs the job while its lease is renewed.
async fn run_under_lease(
    job: &dyn Job,
    cx: &JobContext,
    (lease, expires_at): (Duration, Timestamp),
    failures: &mut u32,
    stopped: &mut StopSignal,
) -> Ended {
    // A separate task, which continues while the job computes, and ends with this one.
    let mut renewal = JoinSet::new();
    renewal.spawn(renew(cx.clone(), lease, expires_at, stopped.clone()));
    // Until it has run once, the new task waits behind this one, and no other thread can take it over.
    yield_now().await;
    let has_failed = matches!(
        select(select(pin!(run(job, cx, failures)), pin!(stopped.wait())), pin!(renewal.join_next())).await,
        Either::Left((Either::Left(_), _))
    );
    if has_failed {
        // A renewal that arrives later changes nothing after the lease was released.
        renewal.abort_all();
    } else if !stopped.is_set() {
        tracing::warn!(job = cx.name, "the job's lease was lost");
    }
    while renewal.join_next().await.is_some() {}
    if has_failed { Ended::Failed } else { Ended::Lost }
}

/// Runs the job repeatedly until a run fails, and pauses after that run, too. The lease is held during that pause, so that
/// other servers do not take over a job that fails.
async fn run(job: &dyn Job, cx: &JobContext, failures: &mut u32) {
    loop {
        let begun = Instant::now();
        let outcome = AssertUnwindSafe(job.run(cx)).catch_unwind().await;
        // Some jobs run until they fail.
        if matches!(outcome, Ok(Ok(()))) || begun.elapsed() > MAX_PAUSE {
            *failures = 0;
        }
        match outcome {
            Ok(Ok(())) => {
                sleep(job.every()).await;
                continue;
            }
            Ok(Err(error)) => tracing::warn!(job = cx.name, %error, "the job failed and is tried again"),
            Err(_) => tracing::error!(job = cx.name, "the job panicked and is tried again"),
        }
        sleep(pause_after_failure(job.every(), *failures)).await;
        *failures = failures.saturating_add(1);
        return;
    }
}

/// Returns the pause after a failed run that follows this many failures in a row.
fn pause_after_failure(every: Duration, failures: u32) -> Duration {
    every.saturating_mul(2_u32.saturating_pow(failures)).min(MAX_PAUSE).max(every)
}

/// Renews the lease until the runner stops, or the lease is lost or has expired. The lease lasts as long as two attempts that
/// the store does not answer.
async fn renew(cx: JobContext, lease: Duration, mut expires_at: Timestamp, mut stopped: StopSignal) {
    while !stopped.is_set() {
        stopped.wait_at_most(lease / 4).await;
        if stopped.is_set() {
            return;
        }
        match timeout(lease / 4, cx.renew(lease)).await {
            Ok(Ok(Some(renewed))) => expires_at = renewed,
            Ok(Ok(None)) => return,
            Ok(Err(_)) | Err(_) if cx.evidence.now() >= expires_at => return,
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_never_shorter_than_the_interval_of_the_job() {
        let interval = Duration::from_secs(3_600);
        assert_eq!([0, 9, u32::MAX].map(|failures| pause_after_failure(interval, failures)), [interval; 3]);
    }
}
