//! Serves the application over `evidence.db` on port 8001. `X-Session: s3cret` is jane's session.

use std::sync::Arc;

use evidence_core::{Evidence, Settings};
use evidence_example_axum::app;
use evidence_example_axum::sessions::Sessions;
use evidence_store_sqlite::SqliteStore;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteStore::connect("sqlite://evidence.db").await?);
    let sessions = Sessions::from_iter([("s3cret".to_owned(), "jane".to_owned())]);
    let app = app(Evidence::new(store, Settings::default()), sessions);
    Ok(axum::serve(TcpListener::bind("127.0.0.1:8001").await?, app).await?)
}
