//! What a store answers about controls.

use async_trait::async_trait;

use crate::controls::record::{Control, ControlVersion};
use crate::id::{Id, VersionKey};
use crate::page::{Listed, Page, PageRequest, SortDirection};
use crate::store::entry::Current;
use crate::store::error::StoreResult;
use crate::tags::record::TagFilter;

/// How a list of controls is narrowed; everything given must match.
#[derive(Debug, Clone, Default)]
pub struct ControlFilter {
    /// A substring of the name or of the identifier, whatever its ASCII case.
    pub search: Option<String>,
    /// Tags that must all match.
    pub tags: Vec<TagFilter>,
    /// Whether the archived ones are listed, in place of the others.
    pub archived: bool,
    /// By name (bytes) in this direction; equal names are by id ascending in both.
    pub direction: SortDirection,
}

/// Queries about controls.
#[async_trait]
pub trait ControlStore: Send + Sync {
    /// The control of this identifier, one, with its revision, archived or not.
    async fn control(&self, org: Id, identifier: &str) -> StoreResult<Option<Current<Control>>>;
    /// Which of these identifiers controls have, archived or not: one each, in any order.
    async fn controls_named(&self, org: Id, identifiers: &[&str]) -> StoreResult<Vec<String>>;
    /// The controls that the filter admits (search, tags, archived), by name (bytes) in the filter's direction, then by id,
    /// without what they say: a page, and the total.
    async fn controls(
        &self,
        org: Id,
        filter: &ControlFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Listed>>;
    /// The controls of these ids, one an id, in any order; unknown ids are passed over.
    async fn controls_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Control>>;
    /// How large these versions of controls are, found by the control's id and their number, one each, in any order;
    /// unknown ones are passed over.
    async fn control_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>>;
    /// These versions, found in the same way, one each, in any order; unknown ones are passed over.
    async fn control_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<ControlVersion>>;
}
