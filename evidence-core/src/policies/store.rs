//! The queries about policies that a store answers.

use async_trait::async_trait;

use crate::id::{Id, VersionKey};
use crate::page::Listed;
use crate::policies::record::{Policy, PolicyVersion};
use crate::store::entry::Current;
use crate::store::error::StoreResult;

/// Queries about policies.
#[async_trait]
pub trait PolicyStore: Send + Sync {
    /// Returns the policy of this name, with its revision.
    async fn policy(&self, org: Id, name: &str) -> StoreResult<Option<Current<Policy>>>;
    /// Returns the policies of these names, one per name, in any order, with their revisions. Unknown names
    /// are skipped. A policy that cannot be read is an error.
    async fn policies_named(&self, org: Id, names: &[&str]) -> StoreResult<Vec<Current<Policy>>>;
    /// Returns all policies of the organization, sorted by name (bytes), without their content.
    async fn policies_listed(&self, org: Id) -> StoreResult<Vec<Listed>>;
    /// Returns the policies of these ids, one per id, in any order, with their revisions. Unknown ids are
    /// skipped.
    async fn policies_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Current<Policy>>>;
    /// Returns the sizes of these versions of policies, each identified by the policy's id and the version
    /// number, in any order. Unknown versions are skipped.
    async fn policy_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>>;
    /// Returns these versions, identified in the same way, in any order. Unknown versions are skipped.
    async fn policy_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<PolicyVersion>>;
}
