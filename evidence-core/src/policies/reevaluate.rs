//! The job that evaluates environments again by the latest versions of their policies. Whoever puts a policy does so for each
//! environment that it is attached to; the job does it for those at which that broke off.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;

use crate::background::runner::{Job, Turn};
use crate::environments::evaluation::Changed;
use crate::environments::reevaluation::reevaluate_in;
use crate::error::Result;
use crate::id::Id;
use crate::lock::locked;

/// How long the job rests between two runs.
const REST: Duration = Duration::from_secs(10 * 60);

/// How many organizations are listed at a time.
const PAGE: u64 = 64;

/// The job that evaluates anew what runs where a new version of a policy is not counted yet: whoever put it was killed, or
/// lost the right to, before all environments were evaluated by it.
#[derive(Debug, Default)]
pub struct Reevaluate {
    /// The sizes of the ledgers when all environments of their organizations were last evaluated by this job. Until a ledger
    /// grows, there is no new version.
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

    async fn run(&self, turn: &Turn) -> Result<()> {
        let (service, mut outcome) = (turn.evidence(), Ok(()));
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
                // What is damaged in one organization is not another's.
                outcome = outcome.and(evaluated);
            }
        }
        outcome
    }
}
