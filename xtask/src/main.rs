//! What CI runs, runnable at home: `cargo xtask <command>`. Plain `std`, so that it builds in a moment.

mod client;
mod deny;
mod postgres;
mod results;
mod run;

use std::process::ExitCode;
use std::time::Instant;

use evidence_test_postgres::SERVER_URL_VARIABLE;

use crate::client::Need;
use crate::postgres::Server;
use crate::results::Show;
use crate::run::{Outcome, cargo};

const USAGE: &str = "\
cargo xtask <command>

  test     every test, on a PostgreSQL server of its own (installed where apt-get can), then the public
           command-line client against the server (Linux x86-64)
  test [--test <program>] <filter>...
           the tests alone with one of these in their names, on the same server: those of PostgreSQL and the
           conformance checks of every store among them, examples in the documentation and the client not.
           With --test, those of one program, such as `api` or `conformance`, and no other is built
  client   that client alone, with the results of the last `cargo xtask test`
  ci       format, clippy, every test, documentation, packages, dependencies: all that has to pass
  openapi  write openapi.json anew
  bench    the figures, in release builds
  repeat <times> <test>
           the server's tests on PostgreSQL with this in their names, such as `several_servers` or `restart`,
           until one fails or they ran as often
";

/// Tests that fail or are left out where the PostgreSQL checks cannot run.
const POSTGRES_CHECKS: [&str; 4] = [
    "the_server_that_tests_share_is_there",
    "two_stores_write_one_ledger",
    "the_cases_run_on_postgresql_too",
    "a_store_moves_to_postgresql_and_back",
];

/// What is published.
const PACKAGES: [&str; 6] = [
    "evidence-core",
    "evidence-object-store",
    "evidence-store-postgres",
    "evidence-store-sql",
    "evidence-store-sqlite",
    "evidence-tower",
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test(Need::IfPossible),
        ["test", "--test", program, ref filters @ ..] if are_names(filters) => {
            test_some(&["--test", program], filters)
        }
        ["test", ref filters @ ..] if are_names(filters) => test_some(&["--tests"], filters),
        ["client"] => client::run(Need::Always),
        ["ci"] => ci(),
        ["openapi"] => openapi(),
        ["bench"] => bench(),
        ["repeat", times, test] => repeat(times, test),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Every test of the workspace, then the real client.
fn test(client: Need) -> Outcome {
    let server = Server::provide()?;
    let tests = cargo(["test", "--workspace", "--all-features", "--no-fail-fast", "--", "--include-ignored"]);
    let results = results::of(&mut tests.env(SERVER_URL_VARIABLE, &server.url).command, Show::Everything)?;
    results.write(&client::results_directory())?;
    results.require(&POSTGRES_CHECKS)?;
    let outcome = if results.all_passed() { client::run(client) } else { Err("tests failed".into()) };
    println!("{results}");
    outcome
}

/// No options, that is.
fn are_names(filters: &[&str]) -> bool {
    filters.iter().all(|filter| !filter.starts_with('-'))
}

/// The tests of some programs with one of these in their names, without what only makes sense of all of them.
fn test_some(programs: &[&str], filters: &[&str]) -> Outcome {
    let server = Server::provide()?;
    // Examples in the documentation are left out: to look for their names alone takes longer than the tests.
    let tests =
        cargo(["test", "--workspace", "--all-features", "--no-fail-fast"]).args(programs).args(["--"]);
    let tests = tests.args(["--include-ignored"]).args(filters);
    let results =
        results::of(&mut tests.env(SERVER_URL_VARIABLE, &server.url).command, Show::ProgramsWithTests)?;
    println!("{results}");
    if !results.all_passed() {
        return Err("tests failed".into());
    }
    if results.any() {
        Ok(())
    } else {
        Err(format!("no test has a name with {}", filters.join(" or ")).into())
    }
}

fn ci() -> Outcome {
    step("format", || cargo(["fmt", "--all", "--check"]).run())?;
    step("clippy", || {
        let targets = ["--workspace", "--all-targets", "--test", "client", "--all-features"];
        cargo(["clippy"]).args(targets).args(["--", "-D", "warnings"]).run()
    })?;
    step("tests", || test(Need::Always))?;
    step("documentation", || {
        cargo(["doc", "--workspace", "--all-features", "--no-deps"]).env("RUSTDOCFLAGS", "-Dwarnings").run()
    })?;
    step("packages", || {
        let crates = PACKAGES.iter().flat_map(|name| ["--package", name]);
        cargo(["package", "--no-verify", "--allow-dirty"]).args(crates).run()
    })?;
    step("dependencies", deny::check)
}

fn openapi() -> Outcome {
    let document = cargo(["run", "--quiet", "--package", "evidence-server", "--", "openapi"]).output()?;
    std::fs::write(run::root().join("openapi.json"), document)?;
    Ok(())
}

/// The figures; one of them starts the server's program.
fn bench() -> Outcome {
    cargo(["build", "--release", "--package", "evidence-server"]).run()?;
    let server = format!("release/evidence-server{}", std::env::consts::EXE_SUFFIX);
    let benches = cargo(["bench", "--package", "evidence-benches"]);
    benches.env("EVIDENCE_BENCH_SERVER", run::target().join(server)).run()
}

/// Some tests race; one success says little.
fn repeat(times: &str, test: &str) -> Outcome {
    let server = Server::provide()?;
    for time in 1..=times.parse::<u32>()? {
        step(&format!("{time} of {times}"), || {
            let tests = cargo(["test", "--workspace", "--all-features", "--test", "postgres", test]);
            let tests = tests.args(["--", "--include-ignored"]);
            let results = results::of(
                &mut tests.env(SERVER_URL_VARIABLE, &server.url).command,
                Show::ProgramsWithTests,
            )?;
            if results.all_passed() && results.any() { Ok(()) } else { Err(format!("{results}").into()) }
        })?;
    }
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    println!("== {name}");
    let begun = Instant::now();
    work()?;
    println!("== {name}: {} s", begun.elapsed().as_secs());
    Ok(())
}
