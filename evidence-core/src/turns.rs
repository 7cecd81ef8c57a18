//! Turns at things on which only so many work at a time: one request that changes a record, so that it does not lose what it
//! worked out to another's write; some that ask of an organization ([`shares`](crate::shares)); one query of those that are
//! shared ([`coalesced`](crate::coalesced)).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::lock::locked;

/// Who works on what, and who waits for that.
#[derive(Debug)]
pub(crate) struct Turns<K: Ord> {
    lines: Arc<Lines<K>>,
    /// How many work on one thing at a time.
    at_once: usize,
    /// How many may be at one thing, those included that wait for their turn.
    most: usize,
}

type Lines<K> = Mutex<BTreeMap<K, Line>>;

#[derive(Debug)]
struct Line {
    turns: Arc<Semaphore>,
    /// Who has a turn or waits for one; at least one.
    present: usize,
}

impl<K: Ord + Clone> Turns<K> {
    pub(crate) fn new(at_once: usize, most: usize) -> Self {
        Self { lines: Arc::default(), at_once, most }
    }

    /// A turn, after all who came here before have had theirs. `None` where too many are here, or it did not come before
    /// `deadline`.
    pub(crate) async fn take(&self, at: K, deadline: Instant) -> Option<Turn<K>> {
        let (turns, present) = self.enter(at)?;
        // A timer takes a Tokio runtime, which a host without contention needs for nothing else.
        let turn = match Arc::clone(&turns).try_acquire_owned() {
            Ok(turn) => turn,
            Err(_) => timeout_at(deadline, turns.acquire_owned()).await.ok()?.ok()?,
        };
        Some(Turn { _turn: turn, _present: present })
    }

    fn enter(&self, at: K) -> Option<(Arc<Semaphore>, Present<K>)> {
        let mut lines = locked(&self.lines);
        let line = lines
            .entry(at.clone())
            .or_insert_with(|| Line { turns: Arc::new(Semaphore::new(self.at_once)), present: 0 });
        if line.present >= self.most {
            return None;
        }
        line.present += 1;
        Some((Arc::clone(&line.turns), Present { lines: Arc::clone(&self.lines), at }))
    }
}

/// A turn, which the next in line has once this is dropped: before the line goes with the last.
#[derive(Debug)]
pub(crate) struct Turn<K: Ord> {
    _turn: OwnedSemaphorePermit,
    _present: Present<K>,
}

/// Somebody in a line, which is gone with the last.
#[derive(Debug)]
struct Present<K: Ord> {
    lines: Arc<Lines<K>>,
    at: K,
}

impl<K: Ord> Drop for Present<K> {
    fn drop(&mut self) {
        let mut lines = locked(&self.lines);
        if let Some(line) = lines.get_mut(&self.at) {
            line.present -= 1;
            if line.present == 0 {
                lines.remove(&self.at);
            }
        }
    }
}

#[cfg(test)]
impl<K: Ord> Turns<K> {
    /// Whether nobody is anywhere.
    pub(crate) fn is_unused(&self) -> bool {
        locked(&self.lines).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::pending;
    use tokio::sync::oneshot;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    /// How many may be at one thing.
    const MAX_WAITING: usize = 3;

    /// Does `work` in a turn.
    async fn take<T>(turns: &Turns<&str>, at: &'static str, work: impl Future<Output = T>) -> Option<T> {
        let _turn = turns.take(at, soon()).await?;
        Some(work.await)
    }

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_has_the_turn_in_the_order_of_coming() {
        let turns = Turns::new(1, MAX_WAITING);
        let done = Mutex::new(Vec::new());
        let (end, ended) = oneshot::channel::<()>();
        let mut first = Box::pin(take(&turns, "a", async {
            drop(ended.await);
            done.lock().unwrap().push(1);
        }));
        let next = |number: u8| {
            let done = &done;
            Box::pin(take(&turns, "a", async move { done.lock().unwrap().push(number) }))
        };
        let (mut second, mut third) = (next(2), next(3));
        for one in [&mut second, &mut third] {
            assert!(first.as_mut().now_or_never().is_none());
            assert!(one.as_mut().now_or_never().is_none());
        }
        assert_eq!(take(&turns, "b", async { 4 }).await, Some(4), "another line");
        // Whoever leaves holds up nobody.
        drop(second);
        drop(end);
        assert_eq!((first.await, third.await), (Some(()), Some(())));
        assert_eq!(*done.lock().unwrap(), [1, 3]);
        assert!(turns.is_unused());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_too_long_or_finds_too_many_is_sent_away_and_leaves_nothing() {
        let turns = Turns::new(1, MAX_WAITING);
        let mut first = Box::pin(take(&turns, "a", pending::<()>()));
        assert!(first.as_mut().now_or_never().is_none());
        assert_eq!(take(&turns, "a", async {}).await, None, "late");
        let mut waiting = Vec::from_iter((1..MAX_WAITING).map(|_| Box::pin(take(&turns, "a", async {}))));
        for one in &mut waiting {
            assert!(one.as_mut().now_or_never().is_none());
        }
        assert_eq!(take(&turns, "a", async {}).now_or_never(), Some(None), "too many");
        drop((first, waiting));
        assert!(turns.is_unused());
        assert_eq!(take(&turns, "a", async {}).await, Some(()));
    }
}
