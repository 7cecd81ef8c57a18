//! The last signed checkpoint of each ledger.

use async_trait::async_trait;
use evidence_core::checkpoints::CheckpointStore;
use evidence_core::id::Id;
use evidence_core::store::StoreResult;

use super::MemoryStore;

#[async_trait]
impl CheckpointStore for MemoryStore {
    async fn signed_checkpoint(&self, org: Id) -> StoreResult<Option<String>> {
        Ok(self.read()?.checkpoints.get(&org).cloned())
    }

    async fn has_signed_checkpoints(&self) -> StoreResult<bool> {
        Ok(!self.read()?.checkpoints.is_empty())
    }

    async fn replace_signed_checkpoint(
        &self,
        org: Id,
        old: Option<&str>,
        new: Option<&str>,
    ) -> StoreResult<bool> {
        let mut state = self.write()?;
        let is_old = state.checkpoints.get(&org).map(String::as_str) == old;
        let replaces = is_old && state.tables.contains_key(&org);
        if replaces {
            match new {
                Some(new) => state.checkpoints.insert(org, new.to_owned()),
                None => state.checkpoints.remove(&org),
            };
        }
        Ok(replaces)
    }
}
