//! Serves `evidence.db` on port 8001.

use std::sync::Arc;

use evidence_core::{Evidence, Settings};
use evidence_store_sqlite::SqliteStore;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteStore::connect("sqlite://evidence.db").await?);
    let listener = TcpListener::bind("127.0.0.1:8001").await?;
    evidence_example_hyper::serve(listener, Evidence::new(store, Settings::default())).await;
    Ok(())
}
