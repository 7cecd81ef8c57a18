//! Mails, by the operator's mail server: one session for the addresses of a mail, in which the server says of each whether it
//! takes it, and another where it refuses many or hangs up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evidence_core::notifications::{MailStatus, Message, NotSent};
use lettre::Address;
use lettre::address::Envelope;
use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message as Letter};
use lettre::transport::smtp;
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::commands;
use lettre::transport::smtp::extension::{MailBodyParameter, MailParameter};
use tokio::time::{Instant, timeout};

use crate::NoNotifier;
use crate::smtp::Server;

/// How long it may take to begin a session, and to be answered about one address: servers ask others about it, or make who names
/// unknown ones wait.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(30);

/// How long after its beginning an attempt asks about further addresses, and how much longer about those again that were accepted
/// before the server hung up: other mails wait meanwhile.
const LONGEST_ASKING: Duration = Duration::from_secs(150);
const LONGEST_ASKING_AGAIN: Duration = Duration::from_secs(75);

/// How long the server may take for the mail itself (RFC 5321, section 4.5.3.2.6). A mail that is given up while the server takes
/// it comes again.
const DATA_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// How long the end of a session may take, when its outcome is known.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);

/// After so many refusals the server is asked about the other addresses in another session: Postfix hangs up at 20
/// (`smtpd_hard_error_limit`), and then nobody has the mail.
const MOST_REFUSED: usize = 15;

/// After so many times that the server hung up, an attempt asks about no further addresses, and after twice as many about none.
const MOST_HANG_UPS: usize = 5;

/// The way to the mail server.
#[derive(Debug)]
pub(crate) struct Mail {
    server: Server,
    from: Address,
}

/// What became of a session that was begun.
struct Session<'m> {
    /// What became of the mail to these.
    addresses: Vec<(&'m String, MailStatus)>,
    /// The addresses for which it would have taken the mail, had it not hung up.
    accepted: Vec<&'m String>,
    /// Those that it was not asked about.
    rest: Vec<&'m String>,
    /// Whether it hung up, or fell silent, when it was asked about one.
    hung_up: bool,
    /// Why there are no further sessions.
    end: Option<End>,
}

/// Why an attempt ends before the server answered for every address.
struct End {
    reason: String,
    /// What that is for the other addresses.
    status: MailStatus,
}

impl End {
    /// For lack of time.
    fn of_time(reason: &str) -> Self {
        Self { reason: reason.to_owned(), status: MailStatus::NotAsked }
    }

    /// The server was away, or failed.
    fn of_outage(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), status: MailStatus::Failed }
    }
}

impl Mail {
    pub(crate) fn new(url: &str, from: &str) -> Result<Self, NoNotifier> {
        let from = from.parse().map_err(NoNotifier::MailFrom)?;
        Ok(Self { server: Server::at(url).map_err(NoNotifier::Smtp)?, from })
    }

    /// Hands a mail to the mail server, for those of the addresses for which it takes it.
    pub(crate) async fn send(&self, message: &Message, to: &[String]) -> Result<(), NotSent> {
        let letter =
            self.letter(message).map_err(|error| NotSent::new(format!("no mail can be made: {error}")))?;
        let until = Instant::now() + LONGEST_ASKING;
        let mut seen = BTreeSet::new();
        let mut rest: Vec<_> = to.iter().filter(|address| seen.insert(*address)).collect();
        let (mut known, mut accepted, mut hang_ups, mut end) = (BTreeMap::new(), Vec::new(), 0, None);
        while end.is_none() && !(accepted.is_empty() && rest.is_empty()) {
            // Those for whom it would have taken the mail before it hung up have it before others are asked about, and more time.
            let (asked, later, until, most_hang_ups) = if accepted.is_empty() {
                (rest, Vec::new(), until, MOST_HANG_UPS)
            } else {
                (accepted, rest, until + LONGEST_ASKING_AGAIN, 2 * MOST_HANG_UPS)
            };
            let session = if Instant::now() >= until {
                Err(End::of_time("the mail server takes its time at other addresses"))
            } else if hang_ups >= most_hang_ups {
                Err(End::of_time("the mail server hangs up at other addresses"))
            } else {
                self.session(&letter, &asked, until).await
            };
            (accepted, rest, end) = match session {
                Ok(mut session) => {
                    known.extend(session.addresses);
                    session.rest.extend(later);
                    hang_ups += usize::from(session.hung_up);
                    (session.accepted, session.rest, session.end)
                }
                Err(end) => (Vec::new(), Vec::new(), Some(end)),
            };
        }
        let others = end.as_ref().map_or(MailStatus::NotAsked, |end| end.status.clone());
        let status = |address| known.get(address).unwrap_or(&others).clone();
        let addresses: Vec<_> = to.iter().map(|address| (address.clone(), status(address))).collect();
        let mut reasons = addresses.iter().filter_map(|(_, status)| match status {
            MailStatus::Refused(reason) | MailStatus::Deferred(reason) => Some(reason),
            _ => None,
        });
        let is_unanswered =
            addresses.iter().all(|(_, status)| matches!(status, MailStatus::NotAsked | MailStatus::Failed));
        match end.map(|end| end.reason).or_else(|| reasons.next().cloned()) {
            None if addresses.is_empty() => Err(NotSent::new("the mail has no address")),
            None => Ok(()),
            Some(reason) if is_unanswered => Err(NotSent::new(reason)),
            Some(reason) => Err(NotSent { reason, addresses }),
        }
    }

    /// A session with the mail server, in which it is asked about addresses until then. An error says why none was begun.
    async fn session<'m>(
        &self,
        letter: &[u8],
        to: &[&'m String],
        until: Instant,
    ) -> Result<Session<'m>, End> {
        let begin = async {
            let mut connection = self.server.connect().await?;
            connection.command(self.mail_from(letter)).await?;
            Ok(connection)
        };
        let begun: Result<_, smtp::Error> =
            timeout(SESSION_TIMEOUT, begin).await.map_err(|_| End::of_outage(SILENT))?;
        let mut connection = begun.map_err(|error| End::of_outage(reason(&error)))?;
        let session = hand_over(&mut connection, letter, to, until).await;
        // What became of the mail is known: how the session ends, or that it does not, changes nothing about it.
        let _ = timeout(QUIT_TIMEOUT, connection.abort()).await;
        Ok(session)
    }

    fn mail_from(&self, letter: &[u8]) -> commands::Mail {
        let mut parameters = Vec::new();
        if !self.from.to_string().is_ascii() {
            parameters.push(MailParameter::SmtpUtfEight);
        }
        if !letter.is_ascii() {
            parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        commands::Mail::new(Some(self.from.clone()), parameters)
    }

    /// Plain text, so that no name in it is taken for markup. Its id is that of the delivery, by which mail programs know a
    /// repetition. Whom it goes to is said in the session alone.
    fn letter(&self, message: &Message) -> Result<Vec<u8>, lettre::error::Error> {
        let link = message.link.as_deref().map(|link| format!("\n\n{link}")).unwrap_or_default();
        let letter = Letter::builder()
            .from(Mailbox::new(None, self.from.clone()))
            // A letter is none without somebody to whom it goes.
            .envelope(Envelope::new(Some(self.from.clone()), vec![self.from.clone()])?)
            .message_id(Some(format!("<{}@{}>", message.id, self.from.domain())))
            .subject(&message.subject)
            .header(ContentType::TEXT_PLAIN)
            .body(format!("{}{link}\n", message.text))?;
        Ok(letter.formatted())
    }
}

/// Hands a mail over for those of these addresses for which the server takes it. Where it hangs up when it is asked about one, that
/// one is left for later, and nobody has the mail yet.
async fn hand_over<'m>(
    connection: &mut AsyncSmtpConnection,
    letter: &[u8],
    to: &[&'m String],
    until: Instant,
) -> Session<'m> {
    let (mut addresses, mut accepted, mut rest) = (Vec::new(), Vec::new(), to.iter().copied());
    while addresses.len() < MOST_REFUSED && Instant::now() < until {
        let Some(address) = rest.next() else { break };
        let recipient = match address.parse::<Address>() {
            Ok(recipient) => recipient,
            Err(error) => {
                addresses.push((address, MailStatus::Refused(error.to_string())));
                continue;
            }
        };
        let asked = connection.command(commands::Rcpt::new(recipient, Vec::new()));
        let (status, is_over) = match timeout(ADDRESS_TIMEOUT, asked).await {
            Ok(Ok(_)) => {
                accepted.push(address);
                continue;
            }
            Ok(Err(error)) if error.is_permanent() => (MailStatus::Refused(reason(&error)), false),
            Ok(Err(error)) => {
                (MailStatus::Deferred(reason(&error)), !error.is_transient() || hangs_up(&error))
            }
            Err(_) => (MailStatus::Deferred(SILENT.to_owned()), true),
        };
        addresses.push((address, status));
        if is_over {
            return Session { addresses, accepted, rest: rest.collect(), hung_up: true, end: None };
        }
    }
    let rest = rest.collect();
    if accepted.is_empty() {
        return Session { addresses, accepted, rest, hung_up: false, end: None };
    }
    let data = async {
        connection.command(commands::Data).await?;
        connection.message(letter).await
    };
    let (status, end) = match timeout(DATA_TIMEOUT, data).await {
        Ok(Ok(_)) => (MailStatus::Sent, None),
        // Not for whom it goes to, which it was asked about before, but for what it is.
        Ok(Err(error)) if error.is_permanent() => {
            let reason = reason(&error);
            (MailStatus::Deferred(reason.clone()), Some(End { reason, status: MailStatus::NotAsked }))
        }
        Ok(Err(error)) => (MailStatus::Failed, Some(End::of_outage(reason(&error)))),
        Err(_) => (MailStatus::Failed, Some(End::of_outage(SILENT))),
    };
    addresses.extend(accepted.into_iter().map(|address| (address, status.clone())));
    Session { addresses, accepted: Vec::new(), rest, hung_up: false, end }
}

const SILENT: &str = "the mail server does not answer in time";

fn reason(error: &smtp::Error) -> String {
    format!("the mail server: {error}")
}

/// Whether the server ends the session by this answer, which may come to any command (RFC 5321, section 3.8).
fn hangs_up(error: &smtp::Error) -> bool {
    error.status().is_some_and(|code| u16::from(code) == 421)
}
