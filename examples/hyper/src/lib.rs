//! The evidence API on hyper without a framework: HTTP/1 and HTTP/2 on one socket, with tower-http's layers.

use std::io::ErrorKind;
use std::time::Duration;

use evidence_core::Evidence;
use evidence_tower::EvidenceApi;
use http::StatusCode;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::ServiceBuilder;
use tower_http::compression::CompressionLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

/// The pause after a connection could not be accepted, for example because file descriptors are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the API at `/api/v2`, with `/ready` and `/live` beside it, until the future is dropped.
pub async fn serve(listener: TcpListener, evidence: Evidence) {
    let service = ServiceBuilder::new()
        .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
        .layer(TraceLayer::new_for_http())
        .layer(PropagateRequestIdLayer::x_request_id())
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(60)))
        .layer(CompressionLayer::new())
        .service(EvidenceApi::new(evidence));
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new());
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // The peer has left, which does not affect other connections.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                eprintln!("a connection could not be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(service.clone());
        let connection = http.serve_connection(TokioIo::new(stream), service).into_owned();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("a connection broke: {error}");
            }
        });
    }
}
