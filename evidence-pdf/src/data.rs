//! The contents of a trail report: plain values, complete before rendering starts.
//!
//! Rendering reads only these types, so equal values give equal bytes. Texts may contain any Unicode; the
//! layout renders them harmless. An empty string means "not given" and is not printed.

use std::fmt;

use serde::Serialize;

use evidence_values::state::State;
use evidence_values::time::Timestamp;

/// All contents of a trail report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrailReport {
    /// Name of the organization that owns the flow.
    pub organization: String,
    /// Name of the flow.
    pub flow: String,
    /// Name of the trail.
    pub trail: String,
    /// Description of the trail.
    pub description: String,
    /// Compliance of the whole trail.
    pub state: State,
    /// The reason for the state, if no attestation shows it.
    pub state_info: String,
    /// The origin of the trail, usually the URL of a CI run.
    pub origin_url: String,
    /// Page of the trail in a web interface.
    pub html_url: Option<String>,
    /// Time of the first report of the trail.
    pub created_at: Timestamp,
    /// The user or account that first reported the trail.
    pub created_by: String,
    /// Time of the newest fact of the trail.
    pub last_modified_at: Timestamp,
    /// The commit that the trail refers to.
    pub commit: Option<Commit>,
    /// The ledger position of the newest fact in this report.
    pub ledger: LedgerPosition,
    /// The expectations of the template and their status, in template order.
    pub expectations: Vec<Expectation>,
    /// The attestations of the trail and its artifacts, oldest first.
    pub attestations: Vec<Attestation>,
    /// The artifacts of the trail, oldest first.
    pub artifacts: Vec<Artifact>,
    /// The number of runs shown, if only the newest are shown.
    pub newest_runs: Option<u64>,
    /// The event history, oldest first.
    pub events: Vec<Event>,
    /// The files attached to the attestations.
    pub attachments: Vec<Attachment>,
}

/// A git commit.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Commit {
    /// Full hash of the commit.
    pub sha1: String,
    /// Author, usually `Name <mail>`.
    pub author: String,
    /// Commit message.
    pub message: String,
    /// Branch of the commit.
    pub branch: String,
    /// Time of the commit.
    pub timestamp: Option<Timestamp>,
    /// Web page of the commit.
    pub url: String,
}

/// The last ledger entry in a report, and the tree that ends with it (RFC 6962 §2.1).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LedgerPosition {
    /// Index of the entry, counted from zero.
    pub index: u64,
    /// Leaf hash of the entry, in hex.
    pub leaf_hash: String,
    /// Number of entries of the tree that ends with this entry.
    pub size: u64,
    /// Root hash of that tree, in hex.
    pub root: String,
}

/// One slot of the template, or an unexpected attestation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Expectation {
    /// The artifact's name in the template; `None` for the trail itself.
    pub scope: Option<String>,
    /// Name of the attestation.
    pub name: String,
    /// Type of the attestation.
    pub kind: String,
    /// The status of the slot.
    pub status: ExpectationStatus,
    /// Whether it was reported without being expected.
    pub unexpected: bool,
    /// Time of the report that decides the status.
    pub at: Option<Timestamp>,
    /// The user or account that made that report.
    pub by: String,
    /// The user who overrode the verdict and the reason, as a sentence; empty if no override decides.
    pub override_info: String,
}

/// The status of one slot of the template.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ExpectationStatus {
    /// No matching attestation has been reported.
    Missing,
    /// The newest report is compliant.
    Compliant,
    /// The newest report is not compliant.
    NonCompliant,
}

impl fmt::Display for ExpectationStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "MISSING",
            Self::Compliant => "COMPLIANT",
            Self::NonCompliant => "NON-COMPLIANT",
        })
    }
}

/// One attestation with its common fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attestation {
    /// Identifier of the attestation.
    pub id: String,
    /// Name in the template, or as reported.
    pub name: String,
    /// Type, such as `junit` or `pull_request`.
    pub kind: String,
    /// Its verdict.
    pub is_compliant: bool,
    /// Time of the report.
    pub at: Timestamp,
    /// The user or account that reported it.
    pub by: String,
    /// `trail`, or an artifact's name and shortened fingerprint.
    pub target: String,
    /// Free text.
    pub description: String,
    /// Its origin, usually a URL.
    pub origin_url: String,
    /// Annotations in the order to print them.
    pub annotations: Vec<(String, String)>,
    /// The commit it was reported for.
    pub commit: Option<Commit>,
    /// The fields of its type.
    pub details: Details,
    /// User data as indented JSON; a very long text is cut visibly.
    pub user_data: Option<String>,
    /// Whether it no longer counts, because a newer attestation has its name or its artifact was replaced.
    pub superseded: bool,
    /// For an override, and for an attestation that one replaces: the user who overrode it and the reason, as
    /// a sentence. Otherwise empty.
    pub override_info: String,
}

/// The fields that the type of an attestation adds to the common ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Details {
    /// No further fields.
    None,
    /// Pull requests of the commit.
    PullRequests(Vec<PullRequest>),
    /// JUnit test suites.
    Suites(Vec<Suite>),
    /// Names and values, for every other type.
    Facts(Vec<(String, String)>),
}

/// A pull request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PullRequest {
    /// Its web page.
    pub url: String,
    /// State as reported, such as `MERGED`.
    pub state: String,
    /// Title.
    pub title: String,
    /// The author.
    pub author: String,
    /// The source branch.
    pub head_ref: String,
    /// Hash of the merge commit.
    pub merge_commit: String,
    /// Time of creation.
    pub created_at: Option<Timestamp>,
    /// Time of the merge.
    pub merged_at: Option<Timestamp>,
    /// Its reviewers.
    pub approvers: Vec<Approver>,
    /// Its commits.
    pub commits: Vec<Commit>,
}

/// A reviewer of a pull request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Approver {
    /// Name of the reviewer.
    pub name: String,
    /// Verdict as reported, such as `APPROVED`.
    pub state: String,
    /// Time of the review.
    pub at: Option<Timestamp>,
}

/// The counts of a JUnit test suite, as recorded. Reporters may send negative counts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Suite {
    /// Name of the suite.
    pub name: String,
    /// Number of tests.
    pub total: i64,
    /// Number of failed tests.
    pub failures: i64,
    /// Number of tests that ended with an error.
    pub errors: i64,
    /// Number of skipped tests.
    pub skipped: i64,
    /// Seconds the suite took.
    pub duration: f64,
}

/// One artifact of the trail.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Artifact {
    /// Name in the template, or as reported.
    pub name: String,
    /// Name of the file or image.
    pub filename: String,
    /// SHA-256 fingerprint, in hex.
    pub fingerprint: String,
    /// Compliance state, as a word.
    pub state: String,
    /// The reason for the state; empty if there is none to add.
    pub state_info: String,
    /// The commit it was built from.
    pub commit: Option<Commit>,
    /// The URL of the build.
    pub build_url: String,
    /// Time of the report.
    pub at: Timestamp,
    /// The user or account that reported it.
    pub by: String,
    /// The runs of the artifact; `None` if the report omits them.
    pub runs: Option<Vec<Run>>,
}

/// One run of an artifact in an environment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Name of the environment.
    pub environment: String,
    /// The first snapshot that contains it.
    pub from_snapshot: u64,
    /// Time of that snapshot.
    pub since: Timestamp,
    /// The first snapshot that no longer contains it, and its time.
    pub until: Option<(u64, Timestamp)>,
}

/// One event of the trail's history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Time of the event.
    pub at: Timestamp,
    /// The event, as a sentence.
    pub text: String,
    /// The user or account that caused it.
    pub by: String,
}

/// A file attached to an attestation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attachment {
    /// Name of the attestation it belongs to.
    pub attestation: String,
    /// Name of the file.
    pub file_name: String,
    /// Media type.
    pub media_type: String,
    /// Size in bytes.
    pub size: u64,
    /// SHA-256 of the content, in hex.
    pub sha256: String,
}
