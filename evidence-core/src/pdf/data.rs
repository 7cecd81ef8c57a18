//! What a trail report shows: plain values, complete before rendering starts.
//!
//! The report reads nothing but these types, so equal values give equal bytes. Texts may hold any
//! Unicode; the layout makes them harmless. An empty string means "not given" and prints nothing.

use std::fmt;

use serde::Serialize;

use crate::rules::compliance::State;
use crate::time::Timestamp;

/// Everything that one trail report prints.
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
    /// Why it is in that state, where no attestation accounts for it.
    pub state_info: String,
    /// Where the trail came from, usually the URL of a CI run.
    pub origin_url: String,
    /// Page of the trail in a web interface.
    pub html_url: Option<String>,
    /// When the trail was first reported.
    pub created_at: Timestamp,
    /// Who reported the trail first.
    pub created_by: String,
    /// Time of the newest fact of the trail.
    pub last_modified_at: Timestamp,
    /// The commit that the trail is about.
    pub commit: Option<Commit>,
    /// Where the newest fact of this report stands in the ledger.
    pub ledger: LedgerPosition,
    /// What the template expects against what was reported, in template order.
    pub expectations: Vec<Expectation>,
    /// The attestations of the trail and its artifacts, oldest first.
    pub attestations: Vec<Attestation>,
    /// The artifacts of the trail, oldest first.
    pub artifacts: Vec<Artifact>,
    /// How many of their runs are shown, where these are only the newest.
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
    /// Branch it was built from.
    pub branch: String,
    /// Time of the commit.
    pub timestamp: Option<Timestamp>,
    /// Web page of the commit.
    pub url: String,
}

/// The last ledger entry that a report shows, and the tree right after it (RFC 6962 §2.1).
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

/// One slot of the template, or a fact that no slot asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Expectation {
    /// The artifact's name in the template; none is the trail.
    pub scope: Option<String>,
    /// Name of the attestation.
    pub name: String,
    /// Type of the attestation.
    pub kind: String,
    /// How the slot stands.
    pub status: ExpectationStatus,
    /// Whether it was reported without being expected.
    pub unexpected: bool,
    /// When the deciding fact was reported.
    pub at: Option<Timestamp>,
    /// Who reported the deciding fact.
    pub by: String,
    /// Who overrode the verdict and why, in a sentence; empty where no override decides.
    pub override_info: String,
}

/// How one slot of the template stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ExpectationStatus {
    /// Nothing fitting has been reported.
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

/// One attestation with its essentials.
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
    /// When it was reported.
    pub at: Timestamp,
    /// Who reported it.
    pub by: String,
    /// `trail`, or an artifact's name and shortened fingerprint.
    pub target: String,
    /// Free text.
    pub description: String,
    /// Where it came from.
    pub origin_url: String,
    /// Annotations in the order to print them.
    pub annotations: Vec<(String, String)>,
    /// The commit it was reported for.
    pub commit: Option<Commit>,
    /// What its type adds.
    pub details: Details,
    /// User data as indented JSON; a very long text is cut visibly.
    pub user_data: Option<String>,
    /// Whether it no longer counts: a newer one of its name is there, or its artifact was replaced.
    pub superseded: bool,
    /// Of an override, or of an attestation that one replaces: who overrode it and why, in a sentence; else empty.
    pub override_info: String,
}

/// What the type of an attestation adds to its common fields.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Details {
    /// Nothing.
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
    /// Who opened it.
    pub author: String,
    /// The branch it came from.
    pub head_ref: String,
    /// Hash of the merge commit.
    pub merge_commit: String,
    /// When it was opened.
    pub created_at: Option<Timestamp>,
    /// When it was merged.
    pub merged_at: Option<Timestamp>,
    /// Who reviewed it.
    pub approvers: Vec<Approver>,
    /// Its commits.
    pub commits: Vec<Commit>,
}

/// A reviewer of a pull request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Approver {
    /// Who reviewed.
    pub name: String,
    /// Verdict as reported, such as `APPROVED`.
    pub state: String,
    /// When the review was given.
    pub at: Option<Timestamp>,
}

/// Counts of a JUnit test suite, as they were recorded: nothing keeps a reporter from negative ones.
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
    /// Compliance, as a word.
    pub state: String,
    /// What else is to be said of that; empty where nothing is.
    pub state_info: String,
    /// The commit it was built from.
    pub commit: Option<Commit>,
    /// The build that made it.
    pub build_url: String,
    /// When it was reported.
    pub at: Timestamp,
    /// Who reported it.
    pub by: String,
    /// Where it ran; none where the report leaves that out.
    pub runs: Option<Vec<Run>>,
}

/// One stay of an artifact in an environment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Name of the environment.
    pub environment: String,
    /// The first snapshot that shows it.
    pub from_snapshot: u64,
    /// Time of that snapshot.
    pub since: Timestamp,
    /// The first snapshot that no longer shows it, and its time.
    pub until: Option<(u64, Timestamp)>,
}

/// One event of the trail's history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// When it happened.
    pub at: Timestamp,
    /// What happened, as a sentence.
    pub text: String,
    /// Who caused it.
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
