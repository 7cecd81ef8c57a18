//! Attestations: claims about a trail or an artifact, append-only. The newest of a name decides.

mod archive;
mod claims;
mod details;
mod evidence;
mod listed;
mod operations;
mod pull_requests;
mod view;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::auth::Actor;
use crate::id::Id;
use crate::json::JsonText;
use crate::name::{AttestationName, Fingerprint};
use crate::shared::{Annotations, ExternalUrls, GitCommit, RepoInfo};
use crate::store::StoreResult;
use crate::time::Timestamp;

pub use claims::*;
pub use details::*;
pub use operations::*;
pub use pull_requests::*;
pub use view::*;

/// An attestation as it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attestation {
    /// Its id.
    pub id: Id,
    /// The flow.
    pub flow: Id,
    /// The trail it was reported to.
    pub trail: Id,
    /// Its name; a name may be reported again.
    pub name: AttestationName,
    /// Its type: `generic`, `junit`, `pull_request`, `custom:<name>`, ….
    pub kind: String,
    /// Its verdict, decided when it was recorded.
    pub is_compliant: bool,
    /// What it is about.
    pub binding: Binding,
    /// What it says.
    pub description: Option<String>,
    /// Where it came from.
    pub origin_url: String,
    /// The commit it is for.
    pub git_commit_info: Option<GitCommit>,
    /// The repository, as reported.
    pub repo_info: Option<RepoInfo>,
    /// The repo's id.
    pub repo: Option<Id>,
    /// Labelled links.
    pub external_urls: Option<ExternalUrls>,
    /// Remarks.
    pub annotations: Option<Annotations>,
    /// Whatever the reporter added.
    pub user_data: JsonText,
    /// The part that belongs to the type.
    pub details: Details,
    /// The files that came with it.
    pub attachments: Vec<Attachment>,
    /// What the evidence download answers: the one file, or an archive of several.
    pub evidence: Option<Attachment>,
    /// When it was reported.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: Actor,
}

/// What an attestation is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "to")]
pub enum Binding {
    /// The trail as a whole.
    Trail,
    /// An artifact of the trail.
    Artifact {
        /// The artifact's fingerprint.
        fingerprint: Fingerprint,
        /// The template's name for it at the time, `""` without one.
        target: String,
    },
    /// Whatever artifact of this template name is or will be built from this commit.
    Named {
        /// The template's name.
        target: String,
        /// The commit.
        commit: String,
    },
}

/// A stored file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Its file name.
    pub file_name: String,
    /// Its media type.
    pub media_type: String,
    /// Its size in bytes.
    pub size: u64,
    /// The SHA-256 of its content.
    pub sha256: Fingerprint,
}

/// The part of an attestation that compliance depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttestationRow {
    /// Its id.
    pub id: Id,
    /// The trail it was reported to.
    pub trail: Id,
    /// Its name.
    pub name: String,
    /// Its type; an override has the type of what it overrides.
    pub kind: String,
    /// Its verdict.
    pub is_compliant: bool,
    /// Whether it overrides an earlier one.
    pub is_override: bool,
    /// What it is about.
    pub binding: Binding,
    /// When it was reported.
    pub at: Timestamp,
    /// Its ledger index: larger is newer.
    pub index: u64,
}

impl Attestation {
    /// Whether it overrides an earlier one.
    pub const fn is_override(&self) -> bool {
        self.details.is_override()
    }

    /// The part that compliance depends on, of an attestation at this ledger index.
    pub(crate) fn row(&self, index: u64) -> AttestationRow {
        let Self { id, trail, name, kind, is_compliant, binding, .. } = self;
        AttestationRow {
            id: *id,
            trail: *trail,
            name: name.to_string(),
            kind: kind.clone(),
            is_compliant: *is_compliant,
            is_override: self.is_override(),
            binding: binding.clone(),
            at: self.created_at,
            index,
        }
    }
}

/// An attestation of a name, whose body is read apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedAttestation {
    /// What compliance depends on.
    pub row: AttestationRow,
    /// The bytes of its fact, as stored.
    pub bytes: u64,
}

/// Queries about attestations.
#[async_trait]
pub trait AttestationStore: Send + Sync {
    /// The attestation of this id, one.
    async fn attestation(&self, org: Id, id: Id) -> StoreResult<Option<Attestation>>;
    /// The attestations of these ids, one an id, in any order; unknown ids are passed over.
    async fn attestations_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Attestation>>;
    /// All attestations of this name on the trails of these ids, newest first by ledger index, without what they say.
    async fn attestations(&self, org: Id, trails: &[Id], name: &str) -> StoreResult<Vec<NamedAttestation>>;
}
