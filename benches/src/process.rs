//! The standalone server as a process: when it is ready, and what memory it takes.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::{Client, Engine, Request, Result, Stores};

/// The variable that names the server's program; `cargo xtask bench` sets it.
const PROGRAM: &str = "EVIDENCE_BENCH_SERVER";

/// A running server. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Process {
    /// The program, if the environment names one.
    pub fn program() -> Option<PathBuf> {
        std::env::var_os(PROGRAM).map(PathBuf::from)
    }

    /// Starts the server on a store and waits until it says that it is ready.
    ///
    /// # Errors
    /// When it does not start.
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

    /// The memory that it occupies, and the most that it ever did, in MiB, as Linux reports it.
    ///
    /// # Errors
    /// Where there is no such system.
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
