//! The job that evaluates environments again when an entry of their allowlist has ended. A request that
//! withdraws an entry does so itself; the job does it if that was interrupted, and if an entry expired.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;

use crate::allowlists::store::EndedAllowlistEntry;
use crate::background::runner::{Job, JobContext};
use crate::environments::evaluation::Changed;
use crate::environments::reevaluation::reevaluate_in;
use crate::error::Result;
use crate::id::Id;
use crate::lock::locked;
use crate::name::OrgName;
use crate::service::Evidence;
use crate::time::Timestamp;

/// The pause between two runs of the job: the longest time that an expired entry still counts in a snapshot.
const REST: Duration = Duration::from_secs(10);

/// The minimum number of ended entries that are read at a time.
const PAGE: u64 = 1_000;

/// The overlap of a run with the previous one, in microseconds. A server with a slow clock may have recorded
/// an entry that had already ended by the clock of this one.
const OVERLAP: i64 = 15 * 60 * 1_000_000;

/// The job that evaluates environments again when an entry of their allowlist has ended.
#[derive(Debug, Default)]
pub struct ReevaluateEnded {
    progress: Mutex<Progress>,
}

/// The progress of this process. Another process starts from the beginning, which is harmless: evaluating an
/// environment again changes nothing if there is nothing to change.
#[derive(Debug, Default, Clone)]
struct Progress {
    /// Every entry that ended by this time has been handled.
    until: Option<Timestamp>,
    /// The ended entries that a later run reads again, and whose environments were evaluated or are in
    /// `failed`. A newer entry is separate: a server with a slow clock may record one that ends before others
    /// that have already been handled.
    handled: BTreeSet<EndedAllowlistEntry>,
    /// The environments whose evaluation failed. Each run retries them; they do not block others.
    failed: Environments,
}

/// Environments by organization.
type Environments = BTreeMap<OrgName, BTreeSet<Id>>;

/// The earliest time.
const BEGINNING: Timestamp = Timestamp::from_micros(i64::MIN);

impl Progress {
    /// Returns the time after which ended entries are read.
    fn from(&self) -> Timestamp {
        self.until
            .map_or(BEGINNING, |until| Timestamp::from_micros(until.as_micros().saturating_sub(OVERLAP)))
    }

    /// Records that every entry that ended by this time has been handled.
    fn done_until(&mut self, until: Timestamp) {
        self.until = Some(self.until.map_or(until, |before| before.max(until)));
        let from = self.from();
        self.handled.retain(|end| end.at > from);
    }

    /// Evaluates environments again, and records those that failed, by organization.
    async fn evaluate(&mut self, environments: Environments, service: &Evidence) -> Result<()> {
        let mut outcome = Ok(());
        for (org, environments) in environments {
            let ids = Vec::from_iter(environments.iter().copied());
            if let Err(error) = reevaluate_in(service, org.clone(), Some(ids), Changed::Allowlist).await {
                self.failed.entry(org).or_default().extend(environments);
                outcome = outcome.and(Err(error));
            }
        }
        outcome
    }
}

#[async_trait]
impl Job for ReevaluateEnded {
    fn name(&self) -> &str {
        "reevaluate-allowlists"
    }

    fn every(&self) -> Duration {
        REST
    }

    async fn run(&self, cx: &JobContext) -> Result<()> {
        let service = cx.evidence();
        let (until, mut progress) = (service.now(), locked(&self.progress).clone());
        let failed = std::mem::take(&mut progress.failed);
        let mut outcome = progress.evaluate(failed, service).await;
        let mut after = progress.from();
        while after < until {
            let page = service.store().ended_allowlist_entries(after, until, PAGE).await?;
            let Some(last) = page.last() else { break };
            after = last.at;
            let mut ended = Environments::new();
            for end in page {
                if progress.handled.insert(end.clone()) {
                    ended.entry(end.org).or_default().insert(end.environment);
                }
            }
            outcome = outcome.and(progress.evaluate(ended, service).await);
            // Save the progress: the next part may fail, or this future may be dropped.
            locked(&self.progress).clone_from(&progress);
        }
        progress.done_until(until);
        *locked(&self.progress) = progress;
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_seconds(minutes * 60)
    }

    fn end(minutes: i64, entry: u64) -> EndedAllowlistEntry {
        let environment = "00000000-0000-0000-0000-00000001".parse().unwrap();
        EndedAllowlistEntry { at: at(minutes), org: "acme".parse().unwrap(), environment, entry }
    }

    #[test]
    fn what_was_handled_is_known_as_long_as_it_is_read_again() {
        let mut progress = Progress::default();
        assert_eq!(progress.from(), BEGINNING);
        progress.handled.extend([end(30, 1), end(50, 2)]);
        progress.done_until(at(60));
        assert_eq!(progress.from(), at(45));
        assert_eq!(progress.handled, BTreeSet::from([end(50, 2)]));
        // The clock was set back.
        progress.done_until(at(10));
        assert_eq!(progress.from(), at(45));
    }
}
