//! Background work: one runner for all of it, which a host starts with one call ([`Evidence::background`](crate::Evidence::background)). Of all
//! servers on one store, each job is done by the one that holds its lease ([`crate::feed`]), for as long as it keeps
//! renewing it; when it stops, or cannot reach the store any more, another takes over.

pub(crate) mod runner;

use std::sync::Arc;

use crate::allowlists::ended::ReevaluateEnded;
use crate::policies::reevaluate::Reevaluate;
use crate::sweep::job::Sweep;

pub use runner::{Background, Batch, Job, LEASE, Turn};

/// The service's own background work, which a host extends by jobs of its own.
pub fn jobs(sweep: Sweep) -> Vec<Arc<dyn Job>> {
    vec![Arc::new(sweep), Arc::new(Reevaluate::default()), Arc::new(ReevaluateEnded::default())]
}
