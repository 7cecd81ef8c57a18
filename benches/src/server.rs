//! A seeded service, and the API on a socket of this process.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use evidence_core::auth::ApiKey;
use evidence_core::seed::Seed;
use evidence_core::{Evidence, Settings, Store};
use evidence_store_sqlite::SqliteStore;
use evidence_tower::EvidenceApi;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::TcpListener;

use crate::{Client, Outcome, Request};

/// The organization that everything is reported to.
pub const ORG: &str = "acme";
/// The flow that everything is reported to.
pub const FLOW: &str = "web";

/// A service over this store, and the key of an administrator of [`ORG`].
///
/// # Errors
/// When the store fails.
pub async fn evidence(store: Arc<dyn Store>) -> Outcome<(Evidence, ApiKey)> {
    let evidence = Evidence::new(store, Settings::default());
    let key = evidence.seed(&Seed { user: "jane".parse()?, orgs: vec![ORG.parse()?], api_key: None }).await?;
    Ok((evidence, key))
}

/// A generic attestation of this name: a JSON document of 1,008 bytes, as large as the raw probe's payload.
pub fn attestation_document(name: &str) -> String {
    const SIZE: usize = 1008;
    let document = |notes: String| {
        json!({
            "attestation_name": name, "is_compliant": true, "description": "What the pipeline found",
            "origin_url": "https://ci.example.com/runs/1", "user_data": { "notes": notes },
        })
        .to_string()
    };
    let missing = SIZE.saturating_sub(document(String::new()).len());
    document("all is well ".chars().cycle().take(missing).collect())
}

/// The API on a socket, over SQLite.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// The store below.
    pub store: Arc<SqliteStore>,
    key: String,
}

impl Server {
    /// Serves a fresh store in this file.
    ///
    /// # Errors
    /// When the file cannot be made, or no port is free.
    pub async fn start(file: &Path) -> Outcome<Self> {
        let store = Arc::new(SqliteStore::open(file).await?);
        let (evidence, key) = evidence(Arc::clone(&store) as _).await?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        tokio::spawn(serve(listener, EvidenceApi::new(evidence)));
        Ok(Self { address, store, key: key.reveal().to_owned() })
    }

    /// A connection.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn client(&self) -> Outcome<Client> {
        Client::connect(self.address).await
    }

    /// A request by an administrator, with a body of this media type.
    pub fn request(&self, method: &str, path: &str, body: (&str, &str)) -> Request {
        Request::new(method, path, &self.key, body)
    }

    /// A request by an administrator, with a JSON body.
    pub fn json(&self, method: &str, path: &str, body: &serde_json::Value) -> Request {
        self.request(method, path, ("application/json", &body.to_string()))
    }
}

async fn serve(listener: TcpListener, api: EvidenceApi<Evidence>) {
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).ok();
        let service = TowerToHyperService::new(api.clone());
        let mut http = http1::Builder::new();
        let connection = http.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}
