//! Checks of [`evidence_core::environments::EnvironmentStore`].

use std::sync::Arc;

use evidence_core::environments::{Environment, EnvironmentKind, EnvironmentStatus, KnownEnvironment};
use evidence_core::fact::Fact;
use evidence_core::id::Id;
use evidence_core::snapshots::Snapshot;
use evidence_core::store::Store;

use super::fixtures::{Org, at, awkward, environment, id, named, robot, tags};
use super::shared::{largest_is_long, long_text};
use super::{Failure, Outcome, promises, same};

promises! {
    environments_read_back: "Environments are what the last fact about them says, absent options too.",
    reports_leave_revisions_alone: "What an environment's reports made of it is read back, and is no part of its revision.",
    environments_are_found_by_id: "`environments_by_id` answers the environments of these ids, archived ones too.",
    archived_environments_are_known_by_name: "`archived_environment` tells whether an archived environment was called so last.",
    changes_of_members_are_kept: "`member_changes` answers each change of the members or policies of a logical environment, by entry and member, and `logical_environments` those that had one of some members, each once.",
    environments_are_listed_by_name: "`environments` is ordered by name (bytes), and shows one organization's.",
}

fn updated(record: Environment) -> Fact {
    Fact::EnvironmentUpdated { record, joined: Vec::new(), left: Vec::new() }
}

async fn environments_read_back(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let bare = environment(100, "prod");
    let full = Environment {
        kind: EnvironmentKind::Logical,
        description: awkward(),
        included: vec![id(103), id(101)],
        policies: vec![id(105), id(104)],
        include_scaling: true,
        require_provenance: true,
        tags: tags(&[("a", "1")]),
        created_by: robot(),
        last_modified_at: at(8),
        ..bare.clone()
    };
    let changed = |record: &Environment| record.clone();
    let facts = [
        (Fact::EnvironmentCreated { record: changed(&bare) }, &bare),
        (updated(changed(&full)), &full),
        (Fact::EnvironmentTagged { record: changed(&bare) }, &bare),
        (Fact::EnvironmentJoined { record: changed(&full), member: id(101) }, &full),
        (Fact::PoliciesAttached { record: changed(&full), policies: vec![id(104)] }, &full),
        (Fact::PoliciesDetached { record: changed(&bare), policies: vec![id(104)] }, &bare),
    ];
    for (revision, (fact, record)) in (1..).zip(facts) {
        let kind = fact.kind();
        org.record(vec![fact]).await?;
        let status = EnvironmentStatus::default();
        let current =
            KnownEnvironment { revision, reported: None, record: record.clone(), status, archived: false };
        same(kind, store.environment(org.id, "prod").await?, Some(current.clone()))?;
        same(kind, store.environments(org.id).await?, vec![current])?;
    }
    Ok(())
}

async fn reports_leave_revisions_alone(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![Fact::EnvironmentCreated { record: environment(100, "prod") }]).await?;
    let reported = || vec![Fact::EnvironmentReported { environment: id(100) }];
    let taken = |index, at, compliant, reported| {
        let snapshot =
            Snapshot { at, compliant, reported, ..super::snapshots::snapshot(100, index, &[], &[]) };
        vec![Fact::SnapshotTaken { snapshot }]
    };
    let status = |snapshots, changed_at, compliant, reported_at| EnvironmentStatus {
        snapshots,
        events: 0,
        changed_at,
        compliant,
        reported_at,
    };
    let steps = [
        // Writes of the fixtures are of time 7.
        (reported(), 2, status(0, None, None, Some(at(7)))),
        (taken(1, at(9), true, true), 3, status(1, Some(at(9)), Some(true), Some(at(9)))),
        (reported(), 4, status(1, Some(at(9)), Some(true), Some(at(9)))),
        (taken(2, at(10), false, false), 4, status(2, Some(at(10)), Some(false), Some(at(9)))),
    ];
    for (facts, reported, status) in steps {
        org.record(facts).await?;
        let (reported, record) = (Some(reported), environment(100, "prod"));
        let known = KnownEnvironment { revision: 1, reported, record, status, archived: false };
        same("the environment", store.environment(org.id, "prod").await?, Some(known.clone()))?;
        same("the list", store.environments(org.id).await?, vec![known])?;
    }
    Ok(())
}

async fn environments_are_found_by_id(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let created = |n, name| Fact::EnvironmentCreated { record: environment(n, name) };
    org.record(vec![created(100, "b"), created(101, "a"), created(102, "c")]).await?;
    other.record(vec![created(200, "a")]).await?;
    let snapshot = super::snapshots::snapshot(101, 1, &[], &[]);
    let archived = Fact::EnvironmentArchived { record: environment(101, "a") };
    org.record(vec![Fact::SnapshotTaken { snapshot }, archived]).await?;
    for (ids, expected) in [
        (vec![], vec![]),
        (vec![100, 200, 999, 100], vec![(100, 1, 0, false)]),
        (vec![102, 101], vec![(101, 5, 1, true), (102, 3, 0, false)]),
    ] {
        let ids: Vec<_> = ids.into_iter().map(id).collect();
        let mut found = store.environments_by_id(org.id, &ids).await?;
        found.sort_by_key(|known| known.record.id);
        let found = found
            .iter()
            .map(|known| (known.record.id, known.revision, known.status.snapshots, known.archived));
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(n, revision, snapshots, archived)| (id(n), revision, snapshots, archived))
            .collect();
        same("the environments", found.collect(), expected)?;
    }
    Ok(())
}

async fn archived_environments_are_known_by_name(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let created = |n, name| Fact::EnvironmentCreated { record: environment(n, name) };
    let renamed = Fact::EnvironmentRenamed { record: environment(100, "b"), was: named("a") };
    org.record(vec![created(100, "a"), renamed, created(101, "c")]).await?;
    other.record(vec![created(200, "c")]).await?;
    other.record(vec![Fact::EnvironmentArchived { record: environment(200, "c") }]).await?;
    for name in ["a", "b", "c"] {
        same(name, store.archived_environment(org.id, name).await?, false)?;
    }
    org.record(vec![Fact::EnvironmentArchived { record: environment(100, "b") }]).await?;
    for (name, expected) in [("a", false), ("b", true), ("B", false), ("c", false), ("", false)] {
        same(name, store.archived_environment(org.id, name).await?, expected)?;
    }
    // Another may have the name since; and be archived, too.
    org.record(vec![created(102, "b")]).await?;
    same("taken again", store.archived_environment(org.id, "b").await?, true)?;
    org.record(vec![Fact::EnvironmentArchived { record: environment(102, "b") }]).await?;
    same("archived twice", store.archived_environment(org.id, "b").await?, true)
}

async fn environments_are_listed_by_name(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let created = |n, name| Fact::EnvironmentCreated { record: environment(n, name) };
    same("none", store.environments(org.id).await?, Vec::new())?;
    org.record(vec![created(100, "b"), created(101, "a"), created(102, "B"), created(103, "a.b")]).await?;
    other.record(vec![created(200, "aa")]).await?;
    let found = store.environments(org.id).await?.into_iter().map(|found| (found.record.id, found.revision));
    same("the environments", found.collect(), vec![(id(102), 3), (id(101), 2), (id(103), 4), (id(100), 1)])?;
    let listed = store.environments_listed(org.id).await?;
    same(
        "without what is known",
        listed.iter().map(|one| one.id).collect(),
        [102, 101, 103, 100].map(id).to_vec(),
    )?;
    let long = Environment { description: long_text(), ..environment(100, "b") };
    org.record(vec![updated(long)]).await?;
    largest_is_long(&store.environments_listed(org.id).await?)?;
    for name in ["A", "aa", "%", "_", ""] {
        same(name, store.environment(org.id, name).await?, None)?;
    }
    Ok(())
}

async fn changes_of_members_are_kept(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = (Org::create(&store, 1, "foo").await?, Org::create(&store, 2, "bar").await?);
    let logical = |n, included: &[u64]| Environment {
        kind: EnvironmentKind::Logical,
        included: included.iter().map(|n| id(*n)).collect(),
        ..environment(n, &format!("l{n}"))
    };
    org.record(vec![Fact::EnvironmentCreated { record: logical(100, &[102, 101]) }]).await?;
    org.record(vec![Fact::EnvironmentCreated { record: logical(110, &[]) }]).await?;
    let record = logical(100, &[103]);
    let (joined, left) = (vec![id(103)], vec![id(101), id(102)]);
    org.record(vec![Fact::EnvironmentUpdated { record, joined, left }]).await?;
    let record = logical(110, &[101]);
    org.record(vec![Fact::EnvironmentJoined { record, member: id(101) }]).await?;
    let (record, member) = (logical(100, &[103, 101]), id(101));
    org.record(vec![Fact::EnvironmentJoined { record, member }]).await?;
    // Changes of the settings alone, and none of a physical environment.
    let policies = vec![id(200)];
    for record in [logical(110, &[101]), environment(101, "p")] {
        org.record(vec![Fact::PoliciesAttached { record, policies: policies.clone() }]).await?;
    }
    let record = logical(110, &[101]);
    org.record(vec![Fact::PoliciesDetached { record: record.clone(), policies }]).await?;
    org.record(vec![Fact::EnvironmentUpdated { record, joined: vec![], left: vec![] }]).await?;
    let told = |(entry, member, joined)| (entry, id(member), joined);
    let cases = [
        (
            100,
            vec![
                (1, 101, true),
                (1, 102, true),
                (3, 101, false),
                (3, 102, false),
                (3, 103, true),
                (5, 101, true),
            ],
        ),
        (110, vec![(4, 101, true), (6, 110, true), (8, 110, true), (9, 110, true)]),
        (101, vec![]),
    ];
    for (environment, expected) in cases {
        let found = store.member_changes(org.id, id(environment)).await?;
        let found = Vec::from_iter(found.iter().map(|change| (change.entry, change.member, change.joined)));
        same(&format!("of {environment}"), found, expected.into_iter().map(told).collect())?;
    }
    same("of another organization", store.member_changes(other.id, id(100)).await?, Vec::new())?;
    let of = async |org: Id, members: &[u64]| {
        let members = Vec::from_iter(members.iter().copied().map(id));
        let mut found = store.logical_environments(org, &members).await?;
        found.sort();
        Ok::<_, Failure>(found)
    };
    for (members, expected) in [
        (&[101][..], vec![100, 110]),
        (&[102], vec![100]),
        (&[102, 101], vec![100, 110]),
        (&[100], vec![]),
        (&[], vec![]),
    ] {
        let expected = expected.into_iter().map(id).collect();
        same(&format!("that had {members:?}"), of(org.id, members).await?, expected)?;
    }
    same("that had one in another organization", of(other.id, &[102]).await?, Vec::new())
}
