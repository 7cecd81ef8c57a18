//! The queries about controls that a store answers.

use async_trait::async_trait;

use crate::controls::record::{Control, ControlVersion};
use crate::id::{Id, VersionKey};
use crate::page::{Listed, Page, PageRequest, SortDirection};
use crate::store::entry::Current;
use crate::store::error::StoreResult;
use crate::tags::record::TagFilter;

/// A filter for lists of controls. All given conditions must match.
#[derive(Debug, Clone, Default)]
pub struct ControlFilter {
    /// A substring of the name or of the identifier, ASCII-case-insensitive.
    pub search: Option<String>,
    /// Tags that must all match.
    pub tags: Vec<TagFilter>,
    /// Whether archived controls are listed instead of the others.
    pub archived: bool,
    /// The order by name (bytes). Equal names are sorted by id, ascending in both directions.
    pub direction: SortDirection,
}

/// Queries about controls.
#[async_trait]
pub trait ControlStore: Send + Sync {
    /// Returns the control of this identifier with its revision, archived or not.
    async fn control(&self, org: Id, identifier: &str) -> StoreResult<Option<Current<Control>>>;
    /// Returns those of these identifiers that controls have, archived or not, each once, in any order.
    async fn controls_named(&self, org: Id, identifiers: &[&str]) -> StoreResult<Vec<String>>;
    /// Returns one page of the controls that match the filter, and their total. The order is by name (bytes)
    /// in the filter's direction, then by id. Controls are listed without their content.
    async fn controls(
        &self,
        org: Id,
        filter: &ControlFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Listed>>;
    /// Returns the controls of these ids, one per id, in any order. Unknown ids are skipped.
    async fn controls_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Control>>;
    /// Returns the sizes of these versions of controls, each identified by the control's id and the version
    /// number, in any order. Unknown versions are skipped.
    async fn control_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>>;
    /// Returns these versions, identified in the same way, in any order. Unknown versions are skipped.
    async fn control_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<ControlVersion>>;
}
