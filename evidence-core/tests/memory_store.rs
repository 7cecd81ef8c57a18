//! The memory store keeps every promise of the store contract.

mod support;

use std::sync::Arc;

use evidence_core::Store;
use evidence_core::conformance::{checks, run_all};
use evidence_core::memory::MemoryStore;

#[test]
fn the_memory_store_keeps_every_promise() {
    let report = support::wait(run_all(async || Arc::new(MemoryStore::new()) as Arc<dyn Store>));
    assert_eq!(report.run, checks().len());
    report.assert_ok();
}
