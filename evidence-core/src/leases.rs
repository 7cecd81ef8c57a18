//! Leases and cursors of background work. With a lease, one of several servers at a time does a job. A cursor stores how
//! much of an organization's ledger a job has consumed.
//!
//! A *lease* is named after its job and has one holder until it expires. Another server can acquire it only then.
//!
//! A *cursor* belongs to an organization and to a consumer, whose lease has the same name. It is the position in the ledger
//! of the first entry that was not consumed yet. Only the holder of the lease moves it, forward, by compare-and-swap. A
//! server that was disconnected for longer than its lease therefore changes nothing when it returns. Delivery is at least
//! once: a crash repeats the work since the last move of the cursor.
//!
//! Leases and cursors are no evidence. They lie beside the ledgers, and are neither rebuilt from them nor checked. A copy of
//! the store includes the cursor of notifications only.

use std::time::Duration;

use async_trait::async_trait;

use crate::id::Id;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// Maximum duration of a lease. A lease that would last longer was acquired with a clock that was far ahead. It counts as
/// expired, because otherwise the job could stop for as long as that clock was wrong.
pub const MAX_LEASE: Duration = Duration::from_secs(10 * 60);

/// Returns the latest end that a lease may have at `now`.
pub fn latest_lease_end(now: Timestamp) -> Timestamp {
    let longest = i64::try_from(MAX_LEASE.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.as_micros().saturating_add(longest))
}

/// The right to do a job, until it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The name of the job, unique in the store.
    pub name: String,
    /// The id of the holder. No other process has it, and a process never uses one twice.
    pub holder: Id,
    /// The time from which another holder may acquire it.
    pub expires_at: Timestamp,
}

/// The precondition of a write that a holder still has a lease. An expired lease is enough while no other holder has acquired
/// it, because the write then happens before the next holder reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    /// The name of the lease.
    pub name: String,
    /// The id of the holder.
    pub holder: Id,
}

/// A step of a consumer's cursor in an organization's ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// The consumer, which is the name of its lease.
    pub consumer: String,
    /// The organization.
    pub org: Id,
    /// The id of the holder of the lease.
    pub holder: Id,
    /// The current position, which the store compares.
    pub from: u64,
    /// The new position, which must be greater than `from`.
    pub to: u64,
}

/// Stores leases and cursors. Time comes from the caller. Servers whose clocks differ by more than the duration of a lease
/// acquire it from each other, which is harmless because cursors move by compare-and-swap.
#[async_trait]
pub trait LeaseStore: Send + Sync {
    /// Acquires a lease that no other holder has at `now`, or renews the holder's own. Returns whether the holder has it. A
    /// delayed renewal that arrives after a later one does not shorten the lease. A stored lease that ends after
    /// [`latest_lease_end`] counts as expired.
    async fn acquire_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool>;
    /// Renews a lease as [`acquire_lease`](Self::acquire_lease) does, if the holder still has it, expired or not. Returns
    /// whether it does. A lease that was released or that another holder acquired is not acquired again, so that the caller
    /// learns that others may have held it meanwhile.
    async fn renew_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool>;
    /// Releases a lease before it expires. Does nothing to a lease of another holder.
    async fn release_lease(&self, name: &str, holder: Id) -> StoreResult<()>;
    /// Returns the position of a consumer in an organization's ledger; 0 before it has consumed anything.
    async fn cursor(&self, consumer: &str, org: Id) -> StoreResult<u64>;
    /// Moves a cursor from `from` to `to`, and returns whether it moved. It moves only if it is at `from`, `to` is greater,
    /// and the holder has the consumer's lease at `now`. If the response is lost and the call repeated, the cursor may have
    /// moved already.
    async fn advance_cursor(&self, advance: &Advance, now: Timestamp) -> StoreResult<bool>;
}
