//! Organizations to record in. The records are those of `evidence_core::fixtures`.

use std::sync::Arc;

use evidence_core::actions::{Action, SecretUrl, StoredUrl, UrlRecord};
use evidence_core::fact::{Fact, Precondition, Secrets, Write};
pub(crate) use evidence_core::fixtures::*;
use evidence_core::id::{Id, Random, SystemRandom};
use evidence_core::store::{Entry, Store, StoreResult};

use super::Failure;

/// An organization, and the store it is in.
#[derive(Clone)]
pub(crate) struct Org {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) id: Id,
}

impl Org {
    /// A new organization of this name; ids below 90 are for organizations.
    pub(crate) async fn create(store: &Arc<dyn Store>, n: u64, name: &str) -> Result<Self, Failure> {
        let org = Self { store: Arc::clone(store), id: id(n) };
        org.record(vec![Fact::OrganizationCreated { record: organization(n, name) }]).await?;
        Ok(org)
    }

    /// The organizations `foo` and `foobar`, whose names begin alike.
    pub(crate) async fn two(store: &Arc<dyn Store>) -> Result<(Self, Self), Failure> {
        Ok((Self::create(store, 1, "foo").await?, Self::create(store, 2, "foobar").await?))
    }

    pub(crate) async fn record(&self, facts: Vec<Fact>) -> Result<Vec<Entry>, Failure> {
        Ok(self.attempt(facts, Vec::new()).await?)
    }

    /// Records the facts by a clock that shows this instant.
    pub(crate) async fn record_at(&self, instant: i64, facts: Vec<Fact>) -> Result<(), Failure> {
        let write = Write { at: at(instant), ..self.write(facts, Vec::new()) };
        Ok(self.store.record(write).await.map(drop)?)
    }

    pub(crate) async fn attempt(
        &self,
        facts: Vec<Fact>,
        preconditions: Vec<Precondition>,
    ) -> StoreResult<Vec<Entry>> {
        self.store.record(self.write(facts, preconditions)).await
    }

    pub(crate) fn write(&self, facts: Vec<Fact>, preconditions: Vec<Precondition>) -> Write {
        let created = facts.iter().filter_map(|fact| match fact {
            Fact::ActionCreated { record } => Some(record),
            _ => None,
        });
        let urls = created.flat_map(stored_urls).collect();
        let secrets = Secrets { urls, ..Secrets::default() };
        Write { preconditions, secrets, ..Write::new(self.id, jane(), at(7), facts, &SystemRandom) }
    }
}

/// The record of the secret URL of this number.
pub(crate) fn secret_url(n: u64) -> UrlRecord {
    stored_url(id(n)).0
}

/// Returns the secret URLs of the action's targets.
pub(crate) fn stored_urls(action: &Action) -> Vec<(Id, StoredUrl)> {
    action.urls().map(|record| (record.id, stored_url(record.id).1)).collect()
}

/// Returns the secret URL of this id. Each id has a URL and a salt of its own.
fn stored_url(id: Id) -> (UrlRecord, StoredUrl) {
    let url = SecretUrl::new(format!("https://hooks.example.com/{id}"));
    StoredUrl::of(&url, id, None, &Constant(id.as_bytes()[13]))
}

/// A random source that always gives the same byte.
struct Constant(u8);

impl Random for Constant {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0);
    }
}
