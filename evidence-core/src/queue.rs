//! The way to a store's writer, for stores in which one task or thread writes: bounded in time and in bytes, and shared
//! between organizations. The SQLite and the PostgreSQL store have theirs from here.
//!
//! A caller waits for the writer until a deadline; then either has the writer begun, and its outcome is waited for, or
//! nobody will ever do the job, and the caller may be told to try again. So a database that hangs makes callers fail soon,
//! and nothing that they gave up happens once it goes on.
//!
//! What waits takes room until it is done, and what finds none is refused at once: the room is what waiting costs in
//! memory. Organizations share it ([`FairBudget`]). Jobs of no organization (leases, cursors) take no room and are never
//! refused for want of it.
//!
//! Uploads yield: each time, the writer gets the other jobs first and then a few uploads, of a bounded number of bytes, of one
//! organization after the other. So a record waits for a part of a megabyte of chunks, however many are uploaded, and
//! several chunks share a commit.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::budget::{FairBudget, Reservation};
use crate::id::Id;
use crate::store::error::{StoreError, StoreResult};

/// How many jobs may wait; further callers wait for a place.
const PLACES: usize = 1024;

/// What a job takes beside its payload, in bytes.
const OVERHEAD: usize = 1024;

/// How many bytes of uploads the writer gets at once.
const UPLOADS_AT_ONCE: usize = 1 << 20;

/// How many uploads the writer gets at once, however small: each may be a round trip to a database.
const MOST_UPLOADS: usize = 16;

/// Something for a writer to do.
pub trait Task: Send + 'static {
    /// Whose room it takes while it waits, and how many bytes of it; none where it takes none.
    fn room(&self) -> Option<(Id, usize)>;

    /// Whether it is a part of an upload, and yields to others.
    fn is_upload(&self) -> bool;
}

/// How much may wait, and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How many bytes may wait.
    pub bytes: usize,
    /// How long a job waits for the writer to begin.
    pub wait: Duration,
    /// How long, after its wait, a caller waits for the outcome of a job that was begun; without end where there is
    /// none.
    pub grace: Option<Duration>,
}

/// Why a job has no outcome: the source of the [`StoreError::Unavailable`] that its caller gets, or of the
/// [`StoreError::OutcomeUnknown`] where the writer had begun the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// There is no room for it, and it was never handed in.
    #[error("as much as may wait is waiting to be written already")]
    Full,
    /// The writer did not begin it in time, and never will.
    #[error("the store's writer did not get round to it in time")]
    Late,
    /// The writer has ended.
    #[error("the store was closed")]
    Closed,
    /// It was begun, and what came of it was not heard in time.
    #[error("the database did not say in time whether it wrote")]
    Silent,
    /// It was begun, and the writer ended before it replied.
    #[error("the store's writer ended while it wrote")]
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

/// The callers' end of the queue.
#[derive(Debug)]
pub struct Queue<J> {
    jobs: mpsc::Sender<Queued<J>>,
    room: Arc<FairBudget>,
    bounds: Bounds,
}

/// The writer's end of the queue.
#[derive(Debug)]
pub struct Jobs<J> {
    arriving: mpsc::Receiver<Queued<J>>,
    /// The uploads that were not given to the writer yet.
    uploads: VecDeque<Queued<J>>,
}

/// A job, and the room that it takes until this is dropped.
#[derive(Debug)]
pub struct Queued<J> {
    /// The job.
    pub job: J,
    /// Its room.
    pub room: Option<Reservation>,
}

impl<J: Task> Jobs<J> {
    /// Waits for jobs and takes some: at most `limit` in the order of arrival, but those of uploads behind the others and only
    /// `UPLOADS_AT_ONCE` and `MOST_UPLOADS`. Returns how many, which is 0 once no more come.
    pub async fn next(&mut self, jobs: &mut Vec<Queued<J>>, limit: usize) -> usize {
        if self.uploads.is_empty() {
            self.arriving.recv_many(jobs, limit).await;
        }
        self.arrange(jobs, limit)
    }

    /// The same on a thread that may be blocked.
    pub fn blocking_next(&mut self, jobs: &mut Vec<Queued<J>>, limit: usize) -> usize {
        if self.uploads.is_empty() {
            self.arriving.blocking_recv_many(jobs, limit);
        }
        self.arrange(jobs, limit)
    }

    /// Whether uploads arrived that the writer has not got yet.
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
        let (mut bytes, mut left) = (0, MOST_UPLOADS);
        while bytes < UPLOADS_AT_ONCE && left > 0 && !self.uploads.is_empty() {
            let (mut taken, mut later) = (BTreeSet::new(), VecDeque::new());
            let mut rest = VecDeque::new();
            for queued in self.uploads.drain(..) {
                let (org, size) = queued.job.room().unzip();
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
            // Next time it is the turn of those that got nothing.
            rest.append(&mut later);
            self.uploads = rest;
        }
    }
}

impl<J: Task> Queue<J> {
    /// Both ends of a queue.
    pub fn new(bounds: Bounds) -> (Self, Jobs<J>) {
        let (jobs, queue) = mpsc::channel(PLACES);
        let room = FairBudget::new(bounds.bytes as u64);
        (Self { jobs, room, bounds }, Jobs { arriving: queue, uploads: VecDeque::new() })
    }

    /// How long a job may wait.
    pub const fn wait(&self) -> Duration {
        self.bounds.wait
    }

    /// Whether nobody works any more.
    pub fn is_closed(&self) -> bool {
        self.jobs.is_closed()
    }

    /// The two ends of a job's outcome. The time that it may wait begins now.
    pub fn outcome<T>(&self) -> (Reply<T>, Outcome<T>) {
        let (to, from) = oneshot::channel();
        let (deadline, claim) = (Instant::now() + self.bounds.wait, Arc::new(AtomicU8::new(WAITING)));
        let grace = self.bounds.grace;
        (Reply { to, deadline, claim: Arc::clone(&claim) }, Outcome { from, deadline, grace, claim })
    }

    /// Hands a job to the writer and waits for its outcome.
    ///
    /// # Errors
    /// Whatever the writer replies, or [`StoreError::Unavailable`] or [`StoreError::OutcomeUnknown`] for one of the reasons in
    /// [`Refused`].
    pub async fn submit<T>(&self, job: J, outcome: Outcome<T>) -> StoreResult<T> {
        let room = match job.room() {
            Some((org, bytes)) => {
                let room = self.room.try_reserve(Some(org), (bytes + OVERHEAD) as u64);
                Some(room.ok_or(Refused::Full)?)
            }
            None => None,
        };
        let place = timeout_at(outcome.deadline, self.jobs.reserve()).await.map_err(|_| Refused::Late)?;
        place.map_err(|_| Refused::Closed)?.send(Queued { job, room });
        outcome.wait().await
    }

    /// Hands in the job that ends the writer, after everything that came before, and waits until it has ended.
    pub async fn stop(&self, job: impl FnOnce(Reply<()>) -> J) {
        let (reply, outcome) = self.outcome();
        if self.jobs.send(Queued { job: job(reply), room: None }).await.is_ok() {
            // An error means that the writer has ended already, which is what was asked for.
            outcome.from.await.ok();
        }
    }
}

/// Nobody has decided yet what becomes of a job.
const WAITING: u8 = 0;
/// The writer does it, and answers.
const BEGUN: u8 = 1;
/// The caller has gone and nobody will do it.
const GIVEN_UP: u8 = 2;

/// Decides what becomes of a job, unless that was decided before; what it is now.
fn decide(claim: &AtomicU8, what: u8) -> u8 {
    match claim.compare_exchange(WAITING, what, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => what,
        Err(decided) => decided,
    }
}

/// The writer's end of a job's outcome.
#[derive(Debug)]
pub struct Reply<T> {
    to: oneshot::Sender<StoreResult<T>>,
    deadline: Instant,
    claim: Arc<AtomicU8>,
}

impl<T> Reply<T> {
    /// Whether the job's time is over, or its caller has gone.
    pub fn is_late(&self) -> bool {
        self.to.is_closed() || self.deadline <= Instant::now()
    }

    /// Whether the job may be done, now or again: from now on its caller waits for the outcome.
    pub fn begin(&self) -> bool {
        !self.is_late() && decide(&self.claim, BEGUN) == BEGUN
    }

    /// Tells the outcome; a caller that has gone does not hear it.
    pub fn send(self, outcome: StoreResult<T>) {
        self.to.send(outcome).ok();
    }
}

/// The caller's end of a job's outcome.
#[derive(Debug)]
pub struct Outcome<T> {
    from: oneshot::Receiver<StoreResult<T>>,
    deadline: Instant,
    grace: Option<Duration>,
    claim: Arc<AtomicU8>,
}

impl<T> Outcome<T> {
    /// The outcome, waited for without end once the job is begun.
    #[must_use]
    pub fn without_end(self) -> Self {
        Self { grace: None, ..self }
    }

    async fn wait(mut self) -> StoreResult<T> {
        match timeout_at(self.deadline, &mut self.from).await {
            Ok(Ok(outcome)) => return outcome,
            Ok(Err(_)) if decide(&self.claim, GIVEN_UP) != GIVEN_UP => return Err(Refused::Lost.into()),
            // A writer lets go of what is late, perhaps before the time of its caller is seen to be over here.
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
