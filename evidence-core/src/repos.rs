//! Repos: where code comes from. They come into being when a report names one.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::id::Id;
use crate::page::{Slice, SortDirection, Window};
use crate::shared::{RepoInfo, TagFilter, Tags, VcsProvider};
use crate::store::{Current, StoreResult};
use crate::time::Timestamp;

/// A repo as it is recorded: what the newest report said of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repo {
    /// Our id of it.
    pub id: Id,
    /// What it is recognised by: provider and external id, else the url.
    pub identity: String,
    /// What was reported.
    pub info: RepoInfo,
    /// The host of its url.
    pub vcs_instance: Option<String>,
    /// The part of the name after the last `/`.
    pub short_name: String,
    /// The groups it lies in: as sent, else the segments of the name before the last.
    pub namespace_path: Vec<String>,
    /// Its tags.
    pub tags: Tags,
    /// When it was first reported.
    pub created_at: Timestamp,
}

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

/// Questions about repos.
#[async_trait]
pub trait RepoStore: Send + Sync {
    /// The repo of this identity.
    async fn repo_by_identity(&self, org: Id, identity: &str) -> StoreResult<Option<Current<Repo>>>;
    /// The repo of this id.
    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>>;
    /// Repos in the filter's order.
    async fn repos(&self, org: Id, filter: &RepoFilter, window: Window) -> StoreResult<Slice<Repo>>;
}
