//! Pull requests, as reported. Clients use three spellings: the specification's, with an approver's `author`
//! and a commit's `sha`; and two older ones, with `username` or a plain string, and `sha1`. Requests may use
//! any of them. One is recorded, and responses contain both, so that a response can be sent back.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded::{Address, CommitMessage, LenientList, List, LongText, ShortText};
use crate::decode::UnknownFields;
use crate::decode::{closed_in_requests, either_spelling, given, is_recorded};
use crate::git::{Commits, GitCommit};
use crate::name::CommitSha;
use crate::repos::record::VcsProvider;
use crate::time::{SentSeconds, WholeSeconds};

/// The host of pull requests: a repo's provider, or `azure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
#[non_exhaustive]
pub enum GitProvider {
    /// A provider that repos can have.
    Vcs(VcsProvider),
    /// `azure`, the name of Azure DevOps in pull-request reports.
    Azure(Azure),
}

/// `azure`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Azure {
    /// `azure`.
    #[serde(rename = "azure")]
    Azure,
}

impl<'de> Deserialize<'de> for GitProvider {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "azure" {
            return Ok(Self::Azure(Azure::Azure));
        }
        let provider = de::value::StringDeserializer::<de::value::Error>::new(text);
        VcsProvider::deserialize(provider).map(Self::Vcs).map_err(|_| {
            de::Error::custom(
                "Input should be 'github', 'gitlab', 'bitbucket', 'bitbucket_cloud', 'bitbucket_dc', 'azure-devops', \
                 'azure_devops_services', 'azure_devops_server', 'circleci', 'git', 'subversion' or 'azure'",
            )
        })
    }
}

/// Reads null as the empty value. The field is required, unless it has a default.
pub(crate) fn null_as_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A pull request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct PullRequest {
    /// The URL of its page.
    pub url: Address,
    /// Its state in the host's words: `MERGED`, `open`, ….
    pub state: ShortText,
    /// Its title.
    #[serde(default)]
    pub title: Option<LongText>,
    /// The user who opened it.
    #[serde(default)]
    pub author: Option<ShortText>,
    /// The branch with the change.
    #[serde(default)]
    pub head_ref: Option<ShortText>,
    /// The branch that it targets.
    #[serde(default)]
    pub base_ref: Option<ShortText>,
    /// The merge commit: 40 hex digits, or `""`.
    #[serde(default)]
    pub merge_commit: Option<MergeCommit>,
    /// When it was opened, in epoch seconds.
    #[serde(default)]
    pub created_at: Option<SentSeconds>,
    /// When it was merged, in epoch seconds.
    #[serde(default)]
    pub merged_at: Option<SentSeconds>,
    /// Its reviewers; null means none. A null element is skipped.
    #[serde(default, deserialize_with = "null_as_empty")]
    #[schemars(with = "Option<LenientList<SentApprover>>")]
    pub approvers: LenientList<Approver>,
    /// Its commits; null means none. No element is skipped, because a pull request is reviewed commit by
    /// commit.
    #[serde(default, deserialize_with = "null_as_empty")]
    #[schemars(extend("type" = ["array", "null"]))]
    pub commits: Commits,
}

closed_in_requests!(PullRequest);

/// The commit of a merge: 40 hex digits, or `""`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct MergeCommit(String);

impl JsonSchema for MergeCommit {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MergeCommit".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^([a-f0-9]{40})?$", "maxLength": CommitSha::MAX_LEN })
    }
}

impl MergeCommit {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for MergeCommit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() || is_recorded() {
            return Ok(Self(text));
        }
        CommitSha::try_from(text).map(|sha| Self(sha.into_string())).map_err(de::Error::custom)
    }
}

/// A reviewer of a pull request.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "PullRequestApprover")]
pub struct Approver {
    /// The account's name at the host. `author` is accepted too.
    pub username: ShortText,
    /// The review's state, in the host's words: `APPROVED`, ….
    pub state: Option<ShortText>,
    /// When the review was made, in epoch seconds.
    pub timestamp: Option<SentSeconds>,
}

// Used for the schema only: the accepted forms of an approver.
/// A reviewer of a pull request: the account's name alone, or with the review.
#[derive(JsonSchema)]
#[schemars(inline, untagged)]
#[expect(dead_code, reason = "approvers are read as they are kept")]
enum SentApprover {
    /// The account's name at the host.
    Name(ShortText),
    /// The account with the review's state and time.
    Said(Approver),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ApproverObject {
    #[serde(default, deserialize_with = "given")]
    username: Option<ShortText>,
    #[serde(default, deserialize_with = "given")]
    author: Option<ShortText>,
    #[serde(default)]
    state: Option<ShortText>,
    #[serde(default)]
    timestamp: Option<SentSeconds>,
}

impl<'de> Deserialize<'de> for Approver {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Approver;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name as a string, or an approver as a map")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Approver, E> {
                let username = name.parse().map_err(E::custom)?;
                Ok(Approver { username, state: None, timestamp: None })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Approver, A::Error> {
                let object = de::value::MapAccessDeserializer::new(map);
                let ApproverObject { username, author, state, timestamp } = if is_recorded() {
                    ApproverObject::deserialize(UnknownFields::default().beside(object))?
                } else {
                    ApproverObject::deserialize(object)?
                };
                Ok(Approver {
                    username: either_spelling::<_, A::Error>("username", username, author)?,
                    state,
                    timestamp,
                })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A pull request. Every key is present.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PullRequestView {
    /// The URL of its page.
    pub url: Address,
    /// Its state in the host's words: `MERGED`, `open`, ….
    pub state: ShortText,
    /// Its title; null if not reported.
    pub title: Option<LongText>,
    /// The user who opened it; null if not reported.
    pub author: Option<ShortText>,
    /// The branch with the change; null if not reported.
    pub head_ref: Option<ShortText>,
    /// The branch that it targets; null if not reported.
    pub base_ref: Option<ShortText>,
    /// The merge commit: 40 hex digits, or `""`; null if not reported.
    pub merge_commit: Option<MergeCommit>,
    /// When it was opened, in epoch seconds; null if not reported.
    pub created_at: Option<WholeSeconds>,
    /// When it was merged, in epoch seconds; null if not reported.
    pub merged_at: Option<WholeSeconds>,
    /// Its reviewers.
    pub approvers: Vec<ApproverView>,
    /// Its commits.
    pub commits: Vec<PullRequestCommit>,
}

/// A reviewer of a pull request. Every key is present.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "PullRequestApproverResponse")]
#[non_exhaustive]
pub struct ApproverView {
    /// The account's name at the host.
    pub username: ShortText,
    /// The same as `username`.
    pub author: ShortText,
    /// The review's state, in the host's words: `APPROVED`, …; null if not reported.
    pub state: Option<ShortText>,
    /// When the review was made, in epoch seconds; null if not reported.
    pub timestamp: Option<WholeSeconds>,
}

/// A commit of a pull request. Every key is present.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct PullRequestCommit {
    /// The commit's hash.
    pub sha1: ShortText,
    /// The same as `sha1`.
    pub sha: ShortText,
    /// Its message; null if not reported.
    pub message: Option<CommitMessage>,
    /// Its author, as `Name <mail>`; null if not reported.
    pub author: Option<ShortText>,
    /// The author's account name at the host; null if not reported.
    pub author_username: Option<ShortText>,
    /// Its branch; null if not reported.
    pub branch: Option<ShortText>,
    /// Its time, in epoch seconds; null if not reported.
    pub timestamp: Option<WholeSeconds>,
    /// The URL of its page; null if not reported.
    pub url: Option<Address>,
    /// Its parents' hashes; null if not reported.
    pub parents: Option<List<ShortText>>,
    /// Whether the host verified its signature; null if not reported.
    pub verified: Option<bool>,
    /// The state of its signature, in the host's words; null if not reported.
    pub signature_state: Option<ShortText>,
}

fn whole_seconds(at: Option<SentSeconds>) -> Option<WholeSeconds> {
    at.map(|at| at.0.whole_seconds())
}

/// Converts to the form in responses: whole seconds, and both spellings of approvers and commits.
impl From<&PullRequest> for PullRequestView {
    fn from(pull_request: &PullRequest) -> Self {
        let PullRequest { url, state, title, author, head_ref, base_ref, merge_commit, .. } =
            pull_request.clone();
        Self {
            url,
            state,
            title,
            author,
            head_ref,
            base_ref,
            merge_commit,
            created_at: whole_seconds(pull_request.created_at),
            merged_at: whole_seconds(pull_request.merged_at),
            approvers: pull_request.approvers.items.iter().map(ApproverView::from).collect(),
            commits: pull_request.commits.0.iter().map(PullRequestCommit::from).collect(),
        }
    }
}

impl From<&Approver> for ApproverView {
    fn from(approver: &Approver) -> Self {
        let Approver { username, state, timestamp } = approver.clone();
        Self { author: username.clone(), username, state, timestamp: whole_seconds(timestamp) }
    }
}

impl From<&GitCommit> for PullRequestCommit {
    fn from(commit: &GitCommit) -> Self {
        let GitCommit {
            sha1,
            message,
            author,
            author_username,
            branch,
            timestamp,
            url,
            parents,
            verified,
            signature_state,
        } = commit.clone();
        Self {
            sha: sha1.clone(),
            sha1,
            message,
            author,
            author_username,
            branch,
            timestamp: whole_seconds(timestamp),
            url,
            parents,
            verified,
            signature_state,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::decode::from_value;

    const SHA: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn all_three_spellings_are_read_as_one() {
        let specification = json!({
            "url": "u", "state": "MERGED", "approvers": [{"author": "ann", "state": "APPROVED", "timestamp": 5}],
            "commits": [{"sha": SHA, "message": "m", "author": "a", "author_username": "b", "branch": "main", "timestamp": 7}],
        });
        let client = json!({
            "url": "u", "state": "MERGED", "approvers": [{"username": "ann", "state": "APPROVED", "timestamp": 5.0}],
            "commits": [{"sha1": SHA, "message": "m", "author": "a", "author_username": "b", "branch": "main", "timestamp": 7}],
        });
        let read = |value: &Value| from_value::<PullRequest>(value).unwrap();
        assert_eq!(read(&specification), read(&client));
        let oldest = read(&json!({"url": "u", "state": "open", "merge_commit": "", "approvers": ["ann"]}));
        assert_eq!(oldest.approvers.items[0].username.as_str(), "ann");
        let answered = json!(PullRequestView::from(&read(&specification)));
        assert_eq!(answered["approvers"][0]["author"], answered["approvers"][0]["username"]);
        assert_eq!(
            (&answered["commits"][0]["sha"], &answered["commits"][0]["sha1"]),
            (&json!(SHA), &json!(SHA))
        );
        assert_eq!(answered["approvers"][0]["timestamp"], json!(5));
    }

    #[test]
    fn what_is_answered_is_read_as_what_was_sent() {
        let sent = from_value::<PullRequest>(&json!({
            "url": "u", "state": "MERGED", "approvers": [{"author": "ann", "state": "APPROVED", "timestamp": 5}, "bob"],
            "commits": [{"sha": SHA, "message": "m", "author": "a", "timestamp": 7, "parents": [SHA]}],
        }));
        let answered = json!(PullRequestView::from(sent.as_ref().unwrap()));
        assert_eq!(from_value::<PullRequest>(&answered), sent);
    }

    #[test]
    fn what_is_kept_reads_back_as_itself() {
        let sent = json!({
            "url": "u", "state": "open", "merge_commit": SHA, "created_at": 1.25, "merged_at": null,
            "approvers": null, "commits": [{"sha1": SHA}],
        });
        let one = from_value::<PullRequest>(&sent);
        let kept = serde_json::to_value(one.clone().unwrap()).unwrap();
        assert_eq!(from_value::<PullRequest>(&kept), one);
    }

    #[test]
    fn misfits_name_their_field() {
        let table = [
            (json!({"state": "open"}), "url"),
            (json!({"url": "u", "state": "open", "more": 1}), "more"),
            (json!({"url": "u", "state": "open", "merge_commit": "12"}), "merge_commit"),
            (json!({"url": "u", "state": "open", "approvers": [7]}), "approvers[0]"),
            (json!({"url": "u", "state": "open", "approvers": [{"author": "a", "x": 1}]}), "approvers[0].x"),
            (json!({"url": "u", "state": "open", "approvers": [{}]}), "approvers[0].username"),
            (json!({"url": "u", "state": "open", "approvers": [{"author": null}]}), "approvers[0].author"),
            (
                json!({"url": "u", "state": "open", "approvers": [{"author": "a", "username": "b"}]}),
                "approvers[0].username",
            ),
            (json!({"url": "u", "state": "open", "commits": [{}]}), "commits[0].sha1"),
            (json!({"url": "u", "state": "open", "commits": [{"sha": null}]}), "commits[0].sha"),
            (json!({"url": "u", "state": "open", "commits": [{"sha": SHA, "sha1": "a"}]}), "commits[0].sha1"),
        ];
        for (value, field) in table {
            assert_eq!(from_value::<PullRequest>(&value).unwrap_err().field(), field, "{value}");
        }
    }
}
