//! Policies: versioned YAML documents with the requirements of environments for the artifacts that run in
//! them.

pub(crate) mod operations;
pub(crate) mod parsed;
pub(crate) mod record;
pub(crate) mod reevaluate;
pub(crate) mod store;
pub(crate) mod view;

pub use crate::id::VersionKey;
pub use operations::{GetPolicy, ListPolicies, PolicyInput, PolicyKind, PutPolicy};
pub use record::{DescriptionChange, Policy, PolicyVersion};
pub use reevaluate::Reevaluate;
pub use store::PolicyStore;
pub use view::{AfterVersions, BeforeVersions, PolicyEventView, PolicyVersionView, PolicyView};
