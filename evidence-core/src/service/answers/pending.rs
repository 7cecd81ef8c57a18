//! Single-flight: what is being made, for which those wait that would make the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::lock::locked;

/// How long the first that makes something is waited for, before another begins beside it. Each further one is waited for twice as
/// long.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// How long anybody waits in all.
const MAX_WAIT_IN_ALL: Duration = Duration::from_secs(1);

/// What is being made, by its key.
pub(super) struct Pending<K: Ord, V>(Mutex<BTreeMap<K, Making<V>>>);

struct Making<V> {
    makers: u32,
    /// When the last of them began; nothing where that one has left, and the others take long.
    since: Option<Instant>,
    end: Arc<watch::Sender<End<V>>>,
}

/// What it came to.
#[derive(Clone)]
enum End<V> {
    /// Nothing yet.
    Open,
    Made(V),
    /// Each makes it for itself.
    Unshared,
}

/// Who makes what others wait for, until this is dropped.
pub(super) struct Maker<K: Ord, V> {
    pending: Arc<Pending<K, V>>,
    key: K,
    since: Instant,
    end: Weak<watch::Sender<End<V>>>,
}

/// Who makes it.
pub(super) enum Begun<K: Ord, V> {
    /// The caller, and others wait.
    Maker(Maker<K, V>),
    /// Another made it meanwhile.
    Made(V),
    /// The caller, for itself alone.
    Alone,
}

/// What tells how it ends, and how long to wait for that.
type Other<V> = (watch::Receiver<End<V>>, Instant);

impl<K: Ord, V> Default for Pending<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone, V: Clone> Pending<K, V> {
    /// Waits for one that makes the same, if there is one, and tells whether there was.
    pub(super) async fn begin(self: &Arc<Self>, key: K) -> (Begun<K, V>, bool) {
        let (latest, mut has_waited) = (Instant::now() + MAX_WAIT_IN_ALL, false);
        while Instant::now() < latest {
            let (mut end, until) = match self.join(&key) {
                Ok(other) => other,
                Err(maker) => return (Begun::Maker(maker), has_waited),
            };
            has_waited = true;
            // A timer takes a Tokio runtime.
            if Handle::try_current().is_err() {
                break;
            }
            if timeout_at(until.min(latest), end.changed()).await.is_ok() {
                match end.borrow().clone() {
                    // Whoever made it has left.
                    End::Open => {}
                    End::Made(made) => return (Begun::Made(made), has_waited),
                    End::Unshared => break,
                }
            }
        }
        (Begun::Alone, has_waited)
    }

    /// One that makes it; or the caller does, and others wait.
    fn join(self: &Arc<Self>, key: &K) -> Result<Other<V>, Maker<K, V>> {
        let since = Instant::now();
        let mut pending = locked(&self.0);
        let making = pending.entry(key.clone()).or_insert_with(|| Making {
            makers: 0,
            since: None,
            end: Arc::new(watch::Sender::new(End::Open)),
        });
        let wait = MAX_WAIT.saturating_mul(1 << making.makers.saturating_sub(1).min(8));
        if let Some(until) = making.since.map(|since| since + wait)
            && since < until
        {
            return Ok((making.end.subscribe(), until));
        }
        (making.makers, making.since) = (making.makers + 1, Some(since));
        let end = Arc::downgrade(&making.end);
        Err(Maker { pending: Arc::clone(self), key: key.clone(), since, end })
    }
}

impl<K: Ord, V> Maker<K, V> {
    /// Gives it to all who wait, also for others who make it.
    pub(super) fn share(self, made: V) {
        self.end_all(End::Made(made));
    }

    /// It cannot be shared: where nobody else makes it, nobody waits any longer.
    pub(super) fn refuse(self) {
        let is_alone = self.making(&mut locked(&self.pending.0)).is_some_and(|making| making.makers == 1);
        if is_alone {
            self.end_all(End::Unshared);
        }
    }

    fn end_all(&self, end: End<V>) {
        let mut pending = locked(&self.pending.0);
        let ended = self.making(&mut pending).is_some().then(|| pending.remove(&self.key)).flatten();
        // Nobody joins it any more.
        drop(pending);
        if let Some(making) = ended {
            making.end.send_replace(end);
        }
    }

    /// Nothing where another has ended it.
    fn making<'p>(&self, pending: &'p mut BTreeMap<K, Making<V>>) -> Option<&'p mut Making<V>> {
        pending.get_mut(&self.key).filter(|making| Weak::as_ptr(&self.end) == Arc::as_ptr(&making.end))
    }
}

impl<K: Ord, V> Drop for Maker<K, V> {
    fn drop(&mut self) {
        let mut pending = locked(&self.pending.0);
        let Some(making) = self.making(&mut pending) else { return };
        making.makers -= 1;
        if making.since == Some(self.since) {
            making.since = None;
        }
        let left = (making.makers == 0).then(|| pending.remove(&self.key)).flatten();
        drop(pending);
        if let Some(making) = left {
            // One of those who wait makes it.
            making.end.send_modify(|_| {});
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
            match numbers.begin("a").await.0 {
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
        let Some((Begun::Maker(maker), false)) = numbers.begin("a").now_or_never() else {
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
    async fn where_it_cannot_be_shared_nobody_waits() {
        let numbers = Numbers::default();
        let first = maker(&numbers);
        let waiting = [(); 3].map(|()| begin(&numbers));
        tokio::task::yield_now().await;
        let begun = Instant::now();
        first.refuse();
        for one in waiting {
            assert_eq!(one.await.unwrap(), -2);
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(locked(&numbers.0).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn where_one_leaves_another_makes_it_and_the_others_wait() {
        let numbers = Numbers::default();
        let first = maker(&numbers);
        let waiting = Vec::from_iter((0..20).map(|_| begin(&numbers)));
        let finished = |waiting: &[JoinHandle<i64>]| waiting.iter().filter(|one| one.is_finished()).count();
        sleep(MAX_WAIT / 2).await;
        drop(first);
        sleep(MAX_WAIT / 2).await;
        assert_eq!((locked(&numbers.0)["a"].makers, finished(&waiting)), (1, 0));
        sleep(MAX_WAIT).await;
        assert_eq!(locked(&numbers.0)["a"].makers, 2);
        // One of both makers leaves: nobody takes its place while the other goes on.
        for one in waiting {
            one.abort();
            tokio::task::yield_now().await;
            if locked(&numbers.0)["a"].makers == 1 {
                break;
            }
        }
        tokio::task::yield_now().await;
        assert_eq!(locked(&numbers.0)["a"].makers, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn where_one_of_two_refuses_the_others_wait_for_the_second() {
        let numbers = Numbers::default();
        let first = maker(&numbers);
        advance(MAX_WAIT).await;
        let second = maker(&numbers);
        let waiting = begin(&numbers);
        tokio::task::yield_now().await;
        second.refuse();
        tokio::task::yield_now().await;
        first.share(7);
        assert_eq!(waiting.await.unwrap(), 7);
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
        let stalled = maker(&numbers);
        advance(MAX_WAIT).await;
        for _ in 0..3 {
            drop(maker(&numbers));
        }
        let second = maker(&numbers);
        let waiting = begin(&numbers);
        tokio::task::yield_now().await;
        second.share(7);
        assert_eq!(waiting.await.unwrap(), 7, "those who come later wait for the second");
        drop(maker(&numbers));
        drop(stalled);

        let _slow = maker(&numbers);
        advance(MAX_WAIT / 2).await;
        let waiting = Vec::from_iter((0..20).map(|_| begin(&numbers)));
        sleep(MAX_WAIT_IN_ALL - Duration::from_millis(5)).await;
        assert!(waiting.iter().all(|one| !one.is_finished()));
        sleep(Duration::from_millis(10)).await;
        let alone = waiting.iter().filter(|one| one.is_finished()).count();
        assert_eq!(alone, 20 - 3, "others began after 100, 200 and 400 ms");
        for one in waiting {
            assert!(one.await.unwrap() < 0);
        }
    }

    #[test]
    fn without_a_runtime_nobody_waits() {
        let numbers = Numbers::default();
        let _first = maker(&numbers);
        assert!(matches!(numbers.begin("a").now_or_never(), Some((Begun::Alone, _))));
    }
}
