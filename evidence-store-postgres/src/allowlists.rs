//! The allowlist: the newest entry of each environment and fingerprint.

use std::collections::BTreeSet;

use async_trait::async_trait;
use evidence_core::allowlists::{Allowance, AllowlistStore};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::Listed;
use evidence_core::store::StoreResult;

use crate::db::PostgresStore;
use crate::rows::{list, listed_record, payload, signed, unsigned, word};

pub(crate) const PUT_ALLOWANCES: &str = "
    INSERT INTO evidence.allowance (org, environment, fingerprint, ledger_index)
    SELECT r.* FROM go, UNNEST($text, $text, $text, $bigint) r
    ON CONFLICT (org, environment, fingerprint) DO UPDATE SET ledger_index = excluded.ledger_index";

/// The payloads are measured without being read.
const LISTED: &str = concat!(
    "SELECT a.ledger_index, coalesce(octet_length(",
    payload!("a"),
    "), 0)::bigint FROM evidence.allowance a WHERE a.org = $1 ORDER BY a.ledger_index DESC"
);

const BY_INDEX: &str = "
    SELECT w.idx, (SELECT l.payload FROM evidence.ledger l WHERE l.org = $1 AND l.idx = w.idx)
    FROM UNNEST($2::bigint[]) AS w (idx) ORDER BY w.idx DESC";

pub(crate) const ALLOWED: &str = "
    SELECT a.fingerprint FROM UNNEST($3::text[]) AS w (value) CROSS JOIN LATERAL (
        SELECT * FROM evidence.allowance
        WHERE org = $1 AND environment = $2 AND fingerprint = w.value OFFSET 0) a";

const SIZE: &str = "
    SELECT count(*) FROM (
        SELECT 1 FROM evidence.allowance WHERE org = $1 AND environment = $2 LIMIT $3) a";

#[async_trait]
impl AllowlistStore for PostgresStore {
    async fn allowances_listed(&self, org: Id) -> StoreResult<Vec<Listed<u64>>> {
        let rows = self.ask_of(org, LISTED).long().all().await?;
        let listed =
            |(index, bytes): (i64, i64)| Ok(Listed { id: unsigned(index)?, bytes: unsigned(bytes)? });
        rows.into_iter().map(listed).collect()
    }

    async fn allowances(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<Allowance>> {
        let indexes: Vec<i64> =
            BTreeSet::from_iter(indexes).into_iter().map(|index| signed(*index)).collect();
        self.ask_of(org, BY_INDEX).bind(indexes).long().readable_as(org, listed_record).await
    }

    async fn allowed(
        &self,
        org: Id,
        environment: Id,
        fingerprints: &[Fingerprint],
    ) -> StoreResult<Vec<Fingerprint>> {
        let question = self.ask_of(org, ALLOWED).long().bind(environment.to_string());
        let rows = question.bind(list(fingerprints)).all::<(String,)>().await?;
        rows.iter().map(|(fingerprint,)| word(fingerprint)).collect()
    }

    async fn allowlist_size(&self, org: Id, environment: Id, most: u64) -> StoreResult<u64> {
        let question = self.ask_of(org, SIZE).bind(environment.to_string());
        let count = question.bind(signed(most)).first::<(i64,)>().await?;
        count.map_or(Ok(0), |(count,)| unsigned(count))
    }
}
