//! Queries about what runs: environments, snapshots, policies, allowlists.

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
use crate::snapshots::{Run, Snapshot, SnapshotInstance, SnapshotRow, SnapshotStore};
use crate::store::{Current, StoreResult};
use crate::time::Timestamp;

use super::MemoryStore;
use super::queries::{bytes, records};
use super::tables::{Interval, Tables};

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

    async fn environments_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let listed =
            |known: &KnownEnvironment| Ok(Listed { id: known.record.id, bytes: bytes(&known.record)? });
        self.environments(org).await?.iter().map(listed).collect()
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
    /// The run whose last interval this is.
    fn run(&self, interval: &Interval) -> Option<Run> {
        let environment = &self.environments.get(&interval.environment)?.record;
        let since = interval.instance.since;
        Some(Run {
            fingerprint: interval.instance.fingerprint.clone()?,
            environment: interval.environment,
            environment_name: environment.name.clone(),
            from: (since, self.snapshots.get(&(interval.environment, since))?.record.at),
            until: interval.until,
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

    async fn instances(&self, org: Id, environment: Id, index: u64) -> StoreResult<Vec<SnapshotInstance>> {
        self.ask(org, |tables| {
            if !tables.snapshots.contains_key(&(environment, index)) {
                return Vec::new();
            }
            let there = |one: &&Interval| one.covers(index) || one.exited_in(index);
            let intervals = tables.intervals.iter().filter(|one| one.environment == environment);
            let mut intervals: Vec<_> = intervals.filter(there).collect();
            intervals.sort_by(|left, right| left.artifact.cmp(&right.artifact));
            let placed = |one: &Interval| SnapshotInstance {
                instance: one.instance.clone(),
                exited: one.exited_in(index),
            };
            intervals.into_iter().map(placed).collect()
        })
    }

    async fn runs(&self, org: Id, fingerprints: &[Fingerprint], newest: u32) -> StoreResult<Vec<Run>> {
        let mut runs: Vec<_> = self.ask(org, |tables| {
            let asked = |one: &&Interval| {
                let fingerprint = one.instance.fingerprint.as_ref();
                (one.exited || one.until.is_none()) && fingerprint.is_some_and(|it| fingerprints.contains(it))
            };
            tables.intervals.iter().filter(asked).filter_map(|last| tables.run(last)).collect()
        })?;
        let place = |run: &Run| (run.environment, run.fingerprint.clone());
        runs.sort_by_cached_key(|run| (place(run), run.from.0));
        let newest = newest as usize;
        let shown = |runs: &[Run]| match runs.len().checked_sub(newest) {
            Some(older @ 1..) => [&runs[..1], &runs[older..]].concat(),
            _ => runs.to_vec(),
        };
        Ok(runs.chunk_by(|left, right| place(left) == place(right)).flat_map(shown).collect())
    }
}

#[async_trait]
impl PolicyStore for MemoryStore {
    async fn policy(&self, org: Id, name: &str) -> StoreResult<Option<Current<Policy>>> {
        self.by_name(org, name.parse().ok().map(Key::Policy), |tables| &tables.policies)
    }

    async fn policies_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let policies = self.ask(org, |tables| records(&tables.policies, |policy| policy.name.clone()))?;
        policies.iter().map(|policy| Ok(Listed { id: policy.id, bytes: bytes(policy)? })).collect()
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
