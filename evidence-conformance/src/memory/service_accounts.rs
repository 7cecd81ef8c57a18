//! Service accounts and keys.

use async_trait::async_trait;

use evidence_core::fact::Key;
use evidence_core::id::Id;
use evidence_core::service_accounts::{ApiKeyRecord, ServiceAccount, ServiceAccountStore};
use evidence_core::store::{Current, StoreResult};
use evidence_core::time::Timestamp;

use super::{MemoryStore, records};

#[async_trait]
impl ServiceAccountStore for MemoryStore {
    async fn service_account(&self, org: Id, name: &str) -> StoreResult<Option<Current<ServiceAccount>>> {
        self.by_name(org, name.parse().ok().map(Key::ServiceAccount), |tables| &tables.service_accounts)
    }

    async fn service_accounts(&self, org: Id) -> StoreResult<Vec<ServiceAccount>> {
        self.query(org, |tables| records(&tables.service_accounts, |account| account.name.clone()))
    }

    async fn api_key(&self, org: Id, id: Id) -> StoreResult<Option<Current<ApiKeyRecord>>> {
        self.query(org, |tables| tables.keys.get(&id).cloned())
    }

    async fn api_keys(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<Vec<Current<ApiKeyRecord>>> {
        let works = |key: &&Current<ApiKeyRecord>| key.record.owner.id == owner && key.record.is_active(at);
        let mut keys: Vec<_> =
            self.query(org, |tables| tables.keys.values().filter(works).cloned().collect())?;
        keys.sort_by_key(|key: &Current<ApiKeyRecord>| (key.record.created_at, key.record.id));
        Ok(keys)
    }

    async fn api_key_count(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<u64> {
        Ok(self.api_keys(org, owner, at).await?.len() as u64)
    }
}
