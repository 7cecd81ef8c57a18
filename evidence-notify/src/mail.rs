//! Mails, by the operator's mail server: one session for the addresses of a mail, in which the server says of each whether it
//! takes it, and another where it refuses many.

use std::time::Duration;

use evidence_core::notifications::{Message, NotSent};
use lettre::Address;
use lettre::address::Envelope;
use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message as Letter};
use lettre::transport::smtp;
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::commands;
use lettre::transport::smtp::extension::{MailBodyParameter, MailParameter};
use tokio::time::timeout;

use crate::NoNotifier;
use crate::smtp::Server;

/// How long an attempt may take, and how much longer for each address: servers ask others about one, or make who names unknown
/// ones wait. And the longest, for other targets wait meanwhile.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);
const LONGEST_ATTEMPT: Duration = Duration::from_secs(150);

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
}

/// What the server says of the addresses of a mail.
#[derive(Default)]
struct Answers<'m> {
    /// Whether it takes the mail for any.
    is_taken: bool,
    /// Those that are refused for good, and why.
    refused: Vec<(&'m String, String)>,
    /// Those for which it may take the mail later, and why not now.
    left: Vec<(&'m String, String)>,
}

impl Answers<'_> {
    fn extend(&mut self, other: Self) {
        self.is_taken |= other.is_taken;
        self.refused.extend(other.refused);
        self.left.extend(other.left);
    }

    /// How many addresses do not have the mail.
    const fn refusals(&self) -> usize {
        self.refused.len() + self.left.len()
    }
}

/// What became of a session.
struct Session<'m> {
    answers: Answers<'m>,
    /// The addresses that the server has not answered for, or has not the mail for in spite of its answer.
    unasked: Vec<&'m String>,
    /// Why the server hung up before it had the mail.
    hung_up: Option<NotSent>,
}

impl Mail {
    pub(crate) fn new(url: &str, from: &str) -> Result<Self, NoNotifier> {
        let from = from.parse().map_err(NoNotifier::MailFrom)?;
        Ok(Self { server: Server::at(url).map_err(NoNotifier::Smtp)?, from })
    }

    /// Hands a mail to the mail server. Where it takes it for some of the addresses, those that it refuses for good are logged, and
    /// those that it refuses for now are left for the next attempt.
    pub(crate) async fn send(&self, message: &Message, to: &[String]) -> Result<(), NotSent> {
        let letter =
            self.letter(message).map_err(|error| NotSent::new(format!("no mail can be made: {error}")))?;
        let (mut told, mut rest, mut is_asked) = (Answers::default(), Vec::from_iter(to), false);
        let sessions = async {
            while !rest.is_empty() {
                let mut connection = self.server.connect().await.map_err(|error| refusal(&error))?;
                let session = self.hand_over(&mut connection, &letter, &rest, &mut is_asked).await;
                let session = session.map(|session| {
                    let refusals = session.answers.refusals();
                    told.extend(session.answers);
                    rest = session.unasked;
                    // A server that had enough of unknown addresses is asked about the others alone.
                    session.hung_up.filter(|_| refusals == 0)
                });
                // What became of the mail is noted: how the session ends, or that it does not, changes nothing about it.
                let _ = timeout(QUIT_TIMEOUT, connection.abort()).await;
                if let Some(error) = session? {
                    return Err(error);
                }
            }
            Ok(())
        };
        let addresses = u32::try_from(to.len()).unwrap_or(u32::MAX);
        let limit = ATTEMPT_TIMEOUT.saturating_add(ADDRESS_TIMEOUT.saturating_mul(addresses));
        let late = |_| Err(NotSent::new("the mail server does not answer in time"));
        if let Err(error) = timeout(limit.min(LONGEST_ATTEMPT), sessions).await.unwrap_or_else(late) {
            if !is_asked {
                return Err(error);
            }
            told.left.splice(..0, rest.into_iter().map(|address| (address, error.reason.clone())));
        }
        let Answers { is_taken, refused, left } = told;
        for (address, error) in &refused {
            tracing::debug!(id = message.id, address, error, "a mail is refused for good");
        }
        if is_taken {
            for (address, error) in &refused {
                tracing::warn!(id = message.id, address, error, "a mail does not come to an address");
            }
            if left.is_empty() {
                return Ok(());
            }
        }
        let reason = left.iter().chain(&refused).next().map(|(_, reason)| reason.clone());
        let reason = reason.unwrap_or_else(|| "the mail has no address".to_owned());
        let left = left.into_iter().map(|(address, _)| address.clone()).collect();
        Err(NotSent { reason, is_taken, left: Some(left) })
    }

    /// Hands the mail over for those for whom the server takes it, and notes when it is asked about them. With an error nobody
    /// has it.
    async fn hand_over<'m>(
        &self,
        connection: &mut AsyncSmtpConnection,
        letter: &[u8],
        to: &[&'m String],
        is_asked: &mut bool,
    ) -> Result<Session<'m>, NotSent> {
        let mut parameters = Vec::new();
        if !self.from.to_string().is_ascii() {
            parameters.push(MailParameter::SmtpUtfEight);
        }
        if !letter.is_ascii() {
            parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        let from = commands::Mail::new(Some(self.from.clone()), parameters);
        connection.command(from).await.map_err(|error| refusal(&error))?;
        *is_asked = true;
        let session = ask(connection, to).await;
        if session.answers.is_taken {
            connection.command(commands::Data).await.map_err(|error| refusal(&error))?;
            connection.message(letter).await.map_err(|error| refusal(&error))?;
        }
        Ok(session)
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

/// Asks for which of these addresses the server takes a mail.
async fn ask<'m>(connection: &mut AsyncSmtpConnection, to: &[&'m String]) -> Session<'m> {
    let (mut answers, mut accepted, mut rest) = (Answers::default(), Vec::new(), to.iter().copied());
    while answers.refusals() < MOST_REFUSED {
        let Some(address) = rest.next() else { break };
        let recipient = match address.parse::<Address>() {
            Ok(recipient) => recipient,
            Err(error) => {
                answers.refused.push((address, error.to_string()));
                continue;
            }
        };
        match connection.command(commands::Rcpt::new(recipient, Vec::new())).await {
            Ok(_) => accepted.push(address),
            Err(error) if error.is_permanent() => answers.refused.push((address, refusal(&error).reason)),
            Err(error) if error.is_transient() && !hangs_up(&error) => {
                answers.left.push((address, refusal(&error).reason));
            }
            Err(error) => {
                let unasked = accepted.into_iter().chain([address]).chain(rest).collect();
                return Session { answers, unasked, hung_up: Some(refusal(&error)) };
            }
        }
    }
    answers.is_taken = !accepted.is_empty();
    Session { answers, unasked: rest.collect(), hung_up: None }
}

fn refusal(error: &smtp::Error) -> NotSent {
    NotSent::new(format!("the mail server: {error}"))
}

/// Whether the server ends the session by this answer, which may come to any command (RFC 5321, section 3.8).
fn hangs_up(error: &smtp::Error) -> bool {
    error.status().is_some_and(|code| u16::from(code) == 421)
}
