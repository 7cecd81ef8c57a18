//! Senders of notifications and their messages. A message is plain data, so a sender needs no store, and a
//! host can provide its own.

use async_trait::async_trait;

use crate::actions::record::Destination;
use crate::actions::secret_url::SecretUrl;
use crate::id::Id;
use crate::time::Timestamp;

/// An event for one target.
#[derive(Debug, Clone)]
pub struct Message {
    /// The id of the delivery. It is the same for every attempt, also after a crash.
    pub id: String,
    /// The organization.
    pub org: Id,
    /// The time of the attempt.
    pub at: Timestamp,
    /// The destination.
    pub destination: Destination<SecretUrl>,
    /// The JSON object for a webhook. It is the same for every attempt unless something was renamed
    /// meanwhile.
    pub payload: String,
    /// The event as a sentence.
    pub text: String,
    /// The subject of a mail about it.
    pub subject: String,
    /// The link to a page about it, if there is one.
    pub link: Option<String>,
}

/// A failed attempt at delivering a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NotSent {
    /// The reason, for the log. It contains at most the host of a URL. Replies of mail servers may contain
    /// addresses.
    pub reason: String,
}

impl NotSent {
    /// Creates the error for this reason.
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
    /// If the target did not accept the message. The same message is sent again later.
    async fn send(&self, message: &Message) -> Result<(), NotSent>;
}
