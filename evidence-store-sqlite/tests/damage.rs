//! Tests damage to the file outside the store: it is reported, it hides nothing else, and it blocks nothing
//! else.

use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;

use evidence_core::checkpoints::CheckpointStore;
use evidence_core::digest::sha256_hex;
use evidence_core::ledger::note::NoteSigner;
use evidence_core::ledger::{Checkpoint, Hash};
use evidence_core::orgs::OrgStore;
use evidence_core::seed::Seed;
use evidence_core::store::LedgerStore;
use evidence_core::sweep::PendingStore;
use evidence_core::time::{Clock, Timestamp};
use evidence_core::{Evidence, Settings, Store, StoreError};
use evidence_store_sqlite::rusqlite::Connection;
use evidence_store_sqlite::{ConnectError, Sqlite, SqliteStore};
use tempfile::TempDir;

use crate::lost_rows::Damaged;

#[path = "../../evidence-store-sql/tests/support/future.rs"]
mod future;
#[path = "../../evidence-store-sql/tests/support/lost_rows.rs"]
mod lost_rows;

const NOW: Timestamp = Timestamp::from_seconds(1_776_252_299);

/// A store in a directory of its own.
struct Bench {
    directory: TempDir,
    store: Arc<SqliteStore>,
}

impl Bench {
    async fn empty() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Sqlite::open(directory.path().join("e.db")).await.unwrap());
        Self { directory, store }
    }

    /// Creates a store with the organizations `acme` and `beta`.
    async fn new() -> Self {
        let bench = Self::empty().await;
        bench.seed("jane", &["acme", "beta"]).await.unwrap();
        bench
    }

    async fn seed(&self, user: &str, orgs: &[&str]) -> Result<(), evidence_core::Error> {
        let orgs = orgs.iter().map(|org| org.parse().unwrap()).collect();
        let seed = Seed { user: user.parse().unwrap(), orgs, api_key: None };
        Evidence::new(self.store.clone(), Settings::default()).seed(&seed).await.map(drop)
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("e.db")
    }

    fn execute(&self, sql: &str) {
        Connection::open(self.file()).unwrap().execute_batch(sql).unwrap();
    }

    async fn problems(&self) -> Vec<String> {
        self.store.fsck().await.unwrap().problems
    }
}

#[track_caller]
fn has(problems: &[String], expected: &str) {
    assert!(problems.iter().any(|problem| problem.contains(expected)), "{expected}: {problems:#?}");
}

/// Keys that no organization has: below all, just below the first, and above all.
const NOBODY: [i64; 3] = [i64::MIN, -1, i64::MAX];

#[tokio::test]
async fn a_key_of_no_organization_is_named_and_stops_what_would_lose_its_hash() {
    for org in NOBODY {
        let bench = Bench::new().await;
        bench.execute(&format!(
            "INSERT INTO organization VALUES ({org}, '01a20390-0000-0000-0000-00000001', 'zz', '{{}}');
            INSERT INTO api_key (org, id, owner, owner_id, hash, created_at)
            SELECT {org}, 'forged', owner, owner_id, 'known', created_at FROM api_key"
        ));
        let problems = bench.problems().await;
        for expected in [
            "table organization: row",
            "table api_key: row [\"forged\"]",
            "the ledger of an organization is gone: zz",
            "no ledger tells of an API key: forged",
        ] {
            has(&problems, expected);
        }
        let report = bench.store.rebuild().await.unwrap();
        has(&report.problems, "no ledger tells of an API key: forged");
        assert_eq!(report.rows, 0);
    }
}

#[tokio::test]
async fn rows_of_no_organization_are_named_and_removed() {
    let rows = [
        ("membership", "'u', 'admin'"),
        ("record", "'flow', 'i', 'n', 0, 0, '{}'"),
        ("name", "'flow', 'n', 'i', 0"),
        ("trail_entry", "'t', 0"),
        ("allowance", "'e', 'f', 0, NULL, false"),
        ("allowed", "'e', 'f', 0, 0"),
        ("interned_text", "'t', 0"),
        ("record_tag", "'control', 'c', 'k', 'v'"),
        ("attachment", "'s', 1"),
    ];
    for org in NOBODY {
        let bench = Bench::new().await;
        for (table, values) in rows {
            bench.execute(&format!("INSERT INTO {table} VALUES ({org}, {values})"));
        }
        let problems = bench.problems().await;
        for (table, _) in rows {
            has(&problems, &format!("table {table}: row"));
            has(&problems, &format!("rows of an organization that does not exist: {table}"));
        }
        let report = bench.store.rebuild().await.unwrap();
        assert_eq!((report.rows, report.problems), (rows.len() as u64, vec![]));
        assert_eq!(bench.problems().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_content_of_the_least_organization_is_read_too() {
    let bench = Bench::new().await;
    bench.execute("INSERT INTO blob VALUES (-9223372036854775808, '', 1)");
    has(&bench.problems().await, "the attachment  does not match its hash");
}

#[tokio::test]
async fn the_size_of_a_damaged_head_hides_nothing() {
    for size in [-1000, i64::MIN, i64::MAX] {
        let bench = Bench::new().await;
        bench.execute(&format!(
            "UPDATE head SET size = {size} WHERE org IN (SELECT key FROM organization WHERE name <> 'beta');
            DELETE FROM membership WHERE org = (SELECT key FROM organization WHERE name = 'beta');
            INSERT INTO blob VALUES (1, '', {0}), (1, 'a', {0})",
            i64::MAX
        ));
        let problems = bench.problems().await;
        has(&problems, "table membership: row");
        has(&problems, "the attachment a does not match its hash");
        for org in ["acme", "jane"] {
            let of_org = problems.iter().filter(|line| line.starts_with(&format!("organization {org}: ")));
            assert_eq!(of_org.count(), 1, "{problems:#?}");
        }
        assert!(!bench.store.rebuild().await.unwrap().problems.is_empty());
    }
}

#[tokio::test]
async fn entries_without_a_head_are_checked() {
    let bench = Bench::new().await;
    let entries = bench.store.fsck().await.unwrap().entries;
    let of = |org: &str| format!("WHERE org = (SELECT key FROM organization WHERE name = '{org}')");
    bench.execute(&format!("DELETE FROM head {}; DELETE FROM head {}", of("acme"), of("beta")));
    bench.execute(&format!("UPDATE ledger SET payload = '{{}}' {} AND idx = 1", of("acme")));
    let report = bench.store.fsck().await.unwrap();
    assert_eq!(report.entries, entries);
    assert_eq!(
        report.problems,
        [
            "organization acme: its ledger has no head",
            "organization acme: the payload of ledger entry 1 does not match its hash",
            "organization beta: its ledger has no head"
        ]
    );
    bench.execute(&format!("DELETE FROM ledger {} AND idx = 0", of("beta")));
    has(&bench.problems().await, "organization beta: ledger entry 0 is missing");
}

/// Damages each page of the file in turn.
#[tokio::test]
async fn a_damaged_page_is_named_and_hides_nothing_else() {
    let bench = Bench::new().await;
    bench.execute("INSERT INTO blob VALUES (1, 'a', 1); DELETE FROM membership WHERE org = 1");
    bench.store.close().await;
    let connection = Connection::open(bench.file()).unwrap();
    let mut roots = connection
        .prepare(
            "SELECT tbl_name, rootpage FROM sqlite_schema WHERE rootpage > 1 AND tbl_name NOT LIKE 'sqlite%'",
        )
        .unwrap();
    let roots = roots.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let roots: Vec<(String, u32)> = roots.map(Result::unwrap).collect();
    assert!(roots.len() > 40);
    for (table, root) in roots {
        let file = bench.directory.path().join("damaged.db");
        std::fs::copy(bench.file(), &file).unwrap();
        let store = Sqlite::open(&file).await.unwrap();
        let mut damaged = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        damaged.seek(SeekFrom::Start(u64::from(root - 1) * 4096)).unwrap();
        damaged.write_all(&[0xff; 4096]).unwrap();
        let report = store.fsck().await.unwrap_or_else(|error| panic!("{table}: {error}"));
        has(&report.problems, &format!("table {table}"));
        if table != "blob" && table != "blob_chunk" {
            has(&report.problems, "the attachment a does not match its hash");
        }
        if table != "ledger" {
            assert!(report.entries > 0, "{table}: {report:?}");
        }
        if !["ledger", "node", "head", "membership"].contains(&table.as_str()) {
            has(&report.problems, "table membership: row");
        }
        assert!(report.problems.len() < 30, "{table}: {report:#?}");
        store.close().await;
    }
}

#[tokio::test]
async fn notes_that_cannot_be_read_are_passed_over() {
    let bench = Bench::new().await;
    let org = bench.org("acme").await;
    let contents = ["a", "b", "c"].map(|content| sha256_hex(content.as_bytes()).parse().unwrap());
    for content in &contents {
        assert!(bench.store.put_pending(org, content, NOW).await.unwrap());
    }
    bench.execute(
        "INSERT INTO attachment_pending SELECT org, x.value, 0, NULL FROM attachment_pending,
            json_each('[\"\", \"!\", \"4nothex\", \"nothex\"]') x GROUP BY x.value",
    );
    for limit in [1, 2, 100] {
        let (mut found, mut last) = (Vec::new(), None);
        while let Some(next) = bench.store.pending(last.as_ref(), limit).await.unwrap().into_iter().next() {
            found.push(next.sha256.clone());
            last = Some(next);
        }
        let mut wanted = contents.to_vec();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{limit}");
    }
}

#[tokio::test]
async fn what_another_program_took_away_is_not_available() {
    for change in
        ["ALTER TABLE record RENAME TO entity", "ALTER TABLE record RENAME COLUMN ledger_index TO position"]
    {
        let bench = Bench::new().await;
        bench.execute(change);
        let written = bench.seed("john", &["gamma"]).await;
        let unavailable = |error| matches!(error, evidence_core::Error::Store(StoreError::Unavailable(_)));
        assert!(written.is_err_and(unavailable), "{change}");
    }
}

#[tokio::test]
async fn an_address_is_decoded_once() {
    let directory = tempfile::tempdir().unwrap();
    let address = |name: &str| format!("sqlite://{}/{name}", directory.path().display());
    for (name, file) in
        [("a%20b.db", "a b.db"), ("100%2525.db", "100%25.db"), ("plain.db?mode=rwc", "plain.db")]
    {
        let store = SqliteStore::connect(&address(name)).await.unwrap();
        assert!(store.is_empty().await.unwrap(), "{name}");
        store.close().await;
        assert!(directory.path().join(file).is_file(), "{name}");
    }
    for name in ["a.db#part", "a%zz.db", "a%00b.db", "a.db?nonsense=1", "a.db?mode=nonsense"] {
        let refused = SqliteStore::connect(&address(name)).await.unwrap_err();
        assert!(matches!(refused, ConnectError::InvalidUrl), "{name}: {refused}");
    }
    assert_eq!(
        std::fs::read_dir(directory.path())
            .unwrap()
            .filter(|file| {
                let name = file.as_ref().unwrap().file_name();
                name.to_string_lossy().starts_with("a.db") || name.to_string_lossy().starts_with("a%")
            })
            .count(),
        0
    );
}

impl Damaged for Bench {
    async fn empty() -> Self {
        Self::empty().await
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn execute(&self, sql: &str) {
        Self::execute(self, &sql.replace("{}", ""));
    }

    async fn rebuild(&self) -> Vec<String> {
        self.store.rebuild().await.unwrap().problems
    }
}

#[tokio::test]
async fn a_row_that_is_lost_hides_no_later_one_from_a_binary_search() {
    lost_rows::are_passed_over_by_binary_searches::<Bench>().await;
}

#[tokio::test]
async fn the_number_of_a_snapshot_that_is_lost_is_not_given_again() {
    lost_rows::of_snapshots_give_no_number_again::<Bench>().await;
}

#[tokio::test]
async fn a_deployment_that_lost_its_number_hides_no_other_one() {
    lost_rows::of_numbers_hide_no_other_deployment::<Bench>().await;
}

#[tokio::test]
async fn a_build_that_lost_its_number_hides_no_other_one() {
    lost_rows::of_numbers_hide_no_other_build::<Bench>().await;
}

#[tokio::test]
async fn a_decision_that_lost_its_number_hides_no_other_one() {
    lost_rows::of_numbers_hide_no_other_decision::<Bench>().await;
}

#[tokio::test]
async fn a_trail_that_is_lost_leaves_all_others_in_pages() {
    lost_rows::of_trails_leave_all_others_in_pages::<Bench>().await;
}

#[tokio::test]
async fn an_organization_whose_rows_are_all_gone_is_missed() {
    let bench = Bench::new().await;
    let tables = "SELECT m.name FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' AND c.name = 'org'";
    let connection = Connection::open(bench.file()).unwrap();
    let mut tables = connection.prepare(tables).unwrap();
    let tables = tables.query_map([], |row| row.get::<_, String>(0)).unwrap().map(Result::unwrap);
    let deletes = tables.map(|table| {
        format!("DELETE FROM {table} WHERE org = (SELECT key FROM organization WHERE name = 'beta');")
    });
    bench.execute(&(deletes.collect::<String>() + "DELETE FROM organization WHERE name = 'beta'"));
    for _ in 0..2 {
        let problems = bench.problems().await;
        has(&problems, "an organization was created, and its row is gone: beta (");
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(bench.store.rebuild().await.unwrap().rows, 0);
    }
    // Deleting the registration of an existing organization is reported too.
    bench.execute("DELETE FROM known_organization WHERE name = 'acme'");
    has(&bench.problems().await, "an organization is not in table known_organization: acme (");
    bench.store.rebuild().await.unwrap();
    assert_eq!(bench.problems().await.len(), 1);
}

#[tokio::test]
async fn chunks_of_no_attachment_are_named() {
    let bench = Bench::new().await;
    let sha256 = sha256_hex(b"lost");
    bench.execute(&format!("INSERT INTO blob_chunk SELECT key, '{sha256}', 0, x'00' FROM organization"));
    let problems = bench.problems().await;
    assert_eq!(problems, [format!("chunks belong to no attachment: {sha256}")]);
    // The pending row means that the content is being uploaded, or will be swept.
    bench.execute(&format!(
        "INSERT INTO attachment_pending SELECT key, '{sha256}', 0, NULL FROM organization"
    ));
    assert_eq!(bench.problems().await, Vec::<String>::new());
}

#[tokio::test]
async fn entries_from_the_future_are_named_until_the_clock_is_corrected() {
    let bench = Bench::new().await;
    let org = bench.store.org_role("acme", "00000000-0000-0000-0000-00000001".parse().unwrap()).await;
    let org = org.unwrap().unwrap().organization.id;
    future::add(&*bench.store, org, "one").await;
    future::add(&*bench.store, org, "two").await;
    let problems = bench.problems().await;
    has(&problems, "organization acme: 2 ledger entries lie in the future, from entry ");
    assert_eq!(problems.len(), 1, "{problems:?}");
    let evidence = Evidence::new(bench.store.clone(), Settings::default());
    let ended = evidence.administration(&"host".parse().unwrap()).end_future(&"acme".parse().unwrap()).await;
    assert_eq!(ended.unwrap().entries, 2);
    assert_eq!(bench.problems().await, Vec::<String>::new());
    assert_eq!(bench.store.rebuild().await.unwrap().rows, 0);
    bench.execute("DELETE FROM clock_correction");
    has(&bench.problems().await, "table clock_correction: row ");
    assert_eq!(bench.store.rebuild().await.unwrap().rows, 1);
    let size = bench.store.ledger_head(org).await.unwrap().unwrap().size();
    assert_eq!(bench.store.ledger_size_at(org, evidence_core::time::SystemClock.now()).await.unwrap(), size);
}

#[tokio::test]
async fn a_lost_log_is_told_until_somebody_has_dealt_with_it() {
    let bench = Bench::new().await;
    let Bench { directory, store } = bench;
    let file = directory.path().join("e.db");
    let open = async || Bench {
        directory: tempfile::tempdir().unwrap(),
        store: Arc::new(Sqlite::open(&file).await.unwrap()),
    };
    store.close().await;
    // The content of the file without the rest, which is in the log.
    let older = std::fs::read(&file).unwrap();
    let bench = open().await;
    bench.seed("jane", &["gamma"]).await.unwrap();
    bench.store.close().await;
    let whole = std::fs::read(&file).unwrap();

    std::fs::write(&file, &older).unwrap();
    let bench = open().await;
    has(&bench.problems().await, "the write-ahead log was lost, or an older copy of the file was put back");
    // Later writes do not hide it.
    bench.seed("jane", &["delta"]).await.unwrap();
    assert_eq!(bench.problems().await.len(), 1);
    bench.store.close().await;
    let lost = directory.path().join("e.db-lost");
    std::fs::remove_file(&lost).unwrap();
    let bench = open().await;
    assert_eq!(bench.problems().await, Vec::<String>::new());
    bench.store.close().await;

    // The note of a later write does not indicate a loss.
    std::fs::write(&file, &whole).unwrap();
    std::fs::remove_file(directory.path().join("e.db-last")).unwrap();
    let bench = open().await;
    assert_eq!((bench.problems().await, lost.exists()), (Vec::new(), false));
}

/// Whatever is wrong with a signed checkpoint is named, hides nothing else and prevents no rebuild.
#[tokio::test]
async fn a_signed_checkpoint_is_compared_with_the_ledger() {
    let origin = "log.example";
    let signer = NoteSigner::new(origin, &[1; 32]).unwrap();
    let bench = Bench::new().await;
    let org = bench.org("acme").await;
    let head = bench.store.ledger_head(org).await.unwrap().unwrap();
    let (size, root) = (head.size(), head.root());
    let note = |size, root| Checkpoint { origin: origin.to_owned(), size, root }.sign([&signer]);
    for (note, problem) in [
        (note(size, root), None),
        (
            note(size, Hash::of("another")),
            Some(format!("its first {size} entries are not those of the signed checkpoint")),
        ),
        (
            note(size + 1, root),
            Some(format!("a checkpoint of {} entries was signed, but it has {size}", size + 1)),
        ),
        ("x".to_owned(), Some("its signed checkpoint cannot be read".to_owned())),
    ] {
        let before = bench.store.signed_checkpoint(org).await.unwrap();
        assert!(bench.store.replace_signed_checkpoint(org, before.as_deref(), Some(&note)).await.unwrap());
        let problems = bench.problems().await;
        match &problem {
            Some(problem) => has(&problems, &format!("organization acme: {problem}")),
            None => assert_eq!(problems, Vec::<String>::new()),
        }
        bench.execute("DELETE FROM membership WHERE org = 1");
        has(&bench.problems().await, "table membership: row");
        assert_eq!(bench.store.rebuild().await.unwrap().problems, Vec::<String>::new());
    }
}
