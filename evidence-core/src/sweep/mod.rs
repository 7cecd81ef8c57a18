//! Deletion of unreferenced attachments. An attachment is stored before the record that names it. If the
//! record is refused or the upload is interrupted, content stays that nothing will ever name. A store
//! therefore marks each attachment as *pending* before its first byte is stored. It removes this note in the
//! write that records a reference. The sweep deletes attachments that are pending for longer than a grace
//! period, and nothing else; it never lists the attachment store.
//!
//! An attachment gets a note only if it did not exist before. An attachment that a record names thus has no
//! note and is not deleted, even if the index rows that refer to it are lost or being rebuilt. Notes are
//! stored beside the ledgers, like leases: they are not rebuilt, copied or verified.

pub(crate) mod job;
pub(crate) mod pending;
pub(crate) mod place;
pub(crate) mod store;

pub use job::{GRACE, GraceTooShort, LEAST_GRACE, Sweep};
pub use place::MarkedPlace;
pub use store::{AttachmentPlace, AttachmentState, Pending, PendingStore};
