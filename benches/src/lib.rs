//! Benchmarks: the cost of the service, where possible as a ratio to a raw probe in the same run, because
//! machines are noisy and shared.
//!
//! | id | program | what is measured |
//! | --- | --- | --- |
//! | P1 | `http.rs` | attestations on SQLite, against raw grouped inserts |
//! | P2 | `http.rs` | attestations on PostgreSQL, against `pgbench` |
//! | P3 | `http.rs` | reading an artifact, against the same bytes from hyper alone |
//! | P4 | `growth.rs` | reads as the store grows |
//! | P4 | `records.rs` | every read of what is recorded about changes, as attestations come in over the API |
//! | P5 | `http.rs` | reports of what runs in an environment |
//! | P6 | `environments.rs` | a year of an environment: bytes a snapshot, and reports and reads at its beginning and its end |
//! | P7 | `audit_pdf.rs` | the trail PDF, over the memory store |
//! | P8, P9, P10 | `standalone_server.rs` | the server's start, its memory, the size of its program |
//! | | `mounts.rs` | the hosts that carry the API |
//! | | `loads.rs` | writes and reads at 1 to 1,024 connections, and latencies at a fixed rate |
//!
//! Each program prints rows of one table, for SQLite and for PostgreSQL. These are no tests, and no figure
//! fails a build. `cargo xtask bench --page` writes the rows to `README.md` in this directory, with plots.
//!
//! The figures are meaningful only on a quiet machine. `cargo xtask bench --page bench_loads` runs one
//! program again. Words after `--` select the rows whose id and engine contain all of them, and variables set
//! the sizes:
//!
//! ```sh
//! cargo bench -p evidence-benches --bench bench_http -- P3 postgres
//! cargo bench -p evidence-benches --bench bench_loads -- write sqlite
//! EVIDENCE_BENCH_GROWTH=10000,1000000 cargo bench -p evidence-benches --bench bench_growth
//! EVIDENCE_BENCH_GROWTH=10000,1000000 cargo bench -p evidence-benches --bench bench_records
//! EVIDENCE_BENCH_REPORTS=100000 EVIDENCE_BENCH_CHANGES=10000 cargo bench -p evidence-benches --bench bench_environments
//! ```

mod attester;
mod client;
mod filter;
mod growth;
mod load;
mod pgbench;
mod probe;
mod process;
mod server;
mod stores;
mod table;

/// The allocator of the standalone server, which these figures represent.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub use attester::{Attester, attestation};
pub use client::{Client, Request, Response, form};
pub use filter::Filter;
pub use growth::{Grown, Reads, growth, sizes};
pub use load::{
    Repeater, Round, Worker, durations_ms, median, median_ms, paced, percentile, round, run, send_all,
};
pub use pgbench::Pgbench;
pub use probe::{Insert, RawInserts};
pub use process::Process;
pub use server::{
    Compiled, FLOW, Mount, ORG, Server, attestation_document, bare, evidence, member, new_id,
    seed_organization,
};
pub use stores::{AnyStore, Engine, Stores};
pub use table::{NOTED, Noted, Point, Row, print};

/// The result of a step.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
