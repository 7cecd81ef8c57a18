//! Tests the example over a socket.

#[path = "../../support/http.rs"]
mod http_client;

use std::sync::Arc;

use evidence_conformance::memory::MemoryStore;
use evidence_core::seed::Seed;
use evidence_core::{Evidence, Settings};
use tokio::net::TcpListener;

use crate::http_client::send;

#[tokio::test]
async fn the_api_answers_through_the_layers() {
    let evidence = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
    let seed = Seed { user: "jane".parse().unwrap(), orgs: Vec::new(), api_key: None };
    let key = evidence.seed(&seed).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(evidence_example_hyper::serve(listener, evidence));

    let bearer = format!("Bearer {}", key.reveal());
    let caller = ("authorization", bearer.as_str());
    let reply = send(address, "GET", "/api/v2/flows/jane", &[caller, ("x-request-id", "r-1")], "").await;
    assert_eq!((reply.status().as_u16(), &reply.body()[..]), (200, &b"[]"[..]));
    assert_eq!(reply.headers()["x-request-id"], "r-1");

    let reply = send(address, "GET", "/api/v2/openapi.json", &[("accept-encoding", "gzip")], "").await;
    assert_eq!(
        (reply.status().as_u16(), &reply.headers()["content-encoding"]),
        (200, &"gzip".parse().unwrap())
    );

    for (method, path, status) in [
        ("GET", "/live", 200),
        ("GET", "/ready", 200),
        ("PROPFIND", "/api/v2/flows/jane", 405),
        ("GET", "/x", 404),
    ] {
        assert_eq!(send(address, method, path, &[], "").await.status(), status, "{method} {path}");
    }
}
