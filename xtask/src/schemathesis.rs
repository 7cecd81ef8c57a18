//! Checks that the server's responses conform to `openapi.json`, for requests that schemathesis generates
//! from it. schemathesis comes from PyPI and is installed in `target/`. `xtask/schemathesis.toml` configures
//! the requests and checks.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use evidence_test_postgres::SchemaName;

use crate::postgres::Server;
use crate::run::{self, Result, Run, cargo, program};
use crate::step;

/// The version that the configuration was written for.
const VERSION: &str = "4.32.5";
const CONFIGURATION: &str = "xtask/schemathesis.toml";
const KEY: &str = "a-key-that-only-servers-on-this-machine-take";

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

/// The database of the server.
#[derive(Debug)]
struct Database<'a> {
    url: String,
    schema: Option<&'a str>,
}

/// A server that is stopped when this is dropped.
#[derive(Debug)]
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn test(schemathesis: &Path, database: &Database<'_>) -> Result {
    evidence_server(database).args(["seed", "--user", "jane", "--org", "acme", "--api-key", KEY]).run()?;
    let address = unused_address()?;
    let mut serve = evidence_server(database).env("EVIDENCE_LISTEN", address.to_string()).args(["serve"]);
    // The log has a line for each rejected request.
    let _serving = Serving(serve.command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    program(schemathesis)
        .env("EVIDENCE_API_KEY", KEY)
        .args(["--config-file", CONFIGURATION, "run", "--wait-for-schema", "60"])
        .args([format!("http://{address}/api/v2/openapi.json")])
        .run()
}

fn evidence_server(database: &Database<'_>) -> Run {
    let name = format!("debug/evidence-server{}", std::env::consts::EXE_SUFFIX);
    let server = program(run::target().join(name)).env("EVIDENCE_DATABASE_URL", &database.url);
    match database.schema {
        Some(schema) => server.env("EVIDENCE_DATABASE_SCHEMA", schema),
        None => server,
    }
}

/// Returns an unused address of this machine.
fn unused_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}
