//! The program, as seen by an operator: it starts, reports that it is ready, completes requests and ends
//! cleanly.
#![cfg(unix)]

mod support;
#[path = "../../support/write_first.rs"]
mod write_first;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use support::{Database, Server, answer, program};
use write_first::{Answer, Connections, Sent};

/// Asks the server to end, like an init system.
fn terminate(server: &Server) {
    let killed = Command::new("kill").args(["-TERM", &server.child.id().to_string()]).status().unwrap();
    assert!(killed.success());
}

#[test]
fn a_fresh_server_is_ready_and_ends_with_success_on_sigterm() {
    let mut server = Server::start(&Database::default());
    let (status, text) = server.call("GET", "/ready", "text/plain", "");
    assert_eq!(status, 200, "{text}");
    assert!(text.ends_with("\r\n\r\nOK"), "{text}");
    terminate(&server);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_request_that_was_begun_is_answered_before_the_server_ends() {
    let database = Database::default();
    let mut server = Server::start(&database);
    let body = r#"{"name":"prod","type":"server","description":""}"#;
    let mut stream = server.send(&format!(
        "PUT /api/v2/environments/acme HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nexpect: 100-continue\r\n\r\n",
        server.address,
        server.key,
        body.len()
    ));
    // The server sends this when it reads the body.
    let mut expected = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut expected).unwrap();
    assert_eq!(&expected, b"HTTP/1.1 100 Continue\r\n\r\n");
    terminate(&server);
    while TcpStream::connect(&server.address).is_ok() {
        sleep(Duration::from_millis(10));
    }
    stream.write_all(body.as_bytes()).unwrap();
    let (status, text) = answer(stream);
    assert_eq!(status, 201, "{text}");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    // Everything that was acknowledged exists after the next start.
    let next = Server::serve(&database, &server.key);
    let (status, text) = next.call("GET", "/api/v2/environments/acme/prod", "application/json", "");
    assert_eq!(status, 200, "{text}");
}

#[test]
fn a_seeded_key_opens_the_organization_and_nothing_else_does() {
    let mut server = Server::start(&Database::default());
    let (status, text) = server.call("GET", "/api/v2/flows/acme", "application/json", "");
    assert_eq!(status, 200, "{text}");
    server.key = "ev_wrong".to_owned();
    let (status, text) = server.call("GET", "/api/v2/flows/acme", "application/json", "");
    assert_eq!(status, 401, "{text}");
}

#[test]
fn seeding_prints_the_key_alone_and_the_same_key_twice_is_success() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", directory.path().join("evidence.db").display());
    for _ in 0..2 {
        let output = program(&["seed", "--user", "jane"])
            .envs([("EVIDENCE_DATABASE_URL", url.as_str()), ("EVIDENCE_API_KEY", "a key of ours")])
            .output()
            .unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "a key of ours\n");
    }
    let checked = program(&["fsck", "--database-url", &url]).output().unwrap();
    assert!(checked.status.success());
    let summary = String::from_utf8(checked.stdout).unwrap();
    let (ledgers, summary) = summary.trim_end().rsplit_once('\n').unwrap();
    assert!(summary.starts_with("1 organizations, ") && summary.ends_with(" 0 problems"), "{summary}");
    // The size and the root of the ledger, which another command prints alone.
    let root = program(&["ledger", "root", "jane", "--database-url", &url]).output().unwrap();
    let root = String::from_utf8(root.stdout).unwrap();
    let (size, hash) = root.trim_end().split_once(' ').unwrap();
    assert!(size.parse::<u64>().unwrap() > 2 && hash.len() == 64, "{root}");
    assert_eq!(ledgers, format!("ledger of jane: {size} entries, root {hash}"));
    let refused = program(&["ledger", "end-future", "jane", "--database-url", &url]).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && text.contains("has no entries in the future"), "{text}");
}

#[test]
fn tables_are_made_again_from_the_ledgers_unless_those_are_damaged() {
    let database = Database::default();
    says(&database, &["seed", "--user", "jane", "--org", "acme"]);
    let file = database.url.strip_prefix("sqlite://").unwrap();
    let change =
        |sql| evidence_store_sqlite::rusqlite::Connection::open(file).unwrap().execute_batch(sql).unwrap();
    let fsck = |rebuild: &[&str]| {
        let output =
            program(&[&["fsck", "--database-url", &database.url], rebuild].concat()).output().unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code(), stdout, stderr)
    };
    change("DELETE FROM membership");
    let (status, stdout, stderr) = fsck(&[]);
    assert!(status == Some(1) && stdout.contains("table membership: row "), "{stdout}{stderr}");
    let (status, stdout, stderr) = fsck(&["--rebuild"]);
    let first = stdout.lines().next().unwrap_or_default();
    assert_eq!(first, "2 rows differed from the ledgers and were rebuilt", "{stdout}{stderr}");
    assert!(status == Some(0) && stdout.ends_with(" 0 problems\n"), "{stdout}{stderr}");
    assert_eq!(says(&database, &["member", "list", "acme"]), "jane admin\n");

    change("DELETE FROM membership; UPDATE ledger SET payload = '{}' WHERE idx = 1");
    let (status, stdout, stderr) = fsck(&["--rebuild"]);
    assert!(status == Some(1) && stdout.contains("the payload of ledger entry 1 does not match its hash"));
    assert!(stderr.starts_with("nothing was rebuilt, because the ledgers are damaged: "), "{stderr}");
    assert_eq!(says(&database, &["member", "list", "acme"]), "");
}

/// Runs a command with a database, and returns its output.
fn says(database: &Database, arguments: &[&str]) -> String {
    let output = program(&[arguments, &["--database-url", &database.url]].concat()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_running_server_follows_what_the_operator_manages_within_a_second() {
    let database = Database::default();
    let mut server = Server::start(&database);
    let says = |arguments: &[&str]| says(&database, arguments);
    assert_eq!(says(&["user", "add", "john"]), "");
    assert_eq!(says(&["org", "add", "beta", "--owner", "john", "--operator", "portal"]), "");
    assert_eq!(says(&["user", "list"]), "jane\njohn\n");
    assert_eq!(says(&["org", "list"]), "acme\nbeta\njane\njohn\n");
    assert_eq!(says(&["member", "list", "beta"]), "john admin\n");
    let key = says(&["key", "add", "john", "--description", "laptop"]);
    server.key = key.trim_end().to_owned();
    let status = || server.call("GET", "/api/v2/flows/acme", "application/json", "").0;
    let status_in_a_second = || {
        sleep(Duration::from_secs(1));
        status()
    };
    assert_eq!(status(), 403);
    assert_eq!(says(&["member", "set", "acme", "john", "reader"]), "");
    assert_eq!(status_in_a_second(), 200);
    assert_eq!(says(&["member", "list", "acme"]), "jane admin\njohn reader\n");
    assert_eq!(says(&["member", "remove", "acme", "john"]), "");
    assert_eq!(status_in_a_second(), 403);
    assert_eq!(says(&["member", "list", "acme"]), "jane admin\n");
    let keys = says(&["key", "list", "john"]);
    let id = keys.strip_suffix(" \"laptop\"\n").expect(&keys);
    assert_eq!(says(&["key", "revoke", "john", id]), "");
    assert_eq!(status_in_a_second(), 401);
    assert_eq!(says(&["key", "list", "john"]), "");
    let checked = says(&["fsck"]);
    let summary = checked.lines().last().expect(&checked);
    assert!(summary.starts_with("4 organizations, ") && summary.ends_with(" 0 problems"), "{checked}");
}

#[test]
fn what_the_operator_cannot_do_is_one_sentence_that_names_it() {
    let database = Database::default();
    says(&database, &["seed", "--user", "jane", "--org", "acme"]);
    let unknown = "00000000-0000-0000-0000-00000000";
    for (arguments, sentence) in [
        (&["user", "add", "acme"][..], "Input payload validation failed: name: 'acme' is taken\n"),
        (&["org", "add", "beta", "--owner", "john"], "User not found: user: no user named 'john'\n"),
        (
            &["member", "set", "beta", "jane", "admin"],
            "Organization not found: org: no organization named 'beta'\n",
        ),
        (
            &["member", "remove", "acme", "jane"],
            "Input payload validation failed: user: nobody but 'jane' administers the organization\n",
        ),
        (
            &["key", "revoke", "jane", unknown],
            "API key not found: key_id: no API key named '00000000-0000-0000-0000-00000000' in organization 'jane'\n",
        ),
    ] {
        let refused = program(&[arguments, &["--database-url", &database.url]].concat()).output().unwrap();
        let stderr = String::from_utf8(refused.stderr).unwrap();
        assert_eq!((refused.status.code(), stderr.as_str()), (Some(1), sentence), "{arguments:?}");
    }
}

#[test]
fn the_demo_tells_of_requests_that_work() {
    // Without git in the path, the demo uses its sample.
    let directory = tempfile::tempdir().unwrap();
    let mut child = program(&["demo", "--listen", "127.0.0.1:0"])
        .env("TMPDIR", directory.path())
        .current_dir(&directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let printed: Vec<String> = lines.take_while(|line| !line.starts_with("Ctrl-C")).collect();
    assert!(printed[0].contains("a built-in sample"), "{}", printed[0]);
    let after = |label: &str| printed.iter().find_map(|line| line.trim().strip_prefix(label)).unwrap().trim();
    let api = after("API").strip_prefix("http://").unwrap();
    let address = api.strip_suffix("/api/v2").unwrap();
    let server = Server::of(child, address, after("Key"), None);

    let paths: Vec<&str> = printed
        .iter()
        .filter(|line| line.trim().starts_with("curl"))
        .filter_map(|line| line.split_once(address).map(|(_, path)| path))
        .collect();
    assert_eq!(paths.len(), 4, "{printed:?}");
    for path in paths {
        let (status, text) = server.call("GET", path, "application/json", "");
        assert_eq!(status, 200, "{path}: {text}");
    }
}

#[test]
fn a_connection_too_many_waits_until_another_one_ends() {
    let database = Database::default();
    let key = Server::start(&database).key.clone();
    let mut program = program(&[]);
    program.env("EVIDENCE_MAX_CONNECTIONS", "1");
    let server = Server::run(program, &database, &key);
    let request = format!("GET /ready HTTP/1.1\r\nhost: {}\r\n\r\n", server.address);
    let mut first = server.send(&request);
    let mut ready = [0; 1000];
    assert!(first.read(&mut ready).unwrap() > 0);
    let second = server.send(&request.replace("\r\n\r\n", "\r\nconnection: close\r\n\r\n"));
    second.set_nonblocking(true).unwrap();
    for _ in 0..100 {
        first.write_all(request.as_bytes()).unwrap();
        assert!(first.read(&mut ready).unwrap() > 0);
        let waiting = second.peek(&mut ready).unwrap_err();
        assert_eq!(waiting.kind(), std::io::ErrorKind::WouldBlock);
    }
    drop(first);
    second.set_nonblocking(false).unwrap();
    assert_eq!(answer(second).0, 200);
}

/// Idle connections leave descriptors for request bodies.
#[test]
fn idle_connections_leave_files_to_requests() {
    let database = Database::default();
    let key = Server::start(&database).key.clone();
    let mut limited = Command::new("/bin/sh");
    let program = program(&[]);
    limited.args(["-c", "ulimit -n 96 && exec \"$0\" \"$@\""]).arg(program.get_program());
    limited.env_clear().env("EVIDENCE_LOG_FILTER", "error").stdin(Stdio::null());
    let server = Server::run(limited, &database, &key);
    let idle: Vec<_> = (0..120).map(|_| TcpStream::connect(&server.address).unwrap()).collect();
    // Almost all get a connection, and one of them is used.
    let mut used = idle.into_iter().collect::<std::collections::VecDeque<_>>();
    let mut stream = used.pop_front().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let file = "x".repeat(200_000);
    let form = format!(
        "--b\r\nContent-Disposition: form-data; name=\"data_json\"\r\n\r\n\
         {{\"attestation_name\": \"scan\", \"is_compliant\": true}}\r\n\
         --b\r\nContent-Disposition: form-data; name=\"attachment_file\"; filename=\"scan.txt\"\r\n\r\n\
         {file}\r\n--b--\r\n"
    );
    let head = format!(
        "POST /api/v2/attestations/acme/web/trail/t/generic HTTP/1.1\r\nhost: {}\r\n\
         authorization: Bearer {}\r\ncontent-type: multipart/form-data; boundary=b\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        server.address,
        server.key,
        form.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(form.as_bytes()).unwrap();
    let (status, text) = answer(stream);
    assert_eq!(status, 201, "{text}");
}

/// Slow bodies take no memory.
#[cfg(target_os = "linux")]
#[test]
fn bodies_on_their_way_are_not_held_in_memory() {
    const SIZE: usize = 8 << 20;
    let server = Server::start(&Database::default());
    let environment = r#"{"name":"prod","type":"server","description":""}"#;
    let (status, text) = server.call("PUT", "/api/v2/environments/acme", "application/json", environment);
    assert_eq!(status, 201, "{text}");
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
        let (_, rest) = status.split_once("VmRSS:").unwrap();
        rest.split_whitespace().next().unwrap().parse::<usize>().unwrap() << 10
    };
    let before = memory();
    let head = format!(
        "PUT /api/v2/environments/acme/prod/report/server HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {SIZE}\r\nconnection: close\r\n\r\n",
        server.address, server.key
    );
    let body = vec![b' '; SIZE - 1];
    let slow = || {
        let mut stream = server.send(&head);
        stream.write_all(&body).unwrap();
        stream
    };
    let slow: Vec<_> = std::iter::repeat_with(slow).take(24).collect();
    let mut last = 0;
    while memory().abs_diff(last) > 1 << 20 {
        last = memory();
        sleep(Duration::from_millis(200));
    }
    let grown = memory().saturating_sub(before);
    assert!(grown < 12 * SIZE, "24 bodies of {SIZE} bytes take {grown} bytes of memory");
    for mut stream in slow {
        stream.write_all(b"1").unwrap();
        assert_eq!(answer(stream).0, 400);
    }
}

#[test]
fn limits_are_set_by_the_environment_and_shown_to_callers() {
    let database = Database::default();
    let key = Server::start(&database).key.clone();
    let mut program = program(&[]);
    program.env("EVIDENCE_LIMITS", "file=3MiB,tags=7");
    let server = Server::run(program, &database, &key);
    let (status, text) = server.call("GET", "/api/v2/limits", "application/json", "");
    assert_eq!(status, 200, "{text}");
    for (name, value) in [("file", 3 << 20), ("tags", 7), ("files", 32)] {
        let unit = if name == "file" { "bytes" } else { "count" };
        let shown = format!(r#"{{"name":"{name}","unit":"{unit}","value":{value},"#);
        assert!(text.contains(&shown), "{text}");
    }
}

#[test]
fn attachments_are_kept_in_the_directory_that_is_named() {
    let database = Database::default();
    let key = Server::start(&database).key.clone();
    let directory = tempfile::tempdir().unwrap();
    let mut program = program(&[]);
    program.env("EVIDENCE_ATTACHMENTS", format!("file://{}", directory.path().display()));
    let server = Server::run(program, &database, &key);

    let form = "--b\r\nContent-Disposition: form-data; name=\"data_json\"\r\n\r\n\
                {\"attestation_name\": \"scan\", \"is_compliant\": true}\r\n\
                --b\r\nContent-Disposition: form-data; name=\"attachment_file\"; filename=\"scan.txt\"\r\n\r\n\
                nothing found\r\n--b--\r\n";
    let trail = "/api/v2/attestations/acme/web/trail/t";
    let (status, text) =
        server.call("POST", &format!("{trail}/generic"), "multipart/form-data; boundary=b", form);
    assert_eq!(status, 201, "{text}");
    let (_, text) = server.call("GET", &format!("{trail}/scan"), "application/json", "");
    let (_, id) = text.split_once("\"attestation_id\":\"").expect(&text);
    let id = id.split('"').next().unwrap();
    let (status, text) = server.call("GET", &format!("{trail}/attestation/{id}/evidence"), "text/plain", "");
    assert_eq!(status, 200, "{text}");
    assert!(text.ends_with("\r\n\r\nnothing found"), "{text}");

    // Except for the marker and the file of the check.
    let below = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let organizations: Vec<_> = below.filter(|path| path.is_dir()).collect();
    assert_eq!(organizations.len(), 1, "{organizations:?}");
    let files = std::fs::read_dir(&organizations[0]).unwrap();
    let kept: Vec<_> = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    assert_eq!(kept, ["nothing found"]);
}

#[test]
fn a_server_whose_attachments_cannot_be_written_is_not_ready() {
    let (database, parent) = (Database::default(), tempfile::tempdir().unwrap());
    let key = Server::start(&database).key.clone();
    let (directory, away) = (parent.path().join("attachments"), parent.path().join("away"));
    std::fs::create_dir(&directory).unwrap();
    let mut program = program(&[]);
    program.env("EVIDENCE_ATTACHMENTS", format!("file://{}", directory.display()));
    let server = Server::run(program, &database, &key);
    let ready = || server.call("GET", "/ready", "text/plain", "");
    assert_eq!(ready().0, 200);
    std::fs::rename(&directory, &away).unwrap();
    std::fs::write(&directory, "no directory").unwrap();
    // A success is cached for a second.
    sleep(Duration::from_secs(1));
    let (status, text) = ready();
    assert!(status == 503 && text.contains("Not ready: ") && text.contains("attachments"), "{text}");
    // Anyone may send this request.
    assert!(!text.contains(parent.path().to_str().unwrap()), "{text}");
    std::fs::remove_file(&directory).unwrap();
    std::fs::rename(&away, &directory).unwrap();
    assert_eq!(ready().0, 200);
}

#[test]
fn a_log_that_nobody_reads_keeps_no_request_waiting() {
    let database = Database::default();
    let key = Server::start(&database).key.clone();
    let mut program = program(&[]);
    program.env("EVIDENCE_LOG_FILTER", "trace").stderr(Stdio::piped());
    let mut server = Server::run(program, &database, &key);
    // With a line for each statement, this exceeds the capacity of a pipe and of the line buffer.
    for number in 0..1500 {
        let body = format!(r#"{{"name":"env-{number}","type":"server","description":""}}"#);
        let (status, text) = server.call("PUT", "/api/v2/environments/acme", "application/json", &body);
        assert_eq!(status, 201, "{text}");
    }
    // When the log is read again, it reports the number of missing lines.
    let log = BufReader::new(server.child.stderr.take().unwrap());
    let told = log.lines().map(Result::unwrap).find(|line| line.contains("log lines were dropped"));
    assert!(told.is_some());
    terminate(&server);
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn what_cannot_be_done_is_one_sentence_and_status_1() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("sqlite://{}", directory.path().join(name).display());
    std::fs::write(
        directory.path().join("notes.txt"),
        "no database, though long enough to have a header".repeat(9),
    )
    .unwrap();
    for (arguments, says) in [
        (["fsck", "--database-url", &at("missing.db")], "there is no database file"),
        (["seed", "--user=jane", "--database-url=evidence.db"], "must begin with sqlite:// or postgres://"),
        (["serve", "--attachments", "file:///nowhere/at/all"], "cannot be used for attachments"),
        // They would be lost at exit, while the records stay.
        (["serve", "--attachments", "memory:"], "write file:///directory or s3://bucket/prefix"),
        (
            ["seed", "--user=jane", "--database-url=sqlite://:memory:"],
            "name a file, as in sqlite://evidence.db",
        ),
        (
            ["seed", "--user=jane", &format!("--database-url={}", at("missing/evidence.db"))],
            "check that its directory exists",
        ),
        (
            ["seed", "--user=jane", &format!("--database-url={}", at("notes.txt/evidence.db"))],
            "check that its directory exists",
        ),
        (
            ["seed", "--user=jane", &format!("--database-url={}", at("notes.txt"))],
            "is no SQLite file: name another one",
        ),
        (
            ["seed", "--user=jane", "--database-url=postgres://127.0.0.1:1/evidence"],
            "check that it runs and that host and port are right",
        ),
    ] {
        let output = program(&arguments).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{arguments:?}: {stderr}");
        assert!(stderr.contains(says), "{arguments:?}: {stderr}");
    }
}

#[test]
fn the_password_of_a_mistyped_address_is_not_printed() {
    for arguments in [
        &["postgresql:///db?user=u&password=hunter2"][..],
        &["serve", "--database-url", "postgres://127.0.0.1:1/db?user=u&pasword=hunter2"],
        &["serve", "--database-url", "postgres://u:hunter2@127.0.0.1:1/db"],
        &["serve", "host=127.0.0.1 password=hunter2"],
    ] {
        let output = program(arguments).env("EVIDENCE_LOG_FILTER", "info").output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && !stderr.is_empty(), "{arguments:?}");
        assert!(!stderr.contains("hunter2"), "{arguments:?}: {stderr}");
    }
}

#[cfg(unix)]
#[test]
fn a_database_file_that_others_can_read_is_logged() {
    use std::os::unix::fs::PermissionsExt;
    let database = Database::default();
    let key = Server::start(&database).key.clone();
    let file = database.url.strip_prefix("sqlite://").unwrap();
    for (mode, is_logged) in [(0o600, false), (0o640, true), (0o604, true)] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut program = program(&[]);
        program.stderr(Stdio::piped());
        let mut server = Server::run(program, &database, &key);
        terminate(&server);
        assert!(server.child.wait().unwrap().success());
        let mut log = String::new();
        server.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        assert_eq!(log.contains("chmod 600"), is_logged, "{mode:o}: {log}");
    }
}

#[test]
fn the_openapi_document_in_the_repository_is_up_to_date() {
    let output = program(&["openapi"]).output().unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi.json");
    let kept = std::fs::read_to_string(file).unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(kept == printed, "openapi.json is out of date: run `cargo xtask openapi`");
}

#[test]
fn an_upload_that_cannot_be_held_is_answered_503_and_leaves_nothing() {
    let (database, directory) = (Database::default(), tempfile::tempdir().unwrap());
    let key = Server::start(&database).key.clone();
    let mut serve = program(&[]);
    serve.env("TMPDIR", directory.path().join("gone"));
    let server = Server::run(serve, &database, &key);
    let attest = |files: &[&str]| {
        let data = "--x\r\ncontent-disposition: form-data; name=\"data_json\"\r\n\r\n\
            {\"attestation_name\":\"scan\",\"is_compliant\":true}\r\n";
        let part = |(n, file): (usize, &&str)| {
            format!(
                "--x\r\ncontent-disposition: form-data; name=\"attachment_file.{n}\"; filename=\"{n}.txt\"\r\n\r\n\
                 {file}\r\n"
            )
        };
        let form: String = files.iter().enumerate().map(part).collect();
        let path = "/api/v2/attestations/acme/build/trail/first/generic";
        server.call("POST", path, "multipart/form-data; boundary=x", &format!("{data}{form}--x--\r\n"))
    };
    // Incompressible data beyond the memory limit.
    let mut number = 1_u64;
    let noise = || {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'0' + u8::try_from(number >> 58).unwrap())
    };
    let noise: String = std::iter::repeat_with(noise).take(60 << 10).collect();
    for files in [&["x".repeat(1 << 20)][..], &[noise.clone(), noise.clone(), noise]] {
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let (status, text) = attest(&files);
        assert!(status == 503 && text.to_lowercase().contains("retry-after: "), "{text}");
    }
    let (status, _) = server.call("GET", "/api/v2/flows/acme/build", "application/json", "");
    assert_eq!(status, 404);
    // Short ones need no file.
    let (status, text) = attest(&["x", "y"]);
    assert_eq!(status, 201, "{text}");
}

#[test]
fn a_refusal_reaches_a_client_that_writes_its_whole_request_first() {
    let server = Server::start(&Database::default());
    let head = |method, path, key: &str, more| {
        format!("{method} /api/v2{path} HTTP/1.1\r\nauthorization: Bearer {key}\r\n{more}")
    };
    let (attest, account) = ("/attestations/acme/web/trail/t/generic", "/service-accounts/acme");
    let (none, expect) = ("", "expect: 100-continue\r\n");
    let (short, long): (&[usize], &[usize]) = (&[4 << 10, 300_000], &[5_000_000]);
    // A client that waits to be asked learns that the connection closes. These clients do not wait.
    for (head, status, stays, sizes) in [
        (head("POST", attest, "unknown", none), 401, true, short),
        (head("POST", "/nothing/here", &server.key, none), 404, true, short),
        (head("DELETE", attest, &server.key, none), 405, true, short),
        (head("POST", attest, "unknown", expect), 401, false, short),
        (head("POST", attest, "unknown", none), 401, false, long),
        (head("POST", "/nothing/here", &server.key, none), 404, false, long),
        (head("DELETE", attest, &server.key, none), 405, false, long),
        (head("POST", account, &server.key, none), 413, false, long),
    ] {
        for connections in [Connections::Fresh, Connections::Kept] {
            let answer = Answer { status, closes: connections == Connections::Fresh || !stays };
            for size in sizes {
                let request = write_first::request(&head, connections, *size);
                let sent = write_first::send(&server.address, &request, connections, 200);
                let found: Vec<_> = sent.iter().map(Sent::answer_if_unbroken).collect();
                assert_eq!(found, [Some(answer); 200], "{size} {connections:?} {head}");
            }
        }
    }
}
