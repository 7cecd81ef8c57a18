//! Actions in responses.

use std::collections::BTreeMap;

use futures_util::{Stream, TryFutureExt, stream};
use schemars::JsonSchema;
use serde::Serialize;

use crate::actions::record::{Action, Destination, SlackContext, Target, Watched};
use crate::context::{Context, OwnedContext};
use crate::error::Result;
use crate::id::Id;
use crate::notifications::store::Delivery;
use crate::store::batch::{RECORD_BATCH_SIZE, distinct, sort_by_ids};
use crate::time::{Seconds, Timestamp};

/// An action: notifications of events in environments or flows, with their targets.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ActionResponse")]
#[non_exhaustive]
pub struct ActionView {
    /// Its name, unique in the organization.
    pub name: String,
    /// `env` for an action about environments, `flow` for one about flows.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Its number, from 1. Numbers are not reused.
    pub number: u64,
    /// The targets of its notifications, in the given order.
    pub targets: Vec<TargetView>,
    /// The events that it notifies of, in the given order.
    pub triggers: Vec<String>,
    /// The name of the user or service account that created it.
    pub created_by: String,
    /// Always false: there is no Slack app.
    pub is_created_from_slack_app: bool,
    /// Whether the last delivery attempt to one of its targets failed.
    pub is_failing: bool,
    /// When a notification was last delivered, in epoch seconds; null before the first one.
    pub last_success_timestamp: Option<Seconds>,
    /// When a delivery attempt last failed, in epoch seconds; null before the first failure.
    pub last_failure_timestamp: Option<Seconds>,
    /// When it was created, in epoch seconds.
    pub created_at: Seconds,
    /// When it last changed, in epoch seconds.
    pub last_modified_at: Seconds,
    /// The environments to watch, by name, in the given order; null for an action about flows.
    pub environments: Option<Vec<String>>,
    /// The flows to watch, by name, in the given order; null for an action about environments.
    pub flows: Option<Vec<String>>,
}

/// A target, with the outcome of the last delivery attempts.
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
        /// The format of the payload: `1.0`.
        payload_version: &'static str,
        /// When a notification was last delivered to this target, in epoch seconds.
        last_success_at: Option<Seconds>,
        /// When a delivery attempt to this target last failed, in epoch seconds.
        last_failure_at: Option<Seconds>,
    },
    /// A message through a Slack incoming webhook.
    Slack {
        /// `SLACK`.
        #[serde(rename = "type")]
        kind: &'static str,
        /// Always empty: the URL is a secret.
        webhook: &'static str,
        /// The channel, as sent; null if it was not sent.
        context: Option<SlackContext>,
        /// When a notification was last delivered to this target, in epoch seconds.
        last_success_at: Option<Seconds>,
        /// When a delivery attempt to this target last failed, in epoch seconds.
        last_failure_at: Option<Seconds>,
    },
    /// An email.
    Email {
        /// `EMAIL`.
        #[serde(rename = "type")]
        kind: &'static str,
        /// The recipients.
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

/// The data that responses need besides the actions' records: the names of watched resources that are not
/// archived, and the outcomes of deliveries.
pub(super) struct ViewData {
    environments: BTreeMap<Id, String>,
    flows: BTreeMap<Id, String>,
    deliveries: BTreeMap<Id, Delivery>,
}

impl ViewData {
    /// Reads the data for these actions.
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
        for part in distinct(environments).chunks(RECORD_BATCH_SIZE) {
            let known = store.environments_by_id(org, part).await?.into_iter();
            let known = known.filter(|known| !known.archived).map(|known| known.record);
            found.environments.extend(known.map(|record| (record.id, record.name.into_string())));
        }
        for part in distinct(flows).chunks(RECORD_BATCH_SIZE) {
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

    /// Returns the names of the resources that an action watches; `None` if all are archived, so that the
    /// action is over.
    fn names(&self, watched: &Watched) -> Option<Vec<String>> {
        let known = match watched {
            Watched::Environments(_) => &self.environments,
            Watched::Flows(_) => &self.flows,
        };
        let names: Vec<_> = watched.ids().iter().filter_map(|id| known.get(id)).cloned().collect();
        (!names.is_empty() || watched.ids().is_empty()).then_some(names)
    }

    /// Returns the action for a response; `None` if it is over.
    pub(super) fn view(&self, action: Action) -> Option<ActionView> {
        let names = self.names(&action.watched)?;
        let (environments, flows) = match action.watched {
            Watched::Environments(_) => (Some(names), None),
            Watched::Flows(_) => (None, Some(names)),
        };
        // Deliveries to a former address of the target do not count for its present one.
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

/// Streams the actions of a list for a response, in its order. With `kind`, only those of this type.
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
        let data = ViewData::of(&wanted.iter().collect::<Vec<_>>(), cx).await?;
        let views: Vec<_> = wanted.into_iter().filter_map(|action| data.view(action)).map(Ok).collect();
        Ok(stream::iter(views))
    };
    read.try_flatten_stream()
}
