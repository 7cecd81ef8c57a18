//! Service accounts and API keys.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::id::Id;
use evidence_core::service_accounts::{ApiKeyRecord, ServiceAccount, ServiceAccountStore};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::db::PostgresStore;
use crate::rows::{listed_current, payload, unsigned};

const KIND: &str = "service_account";
const KEY: &str = "api_key";

/// A later fact about a key changes when it ends and never its hash.
pub(crate) const PUT_KEYS: &str = "
    INSERT INTO evidence.api_key (org, id, owner, owner_id, hash, created_at, expires_at, revoked_at)
    SELECT r.org, r.id, r.owner::jsonb, r.owner_id, r.hash, r.created_at, r.expires_at, r.revoked_at
    FROM go, UNNEST($text, $text, $text, $text, $text, $bigint, $bigint, $bigint)
        AS r (org, id, owner, owner_id, hash, created_at, expires_at, revoked_at)
    ON CONFLICT (org, id) DO UPDATE SET expires_at = excluded.expires_at, revoked_at = excluded.revoked_at";

/// The keys `k` of the owner `$2` that work at `$3`.
macro_rules! working {
    () => {
        "k.org = $1 AND k.owner_id = $2
        AND coalesce(k.expires_at > $3, true) AND coalesce(k.revoked_at > $3, true)"
    };
}

pub(crate) const KEYS: &str = concat!(
    "SELECT n.ledger_index, ",
    payload!("n"),
    " FROM evidence.api_key k
    CROSS JOIN LATERAL (SELECT * FROM evidence.record WHERE org = $1 AND id = k.id OFFSET 0) n
    WHERE n.kind = 'api_key' AND ",
    working!(),
    " ORDER BY k.created_at, k.id"
);

pub(crate) const KEY_COUNT: &str = concat!("SELECT count(*) FROM evidence.api_key k WHERE ", working!());

#[async_trait]
impl ServiceAccountStore for PostgresStore {
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
        let question = self.ask_of(org, KEYS).long().bind(owner.to_string()).bind(at.as_micros());
        question.readable_as(org, listed_current).await
    }

    async fn api_key_count(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<u64> {
        let question = self.ask_of(org, KEY_COUNT).bind(owner.to_string()).bind(at.as_micros());
        unsigned(question.first::<(i64,)>().await?.map_or(0, |(count,)| count))
    }
}
