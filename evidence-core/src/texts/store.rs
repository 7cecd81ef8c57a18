//! The queries about texts that a store answers.

use async_trait::async_trait;

use crate::id::Id;
use crate::ledger::Hash;
use crate::store::error::StoreResult;

/// Queries about texts.
#[async_trait]
pub trait TextStore: Send + Sync {
    /// Returns the texts with these digests, each once, in any order. Skips unknown and unreadable ones. If
    /// several entries contain a text, the newest is read, so recording a text again repairs a damaged one.
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>>;
}
