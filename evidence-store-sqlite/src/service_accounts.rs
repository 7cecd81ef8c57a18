//! Service accounts and API keys.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::id::Id;
use evidence_core::service_accounts::{ApiKeyRecord, ServiceAccount, ServiceAccountStore};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::db::SqliteStore;
use crate::rows::{listed_current, unsigned};

const KIND: &str = "service_account";
const KEY: &str = "api_key";

/// A later fact about a key changes when it ends and never its hash.
pub(crate) const PUT_KEYS: &str = "
    INSERT INTO api_key (org, id, owner, owner_id, hash, created_at, expires_at, revoked_at)
    SELECT value->>0, value->>1, value->2, value->>3, value->>4, value->>5, value->>6, value->>7
    FROM json_each($1) WHERE true
    ON CONFLICT (id) DO UPDATE SET expires_at = excluded.expires_at, revoked_at = excluded.revoked_at";

/// The keys `k` of the owner `$2` that work at `$3`.
macro_rules! working {
    () => {
        "k.owner_id = $2 AND k.org = (SELECT key FROM organization WHERE id = $1)
        AND coalesce(k.expires_at > $3, true) AND coalesce(k.revoked_at > $3, true)"
    };
}

const KEYS: &str = concat!(
    "SELECT n.ledger_index, l.payload FROM api_key k
    JOIN record n ON n.org = k.org AND n.kind = 'api_key' AND n.id = k.id
    LEFT JOIN ledger l ON l.org = n.org AND l.idx = n.ledger_index
    WHERE ",
    working!(),
    " ORDER BY k.created_at, k.id"
);

const KEY_COUNT: &str = concat!("SELECT count(*) FROM api_key k WHERE ", working!());

#[async_trait]
impl ServiceAccountStore for SqliteStore {
    async fn service_account(&self, org: Id, name: &str) -> StoreResult<Option<Current<ServiceAccount>>> {
        self.by_name(org, KIND, name).await
    }

    async fn service_accounts(&self, org: Id) -> StoreResult<Vec<ServiceAccount>> {
        let accounts = self.all_named(org, KIND).await?;
        Ok(accounts.into_iter().map(|account| account.record).collect())
    }

    async fn api_key(&self, org: Id, id: Id) -> StoreResult<Option<Current<ApiKeyRecord>>> {
        self.by_id(org, KEY, id).await
    }

    async fn api_keys(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<Vec<Current<ApiKeyRecord>>> {
        let question = self.ask_of(org, KEYS).bind(owner.to_string()).bind(at.as_micros());
        question.long().readable_as(org, listed_current).await
    }

    async fn api_key_count(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<u64> {
        let question = self.ask_of(org, KEY_COUNT).bind(owner.to_string()).bind(at.as_micros());
        unsigned(question.first::<(i64,)>().await?.map_or(0, |(count,)| count))
    }
}
