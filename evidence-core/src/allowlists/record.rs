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
    /// Why.
    pub description: String,
    /// When.
    pub at: Timestamp,
    /// By whom.
    pub by: Actor,
}
