//! Answers that are given before the body was read to its end, to clients that write all of it first: they arrive.

#[path = "../../../examples/support/write_first.rs"]
mod write_first;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use evidence_tower::EvidenceApi;
use tokio::task::spawn_blocking;
use write_first::{Answer, Connections, Sent};

use crate::mounts::MOUNTS;
use crate::support::prelude::*;

/// The API at this mount, with JSON bodies of at most 1 KiB.
async fn serve(mount: Mount) -> SocketAddr {
    let limits = Limits { body: 1 << 10, ..Limits::default() };
    let evidence = in_memory_with(Settings { limits, ..Settings::default() }).await;
    mount.serve(EvidenceApi::new(evidence)).await
}

/// Requests that are refused whatever their body, and the status.
fn refused(mount: Mount) -> [(String, u16); 5] {
    let head = |method, path, key, media_type| {
        let prefix = mount.prefix();
        format!(
            "{method} {prefix}{path} HTTP/1.1\r\nauthorization: Bearer {key}\r\ncontent-type: {media_type}\r\n"
        )
    };
    let (form, json) = ("multipart/form-data; boundary=b", "application/json");
    [
        (head("PUT", "/flows/acme/template_file", "unknown", form), 401),
        (head("PUT", "/flows/foobar/template_file", JANE, form), 403),
        (head("POST", "/nothing/here", JANE, form), 404),
        (head("DELETE", "/flows/acme/template_file", JANE, form), 405),
        (head("POST", "/service-accounts/acme", JANE, json), 413),
    ]
}

async fn send(address: SocketAddr, request: Vec<u8>, connections: Connections, times: usize) -> Vec<Sent> {
    let sent = move || write_first::send(&address.to_string(), &request, connections, times);
    spawn_blocking(sent).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_who_writes_first_and_reads_then() {
    const TIMES: usize = 200;
    for mount in MOUNTS {
        let address = serve(mount).await;
        for (head, status) in refused(mount) {
            for connections in [Connections::Fresh, Connections::Kept] {
                for size in [4 << 10, 300_000] {
                    let request = write_first::request(&head, connections, size);
                    let sent = send(address, request, connections, TIMES).await;
                    let answer = Answer { status, closes: connections == Connections::Fresh };
                    let found: Vec<_> = sent.iter().map(Sent::answer_if_unbroken).collect();
                    assert_eq!(found, [Some(answer); TIMES], "{mount:?} {size} {connections:?} {head}");
                }
            }
        }
    }
}

/// Which is more than is read and thrown away.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_of_a_long_body_says_that_the_connection_closes() {
    for mount in MOUNTS {
        let address = serve(mount).await;
        for (head, status) in refused(mount) {
            for connections in [Connections::Fresh, Connections::Kept] {
                let request = write_first::request(&head, connections, 5_000_000);
                let sent = send(address, request, connections, 8).await;
                // A host may reset the connection before all is written.
                for answer in sent.iter().filter_map(|sent| sent.answer.as_ref().ok()) {
                    assert_eq!(*answer, Answer { status, closes: true }, "{mount:?} {head}");
                }
            }
        }
    }
}

/// Returns the bytes that a connection receives after this request, until the server closes it.
async fn received(address: SocketAddr, sent: String) -> String {
    let received = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(sent.as_bytes()).unwrap();
        let mut received = String::new();
        stream.read_to_string(&mut received).unwrap();
        received
    };
    spawn_blocking(received).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_asks_nobody_for_a_body() {
    for mount in MOUNTS.into_iter().filter(|mount| *mount != Mount::Rocket) {
        let address = serve(mount).await;
        for (head, status) in refused(mount) {
            let head = format!("{head}host: h\r\nexpect: 100-continue\r\ncontent-length: 2000\r\n\r\n");
            let received = received(address, head).await.to_lowercase();
            let is_refusal = received.starts_with(&format!("http/1.1 {status} "));
            assert!(is_refusal && received.contains("\r\nconnection: close\r\n"), "{mount:?}: {received}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_chunked_body_was_refused_is_used_again() {
    for mount in MOUNTS {
        let address = serve(mount).await;
        for (head, status) in refused(mount) {
            let body = format!("{:x}\r\n{}\r\n0\r\n\r\n", 300_000, "x".repeat(300_000));
            let chunked = format!("{head}host: h\r\ntransfer-encoding: chunked\r\n\r\n{body}");
            let next = format!(
                "GET {}/openapi.json HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n",
                mount.prefix()
            );
            let received = received(address, chunked + &next).await;
            let is_refusal = received.starts_with(&format!("HTTP/1.1 {status} "));
            assert!(is_refusal && received.contains("HTTP/1.1 200 "), "{mount:?}: {received}");
        }
    }
}
