//! The checks that every store has to pass, one promise of the [store contract](crate::store) each.
//!
//! A store's author writes a test program of a few lines. In `Cargo.toml`:
//!
//! ```toml
//! [dev-dependencies]
//! evidence-core = { version = "0.1", features = ["conformance"] }
//!
//! [[test]]
//! name = "conformance"
//! harness = false
//! ```
//!
//! and in `tests/conformance.rs`, with the store's own type in the place of [`MemoryStore`](crate::memory::MemoryStore):
//!
//! ```no_run
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use evidence_core::memory::MemoryStore;
//! use evidence_core::{Store, conformance};
//!
//! fn main() -> ExitCode {
//!     conformance::main(async || Arc::new(MemoryStore::new()) as Arc<dyn Store>)
//! }
//! ```
//!
//! - Every check gets an empty store of its own, which the closure makes; several run at the same time.
//! - `cargo test --test conformance` prints a line for each, `test conformance::flows::flows_are_listed_by_name ... ok`,
//!   and at the end the promise that was broken and what was found instead.
//! - `cargo test --test conformance -- ledger races` runs those with `ledger` or `races` in their name,
//!   `-- --exact <name>` a single one, `-- --list` lists them, and `-- --test-threads 1` runs them one after the other.
//! - [`crate::store`] gives the order to write a store in.
//!
//! A check is a plain function from a store to an outcome ([`Check::run`]), so that other tests can use the suite to
//! fill a store. Racers are spawned as tasks: a check has to run on a Tokio runtime, and only one of several threads
//! makes the races real.
//!
//! Three promises need the store's own tests besides: that a write outlives a crash, that two processes share one
//! store, and that a query takes a bounded number of statements.

mod actions;
mod allowlists;
mod artifacts;
mod attestation_types;
mod attestations;
mod blobs;
mod builds;
mod controls;
mod deployments;
mod environments;
mod events;
mod feed;
pub(crate) mod fixtures;
mod flows;
mod harness;
mod ledger;
mod lists;
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

use crate::store::{Store, StoreError, StoreResult};
use crate::transfer::Transfer;

pub use blobs::run_blobs;
pub use harness::{main, main_with_transfer};

/// The outcome of a check.
pub type Outcome = Result<(), Failure>;

/// A check in progress.
pub type Running = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// One promise, and how it is put to the test: that of every [`Store`], or of one that can be more.
pub struct Check<S: ?Sized = dyn Store> {
    /// The path of the check.
    pub name: &'static str,
    /// The promise of a store.
    pub promise: &'static str,
    /// Puts an empty store to the test.
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

/// How a store broke a promise.
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
        feed::checks(),
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
        pub(super) fn checks() -> Vec<$crate::conformance::Check<$store>> {
            vec![$($crate::conformance::Check {
                name: concat!(module_path!(), "::", stringify!($check)),
                promise: $promise,
                run: |store| Box::pin($check(store)),
            }),*]
        }
    };
    ($($check:ident: $promise:literal,)*) => {
        $crate::conformance::promises! { of dyn $crate::store::Store; $($check: $promise,)* }
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
