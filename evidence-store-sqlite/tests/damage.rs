//! What somebody does to the file behind the store's back: it is named, it hides nothing else, and it stops nobody.

use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;

use evidence_core::conformance;
use evidence_core::deployments::{Deployment, DeploymentFilter, DeploymentScope, DeploymentStore};
use evidence_core::digest::sha256_hex;
use evidence_core::environments::EnvironmentStore;
use evidence_core::id::Id;
use evidence_core::page::PageRequest;
use evidence_core::seed::Seed;
use evidence_core::snapshots::SnapshotStore;
use evidence_core::sweep::PendingStore;
use evidence_core::time::Timestamp;
use evidence_core::transfer::Transfer;
use evidence_core::{Evidence, Settings, StoreError};
use evidence_store_sqlite::rusqlite::Connection;
use evidence_store_sqlite::{ConnectError, Sqlite, SqliteStore};
use tempfile::TempDir;

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

    /// What a check of the store contract leaves behind.
    async fn after(check: &str) -> Self {
        let bench = Self::empty().await;
        let check = conformance::checks().into_iter().find(|known| known.name.ends_with(check)).unwrap();
        (check.run)(bench.store.clone()).await.unwrap();
        bench
    }

    /// With the organizations `acme` and `beta`.
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

    async fn org(&self, name: &str) -> Id {
        let organizations = self.store.organizations(None, 100).await.unwrap();
        organizations.into_iter().find(|org| org.name.as_str() == name).unwrap().id
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

/// Below every organization, above, and where none is.
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
        ("allowance", "'e', 'f', 0, 0"),
        ("kept_text", "'t', 0"),
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

/// Whatever page of the file is damaged.
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
        assert!(matches!(refused, ConnectError::BadUrl { .. }), "{name}: {refused}");
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

/// What is found by binary search of an environment: the latest snapshot at each time, the latest deployment of each artifact, and
/// what was deployed from each time on.
#[derive(Debug, PartialEq)]
struct Searched {
    snapshots: Vec<u64>,
    latest: Vec<Option<Deployment>>,
    deployed: Vec<Vec<Deployment>>,
}

impl Searched {
    /// At these times, and of and from these deployments.
    async fn of(bench: &Bench, times: &[Timestamp], all: &[Deployment]) -> Self {
        let (store, org) = (&bench.store, bench.org("foo").await);
        let environment = prod(bench).await;
        let (mut snapshots, mut latest, mut deployed) = (Vec::new(), Vec::new(), Vec::new());
        for at in times {
            snapshots.push(store.snapshot_at(org, environment, *at).await.unwrap());
        }
        for one in all {
            let fingerprint = one.fingerprint.as_ref().unwrap();
            latest.push(store.latest_deployment(org, environment, fingerprint).await.unwrap());
            let filter = DeploymentFilter {
                scope: DeploymentScope::Environment(environment),
                environments: None,
                flow: None,
                from: one.at,
                to: Timestamp::from_micros(i64::MAX),
            };
            deployed.push(store.deployments(org, &filter, PageRequest::ALL).await.unwrap().items);
        }
        Self { snapshots, latest, deployed }
    }
}

/// The environment `prod` of the organization `foo`.
async fn prod(bench: &Bench) -> Id {
    bench.store.environment(bench.org("foo").await, "prod").await.unwrap().unwrap().record.id
}

#[tokio::test]
async fn a_row_that_is_lost_hides_no_later_one_from_a_binary_search() {
    let bench = Bench::after("the_last_deployment_is_found").await;
    let (org, environment) = (bench.org("foo").await, prod(&bench).await);
    let mut times = Vec::new();
    for number in 1.. {
        let Some(snapshot) = bench.store.snapshot(org, environment, number).await.unwrap() else { break };
        times.push(snapshot.record.at);
    }
    let everything = DeploymentFilter {
        scope: DeploymentScope::Environment(environment),
        environments: None,
        flow: None,
        from: Timestamp::from_micros(i64::MIN),
        to: Timestamp::from_micros(i64::MAX),
    };
    let all = bench.store.deployments(org, &everything, PageRequest::ALL).await.unwrap().items;
    assert_eq!((times.len(), all.len()), (4, 4));
    let whole = Searched::of(&bench, &times, &all).await;
    assert_eq!(whole.snapshots, [1, 2, 3, 4]);
    // But for the last, without which everything is as if it had not been.
    for lost in 1..4 {
        let bench = Bench::after("the_last_deployment_is_found").await;
        for statement in [
            format!("DELETE FROM deployment WHERE environment_ordinal = {lost}"),
            format!("DELETE FROM snapshot WHERE idx = {lost}"),
        ] {
            bench.execute(&statement);
        }
        let mut left = Searched::of(&bench, &times, &all).await;
        let is_left = |one: &Deployment| *one != all[all.len() - lost];
        for (place, (number, one)) in (1..).zip(&all).enumerate() {
            let expected: Vec<_> = whole.deployed[place].iter().filter(|one| is_left(one)).cloned().collect();
            assert_eq!(left.deployed[place], expected, "{number} without {lost}");
            let newest = all.iter().find(|other| other.fingerprint == one.fingerprint).unwrap();
            if is_left(newest) {
                assert_eq!(left.latest[place], whole.latest[place], "{number} without {lost}");
            }
        }
        left.snapshots.remove(lost - 1);
        let expected: Vec<_> = (1..=4).filter(|number| *number != lost as u64).collect();
        assert_eq!(left.snapshots, expected, "without {lost}");
    }
}

#[tokio::test]
async fn a_row_that_lost_its_number_hides_no_other_one() {
    let bench = Bench::after("the_last_deployment_is_found").await;
    let org = bench.org("foo").await;
    let everything = DeploymentFilter {
        scope: DeploymentScope::Organization,
        environments: None,
        flow: None,
        from: Timestamp::from_micros(i64::MIN),
        to: Timestamp::from_micros(i64::MAX),
    };
    let all = bench.store.deployments(org, &everything, PageRequest::ALL).await.unwrap().items;
    let repo = |one: &Deployment| one.report.as_ref().and_then(|report| report.repo);
    let repo_of_most = repo(all.last().unwrap()).unwrap();
    let of_repo = |from| DeploymentFilter {
        scope: DeploymentScope::Repos(vec![repo_of_most]),
        from,
        ..everything.clone()
    };
    let oldest_first: Vec<_> = all.iter().rev().filter(|one| repo(one) == Some(repo_of_most)).collect();
    assert_eq!(oldest_first.len(), 3);
    for (lost, number) in oldest_first.iter().zip(1..) {
        let bench = Bench::after("the_last_deployment_is_found").await;
        bench.execute(&format!("UPDATE deployment SET repo_ordinal = NULL WHERE repo_ordinal = {number}"));
        for from in [everything.from, oldest_first[0].at, oldest_first[1].at] {
            let found = bench.store.deployments(org, &of_repo(from), PageRequest::ALL).await.unwrap().items;
            let left = oldest_first.iter().rev().filter(|one| one.at >= from && one != &lost);
            let left: Vec<_> = left.map(|one| (*one).clone()).collect();
            assert_eq!(found, left, "from {from:?} without {number}");
            let mut paged = Vec::new();
            for offset in 0..oldest_first.len() as u64 {
                let request = PageRequest { offset, limit: 1 };
                paged.extend(bench.store.deployments(org, &of_repo(from), request).await.unwrap().items);
            }
            assert_eq!(paged, left, "by pages from {from:?} without {number}");
        }
    }
}
