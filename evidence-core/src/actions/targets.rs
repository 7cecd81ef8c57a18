//! Targets as sent, and the checks when an action is saved.

use std::convert::Infallible;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::actions::egress::Egress;
use crate::actions::record::{Destination, SlackContext, Target};
use crate::actions::secret_url::{SecretUrl, UrlRecord};
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
    fn destination(&self, place: usize, egress: &Egress) -> Result<Destination<SecretUrl>> {
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

/// A target that an action has, with its secret URL.
#[derive(Debug, Clone)]
pub(super) struct KnownTarget {
    pub(super) target: Target,
    /// Its destination; `None` if the URL cannot be read, so that no destination equals it.
    pub(super) destination: Option<Destination<SecretUrl>>,
}

impl KnownTarget {
    fn is_at(&self, destination: &Destination<SecretUrl>) -> bool {
        self.destination.as_ref() == Some(destination)
    }

    fn has_address_of(&self, destination: &Destination<SecretUrl>) -> bool {
        self.destination.as_ref().is_some_and(|known| address(known) == address(destination))
    }

    /// Returns whether its URL cannot be read, and has the type and the host of this destination.
    fn may_be_at_host_of(&self, destination: &Destination<SecretUrl>) -> bool {
        let known = self.target.destination.url().filter(|_| self.destination.is_none());
        let host = destination.url().map(SecretUrl::host);
        known.is_some_and(|known| Some(&known.host) == host.as_ref()) && self.has_type_of(destination)
    }

    fn has_type_of(&self, destination: &Destination<SecretUrl>) -> bool {
        kind(&self.target.destination) == kind(destination)
    }
}

const fn kind<U>(destination: &Destination<U>) -> TargetKind {
    match destination {
        Destination::Webhook { .. } => TargetKind::Webhook,
        Destination::Slack { .. } => TargetKind::Slack,
        Destination::Email { .. } => TargetKind::Email,
    }
}

/// Returns the type and the addresses, in one order.
fn address(destination: &Destination<SecretUrl>) -> (TargetKind, Vec<&str>) {
    let mut addresses = match destination {
        Destination::Webhook { url } | Destination::Slack { url, .. } => vec![url.expose()],
        Destination::Email { addresses } => addresses.iter().map(String::as_str).collect(),
    };
    addresses.sort_unstable();
    (kind(destination), addresses)
}

/// The criteria by which a target stays the same with another destination, from the strictest to the widest.
/// Its delivered and pending notifications are those of the destination that it replaces.
const STAYS: [fn(&KnownTarget, &Destination<SecretUrl>) -> bool; 4] = [
    KnownTarget::is_at,
    KnownTarget::has_address_of,
    KnownTarget::may_be_at_host_of,
    KnownTarget::has_type_of,
];

/// Returns the destinations, if all are allowed.
pub(super) fn destinations(sent: &[TargetInput], egress: &Egress) -> Result<Vec<Destination<SecretUrl>>> {
    sent.iter().enumerate().map(|(place, target)| target.destination(place, egress)).collect()
}

/// Returns the targets. A target that the action already has keeps its id, even if its destination is
/// replaced by another of the same type, and it keeps the record of its URL if the URL is the same. The others are new, and
/// get notifications of events from `since` on. `record` returns the record of a new URL.
pub(super) fn resolved(
    destinations: Vec<Destination<SecretUrl>>,
    known: &[KnownTarget],
    new_id: impl Fn() -> Id,
    mut record: impl FnMut(&SecretUrl) -> UrlRecord,
    since: Option<Timestamp>,
) -> Vec<Target> {
    let mut left: Vec<&KnownTarget> = known.iter().collect();
    let mut stay: Vec<Option<&KnownTarget>> = vec![None; destinations.len()];
    for stays in STAYS {
        for (destination, stay) in destinations.iter().zip(&mut stay).filter(|(_, stay)| stay.is_none()) {
            let at = left.iter().position(|known| stays(known, destination));
            *stay = at.map(|at| left.remove(at));
        }
    }
    let mut resolve = |(destination, stay): (Destination<SecretUrl>, Option<&KnownTarget>)| {
        let same = stay.filter(|known| known.has_address_of(&destination));
        let same = same.and_then(|known| known.target.destination.url());
        let recorded =
            destination.try_with_url(|url| Ok::<_, Infallible>(same.cloned().unwrap_or_else(|| record(url))));
        let Ok(destination) = recorded;
        match stay {
            Some(known) => Target { destination, ..known.target.clone() },
            None => Target { id: new_id(), destination, since },
        }
    };
    destinations.into_iter().zip(stay).map(&mut resolve).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::actions::secret_url::StoredUrl;
    use crate::fixtures::id;
    use crate::id::Random;
    use crate::ledger::Hash;

    const SINCE: Timestamp = Timestamp::from_seconds(9);

    fn sent(target: &str) -> TargetInput {
        let (kind, address) = target.split_once(' ').unwrap();
        let target = match kind {
            "host" => json!({"webhook": format!("https://{address}.example/x")}),
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

    /// Gives equal URLs equal digests.
    struct Zeros;

    impl Random for Zeros {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }

    /// Returns the destination of a target as recorded, except for the id of its URL.
    fn recorded(known: &KnownTarget) -> Destination<(String, Hash)> {
        let form = |url: &UrlRecord| Ok::<_, Infallible>((url.host.clone(), url.digest));
        let Ok(destination) = known.target.destination.try_with_url(form);
        destination
    }

    fn put(targets: &[&str], known: &[KnownTarget], since: Option<Timestamp>) -> Vec<KnownTarget> {
        let sent: Vec<_> = targets.iter().map(|target| sent(target)).collect();
        let destinations = destinations(&sent, &Egress::default()).unwrap();
        let number = std::cell::Cell::new(100 * known.len() as u64);
        let new_id = || {
            number.set(number.get() + 1);
            id(number.get())
        };
        let record = |url: &SecretUrl| StoredUrl::of(url, new_id(), None, &Zeros).0;
        let targets = resolved(destinations.clone(), known, new_id, record, since);
        let known = |(target, destination)| KnownTarget { target, destination: Some(destination) };
        targets.into_iter().zip(destinations).map(known).collect()
    }

    #[test]
    fn a_url_keeps_its_record_while_it_stays_and_can_be_read() {
        let had = put(&["hook a", "hook b", "chat a#1"], &[], None);
        let urls = |targets: &[KnownTarget]| {
            targets.iter().map(|known| known.target.destination.url().unwrap().id).collect::<Vec<_>>()
        };
        let [a, b, chat] = urls(&had)[..] else { panic!("three") };
        let again = urls(&put(&["hook b", "hook a", "chat a#2"], &had, None));
        assert_eq!(again, [b, a, chat]);
        let changed = urls(&put(&["hook c", "hook b", "chat b#1"], &had, None));
        assert!(changed[0] != a && changed[1] == b && changed[2] != chat);
        let unreadable = |known: &[KnownTarget]| {
            let unreadable = known.iter().map(|known| KnownTarget { destination: None, ..known.clone() });
            unreadable.collect::<Vec<_>>()
        };
        let sent_again = put(&["hook a", "hook b", "chat a#1"], &unreadable(&had), None);
        assert!(urls(&sent_again).iter().all(|url| ![a, b, chat].contains(url)));
        assert!(sent_again.iter().zip(&had).all(|(is, was)| is.target.id == was.target.id));
        // Unreadable URLs are told apart by their hosts, in whatever order they are sent.
        let hosts = unreadable(&put(&["host a", "host b"], &[], None));
        let turned = put(&["host b", "host a"], &hosts, None);
        let targets = |known: &[KnownTarget]| Vec::from_iter(known.iter().map(|known| known.target.id));
        assert_eq!(targets(&turned), [targets(&hosts)[1], targets(&hosts)[0]]);
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
            let which = |is: &KnownTarget| had.iter().position(|was| was.target.id == is.target.id);
            assert_eq!(targets.iter().map(which).collect::<Vec<_>>(), expected, "{given:?}");
            for target in &targets {
                assert_eq!(target.target.since, which(target).is_none().then_some(SINCE), "{given:?}");
            }
            let destinations = put(given, &[], None);
            assert!(targets.iter().map(recorded).eq(destinations.iter().map(recorded)), "{given:?}");
        }
    }
}
