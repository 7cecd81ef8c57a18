//! What many clients do that write until something breaks: each write is acknowledged, refused for the time being, or
//! in doubt.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::ORG;

/// How many clients write at once.
pub(crate) const WRITERS: usize = 32;

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The server said that it is written.
    Acknowledged,
    /// The server asked to try again later.
    Unavailable,
    /// The server is gone: it acknowledged nothing.
    Gone,
}

/// Creates an environment. Every answer but the two that are planned for is a failure of the test.
pub(crate) fn create(address: &str, key: &str, name: &str) -> Outcome {
    let body = format!(r#"{{"name":"{name}","type":"server","description":"written before a crash"}}"#);
    let request = format!(
        "PUT /api/v2/environments/{ORG} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let Some(answer) = exchange(address, &request) else { return Outcome::Gone };
    if answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nretry-after: ") {
        return Outcome::Unavailable;
    }
    assert!(answer.starts_with("HTTP/1.1 201 ") && answer.ends_with("\"OK\""), "{answer}");
    Outcome::Acknowledged
}

/// The whole answer; none if the connection broke first.
fn exchange(address: &str, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    (length.parse() == Ok(body.len())).then_some(answer)
}

/// The acknowledged names that a list of environments has not.
pub(crate) fn lost<'a>(acknowledged: &'a [String], list: &str) -> Vec<&'a str> {
    acknowledged.iter().map(String::as_str).filter(|name| !list.contains(&format!("\"{name}\""))).collect()
}
