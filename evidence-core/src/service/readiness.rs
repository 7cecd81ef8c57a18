//! Checks whether writes can succeed, for probes of load balancers and orchestrators.

use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use futures_util::future::join;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::blobs::OutsideBlobs;
use crate::context::parts::Parts;
use crate::error::{Error, Result};
use crate::lock::locked;
use crate::store::Store;
use crate::store::error::{StoreError, StoreResult, is_future};
use crate::sweep::pending::Attachments;
use crate::time::Timestamp;

/// The time that a successful check is cached.
const READY_FOR: Duration = Duration::from_secs(1);

/// The deadline of a check. A store that takes longer is not ready.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The time that a check waits for the query for its warnings. A slower query continues, and a later check uses its result.
const WARNING_TIMEOUT: Duration = Duration::from_millis(100);

/// The last check of the store. One check runs at a time, and requests that wait for it share its outcome. Any number of
/// probes therefore costs the store at most one small write per second.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    last: Mutex<Option<Check>>,
    newest_entry: NewestEntry,
}

#[derive(Debug)]
struct Check {
    ended_at: Instant,
    /// The warnings, or the reason why the store is not ready.
    outcome: std::result::Result<Vec<String>, String>,
}

impl Check {
    /// Returns whether the check is valid for a request that arrived at `since`. A failed check is valid only for requests
    /// that waited for it, so that the next request sees a recovery at once.
    fn answers(&self, since: Instant) -> bool {
        self.ended_at >= since || self.outcome.is_ok() && self.ended_at.elapsed() < READY_FOR
    }
}

impl Readiness {
    /// Checks the clock, the store and the place of the attachments, unless the last check is still valid. Returns the
    /// warnings.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] with the reason.
    pub(super) async fn check(&self, parts: &Parts) -> Result<Vec<String>> {
        let since = Instant::now();
        let mut last = self.last.lock().await;
        let check = match last.take().filter(|check| check.answers(since)) {
            Some(check) => check,
            None => {
                let checked = timeout(CHECK_TIMEOUT, probe(parts));
                let (outcome, known) = join(checked, self.newest_entry.get(&parts.store)).await;
                let late = |_| Err("the store did not answer in time".to_owned());
                let outcome = outcome.map_or_else(late, |outcome| outcome.map_err(reason));
                let outcome = outcome.map(|()| warnings(known, parts));
                Check { ended_at: Instant::now(), outcome }
            }
        };
        let outcome = check.outcome.clone();
        *last = Some(check);
        outcome.map_err(|reason| Error::Store(StoreError::Unavailable(reason.into())))
    }
}

async fn probe(parts: &Parts) -> StoreResult<()> {
    let Parts { store, attachments, clock, .. } = parts;
    store.check_clock(clock.now()).await?;
    store.ready().await?;
    if let Attachments::Outside(place) = attachments {
        place.ready().await.map_err(|error| {
            // The error may name directories and buckets, which a probe must not show.
            tracing::warn!(%error, "the attachments cannot be written");
            StoreError::Unavailable("attachments cannot be written; the log says why".into())
        })?;
    }
    Ok(())
}

fn warnings(known: Known, parts: &Parts) -> Vec<String> {
    const UNSIGNED: &str = "the checkpoint of a ledger is not signed; the log says why";
    const FUTURE: &str = "a ledger has entries in the future: 'evidence-server fsck' names the organization";
    const UNKNOWN: &str =
        "it could not be checked whether a ledger has entries in the future; the log says why";
    let mut warnings = Vec::new();
    if !locked(&parts.unsigned).is_empty() {
        warnings.push(UNSIGNED.to_owned());
    }
    if known.newest.is_some_and(|newest| is_future(newest, parts.clock.now())) {
        tracing::warn!("{FUTURE}");
        warnings.push(FUTURE.to_owned());
    }
    if known.failed {
        warnings.push(UNKNOWN.to_owned());
    }
    warnings
}

/// The results of the queries for the newest entry of the store.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The time of the entry, from the last successful query.
    newest: Option<Timestamp>,
    /// Whether the last query failed.
    failed: bool,
}

/// The time of the newest entry of the store. The query reads the last entry of every ledger, so it runs in a task of its
/// own, one at a time. Its result is used for 100 times as long as the query took.
#[derive(Debug, Default)]
struct NewestEntry {
    known: Arc<StdMutex<Known>>,
    /// The earliest start of the next query. Locked while one runs.
    next: Arc<Mutex<Option<Instant>>>,
}

impl NewestEntry {
    /// Returns the result of the last query.
    async fn get(&self, store: &Arc<dyn Store>) -> Known {
        if let Ok(mut next) = Arc::clone(&self.next).try_lock_owned()
            && next.is_none_or(|next| next <= Instant::now())
        {
            let (known, store) = (Arc::clone(&self.known), Arc::clone(store));
            let query = tokio::spawn(async move {
                let begun = Instant::now();
                match store.newest_entry().await {
                    Ok(newest) => *locked(&known) = Known { newest, failed: false },
                    // Logged once until a query succeeds, because checks repeat.
                    Err(error) => {
                        if !std::mem::replace(&mut locked(&known).failed, true) {
                            tracing::warn!(%error, "the newest ledger entry cannot be read");
                        }
                    }
                }
                *next = Some(Instant::now() + begun.elapsed() * 100);
            });
            // The outcome is in `known`.
            timeout(WARNING_TIMEOUT, query).await.ok();
        }
        *locked(&self.known)
    }
}

/// Returns the reason of an error, without the words around it.
fn reason(error: StoreError) -> String {
    match error {
        StoreError::Unavailable(reason) | StoreError::OutcomeUnknown(reason) => reason.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_success_is_cached_for_a_second_and_a_failure_only_for_those_who_waited() {
        let (before, second) = (Instant::now(), Duration::from_secs(1));
        tokio::time::advance(second).await;
        for (outcome, later) in [(Ok(Vec::new()), true), (Err("full".to_owned()), false)] {
            let check = Check { ended_at: Instant::now(), outcome };
            assert!(check.answers(before));
            let after = Instant::now() + Duration::from_millis(1);
            assert_eq!(check.answers(after), later);
            tokio::time::advance(second).await;
            assert!(!check.answers(Instant::now()));
        }
    }
}
