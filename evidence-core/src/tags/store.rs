//! The queries about tags that a store answers.

use async_trait::async_trait;

use crate::id::Id;
use crate::store::error::StoreResult;
use crate::tags::record::{TagChoice, TaggedKind};

/// Queries about tags.
#[async_trait]
pub trait TagStore: Send + Sync {
    /// Returns the tags of all records of this kind in the organization, archived or not. Each key has each
    /// of its values once, sorted by key, then by value (bytes). Returns the first `limit` of those after
    /// `after`.
    async fn tag_choices(
        &self,
        org: Id,
        kind: TaggedKind,
        after: Option<&TagChoice>,
        limit: u64,
    ) -> StoreResult<Vec<TagChoice>>;
}
