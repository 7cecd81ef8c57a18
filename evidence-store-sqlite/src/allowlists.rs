//! The allowlist: the newest entry of each environment and fingerprint.

use async_trait::async_trait;
use evidence_core::allowlists::{Allowance, AllowlistStore};
use evidence_core::id::Id;
use evidence_core::store::StoreResult;

use crate::db::SqliteStore;
use crate::rows::listed_record;

pub(crate) const PUT_ALLOWANCES: &str = "
    INSERT INTO allowance (org, environment, fingerprint, ledger_index)
    SELECT value->>0, value->>1, value->>2, value->>3 FROM json_each($1) WHERE true
    ON CONFLICT (org, environment, fingerprint) DO UPDATE SET ledger_index = excluded.ledger_index";

const ALLOWANCES: &str = "
    SELECT a.ledger_index, l.payload FROM allowance a LEFT JOIN ledger l ON l.org = a.org AND l.idx = a.ledger_index
    WHERE a.org = (SELECT key FROM organization WHERE id = $1)";

const IN_ENVIRONMENT: &str = " AND a.environment = $2";

const NEWEST_FIRST: &str = " ORDER BY a.ledger_index DESC";

#[async_trait]
impl AllowlistStore for SqliteStore {
    async fn allowances(&self, org: Id, environment: Option<Id>) -> StoreResult<Vec<Allowance>> {
        let narrowed = environment.map_or("", |_| IN_ENVIRONMENT);
        let question = self.ask([ALLOWANCES, narrowed, NEWEST_FIRST].concat()).bind(org.to_string());
        let question = question.bind(environment.map(|id| id.to_string())).long();
        question.readable_as(org, listed_record).await
    }
}
