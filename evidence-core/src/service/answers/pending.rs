//! What is being made, for which those wait that would make the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::locked;

/// How long one that makes something is waited for, before another begins beside it.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// How long anybody waits in all.
const MAX_WAIT_IN_ALL: Duration = Duration::from_secs(1);

/// What is being made, by its key.
pub(super) struct Pending<K: Ord, V>(Mutex<BTreeMap<K, Making<V>>>);

struct Making<V> {
    makers: usize,
    /// When the last of them began.
    since: Instant,
    /// What the last to end came to, if it came to anything.
    ended: watch::Sender<Option<V>>,
}

/// Who makes what others wait for, until this is dropped.
pub(super) struct Maker<K: Ord, V> {
    pending: Arc<Pending<K, V>>,
    key: K,
}

/// Who makes it.
pub(super) enum Begun<K: Ord, V> {
    /// The caller, and others wait.
    Maker(Maker<K, V>),
    /// Another made it meanwhile.
    Made(V),
    /// The caller, for itself alone: another came to nothing, or none in time.
    Alone,
}

/// What tells that one ended, and how long to wait for it.
type Other<V> = (watch::Receiver<Option<V>>, Instant);

impl<K: Ord, V> Default for Pending<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone, V: Clone> Pending<K, V> {
    /// Waits for one that makes the same, if there is one.
    pub(super) async fn begin(self: &Arc<Self>, key: K) -> Begun<K, V> {
        let begun = Instant::now();
        while begun.elapsed() < MAX_WAIT_IN_ALL {
            let (mut ended, until) = match self.join(&key) {
                Ok(other) => other,
                Err(maker) => return Begun::Maker(maker),
            };
            // A timer takes a Tokio runtime.
            if Handle::try_current().is_err() {
                break;
            }
            if timeout_at(until, ended.changed()).await.is_ok() {
                return ended.borrow().clone().map_or(Begun::Alone, Begun::Made);
            }
        }
        Begun::Alone
    }

    /// One that makes it; or the caller does, and others wait.
    fn join(self: &Arc<Self>, key: &K) -> Result<Other<V>, Maker<K, V>> {
        let now = Instant::now();
        let mut pending = locked(&self.0);
        if let Some(making) = pending.get_mut(key) {
            let until = making.since + MAX_WAIT;
            if now < until {
                return Ok((making.ended.subscribe(), until));
            }
            (making.makers, making.since) = (making.makers + 1, now);
        } else {
            pending.insert(key.clone(), Making { makers: 1, since: now, ended: watch::Sender::new(None) });
        }
        Err(Maker { pending: Arc::clone(self), key: key.clone() })
    }
}

impl<K: Ord, V> Maker<K, V> {
    /// Gives it to all who wait.
    pub(super) fn share(self, made: V) {
        if let Some(making) = locked(&self.pending.0).get(&self.key) {
            making.ended.send_replace(Some(made));
        }
    }
}

impl<K: Ord, V> Drop for Maker<K, V> {
    fn drop(&mut self) {
        let mut pending = locked(&self.pending.0);
        if let Some(making) = pending.get_mut(&self.key) {
            making.makers -= 1;
            // Whoever waits goes on.
            making.ended.send_modify(|_| {});
            if making.makers == 0 {
                pending.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::task::JoinHandle;
    use tokio::time::{advance, sleep};

    use super::*;

    type Numbers = Arc<Pending<&'static str, u32>>;

    /// What each comes to: a number that was shared, or -1 for a maker, -2 for one alone.
    fn begin(numbers: &Numbers) -> JoinHandle<i64> {
        let numbers = Arc::clone(numbers);
        tokio::spawn(async move {
            match numbers.begin("a").await {
                Begun::Made(number) => number.into(),
                Begun::Maker(maker) => {
                    // It goes on making.
                    sleep(Duration::from_secs(60)).await;
                    drop(maker);
                    -1
                }
                Begun::Alone => -2,
            }
        })
    }

    fn maker(numbers: &Numbers) -> Maker<&'static str, u32> {
        let Some(Begun::Maker(maker)) = numbers.begin("a").now_or_never() else {
            panic!("another makes it");
        };
        maker
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_have_what_one_made() {
        let numbers = Numbers::default();
        let first = maker(&numbers);
        let waiting = [(); 3].map(|()| begin(&numbers));
        tokio::task::yield_now().await;
        first.share(7);
        for one in waiting {
            assert_eq!(one.await.unwrap(), 7);
        }
        assert!(locked(&numbers.0).is_empty(), "what was made is not kept");
        maker(&numbers);
    }

    #[tokio::test(start_paused = true)]
    async fn where_one_came_to_nothing_nobody_waits_for_another() {
        let numbers = Numbers::default();
        let first = maker(&numbers);
        let waiting = [(); 3].map(|()| begin(&numbers));
        tokio::task::yield_now().await;
        let begun = Instant::now();
        drop(first);
        for one in waiting {
            assert_eq!(one.await.unwrap(), -2);
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(locked(&numbers.0).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn beside_one_that_takes_long_one_more_begins_at_a_time() {
        let numbers = Numbers::default();
        let slow = maker(&numbers);
        let waiting = Vec::from_iter((0..20).map(|_| begin(&numbers)));
        sleep(MAX_WAIT + Duration::from_millis(50)).await;
        assert_eq!(locked(&numbers.0)["a"].makers, 2);
        slow.share(7);
        let mut came = Vec::new();
        for one in waiting {
            came.push(one.await.unwrap());
        }
        came.sort_unstable();
        assert_eq!(came[..2], [-1, 7]);
        assert_eq!(came.iter().filter(|number| **number == 7).count(), 19);
        assert!(locked(&numbers.0).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_does_not_end_is_waited_for_once_and_nobody_waits_for_more_than_a_second() {
        let numbers = Numbers::default();
        let _stalled = maker(&numbers);
        advance(MAX_WAIT).await;
        let second = maker(&numbers);
        let waiting = begin(&numbers);
        tokio::task::yield_now().await;
        second.share(7);
        assert_eq!(waiting.await.unwrap(), 7, "those who come later wait for the second");

        let waiting = Vec::from_iter((0..20).map(|_| begin(&numbers)));
        sleep(MAX_WAIT_IN_ALL - MAX_WAIT / 2).await;
        assert!(waiting.iter().all(|one| !one.is_finished()));
        sleep(MAX_WAIT).await;
        let alone = waiting.iter().filter(|one| one.is_finished()).count();
        assert_eq!(alone, 20 - 9, "one more began after each tenth of a second");
        for one in waiting {
            assert!(one.await.unwrap() < 0);
        }
    }

    #[test]
    fn without_a_runtime_nobody_waits() {
        let numbers = Numbers::default();
        let _first = maker(&numbers);
        assert!(matches!(numbers.begin("a").now_or_never(), Some(Begun::Alone)));
    }
}
