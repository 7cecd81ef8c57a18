//! Jobs, the turns that they get, and the runner that gives them.

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
    /// Its name, which its lease and its cursors have: no two jobs of a store share one.
    fn name(&self) -> &str;

    /// How long it rests after each run, unless that failed.
    fn every(&self) -> Duration;

    /// Does what there is to do now. While it computes without waiting, its lease is renewed on the runtime's other
    /// threads, if it has any. It is dropped at any point of waiting when the lease is lost or the runner stops, and
    /// begun again, here or elsewhere. An error, or a panic, is logged. The next run comes after a rest that is twice as long with
    /// each failure in a row, up to a minute, or [`every`](Self::every) where that is longer, under a lease that is taken anew.
    /// What fails after more than that minute has not failed in a row.
    ///
    /// # Errors
    /// Whatever went wrong.
    async fn run(&self, turn: &Turn) -> Result<()>;
}

/// How long another server waits for one that does not renew its leases, by default. It asks four times in that time, so that it
/// takes over within half a minute.
pub const LEASE: Duration = Duration::from_secs(20);

/// The longest rest after a run that failed, unless the job rests for longer anyway.
const LONGEST_REST: Duration = Duration::from_secs(60);

/// What a job has at hand while it holds its lease.
#[derive(Debug, Clone)]
pub struct Turn {
    evidence: Evidence,
    name: String,
    /// Of this turn alone: what an earlier one has still under way is done under another.
    holder: Id,
}

/// Entries that a consumer has not consumed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The organization.
    pub org: Id,
    /// The position of the first entry.
    pub from: u64,
    /// The entries, in the order of the ledger; none where all were consumed.
    pub entries: Vec<StoredEntry>,
}

impl Turn {
    /// The service.
    pub const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Returns the job's lease with its holder.
    pub fn held(&self) -> Held {
        Held { lease: self.name.clone(), holder: self.holder }
    }

    /// At most `limit` entries of an organization's ledger from the job's cursor on, fewer where they are long
    /// ([`LEDGER_PAGE`](crate::store::LEDGER_PAGE)).
    ///
    /// # Errors
    /// [`crate::Error::Store`] when the store fails.
    pub async fn next(&self, org: Id, limit: u64) -> Result<Batch> {
        let store = self.evidence.store();
        let from = store.cursor(&self.name, org).await?;
        let entries = store.ledger_entries(org, from, limit).await?;
        Ok(Batch { org, from, entries })
    }

    /// Moves the job's cursor past a batch.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when the lease or the cursor is somebody else's meanwhile: the batch comes again.
    pub async fn done(&self, batch: &Batch) -> Result<()> {
        let Some(last) = batch.entries.last() else { return Ok(()) };
        let (consumer, org, holder) = (self.name.clone(), batch.org, self.holder);
        let advance = Advance { consumer, org, holder, from: batch.from, to: last.index + 1 };
        let moved = self.evidence.store().advance_cursor(&advance, self.evidence.now()).await?;
        if moved { Ok(()) } else { Err(StoreError::Conflict.into()) }
    }

    /// The next turn at the same job.
    fn next_turn(&self) -> Self {
        Self { holder: self.evidence.new_id(), ..self.clone() }
    }

    /// The lease as it is to be from now on, and now.
    fn lease(&self, lasts: Duration) -> (Lease, Timestamp) {
        let now = self.evidence.now();
        let micros = i64::try_from(lasts.as_micros()).unwrap_or(i64::MAX);
        let expires_at = Timestamp::from_micros(now.as_micros().saturating_add(micros));
        (Lease { name: self.name.clone(), holder: self.holder, expires_at }, now)
    }

    /// Takes the lease; answers when it ends, where it is held.
    async fn acquire(&self, lasts: Duration) -> Result<Option<Timestamp>> {
        let (lease, now) = self.lease(lasts);
        Ok(self.evidence.store().acquire_lease(&lease, now).await?.then_some(lease.expires_at))
    }

    /// Renews the lease; answers when it ends, where it is held still.
    async fn renew(&self, lasts: Duration) -> Result<Option<Timestamp>> {
        let (lease, now) = self.lease(lasts);
        Ok(self.evidence.store().renew_lease(&lease, now).await?.then_some(lease.expires_at))
    }

    async fn release(&self) -> Result<()> {
        Ok(self.evidence.store().release_lease(&self.name, self.holder).await?)
    }
}

/// Background work that goes on. Dropped, it ends at once, and its leases when they expire.
#[derive(Debug)]
pub struct Background {
    stop: watch::Sender<bool>,
    running: JoinSet<()>,
}

impl Background {
    /// Ends every job where it next waits, and gives the leases back, so that other servers take over at once.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.running.join_next().await.is_some() {}
    }
}

impl Evidence {
    /// Does these jobs from now on, on the Tokio runtime that this is called on, each while this process holds its lease;
    /// `lease` is how long that lasts when nobody renews it any more ([`LEASE`]), [`MAX_LEASE`] at most.
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

/// That the runner was told to stop.
#[derive(Debug, Clone)]
struct Stopped(watch::Receiver<bool>);

impl Stopped {
    fn is_so(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits for it.
    async fn asked(&mut self) {
        // A runner that is gone has ended its tasks.
        self.0.wait_for(|stopped| *stopped).await.ok();
    }

    /// Waits for it so long.
    async fn asked_within(&mut self, time: Duration) {
        timeout(time, self.asked()).await.ok();
    }
}

/// Waits for the lease, does the job while it is held, and waits again when it is lost, until it is to stop. What asks for
/// the lease is not dropped when it is to stop: the store may answer it all the same, after the lease was given back.
async fn work(job: &dyn Job, mut turn: Turn, lease: Duration, mut stopped: Stopped) {
    // The last turn, until its lease is given back: it may last longer than is known here.
    let mut former: Option<Turn> = None;
    // In a row, and nobody else is known to have done the job meanwhile.
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

/// Why a turn ended.
enum Ended {
    /// A run failed. What it has still under way must not be taken for that of the next one.
    Failed,
    /// The lease was lost, or it is to stop.
    Lost,
}

/// Does the job while its lease is renewed.
async fn hold(
    job: &dyn Job,
    turn: &Turn,
    (lease, expires_at): (Duration, Timestamp),
    failures: &mut u32,
    stopped: &mut Stopped,
) -> Ended {
    // A task of its own, which goes on while the job computes; it ends with this one.
    let mut renewal = JoinSet::new();
    renewal.spawn(renew(turn.clone(), lease, expires_at, stopped.clone()));
    // It waits for its turn behind this task until it has run once, and no other thread takes it from there.
    yield_now().await;
    let has_failed = matches!(
        select(select(pin!(run(job, turn, failures)), pin!(stopped.asked())), pin!(renewal.join_next()))
            .await,
        Either::Left((Either::Left(_), _))
    );
    if has_failed {
        // One that is answered later changes nothing once the lease was given back.
        renewal.abort_all();
    } else if !stopped.is_so() {
        tracing::warn!(job = turn.name, "the job's lease was lost");
    }
    while renewal.join_next().await.is_some() {}
    if has_failed { Ended::Failed } else { Ended::Lost }
}

/// Runs the job again and again, until a run fails, and rests after that one, too: under the lease, so that servers do not take
/// turns at failing.
async fn run(job: &dyn Job, turn: &Turn, failures: &mut u32) {
    loop {
        let begun = Instant::now();
        let outcome = AssertUnwindSafe(job.run(turn)).catch_unwind().await;
        // Some jobs go on until they fail.
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

/// How long a job rests after a run that failed, and so many before it in a row.
fn rest(every: Duration, failures: u32) -> Duration {
    every.saturating_mul(2_u32.saturating_pow(failures)).min(LONGEST_REST).max(every)
}

/// Renews the lease, and ends when it is to stop, or the lease is lost or has expired: two attempts that are not answered
/// take as long as it lasts.
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
