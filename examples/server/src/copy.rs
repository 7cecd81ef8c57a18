//! `copy`: everything that one store has into another.

use evidence_core::transfer::{Copied, Progress, Side, copy};
use evidence_object_store::ObjectBlobs;

use crate::cli::CopyOptions;
use crate::failure::Failure;
use crate::store::{self, Opened};

/// Runs the command: a line on standard error for each organization, then a summary on standard output.
pub(crate) async fn run(options: &CopyOptions) -> Result<(), Failure> {
    let place = |url: &Option<String>| url.as_deref().map(ObjectBlobs::open).transpose();
    let (from_place, to_place) = (place(&options.from_attachments)?, place(&options.to_attachments)?);
    let from = store::open_existing(&options.source()).await?;
    if from.is_empty().await? {
        return Err(Failure::NothingToCopy);
    }
    let to = store::open(&options.target()).await?;
    let summary = copy(at(&from, from_place.as_ref()), at(&to, to_place.as_ref()), &mut tell).await;
    from.close().await;
    to.close().await;
    let summary = summary?;
    println!(
        "{} organizations, {} entries ({} new), {} new attachments",
        summary.organizations, summary.entries, summary.new_entries, summary.attachments.copied
    );
    if summary.is_complete() { Ok(()) } else { Err(Failure::NotAll(summary)) }
}

/// A store, with its attachments in a place outside of it, if there is one.
fn at<'a>(store: &'a Opened, place: Option<&'a ObjectBlobs>) -> Side<'a> {
    let inside = Side::from(store.transfer());
    Side { attachments: place.map_or(inside.attachments, |place| place), ..inside }
}

fn tell(progress: Progress) {
    match progress {
        Progress::Organization(Copied { organization, entries, new_entries, new_attachments }) => {
            eprintln!(
                "{organization}: {entries} entries ({new_entries} new), {new_attachments} new attachments"
            );
        }
        Progress::Damaged { organization, what } => eprintln!("organization {organization}: {what}"),
        Progress::Skipped { organization, sha256, reason } => {
            eprintln!("organization {organization}: the attachment {sha256} {reason}");
        }
        _ => {}
    }
}
