//! The way out: what is sent where. Plain data, so that whoever sends needs nothing of the store, and a host may bring a
//! sender of its own.

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

/// Why an attempt failed, for the log: nothing of the destination but its host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotSent(pub String);

/// Who sends.
#[async_trait]
pub trait Sender: Send + Sync + 'static {
    /// Tries to deliver a message, once and in bounded time. It may be dropped on the way.
    ///
    /// # Errors
    /// Where the target did not say that it has it: the same comes again later.
    async fn send(&self, message: &Message) -> Result<(), NotSent>;
}
