//! `fsck`: whether the store still says what was recorded.

use crate::cli::StoreOptions;
use crate::failure::Failure;
use crate::store::{self, Findings};

/// Runs the command: every problem on a line of standard output, then a summary.
pub(crate) async fn run(options: &StoreOptions) -> Result<(), Failure> {
    let store = store::open_existing(options).await?;
    let findings = store.fsck().await;
    store.close().await;
    let Findings { organizations, entries, problems } = findings?;
    for problem in &problems {
        println!("{problem}");
    }
    println!("{organizations} organizations, {entries} entries, {} problems", problems.len());
    if problems.is_empty() { Ok(()) } else { Err(Failure::Damaged(problems.len())) }
}
