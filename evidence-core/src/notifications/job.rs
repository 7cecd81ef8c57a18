//! The job that notifies. One part goes through the ledgers, an entry after the other behind the job's cursor, and notes for
//! each target the first event that it is to be told of. The other goes on from there, for each target by itself: it sends
//! one event after the other, and notes after each how far it is. So nothing waits in memory, what a crash cuts off is sent
//! again under the same id, and a target that is down holds up no other.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::actions::record::{Action, Target};
use crate::background::runner::{Batch, Job, Turn};
use crate::error::Result;
use crate::fact::Fact;
use crate::id::Id;
use crate::notifications::events::{delivery_id, events, tells};
use crate::notifications::lookup;
use crate::notifications::payload::payload;
use crate::notifications::sender::{Message, Sender};
use crate::notifications::store::{Delivery, DeliveryState, Position};
use crate::page::Listed;
use crate::service::Evidence;
use crate::store::entry::StoredEntry;
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// The name of the job, of its lease and of its cursors.
const NAME: &str = "notify";

/// How long the job rests when it has looked at all ledgers.
const REST: Duration = Duration::from_secs(1);

/// How many organizations are listed, and entries or rows read, at a time.
const PAGE: u64 = 256;

/// Attempts at the same time, in all and for one organization.
const ATTEMPTS: usize = 64;
const ATTEMPTS_OF_ORG: usize = 8;

/// Events that a target is told in one go, before others have their turn.
const IN_A_ROW: usize = 256;

/// How long is waited after the first failed attempt. After each further one it is twice as long, up to an hour.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60 * 60);

/// After so many failed attempts, some two and a half days, an event is given up, and the next one has its turn.
const MOST_ATTEMPTS: u32 = 72;

/// In a ledger in which the job has no cursor yet, what is older than this is told nobody: it was told by the store that
/// this one is a copy of. Where servers write, the job is never so late.
const STALE: Duration = Duration::from_secs(60 * 60);

/// The job that notifies.
#[derive(Clone)]
pub struct Notify {
    sender: Arc<dyn Sender>,
}

impl std::fmt::Debug for Notify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notify").finish_non_exhaustive()
    }
}

impl Notify {
    /// The job, with whoever sends.
    pub fn new(sender: Arc<dyn Sender>) -> Self {
        Self { sender }
    }
}

#[async_trait]
impl Job for Notify {
    fn name(&self) -> &str {
        NAME
    }

    fn every(&self) -> Duration {
        REST
    }

    async fn run(&self, turn: &Turn) -> Result<()> {
        let post = Arc::new(Post {
            evidence: turn.evidence().clone(),
            sender: Arc::clone(&self.sender),
            planning: Mutex::new(()),
        });
        let mut known = BTreeMap::new();
        // Dropped with this, attempts end where they wait, and are made again.
        let mut attempts = JoinSet::new();
        let mut busy: BTreeSet<(Id, Id)> = BTreeSet::new();
        loop {
            plan_all(turn, &post, &mut known).await?;
            let mut rest = pin!(sleep(REST));
            loop {
                start_due(&post, &known, &mut attempts, &mut busy).await?;
                tokio::select! {
                    () = &mut rest => break,
                    Some(ended) = attempts.join_next() => {
                        let mut ended = Some(ended);
                        while let Some(outcome) = ended {
                            settle(outcome, &mut busy);
                            ended = attempts.try_join_next();
                        }
                    }
                }
            }
        }
    }
}

/// Forgets an attempt that ended, of a target that is to be looked at again.
fn settle(
    outcome: std::result::Result<((Id, Id), Result<()>), tokio::task::JoinError>,
    busy: &mut BTreeSet<(Id, Id)>,
) {
    match outcome {
        Ok((key, outcome)) => {
            busy.remove(&key);
            if let Err(error) = outcome {
                tracing::warn!(org = %key.0, target = %key.1, %error, "a target is tried again");
            }
        }
        Err(error) => {
            // Whose it was is not known: all are looked at again, which the revision of the delivery allows.
            busy.clear();
            tracing::error!(%error, "an attempt broke off");
        }
    }
}

/// What is known of an organization: its name, and the size of its ledger when all of it was planned.
#[derive(Debug, Clone)]
struct Known {
    name: String,
    planned: Option<u64>,
}

/// Who delivers.
struct Post {
    evidence: Evidence,
    sender: Arc<dyn Sender>,
    /// Held while events are noted for targets, and while a target is noted to have none: who finds none left may not
    /// overlook one that is just being noted.
    planning: Mutex<()>,
}

/// Goes through the ledgers of all organizations.
async fn plan_all(turn: &Turn, post: &Post, known: &mut BTreeMap<Id, Known>) -> Result<()> {
    let store = turn.evidence().store();
    let mut after = Some(String::new());
    while let Some(last) = after {
        let page = store.organizations_by_name(&last, PAGE).await?;
        after = page.more;
        for org in page.records {
            let known = known.entry(org.id).or_insert_with(|| Known { name: String::new(), planned: None });
            known.name = org.name.to_string();
            let Some(head) = store.ledger_head(org.id).await? else { continue };
            if known.planned == Some(head.size()) {
                continue;
            }
            match plan(turn, post, org.id, head.size()).await {
                Ok(()) => known.planned = Some(head.size()),
                // What is damaged in one organization holds up no other.
                Err(error) => tracing::warn!(org = %org.name, %error, "notifications are looked for again"),
            }
        }
    }
    Ok(())
}

/// The actions of an organization.
async fn actions(evidence: &Evidence, org: Id) -> Result<Vec<Action>> {
    let mut actions = Vec::new();
    for ids in Listed::batches(evidence.store().actions_listed(org).await?) {
        let known = evidence.store().actions_by_id(org, &ids).await?;
        actions.extend(known.into_iter().map(|known| known.record));
    }
    Ok(actions)
}

/// Notes what the entries of an organization's ledger from the job's cursor on, up to `head`, tell to whom.
async fn plan(turn: &Turn, post: &Post, org: Id, head: u64) -> Result<()> {
    let store = turn.evidence().store();
    loop {
        if store.actions_listed(org).await?.is_empty() {
            return Ok(());
        }
        // Before the actions: what these were changed to may concern an entry that comes after it, never one before.
        let mut batch = turn.next(org, PAGE).await?;
        let Some(first) = batch.entries.first() else { return Ok(()) };
        let actions = actions(turn.evidence(), org).await?;
        let Some(since) = actions.iter().map(|action| action.created_at).min() else { return Ok(()) };
        let is_first = batch.from == 0;
        let since = if is_first { since.max(before(turn.evidence().now(), STALE)) } else { since };
        if first.at < since && (is_first || head.saturating_sub(batch.from) > PAGE) {
            // Nothing before the first action is told: the cursor leaps there.
            let to = first_since(turn.evidence(), org, since, batch.from, head).await?;
            batch.entries = store.ledger_entries(org, to - 1, 1).await?;
            turn.done(&batch).await?;
            continue;
        }
        let firsts = first_events(&batch, &actions);
        let _planning = post.planning.lock().await;
        note(turn.evidence(), org, firsts).await?;
        turn.done(&batch).await?;
    }
}

/// The index of the first entry that is not before this time, of those from `low` on, where the one there is; `high` where
/// there is none. By halves, for the time of entries never goes back.
async fn first_since(evidence: &Evidence, org: Id, since: Timestamp, low: u64, high: u64) -> Result<u64> {
    let (mut earlier, mut end) = (low, high);
    while earlier + 1 < end {
        let middle = earlier + (end - earlier) / 2;
        let entry = evidence.store().ledger_entries(org, middle, 1).await?.pop();
        if entry.is_some_and(|entry| entry.at < since) { earlier = middle } else { end = middle }
    }
    Ok(end)
}

/// The fact of an entry that may tell of something since the action was created; one that cannot be read tells of nothing.
fn telling(entry: &StoredEntry) -> Option<Fact> {
    if !tells(&entry.kind) {
        return None;
    }
    let read = Fact::read(&entry.payload);
    read.inspect_err(
        |error| tracing::warn!(index = entry.index, %error, "an entry cannot be read, and is told nobody"),
    )
    .ok()
}

/// The first event of a batch for each target, with the action.
fn first_events(batch: &Batch, actions: &[Action]) -> BTreeMap<Id, (Id, Position)> {
    let mut firsts = BTreeMap::new();
    for entry in &batch.entries {
        let Some(fact) = telling(entry) else { continue };
        for event in events(&fact) {
            let at = Position { entry: entry.index, event: event.place };
            let concerned =
                actions.iter().filter(|action| action.created_at <= entry.at && event.concerns(action));
            for (action, target) in
                concerned.flat_map(|action| action.targets.iter().map(move |one| (action, one)))
            {
                firsts.entry(target.id).or_insert((action.id, at));
            }
        }
    }
    firsts
}

/// Notes where targets go on that have nothing to do; the others come there by themselves.
async fn note(evidence: &Evidence, org: Id, firsts: BTreeMap<Id, (Id, Position)>) -> Result<()> {
    let targets: Vec<Id> = firsts.keys().copied().collect();
    if targets.is_empty() {
        return Ok(());
    }
    let known = evidence.store().deliveries(org, &targets).await?;
    let known: BTreeMap<Id, Delivery> = known.into_iter().map(|one| (one.target, one)).collect();
    for (target, (action, next)) in firsts {
        let due_at = Some(evidence.now());
        let delivery = match known.get(&target) {
            Some(known) if known.due_at.is_some() => continue,
            Some(known) => {
                let state = DeliveryState { next, attempts: 0, ..known.state.clone() };
                Delivery { due_at, state, ..known.clone() }
            }
            None => {
                let state =
                    DeliveryState { action, next, attempts: 0, last_success_at: None, last_failure_at: None };
                Delivery { org, target, due_at, state, revision: 0 }
            }
        };
        if evidence.store().put_delivery(&delivery).await? {
            continue;
        }
        if known.contains_key(&target) {
            return Err(StoreError::Conflict.into());
        }
        // A row that is there and cannot be read is made anew.
        evidence.store().forget_delivery(org, target).await?;
        if !evidence.store().put_delivery(&delivery).await? {
            return Err(StoreError::Conflict.into());
        }
    }
    Ok(())
}

/// Begins what is due and not under way, as far as there is room.
async fn start_due(
    post: &Arc<Post>,
    known: &BTreeMap<Id, Known>,
    attempts: &mut JoinSet<((Id, Id), Result<()>)>,
    busy: &mut BTreeSet<(Id, Id)>,
) -> Result<()> {
    let (store, mut after) = (post.evidence.store(), None);
    loop {
        let page = store.waiting_deliveries(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some((last.org, last.target));
        for delivery in page {
            let key = (delivery.org, delivery.target);
            let is_due = delivery.due_at.is_some_and(|due| due <= post.evidence.now());
            let of_org = busy.iter().filter(|(org, _)| *org == key.0).count();
            let Some(org) = known.get(&key.0) else { continue };
            if !is_due || busy.contains(&key) || of_org >= ATTEMPTS_OF_ORG {
                continue;
            }
            if busy.len() >= ATTEMPTS {
                return Ok(());
            }
            busy.insert(key);
            let (post, name) = (Arc::clone(post), org.name.clone());
            attempts.spawn(async move {
                let outcome = post.deliver(delivery, &name).await;
                if outcome.is_err() {
                    post.put_off(key).await;
                }
                (key, outcome)
            });
        }
    }
}

/// How long is waited after so many failed attempts at an event.
fn pause(attempts: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempts.saturating_sub(1));
    FIRST_PAUSE.saturating_mul(doubled).min(LONGEST_PAUSE)
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn after(now: Timestamp, pause: Duration) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_add(micros(pause)))
}

fn before(now: Timestamp, age: Duration) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_sub(micros(age)))
}

/// What became of telling a target of an entry.
enum Told {
    /// It knows all of it.
    All,
    /// It was told enough for now, or an attempt failed: that is noted.
    Enough,
}

impl Post {
    /// Tells a target one event after the other, until none is left or an attempt fails.
    async fn deliver(&self, mut delivery: Delivery, org: &str) -> Result<()> {
        let (store, id) = (self.evidence.store(), delivery.org);
        let action = store.actions_by_id(id, &[delivery.state.action]).await?.pop();
        let is_listed = |listed: &Listed| listed.id == delivery.state.action;
        if action.is_none() && store.actions_listed(id).await?.iter().any(is_listed) {
            return Err(StoreError::corrupt("the action cannot be read").into());
        }
        let found = action.and_then(|known| {
            let target = known.record.targets.iter().find(|target| target.id == delivery.target)?.clone();
            Some((known.record, target))
        });
        let Some((action, target)) = found else {
            store.forget_delivery(id, delivery.target).await?;
            return Ok(());
        };
        let mut left = IN_A_ROW;
        loop {
            let planned = store.cursor(NAME, id).await?;
            let first = delivery.state.next.entry;
            let entries =
                if first < planned { store.ledger_entries(id, first, PAGE).await? } else { Vec::new() };
            for entry in entries.iter().filter(|entry| entry.index < planned) {
                if let Told::Enough =
                    self.tell(entry, &action, &target, &mut delivery, org, &mut left).await?
                {
                    return Ok(());
                }
                delivery.state.next = Position { entry: entry.index + 1, event: 0 };
            }
            if delivery.state.next.entry >= planned && self.rest(&mut delivery).await? {
                return Ok(());
            }
        }
    }

    /// Counts an attempt that could not be made, as of an entry that cannot be read, so that it is made again later and given up
    /// in the end. Where not even that can be written, the next round of the job finds it due.
    async fn put_off(&self, (org, target): (Id, Id)) {
        let put_off = async {
            let Some(mut delivery) = self.evidence.store().deliveries(org, &[target]).await?.pop() else {
                return Ok(());
            };
            let now = self.evidence.now();
            let state = &mut delivery.state;
            state.attempts += 1;
            delivery.due_at = Some(after(now, pause(state.attempts)));
            if state.attempts >= MOST_ATTEMPTS {
                tracing::warn!(%org, %target, entry = state.next.entry, "an entry is told nobody");
                (state.attempts, state.next) = (0, Position { entry: state.next.entry + 1, event: 0 });
            }
            self.put(&mut delivery).await
        };
        if let Err(error) = put_off.await {
            tracing::warn!(%org, %target, %error, "an attempt cannot be put off");
            sleep(REST).await;
        }
    }

    /// Notes that nothing is left, unless more was planned meanwhile.
    async fn rest(&self, delivery: &mut Delivery) -> Result<bool> {
        let _planning = self.planning.lock().await;
        if self.evidence.store().cursor(NAME, delivery.org).await? > delivery.state.next.entry {
            return Ok(false);
        }
        delivery.due_at = None;
        self.put(delivery).await.map(|()| true)
    }

    async fn put(&self, delivery: &mut Delivery) -> Result<()> {
        if !self.evidence.store().put_delivery(delivery).await? {
            return Err(StoreError::Conflict.into());
        }
        delivery.revision += 1;
        Ok(())
    }

    /// Tells a target what an entry tells of, from where the delivery is.
    async fn tell(
        &self,
        entry: &StoredEntry,
        action: &Action,
        target: &Target,
        delivery: &mut Delivery,
        org: &str,
        left: &mut usize,
    ) -> Result<Told> {
        let Some(fact) = telling(entry).filter(|_| action.created_at <= entry.at) else {
            return Ok(Told::All);
        };
        let done = delivery.state.next;
        let is_new = |place| Position { entry: entry.index, event: place } >= done;
        let events: Vec<_> =
            events(&fact).into_iter().filter(|event| is_new(event.place) && event.concerns(action)).collect();
        if events.is_empty() {
            return Ok(Told::All);
        }
        let Some(names) = lookup::names(&self.evidence, delivery.org, org, &events).await? else {
            return Ok(Told::All);
        };
        for event in &events {
            let Some(payload) = payload(event, entry.at, &names) else { continue };
            let at = Position { entry: entry.index, event: event.place };
            delivery.state.next = at;
            let text = serde_json::to_string(&payload).map_err(|error| StoreError::Failed(error.into()))?;
            let message = Message {
                id: delivery_id(delivery.org, target.id, at, entry.leaf_hash),
                org: delivery.org,
                at: self.evidence.now(),
                destination: target.destination.clone(),
                payload: text,
                text: payload.description().to_owned(),
                subject: payload.subject(),
                link: payload.link().map(str::to_owned),
            };
            let sent = self.sender.send(&message).await;
            let now = self.evidence.now();
            let state = &mut delivery.state;
            *left = left.saturating_sub(1);
            match sent {
                Ok(()) => {
                    (state.attempts, state.last_success_at) = (0, Some(now));
                    state.next.event += 1;
                    delivery.due_at = Some(now);
                }
                Err(error) => {
                    (state.attempts, state.last_failure_at) = (state.attempts + 1, Some(now));
                    tracing::info!(id = message.id, attempt = state.attempts, %error, "a notification was not delivered");
                    delivery.due_at = Some(after(now, pause(state.attempts)));
                    if state.attempts >= MOST_ATTEMPTS {
                        tracing::warn!(id = message.id, "a notification is given up");
                        (state.attempts, state.next.event) = (0, at.event + 1);
                    }
                    *left = 0;
                }
            }
            self.put(delivery).await?;
            if *left == 0 {
                return Ok(Told::Enough);
            }
        }
        Ok(Told::All)
    }
}

/// Has the targets of an action told again what it was about since this time, each event under the id that it had. Answers how
/// many targets there are; none where there is no such action.
///
/// # Errors
/// [`crate::Error::Store`] when the store fails, and [`StoreError::Conflict`] where a target is just being told something:
/// the same call may well succeed then.
pub async fn replay(evidence: &Evidence, org: Id, number: u64, since: Timestamp) -> Result<usize> {
    let store = evidence.store();
    let Some(action) = store.action_numbered(org, number).await?.map(|known| known.record) else {
        return Ok(0);
    };
    let head = store.ledger_head(org).await?.map_or(0, |head| head.size());
    let first = store.ledger_entries(org, 0, 1).await?.pop();
    let entry = match first {
        Some(first) if first.at < since => first_since(evidence, org, since, 0, head).await?,
        _ => 0,
    };
    // What is not planned yet comes by itself.
    let entry = entry.min(store.cursor(NAME, org).await?);
    let targets: Vec<Id> = action.targets.iter().map(|target| target.id).collect();
    let known = store.deliveries(org, &targets).await?;
    for target in &action.targets {
        let known = known.iter().find(|known| known.target == target.id);
        let (last_success_at, last_failure_at) =
            known.map_or((None, None), |known| (known.state.last_success_at, known.state.last_failure_at));
        let again = Position { entry, event: 0 };
        // What waits for it still is told, too.
        let waiting = known.filter(|known| known.due_at.is_some()).map(|known| known.state.next);
        let next = waiting.map_or(again, |waiting| waiting.min(again));
        let state = DeliveryState { action: action.id, next, attempts: 0, last_success_at, last_failure_at };
        let revision = known.map_or(0, |known| known.revision);
        let again = Delivery { org, target: target.id, due_at: Some(evidence.now()), state, revision };
        if !store.put_delivery(&again).await? {
            return Err(StoreError::Conflict.into());
        }
    }
    Ok(targets.len())
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
}
