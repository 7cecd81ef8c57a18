//! The queries about environments that a store answers.

use async_trait::async_trait;

use crate::environments::record::Environment;
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::id::Id;
use crate::page::Listed;
use crate::rules::policy;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// The state of an environment that follows from its reports. It is separate from the record that
/// preconditions watch: frequent reports without changes must not delay a change of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EnvironmentStatus {
    /// The number of its snapshots. They are numbered from 1.
    pub snapshots: u64,
    /// The number of events in its snapshots. They are numbered from 1 too.
    pub events: u64,
    /// When the latest snapshot was taken.
    pub changed_at: Option<Timestamp>,
    /// Whether the latest snapshot is compliant.
    pub compliant: Option<bool>,
    /// When the last report arrived. Reports without changes are recorded once in
    /// [`Settings::heartbeat_interval`](crate::Settings::heartbeat_interval).
    pub reported_at: Option<Timestamp>,
}

/// A change of a logical environment at a ledger entry: a member joined or left, or its policies may have
/// changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberChange {
    /// The index of the entry.
    pub entry: u64,
    /// The member. If the entry changed the settings but no members, the logical environment itself.
    pub member: Id,
    /// Whether it is a member from this entry on; true for the environment itself.
    pub joined: bool,
}

/// An environment with its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownEnvironment {
    /// The ledger index of the newest fact about its settings.
    pub revision: u64,
    /// The ledger index of the newest recorded report.
    pub reported: Option<u64>,
    /// Its settings.
    pub record: Environment,
    /// Its state.
    pub status: EnvironmentStatus,
    /// Whether it is archived. Lists leave archived environments out, and logical environments ignore them.
    pub archived: bool,
}

impl KnownEnvironment {
    /// Returns the verdict of the latest snapshot. `None` without snapshots, or with neither policies nor
    /// required provenance.
    pub fn state(&self) -> Option<bool> {
        let is_judged = !self.record.policies.is_empty() || self.record.require_provenance;
        policy::environment_state(self.status.compliant, is_judged)
    }

    /// Returns a precondition that holds while the settings are unchanged.
    pub(crate) fn unchanged(&self) -> Precondition {
        Precondition::Revision(RecordKind::Environment, self.record.id, self.revision)
    }

    /// Returns a precondition that holds while no further report is recorded. Of many simultaneous reports,
    /// only one is recorded.
    pub(crate) fn unreported(&self) -> Option<Precondition> {
        Some(Precondition::Revision(RecordKind::Report, self.record.id, self.reported?))
    }

    /// Returns a precondition that holds while the latest snapshot is the same.
    pub(crate) fn latest(&self) -> Precondition {
        Precondition::Vacant(Key::Snapshot { environment: self.record.id, index: self.status.snapshots + 1 })
    }
}

/// Queries about environments.
#[async_trait]
pub trait EnvironmentStore: Send + Sync {
    /// Returns the environment of this name, with its revision.
    async fn environment(&self, org: Id, name: &str) -> StoreResult<Option<KnownEnvironment>>;
    /// Returns whether an archived environment had this name last. Another environment may have the name now.
    async fn archived_environment(&self, org: Id, name: &str) -> StoreResult<bool>;
    /// Returns all environments of the organization, without archived ones, sorted by name (bytes).
    async fn environments(&self, org: Id) -> StoreResult<Vec<KnownEnvironment>>;
    /// Returns the same list without the environments' content.
    async fn environments_listed(&self, org: Id) -> StoreResult<Vec<Listed>>;
    /// Returns all changes of the members and the policies of a logical environment, sorted by entry and then
    /// by member.
    async fn member_changes(&self, org: Id, environment: Id) -> StoreResult<Vec<MemberChange>>;
    /// Returns the logical environments that these environments are or were members of, each once, in any
    /// order.
    async fn logical_environments(&self, org: Id, members: &[Id]) -> StoreResult<Vec<Id>>;
    /// Returns the environments of these ids, archived ones included, one per id, in any order. Unknown ids
    /// are skipped.
    async fn environments_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<KnownEnvironment>>;
}
