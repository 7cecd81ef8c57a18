//! PostgreSQL for the tests: the server in an environment variable, or a temporary one with this machine's
//! packages, which are installed if necessary.

use evidence_test_postgres::{Cluster, Durability, Programs, SERVER_URL_VARIABLE};

use crate::run::{self, Result, program};

/// A server that the tests share while this exists. Tests that stop a server start their own, with the same
/// programs.
#[derive(Debug)]
pub(crate) struct Server {
    /// Its address.
    pub(crate) url: String,
    _cluster: Option<Cluster>,
}

impl Server {
    /// Returns the server in the environment variable, otherwise a new one.
    pub(crate) fn provide() -> Result<Self> {
        let programs = programs()?;
        if let Ok(url) = std::env::var(SERVER_URL_VARIABLE) {
            println!("PostgreSQL: the server that {SERVER_URL_VARIABLE} names");
            return Ok(Self { url, _cluster: None });
        }
        println!("PostgreSQL: a throwaway server of {}", programs.directory().display());
        let cluster = Cluster::start(&programs, &run::target().join("postgres"), Durability::None)?;
        Ok(Self { url: cluster.url("postgres"), _cluster: Some(cluster) })
    }
}

/// Returns the server's programs. Installs them if they are missing.
fn programs() -> Result<Programs> {
    Programs::find().or_else(|missing| {
        println!("{missing}: installing it");
        install()?;
        Ok(Programs::find()?)
    })
}

fn install() -> Result {
    if !run::exists("apt-get") {
        return Err("install PostgreSQL 15 or newer, on macOS with `brew install postgresql@16`".into());
    }
    apt_get(&["update", "-qq"])?;
    apt_get(&["install", "-y", "-qq", "--no-install-recommends", "postgresql"])
}

fn apt_get(arguments: &[&str]) -> Result {
    let as_root = program("id").args(["-u"]).output()?.trim_ascii() == b"0";
    let apt_get = if as_root { program("apt-get") } else { program("sudo").args(["apt-get"]) };
    apt_get.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").run()
}
