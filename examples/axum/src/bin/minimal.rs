//! The evidence API in a minimal axum application. This is the example of the README, so that it is known to
//! build.

use std::sync::Arc;

use evidence_core::{Evidence, Settings};
use evidence_store_sqlite::SqliteStore;
use evidence_tower::EvidenceApi;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteStore::connect("sqlite://evidence.db").await?);
    let service = Evidence::new(store, Settings::default());
    let api = EvidenceApi::new(service).relative();
    let app = axum::Router::new().nest_service("/api/v2", api);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8001").await?;
    Ok(axum::serve(listener, app).await?)
}
