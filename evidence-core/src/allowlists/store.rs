//! What a store answers about allowlists.

use async_trait::async_trait;

use crate::allowlists::record::Allowance;
use crate::id::Id;
use crate::name::{Fingerprint, OrgName};
use crate::page::Listed;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// An artifact that is allowed in an environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AllowedArtifact {
    /// The artifact.
    pub fingerprint: Fingerprint,
    /// The ledger index of the entry that allows it.
    pub entry: u64,
    /// When that entry expires, if it does.
    pub expires_at: Option<Timestamp>,
}

/// An environment in which an allowlist entry ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndedAllowance {
    /// When.
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
    /// The newest entry of each environment and fingerprint of the organization, newest first by ledger index: the ledger
    /// index of each, and how large it is. With a time, only the entries in force at that time
    /// ([`Allowance::is_in_force`]); else all of them. An entry that was withdrawn is listed by the index of its withdrawal.
    async fn allowances_listed(
        &self,
        org: Id,
        in_force_at: Option<Timestamp>,
    ) -> StoreResult<Vec<Listed<u64>>>;
    /// The entries at these ledger indexes, one an index, newest first by ledger index; unknown ones are passed over. The
    /// index of a withdrawal leads to the withdrawn entry.
    async fn allowances(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<Allowance>>;
    /// Those of these artifacts that are allowed in the environment at a time, in any order: the newest entry of each among
    /// the first `entries` entries of the ledger is in force.
    async fn allowed(
        &self,
        org: Id,
        environment: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
        at: Timestamp,
    ) -> StoreResult<Vec<AllowedArtifact>>;
    /// How many artifacts are allowed in the environment at a time, counted up to `most`.
    async fn allowance_count(&self, org: Id, environment: Id, at: Timestamp, most: u64) -> StoreResult<u64>;
    /// The environments of all organizations in which entries expired or were withdrawn after one time and not after
    /// another, by that time and once a time: at least the first `limit` rows of these entries, and all those that ended at
    /// the time of the last of them. Entries that a later one replaced count too.
    async fn ended_allowances(
        &self,
        after: Timestamp,
        until: Timestamp,
        limit: u64,
    ) -> StoreResult<Vec<EndedAllowance>>;
}
