//! Stores attachments after marking them as pending, and limits the time in which a record may name them.

use std::sync::Arc;
use std::time::Duration;

use crate::blobs::{Blobs, Chunks};
use crate::id::Id;
use crate::name::Fingerprint;
use crate::store::Store;
use crate::store::error::{StoreError, StoreResult};
use crate::sweep::place::MarkedPlace;
use crate::sweep::store::AttachmentState;
use crate::time::Timestamp;

/// The time after marking in which a record may name an attachment.
pub(crate) const NAMED_WITHIN: Duration = Duration::from_secs(30 * 60);

/// The number of attempts with a note that changes concurrently.
const ATTEMPTS: u8 = 8;

/// The location of attachments.
#[derive(Clone)]
pub(crate) enum Attachments {
    /// The store itself.
    Inside(Arc<dyn Store>),
    /// An external store.
    Outside(Arc<MarkedPlace>),
}

impl Attachments {
    pub(crate) fn blobs(&self) -> Arc<dyn Blobs> {
        match self {
            Self::Inside(store) => Arc::clone(store) as _,
            Self::Outside(place) => Arc::clone(place) as _,
        }
    }
}

/// Marks an attachment as pending, and stores it for a record that will name it.
pub(crate) async fn store_pending(
    (store, blobs): (&dyn Store, &dyn Blobs),
    (org, sha256): (Id, &Fingerprint),
    content: &mut dyn Chunks,
    now: Timestamp,
) -> StoreResult<()> {
    note(store, blobs, (org, sha256), now).await?;
    blobs.put(org, sha256, content).await
}

async fn note(
    store: &dyn Store,
    blobs: &dyn Blobs,
    (org, sha256): (Id, &Fingerprint),
    now: Timestamp,
) -> StoreResult<()> {
    for _ in 0..ATTEMPTS {
        match store.attachment_state(org, sha256).await? {
            AttachmentState::Named => return Ok(()),
            AttachmentState::Removing => break,
            AttachmentState::Unknown if blobs.get_chunk(org, sha256, 0).await?.is_some() => return Ok(()),
            AttachmentState::Unknown | AttachmentState::Pending => {}
        }
        if store.put_pending(org, sha256, now).await? {
            return Ok(());
        }
    }
    Err(StoreError::Unavailable(format!("the content {sha256} is being removed").into()))
}

/// Refuses to name an attachment that was marked at `noted` too long ago: it may be deleted soon.
pub(crate) fn may_be_named(noted: Timestamp, now: Timestamp) -> StoreResult<()> {
    if is_past(noted, NAMED_WITHIN, now) {
        return Err(StoreError::Unavailable("the attachments were kept too long ago to be recorded".into()));
    }
    Ok(())
}

pub(super) fn is_past(begin: Timestamp, after: Duration, now: Timestamp) -> bool {
    let passed = now.as_micros().saturating_sub(begin.as_micros());
    u128::try_from(passed).is_ok_and(|passed| passed >= after.as_micros())
}
