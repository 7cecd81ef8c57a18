//! Events of an environment, with their numbers.

use crate::name::EnvironmentName;
use crate::snapshots::record::RunningArtifact;
use crate::snapshots::sources::RanArtifact;
use crate::snapshots::store::Event;
use crate::time::Timestamp;

/// An event in the form of the environment whose log contains it.
pub(crate) struct NumberedEvent {
    /// The event.
    pub(crate) event: Event,
    /// The number of the snapshot in that environment.
    pub(crate) index: u64,
    /// When that snapshot was taken.
    pub(crate) at: Timestamp,
    /// Whether all artifacts in it were allowed.
    pub(crate) compliant: bool,
    /// The member of a logical environment that the event belongs to.
    pub(crate) member: Option<EnvironmentName>,
}

impl RanArtifact for NumberedEvent {
    fn ran(&self) -> &RunningArtifact {
        &self.event.instance
    }
}
