//! Checks of [`evidence_core::store::Recorder`]: all or nothing, preconditions, names, and writes that meet.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::join_all;

use evidence_core::artifacts::Artifact;
use evidence_core::fact::{Fact, Key, NameEffect, Precondition, RecordKind, Write};
use evidence_core::flows::Flow;
use evidence_core::id::Id;
use evidence_core::orgs::User;
use evidence_core::store::{Entry, Store, StoreError, StoreResult};

use super::fixtures::{
    Org, artifact, artifact_reported, at, attestation_added, awkward, environment, fingerprint, flow,
    flow_created, id, named, organization, trail, trail_begun,
};
use super::{
    Failure, Outcome, attestation_types, conflict, controls, ensure, policies, present, promises, same,
    service_accounts,
};

promises! {
    entries_follow_the_facts: "A call to `record` answers the ledger entry of every fact, in order.",
    a_failed_precondition_changes_nothing: "On `Err` nothing changed: a failed precondition refuses every fact of the write.",
    a_taken_name_changes_nothing: "On `Err` nothing changed: a taken name refuses every fact of the write.",
    names_exist_once: "A fact that would create a name which exists is a conflict.",
    a_name_twice_in_a_write: "A fact that would create a name of the same write is a conflict.",
    names_belong_to_their_place: "The same name may exist in another organization or flow.",
    vacant_holds_until_there_is_one: "Precondition::Vacant holds exactly while no record claims the name.",
    denotes_holds_while_the_name_leads_there: "Precondition::Denotes holds exactly while the name leads to the record.",
    a_template_name_leads_to_the_artifact_reported_last: "A template's name leads to the artifact of the trail reported last.",
    the_digest_of_content_leads_to_its_last_report_in_the_trail: "The digest of content leads to its last report to the trail.",
    revision_holds_until_the_next_fact: "Precondition::Revision holds exactly until the next fact about the record.",
    a_renamed_record_answers_to_its_former_name: "A renamed record is found by both names until another claims the former.",
    an_archived_record_gives_up_its_names: "An archived record is in no list, and its names are free.",
    names_that_come_and_go_leave_nothing: "A name claimed and given up in one write leads nowhere, whatever it led to.",
    names_change_hands_in_one_write: "A name that one fact gives up may be claimed by the next, in one write or one group.",
    preconditions_do_not_see_other_organizations: "Preconditions of one organization are not about another's records.",
    revisions_are_ledger_indexes: "A record's revision is the index of its newest fact, whatever happened to others.",
    racers_for_a_name: "Preconditions are checked against earlier writes of the group: of 64 that create a name one wins.",
    racers_for_a_revision: "Preconditions are checked against earlier writes of the group: of 64 updates one wins.",
    racers_without_preconditions: "Names are checked against earlier writes of the group: of 64 that create one, one wins.",
    a_refused_racer_spoils_nobody: "A write that is refused leaves the others of its group alone.",
    a_dropped_future: "A dropped future leaves all of its write or none.",
    another_organization_is_not_touched: "Facts of one organization never touch another's.",
    an_unknown_organization: "A write to an organization that does not exist is refused.",
}

async fn entries_follow_the_facts(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let entries =
        org.record(vec![flow_created(100, "a"), flow_created(101, "b"), flow_created(102, "c")]).await?;
    let stored = store.ledger_entries(org.id, 1, 10).await?;
    let expected: Vec<_> =
        stored.iter().map(|entry| Entry { index: entry.index, leaf_hash: entry.leaf_hash }).collect();
    same("the entries answered", entries, expected)?;
    let kept = stored.iter().map(|entry| Fact::read(&entry.payload).ok());
    let expected = [(100, "a"), (101, "b"), (102, "c")].map(|(n, name)| Some(flow_created(n, name)));
    same("the facts", kept.collect(), expected.to_vec())
}

/// The state that a refused write must not change.
async fn unchanged_by(org: &Org, refused: Vec<Fact>, preconditions: Vec<Precondition>) -> Outcome {
    let store = &org.store;
    let before = (store.ledger_head(org.id).await?, store.flow(org.id, "known").await?);
    conflict("the refused write", org.attempt(refused, preconditions).await)?;
    let after = (store.ledger_head(org.id).await?, store.flow(org.id, "known").await?);
    same("the ledger head and the known flow", after, before)?;
    same("the flow of the refused write", store.flow(org.id, "refused").await?, None)?;
    org.attempt(vec![flow_created(200, "refused")], vec![Precondition::Vacant(Key::Flow(named("refused")))])
        .await?;
    Ok(())
}

fn known_flow_described(description: &str) -> Fact {
    Fact::FlowUpdated { record: Flow { description: description.to_owned(), ..flow(100, "known") } }
}

async fn a_failed_precondition_changes_nothing(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![flow_created(100, "known")]).await?;
    let facts =
        vec![flow_created(101, "refused"), known_flow_described("refused"), trail_begun(102, 101, "t")];
    unchanged_by(&org, facts, vec![Precondition::Vacant(Key::Flow(named("known")))]).await?;
    let trail = store.trail(org.id, id(101), "t").await?;
    same("the trail of the refused write", trail, None)
}

async fn a_taken_name_changes_nothing(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![flow_created(100, "known")]).await?;
    let facts =
        vec![flow_created(101, "refused"), known_flow_described("refused"), flow_created(102, "known")];
    unchanged_by(&org, facts, Vec::new()).await
}

/// A fact that makes a record named `name`, for every kind of record whose names are unique in an organization; their
/// ids are `n` and the following. The trail is one of the flow with id `flow`.
fn creations(n: u64, name: &str, flow: u64) -> Vec<Fact> {
    vec![
        Fact::ServiceAccountCreated { record: service_accounts::bare(n, name) },
        flow_created(n + 1, name),
        trail_begun(n + 2, flow, name),
        Fact::EnvironmentCreated { record: environment(n + 3, name) },
        policies::created(n + 4, name),
        attestation_types::created(n + 5, name),
        controls::created(n + 6, name),
    ]
}

pub(super) fn user_created(n: u64, name: &str) -> Fact {
    Fact::UserCreated { record: User { id: id(n), name: named(name), created_at: at(1) } }
}

/// Creations of the same names, and others.
fn creations_twice() -> impl Iterator<Item = (Fact, Fact)> {
    let with_user = |n, user| creations(n, "n", 99).into_iter().chain([user_created(user, "n")]);
    with_user(100, 109).zip(with_user(110, 119))
}

/// An organization with a flow of id 99.
async fn org_with_flow(store: &Arc<dyn Store>) -> Result<Org, Failure> {
    let org = Org::create(store, 1, "foo").await?;
    org.record(vec![flow_created(99, "flow")]).await?;
    Ok(org)
}

async fn names_exist_once(store: Arc<dyn Store>) -> Outcome {
    let org = org_with_flow(&store).await?;
    for (first, again) in creations_twice() {
        org.record(vec![first]).await?;
        conflict(again.kind(), org.attempt(vec![again.clone()], Vec::new()).await)?;
    }
    let foo_again = vec![Fact::OrganizationCreated { record: organization(3, "foo") }];
    let write = Write { org: id(3), ..org.write(foo_again, Vec::new()) };
    conflict("organization_created", store.record(write).await)?;
    same("the refused organization's ledger", store.ledger_head(id(3)).await?, None)
}

async fn a_name_twice_in_a_write(store: Arc<dyn Store>) -> Outcome {
    let org = org_with_flow(&store).await?;
    for (first, again) in creations_twice() {
        let kind = again.kind();
        conflict(kind, org.attempt(vec![first, again], Vec::new()).await)?;
    }
    same("the entries", store.ledger_entries(org.id, 2, 10).await?, Vec::new())
}

async fn names_belong_to_their_place(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![flow_created(98, "first"), flow_created(99, "second")]).await?;
    other.record(vec![flow_created(97, "first")]).await?;
    org.record(creations(100, "n", 98)).await?;
    other.record(creations(110, "n", 97)).await?;
    org.record(vec![trail_begun(120, 99, "n")]).await?;
    org.record(creations(130, "N", 98)).await?;
    let trails = [
        store.trail(org.id, id(98), "n").await?,
        store.trail(other.id, id(97), "n").await?,
        store.trail(org.id, id(99), "n").await?,
        store.trail(org.id, id(98), "N").await?,
        store.trail(org.id, id(97), "n").await?,
    ];
    let found = trails.map(|trail| trail.map(|trail| trail.record.id));
    same("the trails", found, [Some(id(102)), Some(id(112)), Some(id(120)), Some(id(132)), None])
}

async fn vacant_holds_until_there_is_one(store: Arc<dyn Store>) -> Outcome {
    let org = org_with_flow(&store).await?;
    for (n, (fact, _)) in (300..).zip(creations_twice()) {
        let Some(NameEffect::Claim(key, _)) = fact.name_effects().pop() else {
            return Err(Failure("the fact claims no name".to_owned()));
        };
        let precondition = vec![Precondition::Vacant(key)];
        org.attempt(vec![fact.clone()], precondition.clone()).await?;
        let unrelated = vec![flow_created(n, "unrelated")];
        conflict(fact.kind(), org.attempt(unrelated, precondition).await)?;
    }
    let exists = vec![Precondition::Vacant(Key::Organization(named("foo")))];
    conflict("organization_created", org.attempt(vec![flow_created(101, "m")], exists).await)
}

async fn denotes_holds_while_the_name_leads_there(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let key = || Key::Environment(named("prod"));
    let attempt = |n: u64, to: u64| {
        org.attempt(vec![flow_created(n, &n.to_string())], vec![Precondition::Denotes(key(), id(to))])
    };
    conflict("no such name", attempt(300, 100).await)?;
    org.record(vec![env_created(100, "prod")]).await?;
    attempt(301, 100).await?;
    conflict("another record", attempt(302, 101).await)?;
    org.record(vec![env_renamed(100, "prod", "live")]).await?;
    attempt(303, 100).await?;
    org.record(vec![env_created(101, "prod")]).await?;
    conflict("the name was taken", attempt(304, 100).await)?;
    attempt(305, 101).await.map(drop)?;
    Ok(())
}

async fn a_template_name_leads_to_the_artifact_reported_last(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![flow_created(100, "f"), trail_begun(101, 100, "t"), trail_begun(102, 100, "u")]).await?;
    let reported = |n: u64, trail: Option<u64>, name: &str| Fact::ArtifactReported {
        record: Artifact { template_reference_name: name.to_owned(), ..artifact(n, 100, trail, "ab") },
    };
    let denotes = |name: &str, to: u64| {
        vec![Precondition::Denotes(Key::Artifact { trail: id(101), name: name.to_owned() }, id(to))]
    };
    let attempt = async |n: u64, name: &str, to: u64| {
        org.attempt(vec![flow_created(n, &n.to_string())], denotes(name, to)).await
    };
    conflict("nothing was reported", attempt(300, "app", 110).await)?;
    org.record(vec![reported(110, Some(101), "app")]).await?;
    attempt(301, "app", 110).await?;
    for fact in [
        reported(120, Some(101), "other"),
        reported(121, Some(101), ""),
        reported(122, Some(102), "app"),
        reported(123, None, "app"),
    ] {
        org.record(vec![fact]).await?;
    }
    attempt(302, "app", 110).await?;
    conflict("a name in another case", attempt(303, "App", 110).await)?;
    conflict("no name", attempt(304, "", 121).await)?;
    org.record(vec![reported(111, Some(101), "app")]).await?;
    conflict("a later one has it", attempt(305, "app", 110).await)?;
    attempt(306, "app", 111).await?;
    let elsewhere = other.attempt(vec![flow_created(307, "g")], denotes("app", 111)).await;
    conflict("another organization's", elsewhere)?;
    let unguarded = org.attempt(vec![reported(112, Some(101), "app")], Vec::new());
    let guarded = org.attempt(vec![flow_created(308, "h")], denotes("app", 111));
    let (earlier, later) = futures_util::future::join(unguarded, guarded).await;
    earlier?;
    // Whichever came first, the ledger has them in the order in which the precondition held.
    if let Ok(entries) = later {
        let newest = store.ledger_head(org.id).await?.map(|head| head.size() - 1);
        ensure(entries.first().map(|entry| entry.index) < newest, "the guarded write came first")?;
    }
    conflict("the newest of a group", attempt(309, "app", 111).await)
}

async fn the_digest_of_content_leads_to_its_last_report_in_the_trail(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![flow_created(100, "f"), trail_begun(101, 100, "t"), trail_begun(102, 100, "u")]).await?;
    let denotes = |start: &str, to: u64| {
        vec![Precondition::Denotes(Key::Content { trail: id(101), fingerprint: fingerprint(start) }, id(to))]
    };
    let attempt = async |n: u64, start: &str, to: u64| {
        org.attempt(vec![flow_created(n, &n.to_string())], denotes(start, to)).await
    };
    conflict("nothing was reported", attempt(300, "ab", 110).await)?;
    let named = Artifact { template_reference_name: "app".to_owned(), ..artifact(110, 100, Some(101), "ab") };
    org.record(vec![Fact::ArtifactReported { record: named }]).await?;
    attempt(301, "ab", 110).await?;
    for fact in [
        artifact_reported(120, 100, Some(101), "abc"),
        artifact_reported(121, 100, Some(102), "ab"),
        artifact_reported(122, 100, None, "ab"),
    ] {
        org.record(vec![fact]).await?;
    }
    attempt(302, "ab", 110).await?;
    org.record(vec![artifact_reported(111, 100, Some(101), "ab")]).await?;
    conflict("a later report has it", attempt(303, "ab", 110).await)?;
    attempt(304, "ab", 111).await?;
    let elsewhere = other.attempt(vec![flow_created(305, "g")], denotes("ab", 111)).await;
    conflict("another organization's", elsewhere)
}

fn env_created(n: u64, name: &str) -> Fact {
    Fact::EnvironmentCreated { record: environment(n, name) }
}

fn env_renamed(n: u64, was: &str, name: &str) -> Fact {
    Fact::EnvironmentRenamed { record: environment(n, name), was: named(was) }
}

fn env_archived(n: u64, name: &str) -> Fact {
    Fact::EnvironmentArchived { record: environment(n, name) }
}

/// Which environments are found by these names, and which the list shows.
async fn environments(org: &Org, names: &[&str]) -> Result<(Vec<Option<Id>>, Vec<Id>), Failure> {
    let mut found = Vec::new();
    for name in names {
        found.push(org.store.environment(org.id, name).await?.map(|known| known.record.id));
    }
    let listed = org.store.environments(org.id).await?;
    Ok((found, listed.into_iter().map(|known| known.record.id).collect()))
}

async fn a_renamed_record_answers_to_its_former_name(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![env_created(100, "b"), env_created(101, "c")]).await?;
    conflict("a name that is taken", org.attempt(vec![env_renamed(100, "b", "c")], Vec::new()).await)?;
    org.record(vec![env_renamed(100, "b", "d")]).await?;
    let (both, listed) = (vec![Some(id(100)), Some(id(100))], vec![id(101), id(100)]);
    same("after renaming", environments(&org, &["b", "d"]).await?, (both, listed))?;
    let vacant = vec![Precondition::Vacant(Key::Environment(named("b")))];
    org.attempt(vec![env_created(102, "b")], vacant).await?;
    let found = (vec![Some(id(102)), Some(id(100))], vec![id(102), id(101), id(100)]);
    same("after the name was taken", environments(&org, &["b", "d"]).await?, found)?;
    org.record(vec![env_renamed(102, "b", "e"), env_renamed(100, "d", "b")]).await?;
    let found = (vec![Some(id(100)), Some(id(100)), Some(id(102))], vec![id(100), id(101), id(102)]);
    same("after taking it back", environments(&org, &["b", "d", "e"]).await?, found)
}

async fn an_archived_record_gives_up_its_names(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![env_created(100, "a")]).await?;
    org.record(vec![env_renamed(100, "a", "b")]).await?;
    org.record(vec![env_archived(100, "b")]).await?;
    same("after archiving", environments(&org, &["a", "b"]).await?, (vec![None, None], vec![]))?;
    org.record(vec![env_created(101, "b")]).await?;
    let found = (vec![None, Some(id(101))], vec![id(101)]);
    same("after the name was taken", environments(&org, &["a", "b"]).await?, found)
}

/// The record of a name before a write, and the facts of the write. The result equals that of the facts one by one.
async fn names_that_come_and_go_leave_nothing(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    for org in [&org, &other] {
        let n = if org.id == other.id { 200 } else { 100 };
        org.record(vec![env_created(n, "a"), env_created(n + 1, "x")]).await?;
        org.record(vec![env_renamed(n + 1, "x", "y")]).await?;
        let facts = vec![
            env_renamed(n, "a", "b"),
            env_created(n + 2, "a"),
            env_archived(n + 2, "a"),
            env_created(n + 3, "x"),
            env_archived(n + 3, "x"),
        ];
        if org.id == other.id {
            for fact in facts {
                org.record(vec![fact]).await?;
            }
        } else {
            org.record(facts).await?;
        }
        let found = (vec![None, Some(id(n)), None, Some(id(n + 1))], vec![id(n), id(n + 1)]);
        same("what the names lead to", environments(org, &["a", "b", "x", "y"]).await?, found)?;
        let vacant = ["a", "x"].map(|name| Precondition::Vacant(Key::Environment(named(name)))).to_vec();
        org.attempt(vec![env_created(n + 4, "a")], vacant).await?;
    }
    Ok(())
}

async fn names_change_hands_in_one_write(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let facts = vec![
        env_created(100, "a"),
        env_archived(100, "a"),
        env_created(101, "a"),
        env_renamed(101, "a", "b"),
        env_created(102, "a"),
        env_archived(102, "a"),
    ];
    org.record(facts).await?;
    same("after all", environments(&org, &["a", "b"]).await?, (vec![None, Some(id(101))], vec![id(101)]))?;
    let writes = vec![
        org.write(vec![env_archived(101, "b")], Vec::new()),
        org.write(vec![env_created(103, "b")], Vec::new()),
        org.write(vec![env_renamed(103, "b", "c")], Vec::new()),
        org.write(vec![env_created(104, "b")], Vec::new()),
    ];
    for outcome in together(&store, writes).await {
        outcome?;
    }
    let found = (vec![Some(id(104)), Some(id(103))], vec![id(104), id(103)]);
    same("after the group", environments(&org, &["b", "c"]).await?, found)
}

async fn revision_holds_until_the_next_fact(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let unchanged = |revision| vec![Precondition::Revision(RecordKind::Flow, id(100), revision)];
    conflict("no such flow", org.attempt(vec![flow_created(100, "known")], unchanged(0)).await)?;
    org.record(vec![flow_created(100, "known")]).await?;
    org.attempt(vec![known_flow_described("first")], unchanged(1)).await?;
    conflict("the older revision", org.attempt(vec![known_flow_described("late")], unchanged(1)).await)?;
    conflict("a revision to come", org.attempt(vec![known_flow_described("early")], unchanged(3)).await)?;
    org.record(vec![flow_created(101, "other")]).await?;
    org.attempt(vec![known_flow_described("second")], unchanged(2)).await?;
    let known = present("the flow", store.flow(org.id, "known").await?)?;
    same("what won", (known.record.description.as_str(), known.revision), ("second", 4))
}

async fn preconditions_do_not_see_other_organizations(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let key = || Key::Flow(named("known"));
    other.record(vec![flow_created(100, "known")]).await?;
    let update = vec![known_flow_described("wrong")];
    conflict(
        "the other's flow",
        org.attempt(update, vec![Precondition::Revision(RecordKind::Flow, id(100), 1)]).await,
    )?;
    org.attempt(vec![flow_created(101, "known")], vec![Precondition::Vacant(key())]).await?;
    Ok(())
}

async fn revisions_are_ledger_indexes(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![flow_created(100, "known"), trail_begun(101, 100, "t")]).await?;
    let tagged = Fact::FlowTagged { record: flow(100, "known") };
    let updated = Fact::TrailUpdated { record: trail(101, 100, "t"), changes: vec!["nothing".to_owned()] };
    org.record(vec![tagged, updated, attestation_added(102, 100, 101, "a")]).await?;
    let flow = present("the flow", store.flow(org.id, "known").await?)?;
    let trail = present("the trail", store.trail(org.id, id(100), "t").await?)?;
    same("the revisions", (flow.revision, trail.revision), (3, 4))
}

pub(super) const RACERS: u64 = 64;

/// Records the writes side by side, in one task: so that a store which groups writes gets them in one group.
async fn together(store: &Arc<dyn Store>, writes: Vec<Write>) -> Vec<StoreResult<Vec<Entry>>> {
    join_all(writes.into_iter().map(|write| store.record(write))).await
}

/// Exactly one racer won, and the others were told that they met another.
pub(super) fn one_wins(outcomes: &[StoreResult<Vec<Entry>>]) -> Outcome {
    let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let lost = outcomes.iter().filter(|outcome| matches!(outcome, Err(StoreError::Conflict))).count();
    same("racers that won and that met a conflict", (won, lost), (1, outcomes.len() - 1))
}

async fn racers_for_a_name(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let absent = || vec![Precondition::Vacant(Key::Flow(named("known")))];
    let writes = (0..RACERS).map(|n| org.write(vec![flow_created(100 + n, "known")], absent())).collect();
    one_wins(&together(&store, writes).await)?;
    same("the entries", store.ledger_entries(org.id, 0, 100).await?.len(), 2)
}

async fn racers_for_a_revision(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![flow_created(100, "known")]).await?;
    let unchanged = || vec![Precondition::Revision(RecordKind::Flow, id(100), 1)];
    let write = |n: u64| org.write(vec![known_flow_described(&n.to_string())], unchanged());
    let outcomes = together(&store, (0..RACERS).map(write).collect()).await;
    one_wins(&outcomes)?;
    let winner = outcomes.iter().position(Result::is_ok).map(|winner| winner.to_string());
    let found = store.flow(org.id, "known").await?.map(|flow| flow.record.description);
    same("whose description is kept", found, winner)
}

async fn racers_without_preconditions(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let write = |n| org.write(vec![flow_created(100 + n, "known")], Vec::new());
    one_wins(&together(&store, (0..RACERS).map(write).collect()).await)
}

async fn a_refused_racer_spoils_nobody(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let write = |n: u64| {
        let org = if n.is_multiple_of(2) { &org } else { &other };
        let precondition = if n % 4 < 2 {
            Precondition::Vacant(key_of(n))
        } else {
            Precondition::Revision(RecordKind::Flow, id(100 + n), 0)
        };
        org.write(
            vec![flow_created(100 + n, &format!("f{n}")), trail_begun(500 + n, 100 + n, "t")],
            vec![precondition],
        )
    };
    let outcomes = together(&store, (0..RACERS).map(write).collect()).await;
    for (n, outcome) in (0..RACERS).zip(outcomes) {
        if n % 4 < 2 {
            same("the entries of a good write", outcome?.len(), 2)?;
        } else {
            conflict("a bad write", outcome)?;
        }
    }
    for org in [&org, &other] {
        let entries = store.ledger_entries(org.id, 0, 100).await?;
        let indexes: Vec<u64> = entries.iter().map(|entry| entry.index).collect();
        same("the ledger's indexes", indexes, (0..=RACERS / 2).collect())?;
    }
    Ok(())
}

fn key_of(n: u64) -> Key {
    Key::Flow(named(&format!("f{n}")))
}

async fn a_dropped_future(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    for polls in 0..4_u64 {
        let n = 100 + polls * 10;
        let names = [format!("a{polls}"), format!("b{polls}")];
        let facts = vec![flow_created(n, &names[0]), flow_created(n + 1, &names[1])];
        poll_and_drop(store.record(org.write(facts, Vec::new())), polls).await;
        org.record(vec![flow_created(n + 2, &format!("after{polls}"))]).await?;
        let [first, second] = [store.flow(org.id, &names[0]).await?, store.flow(org.id, &names[1]).await?];
        same("whether both flows are there", first.is_some(), second.is_some())?;
        ensure(first.is_none() || polls > 0, "a write that was never begun was recorded")?;
    }
    let entries = store.ledger_entries(org.id, 0, 100).await?;
    same(
        "the ledger's size",
        store.ledger_head(org.id).await?.map(|head| head.size()),
        Some(entries.len() as u64),
    )
}

async fn poll_and_drop(future: impl Future, polls: u64) {
    let mut future = pin!(future);
    for _ in 0..polls {
        let ready = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await;
        if ready {
            return;
        }
    }
}

async fn another_organization_is_not_touched(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    other.record(vec![flow_created(100, "known"), trail_begun(101, 100, "t")]).await?;
    let before = (store.ledger_head(other.id).await?, store.flow(other.id, "known").await?);
    org.record(vec![flow_created(200, "known"), trail_begun(201, 200, "t")]).await?;
    let description = awkward_update(200);
    org.record(vec![description]).await?;
    let after = (store.ledger_head(other.id).await?, store.flow(other.id, "known").await?);
    same("the other organization", after, before)
}

fn awkward_update(n: u64) -> Fact {
    Fact::FlowUpdated { record: Flow { description: awkward(), ..flow(n, "known") } }
}

async fn an_unknown_organization(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let write = Write { org: id(3), ..org.write(vec![flow_created(100, "known")], Vec::new()) };
    ensure(store.record(write).await.is_err(), "the write was accepted")?;
    same("its ledger", store.ledger_head(id(3)).await?, None)?;
    same("its flow", store.flow(id(3), "known").await?, None)
}
