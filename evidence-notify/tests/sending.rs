//! The notifier against peers of this machine: who is told, what, and who is never connected to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evidence_core::actions::{Destination, SecretUrl};
use evidence_core::notifications::{MailStatus, Message, NotSent, Sender};
use evidence_core::rules::egress::Egress;
use evidence_core::time::Timestamp;
use evidence_notify::{Notifier, Options, SigningKey};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, advance};

fn message(destination: Destination) -> Message {
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

fn webhook(url: &str) -> Destination {
    Destination::Webhook { url: SecretUrl::new(url.to_owned()) }
}

fn notifier(ranges: &[&str]) -> Notifier {
    let egress = Egress { allowed: ranges.iter().map(|range| range.parse().unwrap()).collect() };
    let signing_key = SigningKey::new(&"k".repeat(32));
    Notifier::new(Options { egress, signing_key, ..Options::default() }).unwrap()
}

/// Answers each connection so, and counts them.
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
    // Nor where the operator allows others.
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

/// A mail server that takes one mail; the commands, and what the mail says.
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

/// A mail server's answers to commands that begin so, and to the end of a mail (`.`); it takes everything else. After 421 it
/// hangs up, and where an answer is empty, without one.
type Refusals = &'static [(&'static str, &'static str)];

/// A session with a mail server. Whom it takes a mail for is noted.
async fn session(stream: TcpStream, greeting: &str, manners: Manners, taken: &Mutex<Vec<String>>) {
    let Manners { refusals, mut bears, hesitates, silent_at, .. } = manners;
    let (read, mut write) = stream.into_split();
    let (mut lines, mut whom, mut in_mail) = (BufReader::new(read).lines(), Vec::new(), false);
    let mut answer = greeting;
    while !answer.is_empty() && write.write_all(format!("{answer}\r\n").as_bytes()).await.is_ok() {
        if answer.starts_with("421") {
            return;
        }
        let mut next = lines.next_line().await;
        while in_mail && next.as_ref().is_ok_and(|line| line.as_ref().is_some_and(|line| line != ".")) {
            next = lines.next_line().await;
        }
        let Ok(Some(line)) = next else { return };
        let is_about_one = line.starts_with("RCPT TO:");
        if is_about_one && !hesitates.is_zero() {
            advance(hesitates).await;
        }
        if line == silent_at || is_about_one && silent_at != "." && line.contains(silent_at) {
            // Until the other end has enough of it.
            let _ = lines.next_line().await;
            return;
        }
        let refusal = refusals.iter().find(|(begin, _)| line.starts_with(begin)).map(|(_, answer)| *answer);
        in_mail = line == "DATA" && refusal.is_none();
        answer = match (refusal, line.as_str()) {
            (Some(refusal), _) => match bears.checked_sub(1) {
                Some(fewer) => {
                    bears = fewer;
                    refusal
                }
                None => "421 too many errors",
            },
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

/// A mail server that answers so; who has mails, and how many sessions there were.
struct MailServer {
    url: String,
    taken: Arc<Mutex<Vec<String>>>,
    sessions: Arc<AtomicUsize>,
}

/// What a mail server does.
#[derive(Clone, Copy)]
struct Manners {
    refusals: Refusals,
    /// After so many refusals it hangs up.
    bears: usize,
    /// After so many sessions it takes none.
    most_sessions: usize,
    /// How long it takes for each answer about an address, by a clock that stands still otherwise.
    hesitates: Duration,
    /// Whom it says nothing about, or what it does not answer.
    silent_at: &'static str,
}

const POLITE: Manners = Manners {
    refusals: &[],
    bears: usize::MAX,
    most_sessions: usize::MAX,
    hesitates: Duration::ZERO,
    silent_at: "nobody",
};

impl MailServer {
    async fn answering(refusals: Refusals) -> Self {
        Self::with(Manners { refusals, ..POLITE }).await
    }

    async fn with(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("smtp://{}", listener.local_addr().unwrap());
        let (taken, sessions) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let (noted, counted) = (Arc::clone(&taken), Arc::clone(&sessions));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let greeting =
                    if number < manners.most_sessions { "220 mail.test" } else { "421 too many sessions" };
                let noted = Arc::clone(&noted);
                tokio::spawn(async move { session(stream, greeting, manners, &noted).await });
            }
        });
        Self { url, taken, sessions }
    }

    /// An attempt at sending a mail to these.
    async fn send(&self, names: &[String]) -> Result<(), NotSent> {
        let mail_from = Some("evidence@example.com".to_owned());
        let options = Options { smtp_url: Some(self.url.clone()), mail_from, ..Options::default() };
        let addresses = names.iter().map(|name| format!("{name}@example.com")).collect();
        Notifier::new(options).unwrap().send(&message(Destination::Email { addresses })).await
    }

    fn taken(&self) -> Vec<String> {
        self.taken.lock().unwrap().clone()
    }
}

fn names(names: &str) -> Vec<String> {
    names.split_whitespace().map(str::to_owned).collect()
}

/// What became of an attempt at a mail to each address, by its name: `+` sent, `x` refused, `?` deferred, `-` not asked, `!` failed.
fn told(error: &NotSent) -> String {
    let status = |(address, status): &(String, MailStatus)| {
        let sign = match status {
            MailStatus::Sent => '+',
            MailStatus::Refused(_) => 'x',
            MailStatus::Deferred(_) => '?',
            MailStatus::Failed => '!',
            _ => '-',
        };
        format!("{sign}{}", address.strip_suffix("@example.com").unwrap())
    };
    error.addresses.iter().map(status).collect::<Vec<_>>().join(" ")
}

/// What is told of an attempt: by a failure why, and what became of each address.
type Outcome = Result<(), (&'static str, &'static str)>;

#[tokio::test]
async fn an_attempt_is_one_session_by_which_every_address_has_a_mail_that_is_not_refused() {
    // The refusals; who has the mail, and what is told.
    let table: [(Refusals, &str, Outcome); 17] = [
        (&[], "a b c d", Ok(())),
        (&[("RCPT TO:<b@", "550 5.1.1 unknown")], "a c d", Err(("550", "+a xb +c +d"))),
        (
            &[("RCPT TO:<b@", "554 5.7.1 <B@example.com>: relay access denied")],
            "a c d",
            Err(("554", "+a xb +c +d")),
        ),
        (&[("RCPT TO:<b@", "451 4.7.1 come again")], "a c d", Err(("451", "+a ?b +c +d"))),
        (&[("RCPT TO:<a@", "550 unknown"), ("RCPT TO:<b@", "450 busy")], "c d", Err(("550", "xa ?b +c +d"))),
        (&[("RCPT TO:<c@", "452 full"), ("RCPT TO:<d@", "452 full")], "a b", Err(("452", "+a +b ?c ?d"))),
        (&[("RCPT TO:", "550 unknown")], "", Err(("550", "xa xb xc xd"))),
        (&[("RCPT TO:<c@", "452 full"), ("RCPT TO:", "550 unknown")], "", Err(("550", "xa xb ?c xd"))),
        (&[("EHLO", "421 busy")], "", Err(("421", ""))),
        (&[("MAIL FROM:", "550 5.7.1 not from you")], "", Err(("550", ""))),
        (&[("MAIL FROM:", "454 4.7.0 who are you, for now")], "", Err(("454", ""))),
        (&[("DATA", "552 5.2.3 no")], "", Err(("552", "?a ?b ?c ?d"))),
        (&[("DATA", "")], "", Err(("the mail server", ""))),
        (&[(".", "552 5.3.4 too long")], "", Err(("552", "?a ?b ?c ?d"))),
        (&[(".", "451 4.3.0 not now"), ("RCPT TO:<b@", "550 unknown")], "", Err(("451", "!a xb !c !d"))),
        (&[(".", "")], "", Err(("the mail server", ""))),
        (&[("QUIT", "")], "a b c d", Ok(())),
    ];
    for (refusals, whom, expected) in table {
        let server = MailServer::answering(refusals).await;
        let sent = server.send(&names("a b c d")).await;
        match (sent, expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err((reason, addresses))) => {
                assert!(error.reason.contains(reason), "{refusals:?}: {error}");
                assert_eq!(told(&error), addresses, "{refusals:?}");
            }
            (sent, _) => panic!("{refusals:?}: {sent:?}"),
        }
        assert_eq!(server.taken(), names(whom), "{refusals:?}");
        assert_eq!(server.sessions.load(Ordering::SeqCst), 1, "{refusals:?}");
    }
}

#[tokio::test]
async fn a_server_that_hangs_up_when_it_is_asked_about_one_is_asked_about_the_others_in_another_session() {
    // Whom it does not know, and at whom it hangs up; then what is told, and after how many sessions.
    let table: [(Refusals, &str, usize); 5] = [
        (&[("RCPT TO:<d@", "421 bye")], "+a +b +c ?d", 2),
        (&[("RCPT TO:<b@", "550 unknown"), ("RCPT TO:<d@", "421 bye")], "+a xb +c ?d", 2),
        (&[("RCPT TO:<b@", "451 later"), ("RCPT TO:<d@", "")], "+a ?b +c ?d", 2),
        (&[("RCPT TO:<a@", ""), ("RCPT TO:<c@", "421 bye")], "?a +b ?c +d", 4),
        (&[("RCPT TO:", "421 bye")], "?a ?b ?c ?d", 4),
    ];
    for (refusals, expected, sessions) in table {
        let server = MailServer::answering(refusals).await;
        let error = server.send(&names("a b c d")).await.unwrap_err();
        assert_eq!(told(&error), expected, "{refusals:?}");
        let has: Vec<_> = expected.split(' ').filter_map(|one| one.strip_prefix('+')).collect();
        assert_eq!(server.taken(), has, "{refusals:?}");
        assert_eq!(server.sessions.load(Ordering::SeqCst), sessions, "{refusals:?}");
    }
    // It hangs up at every other one: few times are enough, and those that it took have the mail.
    const OTHERS: Refusals = &[("RCPT TO:<h", "421 bye")];
    for (all, expected, sessions) in [
        ("h0 h1 h2 h3 h4 h5 h6", "?h0 ?h1 ?h2 ?h3 ?h4 -h5 -h6", 5),
        ("a0 h0 a1 h1 a2 h2 a3 h3 a4 h4 a5 h5", "+a0 ?h0 +a1 ?h1 +a2 ?h2 +a3 ?h3 +a4 ?h4 -a5 -h5", 10),
    ] {
        let server = MailServer::answering(OTHERS).await;
        let error = server.send(&names(all)).await.unwrap_err();
        assert_eq!((told(&error).as_str(), server.sessions.load(Ordering::SeqCst)), (expected, sessions));
    }
    // An address that is named twice has one mail.
    let server = MailServer::answering(&[("RCPT TO:<b@", "421 bye")]).await;
    let error = server.send(&names("a b a")).await.unwrap_err();
    assert_eq!((told(&error).as_str(), server.taken()), ("+a ?b +a", names("a")));
    const UNKNOWN: Refusals = &[("RCPT TO:<a@", "550 unknown"), ("RCPT TO:<c@", "450 later")];
    let server = MailServer::with(Manners { refusals: UNKNOWN, bears: 1, ..POLITE }).await;
    let error = server.send(&names("a b c d")).await.unwrap_err();
    assert_eq!((told(&error).as_str(), server.taken()), ("xa +b ?c +d", names("b d")));
    assert_eq!(server.sessions.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn where_a_session_is_not_begun_the_mail_failed_for_those_it_was_for() {
    let all: Vec<_> = (0..20).map(|number| format!("a{number:02}")).collect();
    const GONE: Refusals = &[
        ("RCPT TO:<a00", "450 later"),
        ("RCPT TO:<a0", "550 unknown"),
        ("RCPT TO:<a11", "550 unknown"),
        ("RCPT TO:<a12", "550 unknown"),
        ("RCPT TO:<a13", "550 unknown"),
        ("RCPT TO:<a14", "550 unknown"),
        ("RCPT TO:<a15", "550 unknown"),
    ];
    let server = MailServer::with(Manners { refusals: GONE, most_sessions: 1, ..POLITE }).await;
    let error = server.send(&all).await.unwrap_err();
    assert!(error.reason.contains("too many sessions"), "{error}");
    let expected =
        "?a00 xa01 xa02 xa03 xa04 xa05 xa06 xa07 xa08 xa09 +a10 xa11 xa12 xa13 xa14 xa15 !a16 !a17 !a18 !a19";
    assert_eq!((told(&error).as_str(), server.taken()), (expected, names("a10")));
}

#[tokio::test]
async fn of_many_addresses_all_have_a_mail_but_those_that_are_gone() {
    let all: Vec<_> = (0..100).map(|number| format!("a{}{}", number % 10, number / 10)).collect();
    // Where so many are gone that the server would hang up, another session goes on, wherever they stand.
    let is_gone = |name: &String| name.starts_with("a8") || name.starts_with("a9");
    let mut gone_first = all.clone();
    gone_first.sort_by_key(|name| !is_gone(name));
    const TEN: Refusals = &[("RCPT TO:<a9", "550 5.1.1 unknown")];
    const TWENTY: Refusals = &[("RCPT TO:<a8", "550 5.1.1 unknown"), ("RCPT TO:<a9", "550 5.1.1 unknown")];
    for (all, refusals, sessions) in [(&all, TEN, 1), (&all, TWENTY, 2), (&gone_first, TWENTY, 2)] {
        let server = MailServer::answering(refusals).await;
        let error = server.send(all).await.unwrap_err();
        let is_there = |name: &&String| refusals.iter().all(|(rcpt, _)| !name.starts_with(&rcpt[9..]));
        let there: Vec<_> = all.iter().filter(is_there).cloned().collect();
        assert_eq!((there.len(), server.taken()), (100 - 10 * refusals.len(), there));
        assert_eq!(told(&error).matches('x').count(), 10 * refusals.len());
        assert_eq!(server.sessions.load(Ordering::SeqCst), sessions);
    }
}

#[tokio::test(start_paused = true)]
async fn a_mail_goes_to_those_the_server_is_asked_about_in_time() {
    // While something is to be done the clock stands still, unless the server moves it or says nothing for a while.
    tokio::spawn(async {
        loop {
            for _ in 0..200 {
                yield_now().await;
            }
            advance(Duration::from_millis(100)).await;
        }
    });
    let all: Vec<_> = (0..100).map(|number| format!("a{number:02}")).collect();
    // It takes two seconds for each: the mail goes to those that it was asked about.
    let server = MailServer::with(Manners { hesitates: Duration::from_secs(2), ..POLITE }).await;
    let began = Instant::now();
    let error = server.send(&all).await.unwrap_err();
    // It asks for 150 seconds, and the last answer may take 30. The clock goes on a little where the sockets are slow.
    assert!(began.elapsed() < Duration::from_secs(180), "{:?}", began.elapsed());
    let asked = server.taken();
    assert!((50..=76).contains(&asked.len()) && asked == all[..asked.len()], "{asked:?}");
    let signs: String = told(&error).chars().filter(|sign| "+-x?".contains(*sign)).collect();
    assert_eq!(signs, "+".repeat(asked.len()) + &"-".repeat(100 - asked.len()));
    // It says nothing about one: that one is left for later.
    let server = MailServer::with(Manners { silent_at: "<a01@", ..POLITE }).await;
    let began = Instant::now();
    let error = server.send(&all[..3]).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!((told(&error).as_str(), server.taken()), ("+a00 ?a01 +a02", names("a00 a02")));
    // It says nothing about more of them than there is time for: all that it was asked about have it, wherever an attempt begins.
    for (first, sent) in [(0, 0), (2, 34), (10, 30)] {
        let mut all: Vec<_> = (0..40).map(|number| format!("a{number:02}")).collect();
        all[..6].iter_mut().for_each(|name| name.push_str("gone"));
        all.rotate_left(first);
        let server = MailServer::with(Manners { silent_at: "gone@", ..POLITE }).await;
        let error = server.send(&all).await.unwrap_err();
        assert_eq!(told(&error).matches('+').count(), sent, "from {first}: {}", told(&error));
        assert_eq!(server.taken().len(), sent, "from {first}");
    }
    // It says nothing about any.
    let server = MailServer::with(Manners { silent_at: "RCPT", ..POLITE }).await;
    let began = Instant::now();
    let error = server.send(&all).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(240), "{:?}", began.elapsed());
    assert!(told(&error).starts_with("?a00 ?a01 ?a02 ?a03 ?a04") && told(&error).ends_with("-a98 -a99"));
    assert!(error.reason.contains("takes its time"), "{error}");
    // It takes the mail, and never says so.
    let server = MailServer::with(Manners { silent_at: ".", ..POLITE }).await;
    let began = Instant::now();
    let error = server.send(&all[..2]).await.unwrap_err();
    let took = began.elapsed().as_secs();
    assert!((600..620).contains(&took), "{took} s");
    assert_eq!((error, server.taken()), (NotSent::new("the mail server does not answer in time"), names("")));
}

#[tokio::test]
async fn a_session_is_as_encrypted_and_logged_in_as_the_url_asks_for() {
    const LOGIN: (&str, &str) = ("EHLO", "250-mail.test\r\n250 AUTH PLAIN LOGIN");
    let table: [(&str, &str, Refusals, Result<(), &str>); 5] = [
        ("", "?tls=required", &[], Err("STARTTLS is not supported")),
        ("", "?tls=opportunistic", &[], Ok(())),
        ("jane:secret@", "", &[], Err("No compatible authentication mechanism")),
        ("jane:secret@", "", &[LOGIN, ("AUTH PLAIN AGphbmUAc2VjcmV0", "235 welcome")], Ok(())),
        ("jane:secret@", "", &[LOGIN, ("AUTH", "535 5.7.8 who are you")], Err("535")),
    ];
    for (login, mode, refusals, expected) in table {
        let mut server = MailServer::answering(refusals).await;
        server.url = format!("{}{mode}", server.url.replace("smtp://", &format!("smtp://{login}")));
        let sent = server.send(&names("a")).await;
        match (&sent, expected) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(reason)) => assert!(error.reason.contains(reason), "{}: {error}", server.url),
            _ => panic!("{}: {sent:?}", server.url),
        }
        assert_eq!(server.taken().len(), usize::from(sent.is_ok()), "{}", server.url);
    }
}
