//! Allowlists: artifacts that may run in an environment regardless of its policies.

pub(crate) mod ended;
pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod store;

pub use ended::ReevaluateEnded;
pub use operations::{
    AllowArtifact, AllowanceEnd, AllowanceView, AllowlistInput, ListAllowlist, WithdrawAllowance,
};
pub use record::{Allowance, Withdrawal};
pub use store::{AllowedArtifact, AllowlistStore, EndedAllowance};
