//! Runs the public command-line client against the server, on each store. The client is an independent
//! program with its own expectations. It comes from the npm registry, is installed in `target/`, and runs on
//! Linux x86-64 only.

use std::path::{Path, PathBuf};

use evidence_test_postgres::SERVER_URL_VARIABLE;

use crate::postgres::Server;
use crate::run::{self, Result, cargo, program};

const PACKAGE: &str = "@kosli/cli-linux-x64";
/// The version of the client that the test was written for.
const VERSION: &str = "2.43.1";
const PROGRAM: &str = "node_modules/@kosli/cli-linux-x64/bin/kosli";

/// Whether the client must be available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Without npm, the test is skipped with a message.
    IfPossible,
    /// Without npm the test fails.
    Always,
}

/// Returns the directory with the results of the last successful run of the workspace, for the client to
/// report.
pub(crate) fn results_directory() -> PathBuf {
    run::target().join("junit")
}

/// Runs the test.
pub(crate) fn run(need: Need, server: &Server) -> Result {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        println!("skipped: the real-client test runs on Linux x86-64 only");
        return Ok(());
    }
    let directory = run::target().join(format!("client-{VERSION}"));
    let client = directory.join(PROGRAM);
    if !client.is_file() {
        if need == Need::IfPossible && !run::exists("npm") {
            println!("skipped: the real-client test needs npm to fetch the client");
            return Ok(());
        }
        fetch(&directory)?;
    }
    // With the workspace's features, so that nothing is built again.
    cargo(["test", "--workspace", "--all-features", "--test", "client"])
        .env("EVIDENCE_TEST_CLIENT", client)
        .env("EVIDENCE_TEST_RESULTS", results_directory())
        .env(SERVER_URL_VARIABLE, &server.url)
        .run()
}

fn fetch(directory: &Path) -> Result {
    std::fs::create_dir_all(directory)?;
    program("npm")
        .args(["install", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"])
        .args([directory])
        .args([format!("{PACKAGE}@{VERSION}")])
        .run()
}
