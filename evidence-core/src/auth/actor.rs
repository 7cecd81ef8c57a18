//! Actors, and the permissions of roles.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::Id;

/// The role of a user or service account in an organization, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// May read everything.
    Reader,
    /// May also report environments, and manage its own service accounts.
    Snapshotter,
    /// May also write everything, including settings, except service accounts created by others.
    Member,
    /// May do everything.
    Admin,
}

impl std::fmt::Display for Role {
    /// Writes the role as in requests and responses.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Reader => "reader",
            Self::Snapshotter => "snapshotter",
            Self::Member => "member",
            Self::Admin => "admin",
        })
    }
}

/// The permission that an operation requires of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// No credential. The operation authenticates the caller itself, for example by the signature of a
    /// webhook's body. It records as the actor that it names
    /// ([`Context::as_service_account`](crate::context::Context),
    /// [`Context::as_operator`](crate::context::Context)), and not without one. Any caller can learn from it
    /// whether the organization in its path exists. [`Operation::body_limit`](crate::Operation::body_limit)
    /// is the only limit for unauthenticated callers. The body must not be a
    /// [`Form`](crate::operation::Form).
    Open,
    /// Any valid credential. If the path names an organization, the operation itself checks whether the
    /// caller has a role in it.
    Authenticated,
    /// Any role.
    Read,
    /// Any role, or any credential if the flow in the path is public.
    ReadFlow,
    /// A role that may report environments and manage its own service accounts.
    Report,
    /// A role that may write.
    Write,
    /// The administrator role. No operation of the API requires it yet; a host's own operations may.
    Admin,
}

impl Scope {
    /// Returns the least role that satisfies the scope.
    pub const fn least_role(self) -> Role {
        match self {
            Self::Open | Self::Authenticated | Self::Read | Self::ReadFlow => Role::Reader,
            Self::Report => Role::Snapshotter,
            Self::Write => Role::Member,
            Self::Admin => Role::Admin,
        }
    }
}

/// The user, service account or operator who did something, as recorded in facts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The user's or service account's id; zeros for an operator, who has no record.
    pub id: Id,
    /// Its display name.
    pub name: String,
    /// Its kind.
    pub kind: ActorKind,
}

/// The kinds of actors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActorKind {
    /// A person with a role in organizations.
    User,
    /// A program with a role in one organization.
    ServiceAccount,
    /// The operator of the host ([`crate::administration`]). An operator calls no operation and has no key.
    Operator,
}

/// An operator in the ledger's leaves.
pub(crate) const OPERATOR: &str = "operator";

impl Actor {
    /// Returns the operator of this name.
    pub(crate) fn operator(name: &str) -> Self {
        Self { id: Id::NONE, name: name.to_owned(), kind: ActorKind::Operator }
    }
}

impl std::fmt::Display for Actor {
    /// Writes the actor as in the ledger's leaves, without its name: `user:<id>`, `service-account:<id>` or `operator`,
    /// who has no id.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.kind {
            ActorKind::User => write!(f, "user:{}", self.id),
            ActorKind::ServiceAccount => write!(f, "service-account:{}", self.id),
            ActorKind::Operator => f.write_str(OPERATOR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_by_what_they_may_do() {
        assert!(
            Role::Reader < Role::Snapshotter
                && Role::Snapshotter < Role::Member
                && Role::Member < Role::Admin
        );
    }
}
