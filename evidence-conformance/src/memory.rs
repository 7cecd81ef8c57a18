//! A store that holds everything in memory. It is the reference for other stores, so it prefers simple code
//! to fast code: one lock over maps and lists, and each query is a look-up or a scan.
//! [`record`](evidence_core::store::Recorder::record) checks a whole write before it changes anything.

mod actions;
mod allowlists;
mod artifacts;
mod attestation_types;
mod attestations;
mod blobs;
mod builds;
mod checkpoints;
mod controls;
mod deployments;
mod environments;
mod flows;
mod leases;
mod ledger;
mod orgs;
mod pending;
mod policies;
mod record;
mod repos;
mod service_accounts;
mod snapshots;
mod tables;
mod tags;
mod texts;
mod trails;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;

use evidence_core::actions::StoredUrl;
use evidence_core::auth::KeyHash;
use evidence_core::fact::Key;
use evidence_core::id::Id;
use evidence_core::leases::Lease;
use evidence_core::name::Fingerprint;
use evidence_core::name_index::{Name, NameIndex};
use evidence_core::notifications::Delivery;
use evidence_core::orgs::{Organization, User};
use evidence_core::store::{Current, Health, StoreError, StoreResult};
use evidence_core::sweep::AttachmentPlace;
use evidence_core::time::Timestamp;
use tables::Tables;

/// A filter of a query, by its meaning.
trait Admits<T> {
    /// Returns whether the query returns this record.
    fn admits(&self, record: &T) -> bool;
}

/// A [`evidence_core::Store`] that exists as long as the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Organizations by name.
    organizations: BTreeMap<String, Organization>,
    /// Users by name.
    users: BTreeMap<String, User>,
    /// The tables of each organization.
    tables: BTreeMap<Id, Tables>,
    /// The names and revisions of records.
    name_index: NameIndex,
    /// Hashes of keys: the organization and the id of the key.
    hashes: BTreeMap<KeyHash, (Id, Id)>,
    /// Secret URLs by organization and id.
    urls: BTreeMap<(Id, Id), StoredUrl>,
    /// The last signed checkpoint of each organization.
    checkpoints: BTreeMap<Id, String>,
    /// Leases by name.
    leases: BTreeMap<String, Lease>,
    /// Cursors by organization and consumer.
    cursors: BTreeMap<(Id, String), u64>,
    /// The deliveries of targets, by organization and target.
    deliveries: BTreeMap<(Id, Id), Delivery>,
    /// The attachments that records name.
    named: BTreeSet<(Id, Fingerprint)>,
    /// The attachments that no record names yet: when they were stored, and when their removal began.
    pending: BTreeMap<(Id, Fingerprint), (Timestamp, Option<Timestamp>)>,
    attachment_place: Option<AttachmentPlace>,
    /// The content of attachments, by organization and digest.
    blobs: BTreeMap<(Id, Fingerprint), Bytes>,
}

impl MemoryStore {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn read(&self) -> StoreResult<RwLockReadGuard<'_, State>> {
        self.state.read().map_err(poisoned)
    }

    fn write(&self) -> StoreResult<RwLockWriteGuard<'_, State>> {
        self.state.write().map_err(poisoned)
    }

    /// Returns the record with this name or former name from the table of its kind.
    fn by_name<T: Clone>(
        &self,
        org: Id,
        key: Option<Key>,
        table: impl FnOnce(&Tables) -> &BTreeMap<Id, Current<T>>,
    ) -> StoreResult<Option<Current<T>>> {
        let state = self.read()?;
        let id = key.and_then(|key| state.name_index.denoted(&Name::new(org, key))).map(|denoted| denoted.id);
        Ok(id.and_then(|id| table(state.tables.get(&org)?).get(&id).cloned()))
    }

    /// Queries an organization's tables. An unknown organization has empty ones.
    fn query<T>(&self, org: Id, query: impl FnOnce(&Tables) -> T) -> StoreResult<T> {
        let state = self.read()?;
        Ok(match state.tables.get(&org) {
            Some(tables) => query(tables),
            None => query(&Tables::default()),
        })
    }
}

#[async_trait]
impl Health for MemoryStore {
    async fn ready(&self) -> StoreResult<()> {
        self.read().map(drop)
    }

    async fn check_clock(&self, _: Timestamp) -> StoreResult<()> {
        Ok(())
    }

    async fn newest_entry(&self) -> StoreResult<Option<Timestamp>> {
        Ok(self.read()?.tables.values().filter_map(|tables| tables.ledger.last()).max())
    }
}

/// A writer panicked, so the data may be incomplete.
fn poisoned<T>(_: PoisonError<T>) -> StoreError {
    StoreError::Failed("an earlier write panicked".into())
}

/// Returns copies of the records, sorted by name.
fn records<T: Clone, N: Ord>(table: &BTreeMap<Id, Current<T>>, name: impl Fn(&T) -> N) -> Vec<T> {
    let mut records: Vec<_> = table.values().map(|current| current.record.clone()).collect();
    records.sort_by_key(name);
    records
}

/// Returns the size of a record as serialized by other stores.
fn bytes(record: &impl Serialize) -> StoreResult<u64> {
    let text = serde_json::to_vec(record).map_err(StoreError::corrupt)?;
    Ok(text.len() as u64)
}

/// Returns whether `text` contains `part`, ignoring ASCII case.
fn contains_folded(text: &str, part: &str) -> bool {
    text.to_ascii_lowercase().contains(&part.to_ascii_lowercase())
}

/// Converts a limit for iterators.
fn at_most(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}
