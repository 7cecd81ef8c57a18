//! Helpers for queries about many items: deduplicate the items, and sort the results in their order.

use std::collections::BTreeMap;

use crate::id::Id;

/// The number of flows or environments that are read at once. Each may have long texts and lists.
pub(crate) const RECORD_BATCH_SIZE: usize = 32;

/// Returns the items in ascending order, each once, for a query.
pub fn distinct<T: Ord>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut items = Vec::from_iter(items);
    items.sort_unstable();
    items.dedup();
    items
}

/// Sorts the results of a query in the order of the ids in the query.
pub(crate) fn sort_by_ids<T>(records: &mut [T], ids: &[Id], id: impl Fn(&T) -> Id) {
    let place: BTreeMap<Id, usize> = ids.iter().copied().zip(0..).collect();
    records.sort_by_cached_key(|record| place.get(&id(record)).copied());
}
