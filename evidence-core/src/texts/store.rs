//! What a store answers about texts.

use async_trait::async_trait;

use crate::id::Id;
use crate::ledger::Hash;
use crate::store::error::StoreResult;

/// Queries about texts.
#[async_trait]
pub trait TextStore: Send + Sync {
    /// Those of the texts with these digests that the organization keeps, once each, in any order; what is unknown or
    /// cannot be read any more is passed over. They are told apart by their digests. Of several entries that keep a text the
    /// newest is read, so that keeping it again puts right what was damaged.
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>>;
}
