//! What a store answers about artifacts.

use async_trait::async_trait;

use crate::artifacts::record::Artifact;
use crate::id::Id;
use crate::name::{CommitSha, Fingerprint};
use crate::page::{Listed, Page, PageRequest};
use crate::rules::compliance::ReportedArtifact;
use crate::store::error::StoreResult;
use crate::texts::record::TextRef;
use crate::time::Timestamp;

#[cfg(feature = "memory")]
impl Artifact {
    /// The part that compliance depends on, of a report at this ledger index.
    pub(crate) fn row(&self, index: u64) -> ArtifactRow {
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
    /// The trail it was reported to.
    pub trail: Option<Id>,
    /// The SHA-256 of the content.
    pub fingerprint: Fingerprint,
    /// The template's name for it, `""` without one.
    pub template_reference_name: String,
    /// The commit it was built from in the reporter's words, `""` without one.
    pub commit: String,
    /// The repo that it names.
    pub repo: Option<Id>,
    /// When the commit was made.
    pub committed_at: Option<Timestamp>,
    /// The template's text that a report to a flow as a whole is evaluated by; nothing for one to a trail, and for
    /// [`EMPTY_TEMPLATE`](crate::flows::EMPTY_TEMPLATE).
    pub template: Option<TextRef>,
    /// When it was reported.
    pub at: Timestamp,
    /// Its ledger index: larger is newer.
    pub index: u64,
}

/// Where content comes from in one flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The report that it is evaluated by.
    pub report: ArtifactRow,
    /// The template's name that the flow's newest report with one gave it, of those to a trail where there are any; `""`
    /// where none did.
    pub last_name: String,
}

/// A template's name that content was given in a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenName {
    /// The flow.
    pub flow: Id,
    /// The SHA-256 of the content.
    pub fingerprint: Fingerprint,
    /// The name.
    pub name: String,
    /// The ledger index of the first report by it.
    pub first: u64,
}

/// How a list of artifacts is narrowed; everything given must match.
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
    /// With a fingerprint that begins so.
    pub fingerprint: Option<String>,
    /// Built from a commit that begins so and was told in full.
    pub commit: Option<String>,
    /// From a commit on this branch (`git_commit_info.branch`).
    pub branch: Option<String>,
    /// From one of these repos.
    pub repos: Option<Vec<Id>>,
    /// Only reports with a commit in full.
    pub with_commit: bool,
}

/// Fingerprints, or commits, that begin as asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matches<T = Fingerprint> {
    /// How many different ones there are.
    pub count: u64,
    /// The first of them, by bytes.
    pub first: Vec<T>,
}

/// What an organization has whose fingerprint or commit begins as asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Of what was reported, and of what has run.
    pub fingerprints: Matches,
    /// In full, of what artifacts were built from.
    pub commits: Matches<CommitSha>,
    /// Reports of artifacts.
    pub reports: Vec<Listed>,
    /// What has run and was never reported.
    pub unreported: Vec<Unreported>,
}

/// What has run and was never reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreported {
    /// The SHA-256 of its content.
    pub fingerprint: Fingerprint,
    /// The name that it ran by.
    pub name: String,
}

/// Queries about artifacts.
#[async_trait]
pub trait ArtifactStore: Send + Sync {
    /// The different fingerprints in this flow that begin with `prefix`, by bytes: the first `limit`, and the total.
    async fn fingerprints(&self, org: Id, flow: Id, prefix: &str, limit: u64) -> StoreResult<Matches>;
    /// All that begins with `prefix`, which is hex digits: the different fingerprints that were reported to any flow or have
    /// run in any environment, and the different commits in full that artifacts were built from, each by bytes, the first
    /// `limit`, and the total. Of the reports that have one of them, the newest of each fingerprint and flow, newest first by
    /// ledger index, and of the fingerprints that were never reported, by bytes, the name of the newest run in the environment
    /// of the least id: of both the first `limit`.
    async fn search(&self, org: Id, prefix: &str, limit: u64) -> StoreResult<Found>;
    /// The artifact reports that the filter admits (flow, trail, prefix, commit, repo), newest first by ledger index: a page,
    /// and the total.
    async fn artifacts(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<Page<Artifact>>;
    /// The same page of the same list, without what the reports say, and without the total.
    async fn artifacts_listed(
        &self,
        org: Id,
        filter: &ArtifactFilter,
        request: PageRequest,
    ) -> StoreResult<Vec<Listed>>;
    /// The first of the same list, one at most: nobody asks how many there are.
    async fn latest_artifact(&self, org: Id, filter: &ArtifactFilter) -> StoreResult<Option<Artifact>>;
    /// The reports of these ids, one an id, in any order; unknown ids are passed over.
    async fn artifacts_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Artifact>>;
    /// How large the reports of these ids are, one an id, in any order; unknown ids are passed over.
    async fn artifact_sizes(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Listed>>;
    /// All reports of this fingerprint to this flow, oldest first by ledger index.
    async fn reports(&self, org: Id, flow: Id, fingerprint: &Fingerprint) -> StoreResult<Vec<ArtifactRow>>;
    /// For each of these fingerprints and each flow it was reported to one, ordered by ledger index: the newest report to a
    /// trail, or the newest of all where none is to a trail, and the last name that it has there. Only the first `entries`
    /// entries of the ledger count: what was reported later is as if it were not there.
    async fn provenance(
        &self,
        org: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
    ) -> StoreResult<Vec<Origin>>;
    /// The names that this content was given in these flows, of each name one, in any order; `""` where a report has none.
    async fn given_names(&self, org: Id, asked: &[(Id, Fingerprint)]) -> StoreResult<Vec<GivenName>>;
}
