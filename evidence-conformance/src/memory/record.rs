//! Recording. Everything is checked before the first change.

use std::collections::BTreeSet;

use async_trait::async_trait;

use evidence_core::auth::KeyHash;
use evidence_core::fact::{EncodedFact, Fact, Precondition, Secrets, Write};
use evidence_core::id::Id;
use evidence_core::index::IndexRow;
use evidence_core::store::{Entry, Recorder, StoreError, StoreResult};
use evidence_core::transfer::{Import, older_entries};

use super::{MemoryStore, State};

/// A write or an import.
pub(super) struct Change {
    org: Id,
    begins: bool,
    /// The required index of the first fact; only for imports.
    first: Option<u64>,
    facts: Vec<EncodedFact>,
    preconditions: Vec<Precondition>,
    secrets: Secrets,
}

impl TryFrom<Write> for Change {
    type Error = StoreError;

    fn try_from(write: Write) -> StoreResult<Self> {
        let begins = write.begins_ledger();
        let Write { org, by, at, facts, preconditions, secrets, salts } = write;
        let prepare = |(position, fact)| EncodedFact::new(fact, at, &by, salts.salt(position));
        let facts = (0..).zip(facts).map(prepare).collect::<Result<_, _>>();
        let facts = facts.map_err(|error| StoreError::Failed(error.into()))?;
        Ok(Self { org, begins, first: None, facts, preconditions, secrets })
    }
}

impl From<Import> for Change {
    fn from(import: Import) -> Self {
        let begins = import.begins_ledger();
        let Import { org, first, facts, secrets, .. } = import;
        Self { org, begins, first: Some(first), facts, preconditions: Vec::new(), secrets }
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
        let Change { org, begins, first, preconditions, secrets, .. } = change;
        let size = self.tables.get(org).map(|tables| tables.ledger.frontier().size());
        if size.is_none() && !begins {
            return Err(StoreError::Failed(format!("there is no organization {org}").into()));
        }
        let begun_twice = size.is_some() && *begins;
        let elsewhere = first.is_some_and(|first| first != size.unwrap_or_default());
        let facts = change.facts.iter().map(|prepared| &prepared.fact);
        let admitted = self.name_index.admits(*org, preconditions, facts);
        if begun_twice || elsewhere || !admitted || !self.hashes_are_new(&secrets.key_hashes) {
            return Err(StoreError::Conflict);
        }
        let last = self.tables.get(org).and_then(|tables| tables.ledger.last());
        let is_older_than = change.facts.first().is_some_and(|prepared| prepared.is_older_than(last));
        if first.is_some() && is_older_than {
            return Err(older_entries());
        }
        Ok(())
    }

    fn hashes_are_new(&self, secrets: &[(Id, KeyHash)]) -> bool {
        let mut taken = BTreeSet::new();
        secrets.iter().all(|(_, hash)| !self.hashes.contains_key(hash) && taken.insert(hash))
    }

    fn apply(&mut self, change: Change) -> Vec<Entry> {
        let Change { org, first, facts, secrets, .. } = change;
        self.hashes.extend(secrets.key_hashes.into_iter().map(|(key, hash)| (hash, (org, key))));
        for (id, stored) in secrets.urls {
            self.urls.entry((org, id)).or_insert(stored);
        }
        facts.into_iter().map(|prepared| self.apply_one(org, prepared, first.is_some())).collect()
    }

    fn apply_one(&mut self, org: Id, prepared: EncodedFact, exactly: bool) -> Entry {
        let fact = prepared.fact.clone();
        let tables = self.tables.entry(org).or_default();
        let (entry, at) = tables.ledger.append(prepared, exactly);
        self.name_index.apply(org, &fact, entry.index);
        for row in fact.index_rows(at) {
            match row {
                IndexRow::Attachment(file) => {
                    let content = (org, file.sha256.clone());
                    self.pending.remove(&content);
                    self.named.insert(content);
                }
                IndexRow::CommitTrail { commit, trail, flow } => {
                    tables.commit_trails.entry(commit.to_owned()).or_default().insert(trail, flow);
                }
                IndexRow::RemovedUrl { id } => {
                    self.urls.remove(&(org, id));
                }
                IndexRow::FlowRepo { flow, url } => {
                    tables.flow_repos.insert(flow, url.to_owned());
                }
                _ => {}
            }
        }
        match fact {
            Fact::OrganizationCreated { record } => {
                self.organizations.insert(record.name.to_string(), record);
            }
            Fact::UserCreated { record } => {
                self.users.insert(record.name.to_string(), record);
            }
            fact => tables.apply(fact, entry.index, at),
        }
        entry
    }
}
