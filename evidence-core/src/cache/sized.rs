//! What is asked for again and again, within a budget of memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::lock::locked;

/// Values by keys, of a size in bytes each: those that were used lately. It forgets, and notices nothing: either a key says
/// all that its value rests on, or whoever takes a value finds out whether it still holds.
#[derive(Debug)]
pub(crate) struct Cache<K, T> {
    generations: Mutex<Generations<K, T>>,
    /// The most bytes of a generation.
    budget: usize,
}

/// Two generations, so that what is used survives the forgetting.
#[derive(Debug)]
struct Generations<K, T> {
    recent: BTreeMap<K, Entry<T>>,
    /// The size of the recent ones.
    bytes: usize,
    earlier: BTreeMap<K, Entry<T>>,
}

type Entry<T> = (usize, Arc<T>);

/// What a cache no longer keeps.
struct Forgotten<K, T> {
    generation: BTreeMap<K, Entry<T>>,
    replaced: Option<Entry<T>>,
}

impl<K: Ord, T> Cache<K, T> {
    /// A cache of about so many bytes.
    pub(crate) const fn new(bytes: usize) -> Self {
        let generations = Generations { recent: BTreeMap::new(), bytes: 0, earlier: BTreeMap::new() };
        Self { generations: Mutex::new(generations), budget: bytes / 2 }
    }

    /// The value of this key, if it is still there.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<T>> {
        let mut generations = self.generations();
        if let Some((_, value)) = generations.recent.get(key) {
            return Some(Arc::clone(value));
        }
        let (key, (bytes, value)) = generations.earlier.remove_entry(key)?;
        let forgotten = generations.keep(key, (bytes, Arc::clone(&value)), self.budget);
        drop(generations);
        drop(forgotten);
        Some(value)
    }

    /// Keeps a value of so many bytes, unless it is too large.
    pub(crate) fn put(&self, key: K, bytes: usize, value: Arc<T>) {
        let forgotten = self.generations().keep(key, (bytes, value), self.budget);
        drop(forgotten);
    }

    /// Forgets the value of this key.
    pub(crate) fn remove(&self, key: &K) {
        self.generations().remove(key);
    }

    fn generations(&self) -> MutexGuard<'_, Generations<K, T>> {
        locked(&self.generations)
    }
}

impl<K: Ord, T> Generations<K, T> {
    /// Keeps a value, and answers what is forgotten for it: that is dropped once the lock is given up, for it may be large.
    fn keep(&mut self, key: K, entry: Entry<T>, budget: usize) -> Forgotten<K, T> {
        let bytes = entry.0;
        let mut forgotten = Forgotten { generation: BTreeMap::new(), replaced: None };
        if bytes > budget {
            forgotten.replaced = Some(entry);
            return forgotten;
        }
        if self.bytes + bytes > budget {
            forgotten.generation = std::mem::replace(&mut self.earlier, std::mem::take(&mut self.recent));
            self.bytes = 0;
        }
        forgotten.replaced = self.recent.insert(key, entry);
        let replaced = forgotten.replaced.as_ref().map_or(0, |(bytes, _)| *bytes);
        self.bytes = (self.bytes + bytes).saturating_sub(replaced);
        forgotten
    }

    fn remove(&mut self, key: &K) {
        self.bytes -= self.recent.remove(key).map_or(0, |(bytes, _)| bytes);
        self.earlier.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_used_stays_and_what_is_not_is_forgotten() {
        let cache = Cache::new(20);
        for number in 0..100 {
            cache.put(number, 1, Arc::new(number));
            assert_eq!(cache.get(&0).as_deref(), Some(&0), "after {number}");
        }
        assert_eq!((cache.get(&1), cache.get(&99).as_deref()), (None, Some(&99)));
        cache.put(100, 11, Arc::new(100));
        assert_eq!(cache.get(&100), None);
    }

    proptest! {
        #[test]
        fn no_more_is_kept_than_the_budget(steps in proptest::collection::vec((0..9_u8, 0..40_usize, 0..5_u8), 0..60)) {
            let cache = Cache::new(60);
            for (key, bytes, step) in steps {
                match step {
                    0 => {
                        cache.remove(&key);
                        prop_assert!(cache.get(&key).is_none());
                    }
                    1 | 2 => drop(cache.get(&key)),
                    _ => cache.put(key, bytes, Arc::new(())),
                }
                let generations = cache.generations();
                let held = |entries: &BTreeMap<u8, Entry<()>>| entries.values().map(|(bytes, _)| bytes).sum::<usize>();
                prop_assert_eq!(held(&generations.recent), generations.bytes);
                prop_assert!(held(&generations.recent) <= 30 && held(&generations.earlier) <= 30);
            }
        }
    }
}
