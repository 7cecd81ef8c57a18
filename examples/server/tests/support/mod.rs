//! A separate server for a test, with a new database, a seeded key and a free port.

use std::any::Any;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

#[cfg(unix)]
use evidence_test_postgres::SchemaName;

const PROGRAM: &str = env!("CARGO_BIN_EXE_evidence-server");

/// The shared organization of the seeded user.
pub(crate) const ORG: &str = "acme";

/// Returns the program with these arguments, independent of the test's environment.
pub(crate) fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_clear().env("EVIDENCE_LOG_FILTER", "warn").stdin(Stdio::null());
    command
}

/// A database. The last clone removes its directory or schema, if it has its own.
#[derive(Clone)]
pub(crate) struct Database {
    /// Its address.
    pub(crate) url: String,
    /// The schema, if it is not the default.
    schema: Option<String>,
    _guard: Option<Arc<dyn Any + Send + Sync>>,
}

impl Database {
    /// Returns the options of the database.
    fn options(&self) -> Vec<&str> {
        let schema = self.schema.iter().flat_map(|name| ["--database-schema", name]);
        ["--database-url", &self.url].into_iter().chain(schema).collect()
    }
}

/// A separate SQLite file.
impl Default for Database {
    fn default() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", directory.path().join("evidence.db").display());
        Self { url, schema: None, _guard: Some(Arc::new(directory)) }
    }
}

/// An existing database.
impl From<String> for Database {
    fn from(url: String) -> Self {
        Self { url, schema: None, _guard: None }
    }
}

/// A separate schema in the shared PostgreSQL server.
#[cfg(unix)]
impl From<SchemaName> for Database {
    fn from(schema: SchemaName) -> Self {
        let (url, name) = (schema.url.clone(), schema.name.clone());
        Self { url, schema: Some(name), _guard: Some(Arc::new(schema)) }
    }
}

/// A running server. Dropping it kills the server.
pub(crate) struct Server {
    /// Its process.
    pub(crate) child: Child,
    /// Its host and port.
    pub(crate) address: String,
    /// A key of an administrator of [`ORG`].
    pub(crate) key: String,
    /// Kept as long as it is needed.
    _database: Option<Database>,
}

impl Server {
    /// Seeds a new store and serves it.
    pub(crate) fn start(database: &Database) -> Self {
        let seed = program(&["seed", "--user", "jane", "--org", ORG]).args(database.options()).output();
        let seeded = seed.unwrap();
        assert!(seeded.status.success(), "{}", String::from_utf8_lossy(&seeded.stderr));
        let key = String::from_utf8(seeded.stdout).unwrap();
        Self::serve(database, key.trim_end())
    }

    /// Serves a store.
    pub(crate) fn serve(database: &Database, key: &str) -> Self {
        Self::run(program(&[]), database, key)
    }

    /// Serves a store with this program.
    pub(crate) fn run(mut program: Command, database: &Database, key: &str) -> Self {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--wording", "named"];
        let mut child = program.args(serve).args(database.options()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("Listening on http://").expect(&line);
        Self::of(child, address, key, Some(database.clone()))
    }

    /// Returns a server that is already running.
    pub(crate) fn of(child: Child, address: &str, key: &str, database: Option<Database>) -> Self {
        Self { child, address: address.to_owned(), key: key.to_owned(), _database: database }
    }

    /// Opens a connection and sends the beginning of a request.
    pub(crate) fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Sends a whole request and reads the whole response: the status, and the rest of the text.
    pub(crate) fn call(&self, method: &str, path: &str, media_type: &str, body: &str) -> (u16, String) {
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

/// Reads a response to its end: the status, and the rest of the text.
pub(crate) fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect(&text);
    (status, text)
}
