//! Tests the example over a socket.

#[path = "../../support/http.rs"]
mod http_client;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use evidence_conformance::memory::MemoryStore;
use evidence_core::seed::Seed;
use evidence_core::{Evidence, Settings};
use evidence_example_axum::app;
use evidence_example_axum::sessions::Sessions;
use http::Response;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::http_client::send;

/// Jane's session, and one of a person who is not a user of the service.
const SESSIONS: [(&str, &str); 2] = [("s3cret", "jane"), ("0ther", "nobody")];

/// Starts the application. Returns its address, and the `Authorization` header of jane's API key.
async fn open() -> (SocketAddr, String) {
    let evidence = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
    let seed = Seed { user: "jane".parse().unwrap(), orgs: Vec::new(), api_key: None };
    let key = evidence.seed(&seed).await.unwrap();
    let sessions = SESSIONS.map(|(session, user)| (session.to_owned(), user.to_owned()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app(evidence, Sessions::from_iter(sessions));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (address, format!("Bearer {}", key.reveal()))
}

fn json(reply: &Response<Bytes>) -> Value {
    serde_json::from_slice(reply.body()).unwrap()
}

type Headers<'a> = &'a [(&'a str, &'a str)];

#[tokio::test]
async fn a_session_of_the_application_identifies_the_caller_and_a_key_still_does() {
    let (address, bearer) = open().await;
    let jane = ("x-session", "s3cret");
    let key = ("authorization", bearer.as_str());
    let table: [(&str, Headers<'_>, u16); 7] = [
        ("a session", &[jane], 200),
        ("a key", &[key], 200),
        ("both", &[jane, key], 200),
        ("neither", &[], 401),
        ("an unknown session", &[("x-session", "guessed")], 401),
        ("an unknown session beside a key", &[("x-session", "guessed"), key], 401),
        ("a session of nobody", &[("x-session", "0ther")], 401),
    ];
    for (what, headers, status) in table {
        let reply = send(address, "GET", "/api/v2/flows/jane", headers, "").await;
        assert_eq!(reply.status(), status, "{what}");
    }
}

#[tokio::test]
async fn the_application_reports_by_itself_what_the_api_answers() {
    let (address, _) = open().await;
    let jane = [("x-session", "s3cret")];
    assert_eq!(send(address, "POST", "/builds/shop/release-1", &[], "build").await.status(), 401);
    assert_eq!(send(address, "POST", "/builds/shop/re%20lease", &jane, "build").await.status(), 400);
    assert_eq!(send(address, "POST", "/builds/shop/release-1", &jane, "build").await.status(), 201);
    let trail = send(address, "GET", "/api/v2/trails/jane/shop/release-1", &jane, "").await;
    assert_eq!((trail.status().as_u16(), &json(&trail)["created_by"]), (200, &Value::from("jane")));
}

#[tokio::test]
async fn the_figures_count_every_call_whatever_carried_it() {
    let (address, bearer) = open().await;
    let jane = [("x-session", "s3cret")];
    assert_eq!(send(address, "POST", "/builds/shop/release-1", &jane, "build").await.status(), 201);
    for status in [200, 404] {
        let path = if status == 200 { "/api/v2/flows/jane/shop" } else { "/api/v2/flows/jane/unknown" };
        assert_eq!(send(address, "GET", path, &[("authorization", &bearer)], "").await.status(), status);
    }
    let figures = send(address, "GET", "/metrics", &[], "").await;
    let figures = String::from_utf8(figures.into_body().to_vec()).unwrap();
    for line in [
        "evidence_calls_total{operation=\"get_flow\"} 2",
        "evidence_errors_total{operation=\"get_flow\"} 1",
        "evidence_calls_total{operation=\"create_artifact\"} 1",
        "evidence_errors_total{operation=\"create_artifact\"} 0",
    ] {
        assert!(figures.lines().any(|found| found == line), "{line} is not in\n{figures}");
    }
}

#[tokio::test]
async fn the_layers_work_around_the_api() {
    let (address, _) = open().await;
    let asked = [("accept-encoding", "gzip"), ("x-request-id", "r-1")];
    let reply = send(address, "GET", "/api/v2/openapi.json", &asked, "").await;
    assert_eq!(reply.headers()["content-encoding"], "gzip");
    assert_eq!(reply.headers()["x-request-id"], "r-1");
    let reply = send(address, "GET", "/api/v2/unknown", &[], "").await;
    assert_eq!((reply.status().as_u16(), &json(&reply)["message"]), (404, &Value::from("Not found")));
    assert!(reply.headers().contains_key("x-request-id"));
    let own = send(address, "GET", "/unknown", &[], "").await;
    assert_eq!((own.status().as_u16(), own.body().len()), (404, 0));
}
