//! What a store answers about policies.

use async_trait::async_trait;

use crate::id::{Id, VersionKey};
use crate::page::Listed;
use crate::policies::record::{Policy, PolicyVersion};
use crate::store::entry::Current;
use crate::store::error::StoreResult;

/// Queries about policies.
#[async_trait]
pub trait PolicyStore: Send + Sync {
    /// The policy of this name, one, with its revision.
    async fn policy(&self, org: Id, name: &str) -> StoreResult<Option<Current<Policy>>>;
    /// The policies of these names, one a name, in any order, with their revisions; unknown names are passed over. One that
    /// cannot be read is an error.
    async fn policies_named(&self, org: Id, names: &[&str]) -> StoreResult<Vec<Current<Policy>>>;
    /// All policies of the organization, by name (bytes), without what they say.
    async fn policies_listed(&self, org: Id) -> StoreResult<Vec<Listed>>;
    /// The policies of these ids, one an id, in any order, with their revisions; unknown ids are passed over.
    async fn policies_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Current<Policy>>>;
    /// How large these versions of policies are, found by the policy's id and their number, one each, in any order; unknown
    /// ones are passed over.
    async fn policy_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>>;
    /// These versions, found in the same way, one each, in any order; unknown ones are passed over.
    async fn policy_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<PolicyVersion>>;
}
