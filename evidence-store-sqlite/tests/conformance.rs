//! Runs the conformance checks of the store contract on SQLite, each on a new file.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use evidence_core::transfer::Transfer;
use evidence_store_sqlite::{Options, Sqlite};

/// The contract must hold on a slow machine too, so checks with many concurrent callers must not reach a time
/// limit.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let directory = tempfile::tempdir().unwrap();
    let files = AtomicU32::new(0);
    evidence_conformance::main_with_transfer(move || {
        let number = files.fetch_add(1, Ordering::Relaxed);
        let file = directory.path().join(format!("{number}.db"));
        let options =
            Options { acquire_timeout: TEST_TIMEOUT, queue_timeout: TEST_TIMEOUT, ..Options::default() };
        async move { Arc::new(Sqlite::open_with(file, &options).await.unwrap()) as Arc<dyn Transfer> }
    })
}
