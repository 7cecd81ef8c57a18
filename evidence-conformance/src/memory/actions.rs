//! Actions, and the deliveries of their targets.

use async_trait::async_trait;

use evidence_core::actions::{Action, ActionStore, StoredUrl};
use evidence_core::fact::Key;
use evidence_core::id::Id;
use evidence_core::leases::HeldLease;
use evidence_core::notifications::{Channel, Delivery, DeliveryStore};
use evidence_core::page::Listed;
use evidence_core::store::{Current, StoreResult};
use evidence_core::time::Timestamp;

use super::{MemoryStore, bytes, records};

#[async_trait]
impl ActionStore for MemoryStore {
    async fn action(&self, org: Id, name: &str) -> StoreResult<Option<Current<Action>>> {
        self.by_name(org, name.parse().ok().map(Key::Action), |tables| &tables.actions)
    }

    async fn action_numbered(&self, org: Id, number: u64) -> StoreResult<Option<Current<Action>>> {
        self.by_name(org, Some(Key::ActionNumber(number)), |tables| &tables.actions)
    }

    async fn actions_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let actions = self.query(org, |tables| records(&tables.actions, |action| action.number))?;
        actions.iter().map(|action| Ok(Listed { id: action.id, bytes: bytes(action)? })).collect()
    }

    async fn actions_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Current<Action>>> {
        self.query(org, |tables| {
            tables.actions.values().filter(|action| ids.contains(&action.record.id)).cloned().collect()
        })
    }

    async fn greatest_action_number(&self, org: Id) -> StoreResult<u64> {
        self.query(org, |tables| tables.greatest_action_number)
    }

    async fn secret_urls(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<(Id, StoredUrl)>> {
        let state = self.read()?;
        let wanted = state.urls.iter().filter(|((home, id), _)| *home == org && ids.contains(id));
        Ok(wanted.map(|((_, id), stored)| (*id, stored.clone())).collect())
    }
}

#[async_trait]
impl DeliveryStore for MemoryStore {
    async fn deliveries(&self, org: Id, targets: &[Id]) -> StoreResult<Vec<Delivery>> {
        let state = self.read()?;
        let known = state.deliveries.values();
        let wanted = known.filter(|known| known.org == org && targets.contains(&known.target));
        Ok(wanted.cloned().collect())
    }

    async fn due_deliveries(
        &self,
        channel: Channel,
        now: Timestamp,
        after: Option<Id>,
        limit: u64,
    ) -> StoreResult<Option<(Id, Vec<Delivery>)>> {
        let state = self.read()?;
        let due = |delivery: &&Delivery| {
            delivery.channel == channel && delivery.due_at.is_some_and(|due| due <= now)
        };
        let all = || state.deliveries.values().filter(due);
        let Some(org) = all().map(|one| one.org).filter(|org| after.is_none_or(|after| *org > after)).min()
        else {
            return Ok(None);
        };
        let mut found: Vec<_> = all().filter(|delivery| delivery.org == org).cloned().collect();
        found.sort_by_key(|delivery| (delivery.due_at, delivery.target));
        found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(Some((org, found)))
    }

    async fn put_delivery(&self, delivery: &Delivery, lease: Option<&HeldLease>) -> StoreResult<bool> {
        let mut state = self.write()?;
        let key = (delivery.org, delivery.target);
        let revision = state.deliveries.get(&key).map_or(0, |known| known.revision);
        let is_held = |lease: &HeldLease| {
            state.leases.get(&lease.name).is_some_and(|known| known.holder == lease.holder)
        };
        let is_put = revision == delivery.revision
            && state.tables.contains_key(&delivery.org)
            && lease.is_none_or(is_held);
        if is_put {
            state.deliveries.insert(key, Delivery { revision: revision + 1, ..delivery.clone() });
        }
        Ok(is_put)
    }

    async fn forget_delivery(&self, org: Id, target: Id) -> StoreResult<()> {
        self.write()?.deliveries.remove(&(org, target));
        Ok(())
    }
}
