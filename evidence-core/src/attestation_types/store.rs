//! The queries about custom attestation types that a store answers.

use async_trait::async_trait;

use crate::attestation_types::record::{AttestationType, AttestationTypeVersion};
use crate::id::{Id, VersionKey};
use crate::page::Listed;
use crate::store::entry::Current;
use crate::store::error::StoreResult;

/// Queries about custom attestation types.
#[async_trait]
pub trait AttestationTypeStore: Send + Sync {
    /// Returns the type of this name, with its revision.
    async fn attestation_type(&self, org: Id, name: &str) -> StoreResult<Option<Current<AttestationType>>>;
    /// Returns all types of the organization, in descending order of the ledger index of their first version,
    /// without their content.
    async fn attestation_types_listed(&self, org: Id) -> StoreResult<Vec<Listed>>;
    /// Returns the types of these ids, one per id, in any order. Unknown ids are skipped.
    async fn attestation_types_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<AttestationType>>;
    /// Returns the sizes of these versions of types, each identified by the type's id and the version number,
    /// in any order. Unknown versions are skipped.
    async fn attestation_type_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>>;
    /// Returns these versions, identified in the same way, in any order. Unknown versions are skipped.
    async fn attestation_type_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<AttestationTypeVersion>>;
}
