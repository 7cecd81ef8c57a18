//! Work that keeps a core busy for a millisecond or more (drawing a PDF, compressing, parsing what is long) leaves the
//! async runtime through here, and nowhere else, so that it holds up no other request. Which threads do it is the host's
//! to say: [`Evidence::with_compute_pool`](crate::Evidence::with_compute_pool).

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};

use crate::error::{Error, Result};

/// JSON of more bytes takes about a millisecond to parse or to write.
pub(crate) const LONG_JSON: usize = 64 << 10;
/// YAML of more bytes takes about a millisecond to parse.
pub(crate) const LONG_YAML: usize = 4 << 10;
/// Judging more running artifacts, each by one policy, takes about a millisecond.
pub(crate) const MANY_JUDGEMENTS: usize = 256;

/// Work for another thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// Threads for CPU-bound work.
///
/// ```
/// # use std::sync::Arc;
/// use evidence_core::compute::{ComputePool, Job};
/// # use evidence_core::memory::MemoryStore;
/// use evidence_core::{Evidence, Settings};
///
/// /// A thread a job; with rayon, `spawn` is its `ThreadPool::spawn`.
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
    /// How many jobs it is given at once at most; 0 counts as 1. It is asked once. Further work waits outside of the pool,
    /// in the order in which it came.
    fn parallelism(&self) -> usize;

    /// Runs the job soon, on a thread that no runtime needs. A job does not panic. One that is dropped fails its request.
    fn spawn(&self, job: Job);
}

/// The default pool: the runtime's own threads for blocking work ([`tokio::task::spawn_blocking`]), one fewer at once than
/// the machine has cores and at least one, so that a core is left for everything else.
#[derive(Debug, Clone, Copy)]
pub struct BlockingPool {
    threads: usize,
}

impl Default for BlockingPool {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { threads: cores.saturating_sub(1).max(1) }
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

/// The way into a [`ComputePool`]. Clones share its places.
#[derive(Clone)]
pub struct Compute {
    pool: Arc<dyn ComputePool>,
    places: Arc<Semaphore>,
}

impl std::fmt::Debug for Compute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compute").field("free", &self.places.available_permits()).finish_non_exhaustive()
    }
}

impl Default for Compute {
    fn default() -> Self {
        Self::new(BlockingPool::default())
    }
}

impl Compute {
    /// The way into this pool.
    pub fn new(pool: impl ComputePool) -> Self {
        let places = pool.parallelism().clamp(1, Semaphore::MAX_PERMITS);
        Self { pool: Arc::new(pool), places: Arc::new(Semaphore::new(places)) }
    }

    /// Does `work` in the pool. If the future is dropped, work that has not begun never does.
    ///
    /// # Errors
    /// [`Error::Internal`] when it panics, or the pool drops it.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let failed = |source| Error::Internal { what: "work in the compute pool failed", source };
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|error| failed(error.into()))?;
        let (answer, answered) = oneshot::channel();
        let span = tracing::Span::current();
        self.pool.spawn(Box::new(move || {
            if answer.is_closed() {
                return;
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| span.in_scope(work)));
            drop(place);
            // Nobody may wait for it any more.
            drop(answer.send(outcome));
        }));
        match answered.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(_)) => Err(failed("it panicked".into())),
            Err(dropped) => Err(failed(dropped.into())),
        }
    }

    /// Does `work` in the pool where it is `heavy`, and else at once, on this thread.
    ///
    /// # Errors
    /// Those of [`Self::run`].
    pub async fn run_if<T: Send + 'static>(
        &self,
        heavy: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        if heavy { self.run(work).await } else { Ok(work()) }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;

    use futures_util::FutureExt;

    use super::*;

    /// A pool whose jobs wait to be taken.
    #[derive(Clone, Default)]
    struct Held(Arc<Mutex<Vec<Job>>>);

    impl ComputePool for Held {
        fn parallelism(&self) -> usize {
            1
        }

        fn spawn(&self, job: Job) {
            self.0.lock().unwrap().push(job);
        }
    }

    impl Held {
        fn take(&self) -> Option<Job> {
            self.0.lock().unwrap().pop()
        }
    }

    #[tokio::test]
    async fn what_panics_or_is_dropped_fails_alone() {
        let compute = Compute::default();
        let panicked = compute.run(|| -> u8 { panic!("on purpose") }).await;
        assert!(matches!(panicked, Err(Error::Internal { .. })), "{panicked:?}");
        assert_eq!(compute.run(|| 1).await.unwrap(), 1);

        let pool = Held::default();
        let compute = Compute::new(pool.clone());
        for _ in 0..2 {
            let mut work = std::pin::pin!(compute.run(|| ()));
            assert!(poll_fn(|cx| Poll::Ready(work.poll_unpin(cx))).await.is_pending());
            drop(pool.take().expect("the place of a dropped job is free again"));
            assert!(matches!(work.await, Err(Error::Internal { .. })));
        }
    }

    #[tokio::test]
    async fn no_more_is_begun_at_once_than_the_pool_has_places_and_nothing_for_callers_who_left() {
        let pool = Held::default();
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
        // The first was begun and the second waits for its place: neither is done for nobody.
        drop((first, second));
        pool.take().expect("the first was given to the pool")();
        assert_eq!(done.load(Ordering::Relaxed), 0);

        assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
        let job = pool.take().expect("the third follows");
        assert!(pool.take().is_none(), "the fourth waits for its place");
        job();
        assert_eq!(third.await.unwrap(), 0);
        assert!((&mut fourth).now_or_never().is_none());
        pool.take().expect("the fourth follows")();
        assert_eq!(fourth.await.unwrap(), 1);
    }
}
