//! The evidence store on SQLite: one file, one writer that commits concurrent writes in one transaction, and
//! a pool of readers.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let file = directory.path().join("evidence.db");
//! # let url = format!("sqlite://{}", file.display());
//! use evidence_core::store::Health;
//! use evidence_store_sqlite::SqliteStore;
//!
//! let store = SqliteStore::connect(&url).await?; // such as sqlite://evidence.db
//! store.ready().await?;
//! assert!(store.is_empty().await?);
//! assert!(store.fsck().await?.problems.is_empty());
//! store.close().await;
//! # Ok(()) }
//! ```
//!
//! [`SqliteStore::connect`] opens a store. Its operations are the traits of [`evidence_core::store`].
//!
//! The statements and the write path are in `evidence-store-sql` (start at its `record.rs`). This crate
//! contains the connections, the writer, errors and migrations; start at `db.rs`.

mod address;
mod bind;
mod clock;
mod connection;
mod db;
mod error;
mod file;
mod last_write;
mod migrate;
#[cfg(test)]
mod plans;
mod readers;
mod scratch;
#[cfg(test)]
mod statements_run;
mod steps;
mod writer;

pub use db::{Options, Sqlite, SqliteStore};
pub use error::ConnectError;
pub use evidence_store_sql::{FsckReport, LedgerState, RebuildReport};
pub use rusqlite;
