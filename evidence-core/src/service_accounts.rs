//! Service accounts and their API keys: principals that are not people, each in one shared organization.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::auth::{Actor, Role};
use crate::id::Id;
use crate::name::ServiceAccountName;
use crate::store::{Current, StoreResult};
use crate::time::Timestamp;

/// A service account as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceAccount {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: ServiceAccountName,
    /// What it is for.
    pub description: Option<String>,
    /// Its role.
    pub privilege: Role,
    /// Who created it.
    pub created_by: Actor,
    /// When.
    pub created_at: Timestamp,
}

/// An API key as it is recorded: everything but the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyRecord {
    /// Its id.
    pub id: Id,
    /// Whose it is.
    pub owner: Actor,
    /// What it is for.
    pub description: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it ends; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// When it stops or stopped working before its time.
    pub revoked_at: Option<Timestamp>,
    /// The SHA-256 of the stored hash.
    pub hash_sha256: String,
}

/// Questions about service accounts and their keys.
#[async_trait]
pub trait ServiceAccountStore: Send + Sync {
    /// The service account of this name.
    async fn service_account(&self, org: Id, name: &str) -> StoreResult<Option<Current<ServiceAccount>>>;
    /// All service accounts, by name.
    async fn service_accounts(&self, org: Id) -> StoreResult<Vec<ServiceAccount>>;
    /// All keys of this owner, revoked and expired ones too, oldest first.
    async fn api_keys(&self, org: Id, owner: Id) -> StoreResult<Vec<Current<ApiKeyRecord>>>;
}
