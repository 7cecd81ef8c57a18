//! The policies of a logical environment at each entry of the ledger.

use std::collections::BTreeMap;

use crate::compute::LONG_JSON;
use crate::context::Context;
use crate::error::Result;
use crate::fact::Fact;
use crate::id::Id;
use crate::store::batch::{RECORD_BATCH_SIZE, distinct};
use crate::store::entry::StoredEntry;

/// The ledger entries that define the policies of a logical environment.
pub(super) struct PolicyHistory {
    /// The entries that may have changed the policies, ascending. Each records the whole environment.
    pub(super) recorded: Vec<u64>,
    /// The entry that set the present policies, and their ids in order.
    pub(super) present: (u64, Vec<Id>),
}

/// The policies of a logical environment, sorted by id, by the entry that set them. `None` for an unreadable
/// entry.
pub(super) type PoliciesSince = BTreeMap<u64, Option<Vec<Id>>>;

impl PolicyHistory {
    /// Returns the policies at each entry in a range.
    pub(super) async fn between(&self, first: u64, last: u64, cx: &Context<'_>) -> Result<PoliciesSince> {
        let (since, present) = &self.present;
        let recorded = |until: u64| self.recorded.partition_point(|entry| *entry <= until);
        let begin = recorded(first).saturating_sub(1);
        let asked = self.recorded.get(begin..recorded(last)).unwrap_or_default();
        // Entries before the present policies are irrelevant if these apply to the whole range.
        let counts = |entry: &u64| entry > since || (entry < since && first < *since);
        let asked = Vec::from_iter(asked.iter().copied().filter(counts));
        let mut policies: PoliciesSince = asked.iter().map(|entry| (*entry, None)).collect();
        policies.insert(*since, Some(present.clone()));
        for part in asked.chunks(RECORD_BATCH_SIZE) {
            let entries = cx.store().ledger_entries_at(cx.org()?, part).await?;
            let bytes: usize = entries.iter().map(|entry| entry.payload.len()).sum();
            let read = move || Vec::from_iter(entries.iter().map(|entry| (entry.index, policies_of(entry))));
            policies.extend(cx.compute().run_if(bytes > LONG_JSON, read).await?);
        }
        Ok(policies)
    }
}

/// Returns the policies that an entry about a logical environment records.
fn policies_of(entry: &StoredEntry) -> Option<Vec<Id>> {
    match Fact::read(&entry.payload).ok()? {
        Fact::EnvironmentCreated { record }
        | Fact::EnvironmentUpdated { record, .. }
        | Fact::EnvironmentJoined { record, .. }
        | Fact::PoliciesAttached { record, .. }
        | Fact::PoliciesDetached { record, .. } => Some(distinct(record.policies)),
        _ => None,
    }
}
