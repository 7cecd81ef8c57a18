//! The allowlist: artifacts that may run in an environment whatever its policies say.

pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod store;

pub use operations::{AllowArtifact, AllowanceView, AllowlistInput, ListAllowlist};
pub use record::Allowance;
pub use store::AllowlistStore;
