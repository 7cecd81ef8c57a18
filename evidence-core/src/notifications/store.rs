//! What a store keeps of deliveries: how far each target of an action is, and how the last attempts went. It is no evidence:
//! it lies beside the ledgers and is neither rebuilt from them nor checked. A copy of the store takes it along, so that nothing is
//! sent again.

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

/// So many addresses further on each attempt at a mail for many begins that nobody has: about as many as a mail server is asked
/// about in one when it is silent about each.
const STEP: usize = 5;

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
    /// How many attempts at that event failed, since one of a mail's addresses last took it.
    #[serde(default)]
    pub attempts: u32,
    /// The addresses that are still to be sent that event as a mail, in the order in which they are asked about; empty where it
    /// is all of the target's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses_left: Vec<String>,
    /// Since when the mail server, though it was there at every attempt, does not take that event for some of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_since: Option<Timestamp>,
    /// The addresses for which the last event was given up, though others took it, in the order in which they are asked about:
    /// until they take one, no other address waits for them.
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

    /// The same of a target with this destination. What became of attempts at another is forgotten, where it goes on is not. A
    /// mail whose addresses were changed is still sent to those that are left of them, and where none is, everybody has it.
    pub(crate) fn at_destination(self, destination: &Destination) -> Self {
        let address = destination.address_digest();
        if self.address == address {
            return self;
        }
        let mut state = Self { address, ..Self::first(self.action, self.next) };
        if let Destination::Email { addresses } = destination {
            let known =
                |of: Vec<String>| Vec::from_iter(of.into_iter().filter(|one| addresses.contains(one)));
            let was_left = !self.addresses_left.is_empty();
            state.addresses_left = known(self.addresses_left);
            state.addresses_given_up = known(self.addresses_given_up);
            if was_left && state.addresses_left.is_empty() {
                state.next.event += 1;
            }
        }
        state
    }

    /// Goes on from an event, of which no attempt was made where it is another than before.
    pub(crate) fn go_on_from(&mut self, next: Position) {
        if self.next != next {
            (self.next, self.attempts, self.refused_since) = (next, 0, None);
            self.addresses_left.clear();
        }
    }

    /// Where the next attempt is made at a target with this destination. Where a mail server is slow, it is asked about some
    /// addresses in an attempt: so those come last for which it did not take the mail in the last one, and at first those that were
    /// given up before. As long as nobody has the mail each attempt begins further on.
    pub(crate) fn still_told(&self, destination: &Destination) -> Destination {
        let Destination::Email { addresses } = destination else { return destination.clone() };
        let of_these = |known: &[String]| {
            Vec::from_iter(known.iter().filter(|address| addresses.contains(address)).cloned())
        };
        if !self.addresses_left.is_empty() {
            return Destination::Email { addresses: of_these(&self.addresses_left) };
        }
        let given_up = of_these(&self.addresses_given_up);
        let mut all = Vec::from_iter(addresses.iter().filter(|address| !given_up.contains(address)).cloned());
        all.extend(given_up);
        let further = usize::try_from(self.attempts).unwrap_or(usize::MAX).saturating_mul(STEP);
        // Where the steps of a round are those of the one before, each round begins one further on: every address comes first once
        // in as many attempts as there are addresses.
        let repeats = all.len().is_multiple_of(STEP);
        let drift = further.checked_div(all.len()).filter(|_| repeats).unwrap_or_default();
        let first = further.saturating_add(drift).checked_rem(all.len());
        all.rotate_left(first.unwrap_or_default());
        Destination::Email { addresses: all }
    }

    /// Whether some of a mail's addresses have it after this attempt.
    pub(crate) fn is_sent_to_some(&self, error: &NotSent) -> bool {
        error.is_sent_to_some() || !self.addresses_left.is_empty()
    }

    /// The addresses that do not have a mail after this attempt, where nobody waits for them: others have it, and those that it
    /// may come to later were given up before.
    pub(crate) fn given_up_by(&self, error: &NotSent) -> Option<Vec<String>> {
        let left = error.left(&self.addresses_given_up).filter(|_| self.is_sent_to_some(error))?;
        left.iter().all(|address| self.addresses_given_up.contains(address)).then_some(left)
    }

    /// Counts a failed attempt at this time. Each time that a mail is left for fewer addresses the count begins anew: what comes
    /// to some at a time comes to all of them.
    pub(crate) fn failed(&mut self, error: &NotSent, now: Timestamp) {
        let left = error.left(&self.addresses_given_up).filter(|_| self.is_sent_to_some(error));
        self.refused_since = self.refused_since.filter(|_| error.is_deferred());
        if let Some(left) = left {
            if self.addresses_left.is_empty() || left.len() < self.addresses_left.len() {
                (self.attempts, self.refused_since) = (0, None);
            }
            self.addresses_left = left;
            if error.is_deferred() {
                self.refused_since.get_or_insert(now);
            }
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
    use crate::notifications::sender::MailStatus;

    fn addresses(names: &str) -> Vec<String> {
        names.split_whitespace().map(str::to_owned).collect()
    }

    /// An attempt that says this of addresses, each by its letter: `+` sent, `x` refused, `?` deferred, `-` not asked, `!` failed.
    fn attempt(told: &str) -> NotSent {
        let status = |told: &str| match told.split_at(1) {
            ("+", address) => (address.to_owned(), MailStatus::Sent),
            ("x", address) => (address.to_owned(), MailStatus::Refused(format!("no {address}"))),
            ("?", address) => (address.to_owned(), MailStatus::Deferred(format!("not now {address}"))),
            ("-", address) => (address.to_owned(), MailStatus::NotAsked),
            ("!", address) => (address.to_owned(), MailStatus::Failed),
            _ => panic!("{told}"),
        };
        NotSent { addresses: told.split_whitespace().map(status).collect(), ..NotSent::new("failed") }
    }

    #[test]
    fn attempts_are_made_at_the_addresses_that_are_left_until_the_next_event() {
        let action: Id = "00000000-0000-0000-0000-00000001".parse().unwrap();
        let at = |event| Position { entry: 1, event };
        let all = Destination::Email { addresses: addresses("a b c") };
        let mut state = DeliveryState::first(action, at(0));
        // An attempt; then at whom the next one is made, how many are counted, and by which attempt of the table those who are left
        // were first refused it.
        let table = [
            ("", ("c a b", 1, None)),
            ("xa ?b ?c", ("b c a", 2, None)),
            ("+a ?b ?c", ("b c", 1, Some(2))),
            ("?b ?c", ("b c", 2, Some(2))),
            ("", ("b c", 3, None)),
            ("?b ?c", ("b c", 4, Some(5))),
            ("?b -c", ("c b", 5, Some(5))),
            ("?b !c", ("c b", 6, None)),
            ("?c ?b", ("c b", 7, Some(8))),
            ("+b -c", ("c", 1, None)),
            ("?c", ("c", 2, Some(10))),
            ("?c", ("c", 3, Some(10))),
        ];
        for ((told, (next, attempts, since)), now) in table.into_iter().zip(0..) {
            state.failed(&attempt(told), Timestamp::from_micros(now));
            assert_eq!(state.still_told(&all), Destination::Email { addresses: addresses(next) }, "{told}");
            assert_eq!(state.attempts, attempts, "{told}: {state:?}");
            assert_eq!(state.refused_since, since.map(Timestamp::from_micros), "{told}: {state:?}");
        }
        state.go_on_from(at(0));
        assert_eq!(state.attempts, 3);
        state.go_on_from(at(1));
        assert_eq!((state.still_told(&all), state.attempts, state.refused_since), (all, 0, None));
    }

    #[test]
    fn those_who_have_a_mail_have_it_once_whichever_addresses_are_added_and_taken_away() {
        let action: Id = "00000000-0000-0000-0000-00000001".parse().unwrap();
        let mail = |of: &str| Destination::Email { addresses: addresses(of) };
        let first =
            DeliveryState::first(action, Position { entry: 1, event: 4 }).at_destination(&mail("a b c"));
        let mut some = DeliveryState { addresses_given_up: addresses("c d"), ..first.clone() };
        some.failed(&attempt("+a ?b ?c"), Timestamp::from_micros(7));
        // The addresses; then at whom the next attempt is made, at which event, and how many are counted.
        for (to, (next, event, attempts)) in [
            ("c a b", ("b c", 4, 1)),
            ("a b", ("b", 4, 0)),
            ("a b e", ("b", 4, 0)),
            ("a e", ("a e", 5, 0)),
            ("", ("", 5, 0)),
        ] {
            let state = some.clone().at_destination(&mail(to));
            assert_eq!((state.still_told(&mail(to)), state.next.event), (mail(next), event), "{to}");
            assert_eq!(state.attempts, attempts, "{to}");
            assert!(state.addresses_given_up.iter().all(|one| to.contains(one) || to == "c a b"), "{to}");
            let nobody_has_it = first.clone().at_destination(&mail(to));
            assert_eq!(
                (nobody_has_it.still_told(&mail(to)), nobody_has_it.next.event),
                (mail(to), 4),
                "{to}"
            );
        }
        let hook = Destination::Webhook { url: SecretUrl::new("https://hooks.example.com".to_owned()) };
        let state = some.at_destination(&hook);
        assert_eq!((state.still_told(&hook), state.next.event, state.attempts), (hook, 4, 0));
    }

    /// An attempt at these by a mail server that is asked until it was silent so many times, which it is about those that begin
    /// with `s`, and takes the mail for all others.
    fn slow_attempt(destination: &Destination, most: usize) -> NotSent {
        let Destination::Email { addresses } = destination else { panic!("{destination:?}") };
        let mut asked = 0;
        let status = |address: &String| {
            asked += usize::from(address.starts_with('s'));
            match (asked > most, address.starts_with('s')) {
                (true, _) => format!("-{address}"),
                (false, true) => format!("?{address}"),
                (false, false) => format!("+{address}"),
            }
        };
        attempt(&addresses.iter().map(status).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn no_address_is_kept_from_a_mail_by_those_about_which_the_server_is_silent() {
        let action: Id = "00000000-0000-0000-0000-00000001".parse().unwrap();
        let silent = |count| (0..count).map(|number| format!("s{number}"));
        let others = |count| (0..count).map(|number| format!("a{number}"));
        // Those told first, those about which it is silent, and those after them; how often it is silent in an attempt; then in how
        // many attempts all others have it.
        for (before, silent_ones, after, asked, most) in [
            (1, 20, 1, 5, 6),
            (0, 40, 60, 5, 9),
            (0, 99, 1, 5, 20),
            (50, 5, 45, 5, 2),
            (0, 4, 1, 4, 2),
            (0, 9, 1, 4, 7),
            (0, 4, 1, 1, 5),
        ] {
            let addresses: Vec<_> = others(before)
                .chain(silent(silent_ones))
                .chain(others(before + after).skip(before))
                .collect();
            let all = Destination::Email { addresses };
            let mut state = DeliveryState::first(action, Position { entry: 1, event: 0 });
            let mut told = std::collections::BTreeSet::new();
            let mut attempts = 0;
            while told.len() < before + after {
                let error = slow_attempt(&state.still_told(&all), asked);
                let sent = error.addresses.iter().filter(|(_, status)| *status == MailStatus::Sent);
                for (address, _) in sent {
                    assert!(told.insert(address.clone()), "{address} is told twice");
                }
                state.failed(&error, Timestamp::from_micros(0));
                attempts += 1;
            }
            assert!(attempts <= most, "{attempts} attempts at {before} + {silent_ones} + {after}");
        }
        // One that was given up with them is asked about at one of the next events.
        let addresses: Vec<_> = others(1).chain(silent(20)).chain(["c".to_owned()]).collect();
        let all = Destination::Email { addresses };
        let mut state = DeliveryState::first(action, Position { entry: 1, event: 0 });
        state.addresses_given_up = silent(20).chain(["c".to_owned()]).collect();
        let mut events = 0;
        while state.addresses_given_up.iter().any(|address| address == "c") {
            let error = slow_attempt(&state.still_told(&all), 5);
            state.addresses_given_up = state.given_up_by(&error).unwrap();
            events += 1;
            state.go_on_from(Position { entry: 1 + events, event: 0 });
        }
        assert!(events <= 5, "{events}");
        // First come those who were not asked about, and of them those that were not given up before.
        state.addresses_given_up = silent(20).collect();
        state.failed(&attempt("+a0 ?s1 ?c -s2 -d"), Timestamp::from_micros(0));
        assert_eq!(state.addresses_left, ["d", "s2", "c", "s1"]);
    }

    #[test]
    fn every_address_is_asked_about_however_few_are_in_an_attempt_and_whichever_it_is() {
        let action: Id = "00000000-0000-0000-0000-00000001".parse().unwrap();
        for count in 1..=100 {
            let names = (0..count).map(|number| format!("s{number}"));
            let all = Destination::Email { addresses: names.collect() };
            let mut state = DeliveryState::first(action, Position { entry: 1, event: 0 });
            let mut first = std::collections::BTreeSet::new();
            for _ in 0..count {
                let Destination::Email { addresses } = state.still_told(&all) else { panic!() };
                first.insert(addresses[0].clone());
                state.failed(&slow_attempt(&Destination::Email { addresses }, 1), Timestamp::from_micros(0));
            }
            assert_eq!(first.len(), count, "of {count} addresses");
        }
    }

    #[test]
    fn no_address_waits_for_those_that_were_given_up() {
        let action: Id = "00000000-0000-0000-0000-00000001".parse().unwrap();
        let mut state = DeliveryState::first(action, Position { entry: 1, event: 0 });
        assert_eq!(state.given_up_by(&attempt("+a ?b")), None);
        state.addresses_given_up = addresses("b c");
        for (left, is_given_up) in [("?b", true), ("-c ?b", true), ("?b ?d", false), ("xd", true), ("", true)]
        {
            let given_up = attempt(left).left(&[]).filter(|_| is_given_up);
            assert_eq!(
                state.given_up_by(&attempt(&format!("+a {left}"))),
                given_up.or(is_given_up.then(Vec::new)),
                "{left}"
            );
            assert_eq!(state.given_up_by(&attempt(left)), None, "nobody has it: {left}");
        }
        // At those who are left nobody need take it.
        state.addresses_left = addresses("b d");
        assert_eq!(state.given_up_by(&attempt("?b xd")), Some(addresses("b")));
        assert_eq!(state.given_up_by(&attempt("xb xd")), Some(Vec::new()));
        assert_eq!(state.given_up_by(&attempt("?b ?d")), None);
        assert_eq!(state.given_up_by(&attempt("")), None);
    }

    #[test]
    fn an_address_is_named_with_its_own_reason() {
        let error = attempt("+a xb ?c -d");
        assert_eq!(error.refused().collect::<Vec<_>>(), [("b", "no b")]);
        assert_eq!(
            ["a", "b", "c", "d"].map(|one| error.reason_of(one)),
            ["failed", "no b", "not now c", "failed"]
        );
        let deferred = [("", false), ("+a ?b -c", true), ("+a xb -c", false), ("+a ?b !c", false)];
        assert!(deferred.iter().all(|(told, is_deferred)| attempt(told).is_deferred() == *is_deferred));
    }

    #[test]
    fn a_state_is_stored_so_and_without_addresses_as_before_there_were_any() {
        let stored = json!({
            "action": "00000000-0000-0000-0000-00000001", "address": "x", "next": {"entry": 1, "event": 0},
            "attempts": 0, "last_success_at": null, "last_failure_at": null,
        });
        let state: DeliveryState = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(&state).unwrap(), stored);
        let mut with_addresses = stored;
        with_addresses["addresses_left"] = json!(["a", "b"]);
        with_addresses["addresses_given_up"] = json!(["b"]);
        with_addresses["refused_since"] = json!(7);
        let expected = DeliveryState {
            addresses_left: addresses("a b"),
            addresses_given_up: addresses("b"),
            refused_since: Some(Timestamp::from_micros(7)),
            ..state
        };
        assert_eq!(serde_json::from_value::<DeliveryState>(with_addresses.clone()).unwrap(), expected);
        assert_eq!(serde_json::to_value(&expected).unwrap(), with_addresses);
    }
}
