//! The queries about snapshots and their artifacts that a store answers.

use std::ops::{Add, AddAssign, RangeInclusive};

use async_trait::async_trait;

use crate::id::Id;
use crate::name::{EnvironmentName, Fingerprint};
use crate::page::{Listed, Page, PageRequest, SortDirection};
use crate::rules::compliance::State;
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::record::{LogicalVerdict, RunningArtifact, Snapshot};
use crate::store::entry::Current;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// An artifact instance in a snapshot: running in it, or exited with it.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotEntry {
    /// The instance.
    pub instance: RunningArtifact,
    /// Whether it ran in the previous snapshot and no longer runs in this one.
    pub exited: bool,
}

/// A snapshot in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRow {
    /// The environment.
    pub environment: Id,
    /// Its number.
    pub index: u64,
    /// When it was taken.
    pub at: Timestamp,
    /// When the next one was taken; `None` for the current one.
    pub until: Option<Timestamp>,
    /// Whether it is compliant.
    pub compliant: bool,
    /// The number of events of the environment, including those of this snapshot.
    pub events: u64,
    /// The ledger index of the fact that took it.
    pub revision: u64,
    /// Its verdicts for logical environments that have their own policies.
    pub logical: Vec<LogicalVerdict>,
}

/// The progress of an environment at some point of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// The number of snapshots.
    pub snapshots: u64,
    /// The number of events in these snapshots.
    pub events: u64,
}

impl Add for Progress {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { snapshots: self.snapshots + other.snapshots, events: self.events + other.events }
    }
}

impl AddAssign for Progress {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// An uninterrupted run of an artifact in an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The artifact's fingerprint.
    pub fingerprint: Fingerprint,
    /// The environment's id.
    pub environment: Id,
    /// The environment's name.
    pub environment_name: EnvironmentName,
    /// Whether the environment is archived. It gets no more reports, so it is unknown whether its last
    /// artifacts still run.
    pub archived: bool,
    /// The first snapshot, and when it was taken.
    pub from: (u64, Timestamp),
    /// The snapshot in which the run had ended, and when it was taken; `None` while the run lasts.
    pub until: Option<(u64, Timestamp)>,
}

/// An event of an artifact in a snapshot: it started, changed or stopped.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The environment.
    pub environment: Id,
    /// Its number among the events of the environment, from 1.
    pub number: u64,
    /// The snapshot, and when it was taken.
    pub snapshot: (u64, Timestamp),
    /// The ledger index of the fact that took it.
    pub revision: u64,
    /// The verdict of the snapshot.
    pub compliant: bool,
    /// The artifact as it runs from this snapshot on or, if it stopped, as it ran last.
    pub instance: RunningArtifact,
    /// Whether the artifact stopped.
    pub exited: bool,
}

/// The size of an event, and its place in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventSize {
    /// The environment.
    pub environment: Id,
    /// Its number among the events of the environment, from 1.
    pub number: u64,
    /// The ledger index of the fact that took its snapshot.
    pub revision: u64,
    /// The size of its artifact as stored, in bytes.
    pub bytes: u64,
}

impl Run {
    /// Returns whether the artifact is known to run there now.
    pub const fn lasts(&self) -> bool {
        self.until.is_none() && !self.archived
    }
}

/// The start of a run, to find the artifact that it replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The environment.
    pub environment: Id,
    /// The flow that the artifact was reported to.
    pub flow: Id,
    /// The artifact's template name in the report; empty without one.
    pub reference: String,
    /// The first snapshot of the run.
    pub since: u64,
    /// The artifact.
    pub artifact: ArtifactKey,
}

/// The artifact that ran before with the same template name in the same flow, or with any name if the start
/// has none. Has the data from the end of that run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// The index of the start among those in the query, from 0.
    pub place: u64,
    /// The report that identified it in the flow.
    pub report: Id,
    /// The SHA-256 of the artifact; `None` if the environment did not know it.
    pub fingerprint: Option<Fingerprint>,
    /// Its name in the environment.
    pub name: String,
    /// Its state in the trail of that report; `None` if the report was no longer its origin.
    pub state: Option<State>,
    /// The snapshot in which that run had ended; `None` while it lasts.
    pub until: Option<u64>,
}

/// A build of a repo that runs in an environment now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveBuild {
    /// Its first report that names the repo, and the size of that report.
    pub report: Listed,
    /// The environment.
    pub environment: Id,
    /// Its name in the environment.
    pub name: String,
    /// The first snapshot of the run, and when it was taken.
    pub since: (u64, Timestamp),
    /// Whether it is allowed to run; `None` without policies.
    pub compliant: Option<bool>,
}

/// The number of earlier runs that are searched for the replaced artifact. If an artifact restarted more
/// often since then, no replaced artifact is found; otherwise a query could have to read all runs.
pub const REPLACED_AMONG: u64 = 1_000;

/// Queries about snapshots.
#[async_trait]
pub trait SnapshotStore: Send + Sync {
    /// Returns the record of snapshot `index` of an environment, with the ledger index of the fact that took
    /// it.
    async fn snapshot(&self, org: Id, environment: Id, index: u64) -> StoreResult<Option<Current<Snapshot>>>;
    /// Returns the existing snapshots with these numbers, sorted by environment and number. A snapshot in
    /// several ranges is returned once for each.
    async fn snapshots(&self, org: Id, ranges: &[(Id, RangeInclusive<u64>)])
    -> StoreResult<Vec<SnapshotRow>>;
    /// Returns the progress of these environments before the entries with these indexes, in the same order.
    async fn progress(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<Progress>>;
    /// Returns the number of the last snapshot of an environment at or before `at`; 0 if there is none. Of
    /// snapshots with equal times, returns the greatest number. Snapshots are numbered by time.
    async fn snapshot_at(&self, org: Id, environment: Id, at: Timestamp) -> StoreResult<u64>;
    /// Returns the artifacts that run in snapshot `index` of an environment, and those that exited with it,
    /// sorted by artifact key (bytes).
    async fn instances(&self, org: Id, environment: Id, index: u64) -> StoreResult<Vec<SnapshotEntry>>;
    /// Returns the runs of the artifacts with these digests, sorted by environment, fingerprint and first
    /// snapshot. For each artifact in each environment, returns the first run and the last `newest` ones.
    async fn runs(&self, org: Id, fingerprints: &[Fingerprint], newest: u32) -> StoreResult<Vec<Run>>;
    /// Returns the builds of this repo that run now in environments that are not archived. Only the newest
    /// `reports` artifact reports that name the repo count. The builds are sorted by the environment's name
    /// and the artifact's fingerprint (bytes). Returns the first `limit`, each with the first of those
    /// reports.
    async fn live_builds(&self, org: Id, repo: Id, reports: u64, limit: u64) -> StoreResult<Vec<LiveBuild>>;
    /// Returns the sizes and ledger indexes of the events of environments with these numbers, in any order.
    /// Unknown events are skipped.
    async fn event_sizes(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<EventSize>>;
    /// Returns the events of environments with these numbers, in any order. Unknown events are skipped.
    async fn events(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<Event>>;
    /// Returns one page of the numbers of an environment's events, and their total. Only events of artifacts
    /// count for which [`provenance`](crate::artifacts::ArtifactStore::provenance) has a report that names
    /// one of these repos. The numbers are in the given range and direction.
    async fn event_numbers(
        &self,
        org: Id,
        environment: Id,
        (range, direction): (RangeInclusive<u64>, SortDirection),
        repos: &[Id],
        request: PageRequest,
    ) -> StoreResult<Page<u64>>;
    /// Returns the artifact that each of these starts replaced, at most one each, in any order.
    ///
    /// The candidates are the other artifacts in the environment with the same template name in the same
    /// flow, or with any if the start has none. Only runs that began before count, and of these the newest
    /// [`REPLACED_AMONG`]. The run that began last is selected. If several began with the same snapshot, the
    /// greatest key is selected; of several template names that it had, the greatest (bytes).
    async fn replaced(&self, org: Id, starts: &[Start]) -> StoreResult<Vec<Replaced>>;
}
