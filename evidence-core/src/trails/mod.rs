//! Trails: single executions of a flow, with their reports.

pub(crate) mod contents;
pub(crate) mod draft;
pub(crate) mod evaluation;
pub(crate) mod events;
pub(crate) mod operations;
#[cfg(feature = "pdf")]
pub(crate) mod pdf;
pub(crate) mod record;
pub(crate) mod reported;
pub(crate) mod store;
pub(crate) mod view;

pub use events::{
    AttestationEvent, EventCommit, EventDetails, EventRepo, EventSource, EventView, RunEvent, TrailData,
};
pub use operations::{BeginTrail, GetTrail, ListTrails, ListTrailsOfFlow, TrailExpansion, TrailInput};
#[cfg(feature = "pdf")]
pub use pdf::GetAuditPdf;
pub use record::{Trail, TrailLabel, TrailVersion};
pub use store::{Reported, TrailContents, TrailEntry, TrailFilter, TrailStore};
pub use view::{
    ArtifactCompliance, ComplianceStatus, TemplateView, TrailCommit, TrailDocument, TrailFlow, TrailList,
    TrailView,
};
