//! `fsck`: whether the store still says what was recorded.

use crate::cli::StoreOptions;
use crate::failure::Failure;
use crate::store;

/// Runs the command: every problem on a line of standard output, then a summary.
pub(crate) async fn run(options: &StoreOptions) -> Result<(), Failure> {
    let store = store::open_existing(&options.database_url).await?;
    let report = store.fsck().await;
    store.close().await;
    let report = report?;
    for problem in &report.problems {
        println!("{problem}");
    }
    let problems = report.problems.len();
    println!("{} organizations, {} entries, {problems} problems", report.organizations, report.entries);
    if problems == 0 { Ok(()) } else { Err(Failure::Damaged(problems)) }
}
