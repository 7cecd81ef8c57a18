//! Custom attestation types: a team's own kinds of evidence, with a schema and rules, versioned.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::auth::Actor;
use crate::id::Id;
use crate::name::AttestationTypeName;
use crate::store::{Current, StoreResult};
use crate::time::Timestamp;

/// A custom attestation type as it is recorded; its versions are records of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttestationType {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: AttestationTypeName,
    /// What it is for.
    pub description: Option<String>,
    /// The number of its latest version, from 1.
    pub version: u64,
    /// Whether it takes no more attestations.
    pub archived: bool,
    /// When it was created.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: Actor,
    /// When it last changed.
    pub last_modified_at: Timestamp,
}

/// One immutable version of a custom attestation type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttestationTypeVersion {
    /// The type.
    pub attestation_type: Id,
    /// Its number, from 1.
    pub version: u64,
    /// The JSON Schema that its data must fit.
    pub type_schema: Option<Value>,
    /// How its data are judged: `{content_type: "jq", rules: […]}` or `{content_type: "default"}`.
    pub evaluator: Value,
    /// What of the data is shown: a list of `{name, expression}`.
    pub summary: Option<Value>,
    /// When it was made.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
}

/// Questions about custom attestation types.
#[async_trait]
pub trait AttestationTypeStore: Send + Sync {
    /// The type of this name.
    async fn attestation_type(&self, org: Id, name: &str) -> StoreResult<Option<Current<AttestationType>>>;
    /// All types, newest first (by `created_at`, then by id).
    async fn attestation_types(&self, org: Id) -> StoreResult<Vec<AttestationType>>;
    /// Every version of these types, newest first.
    async fn attestation_type_versions(
        &self,
        org: Id,
        types: &[Id],
    ) -> StoreResult<Vec<AttestationTypeVersion>>;
}
