//! The standalone evidence server: the evidence API over HTTP/1 and HTTP/2. It uses a database file, or
//! shares a PostgreSQL database with other servers.
//!
//! This binary only connects the parts. [`cli`] has the options, [`store`] opens the database, and [`serve`]
//! serves the API on a socket. Each other module is one command. The library crates contain everything else,
//! so a host can omit this binary.

mod administer;
mod cli;
mod copy;
mod demo;
mod descriptors;
mod failure;
mod fsck;
mod ledger;
mod lingering;
mod logging;
mod notifications;
mod seed;
mod serve;
mod store;
mod timeouts;
mod verify;

use std::process::ExitCode;

use crate::cli::{Cli, Command};
use crate::failure::{Failure, without_credentials};

/// A request allocates many short-lived strings, which other threads free as well. With glibc's allocator,
/// recording takes a quarter more time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let command = match Cli::read(std::env::args_os()) {
        Ok(command) => command,
        Err(error) if error.use_stderr() => {
            eprint!("{}", without_credentials(&error.to_string()));
            return ExitCode::from(2);
        }
        // Help, or the version.
        Err(error) => error.exit(),
    };
    if let Command::Verify(options) = &command {
        return ExitCode::from(verify::run(options));
    }
    match run(command).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{}", without_credentials(&failure.to_string()));
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(options) => serve::run(options).await,
        Command::Demo(options) => demo::run(options).await,
        Command::Seed(options) => seed::run(options).await,
        Command::User(command) => administer::user(command).await,
        Command::Org(command) => administer::org(command).await,
        Command::Member(command) => administer::member(command).await,
        Command::Key(command) => administer::key(command).await,
        Command::Notifications(command) => notifications::run(command).await,
        Command::Ledger(command) => ledger::run(command).await,
        Command::Fsck(options) => fsck::run(&options).await,
        Command::Copy(options) => copy::run(&options).await,
        // `main` has done it, because its status says more than that it failed.
        Command::Verify(_) => Ok(()),
        Command::Openapi => {
            println!("{:#}", evidence_tower::openapi());
            Ok(())
        }
    }
}
