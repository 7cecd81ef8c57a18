//! The recorded form of service accounts and API keys.

use serde::{Deserialize, Serialize};

use crate::auth::actor::{Actor, ActorKind, Role};
use crate::auth::credentials::ApiKey;
use crate::decode::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::ServiceAccountName;
use crate::time::Timestamp;

/// A service account as recorded.
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
    /// The user or service account that created it.
    pub created_by: Actor,
    /// When it was created.
    pub created_at: Timestamp,
    /// Fields that a newer version of the program recorded.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(ServiceAccount);

/// An API key as recorded, without the key itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct ApiKeyRecord {
    /// Its id.
    pub id: Id,
    /// The service account that owns it.
    pub owner: Actor,
    /// A description of its purpose.
    pub description: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// When the grace period ends, during which it works beside the key that replaced it. `None` if it was
    /// not rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period_expires_at: Option<Timestamp>,
    /// When it was revoked, by the clock of the server that revoked it. A revoked key does not work,
    /// regardless of the clock.
    pub revoked_at: Option<Timestamp>,
    /// The SHA-256 of the stored hash.
    pub hash_sha256: String,
    /// Fields that a newer version of the program recorded.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(ApiKeyRecord);

impl ServiceAccount {
    /// Returns the account as the actor of facts.
    pub(crate) fn actor(&self) -> Actor {
        Actor { id: self.id, name: self.name.to_string(), kind: ActorKind::ServiceAccount }
    }
}

impl ApiKeyRecord {
    /// Returns the record of a new key.
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

    /// Returns when the key ends by expiry or by the end of its grace period; `None` for never. Ignores
    /// revocation.
    pub fn ends_at(&self) -> Option<Timestamp> {
        [self.expires_at, self.grace_period_expires_at].into_iter().flatten().min()
    }

    /// Returns whether the key works at this time.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.ends_at().is_none_or(|end| now < end)
    }

    /// Returns the key after its replacement by another. It works until `end` at most.
    pub(crate) fn rotated(self, end: Timestamp) -> Self {
        let end = self.ends_at().map_or(end, |earlier| earlier.min(end));
        Self { grace_period_expires_at: Some(end), ..self }
    }

    /// Returns the key, revoked at this time.
    pub(crate) fn revoked(self, now: Timestamp) -> Self {
        Self { revoked_at: Some(now), ..self }
    }
}
