//! What background work keeps in a store: leases, so that of several servers one at a time does a job, and cursors, so
//! that whoever does it next knows how far an organization's ledger was consumed.
//!
//! A *lease* is named after its job and held by one holder until it expires; whoever else wants it waits for that. A
//! *cursor* belongs to a consumer, whose lease has the same name, and to an organization: the position in the ledger of
//! the first entry that was not consumed yet. It moves by compare-and-swap and forward alone, and only for whoever holds
//! the lease, so that a server which was cut off for longer than its lease changes nothing when it comes back. Delivery
//! is at least once: what was done between two moves of a cursor is done again after a crash.
//!
//! Neither is evidence. Both lie beside the ledgers and are neither rebuilt from them nor checked. A copy of the store takes
//! along the cursor of notifications alone.

use std::time::Duration;

use async_trait::async_trait;

use crate::id::Id;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// The longest lease. One that would last longer, by the clock of whoever wants it, was taken by a clock that was far
/// ahead: it is nobody's, for otherwise a job could rest for as long as that clock was wrong.
pub const MAX_LEASE: Duration = Duration::from_secs(10 * 60);

/// The latest end that a lease may have at `now`.
pub fn latest_lease_end(now: Timestamp) -> Timestamp {
    let longest = i64::try_from(MAX_LEASE.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.as_micros().saturating_add(longest))
}

/// The right to do a job, until it expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The job's name, in the whole store.
    pub name: String,
    /// Who holds it: an id that no other process has, nor the same one at another time.
    pub holder: Id,
    /// From when on somebody else may take it.
    pub expires_at: Timestamp,
}

/// Who has to hold a lease for something to be written. Whether it has expired does not matter, as long as nobody else took
/// it: what is written then comes before whatever the next holder reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The name of the lease.
    pub lease: String,
    /// Who holds it.
    pub holder: Id,
}

/// A step of a consumer's cursor in an organization's ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// The consumer, which is the name of its lease.
    pub consumer: String,
    /// The organization.
    pub org: Id,
    /// Who says so.
    pub holder: Id,
    /// Where the cursor has to be.
    pub from: u64,
    /// Where it is to be: further on.
    pub to: u64,
}

/// Leases and cursors. Time comes from the caller, as everywhere: servers whose clocks differ by more than a lease lasts
/// take it from each other, and the compare-and-swap of the cursors keeps them from harm.
#[async_trait]
pub trait FeedStore: Send + Sync {
    /// Takes a lease that nobody else holds at `now`, or renews one that the holder has; answers whether it is held. A
    /// renewal that arrives late, after a later one, shortens nothing. A lease that ends after [`latest_lease_end`] is nobody's.
    async fn acquire_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool>;
    /// Renews a lease as [`acquire_lease`](Self::acquire_lease) does, where its holder has it still, expired or not; answers
    /// whether it does. One that was given back or taken by another is not taken again, so that who was away learns that others
    /// may have held it meanwhile.
    async fn renew_lease(&self, lease: &Lease, now: Timestamp) -> StoreResult<bool>;
    /// Gives a lease back before it expires; one of another holder stays.
    async fn release_lease(&self, name: &str, holder: Id) -> StoreResult<()>;
    /// The position of a consumer in an organization's ledger: 0 before it has consumed anything.
    async fn cursor(&self, consumer: &str, org: Id) -> StoreResult<u64>;
    /// Moves a cursor on where it is at `from`, `to` lies further on and the holder has the consumer's lease at `now`;
    /// answers whether it moved. Where the answer is lost and the call repeated, it may have moved already.
    async fn advance_cursor(&self, advance: &Advance, now: Timestamp) -> StoreResult<bool>;
}
