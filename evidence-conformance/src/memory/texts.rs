//! Texts, by their digests.

use std::collections::BTreeSet;

use async_trait::async_trait;

use evidence_core::id::Id;
use evidence_core::ledger::Hash;
use evidence_core::store::StoreResult;
use evidence_core::texts::TextStore;

use super::MemoryStore;

#[async_trait]
impl TextStore for MemoryStore {
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>> {
        let digests: BTreeSet<&Hash> = digests.iter().collect();
        self.query(org, |tables| {
            digests.into_iter().filter_map(|text| tables.texts.get(text).cloned()).collect()
        })
    }
}
