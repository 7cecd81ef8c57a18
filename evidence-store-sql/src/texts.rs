//! Texts, looked up by digest.

use async_trait::async_trait;
use evidence_core::fact::decode_payload;
use evidence_core::id::Id;
use evidence_core::ledger::Hash;
use evidence_core::store::StoreResult;
use evidence_core::texts::TextStore;
use serde::Deserialize;

use crate::decode::Payload;
use crate::driver::Driver;
use crate::sql::{Sql, for_each, payload};
use crate::store::SqlStore;
use crate::value::texts;

/// Reads the newest entry that contains each text, because an older one may be damaged.
const TEXTS: Sql = for_each!(["t.ledger_index, ", payload!("t")], "interned_text", "sha256", "t", "");

/// The part of a payload that contains the text.
#[derive(Deserialize)]
struct StoredText {
    text: String,
}

fn stored_text((index, payload): (i64, Payload)) -> (i64, StoreResult<String>) {
    (index, payload.text().and_then(decode_payload::<StoredText>).map(|stored| stored.text))
}

#[async_trait]
impl<D: Driver> TextStore for SqlStore<D> {
    async fn texts(&self, org: Id, digests: &[Hash]) -> StoreResult<Vec<String>> {
        self.query_org(org, TEXTS).bind(texts(digests)).long().readable_as(org, stored_text).await
    }
}
