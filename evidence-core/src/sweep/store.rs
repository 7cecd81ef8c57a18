//! What a store notes of contents that no record names yet.

use async_trait::async_trait;

use crate::id::Id;
use crate::name::Fingerprint;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// What a store knows of a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentState {
    /// Nothing: it is new, or it is kept and the rows that name it are lost.
    Unknown,
    /// It is noted, and no record names it yet.
    Pending,
    /// It is being removed.
    Removing,
    /// A record names it.
    Named,
}

/// The note of a content that no record names yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The organization.
    pub org: Id,
    /// The content.
    pub sha256: Fingerprint,
    /// When it was last about to be kept.
    pub kept_at: Timestamp,
    /// When its removal began, if it did.
    pub removing_at: Option<Timestamp>,
}

/// The place outside the store where the content of attachments is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachmentPlace {
    /// The id in the marker of the place.
    pub id: Id,
    /// Whether the marker was written.
    pub is_marked: bool,
}

/// The notes of contents that no record names yet. Each call is one transaction.
#[async_trait]
pub trait PendingStore: Send + Sync {
    /// What is known of a content.
    async fn attachment_state(&self, org: Id, sha256: &Fingerprint) -> StoreResult<AttachmentState>;
    /// Notes that a content is about to be kept, or that it is again, and answers whether it did, durably. It does not
    /// where a record names the content, where it is being removed, and where there is no such organization. An earlier
    /// time than the noted one changes nothing.
    async fn put_pending(&self, org: Id, sha256: &Fingerprint, at: Timestamp) -> StoreResult<bool>;
    /// At most `limit` notes, beginning after one of them, in an order that is always the same. What cannot be read is
    /// passed over: where there is none in the answer, none comes after.
    async fn pending(&self, after: Option<&Pending>, limit: u64) -> StoreResult<Vec<Pending>>;
    /// Notes that the removal of a content begins at this time, and answers whether it did: the note still has to be as it
    /// is here, and no record may name the content. While tables are brought up to date it does nothing.
    async fn begin_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool>;
    /// Notes that the removal of a content has ended and the content may still be there, and answers whether it did: the note
    /// still has to be as it is here, and is as if the content had been kept at this time. While tables are brought up to
    /// date it does nothing.
    async fn abandon_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool>;
    /// Forgets a note that is still as it is here, and removes the content from the store itself, unless a record names
    /// it; answers whether the note is gone by this. While tables are brought up to date it does nothing.
    async fn end_removal(&self, pending: &Pending) -> StoreResult<bool>;
    /// Returns the place outside the store where the content of attachments is, if one was noted.
    async fn attachment_place(&self) -> StoreResult<Option<AttachmentPlace>>;
    /// At most `limit` contents that records name, of any organizations and in any order.
    async fn named_attachments(&self, limit: u64) -> StoreResult<Vec<(Id, Fingerprint)>>;
    /// Notes the place, unless another one is noted, and returns whether it did. A place that is marked stays so.
    async fn put_attachment_place(&self, place: AttachmentPlace) -> StoreResult<bool>;
}
