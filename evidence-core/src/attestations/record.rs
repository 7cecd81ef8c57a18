//! The recorded form of attestations.

use serde::{Deserialize, Serialize};

use crate::attestations::details::Details;
use crate::auth::actor::Actor;
use crate::bounded::{AnnotationKey, Dictionary, LongText};
use crate::git::GitCommit;
use crate::id::Id;
use crate::json::JsonText;
use crate::links::ExternalUrls;
use crate::name::{AttestationName, Fingerprint};
use crate::repos::record::RepoInfo;
use crate::texts::record::TextRef;
use crate::time::Timestamp;

/// Labelled remarks on an attestation: at most 1,000, each of at most 4,096 characters.
pub type Annotations = Dictionary<AnnotationKey, LongText>;

/// An attestation as recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attestation {
    /// Its id.
    pub id: Id,
    /// The flow.
    pub flow: Id,
    /// The trail it was reported to.
    pub trail: Id,
    /// Its name. A name may be reported again.
    pub name: AttestationName,
    /// Its type: `generic`, `junit`, `pull_request`, `custom:<name>`, ….
    pub kind: String,
    /// Its verdict, computed when it was recorded.
    pub is_compliant: bool,
    /// The subject of the attestation.
    pub binding: Binding,
    /// Its description.
    pub description: Option<String>,
    /// The URL of its origin, as reported.
    pub origin_url: String,
    /// The commit of the attestation.
    pub git_commit_info: Option<GitCommit>,
    /// The repository, as reported.
    pub repo_info: Option<RepoInfo>,
    /// The repo's id.
    pub repo: Option<Id>,
    /// Labelled links.
    pub external_urls: Option<ExternalUrls>,
    /// Remarks.
    pub annotations: Option<Annotations>,
    /// Free-form data from the reporter.
    pub user_data: JsonText,
    /// The type-specific part, without data that are stored separately.
    pub details: Details,
    /// The data of the type if they are longer than 64 KiB. They are stored once as a text, so that lists
    /// need not read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<TextRef>,
    /// Its files.
    pub attachments: Vec<Attachment>,
    /// The file that the evidence download returns: the only file, or an archive of several.
    pub evidence: Option<Attachment>,
    /// When it was reported.
    pub created_at: Timestamp,
    /// The user or service account that created it.
    pub created_by: Actor,
}

/// The subject of an attestation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "to")]
pub enum Binding {
    /// The trail as a whole.
    Trail,
    /// An artifact of the trail.
    Artifact {
        /// The artifact's fingerprint.
        fingerprint: Fingerprint,
        /// The artifact's template name at that time; `""` without one.
        target: String,
    },
    /// The artifact of this template name that is or will be built from this commit.
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

/// The characters of a reason that are shown with an overridden verdict. Truncated because one override may
/// apply to many artifacts.
const MAX_REASON: usize = 500;

impl Attestation {
    /// Returns whether it is an override, of an earlier attestation or of none.
    pub const fn is_override(&self) -> bool {
        self.details.is_override()
    }

    /// Returns `overridden by NAME: REASON` for an override, with a long reason truncated; `None` for other
    /// types.
    pub fn override_info(&self) -> Option<String> {
        let reason = self.details.override_reason()?;
        let cut = reason.char_indices().nth(MAX_REASON).and_then(|(at, _)| reason.get(..at));
        let reason = cut.map_or_else(|| reason.to_owned(), |cut| format!("{cut}…"));
        // PostgreSQL text cannot contain NUL.
        Some(format!("overridden by {}: {reason}", self.created_by.name).replace('\0', "\u{fffd}"))
    }

    /// Returns the commit that it names itself; an empty string if the commit's hash is not full.
    pub(crate) fn own_commit(&self) -> Option<&str> {
        let commit = self.git_commit_info.as_ref().filter(|commit| !commit.sha1.is_empty())?;
        Some(GitCommit::in_full_of(Some(commit)).unwrap_or_default())
    }
}
