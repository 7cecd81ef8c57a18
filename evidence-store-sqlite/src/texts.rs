//! Texts, found by their digests.

use async_trait::async_trait;
use evidence_core::fact::said;
use evidence_core::id::Id;
use evidence_core::ledger::Hash;
use evidence_core::store::StoreResult;
use evidence_core::texts::TextStore;
use serde::Deserialize;

use crate::db::SqliteStore;
use crate::rows::{Payload, once};

/// The newest entry that keeps a text: an older one may be damaged.
pub(crate) const INSERT_TEXTS: &str = "
    INSERT INTO kept_text (org, sha256, ledger_index)
    SELECT value->>0, value->>1, max(value->>2) FROM json_each($1) WHERE true GROUP BY value->>0, value->>1
    ON CONFLICT (org, sha256) DO UPDATE SET ledger_index = max(ledger_index, excluded.ledger_index)";

const TEXTS: &str = "
    SELECT t.ledger_index, l.payload FROM json_each($2) w
    CROSS JOIN kept_text t ON t.org = (SELECT key FROM organization WHERE id = $1) AND t.sha256 = w.value
    LEFT JOIN ledger l ON l.org = t.org AND l.idx = t.ledger_index";

/// A payload, as far as its text goes.
#[derive(Deserialize)]
struct Kept {
    text: String,
}

#[async_trait]
impl TextStore for SqliteStore {
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>> {
        let question = self.ask_of(org, TEXTS).bind(once(digests)?).long();
        let text = |payload: &str| said::<Kept>(payload).map(|kept| kept.text);
        question
            .readable_as(org, move |(index, payload): (i64, Payload)| (index, payload.text().and_then(text)))
            .await
    }
}
