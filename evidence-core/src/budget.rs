//! A byte budget that tenants share. It limits the writer's queue, the memory of requests, and temporary files.
//!
//! A tenant may use half of what the others leave, so there is always room for another tenant. A request that exceeds its
//! tenant's share is admitted beside the budget, one at a time. No size is thus refused for ever.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::limiter::{FairSemaphore, UNLIMITED};
use crate::lock::locked;

pub use crate::limiter::Tenant;

/// The number of requests of a tenant that may wait for room. Further requests are refused.
const MAX_WAITING: usize = 64;

/// A byte budget that tenants share.
#[derive(Debug)]
pub struct FairBudget {
    bytes: u64,
    usage: Mutex<Usage>,
    /// Has one permit per tenant, so that the requests of a tenant wait in the order of arrival. The holder waits for room.
    first_in_line: FairSemaphore<Tenant>,
    released: Notify,
}

#[derive(Debug, Default)]
struct Usage {
    /// The bytes of each tenant that uses any.
    of: BTreeMap<Tenant, u64>,
    /// The bytes of all tenants.
    total: u64,
    /// Whether a reservation exists that exceeds its tenant's share.
    has_oversized: bool,
}

impl Usage {
    /// Returns the maximum that a tenant may use.
    fn share(&self, tenant: Tenant, budget: u64) -> u64 {
        let others = self.total - self.of.get(&tenant).copied().unwrap_or_default();
        budget.saturating_sub(others) / 2
    }

    /// Adds to the usage of a tenant, unless it would exceed `most`.
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

    /// Subtracts from the usage of a tenant.
    fn release(&mut self, tenant: Tenant, bytes: u64) {
        self.total -= bytes;
        if let Some(own) = self.of.get_mut(&tenant) {
            *own -= bytes;
            if *own == 0 {
                self.of.remove(&tenant);
            }
        }
    }
}

/// A reserved part of a budget, released when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    budget: Arc<FairBudget>,
    tenant: Tenant,
    bytes: u64,
    /// Whether it is beside the budget.
    is_oversized: bool,
}

impl FairBudget {
    /// Creates a budget of this many bytes.
    pub fn new(bytes: u64) -> Arc<Self> {
        let first_in_line = FairSemaphore::new(UNLIMITED, 1);
        Arc::new(Self { bytes, usage: Mutex::default(), first_in_line, released: Notify::new() })
    }

    /// Reserves bytes now, or returns `None`.
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

    /// Reserves bytes, after the requests of the same tenant that wait already. Returns `None` if too many wait, or there is no
    /// room before `deadline`.
    pub async fn reserve(
        self: &Arc<Self>,
        tenant: Tenant,
        bytes: u64,
        deadline: Instant,
    ) -> Option<Reservation> {
        let _permit = self.first_in_line.acquire(tenant, MAX_WAITING - 1, deadline).await.ok()?;
        loop {
            // From here on, a release wakes this request.
            let mut released = std::pin::pin!(self.released.notified());
            released.as_mut().enable();
            if let Some(reservation) = self.try_reserve(tenant, bytes) {
                return Some(reservation);
            }
            timeout_at(deadline, released).await.ok()?;
        }
    }

    /// Returns the bytes that are reserved within the budget.
    pub fn used(&self) -> u64 {
        locked(&self.usage).total
    }
}

impl Reservation {
    /// Reserves more bytes. Returns whether there was room.
    pub fn grow(&mut self, bytes: u64) -> bool {
        self.grow_within(bytes, 1)
    }

    /// Releases all but this many bytes.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        if self.is_oversized || bytes >= self.bytes {
            return;
        }
        let mut usage = locked(&self.budget.usage);
        usage.release(self.tenant, self.bytes - bytes);
        self.bytes = bytes;
        drop(usage);
        self.budget.released.notify_waiters();
    }

    /// Reserves more bytes while the tenant uses at most a part of its share: half of it if `part` is 2. Returns whether there
    /// was room.
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
            usage.release(self.tenant, self.bytes);
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
    async fn requests_of_a_tenant_wait_in_order_and_delay_no_other_tenant() {
        let budget = FairBudget::new(BYTES);
        let deadline = Instant::now() + Duration::from_secs(10);
        let first = budget.try_reserve(tenant(1), 512).unwrap();
        let mut second = Box::pin(budget.reserve(tenant(1), 400, deadline));
        let mut third = Box::pin(budget.reserve(tenant(1), 1, deadline));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        assert!(budget.reserve(tenant(2), 256, deadline).now_or_never().unwrap().is_some());
        drop(first);
        // There is room for the third, but the second is before it.
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
        assert!(budget.first_in_line.is_unused());
    }
}
