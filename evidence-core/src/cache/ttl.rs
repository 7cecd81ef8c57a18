//! What nearly every request asks of the store first, remembered for a moment: who holds a key, and how a caller
//! stands in an organization. What changes through this service is asked anew at once; what changes elsewhere, such as
//! through another server on the same database, when the moment is over.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::lock::locked;

/// How long an answer is good for: a revocation has to be effective everywhere within a second. By a monotonic clock, which
/// nobody sets; the time in which a machine is suspended does not count.
const TTL: Duration = Duration::from_millis(500);

/// More answers than this are forgotten all at once.
const CAPACITY: usize = 4096;

/// Answers by query.
#[derive(Debug)]
pub(crate) struct TtlCache<K, V>(Mutex<Answers<K, V>>);

#[derive(Debug)]
struct Answers<K, V> {
    /// How many times the cache was cleared.
    generation: u64,
    /// Each with the instant at which it was asked for.
    by_query: BTreeMap<K, (Instant, V)>,
}

impl<K, V> Default for TtlCache<K, V> {
    fn default() -> Self {
        Self(Mutex::new(Answers { generation: 0, by_query: BTreeMap::new() }))
    }
}

impl<K: Ord + Clone, V: Clone> TtlCache<K, V> {
    /// The answer, remembered if it was asked for less than a moment ago, else from `ask`. What is not there is
    /// not remembered, nor is an answer during whose reading everything was forgotten: it may be one from before.
    pub(crate) async fn answer<E>(
        &self,
        query: &K,
        ask: impl Future<Output = Result<Option<V>, E>>,
    ) -> Result<Option<V>, E> {
        let generation = match self.get(query) {
            Ok(answer) => return Ok(Some(answer)),
            Err(generation) => generation,
        };
        let asked = Instant::now();
        let found = ask.await?;
        if let Some(answer) = &found {
            self.insert(generation, query.clone(), asked, answer.clone());
        }
        Ok(found)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let mut answers = self.answers();
        answers.generation += 1;
        answers.by_query.clear();
    }

    /// The answer, if it is fresh enough, else the generation in which it is asked for.
    fn get(&self, query: &K) -> Result<V, u64> {
        let answers = self.answers();
        let fresh = answers.by_query.get(query).filter(|(asked, _)| asked.elapsed() < TTL);
        fresh.map(|(_, answer)| answer.clone()).ok_or(answers.generation)
    }

    /// Remembers an answer to a query that was asked at `asked`, in this generation.
    fn insert(&self, generation: u64, query: K, asked: Instant, answer: V) {
        let mut answers = self.answers();
        if answers.generation != generation {
            return;
        }
        if answers.by_query.len() >= CAPACITY {
            answers.by_query.clear();
        }
        answers.by_query.insert(query, (asked, answer));
    }

    fn answers(&self) -> MutexGuard<'_, Answers<K, V>> {
        locked(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    impl<K: Ord + Clone, V: Clone> TtlCache<K, V> {
        fn insert_now(&self, query: K, answer: V) {
            let generation = self.answers().generation;
            self.insert(generation, query, Instant::now(), answer);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_good_for_a_moment() {
        let recent = TtlCache::default();
        recent.insert_now("key", "jane");
        assert_eq!((recent.get(&"key"), recent.get(&"other")), (Ok("jane"), Err(0)));
        let moment = Duration::from_micros(1);
        advance(TTL - moment).await;
        assert!(recent.get(&"key").is_ok());
        advance(moment).await;
        assert!(recent.get(&"key").is_err());
        recent.insert_now("key", "jane");
        recent.clear();
        assert!(recent.get(&"key").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_as_old_as_its_query() {
        let recent = TtlCache::default();
        let slow = async {
            advance(TTL).await;
            Ok::<_, ()>(Some("jane"))
        };
        assert_eq!(recent.answer(&"key", slow).await, Ok(Some("jane")));
        assert!(recent.get(&"key").is_err());
    }

    #[tokio::test]
    async fn an_answer_read_before_everything_was_forgotten_is_never_kept() {
        let recent = TtlCache::default();
        let read = async {
            // Revoked between the reading and the keeping.
            recent.clear();
            Ok::<_, ()>(Some("valid"))
        };
        assert_eq!(recent.answer(&"key", read).await, Ok(Some("valid")));
        assert_eq!(recent.answer(&"key", async { Ok::<_, ()>(Some("revoked")) }).await, Ok(Some("revoked")));
        let unasked = async { Err("the answer is known") };
        assert_eq!(recent.answer(&"key", unasked).await, Ok(Some("revoked")));
    }

    #[test]
    fn no_more_is_remembered_than_fits() {
        let recent = TtlCache::default();
        for number in 0..=CAPACITY {
            recent.insert_now(number, ());
        }
        assert_eq!((recent.get(&0).is_ok(), recent.get(&CAPACITY).is_ok()), (false, true));
    }
}
