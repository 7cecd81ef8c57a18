//! Attestations as they are recorded.

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

/// Short labelled remarks on an attestation, each of at most 4,096 characters; at most 1,000.
pub type Annotations = Dictionary<AnnotationKey, LongText>;

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
    /// Its description.
    pub binding: Binding,
    /// What it says.
    pub description: Option<String>,
    /// The URL of its origin, as reported.
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
    /// Free-form data from the reporter.
    pub user_data: JsonText,
    /// The part that belongs to the type; without its data where they are long.
    pub details: Details,
    /// The data of the type, where they are longer than 64 KiB: a text that is stored once, so that lists do not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<TextRef>,
    /// The files that came with it.
    pub attachments: Vec<Attachment>,
    /// What the evidence download answers: the one file, or an archive of several.
    pub evidence: Option<Attachment>,
    /// When it was reported.
    pub created_at: Timestamp,
    /// The user or service account that created it.
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

/// The characters of a reason that are shown wherever a verdict is overridden: one override may be about many artifacts.
const MAX_REASON: usize = 500;

impl Attestation {
    /// Whether it is an override, of an earlier attestation or of none.
    pub const fn is_override(&self) -> bool {
        self.details.is_override()
    }

    /// Of an override: `overridden by NAME: REASON`. A long reason is cut; the override itself has all of it.
    pub fn override_info(&self) -> Option<String> {
        let reason = self.details.override_reason()?;
        let cut = reason.char_indices().nth(MAX_REASON).and_then(|(at, _)| reason.get(..at));
        let reason = cut.map_or_else(|| reason.to_owned(), |cut| format!("{cut}…"));
        // A column of PostgreSQL holds every character but one.
        Some(format!("overridden by {}: {reason}", self.created_by.name).replace('\0', "\u{fffd}"))
    }

    /// The commit that it names itself; an empty text where it does not name it in full.
    pub(crate) fn own_commit(&self) -> Option<&str> {
        let commit = self.git_commit_info.as_ref().filter(|commit| !commit.sha1.is_empty())?;
        Some(GitCommit::in_full_of(Some(commit)).unwrap_or_default())
    }
}
