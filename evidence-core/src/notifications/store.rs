//! What a store keeps of deliveries: how far each target of an action is, and how the last attempts went. It is no evidence:
//! it lies beside the ledgers and is neither rebuilt from them nor checked. A copy of the store takes it along, so that nothing is
//! sent again.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::actions::record::Destination;
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

/// How a target is told. Each has attempts of its own, for a mail server may take minutes for a mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// Webhooks and Slack.
    Http,
    /// Mails.
    Mail,
}

impl Channel {
    /// That of a destination. A target has one, whichever its destination becomes.
    pub const fn of(destination: &Destination) -> Self {
        match destination {
            Destination::Webhook { .. } | Destination::Slack { .. } => Self::Http,
            Destination::Email { .. } => Self::Mail,
        }
    }
}

/// How far a target of an action is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The organization.
    pub org: Id,
    /// The target.
    pub target: Id,
    /// How it is told.
    pub channel: Channel,
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

    /// The state of a target that has this destination now. Attempts at another destination do not count.
    pub(crate) fn at_destination(self, destination: &Destination) -> Self {
        let address = destination.address_digest();
        if self.address == address { self } else { Self { address, ..Self::first(self.action, self.next) } }
    }

    /// Goes on from an event. Failed attempts at another event do not count.
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
        channel: Channel,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::actions::record::SecretUrl;

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
        let hook = Destination::Webhook { url: SecretUrl::new("https://hooks.example.com".to_owned()) };
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
