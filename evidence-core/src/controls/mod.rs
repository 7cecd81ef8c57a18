//! Controls: requirements of an organization for its software and its development. Each has a permanent
//! identifier and all its versions. A control can be archived, but not deleted.

pub(crate) mod coverage;
pub(crate) mod decisions;
pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod store;
pub(crate) mod view;

pub use crate::id::VersionKey;
pub use coverage::{ControlCoverage, EnvironmentCoverage, GetControlCoverage};
pub use decisions::{
    ControlDecision, ControlDecisionList, ControlDecisionSummary, GetControlDecision, ListControlDecisions,
};
pub use operations::{
    ArchiveControl, ControlChanges, ControlInput, GetControl, GetControlVersion, ListControlTags,
    ListControlVersions, ListControls, PostControl, PutControl, UnarchiveControl,
};
pub use record::{Control, ControlLinks, ControlStatus, ControlVersion};
pub use store::{ControlFilter, ControlStore};
pub use view::{ControlList, ControlSummary, ControlVersionList, ControlVersionView, ControlView};
