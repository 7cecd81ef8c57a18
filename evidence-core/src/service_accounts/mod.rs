//! Service accounts and their API keys. A service account is a program that belongs to one shared
//! organization.

pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod store;
pub(crate) mod view;

pub use operations::{
    CreateServiceAccount, DeleteServiceAccount, FieldPatch, GetServiceAccount, ListServiceAccounts,
    PatchServiceAccount, ServiceAccountInput, ServiceAccountPatch,
};
pub use record::{ApiKeyRecord, ServiceAccount};
pub use store::ServiceAccountStore;
pub use view::ServiceAccountView;
