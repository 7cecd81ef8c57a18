//! The recorded form of organizations, users and memberships.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::{Actor, ActorKind, Role};
use crate::decode::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::OrgName;
use crate::time::Timestamp;

/// An organization: the boundary of access, with its own ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Organization {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the store.
    pub name: OrgName,
    /// Whether it is shared, or belongs to one user.
    pub kind: OrgKind,
    /// When it was created.
    pub created_at: Timestamp,
}

/// The two kinds of organizations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OrgKind {
    /// Shared by users and service accounts with roles.
    Shared,
    /// Belongs to one user, and has the user's name.
    Personal,
}

/// A user: a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user's id.
    pub id: Id,
    /// The login name, which is also the name of the user's personal organization.
    pub name: OrgName,
    /// When the user was created.
    pub created_at: Timestamp,
}

impl User {
    /// Returns the user as the actor of facts.
    pub fn actor(&self) -> Actor {
        Actor { id: self.id, name: self.name.to_string(), kind: ActorKind::User }
    }
}

/// A user's own settings, in the ledger of the personal organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct UserSettings {
    /// The user.
    pub user: Id,
    /// The name of the organization that clients use if none is given.
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
