//! The suite as a test program of its own, which looks and behaves as Rust's test harness does: arguments, output and
//! exit status.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::{Builder, Runtime};

use evidence_core::store::Store;
use evidence_core::transfer::Transfer;

use super::{Check, checks, transfer_checks};

/// Racers have to meet on several threads, however few cores the machine has.
const THREADS: usize = 4;

/// The beginning of a module's path, which a list of checks omits.
const CRATE: &str = concat!(env!("CARGO_CRATE_NAME"), "::");

/// The arguments of Rust's test harness, with any number of filters.
#[derive(Debug, Parser)]
struct CommandLine {
    /// With the first filter.
    #[command(flatten)]
    arguments: Arguments,
    /// The other filters: checks whose names contain one of all the filters run.
    #[arg(value_name = "FILTER")]
    more: Vec<String>,
}

impl CommandLine {
    /// The arguments, and those of the trials that one of several filters names. A single filter, or none, is left to the
    /// arguments.
    fn narrow(self, mut trials: Vec<Trial>) -> (Arguments, Vec<Trial>) {
        let Self { mut arguments, more } = self;
        if !more.is_empty() {
            let filters = Vec::from_iter(arguments.filter.take().into_iter().chain(more));
            let names = |filter: &String, name: &str| {
                if arguments.exact { name == filter } else { name.contains(filter.as_str()) }
            };
            trials.retain(|trial| filters.iter().any(|filter| names(filter, trial.name())));
        }
        (arguments, trials)
    }
}

/// The `main` of a store's conformance tests: runs the checks that the command line names, each on an empty store that
/// `fresh_store` makes, and returns the exit status. The [crate](crate) documentation has an example.
pub fn main<F, Fut>(fresh_store: F) -> ExitCode
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Arc<dyn Store>>,
{
    let fresh_store = Arc::new(fresh_store);
    run(|runtime| checks().into_iter().map(|check| trial(check, runtime, &fresh_store)).collect())
}

/// The [`main`] of a store that can be copied, too: the checks of [`Transfer`] besides.
pub fn main_with_transfer<F, Fut>(fresh_store: F) -> ExitCode
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Arc<dyn Transfer>>,
{
    let transfers = Arc::new(fresh_store);
    let fresh_store = Arc::clone(&transfers);
    let stores = Arc::new(move || {
        let store = fresh_store();
        async move { store.await as Arc<dyn Store> }
    });
    run(|runtime| {
        let of_stores = checks().into_iter().map(|check| trial(check, runtime, &stores));
        let of_transfer = transfer_checks().into_iter().map(|check| trial(check, runtime, &transfers));
        of_stores.chain(of_transfer).collect()
    })
}

/// Runs what the command line asks for.
fn run(trials: impl FnOnce(&Arc<Runtime>) -> Vec<Trial>) -> ExitCode {
    let command_line = CommandLine::parse();
    match Builder::new_multi_thread().worker_threads(THREADS).enable_all().build() {
        Ok(runtime) => {
            let (arguments, trials) = command_line.narrow(trials(&Arc::new(runtime)));
            libtest_mimic::run(&arguments, trials).exit_code()
        }
        Err(error) => {
            eprintln!("the checks have no runtime: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A check as a test: its store is made and put to the test on the runtime that all of them share.
fn trial<S, F, Fut>(check: Check<S>, runtime: &Arc<Runtime>, fresh_store: &Arc<F>) -> Trial
where
    S: ?Sized + 'static,
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Arc<S>>,
{
    let (runtime, fresh_store) = (Arc::clone(runtime), Arc::clone(fresh_store));
    let name = check.name.strip_prefix(CRATE).unwrap_or(check.name);
    Trial::test(name, move || {
        let outcome = runtime.block_on(async { (check.run)(fresh_store().await).await });
        outcome.map_err(|failure| Failed::from(format!("promise: {}\nfound: {failure}", check.promise)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_filters_run_what_one_of_them_names() {
        for (asked, ran) in [
            (&["a::b", "c"][..], &["a::b", "a::bb", "c"][..]),
            (&["--exact", "a::b", "c"], &["a::b", "c"]),
            (&["x", "--test-threads", "1", "c"], &["c"]),
            (&["x", "y"], &[]),
        ] {
            let trials = ["a::b", "a::bb", "c", "d"].map(|name| Trial::test(name, || Ok(())));
            let command_line = CommandLine::parse_from(["conformance"].iter().chain(asked));
            let (arguments, trials) = command_line.narrow(trials.into());
            let trials = trials.iter().filter(|trial| !arguments.is_filtered_out(trial));
            assert_eq!(Vec::from_iter(trials.map(Trial::name)), ran, "{asked:?}");
        }
    }
}
