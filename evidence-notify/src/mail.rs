//! Mails, by the operator's mail server.

use std::time::Duration;

use evidence_core::notifications::{Message, NotSent};
use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message as Letter};
use lettre::transport::smtp;
use lettre::transport::smtp::response::{Category, Detail};
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Tokio1Executor};

use crate::NoNotifier;

/// How long each step of handing a mail over may take, and the whole, however many addresses there are.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
const WHOLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The way to the mail server.
#[derive(Debug)]
pub(crate) struct Mail {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Address,
}

/// A mail that was not taken.
struct Refused {
    error: NotSent,
    /// Whether one of its addresses may be why.
    for_an_address: bool,
}

impl Mail {
    pub(crate) fn new(url: &str, from: &str) -> Result<Self, NoNotifier> {
        let from = from.parse().map_err(NoNotifier::MailFrom)?;
        let transport = AsyncSmtpTransport::<Tokio1Executor>::from_url(url).map_err(NoNotifier::Smtp)?;
        Ok(Self { transport: transport.timeout(Some(STEP_TIMEOUT)).build(), from })
    }

    /// Hands a mail to the mail server. Once one of the addresses has it, it counts as sent, and what became of the others is
    /// logged: sent again, it would come to that one again at each attempt.
    pub(crate) async fn send(&self, message: &Message, to: &[String]) -> Result<(), NotSent> {
        let (mut is_taken, mut refused) = (false, Vec::new());
        let handing_out = self.hand_out(message, to, &mut is_taken, &mut refused);
        if tokio::time::timeout(WHOLE_TIMEOUT, handing_out).await.is_err() {
            refused.push(NotSent("the mail server does not answer in time".to_owned()));
        }
        if is_taken {
            for error in refused {
                tracing::warn!(id = message.id, %error, "a mail does not come to every address");
            }
            return Ok(());
        }
        refused.into_iter().next().map_or(Ok(()), Err)
    }

    /// One mail for all. Where an address may be why it is refused, one for each half of them, and so on, until each address has
    /// it or is refused by itself: with few that are, that takes few mails.
    async fn hand_out(
        &self,
        message: &Message,
        to: &[String],
        is_taken: &mut bool,
        refused: &mut Vec<NotSent>,
    ) {
        let mut groups = vec![to];
        while let Some(group) = groups.pop() {
            match self.hand_over(message, group).await {
                Ok(()) => *is_taken = true,
                Err(Refused { for_an_address: true, .. }) if group.len() > 1 => {
                    let (first, second) = group.split_at(group.len() / 2);
                    groups.extend([second, first]);
                }
                Err(Refused { error, for_an_address }) => {
                    refused.push(error);
                    if !for_an_address {
                        return;
                    }
                }
            }
        }
    }

    async fn hand_over(&self, message: &Message, to: &[String]) -> Result<(), Refused> {
        let letter = self.letter(message, to).map_err(|error| Refused {
            error: NotSent(format!("no mail can be made: {error}")),
            for_an_address: true,
        })?;
        let sent = self.transport.send(letter).await;
        sent.map(drop).map_err(|error| Refused {
            for_an_address: may_be_for_an_address(&error, to),
            error: NotSent(format!("the mail server: {error}")),
        })
    }

    /// Plain text, so that no name in it is taken for markup. Its id is that of the delivery, by which mail programs know a
    /// repetition.
    fn letter(&self, message: &Message, to: &[String]) -> Result<Letter, String> {
        let mut letter = Letter::builder()
            .from(Mailbox::new(None, self.from.clone()))
            .message_id(Some(format!("<{}@{}>", message.id, self.from.domain())))
            .subject(&message.subject)
            .header(ContentType::TEXT_PLAIN);
        for address in to {
            let address: Address = address.parse().map_err(|error| format!("{error}"))?;
            letter = letter.bcc(Mailbox::new(None, address));
        }
        let link = message.link.as_deref().map(|link| format!("\n\n{link}")).unwrap_or_default();
        letter.body(format!("{}{link}\n", message.text)).map_err(|error| error.to_string())
    }
}

/// Whether an address may be why the server refused a mail. That it did so at an address is not told, only its reply. Some are of
/// the connection or of the login (421, 535). Others are of an address where they name one: 454 is also a login that fails
/// for now, and 554 a mail whose content is refused, of which each address would be refused the same.
fn may_be_for_an_address(error: &smtp::Error, to: &[String]) -> bool {
    let Some(code) = error.status() else { return false };
    match (code.category, code.detail) {
        (Category::Connections | Category::Unspecified3, _) => false,
        (Category::MailSystem, Detail::Four) => {
            let reply = error.to_string().to_lowercase();
            to.iter().any(|address| reply.contains(&address.to_lowercase()))
        }
        _ => true,
    }
}
