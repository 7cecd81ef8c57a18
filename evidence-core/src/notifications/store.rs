//! What a store keeps of deliveries: how far each target of an action is, and how the last attempts went. It is no evidence:
//! it lies beside the ledgers, is not made again from them, not copied, and not checked.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

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
    /// Those of the whole store for which something waits to be delivered (`due_at`), due or not: at most `limit`, beginning
    /// after the one of this organization and target, in an order that is always the same.
    async fn waiting_deliveries(&self, after: Option<(Id, Id)>, limit: u64) -> StoreResult<Vec<Delivery>>;
    /// Keeps this of a target, where its revision is still the one given, and answers whether it did; the revision is one
    /// more then. It does not where there is no such organization.
    async fn put_delivery(&self, delivery: &Delivery) -> StoreResult<bool>;
    /// Forgets a target.
    async fn forget_delivery(&self, org: Id, target: Id) -> StoreResult<()>;
}
