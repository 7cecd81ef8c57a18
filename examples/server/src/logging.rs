//! The log: to standard error, so that standard output holds nothing but a command's answer. A thread of its own writes it.
//! Where nobody reads, lines are dropped and counted, and no request waits.

use std::io::IsTerminal;
use std::time::Duration;

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::cli::{LogFormat, LogOptions};
use crate::failure::Failure;

/// How many lines wait to be written before further ones are dropped.
const WAITING_LINES: usize = 8192;

/// How often dropped lines are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// A log that was started. Dropped, it writes the lines that wait, for a second at most.
#[derive(Debug)]
pub(crate) struct Log {
    _worker: WorkerGuard,
}

/// Starts logging for the rest of the process, panics too. Needs a Tokio runtime.
pub(crate) fn start(options: &LogOptions) -> Result<Log, Failure> {
    let filter = EnvFilter::builder().parse(&options.log_filter)?;
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING_LINES);
    let (writer, worker) = builder.thread_name("evidence-log").finish(std::io::stderr());
    let dropped = writer.error_counter();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(std::io::stderr().is_terminal());
    match options.log {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    // The usual hook writes to standard error itself, and waits for whoever reads that.
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    tokio::spawn(report_dropped(dropped));
    Ok(Log { _worker: worker })
}

/// Logs how many lines were dropped since the start, whenever there are more. Such a line may be dropped itself, and then it
/// counts.
async fn report_dropped(dropped: ErrorCounter) {
    let mut reported = 0;
    loop {
        tokio::time::sleep(REPORT_INTERVAL).await;
        let lines = dropped.dropped_lines();
        if lines > reported {
            reported = lines;
            tracing::warn!(lines, "log lines were dropped since the start, because the log was not read");
        }
    }
}
