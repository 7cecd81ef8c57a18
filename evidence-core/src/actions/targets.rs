//! Targets as sent, and the checks when an action is saved.

use std::mem::discriminant;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::actions::egress::Egress;
use crate::actions::record::{Destination, SecretUrl, SlackContext, Target};
use crate::bounded::{List, Mailbox, ShortText, WebhookUrl};
use crate::error::{Error, Result};
use crate::id::Id;
use crate::time::{SentSeconds, Timestamp};

/// A target of notifications. `WEBHOOK` and `SLACK` need a `webhook`; `EMAIL` needs `emails`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ActionTarget")]
pub struct TargetInput {
    /// The way in which it is reached. Defaults to `EMAIL` if there are `emails`, to `SLACK` if there is a
    /// `context`, otherwise to `WEBHOOK`.
    #[serde(rename = "type")]
    pub kind: Option<TargetKind>,
    /// For `WEBHOOK` and `SLACK`: the URL to post to. It must be an `https` URL of a host on the public
    /// internet, unless the operator of the server allows others. It is a secret, so responses leave it
    /// empty.
    pub webhook: Option<WebhookUrl>,
    /// For `WEBHOOK`: the format of the payload.
    pub payload_version: Option<PayloadVersion>,
    /// For `SLACK`: the channel.
    pub context: Option<SlackContextInput>,
    /// For `EMAIL`: the recipients.
    pub emails: Option<List<Mailbox, 100>>,
    /// Ignored: the server determines this itself.
    pub last_success_at: Option<SentSeconds>,
    /// Ignored: the server determines this itself.
    pub last_failure_at: Option<SentSeconds>,
}

/// The way in which a target is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TargetKind {
    /// A POST of the payload.
    Webhook,
    /// A message through a Slack incoming webhook.
    Slack,
    /// An email.
    Email,
}

/// The format of a webhook's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub enum PayloadVersion {
    /// The only value.
    #[serde(rename = "1.0")]
    One,
}

/// The channel of a Slack incoming webhook. It is recorded and returned, but has no effect.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "SlackAppContext")]
pub struct SlackContextInput {
    /// The channel's id.
    pub channel_id: ShortText,
    /// The channel's name.
    pub channel_name: ShortText,
    /// The id of the channel's team.
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

    /// Returns the destination of the target at this index of the list.
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

/// The criteria by which a target stays the same with another destination, from the strictest to the widest.
/// Its delivered and pending notifications are those of the destination that it replaces.
const STAYS: [fn(&Destination, &Destination) -> bool; 3] = [
    |was, is| was == is,
    |was, is| was.address_digest() == is.address_digest(),
    |was, is| discriminant(was) == discriminant(is),
];

/// Returns the targets. A target that the action already has keeps its id, even if its destination is
/// replaced by another of the same type. The others are new, and get notifications of events from `since` on.
pub(super) fn resolved(
    sent: &[TargetInput],
    known: &[Target],
    egress: &Egress,
    new_id: impl Fn() -> Id,
    since: Option<Timestamp>,
) -> Result<Vec<Target>> {
    let destinations = sent.iter().enumerate().map(|(place, target)| target.destination(place, egress));
    let destinations = destinations.collect::<Result<Vec<_>>>()?;
    let mut left: Vec<&Target> = known.iter().collect();
    let mut stay: Vec<Option<&Target>> = vec![None; destinations.len()];
    for stays in STAYS {
        for (destination, stay) in destinations.iter().zip(&mut stay).filter(|(_, stay)| stay.is_none()) {
            let at = left.iter().position(|known| stays(&known.destination, destination));
            *stay = at.map(|at| left.remove(at));
        }
    }
    let resolve = |(destination, stay): (Destination, Option<&Target>)| match stay {
        Some(known) => Target { destination, ..known.clone() },
        None => Target { id: new_id(), destination, since },
    };
    Ok(destinations.into_iter().zip(stay).map(resolve).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SINCE: Timestamp = Timestamp::from_seconds(9);

    fn sent(target: &str) -> TargetInput {
        let (kind, address) = target.split_once(' ').unwrap();
        let target = match kind {
            "mail" => json!({"emails": address.split(',').collect::<Vec<_>>()}),
            "chat" => {
                let (path, channel) = address.split_once('#').unwrap();
                let context = json!({"channel_id": channel, "channel_name": "", "team_id": ""});
                json!({"type": "SLACK", "webhook": format!("https://chat.example.com/{path}"), "context": context})
            }
            _ => json!({"webhook": format!("https://hooks.example.com/{address}")}),
        };
        serde_json::from_value(target).unwrap()
    }

    fn put(targets: &[&str], known: &[Target], since: Option<Timestamp>) -> Vec<Target> {
        let sent: Vec<_> = targets.iter().map(|target| sent(target)).collect();
        let number = std::cell::Cell::new(100 * known.len());
        let new_id = || {
            number.set(number.get() + 1);
            format!("00000000-0000-0000-0000-{:08}", number.get()).parse().unwrap()
        };
        resolved(&sent, known, &Egress::default(), new_id, since).unwrap()
    }

    #[test]
    fn a_target_stays_where_its_destination_does_or_another_of_its_type_takes_its_place() {
        /// The action's targets, the new ones, and for each of these the index of the former; `None` for a
        /// new target.
        type Case<'a> = (&'a [&'a str], &'a [&'a str], &'a [Option<usize>]);
        let table: [Case<'_>; 12] = [
            (&["hook a"], &["hook a"], &[Some(0)]),
            (&["hook a"], &["hook b"], &[Some(0)]),
            (&["hook a", "hook b"], &["hook b", "hook a"], &[Some(1), Some(0)]),
            (&["hook a", "hook b"], &["hook c", "hook a"], &[Some(1), Some(0)]),
            (&["hook a"], &["hook b", "hook a"], &[None, Some(0)]),
            (&["hook a"], &["hook b", "hook c"], &[Some(0), None]),
            (&["hook a", "hook a"], &["hook a", "hook a", "hook a"], &[Some(0), Some(1), None]),
            (&["hook a", "hook b"], &["hook b"], &[Some(1)]),
            (&["hook a"], &["mail a@b.example"], &[None]),
            (&["mail a@b.example,c@d.example"], &["mail c@d.example,a@b.example"], &[Some(0)]),
            (&["chat a#1", "chat b#1"], &["chat b#2", "chat c#1"], &[Some(1), Some(0)]),
            (&[], &["hook a"], &[None]),
        ];
        for (had, given, expected) in table {
            let had = put(had, &[], None);
            let targets = put(given, &had, Some(SINCE));
            let which = |target: &Target| had.iter().position(|known| known.id == target.id);
            assert_eq!(targets.iter().map(which).collect::<Vec<_>>(), expected, "{given:?}");
            for target in &targets {
                assert_eq!(target.since, which(target).is_none().then_some(SINCE), "{given:?}");
            }
            let destinations = put(given, &[], None).into_iter().map(|target| target.destination);
            assert!(targets.into_iter().map(|target| target.destination).eq(destinations), "{given:?}");
        }
    }
}
