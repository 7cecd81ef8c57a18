//! Service accounts and API keys.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::id::Id;
use evidence_core::service_accounts::{ApiKeyRecord, ServiceAccount, ServiceAccountStore};
use evidence_core::store::{StoreResult, readable};

use crate::db::PostgresStore;
use crate::rows::{listed_current, payload};

const KIND: &str = "service_account";

/// A later fact about a key changes when it ends and never its hash.
pub(crate) const PUT_KEYS: &str = "
    INSERT INTO evidence.api_key (org, id, owner, owner_id, hash, created_at, expires_at, revoked_at)
    SELECT r.org, r.id, r.owner::jsonb, r.owner_id, r.hash, r.created_at, r.expires_at, r.revoked_at
    FROM go, UNNEST($text, $text, $text, $text, $text, $bigint, $bigint, $bigint)
        AS r (org, id, owner, owner_id, hash, created_at, expires_at, revoked_at)
    ON CONFLICT (org, id) DO UPDATE SET expires_at = excluded.expires_at, revoked_at = excluded.revoked_at";

pub(crate) const KEYS: &str = concat!(
    "SELECT n.ledger_index, ",
    payload!("n"),
    " FROM evidence.api_key k
    CROSS JOIN LATERAL (SELECT * FROM evidence.record WHERE org = $1 AND id = k.id OFFSET 0) n
    WHERE k.org = $1 AND k.owner_id = $2 AND n.kind = 'api_key' ORDER BY k.created_at, k.id"
);

#[async_trait]
impl ServiceAccountStore for PostgresStore {
    async fn service_account(&self, org: Id, name: &str) -> StoreResult<Option<Current<ServiceAccount>>> {
        self.by_name(org, KIND, name).await
    }

    async fn service_accounts(&self, org: Id) -> StoreResult<Vec<ServiceAccount>> {
        let accounts = self.all_named(org, KIND).await?;
        Ok(accounts.into_iter().map(|account| account.record).collect())
    }

    async fn api_keys(&self, org: Id, owner: Id) -> StoreResult<Vec<Current<ApiKeyRecord>>> {
        let rows = self.ask(KEYS).bind(org.to_string()).bind(owner.to_string()).all().await?;
        readable(org, rows.into_iter().map(listed_current))
    }

    async fn api_key(&self, org: Id, id: Id) -> StoreResult<Option<Current<ApiKeyRecord>>> {
        self.by_id(org, "api_key", id).await
    }
}
