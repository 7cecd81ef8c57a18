//! Runs programs in the workspace.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A result whose error is one sentence for the user.
pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Returns the directory of the workspace.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

/// Returns the directory for generated files.
pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// A program to run in the directory of the workspace.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) command: Command,
}

/// Returns the cargo that runs this program, without the environment variables about this program's package.
/// Otherwise build scripts that read them would run again, and everything that depends on them would be
/// compiled again, whenever cargo is run by hand and by this program in turn.
pub(crate) fn cargo<const N: usize>(arguments: [&str; N]) -> Run {
    let mut cargo = program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let of_package = ["CARGO_MANIFEST_", "CARGO_PKG_"];
        if of_package.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            cargo.command.env_remove(name);
        }
    }
    cargo.args(arguments)
}

/// Returns any program.
pub(crate) fn program(program: impl AsRef<OsStr>) -> Run {
    let mut command = Command::new(program);
    command.current_dir(root());
    Run { command }
}

impl Run {
    pub(crate) fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.command.args(arguments);
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it, with its output shown.
    pub(crate) fn run(mut self) -> Result {
        let status = self.command.status().map_err(|error| self.failed(&error))?;
        if status.success() { Ok(()) } else { Err(self.failed(&status)) }
    }

    /// Runs it and returns its output.
    pub(crate) fn output(mut self) -> Result<Vec<u8>> {
        let output = self.command.stderr(std::process::Stdio::inherit()).output();
        let output = output.map_err(|error| self.failed(&error))?;
        if output.status.success() { Ok(output.stdout) } else { Err(self.failed(&output.status)) }
    }

    fn failed(&self, why: &dyn std::fmt::Display) -> Box<dyn std::error::Error> {
        let words = std::iter::once(self.command.get_program()).chain(self.command.get_args());
        let words: Vec<_> = words.map(OsStr::to_string_lossy).collect();
        format!("`{}`: {why}", words.join(" ")).into()
    }
}

/// Returns whether a program of this name responds to `--version`.
pub(crate) fn exists(name: impl AsRef<OsStr>) -> bool {
    Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
}
