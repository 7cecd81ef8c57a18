//! Checks of what [`evidence_core::snapshots::SnapshotStore`] answers about the events of environments, and about what replaced what.

use std::ops::RangeInclusive;
use std::sync::Arc;

use evidence_core::artifacts::Artifact;
use evidence_core::fact::Fact;
use evidence_core::id::Id;
use evidence_core::page::{Page, PageRequest, SortDirection};
use evidence_core::rules::compliance::State;
use evidence_core::snapshots::{
    Annotation, ArtifactKey, Event, Provenance, REPLACED_AMONG, Replaced, RunningArtifact, Snapshot, Start,
};
use evidence_core::store::Store;

use super::fixtures::{Org, artifact, environment, fingerprint, flow_created, id, trail_begun};
use super::snapshots::{changed, instance, several, snapshot, snapshot_taken, taken, undigested};
use super::{Failure, Outcome, ensure, promises, same, same_set};

promises! {
    events_are_found_by_number: "`events` answers what began to run, differed or exited, by the numbers that snapshots give, and passes over what was only seen otherwise.",
    the_status_counts_events: "An environment's status and the lines of its snapshots count the events.",
    events_of_repos_are_counted: "`event_numbers` answers a page, and the total, of the events in a range that are about artifacts of some repos, in either direction: of those that the newest report in a flow names.",
    what_a_start_replaced: "`replaced` answers what began last before under the same name of the same flow, or under any where the start has none, as it ran last.",
    what_was_restarted_often_replaced_nothing: "`replaced` looks among the newest runs that began before, and no further.",
}

fn of(environment: u64, numbers: &[u64]) -> Vec<(Id, u64)> {
    numbers.iter().map(|number| (id(environment), *number)).collect()
}

async fn numbered(
    store: &Arc<dyn Store>,
    org: Id,
    environment: u64,
    numbers: &[u64],
) -> Result<Vec<Event>, Failure> {
    let mut found = store.events(org, &of(environment, numbers)).await?;
    found.sort_by_key(|event| event.number);
    Ok(found)
}

async fn events_are_found_by_number(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = several(&store).await?;
    let event = |number, index: u64, instance: RunningArtifact, exited| Event {
        environment: id(101),
        number,
        snapshot: (index, taken(index)),
        // After the organization and two environments.
        revision: index + 2,
        compliant: index.is_multiple_of(2),
        instance,
        exited,
    };
    let all = [
        event(1, 1, instance("bb", 1), false),
        event(2, 1, instance("aa", 1), false),
        event(3, 2, instance("bb", 1), true),
        event(4, 2, instance("cc", 2), false),
        event(5, 3, changed("aa", 1, 3), false),
        event(6, 4, changed("aa", 1, 3), true),
        event(7, 4, instance("bb", 4), false),
    ];
    let cases: [(&[u64], &[usize]); 5] = [
        (&[], &[]),
        (&[0, 8, u64::MAX], &[]),
        (&[3], &[2]),
        (&[7, 2, 7], &[1, 6]),
        (&[1, 2, 3, 4, 5, 6, 7], &[0, 1, 2, 3, 4, 5, 6]),
    ];
    for (numbers, places) in cases {
        let expected = Vec::from_iter(places.iter().filter_map(|place| all.get(*place).cloned()));
        let sizes = store.event_sizes(org.id, &of(101, numbers)).await?;
        let measured = expected.iter().map(|event| (event.environment, event.number, event.revision));
        let found = sizes.iter().map(|size| (size.environment, size.number, size.revision));
        same_set("those that are measured", found.collect(), measured.collect())?;
        ensure(sizes.iter().all(|size| size.bytes > 100), "an instance is larger than its digest")?;
        same(&format!("{numbers:?}"), numbered(&store, org.id, 101, numbers).await?, expected)?;
    }
    let foreign = store.event_sizes(other.id, &of(101, &[1])).await?;
    same("sizes of another organization", foreign, Vec::new())?;
    same("of another environment", numbered(&store, org.id, 200, &[1, 2]).await?, Vec::new())?;
    same("of an unknown one", numbered(&store, org.id, 999, &[1]).await?, Vec::new())?;
    same("of another organization", numbered(&store, other.id, 101, &[1, 2, 3]).await?, Vec::new())?;

    // An artifact without a digest, one that exits in the write in which it began, and one that only changed.
    let unchanged = |name: &str| Annotation { kind: name.to_owned(), was: 1, now: 2 };
    let seen =
        RunningArtifact { annotation: unchanged(Annotation::UNCHANGED), since: 2, ..undigested("web", 3) };
    let first =
        Snapshot { changes: vec![undigested("web", 2), instance("ee", 2)], ..snapshot(100, 2, &[], &["aa"]) };
    let first = Snapshot { events_before: 1, ..first };
    let second = Snapshot { changes: vec![seen.clone()], events_before: 4, ..snapshot(100, 3, &[], &["ee"]) };
    let web = ArtifactKey::new(None, "web");
    let third = Snapshot { exits: vec![web], events_before: 5, ..snapshot(100, 4, &[], &[]) };
    org.record([first, second, third].map(snapshot_taken).to_vec()).await?;
    let of_test = |event: Event| Event {
        environment: id(100),
        // After all that is told above, the first snapshot of this environment included.
        revision: event.snapshot.0 + 7,
        ..event
    };
    let expected =
        [event(2, 2, instance("aa", 1), true), event(5, 3, instance("ee", 2), true), event(6, 4, seen, true)];
    let expected = Vec::from(expected.map(of_test));
    same("what exits", numbered(&store, org.id, 100, &[2, 5, 6]).await?, expected)
}

async fn the_status_counts_events(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    for (name, events) in [("prod", 7), ("test", 1)] {
        let known = store.environment(org.id, name).await?;
        same(name, known.map(|known| known.status.events), Some(events))?;
    }
    Ok(())
}

async fn events_of_repos_are_counted(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = several(&store).await?;
    let reported = |n, flow, trail, start: &str, repo: Option<u64>| Fact::ArtifactReported {
        record: Artifact { repo: repo.map(id), ..artifact(n, flow, trail, start) },
    };
    let built = |n, start: &str, repo| reported(n, if n < 250 { 110 } else { 160 }, None, start, repo);
    org.record(vec![
        flow_created(110, "web"),
        built(201, "aa", Some(300)),
        built(202, "bb", Some(301)),
        built(203, "bb", Some(302)),
        built(204, "cc", None),
        built(205, "aa", Some(300)),
        // Another flow has a newest report of its own, and a report to a trail goes before.
        flow_created(111, "api"),
        trail_begun(112, 111, "t"),
        reported(206, 111, Some(112), "bb", Some(303)),
        reported(207, 111, None, "bb", Some(304)),
        reported(208, 111, Some(112), "cc", None),
    ])
    .await?;
    other.record(vec![flow_created(160, "web"), built(250, "cc", Some(300))]).await?;
    let all = PageRequest::ALL;
    let page = |offset, limit| PageRequest { offset, limit };
    type Case<'c> = (RangeInclusive<u64>, &'c [u64], PageRequest, &'c [u64], u64);
    let cases: [Case<'_>; 13] = [
        (1..=7, &[300], all, &[2, 5, 6], 3),
        (3..=5, &[300], all, &[5], 1),
        (1..=7, &[301], all, &[], 0),
        (1..=7, &[302], all, &[1, 3, 7], 3),
        (1..=7, &[303, 304], page(1, 1), &[3], 3),
        (1..=7, &[304], all, &[], 0),
        (1..=7, &[301, 302, 300], all, &[1, 2, 3, 5, 6, 7], 6),
        (1..=7, &[300], page(0, 2), &[2, 5], 3),
        (1..=7, &[300], page(2, 2), &[6], 3),
        (1..=7, &[300], page(3, 2), &[], 3),
        (1..=7, &[999], all, &[], 0),
        (1..=7, &[], all, &[], 0),
        (8..=u64::MAX, &[300], all, &[], 0),
    ];
    for (range, repos, request, items, total) in cases {
        let repos = Vec::from_iter(repos.iter().copied().map(id));
        let asked = (range.clone(), SortDirection::Asc);
        let found = store.event_numbers(org.id, id(101), asked, &repos, request).await?;
        same(&format!("{range:?} {repos:?} {request:?}"), found, Page { items: items.to_vec(), total })?;
    }
    let newest = (1..=7, SortDirection::Desc);
    let found = store.event_numbers(org.id, id(101), newest.clone(), &[id(300)], page(0, 2)).await?;
    same("the newest", found, Page { items: vec![6, 5], total: 3 })?;
    let found = store.event_numbers(other.id, id(101), newest, &[id(300)], all).await?;
    same("of another organization", found, Page { items: Vec::new(), total: 0 })
}

async fn what_a_start_replaced(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let created = |n, name| Fact::EnvironmentCreated { record: environment(n, name) };
    org.record(vec![created(100, "prod"), created(101, "test")]).await?;
    other.record(vec![created(200, "prod")]).await?;
    let from = |report, flow, reference: &str| Provenance {
        artifact: id(report),
        state: State::Compliant,
        reason: None,
        flow: Some(id(flow)),
        reference: reference.to_owned(),
    };
    let ran = |start: &str, since: u64, index: u64, provenance: Vec<Provenance>| RunningArtifact {
        since,
        provenance,
        ..instance(start, index)
    };
    let step = |environment, index, changes: Vec<RunningArtifact>, exits: &[&str]| {
        snapshot_taken(Snapshot { changes, ..snapshot(environment, index, &[], exits) })
    };
    let aa = ran("aa", 1, 1, vec![from(10, 110, "api")]);
    let bb = ran("bb", 1, 1, vec![from(11, 110, "web"), from(12, 111, "")]);
    // Reported again while it runs: the newer report counts, and how it ran last.
    let aa_later = RunningArtifact { compliant: Some(true), ..ran("aa", 1, 2, vec![from(13, 110, "api")]) };
    let ff_later = ran("ff", 1, 2, vec![from(16, 110, "api")]);
    let cc = ran("cc", 3, 3, vec![from(14, 110, "api")]);
    let dd = ran("dd", 3, 3, vec![from(15, 110, "api")]);
    for facts in [
        vec![step(100, 1, vec![aa, bb.clone()], &[])],
        vec![step(100, 2, vec![aa_later.clone()], &[]), step(100, 3, vec![cc, dd.clone()], &["aa"])],
        vec![step(100, 4, vec![], &["cc"])],
        vec![step(101, 1, vec![ran("ff", 1, 1, vec![from(16, 110, "api"), from(18, 110, "old")])], &[])],
        vec![step(101, 2, vec![ff_later.clone()], &[])],
    ] {
        org.record(facts).await?;
    }
    other.record(vec![step(200, 1, vec![ran("ff", 1, 1, vec![from(17, 110, "api")])], &[])]).await?;
    let start_in = |environment, flow, reference: &str, since, artifact: &str| Start {
        environment: id(environment),
        flow: id(flow),
        reference: reference.to_owned(),
        since,
        artifact: ArtifactKey::from(&fingerprint(artifact)),
    };
    let start = |flow, reference, since, artifact| start_in(100, flow, reference, since, artifact);
    let replaced = |place, report, instance: &RunningArtifact, until| Replaced {
        place,
        report: id(report),
        fingerprint: instance.fingerprint.clone(),
        name: instance.name.clone(),
        state: Some(State::Compliant).filter(|_| report != 18),
        until,
    };
    let starts = [
        start(110, "api", 3, "cc"),
        // Of two that began together the one of the greater key.
        start(110, "api", 5, "ee"),
        // Not itself.
        start(110, "api", 4, "dd"),
        // No event before it, then another name and another flow.
        start(110, "api", 1, "ee"),
        start(110, "db", 9, "ee"),
        start(112, "api", 9, "ee"),
        // Without a name, of any.
        start(111, "", 2, "ee"),
        start(110, "web", 2, "ee"),
        start(110, "", 3, "ee"),
        start(110, "", 2, "bb"),
        start(110, "", 9, "dd"),
        // In another environment, under a name that it lost.
        start_in(101, 110, "api", 9, "ee"),
        start_in(101, 110, "old", 9, "ee"),
        start_in(101, 110, "", 9, "ee"),
    ];
    let mut found = store.replaced(org.id, &starts).await?;
    found.sort_by_key(|one| one.place);
    let cc = ran("cc", 3, 3, vec![from(14, 110, "api")]);
    let expected = vec![
        replaced(0, 13, &aa_later, Some(3)),
        replaced(1, 15, &dd, None),
        replaced(2, 14, &cc, Some(4)),
        replaced(6, 12, &bb, None),
        replaced(7, 11, &bb, None),
        replaced(8, 11, &bb, None),
        replaced(9, 13, &aa_later, Some(3)),
        replaced(10, 14, &cc, Some(4)),
        replaced(11, 16, &ff_later, None),
        replaced(12, 18, &ff_later, None),
        replaced(13, 18, &ff_later, None),
    ];
    same("what is known", found, expected)?;
    same("of nothing", store.replaced(org.id, &[]).await?, Vec::new())?;
    let asked = [start(110, "api", 9, "ee")];
    same("of another organization", store.replaced(other.id, &asked).await?, Vec::new())?;
    let unknown = [start_in(999, 110, "api", 9, "ee")];
    same("in an unknown environment", store.replaced(org.id, &unknown).await?, Vec::new())
}

async fn what_was_restarted_often_replaced_nothing(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![Fact::EnvironmentCreated { record: environment(100, "prod") }]).await?;
    let began = |start: &str, index: u64| {
        let from = Provenance {
            artifact: id(10),
            state: State::Compliant,
            reason: None,
            flow: Some(id(110)),
            reference: "api".to_owned(),
        };
        RunningArtifact { provenance: vec![from], ..instance(start, index) }
    };
    let step = |index: u64| {
        let changes = vec![began(if index == 1 { "aa" } else { "bb" }, index)];
        let exits: &[&str] = if index < 3 { &[] } else { &["bb"] };
        snapshot_taken(Snapshot { changes, ..snapshot(100, index, &[], exits) })
    };
    let last = REPLACED_AMONG + 1;
    org.record((1..=last).map(step).collect()).await?;
    for (since, expected) in [(last, 1), (last + 1, 0)] {
        let start = Start {
            environment: id(100),
            flow: id(110),
            reference: "api".to_owned(),
            since,
            artifact: ArtifactKey::from(&fingerprint("bb")),
        };
        let found = store.replaced(org.id, &[start]).await?;
        same(&format!("what is known at {since}"), found.len(), expected)?;
    }
    Ok(())
}
