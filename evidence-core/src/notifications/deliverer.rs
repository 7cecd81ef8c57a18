//! The state that the planning and the delivery of notifications share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as StdMutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::id::Id;
use crate::leases::HeldLease;
use crate::lock::locked;
use crate::notifications::sender::Sender;
use crate::orgs::record::Organization;
use crate::service::Evidence;
use crate::time::Timestamp;

/// The name of the job, its lease and its cursors.
pub(crate) const NAME: &str = "notify";

/// The pause after all ledgers were read, or all due deliveries started.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Entries of at least this many bytes are parsed in the compute pool.
pub(super) const HEAVY: usize = 64 << 10;

/// The state of one organization in this process.
#[derive(Debug, Clone)]
pub(super) struct OrgState {
    /// Its name.
    pub(super) name: String,
    /// The size of its ledger at the end of the last planning.
    pub(super) planned: Option<u64>,
    /// Held while events are planned for its targets, and while a target is marked as idle. Otherwise a
    /// target could become idle although an event was just planned for it.
    pub(super) planning: Arc<Mutex<()>>,
}

/// Delivers notifications.
pub(super) struct Deliverer {
    pub(super) evidence: Evidence,
    pub(super) sender: Arc<dyn Sender>,
    /// The lease of the job.
    pub(super) lease: HeldLease,
    orgs: StdMutex<BTreeMap<Id, OrgState>>,
}

impl Deliverer {
    pub(super) fn new(evidence: Evidence, sender: Arc<dyn Sender>, lease: HeldLease) -> Self {
        Self { evidence, sender, lease, orgs: StdMutex::default() }
    }

    fn orgs(&self) -> MutexGuard<'_, BTreeMap<Id, OrgState>> {
        locked(&self.orgs)
    }

    /// Returns the state of an organization, with its current name.
    pub(super) fn org_state(&self, org: &Organization) -> OrgState {
        let mut orgs = self.orgs();
        let known = orgs.entry(org.id).or_insert_with(|| OrgState {
            name: String::new(),
            planned: None,
            planning: Arc::default(),
        });
        known.name = org.name.to_string();
        known.clone()
    }

    /// Returns the state of an organization; `None` before its first planning in this process.
    pub(super) fn planned(&self, org: Id) -> Option<OrgState> {
        self.orgs().get(&org).cloned()
    }

    /// Records that the ledger was planned up to this size.
    pub(super) fn note_planned(&self, org: Id, size: u64) {
        if let Some(known) = self.orgs().get_mut(&org) {
            known.planned = Some(size);
        }
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn after(now: Timestamp, pause: Duration) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_add(micros(pause)))
}

pub(super) fn before(now: Timestamp, age: Duration) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_sub(micros(age)))
}
