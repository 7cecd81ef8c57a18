//! Concurrency limits: a fair semaphore with a limit in total and a limit per key.
//!
//! | what is limited | key | total | per key | waiting per key |
//! |---|---|---|---|---|
//! | jobs of the [compute pool](crate::compute) | tenant | the pool's parallelism | unlimited | 64 |
//! | long jobs of that pool | tenant | half of it | unlimited | 64 |
//! | long queries of a store | tenant | three quarters of the connections | half of the connections | unlimited |
//! | changes of one record | record | unlimited | 1 | 127 |
//! | requests that wait for bytes of a [budget](crate::budget) | tenant | unlimited | 1 | 63 |

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::unconstrained;
use tokio::time::{Instant, timeout_at};

use crate::id::Id;
use crate::lock::locked;

/// An organization, or a caller without a role in the organization that a request names. Callers without a credential share
/// `None`, and so does work of the operator.
pub type Tenant = Option<Id>;

/// No limit.
pub const UNLIMITED: usize = Semaphore::MAX_PERMITS;

/// A semaphore that limits concurrent work in total and per key.
///
/// Callers of one key get permits in the order of arrival. Keys that wait take turns, so a key with many waiters does not
/// delay the others. A waiter whose future is dropped leaves the queue. Clones share the permits. Memory is used only for
/// keys whose permits are held or awaited.
#[derive(Debug, Clone)]
pub struct FairSemaphore<K: Ord> {
    total: Arc<Semaphore>,
    per_key: usize,
    queues: Arc<Queues<K>>,
}

type Queues<K> = Mutex<BTreeMap<K, KeyQueue>>;

/// The callers of one key.
#[derive(Debug)]
struct KeyQueue {
    /// Has one permit, so that only the first waiter of a key competes with the first waiters of other keys.
    head: Arc<Semaphore>,
    permits: Arc<Semaphore>,
    waiting: usize,
    /// The number of callers that hold a permit or wait for one.
    callers: usize,
}

/// The reason why no permit was acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AcquireError {
    /// Too many callers of the key wait already.
    #[error("too many callers wait already")]
    Full,
    /// No permit was free before the deadline.
    #[error("no permit was free before the deadline")]
    Late,
}

/// A permit, released when it is dropped.
#[derive(Debug)]
pub struct FairPermit<K: Ord> {
    // The last caller removes the queue, and therefore releases its permits before.
    _total: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _caller: Caller<K>,
}

impl<K: Ord + Clone> FairSemaphore<K> {
    /// Creates a semaphore with this many permits in total, and this many per key.
    pub fn new(total: usize, per_key: usize) -> Self {
        Self { total: Arc::new(Semaphore::new(total)), per_key, queues: Arc::default() }
    }

    /// Acquires a permit. Outside of a Tokio runtime this works as long as a permit is free.
    ///
    /// # Errors
    /// [`AcquireError::Full`] if no permit is free and `max_waiting` callers of this key wait already;
    /// [`AcquireError::Late`] if no permit is free before `deadline`.
    pub async fn acquire(
        &self,
        key: K,
        max_waiting: usize,
        deadline: Instant,
    ) -> Result<FairPermit<K>, AcquireError> {
        let (mut caller, head, permits) = self.enter(key);
        let mut permits = pin!(async {
            let _head = head.acquire().await?;
            let own = permits.acquire_owned().await?;
            Ok::<_, tokio::sync::AcquireError>((own, Arc::clone(&self.total).acquire_owned().await?))
        });
        // Unconstrained: a task whose budget of polls is used up would otherwise wait for a permit that is free.
        let acquired = match unconstrained(permits.as_mut()).now_or_never() {
            Some(acquired) => acquired,
            None => {
                caller.begin_waiting(max_waiting)?;
                let acquired = timeout_at(deadline, permits).await;
                caller.end_waiting();
                acquired.map_err(|_| AcquireError::Late)?
            }
        };
        // An error means that a semaphore was closed, which does not happen.
        let (own, total) = acquired.map_err(|_| AcquireError::Late)?;
        Ok(FairPermit { _total: total, _own: own, _caller: caller })
    }

    fn enter(&self, key: K) -> (Caller<K>, Arc<Semaphore>, Arc<Semaphore>) {
        let mut queues = locked(&self.queues);
        let queue = queues.entry(key.clone()).or_insert_with(|| KeyQueue {
            head: Arc::new(Semaphore::new(1)),
            permits: Arc::new(Semaphore::new(self.per_key)),
            waiting: 0,
            callers: 0,
        });
        queue.callers += 1;
        let caller = Caller { queues: Arc::clone(&self.queues), key, is_waiting: false };
        (caller, Arc::clone(&queue.head), Arc::clone(&queue.permits))
    }
}

impl FairSemaphore<Tenant> {
    /// Creates a semaphore for the long-running queries of a store with this many connections. All tenants together use at most
    /// three quarters of the connections, so that some are left for short queries. One tenant uses at most half of them, rounded
    /// up.
    pub fn for_long_queries(connections: u32) -> Self {
        let connections = usize::try_from(connections).unwrap_or(UNLIMITED).clamp(1, UNLIMITED);
        Self::new(connections - connections / 4, connections.div_ceil(2))
    }
}

/// A caller in the queue of its key. The last one removes the queue.
#[derive(Debug)]
struct Caller<K: Ord> {
    queues: Arc<Queues<K>>,
    key: K,
    is_waiting: bool,
}

impl<K: Ord> Caller<K> {
    fn begin_waiting(&mut self, max_waiting: usize) -> Result<(), AcquireError> {
        if let Some(queue) = locked(&self.queues).get_mut(&self.key) {
            if queue.waiting >= max_waiting {
                return Err(AcquireError::Full);
            }
            queue.waiting += 1;
            self.is_waiting = true;
        }
        Ok(())
    }

    fn end_waiting(&mut self) {
        if std::mem::take(&mut self.is_waiting)
            && let Some(queue) = locked(&self.queues).get_mut(&self.key)
        {
            queue.waiting -= 1;
        }
    }
}

impl<K: Ord> Drop for Caller<K> {
    fn drop(&mut self) {
        self.end_waiting();
        let mut queues = locked(&self.queues);
        if let Some(queue) = queues.get_mut(&self.key) {
            queue.callers -= 1;
            if queue.callers == 0 {
                queues.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
impl<K: Ord> FairSemaphore<K> {
    /// Returns whether no permit is held or awaited.
    pub(crate) fn is_unused(&self) -> bool {
        locked(&self.queues).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::time::Duration;

    use futures_util::future::BoxFuture;
    use tokio::task::yield_now;

    use super::*;

    type Acquiring = BoxFuture<'static, Result<FairPermit<char>, AcquireError>>;

    fn acquire(semaphore: &FairSemaphore<char>, key: char, max_waiting: usize) -> Acquiring {
        let semaphore = semaphore.clone();
        let deadline = Instant::now() + Duration::from_secs(30);
        async move { semaphore.acquire(key, max_waiting, deadline).await }.boxed()
    }

    fn is_waiting(acquiring: &mut Acquiring) -> bool {
        acquiring.now_or_never().is_none()
    }

    /// The order in which `arriving` callers get a permit, if the oldest permit is released again and again. Callers at the
    /// positions in `leaving` drop their futures before that.
    fn admitted(semaphore: &FairSemaphore<char>, arriving: &str, leaving: &[usize]) -> String {
        let mut waiting = Vec::new();
        let (mut order, mut held) = (Vec::new(), VecDeque::new());
        for (position, key) in arriving.chars().enumerate() {
            let mut acquiring = acquire(semaphore, key, UNLIMITED);
            match (&mut acquiring).now_or_never() {
                Some(permit) => {
                    held.push_back(permit.unwrap());
                    order.push((position, key));
                }
                None => waiting.push((position, key, acquiring)),
            }
        }
        waiting.retain(|(position, ..)| !leaving.contains(position));
        while held.pop_front().is_some() {
            waiting.retain_mut(|(position, key, acquiring)| {
                let Some(permit) = acquiring.now_or_never() else { return true };
                held.push_back(permit.unwrap());
                order.push((*position, *key));
                false
            });
        }
        assert!(waiting.is_empty() && semaphore.is_unused());
        let of_key = |key| order.iter().filter(move |(_, of)| *of == key).map(|(position, _)| position);
        assert!(order.iter().all(|(_, key)| of_key(*key).is_sorted()), "of one key in the order of arrival");
        order.into_iter().map(|(_, key)| key).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn keys_take_turns_and_a_flood_of_one_delays_no_other() {
        let table: [(usize, usize, &str, &[usize], &str); 8] = [
            (1, UNLIMITED, "aaaabbc", &[], "aabcaba"),
            (2, UNLIMITED, "aaaaaaab", &[], "aaabaaaa"),
            (2, UNLIMITED, "aaaabbbc", &[], "aaabcabb"),
            // A record that is changed by one request at a time.
            (UNLIMITED, 1, "aaab", &[], "abaa"),
            // A share of the permits.
            (3, 2, "aaaaab", &[], "aabaaa"),
            (2, 1, "aaabb", &[], "ababa"),
            // The first waiter of a key leaves, and one behind it.
            (1, UNLIMITED, "aaaab", &[1], "abaa"),
            (UNLIMITED, 1, "aaaa", &[1, 2], "aa"),
        ];
        for (total, per_key, arriving, leaving, expected) in table {
            let semaphore = FairSemaphore::new(total, per_key);
            let order = admitted(&semaphore, arriving, leaving);
            assert_eq!(order, expected, "{total} in total, {per_key} per key: {arriving}");
            // Renews the budget of polls that the runtime grants a task.
            yield_now().await;
        }
    }

    #[test]
    fn free_permits_need_no_timer_however_many_a_task_acquires() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let semaphore = FairSemaphore::new(1, 1);
        runtime.block_on(async {
            for _ in 0..200 {
                drop(semaphore.acquire('a', 0, Instant::now()).await.unwrap());
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_is_refused_after_its_deadline_or_if_too_many_wait_and_leaves_nothing() {
        for (total, per_key) in [(1, UNLIMITED), (UNLIMITED, 1)] {
            let semaphore = FairSemaphore::new(total, per_key);
            let first = acquire(&semaphore, 'a', 0).await.unwrap();
            let began = Instant::now();
            assert_eq!(acquire(&semaphore, 'a', 1).await.unwrap_err(), AcquireError::Late);
            assert_eq!(began.elapsed(), Duration::from_secs(30));
            let mut waiting = [acquire(&semaphore, 'a', 2), acquire(&semaphore, 'a', 2)];
            assert!(waiting.iter_mut().all(is_waiting));
            let full = acquire(&semaphore, 'a', 2).now_or_never().expect("it is refused at once");
            assert_eq!(full.unwrap_err(), AcquireError::Full);
            let mut other = acquire(&semaphore, 'b', 2);
            assert_eq!(is_waiting(&mut other), total == 1, "each key has a queue of its own");
            // One that leaves makes room for another.
            let [second, mut third] = waiting;
            drop(second);
            assert!(is_waiting(&mut acquire(&semaphore, 'a', 2)));
            drop(first);
            assert!(!is_waiting(&mut third) || total == 1);
            drop((other, third));
            assert!(semaphore.is_unused());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_that_a_caller_got_and_never_used_goes_to_the_next() {
        let semaphore = FairSemaphore::new(1, UNLIMITED);
        let first = acquire(&semaphore, 'a', 1).await.unwrap();
        let (mut second, mut third) = (acquire(&semaphore, 'b', 1), acquire(&semaphore, 'c', 1));
        assert!(is_waiting(&mut second) && is_waiting(&mut third));
        drop(first);
        drop(second);
        drop(third.await.unwrap());
        assert!(semaphore.is_unused());
    }

    #[test]
    fn a_free_permit_needs_no_runtime() {
        let semaphore = FairSemaphore::new(1, 1);
        assert!(acquire(&semaphore, 'a', 0).now_or_never().is_some_and(|permit| permit.is_ok()));
        let _held = acquire(&semaphore, 'a', 0).now_or_never();
        assert!(acquire(&semaphore, 'b', 0).now_or_never().is_some_and(|permit| permit.is_err()));
    }

    #[tokio::test(start_paused = true)]
    async fn long_queries_of_a_tenant_use_half_of_the_connections_and_some_are_left_to_short_queries() {
        let tenant = |number: u8| Some(format!("00000000-0000-0000-0000-0000000{number}").parse().unwrap());
        let take = async |semaphore: &FairSemaphore<Tenant>, tenant: Tenant| {
            let mut permits = Vec::new();
            while let Ok(permit) = semaphore.acquire(tenant, UNLIMITED, Instant::now()).await {
                permits.push(permit);
            }
            permits
        };
        for (connections, of_one, of_all) in
            [(0, 1, 1), (1, 1, 1), (2, 1, 2), (3, 2, 3), (4, 2, 3), (8, 4, 6), (9, 5, 7)]
        {
            let semaphore = FairSemaphore::for_long_queries(connections);
            let first = take(&semaphore, tenant(1)).await;
            assert_eq!(first.len(), of_one, "{connections}");
            let second = take(&semaphore, tenant(2)).await;
            assert_eq!(second.len(), of_one.min(of_all - of_one), "{connections}");
            // The operator's.
            assert_eq!(take(&semaphore, None).await.len(), of_all - first.len() - second.len());
            drop(second);
            assert!(take(&semaphore, tenant(1)).await.is_empty(), "{connections}");
            drop(first);
            assert_eq!(take(&semaphore, tenant(1)).await.len(), of_one, "{connections}");
            assert!(semaphore.is_unused());
            yield_now().await;
        }
    }
}
