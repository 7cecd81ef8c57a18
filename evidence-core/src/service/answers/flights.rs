//! Single-flight: those who would make the same at the same time wait for the one that makes it, their leader.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::lock::locked;

/// How long the first leader is waited for, before another begins beside it. Each further one is waited for twice as long.
const MAX_WAIT: Duration = Duration::from_millis(100);

/// How long anybody waits in all.
const MAX_WAIT_IN_ALL: Duration = Duration::from_secs(1);

/// How many leaders may leave before who waited for them waits for no other: what made them leave, as a store that is away, may do so
/// to the next.
const MAX_LEFT: u32 = 3;

/// What is being made, by its key.
pub(super) struct Flights<K: Ord, V>(Mutex<BTreeMap<K, Flight<V>>>);

struct Flight<V> {
    /// How many make it.
    leaders: u32,
    /// When the last of them began; nothing where that one has left, and the others take long.
    since: Option<Instant>,
    end: Arc<watch::Sender<End<V>>>,
}

/// What it came to.
#[derive(Clone)]
enum End<V> {
    /// Nothing yet.
    Open,
    Shared(V),
    /// Each makes it for itself.
    Unshareable,
}

/// Who makes what others wait for, until it is shared or cannot be. Where this is dropped before, one of them takes its place, unless
/// a later one makes it.
pub(super) struct Leader<K: Ord, V> {
    flights: Arc<Flights<K, V>>,
    key: K,
    since: Instant,
    end: Weak<watch::Sender<End<V>>>,
}

/// What somebody came to who joined.
pub(super) enum Joined<K: Ord, V> {
    /// The caller makes it, and others wait.
    Leader(Leader<K, V>),
    /// Another made it meanwhile.
    Shared(V),
    /// The caller makes it for itself alone.
    Alone,
}

/// A place in a flight.
enum Place<K: Ord, V> {
    Leader(Leader<K, V>),
    /// What tells how the flight ends, and how long to wait for that.
    Waiter(watch::Receiver<End<V>>, Instant),
}

impl<K: Ord, V> Default for Flights<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone, V: Clone> Flights<K, V> {
    /// Waits for what another makes, if there is one, or makes it.
    pub(super) async fn join(self: &Arc<Self>, key: K) -> Joined<K, V> {
        let (latest, mut left) = (Instant::now() + MAX_WAIT_IN_ALL, 0);
        while left < MAX_LEFT && Instant::now() < latest {
            let (mut end, until) = match self.enter(&key) {
                Place::Waiter(end, until) => (end, until),
                Place::Leader(leader) => return Joined::Leader(leader),
            };
            // A timer takes a Tokio runtime.
            if Handle::try_current().is_err() {
                break;
            }
            if timeout_at(until.min(latest), end.changed()).await.is_ok() {
                match end.borrow().clone() {
                    // The leader that was waited for has left.
                    End::Open => left += 1,
                    End::Shared(made) => return Joined::Shared(made),
                    End::Unshareable => break,
                }
            }
        }
        Joined::Alone
    }

    /// A place among those who wait, or that of a leader.
    fn enter(self: &Arc<Self>, key: &K) -> Place<K, V> {
        let since = Instant::now();
        let mut flights = locked(&self.0);
        let end = if let Some(flight) = flights.get_mut(key) {
            let wait = MAX_WAIT.saturating_mul(1 << flight.leaders.saturating_sub(1).min(8));
            if let Some(until) = flight.since.map(|since| since + wait)
                && since < until
            {
                return Place::Waiter(flight.end.subscribe(), until);
            }
            (flight.leaders, flight.since) = (flight.leaders + 1, Some(since));
            Arc::downgrade(&flight.end)
        } else {
            let end = Arc::new(watch::Sender::new(End::Open));
            let leader = Arc::downgrade(&end);
            flights.insert(key.clone(), Flight { leaders: 1, since: Some(since), end });
            leader
        };
        Place::Leader(Leader { flights: Arc::clone(self), key: key.clone(), since, end })
    }
}

impl<K: Ord, V> Flights<K, V> {
    /// Gives what was made to all who wait for it, whoever makes it for them.
    pub(super) fn share(&self, key: &K, made: V) {
        self.land(key, End::Shared(made));
    }

    /// It is something that cannot be shared, whoever makes it: nobody waits any longer.
    pub(super) fn unshareable(&self, key: &K) {
        self.land(key, End::Unshareable);
    }

    fn land(&self, key: &K, end: End<V>) {
        let landed = locked(&self.0).remove(key);
        // Nobody joins it any more.
        if let Some(flight) = landed {
            flight.end.send_replace(end);
        }
    }
}

impl<K: Ord, V> Drop for Leader<K, V> {
    fn drop(&mut self) {
        let mut flights = locked(&self.flights.0);
        let is_own = |flight: &&mut Flight<V>| Weak::as_ptr(&self.end) == Arc::as_ptr(&flight.end);
        let Some(flight) = flights.get_mut(&self.key).filter(is_own) else { return };
        flight.leaders -= 1;
        if flight.since == Some(self.since) {
            flight.since = None;
        }
        // One of those who wait makes it.
        let handed_on = flight.since.is_none().then(|| Arc::clone(&flight.end));
        if flight.leaders == 0 {
            flights.remove(&self.key);
        }
        drop(flights);
        if let Some(end) = handed_on {
            end.send_modify(|_| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use tokio::task::JoinHandle;
    use tokio::time::{advance, sleep};

    use super::*;

    type Numbers = Arc<Flights<&'static str, u32>>;

    /// What each comes to: a number that was shared, or -1 for a leader, -2 for one alone.
    fn join(numbers: &Numbers) -> JoinHandle<i64> {
        let numbers = Arc::clone(numbers);
        tokio::spawn(async move {
            match numbers.join("a").await {
                Joined::Shared(number) => number.into(),
                Joined::Leader(leader) => {
                    // It goes on making.
                    sleep(Duration::from_secs(60)).await;
                    drop(leader);
                    -1
                }
                Joined::Alone => -2,
            }
        })
    }

    fn lead(numbers: &Numbers) -> Leader<&'static str, u32> {
        let Some(Joined::Leader(leader)) = numbers.join("a").now_or_never() else {
            panic!("another makes it");
        };
        leader
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_have_what_one_made() {
        let numbers = Numbers::default();
        let _first = lead(&numbers);
        let waiting = [(); 3].map(|()| join(&numbers));
        tokio::task::yield_now().await;
        numbers.share(&"a", 7);
        for one in waiting {
            assert_eq!(one.await.unwrap(), 7);
        }
        assert!(locked(&numbers.0).is_empty(), "what was made is not kept");
        lead(&numbers);
    }

    #[tokio::test(start_paused = true)]
    async fn where_it_cannot_be_shared_nobody_waits() {
        let numbers = Numbers::default();
        let _first = lead(&numbers);
        let waiting = [(); 3].map(|()| join(&numbers));
        tokio::task::yield_now().await;
        let begun = Instant::now();
        numbers.unshareable(&"a");
        for one in waiting {
            assert_eq!(one.await.unwrap(), -2);
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(locked(&numbers.0).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn where_one_leaves_another_makes_it_and_the_others_wait() {
        let numbers = Numbers::default();
        let first = lead(&numbers);
        let waiting = Vec::from_iter((0..20).map(|_| join(&numbers)));
        let finished = |waiting: &[JoinHandle<i64>]| waiting.iter().filter(|one| one.is_finished()).count();
        sleep(MAX_WAIT / 2).await;
        drop(first);
        sleep(MAX_WAIT / 2).await;
        assert_eq!((locked(&numbers.0)["a"].leaders, finished(&waiting)), (1, 0));
        sleep(MAX_WAIT).await;
        assert_eq!(locked(&numbers.0)["a"].leaders, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn where_the_later_of_two_leaves_another_takes_its_place() {
        for earlier_leaves in [true, false] {
            let numbers = Numbers::default();
            let first = lead(&numbers);
            advance(MAX_WAIT).await;
            let second = lead(&numbers);
            let waiting = [(); 2].map(|()| join(&numbers));
            tokio::task::yield_now().await;
            let (leaves, _stays) = if earlier_leaves { (first, second) } else { (second, first) };
            drop(leaves);
            sleep(Duration::from_millis(1)).await;
            let leaders = locked(&numbers.0)["a"].leaders;
            assert_eq!(leaders, if earlier_leaves { 1 } else { 2 });
            numbers.share(&"a", 7);
            let mut came = Vec::new();
            for one in waiting {
                came.push(one.await.unwrap());
            }
            came.sort_unstable();
            assert_eq!(came, if earlier_leaves { [7, 7] } else { [-1, 7] });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_one_of_two_cannot_share_the_other_cannot_either() {
        let numbers = Numbers::default();
        let first = lead(&numbers);
        advance(MAX_WAIT).await;
        let second = lead(&numbers);
        let waiting = join(&numbers);
        tokio::task::yield_now().await;
        let begun = Instant::now();
        numbers.unshareable(&"a");
        assert_eq!((waiting.await.unwrap(), begun.elapsed()), (-2, Duration::ZERO));
        let next = lead(&numbers);
        drop((first, second));
        let waiting = join(&numbers);
        tokio::task::yield_now().await;
        assert_eq!(locked(&numbers.0)["a"].leaders, 1, "they lead no more");
        numbers.share(&"a", 8);
        assert_eq!(waiting.await.unwrap(), 8);
        drop(next);
    }

    #[tokio::test(start_paused = true)]
    async fn after_some_that_left_nobody_waits_for_another() {
        let numbers = Numbers::default();
        let (begun, leaders) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
        let fails = |_| {
            let (numbers, leaders) = (Arc::clone(&numbers), Arc::clone(&leaders));
            async move {
                let joined = numbers.join("a").await;
                sleep(Duration::from_millis(50)).await;
                if matches!(joined, Joined::Leader(_)) {
                    leaders.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        join_all((0..40).map(fails)).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(50) * (MAX_LEFT + 1));
        assert_eq!(leaders.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn beside_one_that_takes_long_one_more_begins_at_a_time() {
        let numbers = Numbers::default();
        let _slow = lead(&numbers);
        let waiting = Vec::from_iter((0..20).map(|_| join(&numbers)));
        sleep(MAX_WAIT + Duration::from_millis(50)).await;
        assert_eq!(locked(&numbers.0)["a"].leaders, 2);
        numbers.share(&"a", 7);
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
        let stalled = lead(&numbers);
        advance(MAX_WAIT).await;
        for _ in 0..3 {
            drop(lead(&numbers));
        }
        let _second = lead(&numbers);
        let waiting = join(&numbers);
        tokio::task::yield_now().await;
        numbers.share(&"a", 7);
        assert_eq!(waiting.await.unwrap(), 7, "those who come later wait for the second");
        drop(lead(&numbers));
        drop(stalled);

        let _slow = lead(&numbers);
        advance(MAX_WAIT / 2).await;
        let waiting = Vec::from_iter((0..20).map(|_| join(&numbers)));
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
        let _first = lead(&numbers);
        assert!(matches!(numbers.join("a").now_or_never(), Some(Joined::Alone)));
    }
}
