//! Checks of [`evidence_core::snapshots::SnapshotStore`]: snapshots are recorded as changes and read back as what ran.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde_json::json;

use evidence_core::artifacts::Artifact;
use evidence_core::digest::sha256_hex;
use evidence_core::fact::{Fact, Key, Precondition};
use evidence_core::id::Id;
use evidence_core::json::{JsonFields, JsonText};
use evidence_core::ledger::Hash;
use evidence_core::name::Fingerprint;
use evidence_core::page::{Listed, PageRequest};
use evidence_core::rules::compliance::State;
use evidence_core::rules::policy::UnknownCondition;
use evidence_core::snapshots::{
    Annotation, AppliedPolicy, ArtifactKey, LiveBuild, LogicalVerdict, PolicyOutcome, Progress, Provenance,
    Run, RunningArtifact, Snapshot, SnapshotEntry, SnapshotRow,
};
use evidence_core::store::{Current, Store};

use super::fixtures::{
    Org, artifact, at, awkward, environment, fingerprint, flow_created, free_form, id, named, user_data,
};
use super::{Failure, Outcome, conflict, ensure, present, promises, same};

promises! {
    snapshots_read_back: "Snapshots and their instances are what was recorded, absent options too.",
    a_number_is_taken_once: "Of the snapshots of an environment one has each number.",
    what_ran_in_each_snapshot: "`instances` answers what ran in a snapshot and what exited with it, by artifact key.",
    what_has_no_digest_runs_by_its_name: "What has no digest is told apart by its name, from what has one too.",
    snapshots_are_listed: "`snapshots` answers the lines of ranges by environment and number, as far as there are any.",
    snapshots_are_found_by_time: "`snapshot_at` answers the newest snapshot at or before an instant.",
    progress_is_told_by_the_ledger: "`progress` answers how many snapshots and events an environment had before an entry.",
    runs_are_ordered: "`runs` is ordered by environment, fingerprint and first snapshot, however often what runs changed, and tells which environments are archived.",
    the_first_run_is_shown_with_the_newest: "`runs` answers an artifact's first run in an environment and its newest ones.",
    builds_of_a_repo_run: "`live_builds` answers what runs now that one of the newest reports of the repo is about, by environment name and fingerprint, without archived environments.",
    nothing_ran_elsewhere: "Unknown environments, snapshots and fingerprints have nothing, and others are not shown.",
}

pub(super) fn instance(start: &str, from: u64) -> RunningArtifact {
    RunningArtifact {
        fingerprint: Some(fingerprint(start)),
        name: start.to_owned(),
        other_names: Vec::new(),
        created: vec![1_700_000_000],
        context: JsonFields::default(),
        from,
        since: from,
        annotation: Annotation { kind: "started-compliant".to_owned(), was: 0, now: 1 },
        compliant: None,
        provenance: Vec::new(),
        source: None,
        judged_by: None,
        violates: Vec::new(),
        outcomes: Vec::new(),
        inputs: None,
        not_evaluated: None,
        allowed_by: None,
    }
}

/// The same, of a run that began before.
pub(super) fn changed(start: &str, since: u64, from: u64) -> RunningArtifact {
    RunningArtifact { since, ..instance(start, from) }
}

/// An artifact without a digest, by this name.
pub(super) fn undigested(name: &str, from: u64) -> RunningArtifact {
    RunningArtifact { fingerprint: None, name: name.to_owned(), ..instance("", from) }
}

/// The results of a policy's rules.
fn outcome(policy: u16, rules: &str) -> PolicyOutcome {
    PolicyOutcome { policy, rules: rules.into(), unknown: Vec::new() }
}

fn context(text: &JsonText) -> JsonFields {
    serde_json::from_str(text.as_str()).unwrap_or_default()
}

pub(super) fn snapshot(environment: u64, index: u64, changes: &[&str], exits: &[&str]) -> Snapshot {
    Snapshot {
        environment: id(environment),
        index,
        at: taken(index),
        compliant: index.is_multiple_of(2),
        reported: true,
        rests_on: index.is_multiple_of(2).then_some(7 * index),
        requires_provenance: index.is_multiple_of(2),
        events_before: 0,
        skipped_elements: index,
        policies: Vec::new(),
        demanded: Vec::new(),
        logical: verdicts(index),
        changes: changes.iter().map(|start| instance(start, index)).collect(),
        exits: exits.iter().map(|start| ArtifactKey::from(&fingerprint(start))).collect(),
    }
}

/// Some snapshots say something about logical environments.
fn verdicts(index: u64) -> Vec<LogicalVerdict> {
    let verdict = |n, compliant| LogicalVerdict { environment: id(n), policies: vec![id(n + 1)], compliant };
    match index {
        3 => vec![verdict(7, true), verdict(8, false)],
        _ => Vec::new(),
    }
}

pub(super) fn taken(index: u64) -> evidence_core::time::Timestamp {
    at(100 * i64::try_from(index).unwrap_or_default())
}

pub(super) fn snapshot_taken(snapshot: Snapshot) -> Fact {
    Fact::SnapshotTaken { snapshot }
}

async fn snapshots_read_back(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let provenance = |n, state, reason: Option<String>| Provenance {
        artifact: id(n),
        state,
        reason,
        flow: None,
        reference: String::new(),
    };
    let unknown = UnknownCondition { rule: 2, flow: 1, why: awkward() };
    let full = RunningArtifact {
        name: awkward(),
        other_names: vec![String::new(), awkward()],
        created: vec![-1, 0, 1_700_000_000],
        context: context(&user_data()),
        annotation: Annotation { kind: "changed".to_owned(), was: 7, now: 3 },
        compliant: Some(false),
        provenance: vec![
            provenance(108, State::Incomplete, Some(awkward())),
            provenance(107, State::Compliant, None),
        ],
        judged_by: Some(Hash::of("policies")),
        violates: vec![0, 7, 99],
        outcomes: vec![outcome(0, "p-"), PolicyOutcome { unknown: vec![unknown], ..outcome(99, "-+m/-ta") }],
        inputs: Some(Hash::of("inputs")),
        not_evaluated: Some(awkward()),
        allowed_by: Some(7),
        ..instance("bb", 1)
    };
    let bare = RunningArtifact { created: Vec::new(), ..instance("aa", 1) };
    let first = Snapshot {
        policies: vec![
            AppliedPolicy { policy: id(106), version: 3 },
            AppliedPolicy { policy: id(105), version: 1 },
        ],
        changes: vec![full.clone(), bare.clone()],
        ..snapshot(100, 1, &[], &[])
    };
    let second = snapshot(100, 2, &[], &["bb", "aa"]);
    org.record(vec![Fact::EnvironmentCreated { record: environment(100, "prod") }]).await?;
    for (index, record) in [(1, first), (2, second)] {
        let taken = org.record(vec![snapshot_taken(record.clone())]).await?;
        let revision = taken.first().map(|entry| entry.index).unwrap_or_default();
        same("as taken", store.snapshot(org.id, id(100), index).await?, Some(Current { revision, record }))?;
    }
    let placed =
        |exited| [&bare, &full].map(|instance| SnapshotEntry { instance: instance.clone(), exited }).to_vec();
    same("what runs", store.instances(org.id, id(100), 1).await?, placed(false))?;
    same("what exited", store.instances(org.id, id(100), 2).await?, placed(true))
}

async fn a_number_is_taken_once(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(vec![Fact::EnvironmentCreated { record: environment(100, "prod") }]).await?;
    let vacant = |index| vec![Precondition::Vacant(Key::Snapshot { environment: id(100), index })];
    org.attempt(vec![snapshot_taken(snapshot(100, 1, &["aa"], &[]))], vacant(1)).await?;
    let again = || vec![snapshot_taken(snapshot(100, 1, &["bb"], &[]))];
    conflict("the precondition", org.attempt(again(), vacant(1)).await)?;
    conflict("the number", org.attempt(again(), Vec::new()).await)?;
    let both = vec![snapshot_taken(snapshot(100, 2, &[], &[])), snapshot_taken(snapshot(100, 2, &[], &[]))];
    conflict("twice in a write", org.attempt(both, vacant(2)).await)
}

/// `prod` of `foo` with five snapshots, `test` with one, and `prod` of `foobar` with one.
///
/// ```text
/// prod   1   2   3   4   5        test   1
/// aa     ●───────●───○            aa     ●──
/// bb     ●───○       ●────
/// cc         ●────────────
/// ```
pub(super) async fn several(store: &Arc<dyn Store>) -> Result<(Org, Org), Failure> {
    let (org, other) = Org::two(store).await?;
    let created = |n, name| Fact::EnvironmentCreated { record: environment(n, name) };
    org.record(vec![created(101, "prod"), created(100, "test")]).await?;
    other.record(vec![created(200, "prod")]).await?;
    other.record(vec![snapshot_taken(snapshot(200, 1, &["aa", "dd"], &[]))]).await?;
    let story: [(&[&str], &[&str]); 5] =
        [(&["bb", "aa"], &[]), (&["cc"], &["bb"]), (&[], &[]), (&["bb"], &["aa"]), (&[], &[])];
    let mut events_before = 0;
    for (index, (changes, exits)) in (1..).zip(story) {
        let mut taken = Snapshot { events_before, ..snapshot(101, index, changes, exits) };
        if index == 3 {
            taken.changes.push(changed("aa", 1, 3));
        }
        events_before = taken.events_with();
        org.record(vec![snapshot_taken(taken)]).await?;
    }
    org.record(vec![snapshot_taken(snapshot(100, 1, &["aa"], &[]))]).await?;
    Ok((org, other))
}

async fn what_ran_in_each_snapshot(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    let story: [&[(&str, u64, bool)]; 5] = [
        &[("aa", 1, false), ("bb", 1, false)],
        &[("aa", 1, false), ("bb", 1, true), ("cc", 2, false)],
        &[("aa", 3, false), ("cc", 2, false)],
        &[("aa", 3, true), ("bb", 4, false), ("cc", 2, false)],
        &[("bb", 4, false), ("cc", 2, false)],
    ];
    for (index, expected) in (1..).zip(story) {
        let place = |(start, from, exited): &(&str, u64, bool)| SnapshotEntry {
            instance: if *start == "aa" { changed("aa", 1, *from) } else { instance(start, *from) },
            exited: *exited,
        };
        let found = store.instances(org.id, id(101), index).await?;
        same(&format!("snapshot {index}"), found, expected.iter().map(place).collect())?;
    }
    Ok(())
}

/// Twice the same name without and with a digest, a name longer than an index takes, and one that gets a digest.
async fn what_has_no_digest_runs_by_its_name(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let created = |n, name| Fact::EnvironmentCreated { record: environment(n, name) };
    org.record(vec![created(100, "prod"), created(101, "test")]).await?;
    let long = awkward().repeat(500);
    let first = vec![
        undigested("web", 1),
        RunningArtifact { name: "web".to_owned(), ..instance("aa", 1) },
        undigested(&long, 1),
    ];
    let task = json!({ "ecs_context": { "task_arn": awkward(), "cluster_name": null } });
    let seen_otherwise =
        RunningArtifact { context: context(&free_form(&task.to_string())), since: 1, ..undigested("web", 2) };
    let digested = RunningArtifact { name: "web".to_owned(), ..instance("bb", 3) };
    let story = [
        (first.clone(), vec![]),
        (vec![seen_otherwise.clone()], vec![]),
        (vec![digested.clone()], vec![seen_otherwise.key()]),
        (vec![], vec![ArtifactKey::new(None, &long)]),
    ];
    for (index, (changes, exits)) in (1..).zip(story) {
        let record = Snapshot { changes, exits, ..snapshot(100, index, &[], &[]) };
        org.record(vec![snapshot_taken(record.clone())]).await?;
        let taken = store.snapshot(org.id, id(100), index).await?.map(|current| current.record);
        same("as taken", taken, Some(record))?;
    }
    let elsewhere = Snapshot { changes: vec![undigested("web", 1)], ..snapshot(101, 1, &[], &[]) };
    org.record(vec![snapshot_taken(elsewhere)]).await?;

    let [web, aa, long] = [0, 1, 2].map(|at| first.get(at).cloned());
    let ran = |instance: &Option<RunningArtifact>| {
        instance.clone().map(|instance| SnapshotEntry { instance, exited: false })
    };
    let gone = |instance: &Option<RunningArtifact>| {
        instance.clone().map(|instance| SnapshotEntry { instance, exited: true })
    };
    let (seen_otherwise, digested) = (Some(seen_otherwise), Some(digested));
    let expected = [
        vec![ran(&web), ran(&aa), ran(&long)],
        vec![ran(&seen_otherwise), ran(&aa), ran(&long)],
        vec![gone(&seen_otherwise), ran(&digested), ran(&aa), ran(&long)],
        vec![ran(&digested), ran(&aa), gone(&long)],
    ];
    for (index, expected) in (1..).zip(expected) {
        let mut expected: Vec<_> = expected.into_iter().flatten().collect();
        expected.sort_by_key(|placed| placed.instance.key());
        let found = store.instances(org.id, id(100), index).await?;
        same(&format!("snapshot {index}"), found, expected)?;
    }
    let found = store.instances(org.id, id(101), 1).await?;
    same("in the other environment", found, Vec::from_iter(ran(&web)))?;

    let digest_of_a_name: Fingerprint = named(&sha256_hex(b"web"));
    let asked = [fingerprint("aa"), fingerprint("bb"), digest_of_a_name];
    let runs = store.runs(org.id, &asked, 10).await?.into_iter();
    let runs: Vec<_> = runs.map(|run| (run.fingerprint, run.from.0)).collect();
    same("the runs", runs, vec![(fingerprint("aa"), 1), (fingerprint("bb"), 3)])
}

async fn snapshots_are_listed(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    let line = |index: u64| SnapshotRow {
        environment: id(101),
        index,
        at: taken(index),
        until: (index < 5).then(|| taken(index + 1)),
        compliant: index.is_multiple_of(2),
        events: [2, 4, 5, 7, 7]
            .into_iter()
            .nth(usize::try_from(index - 1).unwrap_or_default())
            .unwrap_or_default(),
        // After the organization and two environments.
        revision: index + 2,
        logical: verdicts(index),
    };
    let cases = [
        (1..=5, vec![1, 2, 3, 4, 5]),
        (2..=4, vec![2, 3, 4]),
        (4..=9, vec![4, 5]),
        (5..=5, vec![5]),
        (7..=9, vec![]),
        (0..=0, vec![]),
        (RangeInclusive::new(4, 3), vec![]),
        (0..=PageRequest::ALL.limit, vec![1, 2, 3, 4, 5]),
    ];
    for (range, expected) in cases {
        let what = format!("{range:?}");
        let found = store.snapshots(org.id, &[(id(101), range)]).await?;
        same(&what, found, expected.into_iter().map(line).collect())?;
    }
    let ranges = [(id(100), 1..=3), (id(101), 4..=5), (id(999), 1..=9), (id(101), 2..=2)];
    let found = store.snapshots(org.id, &ranges).await?;
    let found = Vec::from_iter(found.iter().map(|row| (row.environment, row.index)));
    same("of several", found, vec![(id(100), 1), (id(101), 2), (id(101), 4), (id(101), 5)])?;
    same("of none", store.snapshots(org.id, &[]).await?, Vec::new())
}

async fn progress_is_told_by_the_ledger(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = several(&store).await?;
    let rows = store.snapshots(org.id, &[(id(101), 1..=5)]).await?;
    let mut asked = vec![(id(101), 0), (id(999), u64::from(u32::MAX))];
    let mut expected = vec![Progress::default(); 2];
    let mut before = Progress::default();
    for row in rows {
        asked.extend([(id(101), row.revision), (id(101), row.revision + 1)]);
        let with = Progress { snapshots: row.index, events: row.events };
        expected.extend([before, with]);
        before = with;
    }
    asked.extend([(id(101), u64::from(u32::MAX)), (id(101), u64::from(u32::MAX))]);
    expected.extend([before, before]);
    asked.reverse();
    expected.reverse();
    same("of one", store.progress(org.id, &asked).await?, expected)?;
    same("of nothing", store.progress(org.id, &[]).await?, Vec::new())?;
    let strange = store.progress(other.id, &[(id(101), u64::from(u32::MAX))]).await?;
    same("of another organization", strange, vec![Progress::default()])
}

async fn snapshots_are_found_by_time(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = several(&store).await?;
    let micros = |index, more| evidence_core::time::Timestamp::from_micros(taken(index).as_micros() + more);
    for (instant, expected) in
        [(micros(1, -1), 0), (micros(1, 0), 1), (micros(3, -1), 2), (micros(3, 0), 3), (micros(5, 1), 5)]
    {
        let found = store.snapshot_at(org.id, id(101), instant).await?;
        same(&format!("at {instant:?}"), found, expected)?;
    }
    org.record(vec![Fact::EnvironmentCreated { record: environment(102, "twice") }]).await?;
    for index in 1..=3 {
        let taken = Snapshot { at: taken(index.min(2)), ..snapshot(102, index, &[], &[]) };
        org.record(vec![snapshot_taken(taken)]).await?;
    }
    for (instant, expected) in [(micros(2, -1), 1), (micros(2, 0), 3), (micros(3, 0), 3)] {
        let found = store.snapshot_at(org.id, id(102), instant).await?;
        same(&format!("of equal times at {instant:?}"), found, expected)?;
    }
    same("of another organization", store.snapshot_at(other.id, id(101), taken(5)).await?, 0)?;
    same("of no environment", store.snapshot_at(org.id, id(999), taken(5)).await?, 0)
}

fn run((environment, name): (u64, &str), start: &str, from: u64, until: Option<u64>) -> Run {
    let place = |index| (index, taken(index));
    Run {
        fingerprint: fingerprint(start),
        environment: id(environment),
        environment_name: named(name),
        archived: false,
        from: place(from),
        until: until.map(place),
    }
}

async fn runs_are_ordered(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = several(&store).await?;
    let (test, prod) = ((100, "test"), (101, "prod"));
    let expected = vec![
        run(test, "aa", 1, None),
        run(prod, "aa", 1, Some(4)),
        run(prod, "bb", 1, Some(2)),
        run(prod, "bb", 4, None),
    ];
    let asked = ["bb", "ee", "aa", "dd", "aa"].map(fingerprint);
    same("the runs", store.runs(org.id, &asked, 10).await?, expected.clone())?;
    org.record(vec![Fact::EnvironmentArchived { record: environment(101, "prod") }]).await?;
    let archived = expected.into_iter().map(|run| Run { archived: run.environment == id(101), ..run });
    same("of an archived environment", store.runs(org.id, &asked, 10).await?, archived.collect())?;
    same("of no artifacts", store.runs(org.id, &[], 10).await?, Vec::new())
}

/// In place of a report, whose size depends on the store.
const LISTED: Listed = Listed { id: Id::NONE, bytes: 0 };

async fn builds_of_a_repo_run(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let created = |n, name| Fact::EnvironmentCreated { record: environment(n, name) };
    let built = |n, start: &str, repo: Option<u64>| {
        let flow = if n < 250 { 110 } else { 160 };
        let record = Artifact { repo: repo.map(id), ..artifact(n, flow, None, start) };
        Fact::ArtifactReported { record }
    };
    org.record(vec![created(100, "test"), created(101, "Prod"), created(102, "old"), flow_created(110, "a")])
        .await?;
    org.record(vec![
        built(200, "aa", Some(300)),
        built(201, "bb", Some(301)),
        built(202, "cc", Some(300)),
        built(203, "dd", None),
        // Of a later report, too; of several of a repo by its first.
        built(204, "bb", Some(300)),
        built(205, "aa", Some(301)),
        built(206, "cc", Some(300)),
    ])
    .await?;
    same("nothing", store.live_builds(org.id, id(300), 10, 10).await?, Vec::new())?;
    org.record(vec![snapshot_taken(snapshot(100, 1, &["cc", "aa", "bb", "dd", "ee"], &[]))]).await?;
    let judged = RunningArtifact { compliant: Some(false), ..instance("aa", 1) };
    let first = Snapshot { changes: vec![judged, undigested("aa", 1)], ..snapshot(101, 1, &[], &[]) };
    org.record(vec![snapshot_taken(first), snapshot_taken(snapshot(102, 1, &["aa"], &[]))]).await?;
    org.record(vec![Fact::EnvironmentArchived { record: environment(102, "old") }]).await?;
    // One ends, and one goes on differently.
    let next = Snapshot { changes: vec![changed("cc", 1, 2)], ..snapshot(100, 2, &[], &["aa"]) };
    org.record(vec![snapshot_taken(next)]).await?;
    other.record(vec![created(150, "test"), flow_created(160, "a"), built(250, "aa", Some(300))]).await?;
    other.record(vec![snapshot_taken(snapshot(150, 1, &["aa", "cc"], &[]))]).await?;

    let live = |report: u64, environment: u64, start: &str, compliant| {
        let (name, since) = (start.to_owned(), (1, taken(1)));
        (id(report), LiveBuild { report: LISTED, environment: id(environment), name, since, compliant })
    };
    let all = [live(200, 101, "aa", Some(false)), live(204, 100, "bb", None), live(202, 100, "cc", None)];
    for limit in [0, 1, 2, 3, 9] {
        let found = store.live_builds(org.id, id(300), 9, limit).await?;
        ensure(found.iter().all(|live| live.report.bytes > 100), "a report has a size")?;
        let found = found.into_iter().map(|live| (live.report.id, LiveBuild { report: LISTED, ..live }));
        let first = all.iter().zip(0..limit).map(|(live, _)| live.clone());
        same(&format!("{limit} of them"), found.collect::<Vec<_>>(), first.collect())?;
    }
    let names = |found: Vec<LiveBuild>| found.into_iter().map(|live| (live.report.id, live.name));
    let found = names(store.live_builds(org.id, id(301), 9, 9).await?).collect::<Vec<_>>();
    same("of another repo", found, vec![(id(205), "aa".to_owned()), (id(201), "bb".to_owned())])?;
    for (reports, expected) in
        [(0, vec![]), (1, vec![206]), (2, vec![204, 206]), (3, vec![204, 202]), (4, vec![200, 204, 202])]
    {
        let found = store.live_builds(org.id, id(300), reports, 9).await?;
        let found = Vec::from_iter(found.into_iter().map(|live| live.report.id));
        same(
            &format!("of the newest {reports} reports"),
            found,
            Vec::from_iter(expected.into_iter().map(id)),
        )?;
    }
    let found = names(store.live_builds(other.id, id(300), 9, 9).await?).collect::<Vec<_>>();
    same("of another organization", found, vec![(id(250), "aa".to_owned())])?;
    same("of no repo", store.live_builds(org.id, id(999), 9, 9).await?, Vec::new())
}

/// In `prod` two artifacts take turns, the first of them over and over and the other once; in `test` one runs on.
async fn the_first_run_is_shown_with_the_newest(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let created = |n, name| Fact::EnvironmentCreated { record: environment(n, name) };
    org.record(vec![created(101, "prod"), created(100, "test")]).await?;
    org.record(vec![snapshot_taken(snapshot(100, 1, &["aa"], &[]))]).await?;
    let story: [(&[&str], &[&str]); 8] = [
        (&["aa", "bb"], &[]),
        (&[], &["aa"]),
        (&["aa"], &[]),
        (&[], &["aa", "bb"]),
        (&["aa"], &[]),
        (&[], &["aa"]),
        (&["aa"], &[]),
        (&["bb"], &[]),
    ];
    for (index, (changes, exits)) in (1..).zip(story) {
        org.record(vec![snapshot_taken(snapshot(101, index, changes, exits))]).await?;
    }
    let (test, prod) = ((100, "test"), (101, "prod"));
    let aa = [(1, Some(2)), (3, Some(4)), (5, Some(6)), (7, None)]
        .map(|(from, until)| run(prod, "aa", from, until));
    let bb = [(1, Some(4)), (8, None)].map(|(from, until)| run(prod, "bb", from, until));
    for (newest, shown) in
        [(0, vec![0]), (1, vec![0, 3]), (2, vec![0, 2, 3]), (3, vec![0, 1, 2, 3]), (9, vec![0, 1, 2, 3])]
    {
        let shown = shown.into_iter().filter_map(|place: usize| aa.get(place).cloned());
        let last = bb.iter().take(if newest == 0 { 1 } else { 2 }).cloned();
        let expected = std::iter::once(run(test, "aa", 1, None)).chain(shown).chain(last).collect();
        let found = store.runs(org.id, &[fingerprint("bb"), fingerprint("aa")], newest).await?;
        same(&format!("the first and {newest}"), found, expected)?;
    }
    Ok(())
}

async fn nothing_ran_elsewhere(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = several(&store).await?;
    let places: [(&Org, Id, u64); 5] = [
        (&org, id(101), 0),
        (&org, id(101), 6),
        (&org, id(200), 1),
        (&other, id(101), 1),
        (&org, id(999), 1),
    ];
    for (org, environment, index) in places {
        let what = format!("snapshot {index} of {environment}");
        same(&what, store.snapshot(org.id, environment, index).await?, None)?;
        same(&what, store.instances(org.id, environment, index).await?, Vec::new())?;
    }
    let rows = store.snapshots(org.id, &[(id(200), 1..=5)]).await?;
    same("the other's lines", rows, Vec::new())?;
    let runs = store.runs(other.id, &[fingerprint("aa")], 10).await?;
    let run = present("the run", runs.first())?;
    same("the other's runs", (runs.len(), run.environment), (1, id(200)))
}
