//! Sweeping: attachments are kept before the record that names them, so that of one that is refused, or an upload that
//! breaks off, content is left that nothing will ever name. A store therefore notes each content as *pending* before the
//! first byte of it is kept, and forgets the note in the group that records what names it. What is pending for longer
//! than a grace is removed; nothing else ever is, and no place of attachments is listed.
//!
//! A content is noted only where it was not there before. So what a record names has no note, even where the rows that
//! say so are lost or being made again, and is not removed. Notes lie beside the ledgers, as leases do: they are not made
//! again, not copied, and not checked.

pub(crate) mod job;
pub(crate) mod pending;
pub(crate) mod place;
pub(crate) mod store;

pub use job::{GRACE, GraceTooShort, LEAST_GRACE, Sweep};
pub use place::MarkedPlace;
pub use store::{AttachmentPlace, AttachmentState, Pending, PendingStore};
