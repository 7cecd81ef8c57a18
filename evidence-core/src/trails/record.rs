//! The recorded form of trails.

use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::decode::{UnknownFields, keep_unknown_fields};
use crate::git::GitCommit;
use crate::id::Id;
use crate::json::JsonText;
use crate::links::ExternalUrls;
use crate::name::{FlowName, TrailName};
use crate::repos::record::RepoInfo;
use crate::texts::record::TextRef;
use crate::time::Timestamp;

/// A trail as recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Trail {
    /// Its id.
    pub id: Id,
    /// The flow that it is an execution of.
    pub flow: Id,
    /// Its name, unique in the flow.
    pub name: TrailName,
    /// Its description.
    pub description: String,
    /// The commit it is for.
    pub git_commit_info: Option<GitCommit>,
    /// The repository, as reported.
    pub repo_info: Option<RepoInfo>,
    /// The repos that it was reported from: the newest 100, the last reported at the end.
    pub repo_ids: Vec<Id>,
    /// The URL of its origin, as reported.
    pub origin_url: String,
    /// Free-form data from the reporter.
    pub user_data: JsonText,
    /// Labelled links.
    pub external_urls: Option<ExternalUrls>,
    /// The template in force: that of the newest [`BeginTrail`](crate::trails::BeginTrail), either its own
    /// file or the flow's template at that time. `None` means
    /// [`EMPTY_TEMPLATE`](crate::flows::EMPTY_TEMPLATE).
    pub template: Option<TextRef>,
    /// The id of the template text.
    pub template_id: Id,
    /// When it was begun.
    pub created_at: Timestamp,
    /// The user or service account that created it.
    pub created_by: Actor,
    /// When it was begun or last changed.
    pub last_modified_at: Timestamp,
    /// The user or service account that began it or last changed it.
    pub last_modified_by: Actor,
    /// Fields that a newer version of the program recorded.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(Trail);

/// The name of a trail and of its flow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrailLabel {
    /// The name of its flow.
    pub flow: FlowName,
    /// Its name in the flow.
    pub name: TrailName,
}

/// The approximate memory of a report to a trail, in bytes, for the part that compliance depends on.
const REPORT_BYTES: u64 = 256;

/// The version of a trail's contents, and the cost of reading them. Reports are only added, never changed or
/// removed: two versions with the same revision and the same number of reports are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailVersion {
    /// The trail's id.
    pub id: Id,
    /// The ledger index of its newest fact.
    pub revision: u64,
    /// The number of artifacts and attestations reported to it.
    pub reports: u64,
    /// The size of its newest fact as stored, in bytes.
    pub bytes: u64,
}

impl TrailVersion {
    /// Returns the approximate number of bytes that [`trail_contents`](crate::trails::TrailStore::trail_contents) reads for
    /// it.
    pub const fn size(&self) -> u64 {
        self.bytes.saturating_add(self.reports.saturating_mul(REPORT_BYTES))
    }
}
