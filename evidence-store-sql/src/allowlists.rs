//! The allowlist: the newest entry of each environment and fingerprint.

use async_trait::async_trait;
use evidence_core::allowlists::{Allowance, AllowlistStore};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::Listed;
use evidence_core::store::StoreResult;

use crate::decode::{listed_record, word};
use crate::driver::Driver;
use crate::sql::{Sql, payload_size};
use crate::store::SqlStore;
use crate::value::{ints, texts};

const LISTED: Sql = Sql::same(concat!(
    "SELECT a.ledger_index, ",
    payload_size!("a"),
    " FROM evidence.allowance a WHERE a.org = $1 ORDER BY a.ledger_index DESC"
));

const BY_INDEX: Sql = Sql::each(
    "SELECT w.value, (SELECT l.payload FROM evidence.ledger l WHERE l.org = $1 AND l.idx = w.value)
    FROM json_each($2) w ORDER BY w.value DESC",
    "SELECT w.value, (SELECT l.payload FROM evidence.ledger l WHERE l.org = $1 AND l.idx = w.value)
    FROM UNNEST($2::bigint[]) AS w (value) ORDER BY w.value DESC",
);

/// The environment is within the subquery, so that the index is used whole.
const ALLOWED: Sql = Sql::each(
    "SELECT a.fingerprint, a.ledger_index FROM json_each($3) w CROSS JOIN evidence.allowance a
        ON a.org = $1 AND a.environment = $2 AND a.fingerprint = w.value AND a.since < $4",
    "SELECT a.fingerprint, a.ledger_index FROM UNNEST($3::text[]) AS w (value) CROSS JOIN LATERAL (
        SELECT * FROM evidence.allowance
        WHERE org = $1 AND environment = $2 AND fingerprint = w.value AND since < $4 OFFSET 0) a",
);

const SIZE: Sql = Sql::same(
    "SELECT count(*) FROM (
        SELECT 1 FROM evidence.allowance WHERE org = $1 AND environment = $2 LIMIT $3) a",
);

#[async_trait]
impl<D: Driver> AllowlistStore for SqlStore<D> {
    async fn allowances_listed(&self, org: Id) -> StoreResult<Vec<Listed<u64>>> {
        let listed = |(id, bytes): (u64, u64)| Ok(Listed { id, bytes });
        self.query_org(org, LISTED).long().all_as(listed).await
    }

    async fn allowances(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<Allowance>> {
        self.query_org(org, BY_INDEX).bind(ints(indexes)).long().readable_as(org, listed_record).await
    }

    async fn allowed(
        &self,
        org: Id,
        environment: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
    ) -> StoreResult<Vec<(Fingerprint, u64)>> {
        let query = self.query_org(org, ALLOWED).bind(environment).bind(texts(fingerprints)).bind(entries);
        let allowed = |(fingerprint, index): (String, u64)| Ok((word(&fingerprint)?, index));
        query.per_item(fingerprints.len()).all_as(allowed).await
    }

    async fn allowance_count(&self, org: Id, environment: Id, most: u64) -> StoreResult<u64> {
        let count = self.query_org(org, SIZE).bind(environment).bind(most).first::<(u64,)>().await?;
        Ok(count.map_or(0, |(count,)| count))
    }
}
