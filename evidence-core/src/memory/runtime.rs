//! Questions about what runs: environments, snapshots, policies, allowlists.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use async_trait::async_trait;

use crate::allowlists::{Allowance, AllowlistStore};
use crate::environments::{Environment, EnvironmentStatus, EnvironmentStore, KnownEnvironment};
use crate::fact::Key;
use crate::id::Id;
use crate::name::Fingerprint;
use crate::page::Listed;
use crate::policies::{Policy, PolicyStore, PolicyVersion, VersionKey};
use crate::snapshots::{Placed, Snapshot, SnapshotRow, SnapshotStore, Stretch};
use crate::store::{Current, StoreResult};
use crate::time::Timestamp;

use super::MemoryStore;
use super::questions::{bytes, records};
use super::tables::{Run, Tables};

#[async_trait]
impl EnvironmentStore for MemoryStore {
    async fn environment(&self, org: Id, name: &str) -> StoreResult<Option<KnownEnvironment>> {
        let key = name.parse().ok().map(Key::Environment);
        let found = self.by_name(org, key, |tables| &tables.environments)?;
        self.ask(org, |tables| found.map(|found| tables.known(found)))
    }

    async fn environments(&self, org: Id) -> StoreResult<Vec<KnownEnvironment>> {
        self.ask(org, |tables| {
            let listed = tables.environments.values();
            let listed = listed.filter(|known| !tables.archived.contains(&known.record.id));
            let mut listed: Vec<_> = listed.map(|known| tables.known(known.clone())).collect();
            listed.sort_by(|left, right| left.record.name.cmp(&right.record.name));
            listed
        })
    }

    async fn environments_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<KnownEnvironment>> {
        self.ask(org, |tables| {
            let environments = tables.environments.values().filter(|known| ids.contains(&known.record.id));
            environments.map(|known| tables.known(known.clone())).collect()
        })
    }
}

impl Tables {
    fn known(&self, current: Current<Environment>) -> KnownEnvironment {
        let Current { revision, record } = current;
        let latest = self.snapshots_of(record.id).next_back().map(|latest| &latest.record);
        let status = EnvironmentStatus {
            snapshots: latest.map_or(0, |latest| latest.index),
            changed_at: latest.map(|latest| latest.at),
            compliant: latest.map(|latest| latest.compliant),
            reported_at: self.reported.get(&record.id).map(|report| report.record),
        };
        let reported = self.reported.get(&record.id).map(|report| report.revision);
        let archived = self.archived.contains(&record.id);
        KnownEnvironment { revision, reported, record, status, archived }
    }
}

impl Tables {
    fn snapshots_of(&self, environment: Id) -> impl DoubleEndedIterator<Item = &Current<Snapshot>> {
        self.snapshots.range((environment, 0)..=(environment, u64::MAX)).map(|(_, snapshot)| snapshot)
    }

    fn line(&self, Current { revision, record: snapshot }: &Current<Snapshot>) -> SnapshotRow {
        let next = snapshot.index.checked_add(1).map(|next| (snapshot.environment, next));
        SnapshotRow {
            index: snapshot.index,
            at: snapshot.at,
            until: next.and_then(|next| self.snapshots.get(&next)).map(|next| next.record.at),
            compliant: snapshot.compliant,
            revision: *revision,
        }
    }
}

impl Tables {
    fn stretch(&self, run: &Run) -> Option<Stretch> {
        let environment = &self.environments.get(&run.environment)?.record;
        Some(Stretch {
            fingerprint: run.instance.fingerprint.clone()?,
            environment: run.environment,
            environment_name: environment.name.clone(),
            from: run.instance.from,
            from_at: run.from_at,
            until: run.until,
            exited: run.exited,
        })
    }
}

#[async_trait]
impl SnapshotStore for MemoryStore {
    async fn snapshot(&self, org: Id, environment: Id, index: u64) -> StoreResult<Option<Current<Snapshot>>> {
        self.ask(org, |tables| tables.snapshots.get(&(environment, index)).cloned())
    }

    async fn snapshots(
        &self,
        org: Id,
        environment: Id,
        range: RangeInclusive<u64>,
    ) -> StoreResult<Vec<SnapshotRow>> {
        self.ask(org, |tables| {
            let snapshots = tables.snapshots_of(environment);
            let within = snapshots.filter(|snapshot| range.contains(&snapshot.record.index));
            within.map(|snapshot| tables.line(snapshot)).collect()
        })
    }

    async fn snapshot_at(&self, org: Id, environment: Id, at: Timestamp) -> StoreResult<u64> {
        self.ask(org, |tables| {
            let all = tables.snapshots_of(environment).map(|snapshot| &snapshot.record);
            let before = all.filter(|snapshot| snapshot.at <= at);
            before.max_by_key(|snapshot| (snapshot.at, snapshot.index)).map_or(0, |snapshot| snapshot.index)
        })
    }

    async fn instances(&self, org: Id, environment: Id, index: u64) -> StoreResult<Vec<Placed>> {
        self.ask(org, |tables| {
            if !tables.snapshots.contains_key(&(environment, index)) {
                return Vec::new();
            }
            let runs = tables.runs.iter().filter(|run| run.environment == environment);
            let mut runs: Vec<_> = runs.filter(|run| run.covers(index) || run.exited_in(index)).collect();
            runs.sort_by(|left, right| left.artifact.cmp(&right.artifact));
            let placed = |run: &Run| Placed { instance: run.instance.clone(), exited: run.exited_in(index) };
            runs.into_iter().map(placed).collect()
        })
    }

    async fn stretches(&self, org: Id, fingerprints: &[Fingerprint]) -> StoreResult<Vec<Stretch>> {
        let mut stretches: Vec<_> = self.ask(org, |tables| {
            let asked =
                |run: &&Run| run.instance.fingerprint.as_ref().is_some_and(|it| fingerprints.contains(it));
            tables.runs.iter().filter(asked).filter_map(|run| tables.stretch(run)).collect()
        })?;
        stretches.sort_by_cached_key(|run| (run.environment, run.fingerprint.clone(), run.from));
        Ok(stretches)
    }
}

#[async_trait]
impl PolicyStore for MemoryStore {
    async fn policy(&self, org: Id, name: &str) -> StoreResult<Option<Current<Policy>>> {
        self.by_name(org, name.parse().ok().map(Key::Policy), |tables| &tables.policies)
    }

    async fn policies(&self, org: Id) -> StoreResult<Vec<Policy>> {
        self.ask(org, |tables| records(&tables.policies, |policy| policy.name.clone()))
    }

    async fn policies_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Current<Policy>>> {
        self.ask(org, |tables| {
            let policies = tables.policies.values();
            policies.filter(|policy| ids.contains(&policy.record.id)).cloned().collect()
        })
    }

    async fn policy_version_sizes(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<Listed<VersionKey>>> {
        let listed = |version: &PolicyVersion| {
            Ok(Listed { id: (version.policy, version.version), bytes: bytes(version)? })
        };
        self.policy_versions_by_number(org, versions).await?.iter().map(listed).collect()
    }

    async fn policy_versions_by_number(
        &self,
        org: Id,
        versions: &[VersionKey],
    ) -> StoreResult<Vec<PolicyVersion>> {
        self.ask(org, |tables| {
            let all = tables.policy_versions.iter();
            all.filter(|one| versions.contains(&(one.policy, one.version))).cloned().collect()
        })
    }
}

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
    ) -> StoreResult<Vec<Fingerprint>> {
        self.ask(org, |tables| {
            let allowed = tables.allowed_in(environment);
            fingerprints.iter().filter(|wanted| allowed.contains(wanted)).cloned().collect()
        })
    }

    async fn allowlist_size(&self, org: Id, environment: Id, most: u64) -> StoreResult<u64> {
        self.ask(org, |tables| most.min(tables.allowed_in(environment).len() as u64))
    }
}

impl Tables {
    fn allowed_in(&self, environment: Id) -> BTreeSet<&Fingerprint> {
        let records = self.allowances.iter().map(|allowance| &allowance.record);
        let here = records.filter(|record| record.environment == environment);
        here.map(|record| &record.fingerprint).collect()
    }
}
