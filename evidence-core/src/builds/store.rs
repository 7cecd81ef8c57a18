//! What a store answers about builds.

use async_trait::async_trait;

use crate::id::Id;
use crate::name::Fingerprint;
use crate::page::{Page, PageRequest};
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// The first report of an artifact in an organization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// The report's id.
    pub report: Id,
    /// The flow it was reported to.
    pub flow: Id,
    /// The trail it was reported to; none for a report to a flow as a whole.
    pub trail: Option<Id>,
    /// The SHA-256 of the content.
    pub fingerprint: Fingerprint,
    /// The repo that the report names. Later reports of the artifact do not change whose build it is.
    pub repo: Option<Id>,
    /// When it was recorded: the time of its entry, which no later entry's is before.
    pub at: Timestamp,
}

/// How builds are narrowed; everything given must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildFilter {
    /// Of one of these repos.
    pub repos: Option<Vec<Id>>,
    /// Recorded then or later.
    pub from: Timestamp,
    /// Recorded then or before.
    pub to: Timestamp,
}

/// Queries about builds.
#[async_trait]
pub trait BuildStore: Send + Sync {
    /// The builds that the filter admits, newest (by ledger index) first: a page, and the total.
    async fn builds(&self, org: Id, filter: &BuildFilter, request: PageRequest) -> StoreResult<Page<Build>>;
    /// When the builds of the same list were recorded, newest first: the first `limit`, and the total.
    async fn build_times(&self, org: Id, filter: &BuildFilter, limit: u64) -> StoreResult<Page<Timestamp>>;
}
