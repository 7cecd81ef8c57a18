//! Actions and deliveries.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::actions::{Action, ActionStore, StoredUrl};
use evidence_core::id::Id;
use evidence_core::leases::HeldLease;
use evidence_core::notifications::{Channel, Delivery, DeliveryStore};
use evidence_core::page::Listed;
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use crate::{Broken, Defect};

#[async_trait]
impl ActionStore for Broken {
    async fn action(&self, org: Id, name: &str) -> StoreResult<Option<Current<Action>>> {
        self.whole.action(org, name).await
    }

    async fn action_numbered(&self, org: Id, number: u64) -> StoreResult<Option<Current<Action>>> {
        self.whole.action_numbered(org, number).await
    }

    async fn actions_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        let mut listed = self.whole.actions_listed(org).await?;
        if self.has(Defect::SortsNumbersAsText) {
            let known =
                self.whole.actions_by_id(org, &listed.iter().map(|one| one.id).collect::<Vec<_>>()).await?;
            let number =
                |id| known.iter().find(|one| one.record.id == id).map(|one| one.record.number.to_string());
            listed.sort_by_key(|one| number(one.id));
        }
        Ok(listed)
    }

    async fn actions_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Current<Action>>> {
        self.whole.actions_by_id(org, ids).await
    }

    async fn greatest_action_number(&self, org: Id) -> StoreResult<u64> {
        if self.has(Defect::ForgetsNumbersOfDeletedActions) {
            let ids: Vec<Id> = self.whole.actions_listed(org).await?.iter().map(|one| one.id).collect();
            let known = self.whole.actions_by_id(org, &ids).await?;
            return Ok(known.iter().map(|one| one.record.number).max().unwrap_or_default());
        }
        self.whole.greatest_action_number(org).await
    }

    async fn secret_urls(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<(Id, StoredUrl)>> {
        let mut kept = self.whole.secret_urls(org, ids).await?;
        if self.has(Defect::LosesEachSecondUrl) {
            kept.sort_by_key(|(id, _)| *id);
            kept = kept.into_iter().step_by(2).collect();
        }
        Ok(kept)
    }
}

#[async_trait]
impl DeliveryStore for Broken {
    async fn deliveries(&self, org: Id, targets: &[Id]) -> StoreResult<Vec<Delivery>> {
        self.whole.deliveries(org, targets).await
    }

    async fn due_deliveries(
        &self,
        channel: Channel,
        now: Timestamp,
        after: Option<Id>,
        limit: u64,
    ) -> StoreResult<Option<(Id, Vec<Delivery>)>> {
        let due = self.whole.due_deliveries(channel, now, after, limit).await?;
        if self.has(Defect::ServesTheNewestFirst) {
            return Ok(due.map(|(org, found)| (org, found.into_iter().rev().collect())));
        }
        Ok(due)
    }

    async fn put_delivery(&self, delivery: &Delivery, lease: Option<&HeldLease>) -> StoreResult<bool> {
        let lease = lease.filter(|_| !self.has(Defect::PutsDeliveriesWithoutTheLease));
        if self.has(Defect::PutsDeliveriesOverOthers) {
            let known = self.whole.deliveries(delivery.org, &[delivery.target]).await?;
            let revision = known.first().map_or(0, |known| known.revision);
            return self.whole.put_delivery(&Delivery { revision, ..delivery.clone() }, lease).await;
        }
        self.whole.put_delivery(delivery, lease).await
    }

    async fn forget_delivery(&self, org: Id, target: Id) -> StoreResult<()> {
        self.whole.forget_delivery(org, target).await
    }
}
