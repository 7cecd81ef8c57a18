//! What the evidence stores on SQLite and PostgreSQL have in common: the tables, every query, the write path, `fsck`,
//! making the tables again, and copying. No driver is in here: [`Driver`] says what a database has to do, and
//! `evidence-store-sqlite` and `evidence-store-postgres` do it.
//!
//! Start reading at `record.rs` (the write path), `tables.rs` (what it writes) and `sql.rs` (the rules that statements
//! keep). A resource's queries are in the file of its name, as in `evidence-core`.

mod actions;
mod allowlists;
mod artifacts;
mod attestation_types;
mod attestations;
mod blobs;
mod builds;
mod controls;
mod decode;
mod deployments;
mod driver;
mod environments;
mod events;
mod feed;
mod flows;
mod fsck;
mod instances;
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
mod shapes;
mod snapshots;
mod sql;
mod store;
mod table_rows;
mod tables;
mod tags;
mod texts;
mod trails;
mod transfer;
mod value;
mod windows;

pub use blobs::BlobWrite;
pub use driver::{Cost, Driver, Outdated, ScratchWork, Statement};
pub use fsck::{FsckReport, LedgerState, RebuildReport};
pub use record::{Group, Head, MAX_GROUP, Plan, Prefetch, Submission, groups_of};
pub use scratch::ScratchSession;
pub use sql::{CLOCK, Dialect, SCHEMA};
pub use store::SqlStore;
pub use table_rows::Rows;
pub use tables::TableWrite;
pub use value::{Cell, Column, FromCell, FromRow, Row, Value, signed};
