//! The last signed checkpoint of each ledger, in the store.

use async_trait::async_trait;

use crate::id::Id;
use crate::store::error::StoreResult;

/// Stores the last signed checkpoint of each ledger. Checkpoints lie beside the ledgers, and are not rebuilt from them.
#[async_trait]
pub trait CheckpointStore: Send + Sync {
    /// Returns the signed note that was stored last; `None` if there is none.
    async fn signed_checkpoint(&self, org: Id) -> StoreResult<Option<String>>;
    /// Returns whether any ledger of the store has one.
    async fn has_signed_checkpoints(&self) -> StoreResult<bool>;
    /// Replaces the signed note `old`, or stores the first one; without `new`, removes it. Returns whether it did: not if
    /// another one is stored, or if there is no such organization.
    async fn replace_signed_checkpoint(
        &self,
        org: Id,
        old: Option<&str>,
        new: Option<&str>,
    ) -> StoreResult<bool>;
}
