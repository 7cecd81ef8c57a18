//! `copy`: everything that one store has into another.

use evidence_core::transfer::{Copied, copy};

use crate::cli::CopyOptions;
use crate::failure::Failure;
use crate::store;

/// Runs the command: a line on standard error for each organization, then a summary on standard output.
pub(crate) async fn run(options: &CopyOptions) -> Result<(), Failure> {
    let from = store::open_existing(&options.source()).await?;
    if from.is_empty().await? {
        return Err(Failure::NothingToCopy);
    }
    let to = store::open(&options.target()).await?;
    let summary = copy(from.transfer(), to.transfer(), &mut tell).await;
    from.close().await;
    to.close().await;
    let summary = summary?;
    println!(
        "{} organizations, {} entries ({} new), {} new attachments",
        summary.organizations, summary.entries, summary.new_entries, summary.new_attachments
    );
    if summary.is_complete() { Ok(()) } else { Err(Failure::Late(summary.late)) }
}

fn tell(copied: &Copied) {
    let Copied { organization, entries, new_entries, new_attachments } = copied;
    eprintln!("{organization}: {entries} entries ({new_entries} new), {new_attachments} new attachments");
}
