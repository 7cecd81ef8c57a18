//! The compute pool: threads for CPU-bound work.
//!
//! Work that occupies a core for a millisecond or more (PDFs, compression, long JSON) runs here, so that it delays no other
//! request. A host can bring its own threads with [`Evidence::with_compute_pool`](crate::Evidence::with_compute_pool).
//!
//! A job waits for a thread for at most [`MAX_WAIT`], and at most [`MAX_WAITING`] jobs of a tenant wait. Excess jobs get 503.
//! Refused jobs, and jobs whose caller has disconnected, are never started. Tenants take turns. A caller without a role in the
//! organization counts as a tenant of its own, so that strangers do not use up the organization's share.
//!
//! A job for a response that is being sent is not refused because many wait, only after [`MAX_WAIT`]. A job for a write that
//! was recorded always runs.
//!
//! Jobs that may take seconds use at most half of the threads ([`Compute::run_long`]). They wait in a queue of their own, and
//! so do the other jobs of their requests ([`Compute::for_long_request`]). Short jobs therefore find room in their queue.

pub(crate) mod refused;

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::limiter::{FairPermit, FairSemaphore, Tenant, UNLIMITED};

pub use refused::Refused;

/// The time that a job waits for a thread.
pub const MAX_WAIT: Duration = Duration::from_secs(10);

/// The number of jobs of a tenant that may wait at once. Requests that take long have as many places of their own.
pub const MAX_WAITING: usize = 64;

/// The number of JSON bytes that take about a millisecond to parse or to write.
pub(crate) const LONG_JSON: usize = 64 << 10;

/// The number of YAML bytes that take about a millisecond to parse.
pub(crate) const LONG_YAML: usize = 4 << 10;

/// The number of evaluations of one running artifact by one policy that take about a millisecond.
pub(crate) const MANY_EVALUATIONS: usize = 256;

/// The number of evaluations in one job. Jobs of other tenants run between the jobs of a large evaluation.
pub(crate) const EVALUATIONS_PER_JOB: usize = 10_000;

/// Work for another thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// Threads for CPU-bound work.
///
/// ```
/// # use std::sync::Arc;
/// use evidence_core::compute::{ComputePool, Job};
/// # use evidence_conformance::memory::MemoryStore;
/// use evidence_core::{Evidence, Settings};
///
/// /// One thread per job. With rayon, call `ThreadPool::spawn`.
/// struct Threads;
///
/// impl ComputePool for Threads {
///     fn parallelism(&self) -> usize {
///         4
///     }
///
///     fn spawn(&self, job: Job) {
///         std::thread::spawn(job);
///     }
/// }
///
/// # let store = Arc::new(MemoryStore::new());
/// let service = Evidence::new(store, Settings::default()).with_compute_pool(Threads);
/// ```
pub trait ComputePool: Send + Sync + 'static {
    /// Returns the maximum number of concurrent jobs; 0 counts as 1. It is called once. Further jobs wait outside of the pool.
    fn parallelism(&self) -> usize;

    /// Runs the job soon, on a thread that may be blocked. A job does not panic. If a job is dropped, its request fails.
    fn spawn(&self, job: Job);
}

/// The default pool: the runtime's threads for blocking work ([`tokio::task::spawn_blocking`]).
///
/// It runs one job less than the machine has cores, which leaves one core to other work. It runs at least two jobs, so that a
/// long job does not occupy it alone.
#[derive(Debug, Clone, Copy)]
pub struct BlockingPool {
    threads: usize,
}

impl Default for BlockingPool {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { threads: cores.saturating_sub(1).max(2) }
    }
}

impl ComputePool for BlockingPool {
    fn parallelism(&self) -> usize {
        self.threads
    }

    fn spawn(&self, job: Job) {
        tokio::task::spawn_blocking(job);
    }
}

/// The progress of a request, which decides whether its jobs may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Progress {
    /// A refusal loses nothing.
    Received,
    /// The first part of the response is sent. Jobs are not refused because many wait, only after [`MAX_WAIT`]. The response
    /// then breaks off.
    Answering,
    /// A write is recorded and has to be answered. A job that gets no thread in time runs on the caller's thread.
    Recorded,
}

/// Runs the jobs of a request in a [`ComputePool`]. Clones share the pool's limits and the progress of the request.
#[derive(Clone)]
pub struct Compute {
    pool: Arc<dyn ComputePool>,
    permits: FairSemaphore<QueueKey>,
    /// Half as many. A long job acquires one of these before one of `permits`.
    long_permits: FairSemaphore<QueueKey>,
    queue_key: QueueKey,
    /// A [`Progress`].
    progress: Arc<AtomicU8>,
}

/// The jobs that wait in one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct QueueKey {
    tenant: Tenant,
    /// Whether the jobs belong to requests that take long.
    is_long_request: bool,
}

impl QueueKey {
    const fn for_long_request(self) -> Self {
        Self { is_long_request: true, ..self }
    }
}

/// The permits of a job: one of the pool, and one of the long jobs if the job is long.
type Permits = (FairPermit<QueueKey>, Option<FairPermit<QueueKey>>);

impl std::fmt::Debug for Compute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compute")
            .field("permits", &self.permits)
            .field("queue_key", &self.queue_key)
            .finish_non_exhaustive()
    }
}

impl Default for Compute {
    fn default() -> Self {
        Self::new(BlockingPool::default())
    }
}

impl Compute {
    /// Creates a handle to this pool for no tenant.
    pub fn new(pool: impl ComputePool) -> Self {
        let parallelism = pool.parallelism().clamp(1, UNLIMITED);
        let [permits, long_permits] =
            [parallelism, (parallelism / 2).max(1)].map(|total| FairSemaphore::new(total, UNLIMITED));
        let (queue_key, progress) = (QueueKey::default(), Arc::default());
        Self { pool: Arc::new(pool), permits, long_permits, queue_key, progress }
    }

    /// Returns a handle to the same pool for a request on behalf of this tenant
    /// ([`Access::on_behalf_of`](crate::auth::Access::on_behalf_of)).
    #[must_use]
    pub fn on_behalf_of(self, tenant: Tenant) -> Self {
        let queue_key = QueueKey { tenant, is_long_request: false };
        Self { queue_key, progress: Arc::default(), ..self }
    }

    /// Returns a handle for the rest of a request that takes long. Its short jobs, too, wait in the tenant's queue for long
    /// jobs.
    #[must_use]
    pub fn for_long_request(self) -> Self {
        Self { queue_key: self.queue_key.for_long_request(), ..self }
    }

    /// Notes the progress of the request. A lower progress than before has no effect.
    pub fn note(&self, progress: Progress) {
        self.progress.fetch_max(progress as u8, Ordering::Relaxed);
    }

    fn has(&self, progress: Progress) -> bool {
        self.progress.load(Ordering::Relaxed) >= progress as u8
    }

    async fn acquire(&self, is_long: bool) -> Result<Permits, Refused> {
        let max_waiting = if self.has(Progress::Answering) { UNLIMITED } else { MAX_WAITING };
        let deadline = Instant::now() + MAX_WAIT;
        if !is_long {
            return Ok((self.permits.acquire(self.queue_key, max_waiting, deadline).await?, None));
        }
        let queue_key = self.queue_key.for_long_request();
        let long = self.long_permits.acquire(queue_key, max_waiting, deadline).await?;
        Ok((self.permits.acquire(queue_key, max_waiting, deadline).await?, Some(long)))
    }

    /// Runs `work` in the pool. If the future is dropped before the work starts, the work never runs.
    ///
    /// # Errors
    /// [`Error::Overloaded`] if the work got no thread; never after [`Progress::Recorded`]. [`Error::Internal`] if the work
    /// panics, or the pool drops it.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.run_as(false, work).await
    }

    /// Runs `work` that may take seconds in the pool. Such jobs use at most half of the threads, and one if there is only one.
    ///
    /// # Errors
    /// The errors of [`Self::run`].
    pub async fn run_long<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.run_as(true, work).await
    }

    async fn run_as<T: Send + 'static>(
        &self,
        is_long: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let failed = |source| Error::Internal { what: "work in the compute pool failed", source };
        let permits = match self.acquire(is_long).await {
            Ok(permits) => permits,
            Err(_) if self.has(Progress::Recorded) => {
                return catch_unwind(AssertUnwindSafe(work)).map_err(|_| failed("it panicked".into()));
            }
            Err(refused) => return Err(refused.into()),
        };
        let (answer, answered) = oneshot::channel();
        let span = tracing::Span::current();
        self.pool.spawn(Box::new(move || {
            if answer.is_closed() {
                return;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| span.in_scope(work)));
            drop(permits);
            // An error means that the caller has disconnected.
            answer.send(outcome).ok();
        }));
        match answered.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) => Err(failed("it panicked".into())),
            Err(dropped) => Err(failed(dropped.into())),
        }
    }

    /// Runs `work` in the pool if it is `heavy`, otherwise at once on this thread.
    ///
    /// # Errors
    /// The errors of [`Self::run`].
    pub async fn run_if<T: Send + 'static>(
        &self,
        heavy: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        if heavy { self.run(work).await } else { Ok(work()) }
    }

    /// Evaluates each item, and returns the results in order. Few `evaluations` run on this thread. Many run in the pool, as
    /// jobs of [`EVALUATIONS_PER_JOB`], so that jobs of other tenants run in between.
    ///
    /// # Errors
    /// The errors of [`Self::run`].
    pub(crate) async fn evaluate_each<I: Send + 'static, T: Send + 'static>(
        &self,
        items: Vec<I>,
        evaluations: impl Fn(&I) -> usize + Send,
        evaluate: impl Fn(I) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>> {
        let mut evaluated = Vec::with_capacity(items.len());
        let mut items = items.into_iter().peekable();
        while items.peek().is_some() {
            let (mut part, mut many) = (Vec::new(), 0);
            while many < EVALUATIONS_PER_JOB
                && let Some(item) = items.next()
            {
                many += evaluations(&item);
                part.push(item);
            }
            let evaluate = evaluate.clone();
            let work = move || Vec::from_iter(part.into_iter().map(evaluate));
            evaluated.extend(self.run_if(many > MANY_EVALUATIONS, work).await?);
        }
        Ok(evaluated)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicUsize;
    use std::task::Poll;

    use futures_util::FutureExt;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::store::error::StoreError;

    /// A pool whose jobs run when the test runs them.
    #[derive(Clone, Default)]
    struct ManualPool(Arc<Mutex<Vec<Job>>>);

    impl ComputePool for ManualPool {
        fn parallelism(&self) -> usize {
            1
        }

        fn spawn(&self, job: Job) {
            self.0.lock().unwrap().push(job);
        }
    }

    impl ManualPool {
        fn take(&self) -> Option<Job> {
            self.0.lock().unwrap().pop()
        }
    }

    #[tokio::test]
    async fn a_job_that_panics_or_is_dropped_fails_alone() {
        let compute = Compute::default();
        let panicked = compute.run(|| -> u8 { panic!("on purpose") }).await;
        assert!(matches!(panicked, Err(Error::Internal { .. })), "{panicked:?}");
        assert_eq!(compute.run(|| 1).await.unwrap(), 1);

        let pool = ManualPool::default();
        let compute = Compute::new(pool.clone());
        for _ in 0..2 {
            let mut work = std::pin::pin!(compute.run(|| ()));
            assert!(poll_fn(|cx| Poll::Ready(work.poll_unpin(cx))).await.is_pending());
            drop(pool.take().expect("a dropped job releases its permit"));
            assert!(matches!(work.await, Err(Error::Internal { .. })));
        }
    }

    #[tokio::test]
    async fn no_more_jobs_start_than_the_pool_has_threads_and_none_whose_caller_left() {
        let pool = ManualPool::default();
        let compute = Compute::new(pool.clone());
        let done = Arc::new(AtomicUsize::new(0));
        let work = || {
            let (compute, done) = (compute.clone(), Arc::clone(&done));
            async move { compute.run(move || done.fetch_add(1, Ordering::Relaxed)).await }.boxed()
        };
        let [mut first, mut second, mut third, mut fourth] = [work(), work(), work(), work()];
        for one in [&mut first, &mut second, &mut third, &mut fourth] {
            assert!(one.now_or_never().is_none());
        }
        // The first is in the pool and the second waits: neither runs.
        drop((first, second));
        pool.take().expect("the first is in the pool")();
        assert_eq!(done.load(Ordering::Relaxed), 0);

        assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
        let job = pool.take().expect("the third follows");
        assert!(pool.take().is_none(), "the fourth waits");
        job();
        assert_eq!(third.await.unwrap(), 0);
        assert!((&mut fourth).now_or_never().is_none());
        pool.take().expect("the fourth follows")();
        assert_eq!(fourth.await.unwrap(), 1);
    }

    fn org(number: u8) -> Tenant {
        Some(format!("00000000-0000-0000-0000-0000000{number}").parse().unwrap())
    }

    /// The numbers of the jobs that ran.
    #[derive(Clone, Default)]
    struct Done(Arc<Mutex<Vec<u8>>>);

    impl Done {
        /// Starts a job that waits, or is in the pool.
        fn start(&self, number: u8, compute: &Compute, org: Tenant) -> BoxFuture<'static, Result<()>> {
            let (done, compute) = (Arc::clone(&self.0), compute.clone().on_behalf_of(org));
            let work = async move { compute.run(move || done.lock().unwrap().push(number)).await };
            let mut work = work.boxed();
            assert!((&mut work).now_or_never().is_none(), "job {number} waits");
            work
        }

        fn so_far(&self) -> Vec<u8> {
            self.0.lock().unwrap().clone()
        }
    }

    /// Runs all jobs.
    async fn finish(pool: &ManualPool, mut started: Vec<BoxFuture<'static, Result<()>>>) {
        while let Some(job) = pool.take() {
            assert!(pool.take().is_none(), "one at a time");
            job();
            // Renews the budget of polls that the runtime grants a task.
            tokio::task::yield_now().await;
            started.retain_mut(|work| match work.now_or_never() {
                Some(outcome) => outcome.is_err(),
                None => true,
            });
        }
        assert!(started.is_empty(), "{} did not run", started.len());
    }

    #[tokio::test]
    async fn tenants_take_turns() {
        let (pool, done) = (ManualPool::default(), Done::default());
        let compute = Compute::new(pool.clone());
        let mut started = Vec::from_iter((0..50).map(|number| done.start(number, &compute, org(1))));
        started.push(done.start(100, &compute, org(2)));
        started.push(done.start(101, &compute, org(2)));
        started.push(done.start(200, &compute, None));
        finish(&pool, started).await;
        let order = done.so_far();
        assert_eq!(order[..8], [0, 1, 100, 200, 2, 101, 3, 4]);
        assert_eq!((order.len(), order.last()), (53, Some(&49)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_waits_too_long_is_refused_and_never_runs() {
        let (pool, done) = (ManualPool::default(), Done::default());
        let compute = Compute::new(pool.clone());
        let first = done.start(0, &compute, org(1));
        let late = done.start(1, &compute, org(2)).await;
        assert!(matches!(late, Err(Error::Overloaded(Refused::Late))), "{late:?}");
        assert_eq!(late.unwrap_err().status(), 503);
        finish(&pool, vec![first]).await;
        finish(&pool, vec![done.start(2, &compute, org(2))]).await;
        assert_eq!(done.so_far(), [0, 2]);
    }

    #[tokio::test]
    async fn a_tenants_waiting_jobs_are_limited_and_those_whose_caller_left_do_not_count() {
        let (pool, done) = (ManualPool::default(), Done::default());
        let compute = Compute::new(pool.clone());
        let mut started = Vec::from_iter((0..=MAX_WAITING).map(|_| done.start(0, &compute, org(1))));
        let full = compute.clone().on_behalf_of(org(1)).run(|| ()).await;
        assert!(matches!(full, Err(Error::Overloaded(Refused::Full))), "{full:?}");
        started.push(done.start(1, &compute, org(2)));
        drop(started.swap_remove(MAX_WAITING / 2));
        started.push(done.start(2, &compute, org(1)));
        finish(&pool, started).await;
        assert_eq!(done.so_far().len(), MAX_WAITING + 2);
    }

    #[tokio::test]
    async fn long_requests_leave_short_ones_their_places_to_wait() {
        let (pool, done) = (ManualPool::default(), Done::default());
        let compute = Compute::new(pool.clone()).on_behalf_of(org(1));
        let slow = compute.clone().for_long_request();
        let wait = |compute: &Compute, number: u8| {
            let (done, compute) = (done.clone(), compute.clone());
            let mut work =
                async move { compute.run(move || done.0.lock().unwrap().push(number)).await }.boxed();
            assert!((&mut work).now_or_never().is_none(), "job {number} waits");
            work
        };
        let mut started = Vec::from_iter((0..=MAX_WAITING).map(|_| wait(&slow, 0)));
        assert!(matches!(slow.run(|| ()).await, Err(Error::Overloaded(Refused::Full))));
        started.push(wait(&compute, 1));
        let mut drawn = compute.run_long(|| ()).boxed();
        assert!(
            (&mut drawn).now_or_never().is_some_and(|refused| refused.is_err()),
            "it waits with the long ones"
        );
        finish(&pool, started).await;
        assert_eq!(done.so_far()[..3], [0, 0, 1]);
        assert!(compute.permits.is_unused() && compute.long_permits.is_unused());
    }

    #[tokio::test(start_paused = true)]
    async fn a_begun_response_and_a_recorded_write_are_not_refused_because_many_wait() {
        let (pool, done) = (ManualPool::default(), Done::default());
        let compute = Compute::new(pool.clone());
        let many = Vec::from_iter((0..=MAX_WAITING).map(|_| done.start(0, &compute, org(1))));
        let [answering, recorded] = [Progress::Answering, Progress::Recorded].map(|progress| {
            let compute = compute.clone().on_behalf_of(org(1));
            compute.note(progress);
            compute.note(Progress::Received);
            compute
        });
        let answer = answering.run(|| 1);
        let mut write = std::pin::pin!(recorded.run(|| 2));
        assert!((&mut write).now_or_never().is_none(), "it waits");
        assert!(matches!(answer.await, Err(Error::Overloaded(Refused::Late))));
        assert_eq!(write.await.unwrap(), 2);
        let panicked = recorded.run(|| -> u8 { panic!("on purpose") }).await;
        assert!(matches!(panicked, Err(Error::Internal { .. })), "{panicked:?}");
        assert_eq!(done.so_far(), [0; 0]);
        drop(many);
    }

    #[test]
    fn a_refusal_is_found_among_the_causes_of_an_error() {
        let refused = |refused| std::io::Error::other(Error::Overloaded(refused));
        let nested = StoreError::Failed(refused(Refused::Late).into());
        assert_eq!(Refused::among(&nested), Some(Refused::Late));
        assert_eq!(Refused::among(&refused(Refused::Full)), Some(Refused::Full));
        assert_eq!(Refused::among(&std::io::Error::other("another")), None);
    }
}
