//! The memory store keeps every promise of the store contract.

use std::process::ExitCode;
use std::sync::Arc;

use evidence_core::memory::MemoryStore;
use evidence_core::{Store, conformance};

fn main() -> ExitCode {
    conformance::main(async || Arc::new(MemoryStore::new()) as Arc<dyn Store>)
}
