//! The recorded form of allowlist entries: artifacts that may run in an environment regardless of its
//! policies.

use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::id::Id;
use crate::name::Fingerprint;
use crate::time::Timestamp;

/// An allowlist entry as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowlistEntry {
    /// Its id.
    pub id: Id,
    /// The environment.
    pub environment: Id,
    /// The fingerprint of the allowed artifact.
    pub fingerprint: Fingerprint,
    /// The artifact's name.
    pub artifact_name: String,
    /// The reason.
    pub description: String,
    /// When the artifact was allowed.
    pub at: Timestamp,
    /// The user or service account that allowed it.
    pub by: Actor,
    /// When it expires; `None` if it holds until it is withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Its withdrawal, if it was withdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<Withdrawal>,
}

/// The withdrawal of an allowlist entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawal {
    /// When the entry was withdrawn.
    pub at: Timestamp,
    /// The user or service account that withdrew it.
    pub by: Actor,
}

impl AllowlistEntry {
    /// Returns when the entry ends or ended; `None` if no end is known.
    pub fn ends_at(&self) -> Option<Timestamp> {
        self.withdrawn.as_ref().map(|withdrawn| withdrawn.at).or(self.expires_at)
    }

    /// Returns whether the entry counts at this time. A withdrawn entry never does, regardless of the clock:
    /// another server's clock may be behind that of the server that withdrew it.
    pub fn is_in_force(&self, at: Timestamp) -> bool {
        self.withdrawn.is_none() && self.expires_at.is_none_or(|expires_at| at < expires_at)
    }
}
