//! Organizations, users and memberships. Every other record belongs to one organization.

pub(crate) mod audit_log;
pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod store;

pub use audit_log::{
    ListMembershipEvents, MembershipEvent, MembershipEventList, MembershipEventType, MembershipSort,
    MembershipSource,
};
pub use operations::{DefaultOrg, GetDefaultOrg, GetOrganization, OrganizationView, PutDefaultOrg};
pub use record::{Membership, OrgKind, Organization, User, UserSettings};
pub use store::{ByName, KeyHolder, Member, OrgRole, OrgStore};
