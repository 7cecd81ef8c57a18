//! Mails, by the operator's mail server: one session for the addresses of a mail, in which the server says of each whether it
//! takes it, and another where it refuses many or hangs up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evidence_core::id::Id;
use evidence_core::notifications::{MailStatus, Message, NotSent};
use lettre::Address;
use lettre::address::Envelope;
use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message as Letter};
use lettre::transport::smtp;
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::commands;
use lettre::transport::smtp::extension::{MailBodyParameter, MailParameter};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::NoNotifier;
use crate::smtp::Server;

/// How long it may take to begin a session, and to be answered about one address: servers ask others about it, or make who names
/// unknown ones wait.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(30);

/// How long after its beginning an attempt asks about further addresses: other targets wait meanwhile.
const LONGEST_ASKING: Duration = Duration::from_secs(150);

/// How long the server may take for the mail itself: half of what RFC 5321, section 4.5.3.2.6, asks for, for other targets wait
/// meanwhile. A mail that is given up while the server takes it comes again.
const DATA_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Mails that are handed over at the same time, in all and for one organization: half of the attempts that the job makes
/// (`evidence_core::notifications`), so that a mail server that takes minutes for each keeps no webhook waiting.
const MAILS: usize = 32;
const MAILS_OF_ORG: usize = 4;

/// How long a mail waits for one of these to end.
const SLOT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the end of a session may take, when its outcome is known.
const QUIT_TIMEOUT: Duration = Duration::from_secs(5);

/// After so many refusals the server is asked about the other addresses in another session: Postfix hangs up at 20
/// (`smtpd_hard_error_limit`), and then nobody has the mail.
const MOST_REFUSED: usize = 15;

/// The way to the mail server.
#[derive(Debug)]
pub(crate) struct Mail {
    server: Server,
    from: Address,
    slots: Slots,
}

/// Whose turn it is to hand over a mail.
#[derive(Debug)]
struct Slots {
    all: Semaphore,
    /// Of the organizations that have a mail under way, or one that waits.
    of_orgs: Mutex<BTreeMap<Id, Arc<Semaphore>>>,
}

impl Slots {
    /// Waits for a slot, which is kept until what is answered is dropped.
    async fn acquire(&self, org: Id) -> Option<(OwnedSemaphorePermit, SemaphorePermit<'_>)> {
        let of_org = {
            let mut of_orgs = self.of_orgs.lock().unwrap_or_else(PoisonError::into_inner);
            of_orgs.retain(|_, slots| Arc::strong_count(slots) > 1);
            Arc::clone(of_orgs.entry(org).or_insert_with(|| Arc::new(Semaphore::new(MAILS_OF_ORG))))
        };
        // An organization's mails wait for each other first, so that those who wait hold none of the others' slots.
        let acquire = async {
            let of_org = of_org.acquire_owned().await.ok()?;
            Some((of_org, self.all.acquire().await.ok()?))
        };
        timeout(SLOT_TIMEOUT, acquire).await.ok().flatten()
    }
}

/// What became of a session that was begun.
struct Session<'m> {
    /// What became of the mail to these.
    addresses: Vec<(&'m String, MailStatus)>,
    /// The addresses for which it would have taken the mail, had it not hung up.
    accepted: Vec<&'m String>,
    /// Those that it was not asked about.
    rest: Vec<&'m String>,
    /// Why the server does not take the mail, whoever it is for.
    failure: Option<String>,
}

impl Mail {
    pub(crate) fn new(url: &str, from: &str) -> Result<Self, NoNotifier> {
        let from = from.parse().map_err(NoNotifier::MailFrom)?;
        let slots = Slots { all: Semaphore::new(MAILS), of_orgs: Mutex::default() };
        Ok(Self { server: Server::at(url).map_err(NoNotifier::Smtp)?, from, slots })
    }

    /// Hands a mail to the mail server, for those of the addresses for which it takes it.
    pub(crate) async fn send(&self, message: &Message, to: &[String]) -> Result<(), NotSent> {
        let letter =
            self.letter(message).map_err(|error| NotSent::new(format!("no mail can be made: {error}")))?;
        let Some(_slot) = self.slots.acquire(message.org).await else {
            return Err(NotSent::new("the mail server takes its time at other mails"));
        };
        let until = Instant::now() + LONGEST_ASKING;
        let mut seen = BTreeSet::new();
        let mut rest: Vec<_> = to.iter().filter(|address| seen.insert(*address)).collect();
        let (mut known, mut accepted, mut failure) = (BTreeMap::new(), Vec::new(), None);
        while failure.is_none() && !(accepted.is_empty() && rest.is_empty()) {
            // Those for whom it would have taken the mail before it hung up have it before others are asked about, and more time.
            let (asked, later, until) = if accepted.is_empty() {
                (rest, Vec::new(), until)
            } else {
                (accepted, rest, until + LONGEST_ASKING / 2)
            };
            let session = if Instant::now() < until {
                self.session(&letter, &asked, until).await
            } else {
                Err("the mail server takes its time at other addresses".to_owned())
            };
            (accepted, rest, failure) = match session {
                Ok(mut session) => {
                    known.extend(session.addresses);
                    session.rest.extend(later);
                    (session.accepted, session.rest, session.failure)
                }
                Err(reason) => (Vec::new(), Vec::new(), Some(reason)),
            };
        }
        let status = |address| known.get(address).cloned().unwrap_or(MailStatus::NotAsked);
        let addresses: Vec<_> = to.iter().map(|address| (address.clone(), status(address))).collect();
        let mut reasons = addresses.iter().filter_map(|(_, status)| match status {
            MailStatus::Refused(reason) | MailStatus::Deferred(reason) => Some(reason),
            _ => None,
        });
        match failure.or_else(|| reasons.next().cloned()) {
            None if addresses.is_empty() => Err(NotSent::new("the mail has no address")),
            None => Ok(()),
            Some(reason) if addresses.iter().all(|(_, status)| *status == MailStatus::NotAsked) => {
                Err(NotSent::new(reason))
            }
            Some(reason) => Err(NotSent { reason, addresses }),
        }
    }

    /// A session with the mail server, in which it is asked about addresses until then. An error says why none was begun.
    async fn session<'m>(
        &self,
        letter: &[u8],
        to: &[&'m String],
        until: Instant,
    ) -> Result<Session<'m>, String> {
        let begin = async {
            let mut connection = self.server.connect().await?;
            connection.command(self.mail_from(letter)).await?;
            Ok(connection)
        };
        let begun: Result<_, smtp::Error> = timeout(SESSION_TIMEOUT, begin).await.map_err(|_| SILENT)?;
        let mut connection = begun.map_err(|error| reason(&error))?;
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
            return Session { addresses, accepted, rest: rest.collect(), failure: None };
        }
    }
    let rest = rest.collect();
    if accepted.is_empty() {
        return Session { addresses, accepted, rest, failure: None };
    }
    let data = async {
        connection.command(commands::Data).await?;
        connection.message(letter).await
    };
    let (status, failure) = match timeout(DATA_TIMEOUT, data).await {
        Ok(Ok(_)) => (MailStatus::Sent, None),
        Ok(Err(error)) if error.is_permanent() => {
            (MailStatus::Deferred(reason(&error)), Some(reason(&error)))
        }
        Ok(Err(error)) => (MailStatus::NotAsked, Some(reason(&error))),
        Err(_) => (MailStatus::NotAsked, Some(SILENT.to_owned())),
    };
    addresses.extend(accepted.into_iter().map(|address| (address, status.clone())));
    Session { addresses, accepted: Vec::new(), rest, failure }
}

const SILENT: &str = "the mail server does not answer in time";

fn reason(error: &smtp::Error) -> String {
    format!("the mail server: {error}")
}

/// Whether the server ends the session by this answer, which may come to any command (RFC 5321, section 3.8).
fn hangs_up(error: &smtp::Error) -> bool {
    error.status().is_some_and(|code| u16::from(code) == 421)
}
