//! Tests a replaced or missing store file, as after restoring a backup under a running server.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evidence_core::seed::Seed;
use evidence_core::store::{Health, LedgerStore};
use evidence_core::transfer::Transfer;
use evidence_core::{Evidence, Settings, StoreError};
use evidence_store_sqlite::rusqlite::Connection;
use evidence_store_sqlite::{Options, Sqlite, SqliteStore};
use tempfile::TempDir;

/// A store with the organization `acme` and a backup of it. `beta` was written after the backup and is only
/// in the log.
struct Bench {
    directory: TempDir,
    store: Arc<SqliteStore>,
}

impl Bench {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = Arc::new(Sqlite::open(directory.path().join("e.db")).await.unwrap());
        let bench = Self { directory, store };
        seed(&bench.store, &["acme"]).await.unwrap();
        let backup = format!("VACUUM INTO '{}'", bench.path("backup.db").display());
        Connection::open(bench.path("e.db")).unwrap().execute_batch(&backup).unwrap();
        seed(&bench.store, &["beta"]).await.unwrap();
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.directory.path()).unwrap();
        let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<_> = files.filter(|file| !file.ends_with("-last")).collect();
        files.sort_unstable();
        files
    }

    /// Returns the error of the unavailable store.
    async fn complaint(&self) -> String {
        let Err(StoreError::Unavailable(why)) = self.store.ready().await else { panic!("it is ready") };
        let written = seed(&self.store, &["gamma"]).await;
        let Err(evidence_core::Error::Store(StoreError::Unavailable(again))) = written else {
            panic!("{written:?}")
        };
        assert_eq!(why.to_string(), again.to_string());
        assert!(matches!(self.store.fsck().await, Err(StoreError::Unavailable(_))));
        why.to_string()
    }
}

async fn seed(store: &Arc<SqliteStore>, orgs: &[&str]) -> Result<(), evidence_core::Error> {
    let orgs = orgs.iter().map(|org| org.parse().unwrap()).collect();
    let seed = Seed { user: "jane".parse().unwrap(), orgs, api_key: None };
    Evidence::new(store.clone(), Settings::default()).seed(&seed).await.map(drop)
}

async fn organizations(store: &SqliteStore) -> Vec<String> {
    let organizations = store.organizations(None, 100).await.unwrap();
    let mut names: Vec<_> = organizations.into_iter().map(|org| org.name.to_string()).collect();
    names.sort_unstable();
    names
}

/// Checks that the store in a file is valid, has these organizations, and accepts writes.
async fn expect(file: &Path, organizations_expected: &[&str]) {
    let store = Arc::new(Sqlite::open(file).await.unwrap());
    assert_eq!(store.fsck().await.unwrap().problems, Vec::<String>::new());
    assert_eq!(organizations(&store).await, organizations_expected);
    seed(&store, &["delta"]).await.unwrap();
    assert_eq!(store.fsck().await.unwrap().problems, Vec::<String>::new());
    store.close().await;
}

/// Replaces the store's file with the backup, in one of several ways.
fn put_back(bench: &Bench, way: &str) {
    let (file, backup) = (bench.path("e.db"), bench.path("backup.db"));
    match way {
        "moved over it" => fs::rename(backup, file).unwrap(),
        "copied once it is removed" => {
            // The copy may get the inode of the removed file. The other file cannot: it exists already.
            fs::write(bench.path("other"), "").unwrap();
            fs::remove_file(&file).unwrap();
            fs::copy(backup, file).map(drop).unwrap();
        }
        _ => {
            fs::rename(&file, bench.path("old.db")).unwrap();
            fs::copy(backup, file).map(drop).unwrap();
        }
    }
}

const WAYS: [&str; 3] = ["moved over it", "copied once it is removed", "copied once it is moved"];

#[tokio::test]
async fn a_backup_in_the_place_of_an_open_store_is_what_the_next_start_finds() {
    for way in WAYS {
        for noticed in [true, false] {
            let bench = Bench::new().await;
            put_back(&bench, way);
            if noticed {
                let complaint = bench.complaint().await;
                assert!(complaint.contains("was replaced") && complaint.contains("restart the server"));
                // A program that opens the file now finds nothing of the old one.
                assert!(!bench.path("e.db-wal").exists() && !bench.path("e.db-shm").exists(), "{way}");
                expect(&bench.path("e.db"), &["acme", "jane"]).await;
                assert_eq!(bench.complaint().await, complaint);
            }
            bench.store.close().await;
            let left = bench.files();
            let [aside, beside]: [Vec<_>; 2] = [true, false].map(|aside| {
                let of_this =
                    |name: &&String| name.starts_with("e.db-") && name.contains("replaced") == aside;
                left.iter().filter(of_this).collect()
            });
            assert!(beside.is_empty(), "{way}: {left:?}");
            // Only the renamed log contains the last writes.
            assert_eq!(aside.len(), 1, "{way}: {left:?}");
            let orgs = if noticed { &["acme", "delta", "jane"][..] } else { &["acme", "jane"] };
            expect(&bench.path("e.db"), orgs).await;
            if bench.path("old.db").exists() {
                fs::rename(bench.path(aside[0]), bench.path("old.db-wal")).unwrap();
                expect(&bench.path("old.db"), &["acme", "beta", "jane"]).await;
            }
        }
    }
}

#[tokio::test]
async fn a_store_that_was_replaced_stays_so_and_loses_nothing() {
    let bench = Bench::new().await;
    put_back(&bench, "copied once it is moved");
    let complaint = bench.complaint().await;
    fs::rename(bench.path("old.db"), bench.path("e.db")).unwrap();
    // The log of this file has been renamed, as if it had been removed.
    let later = bench.complaint().await;
    for complaint in [complaint, later] {
        assert!(complaint.contains("nothing is written any more"), "{complaint}");
    }
    bench.store.close().await;
    expect(&bench.path("e.db"), &["acme", "beta", "jane"]).await;
}

#[tokio::test]
async fn a_removed_or_replaced_log_stops_writes_and_its_content_is_saved() {
    for replaced in [false, true] {
        let bench = Bench::new().await;
        if replaced {
            fs::copy(bench.path("e.db-wal"), bench.path("other")).unwrap();
            fs::rename(bench.path("other"), bench.path("e.db-wal")).unwrap();
        } else {
            fs::remove_file(bench.path("e.db-wal")).unwrap();
        }
        let complaint = bench.complaint().await;
        assert!(complaint.contains("e.db-wal' was removed or replaced"), "{complaint}");
        bench.store.close().await;
        fs::remove_file(bench.path("e.db-wal")).ok();
        expect(&bench.path("e.db"), &["acme", "beta", "jane"]).await;
    }
}

#[tokio::test]
async fn only_the_owner_can_read_a_new_store() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new().await;
    for name in ["e.db", "e.db-wal", "e.db-shm"] {
        let mode = fs::metadata(bench.path(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    // A mode that the operator chose stays.
    fs::set_permissions(bench.path("e.db"), fs::Permissions::from_mode(0o640)).unwrap();
    bench.store.close().await;
    Sqlite::open(bench.path("e.db")).await.unwrap().close().await;
    assert_eq!(fs::metadata(bench.path("e.db")).unwrap().permissions().mode() & 0o777, 0o640);
}

#[tokio::test]
async fn what_was_written_last_is_kept_where_the_file_is_moved_to_another_disk_and_back() {
    let bench = Bench::new().await;
    // `mv` to another file system copies the file and removes the original.
    fs::copy(bench.path("e.db"), bench.path("elsewhere.db")).unwrap();
    fs::remove_file(bench.path("e.db")).unwrap();
    bench.store.close().await;
    fs::rename(bench.path("elsewhere.db"), bench.path("e.db")).unwrap();
    assert!(!bench.path("e.db-wal").exists());
    let log = bench.files().into_iter().find(|name| name.starts_with("e.db-wal.replaced-")).unwrap();
    fs::rename(bench.path(&log), bench.path("e.db-wal")).unwrap();
    expect(&bench.path("e.db"), &["acme", "beta", "jane"]).await;
}

#[tokio::test]
async fn a_start_while_the_file_is_away_makes_none() {
    let bench = Bench::new().await;
    fs::rename(bench.path("e.db"), bench.path("old.db")).unwrap();
    for address in ["e.db", "e.db?mode=rwc"] {
        let url = format!("sqlite://{}", bench.path(address).display());
        let refused = SqliteStore::connect(&url).await.unwrap_err();
        assert!(refused.to_string().contains("put the file back"), "{refused}");
        assert!(!bench.path("e.db").exists());
    }
    fs::rename(bench.path("old.db"), bench.path("e.db")).unwrap();
    bench.store.ready().await.unwrap();
    bench.store.close().await;
    expect(&bench.path("e.db"), &["acme", "beta", "jane"]).await;
}

#[tokio::test]
async fn a_file_is_not_opened_without_the_log_that_was_put_aside_for_it() {
    let bench = Bench::new().await;
    put_back(&bench, "copied once it is moved");
    bench.complaint().await;
    // The backup was a mistake, and the server is killed.
    fs::rename(bench.path("old.db"), bench.path("e.db")).unwrap();
    let refused = Sqlite::open(bench.path("e.db")).await.unwrap_err().to_string();
    let log = bench.files().into_iter().find(|name| name.starts_with("e.db-wal.replaced-")).unwrap();
    assert!(refused.contains(&log) && refused.contains("move the log to"), "{refused}");
    fs::copy(bench.path("e.db"), bench.path("again.db")).unwrap();
    fs::copy(bench.path(&log), bench.path("again.db-wal")).unwrap();
    expect(&bench.path("again.db"), &["acme", "beta", "jane"]).await;
}

#[tokio::test]
async fn a_file_that_is_back_is_used_again() {
    let bench = Bench::new().await;
    fs::rename(bench.path("e.db"), bench.path("old.db")).unwrap();
    let complaint = bench.complaint().await;
    assert!(complaint.contains("was removed") && complaint.contains("put the backup there"), "{complaint}");
    fs::rename(bench.path("old.db"), bench.path("e.db")).unwrap();
    bench.store.ready().await.unwrap();
    seed(&bench.store, &["gamma"]).await.unwrap();
    bench.store.close().await;
    expect(&bench.path("e.db"), &["acme", "beta", "gamma", "jane"]).await;
}

#[tokio::test]
async fn no_empty_store_is_made_where_one_was_removed() {
    let bench = Bench::new().await;
    fs::rename(bench.path("e.db"), bench.path("old.db")).unwrap();
    bench.store.close().await;
    for migrate in [true, false, true] {
        let options = Options { migrate, ..Options::default() };
        let refused = Sqlite::open_with(bench.path("e.db"), &options).await.unwrap_err();
        assert!(refused.to_string().contains("put the file back"), "{refused}");
    }
    // No part of the log remains that would change a backup.
    put_back(&bench, "moved over it");
    expect(&bench.path("e.db"), &["acme", "jane"]).await;
    let log = bench.files().into_iter().find(|name| name.starts_with("e.db-wal.replaced-")).unwrap();
    fs::rename(bench.path(&log), bench.path("old.db-wal")).unwrap();
    expect(&bench.path("old.db"), &["acme", "beta", "jane"]).await;
}

#[tokio::test]
async fn a_log_without_its_file_is_not_removed() {
    let bench = Bench::new().await;
    // A killed program leaves the files like this.
    fs::copy(bench.path("e.db-wal"), bench.path("killed.db-wal")).unwrap();
    let refused = Sqlite::open(bench.path("killed.db")).await.unwrap_err();
    assert!(refused.to_string().contains("put the file back"), "{refused}");
    fs::copy(bench.path("e.db"), bench.path("killed.db")).unwrap();
    expect(&bench.path("killed.db"), &["acme", "beta", "jane"]).await;
}

#[tokio::test]
async fn a_log_without_its_file_is_found_where_the_directory_cannot_be_listed_and_no_other_file_is_taken_for_one()
 {
    let bench = Bench::new().await;
    fs::write(bench.path("new.db-walrus"), "another file").unwrap();
    Sqlite::open(bench.path("new.db")).await.unwrap().close().await;
    fs::copy(bench.path("e.db-wal"), bench.path("killed.db-wal")).unwrap();
    // Root can list the directory in spite of this.
    fs::set_permissions(bench.directory.path(), fs::Permissions::from_mode(0o300)).unwrap();
    let refused = Sqlite::open(bench.path("killed.db")).await.map(drop);
    fs::set_permissions(bench.directory.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("put the file back"), "{refused}");
}

#[tokio::test]
async fn a_link_is_followed_once() {
    for address in ["link.db", "link.db?mode=rwc", "link.db?cache=private&mode=rw"] {
        let bench = Bench::new().await;
        symlink(bench.path("backup.db"), bench.path("link.db")).unwrap();
        let url = format!("sqlite://{}", bench.path(address).display());
        let store = Arc::new(SqliteStore::connect(&url).await.unwrap());
        fs::remove_file(bench.path("link.db")).unwrap();
        symlink(bench.path("e.db"), bench.path("link.db")).unwrap();
        // The writer, the readers and `fsck` still use the first file.
        seed(&store, &["gamma"]).await.unwrap();
        assert_eq!(organizations(&store).await, ["acme", "gamma", "jane"]);
        assert_eq!(store.fsck().await.unwrap().organizations, 3);
        store.close().await;
        assert_eq!(organizations(&bench.store).await, ["acme", "beta", "jane"]);
    }
}

#[tokio::test]
async fn an_organization_is_the_one_that_the_file_says_now() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("e.db");
    let store = Arc::new(Sqlite::open(&file).await.unwrap());
    let seed = Seed {
        user: "jane".parse().unwrap(),
        orgs: ["acme", "beta"].map(|org| org.parse().unwrap()).to_vec(),
        api_key: None,
    };
    Evidence::new(store.clone(), Settings::default()).seed(&seed).await.unwrap();
    let orgs = store.organizations(None, 9).await.unwrap();
    let org = |name: &str| orgs.iter().find(|org| org.name.as_str() == name).unwrap().id;
    let heads = async || {
        let heads = [store.ledger_head(org("acme")).await, store.ledger_head(org("beta")).await];
        heads.map(|head| head.unwrap().unwrap().to_bytes())
    };
    let [acme, beta] = heads().await;
    assert_ne!(acme, beta);
    // Like a backup in which the organizations were created in another order.
    let connection = Connection::open(&file).unwrap();
    let keys = |name: &str| -> i64 {
        connection.query_row("SELECT key FROM organization WHERE name = ?", [name], |row| row.get(0)).unwrap()
    };
    let (first, second) = (keys("acme"), keys("beta"));
    for (name, key) in [("acme", -1), ("beta", first), ("acme", second)] {
        connection.execute("UPDATE organization SET key = ? WHERE name = ?", (key, name)).unwrap();
    }
    assert_eq!(heads().await, [beta, acme], "the key that the file has");
}
