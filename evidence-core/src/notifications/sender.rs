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
    /// Where to.
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

/// A failed attempt at delivering a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NotSent {
    /// Why, for the log: of a URL nothing but its host. Answers of mail servers may name addresses.
    pub reason: String,
}

impl NotSent {
    /// An attempt that failed for this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

/// Delivers messages.
#[async_trait]
pub trait Sender: Send + Sync + 'static {
    /// Tries to deliver a message once, in bounded time. The future may be dropped before it ends.
    ///
    /// # Errors
    /// If the target did not accept the message: the same message is sent again later.
    async fn send(&self, message: &Message) -> Result<(), NotSent>;
}
