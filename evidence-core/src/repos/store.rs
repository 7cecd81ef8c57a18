//! What a store answers about repos.

use async_trait::async_trait;

use crate::id::Id;
use crate::page::{Page, PageRequest, SortDirection};
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

/// A property of repos with few different values, by which lists are narrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepoFacet {
    /// The provider, as the wire has it.
    Provider,
    /// The host.
    VcsInstance,
    /// The segment of the namespace path at this place, from 0.
    NamespaceSegment(u16),
}

/// Queries about repos.
#[async_trait]
pub trait RepoStore: Send + Sync {
    /// The repo of this identity, one, with its revision.
    async fn repo_by_identity(&self, org: Id, identity: &str) -> StoreResult<Option<Current<Repo>>>;
    /// The repo of this id, one, with its revision.
    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>>;
    /// The repos of these ids, one an id, in any order; unknown ids are passed over.
    async fn repos_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Repo>>;
    /// The repos that the filter admits (name, search, provider, namespace, tags), by name (bytes) in the filter's direction,
    /// then by id: a page, and the total.
    async fn repos(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Page<Repo>>;
    /// The ids of the same page of the same list.
    async fn repo_ids(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Vec<Id>>;
    /// The repo of this name, and of this provider if one is given, that has the greatest id, one at most: that which was
    /// made last.
    async fn newest_repo(
        &self,
        org: Id,
        name: &str,
        provider: Option<VcsProvider>,
    ) -> StoreResult<Option<Repo>>;
    /// The repos of these names, by name and id (bytes), each with its id: of each name the first `most`.
    async fn repos_named(&self, org: Id, names: &[&str], most: u64) -> StoreResult<Vec<(String, Id)>>;
    /// The different values that the repos which the filter admits have of `facet`, by bytes, the first `limit`. A repo
    /// without one adds none.
    async fn repo_values(
        &self,
        org: Id,
        filter: &RepoFilter,
        facet: RepoFacet,
        limit: u64,
    ) -> StoreResult<Vec<String>>;
}
