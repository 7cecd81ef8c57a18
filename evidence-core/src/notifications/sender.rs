//! Senders of notifications, and what is sent where. Plain data, so that whoever sends needs nothing of the store, and a host may
//! bring a sender of its own.

use async_trait::async_trait;

use crate::actions::record::Destination;
use crate::id::Id;
use crate::time::Timestamp;

/// One attempt at telling a target of an event.
#[derive(Debug, Clone)]
pub struct Message {
    /// What the delivery is told apart by: every attempt at it has the same, also after a crash.
    pub id: String,
    /// The organization.
    pub org: Id,
    /// When the attempt is made.
    pub at: Timestamp,
    /// Where to; of a mail's addresses those that are left.
    pub destination: Destination,
    /// What a webhook is sent: a JSON object, the same of every attempt unless something was renamed meanwhile.
    pub payload: String,
    /// What happened, in a sentence.
    pub text: String,
    /// What a mail about it is called.
    pub subject: String,
    /// Where to read more, if there is a page.
    pub link: Option<String>,
}

/// An attempt after which a target does not have all of a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NotSent {
    /// Why, for the log: of a URL nothing but its host. Answers of mail servers may name addresses.
    pub reason: String,
    /// What became of each of a mail's addresses; empty where the mail server answered for none, and of what is no mail.
    pub addresses: Vec<(String, MailStatus)>,
}

/// What became of a mail to an address.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MailStatus {
    /// The mail server took it.
    Sent,
    /// The mail server never takes it, for this reason.
    Refused(String),
    /// The mail server does not take it now, for this reason: it said so of this address, or hung up or said nothing when it
    /// was asked about it; or it refused the mail as it is, for whoever it would have taken it for.
    Deferred(String),
    /// The mail server was not asked about the address, or hung up after it had taken it, and then there was no time left, or it
    /// hung up too often, or it had refused the mail as it is.
    NotAsked,
    /// The mail server was away, or failed to take the mail that it would have taken for the address.
    Failed,
}

impl NotSent {
    /// An attempt by which nobody was told anything.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), addresses: Vec::new() }
    }

    /// Whether some of a mail's addresses have it.
    pub(crate) fn is_sent_to_some(&self) -> bool {
        self.addresses.iter().any(|(_, status)| *status == MailStatus::Sent)
    }

    /// The addresses that a mail may still come to, those last that the mail server does not take it for now, and among each
    /// those last that were given up before; nothing where it answered for none.
    pub(crate) fn left(&self, given_up: &[String]) -> Option<Vec<String>> {
        let is_left = |status: &MailStatus| !matches!(status, MailStatus::Sent | MailStatus::Refused(_));
        let mut left = Vec::from_iter(self.addresses.iter().filter(|(_, status)| is_left(status)));
        left.sort_by_key(|(address, status)| {
            (matches!(status, MailStatus::Deferred(_)), given_up.contains(address))
        });
        let left = left.into_iter().map(|(address, _)| address.clone()).collect();
        (!self.addresses.is_empty()).then_some(left)
    }

    /// Whether the mail server was there, and does not take the mail for some of the addresses for now.
    pub(crate) fn is_deferred(&self) -> bool {
        let was_there = self.addresses.iter().all(|(_, status)| *status != MailStatus::Failed);
        was_there && self.addresses.iter().any(|(_, status)| matches!(status, MailStatus::Deferred(_)))
    }

    /// The addresses that no mail comes to, and why.
    pub(crate) fn refused(&self) -> impl Iterator<Item = (&str, &str)> {
        self.addresses.iter().filter_map(|(address, status)| match status {
            MailStatus::Refused(reason) => Some((address.as_str(), reason.as_str())),
            _ => None,
        })
    }

    /// Why an address does not have the mail.
    pub(crate) fn reason_of(&self, address: &str) -> &str {
        let known = self.addresses.iter().find(|(known, _)| known == address);
        match known {
            Some((_, MailStatus::Refused(reason) | MailStatus::Deferred(reason))) => reason,
            _ => &self.reason,
        }
    }
}

/// Who sends.
#[async_trait]
pub trait Sender: Send + Sync + 'static {
    /// Tries to deliver a message, once and in bounded time. It may be dropped on the way.
    ///
    /// # Errors
    /// Where the target, or an address of it, does not have the message after this: the same comes again later, to those that
    /// are left.
    async fn send(&self, message: &Message) -> Result<(), NotSent>;
}
