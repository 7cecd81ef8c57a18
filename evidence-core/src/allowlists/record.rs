//! What is recorded of an allowlist: artifacts that may run in an environment whatever its policies say.

use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::id::Id;
use crate::name::Fingerprint;
use crate::time::Timestamp;

/// An allowlist entry as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    /// Its id.
    pub id: Id,
    /// The environment.
    pub environment: Id,
    /// The artifact allowed.
    pub fingerprint: Fingerprint,
    /// The artifact's name.
    pub artifact_name: String,
    /// The reason.
    pub description: String,
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
    /// When it ends; nothing where it holds until somebody withdraws it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Who withdrew it, where somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn: Option<Withdrawal>,
}

/// The end of an allowlist entry before its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdrawal {
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
}

impl Allowance {
    /// When the entry ends or has ended; nothing where no end is known.
    pub fn ends_at(&self) -> Option<Timestamp> {
        self.withdrawn.as_ref().map(|withdrawn| withdrawn.at).or(self.expires_at)
    }

    /// Whether the entry counts at this time. A withdrawn one never does, whatever the clock says: another server's clock
    /// may be behind the one that withdrew it.
    pub fn is_in_force(&self, at: Timestamp) -> bool {
        self.withdrawn.is_none() && self.expires_at.is_none_or(|expires_at| at < expires_at)
    }
}
