//! Queries about many things at once: what is asked about, each once, and the answers in that order.

use std::collections::BTreeMap;

use crate::id::Id;

/// So many flows or environments are read at once: each may have long texts and lists.
pub(crate) const LONG_RECORDS: usize = 32;

/// Each of these once, in ascending order: what a store is asked about.
pub fn distinct<T: Ord>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut items = Vec::from_iter(items);
    items.sort_unstable();
    items.dedup();
    items
}

/// Puts what a store answered, in any order, into the order of the ids that it was asked about.
pub(crate) fn sort_by_ids<T>(records: &mut [T], ids: &[Id], id: impl Fn(&T) -> Id) {
    let place: BTreeMap<Id, usize> = ids.iter().copied().zip(0..).collect();
    records.sort_by_cached_key(|record| place.get(&id(record)).copied());
}
