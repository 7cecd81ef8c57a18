//! Recording: everything that can go wrong is looked at before the first change.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::auth::KeyHash;
use crate::fact::{Fact, Guard, Key, Write};
use crate::id::Id;
use crate::store::{Entry, Recorder, StoreError, StoreResult};
use crate::time::Timestamp;

use super::{MemoryStore, State};

/// What a fact becomes in the ledger, but for its index.
pub(super) struct Prepared {
    pub(super) kind: &'static str,
    pub(super) at: Timestamp,
    pub(super) actor: String,
    pub(super) payload: String,
    /// The trail that it is about.
    pub(super) trail: Option<Id>,
}

#[async_trait]
impl Recorder for MemoryStore {
    async fn record(&self, write: Write) -> StoreResult<Vec<Entry>> {
        let prepared = prepare(&write)?;
        let mut state = self.write()?;
        state.check(&write)?;
        Ok(state.apply(write, prepared))
    }
}

fn prepare(write: &Write) -> StoreResult<Vec<Prepared>> {
    let prepare = |fact: &Fact| {
        let payload = serde_json::to_string(fact).map_err(|error| StoreError::Failed(error.into()))?;
        let (actor, trail) = (write.by.to_string(), trail_of(fact));
        Ok(Prepared { kind: fact.kind(), at: write.at, actor, payload, trail })
    };
    write.facts.iter().map(prepare).collect()
}

impl State {
    fn check(&self, write: &Write) -> StoreResult<()> {
        let (exists, begins) = (self.tables.contains_key(&write.org), write.begins_ledger());
        if !exists && !begins {
            return Err(StoreError::Failed(format!("there is no organization {}", write.org).into()));
        }
        let guarded = write.guards.iter().all(|guard| self.holds(write.org, guard));
        let begun_twice = exists && begins;
        if begun_twice || !guarded || !self.names_are_free(write) || !self.hashes_are_new(&write.secrets) {
            return Err(StoreError::Conflict);
        }
        Ok(())
    }

    fn holds(&self, org: Id, guard: &Guard) -> bool {
        match guard {
            Guard::Absent(key) => !self.revisions.contains_key(&place(org, key.clone())),
            Guard::Unchanged(key, revision) => self.revisions.get(&place(org, key.clone())) == Some(revision),
        }
    }

    fn names_are_free(&self, write: &Write) -> bool {
        let mut taken = BTreeSet::new();
        let created = write.facts.iter().filter(|fact| fact.creates()).filter_map(Fact::subject);
        created
            .map(|(key, _)| place(write.org, key))
            .all(|place| !self.revisions.contains_key(&place) && taken.insert(place))
    }

    fn hashes_are_new(&self, secrets: &[(Id, KeyHash)]) -> bool {
        let mut taken = BTreeSet::new();
        secrets.iter().all(|(_, hash)| !self.hashes.contains_key(hash) && taken.insert(hash))
    }

    fn apply(&mut self, write: Write, prepared: Vec<Prepared>) -> Vec<Entry> {
        let Write { org, facts, secrets, .. } = write;
        self.hashes.extend(secrets.into_iter().map(|(key, hash)| (hash, (org, key))));
        facts.into_iter().zip(prepared).map(|(fact, prepared)| self.apply_one(org, fact, prepared)).collect()
    }

    fn apply_one(&mut self, org: Id, fact: Fact, prepared: Prepared) -> Entry {
        let tables = self.tables.entry(org).or_default();
        let entry = tables.ledger.append(prepared);
        if let Some((key, _)) = fact.subject() {
            self.revisions.insert(place(org, key), entry.index);
        }
        match fact {
            Fact::OrganizationCreated { record } => {
                self.organizations.insert(record.name.to_string(), record);
            }
            Fact::UserCreated { record } => {
                self.users.insert(record.name.to_string(), record);
            }
            fact => tables.apply(fact, entry.index),
        }
        entry
    }
}

/// Where a name is unique: in the whole store, or in its organization.
fn place(org: Id, key: Key) -> (Option<Id>, Key) {
    match key {
        Key::Organization(_) | Key::User(_) => (None, key),
        Key::ServiceAccount(_)
        | Key::ApiKey(_)
        | Key::Flow(_)
        | Key::Trail { .. }
        | Key::Repo(_)
        | Key::Environment(_)
        | Key::Policy(_)
        | Key::AttestationType(_) => (Some(org), key),
    }
}

fn trail_of(fact: &Fact) -> Option<Id> {
    match fact {
        Fact::TrailBegun { record } | Fact::TrailUpdated { record, .. } => Some(record.id),
        Fact::ArtifactReported { record } => record.trail,
        Fact::AttestationAdded { record } => Some(record.trail),
        _ => None,
    }
}
