//! Actions as they are recorded.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::actor::Actor;
use crate::digest::sha256_hex;
use crate::fact::payload::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::name::ActionName;
use crate::store::error::is_future;
use crate::time::Timestamp;

/// An action as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Action {
    /// Its id.
    pub id: Id,
    /// Its number in the organization, from 1, which no other action has had or gets.
    pub number: u64,
    /// Its name, unique in the organization.
    pub name: ActionName,
    /// What is watched.
    pub watched: Watched,
    /// What is told of that, as the API spells it (`ON_STARTED_ARTIFACT`), in the order given.
    pub triggers: Vec<String>,
    /// Where it is told, in the order given.
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

/// What an action watches, by id, in the order given. What is archived is watched no more, and an action left without
/// anything is over: archived things never come back, so this needs no record of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variants are what is watched")]
pub enum Watched {
    Environments(Vec<Id>),
    Flows(Vec<Id>),
}

impl Watched {
    /// The ids.
    pub fn ids(&self) -> &[Id] {
        let (Self::Environments(ids) | Self::Flows(ids)) = self;
        ids
    }

    /// The `type` of such an action.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Environments(_) => "env",
            Self::Flows(_) => "flow",
        }
    }
}

/// A place that notifications are sent to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its id, which it keeps as long as the action has this destination, or another of the same type in its stead: what
    /// waits for it is told all the same.
    pub id: Id,
    /// How it is reached.
    pub destination: Destination,
    /// When the action was given it, where that was later than the action's creation: it is told nothing from before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl Action {
    /// From when on a target of this action is told what happens. A time in the future was written by a clock that was
    /// ahead, and holds nothing back.
    pub fn tells_since(&self, target: &Target, now: Timestamp) -> Timestamp {
        let since = target.since.unwrap_or(self.created_at);
        if is_future(since, now) { Timestamp::from_micros(i64::MIN) } else { since }
    }
}

/// How a target is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    /// A POST of the payload, version 1.0.
    Webhook {
        /// Where to.
        url: SecretUrl,
    },
    /// An incoming webhook of Slack.
    Slack {
        /// Where to.
        url: SecretUrl,
        /// The channel it belongs to, as it was sent.
        context: Option<SlackContext>,
    },
    /// A mail.
    Email {
        /// To whom.
        addresses: Vec<String>,
    },
}

impl Destination {
    /// What tells an address apart from others, without telling it.
    pub fn address_digest(&self) -> String {
        match self {
            Self::Webhook { url } => sha256_hex(format!("webhook {}", url.expose()).as_bytes()),
            Self::Slack { url, .. } => sha256_hex(format!("slack {}", url.expose()).as_bytes()),
            Self::Email { addresses } => {
                let mut addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
                addresses.sort_unstable();
                sha256_hex(format!("email {}", addresses.join(" ")).as_bytes())
            }
        }
    }
}

/// The channel that an incoming webhook of Slack belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SlackAppContextResponse")]
pub struct SlackContext {
    /// The channel's id.
    pub channel_id: String,
    /// The channel's name.
    pub channel_name: String,
    /// The id of the team it is in.
    pub team_id: String,
}

/// A URL that is a credential: who knows it may post there. It stands in the fact, whence it is sent to, and in no
/// answer and no log.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// Keeps this URL secret.
    pub const fn new(url: String) -> Self {
        Self(url)
    }

    /// The URL, for whoever sends there.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretUrl(…)")
    }
}
