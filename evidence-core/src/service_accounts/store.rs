//! The queries about service accounts and API keys that a store answers.

use async_trait::async_trait;

use crate::id::Id;
use crate::service_accounts::record::{ApiKeyRecord, ServiceAccount};
use crate::store::entry::Current;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// Queries about service accounts and their keys.
#[async_trait]
pub trait ServiceAccountStore: Send + Sync {
    /// Returns the service account of this name, with its revision.
    async fn service_account(&self, org: Id, name: &str) -> StoreResult<Option<Current<ServiceAccount>>>;
    /// Returns all service accounts of the organization, without deleted ones, sorted by name (bytes).
    async fn service_accounts(&self, org: Id) -> StoreResult<Vec<ServiceAccount>>;
    /// Returns the key of this id with its revision, even if it no longer works.
    async fn api_key(&self, org: Id, id: Id) -> StoreResult<Option<Current<ApiKeyRecord>>>;
    /// Returns all keys of this owner that work at this time, oldest first by `created_at`, then by id.
    async fn api_keys(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<Vec<Current<ApiKeyRecord>>>;
    /// Returns the number of keys of this owner that work at this time, including those with damaged records.
    async fn api_key_count(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<u64>;
}
