//! Clients that write a whole request before they read the response, as many do.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// The number of concurrent clients.
const CLIENTS: usize = 8;

/// The relevant parts of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whether it announces that the connection closes.
    pub(crate) closes: bool,
}

/// The outcome of a request.
#[derive(Debug)]
pub(crate) struct Sent {
    /// Whether all of it could be written.
    pub(crate) written: io::Result<()>,
    pub(crate) answer: io::Result<Answer>,
}

impl Sent {
    /// Returns the response, unless the connection failed before or while it was read.
    pub(crate) fn answer_if_unbroken(&self) -> Option<Answer> {
        self.written.as_ref().ok()?;
        self.answer.as_ref().ok().copied()
    }
}

/// Whether each request has a separate connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connections {
    Fresh,
    Kept,
}

/// Returns a request with a body of this size. `head` has its first line and further headers, which end with
/// `\r\n`.
pub(crate) fn request(head: &str, connections: Connections, size: usize) -> Vec<u8> {
    let connection = match connections {
        Connections::Fresh => "close",
        Connections::Kept => "keep-alive",
    };
    let head = format!("{head}host: h\r\nconnection: {connection}\r\ncontent-length: {size}\r\n\r\n");
    let mut request = head.into_bytes();
    request.resize(request.len() + size, b'x');
    request
}

/// Sends the same request repeatedly, by several concurrent clients.
pub(crate) fn send(address: &str, request: &[u8], connections: Connections, times: usize) -> Vec<Sent> {
    let client = || {
        let (mut sent, mut kept) = (Vec::new(), None);
        for _ in 0..times / CLIENTS {
            let stream = match kept.take() {
                Some(stream) if connections == Connections::Kept => stream,
                _ => TcpStream::connect(address).unwrap(),
            };
            let written = (&stream).write_all(request);
            let answer = answer(&stream);
            kept = Some(stream).filter(|_| answer.as_ref().is_ok_and(|answer| !answer.closes));
            sent.push(Sent { written, answer });
        }
        sent
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

/// Reads one response to its end.
pub(crate) fn answer(stream: &TcpStream) -> io::Result<Answer> {
    let mut stream = BufReader::new(stream);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_lowercase()),
        }
    }
    let header = |name: &str| head.iter().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let length = header("content-length:").and_then(|length| length.parse().ok()).unwrap_or(0);
    stream.read_exact(&mut vec![0; length])?;
    let status = head[0].split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok(Answer { status: status.unwrap(), closes: header("connection:") == Some("close") })
}
