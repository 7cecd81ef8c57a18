//! The job that evaluates environments again, against the latest versions of their policies. The request that
//! puts a policy evaluates each environment with it. The job does it for those where that was interrupted.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;

use crate::background::runner::{Job, JobContext};
use crate::environments::evaluation::Changed;
use crate::environments::reevaluation::reevaluate_in;
use crate::error::Result;
use crate::id::Id;
use crate::lock::locked;

/// The pause between two runs of the job.
const REST: Duration = Duration::from_secs(10 * 60);

/// The number of organizations that are listed at a time.
const PAGE: u64 = 64;

/// The job that evaluates environments again if a new version of a policy does not count yet. The process that put
/// the policy may have been killed, or the caller may have lost the permission, before all evaluations.
#[derive(Debug, Default)]
pub struct Reevaluate {
    /// The size of each organization's ledger when this job last evaluated all its environments. While a
    /// ledger does not grow, it has no new version.
    evaluated: Mutex<BTreeMap<Id, u64>>,
}

#[async_trait]
impl Job for Reevaluate {
    fn name(&self) -> &str {
        "reevaluate-environments"
    }

    fn every(&self) -> Duration {
        REST
    }

    async fn run(&self, cx: &JobContext) -> Result<()> {
        let (service, mut outcome) = (cx.evidence(), Ok(()));
        let mut after = Some(String::new());
        while let Some(last) = after {
            let page = service.store().organizations_by_name(&last, PAGE).await?;
            after = page.more;
            let ids: Vec<Id> = page.records.iter().map(|org| org.id).collect();
            let sizes = BTreeMap::from_iter(service.store().ledger_sizes(&ids).await?);
            for org in page.records {
                let size = sizes.get(&org.id).copied();
                if size.is_some() && locked(&self.evaluated).get(&org.id).copied() == size {
                    continue;
                }
                let evaluated = reevaluate_in(service, org.name, None, Changed::Policies).await;
                if let (Ok(()), Some(size)) = (&evaluated, size) {
                    locked(&self.evaluated).insert(org.id, size);
                }
                // Damage in one organization must not affect another.
                outcome = outcome.and(evaluated);
            }
        }
        outcome
    }
}
