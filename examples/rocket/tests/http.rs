//! Tests the example over a socket. Some cases need one: methods that Rocket does not know, and bodies that
//! arrive in pieces, are incomplete, or are rejected before their end.

#[path = "../../support/http.rs"]
mod http_client;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use evidence_conformance::memory::MemoryStore;
use evidence_core::seed::Seed;
use evidence_core::{Evidence, Settings};
use evidence_tower::EvidenceApi;
use rocket::fairing::AdHoc;
use rocket::{Config, Shutdown, config::LogLevel};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::http_client::send;

const FORM: &str = "multipart/form-data; boundary=b";

/// The running application. Dropping it shuts it down.
struct Shop {
    address: SocketAddr,
    /// Jane's `Authorization` header.
    bearer: String,
    shutdown: Shutdown,
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.shutdown.clone().notify();
    }
}

async fn open() -> Shop {
    let evidence = Evidence::new(Arc::new(MemoryStore::new()), Settings::default());
    let seed = Seed { user: "jane".parse().unwrap(), orgs: vec!["acme".parse().unwrap()], api_key: None };
    let key = evidence.seed(&seed).await.unwrap();
    let config = Config { port: 0, log_level: LogLevel::Off, ..Config::debug_default() };
    let (bound, address) = oneshot::channel();
    let bound = Mutex::new(Some(bound));
    let announce = AdHoc::on_liftoff("announce the address", move |rocket| {
        let address = SocketAddr::new(rocket.config().address, rocket.config().port);
        bound.lock().unwrap().take().unwrap().send(address).unwrap();
        Box::pin(async {})
    });
    let app =
        evidence_example_rocket::app(rocket::custom(config), EvidenceApi::new(evidence)).attach(announce);
    let app = app.ignite().await.unwrap();
    let shutdown = app.shutdown();
    tokio::spawn(app.launch());
    Shop { address: address.await.unwrap(), bearer: format!("Bearer {}", key.reveal()), shutdown }
}

impl Shop {
    /// Sends a request of jane. Returns the status, and the body as text.
    async fn send(&self, method: &str, path: &str, media_type: &str, body: &str) -> (u16, String) {
        let headers = [("authorization", self.bearer.as_str()), ("content-type", media_type)];
        let reply = send(self.address, method, path, &headers, body.to_owned()).await;
        (reply.status().as_u16(), String::from_utf8(reply.into_body().to_vec()).unwrap())
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.send("GET", path, "text/plain", "").await
    }

    /// Sends a POST of an attestation, of which `rest` has the last headers and the body, possibly
    /// incomplete. Returns the JSON of the response.
    async fn attest(&self, bearer: &str, rest: &str) -> (u16, Value) {
        let head = "POST /api/v2/attestations/acme/shop/trail/t/generic HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n";
        let text = format!("{head}content-type: {FORM}\r\nauthorization: {bearer}\r\n{rest}");
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
    }
}

#[rocket::async_test]
async fn the_application_keeps_its_routes_state_fairings_and_catchers() {
    let shop = open().await;
    assert_eq!(shop.get("/visits").await, (200, "1 visits\n".to_owned()));
    assert_eq!(shop.get("/api/v2/flows/jane").await, (200, "[]".to_owned()));
    assert_eq!(shop.get("/visits").await, (200, "3 visits\n".to_owned()));
    assert_eq!(shop.get("/socks").await, (404, "There is no /socks in this shop\n".to_owned()));
    assert_eq!(shop.get("/api/v1").await, (404, "There is no /api/v1 in this shop\n".to_owned()));
}

#[rocket::async_test]
async fn what_rocket_refuses_by_itself_is_told_in_json_below_the_mount_point() {
    let shop = open().await;
    let (status, text) = shop.send("PROPFIND", "/api/v2/flows/jane", "text/plain", "").await;
    assert_eq!((status, text.as_str()), (400, r#"{"message":"Bad Request"}"#));
    let (status, text) = shop.send("PROPFIND", "/visits", "text/plain", "").await;
    assert_eq!((status, text.starts_with("<!DOCTYPE html>")), (400, true), "{text}");
}

#[rocket::async_test]
async fn a_form_does_not_turn_a_post_into_another_verb() {
    let shop = open().await;
    let account = ("application/json", r#"{"name": "ci"}"#);
    assert_eq!(shop.send("POST", "/api/v2/service-accounts/acme", account.0, account.1).await.0, 201);
    let path = "/api/v2/service-accounts/acme/ci";
    for body in ["_method=delete", "a=b"] {
        let (status, text) = shop.send("POST", path, "application/x-www-form-urlencoded", body).await;
        assert_eq!((status, text.as_str()), (415, r#"{"message":"Unsupported media type"}"#), "{body}");
    }
    assert_eq!(shop.get(path).await.0, 200);
}

#[rocket::async_test]
async fn a_path_reaches_the_api_as_it_was_sent() {
    let shop = open().await;
    let table = [
        ("/api/v2/flows/jane/a%2Fb", 400),
        ("/api/v2/flows/jane/a%20b", 400),
        ("/api/v2/flows/jane/a", 404),
        ("/api/v2/flows/j%61ne", 200),
        ("/api/v2", 404),
        ("/%61pi/v2/flows/jane", 404),
    ];
    for (path, status) in table {
        let (found, text) = shop.get(path).await;
        assert_eq!(found, status, "{path}: {text}");
        assert!(serde_json::from_str::<Value>(&text).is_ok(), "{path}: {text}");
    }
}

#[rocket::async_test]
async fn a_file_streams_in_and_out() {
    let shop = open().await;
    let trail =
        "--b\r\nContent-Disposition: form-data; name=\"data_json\"\r\n\r\n{\"name\": \"t\"}\r\n--b--\r\n";
    assert_eq!(shop.send("PUT", "/api/v2/trails/acme/shop", FORM, trail).await.0, 201);
    let file: String = ('a'..='z').cycle().take(5 << 20).collect();
    let document = json!({"attestation_name": "scan", "is_compliant": true});
    let form = [
        format!("--b\r\nContent-Disposition: form-data; name=\"data_json\"\r\n\r\n{document}\r\n--b\r\n"),
        "Content-Disposition: form-data; name=\"attachment_file\"; filename=\"scan.txt\"\r\n\r\n".to_owned(),
        format!("{file}\r\n--b--\r\n"),
    ];
    // In chunks, so that the length is unknown.
    let chunks: String = form.iter().map(|piece| format!("{:x}\r\n{piece}\r\n", piece.len())).collect();
    let (status, answer) =
        shop.attest(&shop.bearer, &format!("transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")).await;
    assert_eq!(status, 201, "{answer}");
    let (_, attestations) = shop.get("/api/v2/attestations/acme/shop/trail/t/scan").await;
    let attestations: Value = serde_json::from_str(&attestations).unwrap();
    let link = attestations[0]["_links"]["evidence"]["href"].as_str().unwrap();
    let path = link.strip_prefix("http://localhost:8001").unwrap();
    let (status, text) = shop.get(path).await;
    assert_eq!((status, text == file), (200, true));
    let head = send(shop.address, "HEAD", path, &[("authorization", &shop.bearer)], "").await;
    assert_eq!(
        (head.status().as_u16(), &head.headers()["content-length"]),
        (200, &"5242880".parse().unwrap())
    );
    assert!(head.body().is_empty());
}

#[rocket::async_test]
async fn a_body_is_refused_before_it_ends_and_where_it_breaks_off() {
    let shop = open().await;
    let jane = shop.bearer.clone();
    // Rocket waits for the first bytes of a body.
    let start = "--b\r\nContent-Disposition";
    let table = [
        ("a stranger's", "Bearer stranger", format!("content-length: 1000000\r\n\r\n{start}"), 401),
        ("too long", &jane, format!("content-length: 1000000000\r\n\r\n{start}"), 413),
        ("no chunk at all", &jane, "transfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(), 400),
        ("no second chunk", &jane, format!("transfer-encoding: chunked\r\n\r\n17\r\n{start}\r\nzz\r\n"), 400),
    ];
    for (what, bearer, rest, status) in table {
        let (found, answer) = shop.attest(bearer, &rest).await;
        assert_eq!(found, status, "{what}: {answer}");
    }
}
