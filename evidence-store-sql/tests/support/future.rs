//! Entries from the future, as a server writes them whose clock is ahead.

use evidence_core::Fact;
use evidence_core::fact::EncodedFact;
use evidence_core::id::Id;
use evidence_core::store::StoredEntry;
use evidence_core::time::Timestamp;
use evidence_core::transfer::{Import, Transfer};

/// Adds an entry of the year 2096 to the ledger of an organization, whatever the store thinks of the time.
pub(crate) async fn add(store: &dyn Transfer, org: Id, text: &str) {
    let index = store.ledger_head(org).await.unwrap().unwrap().size();
    let at = Timestamp::from_seconds(4_000_000_000);
    let fact = Fact::TextKept { text: text.to_owned() };
    let EncodedFact { fact, at, actor, payload, payload_sha256 } =
        EncodedFact::new(fact, at, "user:jane".to_owned()).unwrap();
    let kind = fact.kind().to_owned();
    let prepared = EncodedFact { fact, at, actor: actor.clone(), payload: payload.clone(), payload_sha256 };
    let leaf_hash = prepared.leaf_hash(index, at);
    let entry = StoredEntry { index, kind, at, effective_at: at, actor, payload_sha256, leaf_hash, payload };
    store.import(Import::new(org, vec![entry]).unwrap()).await.unwrap();
}
