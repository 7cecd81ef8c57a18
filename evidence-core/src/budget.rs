//! A byte budget that tenants share: how much waits to be written, is held in memory for requests, or lies in temporary files.
//!
//! A tenant may use half of what the others leave, so that there is always room for one more of them. A request that is larger
//! than its tenant's share may be admitted beside the budget, one at a time: no size is refused for ever.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::id::Id;
use crate::lock::locked;
use crate::turns::Turns;

/// An organization, or a caller without a role in the one that a request names; nothing for callers without a credential,
/// which share.
pub type Tenant = Option<Id>;

/// The most requests of a tenant that wait for room; further ones are refused.
const MAX_WAITING: usize = 64;

/// A byte budget that tenants share.
#[derive(Debug)]
pub struct FairBudget {
    bytes: u64,
    usage: Mutex<Usage>,
    /// The requests of a tenant that wait, in the order of arrival. The first of each tenant competes with those of others.
    waiting: Turns<Tenant>,
    released: Notify,
}

#[derive(Debug, Default)]
struct Usage {
    /// In bytes, of each tenant that uses any.
    of: BTreeMap<Tenant, u64>,
    /// Of all of them.
    total: u64,
    /// Whether a reservation is held that was too large for its tenant's share.
    has_oversized: bool,
}

impl Usage {
    /// The most that a tenant may use.
    fn share(&self, tenant: Tenant, budget: u64) -> u64 {
        let others = self.total - self.of.get(&tenant).copied().unwrap_or_default();
        budget.saturating_sub(others) / 2
    }

    /// Adds to what a tenant uses, unless that is then more than `most`.
    fn add(&mut self, tenant: Tenant, bytes: u64, most: u64) -> bool {
        let own = self.of.entry(tenant).or_default();
        let fits = own.checked_add(bytes).is_some_and(|own| own <= most);
        if fits {
            *own += bytes;
            self.total += bytes;
        } else if *own == 0 {
            self.of.remove(&tenant);
        }
        fits
    }
}

/// A part of a budget, held until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<FairBudget>,
    tenant: Tenant,
    bytes: u64,
    /// Whether it is held beside the budget.
    is_oversized: bool,
}

impl FairBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> Arc<Self> {
        let waiting = Turns::new(1, MAX_WAITING);
        Arc::new(Self { bytes, usage: Mutex::default(), waiting, released: Notify::new() })
    }

    /// Reserves bytes now, or not at all.
    pub fn try_reserve(self: &Arc<Self>, tenant: Tenant, bytes: u64) -> Option<Reservation> {
        let mut usage = locked(&self.usage);
        let share = usage.share(tenant, self.bytes);
        let is_oversized = bytes > share;
        let fits = match is_oversized {
            true => !std::mem::replace(&mut usage.has_oversized, true),
            false => usage.add(tenant, bytes, share),
        };
        drop(usage);
        fits.then(|| Reservation { budget: Arc::clone(self), tenant, bytes, is_oversized })
    }

    /// Reserves bytes, after the requests of the same tenant that wait already. `None` when too many wait, or there is no room
    /// before `deadline`.
    pub async fn reserve(
        self: &Arc<Self>,
        tenant: Tenant,
        bytes: u64,
        deadline: Instant,
    ) -> Option<Reservation> {
        let _turn = self.waiting.take(tenant, deadline).await?;
        loop {
            // It is woken by what is released from here on.
            let mut released = std::pin::pin!(self.released.notified());
            released.as_mut().enable();
            if let Some(reservation) = self.try_reserve(tenant, bytes) {
                return Some(reservation);
            }
            timeout_at(deadline, released).await.ok()?;
        }
    }

    /// What is reserved within the budget, in bytes.
    pub fn used(&self) -> u64 {
        locked(&self.usage).total
    }
}

impl Reservation {
    /// Reserves more, or nothing.
    pub fn grow(&mut self, bytes: u64) -> bool {
        self.grow_within(bytes, 1)
    }

    /// Reserves more while the tenant uses at most this part of its share: the half of it with `part` 2. Otherwise nothing.
    pub fn grow_within(&mut self, bytes: u64, part: u64) -> bool {
        let mut usage = locked(&self.budget.usage);
        let most = usage.share(self.tenant, self.budget.bytes) / part;
        let is_added = !self.is_oversized && usage.add(self.tenant, bytes, most);
        if is_added {
            self.bytes += bytes;
        }
        is_added
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut usage = locked(&self.budget.usage);
        if self.is_oversized {
            usage.has_oversized = false;
        } else {
            usage.total -= self.bytes;
            if let Some(own) = usage.of.get_mut(&self.tenant) {
                *own -= self.bytes;
                if *own == 0 {
                    usage.of.remove(&self.tenant);
                }
            }
        }
        drop(usage);
        self.budget.released.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::time::sleep;

    use super::*;

    const BYTES: u64 = 1024;

    fn tenant(number: u8) -> Tenant {
        Some(format!("00000000-0000-0000-0000-0000000{number}").parse().unwrap())
    }

    #[test]
    fn a_tenant_uses_half_of_what_the_others_leave() {
        let budget = FairBudget::new(BYTES);
        let mut held = Vec::new();
        let mut fill = |number: u8| {
            let reservations = std::iter::from_fn(|| budget.try_reserve(tenant(number), 1));
            let before = held.len();
            held.extend(reservations);
            held.len() - before
        };
        assert_eq!([1, 2, 3, 4].map(&mut fill), [512, 256, 128, 64]);
        assert_eq!([1, 2, 3, 4].map(&mut fill), [0; 4]);
        assert_eq!(budget.used(), 960);
        held.clear();
        assert_eq!((budget.used(), locked(&budget.usage).of.len()), (0, 0));
    }

    #[test]
    fn a_reservation_grows_within_the_share_of_its_tenant() {
        let budget = FairBudget::new(BYTES);
        let mut one = budget.try_reserve(tenant(1), 500).unwrap();
        assert!(one.grow(12) && !one.grow(1));
        let mut other = budget.try_reserve(tenant(2), 0).unwrap();
        assert!(!other.grow(257) && other.grow(256));
        drop(one);
        assert!(other.grow(256) && !other.grow(1));
        assert_eq!(budget.used(), 512);
        drop(other);
        assert_eq!((budget.used(), locked(&budget.usage).of.len()), (0, 0));
        let mut one = budget.try_reserve(tenant(1), 0).unwrap();
        assert!(one.grow_within(128, 4) && !one.grow_within(1, 4) && one.grow(384));
    }

    #[test]
    fn one_request_larger_than_the_share_is_admitted_at_a_time() {
        let budget = FairBudget::new(BYTES);
        let large = budget.try_reserve(tenant(1), 2 * BYTES).unwrap();
        assert!(budget.try_reserve(tenant(2), 2 * BYTES).is_none());
        assert!(budget.try_reserve(tenant(2), BYTES / 2).is_some());
        drop(large);
        assert!(budget.try_reserve(tenant(2), 2 * BYTES).is_some());
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_a_tenant_wait_in_order_and_in_no_other_tenants_way() {
        let budget = FairBudget::new(BYTES);
        let deadline = Instant::now() + Duration::from_secs(10);
        let first = budget.try_reserve(tenant(1), 512).unwrap();
        let mut second = Box::pin(budget.reserve(tenant(1), 400, deadline));
        let mut third = Box::pin(budget.reserve(tenant(1), 1, deadline));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        assert!(budget.reserve(tenant(2), 256, deadline).now_or_never().unwrap().is_some());
        drop(first);
        // It fits, and is behind.
        assert!(third.as_mut().now_or_never().is_none());
        let second = second.await.unwrap();
        assert!(third.await.is_some());
        assert_eq!(second.bytes, 400);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_finds_no_room_in_time_or_too_many_waiting_is_refused() {
        let budget = FairBudget::new(BYTES);
        let _first = budget.try_reserve(tenant(1), 512).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let reserve = || Box::pin(budget.reserve(tenant(1), 1, deadline));
        let mut waiting = Vec::from_iter((0..MAX_WAITING).map(|_| reserve()));
        assert!(waiting.iter_mut().all(|one| one.as_mut().now_or_never().is_none()));
        assert!(reserve().now_or_never().unwrap().is_none());
        sleep(Duration::from_secs(10)).await;
        for one in waiting {
            assert!(one.await.is_none());
        }
        assert!(budget.waiting.is_unused());
    }
}
