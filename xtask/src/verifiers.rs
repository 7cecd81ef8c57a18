//! Verifiers that were written by others, against the server: Go modules (`verifiers/go`) and Python packages
//! (`verifiers/python`), from the registries of their languages.

use std::path::PathBuf;

use crate::run::{self, Result, Run, cargo, program};
use crate::server::{Database, KEY, Serving};
use crate::step;

/// The packages.
const REQUIREMENTS: &str = "verifiers/python/requirements.txt";
/// The names of Pythons on which `aics-tlog` runs.
const PYTHONS: [&str; 3] = ["python3.14", "python3.13", "python3.12"];

/// Starts the server on a new database and runs both. Without Go, or without a Python that is new enough, says so.
pub(crate) fn run() -> Result {
    // With the workspace's features, so that nothing is built again after its tests.
    cargo(["build", "--workspace", "--all-features", "--bin", "evidence-server"]).run()?;
    let work = run::target().join("verifiers");
    // The files of an earlier run.
    if work.exists() {
        std::fs::remove_dir_all(&work)?;
    }
    std::fs::create_dir_all(&work)?;
    let database = Database { url: format!("sqlite://{}", work.join("evidence.db").display()), schema: None };
    let serving = Serving::start(&database)?;
    let verifier = |run: Run| run.env("EVIDENCE_URL", serving.url()).env("EVIDENCE_API_KEY", KEY);
    // Downloads the modules, which needs a Go that is new enough, and the registry.
    let go = match program("go").args(["-C", "verifiers/go", "mod", "download"]).output().is_ok() {
        true => step("verifiers in Go", || {
            verifier(program("go").args(["-C", "verifiers/go", "test", "-count=1", "./..."])).run()
        }),
        false => skipped("Go 1.26 and its module proxy"),
    };
    let python =
        PYTHONS.iter().filter(|python| run::exists(python)).find_map(|python| environment(python).ok());
    let python = match python {
        Some(python) => step("verifiers in Python", || {
            verifier(program(python).args(["verifiers/python/verify.py"])).run()
        }),
        None => skipped("Python 3.12 or newer with venv, and PyPI"),
    };
    go.and(python)
}

fn skipped(what: &str) -> Result {
    println!("SKIPPED: the verifiers that need {what}");
    Ok(())
}

/// Returns the Python of an environment with the packages. Creates it if it is missing.
fn environment(python: &str) -> Result<PathBuf> {
    let directory = run::target().join(format!("verifiers-{python}"));
    let (wanted, done) = (std::fs::read(run::root().join(REQUIREMENTS))?, directory.join("installed"));
    if std::fs::read(&done).ok().as_ref() != Some(&wanted) {
        program(python).args(["-m", "venv"]).args([&directory]).run()?;
        let pip = program(directory.join("bin/pip")).args(["install", "--quiet", "--requirement"]);
        pip.args([REQUIREMENTS]).run()?;
        std::fs::write(&done, wanted)?;
    }
    Ok(directory.join("bin/python"))
}
