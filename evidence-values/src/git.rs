//! Git commits as they are reported, recorded and answered.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded::{Address, CommitMessage, List, ShortText, limited_lists, or_empty};
use crate::decode::{either_spelling, given};
use crate::name::CommitSha;
use crate::time::{SentSeconds, WholeSeconds};

/// A git commit as it is reported and kept. Unknown properties are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct GitCommit {
    /// The commit's hash; `sha` is read, too.
    pub sha1: ShortText,
    /// Its message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<CommitMessage>,
    /// Its author, as `Name <mail>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<ShortText>,
    /// The author's account name at the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author_username: Option<ShortText>,
    /// The branch it was built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<ShortText>,
    /// When it was made, in epoch seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<SentSeconds>,
    /// The address of its page at the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Address>,
    /// Its parents' hashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parents: Option<List<ShortText>>,
    /// Whether the host verified its signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    /// The state of its signature, as the host reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature_state: Option<ShortText>,
}

limited_lists! {
    /// Git commits, of which a [limit](crate::limits::Limits) says how many there may be.
    Commits(GitCommit) = commits;
}

impl GitCommit {
    /// Returns the hash of the commit, if there is a commit and the hash is a full one.
    #[doc(hidden)]
    pub fn in_full_of(commit: Option<&Self>) -> Option<&str> {
        Some(commit?.sha1.as_str()).filter(|sha1| sha1.parse::<CommitSha>().is_ok())
    }
}

/// A git commit as it is sent, in whichever spelling.
#[derive(Deserialize)]
struct SentCommit {
    #[serde(default, deserialize_with = "given")]
    sha1: Option<ShortText>,
    #[serde(default, deserialize_with = "given")]
    sha: Option<ShortText>,
    message: Option<CommitMessage>,
    author: Option<ShortText>,
    author_username: Option<ShortText>,
    branch: Option<ShortText>,
    timestamp: Option<SentSeconds>,
    url: Option<Address>,
    parents: Option<List<ShortText>>,
    verified: Option<bool>,
    signature_state: Option<ShortText>,
}

impl<'de> Deserialize<'de> for GitCommit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sent = SentCommit::deserialize(deserializer)?;
        Ok(Self {
            sha1: either_spelling::<_, D::Error>("sha1", sent.sha1, sent.sha)?,
            message: sent.message,
            author: sent.author,
            author_username: sent.author_username,
            branch: sent.branch,
            timestamp: sent.timestamp,
            url: sent.url,
            parents: sent.parents,
            verified: sent.verified,
            signature_state: sent.signature_state,
        })
    }
}

/// A git commit. Every key is there: what nobody reported is the empty value of its type.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(rename = "GitCommitResponse")]
#[non_exhaustive]
pub struct GitCommitInfo {
    /// The commit's hash.
    pub sha1: String,
    /// Its message.
    pub message: String,
    /// Its author, as `Name <mail>`.
    pub author: String,
    /// The author's account name at the host.
    pub author_username: String,
    /// The branch it was built from.
    pub branch: String,
    /// When it was made, in epoch seconds; 0 where that was not reported.
    pub timestamp: WholeSeconds,
    /// The address of its page at the host.
    pub url: String,
    /// Its parents' hashes.
    pub parents: Vec<String>,
    /// Whether the host verified its signature.
    pub verified: bool,
    /// The state of its signature, as the host reports it.
    pub signature_state: String,
}

impl From<&GitCommit> for GitCommitInfo {
    fn from(commit: &GitCommit) -> Self {
        Self {
            sha1: commit.sha1.to_string(),
            message: or_empty(commit.message.as_deref()),
            author: or_empty(commit.author.as_deref()),
            author_username: or_empty(commit.author_username.as_deref()),
            branch: or_empty(commit.branch.as_deref()),
            timestamp: commit.timestamp.map(|at| at.0.whole_seconds()).unwrap_or_default(),
            url: or_empty(commit.url.as_deref()),
            parents: commit.parents.iter().flat_map(|parents| &parents.0).map(ToString::to_string).collect(),
            verified: commit.verified.unwrap_or_default(),
            signature_state: or_empty(commit.signature_state.as_deref()),
        }
    }
}

impl GitCommitInfo {
    /// The commit, or the empty one.
    pub fn of(commit: Option<&GitCommit>) -> Self {
        commit.map(Self::from).unwrap_or_default()
    }
}
