//! The evidence store on PostgreSQL 15 or newer: several servers share one database, each with one writer that groups
//! what arrives at the same time into one transaction, and a pool of readers.
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
//! [`Postgres::from_pool`] takes the pool that a host has already, and a schema of its choice; everything else is
//! the traits of [`evidence_core::store`]. The files are those of the SQLite store, and the statements are its
//! statements wherever the two databases agree; comments tell where they do not. Start reading at `record.rs` (the write
//! path) and `migrations/` (the tables).

mod bind;
mod connections;
mod db;
mod error;
mod lookup;
mod migrate;
#[cfg(test)]
mod partitions;
#[cfg(test)]
mod plans;
mod schema;
mod session;
mod writer;

pub use db::{Options, Postgres, PostgresStore};
pub use error::ConnectError;
pub use evidence_store_sql::{FsckReport, RebuildReport};
pub use sqlx;
