//! Who calls, what for, and with which right.

use crate::auth::actor::{Actor, ActorKind, Role, Scope};
use crate::auth::credentials::KeyHash;
use crate::error::{Missing, Resource, Result};
use crate::id::Id;
use crate::name::{FlowName, OrgName};
use crate::operation::Operation;

/// An authenticated caller, made by [`crate::EvidenceService::authenticate`] and
/// [`crate::Evidence::principal_of_user`] alone; or [nobody](Self::nobody). It may be kept: whether its key still works and what its holder may do
/// is looked up at each use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub(crate) actor: Actor,
    /// The key that was presented; none where a host vouches for a user.
    pub(crate) key: Option<KeyHash>,
}

impl Principal {
    /// Whoever calls an operation of [`Scope::Open`]: no credential is looked at, and no other operation is for them.
    pub const fn nobody() -> Self {
        let actor = Actor { id: Id::NONE, name: String::new(), kind: ActorKind::Operator };
        Self { actor, key: None }
    }

    /// Whether it is [nobody](Self::nobody): of every other principal there is a record.
    pub(crate) fn is_nobody(&self) -> bool {
        self.actor.id == Id::NONE
    }

    /// The user or service account.
    pub const fn actor(&self) -> &Actor {
        &self.actor
    }
}

/// What somebody is about to do: an operation, and the organization and the flow that its path names. It is the one
/// source of both for [`crate::EvidenceService::authorize`], whoever carries the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    operation: &'static str,
    scope: Scope,
    org: Option<OrgName>,
    flow: Option<FlowName>,
}

impl Target {
    /// What an operation is about to do, by its own fields.
    pub fn of<O: Operation>(operation: &O) -> Self {
        Self::new::<O>(operation.org().cloned(), operation.flow().cloned())
    }

    /// The same by the path's parameters, percent-decoded, before the operation is read from them: for a transport, which
    /// refuses those who may not before it looks at anything else of a request. What cannot be a flow's name is none.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for what cannot be an organization's name.
    pub fn at<'a, O: Operation>(parameter: impl Fn(&str) -> Option<&'a str>) -> Result<Self> {
        let org = match parameter("org")
            .filter(|_| O::SCOPE != Scope::Authenticated)
            .map(|name| (name, name.parse()))
        {
            None => None,
            Some((_, Ok(org))) => Some(org),
            Some((name, Err(_))) => return Err(Missing::new(Resource::Organization, name, name).into()),
        };
        Ok(Self::new::<O>(org, parameter("flow_name").and_then(|name| name.parse().ok())))
    }

    fn new<O: Operation>(org: Option<OrgName>, flow: Option<FlowName>) -> Self {
        let flow = flow.filter(|_| O::SCOPE == Scope::ReadFlow);
        Self { operation: O::NAME, scope: O::SCOPE, org, flow }
    }

    /// The `operationId`.
    pub const fn operation(&self) -> &'static str {
        self.operation
    }

    /// What the operation asks of its caller.
    pub const fn scope(&self) -> Scope {
        self.scope
    }

    /// The organization.
    pub const fn org(&self) -> Option<&OrgName> {
        self.org.as_ref()
    }

    /// The flow that is read from, where the scope is [`Scope::ReadFlow`].
    pub const fn flow(&self) -> Option<&FlowName> {
        self.flow.as_ref()
    }
}

/// A caller's right to one [`Target`], established by [`crate::EvidenceService::authorize`] alone, and good for nothing
/// else. It is looked up again when it is used and when something is recorded with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    pub(crate) caller: Principal,
    pub(crate) target: Target,
    pub(crate) org_access: Option<OrgAccess>,
    /// The organization whose service account the caller is.
    pub(crate) account_org: Option<Id>,
}

impl Access {
    /// Who calls.
    pub const fn caller(&self) -> &Principal {
        &self.caller
    }

    /// What for.
    pub const fn target(&self) -> &Target {
        &self.target
    }

    /// Where, and with which role; nothing for operations that concern no organization.
    pub const fn org_access(&self) -> Option<&OrgAccess> {
        self.org_access.as_ref()
    }

    /// Whose share of the compute pool the request uses ([`Compute::on_behalf_of`](crate::compute::Compute::on_behalf_of)):
    /// the organization's, where the caller has a role there, and else the caller's own. An organization makes as many service
    /// accounts as it likes: elsewhere they all use its own share. Nothing for nobody.
    pub fn on_behalf_of(&self) -> Option<Id> {
        match &self.org_access {
            Some(OrgAccess { org, role: Some(_), .. }) => Some(*org),
            _ if self.caller.is_nobody() => None,
            _ => Some(self.account_org.unwrap_or(self.caller.actor.id)),
        }
    }
}

/// The organization that a request concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrgAccess {
    /// The organization's id.
    pub org: Id,
    /// Its name.
    pub name: OrgName,
    /// The caller's role there; nothing for an outsider who reads a public flow.
    pub role: Option<Role>,
}
