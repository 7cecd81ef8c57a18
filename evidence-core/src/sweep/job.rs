//! The job that removes what no record came to name.

use std::time::Duration;

use async_trait::async_trait;

use crate::background::runner::{Job, Turn};
use crate::blobs::OutsideBlobs;
use crate::error::Result;
use crate::id::Id;
use crate::service::Evidence;
use crate::store::error::StoreError;
use crate::sweep::pending::{Attachments, NAMED_WITHIN, is_past};
use crate::sweep::store::Pending;
use crate::time::Timestamp;

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
