//! `pgbench`, which is part of the server: the throughput of PostgreSQL if each client commits separate rows.

use std::path::PathBuf;

use tokio::process::Command;

use crate::{Result, Stores};

/// The duration of a run in seconds.
const SECONDS: &str = "2";

/// `pgbench -M prepared`, which inserts one payload repeatedly.
#[derive(Debug)]
pub struct Pgbench {
    program: PathBuf,
    script: PathBuf,
    url: String,
}

impl Pgbench {
    /// Creates a script that inserts this payload into the table of the raw probe.
    ///
    /// # Errors
    /// If the script cannot be written.
    pub fn new(stores: &Stores, payload: &str) -> Result<Self> {
        let (url, programs) = stores.postgres()?;
        let script = stores.path("insert.sql");
        // A colon would begin a variable.
        let quoted = payload.replace('\'', "''").replace(':', ";");
        std::fs::write(&script, format!("INSERT INTO raw (org, payload, at) VALUES (1, '{quoted}', 1);\n"))?;
        Ok(Self { program: programs.join("pgbench"), script, url })
    }

    /// Returns the transactions per second with this many clients.
    ///
    /// # Errors
    /// If `pgbench` fails, or its output cannot be parsed.
    pub async fn run(&self, clients: usize) -> Result<f64> {
        let clients = clients.to_string();
        let output = Command::new(&self.program)
            .args(["-n", "-M", "prepared", "-j", "2", "-T", SECONDS, "-c", &clients, "-f"])
            .arg(&self.script)
            .arg(&self.url)
            .output()
            .await?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let rate = printed.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next());
        let Some(rate) = rate else {
            return Err(format!("pgbench: {printed}{}", String::from_utf8_lossy(&output.stderr)).into());
        };
        Ok(rate.parse()?)
    }
}
