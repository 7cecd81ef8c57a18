//! `fsck`: verifies the store against its ledgers, and rebuilds its tables from them.

use evidence_core::transfer::check_attachments;
use evidence_object_store::ObjectBlobs;
use evidence_store_sqlite::{FsckReport, LedgerState, RebuildReport};

use crate::cli::FsckOptions;
use crate::failure::Failure;
use crate::store::{self, AnyStore};

/// Runs the command. Prints each problem and each ledger as a line on standard output, then a summary.
pub(crate) async fn run(options: &FsckOptions) -> Result<(), Failure> {
    let attachments = options.attachments.as_deref().map(ObjectBlobs::open).transpose()?;
    let store = store::open_existing(&options.store).await?;
    let outcome = checked(&store, options.rebuild, attachments.as_ref()).await;
    store.close().await;
    outcome
}

async fn checked(store: &AnyStore, rebuild: bool, attachments: Option<&ObjectBlobs>) -> Result<(), Failure> {
    if rebuild {
        let RebuildReport { rows, problems, .. } = store.rebuild().await?;
        problems.iter().for_each(|problem| println!("{problem}"));
        if !problems.is_empty() {
            return Err(Failure::NotRebuilt(problems.len()));
        }
        println!("{rows} rows differed from the ledgers and were rebuilt");
    }
    let FsckReport { organizations, entries, missing_attachments, first_missing, ledgers, problems, .. } =
        store.fsck().await?;
    let mut count = 0;
    let mut report = |problem: String| {
        println!("{problem}");
        count += 1;
    };
    problems.into_iter().for_each(&mut report);
    match attachments {
        Some(attachments) => check_attachments(store.transfer(), attachments, &mut report).await?,
        None if missing_attachments == 0 => {}
        None => {
            first_missing.iter().for_each(|attachment| println!("an attachment is missing: {attachment}"));
            report(format!(
                "{missing_attachments} attachments are not in the database: if they are elsewhere, set --attachments"
            ));
        }
    }
    for LedgerState { organization, size, root, .. } in ledgers {
        println!("ledger of {organization}: {size} entries, root {root}");
    }
    println!("{organizations} organizations, {entries} entries, {count} problems");
    if count == 0 { Ok(()) } else { Err(Failure::Damaged(count)) }
}
