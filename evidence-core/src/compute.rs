//! Work that keeps a core busy for a millisecond or more (drawing a PDF, compressing, parsing what is long) leaves the
//! async runtime through here, and nowhere else, so that it holds up no other request. Which threads do it is the host's
//! to say: [`Evidence::with_compute_pool`](crate::Evidence::with_compute_pool).
//!
//! What finds no thread waits, at most [`MAX_WAIT`] long and at most [`MAX_WAITING`] jobs of an organization; what comes beyond
//! is refused, and never begun. Organizations take turns, so that none waits for all the jobs of another. A caller without a
//! role in the organization is counted in its place, a service account as the organization that made it, so that no stranger
//! uses up what its own people need. What an answer that is being sent still needs is never refused for the number that
//! wait, only for having waited too long; and what a write needs that was recorded is done in any case.
//!
//! Jobs that take seconds have half of the slots at most ([`Compute::run_long`]), so that the others, of which a request may
//! have several, do not wait for them each time. They wait apart, and so does whatever else their requests do
//! ([`Compute::for_long_request`]): however many are asked for, what is short finds room to wait.

pub(crate) mod refused;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::error::{Error, Result};
use crate::id::Id;
use crate::lock::locked;

pub use refused::Refused;

/// How long a job waits for its turn.
pub const MAX_WAIT: Duration = Duration::from_secs(10);

/// How many jobs of an organization, or of a caller without a role in it, may wait at once, and as many of requests that
/// take long; those of nobody count as one caller's.
pub const MAX_WAITING: usize = 64;

/// JSON of more bytes takes about a millisecond to parse or to write.
pub(crate) const LONG_JSON: usize = 64 << 10;

/// YAML of more bytes takes about a millisecond to parse.
pub(crate) const LONG_YAML: usize = 4 << 10;

/// Evaluating more running artifacts, each by one policy, takes about a millisecond.
pub(crate) const MANY_EVALUATIONS: usize = 256;

/// So many evaluations are one job, so that those of others come in between.
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
    /// How many jobs it is given at once at most; 0 counts as 1. It is asked once. Further work waits outside of the pool.
    fn parallelism(&self) -> usize;

    /// Runs the job soon, on a thread that no runtime needs. A job does not panic. One that is dropped fails its request.
    fn spawn(&self, job: Job);
}

/// The default pool: the runtime's own threads for blocking work ([`tokio::task::spawn_blocking`]), one fewer at once than
/// the machine has cores, so that one is left for everything else, and at least two, so that a long job takes not all of it.
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

/// How far a request has come: what it may be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Progress {
    /// Nothing is lost where it is refused.
    Asked,
    /// The beginning of its answer is sent. Its jobs are never refused for the number that wait; after [`MAX_WAIT`] they
    /// are, and the answer breaks off.
    Answering,
    /// It has recorded something, which has to be answered: what finds no thread in time is done where it is awaited.
    Recorded,
}

/// The way into a [`ComputePool`]. Clones share its slots, and what they know of the request's progress.
#[derive(Clone)]
pub struct Compute {
    pool: Arc<dyn ComputePool>,
    slots: Arc<Slots>,
    /// Who has a place here, of half as many, may wait for one there with a long job.
    long: Arc<Slots>,
    queue_key: QueueKey,
    /// A [`Progress`].
    progress: Arc<AtomicU8>,
}

impl std::fmt::Debug for Compute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compute")
            .field("free", &self.slots.turns().free)
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
    /// The way into this pool, on behalf of nobody.
    pub fn new(pool: impl ComputePool) -> Self {
        let slots = pool.parallelism().max(1);
        let (slots, long) = (Slots::new(slots), Slots::new((slots / 2).max(1)));
        Self { pool: Arc::new(pool), slots, long, queue_key: QueueKey::default(), progress: Arc::default() }
    }

    /// The way into the same pool for a request on behalf of this organization or caller
    /// ([`Access::on_behalf_of`](crate::auth::Access::on_behalf_of)).
    #[must_use]
    pub fn on_behalf_of(self, whom: Option<Id>) -> Self {
        Self {
            queue_key: QueueKey { on_behalf_of: whom, is_long_request: false },
            progress: Arc::default(),
            ..self
        }
    }

    /// The way into the same pool for the rest of a request that takes long: even its short jobs wait with the long ones of
    /// the organization, and not with those of other requests.
    #[must_use]
    pub fn for_long_request(self) -> Self {
        Self { queue_key: self.queue_key.for_long_request(), ..self }
    }

    /// Notes how far the request has come; it never goes back.
    pub fn note(&self, progress: Progress) {
        self.progress.fetch_max(progress as u8, Ordering::Relaxed);
    }

    fn has(&self, progress: Progress) -> bool {
        self.progress.load(Ordering::Relaxed) >= progress as u8
    }

    /// Waits for a place, with a long job for one among the long first. If the future is dropped, so is its turn.
    async fn slot(&self, is_long: bool) -> Result<(Slot, Option<Slot>), Refused> {
        let most = if self.has(Progress::Answering) { usize::MAX } else { MAX_WAITING };
        let mut waiting = pin!(async {
            let queue_key = if is_long { self.queue_key.for_long_request() } else { self.queue_key };
            let long = if is_long { Some(self.long.slot(queue_key, most).await?) } else { None };
            Ok::<_, Refused>((self.slots.slot(queue_key, most).await?, long))
        });
        match waiting.as_mut().now_or_never() {
            Some(at_once) => at_once,
            None => timeout(MAX_WAIT, waiting).await.unwrap_or(Err(Refused::Late)),
        }
    }

    /// Does `work` in the pool. If the future is dropped, work that has not begun never does.
    ///
    /// # Errors
    /// [`Error::Overloaded`] when it was not begun; never after [`Progress::Recorded`] was noted. [`Error::Internal`] when it
    /// panics, or the pool drops it.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.run_as(false, work).await
    }

    /// Does `work` that may take seconds in the pool. Such work has half of the slots at most, and of several never all.
    ///
    /// # Errors
    /// Those of [`Self::run`].
    pub async fn run_long<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        self.run_as(true, work).await
    }

    async fn run_as<T: Send + 'static>(
        &self,
        is_long: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let failed = |source| Error::Internal { what: "work in the compute pool failed", source };
        let slot = match self.slot(is_long).await {
            Ok(slot) => slot,
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
            drop(slot);
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

    /// What `evaluate` makes of each of these, in order: on this thread where it takes few `evaluations`, and else in the pool,
    /// so many of them a job that those of others come in between.
    ///
    /// # Errors
    /// Those of [`Self::run`].
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

/// Whose jobs count together while they wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct QueueKey {
    /// An organization, or a caller.
    on_behalf_of: Option<Id>,
    /// Those of its requests that take long, and else the others.
    is_long_request: bool,
}

impl QueueKey {
    const fn for_long_request(self) -> Self {
        Self { is_long_request: true, ..self }
    }
}

/// The slots of a pool, and who waits for them.
#[derive(Debug)]
struct Slots(Mutex<Turns>);

#[derive(Debug)]
struct Turns {
    /// None where anybody waits.
    free: usize,
    /// Who waits, on whose behalf; those whose turn is next come first.
    waiting: VecDeque<(QueueKey, VecDeque<oneshot::Sender<Slot>>)>,
}

/// A place in the pool, which the next has once this is dropped. Empty where somebody else has it now.
#[derive(Debug)]
struct Slot(Option<Arc<Slots>>);

impl Slots {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        locked(&self.0)
    }

    fn new(free: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Turns { free, waiting: VecDeque::new() })))
    }

    /// Waits for a place.
    async fn slot(self: &Arc<Self>, queue_key: QueueKey, most: usize) -> Result<Slot, Refused> {
        let mut turn = self.enter(queue_key, most)?;
        match turn.try_recv() {
            Ok(slot) => Ok(slot),
            Err(_) => turn.await.map_err(|_| Refused::Late),
        }
    }

    /// Where a place arrives, which it has already if one is free; refused where `most` of these wait.
    fn enter(self: &Arc<Self>, queue_key: QueueKey, most: usize) -> Result<oneshot::Receiver<Slot>, Refused> {
        let (to, turn) = oneshot::channel();
        let mut turns = self.turns();
        if turns.free == 0 {
            turns.wait(queue_key, to, most)?;
            return Ok(turn);
        }
        turns.free -= 1;
        drop(turns);
        // Its receiver is here.
        drop(to.send(Slot(Some(Arc::clone(self)))));
        Ok(turn)
    }

    /// Who has the place next that somebody leaves; it is free if nobody waits.
    fn leave(&self) -> Option<oneshot::Sender<Slot>> {
        let mut turns = self.turns();
        let next = turns.next();
        if next.is_none() {
            turns.free += 1;
        }
        next
    }
}

impl Turns {
    fn wait(&mut self, queue_key: QueueKey, to: oneshot::Sender<Slot>, most: usize) -> Result<(), Refused> {
        let Some((_, waiting)) = self.waiting.iter_mut().find(|(other, _)| *other == queue_key) else {
            self.waiting.push_back((queue_key, VecDeque::from([to])));
            return Ok(());
        };
        // Those who have left since do not count.
        waiting.retain(|waiter| !waiter.is_closed());
        if waiting.len() >= most {
            return Err(Refused::Full);
        }
        waiting.push_back(to);
        Ok(())
    }

    /// The first of the next who has not left, after which it is the others' turn.
    fn next(&mut self) -> Option<oneshot::Sender<Slot>> {
        while let Some((queue_key, mut waiting)) = self.waiting.pop_front() {
            waiting.retain(|waiter| !waiter.is_closed());
            let next = waiting.pop_front();
            if !waiting.is_empty() {
                self.waiting.push_back((queue_key, waiting));
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(slots) = self.0.take() else { return };
        while let Some(next) = slots.leave() {
            match next.send(Self(Some(Arc::clone(&slots)))) {
                Ok(()) => return,
                // Who was next has left just now: it stays the place that is left here.
                Err(mut unsent) => unsent.0 = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::store::error::StoreError;

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
            drop(pool.take().expect("the slot of a dropped job is free again"));
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
        assert!(pool.take().is_none(), "the fourth waits for its slot");
        job();
        assert_eq!(third.await.unwrap(), 0);
        assert!((&mut fourth).now_or_never().is_none());
        pool.take().expect("the fourth follows")();
        assert_eq!(fourth.await.unwrap(), 1);
    }

    fn org(number: u8) -> Option<Id> {
        Some(format!("00000000-0000-0000-0000-0000000{number}").parse().unwrap())
    }

    /// What was done, by the numbers of the jobs.
    #[derive(Clone, Default)]
    struct Done(Arc<Mutex<Vec<u8>>>);

    impl Done {
        /// A job that waits for its turn, or was given to the pool.
        fn start(&self, number: u8, compute: &Compute, org: Option<Id>) -> BoxFuture<'static, Result<()>> {
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

    /// Does all that is to be done.
    async fn finish(pool: &Held, mut started: Vec<BoxFuture<'static, Result<()>>>) {
        while let Some(job) = pool.take() {
            assert!(pool.take().is_none(), "one at a time");
            job();
            // Without it the runtime ends the polling of so many by one task.
            tokio::task::yield_now().await;
            started.retain_mut(|work| match work.now_or_never() {
                Some(outcome) => outcome.is_err(),
                None => true,
            });
        }
        assert!(started.is_empty(), "{} were not done", started.len());
    }

    #[tokio::test]
    async fn organizations_take_turns() {
        let (pool, done) = (Held::default(), Done::default());
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
    async fn what_waits_too_long_is_refused_and_never_begun() {
        let (pool, done) = (Held::default(), Done::default());
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
    async fn only_so_many_of_an_organization_wait_and_those_who_left_do_not_count() {
        let (pool, done) = (Held::default(), Done::default());
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
    async fn what_takes_long_leaves_what_is_short_its_room_to_wait() {
        let (pool, done) = (Held::default(), Done::default());
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
            "it is one of the long ones"
        );
        finish(&pool, started).await;
        assert_eq!(done.so_far()[..3], [0, 0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_begun_or_recorded_is_not_refused_because_many_wait() {
        let (pool, done) = (Held::default(), Done::default());
        let compute = Compute::new(pool.clone());
        let many = Vec::from_iter((0..=MAX_WAITING).map(|_| done.start(0, &compute, org(1))));
        let [answering, recorded] = [Progress::Answering, Progress::Recorded].map(|progress| {
            let compute = compute.clone().on_behalf_of(org(1));
            compute.note(progress);
            compute.note(Progress::Asked);
            compute
        });
        let answer = answering.run(|| 1);
        let mut write = std::pin::pin!(recorded.run(|| 2));
        assert!((&mut write).now_or_never().is_none(), "it waits for its turn");
        assert!(matches!(answer.await, Err(Error::Overloaded(Refused::Late))));
        assert_eq!(write.await.unwrap(), 2);
        let panicked = recorded.run(|| -> u8 { panic!("on purpose") }).await;
        assert!(matches!(panicked, Err(Error::Internal { .. })), "{panicked:?}");
        assert_eq!(done.so_far(), [0; 0]);
        drop(many);
    }

    #[tokio::test]
    async fn whoever_leaves_passes_the_place_on() {
        let (pool, done) = (Held::default(), Done::default());
        let compute = Compute::new(pool.clone());
        let [first, second, third, fourth] =
            [0, 1, 2, 3].map(|number| done.start(number, &compute, org(number)));
        drop(second);
        pool.take().unwrap()();
        assert!(pool.take().is_none(), "the third has its slot and does not know it yet");
        drop(third);
        let mut fourth = fourth;
        assert!((&mut fourth).now_or_never().is_none());
        finish(&pool, vec![first, fourth]).await;
        assert_eq!(done.so_far(), [0, 3]);
        assert_eq!(compute.slots.turns().free, 1);
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
