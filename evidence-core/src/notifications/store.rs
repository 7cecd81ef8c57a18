//! What a store keeps of deliveries: how far each target of an action is, and how the last attempts went. It is no evidence:
//! it lies beside the ledgers, is not made again from them, not copied, and not checked.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::actions::record::Destination;
use crate::feed::Held;
use crate::id::Id;
use crate::notifications::sender::NotSent;
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
    /// How many attempts at that event failed, since one of a mail's addresses last took it.
    #[serde(default)]
    pub attempts: u32,
    /// The addresses that are still to be sent that event as a mail; empty where it is all of the target's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses_left: Vec<String>,
    /// Since when the mail server does not take that event for these, though it is asked about them at every attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_since: Option<Timestamp>,
    /// The addresses for which the last event was given up, though others took it: until they take one, no other address waits
    /// for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses_given_up: Vec<String>,
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
        Self {
            action,
            address: String::new(),
            next,
            attempts: 0,
            addresses_left: Vec::new(),
            refused_since: None,
            addresses_given_up: Vec::new(),
            last_success_at: None,
            last_failure_at: None,
        }
    }

    /// The same of a target with this address: what became of attempts at another is forgotten, where it goes on is not.
    pub(crate) fn at_address(self, address: String) -> Self {
        if self.address == address {
            return self;
        }
        Self { address, ..Self::first(self.action, self.next) }
    }

    /// Goes on from an event, of which no attempt was made where it is another than before.
    pub(crate) fn go_on_from(&mut self, next: Position) {
        if self.next != next {
            (self.next, self.attempts, self.refused_since) = (next, 0, None);
            self.addresses_left.clear();
        }
    }

    /// Where the next attempt is made at a target with this destination.
    pub(crate) fn still_told(&self, destination: &Destination) -> Destination {
        match destination {
            Destination::Email { addresses } if !self.addresses_left.is_empty() => {
                let is_left = |address: &&String| self.addresses_left.contains(address);
                Destination::Email { addresses: addresses.iter().filter(is_left).cloned().collect() }
            }
            all => all.clone(),
        }
    }

    /// Whether some of a mail's addresses have it after this attempt.
    const fn is_taken(&self, error: &NotSent) -> bool {
        error.is_taken || !self.addresses_left.is_empty()
    }

    /// The addresses that do not have a mail after this attempt, where nobody waits for them: others have it, and those that it
    /// may come to later were given up before.
    pub(crate) fn given_up_by(&self, error: &NotSent) -> Option<Vec<String>> {
        let left = error.left.as_ref().filter(|_| self.is_taken(error))?;
        left.iter().all(|address| self.addresses_given_up.contains(address)).then(|| left.clone())
    }

    /// The addresses that were left and that an attempt says no mail ever comes to.
    pub(crate) fn refused_for_good(&self, error: &NotSent) -> Vec<String> {
        let Some(left) = error.left.as_ref().filter(|_| !error.is_taken) else { return Vec::new() };
        self.addresses_left.iter().filter(|address| !left.contains(address)).cloned().collect()
    }

    /// Counts a failed attempt at this time. Each time that a mail is left for fewer addresses the count begins anew: what comes
    /// to some at a time comes to all of them.
    pub(crate) fn failed(&mut self, error: &NotSent, now: Timestamp) {
        match &error.left {
            Some(left) if self.is_taken(error) => {
                if self.addresses_left.is_empty() || left.len() < self.addresses_left.len() {
                    (self.addresses_left, self.attempts, self.refused_since) = (left.clone(), 0, None);
                }
                self.refused_since.get_or_insert(now);
            }
            _ => self.refused_since = None,
        }
        self.attempts += 1;
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn addresses(names: &str) -> Vec<String> {
        names.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn attempts_are_made_at_the_addresses_that_are_left_until_the_next_event() {
        let action: Id = "00000000-0000-0000-0000-00000001".parse().unwrap();
        let at = |event| Position { entry: 1, event };
        let all = Destination::Email { addresses: addresses("a b c") };
        let mut state = DeliveryState::first(action, at(0));
        // Whether some take it at an attempt, and who does not have it after that, where that is known; then at whom the next one
        // is made, how many are counted, and by which attempt of the table those who are left were first refused it.
        let table = [
            ((false, None), ("a b c", 1, None)),
            ((false, Some("a b")), ("a b c", 2, None)),
            ((true, Some("b c")), ("b c", 1, Some(2))),
            ((false, Some("b c")), ("b c", 2, Some(2))),
            ((false, None), ("b c", 3, None)),
            ((false, Some("b c")), ("b c", 4, Some(5))),
            ((false, Some("c")), ("c", 1, Some(6))),
            ((false, Some("c")), ("c", 2, Some(6))),
            ((false, Some("c")), ("c", 3, Some(6))),
        ];
        for (((is_taken, left), (next, attempts, since)), now) in table.into_iter().zip(0..) {
            let error = NotSent { is_taken, left: left.map(addresses), ..NotSent::new("refused") };
            state.failed(&error, Timestamp::from_micros(now));
            assert_eq!(state.still_told(&all), Destination::Email { addresses: addresses(next) });
            assert_eq!(state.attempts, attempts, "{state:?}");
            assert_eq!(state.refused_since, since.map(Timestamp::from_micros), "{state:?}");
        }
        let other = state.clone().at_address("another".to_owned());
        assert_eq!((other.still_told(&all), other.attempts), (all.clone(), 0));
        state.go_on_from(at(0));
        assert_eq!(state.attempts, 3);
        state.go_on_from(at(1));
        assert_eq!((state.still_told(&all), state.attempts, state.refused_since), (all, 0, None));
    }

    #[test]
    fn no_address_waits_for_those_that_were_given_up() {
        let action: Id = "00000000-0000-0000-0000-00000001".parse().unwrap();
        let mut state = DeliveryState::first(action, Position { entry: 1, event: 0 });
        let refused = |is_taken, left: Option<&str>| NotSent {
            is_taken,
            left: left.map(addresses),
            ..NotSent::new("refused")
        };
        assert_eq!(state.given_up_by(&refused(true, Some("b"))), None);
        state.addresses_given_up = addresses("b c");
        for (left, is_given_up) in [("b", true), ("c b", true), ("b d", false), ("", true)] {
            let given_up = is_given_up.then(|| addresses(left));
            assert_eq!(state.given_up_by(&refused(true, Some(left))), given_up, "{left}");
            assert_eq!(state.given_up_by(&refused(false, Some(left))), None, "nobody has it: {left}");
        }
        // At those who are left nobody need take it.
        state.addresses_left = addresses("b d");
        assert_eq!(
            state.given_up_by(&refused(false, Some("b"))),
            Some(addresses("b")),
            "d is refused for good"
        );
        assert_eq!(state.given_up_by(&refused(false, Some(""))), Some(Vec::new()), "both are");
        assert_eq!(state.given_up_by(&refused(false, None)), None);
        assert_eq!(state.refused_for_good(&refused(false, Some("b"))), addresses("d"));
        for unknown in [refused(true, Some("b")), refused(false, None)] {
            assert!(state.refused_for_good(&unknown).is_empty(), "d may have taken it: {unknown:?}");
        }
    }

    #[test]
    fn a_state_without_addresses_is_stored_as_before_there_were_any() {
        let stored = json!({
            "action": "00000000-0000-0000-0000-00000001", "address": "x", "next": {"entry": 1, "event": 0},
            "attempts": 0, "last_success_at": null, "last_failure_at": null,
        });
        let state: DeliveryState = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(&state).unwrap(), stored);
    }
}
