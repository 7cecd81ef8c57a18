//! The job that deletes attachments that no record names.

use std::time::Duration;

use async_trait::async_trait;

use crate::background::runner::{Job, JobContext};
use crate::blobs::OutsideBlobs;
use crate::error::Result;
use crate::id::Id;
use crate::service::Evidence;
use crate::store::error::StoreError;
use crate::sweep::pending::{Attachments, NAMED_WITHIN, is_past};
use crate::sweep::store::Pending;
use crate::time::Timestamp;

/// The shortest grace period: the time in which a record may still name an attachment, plus an hour for
/// differences between servers' clocks.
pub const LEAST_GRACE: Duration = Duration::from_secs(60 * 60 + NAMED_WITHIN.as_secs());

/// The default grace period.
pub const GRACE: Duration = Duration::from_secs(24 * 60 * 60);

/// The pause between two passes of the job.
const REST: Duration = Duration::from_secs(10 * 60);

/// The number of pending notes that are read at a time.
const PAGE: u64 = 256;

/// The time limit for an external store to delete one attachment.
const REMOVED_WITHIN: Duration = Duration::from_secs(60);

/// The delay before a removal with an unknown outcome is retried.
const RETRIED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// After this many consecutive failed removals, a pass continues with the next organization: the attachment
/// store currently deletes nothing of this one.
const FAILURES: usize = 16;

/// After this many such organizations, a pass ends.
const GIVEN_UP: usize = 64;

/// The grace period is too short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "attachments cannot be swept after {} seconds: a record may still come to name them for {} seconds",
    .0.as_secs(),
    LEAST_GRACE.as_secs()
)]
pub struct GraceTooShort(pub Duration);

/// The job that deletes attachments that no record names.
#[derive(Debug, Clone, Copy)]
pub struct Sweep {
    grace: Duration,
}

impl Default for Sweep {
    /// Uses the grace period [`GRACE`].
    fn default() -> Self {
        Self { grace: GRACE }
    }
}

impl Sweep {
    /// Deletes attachments that no record has named within `grace` after they were stored.
    ///
    /// # Errors
    /// [`GraceTooShort`] if the period is shorter than [`LEAST_GRACE`].
    pub fn after(grace: Duration) -> std::result::Result<Self, GraceTooShort> {
        if grace < LEAST_GRACE { Err(GraceTooShort(grace)) } else { Ok(Self { grace }) }
    }

    /// Processes all pending notes once, and returns how many of them it removed. The job does this; hosts
    /// with their own scheduler can call it directly.
    ///
    /// # Errors
    /// [`crate::Error::Store`] if the store or the attachment store fails. Returns the first error after
    /// trying everything else, except organizations whose removals all fail. A refused removal is retried
    /// after another grace period; a removal without an answer, a day later.
    pub async fn pass(&self, evidence: &Evidence) -> Result<u64> {
        let (store, mut last, mut gone) = (evidence.store(), None, 0);
        let (mut failed, mut given_up) = (None, 0);
        // Consecutive failed removals, all of this organization.
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
                    // One failing removal must not block all others.
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

/// Returns a position after all notes of its organization.
fn behind_all_of_its_organization(pending: &Pending) -> Pending {
    let greatest = "f".repeat(64).parse();
    Pending { sha256: greatest.unwrap_or_else(|_| pending.sha256.clone()), ..pending.clone() }
}

/// Deletes an attachment and its note. If a record names the attachment, deletes only the note.
async fn remove(pending: &Pending, evidence: &Evidence) -> Result<bool> {
    let store = evidence.store();
    let Attachments::Outside(place) = evidence.attachments() else {
        return Ok(store.end_removal(pending).await?);
    };
    let begun = evidence.now();
    if !store.begin_removal(pending, begun).await? {
        // A record names it, or the note has changed. In the latter case nothing happens.
        return Ok(store.end_removal(pending).await?);
    }
    let late = || StoreError::Unavailable("the place of the attachments does not remove in time".into());
    // If this process pauses here for too long, another server may have taken over.
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
        // It may still be deleted at any time, so nothing may be stored there until then.
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

    async fn run(&self, cx: &JobContext) -> Result<()> {
        let contents = self.pass(cx.evidence()).await?;
        if contents > 0 {
            tracing::info!(contents, "what no record came to name of the attachments is removed");
        }
        Ok(())
    }
}
