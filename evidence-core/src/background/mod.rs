//! Background work. One runner does all of it, and a host starts it with one call
//! ([`Evidence::background`](crate::Evidence::background)). Of all servers on a store, only the one with a
//! job's lease ([`crate::leases`]) runs the job. If that server stops or loses the store, the lease expires and
//! another server takes over.

pub(crate) mod runner;

use std::sync::Arc;

use crate::allowlists::ended::ReevaluateEnded;
use crate::policies::reevaluate::Reevaluate;
use crate::sweep::job::Sweep;

pub use runner::{Background, Batch, Job, JobContext, LEASE};

/// Returns the jobs of the service itself. A host can add its own.
pub fn jobs(sweep: Sweep) -> Vec<Arc<dyn Job>> {
    vec![Arc::new(sweep), Arc::new(Reevaluate::default()), Arc::new(ReevaluateEnded::default())]
}
