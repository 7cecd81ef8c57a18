//! Texts, found by their digests.

use async_trait::async_trait;
use evidence_core::fact::said;
use evidence_core::id::Id;
use evidence_core::ledger::Hash;
use evidence_core::store::StoreResult;
use evidence_core::texts::TextStore;
use serde::Deserialize;

use crate::db::PostgresStore;
use crate::rows::{Payload, each, list, payload, text_of};

/// The newest entry that keeps a text: an older one may be damaged.
pub(crate) const INSERT_TEXTS: &str = "
    INSERT INTO evidence.kept_text AS t (org, sha256, ledger_index)
    SELECT r.org, r.sha256, max(r.ledger_index)
    FROM go, UNNEST($text, $text, $bigint) AS r (org, sha256, ledger_index) GROUP BY r.org, r.sha256
    ON CONFLICT (org, sha256) DO UPDATE SET ledger_index = greatest(t.ledger_index, excluded.ledger_index)";

pub(crate) const TEXTS: &str =
    concat!("SELECT t.ledger_index, ", payload!("t"), " FROM ", each!("kept_text", "sha256", "t"));

/// A payload, as far as its text goes.
#[derive(Deserialize)]
struct Kept {
    text: String,
}

#[async_trait]
impl TextStore for PostgresStore {
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>> {
        let text = |payload: &str| said::<Kept>(payload).map(|kept| kept.text);
        let row = move |(index, payload): (i64, Payload)| (index, text_of(&payload).and_then(text));
        self.ask_of(org, TEXTS).long().bind(list(digests)).readable_as(org, row).await
    }
}
