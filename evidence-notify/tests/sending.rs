//! Tests the notifier against local peers: who is notified of what, and which peers are never contacted.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use evidence_core::actions::egress::Egress;
use evidence_core::actions::{Destination, SecretUrl};
use evidence_core::notifications::{Message, NotSent, Sender};
use evidence_core::time::Timestamp;
use evidence_notify::{NoNotifier, Notifier, Options, SigningKey};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, advance};
use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};

fn message(destination: Destination<SecretUrl>) -> Message {
    Message {
        id: "d1".to_owned(),
        org: "00000000-0000-0000-0000-00000001".parse().unwrap(),
        at: Timestamp::from_seconds(1_700_000_000),
        destination,
        payload: r#"{"version":"1.0"}"#.to_owned(),
        text: "Artifact <app> started".to_owned(),
        subject: "[acme] STARTED_ARTIFACT".to_owned(),
        link: Some("https://evidence.example.com/x?a=1&b=2".to_owned()),
    }
}

fn webhook(url: &str) -> Destination<SecretUrl> {
    Destination::Webhook { url: SecretUrl::new(url.to_owned()) }
}

fn notifier(ranges: &[&str]) -> Notifier {
    let egress = Egress { allowed: ranges.iter().map(|range| range.parse().unwrap()).collect() };
    let signing_key = SigningKey::new(&"k".repeat(32));
    Notifier::new(Options { egress, signing_key, ..Options::default() }).unwrap()
}

/// Sends this response on each connection, and counts the connections.
async fn peer(answer: &'static str) -> (SocketAddr, Arc<AtomicUsize>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut read = [0; 4096];
            // The whole request is one packet here.
            let _ = stream.read(&mut read).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (address, count, serving)
}

#[tokio::test]
async fn hostile_targets_are_never_connected_to() {
    let (address, count, _serving) = peer("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let port = address.port();
    let hosts = [
        "127.0.0.1",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "0.0.0.0",
        "0",
        "%31%32%37.0.0.1",
        "①②⑦.0.0.1",
        "127.0.0.1.",
        "jane@127.0.0.1",
        "hooks.example.com@127.0.0.1",
        "169.254.169.254",
        "metadata.google.internal",
        "10.0.0.1",
    ];
    let sender = notifier(&[]);
    for host in hosts {
        for scheme in ["http", "https"] {
            let sent = sender.send(&message(webhook(&format!("{scheme}://{host}:{port}/")))).await;
            assert!(sent.is_err(), "{scheme} {host}");
        }
    }
    // Allowing other addresses does not permit it.
    let sender = notifier(&["127.0.0.2/32"]);
    for url in [format!("http://127.0.0.1:{port}/"), format!("http://localhost:{port}/")] {
        assert!(sender.send(&message(webhook(&url))).await.is_err(), "{url}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_webhook_is_sent_once_and_only_a_success_counts_as_one() {
    let table = [
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", None),
        ("HTTP/1.1 204 No Content\r\n\r\n", None),
        ("HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n", Some("answered 500")),
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 9999999\r\n\r\n", Some("answered 404")),
        ("junk\r\n\r\n", Some("")),
        ("", Some("")),
    ];
    for (answer, failure) in table {
        let (address, count, _serving) = peer(answer).await;
        let sent = notifier(&["127.0.0.0/8"]).send(&message(webhook(&format!("http://{address}/")))).await;
        match (sent, failure) {
            (Ok(()), None) => {}
            (Err(error), Some(text)) => assert!(error.reason.contains(text), "{answer:?}: {error}"),
            (sent, _) => panic!("{answer:?}: {sent:?}"),
        }
        assert_eq!(count.load(Ordering::SeqCst), 1, "{answer:?}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (target, count, _serving) = peer("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let answer =
        format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{target}/\r\ncontent-length: 0\r\n\r\n");
    let (address, ..) = peer(answer.leak()).await;
    let sent = notifier(&["127.0.0.0/8"]).send(&message(webhook(&format!("http://{address}/")))).await;
    assert!(sent.unwrap_err().reason.contains("answered 307"));
    assert_eq!(count.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn slack_is_told_in_a_text_without_markup() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/services/x", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = String::new();
        while !request.ends_with('}') {
            let mut read = [0; 4096];
            let length = stream.read(&mut read).await.unwrap();
            request.push_str(std::str::from_utf8(&read[..length]).unwrap());
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
        request
    });
    let destination = Destination::Slack { url: SecretUrl::new(url), context: None };
    notifier(&["127.0.0.0/8"]).send(&message(destination)).await.unwrap();
    let request = serving.await.unwrap();
    assert!(request.starts_with("POST /services/x HTTP/1.1\r\n"), "{request}");
    let body = r#"{"text":"Artifact &lt;app&gt; started\n<https://evidence.example.com/x?a=1&amp;b=2>"}"#;
    assert!(request.ends_with(body), "{request}");
    assert!(!request.contains("webhook-signature"), "{request}");
}

/// A mail server that accepts one mail. Returns the commands and the mail.
async fn take_a_mail(listener: TcpListener) -> String {
    let (stream, _) = listener.accept().await.unwrap();
    let (read, mut write) = stream.into_split();
    let (mut lines, mut said, mut in_mail) = (BufReader::new(read).lines(), String::new(), false);
    write.write_all(b"220 mail.test\r\n").await.unwrap();
    while let Ok(Some(line)) = lines.next_line().await {
        said.push_str(&line);
        said.push('\n');
        let answer = match line.as_str() {
            "." => {
                in_mail = false;
                "250 taken\r\n"
            }
            _ if in_mail => continue,
            "DATA" => {
                in_mail = true;
                "354 go on\r\n"
            }
            "QUIT" => "221 bye\r\n",
            _ => "250 mail.test\r\n",
        };
        write.write_all(answer.as_bytes()).await.unwrap();
        if answer.starts_with("221") {
            break;
        }
    }
    said
}

#[tokio::test]
async fn a_mail_goes_to_each_address_under_the_id_of_its_delivery() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let smtp_url = Some(format!("smtp://{}", listener.local_addr().unwrap()));
    let serving = tokio::spawn(take_a_mail(listener));
    let mail_from = Some("evidence@example.com".to_owned());
    let sender = Notifier::new(Options { smtp_url, mail_from, ..Options::default() }).unwrap();
    let addresses = ["jane@example.com", "joe@example.com"].map(str::to_owned).to_vec();
    sender.send(&message(Destination::Email { addresses: addresses.clone() })).await.unwrap();
    let said = tokio::time::timeout(Duration::from_secs(30), async {
        drop(sender);
        serving.await.unwrap()
    });
    let said = said.await.unwrap();
    for expected in [
        "MAIL FROM:<evidence@example.com>",
        "RCPT TO:<jane@example.com>",
        "RCPT TO:<joe@example.com>",
        "Message-ID: <d1@example.com>",
        "Subject: [acme] STARTED_ARTIFACT",
        "Artifact <app> started",
        "https://evidence.example.com/x?a=1&b=2",
        "Content-Type: text/plain",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains("Bcc"), "{said}");
    let without = Notifier::new(Options::default()).unwrap();
    assert!(without.send(&message(Destination::Email { addresses })).await.is_err());
}

/// The responses of a mail server to commands with these prefixes, and to the end of a mail (`.`). It accepts
/// everything else. It hangs up after 421 and after an empty response.
type Refusals = &'static [(&'static str, &'static str)];

/// Instead of a response: the mail server never responds.
const SILENCE: &str = "silence";

/// A session with a mail server, which records the addresses that it accepts mails for, and whether it fell
/// silent.
async fn session(stream: TcpStream, refusals: Refusals, taken: &Mutex<Vec<String>>, silent: &AtomicBool) {
    let (read, mut write) = stream.into_split();
    let (mut lines, mut whom, mut in_mail) = (BufReader::new(read).lines(), Vec::new(), false);
    let mut answer = "220 mail.test";
    while !answer.is_empty() && write.write_all(format!("{answer}\r\n").as_bytes()).await.is_ok() {
        if answer.starts_with("421") {
            return;
        }
        let mut next = lines.next_line().await;
        while in_mail && next.as_ref().is_ok_and(|line| line.as_ref().is_some_and(|line| line != ".")) {
            next = lines.next_line().await;
        }
        let Ok(Some(line)) = next else { return };
        let refusal = refusals.iter().find(|(begin, _)| line.starts_with(begin)).map(|(_, answer)| *answer);
        in_mail = line == "DATA" && refusal.is_none();
        answer = match (refusal, line.as_str()) {
            (Some(SILENCE), _) => {
                silent.store(true, Ordering::SeqCst);
                // Waits until the other end gives up.
                let _ = lines.next_line().await;
                return;
            }
            (Some(refusal), _) => refusal,
            (None, "DATA") => "354 go on",
            (None, ".") => {
                taken.lock().unwrap().append(&mut whom);
                "250 taken"
            }
            (None, command) => {
                let address =
                    command.strip_prefix("RCPT TO:<").and_then(|rest| rest.strip_suffix("@example.com>"));
                whom.extend(address.map(str::to_owned));
                "250 mail.test"
            }
        };
    }
}

/// A mail server with these responses. It counts its sessions and records the addresses that it accepts mails
/// for.
struct MailServer {
    url: String,
    taken: Arc<Mutex<Vec<String>>>,
    sessions: Arc<AtomicUsize>,
    silent: Arc<AtomicBool>,
}

impl MailServer {
    async fn answering(refusals: Refusals) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("smtp://{}", listener.local_addr().unwrap());
        let (taken, sessions) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let silent = Arc::new(AtomicBool::new(false));
        let (noted, counted, fell) = (Arc::clone(&taken), Arc::clone(&sessions), Arc::clone(&silent));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let (noted, fell) = (Arc::clone(&noted), Arc::clone(&fell));
                tokio::spawn(async move { session(stream, refusals, &noted, &fell).await });
            }
        });
        Self { url, taken, sessions, silent }
    }

    /// Tries to send a mail to these addresses.
    async fn send(&self, names: &[&str]) -> Result<(), NotSent> {
        let mail_from = Some("evidence@example.com".to_owned());
        let options = Options { smtp_url: Some(self.url.clone()), mail_from, ..Options::default() };
        let addresses = names.iter().map(|name| format!("{name}@example.com")).collect();
        Notifier::new(options).unwrap().send(&message(Destination::Email { addresses })).await
    }

    fn taken(&self) -> Vec<String> {
        self.taken.lock().unwrap().clone()
    }
}

/// Asserts that an attempt at sending a mail has this outcome: the names that receive it, or a part of the
/// error.
fn assert_outcome(
    server: &MailServer,
    sent: &Result<(), NotSent>,
    expected: Result<&[&str], &str>,
    refusals: Refusals,
) {
    match (sent, expected) {
        (Ok(()), Ok(names)) => assert_eq!(server.taken(), names, "{refusals:?}"),
        (Err(error), Err(reason)) => {
            assert!(error.reason.contains(reason), "{refusals:?}: {error}");
            assert!(server.taken().is_empty(), "{refusals:?}");
        }
        _ => panic!("{refusals:?}: {sent:?}"),
    }
    assert_eq!(server.sessions.load(Ordering::SeqCst), 1, "{refusals:?}");
}

#[tokio::test]
async fn an_attempt_is_one_session_for_all_addresses() {
    // The responses, and the names that receive the mail or the error of the attempt.
    let table: [(Refusals, Result<&[&str], &str>); 14] = [
        (&[], Ok(&["a", "b", "c"])),
        (&[("RCPT TO:<b@", "550 5.1.1 unknown")], Ok(&["a", "c"])),
        (&[("RCPT TO:<b@", "552 5.5.3 too many")], Err("b@example.com")),
        (&[("RCPT TO:<b@", "451 4.7.1 come again")], Err("b@example.com: transient error (451)")),
        (&[("RCPT TO:<a@", "550 unknown"), ("RCPT TO:<c@", "450 busy")], Err("c@example.com")),
        (&[("RCPT TO:<b@", "421 bye")], Err("421")),
        (&[("RCPT TO:", "550 5.1.1 unknown")], Err("a@example.com: permanent error (550): 5.1.1 unknown")),
        (&[("EHLO", "421 busy")], Err("421")),
        (&[("MAIL FROM:", "454 4.7.0 who are you, for now")], Err("454")),
        (&[("DATA", "552 5.2.3 no")], Err("552")),
        (&[("DATA", "")], Err("the mail server")),
        (&[(".", "451 4.3.0 not now")], Err("451")),
        (&[(".", "")], Err("the mail server")),
        (&[("QUIT", "")], Ok(&["a", "b", "c"])),
    ];
    for (refusals, expected) in table {
        let server = MailServer::answering(refusals).await;
        // An address that is given twice gets one mail.
        let sent = server.send(&["a", "b", "a", "c"]).await;
        assert_outcome(&server, &sent, expected, refusals);
    }
    let server = MailServer::answering(&[]).await;
    for (names, reason) in [(&["a b"][..], "a b@example.com is not an address"), (&[], "has no address")] {
        let error = server.send(names).await.unwrap_err();
        assert!(error.reason.contains(reason), "{error}");
    }
    assert_eq!(server.sessions.load(Ordering::SeqCst), 0);
}

/// The log of a test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn start(&self) -> DefaultGuard {
        // With a single dispatcher, `tracing` asks the thread that first reaches an event whether a subscriber
        // is interested in it, and that can be the thread of another test, which has no log.
        static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));
        LazyLock::force(&SECOND);
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || log.clone()).finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// Returns the warnings about mail.
    fn warnings(&self) -> Vec<String> {
        let log = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        log.lines().filter(|line| line.contains(" WARN evidence_notify::mail")).map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn an_address_that_no_mail_comes_to_is_named_in_the_log() {
    let table: [(Refusals, &[&str]); 4] = [
        (&[], &[]),
        (&[("RCPT TO:<b@", "550 5.1.1 b is gone")], &["b@example.com"]),
        (
            &[("RCPT TO:<a@", "550 5.1.1 a is gone"), ("RCPT TO:<b@", "550 5.1.1 b is gone")],
            &["a@example.com", "b@example.com"],
        ),
        // The mail was not sent. The caller logs the error.
        (&[("RCPT TO:<b@", "550 5.1.1 b is gone"), (".", "451 not now")], &[]),
    ];
    for (refusals, expected) in table {
        let log = Log::default();
        let logging = log.start();
        let server = MailServer::answering(refusals).await;
        let _ = server.send(&["a", "b", "c"]).await;
        drop(logging);
        let warnings = log.warnings();
        assert_eq!(warnings.len(), expected.len(), "{refusals:?}: {warnings:?}");
        for (warning, address) in warnings.iter().zip(expected) {
            let reply = format!("5.1.1 {} is gone", &address[..1]);
            assert!(warning.contains(address) && warning.contains(&reply), "{warning}");
            assert!(warning.contains("d1"), "{warning}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_mail_server_ends_an_attempt() {
    /// The addresses that get the mail, or the reason why nobody does.
    type Outcome = Result<&'static [&'static str], &'static str>;
    const LATE: Outcome = Err("the mail server does not answer in time");
    // The responses, the outcome, and the seconds until then.
    let table: [(Refusals, Outcome, u64); 8] = [
        (&[("EHLO", SILENCE)], LATE, 30),
        (&[("MAIL", SILENCE)], LATE, 600),
        (&[("RCPT", SILENCE)], LATE, 600),
        (&[("DATA", SILENCE)], LATE, 600),
        (&[(".", SILENCE)], LATE, 600),
        (&[("QUIT", SILENCE)], Ok(&["a"]), 5),
        (&[("RCPT", "550 unknown"), ("QUIT", SILENCE)], Err("550"), 5),
        (&[("RCPT", "450 busy"), ("QUIT", SILENCE)], Err("450"), 5),
    ];
    for (refusals, expected, seconds) in table {
        let server = MailServer::answering(refusals).await;
        // The clock advances only while the server is silent, so no timeout expires on a slow machine.
        let silent = Arc::clone(&server.silent);
        let clock = tokio::spawn(async move {
            loop {
                yield_now().await;
                if silent.load(Ordering::SeqCst) {
                    advance(Duration::from_secs(1)).await;
                }
            }
        });
        let began = Instant::now();
        let sent = server.send(&["a"]).await;
        let took = began.elapsed().as_secs();
        clock.abort();
        assert_outcome(&server, &sent, expected, refusals);
        assert!((seconds..seconds + 20).contains(&took), "{refusals:?}: {took} seconds");
    }
}

#[tokio::test]
async fn a_session_is_as_encrypted_and_logged_in_as_the_url_asks_for() {
    const LOGIN: (&str, &str) = ("EHLO", "250-mail.test\r\n250 AUTH PLAIN LOGIN");
    const OTHER: (&str, &str) = ("AUTH", "535 5.7.8 who are you");
    let table: [(&str, &str, Refusals, Result<(), &str>); 7] = [
        ("", "?tls=required", &[], Err("STARTTLS is not supported")),
        ("", "?tls=opportunistic", &[], Ok(())),
        ("jane:secret@", "", &[], Err("No compatible authentication mechanism")),
        ("jane:secret@", "", &[LOGIN, ("AUTH PLAIN AGphbmUAc2VjcmV0", "235 welcome"), OTHER], Ok(())),
        // `jane@x` and `p@:/ü`.
        (
            "jane%40x:p%40%3A%2F%C3%BC@",
            "",
            &[LOGIN, ("AUTH PLAIN AGphbmVAeABwQDovw7w=", "235 welcome"), OTHER],
            Ok(()),
        ),
        ("jane:secret@", "", &[LOGIN, OTHER], Err("535")),
        ("", "/evidence.test", &[("EHLO [", "500 who"), ("EHLO evidence.test", "250 mail.test")], Ok(())),
    ];
    for (login, mode, refusals, expected) in table {
        let mut server = MailServer::answering(refusals).await;
        server.url = format!("{}{mode}", server.url.replace("smtp://", &format!("smtp://{login}")));
        let sent = server.send(&["a"]).await;
        match (&sent, expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(reason)) => assert!(error.reason.contains(reason), "{}: {error}", server.url),
            _ => panic!("{}: {sent:?}", server.url),
        }
        assert_eq!(server.taken().len(), usize::from(sent.is_ok()), "{}", server.url);
    }
}

#[test]
fn a_url_of_a_mail_server_that_cannot_be_read_makes_no_notifier() {
    for url in ["mail.test", "http://mail.test", "smtp://mail.test?tls=none", "smtps://jane:%ff@mail.test"] {
        let mail_from = Some("evidence@example.com".to_owned());
        let options = Options { smtp_url: Some(url.to_owned()), mail_from, ..Options::default() };
        let error = Notifier::new(options).unwrap_err();
        assert!(
            matches!(error, NoNotifier::Smtp(_)) && !error.to_string().contains("jane"),
            "{url}: {error}"
        );
    }
}
