//! The queue of a store's writer, for stores in which one task or thread writes. It has a deadline and a byte budget that
//! organizations share. The SQLite and the PostgreSQL store use it.
//!
//! A job has a deadline. If the writer starts the job before it, the caller waits for the outcome. Otherwise the job never runs,
//! and the caller may retry. If a database hangs, callers therefore fail soon, and jobs that they gave up do not run later.
//!
//! A job reserves bytes of the budget ([`FairBudget`]) until it is done, and is refused at once if too few are free. This limits
//! the memory of waiting jobs. Jobs of no organization (leases, cursors) reserve nothing.
//!
//! Uploads yield to other jobs. The writer takes the other jobs first, and then a bounded number of chunks of uploads, of one
//! organization after the other. A record thus waits for at most a megabyte of chunks, and several chunks share a commit.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::budget::{FairBudget, Reservation};
use crate::id::Id;
use crate::store::error::{StoreError, StoreResult};

/// The number of jobs in the queue. Further callers wait until there is a place.
const CAPACITY: usize = 1024;

/// The bytes that a job takes beside its payload.
const OVERHEAD: usize = 1024;

/// The bytes of uploads after which the writer takes no more of them at once.
const UPLOADS_AT_ONCE: usize = 1 << 20;

/// The number of uploads that the writer takes at once. Each may be a round trip to a database.
const MAX_UPLOADS: usize = 16;

/// A job of a writer.
pub trait Task: Send + 'static {
    /// Returns the organization that the job belongs to, and the bytes that the job reserves; `None` if it reserves none.
    fn reserved_bytes(&self) -> Option<(Id, usize)>;

    /// Returns whether the job is a part of an upload. It then yields to other jobs.
    fn is_upload(&self) -> bool;
}

/// The limits of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// The bytes that may wait.
    pub bytes: usize,
    /// The time that a job waits until the writer starts it.
    pub wait: Duration,
    /// The additional time that a caller waits for the outcome of a started job. `None` is no limit.
    pub grace: Option<Duration>,
}

/// The reason why a job has no outcome. It is the source of [`StoreError::Unavailable`], or of [`StoreError::OutcomeUnknown`] if
/// the writer had started the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The budget has no room for the job. It was never enqueued.
    #[error("the queue of writes has no room")]
    Full,
    /// The writer did not start the job in time, and never will.
    #[error("the store's writer did not start the write in time")]
    Late,
    /// The writer has stopped.
    #[error("the store was closed")]
    Closed,
    /// The job was started, and its outcome was not reported in time.
    #[error("the database did not report the outcome of the write in time")]
    Silent,
    /// The job was started, and the writer stopped before it replied.
    #[error("the store's writer stopped during the write")]
    Lost,
}

impl From<Refused> for StoreError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full | Refused::Late | Refused::Closed => Self::Unavailable(refused.into()),
            Refused::Silent | Refused::Lost => Self::OutcomeUnknown(refused.into()),
        }
    }
}

/// The sending half of the queue, for callers.
#[derive(Debug)]
pub struct Queue<J> {
    jobs: mpsc::Sender<Queued<J>>,
    budget: Arc<FairBudget>,
    limits: QueueLimits,
}

/// The receiving half of the queue, for the writer.
#[derive(Debug)]
pub struct Jobs<J> {
    arriving: mpsc::Receiver<Queued<J>>,
    /// Uploads that the writer has not taken yet.
    uploads: VecDeque<Queued<J>>,
}

/// A job and its reservation, which is released when this is dropped.
#[derive(Debug)]
pub struct Queued<J> {
    /// The job.
    pub job: J,
    /// The reserved bytes of the budget.
    pub reservation: Option<Reservation>,
}

impl<J: Task> Jobs<J> {
    /// Waits for jobs and takes at most `limit`, in the order of arrival. Uploads come last, with at most `MAX_UPLOADS` of them
    /// and about `UPLOADS_AT_ONCE` bytes. Returns the number of jobs, which is 0 after the queue was closed.
    pub async fn next(&mut self, jobs: &mut Vec<Queued<J>>, limit: usize) -> usize {
        if self.uploads.is_empty() {
            self.arriving.recv_many(jobs, limit).await;
        }
        self.arrange(jobs, limit)
    }

    /// Does the same as [`Self::next`] on a thread that may be blocked.
    pub fn blocking_next(&mut self, jobs: &mut Vec<Queued<J>>, limit: usize) -> usize {
        if self.uploads.is_empty() {
            self.arriving.blocking_recv_many(jobs, limit);
        }
        self.arrange(jobs, limit)
    }

    /// Returns whether there are uploads that the writer has not taken yet.
    pub fn has_uploads(&self) -> bool {
        !self.uploads.is_empty()
    }

    fn arrange(&mut self, jobs: &mut Vec<Queued<J>>, limit: usize) -> usize {
        while jobs.len() < limit
            && let Ok(job) = self.arriving.try_recv()
        {
            jobs.push(job);
        }
        self.uploads.extend(jobs.extract_if(.., |queued| queued.job.is_upload()));
        self.take_uploads(jobs);
        jobs.len()
    }

    /// Takes uploads, of one organization after the other.
    fn take_uploads(&mut self, jobs: &mut Vec<Queued<J>>) {
        let (mut bytes, mut left) = (0, MAX_UPLOADS);
        while bytes < UPLOADS_AT_ONCE && left > 0 && !self.uploads.is_empty() {
            let (mut taken, mut later) = (BTreeSet::new(), VecDeque::new());
            let mut rest = VecDeque::new();
            for queued in self.uploads.drain(..) {
                let (org, size) = queued.job.reserved_bytes().unzip();
                if taken.contains(&org) {
                    later.push_back(queued);
                } else if bytes < UPLOADS_AT_ONCE && left > 0 {
                    taken.insert(org);
                    bytes += size.unwrap_or_default() + OVERHEAD;
                    left -= 1;
                    jobs.push(queued);
                } else {
                    rest.push_back(queued);
                }
            }
            // Organizations without an upload in this round come first in the next.
            rest.append(&mut later);
            self.uploads = rest;
        }
    }
}

impl<J: Task> Queue<J> {
    /// Creates a queue and returns both halves.
    pub fn new(limits: QueueLimits) -> (Self, Jobs<J>) {
        let (jobs, queue) = mpsc::channel(CAPACITY);
        let budget = FairBudget::new(limits.bytes as u64);
        (Self { jobs, budget, limits }, Jobs { arriving: queue, uploads: VecDeque::new() })
    }

    /// Returns the time that a job may wait.
    pub const fn wait(&self) -> Duration {
        self.limits.wait
    }

    /// Returns whether the writer has stopped.
    pub fn is_closed(&self) -> bool {
        self.jobs.is_closed()
    }

    /// Creates both halves of a job's outcome. The deadline of the job counts from now.
    pub fn outcome<T>(&self) -> (Reply<T>, Outcome<T>) {
        let (to, from) = oneshot::channel();
        let (deadline, claim) = (Instant::now() + self.limits.wait, Arc::new(AtomicU8::new(WAITING)));
        let grace = self.limits.grace;
        (Reply { to, deadline, claim: Arc::clone(&claim) }, Outcome { from, deadline, grace, claim })
    }

    /// Enqueues a job and waits for its outcome.
    ///
    /// # Errors
    /// The writer's error, or [`StoreError::Unavailable`] or [`StoreError::OutcomeUnknown`] for a reason in [`Refused`].
    pub async fn submit<T>(&self, job: J, outcome: Outcome<T>) -> StoreResult<T> {
        let reservation = match job.reserved_bytes() {
            Some((org, bytes)) => {
                let reservation = self.budget.try_reserve(Some(org), (bytes + OVERHEAD) as u64);
                Some(reservation.ok_or(Refused::Full)?)
            }
            None => None,
        };
        let place = timeout_at(outcome.deadline, self.jobs.reserve()).await.map_err(|_| Refused::Late)?;
        place.map_err(|_| Refused::Closed)?.send(Queued { job, reservation });
        outcome.wait().await
    }

    /// Enqueues the job that stops the writer, behind all earlier jobs, and waits until the writer has stopped.
    pub async fn stop(&self, job: impl FnOnce(Reply<()>) -> J) {
        let (reply, outcome) = self.outcome();
        if self.jobs.send(Queued { job: job(reply), reservation: None }).await.is_ok() {
            // An error means that the writer has stopped already.
            outcome.from.await.ok();
        }
    }
}

/// The job waits, neither started nor given up.
const WAITING: u8 = 0;
/// The writer started the job, and will reply.
const BEGUN: u8 = 1;
/// The caller gave the job up, so the writer must not start it.
const GIVEN_UP: u8 = 2;

/// Sets the state of a waiting job, and returns the state that the job has then.
fn decide(claim: &AtomicU8, state: u8) -> u8 {
    match claim.compare_exchange(WAITING, state, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => state,
        Err(decided) => decided,
    }
}

/// The writer's half of a job's outcome.
#[derive(Debug)]
pub struct Reply<T> {
    to: oneshot::Sender<StoreResult<T>>,
    deadline: Instant,
    claim: Arc<AtomicU8>,
}

impl<T> Reply<T> {
    /// Returns whether the job's deadline has passed, or its caller has gone.
    pub fn is_late(&self) -> bool {
        self.to.is_closed() || self.deadline <= Instant::now()
    }

    /// Starts the job, perhaps again. Returns whether it may run. From now on its caller waits for the outcome.
    pub fn begin(&self) -> bool {
        !self.is_late() && decide(&self.claim, BEGUN) == BEGUN
    }

    /// Sends the outcome to the caller. If the caller has gone, it is dropped.
    pub fn send(self, outcome: StoreResult<T>) {
        self.to.send(outcome).ok();
    }
}

/// The caller's half of a job's outcome.
#[derive(Debug)]
pub struct Outcome<T> {
    from: oneshot::Receiver<StoreResult<T>>,
    deadline: Instant,
    grace: Option<Duration>,
    claim: Arc<AtomicU8>,
}

impl<T> Outcome<T> {
    /// Removes the time limit for the outcome of a started job.
    #[must_use]
    pub fn without_end(self) -> Self {
        Self { grace: None, ..self }
    }

    async fn wait(mut self) -> StoreResult<T> {
        match timeout_at(self.deadline, &mut self.from).await {
            Ok(Ok(outcome)) => return outcome,
            Ok(Err(_)) if decide(&self.claim, GIVEN_UP) != GIVEN_UP => return Err(Refused::Lost.into()),
            // The writer drops late jobs, perhaps before the caller's timer has fired.
            Ok(Err(_)) if Instant::now() < self.deadline => return Err(Refused::Closed.into()),
            Ok(Err(_)) => return Err(Refused::Late.into()),
            Err(_) if decide(&self.claim, GIVEN_UP) == GIVEN_UP => return Err(Refused::Late.into()),
            Err(_) => {}
        }
        let outcome = match self.grace {
            Some(grace) => timeout_at(self.deadline + grace, self.from).await.map_err(|_| Refused::Silent)?,
            None => self.from.await,
        };
        outcome.map_err(|_| Refused::Lost)?
    }
}

#[cfg(test)]
mod tests;
