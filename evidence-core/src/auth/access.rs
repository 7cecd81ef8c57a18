//! The caller of an operation, its target, and the caller's permission.

use crate::auth::actor::{Actor, ActorKind, Role, Scope};
use crate::auth::credentials::KeyHash;
use crate::id::Id;
use crate::name::{FlowName, OrgName};

/// An authenticated caller. Created only by [`crate::EvidenceService::authenticate`] and
/// [`crate::Evidence::principal_of_user`], or as [nobody](Self::nobody). It may be retained: the validity of
/// its key and the permissions of its holder are checked at each use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub(crate) actor: Actor,
    /// The key that was presented; `None` if a host authenticated the user.
    pub(crate) key: Option<KeyHash>,
}

impl Principal {
    /// Returns the caller of an operation with [`Scope::Open`], without a credential. It may call no other
    /// operation.
    pub const fn nobody() -> Self {
        let actor = Actor { id: Id::NONE, name: String::new(), kind: ActorKind::Operator };
        Self { actor, key: None }
    }

    /// Returns whether it is [nobody](Self::nobody). Every other principal has a record.
    pub(crate) fn is_nobody(&self) -> bool {
        self.actor.id == Id::NONE
    }

    /// Returns the user or service account.
    pub const fn actor(&self) -> &Actor {
        &self.actor
    }
}

/// The target of a call: an operation, with the organization and the flow in its path.
/// [`crate::EvidenceService::authorize`] gets both only from here, whatever the transport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    operation: &'static str,
    scope: Scope,
    org: Option<OrgName>,
    flow: Option<FlowName>,
}

impl Target {
    /// Creates a target. The flow is ignored unless the scope is [`Scope::ReadFlow`].
    pub(crate) fn new(
        operation: &'static str,
        scope: Scope,
        org: Option<OrgName>,
        flow: Option<FlowName>,
    ) -> Self {
        Self { operation, scope, org, flow: flow.filter(|_| scope == Scope::ReadFlow) }
    }

    /// Returns the `operationId`.
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// Returns the scope that the operation requires.
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// Returns the organization.
    pub const fn org(&self) -> Option<&OrgName> {
        self.org.as_ref()
    }

    /// Returns the flow to read from, if the scope is [`Scope::ReadFlow`].
    pub const fn flow(&self) -> Option<&FlowName> {
        self.flow.as_ref()
    }
}

/// A caller's permission for one [`Target`]. Created only by [`crate::EvidenceService::authorize`], and valid
/// for nothing else. It is checked again when it is used and when something is recorded with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub(crate) caller: Principal,
    pub(crate) target: Target,
    pub(crate) org_access: Option<OrgAccess>,
    /// The organization of the calling service account.
    pub(crate) account_org: Option<Id>,
}

impl Access {
    /// Returns the caller.
    pub const fn caller(&self) -> &Principal {
        &self.caller
    }

    /// Returns the target.
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the organization and the caller's role in it; `None` for operations without an organization.
    pub const fn org_access(&self) -> Option<&OrgAccess> {
        self.org_access.as_ref()
    }

    /// Returns the tenant whose share of the compute pool the request uses
    /// ([`Compute::on_behalf_of`](crate::compute::Compute::on_behalf_of)). It is the organization if the
    /// caller has a role there, otherwise the caller's own. An organization can create many service accounts:
    /// elsewhere, all of them use its own share. `None` for nobody.
    pub fn on_behalf_of(&self) -> Option<Id> {
        match &self.org_access {
            Some(OrgAccess { org, role: Some(_), .. }) => Some(*org),
            _ if self.caller.is_nobody() => None,
            _ => Some(self.account_org.unwrap_or(self.caller.actor.id)),
        }
    }
}

/// The organization of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrgAccess {
    /// The organization's id.
    pub org: Id,
    /// Its name.
    pub name: OrgName,
    /// The caller's role in it; `None` for an outsider who reads a public flow.
    pub role: Option<Role>,
}
