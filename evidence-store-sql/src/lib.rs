//! The shared part of the evidence stores on SQLite and PostgreSQL: tables, queries, the write path, `fsck`,
//! rebuilding of tables, and copying between stores. This crate contains no database driver. The [`Driver`]
//! trait defines the database operations; `evidence-store-sqlite` and `evidence-store-postgres` implement it.
//!
//! Start reading at `record.rs` (the write path), `tables.rs` (the tables that it writes) and `sql.rs` (the
//! rules for SQL statements). The queries of a resource are in the file named after it, as in
//! `evidence-core`.

mod actions;
mod allowlists;
mod artifacts;
mod attestation_types;
mod attestations;
mod blobs;
mod builds;
mod checkpoints;
mod controls;
mod decode;
mod deployments;
mod driver;
mod environments;
mod events;
mod flows;
mod fsck;
mod group_rows;
mod instances;
mod leases;
mod ledger;
mod listing;
pub mod migrate;
mod orgs;
mod pending;
mod policies;
mod prefetch;
mod record;
mod repos;
mod row_builder;
mod scratch;
mod service_accounts;
mod snapshots;
mod sql;
mod store;
mod tables;
mod tags;
mod texts;
mod trails;
mod transfer;
mod value;
mod windows;
mod write_statements;

pub use blobs::BlobWrite;
pub use driver::{Cost, Driver, Outdated, ScratchWork, Statement};
pub use fsck::{FsckReport, LedgerState, RebuildReport};
pub use group_rows::GroupRows;
pub use record::{Group, Head, MAX_GROUP, Plan, Prefetch, Submission, groups_of};
pub use scratch::ScratchSession;
pub use sql::{CLOCK, Dialect, SCHEMA};
pub use store::SqlStore;
pub use tables::TableWrite;
pub use value::{Cell, Column, FromCell, FromRow, Row, Value, signed};
