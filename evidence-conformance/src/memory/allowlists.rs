//! Allowlists.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use evidence_core::allowlists::{AllowedArtifact, AllowlistEntry, AllowlistStore, EndedAllowlistEntry};
use evidence_core::id::Id;
use evidence_core::name::Fingerprint;
use evidence_core::page::Listed;
use evidence_core::store::{Current, StoreResult};
use evidence_core::time::Timestamp;

use super::tables::Tables;
use super::{MemoryStore, bytes};

#[async_trait]
impl AllowlistStore for MemoryStore {
    async fn allowlist_entries_listed(
        &self,
        org: Id,
        in_force_at: Option<Timestamp>,
    ) -> StoreResult<Vec<Listed<u64>>> {
        let newest = self.query(org, |tables| {
            let mut seen = BTreeSet::new();
            let newest_first = tables.allowlist_entries.iter().rev();
            let newest = newest_first
                .filter(|Current { record, .. }| seen.insert((record.environment, &record.fingerprint)));
            let listed = newest.filter(|one| in_force_at.is_none_or(|at| one.record.is_in_force(at)));
            listed.cloned().collect::<Vec<_>>()
        })?;
        let listed = |allowlist_entry: &Current<AllowlistEntry>| {
            Ok(Listed { id: allowlist_entry.revision, bytes: bytes(&allowlist_entry.record)? })
        };
        newest.iter().map(listed).collect()
    }

    async fn allowlist_entries(&self, org: Id, indexes: &[u64]) -> StoreResult<Vec<AllowlistEntry>> {
        self.query(org, |tables| {
            let newest_first = tables.allowlist_entries.iter().rev();
            let wanted = newest_first.filter(|allowlist_entry| indexes.contains(&allowlist_entry.revision));
            wanted.map(|allowlist_entry| allowlist_entry.record.clone()).collect()
        })
    }

    async fn allowed(
        &self,
        org: Id,
        environment: Id,
        fingerprints: &[Fingerprint],
        entries: u64,
        at: Timestamp,
    ) -> StoreResult<Vec<AllowedArtifact>> {
        self.query(org, |tables| {
            let allowed = tables.allowed_in(environment, entries, at);
            let wanted = BTreeSet::from_iter(fingerprints).into_iter();
            let wanted =
                wanted.filter_map(|wanted| allowed.get(wanted)).map(|Current { revision, record }| {
                    let (fingerprint, expires_at) = (record.fingerprint.clone(), record.expires_at);
                    AllowedArtifact { fingerprint, entry: *revision, expires_at }
                });
            wanted.collect()
        })
    }

    async fn allowlist_entry_count(
        &self,
        org: Id,
        environment: Id,
        at: Timestamp,
        most: u64,
    ) -> StoreResult<u64> {
        self.query(org, |tables| most.min(tables.allowed_in(environment, u64::MAX, at).len() as u64))
    }

    async fn ended_allowlist_entries(
        &self,
        after: Timestamp,
        until: Timestamp,
        limit: u64,
    ) -> StoreResult<Vec<EndedAllowlistEntry>> {
        let state = self.read()?;
        let mut rows = Vec::new();
        for organization in state.organizations.values() {
            let Some(tables) = state.tables.get(&organization.id) else { continue };
            let ended = tables.allowlist_entries.iter().filter_map(|Current { revision, record }| {
                let at = record.ends_at().filter(|at| (after < *at) && (*at <= until))?;
                let (org, environment) = (organization.name.clone(), record.environment);
                Some(EndedAllowlistEntry { at, org, environment, entry: *revision })
            });
            rows.extend(ended);
        }
        rows.sort();
        let last = usize::try_from(limit).unwrap_or(usize::MAX).checked_sub(1);
        if let Some(last) = last.and_then(|last| rows.get(last)).map(|row| row.at) {
            rows.retain(|row| row.at <= last);
        }
        // Sorted by entry last, so that the newest of each time stays.
        rows.reverse();
        rows.dedup_by(|one, kept| {
            (one.at, &one.org, one.environment) == (kept.at, &kept.org, kept.environment)
        });
        rows.reverse();
        Ok(rows)
    }
}

impl Tables {
    /// Returns the newest entry in force of each artifact, among the first `entries` of the ledger.
    fn allowed_in(
        &self,
        environment: Id,
        entries: u64,
        at: Timestamp,
    ) -> BTreeMap<&Fingerprint, &Current<AllowlistEntry>> {
        let here =
            |one: &&Current<AllowlistEntry>| one.record.environment == environment && one.revision < entries;
        let mut newest = BTreeMap::new();
        for one in self.allowlist_entries.iter().filter(here) {
            newest.insert(&one.record.fingerprint, one);
        }
        newest.retain(|_, one| one.record.is_in_force(at));
        newest
    }
}
