//! The SQLite store keeps every promise of the store contract, on a fresh file each.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use evidence_core::conformance;
use evidence_core::transfer::Transfer;
use evidence_store_sqlite::SqliteStore;

fn main() -> ExitCode {
    let directory = tempfile::tempdir().unwrap();
    let files = AtomicU32::new(0);
    conformance::main_with_transfer(move || {
        let number = files.fetch_add(1, Ordering::Relaxed);
        let file = directory.path().join(format!("{number}.db"));
        async move { Arc::new(SqliteStore::open(file).await.unwrap()) as Arc<dyn Transfer> }
    })
}
