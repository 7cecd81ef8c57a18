//! Every promise of the store contract, on a fresh file each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use evidence_core::{Store, conformance};
use evidence_store_sqlite::SqliteStore;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sqlite_store_keeps_every_promise() {
    let directory = tempfile::tempdir().unwrap();
    let files = AtomicU32::new(0);
    let report = conformance::run_all(|| {
        let number = files.fetch_add(1, Ordering::Relaxed);
        let file = directory.path().join(format!("{number}.db"));
        async move { Arc::new(SqliteStore::open(file).await.unwrap()) as Arc<dyn Store> }
    })
    .await;
    report.assert_ok();
}
