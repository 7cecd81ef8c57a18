//! Authentication and authorization: API keys, principals, roles and scopes (specification, Authentication).

pub(crate) mod access;
pub(crate) mod actor;
pub(crate) mod credentials;

pub use access::{Access, OrgAccess, Principal, Target};
pub use actor::{Actor, ActorKind, Role, Scope};
pub use credentials::{ApiKey, Credential, KeyHash};
