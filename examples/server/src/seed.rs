//! `seed`: creates the first user, organizations and key of a store. Standard output has only the key.

use evidence_core::auth::ApiKey;
use evidence_core::seed::Seed;
use evidence_core::{Evidence, Settings};

use crate::cli::SeedOptions;
use crate::failure::Failure;
use crate::store;

/// Runs the command.
pub(crate) async fn run(options: SeedOptions) -> Result<(), Failure> {
    let SeedOptions { store: store_options, user, orgs, api_key } = options;
    let store = store::open(&store_options).await?;
    let service = Evidence::new(store.store(), Settings::default());
    let key = service.seed(&Seed { user, orgs, api_key: api_key.map(ApiKey::imported) }).await;
    store.close().await;
    println!("{}", key?.reveal());
    Ok(())
}
