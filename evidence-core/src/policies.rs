//! Policies: what an environment demands of everything that runs in it, as versioned YAML.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::auth::Actor;
use crate::id::Id;
use crate::name::PolicyName;
use crate::store::{Current, StoreResult};
use crate::time::Timestamp;

/// A policy as it is recorded; its versions are records of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: PolicyName,
    /// What it is for.
    pub description: String,
    /// The number of its latest version, from 1.
    pub version: u64,
    /// When it was created.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: Actor,
    /// When it last changed.
    pub last_modified_at: Timestamp,
    /// What happened to it.
    pub events: Vec<PolicyEvent>,
}

/// Something that happened to a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyEvent {
    /// `creation`, `metadata_update` or `new_version`.
    #[serde(rename = "type")]
    pub kind: String,
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
}

/// One immutable version of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyVersion {
    /// The policy.
    pub policy: Id,
    /// Its number, from 1.
    pub version: u64,
    /// What changed.
    pub comment: String,
    /// The YAML text, byte for byte.
    pub policy_yaml: String,
    /// When it was made.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
}

/// Questions about policies.
#[async_trait]
pub trait PolicyStore: Send + Sync {
    /// The policy of this name.
    async fn policy(&self, org: Id, name: &str) -> StoreResult<Option<Current<Policy>>>;
    /// All policies, by name (bytes).
    async fn policies(&self, org: Id) -> StoreResult<Vec<Policy>>;
    /// Every version of these policies, oldest first.
    async fn policy_versions(&self, org: Id, policies: &[Id]) -> StoreResult<Vec<PolicyVersion>>;
}
