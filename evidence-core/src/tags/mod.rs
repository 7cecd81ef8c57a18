//! Tags: labels on flows, environments and repos, which lists are narrowed by.

pub(crate) mod operations;
pub(crate) mod record;

pub use operations::{PatchTags, TagPatch};
pub use record::{TagFilter, TaggedKind, Tags};
