//! Tests of the PostgreSQL store beyond the contract: groups of writes, several stores on the same tables,
//! and broken connections.

mod bench;

use std::sync::Arc;
use std::time::Duration;

use evidence_conformance::checks;
use evidence_core::blobs::{Blobs, CHUNK, Whole};
use evidence_core::flows::{FlowFilter, FlowStore};
use evidence_core::ledger::{Hash, Header, Needs, payload_hash, root_of};
use evidence_core::name::Fingerprint;
use evidence_core::orgs::{OrgStore, User};
use evidence_core::page::PageRequest;
use evidence_core::seed::Seed;
use evidence_core::store::{LedgerStore, Recorder, StoreResult};
use evidence_core::sweep::PendingStore;
use evidence_core::tags::TagFilter;
use evidence_core::{Evidence, Fact, Key, Precondition, Settings, StoreError, Write};
use evidence_store_postgres::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use evidence_store_postgres::sqlx::{self, AssertSqlSafe, Connection, PgConnection};
use evidence_store_postgres::{ConnectError, Options, Postgres, PostgresStore};
use evidence_test_postgres::SchemaName;

use bench::{Bench, NOW, options};

impl Bench {
    /// Opens another store on the same tables, like another server.
    async fn beside(&self) -> Arc<PostgresStore> {
        Arc::new(PostgresStore::connect_with(&self.schema.url, &options(&self.schema)).await.unwrap())
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn what_was_recorded_is_there_for_the_next_store() {
    let bench = Bench::new().await;
    let flow = bench.flow("build");
    let entries = bench.create(&flow).await.unwrap();
    let next = bench.beside().await;
    bench.store.close().await;

    let found = next.flow(bench.org, "build").await.unwrap().expect("the flow");
    assert_eq!((found.record, found.revision), (flow, entries[0].index));
    assert_eq!(next.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
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
#[ignore = "needs PostgreSQL: cargo xtask test"]
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
    assert_eq!(bench.problems().await, Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
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

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
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
#[ignore = "needs PostgreSQL: cargo xtask test"]
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
#[ignore = "needs PostgreSQL: cargo xtask test"]
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
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn an_attachment_that_is_damaged_is_put_right_by_keeping_it_again() {
    let bench = Bench::new().await;
    let content: Vec<u8> = (0..CHUNK * 2 + 7).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let sha256 = evidence_core::digest::sha256_hex(&content).parse().unwrap();
    let keep = async || bench.store.put(bench.org, &sha256, &mut Whole::new(content.clone())).await.unwrap();
    keep().await;
    for damage in [
        "DELETE FROM {}.blob_chunk WHERE seq = 1",
        "UPDATE {}.blob_chunk SET data = substr(data, 2) || substr(data, 1, 1) WHERE seq = 2",
        "UPDATE {}.blob_chunk SET data = substr(data, 1, 9)",
        "INSERT INTO {}.blob_chunk SELECT org, sha256, 3, data FROM {}.blob_chunk WHERE seq = 2",
        "UPDATE {}.blob SET size = 1",
    ] {
        bench.execute(damage).await;
        assert_eq!(bench.problems().await.len(), 1, "{damage}");
        keep().await;
        assert_eq!(bench.problems().await, Vec::<String>::new(), "{damage}");
    }
}

/// Returns a fact that references an attachment, and the digest of its content.
fn naming_a_content() -> (Fact, Fingerprint) {
    let facts = include_str!("../../evidence-core/tests/golden/attestation_added.jsonl").lines();
    let named = |line: &str| match serde_json::from_str(line).unwrap() {
        Fact::AttestationAdded { record } => {
            let sha256 = record.attachments.first()?.sha256.clone();
            Some((Fact::AttestationAdded { record }, sha256))
        }
        _ => None,
    };
    facts.filter_map(named).next().expect("an attestation with an attachment")
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_note_that_others_change_while_its_content_is_named_is_forgotten() {
    let bench = Bench::new().await;
    let (fact, sha256) = naming_a_content();
    assert!(bench.store.put_pending(bench.org, &sha256, NOW).await.unwrap());
    let mut other = PgConnection::connect(&bench.schema.url).await.unwrap();
    let holder: i32 = sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut other).await.unwrap();
    let mut changing = other.begin().await.unwrap();
    let change = format!("UPDATE {}.attachment_pending SET kept_at = kept_at + 1", bench.schema.name);
    sqlx::raw_sql(AssertSqlSafe(change)).execute(&mut *changing).await.unwrap();
    let (store, write) = (bench.store.clone(), bench.write(vec![fact], vec![]));
    let recording = tokio::spawn(async move { store.record(write).await });
    let mut watcher = PgConnection::connect(&bench.schema.url).await.unwrap();
    let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity a WHERE $1 = ANY(pg_blocking_pids(a.pid)))";
    while !sqlx::query_scalar::<_, bool>(waits).bind(holder).fetch_one(&mut watcher).await.unwrap() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    changing.commit().await.unwrap();
    recording.await.unwrap().unwrap();
    assert_eq!(bench.store.pending(None, 9).await.unwrap(), vec![]);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_closed_store_answers_that_it_is_not_available() {
    let bench = Bench::new().await;
    bench.store.close().await;
    assert!(matches!(bench.create(&bench.flow("late")).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(bench.store.flow(bench.org, "late").await, Err(StoreError::Unavailable(_))));
    bench.store.close().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_write_that_fails_half_way_leaves_the_store_as_it_was() {
    let bench = Bench::new().await;
    bench.create(&bench.flow("before")).await.unwrap();
    bench
        .execute(
            "CREATE FUNCTION {}.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
             CREATE TRIGGER refuse BEFORE INSERT ON {}.record EXECUTE FUNCTION {}.refuse()",
        )
        .await;
    bench.create(&bench.flow("during")).await.unwrap_err();
    assert!(bench.store.flow(bench.org, "before").await.unwrap().is_some());
    assert!(bench.store.flow(bench.org, "during").await.unwrap().is_none());
    bench.execute("DROP TRIGGER refuse ON {}.record").await;
    bench.create(&bench.flow("after")).await.unwrap();
    assert_eq!(bench.problems().await, Vec::<String>::new());
}

#[tokio::test]
async fn addresses_and_schemas_that_cannot_be_used_are_refused_with_one_sentence() {
    let refused = async |url: &str| PostgresStore::connect(url).await.unwrap_err();
    assert!(matches!(refused("postgres://localhost:port/db").await, ConnectError::InvalidUrl { .. }));
    // An unknown parameter may be a password.
    for (query, named) in [
        ("user=u&pasword=hunter2", "the unknown parameter 'pasword' "),
        ("user=u&hunter2", "an unknown parameter "),
        ("hunter2@host/db?user=u", "an unknown parameter "),
        ("hunter2=w@host/db", "an unknown parameter "),
        ("user=u&hunter2=w@host/db?user=u", "an unknown parameter "),
    ] {
        let error = refused(&format!("postgres://localhost/db?{query}")).await;
        assert!(matches!(error, ConnectError::UnknownParameter(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains(named) && !text.contains("hunter2"), "{text}");
    }
    let secret = refused("postgres://jane:secret@127.0.0.1:1/db").await;
    assert!(matches!(secret, ConnectError::Unreachable { .. }));
    assert!(!format!("{secret} {secret:?}").contains("secret"), "{secret}");
    let options = Options { schema: "two words".to_owned(), ..Options::default() };
    let named = PostgresStore::connect_with("postgres://127.0.0.1:1/db", &options).await.unwrap_err();
    assert!(matches!(named, ConnectError::InvalidSchema(_)), "{named}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn tables_of_a_later_program_are_left_alone() {
    let bench = Bench::new().await;
    bench
        .execute(
            "INSERT INTO {}._evidence_migrations (version, min_writer_version, steps_done, done) VALUES (99, 99, 0, false)",
        )
        .await;
    let newer = PostgresStore::connect_with(&bench.schema.url, &options(&bench.schema)).await.unwrap_err();
    assert!(matches!(newer, ConnectError::NewerSchema { found: 99, known: 1 }), "{newer}");
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn chunks_of_uploads_share_commits_and_yield_to_records() {
    const UPLOADS: usize = 21;
    let bench = Bench::new().await;
    // Blocks the writing of chunks until this transaction ends.
    let mut holder = PgConnection::connect(&bench.schema.url).await.unwrap();
    let mut held = holder.begin().await.unwrap();
    let lock = format!("LOCK TABLE {}.blob_chunk IN EXCLUSIVE MODE", bench.schema.name);
    sqlx::raw_sql(AssertSqlSafe(lock)).execute(&mut *held).await.unwrap();
    let mut uploads = tokio::task::JoinSet::new();
    for number in 0..UPLOADS {
        let (store, org, content) =
            (bench.store.clone(), bench.org, vec![u8::try_from(number).unwrap(); CHUNK]);
        let sha256: Fingerprint = evidence_core::digest::sha256_hex(&content).parse().unwrap();
        uploads.spawn(async move { store.put(org, &sha256, &mut Whole::new(content)).await });
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (store, write) =
        (bench.store.clone(), bench.write(vec![Fact::FlowCreated { record: bench.flow("behind") }], vec![]));
    let record = tokio::spawn(async move { store.record(write).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    held.commit().await.unwrap();
    record.await.unwrap().unwrap();
    uploads.join_all().await.into_iter().collect::<StoreResult<Vec<()>>>().unwrap();

    let mut scalar = async |sql: &str| {
        let sql = sql.replace("{}", &bench.schema.name);
        sqlx::query_scalar::<_, i64>(AssertSqlSafe(sql)).fetch_one(&mut holder).await.unwrap()
    };
    // The first transaction has the chunks that had arrived, at most four. Each later one has four.
    assert_eq!(scalar("SELECT count(DISTINCT xmin::text) FROM {}.blob_chunk").await, 6);
    // The record was enqueued last, and was written right after the transaction that had already begun.
    let before = "SELECT count(*) FROM {}.blob_chunk c WHERE c.xmin::text::bigint < (
        SELECT max(l.xmin::text::bigint) FROM {}.ledger l)";
    let before = scalar(before).await;
    assert!((1..=4).contains(&before), "{before}");
    assert_eq!(bench.problems().await, Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn what_a_later_program_took_away_is_not_available() {
    for change in [
        "ALTER TABLE {}.record RENAME COLUMN ledger_index TO position",
        "ALTER TABLE {}.record RENAME TO entity",
        "ALTER SCHEMA {} RENAME TO {}_moved",
    ] {
        let bench = Bench::new().await;
        bench.execute(change).await;
        let listed = bench.store.flows(bench.org, &FlowFilter::default(), PageRequest::ALL).await;
        assert!(matches!(listed, Err(StoreError::Unavailable(_))), "{change}: {listed:?}");
        let written = bench.create(&bench.flow("build")).await;
        assert!(matches!(written, Err(StoreError::Unavailable(_))), "{change}: {written:?}");
        if change.contains("moved") {
            bench.execute("ALTER SCHEMA {}_moved RENAME TO {}").await;
        }
    }
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn many_may_start_at_once_on_an_empty_database() {
    let schema = SchemaName::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
    let mut starting = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let (url, options) = (schema.url.clone(), Options { connections: 1, ..options(&schema) });
        starting.spawn(async move { PostgresStore::connect_with(&url, &options).await.map(drop) });
    }
    starting.join_all().await.into_iter().collect::<Result<(), _>>().unwrap();
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_hosts_pool_may_look_elsewhere_by_default() {
    let schema = SchemaName::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
    let address: PgConnectOptions = schema.url.parse().unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(2)
        .connect_with(address.options([("search_path", "pg_catalog")]))
        .await
        .unwrap();
    let store = Arc::new(Postgres::from_pool(pool, &schema.name).await.unwrap());
    let seed = Seed { user: "jane".parse().unwrap(), orgs: vec![], api_key: None };
    Evidence::new(store.clone(), Settings::default()).seed(&seed).await.unwrap();
    assert!(store.user("jane").await.unwrap().is_some());
    // On a host's pool, PostgreSQL plans each statement for the caller's values.
    let check = "decisions_are_listed_in_the_order_asked";
    let check = checks().into_iter().find(|known| known.name.ends_with(check)).unwrap();
    (check.run)(store.clone()).await.unwrap();
    assert_eq!(store.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn two_stores_write_one_ledger() {
    let bench = Bench::new().await;
    let stores = [bench.store.clone(), bench.beside().await];
    let mut writes = tokio::task::JoinSet::new();
    for number in 0..32 {
        let store = stores[number % 2].clone();
        let flows: Vec<Write> = (0..20)
            .map(|turn| Fact::FlowCreated { record: bench.flow(&format!("flow-{number}-{turn}")) })
            .map(|fact| bench.write(vec![fact], vec![]))
            .collect();
        writes.spawn(async move {
            for write in flows {
                store.record(write).await?;
            }
            StoreResult::Ok(())
        });
    }
    writes.join_all().await.into_iter().collect::<StoreResult<()>>().unwrap();
    let heads = [stores[0].ledger_head(bench.org).await, stores[1].ledger_head(bench.org).await];
    let [one, other] = heads.map(|head| head.unwrap().expect("a head"));
    assert_eq!((one.size(), one.root()), (2 + 640, other.root()));
    assert_eq!(bench.problems().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn two_stores_lose_no_update_and_make_no_name_twice() {
    let bench = Bench::new().await;
    let stores = [bench.store.clone(), bench.beside().await];
    for round in 0..20 {
        let mut racers = tokio::task::JoinSet::new();
        for racer in 0..16 {
            let flow = bench.flow(&format!("race-{round}"));
            let precondition = Precondition::Vacant(Key::Flow(flow.name.clone()));
            let write = bench.write(vec![Fact::FlowCreated { record: flow }], vec![precondition]);
            let store = stores[racer % 2].clone();
            racers.spawn(async move { store.record(write).await });
        }
        let outcomes = racers.join_all().await;
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(_) | Err(StoreError::Conflict))));
    }
    assert_eq!(bench.problems().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn two_stores_make_one_organization_of_a_name() {
    let bench = Bench::new().await;
    let other = bench.beside().await;
    for round in 0..20 {
        let seed = |store: &Arc<PostgresStore>| {
            let evidence = Evidence::new(store.clone(), Settings::default());
            let seed = Seed {
                user: format!("user-{round}").parse().unwrap(),
                orgs: vec![format!("org-{round}").parse().unwrap()],
                api_key: None,
            };
            tokio::spawn(async move { evidence.seed(&seed).await.map(drop) })
        };
        let (one, two) = (seed(&bench.store), seed(&other));
        let outcomes = [one.await.unwrap(), two.await.unwrap()];
        assert!(outcomes.iter().any(Result::is_ok), "{outcomes:?}");
        for outcome in outcomes {
            assert!(!matches!(outcome, Err(evidence_core::Error::Store(_))), "{outcome:?}");
        }
    }
    assert_eq!(bench.problems().await, Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn connections_that_were_cut_are_made_again() {
    let bench = Bench::new().await;
    bench.create(&bench.flow("before")).await.unwrap();
    for _ in 0..4 {
        bench.store.flow(bench.org, "before").await.unwrap();
    }
    // Every session that works in this schema: the writer's and those of the pool. Other tests have their
    // own.
    let cut = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE application_name = 'evidence' AND query LIKE '%{}%'",
        bench.schema.name
    );
    let mut connection = PgConnection::connect(&bench.schema.url).await.unwrap();
    let cut: i64 = sqlx::query_scalar(AssertSqlSafe(cut)).fetch_one(&mut connection).await.unwrap();
    assert!(cut >= 2, "{cut} sessions");
    assert!(bench.store.flow(bench.org, "before").await.unwrap().is_some());
    bench.create(&bench.flow("after")).await.unwrap();
    assert_eq!(bench.problems().await, Vec::<String>::new());
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn a_pool_without_a_free_connection_is_not_available() {
    let schema = SchemaName::unused().expect("EVIDENCE_TEST_POSTGRES_URL names a server");
    let address: PgConnectOptions = schema.url.parse().unwrap();
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_millis(100))
        .connect_lazy_with(address);
    let store = Postgres::from_pool(pool.clone(), &schema.name).await.unwrap();
    // On a busy machine, connecting may take longer than the timeout.
    let busy = loop {
        if let Ok(busy) = pool.acquire().await {
            break busy;
        }
    };
    assert!(matches!(store.user("jane").await, Err(StoreError::Unavailable(_))));
    drop(busy);
    let found = loop {
        match store.user("jane").await {
            Err(StoreError::Unavailable(_)) => {}
            found => break found,
        }
    };
    assert_eq!(found.unwrap(), None);
}

#[tokio::test]
#[ignore = "needs PostgreSQL: cargo xtask test"]
async fn groups_may_be_kept_to_one_organization() {
    let bench = Bench::with(|options| Options { mixed_groups: false, ..options }).await;
    let mut writes = tokio::task::JoinSet::new();
    for number in 0..8 {
        let evidence = Evidence::new(bench.store.clone(), Settings::default());
        let seed = Seed {
            user: format!("user-{number}").parse().unwrap(),
            orgs: vec![format!("org-{number}").parse().unwrap()],
            api_key: None,
        };
        writes.spawn(async move { evidence.seed(&seed).await.map(drop) });
    }
    writes.join_all().await.into_iter().collect::<Result<(), _>>().unwrap();
    assert_eq!(bench.problems().await, Vec::<String>::new());
}
