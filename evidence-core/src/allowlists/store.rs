//! What a store answers about allowlists.

use async_trait::async_trait;

use crate::allowlists::record::Allowance;
use crate::id::Id;
use crate::name::Fingerprint;
use crate::page::Listed;
use crate::store::error::StoreResult;

/// Queries about the allowlist.
#[async_trait]
pub trait AllowlistStore: Send + Sync {
    /// The newest entry of each environment and fingerprint of the organization, newest first by ledger index, all of them:
    /// the ledger index of each, and how large it is.
    async fn allowances_listed(&self, org: Id) -> StoreResult<Vec<Listed<u64>>>;
    /// The entries at these ledger indexes, one an index, newest first by ledger index; unknown ones are passed over.
    async fn allowances(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<Allowance>>;
    /// Those of these artifacts that are allowed in the environment by one of the first `entries` entries of the ledger, one a
    /// fingerprint, in any order, each with the ledger index of its newest entry on the allowlist, which may be a later one.
    async fn allowed(
        &self,
        org: Id,
        environment: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
    ) -> StoreResult<Vec<(Fingerprint, u64)>>;
    /// How many artifacts are allowed in the environment, counted up to `most`.
    async fn allowance_count(&self, org: Id, environment: Id, most: u64) -> StoreResult<u64>;
}
