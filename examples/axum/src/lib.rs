//! An axum application with the evidence API at `/api/v2`. Like a typical existing application, it has its
//! own routes, state, sessions and metrics, and tower-http's layers around everything.
//!
//! Start with `src/bin/minimal.rs`, which has none of that.

pub mod builds;
pub mod metrics;
pub mod sessions;

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use evidence_core::Evidence;
use evidence_tower::EvidenceApi;
use http::StatusCode;
use tower::ServiceBuilder;
use tower_http::compression::CompressionLayer;
use tower_http::request_id::{MakeRequestUuid, PropagateRequestIdLayer, SetRequestIdLayer};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

use crate::metrics::Metered;
use crate::sessions::{Sessions, SignedIn};

/// The state of the application's routes.
#[derive(Debug, Clone)]
struct Shared {
    evidence: Metered<Evidence>,
    people: SignedIn,
}

/// Creates the application: its own routes, and the API for signed-in users and API keys.
pub fn app(evidence: Evidence, sessions: Sessions) -> Router {
    let people = SignedIn::new(evidence.clone(), sessions);
    let evidence = Metered::new(evidence);
    let api = EvidenceApi::new(evidence.clone()).authenticated_by(people.clone());
    Router::new()
        .route("/builds/{flow}/{trail}", post(builds::report))
        .route("/metrics", get(metrics))
        .with_state(Shared { evidence, people })
        .nest_service("/api/v2", api.relative())
        .layer(
            ServiceBuilder::new()
                .layer(SetRequestIdLayer::x_request_id(MakeRequestUuid))
                .layer(TraceLayer::new_for_http())
                .layer(PropagateRequestIdLayer::x_request_id())
                .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(60)))
                .layer(CompressionLayer::new()),
        )
}

async fn metrics(State(shared): State<Shared>) -> String {
    shared.evidence.figures().to_string()
}
