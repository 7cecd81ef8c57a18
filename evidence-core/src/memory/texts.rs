//! Texts, by their digests.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::id::Id;
use crate::ledger::Hash;
use crate::store::StoreResult;
use crate::texts::TextStore;

use super::MemoryStore;

#[async_trait]
impl TextStore for MemoryStore {
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>> {
        let digests: BTreeSet<&Hash> = digests.iter().collect();
        self.ask(org, |tables| {
            digests.into_iter().filter_map(|text| tables.texts.get(text).cloned()).collect()
        })
    }
}
