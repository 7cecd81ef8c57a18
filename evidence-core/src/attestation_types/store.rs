//! What a store answers about types of attestations.

use async_trait::async_trait;

use crate::attestation_types::record::{AttestationType, AttestationTypeVersion};
use crate::id::{Id, VersionKey};
use crate::page::Listed;
use crate::store::entry::Current;
use crate::store::error::StoreResult;

/// Queries about custom attestation types.
#[async_trait]
pub trait AttestationTypeStore: Send + Sync {
    /// The type of this name, one, with its revision.
    async fn attestation_type(&self, org: Id, name: &str) -> StoreResult<Option<Current<AttestationType>>>;
    /// All types of the organization, newest first by the ledger index of their first version, without what they say.
    async fn attestation_types_listed(&self, org: Id) -> StoreResult<Vec<Listed>>;
    /// The types of these ids, one an id, in any order; unknown ids are passed over.
    async fn attestation_types_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<AttestationType>>;
    /// How large these versions of types are, found by the type's id and their number, one each, in any order; unknown ones
    /// are passed over.
    async fn attestation_type_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>>;
    /// These versions, found in the same way, one each, in any order; unknown ones are passed over.
    async fn attestation_type_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<AttestationTypeVersion>>;
}
