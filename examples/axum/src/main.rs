//! Serves the application over `evidence.db` on port 8001. `X-Session: s3cret` is jane's session.

use std::sync::Arc;

use evidence_core::background::{LEASE, jobs};
use evidence_core::sweep::Sweep;
use evidence_core::{Evidence, Settings};
use evidence_example_axum::app;
use evidence_example_axum::sessions::Sessions;
use evidence_store_sqlite::SqliteStore;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = Arc::new(SqliteStore::connect("sqlite://evidence.db").await?);
    let sessions = Sessions::from_iter([("s3cret".to_owned(), "jane".to_owned())]);
    let service = Evidence::new(store, Settings::default());
    // The service's own background work. An application adds its jobs to the list.
    let background = service.background(LEASE, jobs(Sweep::default()));
    let listener = TcpListener::bind("127.0.0.1:8001").await?;
    let interrupted = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, app(service, sessions)).with_graceful_shutdown(interrupted).await?;
    background.stop().await;
    Ok(())
}
