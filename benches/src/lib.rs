//! Figures: what the service costs, as a ratio to a raw probe of the same run wherever there is one, for machines are
//! noisy and shared.
//!
//! The targets are `http.rs` (the API over a socket on SQLite), `stores.rs` (a store in its file) and `core.rs` (no
//! I/O). Each prints rows of one table; nothing here is a test, and no figure fails a build.

mod client;
mod load;
mod probe;
mod server;
mod table;

pub use client::{Client, Request, Response, form};
pub use load::{Round, Worker, median, round, send_all, times};
pub use probe::{Insert, RawInserts};
pub use server::{FLOW, ORG, Server, attestation_document, evidence};
pub use table::{Row, print};

/// Done, or what went wrong.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
