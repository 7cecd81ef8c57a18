//! What a store answers about repos.

use async_trait::async_trait;

use crate::id::Id;
use crate::page::{Listed, Page, PageRequest, SortDirection};
use crate::repos::record::{Repo, VcsProvider};
use crate::store::entry::Current;
use crate::store::error::StoreResult;
use crate::tags::record::TagFilter;

/// How a list of repos is narrowed; everything given must match.
#[derive(Debug, Clone, Default)]
pub struct RepoFilter {
    /// Exactly this name.
    pub name: Option<String>,
    /// A substring of the name, whatever its ASCII case.
    pub search: Option<String>,
    /// This provider.
    pub provider: Option<VcsProvider>,
    /// This external id.
    pub repo_id: Option<String>,
    /// This host.
    pub vcs_instance: Option<String>,
    /// Namespace paths that begin with these segments, case-sensitively.
    pub namespace: Option<Vec<String>>,
    /// Tags that must all match.
    pub tags: Vec<TagFilter>,
    /// By name (bytes), then by id, in this direction; equal names are by id ascending in both.
    pub direction: SortDirection,
}

/// Queries about repos.
#[async_trait]
pub trait RepoStore: Send + Sync {
    /// The repo of this identity, one, with its revision.
    async fn repo_by_identity(&self, org: Id, identity: &str) -> StoreResult<Option<Current<Repo>>>;
    /// The repo of this id, one, with its revision.
    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>>;
    /// The repos that the filter admits (name, search, provider, namespace, tags), by name (bytes) in the filter's direction,
    /// then by id: a page, and the total.
    async fn repos(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Page<Repo>>;
    /// The same page of the same list, without what the repos say, and without the total.
    async fn repos_listed(
        &self,
        org: Id,
        filter: &RepoFilter,
        request: PageRequest,
    ) -> StoreResult<Vec<Listed>>;
}
