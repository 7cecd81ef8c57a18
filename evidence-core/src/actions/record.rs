//! The recorded form of actions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::actions::secret_url::UrlRecord;
use crate::auth::actor::Actor;
use crate::decode::{UnknownFields, keep_unknown_fields};
use crate::digest::sha256_hex;
use crate::id::Id;
use crate::name::ActionName;
use crate::store::error::is_future;
use crate::time::Timestamp;

/// An action as recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Action {
    /// Its id.
    pub id: Id,
    /// Its number in the organization, from 1. Numbers are never reused.
    pub number: u64,
    /// Its name, unique in the organization.
    pub name: ActionName,
    /// The environments or flows that it watches.
    pub watched: Watched,
    /// The events that it notifies of, as named in the API (`ON_STARTED_ARTIFACT`), in the given order.
    pub triggers: Vec<String>,
    /// The targets of its notifications, in the given order.
    pub targets: Vec<Target>,
    /// When it was created.
    pub created_at: Timestamp,
    /// The user or service account that created it.
    pub created_by: Actor,
    /// When it last changed.
    pub last_modified_at: Timestamp,
    /// Fields that a newer version of the program recorded.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(Action);

/// The resources that an action watches, by id, in the given order. Archived resources are no longer watched.
/// When all are archived, the action is over; because archiving cannot be undone, this needs no separate
/// record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variants are what is watched")]
pub enum Watched {
    Environments(Vec<Id>),
    Flows(Vec<Id>),
}

impl Watched {
    /// Returns the ids.
    pub fn ids(&self) -> &[Id] {
        let (Self::Environments(ids) | Self::Flows(ids)) = self;
        ids
    }

    /// Returns the `type` of such an action.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Environments(_) => "env",
            Self::Flows(_) => "flow",
        }
    }
}

/// A target of notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its id. It stays the same as long as the action has this destination, or another of the same type that
    /// replaced it. Pending notifications are still delivered then.
    pub id: Id,
    /// The way in which it is reached.
    pub destination: Destination,
    /// When it was added to the action, if later than the action's creation. It gets no notifications of
    /// earlier events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl Action {
    /// Returns the secret URLs of its targets.
    pub fn urls(&self) -> impl Iterator<Item = &UrlRecord> {
        self.targets.iter().filter_map(|target| target.destination.url())
    }

    /// Returns the time since which a target of this action gets notifications. A time in the future was
    /// written with a wrong clock, and is ignored.
    pub fn notifies_since(&self, target: &Target, now: Timestamp) -> Timestamp {
        let since = target.since.unwrap_or(self.created_at);
        if is_future(since, now) { Timestamp::from_micros(i64::MIN) } else { since }
    }
}

/// The way in which a target is reached. URLs are `U`: records in facts, and the URLs themselves for sending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination<U = UrlRecord> {
    /// A POST of the payload, version 1.0.
    Webhook {
        /// The URL.
        url: U,
    },
    /// An incoming webhook of Slack.
    Slack {
        /// The URL.
        url: U,
        /// The channel of the webhook, as sent.
        context: Option<SlackContext>,
    },
    /// An email.
    Email {
        /// The recipients.
        addresses: Vec<String>,
    },
}

impl<U> Destination<U> {
    /// Returns the URL, if this destination has one.
    pub const fn url(&self) -> Option<&U> {
        match self {
            Self::Webhook { url } | Self::Slack { url, .. } => Some(url),
            Self::Email { .. } => None,
        }
    }

    /// Returns the same destination with another form of its URL.
    ///
    /// # Errors
    /// Those of `form`.
    pub fn try_with_url<V, E>(&self, form: impl FnOnce(&U) -> Result<V, E>) -> Result<Destination<V>, E> {
        Ok(match self {
            Self::Webhook { url } => Destination::Webhook { url: form(url)? },
            Self::Slack { url, context } => Destination::Slack { url: form(url)?, context: context.clone() },
            Self::Email { addresses } => Destination::Email { addresses: addresses.clone() },
        })
    }
}

impl Destination {
    /// Returns a digest that identifies an address without revealing it.
    pub fn address_digest(&self) -> String {
        match self {
            Self::Webhook { url } => sha256_hex(format!("webhook {}", url.digest).as_bytes()),
            Self::Slack { url, .. } => sha256_hex(format!("slack {}", url.digest).as_bytes()),
            Self::Email { addresses } => {
                let mut addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
                addresses.sort_unstable();
                sha256_hex(format!("email {}", addresses.join(" ")).as_bytes())
            }
        }
    }
}

/// The channel of a Slack incoming webhook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SlackAppContextResponse")]
pub struct SlackContext {
    /// The channel's id.
    pub channel_id: String,
    /// The channel's name.
    pub channel_name: String,
    /// The id of the channel's team.
    pub team_id: String,
}
