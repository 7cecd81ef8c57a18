//! The queries of a copy: lists of everything, and imports.

use async_trait::async_trait;

use evidence_core::auth::KeyHash;
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::orgs::Organization;
use evidence_core::store::StoreResult;
use evidence_core::transfer::{Import, Transfer};

use super::{MemoryStore, at_most};

#[async_trait]
impl Transfer for MemoryStore {
    async fn organizations(&self, after: Option<Id>, limit: u64) -> StoreResult<Vec<Organization>> {
        let state = self.read()?;
        let mut organizations: Vec<_> = state.organizations.values().cloned().collect();
        organizations.retain(|organization| Some(organization.id) > after);
        organizations.sort_by_key(|organization| organization.id);
        organizations.truncate(at_most(limit));
        Ok(organizations)
    }

    async fn key_hashes(&self, org: Id, keys: &[Id]) -> StoreResult<Vec<(Id, KeyHash)>> {
        let state = self.read()?;
        let wanted = state.hashes.iter().filter(|(_, (home, key))| *home == org && keys.contains(key));
        Ok(wanted.map(|(hash, (_, key))| (*key, hash.clone())).collect())
    }

    async fn attachments(
        &self,
        org: Id,
        after: Option<&Fingerprint>,
        limit: u64,
    ) -> StoreResult<Vec<Fingerprint>> {
        let state = self.read()?;
        let digests = state.named.iter().filter(|(home, _)| *home == org).map(|(_, sha256)| sha256);
        let later = digests.filter(|sha256| Some(*sha256) > after);
        Ok(later.take(at_most(limit)).cloned().collect())
    }

    async fn import(&self, import: Import) -> StoreResult<()> {
        self.change(import.into()).map(drop)
    }
}
