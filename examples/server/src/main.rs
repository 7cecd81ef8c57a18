//! The standalone evidence server: the evidence API over HTTP/1 and HTTP/2, on one database file, or beside others on
//! one PostgreSQL database.
//!
//! This binary only connects things: [`cli`] says what can be asked, [`store`] opens the database, [`serve`] puts the
//! API on a socket, and the other modules are one command each. Everything that is evidence lives in the library
//! crates, so that a host can leave this one out.

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

use std::process::ExitCode;

use crate::cli::{Cli, Command};
use crate::failure::{Failure, without_credentials};

/// A request is many short-lived strings, freed on other threads too: with glibc's allocator recording costs a quarter
/// more.
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
        Command::Openapi => {
            println!("{:#}", evidence_tower::openapi());
            Ok(())
        }
    }
}
