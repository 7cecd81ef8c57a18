//! Organizations, users and memberships as they are recorded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::{Actor, ActorKind, Role};
use crate::fact::payload::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::OrgName;
use crate::time::Timestamp;

/// An organization: the boundary of access, and of one ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Organization {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the store.
    pub name: OrgName,
    /// Whether it is shared or one user's own.
    pub kind: OrgKind,
    /// When it was created.
    pub created_at: Timestamp,
}

/// The two kinds of organizations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OrgKind {
    /// Several users and service accounts with roles.
    Shared,
    /// One user's, named as the user.
    Personal,
}

/// A person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user's id.
    pub id: Id,
    /// The login name, which is also the name of the personal organization.
    pub name: OrgName,
    /// When the user was created.
    pub created_at: Timestamp,
}

impl User {
    /// The user, as facts remember who did something.
    pub fn actor(&self) -> Actor {
        Actor { id: self.id, name: self.name.to_string(), kind: ActorKind::User }
    }
}

/// What a user has set for themselves, in the ledger of their personal organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct UserSettings {
    /// The user.
    pub user: Id,
    /// The name of the organization that clients take where none is given.
    pub default_org: OrgName,
    /// Fields that a newer version of the program recorded.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(UserSettings);

/// A user's role in an organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The user.
    pub user: Id,
    /// The role there.
    pub role: Role,
}
