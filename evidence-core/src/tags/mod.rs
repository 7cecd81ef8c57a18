//! Tags: labels on flows, environments, repos and controls, by which lists are filtered.

pub(crate) mod operations;
pub(crate) mod record;
pub(crate) mod store;

pub use operations::{PatchTags, TagPatch};
pub use record::{TagChoice, TagFilter, TaggedKind, Tags};
pub use store::TagStore;
