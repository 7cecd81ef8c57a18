//! Service accounts and API keys.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::id::Id;
use evidence_core::service_accounts::{ApiKeyRecord, ServiceAccount, ServiceAccountStore};
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::decode::listed_current;
use crate::driver::Driver;
use crate::sql::{Sql, payload};
use crate::store::SqlStore;

const KIND: &str = "service_account";
const KEY: &str = "api_key";

/// The API keys `k` of the owner `$2` that are valid at the time `$3`.
macro_rules! working {
    () => {
        "k.org = $1 AND k.owner_id = $2
        AND k.revoked_at IS NULL AND coalesce(k.expires_at > $3, true)"
    };
}

const KEYS: Sql = Sql::per_dialect(
    concat!(
        "SELECT n.ledger_index, ",
        payload!("n"),
        " FROM evidence.api_key k
        CROSS JOIN evidence.record n ON n.org = $1 AND n.kind = 'api_key' AND n.id = k.id
        WHERE ",
        working!(),
        " ORDER BY k.created_at, k.id"
    ),
    concat!(
        "SELECT n.ledger_index, ",
        payload!("n"),
        " FROM evidence.api_key k
        CROSS JOIN LATERAL (SELECT * FROM evidence.record WHERE org = $1 AND id = k.id OFFSET 0) n
        WHERE n.kind = 'api_key' AND ",
        working!(),
        " ORDER BY k.created_at, k.id"
    ),
);

const KEY_COUNT: Sql = Sql::portable(concat!("SELECT count(*) FROM evidence.api_key k WHERE ", working!()));

#[async_trait]
impl<D: Driver> ServiceAccountStore for SqlStore<D> {
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
        let query = self.query_org(org, KEYS).bind(owner).bind(at);
        query.long().readable_as(org, listed_current).await
    }

    async fn api_key_count(&self, org: Id, owner: Id, at: Timestamp) -> StoreResult<u64> {
        let count = self.query_org(org, KEY_COUNT).bind(owner).bind(at).first::<(u64,)>().await?;
        Ok(count.map_or(0, |(count,)| count))
    }
}
