//! `copy`: copies a store to another one.

use std::sync::Arc;

use evidence_core::blobs::{Blobs, OutsideBlobs};
use evidence_core::sweep::MarkedPlace;
use evidence_core::transfer::{Copied, CopyError, CopyProgress, Side, copy};
use evidence_object_store::ObjectBlobs;

use crate::cli::CopyOptions;
use crate::failure::Failure;
use crate::store::{self, AnyStore};

/// Runs the command. Prints a line on standard error for each organization, and a summary on standard output.
pub(crate) async fn run(options: &CopyOptions) -> Result<(), Failure> {
    let open = |url: &Option<String>| url.as_deref().map(ObjectBlobs::open).transpose();
    let (from_attachments, to_attachments) =
        (open(&options.from_attachments)?, open(&options.to_attachments)?);
    let from = store::open_existing(&options.source()).await?;
    if from.is_empty().await? {
        return Err(Failure::NothingToCopy);
    }
    let to = store::open(&options.target()).await?;
    let to_attachments = to_attachments.map(|place| MarkedPlace::for_copy(to.store(), Arc::new(place)));
    let summary = async {
        let (from, to) = (side(&from, from_attachments.as_ref()), side(&to, to_attachments.as_ref()));
        let summary = copy(from, to, &mut print_progress).await?;
        if let Some(place) = &to_attachments {
            // The first attachment marks the location. This marks it if there are no attachments, once the
            // target is known to be the right one.
            place.ready().await.map_err(CopyError::Target)?;
        }
        Ok::<_, CopyError>(summary)
    };
    let summary = summary.await;
    from.close().await;
    to.close().await;
    let summary = summary?;
    println!(
        "{} organizations, {} entries ({} new), {} new attachments",
        summary.organizations, summary.entries, summary.new_entries, summary.attachments.copied
    );
    if summary.is_complete() { Ok(()) } else { Err(Failure::NotAll(summary)) }
}

/// Returns a store with its location of attachments, if it has one.
fn side<'a>(store: &'a AnyStore, attachments: Option<&'a impl Blobs>) -> Side<'a> {
    let inside = Side::from(store.transfer());
    Side { attachments: attachments.map_or(inside.attachments, |outside| outside), ..inside }
}

fn print_progress(progress: CopyProgress) {
    match progress {
        CopyProgress::Organization(Copied { organization, entries, new_entries, new_attachments }) => {
            eprintln!(
                "{organization}: {entries} entries ({new_entries} new), {new_attachments} new attachments"
            );
        }
        CopyProgress::Damaged { organization, what } => eprintln!("organization {organization}: {what}"),
        CopyProgress::Skipped { organization, sha256, reason } => {
            eprintln!("organization {organization}: the attachment {sha256} {reason}");
        }
        _ => {}
    }
}
