//! A light HTTP/1 client, so that a figure measures the server and not the client. Requests are prepared
//! bytes.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Result;

const BOUNDARY: &str = "a-boundary-of-no-importance";

/// A request in the form in which it is sent.
#[derive(Debug, Clone)]
pub struct Request(Vec<u8>);

impl Request {
    /// Creates a request with a bearer key, below the API's prefix.
    pub fn new(method: &str, path: &str, key: &str, (media_type, body): (&str, &str)) -> Self {
        let head = format!(
            "{method} /api/v2{path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
             content-type: {media_type}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Self([head.as_bytes(), body.as_bytes()].concat())
    }

    /// Creates a GET of a path, without a key.
    pub fn plain(path: &str) -> Self {
        Self(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes())
    }
}

/// Returns a multipart form of these parts, each with the rest of its `Content-Disposition` and its content.
pub fn form(parts: &[(&str, &str)]) -> (String, String) {
    let part = |(disposition, content): &(&str, &str)| {
        format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{content}\r\n")
    };
    let body = parts.iter().map(part).collect::<String>() + &format!("--{BOUNDARY}--\r\n");
    (format!("multipart/form-data; boundary={BOUNDARY}"), body)
}

/// The response of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// A persistent connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects to the server.
    ///
    /// # Errors
    /// If nothing listens.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::with_capacity(4096) })
    }

    /// Sends a request and reads the complete response, with any status.
    ///
    /// # Errors
    /// If the connection fails, or the response is not HTTP.
    pub async fn execute(&mut self, request: &Request) -> Result<Response> {
        self.stream.write_all(&request.0).await?;
        self.buffer.clear();
        let end = self.read_until(|bytes| bytes.windows(4).position(|four| four == b"\r\n\r\n")).await? + 4;
        let head = std::str::from_utf8(self.buffer.get(..end).unwrap_or_default())?;
        let status = head.split(' ').nth(1).ok_or("no status")?.parse()?;
        let Some(length) = field(head, "content-length") else {
            return Ok(Response { status, body: self.chunks(end).await? });
        };
        let length: usize = length.parse()?;
        self.read_until(|bytes| (bytes.len() >= end + length).then_some(())).await?;
        Ok(Response { status, body: self.buffer.split_off(end) })
    }

    /// Reads the chunks of a response without a length, from this position on (RFC 9112 section 7.1).
    async fn chunks(&mut self, mut start: usize) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = |bytes: &[u8]| bytes.get(start..)?.windows(2).position(|two| two == b"\r\n");
            let end = start + self.read_until(line).await?;
            let size = self.buffer.get(start..end).unwrap_or_default();
            let size = usize::from_str_radix(std::str::from_utf8(size)?, 16)?;
            let past = end + 2 + size + 2;
            self.read_until(|bytes| (bytes.len() >= past).then_some(())).await?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(self.buffer.get(end + 2..past - 2).unwrap_or_default());
            start = past;
        }
    }

    /// Sends a request that must succeed.
    ///
    /// # Errors
    /// As [`Self::execute`], and with the response if its status is neither 200 nor 201.
    pub async fn send(&mut self, request: &Request) -> Result<Response> {
        let response = self.execute(request).await?;
        if matches!(response.status, 200 | 201) {
            Ok(response)
        } else {
            Err(format!("{}: {}", response.status, String::from_utf8_lossy(&response.body)).into())
        }
    }

    async fn read_until<T>(&mut self, found: impl Fn(&[u8]) -> Option<T>) -> Result<T> {
        loop {
            if let Some(found) = found(&self.buffer) {
                return Ok(found);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the server closed the connection".into());
            }
        }
    }
}

fn field<'h>(head: &'h str, wanted: &str) -> Option<&'h str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted))?;
    Some(value.trim())
}
