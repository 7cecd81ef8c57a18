//! Turns at things on which one request works at a time, so that it does not lose what it worked out to another's write.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::{Instant, timeout_at};

/// How many may be at one thing, those included that wait for their turn.
const MOST: usize = 128;

/// Who works on what, and who waits for that.
#[derive(Debug)]
pub(crate) struct Turns<K: Ord>(Mutex<BTreeMap<K, Line>>);

#[derive(Debug, Default)]
struct Line {
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Who has the turn or waits for it; at least one.
    present: usize,
}

impl<K: Ord> Default for Turns<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Ord + Clone> Turns<K> {
    /// Does `work` after all who came here before are done. `None` where it was not begun: too many are here, or its turn
    /// did not come before `deadline`.
    pub(crate) async fn take<T>(&self, at: K, deadline: Instant, work: impl Future<Output = T>) -> Option<T> {
        let present = self.enter(at)?;
        // A timer takes a Tokio runtime, which a host without contention needs for nothing else.
        let _turn = match present.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => timeout_at(deadline, present.turn.lock()).await.ok()?,
        };
        Some(work.await)
    }

    fn enter(&self, at: K) -> Option<Present<'_, K>> {
        let mut lines = self.lines();
        let line = lines.entry(at.clone()).or_default();
        if line.present >= MOST {
            return None;
        }
        line.present += 1;
        Some(Present { turn: Arc::clone(&line.turn), turns: self, at })
    }

    fn lines(&self) -> MutexGuard<'_, BTreeMap<K, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody in a line, which is gone with the last.
struct Present<'a, K: Ord + Clone> {
    turn: Arc<tokio::sync::Mutex<()>>,
    turns: &'a Turns<K>,
    at: K,
}

impl<K: Ord + Clone> Drop for Present<'_, K> {
    fn drop(&mut self) {
        let mut lines = self.turns.lines();
        if let Some(line) = lines.get_mut(&self.at) {
            line.present -= 1;
            if line.present == 0 {
                lines.remove(&self.at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use futures_util::future::pending;
    use tokio::sync::oneshot;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_has_the_turn_in_the_order_of_coming() {
        let turns = Turns::default();
        let done = Mutex::new(Vec::new());
        let (end, ended) = oneshot::channel::<()>();
        let mut first = Box::pin(turns.take("a", soon(), async {
            drop(ended.await);
            done.lock().unwrap().push(1);
        }));
        let next = |number: u8| {
            let done = &done;
            Box::pin(turns.take("a", soon(), async move { done.lock().unwrap().push(number) }))
        };
        let (mut second, mut third) = (next(2), next(3));
        for one in [&mut second, &mut third] {
            assert!(first.as_mut().now_or_never().is_none());
            assert!(one.as_mut().now_or_never().is_none());
        }
        assert_eq!(turns.take("b", soon(), async { 4 }).await, Some(4), "another line");
        // Whoever leaves holds up nobody.
        drop(second);
        drop(end);
        assert_eq!((first.await, third.await), (Some(()), Some(())));
        assert_eq!(*done.lock().unwrap(), [1, 3]);
        assert!(turns.lines().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_too_long_or_finds_too_many_is_sent_away_and_leaves_nothing() {
        let turns = Turns::default();
        let mut first = Box::pin(turns.take("a", soon(), pending::<()>()));
        assert!(first.as_mut().now_or_never().is_none());
        assert_eq!(turns.take("a", soon(), async {}).await, None, "late");
        let mut waiting = Vec::from_iter((1..MOST).map(|_| Box::pin(turns.take("a", soon(), async {}))));
        for one in &mut waiting {
            assert!(one.as_mut().now_or_never().is_none());
        }
        assert_eq!(turns.take("a", soon(), async {}).now_or_never(), Some(None), "too many");
        drop((first, waiting));
        assert!(turns.lines().is_empty());
        assert_eq!(turns.take("a", soon(), async {}).await, Some(()));
    }
}
