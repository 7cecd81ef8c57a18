//! Sweeping: attachments are kept before the record that names them, so that of one that is refused, or an upload that
//! breaks off, content is left that nothing will ever name. A store therefore notes each content as *pending* before the
//! first byte of it is kept, and forgets the note in the group that records what names it. What is pending for longer
//! than a grace is removed; nothing else ever is, and no place of attachments is listed.
//!
//! A content is noted only where it was not there before. So what a record names has no note, even where the rows that
//! say so are lost or being made again, and is not removed. Notes lie beside the ledgers, as leases do: they are not made
//! again, not copied, and not checked.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::background::{Job, Turn};
use crate::blobs::{Blobs, Chunks, OutsideBlobs};
use crate::error::Result;
use crate::id::Id;
use crate::name::Fingerprint;
use crate::service::Evidence;
use crate::store::{Store, StoreError, StoreResult};
use crate::time::Timestamp;

/// How long after a content was noted a record may come to name it.
pub(crate) const NAMED_WITHIN: Duration = Duration::from_secs(30 * 60);

/// The shortest grace: an hour beyond the time in which a record may come to name a content, by which the clocks of
/// servers may differ.
pub const LEAST_GRACE: Duration = Duration::from_secs(60 * 60 + NAMED_WITHIN.as_secs());

/// The grace by default.
pub const GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the job rests between two passes.
const REST: Duration = Duration::from_secs(10 * 60);

/// How many notes are read at a time.
const PAGE: u64 = 256;

/// How long a place outside of the store may take to remove one content.
const REMOVED_WITHIN: Duration = Duration::from_secs(60);

/// After how long a removal is tried again whose outcome nobody knows.
const RETRIED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// After how many removals in a row that fail a pass goes on with the next organization: the place removes nothing of this
/// one now.
const FAILURES: usize = 16;

/// After how many such organizations a pass ends.
const GIVEN_UP: usize = 64;

/// How often a note that changes meanwhile is looked at again.
const ATTEMPTS: u8 = 8;

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
}

/// Where the contents of attachments are.
#[derive(Clone)]
pub(crate) enum Attachments {
    /// In the store itself.
    Inside(Arc<dyn Store>),
    /// In a place outside of it.
    Outside(Arc<dyn OutsideBlobs>),
}

impl Attachments {
    pub(crate) fn blobs(&self) -> Arc<dyn Blobs> {
        match self {
            Self::Inside(store) => Arc::clone(store) as _,
            Self::Outside(place) => Arc::clone(place) as _,
        }
    }
}

/// Keeps a content that a record is about to name, noted before.
pub(crate) async fn keep(
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

/// Whether what was noted at `noted` may still be named: later it may be gone.
pub(crate) fn may_be_named(noted: Timestamp, now: Timestamp) -> StoreResult<()> {
    if is_past(noted, NAMED_WITHIN, now) {
        return Err(StoreError::Unavailable("the attachments were kept too long ago to be recorded".into()));
    }
    Ok(())
}

fn is_past(begin: Timestamp, after: Duration, now: Timestamp) -> bool {
    let passed = now.as_micros().saturating_sub(begin.as_micros());
    u128::try_from(passed).is_ok_and(|passed| passed >= after.as_micros())
}

/// A grace that is too short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "attachments cannot be swept after {} seconds: a record may still come to name them for {} seconds",
    .0.as_secs(),
    LEAST_GRACE.as_secs()
)]
pub struct GraceTooShort(pub Duration);

/// The job that removes the contents of attachments that no record came to name.
#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    grace: Duration,
}

impl Default for Sweep {
    /// After [`GRACE`].
    fn default() -> Self {
        Self { grace: GRACE }
    }
}

impl Sweep {
    /// Removes what no record has named for `grace` since it was kept.
    ///
    /// # Errors
    /// [`GraceTooShort`] when that is less than [`LEAST_GRACE`].
    pub fn after(grace: Duration) -> std::result::Result<Self, GraceTooShort> {
        if grace < LEAST_GRACE { Err(GraceTooShort(grace)) } else { Ok(Self { grace }) }
    }

    /// Looks through all notes once, and answers how many of them are gone by it: what the job does, for hosts that have a
    /// scheduler of their own.
    ///
    /// # Errors
    /// [`crate::Error::Store`] when the store or the place of the attachments fails: the first error, after everything else
    /// was tried, but for organizations of which the place removes nothing. What the place refuses to remove is tried again
    /// after another grace, and what it does not answer to a day later.
    pub async fn pass(&self, evidence: &Evidence) -> Result<u64> {
        let (store, mut last, mut gone) = (evidence.store(), None, 0);
        let (mut failed, mut given_up) = (None, 0);
        // Removals that failed one after the other, all of this organization.
        let mut in_a_row: (Option<Id>, usize) = (None, 0);
        loop {
            let page = store.pending(last.as_ref(), PAGE).await?;
            let Some(end) = page.last().cloned() else { return failed.map_or(Ok(gone), Err) };
            last = Some(end);
            for pending in page.into_iter().filter(|pending| self.is_due(pending, evidence.now())) {
                let error = match remove(&pending, evidence).await {
                    Ok(removed) => {
                        gone += u64::from(removed);
                        in_a_row = (None, 0);
                        continue;
                    }
                    Err(error) => error,
                };
                let first = failed.take().unwrap_or(error);
                let others = if in_a_row.0 == Some(pending.org) { in_a_row.1 } else { 0 };
                in_a_row = (Some(pending.org), others + 1);
                if in_a_row.1 < FAILURES {
                    // One content that stays must not keep all others.
                    failed = Some(first);
                    continue;
                }
                given_up += 1;
                if given_up == GIVEN_UP {
                    return Err(first);
                }
                failed = Some(first);
                last = Some(behind_all_of_its_organization(&pending));
                break;
            }
        }
    }

    fn is_due(&self, pending: &Pending, now: Timestamp) -> bool {
        match pending.removing_at {
            None => is_past(pending.kept_at, self.grace, now),
            Some(begun) => is_past(begun, RETRIED_AFTER, now),
        }
    }
}

/// Where the notes of its organization end.
fn behind_all_of_its_organization(pending: &Pending) -> Pending {
    let greatest = "f".repeat(64).parse();
    Pending { sha256: greatest.unwrap_or_else(|_| pending.sha256.clone()), ..pending.clone() }
}

/// Removes a content, unless a record names it: then the note alone.
async fn remove(pending: &Pending, evidence: &Evidence) -> Result<bool> {
    let store = evidence.store();
    let Attachments::Outside(place) = evidence.attachments() else {
        return Ok(store.end_removal(pending).await?);
    };
    let begun = evidence.now();
    if !store.begin_removal(pending, begun).await? {
        // Named, or no longer as it was, and then nothing happens.
        return Ok(store.end_removal(pending).await?);
    }
    let late = || StoreError::Unavailable("the place of the attachments does not remove in time".into());
    // Whoever was stopped in between finds it in another's hands.
    let removing = Pending { removing_at: Some(begun), ..pending.clone() };
    if is_past(begun, REMOVED_WITHIN, evidence.now()) {
        store.abandon_removal(&removing, evidence.now()).await?;
        return Err(late().into());
    }
    match tokio::time::timeout(REMOVED_WITHIN, place.remove(pending.org, &pending.sha256)).await {
        Ok(Ok(())) => Ok(store.end_removal(&removing).await?),
        Ok(Err(refused @ StoreError::Unavailable(_))) => {
            store.abandon_removal(&removing, evidence.now()).await?;
            Err(refused.into())
        }
        // It may be removed at any time: nothing is to be kept there meanwhile.
        Ok(Err(unknown)) => Err(unknown.into()),
        Err(_) => Err(late().into()),
    }
}

#[async_trait]
impl Job for Sweep {
    fn name(&self) -> &str {
        "sweep-attachments"
    }

    fn every(&self) -> Duration {
        REST
    }

    async fn run(&self, turn: &Turn) -> Result<()> {
        let contents = self.pass(turn.evidence()).await?;
        if contents > 0 {
            tracing::info!(contents, "what no record came to name of the attachments is removed");
        }
        Ok(())
    }
}
