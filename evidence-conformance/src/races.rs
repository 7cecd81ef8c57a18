//! Checks of writes and queries that meet on several threads. The racers of [`super::recording`] are polled side by
//! side in one task and so arrive in one group; these are tasks of their own, so that a decision which rests on a read
//! from before the write, as READ COMMITTED allows it, is found out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::try_join_all;

use evidence_core::fact::{Fact, Key, Precondition, RecordKind, Write};
use evidence_core::flows::{Flow, FlowFilter};
use evidence_core::id::Id;
use evidence_core::ledger::root_of;
use evidence_core::page::PageRequest;
use evidence_core::store::{Entry, Store, StoreError, StoreResult};

use super::fixtures::{Org, flow_created, id, named, organization};
use super::ledger::{leaves, sound, whole};
use super::recording::{RACERS, one_wins, user_created};
use super::{Failure, Outcome, ensure, present, promises, same};

promises! {
    one_takes_a_name: "Of 64 that create a name at the same time one wins, with preconditions and without.",
    one_makes_an_organization: "Of 64 that create an organization's name at the same time one wins.",
    one_makes_a_user: "Of 64 that create a user's name in different organizations at the same time one wins.",
    no_update_is_lost: "Of updates under Precondition::Revision none is lost, and one is refused only if another got ahead.",
    ledgers_neither_fork_nor_gap: "Each organization has one ledger without fork or gap, however many write.",
    readers_see_whole_writes: "A query sees all of a write or nothing of it.",
}

/// The number of rounds of a race. A defect that shows in one of ten rounds is likely to be found.
const ROUNDS: u64 = 16;

/// Runs each of these on a task of its own.
pub(super) async fn on_tasks<F>(racers: impl IntoIterator<Item = F>) -> Result<Vec<F::Output>, Failure>
where
    F: Future<Output: Send> + Send + 'static,
{
    let tasks: Vec<_> = racers.into_iter().map(tokio::spawn).collect();
    try_join_all(tasks).await.map_err(|error| Failure(format!("a racer did not arrive: {error}")))
}

/// Records the writes on as many tasks.
async fn race(
    store: &Arc<dyn Store>,
    writes: impl IntoIterator<Item = Write>,
) -> Result<Vec<StoreResult<Vec<Entry>>>, Failure> {
    let racer = |write| {
        let store = Arc::clone(store);
        async move { store.record(write).await }
    };
    on_tasks(writes.into_iter().map(racer)).await
}

async fn one_takes_a_name(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    for round in 0..ROUNDS {
        let name = format!("f{round}");
        let absent = Precondition::Vacant(Key::Flow(named(&name)));
        let writes = (0..RACERS).map(|n| {
            let preconditions = if n.is_multiple_of(2) { vec![absent.clone()] } else { Vec::new() };
            org.write(vec![flow_created(1000 * round + 100 + n, &name)], preconditions)
        });
        one_wins(&race(&store, writes).await?)?;
    }
    let size = store.ledger_head(org.id).await?.map(|head| head.size());
    same("the ledger's size", size, Some(1 + ROUNDS))
}

async fn one_makes_an_organization(store: Arc<dyn Store>) -> Outcome {
    let user = Org::create(&store, 1, "foo").await?;
    for round in 0..ROUNDS {
        let name = format!("org{round}");
        let ids = 1000 * round + 100..1000 * round + 100 + RACERS;
        let writes = ids.clone().map(|n| {
            let begin = Fact::OrganizationCreated { record: organization(n, &name) };
            Write { org: id(n), ..user.write(vec![begin], Vec::new()) }
        });
        one_wins(&race(&store, writes).await?)?;
        let org_role = present("the organization", store.org_role(&name, id(90)).await?)?;
        for org in ids.map(id) {
            let begun = store.ledger_head(org).await?.is_some();
            same("whether an organization has a ledger", begun, org == org_role.organization.id)?;
        }
    }
    Ok(())
}

async fn one_makes_a_user(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    for round in 0..ROUNDS {
        let name = format!("user{round}");
        let first = 1000 * round + 100;
        let writes = (0..RACERS).map(|n| {
            let org = if n.is_multiple_of(2) { &org } else { &other };
            org.write(vec![user_created(first + n, &name)], Vec::new())
        });
        let outcomes = race(&store, writes).await?;
        one_wins(&outcomes)?;
        let winner = (first..).zip(outcomes).find(|(_, outcome)| outcome.is_ok()).map(|(n, _)| id(n));
        same("who is the user", store.user(&name).await?.map(|user| user.id), winner)?;
    }
    Ok(())
}

const COUNTERS: u64 = 8;
const STEPS: u64 = 12;

/// The tag that counts.
const COUNT: &str = "count";

fn counted(flow: &Flow) -> u64 {
    flow.tags.get(COUNT).and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// Adds one to the count, as often as somebody else gets ahead; each time that is another of the updates, so that there
/// is an end to it.
async fn count_one(org: &Org) -> Outcome {
    for _ in 0..COUNTERS * STEPS {
        let known = present("the flow", org.store.flow(org.id, "counter").await?)?;
        let mut record = known.record;
        record.tags.insert(COUNT.to_owned(), (counted(&record) + 1).to_string());
        let unchanged = Precondition::Revision(RecordKind::Flow, record.id, known.revision);
        match org.attempt(vec![Fact::FlowTagged { record }], vec![unchanged]).await {
            Err(StoreError::Conflict) => {}
            outcome => return Ok(outcome.map(drop)?),
        }
    }
    Err(Failure("an update was refused more often than there are others".to_owned()))
}

async fn no_update_is_lost(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![flow_created(100, "counter")]).await?;
    let counter = |_| {
        let org = org.clone();
        async move {
            for _ in 0..STEPS {
                count_one(&org).await?;
            }
            Ok(())
        }
    };
    on_tasks((0..COUNTERS).map(counter)).await?.into_iter().collect::<Outcome>()?;
    let known = present("the flow", store.flow(org.id, "counter").await?)?;
    same("the count", counted(&known.record), COUNTERS * STEPS)?;
    same("the revision", known.revision, 1 + COUNTERS * STEPS)
}

const WRITERS: u64 = 8;
const WRITES: u64 = 8;

/// Records [`WRITES`] writes of two facts, with ids from `first` on, and answers their entries.
async fn write_pairs(org: Org, first: u64) -> Result<Vec<Vec<Entry>>, Failure> {
    let mut entries = Vec::new();
    for n in (first..).step_by(2).take(WRITES as usize) {
        entries.push(org.record(pair(n)).await?);
    }
    Ok(entries)
}

fn pair(n: u64) -> Vec<Fact> {
    vec![flow_created(n, &format!("f{n}")), flow_created(n + 1, &format!("f{}", n + 1))]
}

async fn ledgers_neither_fork_nor_gap(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let orgs = [org, other, Org::create(&store, 3, "fo").await?];
    let writers = (1..=WRITERS).flat_map(|n| orgs.iter().map(move |org| write_pairs(org.clone(), 1000 * n)));
    let writers: Vec<_> = writers.collect();
    let answers: Vec<_> = on_tasks(writers).await?.into_iter().collect::<Result<_, _>>()?;
    for (number, org) in orgs.iter().enumerate() {
        let answers = answers.iter().skip(number).step_by(orgs.len()).flatten();
        one_ledger(&store, org.id, answers).await?;
    }
    Ok(())
}

/// The ledger is the organization's creation and then what the writers were answered, each entry once.
async fn one_ledger<'a>(
    store: &Arc<dyn Store>,
    org: Id,
    answers: impl Iterator<Item = &'a Vec<Entry>>,
) -> Outcome {
    let entries = whole(store, org).await?;
    sound(&entries)?;
    let head = present("the head", store.ledger_head(org).await?)?;
    same("the size", head.size(), entries.len() as u64)?;
    same("the root", head.root(), root_of(&leaves(&entries)))?;
    let mut answered = BTreeSet::new();
    for pair in answers {
        let indexes: Vec<u64> = pair.iter().map(|entry| entry.index).collect();
        let first = indexes.first().copied().unwrap_or_default();
        same("the indexes of a write", indexes, vec![first, first + 1])?;
        answered.extend(pair.iter().map(|entry| (entry.index, entry.leaf_hash)));
    }
    let stored = entries.iter().skip(1).map(|entry| (entry.index, entry.leaf_hash)).collect();
    same("the entries that writers were answered", answered, stored)
}

async fn readers_see_whole_writes(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let over = Arc::new(AtomicBool::new(false));
    let reader = |_| {
        let (org, over) = (org.clone(), Arc::clone(&over));
        tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                look_for_halves(&org).await?;
                tokio::task::yield_now().await;
            }
            look_for_halves(&org).await
        })
    };
    let readers: Vec<_> = (0..4).map(reader).collect();
    let written = on_tasks((1..=4).map(|n| write_pairs(org.clone(), 1000 * n))).await;
    over.store(true, Ordering::Relaxed);
    let read = try_join_all(readers).await.map_err(|error| Failure(format!("a reader ended: {error}")))?;
    read.into_iter().collect::<Outcome>()?;
    written?.into_iter().try_for_each(|entries| entries.map(drop))
}

/// Looks at flows and ledger, which grow by two at a time.
async fn look_for_halves(org: &Org) -> Outcome {
    let flows = org.store.flows(org.id, &FlowFilter::default(), PageRequest::ALL).await?;
    ensure(flows.items.len().is_multiple_of(2), "one of two flows of a write is there")?;
    same("the number of flows", flows.total, flows.items.len() as u64)?;
    let head = present("the head", org.store.ledger_head(org.id).await?)?;
    same("whether the head has half a write", head.size() % 2, 1)?;
    let entries = org.store.ledger_entries(org.id, 0, head.size()).await?;
    same("the root of the entries that the head covers", root_of(&leaves(&entries)), head.root())
}
