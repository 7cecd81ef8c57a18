//! The hosts that carry the API, each driven in process: what a case sends goes through the host's own routing.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use evidence_core::EvidenceService;
use evidence_tower::EvidenceApi;
use evidence_tower::rocket::{Mount as RocketMount, catchers};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use rocket::config::LogLevel;
use rocket::fairing::AdHoc;
use rocket::http::Header;
use rocket::http::uri::Origin;
use rocket::local::asynchronous::Client;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tower::ServiceExt;

/// The error type of the bodies that tests send.
pub(crate) type BodyError = std::io::Error;
/// A body that a test sends.
pub(crate) type SentBody = UnsyncBoxBody<Bytes, BodyError>;
/// Carries a request to the API and its answer back.
pub(crate) type Carrier = Arc<dyn Fn(Request<SentBody>) -> BoxFuture<'static, Response<Bytes>> + Send + Sync>;

/// A host of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mount {
    /// The tower service itself, at its own prefix, as bare hyper serves it.
    Tower,
    /// The tower service below a mount point that somebody has stripped.
    Stripped,
    /// axum's `nest_service`.
    Axum,
    /// Rocket's `mount`.
    Rocket,
}

/// Every host that the cases run on.
pub(crate) const MOUNTS: [Mount; 4] = [Mount::Tower, Mount::Stripped, Mount::Axum, Mount::Rocket];

impl Mount {
    /// The path at which it serves the API.
    pub(crate) const fn prefix(self) -> &'static str {
        match self {
            Self::Stripped => "",
            Self::Tower | Self::Axum | Self::Rocket => "/api/v2",
        }
    }

    /// Whether a body is read as it comes. Rocket's reads so from a socket, but its test client sends whole ones alone.
    pub(crate) fn streams(self) -> bool {
        self != Self::Rocket
    }

    /// The API in this host.
    pub(crate) async fn carrier(self, api: EvidenceApi<impl EvidenceService>) -> Carrier {
        match self {
            Self::Tower => tower(api),
            Self::Stripped => tower(api.relative()),
            Self::Axum => tower(axum::Router::new().nest_service(self.prefix(), api.relative())),
            Self::Rocket => rocket(api, self.prefix()).await,
        }
    }
}

impl Mount {
    /// The API in this host, over a socket; it serves until the test's runtime ends.
    pub(crate) async fn serve(self, api: EvidenceApi<impl EvidenceService>) -> SocketAddr {
        let router = axum::Router::new();
        let app = match self {
            Self::Tower => router.fallback_service(api),
            Self::Stripped => router.fallback_service(api.relative()),
            Self::Axum => router.nest_service(self.prefix(), api.relative()),
            Self::Rocket => return serve_rocket(api, self.prefix()).await,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        address
    }
}

async fn serve_rocket(api: EvidenceApi<impl EvidenceService>, prefix: &'static str) -> SocketAddr {
    let config = rocket::Config { port: 0, log_level: LogLevel::Off, ..rocket::Config::debug_default() };
    let (bound, address) = oneshot::channel();
    let bound = Mutex::new(Some(bound));
    let announce = AdHoc::on_liftoff("announce the address", move |rocket| {
        let address = SocketAddr::new(rocket.config().address, rocket.config().port);
        bound.lock().unwrap().take().unwrap().send(address).unwrap();
        Box::pin(async {})
    });
    let app = rocket::custom(config).mount(prefix, RocketMount::new(api)).attach(announce);
    tokio::spawn(app.launch());
    address.await.unwrap()
}

fn tower<S, B>(service: S) -> Carrier
where
    S: tower::Service<Request<SentBody>, Response = Response<B>, Error = std::convert::Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug> + Send + 'static,
{
    Arc::new(move |request| {
        let service = service.clone();
        async move {
            let Ok(response) = service.oneshot(request).await;
            let (head, body) = response.into_parts();
            Response::from_parts(head, body.collect().await.unwrap().to_bytes())
        }
        .boxed()
    })
}

async fn rocket(api: EvidenceApi<impl EvidenceService>, prefix: &'static str) -> Carrier {
    let config = rocket::Config { log_level: LogLevel::Off, ..rocket::Config::debug_default() };
    let app = rocket::custom(config).mount(prefix, RocketMount::new(api)).register(prefix, catchers());
    let client = Arc::new(Client::untracked(app).await.unwrap());
    Arc::new(move |request| {
        let client = Arc::clone(&client);
        async move { dispatch(&client, request).await }.boxed()
    })
}

/// Sends a request, whose method Rocket has to know, through its test client.
async fn dispatch(client: &Client, request: Request<SentBody>) -> Response<Bytes> {
    let (head, body) = request.into_parts();
    // As Rocket reads it from a socket: unparsed.
    let uri = Origin::new(head.uri.path(), head.uri.query());
    let mut request = client.req(head.method.as_str().parse().unwrap(), uri);
    for (name, value) in &head.headers {
        // As it does with those from a socket, which it drops where they are no UTF-8.
        if let Ok(value) = std::str::from_utf8(value.as_bytes()) {
            request.add_header(Header::new(name.as_str().to_owned(), value.to_owned()));
        }
    }
    request.set_body(body.collect().await.unwrap().to_bytes());
    let answer = request.dispatch().await;
    let mut response = Response::builder().status(answer.status().code);
    for header in answer.headers().iter() {
        response = response.header(header.name.as_str(), header.value.as_ref());
    }
    let body = answer.into_bytes().await.unwrap_or_default();
    response.body(body.into()).unwrap()
}
