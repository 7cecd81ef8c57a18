//! `fsck`: whether the store still says what was recorded, and making it say so again.

use crate::cli::FsckOptions;
use crate::failure::Failure;
use crate::store::{self, Findings, Opened, Rebuilt};

/// Runs the command: every problem on a line of standard output, then a summary.
pub(crate) async fn run(options: &FsckOptions) -> Result<(), Failure> {
    let store = store::open_existing(&options.store).await?;
    let outcome = checked(&store, options.rebuild).await;
    store.close().await;
    outcome
}

async fn checked(store: &Opened, rebuild: bool) -> Result<(), Failure> {
    if rebuild {
        let Rebuilt { rows, problems } = store.rebuild().await?;
        problems.iter().for_each(|problem| println!("{problem}"));
        if !problems.is_empty() {
            return Err(Failure::NotRebuilt(problems.len()));
        }
        println!("{rows} rows were not what the ledgers say and were made again");
    }
    let Findings { organizations, entries, problems } = store.fsck().await?;
    problems.iter().for_each(|problem| println!("{problem}"));
    println!("{organizations} organizations, {entries} entries, {} problems", problems.len());
    if problems.is_empty() { Ok(()) } else { Err(Failure::Damaged(problems.len())) }
}
