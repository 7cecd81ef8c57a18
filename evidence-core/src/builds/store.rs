//! The queries about builds that a store answers.

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
    /// The trail it was reported to; `None` for a report to a flow as a whole.
    pub trail: Option<Id>,
    /// The SHA-256 of the content.
    pub fingerprint: Fingerprint,
    /// The repo that the report names, if any. Later reports of the artifact do not change it.
    pub repo: Option<Id>,
    /// When it was recorded: the time of its ledger entry. No later entry has an earlier time.
    pub at: Timestamp,
}

/// A filter for builds. All given conditions must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildFilter {
    /// From one of these repos.
    pub repos: Option<Vec<Id>>,
    /// Recorded at this time or later.
    pub from: Timestamp,
    /// Recorded at this time or before.
    pub to: Timestamp,
}

/// Queries about builds.
#[async_trait]
pub trait BuildStore: Send + Sync {
    /// Returns one page of the builds that match the filter, and their total. The order is newest first by
    /// ledger index.
    async fn builds(&self, org: Id, filter: &BuildFilter, request: PageRequest) -> StoreResult<Page<Build>>;
    /// Returns when the builds of the same list were recorded, newest first: the first `limit`, and the
    /// total.
    async fn build_times(&self, org: Id, filter: &BuildFilter, limit: u64) -> StoreResult<Page<Timestamp>>;
}
