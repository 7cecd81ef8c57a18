//! Copies one database to another with the program.

use std::process::{Command, Output};

use crate::support::{Database, ORG, Server, program};

/// Returns the command that copies.
pub(crate) fn command(from: &Database, to: &Database) -> Command {
    program(&["copy", "--from", &from.url, "--to", &to.url])
}

/// Copies, and returns the program's output.
pub(crate) fn copied(from: &Database, to: &Database) -> (String, String) {
    let Output { status, stdout, stderr } = command(from, to).output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(status.success(), "{stderr}");
    (stdout, stderr)
}

/// The form of a generic attestation with a file.
const ATTESTATION: &str = "--x\r\ncontent-disposition: form-data; name=\"data_json\"\r\n\r\n\
    {\"attestation_name\":\"scan\",\"is_compliant\":true}\r\n\
    --x\r\ncontent-disposition: form-data; name=\"attachment_file\"; filename=\"scan.txt\"\r\n\r\n\
    nothing was found\r\n--x--\r\n";

/// Fills a database through a server, which is stopped afterwards. Returns the key of its administrator.
pub(crate) fn fill(database: &Database) -> String {
    attest(&Server::start(database))
}

/// Adds an attestation with a file. Returns the server's key.
pub(crate) fn attest(server: &Server) -> String {
    let path = format!("/api/v2/attestations/{ORG}/build/trail/first/generic");
    let (status, text) = server.call("POST", &path, "multipart/form-data; boundary=x", ATTESTATION);
    assert_eq!(status, 201, "{text}");
    server.key.clone()
}

/// Returns a response to compare between databases: the trail with its attestation.
pub(crate) fn trail(database: &Database, key: &str) -> String {
    let server = Server::serve(database, key);
    let path = format!("/api/v2/trails/{ORG}/build/first");
    let (status, text) = server.call("GET", &path, "application/json", "");
    assert_eq!(status, 200, "{text}");
    let (_, body) = text.split_once("\r\n\r\n").expect(&text);
    // Links begin with the address of the server.
    body.replace(&server.address, "").replace(server.address.split(':').next_back().unwrap_or_default(), "")
}

/// Returns the output of `fsck` for a sound store.
pub(crate) fn sound(database: &Database) -> String {
    let checked = program(&["fsck", "--database-url", &database.url]).output().unwrap();
    let stdout = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{stdout}");
    stdout
}
