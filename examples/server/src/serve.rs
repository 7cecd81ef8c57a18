//! `serve`: the API on a socket, HTTP/1 and HTTP/2 on the same port, until a signal asks to stop; then every request
//! that was begun is answered before the process ends.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use evidence_core::background::{LEASE, jobs};
use evidence_core::sweep::Sweep;
use evidence_core::{Evidence, Limits, Settings};
use evidence_object_store::ObjectBlobs;
use evidence_tower::EvidenceApi;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use crate::cli::{ApiOptions, ServeOptions, Switch};
use crate::failure::Failure;
use crate::logging;
use crate::patience::{Patient, Timely};
use crate::store::{self, Opened};

/// How long a client may take over a request's head; an idle connection ends after as long.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection may rest in the middle of a request or an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the whole body of a request may take to come.
const BODY_PATIENCE: Duration = Duration::from_secs(600);
/// How long running requests may take once a signal asked to stop.
const DRAIN: Duration = Duration::from_secs(30);
/// How long background work may take to let go of what it does, once requests are answered.
const LAST_WORK: Duration = Duration::from_secs(10);
/// How long to wait when no connection can be accepted, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Runs the command.
pub(crate) async fn run(options: ServeOptions) -> Result<(), Failure> {
    let ServeOptions { store: store_options, api, attachments } = options;
    logging::start(&api.log)?;
    let attachments = attachments.as_deref().map(ObjectBlobs::open).transpose()?;
    let store = store::open(&store_options).await?;
    if store.is_empty().await? {
        // The URL is not repeated here: it may hold a password.
        eprintln!(
            "The store is empty. To make a user and a key: evidence-server seed --user NAME, with the same --database-url"
        );
    }
    let sweep = api.sweep;
    let door = Door::open(&api).await?;
    let service = Evidence::new(store.store(), door.settings(&api));
    let service = match attachments {
        Some(place) => service.with_attachments(Arc::new(place)),
        None => service,
    };
    println!("Listening on http://{}", door.address);
    door.serve(service, sweep, &store).await
}

/// A bound socket and the signals that close it.
#[derive(Debug)]
pub(crate) struct Door {
    listener: TcpListener,
    /// The address it listens on.
    pub(crate) address: SocketAddr,
    stop: Stop,
}

impl Door {
    /// Binds the socket. From here on a signal means draining.
    pub(crate) async fn open(options: &ApiOptions) -> Result<Self, Failure> {
        let failed = |source| Failure::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, stop: Stop::listen().map_err(Failure::Signals)? })
    }

    /// What the service is told about how it is reached and how it behaves.
    pub(crate) fn settings(&self, options: &ApiOptions) -> Settings {
        let local = || format!("http://localhost:{}", self.address.port());
        Settings {
            public_url: options.public_url.clone().unwrap_or_else(local),
            wording: options.wording.into(),
            implicit_flows: options.implicit_flows == Switch::On,
            limits: Limits::default(),
            heartbeat_interval: Duration::from_secs(options.heartbeat_seconds),
        }
    }

    /// Serves, and does the background work, until a signal; then drains, stops that work, and closes the store.
    pub(crate) async fn serve(self, service: Evidence, sweep: Sweep, store: &Opened) -> Result<(), Failure> {
        let Self { listener, address, mut stop } = self;
        tracing::info!(%address, "listening");
        let background = service.background(LEASE, jobs(sweep));
        let connections = Connections::new(EvidenceApi::new(service));
        let mut stopped = pin!(stop.asked());
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => connections.begin(stream),
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                () = &mut stopped => break,
            }
        }
        drop(listener);
        tracing::info!("draining");
        connections.drain().await;
        if tokio::time::timeout(LAST_WORK, background.stop()).await.is_err() {
            tracing::warn!(
                "background work did not end and was cut off: other servers take over when its lease expires"
            );
        }
        store.close().await;
        tracing::info!("stopped");
        Ok(())
    }
}

/// The connections at work.
struct Connections {
    api: EvidenceApi<Evidence>,
    http: auto::Builder<TokioExecutor>,
    running: GracefulShutdown,
}

impl Connections {
    fn new(api: EvidenceApi<Evidence>) -> Self {
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE);
        http.http2().timer(TokioTimer::new()).keep_alive_interval(HEAD_PATIENCE);
        Self { api, http, running: GracefulShutdown::new() }
    }

    fn begin(&self, stream: TcpStream) {
        // Without this an answer in two writes can wait for the peer's delayed acknowledgement.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY could not be set");
        }
        let stream = TokioIo::new(Patient::new(stream, PATIENCE));
        let timely = |request: Request<Incoming>| request.map(|body| Timely::new(body, BODY_PATIENCE));
        let service = TowerToHyperService::new(self.api.clone().map_request(timely));
        let connection = self.running.watch(self.http.serve_connection(stream, service).into_owned());
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error, "a connection broke");
            }
        });
    }

    async fn drain(self) {
        if tokio::time::timeout(DRAIN, self.running.shutdown()).await.is_err() {
            tracing::warn!("some requests were still running and were cut off");
        }
    }
}

/// The signals that ask the server to stop.
#[derive(Debug)]
struct Stop {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Stop {
    #[cfg(unix)]
    fn listen() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    #[cfg(unix)]
    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    fn listen() -> std::io::Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    async fn asked(&mut self) {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::error!(%error, "cannot wait for Ctrl-C");
        }
    }
}
