//! What a store keeps of deliveries: how far each target of an action is, and how the last attempts went. It is no evidence:
//! it lies beside the ledgers, is not made again from them, not copied, and not checked.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::feed::Held;
use crate::id::Id;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// An event of a ledger: each entry may tell of several, in an order that never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The entry's index.
    pub entry: u64,
    /// The event's place among those of the entry, from 0.
    pub event: u64,
}

/// How far a target of an action is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The organization.
    pub org: Id,
    /// The target.
    pub target: Id,
    /// From when on the next attempt may be made; nothing where nothing waits to be delivered.
    pub due_at: Option<Timestamp>,
    /// What else is known.
    pub state: DeliveryState,
    /// How often this was put: 0 where it never was.
    pub revision: u64,
}

/// What is kept of a target's deliveries as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryState {
    /// The action that the target is of.
    pub action: Id,
    /// Which address the attempts went to ([`Destination::address_digest`](crate::actions::Destination::address_digest)):
    /// what became of them says nothing of another.
    #[serde(default)]
    pub address: String,
    /// Where the first event that was not delivered is looked for.
    pub next: Position,
    /// How many attempts at that event failed.
    #[serde(default)]
    pub attempts: u32,
    /// When an event was last delivered.
    #[serde(default)]
    pub last_success_at: Option<Timestamp>,
    /// When an attempt last failed.
    #[serde(default)]
    pub last_failure_at: Option<Timestamp>,
}

impl DeliveryState {
    /// That of a target of this action of which nothing is known yet.
    pub(crate) const fn first(action: Id, next: Position) -> Self {
        let address = String::new();
        Self { action, address, next, attempts: 0, last_success_at: None, last_failure_at: None }
    }

    /// The same of a target with this address: what became of attempts at another is forgotten, where it goes on is not.
    pub(crate) fn at_address(self, address: String) -> Self {
        if self.address == address {
            return self;
        }
        Self { address, attempts: 0, last_success_at: None, last_failure_at: None, ..self }
    }

    /// Goes on from an event, of which no attempt was made where it is another than before.
    pub(crate) fn go_on_from(&mut self, next: Position) {
        if self.next != next {
            (self.next, self.attempts) = (next, 0);
        }
    }
}

impl Delivery {
    /// Whether the last attempt failed.
    pub fn is_failing(&self) -> bool {
        self.state
            .last_failure_at
            .is_some_and(|failed| self.state.last_success_at.is_none_or(|done| done < failed))
    }
}

/// Deliveries, a row for each target. Each call is one statement.
#[async_trait]
pub trait DeliveryStore: Send + Sync {
    /// Those of these targets of which something is known, one a target, in any order.
    async fn deliveries(&self, org: Id, targets: &[Id]) -> StoreResult<Vec<Delivery>>;
    /// Those of one organization whose next attempt may be made at this time (`due_at`), what is due longest first, then by
    /// target; at most `limit`. Of the organizations that have such, in an order that is always the same, it is the first
    /// one after this; nothing where there is none. What cannot be read is left out.
    async fn due_deliveries(
        &self,
        now: Timestamp,
        after: Option<Id>,
        limit: u64,
    ) -> StoreResult<Option<(Id, Vec<Delivery>)>>;
    /// Keeps this of a target, where its revision is still the one given, and answers whether it did; the revision is one
    /// more then. It does not where there is no such organization, nor where a lease has to be `held` and is not; nobody
    /// else takes that lease before this is kept.
    async fn put_delivery(&self, delivery: &Delivery, held: Option<&Held>) -> StoreResult<bool>;
    /// Forgets a target.
    async fn forget_delivery(&self, org: Id, target: Id) -> StoreResult<()>;
}
