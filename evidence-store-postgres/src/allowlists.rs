//! The allowlist: the newest entry of each environment and fingerprint.

use async_trait::async_trait;
use evidence_core::allowlists::{Allowance, AllowlistStore};
use evidence_core::id::Id;
use evidence_core::store::{StoreResult, readable};

use crate::db::PostgresStore;
use crate::rows::{listed_record, payload};

pub(crate) const PUT_ALLOWANCES: &str = "
    INSERT INTO evidence.allowance (org, environment, fingerprint, ledger_index)
    SELECT r.* FROM go, UNNEST($text, $text, $text, $bigint) r
    ON CONFLICT (org, environment, fingerprint) DO UPDATE SET ledger_index = excluded.ledger_index";

const ALLOWANCES: &str =
    concat!("SELECT a.ledger_index, ", payload!("a"), " FROM evidence.allowance a WHERE a.org = $1");

const IN_ENVIRONMENT: &str = " AND a.environment = $2";

const NEWEST_FIRST: &str = " ORDER BY a.ledger_index DESC";

#[async_trait]
impl AllowlistStore for PostgresStore {
    async fn allowances(&self, org: Id, environment: Option<Id>) -> StoreResult<Vec<Allowance>> {
        let narrowed = environment.map_or("", |_| IN_ENVIRONMENT);
        let question = self.ask(&[ALLOWANCES, narrowed, NEWEST_FIRST].concat()).bind(org.to_string());
        let rows = question.bind(environment.map(|id| id.to_string())).all().await?;
        readable(org, rows.into_iter().map(listed_record))
    }
}
