//! The way to the writer, bounded in time and in bytes. A caller waits for the writer until a deadline; then either has
//! the writer begun, and its outcome is waited for, or nobody will ever do the job, and the caller may be told to try
//! again. So a database that hangs makes callers fail soon, and nothing that they gave up happens once it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use evidence_core::StoreError;
use evidence_core::store::StoreResult;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::error::TaskEnded;
use crate::writer::Job;

/// How many jobs may wait; further callers wait for a place.
const PLACES: usize = 1024;

/// Room is given out in so many bytes: a semaphore counts 32 bits at a time.
const UNIT: usize = 1024;

/// The callers' end of the queue.
#[derive(Debug)]
pub(crate) struct Queue {
    jobs: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    units: u32,
    patience: Duration,
    grace: Duration,
}

/// A job, and the room that it takes until it is done.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) job: Job,
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

impl Queue {
    /// A queue of at most so many bytes, in which a job waits no longer than `patience`; the outcome of one that was
    /// begun in time is waited for no longer than `grace`.
    pub(crate) fn new(bytes: usize, patience: Duration, grace: Duration) -> (Self, mpsc::Receiver<Queued>) {
        let (jobs, queue) = mpsc::channel(PLACES);
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).max(1);
        let room = Arc::new(Semaphore::new(usize::try_from(units).unwrap_or(Semaphore::MAX_PERMITS)));
        (Self { jobs, room, units, patience, grace }, queue)
    }

    /// How long a job may wait.
    pub(crate) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Whether nobody works any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.jobs.is_closed()
    }

    /// The two ends of a job's outcome. The time that it may wait begins now.
    pub(crate) fn outcome<T>(&self) -> (Reply<T>, Outcome<T>) {
        let (to, from) = oneshot::channel();
        let (deadline, claim) = (Instant::now() + self.patience, Arc::new(AtomicU8::new(WAITING)));
        (Reply { to, deadline, claim: Arc::clone(&claim) }, Outcome { from, deadline, claim })
    }

    /// Hands a job to the writer and waits for its outcome. What finds no room is refused at once: the budget is the
    /// waiting room.
    pub(crate) async fn submit<T>(&self, job: Job, outcome: Outcome<T>) -> StoreResult<T> {
        let units = u32::try_from(job.size() / UNIT + 1).unwrap_or(u32::MAX).min(self.units);
        let room = Arc::clone(&self.room).try_acquire_many_owned(units).map_err(|_| saturated())?;
        let Ok(place) = timeout_at(outcome.deadline, self.jobs.reserve()).await else { return Err(late()) };
        place.map_err(|_| TaskEnded)?.send(Queued { job, room: Some(room) });
        outcome.wait(self.grace).await
    }

    /// Has the writer end after everything that came before.
    pub(crate) async fn stop(&self) {
        let (reply, stopped) = oneshot::channel();
        if self.jobs.send(Queued { job: Job::Stop(reply), room: None }).await.is_ok() {
            // An error means that the writer has ended already, which is what was asked for.
            stopped.await.ok();
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
pub(crate) struct Reply<T> {
    to: oneshot::Sender<StoreResult<T>>,
    deadline: Instant,
    claim: Arc<AtomicU8>,
}

impl<T> Reply<T> {
    /// Whether the job's time is over, or its caller has gone.
    pub(crate) fn is_late(&self) -> bool {
        self.to.is_closed() || self.deadline <= Instant::now()
    }

    /// Whether the job may be done, now or again: from now on its caller waits for the outcome.
    pub(crate) fn begin(&self) -> bool {
        !self.is_late() && decide(&self.claim, BEGUN) == BEGUN
    }

    /// Tells the outcome; a caller that has gone does not hear it.
    pub(crate) fn send(self, outcome: StoreResult<T>) {
        self.to.send(outcome).ok();
    }
}

/// The caller's end of a job's outcome.
#[derive(Debug)]
pub(crate) struct Outcome<T> {
    from: oneshot::Receiver<StoreResult<T>>,
    deadline: Instant,
    claim: Arc<AtomicU8>,
}

impl<T> Outcome<T> {
    async fn wait(mut self, grace: Duration) -> StoreResult<T> {
        match timeout_at(self.deadline, &mut self.from).await {
            Ok(outcome) => return outcome.map_err(|_| TaskEnded)?,
            Err(_) if decide(&self.claim, GIVEN_UP) == GIVEN_UP => return Err(late()),
            Err(_) => {}
        }
        match timeout_at(self.deadline + grace, self.from).await {
            Ok(outcome) => outcome.map_err(|_| TaskEnded)?,
            Err(_) => {
                Err(StoreError::Unavailable("the database did not say in time whether it wrote".into()))
            }
        }
    }
}

/// What waited too long is refused, and is not done.
pub(crate) fn late() -> StoreError {
    StoreError::Unavailable("the database did not get round to it in time".into())
}

fn saturated() -> StoreError {
    StoreError::Unavailable("as much as may wait is waiting to be written already".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blobs::BlobWrite;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn queue(bytes: usize) -> (Arc<Queue>, mpsc::Receiver<Queued>) {
        let (queue, jobs) = Queue::new(bytes, PATIENCE, PATIENCE);
        (Arc::new(queue), jobs)
    }

    async fn submit(queue: &Queue, size: usize) -> StoreResult<()> {
        let (reply, outcome) = queue.outcome();
        queue.submit(Job::Blob(BlobWrite::of_size(size), reply), outcome).await
    }

    fn reply(queued: Queued) -> Reply<()> {
        let Job::Blob(_, reply) = queued.job else { panic!("another job") };
        reply
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_its_caller_gave_up_is_never_begun() {
        let (queue, mut jobs) = queue(UNIT);
        let started = Instant::now();
        assert!(matches!(submit(&queue, 1).await, Err(StoreError::Unavailable(_))));
        assert_eq!(started.elapsed(), PATIENCE);
        assert!(!reply(jobs.recv().await.unwrap()).begin());
    }

    #[tokio::test(start_paused = true)]
    async fn the_outcome_of_a_job_that_was_begun_is_waited_for() {
        let (queue, mut jobs) = queue(UNIT);
        let caller = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { submit(&queue, 1).await }
        });
        let reply = reply(jobs.recv().await.unwrap());
        assert!(reply.begin() && reply.begin());
        tokio::time::sleep(PATIENCE + PATIENCE / 2).await;
        // Its time is over, so it is not begun again.
        assert!(!reply.begin());
        reply.send(Ok(()));
        caller.await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_has_a_budget_of_bytes() {
        let (queue, mut jobs) = queue(8 * UNIT);
        let first = tokio::spawn({
            let queue = Arc::clone(&queue);
            // More than the budget: it takes all of it.
            async move { submit(&queue, 100 * UNIT).await }
        });
        let waiting = jobs.recv().await.unwrap();
        let started = Instant::now();
        assert!(matches!(submit(&queue, 1).await, Err(StoreError::Unavailable(_))));
        assert_eq!(started.elapsed(), Duration::ZERO);
        let Queued { job, room } = waiting;
        reply(Queued { job, room: None }).send(Ok(()));
        first.await.unwrap().unwrap();
        drop(room);
        tokio::spawn(async move {
            while let Some(queued) = jobs.recv().await {
                reply(queued).send(Ok(()));
            }
        });
        submit(&queue, 1).await.unwrap();
    }
}
