//! The store contract, executable: a store that keeps everything in memory. It is the reference that the other stores
//! are compared with, so it prefers the obvious to the fast: one lock over plain maps and lists, and every query a
//! look-up or a scan. [`record`](crate::store::Recorder::record) checks a whole write first and applies it afterwards,
//! so that a refused one has changed nothing.

mod feed;
mod ledger;
mod pending;
mod queries;
mod record;
mod runtime;
mod tables;
mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use bytes::Bytes;

use crate::auth::KeyHash;
use crate::directory::{Directory, Name};
use crate::fact::Key;
use crate::feed::Lease;
use crate::id::Id;
use crate::name::Fingerprint;
use crate::orgs::{Organization, User};
use crate::store::{Current, StoreError, StoreResult};
use crate::time::Timestamp;
use tables::Tables;

/// A [`crate::Store`] that lives and ends with the process.
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
    /// What each organization has.
    tables: BTreeMap<Id, Tables>,
    /// What names lead to, and the revision of each record.
    directory: Directory,
    /// Hashes of keys: the organization and the id of the key.
    hashes: BTreeMap<KeyHash, (Id, Id)>,
    /// Leases by name.
    leases: BTreeMap<String, Lease>,
    /// Cursors by organization and consumer.
    cursors: BTreeMap<(Id, String), u64>,
    /// Contents that records name.
    named: BTreeSet<(Id, Fingerprint)>,
    /// Contents that no record names yet: when they were kept, and when their removal began.
    pending: BTreeMap<(Id, Fingerprint), (Timestamp, Option<Timestamp>)>,
    /// Attachments by organization and content.
    blobs: BTreeMap<(Id, Fingerprint), Bytes>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn read(&self) -> StoreResult<RwLockReadGuard<'_, State>> {
        self.state.read().map_err(poisoned)
    }

    fn write(&self) -> StoreResult<RwLockWriteGuard<'_, State>> {
        self.state.write().map_err(poisoned)
    }

    /// The record of this name, be it a former one, in the table that holds its kind.
    fn by_name<T: Clone>(
        &self,
        org: Id,
        key: Option<Key>,
        table: impl FnOnce(&Tables) -> &BTreeMap<Id, Current<T>>,
    ) -> StoreResult<Option<Current<T>>> {
        let state = self.read()?;
        let id = key.and_then(|key| state.directory.denoted(&Name::new(org, key))).map(|denoted| denoted.id);
        Ok(id.and_then(|id| table(state.tables.get(&org)?).get(&id).cloned()))
    }

    /// Asks an organization's tables; an organization that does not exist has empty ones.
    fn ask<T>(&self, org: Id, query: impl FnOnce(&Tables) -> T) -> StoreResult<T> {
        let state = self.read()?;
        Ok(match state.tables.get(&org) {
            Some(tables) => query(tables),
            None => query(&Tables::default()),
        })
    }
}

/// A writer panicked half way: what the maps hold now need not be what they should.
fn poisoned<T>(_: PoisonError<T>) -> StoreError {
    StoreError::Failed("an earlier write did not come to its end".into())
}
