//! Targets as they are sent, and what is refused of them when an action is saved.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::actions::record::{Destination, SecretUrl, SlackContext, Target};
use crate::bounded::{List, Mailbox, ShortText, WebUrl};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::rules::egress::Egress;
use crate::time::SentSeconds;

/// Where notifications are sent. `WEBHOOK` and `SLACK` take a `webhook`, `EMAIL` takes `emails`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ActionTarget")]
pub struct TargetInput {
    /// How it is reached. Left out, it is `EMAIL` where there are `emails`, `SLACK` where there is a `context`, else
    /// `WEBHOOK`.
    #[serde(rename = "type")]
    pub kind: Option<TargetKind>,
    /// Of `WEBHOOK` and `SLACK`: the URL that is posted to, which has to be `https` and of a host that is reached over the
    /// internet, unless the operator of the server allows others. Answers leave it empty, for it is a secret.
    pub webhook: Option<WebUrl>,
    /// Of `WEBHOOK`: the form of what is posted.
    pub payload_version: Option<PayloadVersion>,
    /// Of `SLACK`: the channel.
    pub context: Option<SlackContextInput>,
    /// Of `EMAIL`: to whom.
    pub emails: Option<List<Mailbox, 100>>,
    /// Passed over: the server knows this itself.
    pub last_success_at: Option<SentSeconds>,
    /// Passed over: the server knows this itself.
    pub last_failure_at: Option<SentSeconds>,
}

/// How a target is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TargetKind {
    /// A POST of the payload.
    Webhook,
    /// A message of an incoming webhook of Slack.
    Slack,
    /// A mail.
    Email,
}

/// The form of what is posted to a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum PayloadVersion {
    /// The only one.
    #[serde(rename = "1.0")]
    One,
}

/// The channel that an incoming webhook of Slack belongs to. It is kept and answered, and has no effect.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SlackAppContext")]
pub struct SlackContextInput {
    /// The channel's id.
    pub channel_id: ShortText,
    /// The channel's name.
    pub channel_name: ShortText,
    /// The id of the team it is in.
    pub team_id: ShortText,
}

impl From<&SlackContextInput> for SlackContext {
    fn from(sent: &SlackContextInput) -> Self {
        let SlackContextInput { channel_id, channel_name, team_id } = sent;
        Self {
            channel_id: channel_id.to_string(),
            channel_name: channel_name.to_string(),
            team_id: team_id.to_string(),
        }
    }
}

impl TargetInput {
    const fn kind(&self) -> TargetKind {
        match self.kind {
            Some(kind) => kind,
            None if self.emails.is_some() => TargetKind::Email,
            None if self.context.is_some() => TargetKind::Slack,
            None => TargetKind::Webhook,
        }
    }

    /// The destination that the target at this place of the list names.
    fn destination(&self, place: usize, egress: &Egress) -> Result<Destination> {
        let field = |name: &str| format!("targets[{place}].{name}");
        let given = [
            ("webhook", self.webhook.is_some()),
            ("payload_version", self.payload_version.is_some()),
            ("context", self.context.is_some()),
            ("emails", self.emails.is_some()),
        ];
        let known: &[&str] = match self.kind() {
            TargetKind::Webhook => &["webhook", "payload_version"],
            TargetKind::Slack => &["webhook", "context"],
            TargetKind::Email => &["emails"],
        };
        if let Some((name, _)) = given.into_iter().find(|(name, given)| *given && !known.contains(name)) {
            return Err(Error::invalid(field(name), "Targets of this type have no such field"));
        }
        let url = || {
            let url = self.webhook.clone().ok_or_else(|| missing(field("webhook")))?.into_string();
            egress.check_url(&url).map_err(|why| Error::invalid(field("webhook"), why.to_string()))?;
            Ok::<_, Error>(SecretUrl::new(url))
        };
        Ok(match self.kind() {
            TargetKind::Webhook => Destination::Webhook { url: url()? },
            TargetKind::Slack => {
                Destination::Slack { url: url()?, context: self.context.as_ref().map(SlackContext::from) }
            }
            TargetKind::Email => {
                let emails = self.emails.as_ref().ok_or_else(|| missing(field("emails")))?;
                Destination::Email { addresses: emails.0.iter().map(|one| one.as_str().to_owned()).collect() }
            }
        })
    }
}

fn missing(field: String) -> Error {
    Error::invalid(field, "Field required [input: None]")
}

/// The targets, each with the id that the action's target of the same destination has, or a new one.
pub(super) fn resolved(
    sent: &[TargetInput],
    known: &[Target],
    egress: &Egress,
    new_id: impl Fn() -> Id,
) -> Result<Vec<Target>> {
    let mut known: Vec<&Target> = known.iter().collect();
    let resolve = |(place, target): (usize, &TargetInput)| {
        let destination = target.destination(place, egress)?;
        let at = known.iter().position(|one| one.destination == destination);
        let id = at.map_or_else(&new_id, |at| known.swap_remove(at).id);
        Ok(Target { id, destination })
    };
    sent.iter().enumerate().map(resolve).collect()
}
