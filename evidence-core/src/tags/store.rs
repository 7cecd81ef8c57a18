//! What stores answer about tags.

use async_trait::async_trait;

use crate::id::Id;
use crate::store::error::StoreResult;
use crate::tags::record::{TagChoice, TaggedKind};

/// Queries about tags.
#[async_trait]
pub trait TagStore: Send + Sync {
    /// The tags of all records of this kind in the organization, archived or not: each key with each of its values once,
    /// by key, then by value (bytes), the first `limit` of those that come after `after`.
    async fn tag_choices(
        &self,
        org: Id,
        kind: TaggedKind,
        after: Option<&TagChoice>,
        limit: u64,
    ) -> StoreResult<Vec<TagChoice>>;
}
