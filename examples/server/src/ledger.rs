//! `ledger`: commands about an organization's ledger.

use std::path::{Path, PathBuf};

use evidence_core::administration::EndedFuture;
use evidence_core::checkpoints::LedgerKeys;
use evidence_core::name::OrgName;
use evidence_core::store::MAX_CLOCK_LEAD;
use evidence_core::time::{Clock, SystemClock};
use evidence_core::{Evidence, Settings, StoreError};

use crate::cli::{LedgerCommand, LedgerOptions, StoreOptions};
use crate::failure::Failure;
use crate::store::{self, AnyStore};

/// Runs `ledger`.
pub(crate) async fn run(command: LedgerCommand) -> Result<(), Failure> {
    match command {
        LedgerCommand::NewOrigin { name, host, ledger_dir, ledger_key } => {
            let directory = directory(ledger_dir, &host.store)?.ok_or(Failure::NoLedgerDirectory)?;
            let store = store::open_existing(&host.store).await?;
            let named = new_origin(&store, &host.operator, (&directory, ledger_key.as_deref()), &name).await;
            store.close().await;
            println!("the ledgers are named '{name}' from now on; former checkpoints recorded: {}", named?);
            Ok(())
        }
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

/// Returns the directory of the ledger keys.
fn directory(given: Option<PathBuf>, store: &StoreOptions) -> Result<Option<PathBuf>, Failure> {
    match given {
        Some(directory) => Ok(Some(directory)),
        // One directory, whatever links lead to the database.
        None => Ok(store::sqlite_file(store)?.map(|file| {
            let file = file.canonicalize().unwrap_or(file);
            let mut path = file.into_os_string();
            path.push("-ledger");
            PathBuf::from(path)
        })),
    }
}

/// Opens the keys of the ledgers. `default_name` is the name if the directory is new and no name is given.
pub(crate) async fn keys(
    options: &LedgerOptions,
    (store, open): (&StoreOptions, &AnyStore),
    default_name: &str,
) -> Result<Option<LedgerKeys>, Failure> {
    let LedgerOptions { ledger_dir, ledger_name, ledger_key } = options;
    let Some(directory) = directory(ledger_dir.clone(), store)? else { return Ok(None) };
    if !LedgerKeys::exist_in(&directory) && open.store().has_signed_checkpoints().await? {
        return Err(Failure::LostLedgerDirectory(directory));
    }
    let name = ledger_name.as_deref().unwrap_or(default_name);
    let keys = LedgerKeys::open(&directory, name, ledger_key.as_deref())?;
    match ledger_name {
        Some(given) if given != keys.name() => {
            let (name, given) = (keys.name().to_owned(), given.clone());
            Err(Failure::OtherLedgerName { directory, name, given })
        }
        _ => Ok(Some(keys)),
    }
}

/// Names the ledgers anew. Returns the number of ledgers that had a signed checkpoint.
async fn new_origin(
    store: &AnyStore,
    operator: &OrgName,
    (directory, key): (&Path, Option<&Path>),
    name: &str,
) -> Result<u64, Failure> {
    let service = Evidence::new(store.store(), Settings::default());
    let ended = service.administration(operator).end_logs(name, &LedgerKeys::signed_in(directory)).await?;
    LedgerKeys::rename(directory, name, key)?;
    Ok(ended)
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
