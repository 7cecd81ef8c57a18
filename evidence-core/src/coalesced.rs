//! Request coalescing: concurrent callers with equal keys share one query.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use crate::limiter::{FairSemaphore, UNLIMITED};
use crate::lock::locked;

/// The time after which the next query of a key may run beside a slow one. A query that hangs therefore delays the others
/// once, by this time.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Coalesces queries by key. One query of a key runs at a time, and one waits for its permit. All calls that arrive meanwhile
/// share the waiting one, so no call gets the result of a query that began before the call.
///
/// Each query is a task of its own, so it continues when its first caller is dropped. The task belongs to the runtime of
/// that caller. If callers are on several runtimes, that runtime has to keep running.
pub(crate) struct Coalescer<K: Ord, V>(Arc<Queries<K, V>>);

struct Queries<K: Ord, V> {
    semaphore: FairSemaphore<K>,
    /// The receivers of the queries that have not begun yet.
    next: Mutex<BTreeMap<K, Answer<V>>>,
    /// Whether the last query returned without waiting, so that no other task on its thread could join it.
    immediate: AtomicBool,
}

/// The result of a query; `None` until it has one.
type Answer<V> = watch::Receiver<Option<V>>;

impl<K: Ord + Clone, V> Default for Coalescer<K, V> {
    fn default() -> Self {
        Self(Arc::new(Queries {
            semaphore: FairSemaphore::new(UNLIMITED, 1),
            next: Mutex::default(),
            immediate: AtomicBool::new(false),
        }))
    }
}

impl<K, V> Coalescer<K, V>
where
    K: Ord + Clone + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Returns the result of `query`, or of another caller's query that has an equal key and has not begun yet. A query
    /// begins when it is first polled, and must do nothing before.
    ///
    /// Outside of a Tokio runtime, and if the shared query ends without a result, as after a panic, runs `query` itself.
    pub(crate) async fn run<Q>(&self, key: K, query: impl Fn() -> Q) -> V
    where
        Q: Future<Output = V> + Send + 'static,
    {
        if let Ok(runtime) = Handle::try_current() {
            let mut answer = self.join(key, &runtime, &query);
            if let Ok(answer) = answer.wait_for(Option::is_some).await
                && let Some(answer) = &*answer
            {
                return answer.clone();
            }
        }
        query().await
    }

    fn join<Q>(&self, key: K, runtime: &Handle, query: impl Fn() -> Q) -> Answer<V>
    where
        Q: Future<Output = V> + Send + 'static,
    {
        let mut next = self.0.next();
        if let Some(answer) = next.get(&key) {
            return answer.clone();
        }
        let (to, answer) = watch::channel(None);
        next.insert(key.clone(), answer.clone());
        drop(next);
        let waiting = Waiting { queries: Arc::clone(&self.0), key };
        runtime.spawn(run_query(waiting, query(), to).in_current_span());
        answer
    }
}

async fn run_query<K: Ord + Clone, V>(
    waiting: Waiting<K, V>,
    query: impl Future<Output = V>,
    to: watch::Sender<Option<V>>,
) {
    let queries = Arc::clone(&waiting.queries);
    // The previous query releases its permit after `MAX_WAIT`. The longer deadline applies if its runtime has stopped.
    let permit =
        queries.semaphore.acquire(waiting.key.clone(), UNLIMITED, Instant::now() + 2 * MAX_WAIT).await;
    if queries.immediate.load(Ordering::Relaxed) {
        // Requests that are ready to run join this one.
        yield_now().await;
    }
    drop(waiting);
    let (mut query, mut polls) = (pin!(query), 0_u32);
    let mut counted = poll_fn(|context| {
        polls = polls.saturating_add(1);
        query.as_mut().poll(context)
    });
    // A query that returns at once needs no timer.
    let answer = match (&mut counted).now_or_never() {
        Some(answer) => Ok(answer),
        None => timeout(MAX_WAIT, &mut counted).await,
    };
    let answer = if let Ok(answer) = answer {
        answer
    } else {
        drop(permit);
        counted.await
    };
    queries.immediate.store(polls == 1, Ordering::Relaxed);
    // It fails if no caller waits any more.
    to.send(Some(answer)).ok();
}

impl<K: Ord, V> Queries<K, V> {
    fn next(&self) -> MutexGuard<'_, BTreeMap<K, Answer<V>>> {
        locked(&self.next)
    }
}

/// A query that has not begun yet. Once this is dropped, no call joins the query.
struct Waiting<K: Ord, V> {
    queries: Arc<Queries<K, V>>,
    key: K,
}

impl<K: Ord, V> Drop for Waiting<K, V> {
    fn drop(&mut self) {
        self.queries.next().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use std::future::pending;

    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;
    use tokio::time::sleep;

    use super::*;

    /// Counts the queries that began. Each answers how many had begun with it, once it has a permit.
    struct Store {
        begun: AtomicU32,
        permits: Semaphore,
    }

    impl Store {
        fn new(permits: usize) -> Arc<Self> {
            Arc::new(Self { begun: AtomicU32::new(0), permits: Semaphore::new(permits) })
        }

        async fn query(self: Arc<Self>) -> u32 {
            let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
            self.permits.acquire().await.unwrap().forget();
            number
        }

        fn begun(&self) -> u32 {
            self.begun.load(Ordering::Relaxed)
        }
    }

    type Shared = Arc<Coalescer<&'static str, u32>>;

    fn spawn_query(coalescer: &Shared, key: &'static str, store: &Arc<Store>) -> JoinHandle<u32> {
        let (coalescer, store) = (Arc::clone(coalescer), Arc::clone(store));
        tokio::spawn(async move { coalescer.run(key, || Arc::clone(&store).query()).await })
    }

    /// Runs all tasks that are ready.
    async fn settle() {
        for _ in 0..20 {
            yield_now().await;
        }
    }

    async fn expect_nothing_left(coalescer: &Shared) {
        settle().await;
        assert!(coalescer.0.next().is_empty() && coalescer.0.semaphore.is_unused());
    }

    #[tokio::test]
    async fn callers_during_a_query_share_the_next_one() {
        let (coalescer, store) = (Shared::default(), Store::new(0));
        let first = spawn_query(&coalescer, "a", &store);
        settle().await;
        let later = Vec::from_iter((0..3).map(|_| spawn_query(&coalescer, "a", &store)));
        settle().await;
        assert_eq!(store.begun(), 1, "one at a time");
        let other = spawn_query(&coalescer, "b", &store);
        settle().await;
        assert_eq!(store.begun(), 2, "of each key");
        store.permits.add_permits(3);
        assert_eq!((first.await.unwrap(), other.await.unwrap()), (1, 2));
        for one in later {
            assert_eq!(one.await.unwrap(), 3);
        }
        expect_nothing_left(&coalescer).await;
        store.permits.add_permits(1);
        assert_eq!(spawn_query(&coalescer, "a", &store).await.unwrap(), 4, "an answer is not kept");
    }

    #[tokio::test]
    async fn a_cancelled_caller_delays_no_other_and_leaves_no_state() {
        let (coalescer, store) = (Shared::default(), Store::new(0));
        let mut callers = Vec::new();
        for _ in 0..3 {
            callers.push(spawn_query(&coalescer, "a", &store));
            settle().await;
        }
        let third = callers.pop().unwrap();
        // The first began a query, and the second is the one by which the next was to begin.
        callers.iter().for_each(JoinHandle::abort);
        store.permits.add_permits(2);
        assert_eq!(third.await.unwrap(), 2);
        expect_nothing_left(&coalescer).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_that_hangs_delays_the_others_for_a_second() {
        let (coalescer, store) = (Shared::default(), Store::new(0));
        let hanging = {
            let coalescer = Arc::clone(&coalescer);
            tokio::spawn(async move { coalescer.run("a", pending).await })
        };
        settle().await;
        let next = spawn_query(&coalescer, "a", &store);
        sleep(MAX_WAIT - Duration::from_millis(10)).await;
        assert_eq!(store.begun(), 0);
        sleep(Duration::from_millis(20)).await;
        assert_eq!(store.begun(), 1);
        let later = spawn_query(&coalescer, "a", &store);
        settle().await;
        assert_eq!(store.begun(), 1, "one at a time again");
        let called = Instant::now();
        store.permits.add_permits(2);
        assert_eq!((next.await.unwrap(), later.await.unwrap()), (1, 2));
        assert_eq!(called.elapsed(), Duration::ZERO);
        assert!(!hanging.is_finished());
        expect_nothing_left(&coalescer).await;
    }

    /// On a runtime that polls the newest task first, as those of several threads do.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn ready_callers_share_a_query_that_does_not_wait() {
        let (coalescer, store) = (Shared::default(), Store::new(9));
        assert_eq!(spawn_query(&coalescer, "a", &store).await.unwrap(), 1);
        let all = tokio::spawn(async move { [(); 3].map(|()| spawn_query(&coalescer, "a", &store)) });
        for one in all.await.unwrap() {
            assert_eq!(one.await.unwrap(), 2);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_caller_gets_the_result_of_a_query_that_began_earlier() {
        const CALLS: u32 = 64 * 200;
        let (coalescer, store) = (Shared::default(), Store::new(CALLS as usize));
        let tasks = (0..64).map(|_| {
            let (coalescer, store) = (Arc::clone(&coalescer), Arc::clone(&store));
            tokio::spawn(async move {
                for round in 0..200 {
                    let begun = store.begun();
                    let answer = coalescer.run("a", || {
                        let store = Arc::clone(&store);
                        async move {
                            if round % 2 == 0 {
                                yield_now().await;
                            }
                            store.query().await
                        }
                    });
                    assert!(answer.await > begun);
                }
            })
        });
        for task in Vec::from_iter(tasks) {
            task.await.unwrap();
        }
        assert!(store.begun() < CALLS, "{}", store.begun());
    }

    #[tokio::test]
    async fn after_a_panic_of_the_shared_query_each_caller_runs_its_own() {
        let (coalescer, store) = (Shared::default(), Store::new(9));
        let callers = [(); 3].map(|()| {
            let (coalescer, store) = (Arc::clone(&coalescer), Arc::clone(&store));
            tokio::spawn(async move {
                let query = || {
                    let store = Arc::clone(&store);
                    async move {
                        let number = store.query().await;
                        assert!(number > 1, "a defect of a store");
                        number
                    }
                };
                coalescer.run("a", query).await
            })
        });
        let mut answers = Vec::new();
        for one in callers {
            answers.push(one.await.unwrap());
        }
        answers.sort_unstable();
        assert_eq!(answers, [2, 3, 4]);
        expect_nothing_left(&coalescer).await;
    }

    #[test]
    fn without_a_runtime_each_caller_runs_its_own_query() {
        let coalescer = Coalescer::default();
        assert_eq!(coalescer.run("a", || async { 1 }).now_or_never(), Some(1));
    }
}
