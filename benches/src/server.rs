//! A seeded service, and the API on a socket in this process.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::serve::ListenerExt;
use bytes::Bytes;
use evidence_core::auth::{Actor, ActorKind, ApiKey};
use evidence_core::id::{Id, SystemRandom};
use evidence_core::seed::Seed;
use evidence_core::time::{Clock, SystemClock};
use evidence_core::{Evidence, Settings, Store};
use evidence_tower::EvidenceApi;
use http::header::CONTENT_TYPE;
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rocket::Config;
use rocket::config::LogLevel;
use rocket::fairing::AdHoc;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::{AnyStore, Client, Engine, Request, Result, Stores, form};

/// The organization of all reports.
pub const ORG: &str = "acme";
/// The flow of all reports.
pub const FLOW: &str = "web";

/// A boxed future, so that the service is compiled with this crate and not again with each benchmark, which
/// would take minutes.
pub type Compiled<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + 'a>>;

/// Creates a service with this store, and a key of an administrator of [`ORG`].
///
/// # Errors
/// If the store fails.
pub fn evidence(store: Arc<dyn Store>) -> Compiled<'static, (Evidence, ApiKey)> {
    evidence_with(store, Settings::default())
}

fn evidence_with(store: Arc<dyn Store>, settings: Settings) -> Compiled<'static, (Evidence, ApiKey)> {
    Box::pin(async {
        let evidence = Evidence::new(store, settings);
        let seed = Seed { user: "jane".parse()?, orgs: vec![ORG.parse()?], api_key: None };
        let key = evidence.seed(&seed).await?;
        Ok((evidence, key))
    })
}

/// Returns the administrator, and the id of [`ORG`].
///
/// # Errors
/// If [`evidence`] was not created with this store.
pub async fn member(store: &dyn Store) -> Result<(Actor, Id)> {
    let jane = store.user("jane").await?.ok_or("no user")?;
    let org = store.org_role(ORG, jane.id).await?.ok_or("no organization")?.organization.id;
    Ok((Actor { id: jane.id, name: jane.name.to_string(), kind: ActorKind::User }, org))
}

/// Returns a new id.
pub fn new_id() -> Id {
    Id::new(SystemClock.now(), &SystemRandom)
}

/// Returns a generic attestation of this name: a JSON document of 1,008 bytes, as large as the raw probe's
/// payload.
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

/// Creates another organization with the same administrator.
///
/// # Errors
/// If the store fails.
pub async fn seed_organization(evidence: &Evidence, key: &ApiKey, org: &str) -> Result {
    let seed = Seed { user: "jane".parse()?, orgs: vec![org.parse()?], api_key: Some(key.clone()) };
    evidence.seed(&seed).await?;
    Ok(())
}

/// The host of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mount {
    /// hyper alone.
    Hyper,
    /// axum's `nest_service`.
    Axum,
    /// Rocket's `mount`.
    Rocket,
}

/// The API on a socket.
#[derive(Debug)]
pub struct Server {
    /// The address of the socket.
    pub address: SocketAddr,
    /// The store of the service.
    pub store: AnyStore,
    /// The service.
    pub evidence: Evidence,
    /// The key of its administrator.
    pub key: ApiKey,
}

impl Server {
    /// Serves this store with hyper alone, on the threads of `servers`.
    ///
    /// # Errors
    /// If the store cannot be seeded, or no port is free.
    pub fn start<'a>(
        servers: &'a Handle,
        stores: &'a Stores,
        engine: Engine,
        name: &'a str,
    ) -> Compiled<'a, Self> {
        Self::mounted(servers, stores, engine, name, Mount::Hyper)
    }

    /// Serves this store without caches of responses and trails.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn uncached<'a>(
        servers: &'a Handle,
        stores: &'a Stores,
        engine: Engine,
        name: &'a str,
    ) -> Compiled<'a, Self> {
        let settings = Settings { answer_cache_bytes: 0, cache_ttl: Duration::ZERO, ..Settings::default() };
        Self::serving(servers, stores, engine, name, Mount::Hyper, settings)
    }

    /// Serves this store in a host.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn mounted<'a>(
        servers: &'a Handle,
        stores: &'a Stores,
        engine: Engine,
        name: &'a str,
        mount: Mount,
    ) -> Compiled<'a, Self> {
        Self::serving(servers, stores, engine, name, mount, Settings::default())
    }

    fn serving<'a>(
        servers: &'a Handle,
        stores: &'a Stores,
        engine: Engine,
        name: &'a str,
        mount: Mount,
        settings: Settings,
    ) -> Compiled<'a, Self> {
        Box::pin(async move {
            let _on_their_threads = servers.enter();
            let store = stores.open(engine, name).await?;
            let (evidence, key) = evidence_with(store.store(), settings).await?;
            let api = EvidenceApi::new(evidence.clone());
            let address = match mount {
                Mount::Hyper => hyper(servers, api).await?,
                Mount::Axum => {
                    let app = axum::Router::new().nest_service("/api/v2", api.relative());
                    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
                    let address = listener.local_addr()?;
                    servers.spawn(async move {
                        axum::serve(listener.tap_io(|io| drop(io.set_nodelay(true))), app).await
                    });
                    address
                }
                Mount::Rocket => rocket(servers, api).await?,
            };
            Ok(Self { address, store, evidence, key })
        })
    }

    /// Connects to the server.
    ///
    /// # Errors
    /// If the connection is refused.
    pub async fn client(&self) -> Result<Client> {
        Client::connect(self.address).await
    }

    /// Returns a request of an administrator, with a body of this media type.
    pub fn request(&self, method: &str, path: &str, body: (&str, &str)) -> Request {
        Request::new(method, path, self.key.reveal(), body)
    }

    /// Returns a request that creates [`FLOW`], optionally with a template.
    pub fn flow(&self, template: Option<&str>) -> Request {
        let data = json!({ "name": FLOW, "description": "" }).to_string();
        let file = template.map(|template| ("name=\"template_file\"; filename=\"t.yml\"", template));
        let parts: Vec<_> = [("name=\"data_json\"", data.as_str())].into_iter().chain(file).collect();
        let (media_type, body) = form(&parts);
        self.request("PUT", &format!("/flows/{ORG}/template_file"), (&media_type, &body))
    }

    /// Returns a request of an administrator, without a body.
    pub fn get(&self, path: &str) -> Request {
        self.request("GET", path, ("application/json", ""))
    }

    /// Returns a request of an administrator, with a JSON body.
    pub fn json(&self, method: &str, path: &str, body: &serde_json::Value) -> Request {
        self.request(method, path, ("application/json", &body.to_string()))
    }
}

async fn hyper(servers: &Handle, api: EvidenceApi<Evidence>) -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    servers.spawn(serve(listener, TowerToHyperService::new(api)));
    Ok(address)
}

async fn rocket(servers: &Handle, api: EvidenceApi<Evidence>) -> Result<SocketAddr> {
    let config = Config { port: 0, log_level: LogLevel::Off, ..Config::release_default() };
    let (bound, address) = oneshot::channel();
    let bound = Mutex::new(Some(bound));
    let announce = AdHoc::on_liftoff("announce the address", move |rocket| {
        let address = SocketAddr::new(rocket.config().address, rocket.config().port);
        let bound = bound.lock().ok().and_then(|mut bound| bound.take());
        if let Some(bound) = bound {
            bound.send(address).ok();
        }
        Box::pin(async {})
    });
    let app =
        rocket::custom(config).mount("/api/v2", evidence_tower::rocket::Mount::new(api)).attach(announce);
    servers.spawn(app.launch());
    Ok(address.await?)
}

/// Serves all connections of a listener with this service.
pub(crate) async fn serve<S, B>(listener: TcpListener, service: S)
where
    S: Service<http::Request<Incoming>, Response = http::Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).ok();
        let mut http = http1::Builder::new();
        let connection =
            http.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service.clone());
        tokio::spawn(connection);
    }
}

/// Starts a server that responds to every request with this JSON and does nothing else: the maximum of the
/// machine.
///
/// # Errors
/// If no port is free.
pub async fn bare(servers: &Handle, json: Bytes) -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let answer = move |_: http::Request<Incoming>| {
        let answer =
            http::Response::builder().header(CONTENT_TYPE, "application/json").body(Full::new(json.clone()));
        std::future::ready(Ok::<_, Infallible>(answer.unwrap_or_default()))
    };
    servers.spawn(serve(listener, service_fn(answer)));
    Ok(address)
}
