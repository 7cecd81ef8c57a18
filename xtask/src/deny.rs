//! `cargo deny`: checks the licenses, sources and duplicates of dependencies. The advisory database changes
//! daily, so a job of the public CI checks it instead.

use crate::run::{self, Result, cargo, program};

/// The version that `deny.toml` was written for.
const VERSION: &str = "0.20.2";

/// Checks `deny.toml`. Installs the tool below `target/` if it is missing.
pub(crate) fn check() -> Result {
    let checks = ["--all-features", "check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
    if run::exists("cargo-deny") {
        return program("cargo-deny").args(checks).run();
    }
    let tools = run::target().join(format!("cargo-deny-{VERSION}"));
    let tool = tools.join("bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX));
    if !tool.is_file() {
        // An unoptimized build takes half the time, and the check itself takes a second in both cases.
        cargo(["install", "--locked", "--debug", "cargo-deny", "--version", VERSION, "--root"])
            .args([&tools])
            .run()?;
    }
    program(tool).args(checks).run()
}
