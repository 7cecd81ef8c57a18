//! The allowlist: artifacts that may run in an environment whatever its policies say.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::auth::Actor;
use crate::id::Id;
use crate::name::Fingerprint;
use crate::store::StoreResult;
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

/// Questions about the allowlist.
#[async_trait]
pub trait AllowlistStore: Send + Sync {
    /// The newest entry of each environment and fingerprint, newest first (by ledger index); of one environment or all.
    async fn allowances(&self, org: Id, environment: Option<Id>) -> StoreResult<Vec<Allowance>>;
}
