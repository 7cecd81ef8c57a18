//! Tests of the SQLite store beyond the contract: groups of writes, and reopened files.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use evidence_core::auth::{Actor, ActorKind};
use evidence_core::blobs::{Blobs, CHUNK, Whole};
use evidence_core::fact::UnknownFields;
use evidence_core::flows::{Flow, FlowFilter, FlowStore, Visibility};
use evidence_core::id::{Id, SystemRandom};
use evidence_core::leases::{Lease, LeaseStore};
use evidence_core::ledger::{Hash, Header, Needs, payload_hash, root_of};
use evidence_core::orgs::OrgStore;
use evidence_core::orgs::User;
use evidence_core::page::PageRequest;
use evidence_core::queue::Refused;
use evidence_core::seed::Seed;
use evidence_core::store::{LedgerStore, Recorder, StoreResult};
use evidence_core::tags::{TagFilter, Tags};
use evidence_core::texts::{TextRef, TextStore};
use evidence_core::time::Timestamp;
use evidence_core::{Entry, Evidence, Fact, Key, Precondition, Settings, StoreError, Write};
use evidence_store_sqlite::rusqlite::Connection;
use evidence_store_sqlite::{ConnectError, Options, Sqlite, SqliteStore};
use tempfile::TempDir;

const NOW: Timestamp = Timestamp::from_seconds(1_776_252_299);

/// A store in a directory of its own, with the organizations `acme` and `beta`.
struct Bench {
    directory: TempDir,
    store: Arc<SqliteStore>,
    org: Id,
    actor: Actor,
}

impl Bench {
    async fn new() -> Self {
        Self::with(&Options::default()).await
    }

    async fn with(options: &Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Sqlite::open_with(directory.path().join("e.db"), options).await.unwrap());
        let seed = Seed {
            user: "jane".parse().unwrap(),
            orgs: ["acme", "beta"].map(|org| org.parse().unwrap()).to_vec(),
            api_key: None,
        };
        let key = Evidence::new(store.clone(), Settings::default()).seed(&seed).await.unwrap();
        let holder = store.key_holder(&key.hash()).await.unwrap().expect("the key that was seeded");
        let actor = Actor { id: holder.actor.id, name: "jane".to_owned(), kind: ActorKind::User };
        let standing = store.org_role("acme", actor.id).await.unwrap().expect("the organization");
        Self { directory, store, org: standing.organization.id, actor }
    }

    fn flow(&self, name: &str) -> Flow {
        Flow {
            id: Id::new(NOW, &SystemRandom),
            name: name.parse().unwrap(),
            description: "builds".to_owned(),
            visibility: Visibility::Private,
            template: None,
            template_id: Id::new(NOW, &SystemRandom),
            tags: Tags::from([("team".to_owned(), "a%b".to_owned())]),
            created_at: NOW,
            created_by: self.actor.clone(),
            former_names: Vec::new(),
            archived_at: None,
            unknown: UnknownFields::default(),
        }
    }

    fn write(&self, facts: Vec<Fact>, preconditions: Vec<Precondition>) -> Write {
        Write { preconditions, ..Write::new(self.org, self.actor.clone(), NOW, facts, &SystemRandom) }
    }

    async fn create(&self, flow: &Flow) -> StoreResult<Vec<Entry>> {
        self.store.record(self.write(vec![Fact::FlowCreated { record: flow.clone() }], vec![])).await
    }

    fn count(&self, table: &str) -> i64 {
        let connection = Connection::open(self.directory.path().join("e.db")).unwrap();
        connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    }

    fn execute(&self, sql: &str) {
        Connection::open(self.directory.path().join("e.db")).unwrap().execute_batch(sql).unwrap();
    }
}

#[tokio::test]
async fn what_was_recorded_is_there_after_the_file_is_opened_again() {
    let bench = Bench::new().await;
    let flow = bench.flow("build");
    let entries = bench.create(&flow).await.unwrap();
    let Bench { directory, store, org, .. } = bench;
    drop(store);

    let store = Sqlite::open(directory.path().join("e.db")).await.unwrap();
    let found = store.flow(org, "build").await.unwrap().expect("the flow");
    assert_eq!((found.record, found.revision), (flow, entries[0].index));
    assert_eq!(store.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test]
async fn a_name_is_taken_once_however_many_race_for_it() {
    let bench = Bench::new().await;
    for round in 0..8 {
        let name = format!("race-{round}");
        let mut racers = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let flow = bench.flow(&name);
            let precondition = Precondition::Vacant(Key::Flow(flow.name.clone()));
            let write = bench.write(vec![Fact::FlowCreated { record: flow }], vec![precondition]);
            let store = bench.store.clone();
            racers.spawn(async move { store.record(write).await });
        }
        let outcomes = racers.join_all().await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(StoreError::Conflict))));
    }
}

#[tokio::test]
async fn one_bad_write_spoils_nobody_elses() {
    let bench = Bench::new().await;
    bench.create(&bench.flow("known")).await.unwrap();
    let taken = bench.actor.id;
    let mut writes = tokio::task::JoinSet::new();
    for number in 0..40 {
        // Callers guarantee unique ids: only the primary key refuses an existing one.
        let fact = if number % 13 == 5 {
            let record = User { id: taken, name: format!("u{number}").parse().unwrap(), created_at: NOW };
            Fact::UserCreated { record }
        } else {
            Fact::FlowCreated { record: bench.flow(&format!("flow-{number}")) }
        };
        let (store, write) = (bench.store.clone(), bench.write(vec![fact], vec![]));
        writes.spawn(async move { (number, store.record(write).await) });
    }
    for (number, outcome) in writes.join_all().await {
        match outcome {
            Ok(_) => assert_ne!(number % 13, 5),
            Err(error) => assert!(number % 13 == 5 && matches!(error, StoreError::Conflict), "{error}"),
        }
    }
    let flows = bench.store.flows(bench.org, &FlowFilter::default(), PageRequest::ALL).await.unwrap();
    assert_eq!(flows.total, 38);
    assert_eq!(bench.store.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test]
async fn the_root_is_that_of_the_leaves_computed_again() {
    let bench = Bench::new().await;
    for number in 0..300 {
        bench.create(&bench.flow(&format!("flow-{number}"))).await.unwrap();
    }
    let entries = bench.store.ledger_entries(bench.org, 0, 1000).await.unwrap();
    let leaves: Vec<Hash> = entries
        .iter()
        .map(|entry| {
            let payload_hash = payload_hash(&entry.salt, &entry.payload);
            Header { payload_hash, ..entry.header() }.leaf_hash()
        })
        .collect();
    let head = bench.store.ledger_head(bench.org).await.unwrap().expect("a head");
    assert_eq!((head.size(), head.root()), (302, root_of(&leaves)));

    let needs = Needs { leaves: vec![1..3, 300..900], nodes: vec![(4, 0), (4, 17), (4, 18), (8, 0)] };
    let known = bench.store.ledger_hashes(bench.org, &needs).await.unwrap();
    assert_eq!(
        known.leaves.into_iter().collect::<Vec<_>>(),
        [(1, leaves[1]), (2, leaves[2]), (300, leaves[300]), (301, leaves[301])]
    );
    assert_eq!(known.nodes.get(&(8, 0)), Some(&root_of(&leaves[..256])));
    assert_eq!(known.nodes.keys().copied().collect::<Vec<_>>(), [(4, 0), (4, 17), (8, 0)]);
}

/// Polls a future once.
async fn at_once<T>(future: &mut Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

#[tokio::test]
async fn a_write_that_was_refused_is_never_done() {
    let bench =
        Bench::with(&Options { queue_timeout: Duration::from_millis(400), ..Options::default() }).await;
    let other = Connection::open(bench.directory.path().join("e.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (first, second) = (bench.flow("first"), bench.flow("second"));
    let mut begun = pin!(bench.create(&first));
    assert!(at_once(&mut begun).await.is_pending());
    // The writer has either not started the job, or is waiting for the lock.
    let refused = bench.create(&second).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    other.execute_batch("COMMIT").unwrap();
    let begun = begun.await;
    // The next write is enqueued after them.
    let mut attempts = 0..20;
    while let Err(error) = bench.create(&bench.flow("after")).await {
        assert!(matches!(error, StoreError::Unavailable(_)) && attempts.next().is_some(), "{error}");
    }
    assert!(bench.store.flow(bench.org, "second").await.unwrap().is_none());
    assert_eq!(bench.store.flow(bench.org, "first").await.unwrap().is_some(), begun.is_ok());
}

#[tokio::test]
async fn an_organization_that_takes_its_share_of_the_queue_leaves_room_for_others_and_for_leases() {
    let bench = Bench::with(&Options { queue_bytes: 64 << 10, ..Options::default() }).await;
    let beta = bench.store.org_role("beta", bench.actor.id).await.unwrap().expect("the organization");
    let large = |name: &str| Flow { description: "x".repeat(20 << 10), ..bench.flow(name) };
    let others = |name: &str| {
        let facts = vec![Fact::FlowCreated { record: bench.flow(name) }];
        Write { org: beta.organization.id, ..bench.write(facts, vec![]) }
    };
    let holder = Id::new(NOW, &SystemRandom);
    let lease =
        Lease { name: "sweep".to_owned(), holder, expires_at: Timestamp::from_seconds(1_776_252_399) };
    let locking = Connection::open(bench.directory.path().join("e.db")).unwrap();
    let mut rounds = 0..20;
    loop {
        let round =
            rounds.next().expect("a round in which the first write waits until the others are answered");
        let (first, second) = (large(&format!("first-{round}")), large(&format!("second-{round}")));
        locking.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut waiting = pin!(bench.create(&first));
        assert!(at_once(&mut waiting).await.is_pending());
        let mut theirs = pin!(bench.store.record(others(&format!("theirs-{round}"))));
        assert!(at_once(&mut theirs).await.is_pending());
        let mut leased = pin!(bench.store.acquire_lease(&lease, NOW));
        assert!(at_once(&mut leased).await.is_pending());
        // The write exceeds the remaining half of the queue.
        let refused = bench.create(&second).await;
        let waited = at_once(&mut waiting).await.is_pending();
        locking.execute_batch("COMMIT").unwrap();
        let done = theirs.await.is_ok() && leased.await.is_ok();
        if waited && done {
            let Err(StoreError::Unavailable(reason)) = refused else { panic!("{refused:?}") };
            assert_eq!(reason.downcast_ref(), Some(&Refused::Full));
            break;
        }
    }
    // A single write may exceed the whole queue.
    let larger = Flow { description: "x".repeat(100 << 10), ..bench.flow("larger") };
    bench.create(&larger).await.unwrap();
}

#[tokio::test]
async fn a_list_is_narrowed_and_counted() {
    let bench = Bench::new().await;
    for name in ["Alpha", "alphabet", "beta"] {
        bench.create(&bench.flow(name)).await.unwrap();
    }
    let list = async |name: &str, ignore_case, tag: &str, window| {
        let tags = vec![TagFilter::parse(tag, ':')];
        let filter = FlowFilter { name: Some(name.to_owned()), ignore_case, tags };
        let flows = bench.store.flows(bench.org, &filter, window).await.unwrap();
        let mut names = Vec::new();
        for flow in flows.items {
            let found = bench.store.flows_by_id(bench.org, &[flow.id]).await.unwrap();
            names.extend(found.into_iter().map(|flow| flow.name.into_string()));
        }
        (flows.total, names)
    };
    assert_eq!(
        list("ALPHA", true, "team", PageRequest::ALL).await,
        (2, vec!["Alpha".into(), "alphabet".into()])
    );
    assert_eq!(list("alpha", false, "team:a%b", PageRequest::ALL).await, (1, vec!["alphabet".into()]));
    assert_eq!(list("alpha", true, "team:axb", PageRequest::ALL).await, (0, vec![]));
    assert_eq!(list("%", true, "team", PageRequest::ALL).await, (0, vec![]));
    assert_eq!(
        list("a", true, "team", PageRequest { offset: 1, limit: 1 }).await,
        (3, vec!["alphabet".into()])
    );
    assert_eq!(list("a", true, "team", PageRequest { offset: 9, limit: 1 }).await, (3, vec![]));
}

#[tokio::test]
async fn attachments_come_back_chunk_by_chunk() {
    let bench = Bench::new().await;
    let content: Vec<u8> = (0..CHUNK * 2 + 7).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let sha256 = evidence_core::digest::sha256_hex(&content).parse().unwrap();
    for _ in 0..2 {
        bench.store.put(bench.org, &sha256, &mut Whole::new(content.clone())).await.unwrap();
    }
    let mut read = Vec::new();
    for number in 0.. {
        let Some(chunk) = bench.store.get_chunk(bench.org, &sha256, number).await.unwrap() else { break };
        read.extend_from_slice(&chunk);
    }
    assert!(read == content);
}

#[tokio::test]
async fn an_attachment_that_broke_off_is_not_there_until_it_is_kept_whole() {
    struct Broken(u8);
    #[async_trait::async_trait]
    impl evidence_core::blobs::Chunks for Broken {
        async fn next(&mut self) -> std::io::Result<Option<bytes::Bytes>> {
            self.0 += 1;
            if self.0 < 3 { Ok(Some(vec![1; CHUNK].into())) } else { Err(std::io::Error::other("gone")) }
        }
    }
    let bench = Bench::new().await;
    let content = vec![2; CHUNK + 1];
    let sha256 = evidence_core::digest::sha256_hex(&content).parse().unwrap();
    bench.store.put(bench.org, &sha256, &mut Broken(0)).await.unwrap_err();
    assert_eq!(bench.store.get_chunk(bench.org, &sha256, 0).await.unwrap(), None);
    bench.store.put(bench.org, &sha256, &mut Whole::new(content)).await.unwrap();
    assert_eq!(bench.store.get_chunk(bench.org, &sha256, 0).await.unwrap(), Some(vec![2; CHUNK].into()));
    assert_eq!(bench.store.get_chunk(bench.org, &sha256, 1).await.unwrap(), Some(vec![2].into()));
}

#[tokio::test]
async fn an_attachment_that_is_damaged_is_put_right_by_keeping_it_again() {
    let bench = Bench::new().await;
    let content: Vec<u8> = (0..CHUNK * 2 + 7).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let sha256 = evidence_core::digest::sha256_hex(&content).parse().unwrap();
    let keep = async || bench.store.put(bench.org, &sha256, &mut Whole::new(content.clone())).await.unwrap();
    keep().await;
    for damage in [
        "DELETE FROM blob_chunk WHERE seq = 1",
        "UPDATE blob_chunk SET data = zeroblob(length(data)) WHERE seq = 2",
        "UPDATE blob_chunk SET data = substr(data, 1, 9)",
        "INSERT INTO blob_chunk SELECT org, sha256, 3, data FROM blob_chunk WHERE seq = 2",
        "UPDATE blob SET size = 1",
    ] {
        bench.execute(damage);
        assert_eq!(bench.store.fsck().await.unwrap().problems.len(), 1, "{damage}");
        keep().await;
        assert_eq!(bench.store.fsck().await.unwrap().problems, Vec::<String>::new(), "{damage}");
    }
}

#[tokio::test]
async fn damage_is_named() {
    let cases = [
        ("UPDATE ledger SET payload = '{}' WHERE idx = 3", "payload of ledger entry 3"),
        ("UPDATE ledger SET actor = 'user:eve' WHERE idx = 2", "leaf of ledger entry 2"),
        ("DELETE FROM ledger WHERE idx = 4", "ledger entry 4 of"),
        ("UPDATE node SET hash = zeroblob(32)", "node 0 of level 4 does not match"),
        ("DELETE FROM node", "node 0 of level 4 is missing"),
        ("UPDATE head SET frontier = x'' WHERE size > 9", "head"),
        ("UPDATE api_key SET hash = NULL", "the hash of an API key is missing"),
    ];
    for (damage, expected) in cases {
        let bench = Bench::new().await;
        for number in 0..20 {
            bench.create(&bench.flow(&format!("flow-{number}"))).await.unwrap();
        }
        bench.execute(damage);
        let problems = bench.store.fsck().await.unwrap().problems;
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{damage}: {problems:?}");
    }
}

#[tokio::test]
async fn what_is_damaged_hides_nothing_of_its_neighbours() {
    let bench = Bench::new().await;
    for number in 0..200 {
        bench.create(&bench.flow(&format!("flow-{number}"))).await.unwrap();
    }
    // Small organizations are checked in one part with the next.
    let id = bench.org;
    bench.execute(&format!(
        "UPDATE ledger SET payload = '{{}}' WHERE idx = 1 AND org = (SELECT key FROM organization WHERE id = '{id}');
        DELETE FROM membership WHERE org <> (SELECT key FROM organization WHERE id = '{id}')"
    ));
    let problems = bench.store.fsck().await.unwrap().problems;
    for expected in ["the payload of ledger entry 1", "table membership"] {
        assert!(problems.iter().any(|problem| problem.contains(expected)), "{expected}: {problems:?}");
    }
}

#[tokio::test]
async fn from_a_damaged_ledger_nothing_is_made() {
    for damage in [
        "UPDATE ledger SET payload = '{}' WHERE idx = 3",
        "DELETE FROM ledger WHERE idx = 4",
        "DELETE FROM node",
        "DELETE FROM head WHERE size > 9",
    ] {
        let bench = Bench::new().await;
        for number in 0..20 {
            bench.create(&bench.flow(&format!("flow-{number}"))).await.unwrap();
        }
        bench.execute("DELETE FROM record");
        bench.execute(damage);
        let report = bench.store.rebuild().await.unwrap();
        assert!(!report.problems.is_empty() && report.rows == 0, "{damage}: {report:?}");
        assert_eq!(bench.count("record"), 0, "{damage}");
    }
}

#[tokio::test]
async fn an_organization_whose_ledger_is_gone_is_not_made_to_vanish() {
    let bench = Bench::new().await;
    for table in ["ledger", "node", "head"] {
        bench.execute(&format!(
            "DELETE FROM {table} WHERE org = (SELECT key FROM organization WHERE name = 'jane')"
        ));
    }
    let report = bench.store.rebuild().await.unwrap();
    assert_eq!(
        report
            .problems
            .iter()
            .filter(|problem| problem.contains("gone: jane") || problem.contains("API key"))
            .count(),
        2,
        "{report:?}"
    );
    assert_eq!((report.rows, bench.count("organization"), bench.count("api_key")), (0, 3, 1));
}

#[tokio::test]
async fn tables_that_cannot_be_made_whole_stay_as_they_were() {
    let bench = Bench::new().await;
    bench.create(&bench.flow("build")).await.unwrap();
    bench.execute("DELETE FROM record; DELETE FROM name; DELETE FROM user");
    bench.execute("CREATE TRIGGER refuse BEFORE INSERT ON user BEGIN SELECT RAISE(ABORT, 'no'); END");
    bench.store.rebuild().await.unwrap_err();
    assert_eq!([bench.count("record"), bench.count("name"), bench.count("user")], [0, 0, 0]);
    bench.execute("DROP TRIGGER refuse");
    assert_eq!(bench.store.rebuild().await.unwrap().problems, Vec::<String>::new());
    assert_eq!(bench.store.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_made_again_while_others_write() {
    let bench = Arc::new(Bench::new().await);
    let mut writes = tokio::task::JoinSet::new();
    for number in 0..100 {
        let bench = bench.clone();
        writes.spawn(async move { bench.create(&bench.flow(&format!("flow-{number}"))).await });
    }
    while !writes.is_empty() {
        assert_eq!(bench.store.rebuild().await.unwrap().problems, Vec::<String>::new());
        writes.join_next().await.unwrap().unwrap().unwrap();
        while let Some(written) = writes.try_join_next() {
            written.unwrap().unwrap();
        }
    }
    let flows = bench.store.flows(bench.org, &FlowFilter::default(), PageRequest::ALL).await.unwrap();
    assert_eq!(flows.total, 100);
    assert_eq!(bench.store.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_writes_stays_short_while_the_store_is_checked() {
    const WRITTEN: u64 = 1 << 20;
    let bench = Arc::new(Bench::new().await);
    let evidence = Evidence::new(bench.store.clone(), Settings::default());
    let orgs: Vec<_> = (0..12).map(|number| format!("org{number}").parse().unwrap()).collect();
    evidence.seed(&Seed { user: "john".parse().unwrap(), orgs, api_key: None }).await.unwrap();
    let (writer, runtime) = (bench.clone(), tokio::runtime::Handle::current());
    let told = Arc::new(std::sync::Mutex::new(0));
    let count = told.clone();
    let begins = move |_: &str| {
        *count.lock().unwrap() += 1;
        let description = "x".repeat(usize::try_from(WRITTEN).unwrap());
        let name = format!("flow-{}", count.lock().unwrap());
        let flow = Flow { description, ..writer.flow(&name) };
        runtime.block_on(writer.create(&flow)).unwrap();
    };
    let report = bench.store.fsck_with(begins).await.unwrap();
    assert_eq!((report.problems, *told.lock().unwrap()), (vec![], report.organizations));
    let log = std::fs::metadata(bench.directory.path().join("e.db-wal")).unwrap().len();
    assert!(report.organizations >= 15 && log < 6 * WRITTEN, "{log} bytes");
}

#[tokio::test]
async fn a_closed_store_answers_that_it_is_not_available() {
    let bench = Bench::new().await;
    bench.store.close().await;
    assert!(matches!(bench.create(&bench.flow("late")).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(bench.store.flow(bench.org, "late").await, Err(StoreError::Unavailable(_))));
    bench.store.close().await;
}

#[tokio::test]
async fn a_write_that_fails_half_way_leaves_the_store_as_it_was() {
    let bench = Bench::new().await;
    bench.create(&bench.flow("before")).await.unwrap();
    bench.execute("CREATE TRIGGER refuse BEFORE INSERT ON record BEGIN SELECT RAISE(ABORT, 'no'); END");
    bench.create(&bench.flow("during")).await.unwrap_err();
    assert!(bench.store.flow(bench.org, "before").await.unwrap().is_some());
    assert!(bench.store.flow(bench.org, "during").await.unwrap().is_none());
    bench.execute("DROP TRIGGER refuse");
    bench.create(&bench.flow("after")).await.unwrap();
    assert_eq!(bench.store.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test]
async fn addresses_and_files_that_cannot_be_used_are_refused_with_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let refused = async |url: &str| SqliteStore::connect(url).await.unwrap_err();
    assert!(matches!(refused("sqlite::memory:").await, ConnectError::InMemory));
    for url in ["sqlite://a?mode=nonsense", "postgres://localhost/evidence", "evidence.db"] {
        assert!(matches!(refused(url).await, ConnectError::InvalidUrl), "{url}");
    }
    // This file system layer has no shared memory for a log, so SQLite keeps another journal mode.
    let unsafely = format!("sqlite://{}/dotfile.db?vfs=unix-dotfile", directory.path().display());
    let error = refused(&unsafely).await;
    assert!(matches!(error, ConnectError::Unsafe { setting: "journal_mode", .. }), "{error}");
    let nowhere = format!("sqlite://{}/none/e.db", directory.path().display());
    assert!(matches!(refused(&nowhere).await, ConnectError::Open { .. }));
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        let no_text = directory.path().join(std::ffi::OsStr::from_bytes(b"\xff.db"));
        let error = Sqlite::open(&no_text).await.unwrap_err();
        assert!(matches!(error, ConnectError::PathNotText { .. }), "{error}");
        assert!(!no_text.exists());
    }

    let bench = Bench::new().await;
    bench.execute("INSERT INTO _evidence_migrations (version, min_writer_version, steps_done, done) VALUES (99, 99, 0, 0)");
    let newer = Sqlite::open(bench.directory.path().join("e.db")).await.unwrap_err();
    assert!(matches!(newer, ConnectError::NewerSchema { found: 99, known: 1 }), "{newer}");
}

#[tokio::test]
async fn a_text_that_is_referred_to_and_kept_by_no_entry_is_named() {
    let bench = Bench::new().await;
    let (there, lost) = (TextRef::of("there"), TextRef::of("lost"));
    let flow =
        |name: &str, text| Fact::FlowCreated { record: Flow { template: Some(text), ..bench.flow(name) } };
    let kept = Fact::TextKept { text: "there".to_owned() };
    bench.store.record(bench.write(vec![kept, flow("a", there)], vec![])).await.unwrap();
    assert_eq!(bench.store.fsck().await.unwrap().problems, Vec::<String>::new());
    bench.store.record(bench.write(vec![flow("b", lost), flow("c", lost)], vec![])).await.unwrap();
    let problems = bench.store.fsck().await.unwrap().problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    let digest = lost.sha256.to_string();
    assert!(problems[0].starts_with("a text is missing: ") && problems[0].contains(&digest), "{problems:?}");
}

#[tokio::test]
async fn long_data_of_an_attestation_whose_text_is_missing_are_named() {
    let bench = Bench::new().await;
    let (there, lost) = (TextRef::of("[]"), TextRef::of("[1]"));
    let attestation = |number: u8, data: TextRef| -> Fact {
        let id = |n: u8| format!("00000000-0000-0000-0000-000000{n:02x}");
        let (id, flow, trail) = (id(number), id(100), id(101));
        let TextRef { sha256, size } = data;
        let text = format!(
            r#"{{"attestation_added":{{"record":{{"id":"{id}","flow":"{flow}","trail":"{trail}","name":"unit","kind":"junit",
                "is_compliant":true,"binding":{{"to":"trail"}},"description":null,"origin_url":"","git_commit_info":null,
                "repo_info":null,"repo":null,"external_urls":null,"annotations":null,"user_data":{{}},
                "details":{{"junit_results":[],"type":"junit"}},"data":{{"sha256":"{sha256}","size":{size}}},"attachments":[],
                "evidence":null,"created_at":5,"created_by":{{"id":"{flow}","name":"jane","kind":"user"}}}}}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    };
    let missing = async || {
        let problems = bench.store.fsck().await.unwrap().problems;
        problems.into_iter().filter(|problem| problem.starts_with("a text is missing: ")).collect::<Vec<_>>()
    };
    let kept = Fact::TextKept { text: "[]".to_owned() };
    bench.store.record(bench.write(vec![kept, attestation(1, there)], vec![])).await.unwrap();
    assert_eq!(missing().await, Vec::<String>::new());
    bench.store.record(bench.write(vec![attestation(2, lost)], vec![])).await.unwrap();
    let missing = missing().await;
    assert!(missing.len() == 1 && missing[0].contains(&lost.sha256.to_string()), "{missing:?}");
}

#[tokio::test]
async fn a_text_that_is_damaged_is_as_good_as_gone() {
    let bench = Bench::new().await;
    let kept = ["one", "two"].map(|text| Fact::TextKept { text: text.to_owned() });
    bench.store.record(bench.write(kept.to_vec(), vec![])).await.unwrap();
    bench.execute("UPDATE ledger SET payload = 'damaged {' WHERE payload LIKE '%\"one\"%'");
    let asked = ["one", "two"].map(Hash::of);
    assert_eq!(bench.store.texts(bench.org, &asked).await.unwrap(), ["two"]);
    // Recording the text again repairs it.
    bench.store.record(bench.write(vec![kept[0].clone(), kept[0].clone()], vec![])).await.unwrap();
    let mut texts = bench.store.texts(bench.org, &asked).await.unwrap();
    texts.sort_unstable();
    assert_eq!(texts, ["one", "two"]);
}

#[tokio::test]
async fn a_ledger_of_long_entries_is_checked_and_made_again_page_after_page() {
    let bench = Bench::new().await;
    let before = bench.store.fsck().await.unwrap().entries;
    for number in 0..3 {
        let text = format!("{number}{}", "x".repeat(3 << 20));
        bench.store.record(bench.write(vec![Fact::TextKept { text }], vec![])).await.unwrap();
    }
    let report = bench.store.fsck().await.unwrap();
    assert_eq!((report.entries, report.problems), (before + 3, Vec::new()));
    let report = bench.store.rebuild().await.unwrap();
    assert_eq!((report.entries, report.rows, report.problems), (before + 3, 0, Vec::new()));
}
