//! What is allowed in environments.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use crate::allowlists::{Allowance, AllowlistStore};
use crate::id::Id;
use crate::name::Fingerprint;
use crate::page::Listed;
use crate::store::{Current, StoreResult};

use super::tables::Tables;
use super::{MemoryStore, bytes};

#[async_trait]
impl AllowlistStore for MemoryStore {
    async fn allowances_listed(&self, org: Id) -> StoreResult<Vec<Listed<u64>>> {
        let newest = self.ask(org, |tables| {
            let mut seen = BTreeSet::new();
            let newest_first = tables.allowances.iter().rev();
            let newest = newest_first
                .filter(|Current { record, .. }| seen.insert((record.environment, &record.fingerprint)));
            newest.cloned().collect::<Vec<_>>()
        })?;
        let listed = |allowance: &Current<Allowance>| {
            Ok(Listed { id: allowance.revision, bytes: bytes(&allowance.record)? })
        };
        newest.iter().map(listed).collect()
    }

    async fn allowances(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<Allowance>> {
        self.ask(org, |tables| {
            let newest_first = tables.allowances.iter().rev();
            let wanted = newest_first.filter(|allowance| indexes.contains(&allowance.revision));
            wanted.map(|allowance| allowance.record.clone()).collect()
        })
    }

    async fn allowed(
        &self,
        org: Id,
        environment: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
    ) -> StoreResult<Vec<(Fingerprint, u64)>> {
        self.ask(org, |tables| {
            let allowed = tables.allowed_in(environment);
            let newest = |wanted: &Fingerprint| {
                let (first, newest) = allowed.get(wanted)?;
                (*first < entries).then(|| (wanted.clone(), *newest))
            };
            BTreeSet::from_iter(fingerprints).into_iter().filter_map(newest).collect()
        })
    }

    async fn allowance_count(&self, org: Id, environment: Id, most: u64) -> StoreResult<u64> {
        self.ask(org, |tables| most.min(tables.allowed_in(environment).len() as u64))
    }
}

impl Tables {
    /// The first and the newest entry of each artifact.
    fn allowed_in(&self, environment: Id) -> BTreeMap<&Fingerprint, (u64, u64)> {
        let mut allowed = BTreeMap::new();
        for Current { revision, record } in &self.allowances {
            if record.environment == environment {
                let (_, newest) = allowed.entry(&record.fingerprint).or_insert((*revision, *revision));
                *newest = *revision;
            }
        }
        allowed
    }
}
