//! Checks of [`evidence_core::actions::ActionStore`] and [`evidence_core::notifications::DeliveryStore`].

use std::sync::Arc;

use evidence_core::actions::{Action, Destination, SlackContext, Target, Watched};
use evidence_core::fact::{Fact, Key, Precondition, RecordKind, Secrets, UnknownFields, Write};
use evidence_core::id::Id;
use evidence_core::leases::{HeldLease, Lease};
use evidence_core::notifications::{Channel, Delivery, DeliveryState, Position};
use evidence_core::store::{Current, Store, StoreError};

use super::fixtures::{Org, at, awkward, id, jane, named, robot, secret_url, stored_urls};
use super::races::on_tasks;
use super::shared::{largest_is_long, long_text};
use super::{Failure, Outcome, ensure, promises, same};

promises! {
    actions_read_back: "Actions are what was recorded last, by name, by number and by id.",
    a_renamed_action_leaves_its_name: "A renamed action is found by its former name, too, until another claims that.",
    actions_are_listed_by_number: "`actions_listed` is ordered by number, not as text, and shows one organization's.",
    deleted_actions_are_gone: "A deleted action is found by nothing and in no list; its name is free, and its number counts.",
    a_number_is_given_once: "Of two actions that are to have the same number one is recorded.",
    secret_urls_are_stored_until_they_are_removed: "`secret_urls` answers the URLs of one organization that writes brought, until a fact removes them or their action is deleted.",
    deliveries_read_back: "`deliveries` answers what was put last of these targets.",
    deliveries_are_put_by_compare_and_swap: "A delivery is put where its revision is the one that is there, and an organization is.",
    a_delivery_is_put_under_a_lease_that_is_held: "A delivery that is put under a lease is put where its holder has that, expired or not, until another one takes it.",
    due_deliveries_are_found_by_organization: "`due_deliveries` of a channel goes from organization to organization, and answers what is due of one, what is due longest first.",
}

fn target(n: u64, destination: Destination) -> Target {
    Target { id: id(n), destination, since: None }
}

fn webhook(n: u64) -> Target {
    target(n, Destination::Webhook { url: secret_url(n) })
}

fn action(n: u64, number: u64, name: &str) -> Action {
    Action {
        id: id(n),
        number,
        name: named(name),
        watched: Watched::Environments(vec![id(500)]),
        triggers: vec!["ON_STARTED_ARTIFACT".to_owned()],
        targets: vec![webhook(n + 1_000)],
        created_at: at(2),
        created_by: jane(),
        last_modified_at: at(2),
        unknown: UnknownFields::default(),
    }
}

pub(super) fn created(n: u64, number: u64, name: &str) -> Fact {
    Fact::ActionCreated { record: action(n, number, name) }
}

async fn actions_read_back(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![created(100, 1, "on/start")]).await?;
    let current = Current { revision: 1, record: action(100, 1, "on/start") };
    same("created", store.action(org.id, "on/start").await?, Some(current))?;
    let context =
        SlackContext { channel_id: "C1".to_owned(), channel_name: awkward(), team_id: String::new() };
    let slack = |context| Destination::Slack { url: secret_url(700), context };
    let addresses = vec!["jane@example.com".to_owned(), "joe@example.com".to_owned()];
    let full = Action {
        watched: Watched::Flows(vec![id(600), id(601), id(600)]),
        triggers: vec!["ON_ATTESTATION".to_owned(), "ON_STARTED_TRAIL".to_owned()],
        targets: vec![
            target(1, slack(Some(context))),
            target(2, slack(None)),
            target(3, Destination::Email { addresses }),
            Target { since: Some(at(9)), ..webhook(4) },
        ],
        created_by: robot(),
        last_modified_at: at(9),
        ..action(100, 1, "on/start")
    };
    let removed_urls = vec![id(1_100)];
    let updated = Fact::ActionUpdated { record: full.clone(), was: None, removed: Vec::new(), removed_urls };
    let secrets = Secrets { urls: stored_urls(&full), ..Secrets::default() };
    store.record(Write { secrets, ..org.write(vec![updated], Vec::new()) }).await?;
    let current = Some(Current { revision: 2, record: full });
    same("by name", store.action(org.id, "on/start").await?, current.clone())?;
    same("by number", store.action_numbered(org.id, 1).await?, current.clone())?;
    let found = store.actions_by_id(org.id, &[100, 999, 100].map(id)).await?;
    same("by id", found, current.into_iter().collect())?;
    for (org, name) in
        [(&other, "on/start"), (&org, "on/Start"), (&org, "%"), (&org, "#1"), (&org, "1"), (&org, "")]
    {
        same(name, store.action(org.id, name).await?, None)?;
    }
    for (org, number) in [(&other, 1), (&org, 0), (&org, 2), (&org, u64::MAX)] {
        same(&number.to_string(), store.action_numbered(org.id, number).await?, None)?;
    }
    Ok(())
}

async fn a_renamed_action_leaves_its_name(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![created(100, 1, "a")]).await?;
    let renamed = action(100, 1, "b");
    org.record(vec![Fact::ActionUpdated {
        record: renamed.clone(),
        was: Some(named("a")),
        removed: Vec::new(),
        removed_urls: Vec::new(),
    }])
    .await?;
    for name in ["a", "b"] {
        let found = store.action(org.id, name).await?.map(|found| found.record);
        same(name, found, Some(renamed.clone()))?;
    }
    let taken = org.attempt(vec![created(101, 2, "b")], Vec::new()).await;
    ensure(matches!(taken, Err(StoreError::Conflict)), "a name that another has was taken")?;
    org.record(vec![created(101, 2, "a")]).await?;
    let found = store.action(org.id, "a").await?.map(|found| found.record.id);
    same("the former name", found, Some(id(101)))?;
    let found = store.action_numbered(org.id, 1).await?.map(|found| found.record.id);
    same("the number", found, Some(id(100)))
}

async fn actions_are_listed_by_number(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    same("none", store.actions_listed(org.id).await?, Vec::new())?;
    same("no number", store.greatest_action_number(org.id).await?, 0)?;
    org.record(vec![
        created(103, 10, "a"),
        created(102, 9, "c"),
        created(101, 2, "b"),
        created(100, 100, "d"),
    ])
    .await?;
    other.record(vec![created(200, 1_000, "a")]).await?;
    let long = Action { triggers: vec![long_text()], ..action(102, 9, "c") };
    org.record(vec![Fact::ActionUpdated {
        record: long,
        was: None,
        removed: Vec::new(),
        removed_urls: Vec::new(),
    }])
    .await?;
    let listed = store.actions_listed(org.id).await?;
    let ids: Vec<Id> = listed.iter().map(|one| one.id).collect();
    same("the actions", ids, [101, 102, 103, 100].map(id).to_vec())?;
    largest_is_long(&listed)?;
    same("the greatest number", store.greatest_action_number(org.id).await?, 100)
}

async fn deleted_actions_are_gone(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![created(100, 1, "a"), created(101, 2, "b")]).await?;
    org.record(vec![Fact::ActionDeleted { record: action(101, 2, "b") }]).await?;
    same("by name", store.action(org.id, "b").await?, None)?;
    same("by number", store.action_numbered(org.id, 2).await?, None)?;
    let listed = store.actions_listed(org.id).await?.into_iter().map(|one| one.id).collect();
    same("the list", listed, vec![id(100)])?;
    same("the greatest number", store.greatest_action_number(org.id).await?, 2)?;
    org.record(vec![created(102, 3, "b")]).await?;
    let found = store.action(org.id, "b").await?.map(|found| found.record.number);
    same("the name again", found, Some(3))
}

async fn secret_urls_are_stored_until_they_are_removed(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let stored = |n: u64| stored_urls(&Action { targets: vec![webhook(n)], ..action(1, 1, "a") }).remove(0);
    let write = |org: &Org, fact, urls: &[u64]| {
        let secrets = Secrets { urls: urls.iter().map(|n| stored(*n)).collect(), ..Secrets::default() };
        Write { secrets, ..org.write(vec![fact], Vec::new()) }
    };
    let with =
        |urls: &[u64]| Action { targets: urls.iter().map(|n| webhook(*n)).collect(), ..action(100, 1, "a") };
    let found = async |org: &Org| {
        let mut found = store.secret_urls(org.id, &[1, 2, 3, 4, 4, 5, 999].map(id)).await?;
        found.sort_by_key(|(id, _)| *id);
        Ok::<_, Failure>(found)
    };
    store.record(write(&org, Fact::ActionCreated { record: with(&[1, 2]) }, &[1, 2])).await?;
    let second = Action { targets: vec![webhook(3)], ..action(101, 2, "b") };
    store.record(write(&org, Fact::ActionCreated { record: second }, &[3])).await?;
    let theirs = Fact::ActionCreated { record: Action { targets: vec![webhook(5)], ..action(200, 1, "a") } };
    store.record(write(&other, theirs, &[5])).await?;
    same("of the two actions", found(&org).await?, [1, 2, 3].map(stored).to_vec())?;
    let changed = |urls: &[u64], removed_urls: &[u64]| Fact::ActionUpdated {
        record: with(urls),
        was: None,
        removed: Vec::new(),
        removed_urls: removed_urls.iter().map(|n| id(*n)).collect(),
    };
    store.record(write(&org, changed(&[2, 4], &[1]), &[4])).await?;
    same("after a change", found(&org).await?, [2, 3, 4].map(stored).to_vec())?;
    let refused = Write {
        preconditions: vec![Precondition::Revision(RecordKind::Action, id(100), 1)],
        ..write(&org, changed(&[], &[2, 4]), &[1])
    };
    ensure(store.record(refused).await.is_err(), "a write was recorded against its precondition")?;
    same("after a refused write", found(&org).await?, [2, 3, 4].map(stored).to_vec())?;
    org.record(vec![Fact::ActionDeleted { record: with(&[2, 4]) }]).await?;
    same("after the deletion", found(&org).await?, vec![stored(3)])?;
    same("the other organization's", found(&other).await?, vec![stored(5)])?;
    // The same write brings a URL and removes it.
    let record =
        Action { id: id(102), number: 3, name: named("c"), targets: vec![webhook(4)], ..action(1, 1, "c") };
    let facts = vec![Fact::ActionCreated { record: record.clone() }, Fact::ActionDeleted { record }];
    org.record(facts).await?;
    same("after a write that removes its own", found(&org).await?, vec![stored(3)])?;
    same("no URL", store.secret_urls(org.id, &[]).await?, Vec::new())
}

async fn a_number_is_given_once(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let racer = |n: u64| {
        let org = org.clone();
        async move {
            let precondition = Precondition::Vacant(Key::ActionNumber(1));
            org.attempt(vec![created(n, 1, &format!("a{n}"))], vec![precondition]).await.is_ok()
        }
    };
    let recorded = on_tasks((100..116).map(racer)).await?.into_iter().filter(|recorded| *recorded).count();
    same("how many were recorded", recorded, 1)?;
    let second = org.attempt(vec![created(99, 1, "b")], Vec::new()).await;
    ensure(matches!(second, Err(StoreError::Conflict)), "a second action of the number was recorded")
}

pub(super) fn delivery(org: &Org, n: u64, waits: bool) -> Delivery {
    let next = Position { entry: n, event: 3 };
    let state = DeliveryState {
        action: id(n + 1),
        address: "address".to_owned(),
        next,
        attempts: 2,
        last_success_at: None,
        last_failure_at: Some(at(3)),
    };
    let channel = if n == 110 { Channel::Mail } else { Channel::Http };
    Delivery { org: org.id, target: id(n), channel, due_at: waits.then(|| at(5)), state, revision: 0 }
}

async fn deliveries_read_back(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    same("none", store.deliveries(org.id, &[id(100)]).await?, Vec::new())?;
    for put in [delivery(&org, 100, true), delivery(&org, 101, false), delivery(&other, 102, true)] {
        same("put", store.put_delivery(&put, None).await?, true)?;
    }
    let stored = |put: Delivery| Delivery { revision: put.revision + 1, ..put };
    let mut found = store.deliveries(org.id, &[100, 102, 101, 999].map(id)).await?;
    found.sort_by_key(|delivery| delivery.target);
    let expected = vec![stored(delivery(&org, 100, true)), stored(delivery(&org, 101, false))];
    same("both", found, expected)?;
    store.forget_delivery(org.id, id(102)).await?;
    store.forget_delivery(org.id, id(100)).await?;
    let found = store.deliveries(org.id, &[100, 101].map(id)).await?;
    same("one", found, vec![stored(delivery(&org, 101, false))])?;
    let found = store.deliveries(other.id, &[id(102)]).await?;
    same("the other organization's", found, vec![stored(delivery(&other, 102, true))])
}

async fn deliveries_are_put_by_compare_and_swap(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let at_revision = |revision| Delivery { revision, ..delivery(&org, 100, true) };
    for (revision, expected) in
        [(1, false), (0, true), (0, false), (2, false), (1, true), (1, false), (2, true)]
    {
        let answer = store.put_delivery(&at_revision(revision), None).await?;
        same(&format!("at revision {revision}"), answer, expected)?;
    }
    let found = store.deliveries(org.id, &[id(100)]).await?;
    same("the revision", found.first().map(|delivery| delivery.revision), Some(3))?;
    let nowhere = Delivery { org: id(7), ..delivery(&org, 101, true) };
    same("no organization", store.put_delivery(&nowhere, None).await?, false)?;
    let racer = |_| {
        let (store, put) = (Arc::clone(&store), at_revision(3));
        async move { store.put_delivery(&put, None).await }
    };
    let mut put = 0;
    for answer in on_tasks((0..16).map(racer)).await? {
        put += u32::from(answer?);
    }
    same("how many were put", put, 1)
}

async fn a_delivery_is_put_under_a_lease_that_is_held(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let held = |name: &str, holder| HeldLease { name: name.to_owned(), holder: id(holder) };
    let acquire = async |name: &str, holder, ends, now| {
        let lease = Lease { name: name.to_owned(), holder: id(holder), expires_at: at(ends) };
        same("the lease", store.acquire_lease(&lease, at(now)).await?, true)
    };
    let mut revision = 0;
    let mut put = async |what: &str, lease: HeldLease, expected| {
        let answer =
            store.put_delivery(&Delivery { revision, ..delivery(&org, 100, true) }, Some(&lease)).await?;
        revision += u64::from(answer);
        same(what, answer, expected)
    };
    put("a lease that nobody has", held("job", 90), false).await?;
    acquire("job", 90, 10, 1).await?;
    acquire("other", 91, 10, 1).await?;
    put("of a target that was never put", held("job", 90), true).await?;
    put("of one that was", held("job", 90), true).await?;
    put("another's lease", held("job", 91), false).await?;
    put("another lease", held("other", 90), false).await?;
    acquire("job", 91, 30, 20).await?;
    put("a lease that was lost", held("job", 90), false).await?;
    put("one that was taken over", held("job", 91), true).await?;
    store.release_lease("job", id(91)).await?;
    put("one that was given back", held("job", 91), false).await?;
    let stale = Delivery { revision: 0, ..delivery(&org, 100, true) };
    let answer = store.put_delivery(&stale, Some(&held("other", 91))).await?;
    same("another revision", answer, false)
}

async fn due_deliveries_are_found_by_organization(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    same("none", store.due_deliveries(Channel::Http, at(9), None, 10).await?, None)?;
    let due =
        |org: &Org, n: u64, due: Option<i64>| Delivery { due_at: due.map(at), ..delivery(org, n, true) };
    for put in [
        due(&org, 100, Some(7)),
        due(&org, 101, Some(5)),
        due(&org, 102, None),
        due(&org, 103, Some(10)),
        due(&org, 104, Some(5)),
        due(&org, 105, Some(9)),
        due(&other, 100, Some(8)),
        due(&other, 101, None),
        due(&other, 110, Some(6)),
    ] {
        same("put", store.put_delivery(&put, None).await?, true)?;
    }
    let targets = |found: Vec<Delivery>| found.into_iter().map(|one| one.target).collect::<Vec<Id>>();
    let through_channel = async |channel, now, limit| {
        let (mut found, mut after) = (Vec::new(), None);
        while let Some((org, due)) = store.due_deliveries(channel, at(now), after, limit).await? {
            ensure(due.iter().all(|one| one.org == org), "deliveries of another organization")?;
            ensure(!found.iter().any(|(known, _)| *known == org), "an organization comes twice")?;
            found.push((org, targets(due)));
            after = Some(org);
        }
        found.sort_unstable();
        Ok::<_, Failure>(found)
    };
    let through = async |now, limit| through_channel(Channel::Http, now, limit).await;
    let theirs = (other.id, vec![id(100)]);
    let all = vec![(org.id, [101, 104, 100, 105].map(id).to_vec()), theirs.clone()];
    same("what is due", through(9, 10).await?, all)?;
    let first = vec![(org.id, [101, 104].map(id).to_vec()), theirs];
    same("the longest due", through(9, 2).await?, first)?;
    same("what was due earlier", through(5, 10).await?, vec![(org.id, [101, 104].map(id).to_vec())])?;
    same("nothing", through(4, 10).await?, Vec::new())?;
    same("mails", through_channel(Channel::Mail, 9, 10).await?, vec![(other.id, vec![id(110)])])?;
    same("no mails", through_channel(Channel::Mail, 5, 10).await?, Vec::new())?;
    let read = store.due_deliveries(Channel::Http, at(5), None, 1).await?.map(|(_, due)| due);
    same("as it was put", read, Some(vec![Delivery { revision: 1, ..due(&org, 101, Some(5)) }]))
}
