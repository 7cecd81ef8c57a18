//! What a store answers about service accounts and API keys.

use async_trait::async_trait;

use crate::id::Id;
use crate::service_accounts::record::{ApiKeyRecord, ServiceAccount};
use crate::store::entry::Current;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// Queries about service accounts and their keys.
#[async_trait]
pub trait ServiceAccountStore: Send + Sync {
    /// The service account of this name, one, with its revision.
    async fn service_account(&self, org: Id, name: &str) -> StoreResult<Option<Current<ServiceAccount>>>;
    /// All service accounts of the organization but for those that were deleted, by name (bytes).
    async fn service_accounts(&self, org: Id) -> StoreResult<Vec<ServiceAccount>>;
    /// The key of this id, one, with its revision; also one that no longer works.
    async fn api_key(&self, org: Id, id: Id) -> StoreResult<Option<Current<ApiKeyRecord>>>;
    /// All keys of this owner that work at this time, oldest first by `created_at`, then by id.
    async fn api_keys(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<Vec<Current<ApiKeyRecord>>>;
    /// How many keys of this owner work at this time: all are counted, those too whose records are damaged.
    async fn api_key_count(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<u64>;
}
