//! Request coalescing: those who ask the same at the same time share one query.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use tokio::sync::Mutex as Turn;
use tokio::task::yield_now;

/// Queries by what they ask. One of each is on its way at a time, and one waits for its turn, which all share that ask
/// meanwhile: nobody is answered by a query that began before they asked.
pub(crate) struct Coalescer<K: Ord, V: Clone>(Arc<Queries<K, V>>);

struct Queries<K: Ord, V: Clone> {
    by_key: Mutex<BTreeMap<K, Asked<V>>>,
    /// Whether the last one was answered without waiting: nobody can ask while such a query is on its way.
    immediate: AtomicBool,
}

type Query<V> = Shared<BoxFuture<'static, V>>;

/// The queries of one key. They live as long as somebody waits for them.
struct Asked<V: Clone> {
    turn: Arc<Turn<()>>,
    /// The one that did not begin yet.
    next: Option<WeakShared<BoxFuture<'static, V>>>,
    /// How many there are; at least one.
    queries: usize,
}

impl<K: Ord, V: Clone> Default for Coalescer<K, V> {
    fn default() -> Self {
        Self(Arc::new(Queries { by_key: Mutex::default(), immediate: AtomicBool::new(false) }))
    }
}

impl<K, V> Coalescer<K, V>
where
    K: Ord + Clone + Send + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// The answer of `query`, or of another's that has an equal key and did not begin yet.
    pub(crate) fn ask<Q>(&self, key: K, query: impl FnOnce() -> Q + Send + 'static) -> Query<V>
    where
        Q: Future<Output = V> + Send + 'static,
    {
        let mut by_key = self.0.by_key();
        let asked = by_key.entry(key.clone()).or_insert_with(|| Asked {
            turn: Arc::default(),
            next: None,
            queries: 0,
        });
        if let Some(next) = asked.next.as_ref().and_then(WeakShared::upgrade) {
            return next;
        }
        asked.queries += 1;
        let (turn, present) = (Arc::clone(&asked.turn), Present { queries: Arc::clone(&self.0), key });
        let answer = async move {
            let _turn = turn.lock().await;
            if present.queries.immediate.load(Ordering::Relaxed) {
                // Requests that are ready to run join this one.
                yield_now().await;
            }
            present.begin();
            let (mut query, mut polls) = (pin!(query()), 0_u32);
            let answer = poll_fn(|context| {
                polls = polls.saturating_add(1);
                query.as_mut().poll(context)
            });
            let answer = answer.await;
            present.queries.immediate.store(polls == 1, Ordering::Relaxed);
            answer
        };
        let answer = answer.boxed().shared();
        asked.next = answer.downgrade();
        answer
    }
}

impl<K: Ord, V: Clone> Queries<K, V> {
    fn by_key(&self) -> MutexGuard<'_, BTreeMap<K, Asked<V>>> {
        // Nothing is half written when a holder of the lock panics.
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A query; its key is forgotten with the last.
struct Present<K: Ord, V: Clone> {
    queries: Arc<Queries<K, V>>,
    key: K,
}

impl<K: Ord, V: Clone> Present<K, V> {
    /// From now on nobody joins.
    fn begin(&self) {
        if let Some(asked) = self.queries.by_key().get_mut(&self.key) {
            asked.next = None;
        }
    }
}

impl<K: Ord, V: Clone> Drop for Present<K, V> {
    fn drop(&mut self) {
        let mut by_key = self.queries.by_key();
        if let Some(asked) = by_key.get_mut(&self.key) {
            asked.queries -= 1;
            if asked.queries == 0 {
                by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::{Semaphore, oneshot};

    use super::*;

    /// Counts the queries that began; each takes a permit, and answers how many had begun with it.
    #[derive(Default)]
    struct Store {
        begun: AtomicU32,
        permits: Option<Semaphore>,
    }

    impl Store {
        fn held() -> Arc<Self> {
            Arc::new(Self { permits: Some(Semaphore::new(0)), ..Self::default() })
        }

        async fn query(self: Arc<Self>) -> u32 {
            let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
            if let Some(permits) = &self.permits {
                permits.acquire().await.unwrap().forget();
            }
            number
        }

        fn begun(&self) -> u32 {
            self.begun.load(Ordering::Relaxed)
        }

        fn answer_one(&self) {
            self.permits.as_ref().unwrap().add_permits(1);
        }
    }

    fn ask(coalescer: &Coalescer<&'static str, u32>, key: &'static str, store: &Arc<Store>) -> Query<u32> {
        let store = Arc::clone(store);
        coalescer.ask(key, move || store.query())
    }

    #[tokio::test]
    async fn those_who_ask_while_a_query_is_on_its_way_share_the_next() {
        let (coalescer, store) = (Coalescer::default(), Store::held());
        let mut first = ask(&coalescer, "a", &store);
        assert!((&mut first).now_or_never().is_none());
        let mut later = Vec::from_iter((0..3).map(|_| ask(&coalescer, "a", &store)));
        for one in &mut later {
            assert!(one.now_or_never().is_none());
        }
        assert_eq!(store.begun(), 1, "one at a time");
        let mut other = ask(&coalescer, "b", &store);
        assert!((&mut other).now_or_never().is_none());
        assert_eq!(store.begun(), 2, "of each key");
        (0..3).for_each(|_| store.answer_one());
        assert_eq!((first.await, other.await), (1, 2));
        for one in later {
            assert_eq!(one.await, 3);
        }
        assert!(coalescer.0.by_key().is_empty());
        store.answer_one();
        assert_eq!(ask(&coalescer, "a", &store).await, 4, "an answer is not kept");
        assert!(coalescer.0.by_key().is_empty());
    }

    #[tokio::test]
    async fn whoever_leaves_holds_up_nobody_and_leaves_nothing() {
        let (coalescer, store) = (Coalescer::default(), Store::held());
        let mut first = ask(&coalescer, "a", &store);
        assert!((&mut first).now_or_never().is_none());
        let mut second = ask(&coalescer, "a", &store);
        assert!((&mut second).now_or_never().is_none());
        let mut third = ask(&coalescer, "a", &store);
        assert!((&mut third).now_or_never().is_none());
        // The second began none yet, and the third waits for the same.
        drop((first, second));
        store.answer_one();
        assert_eq!(third.await, 2);
        let mut only = ask(&coalescer, "a", &store);
        while store.begun() < 3 {
            assert!((&mut only).now_or_never().is_none());
        }
        drop(only);
        assert!(coalescer.0.by_key().is_empty());
        // One that nobody waits for any more is not joined.
        store.answer_one();
        assert_eq!(ask(&coalescer, "a", &store).await, 4);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn nobody_is_answered_by_a_query_that_began_before_they_asked() {
        let (coalescer, store) = (Arc::new(Coalescer::default()), Arc::new(Store::default()));
        let tasks = (0..64).map(|_| {
            let (coalescer, store) = (Arc::clone(&coalescer), Arc::clone(&store));
            tokio::spawn(async move {
                for _ in 0..200 {
                    let begun = store.begun();
                    let query = Arc::clone(&store);
                    let answer = coalescer.ask("a", move || async {
                        tokio::task::yield_now().await;
                        query.query().await
                    });
                    assert!(answer.await > begun);
                }
            })
        });
        for task in Vec::from_iter(tasks) {
            task.await.unwrap();
        }
        assert!(store.begun() < 64 * 200, "{}", store.begun());
        assert!(coalescer.0.by_key().is_empty());
    }

    #[tokio::test]
    async fn those_who_are_ready_to_ask_share_a_query_that_does_not_wait() {
        let (coalescer, store) = (Coalescer::default(), Arc::new(Store::default()));
        assert_eq!(ask(&coalescer, "a", &store).await, 1);
        let both = futures_util::future::join(ask(&coalescer, "a", &store), async {
            ask(&coalescer, "a", &store).await
        });
        assert_eq!(both.await, (2, 2));
    }

    #[tokio::test]
    async fn a_panic_of_a_query_is_its_askers_alone() {
        let coalescer = Coalescer::<&str, u32>::default();
        let (end, ended) = oneshot::channel::<()>();
        let failing = coalescer.ask("a", || async {
            drop(ended.await);
            panic!("a defect of a store")
        });
        let failing = tokio::spawn(failing);
        tokio::task::yield_now().await;
        let waiting = tokio::spawn(coalescer.ask("a", || async { 1 }));
        tokio::task::yield_now().await;
        drop(end);
        assert!(failing.await.is_err());
        assert_eq!(waiting.await.unwrap(), 1);
        assert!(coalescer.0.by_key().is_empty());
    }
}
