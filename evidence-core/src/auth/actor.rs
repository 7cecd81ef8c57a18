//! Who does something, and what a role allows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::Id;

/// What a user or service account may do in an organization, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads everything.
    Reader,
    /// Also reports environments and keeps service accounts of its own.
    Snapshotter,
    /// Also writes everything, settings too, but for service accounts that others created.
    Member,
    /// May do everything.
    Admin,
}

impl std::fmt::Display for Role {
    /// As the wire has it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Reader => "reader",
            Self::Snapshotter => "snapshotter",
            Self::Member => "member",
            Self::Admin => "admin",
        })
    }
}

/// What an operation asks of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Anybody, without a credential: the operation finds out by itself who calls, as of a webhook whose bytes somebody
    /// else has signed. It records as whom it names ([`Context::as_service_account`](crate::service::Context),
    /// [`Context::as_operator`](crate::service::Context)), and not without. Anybody may learn from it whether the
    /// organization of its path exists. [`Operation::body_limit`](crate::Operation::body_limit) is the only bound on what an unauthenticated
    /// caller can send, and its body must not be a [`Form`](crate::operation::Form).
    Open,
    /// Any valid credential. Where the path names an organization, the operation looks by itself whether the caller has a role
    /// there.
    Authenticated,
    /// Any role.
    Read,
    /// Any role, or anybody with a credential when the flow named in the path is public.
    ReadFlow,
    /// A role that may report environments and keep service accounts of its own.
    Report,
    /// A role that may write.
    Write,
    /// The role that may do everything. No operation of the API asks for it yet; a host's own may.
    Admin,
}

impl Scope {
    /// The least role that satisfies the scope.
    pub const fn least_role(self) -> Role {
        match self {
            Self::Open | Self::Authenticated | Self::Read | Self::ReadFlow => Role::Reader,
            Self::Report => Role::Snapshotter,
            Self::Write => Role::Member,
            Self::Admin => Role::Admin,
        }
    }
}

/// Who did something, as facts remember it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// The user's or service account's id; zeros for an operator, of whom there is no record.
    pub id: Id,
    /// Its name, shown wherever people look.
    pub name: String,
    /// What it is the name of.
    pub kind: ActorKind,
}

/// The kinds of those who do something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActorKind {
    /// A person with a role in organizations.
    User,
    /// A program with a role in one organization.
    ServiceAccount,
    /// Whoever runs the host ([`crate::administration`]). They call no operation and hold no key.
    Operator,
}

impl Actor {
    /// The operator of this name.
    pub(crate) fn operator(name: &str) -> Self {
        Self { id: Id::NONE, name: name.to_owned(), kind: ActorKind::Operator }
    }
}

impl std::fmt::Display for Actor {
    /// `user:jane`, as the ledger's leaves carry it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            ActorKind::User => "user",
            ActorKind::ServiceAccount => "service-account",
            ActorKind::Operator => "operator",
        };
        write!(f, "{kind}:{}", self.name)
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
