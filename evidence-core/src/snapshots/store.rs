//! What a store answers about snapshots and what runs in them.

use std::ops::RangeInclusive;

use async_trait::async_trait;

use crate::id::Id;
use crate::name::{EnvironmentName, Fingerprint};
use crate::page::Listed;
use crate::snapshots::record::{RunningArtifact, Snapshot};
use crate::store::entry::Current;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// An instance in a snapshot: running in it, or gone with it.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotEntry {
    /// The instance.
    pub instance: RunningArtifact,
    /// Whether it ran in the snapshot before and no longer runs in this one.
    pub exited: bool,
}

/// A snapshot's line in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotRow {
    /// Its number.
    pub index: u64,
    /// When it was taken.
    pub at: Timestamp,
    /// When the next one was taken; nothing for the current one.
    pub until: Option<Timestamp>,
    /// Its verdict.
    pub compliant: bool,
    /// The ledger index of the fact that took it.
    pub revision: u64,
}

/// An uninterrupted run of an artifact in an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The artifact.
    pub fingerprint: Fingerprint,
    /// The environment's id.
    pub environment: Id,
    /// The environment's name.
    pub environment_name: EnvironmentName,
    /// The first snapshot, and when that was taken.
    pub from: (u64, Timestamp),
    /// The snapshot in which it had ended, and when that was taken; nothing while it lasts.
    pub until: Option<(u64, Timestamp)>,
}

/// A build of a repo that runs in an environment now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveBuild {
    /// The first report of it that names the repo, and its size.
    pub report: Listed,
    /// The environment.
    pub environment: Id,
    /// Its name, as the environment knows it.
    pub name: String,
    /// The first snapshot of the run, and when that was taken.
    pub since: (u64, Timestamp),
    /// Whether it may run; nothing without policies.
    pub compliant: Option<bool>,
}

/// Queries about snapshots.
#[async_trait]
pub trait SnapshotStore: Send + Sync {
    /// The record of snapshot `index` of an environment, one, with the ledger index of the fact that took it.
    async fn snapshot(&self, org: Id, environment: Id, index: u64) -> StoreResult<Option<Current<Snapshot>>>;
    /// The lines of the snapshots of an environment with these numbers, by number: all that there are.
    async fn snapshots(
        &self,
        org: Id,
        environment: Id,
        range: RangeInclusive<u64>,
    ) -> StoreResult<Vec<SnapshotRow>>;
    /// The number of the snapshot of an environment taken last at or before `at`, one: that of the latest time, of equal ones
    /// the greatest number; 0 when there is none.
    async fn snapshot_at(&self, org: Id, environment: Id, at: Timestamp) -> StoreResult<u64>;
    /// All that runs in snapshot `index` of an environment, and all that exited with it, by artifact key (bytes).
    async fn instances(&self, org: Id, environment: Id, index: u64) -> StoreResult<Vec<SnapshotEntry>>;
    /// Where and when the artifacts with these digests ran, ordered by environment, fingerprint and first snapshot: of each
    /// artifact in each environment the first run and the `newest` last ones.
    async fn runs(&self, org: Id, fingerprints: &[Fingerprint], newest: u32) -> StoreResult<Vec<Run>>;
    /// What the newest `reports` artifact reports that name this repo are about and runs now in environments that are not
    /// archived, by the environment's name and the artifact's fingerprint (bytes): the first `limit`, each with the first of
    /// those reports.
    async fn live_builds(&self, org: Id, repo: Id, reports: u64, limit: u64) -> StoreResult<Vec<LiveBuild>>;
}
