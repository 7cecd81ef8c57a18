//! Entries from the future, like those of a server whose clock is ahead.

use evidence_core::Fact;
use evidence_core::fact::EncodedFact;
use evidence_core::id::Id;
use evidence_core::store::StoredEntry;
use evidence_core::time::Timestamp;
use evidence_core::transfer::{Import, Transfer};

/// Adds an entry of the year 2096 to the ledger of an organization. Bypasses the store's check of the time.
pub(crate) async fn add(store: &dyn Transfer, org: Id, text: &str) {
    add_facts(store, org, FUTURE, vec![Fact::TextKept { text: text.to_owned() }]).await;
}

/// A time in the year 2096.
pub(crate) const FUTURE: Timestamp = Timestamp::from_seconds(4_000_000_000);

/// Adds entries with a given time.
pub(crate) async fn add_facts(store: &dyn Transfer, org: Id, at: Timestamp, facts: Vec<Fact>) {
    let first = store.ledger_head(org).await.unwrap().unwrap().size();
    let entry = |(index, fact)| {
        let prepared = EncodedFact::new(fact, at, "user:jane".to_owned()).unwrap();
        let (kind, leaf_hash) = (prepared.fact.kind().to_owned(), prepared.leaf_hash(index, at));
        let EncodedFact { actor, payload, payload_sha256, .. } = prepared;
        StoredEntry { index, kind, at, effective_at: at, actor, payload_sha256, leaf_hash, payload }
    };
    let entries = (first..).zip(facts).map(entry).collect();
    store.import(Import::new(org, entries).unwrap()).await.unwrap();
}
