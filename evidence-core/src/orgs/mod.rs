//! Organizations, users and memberships: who there is. Every other record belongs to one organization.

pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod store;

pub use operations::{GetOrganization, OrganizationView};
pub use record::{Membership, OrgKind, Organization, User};
pub use store::{ByName, KeyHolder, Member, OrgRole, OrgStore};
