//! PostgreSQL for tests: finds the server's programs on this machine, starts throwaway clusters with them, and hands
//! out unused schema names. Plain `std`, so that `cargo xtask` can use it and still builds in a moment; SQL goes
//! through `psql`, which comes with the server.
//!
//! Most tests share the one server that [`SERVER_URL_VARIABLE`] names (`cargo xtask test` starts it) and take a
//! [`SchemaName`] each. Tests that stop the server, or that need its settings, start a [`Cluster`] of their own.
#![cfg(unix)]

mod cluster;
mod programs;
mod schema;

pub use cluster::{Cluster, Durability, Frozen, Stop};
pub use programs::Programs;
pub use schema::{SERVER_URL_VARIABLE, SchemaName};
