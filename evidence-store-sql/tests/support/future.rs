//! Entries from the future, like those of a server whose clock is ahead.

use evidence_core::Fact;
use evidence_core::auth::{Actor, ActorKind};
use evidence_core::fact::EncodedFact;
use evidence_core::id::Id;
use evidence_core::ledger::Salt;
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
    let by = Actor { id: org, name: "jane".to_owned(), kind: ActorKind::User };
    let salt = Salt::from_bytes([7; Salt::LEN]);
    let entry = |(index, fact)| EncodedFact::new(fact, at, &by, salt).unwrap().into_entry(index, at);
    let entries = (first..).zip(facts).map(entry).collect();
    store.import(Import::new(org, entries).unwrap()).await.unwrap();
}
