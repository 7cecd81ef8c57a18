//! Operations on actions, under both of their paths.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::actions::record::{Action, Target, Watched};
use crate::actions::secret_url::{SecretUrl, StoredUrl, UrlRecord};
use crate::actions::store::StoredUrls;
use crate::actions::targets::{KnownTarget, TargetInput, destinations, resolved};
use crate::actions::view::{ActionView, ViewData, views};
use crate::auth::actor::Scope;
use crate::bounded::{List, ShortText};
use crate::context::{Context, Draft};
use crate::decode::UnknownFields;
use crate::error::{Error, Missing, Resource, Result, at_most};
use crate::fact::Fact;
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::id::Id;
use crate::name::{ActionName, OrgName};
use crate::operation::{Acknowledged, Json, JsonList, Method, Operation, Put};
use crate::page::Listed;
use crate::store::entry::Current;
use crate::time::Timestamp;

/// The most flow names in one action. Each needs a separate look-up.
const FLOWS: usize = 100;

/// The document that creates or changes an action about environments.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EnvActionPutInput")]
pub struct EnvironmentActionInput {
    /// Its name, unique among the organization's actions.
    pub name: ActionName,
    /// The targets of notifications. A target that the action already has, or one of the same type that
    /// replaces it, continues at the same position. A new target gets notifications of later events.
    pub targets: List<TargetInput, 20>,
    /// `env`. Optional.
    #[serde(default, rename = "type")]
    pub kind: EnvironmentActionKind,
    /// The environments to watch, by name. A logical environment stands for its members at the time of the
    /// notification.
    pub environments: List<ShortText>,
    /// The events to notify of.
    pub triggers: List<EnvironmentTrigger, 20>,
}

/// The `type` of an action about environments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub enum EnvironmentActionKind {
    /// The only value.
    #[default]
    #[serde(rename = "env")]
    Environment,
}

/// An event of an environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum EnvironmentTrigger {
    /// A report shows an artifact that did not run there before.
    OnStartedArtifact,
    /// A report no longer shows an artifact that ran there.
    OnExitedArtifact,
    /// A running artifact became compliant or non-compliant, or has new provenance.
    OnScaledArtifact,
    /// An artifact was added to the environment's allowlist.
    OnAllowedArtifact,
    /// The environment was compliant, and no longer is.
    OnNonCompliantEnv,
    /// The environment was non-compliant, and no longer is.
    OnCompliantEnv,
}

impl EnvironmentTrigger {
    /// Returns the name of the trigger in requests and responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OnStartedArtifact => "ON_STARTED_ARTIFACT",
            Self::OnExitedArtifact => "ON_EXITED_ARTIFACT",
            Self::OnScaledArtifact => "ON_SCALED_ARTIFACT",
            Self::OnAllowedArtifact => "ON_ALLOWED_ARTIFACT",
            Self::OnNonCompliantEnv => "ON_NON_COMPLIANT_ENV",
            Self::OnCompliantEnv => "ON_COMPLIANT_ENV",
        }
    }
}

/// The document that creates or changes an action about flows.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FlowActionPutInput")]
pub struct FlowActionInput {
    /// Its name, unique among the organization's actions.
    pub name: ActionName,
    /// The targets of notifications. A target that the action already has, or one of the same type that
    /// replaces it, continues at the same position. A new target gets notifications of later events.
    pub targets: List<TargetInput, 20>,
    /// `flow`. Optional.
    #[serde(default, rename = "type")]
    pub kind: FlowActionKind,
    /// The flows to watch, by name.
    pub flows: List<ShortText, FLOWS>,
    /// The events to notify of.
    pub triggers: List<FlowTrigger, 20>,
}

/// The `type` of an action about flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
pub enum FlowActionKind {
    /// The only value.
    #[default]
    #[serde(rename = "flow")]
    Flow,
}

/// An event of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FlowTrigger {
    /// A trail began.
    OnStartedTrail,
    /// An artifact was reported.
    OnAttestedProvenance,
    /// An attestation was reported.
    OnAttestation,
}

impl FlowTrigger {
    /// Returns the name of the trigger in requests and responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OnStartedTrail => "ON_STARTED_TRAIL",
            Self::OnAttestedProvenance => "ON_ATTESTED_PROVENANCE",
            Self::OnAttestation => "ON_ATTESTATION",
        }
    }
}

/// The requested state of an action.
struct Wanted<'r> {
    name: &'r ActionName,
    watched: Names<'r>,
    triggers: Vec<String>,
    targets: &'r [TargetInput],
}

/// The environments or flows to watch, by name.
#[derive(Clone, Copy)]
enum Names<'r> {
    Environments(&'r [ShortText]),
    Flows(&'r [ShortText]),
}

impl<'r> From<&'r EnvironmentActionInput> for Wanted<'r> {
    fn from(input: &'r EnvironmentActionInput) -> Self {
        Self {
            name: &input.name,
            watched: Names::Environments(&input.environments.0),
            triggers: input.triggers.0.iter().map(|trigger| trigger.as_str().to_owned()).collect(),
            targets: &input.targets.0,
        }
    }
}

impl<'r> From<&'r FlowActionInput> for Wanted<'r> {
    fn from(input: &'r FlowActionInput) -> Self {
        Self {
            name: &input.name,
            watched: Names::Flows(&input.flows.0),
            triggers: input.triggers.0.iter().map(|trigger| trigger.as_str().to_owned()).collect(),
            targets: &input.targets.0,
        }
    }
}

impl Wanted<'_> {
    /// Refuses targets that are not allowed, before any look-up.
    fn check(&self, cx: &Context<'_>) -> Result<()> {
        destinations(self.targets, &cx.settings().egress).map(drop)
    }

    /// Resolves the targets. New secret URLs are added to the draft.
    fn resolved(
        &self,
        known: &[KnownTarget],
        since: Option<Timestamp>,
        draft: &mut Draft,
        cx: &Context<'_>,
    ) -> Result<Vec<Target>> {
        let record = |url: &SecretUrl| {
            let (record, stored) =
                StoredUrl::of(url, cx.new_id(), cx.settings().url_key.as_ref(), cx.random());
            draft.secrets.urls.push((record.id, stored));
            record
        };
        let destinations = destinations(self.targets, &cx.settings().egress)?;
        Ok(resolved(destinations, known, || cx.new_id(), record, since))
    }

    /// Returns the action with this present name. A former name of another action is free.
    async fn named(&self, cx: &Context<'_>) -> Result<Option<Current<Action>>> {
        let known = cx.store().action(cx.org()?, self.name.as_str()).await?;
        Ok(known.filter(|known| known.record.name == *self.name))
    }
}

impl Names<'_> {
    /// Resolves the names, in their order. Adds preconditions that hold while the names still refer to the
    /// same records.
    async fn resolved(self, preconditions: &mut Vec<Precondition>, cx: &Context<'_>) -> Result<Watched> {
        let mut ids = Vec::new();
        match self {
            Self::Environments(names) => {
                at_most(cx.limits().environment_members, names.len(), "environments")?;
                for (id, label) in cx.environments_named(names, "environments").await? {
                    preconditions.push(Precondition::Denotes(Key::Environment(label.name), id));
                    ids.push(id);
                }
                Ok(Watched::Environments(ids))
            }
            Self::Flows(names) => {
                for name in names {
                    let known = cx.flow(name).await.map_err(|error| error.named_by("flows"))?.record;
                    if known.archived_at.is_some() {
                        return Err(cx
                            .missing(Resource::ArchivedFlow, name.as_str())
                            .named_by("flows")
                            .into());
                    }
                    preconditions.extend(
                        name.parse().ok().map(|name| Precondition::Denotes(Key::Flow(name), known.id)),
                    );
                    ids.push(known.id);
                }
                Ok(Watched::Flows(ids))
            }
        }
    }
}

/// Returns whether the action is still shown: at least one of the resources that it watches is not archived.
async fn is_alive(action: &Action, cx: &Context<'_>) -> Result<bool> {
    Ok(ViewData::of(&[action], cx).await?.view(action.clone()).is_some())
}

impl Context<'_> {
    /// Returns the action of this number and, if given, this type, or [`Error::NotFound`].
    async fn action(&self, number: i64, kind: Option<&str>) -> Result<Current<Action>> {
        let known = self.recorded_action(number, kind).await?;
        if is_alive(&known.record, self).await? {
            Ok(known)
        } else {
            Err(missing_action(number, kind, self).into())
        }
    }

    /// Returns the same action, even if all resources that it watches are archived.
    async fn recorded_action(&self, number: i64, kind: Option<&str>) -> Result<Current<Action>> {
        let missing = || missing_action(number, kind, self);
        let unsigned = u64::try_from(number).map_err(|_| missing())?;
        let known = self.store().action_numbered(self.org()?, unsigned).await?;
        let known = known.filter(|known| kind.is_none_or(|kind| known.record.watched.kind() == kind));
        Ok(known.ok_or_else(missing)?)
    }
}

/// Returns the error for a missing action of this number or type.
fn missing_action(number: i64, kind: Option<&str>, cx: &Context<'_>) -> Missing {
    let field = if kind.is_some() { "notification_number" } else { "action_number" };
    cx.missing(Resource::Action, number.to_string()).named_by(field)
}

/// Creates the action of that name, or changes it. Returns whether it was created. A server handles these
/// requests one after another, because each new action takes the next number.
async fn put(wanted: &Wanted<'_>, cx: &Context<'_>) -> Result<bool> {
    wanted.check(cx)?;
    cx.retry_exclusively(Key::ActionNumber(0), || put_once(wanted, cx)).await
}

async fn put_once(wanted: &Wanted<'_>, cx: &Context<'_>) -> Result<bool> {
    let mut preconditions = Vec::new();
    let watched = wanted.watched.resolved(&mut preconditions, cx).await?;
    let known = wanted.named(cx).await?;
    let mut draft = Draft { preconditions, ..Draft::default() };
    match known {
        Some(known) if is_alive(&known.record, cx).await? => {
            if known.record.watched.kind() != watched.kind() {
                let text = format!("'{}' is the name of an action of another type", wanted.name);
                return Err(Error::invalid("name", text));
            }
            change(known, wanted, watched, draft, cx).await?;
            return Ok(false);
        }
        // All its resources are archived, so the name is free.
        Some(over) => delete(over, &mut draft),
        None => draft.preconditions.push(Precondition::Vacant(Key::Action(wanted.name.clone()))),
    }
    create(wanted, watched, draft, cx).await?;
    Ok(true)
}

async fn create(wanted: &Wanted<'_>, watched: Watched, mut draft: Draft, cx: &Context<'_>) -> Result<()> {
    let org = cx.org()?;
    make_room(&mut draft, cx).await?;
    let number = cx.store().greatest_action_number(org).await? + 1;
    let record = Action {
        id: cx.new_id(),
        number,
        name: wanted.name.clone(),
        watched,
        triggers: wanted.triggers.clone(),
        targets: wanted.resolved(&[], None, &mut draft, cx)?,
        created_at: cx.now(),
        created_by: cx.actor(),
        last_modified_at: cx.now(),
        unknown: UnknownFields::default(),
    };
    draft.fact_if(Fact::ActionCreated { record }, Precondition::Vacant(Key::ActionNumber(number)));
    cx.record(draft).await.map(drop)
}

/// Refuses an action if the organization already has the maximum number. Actions without unarchived resources
/// do not count, and are deleted if the limit is reached.
async fn make_room(draft: &mut Draft, cx: &Context<'_>) -> Result<()> {
    let (org, most) = (cx.org()?, cx.limits().actions);
    let listed = cx.store().actions_listed(org).await?;
    if listed.len() < most {
        return Ok(());
    }
    let mut alive = 0;
    for ids in Listed::batches(listed) {
        let known = cx.store().actions_by_id(org, &ids).await?;
        let records: Vec<&Action> = known.iter().map(|known| &known.record).collect();
        let data = ViewData::of(&records, cx).await?;
        for known in known {
            if data.view(known.record.clone()).is_some() {
                alive += 1;
            } else if !draft
                .facts
                .iter()
                .any(|fact| fact.subject() == Some((RecordKind::Action, known.record.id)))
            {
                delete(known, draft);
            }
        }
    }
    if alive >= most {
        let text = format!("There are {most} actions, and no more are taken");
        return Err(Error::invalid("name", text));
    }
    Ok(())
}

/// Adds the deletion of an action to the draft.
fn delete(known: Current<Action>, draft: &mut Draft) {
    let precondition = Precondition::Revision(RecordKind::Action, known.record.id, known.revision);
    draft.fact_if(Fact::ActionDeleted { record: known.record }, precondition);
}

/// Returns the targets of an action, with their secret URLs as far as they can be read.
async fn known_targets(action: &Action, cx: &Context<'_>) -> Result<Vec<KnownTarget>> {
    let stored = StoredUrls::read(cx.store(), cx.org()?, action.urls()).await?;
    let open = |record: &UrlRecord| {
        stored.open(record, cx.settings().url_key.as_ref()).inspect_err(|error| {
            let (action, host) = (action.number, &record.host);
            tracing::warn!(action, host, %error, "the URL of a target cannot be read, and is replaced");
        })
    };
    let known = |target: &Target| KnownTarget {
        destination: target.destination.try_with_url(open).ok(),
        target: target.clone(),
    };
    Ok(action.targets.iter().map(known).collect())
}

/// Records the differences, if there are any.
async fn change(
    known: Current<Action>,
    wanted: &Wanted<'_>,
    watched: Watched,
    mut draft: Draft,
    cx: &Context<'_>,
) -> Result<()> {
    let Current { revision, record: was } = known;
    let targets = wanted.resolved(&known_targets(&was, cx).await?, Some(cx.now()), &mut draft, cx)?;
    let record = Action {
        name: wanted.name.clone(),
        watched,
        triggers: wanted.triggers.clone(),
        targets,
        ..was.clone()
    };
    if record == was {
        return Ok(());
    }
    let record = Action { last_modified_at: cx.now_after(was.last_modified_at), ..record };
    let precondition = Precondition::Revision(RecordKind::Action, was.id, revision);
    let is_kept = |id: &Id| record.targets.iter().any(|target| target.id == *id);
    let removed = was.targets.iter().map(|target| target.id).filter(|id| !is_kept(id)).collect();
    let is_used = |id: &Id| record.urls().any(|url| url.id == *id);
    let removed_urls = was.urls().map(|url| url.id).filter(|id| !is_used(id)).collect();
    let was = (record.name != was.name).then_some(was.name);
    draft.fact_if(Fact::ActionUpdated { record, was, removed, removed_urls }, precondition);
    cx.record(draft).await.map(drop)
}

/// Lists the actions of a type, or all.
async fn list(kind: Option<&'static str>, cx: &Context<'_>) -> Result<JsonList<ActionView>> {
    let listed = cx.store().actions_listed(cx.org()?).await?;
    let owned = cx.to_owned_context();
    JsonList::in_batches(listed, (), &cx.compute(), move |ids| views(ids, kind, owned.clone())).await
}

async fn shown(number: i64, kind: Option<&str>, cx: &Context<'_>) -> Result<Json<ActionView>> {
    let action = cx.recorded_action(number, kind).await?.record;
    let data = ViewData::of(&[&action], cx).await?;
    Ok(Json(data.view(action).ok_or_else(|| missing_action(number, kind, cx))?))
}

async fn deleted(number: i64, kind: Option<&'static str>, cx: &Context<'_>) -> Result<Json<Acknowledged>> {
    cx.retry(|| async {
        let mut draft = Draft::default();
        delete(cx.action(number, kind).await?, &mut draft);
        cx.record(draft).await
    })
    .await?;
    Ok(Json(Acknowledged::Ok))
}

const ENVIRONMENTS: Option<&str> = Some("env");

/// Lists the actions of an organization, sorted by number: those about environments and those about flows.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListActions {
    /// The organization's name.
    pub org: OrgName,
}

impl Operation for ListActions {
    const NAME: &'static str = "list_actions";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/actions/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the actions of an organization";
    type Body = ();
    type Output = JsonList<ActionView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        list(None, cx).await
    }
}

/// Creates an action about environments (201), or changes the action of that name (200), which keeps its
/// number. An environment that does not exist is 404; the name of an action about flows is 400. Archiving an
/// environment removes it from all actions. An action whose environments are all archived is deleted.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PutEnvironmentAction {
    /// The organization's name.
    pub org: OrgName,
}

impl Operation for PutEnvironmentAction {
    const NAME: &'static str = "create_or_update_env_action";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/actions/{org}/environments";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Creates or changes an action about environments";
    type Body = Json<EnvironmentActionInput>;
    type Output = Put<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        Ok(Put { created: put(&Wanted::from(&input), cx).await?, body: Acknowledged::Ok })
    }
}

/// Creates an action about flows (201), or changes the action of that name (200), which keeps its number. A
/// flow that does not exist is 404; the name of an action about environments is 400. Archiving a flow removes
/// it from all actions. An action whose flows are all archived is deleted.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PutFlowAction {
    /// The organization's name.
    pub org: OrgName,
}

impl Operation for PutFlowAction {
    const NAME: &'static str = "create_or_update_flow_action";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/actions/{org}/flows";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Creates or changes an action about flows";
    type Body = Json<FlowActionInput>;
    type Output = Put<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        Ok(Put { created: put(&Wanted::from(&input), cx).await?, body: Acknowledged::Ok })
    }
}

/// Gets an action by its number.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetAction {
    /// The organization's name.
    pub org: OrgName,
    /// The action's number.
    pub action_number: i64,
}

impl Operation for GetAction {
    const NAME: &'static str = "get_action";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/actions/{org}/{action_number}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets an action";
    type Body = ();
    type Output = Json<ActionView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        shown(self.action_number, None, cx).await
    }
}

/// Deletes an action. Its number is not reused.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct DeleteAction {
    /// The organization's name.
    pub org: OrgName,
    /// The action's number.
    pub action_number: i64,
}

impl Operation for DeleteAction {
    const NAME: &'static str = "delete_action";
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/actions/{org}/{action_number}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Deletes an action";
    type Body = ();
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        deleted(self.action_number, None, cx).await
    }
}

/// Lists the actions about environments of an organization, sorted by number. This path calls them
/// notifications.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListNotifications {
    /// The organization's name.
    pub org: OrgName,
}

impl Operation for ListNotifications {
    const NAME: &'static str = "get_environment_notifications";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/organizations/{org}/environments_notifications";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the notifications about environments of an organization";
    type Body = ();
    type Output = JsonList<ActionView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        list(ENVIRONMENTS, cx).await
    }
}

/// Creates a notification about environments (201), or changes the notification of that name (200). It is an
/// action about environments.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PutNotification {
    /// The organization's name.
    pub org: OrgName,
}

impl Operation for PutNotification {
    const NAME: &'static str = "put_environment_notifications";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/organizations/{org}/environments_notifications";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Creates or changes a notification about environments";
    type Body = Json<EnvironmentActionInput>;
    type Output = Put<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        Ok(Put { created: put(&Wanted::from(&input), cx).await?, body: Acknowledged::Ok })
    }
}

/// Gets a notification about environments by its number.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetNotification {
    /// The organization's name.
    pub org: OrgName,
    /// The notification's number, which is the number of the action.
    pub notification_number: i64,
}

impl Operation for GetNotification {
    const NAME: &'static str = "get_environment_notification";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/organizations/{org}/environments_notifications/{notification_number}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets a notification about environments";
    type Body = ();
    type Output = Json<ActionView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        shown(self.notification_number, ENVIRONMENTS, cx).await
    }
}

/// Changes a notification about environments, including its name. Its number, its creator and its creation
/// time stay. The name of another action is 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct UpdateNotification {
    /// The organization's name.
    pub org: OrgName,
    /// The notification's number, which is the number of the action.
    pub notification_number: i64,
}

impl Operation for UpdateNotification {
    const NAME: &'static str = "update_environment_notification";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/organizations/{org}/environments_notifications/{notification_number}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Changes a notification about environments";
    type Body = Json<EnvironmentActionInput>;
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let wanted = Wanted::from(&input);
        wanted.check(cx)?;
        cx.retry(|| self.update(&wanted, cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

impl UpdateNotification {
    async fn update(&self, wanted: &Wanted<'_>, cx: &Context<'_>) -> Result<()> {
        let known = cx.action(self.notification_number, ENVIRONMENTS).await?;
        let mut draft = Draft::default();
        let watched = wanted.watched.resolved(&mut draft.preconditions, cx).await?;
        if known.record.name != *wanted.name {
            match wanted.named(cx).await? {
                Some(other) if is_alive(&other.record, cx).await? => {
                    let text = format!("'{}' is the name of another action", wanted.name);
                    return Err(Error::invalid("name", text));
                }
                Some(over) => delete(over, &mut draft),
                None => draft.preconditions.push(Precondition::Vacant(Key::Action(wanted.name.clone()))),
            }
        }
        change(known, wanted, watched, draft, cx).await
    }
}

/// Deletes a notification about environments. Its number is not reused.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct DeleteNotification {
    /// The organization's name.
    pub org: OrgName,
    /// The notification's number, which is the number of the action.
    pub notification_number: i64,
}

impl Operation for DeleteNotification {
    const NAME: &'static str = "delete_environment_notification";
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/organizations/{org}/environments_notifications/{notification_number}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Deletes a notification about environments";
    type Body = ();
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        deleted(self.notification_number, ENVIRONMENTS, cx).await
    }
}
