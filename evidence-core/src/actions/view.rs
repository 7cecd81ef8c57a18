//! Actions as answers carry them.

use std::collections::BTreeMap;

use futures_util::{Stream, TryFutureExt, stream};
use schemars::JsonSchema;
use serde::Serialize;

use crate::actions::record::{Action, Destination, SlackContext, Target, Watched};
use crate::error::Result;
use crate::id::Id;
use crate::notifications::store::Delivery;
use crate::service::{Context, OwnedContext};
use crate::store::batch::{LONG_RECORDS, distinct, sort_by_ids};
use crate::time::{Seconds, Timestamp};

/// An action: of what happens in environments or flows, and where, somebody is notified.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ActionResponse")]
#[non_exhaustive]
pub struct ActionView {
    /// Its name, unique in the organization.
    pub name: String,
    /// `env` for one about environments, `flow` for one about flows.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What it is found by: numbers begin at 1, and none is given again.
    pub number: u64,
    /// Where notifications are sent, in the order given.
    pub targets: Vec<TargetView>,
    /// What is told, in the order given.
    pub triggers: Vec<String>,
    /// The name of the user or service account that created it.
    pub created_by: String,
    /// Always false: there is no Slack app.
    pub is_created_from_slack_app: bool,
    /// Whether the last attempt at one of its targets failed.
    pub is_failing: bool,
    /// When a notification was last delivered, in epoch seconds; null before the first one.
    pub last_success_timestamp: Option<Seconds>,
    /// When an attempt last failed, in epoch seconds; null before the first one.
    pub last_failure_timestamp: Option<Seconds>,
    /// When it was created, in epoch seconds.
    pub created_at: Seconds,
    /// When it last changed, in epoch seconds.
    pub last_modified_at: Seconds,
    /// The environments that it is about, by name, in the order given; null for one about flows.
    pub environments: Option<Vec<String>>,
    /// The flows that it is about, by name, in the order given; null for one about environments.
    pub flows: Option<Vec<String>>,
}

/// A target as it is shown, and what became of the last attempts.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "ActionTargetResponse")]
#[non_exhaustive]
pub enum TargetView {
    /// A POST of the payload.
    Webhook {
        /// `WEBHOOK`.
        #[serde(rename = "type")]
        kind: &'static str,
        /// Always empty: the URL is a secret.
        webhook: &'static str,
        /// The form of what is posted: `1.0`.
        payload_version: &'static str,
        /// When a notification was last delivered to this target, in epoch seconds.
        last_success_at: Option<Seconds>,
        /// When a delivery attempt to this target last failed, in epoch seconds.
        last_failure_at: Option<Seconds>,
    },
    /// A message of an incoming webhook of Slack.
    Slack {
        /// `SLACK`.
        #[serde(rename = "type")]
        kind: &'static str,
        /// Always empty: the URL is a secret.
        webhook: &'static str,
        /// The channel, as it was sent; null where it was not.
        context: Option<SlackContext>,
        /// When a notification was last delivered to this target, in epoch seconds.
        last_success_at: Option<Seconds>,
        /// When a delivery attempt to this target last failed, in epoch seconds.
        last_failure_at: Option<Seconds>,
    },
    /// A mail.
    Email {
        /// `EMAIL`.
        #[serde(rename = "type")]
        kind: &'static str,
        /// To whom.
        emails: Vec<String>,
        /// When a notification was last delivered to this target, in epoch seconds.
        last_success_at: Option<Seconds>,
        /// When a delivery attempt to this target last failed, in epoch seconds.
        last_failure_at: Option<Seconds>,
    },
}

impl TargetView {
    fn new(destination: &Destination, delivery: Option<&Delivery>) -> Self {
        let last_success_at = delivery.and_then(|one| one.state.last_success_at).map(Timestamp::seconds);
        let last_failure_at = delivery.and_then(|one| one.state.last_failure_at).map(Timestamp::seconds);
        match destination.clone() {
            Destination::Webhook { .. } => Self::Webhook {
                kind: "WEBHOOK",
                webhook: "",
                payload_version: "1.0",
                last_success_at,
                last_failure_at,
            },
            Destination::Slack { context, .. } => {
                Self::Slack { kind: "SLACK", webhook: "", context, last_success_at, last_failure_at }
            }
            Destination::Email { addresses: emails } => {
                Self::Email { kind: "EMAIL", emails, last_success_at, last_failure_at }
            }
        }
    }
}

/// What answers about actions need besides their records: the names of what is watched and not archived, and how
/// deliveries went.
pub(super) struct Surroundings {
    environments: BTreeMap<Id, String>,
    flows: BTreeMap<Id, String>,
    deliveries: BTreeMap<Id, Delivery>,
}

impl Surroundings {
    /// Those of these actions.
    pub(super) async fn of(actions: &[&Action], cx: &Context<'_>) -> Result<Self> {
        let (store, org) = (cx.store(), cx.org()?);
        let (mut environments, mut flows) = (Vec::new(), Vec::new());
        for action in actions {
            match &action.watched {
                Watched::Environments(ids) => environments.extend_from_slice(ids),
                Watched::Flows(ids) => flows.extend_from_slice(ids),
            }
        }
        let targets: Vec<Id> =
            actions.iter().flat_map(|action| &action.targets).map(|target| target.id).collect();
        let mut found =
            Self { environments: BTreeMap::new(), flows: BTreeMap::new(), deliveries: BTreeMap::new() };
        for part in distinct(environments).chunks(LONG_RECORDS) {
            let known = store.environments_by_id(org, part).await?.into_iter();
            let known = known.filter(|known| !known.archived).map(|known| known.record);
            found.environments.extend(known.map(|record| (record.id, record.name.into_string())));
        }
        for part in distinct(flows).chunks(LONG_RECORDS) {
            let known = store.flows_by_id(org, part).await?.into_iter();
            let known = known.filter(|flow| flow.archived_at.is_none());
            found.flows.extend(known.map(|record| (record.id, record.name.into_string())));
        }
        if !targets.is_empty() {
            let known = store.deliveries(org, &targets).await?.into_iter();
            found.deliveries = known.map(|delivery| (delivery.target, delivery)).collect();
        }
        Ok(found)
    }

    /// The names of what an action watches; nothing where all of it is archived, and so the action is over.
    fn names(&self, watched: &Watched) -> Option<Vec<String>> {
        let known = match watched {
            Watched::Environments(_) => &self.environments,
            Watched::Flows(_) => &self.flows,
        };
        let names: Vec<_> = watched.ids().iter().filter_map(|id| known.get(id)).cloned().collect();
        (!names.is_empty() || watched.ids().is_empty()).then_some(names)
    }

    /// The action as it is shown; nothing where it is over.
    pub(super) fn view(&self, action: Action) -> Option<ActionView> {
        let names = self.names(&action.watched)?;
        let (environments, flows) = match action.watched {
            Watched::Environments(_) => (Some(names), None),
            Watched::Flows(_) => (None, Some(names)),
        };
        // How it went at an address that the target has no more says nothing of the one that it has.
        let delivery = |target: &Target| {
            let known = self.deliveries.get(&target.id)?;
            (known.state.address == target.destination.address_digest()).then_some(known)
        };
        let known: Vec<&Delivery> = action.targets.iter().filter_map(delivery).collect();
        let last = |of: fn(&Delivery) -> Option<Timestamp>| known.iter().copied().filter_map(of).max();
        let is_failing = known.iter().any(|delivery| delivery.is_failing());
        let shown = |target: &Target| TargetView::new(&target.destination, delivery(target));
        Some(ActionView {
            name: action.name.into_string(),
            kind: action.watched.kind(),
            number: action.number,
            triggers: action.triggers,
            created_by: action.created_by.name,
            is_created_from_slack_app: false,
            is_failing,
            last_success_timestamp: last(|one| one.state.last_success_at).map(Timestamp::seconds),
            last_failure_timestamp: last(|one| one.state.last_failure_at).map(Timestamp::seconds),
            created_at: action.created_at.seconds(),
            last_modified_at: action.last_modified_at.seconds(),
            environments,
            flows,
            targets: action.targets.iter().map(shown).collect(),
        })
    }
}

/// Actions of a list, in its order, as answers carry them: those of one type alone where `kind` says so.
pub(super) fn views(
    ids: Vec<Id>,
    kind: Option<&'static str>,
    owned: OwnedContext,
) -> impl Stream<Item = Result<ActionView>> + Send + 'static {
    let read = async move {
        let cx = &owned.context();
        let mut actions = cx.store().actions_by_id(cx.org()?, &ids).await?;
        sort_by_ids(&mut actions, &ids, |action| action.record.id);
        let wanted = actions.into_iter().map(|action| action.record);
        let wanted: Vec<_> =
            wanted.filter(|action| kind.is_none_or(|kind| action.watched.kind() == kind)).collect();
        let around = Surroundings::of(&wanted.iter().collect::<Vec<_>>(), cx).await?;
        let views: Vec<_> = wanted.into_iter().filter_map(|action| around.view(action)).map(Ok).collect();
        Ok(stream::iter(views))
    };
    read.try_flatten_stream()
}
