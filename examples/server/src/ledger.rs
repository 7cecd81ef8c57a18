//! `ledger`: commands about an organization's ledger.

use evidence_core::administration::EndedFuture;
use evidence_core::name::OrgName;
use evidence_core::store::MAX_CLOCK_LEAD;
use evidence_core::time::{Clock, SystemClock};
use evidence_core::{Evidence, Settings, StoreError};

use crate::cli::LedgerCommand;
use crate::failure::Failure;
use crate::store::{self, AnyStore};

/// Runs `ledger`.
pub(crate) async fn run(command: LedgerCommand) -> Result<(), Failure> {
    match command {
        LedgerCommand::Root { org, host } => {
            let store = store::open_existing(&host.store).await?;
            let printed = print_root(&store, &host.operator, &org).await;
            store.close().await;
            printed
        }
        LedgerCommand::EndFuture { org, host } => {
            let store = store::open_existing(&host.store).await?;
            let ended = end_future(&store, &host.operator, &org).await;
            store.close().await;
            let EndedFuture { first, entries, was, now, .. } = ended?;
            println!(
                "{entries} entries from {first} on, the last of {was}, count as recorded at {now} from now on"
            );
            Ok(())
        }
    }
}

/// Prints the size and the root of a ledger, separated by a space.
async fn print_root(store: &AnyStore, operator: &OrgName, org: &OrgName) -> Result<(), Failure> {
    let service = Evidence::new(store.store(), Settings::default());
    let organization = service.administration(operator).organization(org).await?;
    let head = store.store().ledger_head(organization.id).await?;
    let head = head.ok_or_else(|| StoreError::corrupt(format_args!("the ledger of '{org}' has no head")))?;
    println!("{} {}", head.size(), head.root());
    Ok(())
}

/// Corrects a ledger with entries in the future. Fails if this machine's clock is behind the database's
/// clock: entries of today would seem to be in the future, and would get an earlier time.
async fn end_future(store: &AnyStore, operator: &OrgName, org: &OrgName) -> Result<EndedFuture, Failure> {
    // The database accepts a time that is ahead by the tolerance. If this machine's clock is behind, an entry
    // may be ahead of it by twice as much.
    let later = SystemClock.now().plus(2 * MAX_CLOCK_LEAD);
    if matches!(store, AnyStore::Postgres(_)) && store.store().check_clock(later).await.is_ok() {
        return Err(Failure::ClockBehind);
    }
    let service = Evidence::new(store.store(), Settings::default());
    Ok(service.administration(operator).end_future(org).await?)
}
