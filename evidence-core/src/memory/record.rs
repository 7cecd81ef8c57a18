//! Recording: everything that can go wrong is looked at before the first change.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::auth::KeyHash;
use crate::fact::{Fact, Guard, Key, Prepared, Write};
use crate::id::Id;
use crate::store::{Entry, Recorder, StoreError, StoreResult};
use crate::transfer::Import;

use super::{MemoryStore, State};

/// A write or an import.
pub(super) struct Change {
    org: Id,
    begins: bool,
    /// The index that its first fact must have: imports alone know.
    first: Option<u64>,
    facts: Vec<Prepared>,
    guards: Vec<Guard>,
    secrets: Vec<(Id, KeyHash)>,
}

impl TryFrom<Write> for Change {
    type Error = StoreError;

    fn try_from(write: Write) -> StoreResult<Self> {
        let begins = write.begins_ledger();
        let Write { org, by, at, facts, guards, secrets } = write;
        let prepare = |fact| Prepared::new(fact, at, by.to_string());
        let facts = facts.into_iter().map(prepare).collect::<Result<_, _>>();
        let facts = facts.map_err(|error| StoreError::Failed(error.into()))?;
        Ok(Self { org, begins, first: None, facts, guards, secrets })
    }
}

impl From<Import> for Change {
    fn from(import: Import) -> Self {
        let begins = import.begins_ledger();
        let Import { org, first, facts, secrets } = import;
        Self { org, begins, first: Some(first), facts, guards: Vec::new(), secrets }
    }
}

impl MemoryStore {
    pub(super) fn change(&self, change: Change) -> StoreResult<Vec<Entry>> {
        let mut state = self.write()?;
        state.check(&change)?;
        Ok(state.apply(change))
    }
}

#[async_trait]
impl Recorder for MemoryStore {
    async fn record(&self, write: Write) -> StoreResult<Vec<Entry>> {
        self.change(write.try_into()?)
    }
}

impl State {
    fn check(&self, change: &Change) -> StoreResult<()> {
        let Change { org, begins, first, guards, secrets, .. } = change;
        let size = self.tables.get(org).map(|tables| tables.ledger.frontier().size());
        if size.is_none() && !begins {
            return Err(StoreError::Failed(format!("there is no organization {org}").into()));
        }
        let begun_twice = size.is_some() && *begins;
        let elsewhere = first.is_some_and(|first| first != size.unwrap_or_default());
        let guarded = guards.iter().all(|guard| self.holds(*org, guard));
        if begun_twice
            || elsewhere
            || !guarded
            || !self.names_are_free(change)
            || !self.hashes_are_new(secrets)
        {
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

    fn names_are_free(&self, change: &Change) -> bool {
        let mut taken = BTreeSet::new();
        let facts = change.facts.iter().map(|prepared| &prepared.fact);
        let created = facts.filter(|fact| fact.creates()).filter_map(Fact::subject);
        created
            .map(|(key, _)| place(change.org, key))
            .all(|place| !self.revisions.contains_key(&place) && taken.insert(place))
    }

    fn hashes_are_new(&self, secrets: &[(Id, KeyHash)]) -> bool {
        let mut taken = BTreeSet::new();
        secrets.iter().all(|(_, hash)| !self.hashes.contains_key(hash) && taken.insert(hash))
    }

    fn apply(&mut self, change: Change) -> Vec<Entry> {
        let Change { org, facts, secrets, .. } = change;
        self.hashes.extend(secrets.into_iter().map(|(key, hash)| (hash, (org, key))));
        facts.into_iter().map(|prepared| self.apply_one(org, prepared)).collect()
    }

    fn apply_one(&mut self, org: Id, prepared: Prepared) -> Entry {
        let fact = prepared.fact.clone();
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
