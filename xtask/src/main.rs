//! What CI runs, runnable at home: `cargo xtask <command>`. Plain `std`, so that it builds in a moment.

mod client;
mod deny;
mod results;
mod run;

use std::process::ExitCode;
use std::time::Instant;

use crate::client::Need;
use crate::run::{Outcome, cargo};

const USAGE: &str = "\
cargo xtask <command>

  test     every test, then the public command-line client against the server (Linux x86-64)
  client   that client alone, with the results of the last `cargo xtask test`
  ci       format, clippy, every test, documentation, dependencies: all that has to pass
  openapi  write openapi.json anew
  bench    the figures, in release builds
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test(Need::IfPossible),
        ["client"] => client::run(Need::Always),
        ["ci"] => ci(),
        ["openapi"] => openapi(),
        ["bench"] => bench(),
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
    let results =
        results::of(&mut cargo(["test", "--workspace", "--all-features", "--no-fail-fast"]).command)?;
    results.write(&client::results_directory())?;
    let outcome = if results.all_passed() { client::run(client) } else { Err("tests failed".into()) };
    println!("{results}");
    outcome
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

fn step(name: &str, work: impl FnOnce() -> Outcome) -> Outcome {
    println!("== {name}");
    let begun = Instant::now();
    work()?;
    println!("== {name}: {} s", begun.elapsed().as_secs());
    Ok(())
}
