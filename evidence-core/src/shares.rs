//! Who may ask a store what takes long. Queries share a few connections, and whoever holds all of them keeps every other
//! request waiting: so some are left for short queries, and no organization has more than half. The SQLite and the
//! PostgreSQL store have theirs from here.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::id::Id;
use crate::turns::{Turn, Turns};

/// Who asks what takes long, and who waits to.
#[derive(Debug)]
pub struct Shares {
    long: Arc<Semaphore>,
    turns: Turns<Id>,
}

/// The right to a connection for as long as this is kept.
#[derive(Debug)]
pub struct Share {
    _long: OwnedSemaphorePermit,
    _turn: Option<Turn<Id>>,
}

impl Shares {
    /// Those of so many connections: three quarters of them for what takes long, and half for one organization, rounded up.
    pub fn new(connections: u32) -> Self {
        let connections = usize::try_from(connections).unwrap_or(Semaphore::MAX_PERMITS).max(1);
        let long = Arc::new(Semaphore::new(connections - connections / 4));
        Self { long, turns: Turns::new(connections.div_ceil(2), usize::MAX) }
    }

    /// Waits for a share: first behind the same organization's queries, and only then behind others'. `None` where that
    /// takes longer than `wait`.
    pub async fn take(&self, org: Option<Id>, wait: Duration) -> Option<Share> {
        let deadline = Instant::now() + wait;
        let turn = match org {
            Some(org) => Some(self.turns.take(org, deadline).await?),
            None => None,
        };
        let long = timeout_at(deadline, Arc::clone(&self.long).acquire_owned()).await.ok()?.ok()?;
        Some(Share { _long: long, _turn: turn })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn org(number: u8) -> Option<Id> {
        Some(format!("00000000-0000-0000-0000-0000000{number}").parse().unwrap())
    }

    async fn taken(shares: &Shares, org: Option<Id>) -> Vec<Share> {
        let mut taken = Vec::new();
        while let Some(share) = shares.take(org, Duration::from_secs(5)).await {
            taken.push(share);
        }
        taken
    }

    #[tokio::test(start_paused = true)]
    async fn an_organization_has_half_of_the_connections_and_some_are_left() {
        for (connections, of_one, of_all) in
            [(0, 1, 1), (1, 1, 1), (2, 1, 2), (3, 2, 3), (4, 2, 3), (8, 4, 6), (9, 5, 7)]
        {
            let shares = Shares::new(connections);
            let first = taken(&shares, org(1)).await;
            assert_eq!(first.len(), of_one, "{connections}");
            let second = taken(&shares, org(2)).await;
            assert_eq!(first.len() + second.len(), of_all.min(2 * of_one), "{connections}");
            // Of no organization: the operator's.
            assert_eq!(taken(&shares, None).await.len(), of_all - first.len() - second.len());
            drop(second);
            assert!(shares.take(org(1), Duration::from_secs(5)).await.is_none(), "{connections}");
            drop(first);
            assert_eq!(taken(&shares, org(1)).await.len(), of_one, "{connections}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_behind_its_own_organization_is_in_nobody_elses_way() {
        let shares = Shares::new(2);
        let (wait, _first) = (Duration::from_secs(5), shares.take(org(1), Duration::ZERO).await.unwrap());
        let mut waiting = Vec::from_iter((0..100).map(|_| Box::pin(shares.take(org(1), wait))));
        for one in &mut waiting {
            assert!(one.now_or_never().is_none());
        }
        assert!(shares.take(org(2), Duration::ZERO).await.is_some());
    }
}
