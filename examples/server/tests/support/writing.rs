//! Many clients that write until something fails. Each write is acknowledged, temporarily rejected, or has an
//! unknown outcome.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::support::{ORG, Server};

/// The number of concurrent clients.
pub(crate) const WRITERS: usize = 32;

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    /// The server acknowledged it.
    Acknowledged,
    /// The server responded to try again later.
    Unavailable,
    /// The server is gone, and acknowledged nothing.
    Gone,
}

/// A record that a client writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) name: String,
}

/// The kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Environment,
    Snapshot,
    Trail,
    Artifact,
    Attestation,
}

/// The kinds in turn, each after the one that it depends on.
const KINDS: [Kind; 5] = [Kind::Environment, Kind::Snapshot, Kind::Trail, Kind::Artifact, Kind::Attestation];

/// The size of every fourth attachment: more than one chunk of a store.
const LARGE: usize = 300 << 10;

impl Record {
    /// Returns a writer's next record after this many others, all of which it depends on.
    pub(crate) fn nth(writer: &str, number: usize) -> Self {
        Self { kind: KINDS[number % KINDS.len()], name: format!("{writer}-{}", number / KINDS.len()) }
    }

    /// Returns the fingerprint of the artifact.
    fn fingerprint(&self) -> String {
        format!("{:064x}", BuildHasherDefault::<DefaultHasher>::default().hash_one(&self.name))
    }

    /// Returns the content of the attachment.
    fn content(&self) -> String {
        let length = if self.name.ends_with(['0', '4', '8']) { LARGE } else { self.name.len() };
        self.name.chars().cycle().take(length).collect()
    }

    /// Writes the record. Any other response than the two expected ones fails the test.
    pub(crate) fn write(&self, address: &str, key: &str) -> WriteOutcome {
        let Self { kind, name } = self;
        let part = |head: &str, text: &str| {
            format!("--b\r\ncontent-disposition: form-data; {head}\r\n\r\n{text}\r\n")
        };
        let document = |json: &str| part("name=\"data_json\"", json);
        let (method, path, body) = match kind {
            Kind::Environment => (
                "PUT",
                format!("environments/{ORG}"),
                format!(r#"{{"name":"{name}","type":"server","description":"written before a crash"}}"#),
            ),
            Kind::Snapshot => (
                "PUT",
                format!("environments/{ORG}/{name}/report/server"),
                format!(
                    r#"{{"artifacts":[{{"digests":{{"app":"{}"}},"creationTimestamp":1}}]}}"#,
                    self.fingerprint()
                ),
            ),
            Kind::Trail => (
                "PUT",
                format!("trails/{ORG}/crash"),
                document(&format!(r#"{{"name":"{name}","description":""}}"#)) + "--b--\r\n",
            ),
            Kind::Artifact => (
                "POST",
                format!("artifacts/{ORG}/crash"),
                format!(
                    r#"{{"fingerprint":"{}","filename":"app","build_url":"b","commit_url":"c","trail_name":"{name}"}}"#,
                    self.fingerprint()
                ),
            ),
            Kind::Attestation => (
                "POST",
                format!("attestations/{ORG}/crash/trail/{name}/generic"),
                document(r#"{"attestation_name":"scan","is_compliant":true}"#)
                    + &part("name=\"attachment_file\"; filename=\"scan.txt\"", &self.content())
                    + "--b--\r\n",
            ),
        };
        let is_form = matches!(kind, Kind::Trail | Kind::Attestation);
        let media_type = if is_form { "multipart/form-data; boundary=b" } else { "application/json" };
        let request = format!(
            "{method} /api/v2/{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\
             content-type: {media_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let Some(answer) = exchange(address, &request) else { return WriteOutcome::Gone };
        if answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nretry-after: ") {
            return WriteOutcome::Unavailable;
        }
        assert!(answer.starts_with("HTTP/1.1 201 "), "{self:?}: {answer}");
        WriteOutcome::Acknowledged
    }

    /// Returns whether the server has the record, complete and once.
    fn is_there(&self, server: &Server) -> bool {
        let Self { kind, name } = self;
        let get = |path: &str| {
            let (status, text) = server.call("GET", &format!("/api/v2/{path}"), "application/json", "");
            text.split_once("\r\n\r\n").filter(|_| status == 200).map(|(_, body)| body.to_owned())
        };
        match kind {
            Kind::Environment => get(&format!("environments/{ORG}/{name}")).is_some(),
            Kind::Snapshot => get(&format!("snapshots/{ORG}/{name}/1"))
                .is_some_and(|snapshot| snapshot.contains(&self.fingerprint())),
            Kind::Trail => get(&format!("trails/{ORG}/crash/{name}")).is_some(),
            Kind::Artifact => get(&format!("artifacts/{ORG}/crash/fingerprint/{}", self.fingerprint()))
                .is_some_and(|artifact| artifact.contains(&format!("\"trail_name\":\"{name}\""))),
            Kind::Attestation => {
                let trail = format!("attestations/{ORG}/crash/trail/{name}");
                let found = get(&format!("{trail}/scan")).unwrap_or_default();
                let ids: Vec<_> = found.split("\"attestation_id\":\"").skip(1).collect();
                let [id] = ids[..] else { return false };
                let id = id.split('"').next().unwrap_or_default();
                get(&format!("{trail}/attestation/{id}/evidence")).is_some_and(|file| file == self.content())
            }
        }
    }
}

/// Returns the acknowledged records that the server lacks.
pub(crate) fn missing<'a>(acknowledged: &'a [Record], server: &Server) -> Vec<&'a Record> {
    acknowledged.iter().filter(|record| !record.is_there(server)).collect()
}

/// Returns the whole response; `None` if the connection failed first.
fn exchange(address: &str, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    (length.parse() == Ok(body.len())).then_some(answer)
}
