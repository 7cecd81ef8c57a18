//! PostgreSQL for tests: finds the server's programs on this machine, starts temporary clusters with them,
//! and provides unused schema names. It depends only on `std`, so that `cargo xtask` builds quickly. SQL runs
//! through `psql`, which is part of the server.
//!
//! Most tests share the server in [`SERVER_URL_VARIABLE`], which `cargo xtask test` starts, and use a
//! [`SchemaName`] each. Tests that stop the server or need other settings start a separate [`Cluster`].
#![cfg(unix)]

mod cluster;
mod programs;
mod schema;

pub use cluster::{Cluster, Durability, Frozen, Stop};
pub use programs::Programs;
pub use schema::{SERVER_URL_VARIABLE, SchemaName};
