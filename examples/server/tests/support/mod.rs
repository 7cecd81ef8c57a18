//! A server of one's own for a test: a fresh database, a seeded key, a free port.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_evidence-server");

/// The shared organization of the seeded user.
pub(crate) const ORG: &str = "acme";

/// The program with these arguments, untouched by the environment of the test.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_clear().env("EVIDENCE_LOG_FILTER", "warn").stdin(Stdio::null());
    command
}

/// A directory of one's own, which goes with the last who has it.
pub(crate) fn directory() -> Arc<TempDir> {
    Arc::new(tempfile::tempdir().unwrap())
}

/// The address of the store in this directory.
pub(crate) fn database_url(directory: &TempDir) -> String {
    format!("sqlite://{}", directory.path().join("evidence.db").display())
}

/// A running server; killed when it is dropped.
pub(crate) struct Server {
    /// Its process.
    pub(crate) child: Child,
    /// Its host and port.
    pub(crate) address: String,
    /// A key of an administrator of [`ORG`].
    pub(crate) key: String,
    /// Where its store is, until nobody needs it any more.
    _directory: Arc<TempDir>,
}

impl Server {
    /// Seeds a fresh store in `directory` and serves it.
    pub(crate) fn start(directory: Arc<TempDir>) -> Self {
        let url = database_url(&directory);
        let seeded =
            program(&["seed", "--database-url", &url, "--user", "jane", "--org", ORG]).output().unwrap();
        assert!(seeded.status.success(), "{}", String::from_utf8_lossy(&seeded.stderr));
        let key = String::from_utf8(seeded.stdout).unwrap().trim_end().to_owned();
        Self::serve(directory, &key)
    }

    /// Serves the store in `directory`.
    pub(crate) fn serve(directory: Arc<TempDir>, key: &str) -> Self {
        Self::run(program(&[]), directory, key)
    }

    /// Serves the store in `directory` with this program.
    pub(crate) fn run(mut program: Command, directory: Arc<TempDir>, key: &str) -> Self {
        let url = database_url(&directory);
        let serve = ["serve", "--database-url", &url, "--listen", "127.0.0.1:0", "--wording", "named"];
        let mut child = program.args(serve).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("Listening on http://").expect(&line);
        Self::of(child, address, key, directory)
    }

    /// A server that was started already, working in `directory`.
    pub(crate) fn of(child: Child, address: &str, key: &str, directory: impl Into<Arc<TempDir>>) -> Self {
        Self { child, address: address.to_owned(), key: key.to_owned(), _directory: directory.into() }
    }

    /// Opens a connection and sends the beginning of a request.
    pub(crate) fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Sends a whole request and reads the whole answer: the status, and the rest of the text.
    pub(crate) fn ask(&self, method: &str, path: &str, media_type: &str, body: &str) -> (u16, String) {
        let stream = self.send(&format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: {media_type}\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.address,
            self.key,
            body.len()
        ));
        answer(stream)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads an answer to its end: the status, and the rest of the text.
pub(crate) fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect(&text);
    (status, text)
}
