//! `serve`: the API on a socket, HTTP/1 and HTTP/2 on the same port, until a signal. The process then
//! completes running requests before it ends.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evidence_core::background::{Job, jobs};
use evidence_core::notifications::Notify;
use evidence_core::store::MAX_CLOCK_LEAD;
use evidence_core::time::{Clock, SystemClock};
use evidence_core::{Evidence, Limits, Settings};
use evidence_notify::SigningKey;
use evidence_object_store::ObjectBlobs;
use evidence_tower::EvidenceApi;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tower::{Service, ServiceExt};

use crate::cli::{ApiOptions, ServeOptions, Switch};
use crate::descriptors::raise_and_divide_file_limit;
use crate::failure::Failure;
use crate::lingering::{LingerBounds, Lingering};
use crate::logging;
use crate::notifications;
use crate::store::{self, AnyStore};
use crate::timeouts::{ActiveRequests, BodyDeadline, BodyTimeouts, BoxError, IdleTimeout, TrackedBody};

/// The timeout for the first byte and the head of a request, and for silence between requests.
const HEAD_OR_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The size of the buffer for a response and, with HTTP/1, for a request. A longer head is rejected.
const MAX_BUFFER: usize = 64 << 10;
/// The maximum number of concurrent requests of an HTTP/2 connection: the minimum that RFC 9113 recommends.
/// Each may have a piece of its body and of its response in memory, in addition to its reserved memory.
const MAX_STREAMS: u32 = 100;
/// The timeout without progress during a request or a response.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout while the service works on no request and no byte of a response is written, even if the peer
/// sends something else.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout for a peer to read on or to close its side, after the server has begun to shut down a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeouts of a request body.
const BODY_TIMEOUTS: BodyTimeouts = BodyTimeouts { piece: STALL_TIMEOUT, whole: Duration::from_secs(600) };
/// The bounds for reading from a connection after its last response.
const LINGER_BOUNDS: LingerBounds = LingerBounds { time: Duration::from_secs(2), bytes: 16 << 20 };
/// The timeout for running requests after a signal.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// The timeout for writes whose clients have disconnected, after all requests ended.
const ORPHANED_WRITES_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for background work to stop, after all requests ended.
const BACKGROUND_STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after a connection could not be accepted, for example because file descriptors are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Runs the command.
pub(crate) async fn run(options: ServeOptions) -> Result<(), Failure> {
    let ServeOptions { store: store_options, api, attachments, ledger } = options;
    let _log = logging::start(&api.log)?;
    let limits = api.limits()?;
    let attachments = attachments.as_deref().map(ObjectBlobs::open).transpose()?;
    let store = store::open(&store_options).await?;
    if store.is_empty().await? {
        // The message omits the URL, because it may contain a password.
        eprintln!(
            "The store is empty. To create a user and a key: evidence-server seed --user NAME, with the same --database-url"
        );
    }
    warn_of_clock(&store).await;
    let work = Work::new(&api)?;
    let listener = Listener::open(&api).await?;
    let settings = listener.settings(&api, limits);
    let name = settings.public_url.split_once("://").map_or(settings.public_url.as_str(), |(_, name)| name);
    let keys = crate::ledger::keys(&ledger, (&store_options, &store), name).await?;
    let service = Evidence::new(store.store(), settings);
    let service = match keys {
        Some(keys) => service.with_ledger_keys(keys),
        None => service,
    };
    let service = match attachments {
        Some(attachments) => service.with_attachments(Arc::new(attachments)),
        None => service,
    };
    println!("Listening on http://{}", listener.address);
    listener.serve(service, work, &store).await
}

/// A clock this far after the last entry is unusual. It matters for stores without a database server's clock.
const UNUSUAL_SILENCE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Logs if the clock may be wrong, or was.
async fn warn_of_clock(store: &AnyStore) {
    let newest = match store.store().newest_entry().await {
        Ok(Some(newest)) => newest,
        Ok(None) => return,
        Err(error) => {
            tracing::warn!(%error, "the time of the last entry cannot be read");
            return;
        }
    };
    let now = SystemClock.now();
    if newest.later_than(now).is_some_and(|by| by > MAX_CLOCK_LEAD) {
        tracing::warn!(%newest, %now, "a ledger has entries in the future: 'evidence-server fsck' names the organization");
    }
    let silence = now.later_than(newest).filter(|silence| *silence > UNUSUAL_SILENCE);
    if let (AnyStore::Sqlite(_), Some(silence)) = (store, silence) {
        let days = silence.as_secs() / (24 * 60 * 60);
        tracing::warn!(%newest, %now, "the clock is {days} days after the last entry: check that it is right");
    }
}

/// The work besides requests.
pub(crate) struct Work {
    jobs: Vec<Arc<dyn Job>>,
    lease: Duration,
}

impl Work {
    pub(crate) fn new(options: &ApiOptions) -> Result<Self, Failure> {
        let notifier = notifications::notifier(&options.notify)?;
        let mut jobs = jobs(options.sweep);
        jobs.push(Arc::new(Notify::new(Arc::new(notifier))));
        Ok(Self { jobs, lease: Duration::from_secs(options.lease_seconds) })
    }
}

/// A bound socket, and the signals that close it.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
    /// The address of the socket.
    pub(crate) address: SocketAddr,
    /// A permit for each open connection.
    connection_permits: Arc<Semaphore>,
    stop: Stop,
}

impl Listener {
    /// Binds the socket. From now on, a signal starts draining.
    pub(crate) async fn open(options: &ApiOptions) -> Result<Self, Failure> {
        let failed = |source| Failure::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let connections = raise_and_divide_file_limit(options.max_connections);
        let connection_permits = Arc::new(Semaphore::new(connections));
        Ok(Self { listener, address, connection_permits, stop: Stop::listen().map_err(Failure::Signals)? })
    }

    /// Returns the settings of a service at this address.
    pub(crate) fn settings(&self, options: &ApiOptions, limits: Limits) -> Settings {
        let local = || format!("http://localhost:{}", self.address.port());
        Settings {
            public_url: options.public_url.clone().unwrap_or_else(local),
            wording: options.wording.into(),
            implicit_flows: options.implicit_flows == Switch::On,
            limits,
            heartbeat_interval: Duration::from_secs(options.heartbeat_seconds),
            egress: notifications::egress(&options.notify),
            url_key: options.notify.webhook_secret.as_ref().map(SigningKey::url_key),
            ..Settings::default()
        }
    }

    /// Serves requests and does the background work until a signal. Then drains requests, stops the work and
    /// closes the store.
    pub(crate) async fn serve(self, service: Evidence, work: Work, store: &AnyStore) -> Result<(), Failure> {
        let Self { listener, address, connection_permits, mut stop } = self;
        tracing::info!(%address, "listening");
        let background = service.background(work.lease, work.jobs);
        let api = EvidenceApi::new(service);
        let connections = Connections::new(api.clone());
        let mut stopped = pin!(stop.asked());
        loop {
            // Without a permit, connections wait in the socket's backlog.
            let next =
                async { (Arc::clone(&connection_permits).acquire_owned().await, listener.accept().await) };
            tokio::select! {
                (permit, accepted) = next => match accepted {
                    Ok((stream, _)) => {
                        set_nodelay(&stream);
                        let connection = connections.serve(stream);
                        tokio::spawn(async move {
                            connection.await;
                            drop(permit);
                        });
                    }
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
        if tokio::time::timeout(DRAIN_TIMEOUT, connections.drain()).await.is_err() {
            tracing::warn!("some requests were still running and were aborted");
        }
        if tokio::time::timeout(ORPHANED_WRITES_TIMEOUT, api.finish_writes()).await.is_err() {
            tracing::warn!("some writes of disconnected clients were still running and were aborted");
        }
        if tokio::time::timeout(BACKGROUND_STOP_TIMEOUT, background.stop()).await.is_err() {
            tracing::warn!(
                "background work did not stop and was aborted: other servers take over when its lease expires"
            );
        }
        store.close().await;
        tracing::info!("stopped");
        Ok(())
    }
}

/// Without this option, a response in two writes can wait for the peer's delayed acknowledgement.
fn set_nodelay(stream: &TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
}

/// The open connections.
struct Connections<A> {
    api: A,
    http: auto::Builder<TokioExecutor>,
    /// Signals connections to end. Each has a receiver.
    stop: watch::Sender<()>,
}

impl<A, B> Connections<A>
where
    A: Service<Request<BodyDeadline<Incoming>>, Response = Response<B>, Error = Infallible>,
    A: Clone + Send + 'static,
    A::Future: Send,
    B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static,
{
    fn new(api: A) -> Self {
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_OR_IDLE_TIMEOUT)
            .max_buf_size(MAX_BUFFER);
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(HEAD_OR_IDLE_TIMEOUT)
            // The answer to a ping comes after the data that the peer has yet to read.
            .keep_alive_timeout(STALL_TIMEOUT)
            .max_concurrent_streams(MAX_STREAMS)
            .max_send_buf_size(MAX_BUFFER);
        Self { api, http, stop: watch::Sender::new(()) }
    }

    /// Serves a connection until it ends.
    fn serve<S>(&self, stream: S) -> impl Future<Output = ()> + Send + use<A, B, S>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (api, requests) = (self.api.clone(), ActiveRequests::default());
        let of_connection = requests.clone();
        let stream = IdleTimeout::new(stream, STALL_TIMEOUT, requests.clone())
            .with_first_byte_timeout(HEAD_OR_IDLE_TIMEOUT);
        let stream = TokioIo::new(Lingering::new(stream, LINGER_BOUNDS));
        let service = service_fn(move |request: Request<Incoming>| {
            let (api, requests) = (api.clone(), requests.clone());
            let active = requests.begin();
            async move {
                let response = api.oneshot(request.map(|body| BodyDeadline::new(body, BODY_TIMEOUTS))).await;
                drop(active);
                response.map(|response| response.map(|body| TrackedBody::new(body, requests)))
            }
        });
        let connection = self.http.serve_connection(stream, service).into_owned();
        // Kept until the connection ends, because `drain` waits until no receiver is left.
        let mut stop = self.stop.subscribe();
        async move {
            let mut connection = pin!(connection);
            let idle = || of_connection.idle(IDLE_TIMEOUT);
            let ended = tokio::select! {
                ended = connection.as_mut() => Some(ended),
                _ = stop.changed() => None,
                () = idle() => None,
            };
            let ended = match ended {
                Some(ended) => ended,
                None => {
                    connection.as_mut().graceful_shutdown();
                    let cut = async {
                        tokio::time::sleep(CLOSE_TIMEOUT).await;
                        idle().await;
                    };
                    tokio::select! {
                        ended = connection => ended,
                        () = cut => {
                            tracing::warn!(
                                "a connection was closed, because the peer neither read a response nor closed its side"
                            );
                            Ok(())
                        }
                    }
                }
            };
            if let Err(error) = ended {
                tracing::debug!(error, "a connection broke");
            }
        }
    }

    /// Waits until every connection has completed its requests and ended.
    async fn drain(self) {
        self.stop.send_replace(());
        self.stop.closed().await;
    }
}

/// The signals that stop the server.
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

#[cfg(test)]
mod tests;
