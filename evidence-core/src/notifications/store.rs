//! The stored state of deliveries: the progress of each target, and the outcome of its last attempts. It is
//! not evidence. It is stored beside the ledgers, and is neither rebuilt nor verified. A copy of a store
//! includes it, so that nothing is sent twice.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::actions::record::Destination;
use crate::id::Id;
use crate::leases::HeldLease;
use crate::store::error::StoreResult;
use crate::time::Timestamp;

/// The position of an event in a ledger. An entry may cause several events, whose order never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The index of the entry.
    pub entry: u64,
    /// The position of the event within its entry, from 0.
    pub event: u64,
}

/// The transport of a target. Each channel has its own limits, because a mail server may take minutes for one
/// mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Webhooks and Slack.
    Http,
    /// Mail.
    Mail,
}

impl Channel {
    /// Returns the channel of a destination. A target never changes its channel.
    pub const fn of<U>(destination: &Destination<U>) -> Self {
        match destination {
            Destination::Webhook { .. } | Destination::Slack { .. } => Self::Http,
            Destination::Email { .. } => Self::Mail,
        }
    }
}

/// The progress of a target of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The organization.
    pub org: Id,
    /// The target.
    pub target: Id,
    /// The channel.
    pub channel: Channel,
    /// The earliest time of the next attempt; `None` if nothing waits to be delivered.
    pub due_at: Option<Timestamp>,
    /// The rest of the state.
    pub state: DeliveryState,
    /// The number of times this row was written; 0 for a new one.
    pub revision: u64,
}

/// The part of a delivery that is stored as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryState {
    /// The action of the target.
    pub action: Id,
    /// The digest of the address of the attempts
    /// ([`Destination::address_digest`](crate::actions::Destination::address_digest)). Their outcomes do not
    /// count for another address.
    #[serde(default)]
    pub address: String,
    /// The position of the first event that was not delivered.
    pub next: Position,
    /// The number of failed attempts at that event.
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
    /// Returns the initial state of a target of this action.
    pub const fn first(action: Id, next: Position) -> Self {
        Self {
            action,
            address: String::new(),
            next,
            attempts: 0,
            last_success_at: None,
            last_failure_at: None,
        }
    }

    /// Returns the state of the target with this destination. Attempts at another destination do not count.
    pub(crate) fn at_destination(self, destination: &Destination) -> Self {
        let address = destination.address_digest();
        if self.address == address { self } else { Self { address, ..Self::first(self.action, self.next) } }
    }

    /// Continues at this position. Failed attempts at another event do not count.
    pub(crate) fn go_on_from(&mut self, next: Position) {
        if self.next != next {
            (self.next, self.attempts) = (next, 0);
        }
    }
}

impl Delivery {
    /// Returns whether the last attempt failed.
    pub fn is_failing(&self) -> bool {
        self.state
            .last_failure_at
            .is_some_and(|failed| self.state.last_success_at.is_none_or(|done| done < failed))
    }
}

/// Deliveries, one row per target. Each call is one statement.
#[async_trait]
pub trait DeliveryStore: Send + Sync {
    /// Returns the known deliveries of these targets, one per target, in any order.
    async fn deliveries(&self, org: Id, targets: &[Id]) -> StoreResult<Vec<Delivery>>;
    /// Returns at most `limit` deliveries of one organization that are due at this time, sorted by `due_at`,
    /// then by target. Unreadable ones are skipped. The organization is the first one after `after` with due
    /// deliveries, in a fixed order. Returns `None` if there is none.
    async fn due_deliveries(
        &self,
        channel: Channel,
        now: Timestamp,
        after: Option<Id>,
        limit: u64,
    ) -> StoreResult<Option<(Id, Vec<Delivery>)>>;
    /// Writes a delivery if its stored revision is still the given one, and increments the revision. Returns
    /// whether it did. Writes nothing if the organization does not exist, or if `lease` was lost.
    /// The lease cannot change hands before the write is done.
    async fn put_delivery(&self, delivery: &Delivery, lease: Option<&HeldLease>) -> StoreResult<bool>;
    /// Deletes the delivery of a target.
    async fn forget_delivery(&self, org: Id, target: Id) -> StoreResult<()>;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::url_record;

    fn first() -> DeliveryState {
        let action = "00000000-0000-0000-0000-00000001".parse().unwrap();
        DeliveryState::first(action, Position { entry: 1, event: 4 })
    }

    #[test]
    fn attempts_count_for_one_event_at_one_destination() {
        let mail = |addresses: &[&str]| Destination::Email {
            addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
        };
        let state = DeliveryState { attempts: 3, ..first().at_destination(&mail(&["a", "b"])) };
        let hook = Destination::Webhook { url: url_record(1) };
        for (destination, attempts) in [(mail(&["a", "b"]), 3), (mail(&["a"]), 0), (hook, 0)] {
            let state = state.clone().at_destination(&destination);
            assert_eq!((state.attempts, state.next), (attempts, first().next), "{destination:?}");
        }
        for (event, attempts) in [(4, 3), (5, 0)] {
            let mut state = state.clone();
            state.go_on_from(Position { entry: 1, event });
            assert_eq!((state.attempts, state.next.event), (attempts, event));
        }
    }

    #[test]
    fn a_state_is_stored_so() {
        let stored = json!({
            "action": "00000000-0000-0000-0000-00000001", "address": "", "next": {"entry": 1, "event": 4},
            "attempts": 0, "last_success_at": null, "last_failure_at": null,
        });
        assert_eq!(serde_json::to_value(first()).unwrap(), stored);
        assert_eq!(serde_json::from_value::<DeliveryState>(stored).unwrap(), first());
    }
}
