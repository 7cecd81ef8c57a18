//! The way to the writer, bounded in time and in bytes. A caller waits for the writer until a deadline; then either the
//! writer has begun, and its outcome is waited for, or it never will, and the caller may be told to try again.

use std::sync::Arc;
use std::time::Duration;

use evidence_core::store::StoreResult;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::error::Unanswered;
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
}

/// A job that waits, and the room that it takes until it is done.
#[derive(Debug)]
pub(crate) struct Queued {
    job: Job,
    begun: oneshot::Sender<()>,
    room: Option<OwnedSemaphorePermit>,
}

impl Queued {
    /// The job, whose caller waits for its outcome from now on, and its room; nothing where the caller has given it up.
    pub(crate) fn begin(self) -> Option<(Job, Option<OwnedSemaphorePermit>)> {
        let Self { job, begun, room } = self;
        begun.send(()).is_ok().then_some((job, room))
    }
}

impl Queue {
    /// A queue of at most so many bytes, in which a job waits no longer than `patience`.
    pub(crate) fn new(bytes: usize, patience: Duration) -> (Self, mpsc::Receiver<Queued>) {
        let (jobs, queue) = mpsc::channel(PLACES);
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).max(1);
        let room = Arc::new(Semaphore::new(usize::try_from(units).unwrap_or(Semaphore::MAX_PERMITS)));
        (Self { jobs, room, units, patience }, queue)
    }

    /// Whether nobody works any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.jobs.is_closed()
    }

    /// Hands a job to the writer and waits for its outcome. What finds no room is refused at once: the budget is the
    /// waiting room.
    pub(crate) async fn submit<T>(
        &self,
        job: Job,
        mut outcome: oneshot::Receiver<StoreResult<T>>,
    ) -> StoreResult<T> {
        let deadline = Instant::now() + self.patience;
        let units = u32::try_from(job.size() / UNIT + 1).unwrap_or(u32::MAX).min(self.units);
        let room = Arc::clone(&self.room).try_acquire_many_owned(units).map_err(|_| Unanswered::Full)?;
        let place = timeout_at(deadline, self.jobs.reserve()).await.map_err(|_| Unanswered::Late)?;
        let (begun, mut begins) = oneshot::channel();
        place.map_err(|_| Unanswered::Closed)?.send(Queued { job, begun, room: Some(room) });
        if let Ok(outcome) = timeout_at(deadline, &mut outcome).await {
            return outcome.map_err(|_| Unanswered::Closed)?;
        }
        // From here on the job cannot be begun any more.
        begins.close();
        begins.try_recv().map_err(|_| Unanswered::Late)?;
        outcome.await.map_err(|_| Unanswered::Closed)?
    }

    /// Has the writer end after everything that came before.
    pub(crate) async fn stop(&self) {
        let ((reply, stopped), (begun, _begins)) = (oneshot::channel(), oneshot::channel());
        if self.jobs.send(Queued { job: Job::Stop(reply), begun, room: None }).await.is_ok() {
            // An error means that the writer has ended already, which is what was asked for.
            stopped.await.ok();
        }
    }
}
