//! Whether writes can succeed, for probes of load balancers and orchestrators.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::blobs::OutsideBlobs;
use crate::error::{Error, Result};
use crate::store::Store;
use crate::store::error::{StoreError, StoreResult};
use crate::sweep::pending::Attachments;

/// How long a successful check is cached.
const READY_FOR: Duration = Duration::from_secs(1);

/// How long a check may take. A store that takes longer is not ready.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// The last check of the store. One check runs at a time, and requests that wait for it share its outcome, so that probes cost
/// the store one small write a second at most, however many there are.
#[derive(Debug, Default)]
pub(super) struct Readiness {
    last: Mutex<Option<Check>>,
}

#[derive(Debug)]
struct Check {
    ended_at: Instant,
    /// The reason where the store is not ready.
    outcome: std::result::Result<(), String>,
}

impl Check {
    /// Whether it answers a request that came at `since`: a failed check only the requests that waited for it, so that
    /// the next one sees a recovery at once.
    fn answers(&self, since: Instant) -> bool {
        self.ended_at >= since || self.outcome.is_ok() && self.ended_at.elapsed() < READY_FOR
    }
}

impl Readiness {
    /// Checks the store and the place of the attachments, unless that was just done.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] with the reason.
    pub(super) async fn check(&self, store: &dyn Store, attachments: &Attachments) -> Result<()> {
        let since = Instant::now();
        let mut last = self.last.lock().await;
        let check = match last.take().filter(|check| check.answers(since)) {
            Some(check) => check,
            None => {
                let outcome = timeout(CHECK_TIMEOUT, probe(store, attachments)).await;
                let late = |_| Err("the store did not answer in time".to_owned());
                let outcome = outcome.map_or_else(late, |outcome| outcome.map_err(reason));
                Check { ended_at: Instant::now(), outcome }
            }
        };
        let outcome = check.outcome.clone();
        *last = Some(check);
        outcome.map_err(|reason| Error::Store(StoreError::Unavailable(reason.into())))
    }
}

async fn probe(store: &dyn Store, attachments: &Attachments) -> StoreResult<()> {
    store.ready().await?;
    if let Attachments::Outside(place) = attachments {
        place.ready().await.map_err(|error| {
            // The error may name directories and buckets, which are none of a probe's business.
            tracing::warn!(%error, "the attachments cannot be written");
            StoreError::Unavailable("attachments cannot be written; the log says why".into())
        })?;
    }
    Ok(())
}

/// The reason, without the words around it.
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
        for (outcome, later) in [(Ok(()), true), (Err("full".to_owned()), false)] {
            let check = Check { ended_at: Instant::now(), outcome };
            assert!(check.answers(before));
            let after = Instant::now() + Duration::from_millis(1);
            assert_eq!(check.answers(after), later);
            tokio::time::advance(second).await;
            assert!(!check.answers(Instant::now()));
        }
    }
}
