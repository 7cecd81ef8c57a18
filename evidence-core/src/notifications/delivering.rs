//! Delivers events to one target, in order. Reads the target again before each attempt, so that a changed or
//! deleted target receives nothing more. Records the outcome of an attempt only if the delivery is still the
//! one that the attempt began with.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::sleep;
use tracing::Level;

use crate::actions::record::{Action, Destination, Target};
use crate::actions::secret_url::{SecretUrl, UrlError};
use crate::actions::store::StoredUrls;
use crate::error::{Error, Result};
use crate::fact::Fact;
use crate::id::Id;
use crate::leases::HeldLease;
use crate::notifications::deliverer::{Deliverer, HEAVY, NAME, OrgState, POLL_INTERVAL, after};
use crate::notifications::events::{Event, Place, causes_events, delivery_id, event_fact, events};
use crate::notifications::lookup;
use crate::notifications::payload::payload;
use crate::notifications::sender::{Message, NotSent};
use crate::notifications::store::{Delivery, Position};
use crate::notifications::watched::places;
use crate::page::Listed;
use crate::service::EvidenceService;
use crate::store::entry::{Current, StoredEntry};
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// The entries of a target that are read at a time. Fewer than for planning, because many targets read at the
/// same time.
const PAGE: u64 = 16;

/// The limits of one round of a target: events, and time. Other targets follow.
const IN_A_ROW: usize = 256;
const ROUND: Duration = Duration::from_secs(10);

/// The pause after the first failed attempt. It doubles with each further one, up to an hour.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// After this many failed attempts, about two and a half days, an event is skipped.
const MOST_ATTEMPTS: u32 = 72;

/// Returns the pause after this many failed attempts at an event.
fn pause(attempts: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}

/// After this many failed attempts, about an hour, the operator is warned about the target.
const WARNED_ATTEMPTS: u32 = 13;

/// Returns the level at which this failed attempt is logged. A target that stays down is logged once when it
/// fails, and once after about an hour.
const fn log_level(attempts: u32) -> Level {
    match attempts {
        1 => Level::INFO,
        WARNED_ATTEMPTS => Level::WARN,
        _ => Level::DEBUG,
    }
}

/// The outcome of delivering the events of one entry.
enum EntryOutcome {
    /// All events were delivered.
    Complete,
    /// The round ends, because its limits are reached or an attempt failed. That is recorded.
    Stopped,
}

/// The progress of a delivery when an error occurred.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reached {
    at: Position,
    /// The revision of the delivery's row, as last read or written.
    revision: u64,
}

impl Reached {
    pub(super) const fn of(delivery: &Delivery) -> Self {
        Self { at: delivery.state.next, revision: delivery.revision }
    }
}

/// The state of one round of deliveries to a target.
struct Round<'p> {
    /// The action at the start of the round.
    action: Current<Action>,
    target: Target,
    /// The destination of the target, or the reason why nothing can be sent there.
    destination: std::result::Result<Destination<SecretUrl>, UrlError>,
    /// The places that the action watches.
    places: BTreeSet<Place>,
    org: &'p OrgState,
    delivery: Delivery,
    /// The number of events that may still be delivered in this round.
    events_left: usize,
    /// The end of the round.
    ends_at: Timestamp,
}

impl Round<'_> {
    /// Returns the events of a fact that the target has not received yet.
    fn concerned<'f>(&self, entry: u64, fact: &'f Fact) -> Vec<Event<'f>> {
        let next = self.delivery.state.next;
        let is_new = |event: &Event<'_>| Position { entry, event: event.place } >= next;
        let is_due =
            |event: &Event<'_>| is_new(event) && event.concerns(&self.places, &self.action.record.triggers);
        events(fact).into_iter().filter(is_due).collect()
    }
}

impl Deliverer {
    /// Delivers events to a target in order. Stops after the last one, after a failed attempt, or at the end
    /// of the round. An error comes with the progress at which it occurred.
    pub(super) async fn deliver(
        &self,
        delivery: Delivery,
        org: &OrgState,
    ) -> std::result::Result<(), (Reached, Error)> {
        let reached = Reached::of(&delivery);
        let round = self.begin_round(delivery, org).await.map_err(|error| (reached, error))?;
        let Some(mut round) = round else { return Ok(()) };
        let delivered = self.deliver_entries(&mut round).await;
        delivered.map_err(|error| (Reached::of(&round.delivery), error))
    }

    /// Starts a round. Returns `None` if the target was deleted.
    async fn begin_round<'p>(&self, delivery: Delivery, org: &'p OrgState) -> Result<Option<Round<'p>>> {
        let Some((action, target)) = self.action_and_target(&delivery).await? else {
            self.evidence.store().forget_delivery(delivery.org, delivery.target).await?;
            return Ok(None);
        };
        let places = places(&self.evidence, delivery.org, &action.record).await?;
        let url = target.destination.url().into_iter();
        let stored = StoredUrls::read(self.evidence.store(), delivery.org, url).await?;
        let key = self.evidence.settings().url_key.as_ref();
        let destination = target.destination.try_with_url(|record| stored.open(record, key));
        let state = delivery.state.clone().at_destination(&target.destination);
        let delivery = Delivery { state, ..delivery };
        let ends_at = after(self.evidence.now(), ROUND);
        Ok(Some(Round { action, target, destination, places, org, delivery, events_left: IN_A_ROW, ends_at }))
    }

    async fn deliver_entries(&self, round: &mut Round<'_>) -> Result<()> {
        let (store, id) = (self.evidence.store(), round.delivery.org);
        loop {
            let planned = store.cursor(NAME, id).await?;
            let first = round.delivery.state.next.entry;
            let entries = match planned.saturating_sub(first) {
                0 => Vec::new(),
                some => store.ledger_entries(id, first, some.min(PAGE)).await?,
            };
            if first < planned && entries.is_empty() {
                return Err(StoreError::corrupt("the ledger ends before what was planned of it").into());
            }
            for entry in entries {
                let next = Position { entry: entry.index + 1, event: 0 };
                if let EntryOutcome::Stopped = self.deliver_entry(entry, round).await? {
                    return Ok(());
                }
                round.delivery.state.go_on_from(next);
            }
            if round.delivery.state.next.entry >= planned && self.mark_idle(round).await? {
                return Ok(());
            }
            if self.evidence.now() >= round.ends_at {
                round.delivery.due_at = Some(self.evidence.now());
                return self.put(&mut round.delivery).await;
            }
        }
    }

    /// Returns the target of a delivery with its action, or `None` if the action no longer has the target.
    async fn action_and_target(&self, delivery: &Delivery) -> Result<Option<(Current<Action>, Target)>> {
        let (store, org, id) = (self.evidence.store(), delivery.org, delivery.state.action);
        let Some(action) = store.actions_by_id(org, &[id]).await?.pop() else {
            let is_listed = |listed: &Listed| listed.id == id;
            if store.actions_listed(org).await?.iter().any(is_listed) {
                return Err(StoreError::corrupt("the action cannot be read").into());
            }
            return Ok(None);
        };
        let target = action.record.targets.iter().find(|target| target.id == delivery.target).cloned();
        Ok(target.map(|target| (action, target)))
    }

    /// Counts an attempt that could not be made, for example because an entry cannot be read. It is retried
    /// later, and the entry is skipped in the end. If this cannot be written either, the next round of the
    /// job finds the delivery due. Does nothing if the delivery changed meanwhile, by a replay or by further
    /// progress.
    pub(super) async fn put_off(&self, (org, target): (Id, Id), reached: Reached) {
        let put_off = async {
            let known = self.evidence.store().deliveries(org, &[target]).await?.pop();
            let Some(mut delivery) = known.filter(|known| known.revision == reached.revision) else {
                return Ok(());
            };
            let now = self.evidence.now();
            let state = &mut delivery.state;
            state.go_on_from(reached.at);
            state.attempts += 1;
            delivery.due_at = Some(after(now, pause(state.attempts)));
            if state.attempts >= MOST_ATTEMPTS {
                tracing::warn!(%org, %target, entry = state.next.entry, "an entry is skipped");
                state.go_on_from(Position { entry: state.next.entry + 1, event: 0 });
            }
            self.put(&mut delivery).await
        };
        if let Err(error) = put_off.await {
            tracing::warn!(%org, %target, %error, "an attempt cannot be postponed");
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Records that nothing is left to deliver, and returns whether it did. Does nothing if more was planned
    /// meanwhile. The lock excludes planning in this process; the lease excludes another process.
    async fn mark_idle(&self, round: &mut Round<'_>) -> Result<bool> {
        let _planning = round.org.planning.lock().await;
        if self.evidence.store().cursor(NAME, round.delivery.org).await? > round.delivery.state.next.entry {
            return Ok(false);
        }
        round.delivery.due_at = None;
        self.put_while(&mut round.delivery, Some(&self.lease)).await.map(|()| true)
    }

    async fn put(&self, delivery: &mut Delivery) -> Result<()> {
        self.put_while(delivery, None).await
    }

    async fn put_while(&self, delivery: &mut Delivery, lease: Option<&HeldLease>) -> Result<()> {
        if !self.evidence.store().put_delivery(delivery, lease).await? {
            return Err(StoreError::Conflict.into());
        }
        delivery.revision += 1;
        Ok(())
    }

    /// Returns whether the action is unchanged since the start of the round.
    async fn is_unchanged(&self, round: &Round<'_>) -> Result<bool> {
        let known = self
            .evidence
            .store()
            .actions_by_id(round.delivery.org, &[round.delivery.state.action])
            .await?
            .pop();
        Ok(known.is_some_and(|known| known.revision == round.action.revision))
    }

    /// Delivers the events of an entry, from the position of the delivery on.
    async fn deliver_entry(&self, entry: StoredEntry, round: &mut Round<'_>) -> Result<EntryOutcome> {
        let (index, at, leaf) = (entry.index, entry.effective_at, entry.leaf_hash);
        let since = round.action.record.notifies_since(&round.target, self.evidence.now());
        if at < since || !causes_events(&entry.kind) {
            return Ok(EntryOutcome::Complete);
        }
        let org = round.delivery.org;
        let compute = self.evidence.compute().on_behalf_of(Some(org));
        let read = compute.run_if(entry.payload.len() > HEAVY, move || event_fact(&entry)).await?;
        let Some(fact) = read else { return Ok(EntryOutcome::Complete) };
        let mut events = round.concerned(index, &fact);
        let is_all = events.len() <= round.events_left;
        events.truncate(round.events_left);
        let Some(last) = events.last().map(|event| event.place) else { return Ok(EntryOutcome::Complete) };
        let Some(names) = lookup::names(&self.evidence, org, &round.org.name, &events).await? else {
            return Ok(EntryOutcome::Complete);
        };
        for event in &events {
            let Some(payload) = payload(event, at, &names) else { continue };
            if !self.is_unchanged(round).await? {
                // The delivery is due, and the next round reads the action again.
                return Ok(EntryOutcome::Stopped);
            }
            let at = Position { entry: index, event: event.place };
            round.delivery.state.go_on_from(at);
            let text = serde_json::to_string(&payload).map_err(|error| StoreError::Failed(error.into()))?;
            let id = delivery_id(org, round.target.id, at, leaf);
            let message = round.destination.clone().map(|destination| Message {
                id: id.clone(),
                org,
                at: self.evidence.now(),
                destination,
                payload: text,
                text: payload.description().to_owned(),
                subject: payload.subject(),
                link: payload.link().map(str::to_owned),
            });
            if let EntryOutcome::Stopped = self.attempt(&id, message, round).await? {
                return Ok(EntryOutcome::Stopped);
            }
        }
        if is_all {
            return Ok(EntryOutcome::Complete);
        }
        round.delivery.state.go_on_from(Position { entry: index, event: last + 1 });
        round.delivery.due_at = Some(self.evidence.now());
        self.put(&mut round.delivery).await?;
        Ok(EntryOutcome::Stopped)
    }

    /// Makes one attempt and records its outcome.
    async fn attempt(
        &self,
        id: &str,
        message: std::result::Result<Message, UrlError>,
        round: &mut Round<'_>,
    ) -> Result<EntryOutcome> {
        // A URL that cannot be read is no fault of the receiver, so no event is skipped for it.
        let may_skip = message.is_ok();
        let sent = match message {
            Ok(message) => self.sender.send(&message).await,
            Err(error) => Err(NotSent::new(error.to_string())),
        };
        let now = self.evidence.now();
        let (due_at, state) = (&mut round.delivery.due_at, &mut round.delivery.state);
        let following = Position { event: state.next.event + 1, ..state.next };
        round.events_left = round.events_left.saturating_sub(1);
        match sent {
            Ok(()) => {
                state.last_success_at = Some(now);
                state.go_on_from(following);
                *due_at = Some(now);
            }
            Err(error) => {
                state.attempts += 1;
                if !may_skip {
                    state.attempts = state.attempts.min(MOST_ATTEMPTS - 1);
                }
                state.last_failure_at = Some(now);
                let (org, attempt) = (&round.org.name, state.attempts);
                let action = round.action.record.number;
                match log_level(attempt) {
                    _ if !may_skip => {
                        tracing::warn!(id, org, action, attempt, %error, "a notification cannot be sent")
                    }
                    Level::INFO => {
                        tracing::info!(id, org, action, attempt, %error, "a notification was not delivered")
                    }
                    Level::WARN => {
                        tracing::warn!(
                            id, org, action, attempt, %error,
                            "a notification was not delivered for about an hour, and later ones wait for it"
                        )
                    }
                    _ => {
                        tracing::debug!(id, org, action, attempt, %error, "a notification was not delivered")
                    }
                }
                *due_at = Some(after(now, pause(state.attempts)));
                if state.attempts >= MOST_ATTEMPTS {
                    tracing::warn!(id, org, action, %error, "a notification is skipped");
                    state.go_on_from(following);
                }
                round.events_left = 0;
            }
        }
        self.put(&mut round.delivery).await?;
        let is_enough = round.events_left == 0 || now >= round.ends_at;
        Ok(if is_enough { EntryOutcome::Stopped } else { EntryOutcome::Complete })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour() {
        let pauses: Vec<u64> = (1..=15).map(|attempts| pause(attempts).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600, 3600]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
        let all: Duration = (1..MOST_ATTEMPTS).map(pause).sum();
        assert!((2..4).contains(&(all.as_secs() / 86_400)), "{all:?}");
    }

    #[test]
    fn a_target_that_stays_down_is_warned_about_once_after_about_an_hour() {
        assert_eq!(log_level(1), Level::INFO);
        let warned: Vec<u32> =
            (1..MOST_ATTEMPTS).filter(|&attempts| log_level(attempts) == Level::WARN).collect();
        let [attempts] = warned[..] else { panic!("{warned:?}") };
        let failing: Duration = (1..attempts).map(pause).sum();
        assert!((3_600..2 * 3_600).contains(&failing.as_secs()), "{failing:?}");
    }
}
