//! Allowlists: artifacts that may run in an environment regardless of its policies.

pub(crate) mod ended;
pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod store;
pub(crate) mod view;

pub use ended::ReevaluateEnded;
pub use operations::{
    AllowArtifact, AllowlistEntryEnd, AllowlistInput, ListAllowlist, WithdrawAllowlistEntry,
};
pub use record::{AllowlistEntry, Withdrawal};
pub use store::{AllowedArtifact, AllowlistStore, EndedAllowlistEntry};
pub use view::AllowlistEntryView;
