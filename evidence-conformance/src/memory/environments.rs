//! Environments and their state.

use async_trait::async_trait;

use evidence_core::environments::{
    Environment, EnvironmentStatus, EnvironmentStore, KnownEnvironment, MemberChange,
};
use evidence_core::fact::Key;
use evidence_core::id::Id;
use evidence_core::page::Listed;
use evidence_core::store::distinct;
use evidence_core::store::{Current, StoreResult};

use super::tables::Tables;
use super::{MemoryStore, bytes};

#[async_trait]
impl EnvironmentStore for MemoryStore {
    async fn environment(&self, org: Id, name: &str) -> StoreResult<Option<KnownEnvironment>> {
        let key = name.parse().ok().map(Key::Environment);
        let found = self.by_name(org, key, |tables| &tables.environments)?;
        self.query(org, |tables| found.map(|found| tables.known(found)))
    }

    async fn archived_environment(&self, org: Id, name: &str) -> StoreResult<bool> {
        self.query(org, |tables| {
            let mut archived = tables.archived.iter().filter_map(|id| tables.environments.get(id));
            archived.any(|environment| environment.record.name.as_str() == name)
        })
    }

    async fn environments(&self, org: Id) -> StoreResult<Vec<KnownEnvironment>> {
        self.query(org, |tables| {
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

    async fn member_changes(&self, org: Id, environment: Id) -> StoreResult<Vec<MemberChange>> {
        self.query(org, |tables| {
            let changes = tables.member_changes.iter().filter(|(of, _)| *of == environment);
            let mut changes = Vec::from_iter(changes.map(|(_, change)| *change));
            changes.sort_by_key(|change| (change.entry, change.member));
            changes
        })
    }

    async fn logical_environments(&self, org: Id, members: &[Id]) -> StoreResult<Vec<Id>> {
        self.query(org, |tables| {
            let changes = tables.member_changes.iter().filter(|(_, change)| members.contains(&change.member));
            distinct(changes.map(|(environment, _)| *environment))
        })
    }

    async fn environments_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<KnownEnvironment>> {
        self.query(org, |tables| {
            let environments = tables.environments.values().filter(|known| ids.contains(&known.record.id));
            environments.map(|known| tables.known(known.clone())).collect()
        })
    }
}

impl Tables {
    fn known(&self, current: Current<Environment>) -> KnownEnvironment {
        let Current { revision, record } = current;
        let latest = self.snapshots_of(record.id).next_back();
        let status = EnvironmentStatus {
            events: latest.map_or(0, |latest| latest.record.events_with()),
            snapshots: latest.map_or(0, |latest| latest.record.index),
            changed_at: latest.map(|latest| self.taken_at(latest)),
            compliant: latest.map(|latest| latest.record.compliant),
            reported_at: self.reported.get(&record.id).map(|report| report.record),
        };
        let reported = self.reported.get(&record.id).map(|report| report.revision);
        let archived = self.archived.contains(&record.id);
        KnownEnvironment { revision, reported, record, status, archived }
    }
}
