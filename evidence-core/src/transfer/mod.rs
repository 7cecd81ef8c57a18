//! Copies of a store into another: the same facts, ledgers, keys and attachments. A ledger contains
//! everything about its organization. So a copy imports the ledgers, entry by entry, through the target's own
//! write path ([`Transfer::import`]). Only the hashes of keys and the attachments are stored separately.
//! [`copy`] does all of it.

mod attachments;
mod copy;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::actions::record::Action;
use crate::actions::secret_url::StoredUrl;
use crate::auth::credentials::KeyHash;
use crate::fact::{EncodedFact, Fact, Secrets};
use crate::id::Id;
use crate::index::IndexRow;
use crate::name::Fingerprint;
use crate::orgs::record::Organization;
use crate::service_accounts::record::ApiKeyRecord;
use crate::store::Store;
use crate::store::entry::StoredEntry;
use crate::store::error::{StoreError, StoreResult};

pub use attachments::{Skipped, check_attachments};
pub use copy::{AttachmentCounts, Copied, CopyError, CopyProgress, Side, Summary, copy};

/// The queries that a copy needs from a store, beyond those of the service.
#[async_trait]
pub trait Transfer: Store {
    /// Returns at most `limit` organizations, sorted by id, starting after the one with id `after`.
    async fn organizations(&self, after: Option<Id>, limit: u64) -> StoreResult<Vec<Organization>>;
    /// Returns the hashes of these keys of an organization, with the keys' ids, in any order. Unknown ids are
    /// skipped.
    async fn key_hashes(&self, org: Id, keys: &[Id]) -> StoreResult<Vec<(Id, KeyHash)>>;
    /// Returns at most `limit` attachments that records of an organization name, sorted by digest, starting
    /// after `after`, wherever they are stored.
    async fn attachments(
        &self,
        org: Id,
        after: Option<&Fingerprint>,
        limit: u64,
    ) -> StoreResult<Vec<Fingerprint>>;
    /// Appends the entries to their organization's ledger and writes their rows, all or none. Does the same
    /// as [`crate::store::Recorder::record`], but payload, time and actor are given. Returns
    /// [`StoreError::Conflict`] if the ledger does not end where they begin, or if a name is already in use.
    async fn import(&self, import: Import) -> StoreResult<()>;
}

/// Consecutive entries of one ledger, for another store. Each was verified against its leaf hash, so a store
/// that appends them at [`Import::first`] gets the same root.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Import {
    /// The organization of the ledger.
    pub org: Id,
    /// The index of the first entry.
    pub first: u64,
    /// The facts, in order.
    pub facts: Vec<EncodedFact>,
    /// The secrets that the facts introduce and that are still in use.
    pub secrets: Secrets,
}

impl Import {
    /// Verifies entries that another store returned.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if an entry does not match its leaf hash, cannot be read, or is older than the
    /// previous one.
    pub fn new(org: Id, entries: Vec<StoredEntry>) -> StoreResult<Self> {
        let first = entries.first().map_or(0, |entry| entry.index);
        let facts = (first..).zip(entries).map(|(index, entry)| checked(index, entry));
        let facts = facts.collect::<StoreResult<Vec<_>>>()?;
        let is_older_than =
            |(before, after): (&EncodedFact, &EncodedFact)| after.is_older_than(Some(before.at));
        if facts.iter().zip(facts.iter().skip(1)).any(is_older_than) {
            return Err(older_entries());
        }
        Ok(Self { org, first, facts, secrets: Secrets::default() })
    }

    /// Adds the hashes of the keys that the facts create.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] if a hash is missing or does not match the ledger's record of the key.
    pub fn with_key_hashes(mut self, hashes: Vec<(Id, KeyHash)>) -> StoreResult<Self> {
        for (key, hash) in &hashes {
            if !self
                .created_keys()
                .any(|record| record.id == *key && record.hash_sha256 == hash.fingerprint())
            {
                return Err(StoreError::corrupt(format_args!("the hash of key {key} is not the ledger's")));
            }
        }
        let has_hash = |record: &&ApiKeyRecord| hashes.iter().any(|(key, _)| *key == record.id);
        if let Some(record) = self.created_keys().find(|record| !has_hash(record)) {
            return Err(StoreError::corrupt(format_args!("the hash of key {} is missing", record.id)));
        }
        self.secrets.key_hashes = hashes;
        Ok(self)
    }

    /// Adds secret URLs that the facts introduce. Those that no target has any more are not kept in any store.
    #[must_use]
    pub fn with_urls(mut self, urls: Vec<(Id, StoredUrl)>) -> Self {
        self.secrets.urls = urls;
        self
    }

    /// Returns the ids of the secret URLs that the facts name, each once.
    pub(crate) fn urls(&self) -> BTreeSet<Id> {
        let actions = self.facts.iter().filter_map(|prepared| match &prepared.fact {
            Fact::ActionCreated { record } | Fact::ActionUpdated { record, .. } => Some(record),
            _ => None,
        });
        actions.flat_map(Action::urls).map(|url| url.id).collect()
    }

    /// Returns the keys that the facts create.
    pub(crate) fn created_keys(&self) -> impl Iterator<Item = &ApiKeyRecord> {
        self.facts.iter().filter_map(|prepared| match &prepared.fact {
            Fact::ApiKeyCreated { record } => Some(record),
            _ => None,
        })
    }

    /// Returns the attachments that the facts name, each once.
    pub(crate) fn attachments(&self) -> BTreeSet<Fingerprint> {
        let rows = self.facts.iter().flat_map(|prepared| prepared.fact.index_rows(prepared.at));
        let attachment = |row| match row {
            IndexRow::Attachment(attachment) => Some(attachment.sha256.clone()),
            _ => None,
        };
        rows.filter_map(attachment).collect()
    }

    /// Returns whether it begins its organization's ledger.
    pub fn begins_ledger(&self) -> bool {
        self.facts.first().is_some_and(|prepared| prepared.fact.creates_org(self.org))
    }
}

/// Returns the error for an import that would decrease the time of a ledger.
pub fn older_entries() -> StoreError {
    StoreError::corrupt("an entry is older than the one before")
}

/// Returns the entry's fact, if the entry is at `index` and its content matches its leaf hash.
fn checked(index: u64, entry: StoredEntry) -> StoreResult<EncodedFact> {
    let StoredEntry { at, actor, payload, salt, leaf_hash, .. } = entry;
    let damaged =
        |what: &dyn std::fmt::Display| StoreError::corrupt(format_args!("ledger entry {index}: {what}"));
    let fact = Fact::read(&payload).map_err(|error| damaged(&error))?;
    let prepared = EncodedFact::of_payload(fact, at, actor, payload, salt);
    if prepared.leaf_hash(index, prepared.at) == leaf_hash {
        Ok(prepared)
    } else {
        Err(damaged(&"its leaf hash covers something else"))
    }
}
