//! Checks that the server's responses conform to `openapi.json`, for requests that schemathesis generates
//! from it. schemathesis comes from PyPI and is installed in `target/`. `xtask/schemathesis.toml` configures
//! the requests and checks.

use std::path::{Path, PathBuf};

use evidence_test_postgres::SchemaName;

use crate::postgres::Server;
use crate::run::{self, Result, cargo, program};
use crate::server::{Database, KEY, Serving};
use crate::step;

/// The version that the configuration was written for.
const VERSION: &str = "4.32.5";
const CONFIGURATION: &str = "xtask/schemathesis.toml";

/// Tests the server on both stores.
pub(crate) fn run() -> Result {
    let schemathesis = installed()?;
    cargo(["build", "--package", "evidence-server"]).run()?;
    let work = run::target().join("schemathesis");
    // The files of an earlier run.
    if work.exists() {
        std::fs::remove_dir_all(&work)?;
    }
    std::fs::create_dir_all(&work)?;
    let sqlite = Database { url: format!("sqlite://{}", work.join("evidence.db").display()), schema: None };
    // A failure on one store does not prevent the test of the other.
    let on_sqlite = step("SQLite", || test(&schemathesis, &sqlite));
    let server = Server::provide()?;
    let name = format!("schemathesis_{}", std::process::id());
    let schema = SchemaName { url: server.url.clone(), name };
    let postgres = Database { url: schema.url.clone(), schema: Some(&schema.name) };
    let on_postgres = step("PostgreSQL", || test(&schemathesis, &postgres));
    on_sqlite.and(on_postgres)
}

/// Returns the program. Installs it if it is missing.
fn installed() -> Result<PathBuf> {
    let directory = run::target().join(format!("schemathesis-{VERSION}"));
    let installed = directory.join("bin/schemathesis");
    if !installed.is_file() {
        program("python3").args(["-m", "venv"]).args([&directory]).run()?;
        let pip = program(directory.join("bin/pip")).args(["install", "--quiet"]);
        pip.args([format!("schemathesis=={VERSION}")]).run()?;
    }
    Ok(installed)
}

fn test(schemathesis: &Path, database: &Database<'_>) -> Result {
    let serving = Serving::start(database)?;
    program(schemathesis)
        .env("EVIDENCE_API_KEY", KEY)
        .args(["--config-file", CONFIGURATION, "run", "--wait-for-schema", "60"])
        .args([format!("{}/openapi.json", serving.url())])
        .run()
}
