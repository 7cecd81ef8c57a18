//! The memory store keeps every promise of the store contract.

use std::process::ExitCode;
use std::sync::Arc;

use evidence_conformance::memory::MemoryStore;
use evidence_core::transfer::Transfer;

fn main() -> ExitCode {
    evidence_conformance::main_with_transfer(async || Arc::new(MemoryStore::new()) as Arc<dyn Transfer>)
}
