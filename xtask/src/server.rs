//! A server for tools that check it from outside.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::run::{self, Result, Run, program};

/// The key of the user `jane`, who administers the organization `acme`.
pub(crate) const KEY: &str = "a-key-that-only-servers-on-this-machine-take";

/// The time that a server has to listen.
const STARTING: Duration = Duration::from_secs(30);

/// The database of the server.
#[derive(Debug)]
pub(crate) struct Database<'a> {
    pub(crate) url: String,
    pub(crate) schema: Option<&'a str>,
}

/// A server that is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    process: Child,
    address: SocketAddr,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Serving {
    /// Seeds the database, and starts the server that `cargo build` built.
    pub(crate) fn start(database: &Database<'_>) -> Result<Self> {
        evidence_server(database)
            .args(["seed", "--user", "jane", "--org", "acme", "--api-key", KEY])
            .run()?;
        let address = unused_address()?;
        let mut serve = evidence_server(database).env("EVIDENCE_LISTEN", address.to_string()).args(["serve"]);
        // The log has a line for each rejected request.
        let process = serve.command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let serving = Self { process, address };
        let pause = Duration::from_millis(100);
        for _ in 0..STARTING.as_millis() / pause.as_millis() {
            if TcpStream::connect(address).is_ok() {
                return Ok(serving);
            }
            std::thread::sleep(pause);
        }
        Err("the server does not listen".into())
    }

    /// Returns the address of the API.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/api/v2", self.address)
    }
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
