//! The steps of CI, runnable locally: `cargo xtask <command>`. It depends only on `std`, so that it builds
//! quickly.

mod client;
mod deny;
mod postgres;
mod results;
mod run;
mod schemathesis;
mod server;
mod verifiers;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use evidence_test_postgres::SERVER_URL_VARIABLE;

use crate::client::Need;
use crate::postgres::Server;
use crate::results::Show;
use crate::run::{Result, cargo};

const USAGE: &str = "\
cargo xtask <command>

  test     every test, with a temporary PostgreSQL server (installed with apt-get if necessary), then the public
           command-line client against the server (Linux x86-64)
  test [--test <target>] <filter>...
           only tests whose name contains a filter, with PostgreSQL and the conformance checks of every store;
           no doc tests, no client. --test builds only that target, such as `api` or `conformance`
  thorough every test without sampling (all tampering, every mount for each case), then schemathesis; about two
           hours. EVIDENCE_TEST_SEED selects another sample, also for `test`
  client   only the public client, on each store, with the results of the last `cargo xtask test`
  ci       format, clippy, every test, documentation, packages, dependencies: everything that must pass
  openapi  write openapi.json
  schemathesis
           the server on both stores, with requests that schemathesis (from PyPI) generates from openapi.json; half
           an hour
  verifiers
           the server's checkpoints, tiles and proofs, with verifiers in Go and Python that others wrote
  bench    the benchmarks, in release builds
  bench --page <bench>...
           these benchmarks, such as `bench_loads`, or all of them, then writes the page of figures, benches/README.md
  repeat <times> <filter>
           the server's tests on PostgreSQL whose name contains the filter, such as `several_servers` or
           `restart`, until one fails
";

/// The variable with the seed of sampled tests.
const SEED: &str = "EVIDENCE_TEST_SEED";

/// Tests that must run. Without PostgreSQL, each would be skipped or fail.
const REQUIRED_TESTS: [&str; 4] = [
    "the_server_that_tests_share_is_there",
    "two_stores_write_one_ledger",
    "the_cases_run_on_postgresql_too",
    "a_store_moves_to_postgresql_and_back",
];

/// The published packages.
const PACKAGES: [&str; 13] = [
    "evidence-conformance",
    "evidence-core",
    "evidence-ledger",
    "evidence-notify",
    "evidence-object-store",
    "evidence-pdf",
    "evidence-rules",
    "evidence-store-postgres",
    "evidence-store-sql",
    "evidence-store-sqlite",
    "evidence-tower",
    "evidence-values",
    "evidence-verify",
];

/// The target of programs in browsers.
const WASM: &str = "wasm32-unknown-unknown";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test(Need::IfPossible, &[]),
        ["test", "--test", target, ref filters @ ..] if are_names(filters) => {
            test_some(&["--test", target], filters)
        }
        ["test", ref filters @ ..] if are_names(filters) => test_some(&["--tests"], filters),
        ["thorough"] => thorough(),
        ["client"] => Server::provide().and_then(|server| client::run(Need::Always, &server)),
        ["ci"] => ci(),
        ["openapi"] => openapi(),
        ["schemathesis"] => schemathesis::run(),
        ["verifiers"] => verifiers::run(),
        ["bench"] => bench(&[], None),
        ["bench", "--page", ref benches @ ..] if are_names(benches) => page(benches),
        ["repeat", times, filter] => repeat(times, filter),
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

/// Runs every test of the workspace, then the real client.
fn test(client: Need, variables: &[(&str, &str)]) -> Result {
    let server = Server::provide()?;
    let seed = seed();
    println!("The samples are those of {SEED}={seed}");
    let mut tests =
        cargo(["test", "--workspace", "--all-features", "--no-fail-fast", "--", "--include-ignored"]);
    for (name, value) in variables {
        tests = tests.env(name, value);
    }
    let mut tests = tests.env(SEED, seed).env(SERVER_URL_VARIABLE, &server.url);
    let results = results::run_and_collect(&mut tests.command, Show::Everything)?;
    results.require(&REQUIRED_TESTS)?;
    let outcome = if results.all_passed() {
        results.write(&client::results_directory())?;
        client::run(client, &server)
    } else {
        Err("tests failed".into())
    };
    println!("{results}");
    outcome
}

/// Returns the seed that selects what tests sample: the given one, otherwise that of the day, so that the samples
/// cover everything in time.
#[expect(clippy::disallowed_methods, reason = "this program has no injected clock")]
fn seed() -> String {
    let days = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 86_400;
    std::env::var(SEED).unwrap_or_else(|_| days().to_string())
}

/// Runs every test without sampling and with longer random histories, then schemathesis.
fn thorough() -> Result {
    test(Need::Always, &[("EVIDENCE_TEST_THOROUGH", "1"), ("PROPTEST_CASES", "256")])?;
    schemathesis::run()
}

/// Returns whether no argument is an option.
fn are_names(filters: &[&str]) -> bool {
    filters.iter().all(|filter| !filter.starts_with('-'))
}

/// Runs the tests of some targets whose names contain a filter, without the checks that require a complete
/// run.
fn test_some(targets: &[&str], filters: &[&str]) -> Result {
    let server = Server::provide()?;
    // Without doc tests: listing their names alone takes longer than the tests.
    let tests = cargo(["test", "--workspace", "--all-features", "--no-fail-fast"]).args(targets).args(["--"]);
    let tests = tests.args(["--include-ignored"]).args(filters);
    let results = results::run_and_collect(
        &mut tests.env(SERVER_URL_VARIABLE, &server.url).command,
        Show::ProgramsWithTests,
    )?;
    println!("{results}");
    if !results.all_passed() {
        return Err("tests failed".into());
    }
    if results.any() {
        Ok(())
    } else {
        Err(format!("no test has a name that contains {}", filters.join(" or ")).into())
    }
}

fn ci() -> Result {
    step("format", || cargo(["fmt", "--all", "--check"]).run())?;
    step("clippy", || {
        // `--all-targets` has all default tests, which the client's is not.
        for targets in [["--all-targets"].as_slice(), &["--test", "client"]] {
            let clippy = cargo(["clippy", "--workspace", "--all-features"]).args(targets);
            clippy.args(["--", "-D", "warnings"]).run()?;
        }
        Ok(())
    })?;
    step("clippy without features", || {
        cargo(["clippy", "--package", "evidence-core", "--no-default-features", "--", "-D", "warnings"]).run()
    })?;
    step("verifiers for WebAssembly", || {
        run::program("rustup").args(["target", "add", WASM]).run()?;
        cargo(["check", "--package", "evidence-ledger", "--package", "evidence-verify", "--target", WASM])
            .run()
    })?;
    step("tests", || test(Need::Always, &[]))?;
    verifiers::run()?;
    step("documentation", || {
        cargo(["doc", "--workspace", "--all-features", "--no-deps"]).env("RUSTDOCFLAGS", "-Dwarnings").run()
    })?;
    step("packages", || {
        let crates = PACKAGES.iter().flat_map(|name| ["--package", name]);
        cargo(["package", "--no-verify", "--allow-dirty"]).args(crates).run()
    })?;
    step("dependencies", deny::check)
}

fn openapi() -> Result {
    let document = cargo(["run", "--quiet", "--package", "evidence-server", "--", "openapi"]).output()?;
    std::fs::write(run::root().join("openapi.json"), document)?;
    Ok(())
}

/// The benchmark that starts the server's program.
const OF_SERVER: &str = "bench_standalone_server";

/// Runs these benchmarks, or all. They write their figures to a directory, if one is given.
fn bench(benches: &[&str], figures: Option<&Path>) -> Result {
    let mut bench = cargo(["bench", "--package", "evidence-benches"])
        .args(benches.iter().flat_map(|bench| ["--bench", bench]));
    if benches.is_empty() || benches.contains(&OF_SERVER) {
        cargo(["build", "--profile", "dist", "--package", "evidence-server"]).run()?;
        let server = format!("dist/evidence-server{}", std::env::consts::EXE_SUFFIX);
        bench = bench.env("EVIDENCE_BENCH_SERVER", run::target().join(server));
    }
    if let Some(figures) = figures {
        bench = bench.env("EVIDENCE_BENCH_FIGURES", figures);
    }
    bench.run()
}

/// Runs these benchmarks, or all, and writes the page of figures.
fn page(benches: &[&str]) -> Result {
    let figures = run::root().join("benches/figures");
    std::fs::create_dir_all(&figures)?;
    for file in std::fs::read_dir(&figures)? {
        let path = file?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if path.extension().is_some_and(|kind| kind == "jsonl")
            && (benches.is_empty() || benches.contains(&name))
        {
            std::fs::remove_file(&path)?;
        }
    }
    std::fs::write(figures.join("machine.txt"), machine())?;
    bench(benches, Some(&figures))?;
    cargo(["run", "--release", "--package", "evidence-benches", "--bin", "page"]).run()
}

/// Describes the machine of the figures.
fn machine() -> String {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map_or("unknown", |(_, value)| value.trim()).to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (cpu, memory) =
        (field(&read("/proc/cpuinfo"), "model name"), field(&read("/proc/meminfo"), "MemTotal"));
    format!(
        "The last run: {cores} cores of {cpu}, {memory} of memory, Linux {}",
        read("/proc/sys/kernel/osrelease")
    )
}

/// Repeats a test, because one success of a racy test proves little.
fn repeat(times: &str, filter: &str) -> Result {
    let server = Server::provide()?;
    for time in 1..=times.parse::<u32>()? {
        step(&format!("{time} of {times}"), || {
            let tests = cargo(["test", "--workspace", "--all-features", "--test", "postgres", filter]);
            let tests = tests.args(["--", "--include-ignored"]);
            let results = results::run_and_collect(
                &mut tests.env(SERVER_URL_VARIABLE, &server.url).command,
                Show::ProgramsWithTests,
            )?;
            if results.all_passed() && results.any() { Ok(()) } else { Err(format!("{results}").into()) }
        })?;
    }
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result) -> Result {
    println!("== {name}");
    let begun = Instant::now();
    work()?;
    println!("== {name}: {} s", begun.elapsed().as_secs());
    Ok(())
}
