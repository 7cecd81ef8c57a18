//! The log on standard error; standard output has only the result of a command. A separate thread writes the
//! log. If nobody reads it, lines are dropped and counted, and no request waits.

use std::io::IsTerminal;
use std::time::Duration;

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::cli::{LogFormat, LogOptions};
use crate::failure::Failure;

/// The maximum number of lines that wait to be written. Further ones are dropped.
const WAITING_LINES: usize = 8192;

/// The interval between reports of dropped lines.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// A running log. Dropping it writes the waiting lines, for at most a second.
#[derive(Debug)]
pub(crate) struct Log {
    _worker: WorkerGuard,
}

/// Starts logging for the rest of the process, including panics. Requires a Tokio runtime.
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
    // The default hook writes to standard error itself, and waits for its reader.
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    tokio::spawn(report_dropped(dropped));
    Ok(Log { _worker: worker })
}

/// Logs the number of lines dropped since the start whenever it grows. Such a line may be dropped as well,
/// and is counted then.
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
