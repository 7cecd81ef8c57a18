//! Tests copying one file to another: rows of every kind, and interrupted copies.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use evidence_core::transfer::{CopyError, CopyProgress, Side, Summary, Transfer, copy};
use evidence_store_sqlite::rusqlite::Connection;
use evidence_store_sqlite::{Sqlite, SqliteStore};

async fn open(directory: &Path, name: impl std::fmt::Display) -> Arc<SqliteStore> {
    Arc::new(Sqlite::open(directory.join(format!("{name}.db"))).await.unwrap())
}

async fn copied(from: &SqliteStore, to: &SqliteStore) -> Result<Summary, CopyError> {
    let [from, to] = [from, to].map(|store| Side::from(store as &dyn Transfer));
    copy(from, to, &mut |_| {}).await
}

/// Drops a future after this many polls. Returns its outcome if it completed.
async fn poll_and_drop<T>(future: impl Future<Output = T>, polls: u32) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test]
async fn whatever_was_recorded_has_the_same_rows_in_a_copy() {
    let directory = tempfile::tempdir().unwrap();
    for (number, check) in evidence_conformance::checks().into_iter().enumerate() {
        let source = open(directory.path(), number).await;
        (check.run)(source.clone()).await.unwrap();
        let target = open(directory.path(), format!("{number}-copy")).await;
        let summary = copied(&source, &target).await.unwrap();
        assert_eq!(summary.late_entries, 0, "{}", check.name);
        // `fsck` rederives every table from the ledger. Attachments that were referenced but never stored are
        // missing in both stores.
        assert_eq!(target.fsck().await.unwrap(), source.fsck().await.unwrap(), "{}", check.name);
        let organizations = target.organizations(None, 1000).await.unwrap();
        assert_eq!(organizations, source.organizations(None, 1000).await.unwrap(), "{}", check.name);
    }
}

#[tokio::test]
async fn a_copy_that_is_broken_off_anywhere_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let source = open(directory.path(), "source").await;
    let grown =
        evidence_conformance::checks().into_iter().find(|check| check.name.ends_with("growth_can_be_proved"));
    (grown.unwrap().run)(source.clone()).await.unwrap();
    let target = open(directory.path(), "target").await;
    let mut polls = 1;
    loop {
        match poll_and_drop(copied(&source, &target), polls).await {
            Some(Ok(_)) => break,
            // A write that the dropped copy had enqueued was recorded during this copy.
            Some(Err(CopyError::Refused(_))) | None => polls += 1,
            Some(Err(error)) => panic!("after {polls} polls: {error}"),
        }
    }
    assert!(polls > 3, "the copy was never broken off half way");
    let summary = copied(&source, &target).await.unwrap();
    assert_eq!((summary.entries, summary.new_entries, summary.is_complete()), (300, 0, true));
    assert_eq!(target.fsck().await.unwrap().problems, Vec::<String>::new());
}

#[tokio::test]
async fn what_the_entries_name_is_copied_where_the_rows_that_say_so_are_lost() {
    let directory = tempfile::tempdir().unwrap();
    let source = open(directory.path(), "source").await;
    let attached = evidence_conformance::transfer_checks()
        .into_iter()
        .find(|check| check.name.ends_with("come_by_digest"));
    (attached.unwrap().run)(source.clone()).await.unwrap();
    let rows = Connection::open(directory.path().join("source.db")).unwrap();
    assert_eq!(rows.execute("DELETE FROM attachment", []).unwrap(), 5);
    let target = open(directory.path(), "target").await;
    let summary = copied(&source, &target).await.unwrap();
    assert_eq!((summary.attachments.copied, summary.is_complete()), (5, true));
    let found = target.fsck().await.unwrap();
    assert_eq!((found.missing_attachments, found.problems), (0, Vec::new()));
}

#[tokio::test]
async fn damage_in_one_organization_keeps_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let source = open(directory.path(), "source").await;
    let two = evidence_conformance::transfer_checks()
        .into_iter()
        .find(|check| check.name.ends_with("come_by_digest"));
    (two.unwrap().run)(source.clone()).await.unwrap();
    let organizations = source.organizations(None, 10).await.unwrap();
    let rows = Connection::open(directory.path().join("source.db")).unwrap();
    let first = "org = (SELECT key FROM organization ORDER BY id LIMIT 1)";
    let again = open(directory.path(), "again").await;
    copied(&source, &again).await.unwrap();
    for (number, damage) in [
        format!("UPDATE ledger SET actor = 'x' WHERE idx = 1 AND {first}"),
        format!("DELETE FROM ledger WHERE idx = 1 AND {first}"),
        format!("UPDATE ledger SET leaf_hash = zeroblob(32) WHERE idx = 0 AND {first}"),
        format!("DELETE FROM head WHERE {first}"),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(rows.execute(&damage, []).unwrap() > 0, "{damage}");
        // An intact ledger in the target stays as it is, and does not count as another ledger.
        let mut named = 0;
        let mut progress = |progress| named += u64::from(matches!(progress, CopyProgress::Damaged { .. }));
        let [from, to] = [&source, &again].map(|store| Side::from(&**store as &dyn Transfer));
        let summary = copy(from, to, &mut progress).await.unwrap();
        assert_eq!(summary.damaged_organizations, named, "{damage}");
        // The payload is not read again.
        assert_eq!(named, u64::from(number > 0), "{damage}");
        let target = open(directory.path(), number).await;
        let (mut damaged, mut whole) = (Vec::new(), Vec::new());
        let mut progress = |progress| match progress {
            CopyProgress::Damaged { organization, .. } => damaged.push(organization),
            CopyProgress::Organization(copied) => whole.push(copied.organization),
            other => panic!("{other:?}"),
        };
        let [from, to] = [&source, &target].map(|store| Side::from(&**store as &dyn Transfer));
        let summary = copy(from, to, &mut progress).await.unwrap();
        assert_eq!((summary.organizations, summary.damaged_organizations, summary.late_entries), (2, 1, 0));
        assert!(!summary.is_complete());
        assert_eq!(damaged, [organizations[0].name.clone()]);
        assert_eq!(whole, [organizations[1].name.clone()]);
        let found = target.fsck().await.unwrap();
        assert_eq!((found.organizations, found.problems), (if number < 2 { 2 } else { 1 }, Vec::new()));
    }
}
