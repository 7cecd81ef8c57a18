//! The notes of a store about attachments that no record names yet.

use async_trait::async_trait;

use crate::id::Id;
use crate::name::Fingerprint;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// The state of an attachment in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachmentState {
    /// Unknown: it is new, or it exists but the rows that name it are lost.
    Unknown,
    /// Pending: no record names it yet.
    Pending,
    /// It is being deleted.
    Removing,
    /// A record names it.
    Named,
}

/// The note about a pending attachment, which no record names yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The organization.
    pub org: Id,
    /// The digest of the attachment.
    pub sha256: Fingerprint,
    /// When it was last about to be stored.
    pub kept_at: Timestamp,
    /// When its deletion began, if it did.
    pub removing_at: Option<Timestamp>,
}

/// The location of attachments outside the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttachmentPlace {
    /// The id in the marker of the place.
    pub id: Id,
    /// Whether the marker was written.
    pub is_marked: bool,
}

/// The notes about pending attachments. Each call is one transaction.
#[async_trait]
pub trait PendingStore: Send + Sync {
    /// Returns the state of an attachment.
    async fn attachment_state(&self, org: Id, sha256: &Fingerprint) -> StoreResult<AttachmentState>;
    /// Marks an attachment that is about to be stored, or stored again, as pending. Returns whether it did,
    /// durably. Does nothing if a record names the attachment, if it is being deleted, or if there is no such
    /// organization. A time earlier than the recorded one changes nothing.
    async fn put_pending(&self, org: Id, sha256: &Fingerprint, at: Timestamp) -> StoreResult<bool>;
    /// Returns at most `limit` notes, starting after one of them, in a fixed order. Unreadable notes are
    /// skipped. An empty result means that no more follow.
    async fn pending(&self, after: Option<&Pending>, limit: u64) -> StoreResult<Vec<Pending>>;
    /// Records that the deletion of an attachment begins at this time. Returns whether it did: the note must
    /// be unchanged, and no record may name the attachment. Does nothing while tables are being migrated.
    async fn begin_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool>;
    /// Records that the deletion of an attachment ended and the attachment may still exist. Returns whether
    /// it did: the note must be unchanged. The note then is as if the attachment had been stored at this
    /// time. Does nothing while tables are being migrated.
    async fn abandon_removal(&self, pending: &Pending, at: Timestamp) -> StoreResult<bool>;
    /// Removes a note that is unchanged, and the attachment from the store itself, unless a record names it.
    /// Returns whether this removed the note. Does nothing while tables are being migrated.
    async fn end_removal(&self, pending: &Pending) -> StoreResult<bool>;
    /// Returns the location of attachments outside the store, if one was recorded.
    async fn attachment_place(&self) -> StoreResult<Option<AttachmentPlace>>;
    /// Returns at most `limit` attachments that records name, of any organizations and in any order.
    async fn named_attachments(&self, limit: u64) -> StoreResult<Vec<(Id, Fingerprint)>>;
    /// Records the location, unless another one is recorded. Returns whether it did. A location that is
    /// marked stays marked.
    async fn put_attachment_place(&self, place: AttachmentPlace) -> StoreResult<bool>;
}
