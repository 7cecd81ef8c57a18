//! The evidence API on bare hyper: no framework, HTTP/1 and HTTP/2 on one socket, and tower-http's layers around.

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

/// How long to wait when no connection can be accepted, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the API at `/api/v2`, with `/ready` and `/live` beside it, until it is dropped.
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
            // The peer is gone: that says nothing of the next one.
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
