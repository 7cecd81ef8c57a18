//! The queries about artifacts that a store answers.

use async_trait::async_trait;

use crate::artifacts::record::Artifact;
use crate::flows::record::Flow;
use crate::id::Id;
use crate::name::{CommitSha, Fingerprint};
use crate::page::{Listed, Page, PageRequest};
use crate::rules::compliance::ReportedArtifact;
use crate::snapshots::store::Run;
use crate::store::error::StoreResult;
use crate::texts::record::TextRef;
use crate::time::Timestamp;
use crate::trails::record::TrailVersion;

impl Artifact {
    /// Returns the part of the report that compliance depends on, for a report at this ledger index.
    pub fn row(&self, index: u64) -> ArtifactRow {
        let Self { id, flow, trail, fingerprint, template_reference_name, .. } = self;
        ArtifactRow {
            id: *id,
            flow: *flow,
            trail: *trail,
            fingerprint: fingerprint.clone(),
            template_reference_name: template_reference_name.clone(),
            commit: self.commit().to_owned(),
            repo: self.repo,
            committed_at: self.committed_at(),
            template: self.own_template(),
            at: self.created_at,
            index,
        }
    }
}

impl From<&ArtifactRow> for ReportedArtifact {
    fn from(row: &ArtifactRow) -> Self {
        Self {
            id: row.id.to_string(),
            fingerprint: row.fingerprint.to_string(),
            name: row.template_reference_name.clone(),
            commit: row.commit.clone(),
            at: row.at,
            index: row.index,
        }
    }
}

/// The part of an artifact report that compliance depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactRow {
    /// The report's id.
    pub id: Id,
    /// The flow it was reported to.
    pub flow: Id,
    /// The trail it was reported to, if any.
    pub trail: Option<Id>,
    /// The SHA-256 of the content.
    pub fingerprint: Fingerprint,
    /// Its template name; `""` without one.
    pub template_reference_name: String,
    /// The commit that it was built from, as reported; `""` without one.
    pub commit: String,
    /// The repo that it names, if any.
    pub repo: Option<Id>,
    /// The time of the commit, if reported.
    pub committed_at: Option<Timestamp>,
    /// The template text to evaluate a report to a flow as a whole. `None` for a report to a trail, and for
    /// [`EMPTY_TEMPLATE`](crate::flows::EMPTY_TEMPLATE).
    pub template: Option<TextRef>,
    /// When it was reported.
    pub at: Timestamp,
    /// Its ledger index: larger is newer.
    pub index: u64,
}

/// The origin of content in one flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The report to evaluate it by.
    pub report: ArtifactRow,
    /// The template name in the flow's newest report with one; reports to trails take precedence over others.
    /// `""` if no report has a name.
    pub last_name: String,
}

/// A template name that content was given in a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenName {
    /// The flow.
    pub flow: Id,
    /// The SHA-256 of the content.
    pub fingerprint: Fingerprint,
    /// The name.
    pub name: String,
    /// The ledger index of the first report with this name.
    pub first: u64,
}

/// A filter for lists of artifacts. All given conditions must match.
#[derive(Debug, Clone, Default)]
pub struct ArtifactFilter {
    /// Reported to this flow.
    pub flow: Option<Id>,
    /// Reported to this trail.
    pub trail: Option<Id>,
    /// With this template name.
    pub name: Option<String>,
    /// With this report id.
    pub id: Option<Id>,
    /// With a fingerprint that begins with this.
    pub fingerprint: Option<String>,
    /// Built from a commit that was reported in full and begins with this.
    pub commit: Option<String>,
    /// From a commit on this branch (`git_commit_info.branch`).
    pub branch: Option<String>,
    /// From one of these repos.
    pub repos: Option<Vec<Id>>,
    /// Only reports with a full commit hash.
    pub with_commit: bool,
}

/// A query for one artifact of a flow.
#[derive(Debug, Clone, Copy)]
pub struct ArtifactQuery<'a> {
    /// The flow's present or former name.
    pub flow: &'a str,
    /// The artifact's fingerprint.
    pub fingerprint: &'a Fingerprint,
    /// Reported to the trail of this name.
    pub trail: Option<&'a str>,
    /// With this report id.
    pub id: Option<Id>,
    /// How many of the newest runs in each environment to return, beside the first. `None` returns no runs.
    pub newest_runs: Option<u32>,
}

/// An artifact report with the version of its trail and the runs of its content, which are read in one query.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactWithRuns {
    /// The report.
    pub artifact: Artifact,
    /// The version of its trail; `None` if it was reported to none.
    pub version: Option<TrailVersion>,
    /// The runs of its fingerprint, as [`SnapshotStore::runs`](crate::snapshots::SnapshotStore::runs) returns
    /// them.
    pub runs: Vec<Run>,
}

/// A page of artifact reports without their total.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ArtifactPage {
    /// The reports of the page, in order.
    pub listed: Vec<Listed>,
    /// The content of some of them, in any order and at most a megabyte. A store may return the small reports of
    /// a short page, which saves callers a query.
    pub content: Vec<Artifact>,
}

/// The fingerprints, or commits, with a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matches<T = Fingerprint> {
    /// The number of different matches.
    pub count: u64,
    /// The first matches, sorted by bytes.
    pub first: Vec<T>,
}

/// The matches of a fingerprint or commit prefix in an organization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The fingerprints of reported artifacts and of artifacts that ran.
    pub fingerprints: Matches,
    /// The full commit hashes that artifacts were built from.
    pub commits: Matches<CommitSha>,
    /// The matching artifact reports.
    pub reports: Vec<Listed>,
    /// The matching artifacts that ran but were never reported.
    pub unreported: Vec<Unreported>,
}

/// An artifact that ran but was never reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreported {
    /// The SHA-256 of its content.
    pub fingerprint: Fingerprint,
    /// The name that it ran under.
    pub name: String,
}

/// Queries about artifacts.
#[async_trait]
pub trait ArtifactStore: Send + Sync {
    /// Returns the different fingerprints in this flow that begin with `prefix`, sorted by bytes: the first
    /// `limit`, and the total.
    async fn fingerprints(&self, org: Id, flow: Id, prefix: &str, limit: u64) -> StoreResult<Matches>;
    /// Returns everything that begins with `prefix`, which consists of hex digits. Each list has its first
    /// `limit` items:
    ///
    /// - `fingerprints`: the different ones that were reported to any flow or ran in any environment, by
    ///   bytes, and their total.
    /// - `commits`: the different full hashes that artifacts were built from, by bytes, and their total.
    /// - `reports`: the newest report of each matching fingerprint and flow, in descending order of ledger
    ///   index. A report matches by its fingerprint or its commit.
    /// - `unreported`: the fingerprints that were never reported, by bytes. Each has the name of its newest
    ///   run in the environment with the lowest id.
    async fn search(&self, org: Id, prefix: &str, limit: u64) -> StoreResult<Found>;
    /// Returns one page of the artifact reports that match the filter, and their total. The order is newest
    /// first by ledger index.
    async fn artifacts(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Artifact>>;
    /// Returns the same page as [`artifacts`](Self::artifacts), without the total and with the content of some
    /// reports at most.
    async fn artifacts_listed(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<ArtifactPage>;
    /// Returns the flow, and the newest report that matches the query; `None` if there is no such flow.
    async fn artifact_of_flow(
        &self,
        org: Id,
        query: ArtifactQuery<'_>,
    ) -> StoreResult<Option<(Flow, Option<ArtifactWithRuns>)>>;
    /// Returns the first item of the same list, without counting the others.
    async fn latest_artifact(&self, org: Id, filter: &ArtifactFilter) -> StoreResult<Option<Artifact>>;
    /// Returns the reports of these ids, one per id, in any order. Unknown ids are skipped.
    async fn artifacts_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Artifact>>;
    /// Returns the sizes of the reports of these ids, one per id, in any order. Unknown ids are skipped.
    async fn artifact_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>>;
    /// Returns all reports of this fingerprint to this flow, oldest first by ledger index.
    async fn reports(&self, org: Id, flow: Id, fingerprint: &Fingerprint) -> StoreResult<Vec<ArtifactRow>>;
    /// Returns one origin for each of these fingerprints and each flow it was reported to, sorted by ledger
    /// index. The origin has the newest report to a trail, or the newest of all if none is to a trail, and
    /// the content's last name there. Only the first `entries` ledger entries count; later reports are
    /// ignored.
    async fn provenance(
        &self,
        org: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
    ) -> StoreResult<Vec<Origin>>;
    /// Returns the names that this content was given in these flows, each name once, in any order. A report
    /// without a name has `""`.
    async fn given_names(&self, org: Id, asked: &[(Id, Fingerprint)]) -> StoreResult<Vec<GivenName>>;
}
