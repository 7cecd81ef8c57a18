//! The checks that every store of [`evidence`](evidence_core) has to pass, one promise of the [store
//! contract](evidence_core::store) each, and [`memory`], a store that serves as the reference.
//!
//! The author of a store writes a test program of a few lines. In `Cargo.toml`:
//!
//! ```toml
//! [dev-dependencies]
//! evidence-conformance = "0.1"
//!
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! and in `tests/conformance.rs`, with the store's own type in place of [`MemoryStore`](memory::MemoryStore):
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use evidence_conformance::memory::MemoryStore;
//! use evidence_core::Store;
//!
//! fn main() -> ExitCode {
//!     evidence_conformance::main(async || Arc::new(MemoryStore::new()) as Arc<dyn Store>)
//! }
//! ```
//!
//! - The closure creates an empty store for each check. Several checks run at the same time.
//! - `cargo test --test conformance` prints a line for each check, such as `test
//!   conformance::flows::flows_are_listed_by_name ... ok`. A failure names the broken promise and what was found instead.
//! - `cargo test --test conformance -- ledger races` runs the checks with `ledger` or `races` in their name. `-- --exact
//!   <name>` runs one, `-- --list` lists all, and `-- --test-threads 1` runs one at a time.
//! - [`evidence_core::store`] gives the order in which to write a store.
//!
//! A check is a plain function from a store to an outcome ([`Check::run`]), so other tests can use the suite to fill a
//! store. Checks of races spawn tasks. They need a Tokio runtime with several threads.
//!
//! The store's own tests must cover three more promises: a write outlives a crash, two processes share one store, and a
//! query takes a bounded number of statements.

mod actions;
mod allowlists;
mod artifacts;
mod attestation_types;
mod attestations;
mod blobs;
mod builds;
mod checkpoints;
mod controls;
mod deployments;
mod environments;
mod events;
pub(crate) mod fixtures;
mod flows;
mod harness;
mod leases;
mod ledger;
mod lists;
pub mod memory;
mod orgs;
mod pending;
mod policies;
mod races;
mod recording;
mod repos;
mod service_accounts;
mod shared;
mod snapshots;
mod tags;
mod texts;
mod trails;
mod transfer;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use evidence_core::store::{Store, StoreError, StoreResult};
use evidence_core::transfer::Transfer;

pub use blobs::run_blobs;
pub use harness::{main, main_with_transfer};

/// The outcome of a check.
pub type Outcome = Result<(), Failure>;

/// A check in progress.
pub type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A check of one promise: of every [`Store`], or of a store that also implements another trait.
pub struct Check<S: ?Sized = dyn Store> {
    /// The path of the check.
    pub name: &'static str,
    /// The promise of a store.
    pub promise: &'static str,
    /// Runs the check on an empty store.
    pub run: fn(Arc<S>) -> Running,
}

impl<S: ?Sized> Clone for Check<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: ?Sized> Copy for Check<S> {}

impl<S: ?Sized> fmt::Debug for Check<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("name", &self.name)
            .field("promise", &self.promise)
            .finish_non_exhaustive()
    }
}

/// The reason why a check failed: the broken promise and the difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self(format!("the store failed: {error:?}"))
    }
}

/// The checks of every store.
pub fn checks() -> Vec<Check> {
    [
        ledger::checks(),
        recording::checks(),
        races::checks(),
        lists::checks(),
        orgs::checks(),
        service_accounts::checks(),
        flows::checks(),
        trails::checks(),
        artifacts::checks(),
        builds::checks(),
        attestations::checks(),
        repos::checks(),
        environments::checks(),
        snapshots::checks(),
        events::checks(),
        tags::checks(),
        policies::checks(),
        actions::checks(),
        allowlists::checks(),
        attestation_types::checks(),
        controls::checks(),
        deployments::checks(),
        texts::checks(),
        blobs::checks(),
        pending::checks(),
        checkpoints::checks(),
        leases::checks(),
    ]
    .concat()
}

/// The checks of stores that can be copied, besides those of every store.
pub fn transfer_checks() -> Vec<Check<dyn Transfer>> {
    transfer::checks()
}

/// Lists the checks of a module under their paths: of every store, or of those of a type.
macro_rules! promises {
    (of $store:ty; $($check:ident: $promise:literal,)*) => {
        pub(super) fn checks() -> Vec<$crate::Check<$store>> {
            vec![$($crate::Check {
                name: concat!(module_path!(), "::", stringify!($check)),
                promise: $promise,
                run: |store| Box::pin($check(store)),
            }),*]
        }
    };
    ($($check:ident: $promise:literal,)*) => {
        $crate::promises! { of dyn evidence_core::store::Store; $($check: $promise,)* }
    };
}
use promises;

fn ensure(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(Failure(what.to_owned())) }
}

#[expect(clippy::needless_pass_by_value, reason = "checks read better without borrowing what they compare")]
fn same<T: PartialEq + fmt::Debug>(what: &str, found: T, expected: T) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(Failure(format!("{what}: found {found:#?}, expected {expected:#?}")))
}

/// Compares lists that have no order.
#[expect(clippy::needless_pass_by_value, reason = "checks read better without borrowing what they compare")]
fn same_set<T: PartialEq + fmt::Debug>(what: &str, found: Vec<T>, expected: Vec<T>) -> Outcome {
    if found.len() == expected.len() && expected.iter().all(|item| found.contains(item)) {
        return Ok(());
    }
    Err(Failure(format!("{what}: found {found:#?}, expected in any order {expected:#?}")))
}

fn conflict<T: fmt::Debug>(what: &str, answer: StoreResult<T>) -> Outcome {
    match answer {
        Err(StoreError::Conflict) => Ok(()),
        other => Err(Failure(format!("{what}: found {other:?}, expected a conflict"))),
    }
}

/// Returns the value, or a failure if it is missing.
fn present<T>(what: &str, found: Option<T>) -> Result<T, Failure> {
    found.ok_or_else(|| Failure(format!("{what} is missing")))
}
