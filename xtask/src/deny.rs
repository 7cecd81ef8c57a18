//! `cargo deny`: which licenses, sources and duplicates the dependencies bring. The advisory database changes every
//! day and is checked by a job of the public CI instead.

use crate::run::{self, Result, cargo, program};

/// The version that `deny.toml` was written for.
const VERSION: &str = "0.20.2";

/// Checks `deny.toml`; installs the tool below `target/` where the machine has none.
pub(crate) fn check() -> Result {
    let checks = ["--all-features", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
    if run::exists("cargo-deny") {
        return program("cargo-deny").args(checks).run();
    }
    let tools = run::target().join(format!("cargo-deny-{VERSION}"));
    let tool = tools.join("bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX));
    if !tool.is_file() {
        // An unoptimized build takes half the time, and the check itself a second either way.
        cargo(["install", "--locked", "--debug", "cargo-deny", "--version", VERSION, "--root"])
            .args([&tools])
            .run()?;
    }
    program(tool).args(checks).run()
}
