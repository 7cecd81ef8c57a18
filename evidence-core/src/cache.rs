//! A cache of values by key, within a budget of bytes.

use std::collections::BTreeMap;
use std::future::Future;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use quick_cache::sync::{self, DefaultLifecycle, EntryAction, EntryResult, PlaceholderGuard};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// The time that a look-up waits for another caller that computes the value.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The typical size of a value in bytes. It only sets how many evicted keys the cache remembers.
const TYPICAL: usize = 1 << 10;

/// The approximate bytes that the maps and the allocator add to an entry.
const OVERHEAD: usize = 128;

/// A value that can be cached.
pub(crate) trait Weigh {
    /// Returns the approximate memory in bytes that it holds besides its own fields.
    fn bytes(&self) -> usize;

    /// Returns whether [`Cache::insert`] and the methods that load values may cache it. A [`Slot`] caches any value.
    fn is_cacheable(&self) -> bool {
        true
    }
}

/// A cache of values by key. When its budget is full, it evicts values that were not used recently.
///
/// Values are not invalidated. Either the key has everything that the value depends on, or the caller checks
/// whether a cached value is still valid.
pub(crate) struct Cache<K, V>(sync::Cache<K, Entry<V>, Bytes>);

/// A cached value with its size. The size is computed once, outside of the cache's lock.
struct Entry<V> {
    bytes: u64,
    value: Arc<V>,
}

impl<V> Clone for Entry<V> {
    fn clone(&self) -> Self {
        Self { bytes: self.bytes, value: Arc::clone(&self.value) }
    }
}

/// Weighs entries by their bytes.
#[derive(Clone)]
struct Bytes;

impl<K, V> Weighter<K, Entry<V>> for Bytes {
    fn weight(&self, _: &K, entry: &Entry<V>) -> u64 {
        entry.bytes
    }
}

type Placeholder<'c, K, V> =
    PlaceholderGuard<'c, K, Entry<V>, Bytes, DefaultHashBuilder, DefaultLifecycle<K, Entry<V>>>;

/// The result of [`Cache::look_up`].
pub(crate) enum Lookup<'c, K, V> {
    Hit(Arc<V>),
    Miss(Slot<'c, K, V>),
}

/// The place of a missing value. Other look-ups of the key wait until it is filled. If it is dropped instead,
/// one of them gets the slot.
pub(crate) struct Slot<'c, K, V> {
    cache: &'c Cache<K, V>,
    key: K,
    /// `None` if another caller has computed the value for longer than [`MAX_WAIT`]. Other callers do not wait for this one.
    placeholder: Option<Placeholder<'c, K, V>>,
}

impl<K: Clone + Eq + Hash, V: Weigh> Slot<'_, K, V> {
    pub(crate) const fn key(&self) -> &K {
        &self.key
    }

    /// Caches the value and passes it to the callers that wait for it.
    pub(crate) fn fill(self, value: V) {
        let entry = Cache::<K, V>::entry(Arc::new(value));
        match self.placeholder {
            // It fails if another caller filled the slot meanwhile.
            Some(placeholder) => drop(placeholder.insert(entry)),
            None => self.cache.0.insert(self.key, entry),
        }
    }
}

impl<K: Clone + Eq + Hash, V: Weigh> Cache<K, V> {
    /// Creates a cache that holds at most this many bytes.
    pub(crate) fn new(budget: usize) -> Self {
        let mut options = OptionsBuilder::new();
        // Each shard has a part of the budget, and some values need nearly all of it.
        options.shards(1).weight_capacity(budget as u64).estimated_items_capacity(budget / TYPICAL);
        let cache = match options.build() {
            Ok(options) => sync::Cache::with_options(
                options,
                Bytes,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
            // Only a missing option is an error.
            Err(_) => sync::Cache::with_weighter(1, budget as u64, Bytes),
        };
        Self(cache)
    }

    fn entry(value: Arc<V>) -> Entry<V> {
        let bytes = OVERHEAD + size_of::<K>() + size_of::<V>();
        Entry { bytes: bytes.saturating_add(value.bytes()) as u64, value }
    }

    /// Returns the cached value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<V>> {
        self.0.get(key).map(|entry| entry.value)
    }

    /// Caches a value, unless it exceeds the budget or is not cacheable.
    pub(crate) fn insert(&self, key: K, value: Arc<V>) {
        if value.is_cacheable() {
            self.0.insert(key, Self::entry(value));
        }
    }

    /// Removes the value of a key.
    pub(crate) fn remove(&self, key: &K) {
        self.0.remove(key);
    }

    /// Returns the value of a key, from the cache or from `load`.
    pub(crate) async fn get_or_load<E>(
        &self,
        key: K,
        load: impl Future<Output = Result<V, E>>,
    ) -> Result<Arc<V>, E> {
        if let Some(value) = self.get(&key) {
            return Ok(value);
        }
        let value = Arc::new(load.await?);
        self.insert(key, Arc::clone(&value));
        Ok(value)
    }

    /// Returns the values of these keys. Loads the missing ones together; `load` may return fewer.
    pub(crate) async fn get_many<E>(
        &self,
        keys: impl IntoIterator<Item = K>,
        load: impl AsyncFnOnce(Vec<K>) -> Result<Vec<(K, V)>, E>,
    ) -> Result<BTreeMap<K, Arc<V>>, E>
    where
        K: Ord,
    {
        let (mut found, mut missing) = (BTreeMap::new(), Vec::new());
        for key in keys {
            match self.get(&key) {
                Some(value) => drop(found.insert(key, value)),
                None => missing.push(key),
            }
        }
        if !missing.is_empty() {
            for (key, value) in load(missing).await? {
                let value = Arc::new(value);
                self.insert(key.clone(), Arc::clone(&value));
                found.insert(key, value);
            }
        }
        Ok(found)
    }

    /// Returns the value of a key if it `holds`, or the slot for a new one. If another caller has the slot, waits
    /// for it, but not for long.
    pub(crate) async fn look_up(&self, key: K, holds: impl Fn(&V) -> bool) -> Lookup<'_, K, V> {
        // Needs only a read lock.
        if let Some(value) = self.get(&key).filter(|value| holds(value)) {
            return Lookup::Hit(value);
        }
        let check = |_: &K, entry: &mut Entry<V>| match holds(&entry.value) {
            true => EntryAction::Retain(Arc::clone(&entry.value)),
            false => EntryAction::ReplaceWithGuard,
        };
        let placeholder = {
            let mut entry = pin!(self.0.entry_async(&key, check));
            let entry = match entry.as_mut().now_or_never() {
                Some(entry) => Some(entry),
                // Timers need a Tokio runtime. Without one, no call waits.
                None if Handle::try_current().is_ok() => timeout(MAX_WAIT, entry).await.ok(),
                None => None,
            };
            match entry {
                Some(EntryResult::Retained(value)) => return Lookup::Hit(value),
                Some(EntryResult::Vacant(free) | EntryResult::Replaced(free, _)) => Some(free),
                Some(EntryResult::Removed(..) | EntryResult::Timeout) | None => None,
            }
        };
        // Another caller that did not wait any longer may have cached the value meanwhile.
        if placeholder.is_none()
            && let Some(value) = self.get(&key).filter(|value| holds(value))
        {
            return Lookup::Hit(value);
        }
        Lookup::Miss(Slot { cache: self, key, placeholder })
    }

    /// Returns the bytes of all cached values.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.0.weight()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::{BoxFuture, join_all};
    use proptest::prelude::*;
    use tokio::time::{Instant, sleep};

    use super::*;

    /// A value of this size. An even one may be cached.
    #[derive(Debug, PartialEq, Eq)]
    struct Sized(usize);

    impl Weigh for Sized {
        fn bytes(&self) -> usize {
            self.0
        }

        fn is_cacheable(&self) -> bool {
            self.0.is_multiple_of(2)
        }
    }

    const fn holds(_: &Sized) -> bool {
        true
    }

    #[test]
    fn what_is_used_stays_and_the_rest_is_evicted() {
        let cache = Cache::new(20_000);
        for number in 0..100 {
            cache.insert(number, Arc::new(Sized(1000)));
            assert!(cache.get(&0).is_some(), "after {number}");
        }
        let left = (0..100).filter(|number| cache.get(number).is_some()).count();
        assert!((10..20).contains(&left), "{left}");
        cache.insert(0, Arc::new(Sized(40_000)));
        assert_eq!(cache.get(&0), None, "a value larger than the cache replaces nothing but its predecessor");
    }

    #[tokio::test]
    async fn missing_values_are_loaded_together_and_cached_if_they_may_be() {
        let cache = Cache::new(10_000);
        let load = |expected: Vec<usize>| {
            async move |keys: Vec<usize>| {
                assert_eq!(keys, expected);
                Ok::<_, ()>(keys.into_iter().filter(|key| *key < 8).map(|key| (key, Sized(key))).collect())
            }
        };
        let keys = |found: BTreeMap<usize, Arc<Sized>>| Vec::from_iter(found.into_keys());
        assert_eq!(cache.get_many([2, 3, 9], load(vec![2, 3, 9])).await.map(keys), Ok(vec![2, 3]));
        assert_eq!(cache.get_many([2, 3, 4, 9], load(vec![3, 4, 9])).await.map(keys), Ok(vec![2, 3, 4]));
        let unread = async |_| Err("they are cached");
        assert_eq!(cache.get_many([2, 4], unread).await.map(keys), Ok(vec![2, 4]));
        let once = cache.get_or_load(6, async { Ok::<_, ()>(Sized(6)) }).await.unwrap();
        assert_eq!(
            (&*once, cache.get_or_load(6, pending::<Result<_, ()>>()).now_or_never()),
            (&Sized(6), Some(Ok(Arc::new(Sized(6)))))
        );
    }

    type Numbers = Arc<Cache<u8, Sized>>;

    /// Computes value 0 in 10 ms, unless it is cached. Counts how often.
    fn compute(cache: &Numbers, computed: &Arc<AtomicUsize>) -> BoxFuture<'static, usize> {
        let (cache, computed) = (Arc::clone(cache), Arc::clone(computed));
        async move {
            match cache.look_up(0, holds).await {
                Lookup::Hit(value) => value.0,
                Lookup::Miss(slot) => {
                    let number = computed.fetch_add(1, Ordering::Relaxed) + 1;
                    sleep(Duration::from_millis(10)).await;
                    slot.fill(Sized(number));
                    number
                }
            }
        }
        .boxed()
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_look_ups_of_a_key_compute_its_value_once() {
        let (cache, computed) = (Arc::new(Cache::new(10_000)), Arc::default());
        let all = join_all((0..100).map(|_| compute(&cache, &computed))).await;
        assert_eq!((all, computed.load(Ordering::Relaxed)), (vec![1; 100], 1));
        let invalid = cache.look_up(0, |_| false).await;
        assert!(matches!(invalid, Lookup::Miss(_)), "a value that does not hold is computed again");
    }

    #[tokio::test(start_paused = true)]
    async fn if_a_slot_is_dropped_one_of_those_that_wait_gets_it() {
        let (cache, computed) = (Arc::new(Cache::new(10_000)), Arc::default());
        let Lookup::Miss(slot) = cache.look_up(0, holds).await else { panic!("it is cached") };
        let mut waiting = join_all((0..10).map(|_| compute(&cache, &computed)));
        assert!((&mut waiting).now_or_never().is_none());
        assert_eq!(computed.load(Ordering::Relaxed), 0);
        drop(slot);
        assert_eq!((waiting.await, computed.load(Ordering::Relaxed)), (vec![1; 10], 1));
    }

    #[tokio::test(start_paused = true)]
    async fn no_look_up_waits_for_more_than_a_second() {
        let (cache, computed): (Numbers, Arc<AtomicUsize>) = (Arc::new(Cache::new(10_000)), Arc::default());
        let Lookup::Miss(stalled) = cache.look_up(0, holds).await else { panic!("it is cached") };
        let begun = Instant::now();
        let values = join_all((0..10).map(|_| compute(&cache, &computed))).await;
        assert_eq!(begun.elapsed(), MAX_WAIT + Duration::from_millis(10));
        assert_eq!((values.len(), computed.load(Ordering::Relaxed)), (10, 10), "each computes it alone");
        assert!(cache.get(&0).is_some(), "and caches it");
        stalled.fill(Sized(100));
        assert_ne!(cache.get(&0).as_deref(), Some(&Sized(100)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_was_cached_while_a_look_up_waited_is_a_hit() {
        let cache = Numbers::new(Cache::new(10_000));
        let Lookup::Miss(_stalled) = cache.look_up(0, holds).await else { panic!("it is cached") };
        let first = async {
            let Lookup::Miss(slot) = cache.look_up(0, holds).await else { panic!("it is cached") };
            slot.fill(Sized(2));
        };
        let second = async {
            sleep(MAX_WAIT / 2).await;
            matches!(cache.look_up(0, holds).await, Lookup::Hit(_))
        };
        assert!(tokio::join!(first, second).1, "it is computed again");
    }

    #[test]
    fn without_a_runtime_no_look_up_waits() {
        let cache = Cache::new(10_000);
        let first = cache.look_up(0, holds).now_or_never().unwrap();
        assert!(matches!(cache.look_up(0, holds).now_or_never(), Some(Lookup::Miss(_))));
        drop(first);
    }

    proptest! {
        #[test]
        fn the_budget_is_never_exceeded(steps in proptest::collection::vec((0..9_u8, 0..4000_usize, 0..5_u8), 0..60)) {
            let cache = Cache::new(6000);
            for (key, bytes, step) in steps {
                match step {
                    0 => {
                        cache.remove(&key);
                        prop_assert!(cache.get(&key).is_none());
                    }
                    1 => drop(cache.get(&key)),
                    2 => {
                        let slot = cache.look_up(key, holds).now_or_never();
                        if let Some(Lookup::Miss(slot)) = slot {
                            slot.fill(Sized(bytes));
                        }
                    }
                    _ => cache.insert(key, Arc::new(Sized(bytes))),
                }
                prop_assert!(cache.bytes() <= 6000);
                let held = (0..9_u8).filter_map(|key| cache.get(&key)).map(|value| value.0 as u64).sum::<u64>();
                prop_assert!(held <= cache.bytes());
            }
        }
    }
}
