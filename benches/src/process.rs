//! The standalone server as a process: its start and its memory.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::{Client, Engine, Request, Result, Stores};

/// The variable with the server's program. `cargo xtask bench` sets it.
const PROGRAM: &str = "EVIDENCE_BENCH_SERVER";

/// A running server. Dropping it kills the server.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The address of the server.
    pub address: SocketAddr,
}

impl Process {
    /// Returns the program, if the environment has one.
    pub fn program() -> Option<PathBuf> {
        std::env::var_os(PROGRAM).map(PathBuf::from)
    }

    /// Starts the server with a store and waits until it is ready.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start(stores: &Stores, engine: Engine, name: &str) -> Result<Self> {
        let program = Self::program().ok_or_else(|| format!("{PROGRAM} names no server"))?;
        let mut child = Command::new(program)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(stores.arguments(engine, name)?)
            .env("EVIDENCE_LOG_FILTER", "warn")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let address = line.trim_end().strip_prefix("Listening on http://").ok_or("no address")?.parse()?;
        Client::connect(address).await?.send(&Request::plain("/ready")).await?;
        Ok(Self { child, address })
    }

    /// Returns the present and the highest memory use in MiB, as reported by Linux.
    ///
    /// # Errors
    /// On other systems.
    pub fn memory(&self) -> Result<(f64, f64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let figure = |name: &str| -> Result<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line")?;
            let kib: f64 = line.trim_end_matches("kB").trim().parse()?;
            Ok(kib / 1024.0)
        };
        Ok((figure("VmRSS:")?, figure("VmHWM:")?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
