//! Mails, by the operator's mail server.

use std::time::Duration;

use evidence_core::notifications::{Message, NotSent};
use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message as Letter};
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Tokio1Executor};

use crate::NoNotifier;

/// How long each step of handing a mail over may take, and the whole.
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
    /// Whether the server would refuse it again.
    for_good: bool,
}

impl Mail {
    pub(crate) fn new(url: &str, from: &str) -> Result<Self, NoNotifier> {
        let from = from.parse().map_err(NoNotifier::MailFrom)?;
        let transport = AsyncSmtpTransport::<Tokio1Executor>::from_url(url).map_err(NoNotifier::Smtp)?;
        Ok(Self { transport: transport.timeout(Some(STEP_TIMEOUT)).build(), from })
    }

    /// Hands a mail to the mail server: one for all, or, where the server refuses an address for good, one for each of them, of
    /// which one has to be taken.
    pub(crate) async fn send(&self, message: &Message, to: &[String]) -> Result<(), NotSent> {
        let all = self.hand_over(message, to).await;
        let refused = match all {
            Err(Refused { error, for_good: true }) if to.len() > 1 => error,
            outcome => return outcome.map_err(|refused| refused.error),
        };
        let mut taken = Err(refused);
        for address in to {
            match self.hand_over(message, std::slice::from_ref(address)).await {
                Ok(()) => taken = Ok(()),
                Err(Refused { error, for_good: true }) => {
                    tracing::warn!(id = message.id, %error, "the mail server refuses an address");
                }
                Err(Refused { error, .. }) => return Err(error),
            }
        }
        taken
    }

    async fn hand_over(&self, message: &Message, to: &[String]) -> Result<(), Refused> {
        let refused = |text: String, for_good| Refused { error: NotSent(text), for_good };
        let letter = self
            .letter(message, to)
            .map_err(|error| refused(format!("no mail can be made: {error}"), false))?;
        match tokio::time::timeout(WHOLE_TIMEOUT, self.transport.send(letter)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(refused(format!("the mail server: {error}"), error.is_permanent())),
            Err(_) => Err(refused("the mail server does not answer in time".to_owned(), false)),
        }
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
