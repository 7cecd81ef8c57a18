//! Snapshots: what ran in an environment, when, and whether it was allowed to. Kept as intervals: an artifact runs
//! from one snapshot until another, so a report costs what changed and not what runs.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id::Id;
use crate::name::Fingerprint;
use crate::rules::compliance::State;
use crate::store::{Current, StoreResult};
use crate::time::Timestamp;

/// A snapshot as it is recorded: what changed since the one before, and the verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The environment.
    pub environment: Id,
    /// Its number there, from 1.
    pub index: u64,
    /// When it was taken.
    pub at: Timestamp,
    /// Whether everything that runs may.
    pub compliant: bool,
    /// The policies it was judged by.
    pub policies: Vec<AppliedPolicy>,
    /// Artifacts that began to run, or whose data differ from the snapshot before.
    pub changes: Vec<Instance>,
    /// Artifacts that no longer run.
    pub exits: Vec<Fingerprint>,
}

/// A policy that a snapshot was judged by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedPolicy {
    /// The policy.
    pub policy: Id,
    /// Which version of it.
    pub version: u64,
}

/// An artifact running in an environment, unchanged since snapshot `from`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// The SHA-256 of what runs.
    pub fingerprint: Fingerprint,
    /// Its name, as the environment knows it.
    pub name: String,
    /// When its instances were created, in epoch seconds, ascending; their number is the instance count.
    pub created: Vec<i64>,
    /// The first snapshot with these data.
    pub from: u64,
    /// What made it differ in that snapshot.
    pub annotation: Annotation,
    /// Whether it may run; nothing without policies.
    pub compliant: Option<bool>,
    /// Where it comes from: its newest report in each flow, and its state there.
    pub provenance: Vec<Provenance>,
    /// The policies' verdicts, in the form of the answer's `policy_decisions`.
    pub policy_decisions: Value,
}

/// Where a running artifact comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provenance {
    /// The artifact report.
    pub artifact: Id,
    /// Its state in that report's trail.
    pub state: State,
}

/// What made an artifact differ from the snapshot before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotation {
    /// `started-compliant`, `became-non-compliant`, `updated-provenance`, `changed`, `exited`, `unchanged`, ….
    #[serde(rename = "type")]
    pub kind: String,
    /// Instances in the snapshot before.
    pub was: u64,
    /// Instances in this one.
    pub now: u64,
}

/// An instance in a snapshot: running in it, or gone with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// The instance.
    pub instance: Instance,
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
}

/// A stretch in which an artifact ran in an environment with the same data. Stretches that meet are one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch {
    /// The artifact.
    pub fingerprint: Fingerprint,
    /// The environment's id.
    pub environment: Id,
    /// The first snapshot.
    pub from: u64,
    /// When that was taken.
    pub from_at: Timestamp,
    /// The snapshot in which it had ended, and when that was taken; nothing while it lasts.
    pub until: Option<(u64, Timestamp)>,
    /// Whether it ended because the artifact no longer ran.
    pub exited: bool,
}

/// Questions about snapshots.
#[async_trait]
pub trait SnapshotStore: Send + Sync {
    /// The record of snapshot `index`, with the ledger index of the fact that took it.
    async fn snapshot(&self, org: Id, environment: Id, index: u64) -> StoreResult<Option<Current<Snapshot>>>;
    /// The lines of snapshots `first..=last`, newest first unless `ascending`; at most `limit` after `offset`.
    async fn snapshots(
        &self,
        org: Id,
        environment: Id,
        range: std::ops::RangeInclusive<u64>,
        ascending: bool,
        window: crate::page::Window,
    ) -> StoreResult<Vec<SnapshotRow>>;
    /// The number of the newest snapshot taken at or before `at`; 0 when there is none.
    async fn snapshot_at(&self, org: Id, environment: Id, at: Timestamp) -> StoreResult<u64>;
    /// What runs in snapshot `index`, and what exited with it, by fingerprint.
    async fn instances(&self, org: Id, environment: Id, index: u64) -> StoreResult<Vec<Placed>>;
    /// Where and when these artifacts ran, ordered by environment, fingerprint and first snapshot.
    async fn stretches(&self, org: Id, fingerprints: &[Fingerprint]) -> StoreResult<Vec<Stretch>>;
}
