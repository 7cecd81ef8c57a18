//! The same of actions and deliveries.

use async_trait::async_trait;
use evidence_core::Current;
use evidence_core::actions::{Action, ActionStore};
use evidence_core::feed::Held;
use evidence_core::id::Id;
use evidence_core::notifications::{Channel, Delivery, DeliveryStore};
use evidence_core::page::Listed;
use evidence_core::store::StoreResult;
use evidence_core::time::Timestamp;

use super::InterceptingStore;

#[async_trait]
impl ActionStore for InterceptingStore {
    async fn action(&self, org: Id, name: &str) -> StoreResult<Option<Current<Action>>> {
        self.ask("action", self.inner.action(org, name)).await
    }

    async fn action_numbered(&self, org: Id, number: u64) -> StoreResult<Option<Current<Action>>> {
        self.ask("action_numbered", self.inner.action_numbered(org, number)).await
    }

    async fn actions_listed(&self, org: Id) -> StoreResult<Vec<Listed>> {
        self.ask("actions_listed", self.inner.actions_listed(org)).await
    }

    async fn actions_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<Current<Action>>> {
        self.ask("actions_by_id", self.inner.actions_by_id(org, ids)).await
    }

    async fn greatest_action_number(&self, org: Id) -> StoreResult<u64> {
        self.ask("greatest_action_number", self.inner.greatest_action_number(org)).await
    }
}

#[async_trait]
impl DeliveryStore for InterceptingStore {
    async fn deliveries(&self, org: Id, targets: &[Id]) -> StoreResult<Vec<Delivery>> {
        self.ask("deliveries", self.inner.deliveries(org, targets)).await
    }

    async fn due_deliveries(
        &self,
        channel: Channel,
        now: Timestamp,
        after: Option<Id>,
        limit: u64,
    ) -> StoreResult<Option<(Id, Vec<Delivery>)>> {
        self.ask("due_deliveries", self.inner.due_deliveries(channel, now, after, limit)).await
    }

    async fn put_delivery(&self, delivery: &Delivery, held: Option<&Held>) -> StoreResult<bool> {
        self.ask("put_delivery", self.inner.put_delivery(delivery, held)).await
    }

    async fn forget_delivery(&self, org: Id, target: Id) -> StoreResult<()> {
        self.ask("forget_delivery", self.inner.forget_delivery(org, target)).await
    }
}
