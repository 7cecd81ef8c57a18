//! Snapshots: the artifacts that ran in an environment at a time, and whether they were allowed. They are
//! stored as intervals: an artifact runs from one snapshot until another, so the cost of a report depends on
//! the changes, not on what runs.

pub(crate) mod applied;
pub(crate) mod bound;
pub(crate) mod diff;
pub(crate) mod expression;
pub(crate) mod key;
pub(crate) mod logical;
pub(crate) mod numbered_event;
pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod sources;
pub(crate) mod store;
pub(crate) mod timeline;
pub(crate) mod view;

pub use applied::{AppliedPolicyView, FailingArtifacts};
pub use bound::Bound;
pub use diff::{CompareSnapshots, DiffArtifact, DiffSection, EnvironmentDiff, SharedSection};
pub use expression::{Expression, Interval, InvalidExpression, InvalidInterval, Position, Unit};
pub use key::ArtifactKey;
pub use operations::{GetSnapshot, ListSnapshots};
pub use record::{
    Annotation, AppliedPolicy, DeploymentSource, LogicalVerdict, PolicyDecision, PolicyOutcome, Provenance,
    RunningArtifact, Snapshot,
};
pub use sources::{ArtifactFlow, DeploymentDiff, FlowReason};
pub use store::{
    Event, EventSize, LiveBuild, Progress, REPLACED_AMONG, Replaced, Run, SnapshotEntry, SnapshotRow,
    SnapshotStore, Start,
};
pub use view::{SnapshotArtifact, SnapshotSummary, SnapshotView};
