//! Plans deliveries. Reads the ledgers from the job's cursors on, and records the first relevant event for
//! each idle target. Several organizations are planned concurrently, each in bounded parts, so that none
//! delays the others.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::try_join_all;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::actions::record::{Action, Destination, Watched};
use crate::background::runner::{Batch, JobContext};
use crate::error::Result;
use crate::fact::Fact;
use crate::id::Id;
use crate::notifications::deliverer::{Deliverer, HEAVY, NAME, OrgState, POLL_INTERVAL, after, before};
use crate::notifications::delivering::LONGEST_PAUSE;
use crate::notifications::events::{Place, event_fact, events};
use crate::notifications::store::{Channel, Delivery, DeliveryState, Position};
use crate::notifications::watched;
use crate::orgs::record::Organization;
use crate::page::Listed;
use crate::service::{Evidence, EvidenceService};
use crate::store::batch::distinct;
use crate::store::entry::StoredEntry;
use crate::store::error::StoreError;
use crate::time::Timestamp;

/// The page size for organizations and for ledger entries.
const PAGE: u64 = 256;

/// The number of organizations that are planned concurrently.
const ORGS_AT_ONCE: usize = 4;

/// The number of batches per organization before others follow.
const IN_A_ROW: usize = 4;

/// If the job has no cursor in a ledger, older events are skipped: the store is a copy, and the original
/// already reported them. On a running server the job is never this late.
const STALE: Duration = Duration::from_secs(60 * 60);

/// The running planning tasks. Dropping it cancels them; they are repeated later.
#[derive(Default)]
pub(super) struct Planning {
    running: JoinSet<(Id, bool)>,
    busy: BTreeSet<Id>,
    /// Whether the end of a ledger was not reached.
    has_more: bool,
}

impl Planning {
    /// Plans for all organizations. An organization that takes long continues during the next rounds.
    pub(super) async fn round(&mut self, cx: &JobContext, deliverer: &Arc<Deliverer>) -> Result<()> {
        let store = cx.evidence().store();
        let mut after = Some(String::new());
        self.has_more = false;
        while let Some(last) = after {
            let page = store.organizations_by_name(&last, PAGE).await?;
            after = page.more;
            let ids: Vec<Id> = page.records.iter().map(|org| org.id).collect();
            // One query for all organizations, because most have no new entries.
            let sizes = BTreeMap::from_iter(store.ledger_sizes(&ids).await?);
            for org in page.records {
                let (known, size) = (deliverer.org_state(&org), sizes.get(&org.id).copied());
                let Some(size) = size.filter(|size| known.planned != Some(*size)) else { continue };
                while self.busy.len() >= ORGS_AT_ONCE {
                    self.ended().await;
                }
                let id = org.id;
                if self.busy.insert(id) {
                    let (cx, deliverer) = (cx.clone(), Arc::clone(deliverer));
                    self.running.spawn(async move {
                        let planned = plan_next(&cx, &deliverer, &known, &org, size);
                        let planned = AssertUnwindSafe(planned).catch_unwind().await;
                        // The next round starts it again.
                        let broke_off = |_| {
                            tracing::error!(org = %id, "the planning of notifications failed");
                            true
                        };
                        (id, planned.unwrap_or_else(broke_off))
                    });
                }
            }
        }
        Ok(())
    }

    /// Waits for the next round: a short pause, unless more is left to plan.
    pub(super) async fn pause(&mut self) {
        let mut pause = pin!(sleep(POLL_INTERVAL));
        loop {
            if self.has_more {
                return;
            }
            tokio::select! {
                () = &mut pause => return,
                () = self.ended(), if !self.busy.is_empty() => {}
            }
        }
    }

    /// Waits until one organization is done.
    async fn ended(&mut self) {
        match self.running.join_next().await {
            Some(Ok((org, is_done))) => {
                self.busy.remove(&org);
                self.has_more |= !is_done;
            }
            // Tasks are never aborted, and a panic is caught in the task.
            Some(Err(error)) => tracing::error!(%error, "the planning of notifications failed"),
            None => self.busy.clear(),
        }
    }
}

/// Plans for an organization whose ledger has at least `size` entries. Returns whether it reached the end. A
/// damaged ledger does not affect other organizations.
async fn plan_next(
    cx: &JobContext,
    deliverer: &Deliverer,
    known: &OrgState,
    org: &Organization,
    size: u64,
) -> bool {
    let planned = async {
        let is_done = plan(cx, known, org.id).await?;
        if is_done {
            deliverer.note_planned(org.id, size);
        }
        Ok::<_, crate::error::Error>(is_done)
    };
    planned.await.unwrap_or_else(|error| {
        tracing::warn!(org = %org.name, %error, "the planning of notifications failed and is retried");
        // The retry follows after a pause.
        true
    })
}

/// Plans the entries from the job's cursor on. Returns whether it reached the end.
async fn plan(cx: &JobContext, known: &OrgState, org: Id) -> Result<bool> {
    let (evidence, store) = (cx.evidence(), cx.evidence().store());
    for _ in 0..IN_A_ROW {
        // With a cursor, the last action may just have been deleted. Its targets are removed when that entry
        // is read.
        if store.actions_listed(org).await?.is_empty() && store.cursor(NAME, org).await? == 0 {
            return Ok(true);
        }
        // Entries are read before the actions. A change of an action can only concern later entries.
        let mut batch = cx.next_batch(org, PAGE).await?;
        let Some(first) = batch.entries.first() else { return Ok(true) };
        if batch.from == 0 {
            // Events before the first action are skipped, so the cursor advances to it.
            let Some(since) = oldest(evidence, org).await? else { return Ok(true) };
            let since = since.max(before(evidence.now(), STALE));
            if first.effective_at < since {
                let to = store.ledger_size_at(org, before(since, Duration::from_micros(1))).await?;
                batch.entries = store.ledger_entries(org, to.saturating_sub(1), 1).await?;
                cx.commit(&batch).await?;
                continue;
            }
        }
        let entries = std::mem::take(&mut batch.entries);
        let bytes: usize = entries.iter().map(|entry| entry.payload.len()).sum();
        let compute = evidence.compute().on_behalf_of(Some(org));
        let read = move || (BatchEvents::of(&entries), entries);
        let (found, entries) = compute.run_if(bytes > HEAVY, read).await?;
        batch.entries = entries;
        if found.is_nothing() {
            cx.commit(&batch).await?;
            continue;
        }
        let _planning = known.planning.lock().await;
        note(evidence, &batch, &found).await?;
        cx.commit(&batch).await?;
    }
    Ok(false)
}

/// Returns the creation time of the oldest readable action, if any.
async fn oldest(evidence: &Evidence, org: Id) -> Result<Option<Timestamp>> {
    let mut oldest = None;
    for ids in Listed::batches(evidence.store().actions_listed(org).await?) {
        let known = evidence.store().actions_by_id(org, &ids).await?;
        oldest = known.into_iter().map(|known| known.record.created_at).chain(oldest).min();
    }
    Ok(oldest)
}

/// The content of a batch of entries that is relevant to actions.
#[derive(Debug, Default, PartialEq)]
struct BatchEvents {
    /// The events of each place and trigger, in order, with their times.
    events: BTreeMap<(Place, &'static str), Vec<(Position, Timestamp)>>,
    /// The physical environments with snapshots in the batch.
    physical: BTreeSet<Id>,
    /// The actions that changed.
    changed: BTreeSet<Id>,
    /// The targets that were removed, and those of deleted actions.
    gone: Vec<Id>,
}

impl BatchEvents {
    fn of(entries: &[StoredEntry]) -> Self {
        let mut found = Self::default();
        for entry in entries {
            match entry.kind.as_str() {
                "action_updated" | "action_deleted" => found.changes(entry),
                _ => {
                    let Some(fact) = event_fact(entry) else { continue };
                    if let Fact::SnapshotTaken { snapshot } = &fact {
                        found.physical.insert(snapshot.environment);
                    }
                    for event in events(&fact) {
                        let at = Position { entry: entry.index, event: event.place };
                        found
                            .events
                            .entry((event.at, event.trigger))
                            .or_default()
                            .push((at, entry.effective_at));
                    }
                }
            }
        }
        found
    }

    fn changes(&mut self, entry: &StoredEntry) {
        match Fact::read(&entry.payload) {
            Ok(Fact::ActionUpdated { record, removed, .. }) => {
                self.changed.insert(record.id);
                self.gone.extend(removed);
            }
            Ok(Fact::ActionDeleted { record }) => {
                self.gone.extend(record.targets.iter().map(|target| target.id))
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(index = entry.index, %error, "a change of an action cannot be read"),
        }
    }

    fn is_nothing(&self) -> bool {
        self.events.is_empty() && self.changed.is_empty() && self.gone.is_empty()
    }

    fn happened_at(&self, place: Place) -> bool {
        self.events.range((place, "")..).next().is_some_and(|((at, _), _)| *at == place)
    }

    /// Returns whether the batch has an event with one of the action's triggers, in any place.
    fn has_trigger_of(&self, action: &Action) -> bool {
        self.events.keys().any(|(_, trigger)| action.triggers.iter().any(|wanted| wanted == trigger))
    }

    /// Returns the first event with these places and triggers since a time.
    fn first(&self, places: &BTreeSet<Place>, triggers: &[String], since: Timestamp) -> Option<Position> {
        let first = |place: &Place, trigger: &String| {
            let events = self.events.get(&(*place, trigger.as_str()))?;
            events.get(events.partition_point(|(_, at)| *at < since)).map(|(first, _)| *first)
        };
        let firsts = places.iter().flat_map(|place| triggers.iter().map(move |trigger| (place, trigger)));
        firsts.filter_map(|(place, trigger)| first(place, trigger)).min()
    }

    /// Returns the places with events that an action watches. `members` has the members of logical
    /// environments.
    fn places(&self, action: &Action, members: &BTreeMap<Id, Vec<Id>>) -> BTreeSet<Place> {
        match &action.watched {
            Watched::Flows(ids) => {
                ids.iter().copied().map(Place::Flow).filter(|place| self.happened_at(*place)).collect()
            }
            Watched::Environments(ids) => {
                let members = ids.iter().filter_map(|id| members.get(id)).flatten();
                let watched = ids.iter().chain(members).copied().map(Place::Environment);
                watched.filter(|place| self.happened_at(*place)).collect()
            }
        }
    }
}

/// Records the first events of a batch for the targets of all actions.
async fn note(evidence: &Evidence, batch: &Batch, found: &BatchEvents) -> Result<()> {
    let (store, org) = (evidence.store(), batch.org);
    for target in &found.gone {
        store.forget_delivery(org, *target).await?;
    }
    for ids in Listed::batches(store.actions_listed(org).await?) {
        let known = store.actions_by_id(org, &ids).await?.into_iter().map(|known| known.record);
        let about = |action: &Action| found.changed.contains(&action.id) || found.has_trigger_of(action);
        let actions: Vec<Action> = known.filter(about).collect();
        let watched = actions.iter().filter_map(|action| match &action.watched {
            Watched::Environments(ids) => Some(ids),
            Watched::Flows(_) => None,
        });
        let others = distinct(watched.flatten().copied().filter(|id| !found.physical.contains(id)));
        let happened = |id: &Id| found.happened_at(Place::Environment(*id));
        let members = watched::members(evidence, org, &others, happened).await?;
        for action in actions {
            note_action(evidence, org, &action, &found.places(&action, &members), found).await?;
        }
    }
    Ok(())
}

/// Records the first event in these places for the targets of an action.
async fn note_action(
    evidence: &Evidence,
    org: Id,
    action: &Action,
    places: &BTreeSet<Place>,
    found: &BatchEvents,
) -> Result<()> {
    let store = evidence.store();
    if places.is_empty() && !found.changed.contains(&action.id) {
        return Ok(());
    }
    let targets: Vec<Id> = action.targets.iter().map(|target| target.id).collect();
    let known = match &targets[..] {
        [] => Vec::new(),
        targets => store.deliveries(org, targets).await?,
    };
    // Concurrently, so that a store can write them together.
    let notes = action.targets.iter().map(async |target| {
        let known = known.iter().find(|known| known.target == target.id);
        let first = found.first(places, &action.triggers, action.notifies_since(target, evidence.now()));
        let fresh = Delivery {
            org,
            target: target.id,
            channel: Channel::of(&target.destination),
            due_at: None,
            state: DeliveryState::first(action.id, Position { entry: 0, event: 0 }),
            revision: 0,
        };
        let known_or_fresh = known.unwrap_or(&fresh);
        let Some(noted) = noted(known_or_fresh, first, &target.destination, evidence.now()) else {
            return Ok(());
        };
        if store.put_delivery(&noted, None).await? {
            return Ok(());
        }
        // Another process may have changed or created it meanwhile.
        if known.is_some() || !store.deliveries(org, &[target.id]).await?.is_empty() {
            return Err(StoreError::Conflict.into());
        }
        // An unreadable row is replaced.
        store.forget_delivery(org, target.id).await?;
        if store.put_delivery(&noted, None).await? { Ok(()) } else { Err(StoreError::Conflict.into()) }
    });
    try_join_all(notes).await.map(drop)
}

/// Returns the new state of a delivery, or `None` if it is unchanged. `first` is the first relevant event of
/// a batch; `destination` is the target's current one.
///
/// - A delivery that is already due reaches the event by itself.
/// - A delivery whose address changed continues at once. Its revision changes, so the outcome of an attempt
///   at the old address is not recorded.
/// - A delivery that is due later than the longest pause was postponed by a clock that was ahead. It is due
///   now.
fn noted(
    known: &Delivery,
    first: Option<Position>,
    destination: &Destination,
    now: Timestamp,
) -> Option<Delivery> {
    let is_new = known.revision == 0;
    let mut state = known.state.clone().at_destination(destination);
    let is_moved = !is_new && known.state.address != state.address;
    match (known.due_at, first) {
        (Some(due_at), _) => (is_moved || due_at > after(now, LONGEST_PAUSE)).then(|| Delivery {
            due_at: Some(now),
            state,
            ..known.clone()
        }),
        (None, Some(first)) => {
            state.go_on_from(first);
            Some(Delivery { due_at: Some(now), state, ..known.clone() })
        }
        (None, None) => is_moved.then(|| Delivery { state, ..known.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::url_record;

    fn id(n: u64) -> Id {
        format!("00000000-0000-0000-0000-{n:08}").parse().unwrap()
    }

    fn at(n: i64) -> Timestamp {
        Timestamp::from_seconds(n)
    }

    const fn position(entry: u64, event: u64) -> Position {
        Position { entry, event }
    }

    fn action(watched: &Watched, triggers: &[&str]) -> Action {
        let by = json!({"id": id(1), "kind": "user", "name": "jane"});
        let action = json!({"id": id(2), "number": 1, "name": "a", "watched": watched, "triggers": triggers,
                            "targets": [], "created_at": 1, "created_by": by, "last_modified_at": 1});
        serde_json::from_value(action).unwrap()
    }

    #[test]
    fn the_first_event_is_that_of_what_an_action_watches_and_names_since_its_target_is_told() {
        let environment = |n| Place::Environment(id(n));
        let events = [
            (environment(10), "ON_STARTED_ARTIFACT", position(3, 1), 30),
            (environment(10), "ON_STARTED_ARTIFACT", position(5, 2), 50),
            (environment(11), "ON_STARTED_ARTIFACT", position(4, 0), 40),
            (environment(10), "ON_EXITED_ARTIFACT", position(3, 0), 30),
            (Place::Flow(id(10)), "ON_STARTED_TRAIL", position(1, 0), 10),
        ];
        let mut found = BatchEvents::default();
        for (place, trigger, position, time) in events {
            found.events.entry((place, trigger)).or_default().push((position, at(time)));
        }
        // The logical environment 20.
        let members = BTreeMap::from([(id(20), vec![id(11)])]);
        let environments = |ids: &[u64]| Watched::Environments(ids.iter().copied().map(id).collect());
        let table = [
            (environments(&[10]), &["ON_STARTED_ARTIFACT"][..], 0, Some(position(3, 1))),
            (environments(&[10]), &["ON_STARTED_ARTIFACT"], 30, Some(position(3, 1))),
            (environments(&[10]), &["ON_STARTED_ARTIFACT"], 31, Some(position(5, 2))),
            (environments(&[10]), &["ON_STARTED_ARTIFACT"], 51, None),
            (environments(&[10]), &["ON_STARTED_ARTIFACT", "ON_EXITED_ARTIFACT"], 0, Some(position(3, 0))),
            (environments(&[11, 10]), &["ON_STARTED_ARTIFACT"], 31, Some(position(4, 0))),
            (environments(&[20]), &["ON_STARTED_ARTIFACT"], 0, Some(position(4, 0))),
            (environments(&[20, 10]), &["ON_STARTED_ARTIFACT"], 0, Some(position(3, 1))),
            (environments(&[12]), &["ON_STARTED_ARTIFACT"], 0, None),
            (environments(&[10]), &["ON_COMPLIANT_ENV"], 0, None),
            (environments(&[10]), &[], 0, None),
            (environments(&[10]), &["ON_STARTED_TRAIL"], 0, None),
            (Watched::Flows(vec![id(10)]), &["ON_STARTED_TRAIL"], 0, Some(position(1, 0))),
            (Watched::Flows(vec![id(11)]), &["ON_STARTED_TRAIL"], 0, None),
        ];
        for (watched, triggers, since, expected) in table {
            let action = action(&watched, triggers);
            let places = found.places(&action, &members);
            let first = found.first(&places, &action.triggers, at(since));
            assert_eq!(first, expected, "{:?} {triggers:?} {since}", action.watched);
            assert_eq!(found.has_trigger_of(&action), !matches!(triggers, [] | ["ON_COMPLIANT_ENV"]));
        }
    }

    #[test]
    fn a_delivery_that_rests_goes_on_from_the_first_event_and_one_at_another_address_at_once() {
        let hook =
            |url: &str| Destination::Webhook { url: url_record(url.bytes().next().map_or(0, u32::from)) };
        let delivery = |due_at: Option<i64>, url: &str, revision| {
            let state = DeliveryState {
                address: hook(url).address_digest(),
                attempts: 3,
                last_failure_at: Some(at(1)),
                ..DeliveryState::first(id(2), position(4, 2))
            };
            let (org, target, channel) = (id(1), id(3), Channel::Http);
            Delivery { org, target, channel, due_at: due_at.map(at), state, revision }
        };
        // The columns: when it is due, the URL and the first event; then whether it is recorded, when it is
        // due, its position and its attempts.
        let (first, stays) = (position(9, 1), position(4, 2));
        let table = [
            (Some(99), "a", Some(first), None),
            (Some(99), "a", None, None),
            (None, "a", None, None),
            (None, "a", Some(first), Some((Some(5), first, 0, true))),
            (None, "a", Some(stays), Some((Some(5), stays, 3, true))),
            (None, "b", Some(first), Some((Some(5), first, 0, false))),
            (None, "b", None, Some((None, stays, 0, false))),
            (Some(99), "b", None, Some((Some(5), stays, 0, false))),
            (Some(99), "b", Some(first), Some((Some(5), stays, 0, false))),
            // An hour is the longest pause.
            (Some(3605), "a", Some(first), None),
            (Some(3606), "a", Some(first), Some((Some(5), stays, 3, true))),
        ];
        for (due_at, url, first, expected) in table {
            let noted = noted(&delivery(due_at, "a", 7), first, &hook(url), at(5));
            let shown = noted.map(|one| {
                assert_eq!((one.revision, one.state.address), (7, hook(url).address_digest()));
                (one.due_at, one.state.next, one.state.attempts, one.state.last_failure_at.is_some())
            });
            let expected =
                expected.map(|(due, next, attempts, failed)| (due.map(at), next, attempts, failed));
            assert_eq!(shown, expected, "{due_at:?} {url} {first:?}");
        }
        assert_eq!(noted(&delivery(None, "", 0), None, &hook("a"), at(5)), None);
    }
}
