//! Service accounts and API keys as they are recorded.

use serde::{Deserialize, Serialize};

use crate::auth::actor::{Actor, ActorKind, Role};
use crate::auth::credentials::ApiKey;
use crate::fact::payload::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::ServiceAccountName;
use crate::time::Timestamp;

/// A service account as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ServiceAccount {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: ServiceAccountName,
    /// A description of its purpose.
    pub description: Option<String>,
    /// Its role.
    pub privilege: Role,
    /// Who created it.
    pub created_by: Actor,
    /// When.
    pub created_at: Timestamp,
    /// Fields that a newer version of the program recorded.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(ServiceAccount);

/// An API key as it is recorded: everything but the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ApiKeyRecord {
    /// Its id.
    pub id: Id,
    /// Whose it is.
    pub owner: Actor,
    /// A description of its purpose.
    pub description: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// When the grace period ends in which it works beside the key that replaced it; `None` unless it was rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_expires_at: Option<Timestamp>,
    /// When it was revoked, by the clock of the server that did so. From then on it does not work, whatever the clock says.
    pub revoked_at: Option<Timestamp>,
    /// The SHA-256 of the stored hash.
    pub hash_sha256: String,
    /// Fields that a newer version of the program recorded.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(ApiKeyRecord);

impl ServiceAccount {
    /// The account, as facts remember it.
    pub(crate) fn actor(&self) -> Actor {
        Actor { id: self.id, name: self.name.to_string(), kind: ActorKind::ServiceAccount }
    }
}

impl ApiKeyRecord {
    /// What is known of a new key.
    pub(crate) fn of(
        key: &ApiKey,
        id: Id,
        owner: Actor,
        description: String,
        created_at: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> Self {
        let hash_sha256 = key.hash().fingerprint();
        Self {
            id,
            owner,
            description,
            created_at,
            expires_at,
            grace_period_expires_at: None,
            revoked_at: None,
            hash_sha256,
            unknown: UnknownFields::default(),
        }
    }

    /// When the key ends unless it is revoked before: it expires, or its grace period is over. `None` for never.
    pub(crate) fn ends_at(&self) -> Option<Timestamp> {
        [self.expires_at, self.grace_period_expires_at].into_iter().flatten().min()
    }

    /// Whether the key works at this instant.
    pub(crate) fn is_active(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.ends_at().is_none_or(|end| now < end)
    }

    /// The key, once it is replaced by another, beside which it works until `end` at most.
    pub(crate) fn rotated(self, end: Timestamp) -> Self {
        let end = self.ends_at().map_or(end, |earlier| earlier.min(end));
        Self { grace_period_expires_at: Some(end), ..self }
    }

    /// The key, revoked at this instant.
    pub(crate) fn revoked(self, now: Timestamp) -> Self {
        Self { revoked_at: Some(now), ..self }
    }
}
