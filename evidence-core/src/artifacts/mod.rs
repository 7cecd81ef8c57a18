//! Artifacts: what was built, identified by the SHA-256 of its content.

mod operations;
mod view;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::auth::Actor;
use crate::fact::Key;
use crate::id::Id;
use crate::json::JsonText;
use crate::name::{CommitSha, Fingerprint};
use crate::page::{Listed, Page, PageRequest};
use crate::shared::{ExternalUrls, FreeForm, GitCommit, RepoInfo};
use crate::store::StoreResult;
use crate::texts::TextRef;
use crate::time::Timestamp;

pub(crate) use operations::resolve;
pub use operations::*;
pub use view::*;

/// One report of an artifact. The same fingerprint may be reported many times; each report has its own id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// The report's id.
    pub id: Id,
    /// The flow it was reported to.
    pub flow: Id,
    /// The trail it was reported to; none for reports to a flow as a whole.
    pub trail: Option<Id>,
    /// The SHA-256 of the content.
    pub fingerprint: Fingerprint,
    /// The file or image name.
    pub filename: String,
    /// What it is about, `""` where nothing was said.
    pub description: String,
    /// The template's name for it, `""` without one.
    pub template_reference_name: String,
    /// The commit it was built from, in full. A report that does not name it may tell it with what it says of the commit:
    /// then it is that one's hash, if that is in full.
    pub git_commit: Option<CommitSha>,
    /// What was said of a commit; where it names another than `git_commit`, that one counts.
    pub git_commit_info: Option<GitCommit>,
    /// The repository, as reported.
    pub repo_info: Option<RepoInfo>,
    /// The repo's id.
    pub repo: Option<Id>,
    /// The commits since the artifact before it, as reported.
    pub commits_list: Vec<GitCommit>,
    /// What its reporter thinks of its compliance; nothing is evaluated by it.
    pub is_compliant: Option<bool>,
    /// The names of attestations that its reporter sent; nothing is evaluated by them.
    pub reported_template: Option<TemplateNames>,
    /// Where the commit can be looked at.
    pub commit_url: String,
    /// Where the build can be looked at.
    pub build_url: String,
    /// Where the repository is.
    pub repo_url: String,
    /// Whatever the reporter added.
    pub user_data: JsonText,
    /// Labelled links.
    pub external_urls: Option<ExternalUrls>,
    /// Remarks.
    pub annotations: FreeForm,
    /// The template's YAML text that was valid when it was reported; nothing for
    /// [`EMPTY_TEMPLATE`](crate::flows::EMPTY_TEMPLATE).
    pub template: Option<TextRef>,
    /// When it was reported.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: Actor,
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
    /// The template's text that a report to a flow as a whole is evaluated by; nothing for one to a trail, and for
    /// [`EMPTY_TEMPLATE`](crate::flows::EMPTY_TEMPLATE).
    pub template: Option<TextRef>,
    /// When it was reported.
    pub at: Timestamp,
    /// Its ledger index: larger is newer.
    pub index: u64,
}

impl Artifact {
    /// The commit it was built from in the reporter's words, in full or not: what attestations of a commit have to name.
    /// `""` without one.
    pub fn commit(&self) -> &str {
        let told = || self.git_commit_info.as_ref().map(|commit| commit.sha1.as_str());
        self.git_commit.as_ref().map(CommitSha::as_str).or_else(told).unwrap_or_default()
    }

    /// The same, where it is in full: what lists are narrowed by.
    pub fn commit_in_full(&self) -> Option<&str> {
        Some(self.commit()).filter(|commit| commit.parse::<CommitSha>().is_ok())
    }

    /// The template that it is evaluated by, where no trail has one for it.
    pub(crate) const fn own_template(&self) -> Option<TextRef> {
        if self.trail.is_none() { self.template } else { None }
    }

    /// What leads to this report until a later one of its trail has it.
    pub(crate) fn names(&self) -> impl Iterator<Item = Key> {
        let name = Some(&self.template_reference_name).filter(|name| !name.is_empty());
        let named = self.trail.zip(name).map(|(trail, name)| Key::Artifact { trail, name: name.clone() });
        let content = self.trail.map(|trail| Key::Content { trail, fingerprint: self.fingerprint.clone() });
        named.into_iter().chain(content)
    }

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
            template: self.own_template(),
            at: self.created_at,
            index,
        }
    }
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

/// Fingerprints that begin as asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matches {
    /// How many different ones there are.
    pub count: u64,
    /// The first of them, by bytes.
    pub first: Vec<Fingerprint>,
}

/// Queries about artifacts.
#[async_trait]
pub trait ArtifactStore: Send + Sync {
    /// The different fingerprints in this flow that begin with `prefix`, by bytes: the first `limit`, and the total.
    async fn fingerprints(&self, org: Id, flow: Id, prefix: &str, limit: u64) -> StoreResult<Matches>;
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
    /// trail, or the newest of all where none is to a trail, and the last name that it has there.
    async fn provenance(&self, org: Id, fingerprints: &[Fingerprint]) -> StoreResult<Vec<Origin>>;
}
