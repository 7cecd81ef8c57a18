//! Checks of [`Transfer`]: what moves from one store to another is the same there, to the byte.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;

use crate::memory::MemoryStore;
use evidence_core::actions::Action;
use evidence_core::auth::KeyHash;
use evidence_core::blobs::{Blobs, CHUNK, Whole};
use evidence_core::builds::BuildFilter;
use evidence_core::digest::sha256_hex;
use evidence_core::fact::{EncodedFact, Fact};
use evidence_core::id::Id;
use evidence_core::leases::{Advance, Lease};
use evidence_core::ledger::Salt;
use evidence_core::name::Fingerprint;
use evidence_core::notifications::{Delivery, DeliveryState, Position};
use evidence_core::page::PageRequest;
use evidence_core::store::{Store, StoreError, StoredEntry};
use evidence_core::time::Timestamp;
use evidence_core::transfer::{
    AttachmentCounts, Copied, CopyError, CopyProgress, Import, Skipped, Summary, Transfer, check_attachments,
    copy,
};

use super::actions::{created, delivery};
use super::fixtures::{
    Org, artifact_reported, at, attestation_added, awkward, environment, flow, flow_created, id, named,
    organization, robot, trail_begun,
};
use super::pending::attested;
use super::recording::user_created;
use super::service_accounts::{bare, give_key, key};
use super::{Failure, Outcome, checkpoints, conflict, ensure, present, promises, same, same_set};

promises! {
    of dyn Transfer;
    organizations_come_by_id: "`organizations` answers at most `limit` by id, beginning after one.",
    key_hashes_are_answered: "`key_hashes` answers those of these keys of one organization.",
    attachments_come_by_digest: "`attachments` answers at most `limit` contents that records of one organization name, by digest, beginning after one.",
    imports_never_turn_time_back: "An import whose entries are older than one before is refused, after one that is there already.",
    corrections_hold_within_an_import: "An entry that turns time back sets back what was recorded before it, by the same import or an earlier one, and nothing after it; of several the earliest holds.",
    imports_keep_the_leaves: "An import enters payload, time and actor as they are, and so gets the same leaves.",
    imports_write_the_rows: "An import writes the rows of its facts, as recording them does.",
    imports_are_whole: "An import whose names are not free is refused, all of it.",
    imports_go_on_at_the_end: "An import that does not begin where the ledger ends is refused.",
    copies_are_equal: "A store that was copied in and out again is the same.",
    copies_take_secret_urls_along: "A copy has the secret URLs of the source, also when entries that name a URL again come later.",
    copies_take_signed_checkpoints_along: "A copy has the last signed checkpoint of each ledger, and takes back none that the target has.",
    copies_go_on_where_they_stopped: "A copy writes what is not there yet, and nothing when all is there.",
    copies_send_nothing_again: "A copy takes along how far each target of actions was sent to, and where that goes on: at most to the end of what was copied.",
    what_comes_in_meanwhile_is_late: "A copy tells what came in at the source meanwhile, and the next one copies it.",
    only_whole_attachments_are_copied: "A copy hands on no content that was altered or is missing, tells each, and copies the rest.",
    attachments_are_checked_where_they_are: "Of the contents that records name, those that were altered, are short or missing elsewhere are told.",
    other_ledgers_are_left_alone: "A copy onto another ledger of the same organization or name is refused.",
}

/// The consumer of the ledgers that sends notifications.
const NOTIFY: &str = "notify";

impl From<CopyError> for Failure {
    fn from(error: CopyError) -> Self {
        Self(format!("the copy failed: {error}"))
    }
}

async fn copied(from: &dyn Transfer, to: &dyn Transfer) -> Result<Summary, CopyError> {
    copy(from.into(), to.into(), &mut |_| {}).await
}

fn memory() -> Arc<dyn Transfer> {
    Arc::new(MemoryStore::new())
}

fn as_store(store: &Arc<dyn Transfer>) -> Arc<dyn Store> {
    Arc::clone(store) as Arc<dyn Store>
}

/// Keeps a content, and records the `n`th attestation, which names it.
async fn attest(org: &Org, n: u64, content: &[u8]) -> Result<Fingerprint, Failure> {
    let sha256 = named(&sha256_hex(content));
    org.store.put(org.id, &sha256, &mut Whole::new(content.to_vec())).await?;
    org.record(vec![attested(n, content)]).await?;
    Ok(sha256)
}

async fn organizations_come_by_id(store: Arc<dyn Transfer>) -> Outcome {
    same("no organizations", store.organizations(None, 10).await?, Vec::new())?;
    let names = [(3, "c"), (1, "b"), (2, "a")];
    for (n, name) in names {
        Org::create(&as_store(&store), n, name).await?;
    }
    for (after, limit, expected) in [
        (None, 10, vec![(1, "b"), (2, "a"), (3, "c")]),
        (None, 2, vec![(1, "b"), (2, "a")]),
        (Some(1), 1, vec![(2, "a")]),
        (Some(2), 10, vec![(3, "c")]),
        (Some(3), 10, vec![]),
        (None, 0, vec![]),
    ] {
        let found = store.organizations(after.map(id), limit).await?;
        let expected = expected.into_iter().map(|(n, name)| organization(n, name)).collect();
        same(&format!("{limit} organizations after {after:?}"), found, expected)?;
    }
    Ok(())
}

async fn key_hashes_are_answered(store: Arc<dyn Transfer>) -> Outcome {
    let (org, other) = Org::two(&as_store(&store)).await?;
    let hashes = ["a", "b", "c"].map(KeyHash::of);
    for (n, hash) in (100..).zip(&hashes) {
        let org = if n == 102 { &other } else { &org };
        give_key(org, key(n, robot(), at(1)), hash).await?;
    }
    let [a, b, c] = hashes;
    let asked = [100, 101, 102, 103].map(id);
    same_set("the keys", store.key_hashes(org.id, &asked).await?, vec![(id(100), a.clone()), (id(101), b)])?;
    same("one key", store.key_hashes(org.id, &[id(100)]).await?, vec![(id(100), a)])?;
    same("the other's key", store.key_hashes(other.id, &asked).await?, vec![(id(102), c)])?;
    same("no key", store.key_hashes(org.id, &[]).await?, Vec::new())
}

async fn attachments_come_by_digest(store: Arc<dyn Transfer>) -> Outcome {
    let (org, other) = Org::two(&as_store(&store)).await?;
    let mut expected = Vec::new();
    for (n, content) in (1000..).zip(["a", "b", "c", "d"]) {
        expected.push(attest(&org, n, content.as_bytes()).await?);
    }
    expected.sort();
    let theirs = attest(&other, 2000, b"e").await?;
    store.put(org.id, &named(&sha256_hex(b"f")), &mut Whole::new("f")).await?;
    same("all", store.attachments(org.id, None, 10).await?, expected.clone())?;
    same("the other's", store.attachments(other.id, None, 10).await?, vec![theirs])?;
    let [first, second, third, fourth] = expected.as_slice() else {
        return Err(Failure("four attachments".to_owned()));
    };
    let after = |last| store.attachments(org.id, Some(last), 2);
    same("after the first", after(first).await?, vec![second.clone(), third.clone()])?;
    same("after the third", after(third).await?, vec![fourth.clone()])?;
    same("after the last", after(fourth).await?, Vec::new())
}

/// The entry of this fact, its payload written as this service would not write it today.
fn oddly_written(index: u64, fact: Fact) -> Result<StoredEntry, Failure> {
    oddly_written_at(index, at(-5), fact)
}

fn oddly_written_at(index: u64, at: Timestamp, fact: Fact) -> Result<StoredEntry, Failure> {
    let failed = |error: serde_json::Error| Failure(error.to_string());
    let payload = serde_json::to_string_pretty(&fact).map_err(failed)?;
    let actor = "user:it's \"jane\"".to_owned();
    let salt = Salt::from_bytes([7; Salt::LEN]);
    Ok(EncodedFact::of_payload(fact, at, actor, payload, salt).into_entry(index, at))
}

/// An organization's creation, and these facts.
fn odd_ledger(facts: Vec<Fact>) -> Result<Vec<StoredEntry>, Failure> {
    let created = Fact::OrganizationCreated { record: organization(1, "foo") };
    (0..).zip([created].into_iter().chain(facts)).map(|(index, fact)| oddly_written(index, fact)).collect()
}

async fn imports_never_turn_time_back(store: Arc<dyn Transfer>) -> Outcome {
    let created = Fact::OrganizationCreated { record: organization(1, "foo") };
    let facts = [created, flow_created(100, "a"), flow_created(101, "b"), flow_created(102, "c")];
    let times = [10, 20, 30, 29].map(at);
    let entries = (0..).zip(facts).zip(times).map(|((index, fact), at)| oddly_written_at(index, at, fact));
    let entries = entries.collect::<Result<Vec<_>, _>>()?;
    let part = |range: Range<usize>| Import::new(id(1), entries.get(range).unwrap_or_default().to_vec());
    ensure(matches!(part(1..4), Err(StoreError::Corrupt { .. })), "within an import")?;
    store.import(part(0..1)?).await?;
    store.import(part(1..3)?).await?;
    let back = store.import(part(3..4)?).await;
    ensure(matches!(back, Err(StoreError::Corrupt { .. })), "from one import to the next")?;
    // An import over existing entries is refused.
    for again in [0..1, 0..3, 1..3] {
        conflict(&format!("{again:?} again"), store.import(part(again)?).await)?;
    }
    same("the entries", store.ledger_entries(id(1), 0, 10).await?.len(), 3)?;
    // But for one that says so.
    let corrected = Fact::ClockCorrected { first: 2, was: at(30) };
    store.import(Import::new(id(1), vec![oddly_written_at(3, at(25), corrected)?])?).await?;
    for (instant, size) in [(24, 2), (25, 4)] {
        same(&format!("the size at {instant}"), store.ledger_size_at(id(1), at(instant)).await?, size)?;
    }
    Ok(())
}

async fn corrections_hold_within_an_import(store: Arc<dyn Transfer>) -> Outcome {
    for (n, name, corrections) in [(1, "foo", [40, 30]), (2, "foobar", [30, 40])] {
        let created = Fact::OrganizationCreated { record: organization(n, name) };
        let first_id = 100 * n;
        let reported = || Fact::EnvironmentReported { environment: id(first_id + 1) };
        let corrected = || Fact::ClockCorrected { first: 3, was: at(1000) };
        let [first, second] = corrections;
        let dated = [
            (10, created),
            (10, flow_created(first_id, "f")),
            (10, Fact::EnvironmentCreated { record: environment(first_id + 1, "prod") }),
            // A clock is ahead.
            (1000, artifact_reported(first_id + 2, first_id, None, "aa")),
            (1000, reported()),
            (1000, artifact_reported(first_id + 3, first_id, None, "bb")),
            (first, corrected()),
            (second, corrected()),
            (45, artifact_reported(first_id + 4, first_id, None, "cc")),
            (45, reported()),
        ];
        let entries =
            (0..).zip(dated).map(|(index, (instant, fact))| oddly_written_at(index, at(instant), fact));
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        let (before, after) = entries.split_at(5);
        for part in [before, after] {
            store.import(Import::new(id(n), part.to_vec())?).await?;
        }
        let filter = BuildFilter { repos: None, from: at(0), to: at(2000) };
        let builds = store.builds(id(n), &filter, PageRequest::ALL).await?.items;
        let times = builds.iter().map(|build| build.at).collect::<Vec<_>>();
        same(&format!("the builds, corrected at {corrections:?}"), times, [45, 30, 30].map(at).to_vec())?;
        let known = present("the environment", store.environment(id(n), "prod").await?)?;
        same("the last report", known.status.reported_at, Some(at(45)))?;
    }
    Ok(())
}

async fn imports_keep_the_leaves(store: Arc<dyn Transfer>) -> Outcome {
    let mut described = flow(100, "known");
    described.description = awkward();
    let entries = odd_ledger(vec![Fact::FlowCreated { record: described }, trail_begun(101, 100, "t")])?;
    store.import(Import::new(id(1), entries.clone())?).await?;
    same("the entries", store.ledger_entries(id(1), 0, 10).await?, entries.clone())?;
    let head = store.ledger_head(id(1)).await?.map(|head| (head.size(), head.root()));
    let leaves: Vec<_> = entries.iter().map(|entry| entry.leaf_hash).collect();
    same("size and root", head, Some((3, evidence_core::ledger::root_of(&leaves))))
}

async fn imports_write_the_rows(store: Arc<dyn Transfer>) -> Outcome {
    let facts = vec![flow_created(100, "known"), trail_begun(101, 100, "t"), user_created(90, "jane")];
    store.import(Import::new(id(1), odd_ledger(facts)?)?).await?;
    let flow = store.flow(id(1), "known").await?.map(|flow| (flow.record.id, flow.revision));
    same("the flow and its revision", flow, Some((id(100), 1)))?;
    let trail = store.trail(id(1), id(100), "t").await?.map(|trail| (trail.record.id, trail.revision));
    same("the trail and its revision", trail, Some((id(101), 2)))?;
    same("the user", store.user("jane").await?.map(|user| user.id), Some(id(90)))?;
    let org = Org { store: as_store(&store), id: id(1) };
    conflict("the same flow again", org.attempt(vec![flow_created(102, "known")], Vec::new()).await)
}

async fn imports_are_whole(store: Arc<dyn Transfer>) -> Outcome {
    let org = Org::create(&as_store(&store), 2, "foobar").await?;
    org.record(vec![user_created(90, "jane")]).await?;
    let import = Import::new(id(1), odd_ledger(vec![flow_created(100, "f"), user_created(91, "jane")])?)?;
    conflict("a name that is taken", store.import(import).await)?;
    same("the ledger", store.ledger_head(id(1)).await?, None)?;
    same("the flow", store.flow(id(1), "f").await?, None)?;
    same("the organizations", store.organizations(None, 10).await?, vec![organization(2, "foobar")])
}

async fn imports_go_on_at_the_end(store: Arc<dyn Transfer>) -> Outcome {
    let entries = odd_ledger((0..5).map(|n| flow_created(100 + n, &format!("f{n}"))).collect())?;
    let part =
        |range: std::ops::Range<usize>| Import::new(id(1), entries.get(range).unwrap_or_default().to_vec());
    ensure(store.import(part(1..2)?).await.is_err(), "a ledger began with its second entry")?;
    store.import(part(0..3)?).await?;
    for range in [0..3, 2..5, 4..6] {
        let what = format!("entries {range:?} after the third");
        conflict(&what, store.import(part(range)?).await)?;
    }
    store.import(part(3..6)?).await?;
    same("the entries", store.ledger_entries(id(1), 0, 10).await?, entries)
}

/// Two organizations that need several pages, with a key, a user and attachments of several chunks.
async fn fill(store: &Arc<dyn Transfer>) -> Result<Org, Failure> {
    let (org, other) = Org::two(&as_store(store)).await?;
    other.record(vec![user_created(90, "jane"), flow_created(500, "known")]).await?;
    org.record(vec![Fact::ServiceAccountCreated { record: bare(91, "robot") }]).await?;
    give_key(&org, key(92, robot(), at(1)), &KeyHash::of("secret")).await?;
    org.record(vec![flow_created(100, "known"), trail_begun(101, 100, "t")]).await?;
    for (n, length) in (3000..).zip([0, 1, CHUNK, 2 * CHUNK + 1]) {
        attest(&org, n, &vec![7; length]).await?;
    }
    for n in 0..296 {
        org.record(vec![attestation_added(1000 + n, 100, 101, "a")]).await?;
    }
    Ok(org)
}

/// Callers see the same in both.
async fn equal(found: &Arc<dyn Transfer>, expected: &Arc<dyn Transfer>) -> Outcome {
    for org in [id(1), id(2)] {
        let [ours, theirs] = [found.ledger_head(org).await?, expected.ledger_head(org).await?];
        same("the head", ours, theirs)?;
        let [ours, theirs] =
            [found.ledger_entries(org, 0, 1000).await?, expected.ledger_entries(org, 0, 1000).await?];
        ensure(ours == theirs, "the ledger's entries are others")?;
        let [ours, theirs] = [found.flow(org, "known").await?, expected.flow(org, "known").await?];
        same("the flow", ours, theirs)?;
        let [ours, theirs] =
            [found.attachments(org, None, 10).await?, expected.attachments(org, None, 10).await?];
        same("the attachments", ours, theirs.clone())?;
        for sha256 in &theirs {
            let [ours, theirs] = [content(found, org, sha256).await?, content(expected, org, sha256).await?];
            ensure(ours == theirs, "the content of an attachment is another")?;
        }
    }
    let hash = KeyHash::of("secret");
    same("the key", found.key_holder(&hash).await?, expected.key_holder(&hash).await?)
}

async fn content(store: &Arc<dyn Transfer>, org: Id, sha256: &Fingerprint) -> Result<Vec<Bytes>, Failure> {
    let mut chunks = Vec::new();
    while let Some(chunk) = store.get_chunk(org, sha256, chunks.len() as u64).await? {
        chunks.push(chunk);
    }
    Ok(chunks)
}

async fn copies_are_equal(store: Arc<dyn Transfer>) -> Outcome {
    let (source, back) = (memory(), memory());
    fill(&source).await?;
    let expected = Summary {
        organizations: 2,
        entries: 308,
        new_entries: 308,
        attachments: AttachmentCounts { copied: 4, ..AttachmentCounts::default() },
        ..Summary::default()
    };
    same("the copy in", copied(&*source, &*store).await?, expected)?;
    equal(&store, &source).await?;
    same("the copy out", copied(&*store, &*back).await?, expected)?;
    equal(&back, &source).await
}

async fn copies_go_on_where_they_stopped(store: Arc<dyn Transfer>) -> Outcome {
    let source = memory();
    let org = fill(&source).await?;
    let begun = source.ledger_entries(org.id, 0, 2).await?;
    store.import(Import::new(org.id, begun)?).await?;
    let summary = copied(&*source, &*store).await?;
    same("what was new", (summary.new_entries, summary.attachments.copied), (306, 4))?;
    let summary = copied(&*source, &*store).await?;
    same("what was new the second time", (summary.new_entries, summary.attachments.copied), (0, 0))?;
    attest(&org, 4000, b"later").await?;
    let summary = copied(&*source, &*store).await?;
    same("what came later", (summary.new_entries, summary.attachments.copied), (1, 1))?;
    ensure(summary.is_complete(), "something is late that came in before the copy")?;
    equal(&store, &source).await
}

async fn copies_take_signed_checkpoints_along(store: Arc<dyn Transfer>) -> Outcome {
    let from = memory();
    let org = Org::create(&as_store(&from), 1, "foo").await?;
    let mut last = None;
    // The second time with nothing new, and the third after more entries.
    for (number, fact) in [None, None, Some(flow_created(100, "a"))].into_iter().enumerate() {
        if let Some(fact) = fact {
            org.record(vec![fact]).await?;
        }
        let note = checkpoints::note(&as_store(&from), &org, 1).await?;
        let before = from.signed_checkpoint(org.id).await?;
        from.replace_signed_checkpoint(org.id, before.as_deref(), Some(&note)).await?;
        copied(&*from, &*store).await?;
        same(&format!("after step {number}"), store.signed_checkpoint(org.id).await?, Some(note.clone()))?;
        last = Some(note);
    }
    // The target's is later: its server signed meanwhile.
    let earlier = from.signed_checkpoint(org.id).await?;
    org.record(vec![flow_created(101, "b")]).await?;
    copied(&*from, &*store).await?;
    let later = checkpoints::note(&as_store(&store), &org, 1).await?;
    store.replace_signed_checkpoint(org.id, last.as_deref(), Some(&later)).await?;
    copied(&*from, &*store).await?;
    same("the source's", from.signed_checkpoint(org.id).await?, earlier)?;
    same("the target's", store.signed_checkpoint(org.id).await?, Some(later))
}

async fn copies_take_secret_urls_along(store: Arc<dyn Transfer>) -> Outcome {
    let from = memory();
    let org = Org::create(&as_store(&from), 1, "foo").await?;
    let Fact::ActionCreated { record } = created(100, 1, "a") else {
        return Err(Failure("another fact".to_owned()));
    };
    let changed = Fact::ActionUpdated {
        record: Action { triggers: Vec::new(), ..record.clone() },
        was: None,
        removed: Vec::new(),
        removed_urls: Vec::new(),
    };
    // Each copy continues the previous one.
    let steps = [
        vec![Fact::ActionCreated { record: record.clone() }],
        vec![changed],
        vec![created(101, 2, "b")],
        vec![Fact::ActionDeleted { record }],
    ];
    let kept = async |store: &Arc<dyn Transfer>| {
        let mut kept = store.secret_urls(org.id, &[1_100, 1_101].map(id)).await?;
        kept.sort_by_key(|(id, _)| *id);
        Ok::<_, Failure>(kept)
    };
    for (number, (facts, count)) in steps.into_iter().zip([1, 1, 2, 1]).enumerate() {
        org.record(facts).await?;
        copied(&*from, &*store).await?;
        let expected = kept(&from).await?;
        same(&format!("the number at the source after step {number}"), expected.len(), count)?;
        same(&format!("after step {number}"), kept(&store).await?, expected)?;
    }
    Ok(())
}

async fn copies_send_nothing_again(store: Arc<dyn Transfer>) -> Outcome {
    let source = memory();
    let org = fill(&source).await?;
    org.record(vec![created(1100, 1, "on-start"), created(1200, 2, "on-stop")]).await?;
    let holder = id(77);
    let lease = Lease { name: NOTIFY.to_owned(), holder, expires_at: at(1_000) };
    ensure(source.acquire_lease(&lease, at(1)).await?, "the lease is not free")?;
    let (mut position, mut revision) = (0, 0);
    for to in [40, 41] {
        let advance = Advance { consumer: NOTIFY.to_owned(), org: org.id, holder, from: position, to };
        ensure(source.advance_cursor(&advance, at(1)).await?, "the cursor does not move")?;
        position = to;
        // The target of the other action has nothing to do yet.
        let sent = Delivery { state: to_event(to), revision, ..delivery(&org, 2100, true) };
        ensure(source.put_delivery(&sent, None).await?, "the delivery is not kept")?;
        revision += 1;
        for _ in 0..2 {
            copied(&*source, &*store).await?;
            same("where notifications go on", store.cursor(NOTIFY, org.id).await?, to)?;
            let mut found = store.deliveries(org.id, &[id(2100), id(2200)]).await?;
            found.iter_mut().for_each(|delivery| delivery.revision = 0);
            same("what was sent", found, vec![Delivery { revision: 0, ..sent.clone() }])?;
        }
    }
    // The source sent notifications of entries that came in meanwhile.
    let size = present("the ledger", source.ledger_head(org.id).await?)?.size();
    let beyond = size + 5;
    let advance = Advance { consumer: NOTIFY.to_owned(), org: org.id, holder, from: position, to: beyond };
    ensure(source.advance_cursor(&advance, at(1)).await?, "the cursor does not move")?;
    let sent = Delivery { state: to_event(beyond), revision, ..delivery(&org, 2100, true) };
    ensure(source.put_delivery(&sent, None).await?, "the delivery is not kept")?;
    copied(&*source, &*store).await?;
    same("where notifications go on", store.cursor(NOTIFY, org.id).await?, size)?;
    let found = store.deliveries(org.id, &[id(2100)]).await?;
    let next = found.into_iter().map(|delivery| delivery.state.next).collect();
    same("what is sent next", next, vec![Position { entry: size, event: 0 }])?;
    // No server has to wait for a lease of the copy's.
    let lease = Lease { expires_at: at(1_001), holder: id(78), ..lease };
    ensure(store.acquire_lease(&lease, at(1)).await?, "the copy holds the lease")
}

fn to_event(entry: u64) -> DeliveryState {
    DeliveryState::first(id(1100), Position { entry, event: 1 })
}

async fn what_comes_in_meanwhile_is_late(store: Arc<dyn Transfer>) -> Outcome {
    let source = memory();
    let org = fill(&source).await?;
    let mut progress = |progress: CopyProgress| {
        if matches!(progress, CopyProgress::Organization(Copied { organization, .. }) if organization.as_str() == "foo")
        {
            // A store in memory never waits; that it recorded is seen below.
            org.record(vec![flow_created(400, "meanwhile")]).now_or_never();
        }
    };
    let summary = copy((&*source).into(), (&*store).into(), &mut progress).await?;
    same("what is late", (summary.late_entries, summary.is_complete()), (1, false))?;
    same("what was copied", summary.new_entries, 308)?;
    let summary = copied(&*source, &*store).await?;
    same("what is new", (summary.new_entries, summary.is_complete()), (1, true))?;
    equal(&store, &source).await
}

/// The attachments that a copy wrote, and those that it skipped.
async fn attachments_copied(
    from: &dyn Transfer,
    to: &dyn Transfer,
) -> Result<(AttachmentCounts, Vec<(Fingerprint, Skipped)>), Failure> {
    let mut skipped = Vec::new();
    let mut progress = |progress: CopyProgress| {
        if let CopyProgress::Skipped { sha256, reason, .. } = progress {
            skipped.push((sha256, reason));
        }
    };
    let summary = copy(from.into(), to.into(), &mut progress).await?;
    same("what is late", summary.late_entries, 0)?;
    Ok((summary.attachments, skipped))
}

async fn only_whole_attachments_are_copied(store: Arc<dyn Transfer>) -> Outcome {
    let source = memory();
    let org = Org::create(&as_store(&source), 1, "foo").await?;
    let whole = vec![7; 2 * CHUNK + 1];
    let sha256: Fingerprint = named(&sha256_hex(&whole));
    org.record(vec![attested(1000, &whole)]).await?;
    let counts = |copied, missing, altered| AttachmentCounts { copied, missing, altered, unreadable: 0 };
    let missing = (counts(0, 1, 0), vec![(sha256.clone(), Skipped::Missing)]);
    same("what is missing", attachments_copied(&*source, &*store).await?, missing.clone())?;
    same("what still is", attachments_copied(&*source, &*store).await?, missing)?;
    let altered = [vec![7; 2 * CHUNK], [8].into()].concat();
    for (n, kept) in (2000..).zip([altered, vec![7; 2 * CHUNK], vec![7; CHUNK - 1], vec![7; 2 * CHUNK + 2]]) {
        let what = format!("a copy of {} altered bytes", kept.len());
        source.put(org.id, &sha256, &mut Whole::new(kept)).await?;
        attest(&org, n, what.as_bytes()).await?;
        let altered = (counts(1, 0, 1), vec![(sha256.clone(), Skipped::Altered)]);
        same(&what, attachments_copied(&*source, &*store).await?, altered)?;
        same("what was copied", store.get_chunk(org.id, &sha256, 0).await?, None)?;
    }
    same("what nothing names yet", store.pending(None, 10).await?, Vec::new())?;
    source.put(org.id, &sha256, &mut Whole::new(whole)).await?;
    same("what is new", attachments_copied(&*source, &*store).await?, (counts(1, 0, 0), Vec::new()))?;
    same("it", content(&store, org.id, &sha256).await?, content(&source, org.id, &sha256).await?)
}

async fn attachments_are_checked_where_they_are(store: Arc<dyn Transfer>) -> Outcome {
    let (org, other) = Org::two(&as_store(&store)).await?;
    let place = MemoryStore::new();
    let mut expected = Vec::new();
    for (n, (attached, kept, fault)) in (1000..).zip([
        ("whole", Some("whole"), None),
        ("altered", Some("changed"), Some("does not match its hash")),
        ("short", Some("shor"), Some("does not match its hash")),
        ("longer", Some("longer "), Some("does not match its hash")),
        ("empty", Some(""), Some("is missing or empty")),
        ("missing", None, Some("is missing or empty")),
    ]) {
        let sha256: Fingerprint = named(&sha256_hex(attached.as_bytes()));
        org.record(vec![attested(n, attached.as_bytes())]).await?;
        if let Some(kept) = kept {
            place.put(org.id, &sha256, &mut Whole::new(kept)).await?;
        }
        expected.extend(fault.map(|fault| format!("organization foo: the attachment {sha256} {fault}")));
    }
    expected.sort();
    // The content of one organization is not another's.
    other.record(vec![attested(2000, b"whole")]).await?;
    let sha256 = sha256_hex(b"whole");
    expected.push(format!("organization foobar: the attachment {sha256} is missing or empty"));
    let mut told = Vec::new();
    check_attachments(&*store, &place, &mut |problem| told.push(problem)).await?;
    same("what is told", told, expected)
}

async fn other_ledgers_are_left_alone(store: Arc<dyn Transfer>) -> Outcome {
    let source = memory();
    fill(&source).await?;
    let org = Org::create(&as_store(&store), 2, "foobar").await?;
    org.record(vec![flow_created(100, "mine")]).await?;
    let head = store.ledger_head(org.id).await?;
    match copied(&*source, &*store).await {
        Err(CopyError::Diverged(name)) => same("the organization", name, named("foobar"))?,
        other => return Err(Failure(format!("a copy onto another ledger answered {other:?}"))),
    }
    same("the head", store.ledger_head(org.id).await?, head)?;
    let namesake = memory();
    Org::create(&as_store(&namesake), 3, "foobar").await?;
    match copied(&*namesake, &*store).await {
        Err(CopyError::Refused(name)) => same("the organization", name, named("foobar"))?,
        other => return Err(Failure(format!("a copy of a namesake answered {other:?}"))),
    }
    same("the namesake's ledger", store.ledger_head(id(3)).await?, None)
}
