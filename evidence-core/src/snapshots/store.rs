//! What a store answers about snapshots and what runs in them.

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

/// An instance in a snapshot: running in it, or gone with it.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotEntry {
    /// The instance.
    pub instance: RunningArtifact,
    /// Whether it ran in the snapshot before and no longer runs in this one.
    pub exited: bool,
}

/// A snapshot's line in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRow {
    /// The environment.
    pub environment: Id,
    /// Its number.
    pub index: u64,
    /// When it was taken.
    pub at: Timestamp,
    /// When the next one was taken; nothing for the current one.
    pub until: Option<Timestamp>,
    /// Whether it is compliant.
    pub compliant: bool,
    /// How many events the environment has with it.
    pub events: u64,
    /// The ledger index of the fact that took it.
    pub revision: u64,
    /// What it says about logical environments that have policies of their own.
    pub logical: Vec<LogicalVerdict>,
}

/// How far the snapshots of an environment had come at some point of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// How many snapshots it had.
    pub snapshots: u64,
    /// How many events these tell.
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
    /// The artifact.
    pub fingerprint: Fingerprint,
    /// The environment's id.
    pub environment: Id,
    /// The environment's name.
    pub environment_name: EnvironmentName,
    /// Whether the environment is archived: nobody reports on it any more, so that what ran there last is not known to run.
    pub archived: bool,
    /// The first snapshot, and when that was taken.
    pub from: (u64, Timestamp),
    /// The snapshot in which it had ended, and when that was taken; nothing while it lasts.
    pub until: Option<(u64, Timestamp)>,
}

/// What happened to an artifact with a snapshot: it began to run, differed, or no longer ran.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The environment.
    pub environment: Id,
    /// Its number among those of the environment, from 1.
    pub number: u64,
    /// The snapshot, and when that was taken.
    pub snapshot: (u64, Timestamp),
    /// The ledger index of the fact that took it.
    pub revision: u64,
    /// The verdict of the snapshot.
    pub compliant: bool,
    /// The artifact: as it ran from this snapshot on or, where it no longer ran, as it ran last.
    pub instance: RunningArtifact,
    /// Whether it no longer ran.
    pub exited: bool,
}

/// How large an event is, and where it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventSize {
    /// The environment.
    pub environment: Id,
    /// Its number among those of the environment, from 1.
    pub number: u64,
    /// The ledger index of the fact that took its snapshot.
    pub revision: u64,
    /// How many bytes the artifact is that it is about, as it is stored.
    pub bytes: u64,
}

impl Run {
    /// Whether the artifact is known to run there now.
    pub const fn lasts(&self) -> bool {
        self.until.is_none() && !self.archived
    }
}

/// The beginning of a run, of which what it replaced is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The environment.
    pub environment: Id,
    /// The flow that the artifact was reported to.
    pub flow: Id,
    /// What the report calls it in the template; empty without a name.
    pub reference: String,
    /// The first snapshot of the run.
    pub since: u64,
    /// The artifact.
    pub artifact: ArtifactKey,
}

/// What ran before under the same name of the same flow, or under any of it where the start has none, as it ran last in the run
/// that began then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// The place of the start among those that were asked about, from 0.
    pub place: u64,
    /// The report by which it was known in the flow.
    pub report: Id,
    /// The SHA-256 of what ran; nothing where the environment knew none.
    pub fingerprint: Option<Fingerprint>,
    /// Its name, as the environment knew it.
    pub name: String,
    /// Its state in the trail of that report; nothing where it no longer came from it.
    pub state: Option<State>,
    /// The snapshot in which that run had ended; nothing while it lasts.
    pub until: Option<u64>,
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

/// What a start replaced is looked for among so many runs before it: one that was restarted more often since the other ran
/// replaced nothing that is known, rather than that all of them are read.
pub const REPLACED_AMONG: u64 = 1_000;

/// Queries about snapshots.
#[async_trait]
pub trait SnapshotStore: Send + Sync {
    /// The record of snapshot `index` of an environment, one, with the ledger index of the fact that took it.
    async fn snapshot(&self, org: Id, environment: Id, index: u64) -> StoreResult<Option<Current<Snapshot>>>;
    /// The lines of the snapshots of environments with these numbers, by environment and number: all that there are. What
    /// lies in several ranges comes as often.
    async fn snapshots(&self, org: Id, ranges: &[(Id, RangeInclusive<u64>)])
    -> StoreResult<Vec<SnapshotRow>>;
    /// How far these environments were before the entries of these indexes, in this order.
    async fn progress(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<Progress>>;
    /// The number of the snapshot of an environment taken last at or before `at`, one: of equal times the greatest
    /// number; 0 when there is none. Snapshots are numbered by time.
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
    /// How large the events of environments are that have these numbers, and which entries of the ledger led to them, in any
    /// order; unknown ones are passed over.
    async fn event_sizes(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<EventSize>>;
    /// The events of environments that have these numbers, in any order; unknown ones are passed over.
    async fn events(&self, org: Id, asked: &[(Id, u64)]) -> StoreResult<Vec<Event>>;
    /// The numbers, in this range and in this direction, of the events of an environment that are about artifacts of which
    /// [`provenance`](crate::artifacts::ArtifactStore::provenance) has a report that names one of these repos: a page, and the
    /// total.
    async fn event_numbers(
        &self,
        org: Id,
        environment: Id,
        (range, direction): (RangeInclusive<u64>, SortDirection),
        repos: &[Id],
        request: PageRequest,
    ) -> StoreResult<Page<u64>>;
    /// What these starts replaced, one each at most, in any order: of the other artifacts that were known in the environment
    /// by the same name in the same flow, or by any where the start has no name, and began to run before, the one that began
    /// last; of several that began with the same snapshot, the one of the greatest key, and of several names that it had there
    /// the greatest (bytes). It is looked for among the newest [`REPLACED_AMONG`] that began before.
    async fn replaced(&self, org: Id, starts: &[Start]) -> StoreResult<Vec<Replaced>>;
}
