//! Checks of [`evidence_core::store::LedgerStore`]: one ledger an organization, without fork or gap, that anyone can verify.

use std::sync::Arc;

use evidence_core::artifacts::Artifact;
use evidence_core::attestations::Attestation;
use evidence_core::auth::KeyHash;
use evidence_core::builds::BuildFilter;
use evidence_core::deployments::{DeploymentFilter, DeploymentScope};
use evidence_core::fact::{Fact, Write};
use evidence_core::id::Id;
use evidence_core::ledger::{self, Frontier, Hash, Needs, root_of};
use evidence_core::page::PageRequest;
use evidence_core::snapshots::Snapshot;
use evidence_core::store::{Leaf, Store, StoredEntry};
use evidence_core::time::Timestamp;

use super::fixtures::{
    Org, artifact, artifact_reported, at, attestation, awkward, environment, fingerprint, flow, flow_created,
    id, robot, trail_begun,
};
use super::snapshots::snapshot;
use super::{Failure, Outcome, ensure, present, promises, same, service_accounts};

promises! {
    a_ledger_begins_with_its_organization: "An organization's ledger begins with its creation; others have none.",
    entries_are_what_was_written: "An entry carries the time, actor, kind and payload that the caller gave.",
    leaves_can_be_recomputed: "Indexes have no gap, and every hash follows from what it covers.",
    the_head_follows_every_write: "Leaf, interior nodes and head change in the same transaction.",
    entries_come_in_pages: "`ledger_entries` answers at most `limit` entries from `first` on.",
    leaves_are_those_of_the_entries: "`ledger_leaves` answers each entry without its payload, but with its size.",
    entries_have_times: "`ledger_times` tells when entries were recorded, by the ledger's time.",
    a_ledger_has_grown_by_a_time: "`ledger_size_at` counts the entries up to an instant, whatever clocks did.",
    a_correction_dates_entries_from_the_future: "An entry that turns time back has exactly the time of its write; earlier entries of a later time count as recorded then, wherever rows are found or shown by time.",
    records_are_found_by_id: "`record_entry` answers the last entry about a record of one organization.",
    entries_are_found_by_index: "`ledger_entries_at` passes over unknown indexes and other organizations' entries.",
    pages_end_after_some_megabytes: "`ledger_entries` answers no entry that so many bytes of others come before, and always one.",
    inclusion_can_be_proved: "`ledger_hashes` answers what inclusion proofs need.",
    growth_can_be_proved: "`ledger_hashes` answers what consistency proofs need.",
    unknown_hashes_are_passed_over: "`ledger_hashes` answers as far as leaves and nodes exist.",
    ledgers_are_apart: "Each organization has one ledger of its own.",
    no_key_hash_in_the_ledger: "The hashes of keys are kept beside the ledger, never in it.",
    the_store_is_ready: "`ready` answers once the store can be read and written, and records nothing.",
}

pub(super) async fn whole(store: &Arc<dyn Store>, org: Id) -> Result<Vec<StoredEntry>, Failure> {
    Ok(store.ledger_entries(org, 0, PageRequest::ALL.limit).await?)
}

fn flows(numbers: std::ops::Range<u64>) -> Vec<Fact> {
    numbers.map(|n| flow_created(1000 + n, &format!("f{n}"))).collect()
}

async fn a_ledger_begins_with_its_organization(store: Arc<dyn Store>) -> Outcome {
    same("the head of no organization", store.ledger_head(id(1)).await?, None)?;
    let org = Org::create(&store, 1, "foo").await?;
    let entries = whole(&store, org.id).await?;
    let kinds: Vec<_> = entries.iter().map(|entry| (entry.index, entry.kind.as_str())).collect();
    same("the entries", kinds, vec![(0, "organization_created")])?;
    same("the sizes", store.ledger_sizes(&[org.id, id(3), org.id]).await?, vec![(org.id, 1)])?;
    same("the sizes of no organization", store.ledger_sizes(&[]).await?, vec![])?;
    same("the entries of no organization", whole(&store, id(3)).await?, Vec::new())
}

async fn entries_are_what_was_written(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let mut record = flow(100, "known");
    record.description = awkward();
    let fact = Fact::FlowCreated { record };
    // Time never goes back in a ledger: an entry by a clock that is behind has the time of the one before.
    for (n, (by_the_clock, when)) in (1..).zip([(at(8), at(8)), (at(9), at(9)), (at(3), at(9))]) {
        let fact = if n == 1 { fact.clone() } else { Fact::FlowTagged { record: flow(100, "known") } };
        let write = Write { by: robot(), at: by_the_clock, ..org.write(vec![fact.clone()], Vec::new()) };
        store.record(write).await?;
        let entry = store.ledger_entries(org.id, n, 1).await?.pop();
        let entry = present("the entry", entry)?;
        let found = (entry.kind.as_str(), entry.at, entry.actor.as_str());
        same("kind, time and actor", found, (fact.kind(), when, robot().to_string().as_str()))?;
        same("the payload", Fact::read(&entry.payload).ok(), Some(fact))?;
    }
    Ok(())
}

pub(super) fn leaves(entries: &[StoredEntry]) -> Vec<Hash> {
    entries.iter().map(|entry| entry.leaf_hash).collect()
}

async fn leaves_can_be_recomputed(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(flows(0..20)).await?;
    let entries = whole(&store, org.id).await?;
    same("the number of entries", entries.len(), 21)?;
    sound(&entries)
}

/// Entries from the first on have no gap, and say truly what they hash.
pub(super) fn sound(entries: &[StoredEntry]) -> Outcome {
    for (index, entry) in (0..).zip(entries) {
        same("the index", entry.index, index)?;
        same("whether the payload has its hash", entry.payload_matches(), true)?;
        same("the leaf hash", entry.leaf_hash, entry.header().leaf_hash())?;
    }
    Ok(())
}

async fn the_head_follows_every_write(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let mut next = 0;
    for size in [1, 2, 3, 15, 16, 17, 1] {
        org.record(flows(next..next + size)).await?;
        next += size;
        let head = present("the head", store.ledger_head(org.id).await?)?;
        let leaves = leaves(&whole(&store, org.id).await?);
        same("the size", head.size(), leaves.len() as u64)?;
        same("the root", head.root(), root_of(&leaves))?;
        let mut frontier = Frontier::default();
        for leaf in leaves {
            frontier.append(leaf);
        }
        same("the frontier", head, frontier)?;
    }
    Ok(())
}

async fn entries_come_in_pages(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    org.record(flows(0..9)).await?;
    for (first, limit, expected) in [
        (0, 3, 0..3),
        (3, 3, 3..6),
        (8, 5, 8..10),
        (9, 1, 9..10),
        (10, 5, 10..10),
        (0, 0, 0..0),
        (2, 0, 2..2),
    ] {
        let entries = store.ledger_entries(org.id, first, limit).await?;
        let indexes = entries.iter().map(|entry| entry.index).collect();
        same(&format!("{limit} entries from {first} on"), indexes, expected.collect::<Vec<u64>>())?;
    }
    Ok(())
}

async fn leaves_are_those_of_the_entries(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    org.record(vec![flow_created(100, "a"), Fact::TextKept { text: "größer".to_owned() }]).await?;
    other.record(vec![flow_created(101, "b")]).await?;
    for (first, limit) in [(0, 100), (0, 2), (1, 1), (2, 1), (9, 1), (0, 0)] {
        let entry = |StoredEntry { index, kind, at, actor, payload_hash, payload, leaf_hash, .. }| {
            let bytes = String::len(&payload) as u64;
            Leaf { index, kind, at, actor, payload_hash, bytes, leaf_hash }
        };
        let expected = store.ledger_entries(org.id, first, limit).await?.into_iter().map(entry).collect();
        let leaves = store.ledger_leaves(org.id, first, limit).await?;
        same(&format!("{limit} leaves from {first} on"), leaves, expected)?;
    }
    same("of nobody", store.ledger_leaves(id(3), 0, 1).await?, Vec::new())
}

async fn records_are_found_by_id(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let first = present("the head", store.ledger_head(org.id).await?)?.size();
    let facts = vec![
        flow_created(100, "shop"),
        trail_begun(200, 100, "t1"),
        artifact_reported(300, 100, Some(200), "a"),
        Fact::AttestationAdded { record: attestation(400, 100, 200, "unit-tests") },
        Fact::EnvironmentCreated { record: environment(500, "prod") },
        Fact::LedgerNamed { name: "a/2".to_owned(), former: "a\n1\nb\n\n\u{2014} a c\n".to_owned() },
        Fact::FlowTagged { record: flow(100, "shop") },
    ];
    org.record(facts).await?;
    for (what, record, expected) in [
        ("a flow", 100, Some(6)),
        ("a trail", 200, Some(1)),
        ("an artifact", 300, Some(2)),
        ("an attestation", 400, Some(3)),
        ("an environment", 500, Some(4)),
        ("nothing", 999, None),
    ] {
        let expected = expected.map(|index| first + index);
        same(what, store.record_entry(org.id, id(record)).await?, expected)?;
        same("of another organization", store.record_entry(other.id, id(record)).await?, None)?;
    }
    Ok(())
}

async fn pages_end_after_some_megabytes(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let megabytes = [3, 3, 0, 5, 0];
    for (n, megabytes) in (0..).zip(megabytes) {
        org.record(vec![Fact::TextKept { text: format!("{n}{}", "x".repeat(megabytes << 20)) }]).await?;
    }
    for (first, limit, expected) in [
        (0, 100, 0..3),
        (1, 100, 1..3),
        (1, 1, 1..2),
        (2, 100, 2..5),
        (3, 100, 3..5),
        (4, 100, 4..5),
        (5, 100, 5..6),
    ] {
        let entries = store.ledger_entries(org.id, first, limit).await?;
        let indexes = entries.iter().map(|entry| entry.index).collect();
        same(&format!("{limit} entries from {first} on"), indexes, expected.collect::<Vec<u64>>())?;
    }
    Ok(())
}

/// An organization with a ledger of 300 leaves, so that nodes of levels 4 and 8 are stored.
async fn grown(store: &Arc<dyn Store>) -> Result<(Org, Vec<Hash>), Failure> {
    let org = Org::create(store, 1, "foo").await?;
    for numbers in [0..100, 100..101, 101..299] {
        org.record(flows(numbers)).await?;
    }
    let leaves = leaves(&whole(store, org.id).await?);
    same("the size", leaves.len(), 300)?;
    Ok((org, leaves))
}

async fn a_ledger_has_grown_by_a_time(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let first = store.ledger_head(org.id).await?.map_or(0, |head| head.size());
    // A clock goes back, and the ledger's time does not.
    for (n, instant) in [(100, 10), (101, 20), (102, 15), (103, 20), (104, 30)] {
        org.record_at(instant, vec![flow_created(n, &format!("f{n}"))]).await?;
    }
    for (instant, more) in [(9, 0), (10, 1), (11, 1), (19, 1), (20, 4), (29, 4), (30, 5), (99, 5)] {
        same(&format!("at {instant}"), store.ledger_size_at(org.id, at(instant)).await?, first + more)?;
    }
    same("before it began", store.ledger_size_at(org.id, at(0)).await?, 0)?;
    same("of the other", store.ledger_size_at(other.id, at(99)).await?, first)?;
    let ends = [i64::MIN, i64::MAX].map(Timestamp::from_micros);
    for (instant, size) in ends.into_iter().zip([0, first + 5]) {
        same(&format!("{instant:?}"), store.ledger_size_at(org.id, instant).await?, size)?;
    }
    same("of nobody", store.ledger_size_at(id(3), at(99)).await?, 0)
}

async fn a_correction_dates_entries_from_the_future(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let size = async || Ok::<_, Failure>(store.ledger_head(org.id).await?.map_or(0, |head| head.size()));
    let taken = |index, instant, start: &str| {
        let snapshot = Snapshot { at: at(instant), ..snapshot(101, index, &[start], &[]) };
        Fact::SnapshotTaken { snapshot }
    };
    let begun = vec![
        flow_created(100, "f"),
        trail_begun(110, 100, "t"),
        Fact::EnvironmentCreated { record: environment(101, "prod") },
        artifact_reported(201, 100, Some(110), "aa"),
    ];
    org.record_at(10, begun).await?;
    let first = size().await?;
    // A clock is ahead, and by right clocks entries are dated as the one before.
    let ahead = vec![
        Fact::ArtifactReported {
            record: Artifact { created_at: at(1000), ..artifact(202, 100, Some(110), "bb") },
        },
        Fact::AttestationAdded {
            record: Attestation { created_at: at(1000), ..attestation(301, 100, 110, "unit") },
        },
        taken(1, 1000, "bb"),
        Fact::EnvironmentReported { environment: id(101) },
    ];
    org.record_at(1000, ahead).await?;
    org.record_at(15, vec![artifact_reported(203, 100, Some(110), "cc")]).await?;
    other.record_at(1000, vec![flow_created(102, "f")]).await?;
    let correction = size().await?;
    let corrected = Fact::ClockCorrected { first, was: at(1000) };
    org.record_at(20, vec![corrected, artifact_reported(204, 100, Some(110), "dd")]).await?;
    let late = vec![artifact_reported(205, 100, Some(110), "ee"), taken(2, 30, "ee")];
    org.record_at(30, late).await?;
    let all = size().await?;

    for (instant, expected) in
        [(9, 1), (10, first), (19, first), (20, correction + 2), (29, correction + 2), (30, all)]
    {
        let found = store.ledger_size_at(org.id, at(instant)).await?;
        same(&format!("the size at {instant}"), found, expected)?;
    }
    let others = store.ledger_size_at(other.id, at(999)).await?;
    same("the other's size", others, 1)?;
    let entries = whole(&store, org.id).await?;
    sound(&entries)?;
    let times = entries.iter().map(|entry| (entry.at, entry.effective_at));
    let expected = entries.iter().map(|entry| match entry.index {
        0 => (at(7), at(7)),
        index if index < first => (at(10), at(10)),
        index if index < correction => (at(1000), at(20)),
        index if index < correction + 2 => (at(20), at(20)),
        _ => (at(30), at(30)),
    });
    same("the times", times.collect::<Vec<_>>(), expected.collect())?;
    let mut found = store.ledger_times(org.id, &[first, correction, 1]).await?;
    found.sort_unstable();
    same("the effective times", found, vec![(1, at(10)), (first, at(20)), (correction, at(20))])?;
    same("the newest entry", store.newest_entry().await?, Some(at(1000)))?;
    for (from, to, expected) in [
        (0, 19, vec![201]),
        (20, 20, vec![204, 203, 202]),
        (21, 30, vec![205]),
        (31, 2000, vec![]),
        (0, 2000, vec![205, 204, 203, 202, 201]),
    ] {
        let filter = BuildFilter { repos: None, from: at(from), to: at(to) };
        let found = store.builds(org.id, &filter, PageRequest::ALL).await?.items;
        let reports = found.iter().map(|build| build.report).collect::<Vec<_>>();
        same(&format!("the builds from {from} to {to}"), reports, expected.into_iter().map(id).collect())?;
        let (scope, from, to) = (DeploymentScope::Organization, at(from), at(to));
        let filter = DeploymentFilter { scope, environments: None, flow: None, from, to };
        let found = store.deployments(org.id, &filter, PageRequest::ALL).await?.items;
        let times = found.iter().map(|deployment| deployment.at).collect::<Vec<_>>();
        let expected = [at(30), at(20)].into_iter().filter(|time| from <= *time && *time <= to);
        same(&format!("the deployments from {from} to {to}"), times, expected.collect())?;
    }
    for (instant, expected) in [(19, 0), (20, 1), (29, 1), (30, 2)] {
        let found = store.snapshot_at(org.id, id(101), at(instant)).await?;
        same(&format!("the snapshot at {instant}"), found, expected)?;
    }
    let rows = store.snapshots(org.id, &[(id(101), 1..=2)]).await?;
    let rows = rows.iter().map(|row| (row.at, row.until)).collect::<Vec<_>>();
    same("the snapshots", rows, vec![(at(20), Some(at(30))), (at(30), None)])?;
    let runs = store.runs(org.id, &[fingerprint("bb")], 9).await?;
    same("the run", runs.iter().map(|run| run.from.1).collect::<Vec<_>>(), vec![at(20)])?;
    let known = present("the environment", store.environment(org.id, "prod").await?)?;
    same("the last report", known.status.reported_at, Some(at(30)))?;
    let contents = present("the trail", store.trail_contents(org.id, &[id(110)]).await?.pop())?;
    let artifact = contents.artifacts.iter().find(|row| row.id == id(202)).map(|row| row.at);
    same("the artifact in its trail", artifact, Some(at(20)))?;
    let attestation = contents.attestations.iter().find(|row| row.id == id(301)).map(|row| row.at);
    same("the attestation in its trail", attestation, Some(at(20)))?;
    let reports = store.reports(org.id, id(100), &fingerprint("bb")).await?;
    same("the report", reports.iter().map(|row| row.at).collect::<Vec<_>>(), vec![at(20)])?;
    let origins = store.provenance(org.id, &[fingerprint("bb")], u64::MAX).await?;
    same("the origin", origins.iter().map(|one| one.report.at).collect::<Vec<_>>(), vec![at(20)])?;
    let named = store.attestations(org.id, &[id(110)], "unit").await?;
    same("the named attestation", named.iter().map(|one| one.row.at).collect::<Vec<_>>(), vec![at(20)])?;
    // The record itself stays.
    let taken = present("the snapshot", store.snapshot(org.id, id(101), 1).await?)?;
    same("the time that the snapshot has", taken.record.at, at(1000))
}

async fn entries_have_times(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    let first = store.ledger_head(org.id).await?.map_or(0, |head| head.size());
    // A clock goes back, and the ledger's time does not.
    for (n, instant) in [(100, 10), (101, 20), (102, 15)] {
        org.record_at(instant, vec![flow_created(n, &format!("f{n}"))]).await?;
    }
    let mut found = store.ledger_times(org.id, &[first + 2, first, 999]).await?;
    found.sort_unstable();
    same("the times", found, vec![(first, at(10)), (first + 2, at(20))])?;
    same("of no entry", store.ledger_times(org.id, &[]).await?, Vec::new())?;
    same("of the other", store.ledger_times(other.id, &[first]).await?, Vec::new())?;
    same("of nobody", store.ledger_times(id(3), &[0]).await?, Vec::new())
}

async fn entries_are_found_by_index(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    for n in 0..3 {
        org.record(vec![flow_created(100 + n, &n.to_string())]).await?;
    }
    let mut found = store.ledger_entries_at(org.id, &[3, 1, u64::MAX, 9, 3]).await?;
    found.sort_by_key(|entry| entry.index);
    let mut expected = store.ledger_entries(org.id, 1, 3).await?;
    expected.remove(1);
    same("the entries", found, expected)?;
    same("at no index", store.ledger_entries_at(org.id, &[]).await?, Vec::new())?;
    let found = store.ledger_entries_at(other.id, &[1, 2, 3]).await?;
    same("of another organization", found, store.ledger_entries(other.id, 1, 3).await?)
}

async fn inclusion_can_be_proved(store: Arc<dyn Store>) -> Outcome {
    let (org, leaves) = grown(&store).await?;
    for (index, size) in [(0, 1), (0, 300), (15, 16), (16, 33), (99, 100), (255, 256), (256, 300), (299, 300)]
    {
        let known = store.ledger_hashes(org.id, &ledger::inclusion_needs(index, size)).await?;
        let path = ledger::inclusion(index, size, &known).map_err(|error| Failure(error.to_string()))?;
        let tree = leaves.get(..size as usize).unwrap_or_default();
        let leaf = present("the leaf", tree.get(index as usize))?;
        let proved = ledger::verify_inclusion(*leaf, index, size, &path, root_of(tree));
        ensure(proved, &format!("the inclusion of leaf {index} in {size} is not proved"))?;
    }
    Ok(())
}

async fn growth_can_be_proved(store: Arc<dyn Store>) -> Outcome {
    let (org, leaves) = grown(&store).await?;
    let root = |size: u64| root_of(leaves.get(..size as usize).unwrap_or_default());
    for (old, new) in
        [(1, 2), (7, 300), (16, 300), (100, 256), (255, 257), (256, 300), (299, 300), (300, 300)]
    {
        let known = store.ledger_hashes(org.id, &ledger::consistency_needs(old, new)).await?;
        let path = ledger::consistency(old, new, &known).map_err(|error| Failure(error.to_string()))?;
        let proved = ledger::verify_consistency(old, new, root(old), root(new), &path);
        ensure(proved, &format!("the growth from {old} to {new} leaves is not proved"))?;
    }
    Ok(())
}

async fn unknown_hashes_are_passed_over(store: Arc<dyn Store>) -> Outcome {
    let (org, _) = grown(&store).await?;
    let needs =
        Needs { leaves: vec![0..1, 298..310, 400..500], nodes: vec![(4, 0), (4, 18), (8, 0), (8, 1)] };
    let known = store.ledger_hashes(org.id, &needs).await?;
    same("the leaves", known.leaves.into_keys().collect(), vec![0, 298, 299])?;
    same("the nodes", known.nodes.into_keys().collect(), vec![(4, 0), (8, 0)])?;
    let nothing = store.ledger_hashes(org.id, &Needs::default()).await?;
    ensure(nothing.leaves.is_empty() && nothing.nodes.is_empty(), "no needs were answered with something")?;
    let nowhere = store.ledger_hashes(id(3), &needs).await?;
    ensure(nowhere.leaves.is_empty() && nowhere.nodes.is_empty(), "an unknown organization has hashes")
}

async fn ledgers_are_apart(store: Arc<dyn Store>) -> Outcome {
    let (org, other) = Org::two(&store).await?;
    for n in 0..20 {
        org.record(flows(n..n + 1)).await?;
        other.record(flows(100 + 2 * n..102 + 2 * n)).await?;
    }
    for (org, size) in [(&org, 21), (&other, 41)] {
        let entries = whole(&store, org.id).await?;
        same("the number of entries", entries.len(), size)?;
        let head = present("the head", store.ledger_head(org.id).await?)?;
        same("the root", head.root(), root_of(&leaves(&entries)))?;
        let known =
            store.ledger_hashes(org.id, &Needs { leaves: vec![0..16, 16..50], nodes: vec![(4, 0)] }).await?;
        same("the leaves", known.leaves.into_values().collect(), leaves(&entries))?;
        let first = leaves(&entries).get(..16).map(root_of);
        same("the node over the first 16", known.nodes.into_values().next(), first)?;
    }
    Ok(())
}

async fn no_key_hash_in_the_ledger(store: Arc<dyn Store>) -> Outcome {
    let org = Org::create(&store, 1, "foo").await?;
    let hash = KeyHash::of("secret");
    service_accounts::give_key(&org, service_accounts::key(100, robot(), at(1)), &hash).await?;
    for entry in whole(&store, org.id).await? {
        ensure(!entry.payload.contains(hash.as_str()), "a payload contains the hash of a key")?;
    }
    Ok(())
}

async fn the_store_is_ready(store: Arc<dyn Store>) -> Outcome {
    Ok(store.ready().await?)
}
