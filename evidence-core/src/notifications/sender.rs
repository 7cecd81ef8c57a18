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

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NotSent {
    /// Why, for the log: nothing of the destination but its host.
    pub reason: String,
    /// Whether some of a mail's addresses took it.
    pub is_taken: bool,
    /// Which of a mail's addresses did not take it and may later: the others took it, or it was refused for good. Nothing where
    /// the server was not asked about any, and of what is no mail.
    pub left: Option<Vec<String>>,
}

impl NotSent {
    /// An attempt by which nobody was told anything.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_taken: false, left: None }
    }
}

/// Who sends.
#[async_trait]
pub trait Sender: Send + Sync + 'static {
    /// Tries to deliver a message, once and in bounded time. It may be dropped on the way.
    ///
    /// # Errors
    /// Where the target did not say that it has it: the same comes again later, to those who are left.
    async fn send(&self, message: &Message) -> Result<(), NotSent>;
}
