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
    async fn run(&self, turn: &Turn) -> Result<()>;
}

/// The default duration of a lease. After a crash, another server takes over when the lease expires. It tries every quarter of
/// this time, so it takes over within half a minute.
pub const LEASE: Duration = Duration::from_secs(20);

/// The longest pause after a failed run, unless the job's own pause is longer.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// The context of a job while this process holds its lease.
#[derive(Debug, Clone)]
pub struct Turn {
    evidence: Evidence,
    name: String,
    /// The holder of the lease in this turn only. Calls of an earlier turn that still run have another holder.
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

impl Turn {
    /// Returns the service.
    pub const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Returns the job's lease with its holder.
    pub fn held(&self) -> Held {
        Held { lease: self.name.clone(), holder: self.holder }
    }

    /// Returns at most `limit` entries of an organization's ledger from the job's cursor on. Returns fewer if they are long
    /// ([`LEDGER_PAGE`](crate::store::LEDGER_PAGE)).
    ///
    /// # Errors
    /// [`crate::Error::Store`] if the store fails.
    pub async fn next(&self, org: Id, limit: u64) -> Result<Batch> {
        let store = self.evidence.store();
        let from = store.cursor(&self.name, org).await?;
        let entries = store.ledger_entries(org, from, limit).await?;
        Ok(Batch { org, from, entries })
    }

    /// Moves the job's cursor past a batch.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if another process has acquired the lease or moved the cursor meanwhile.
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
            let turn = Turn { evidence: self.clone(), name: job.name().to_owned(), holder: self.new_id() };
            let stopped = Stopped(stopped.clone());
            running.spawn(async move {
                work(&*job, turn, lease, stopped).await;
            });
        }
        Background { stop, running }
    }
}

/// A signal that the runner should stop.
#[derive(Debug, Clone)]
struct Stopped(watch::Receiver<bool>);

impl Stopped {
    fn is_so(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for the signal.
    async fn asked(&mut self) {
        // An error means that the runner was dropped, which ends its tasks.
        self.0.wait_for(|stopped| *stopped).await.ok();
    }

    /// Waits for the signal for at most this time.
    async fn asked_within(&mut self, time: Duration) {
        timeout(time, self.asked()).await.ok();
    }
}

/// Waits for the lease, runs the job while the lease is held, and waits again when it is lost, until the runner stops. A
/// call that acquires the lease is not dropped when the runner stops, because the store may still execute it after the
/// lease was released.
async fn work(job: &dyn Job, mut turn: Turn, lease: Duration, mut stopped: Stopped) {
    // The last turn, until its lease is released. The lease may end later than this process knows.
    let mut former: Option<Turn> = None;
    // The failures in a row, without another server that is known to have held the lease meanwhile.
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
                    tracing::info!(job = turn.name, "this process does the job from now on");
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
                tracing::warn!(job = turn.name, %error, "the job's lease could not be asked for")
            }
            Err(_) => tracing::warn!(job = turn.name, "the store does not answer who holds the job's lease"),
        }
        stopped.asked_within(lease / 4).await;
    }
    for turn in former.iter().chain([&turn]) {
        if let Err(error) = turn.release().await {
            tracing::debug!(job = turn.name, %error, "a lease was not given back: it expires by itself");
        }
    }
}

/// The reason why a turn ended.
enum Ended {
    /// A run failed. Its calls that still run must not have the same holder as those of the next run.
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
    // A separate task, which continues while the job computes, and ends with this one.
    let mut renewal = JoinSet::new();
    renewal.spawn(renew(turn.clone(), lease, expires_at, stopped.clone()));
    // Until it has run once, the new task waits behind this one, and no other thread can take it over.
    yield_now().await;
    let has_failed = matches!(
        select(select(pin!(run(job, turn, failures)), pin!(stopped.asked())), pin!(renewal.join_next()))
            .await,
        Either::Left((Either::Left(_), _))
    );
    if has_failed {
        // A renewal that arrives later changes nothing after the lease was released.
        renewal.abort_all();
    } else if !stopped.is_so() {
        tracing::warn!(job = turn.name, "the job's lease was lost");
    }
    while renewal.join_next().await.is_some() {}
    if has_failed { Ended::Failed } else { Ended::Lost }
}

/// Runs the job repeatedly until a run fails, and pauses after that run, too. The lease is held during that pause, so that
/// other servers do not take over a job that fails.
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
            Ok(Err(error)) => tracing::warn!(job = turn.name, %error, "the job failed and is tried again"),
            Err(_) => tracing::error!(job = turn.name, "the job panicked and is tried again"),
        }
        sleep(rest(job.every(), *failures)).await;
        *failures = failures.saturating_add(1);
        return;
    }
}

/// Returns the pause after a failed run that follows this many failures in a row.
fn rest(every: Duration, failures: u32) -> Duration {
    every.saturating_mul(2_u32.saturating_pow(failures)).min(LONGEST_REST).max(every)
}

/// Renews the lease until the runner stops, or the lease is lost or has expired. The lease lasts as long as two attempts that
/// the store does not answer.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_never_shorter_than_the_interval_of_the_job() {
        let interval = Duration::from_secs(3_600);
        assert_eq!([0, 9, u32::MAX].map(|failures| rest(interval, failures)), [interval; 3]);
    }
}
