//! The recorded form of artifact reports.

use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::bounded::{FreeForm, List, LongText, ShortText};
use crate::fact::names::Key;
use crate::git::GitCommit;
use crate::id::Id;
use crate::json::JsonText;
use crate::links::ExternalUrls;
use crate::name::{CommitSha, Fingerprint};
use crate::repos::record::RepoInfo;
use crate::texts::record::TextRef;
use crate::time::{SentSeconds, Timestamp};
use schemars::JsonSchema;

/// One report of an artifact. The same fingerprint may be reported many times; each report has its own id.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// The report's id.
    pub id: Id,
    /// The flow it was reported to.
    pub flow: Id,
    /// The trail it was reported to. `None` for reports to a flow as a whole.
    pub trail: Option<Id>,
    /// The SHA-256 of the content.
    pub fingerprint: Fingerprint,
    /// The file or image name.
    pub filename: String,
    /// Its description; `""` if not reported.
    pub description: String,
    /// Its template name; `""` without one.
    pub template_reference_name: String,
    /// The commit that it was built from, in full. If the report does not name it, this is the hash in the
    /// commit details, provided that it is a full hash.
    pub git_commit: Option<CommitSha>,
    /// The details of the commit, from the list of commits if they were reported only there. If they name
    /// another commit than `git_commit`, then `git_commit` takes precedence.
    pub git_commit_info: Option<GitCommit>,
    /// The repository, as reported.
    pub repo_info: Option<RepoInfo>,
    /// The repo's id.
    pub repo: Option<Id>,
    /// The commits since the previous artifact, as reported.
    pub commits_list: Vec<GitCommit>,
    /// The reporter's compliance claim. It has no effect on evaluation, and `false` is refused.
    pub is_compliant: Option<bool>,
    /// The attestation names that the reporter sent. They have no effect on evaluation.
    pub reported_template: Option<TemplateNames>,
    /// The URL of the commit's page.
    pub commit_url: String,
    /// The URL of the build's page.
    pub build_url: String,
    /// The URL of the repository.
    pub repo_url: String,
    /// Free-form data from the reporter.
    pub user_data: JsonText,
    /// Labelled links.
    pub external_urls: Option<ExternalUrls>,
    /// Remarks.
    pub annotations: FreeForm,
    /// The template's YAML text in force when it was reported. `None` means
    /// [`EMPTY_TEMPLATE`](crate::flows::EMPTY_TEMPLATE).
    pub template: Option<TextRef>,
    /// When it was reported.
    pub created_at: Timestamp,
    /// The user or service account that created it.
    pub created_by: Actor,
}

/// Attestation names, as an artifact's reporter sends them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "Input should be a text of at most 4096 characters, or a list of shorter ones")]
pub enum TemplateNames {
    /// One text.
    One(LongText),
    /// A list.
    Several(List<ShortText>),
}

impl Artifact {
    /// Returns the commit that it was built from as reported, abbreviated or in full; `""` without one.
    /// Attestations that name a commit must match it.
    pub fn commit(&self) -> &str {
        let told = || self.git_commit_info.as_ref().map(|commit| commit.sha1.as_str());
        self.git_commit.as_ref().map(CommitSha::as_str).or_else(told).unwrap_or_default()
    }

    /// Returns that commit if its hash is full. Lists filter by it.
    pub fn commit_in_full(&self) -> Option<&str> {
        Some(self.commit()).filter(|commit| commit.parse::<CommitSha>().is_ok())
    }

    /// Returns the URL of its repository: the repo's URL as reported, otherwise `repo_url`; `""` without
    /// either.
    pub fn repo_address(&self) -> &str {
        let told = self.repo_info.as_ref().map(|repo| repo.url.as_str());
        told.filter(|url| !url.is_empty()).unwrap_or(&self.repo_url)
    }

    /// Returns the time of that commit, if the report's commit details are about it.
    pub fn committed_at(&self) -> Option<Timestamp> {
        let told = self.git_commit_info.as_ref().filter(|told| told.sha1.as_str() == self.commit())?;
        told.timestamp.map(|SentSeconds(at)| at)
    }

    /// Returns the template to evaluate it by if no trail provides one.
    pub(crate) const fn own_template(&self) -> Option<TextRef> {
        if self.trail.is_none() { self.template } else { None }
    }

    /// Returns the keys that refer to this report until a later report of its trail takes them.
    pub(crate) fn names(&self) -> impl Iterator<Item = Key> {
        let name = Some(&self.template_reference_name).filter(|name| !name.is_empty());
        let named = self.trail.zip(name).map(|(trail, name)| Key::Artifact { trail, name: name.clone() });
        let content = self.trail.map(|trail| Key::Content { trail, fingerprint: self.fingerprint.clone() });
        named.into_iter().chain(content)
    }
}
