//! Serves the application with `evidence.db`, at the address in Rocket's configuration.

use std::sync::Arc;

use evidence_core::{Evidence, Settings};
use evidence_store_sqlite::SqliteStore;
use evidence_tower::EvidenceApi;

#[rocket::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteStore::connect("sqlite://evidence.db").await?);
    let api = EvidenceApi::new(Evidence::new(store, Settings::default()));
    evidence_example_rocket::app(rocket::build(), api).launch().await?;
    Ok(())
}
