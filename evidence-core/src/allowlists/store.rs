//! The queries about allowlists that a store answers.

use async_trait::async_trait;

use crate::allowlists::record::AllowlistEntry;
use crate::id::Id;
use crate::name::{Fingerprint, OrgName};
use crate::page::Listed;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// An artifact that is allowed in an environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllowedArtifact {
    /// The artifact's fingerprint.
    pub fingerprint: Fingerprint,
    /// The ledger index of the entry that allows it.
    pub entry: u64,
    /// When that entry expires, if it does.
    pub expires_at: Option<Timestamp>,
}

/// The end of an allowlist entry in an environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndedAllowlistEntry {
    /// When it ended.
    pub at: Timestamp,
    /// The organization's name.
    pub org: OrgName,
    /// The environment.
    pub environment: Id,
    /// The ledger index of the newest entry or withdrawal that ended there at that time.
    pub entry: u64,
}

/// Queries about the allowlist.
#[async_trait]
pub trait AllowlistStore: Send + Sync {
    /// Returns the ledger index and size of the newest entry of each environment and fingerprint of the
    /// organization, newest first by ledger index. With a time, returns only entries in force at that time
    /// ([`AllowlistEntry::is_in_force`]); otherwise returns all. A withdrawn entry has the index of its
    /// withdrawal.
    async fn allowlist_entries_listed(
        &self,
        org: Id,
        in_force_at: Option<Timestamp>,
    ) -> StoreResult<Vec<Listed<u64>>>;
    /// Returns the entries at these ledger indexes, one per index, newest first by ledger index. Unknown
    /// indexes are skipped. The index of a withdrawal refers to the withdrawn entry.
    async fn allowlist_entries(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<AllowlistEntry>>;
    /// Returns those of these artifacts that are allowed in the environment at a time, in any order. An
    /// artifact is allowed if its newest entry among the first `entries` ledger entries is in force.
    async fn allowed(
        &self,
        org: Id,
        environment: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
        at: Timestamp,
    ) -> StoreResult<Vec<AllowedArtifact>>;
    /// Returns the number of artifacts that are allowed in the environment at a time, counted up to `most`.
    async fn allowlist_entry_count(
        &self,
        org: Id,
        environment: Id,
        at: Timestamp,
        most: u64,
    ) -> StoreResult<u64>;
    /// Returns the environments of all organizations in which entries expired or were withdrawn after `after`
    /// and not after `until`. They are sorted by that time, each once for a time. Returns at least the first
    /// `limit` rows of these entries, and all that ended at the time of the last one. Entries that a later
    /// one replaced count too.
    async fn ended_allowlist_entries(
        &self,
        after: Timestamp,
        until: Timestamp,
        limit: u64,
    ) -> StoreResult<Vec<EndedAllowlistEntry>>;
}
