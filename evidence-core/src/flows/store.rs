//! What a store answers about flows.

use async_trait::async_trait;

use crate::flows::record::Flow;
use crate::id::Id;
use crate::page::{Listed, Page, PageRequest};
use crate::store::entry::Current;
use crate::store::error::StoreResult;
use crate::tags::record::TagFilter;

/// How a list of flows is narrowed.
#[derive(Debug, Clone, Default)]
pub struct FlowFilter {
    /// A substring of the name.
    pub name: Option<String>,
    /// Whether the substring's ASCII case does not matter.
    pub ignore_case: bool,
    /// Tags that must all match.
    pub tags: Vec<TagFilter>,
}

/// Queries about flows.
#[async_trait]
pub trait FlowStore: Send + Sync {
    /// The flow of this name, be it a former one, one, with its revision.
    async fn flow(&self, org: Id, name: &str) -> StoreResult<Option<Current<Flow>>>;
    /// The flows of these ids, archived ones too, one an id, in any order; unknown ids are passed over.
    async fn flows_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Flow>>;
    /// The address of the repo that was named last by what was reported to each of these flows ([`IndexRow::FlowRepo`]), one
    /// a flow for which one was, in any order.
    ///
    /// [`IndexRow::FlowRepo`]: crate::index::IndexRow::FlowRepo
    async fn flow_repo_urls(&self, org: Id, flows: &[Id]) -> StoreResult<Vec<(Id, String)>>;
    /// The flows that the filter admits (part of the name, tags) but for the archived ones, by name (bytes), without what
    /// they say: a page, and the total.
    async fn flows(&self, org: Id, filter: &FlowFilter, request: PageRequest) -> StoreResult<Page<Listed>>;
}
