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
    /// Of a mail's addresses those that did not take it for now, where others took it: the next attempt is made at these
    /// alone. Empty where nobody took it.
    pub left: Vec<String>,
    /// Whether a mail was refused for good to each address that it was to go to.
    pub is_final: bool,
}

impl NotSent {
    /// An attempt by which nobody was told anything.
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), left: Vec::new(), is_final: false }
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
