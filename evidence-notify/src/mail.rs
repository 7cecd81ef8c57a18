//! Mail over the operator's relay. Each attempt hands a mail to the relay once, for all addresses. If the
//! relay rejects one of them, nobody gets the mail, and the delivery is retried like a webhook.

use std::collections::BTreeSet;
use std::time::Duration;

use evidence_core::notifications::{Message, NotSent};
use lettre::address::Envelope;
use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message as Letter};
use lettre::{Address, AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use tokio::time::timeout;

use crate::NoNotifier;

/// The timeout of an attempt. A mail that the relay accepts later is sent again, with the same `Message-ID`.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// The operator's relay.
#[derive(Debug)]
pub(crate) struct Mail {
    relay: AsyncSmtpTransport<Tokio1Executor>,
    from: Address,
}

impl Mail {
    pub(crate) fn new(url: &str, from: &str) -> Result<Self, NoNotifier> {
        let from = from.parse().map_err(NoNotifier::MailFrom)?;
        let relay = AsyncSmtpTransport::<Tokio1Executor>::from_url(url).map_err(NoNotifier::Smtp)?.build();
        Ok(Self { relay, from })
    }

    /// Hands a mail to the relay.
    pub(crate) async fn send(&self, message: &Message, to: &[String]) -> Result<(), NotSent> {
        let envelope = self.envelope(to)?;
        let letter = self
            .letter(message, envelope.clone())
            .map_err(|error| NotSent::new(format!("the mail cannot be created: {error}")))?;
        let sent = timeout(ATTEMPT_TIMEOUT, self.relay.send_raw(&envelope, &letter)).await;
        match sent {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(NotSent::new(format!("the mail server: {error}"))),
            Err(_) => Err(NotSent::new("the mail server does not answer in time")),
        }
    }

    /// Returns the envelope, with each address once.
    fn envelope(&self, to: &[String]) -> Result<Envelope, NotSent> {
        let mut seen = BTreeSet::new();
        let addresses = to.iter().filter(|address| seen.insert(*address)).map(|address| {
            address.parse().map_err(|error| NotSent::new(format!("{address} is not an address: {error}")))
        });
        let addresses = addresses.collect::<Result<Vec<Address>, _>>()?;
        Envelope::new(Some(self.from.clone()), addresses).map_err(|_| NotSent::new("the mail has no address"))
    }

    /// Returns the mail as plain text, so that mail programs interpret no name in it as markup. Its id is the
    /// id of the delivery, by which mail programs recognize a repetition. Only the envelope has the
    /// addresses.
    fn letter(&self, message: &Message, envelope: Envelope) -> Result<Vec<u8>, lettre::error::Error> {
        let link = message.link.as_deref().map(|link| format!("\n\n{link}")).unwrap_or_default();
        let letter = Letter::builder()
            .from(Mailbox::new(None, self.from.clone()))
            .envelope(envelope)
            .message_id(Some(format!("<{}@{}>", message.id, self.from.domain())))
            .subject(&message.subject)
            .header(ContentType::TEXT_PLAIN)
            .body(format!("{}{link}\n", message.text))?;
        Ok(letter.formatted())
    }
}
