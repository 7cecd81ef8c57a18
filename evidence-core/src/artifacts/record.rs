//! Artifacts as they are recorded, each report of one.

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
    /// What was said of a commit, in the list of commits where nowhere else; where it names another than `git_commit`,
    /// that one counts.
    pub git_commit_info: Option<GitCommit>,
    /// The repository, as reported.
    pub repo_info: Option<RepoInfo>,
    /// The repo's id.
    pub repo: Option<Id>,
    /// The commits since the artifact before it, as reported.
    pub commits_list: Vec<GitCommit>,
    /// Whether its reporter said that it is compliant; nothing is evaluated by it, and reports that say it is not are refused.
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

/// Names of attestations as an artifact's reporter sends them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "Input should be a text of at most 4096 characters, or a list of shorter ones")]
pub enum TemplateNames {
    /// One text.
    One(LongText),
    /// A list.
    Several(List<ShortText>),
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

    /// Where its repository is: as told of the repo, else by `repo_url`; `""` where neither says.
    pub fn repo_address(&self) -> &str {
        let told = self.repo_info.as_ref().map(|repo| repo.url.as_str());
        told.filter(|url| !url.is_empty()).unwrap_or(&self.repo_url)
    }

    /// When that commit was made, where the report tells it of this one.
    pub fn committed_at(&self) -> Option<Timestamp> {
        let told = self.git_commit_info.as_ref().filter(|told| told.sha1.as_str() == self.commit())?;
        told.timestamp.map(|SentSeconds(at)| at)
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
}
