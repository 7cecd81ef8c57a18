//! The queries about flows that a store answers.

use async_trait::async_trait;

use crate::flows::record::Flow;
use crate::id::Id;
use crate::page::{Listed, Page, PageRequest};
use crate::store::entry::Current;
use crate::store::error::StoreResult;
use crate::tags::record::TagFilter;

/// A filter for lists of flows.
#[derive(Debug, Clone, Default)]
pub struct FlowFilter {
    /// A substring of the name.
    pub name: Option<String>,
    /// Whether the search ignores ASCII case.
    pub ignore_case: bool,
    /// Tags that must all match.
    pub tags: Vec<TagFilter>,
}

/// Queries about flows.
#[async_trait]
pub trait FlowStore: Send + Sync {
    /// Returns the flow with this present or former name, with its revision.
    async fn flow(&self, org: Id, name: &str) -> StoreResult<Option<Current<Flow>>>;
    /// Returns the flows of these ids, archived ones included, one per id, in any order. Unknown ids are
    /// skipped.
    async fn flows_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Flow>>;
    /// Returns the URL of the repo that the newest report to each of these flows named
    /// ([`IndexRow::FlowRepo`]). The result has one entry per flow with such a repo, in any order.
    ///
    /// [`IndexRow::FlowRepo`]: crate::index::IndexRow::FlowRepo
    async fn flow_repo_urls(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<(Id, String)>>;
    /// Returns one page of the flows that match the filter, and their total. Archived flows are left out. The
    /// order is by name (bytes). Flows are listed without their content.
    async fn flows(&self, org: Id, filter: &FlowFilter, request: PageRequest) -> StoreResult<Page<Listed>>;
}
