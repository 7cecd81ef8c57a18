//! The log: to standard error, so that standard output holds nothing but a command's answer.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::cli::{LogFormat, LogOptions};
use crate::failure::Failure;

/// Starts logging for the rest of the process.
pub(crate) fn start(options: &LogOptions) -> Result<(), Failure> {
    let filter = EnvFilter::builder().parse(&options.log_filter)?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match options.log {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}
