//! The allowlist: the newest entry of each environment and fingerprint.

use async_trait::async_trait;
use evidence_core::allowlists::{Allowance, AllowlistStore};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::Listed;
use evidence_core::store::StoreResult;

use crate::db::SqliteStore;
use crate::rows::{listed_record, once, signed, unsigned, word};

pub(crate) const PUT_ALLOWANCES: &str = "
    INSERT INTO allowance (org, environment, fingerprint, ledger_index)
    SELECT value->>0, value->>1, value->>2, value->>3 FROM json_each($1) WHERE true
    ON CONFLICT (org, environment, fingerprint) DO UPDATE SET ledger_index = excluded.ledger_index";

/// The payloads are measured without being read.
const LISTED: &str = "
    SELECT a.ledger_index, coalesce(octet_length(l.payload), 0) FROM allowance a
    LEFT JOIN ledger l ON l.org = a.org AND l.idx = a.ledger_index
    WHERE a.org = (SELECT key FROM organization WHERE id = $1) ORDER BY a.ledger_index DESC";

const BY_INDEX: &str = "
    SELECT w.value, l.payload FROM json_each($2) w
    LEFT JOIN ledger l ON l.org = (SELECT key FROM organization WHERE id = $1) AND l.idx = w.value
    ORDER BY w.value DESC";

const ALLOWED: &str = "
    SELECT a.fingerprint FROM json_each($3) w CROSS JOIN allowance a
        ON a.org = (SELECT key FROM organization WHERE id = $1) AND a.environment = $2 AND a.fingerprint = w.value";

const SIZE: &str = "
    SELECT count(*) FROM (
        SELECT 1 FROM allowance
        WHERE org = (SELECT key FROM organization WHERE id = $1) AND environment = $2 LIMIT $3)";

#[async_trait]
impl AllowlistStore for SqliteStore {
    async fn allowances_listed(&self, org: Id) -> StoreResult<Vec<Listed<u64>>> {
        let listed =
            |(index, bytes): (i64, i64)| Ok(Listed { id: unsigned(index)?, bytes: unsigned(bytes)? });
        self.ask_of(org, LISTED).long().all_as(listed).await
    }

    async fn allowances(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<Allowance>> {
        let question = self.ask_of(org, BY_INDEX).bind(once(indexes)?).long();
        question.readable_as(org, listed_record).await
    }

    async fn allowed(
        &self,
        org: Id,
        environment: Id,
        fingerprints: &[Fingerprint],
    ) -> StoreResult<Vec<Fingerprint>> {
        let question = self.ask_of(org, ALLOWED).bind(environment.to_string());
        let question = question.bind(once(fingerprints)?).about(fingerprints.len());
        question.all_as(|(fingerprint,): (String,)| word(&fingerprint)).await
    }

    async fn allowlist_size(&self, org: Id, environment: Id, most: u64) -> StoreResult<u64> {
        let question = self.ask_of(org, SIZE).bind(environment.to_string());
        let count = question.bind(signed(most)).first::<(i64,)>().await?;
        count.map_or(Ok(0), |(count,)| unsigned(count))
    }
}
