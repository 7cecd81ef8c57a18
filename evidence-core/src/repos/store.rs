//! The queries about repos that a store answers.

use async_trait::async_trait;

use crate::id::Id;
use crate::page::{Page, PageRequest, SortDirection};
use crate::repos::record::{Repo, VcsProvider};
use crate::store::entry::Current;
use crate::store::error::StoreResult;
use crate::tags::record::TagFilter;

/// A filter for lists of repos. All given conditions must match.
#[derive(Debug, Clone, Default)]
pub struct RepoFilter {
    /// Exactly this name.
    pub name: Option<String>,
    /// A substring of the name, ASCII-case-insensitive.
    pub search: Option<String>,
    /// This provider.
    pub provider: Option<VcsProvider>,
    /// This id at the host.
    pub repo_id: Option<String>,
    /// This host.
    pub vcs_instance: Option<String>,
    /// Namespace paths that begin with these segments, case-sensitive.
    pub namespace: Option<Vec<String>>,
    /// Tags that must all match.
    pub tags: Vec<TagFilter>,
    /// The order by name (bytes). Equal names are sorted by id, ascending in both directions.
    pub direction: SortDirection,
}

/// A property of repos with few different values, used as a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepoFacet {
    /// The provider, as in responses.
    Provider,
    /// The host.
    VcsInstance,
    /// The segment of the namespace path at this index, from 0.
    NamespaceSegment(u16),
}

/// Queries about repos.
#[async_trait]
pub trait RepoStore: Send + Sync {
    /// Returns the repo of this identity, with its revision.
    async fn repo_by_identity(&self, org: Id, identity: &str) -> StoreResult<Option<Current<Repo>>>;
    /// Returns the repo of this id, with its revision.
    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>>;
    /// Returns the repos of these ids, one per id, in any order. Unknown ids are skipped.
    async fn repos_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Repo>>;
    /// Returns one page of the repos that match the filter, and their total. The order is by name (bytes) in
    /// the filter's direction, then by id.
    async fn repos(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Page<Repo>>;
    /// Returns the ids of the same page.
    async fn repo_ids(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Vec<Id>>;
    /// Returns the repo of this name and, if given, this provider. Of several, returns the one with the
    /// greatest id, which was created last.
    async fn newest_repo(
        &self,
        org: Id,
        name: &str,
        provider: Option<VcsProvider>,
    ) -> StoreResult<Option<Repo>>;
    /// Returns the names and ids of the repos with these names, sorted by name and id (bytes): the first
    /// `most` of each name.
    async fn repos_named(&self, org: Id, names: &[&str], most: u64) -> StoreResult<Vec<(String, Id)>>;
    /// Returns the different values of `facet` of the repos that match the filter, sorted by bytes: the first
    /// `limit`. Repos without a value are skipped.
    async fn repo_values(
        &self,
        org: Id,
        filter: &RepoFilter,
        facet: RepoFacet,
        limit: u64,
    ) -> StoreResult<Vec<String>>;
}
