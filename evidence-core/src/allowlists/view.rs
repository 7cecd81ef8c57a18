//! Allowlist entries in responses.

use schemars::JsonSchema;
use serde::Serialize;

use crate::allowlists::record::AllowlistEntry;
use crate::id::Id;
use crate::name::{EnvironmentName, Fingerprint};
use crate::time::{Seconds, Timestamp, WholeSeconds};

/// An entry of an allowlist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "AllowlistResponse")]
#[non_exhaustive]
pub struct AllowlistEntryView {
    /// The artifact's name, as given when it was allowed. It is not used for look-ups.
    pub artifact_name: String,
    /// The reason why the artifact is allowed.
    pub description: String,
    /// The environment in which the artifact is allowed.
    pub environment_name: EnvironmentName,
    /// The SHA-256 of the allowed artifact.
    pub fingerprint: Fingerprint,
    /// When the artifact was allowed, in epoch seconds.
    pub timestamp: WholeSeconds,
    /// The name of the user or service account that allowed it.
    pub user_name: String,
    /// When the entry expires, in epoch seconds; absent if it does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<WholeSeconds>,
    /// When the entry ended, by expiry or withdrawal, in epoch seconds. Absent while it is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<WholeSeconds>,
    /// The name of the user or service account that withdrew the entry. Absent if it was not withdrawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withdrawn_by: Option<String>,
}

impl AllowlistEntryView {
    /// Returns the entry as of the time `now`.
    pub(super) fn new(
        allowlist_entry: AllowlistEntry,
        environment_name: EnvironmentName,
        now: Timestamp,
    ) -> Self {
        let ended_at = allowlist_entry.ends_at().filter(|_| !allowlist_entry.is_in_force(now));
        let AllowlistEntry { artifact_name, description, fingerprint, at, by, expires_at, withdrawn, .. } =
            allowlist_entry;
        Self {
            artifact_name,
            description,
            environment_name,
            fingerprint,
            timestamp: at.whole_seconds(),
            user_name: by.name,
            expires_at: expires_at.map(Timestamp::whole_seconds),
            ended_at: ended_at.map(Timestamp::whole_seconds),
            withdrawn_by: withdrawn.map(|withdrawn| withdrawn.by.name),
        }
    }
}

/// An allowlist entry that allows an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "AllowlistInformation")]
#[non_exhaustive]
pub struct AllowListing {
    /// The entry's id.
    pub allowlist_id: Id,
    /// The id of the user or service account that allowed it.
    pub allowed_by_user_id: Id,
    /// The name of the user or service account that allowed it.
    pub allowed_by: String,
    /// When it was allowed, in epoch seconds.
    pub timestamp: Seconds,
    /// The reason.
    pub description: String,
    /// When it expires, in epoch seconds; absent if it does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<WholeSeconds>,
}

impl From<AllowlistEntry> for AllowListing {
    fn from(entry: AllowlistEntry) -> Self {
        Self {
            allowlist_id: entry.id,
            allowed_by_user_id: entry.by.id,
            allowed_by: entry.by.name,
            timestamp: entry.at.seconds(),
            description: entry.description,
            expires_at: entry.expires_at.map(Timestamp::whole_seconds),
        }
    }
}
