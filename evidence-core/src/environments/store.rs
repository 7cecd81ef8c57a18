//! What a store answers about environments.

use async_trait::async_trait;

use crate::environments::record::Environment;
use crate::fact::names::{Guard, Key, RecordKind};
use crate::id::Id;
use crate::page::Listed;
use crate::rules::policy;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// What reports made of an environment. It is no part of the record that guards watch: a hundred machines that report
/// that nothing changed must hold up nobody who changes a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EnvironmentStatus {
    /// How many snapshots it has; they are numbered from 1.
    pub snapshots: u64,
    /// How many events these tell; they are numbered from 1, too.
    pub events: u64,
    /// When the latest one was taken.
    pub changed_at: Option<Timestamp>,
    /// Whether it is compliant.
    pub compliant: Option<bool>,
    /// When it was last reported on; reports that tell nothing new are noted once in
    /// [`Settings::heartbeat_interval`](crate::Settings::heartbeat_interval).
    pub reported_at: Option<Timestamp>,
}

/// A logical environment has a member from an entry of the ledger on, or no more; or its policies may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberChange {
    /// The index of the entry.
    pub entry: u64,
    /// The member. It is the logical environment itself where the entry changed its settings and no members.
    pub member: Id,
    /// Whether it is one from then on; true of the environment itself.
    pub joined: bool,
}

/// An environment as a store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownEnvironment {
    /// The ledger index of the newest fact about its settings.
    pub revision: u64,
    /// The ledger index of the newest report that was noted.
    pub reported: Option<u64>,
    /// Its settings.
    pub record: Environment,
    /// How it stands.
    pub status: EnvironmentStatus,
    /// Whether it is archived: no list shows it, and no logical environment counts it.
    pub archived: bool,
}

impl KnownEnvironment {
    /// The verdict of the latest snapshot; nothing without snapshots, and where neither policies nor required provenance
    /// judge what runs.
    pub fn state(&self) -> Option<bool> {
        let is_judged = !self.record.policies.is_empty() || self.record.require_provenance;
        policy::environment_state(self.status.compliant, is_judged)
    }

    /// Holds while nobody changed the settings.
    pub(crate) fn unchanged(&self) -> Guard {
        Guard::Revision(RecordKind::Environment, self.record.id, self.revision)
    }

    /// Holds while no report was noted: of many that come at the same time one is.
    pub(crate) fn unreported(&self) -> Option<Guard> {
        Some(Guard::Revision(RecordKind::Report, self.record.id, self.reported?))
    }

    /// Holds while the latest snapshot is still that.
    pub(crate) fn latest(&self) -> Guard {
        Guard::Vacant(Key::Snapshot { environment: self.record.id, index: self.status.snapshots + 1 })
    }
}

/// Queries about environments.
#[async_trait]
pub trait EnvironmentStore: Send + Sync {
    /// The environment of this name, one, with its revision.
    async fn environment(&self, org: Id, name: &str) -> StoreResult<Option<KnownEnvironment>>;
    /// Whether an environment of this name is archived: the name that it had last. Another may have it now.
    async fn archived_environment(&self, org: Id, name: &str) -> StoreResult<bool>;
    /// All environments of the organization but for the archived ones, by name (bytes).
    async fn environments(&self, org: Id) -> StoreResult<Vec<KnownEnvironment>>;
    /// The same list, all of it, without what is known of the environments.
    async fn environments_listed(&self, org: Id) -> StoreResult<Vec<Listed>>;
    /// The changes of the members and of the policies of a logical environment, by entry, of one entry by member: all of them.
    async fn member_changes(&self, org: Id, environment: Id) -> StoreResult<Vec<MemberChange>>;
    /// The logical environments that these environments are or were members of, each once, in any order.
    async fn logical_environments(&self, org: Id, members: &[Id]) -> StoreResult<Vec<Id>>;
    /// The environments of these ids, archived ones too, one an id, in any order; unknown ids are passed over.
    async fn environments_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<KnownEnvironment>>;
}
