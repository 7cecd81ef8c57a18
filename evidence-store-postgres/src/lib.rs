//! The evidence store on PostgreSQL 15 or newer. Several servers share one database. Each has one writer that
//! commits concurrent writes in one transaction, and a pool of readers.
//!
//! ```no_run
//! # async fn open() -> Result<(), evidence_store_postgres::ConnectError> {
//! use evidence_store_postgres::PostgresStore;
//!
//! let store = PostgresStore::connect("postgres://evidence@localhost/evidence").await?;
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `tls` | yes | encrypted connections, with the system's root certificates |
//!
//! # Where to start
//!
//! [`Postgres::from_pool`] takes an existing pool of the host and a schema name. The operations of a store
//! are the traits of [`evidence_core::store`].
//!
//! The statements and the write path are in `evidence-store-sql` (start at its `record.rs`). This crate
//! contains the connections, the writer, errors and migrations; start at `db.rs`.

mod bind;
mod connections;
mod db;
mod error;
mod migrate;
mod name_batcher;
#[cfg(test)]
mod partitions;
#[cfg(test)]
mod plans;
mod reader;
mod schema;
mod scratch;
#[cfg(test)]
mod statements_run;
mod steps;
mod writer;

pub use db::{Options, Postgres, PostgresStore};
pub use error::ConnectError;
pub use evidence_store_sql::{FsckReport, RebuildReport};
pub use sqlx;
