//! The checkpoints of a server, across restarts, a restored backup and a new name of its ledgers, and `verify`.

mod support;

use std::path::{Path, PathBuf};
use std::process::Output;

use support::{Database, ORG, Server, program};

const TRAIL: &str = "/api/v2/trails/acme/shop/t/audit_package";

fn file(database: &Database) -> PathBuf {
    database.url.strip_prefix("sqlite://").unwrap().into()
}

fn get(server: &Server, path: &str) -> (u16, String) {
    server.call("GET", &format!("/api/v2/{path}"), "", "")
}

/// Returns the lines of acme's checkpoint.
fn checkpoint(server: &Server) -> Vec<String> {
    let (status, answer) = get(server, &format!("ledger/{ORG}/checkpoint"));
    assert_eq!(status, 200, "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    body.lines().map(str::to_owned).collect()
}

fn write(server: &Server, account: &str) {
    let body = format!("{{\"name\": \"{account}\"}}");
    let path = format!("/api/v2/service-accounts/{ORG}");
    let (status, answer) = server.call("POST", &path, "application/json", &body);
    assert_eq!(status, 201, "{answer}");
}

fn run(arguments: &[&str]) -> Output {
    program(arguments).output().unwrap()
}

/// Stops a server without a signal, and copies its database.
fn stopped(server: Server, database: &Database, copy: &Path) -> String {
    let key = server.key.clone();
    drop(server);
    let connection = evidence_store_sqlite::rusqlite::Connection::open(file(database)).unwrap();
    connection.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    key
}

#[test]
fn after_a_restored_backup_nothing_is_signed_until_the_ledgers_have_another_name() {
    let database = Database::default();
    let backup = file(&database).with_file_name("backup.db");
    let server = Server::start(&database);
    write(&server, "a");
    let before = checkpoint(&server);
    let key = stopped(server, &database, &backup);

    let server = Server::serve(&database, &key);
    assert_eq!(checkpoint(&server), before, "a restart changes no checkpoint");
    write(&server, "b");
    let signed = checkpoint(&server);
    assert_eq!(signed[0], before[0]);
    drop(server);

    for suffix in ["", "-wal", "-shm", "-last"] {
        let mut path = file(&database).into_os_string();
        path.push(suffix);
        let _ = std::fs::remove_file(path);
    }
    std::fs::copy(&backup, file(&database)).unwrap();
    let server = Server::serve(&database, &key);
    let (status, answer) = get(&server, &format!("ledger/{ORG}/checkpoint"));
    let text = format!("but a checkpoint of {} was signed", signed[1]);
    assert!(status == 503 && answer.contains("Not signed: ") && answer.contains(&text), "{answer}");
    write(&server, "c");
    let (status, answer) = get(&server, &format!("ledger/{ORG}/checkpoint"));
    assert!(status == 503 && answer.contains("are not those of the checkpoint that was signed"), "{answer}");
    drop(server);

    let named = run(&["ledger", "new-origin", "evidence.example.com/2", "--database-url", &database.url]);
    assert!(named.status.success(), "{}", String::from_utf8_lossy(&named.stderr));
    let said = String::from_utf8_lossy(&named.stdout);
    assert_eq!(
        said,
        "the ledgers are named 'evidence.example.com/2' from now on; former checkpoints recorded: 1\n"
    );
    let server = Server::serve(&database, &key);
    let renamed = checkpoint(&server);
    assert!(renamed[0].starts_with("evidence.example.com/2/"), "{renamed:?}");
    let last: u64 = renamed[1].parse::<u64>().unwrap() - 1;
    let (_, entry) = get(&server, &format!("ledger/{ORG}/entries/{last}"));
    assert!(entry.contains("ledger_named") && entry.contains(signed[2].as_str()), "{entry}");
    write(&server, "d");
    assert_eq!(checkpoint(&server)[0], renamed[0]);
    drop(server);
    let checked = run(&["fsck", "--database-url", &database.url]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn a_package_is_verified_without_a_server() {
    let database = Database::default();
    let server = Server::start(&database);
    let artifact = r#"{"trail_name": "t", "filename": "x", "build_url": "https://e.com", "commit_url": "https://e.com", "fingerprint": "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"}"#;
    let (status, answer) =
        server.call("POST", &format!("/api/v2/artifacts/{ORG}/shop"), "application/json", artifact);
    assert_eq!(status, 201, "{answer}");
    let mut answer = Vec::new();
    let request = format!(
        "GET {TRAIL} HTTP/1.0\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        server.address, server.key
    );
    std::io::Read::read_to_end(&mut server.send(&request), &mut answer).unwrap();
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    let mut package = answer.split_off(head);
    let origin = checkpoint(&server).remove(0);
    let (_, keys) = get(&server, "ledger/keys");
    let key = keys.lines().find(|key| key.starts_with(&format!("{origin}+"))).unwrap().to_owned();
    drop(server);

    let directory = tempfile::tempdir().unwrap();
    let put = |name: &str, content: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (whole, trusted) = (put("whole.tar", &package), put("key", key.as_bytes()));
    let policy = put("policy", format!("log {key}\nquorum none\n").as_bytes());
    let at = package.windows(8).position(|bytes| bytes == b"filename").unwrap();
    package[at] ^= 1;
    let changed = put("changed.tar", &package);
    let empty = put("empty", b"");
    for (arguments, status, text) in [
        (vec![&whole, "--key", &trusted], 0, "The package holds."),
        (vec![&whole, "--policy", &policy], 0, "The package holds."),
        (vec![&whole], 1, "DOES NOT HOLD: no key was given"),
        (vec![&changed, "--key", &trusted], 1, "The package does not hold."),
        (vec![&trusted, "--key", &trusted], 2, "this is not a tar"),
        (vec![&whole, "--key", &empty], 2, "it has no key"),
        (vec![&whole, "--key", &whole], 2, "whole.tar"),
        (vec![&whole, "--policy", &trusted], 2, "line 1 of the policy"),
    ] {
        let arguments = [vec!["verify"], arguments].concat();
        let verified = run(&arguments);
        let said = [verified.stdout, verified.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(verified.status.code() == Some(status) && said.contains(text), "{arguments:?}: {said}");
    }
}
