//! Environments: where artifacts run, physical ones that are reported on and logical ones that group them.

mod view;

use std::collections::BTreeMap;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::auth::{Actor, Role, Scope};
use crate::error::{Error, Resource, Result};
use crate::evaluation;
use crate::fact::{Fact, Guard, Key, RecordKind, UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::limits::at_most;
use crate::name::{EnvironmentName, OrgName};
use crate::operation::{Created, Json, Method, Operation};
use crate::page::Listed;
use crate::policies::{self, Policy};
use crate::rules::policy;
use crate::service::{Context, Draft};
use crate::shared::{Acknowledged, Description, List, ShortText, Tags};
use crate::store::{Current, StoreResult};
use crate::time::Timestamp;

pub use view::{
    EnvironmentList, EnvironmentPage, EnvironmentSort, EnvironmentView, GetEnvironment, ListEnvironments,
};

/// An environment as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Environment {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: EnvironmentName,
    /// What it is.
    pub kind: EnvironmentKind,
    /// What it is for.
    pub description: String,
    /// The members of a logical environment, in the order given.
    pub included: Vec<Id>,
    /// The policies attached to it, in the order of attaching.
    pub policies: Vec<Id>,
    /// As it was set, without effect: Terraform compares what it reads with what it set.
    pub include_scaling: bool,
    /// Its tags.
    pub tags: Tags,
    /// When it was created.
    pub created_at: Timestamp,
    /// By whom.
    pub created_by: Actor,
    /// When its settings last changed.
    pub last_modified_at: Timestamp,
    /// What a newer version of the program recorded beside.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(Environment);

/// What reports made of an environment. It is no part of the record that guards watch: a hundred machines that report
/// that nothing changed must hold up nobody who changes a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EnvironmentStatus {
    /// How many snapshots it has; they are numbered from 1.
    pub snapshots: u64,
    /// When the latest one was taken.
    pub changed_at: Option<Timestamp>,
    /// Its verdict.
    pub compliant: Option<bool>,
    /// When it was last reported on; reports that tell nothing new are noted once in
    /// [`Settings::heartbeat_interval`](crate::Settings::heartbeat_interval).
    pub reported_at: Option<Timestamp>,
}

/// An environment as a store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownEnvironment {
    /// The ledger index of the newest fact about its settings.
    pub revision: u64,
    /// The ledger index of the newest report that was noted.
    pub reported: Option<u64>,
    /// Its settings.
    pub record: Environment,
    /// How it stands.
    pub status: EnvironmentStatus,
    /// Whether it is archived: no list shows it, and no logical environment counts it.
    pub archived: bool,
}

impl KnownEnvironment {
    /// The verdict of the latest snapshot; nothing without policies or snapshots.
    pub fn state(&self) -> Option<bool> {
        policy::environment_state(self.status.compliant, !self.record.policies.is_empty())
    }

    /// Holds while nobody changed the settings.
    pub(crate) fn unchanged(&self) -> Guard {
        Guard::Revision(RecordKind::Environment, self.record.id, self.revision)
    }

    /// Holds while no report was noted: of many that come at the same time one is.
    pub(crate) fn unreported(&self) -> Option<Guard> {
        Some(Guard::Revision(RecordKind::Report, self.record.id, self.reported?))
    }

    /// Holds while the latest snapshot is still that.
    pub(crate) fn latest(&self) -> Guard {
        Guard::Vacant(Key::Snapshot { environment: self.record.id, index: self.status.snapshots + 1 })
    }
}

/// What kind of thing an environment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the variants are the values")]
pub enum EnvironmentKind {
    K8S,
    ECS,
    S3,
    #[serde(rename = "lambda")]
    Lambda,
    #[serde(rename = "server")]
    Server,
    #[serde(rename = "docker")]
    Docker,
    #[serde(rename = "azure-apps")]
    AzureApps,
    #[serde(rename = "cloud-run")]
    CloudRun,
    #[serde(rename = "logical")]
    Logical,
}

impl EnvironmentKind {
    /// Whether it is reported on, rather than a group of others.
    pub const fn is_physical(self) -> bool {
        !matches!(self, Self::Logical)
    }

    /// The value on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::K8S => "K8S",
            Self::ECS => "ECS",
            Self::S3 => "S3",
            Self::Lambda => "lambda",
            Self::Server => "server",
            Self::Docker => "docker",
            Self::AzureApps => "azure-apps",
            Self::CloudRun => "cloud-run",
            Self::Logical => "logical",
        }
    }
}

/// Queries about environments.
#[async_trait]
pub trait EnvironmentStore: Send + Sync {
    /// The environment of this name, one, with its revision.
    async fn environment(&self, org: Id, name: &str) -> StoreResult<Option<KnownEnvironment>>;
    /// All environments of the organization but for the archived ones, by name (bytes).
    async fn environments(&self, org: Id) -> StoreResult<Vec<KnownEnvironment>>;
    /// The same list, all of it, without what is known of the environments.
    async fn environments_listed(&self, org: Id) -> StoreResult<Vec<Listed>>;
    /// The environments of these ids, archived ones too, one an id, in any order; unknown ids are passed over.
    async fn environments_by_id(&self, org: Id, ids: &[Id]) -> StoreResult<Vec<KnownEnvironment>>;
}

impl Context<'_> {
    /// The environment of this name, or [`Error::NotFound`].
    pub(crate) async fn environment(&self, name: &str) -> Result<KnownEnvironment> {
        let environment = self.store().environment(self.org()?, name).await?;
        Ok(environment.ok_or_else(|| self.missing(Resource::Environment, name))?)
    }

    /// Whether the caller has at least this role in the organization.
    fn has_role(&self, least: Role) -> Result<bool> {
        Ok(self.org_access()?.role.is_some_and(|role| role >= least))
    }
}

/// Creates an environment, or updates one; the answer is 201 either way. The same body again changes nothing. To
/// change one that exists needs the role `member` or above: a `snapshotter` gets 403. The type never changes: 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PutEnvironment {
    /// The organization's name.
    pub org: OrgName,
}

/// What an environment is created or updated with. A list that is absent or null changes nothing.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CreateEnvironmentPutInput")]
pub struct EnvironmentInput {
    /// Its name, unique in the organization.
    pub name: EnvironmentName,
    /// What it is; it never changes.
    #[serde(rename = "type")]
    pub kind: EnvironmentKind,
    /// What it is for; an empty one keeps what is there.
    pub description: Description,
    /// Kept and answered; it has no effect.
    pub include_scaling: Option<bool>,
    /// Accepted; it has no effect, for policies took its place.
    pub require_provenance: Option<bool>,
    /// The members of a logical environment, by name. The list replaces the one before.
    pub included_environments: Option<List<ShortText>>,
    /// The policies that it is evaluated by, by name. The list replaces the one before, and what runs is evaluated
    /// anew.
    pub policies: Option<List<ShortText>>,
}

impl Operation for PutEnvironment {
    const NAME: &'static str = "create_env";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/environments/{org}";
    const SCOPE: Scope = Scope::Report;
    const SUMMARY: &'static str = "Creates or updates an environment";
    type Body = Json<EnvironmentInput>;
    type Output = Created<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        cx.retry_in_turn(&input.name, || put(&input, cx)).await?;
        Ok(Created(Acknowledged::Ok))
    }
}

async fn put(input: &EnvironmentInput, cx: &Context<'_>) -> Result<()> {
    let known = cx.store().environment(cx.org()?, input.name.as_str()).await?;
    let mut guards = Vec::new();
    let included = match &input.included_environments {
        Some(names) => Some(named(&names.0, &mut guards, cx).await?),
        None => None,
    };
    let policies = match &input.policies {
        Some(names) => Some(policies::named(&names.0, "policies", &mut guards, cx).await?),
        None => None,
    };
    at_most(cx.limits().environment_members, included.iter().flatten().count(), "included_environments")?;
    at_most(cx.limits().environment_policies, policies.iter().flatten().count(), "policies")?;
    let Some(known) = known else {
        let record = input.applied_to(created(input, cx), included, policies.as_deref())?;
        let guard = Guard::Vacant(Key::Environment(input.name.clone()));
        guards.push(guard);
        cx.record(Draft { facts: vec![Fact::EnvironmentCreated { record }], guards, ..Draft::default() })
            .await?;
        return Ok(());
    };
    let record = &known.record;
    let updated = input.applied_to(record.clone(), included, policies.as_deref());
    if updated.as_ref().is_ok_and(|updated| updated == record) {
        return Ok(());
    }
    if !cx.has_role(Role::Member)? {
        return Err(Error::Forbidden);
    }
    let updated = Environment { last_modified_at: cx.now_after(record.last_modified_at), ..updated? };
    guards.push(known.unchanged());
    let mut draft = Draft {
        facts: vec![Fact::EnvironmentUpdated { record: updated.clone() }],
        guards,
        ..Draft::default()
    };
    if updated.policies != record.policies {
        let known = KnownEnvironment { record: updated, ..known };
        draft.extend(evaluation::reevaluate(&known, policies.unwrap_or_default(), cx).await?);
    }
    cx.record(draft).await.map_err(|error| error.of_field("policies"))?;
    Ok(())
}

fn created(input: &EnvironmentInput, cx: &Context<'_>) -> Environment {
    Environment {
        id: cx.new_id(),
        name: input.name.clone(),
        kind: input.kind,
        description: String::new(),
        included: Vec::new(),
        policies: Vec::new(),
        include_scaling: false,
        tags: Tags::new(),
        created_at: cx.now(),
        created_by: cx.actor(),
        last_modified_at: cx.now(),
        unknown: UnknownFields::default(),
    }
}

impl EnvironmentInput {
    fn applied_to(
        &self,
        mut record: Environment,
        included: Option<Vec<Environment>>,
        policies: Option<&[Current<Policy>]>,
    ) -> Result<Environment> {
        if record.kind != self.kind {
            let text =
                format!("The type of an environment cannot change: this one is '{}'", record.kind.as_str());
            return Err(Error::invalid("type", text));
        }
        if let Some(members) = included {
            if record.kind.is_physical() && !members.is_empty() {
                let text = "Only a logical environment includes others";
                return Err(Error::invalid("included_environments", text));
            }
            if let Some(logical) = members.iter().find(|member| !member.kind.is_physical()) {
                return Err(not_physical("included_environments", &logical.name));
            }
            record.included = members.into_iter().map(|member| member.id).collect();
        }
        let description = self.description.clone().into_string();
        if !description.is_empty() {
            record.description = description;
        }
        record.include_scaling = self.include_scaling.unwrap_or(record.include_scaling);
        if let Some(policies) = policies {
            record.policies = policies.iter().map(|policy| policy.record.id).collect();
        }
        Ok(record)
    }
}

/// The environments of these names in their order, each once; one that does not exist is named in the error. `guards`
/// hold while the names lead there.
async fn named(names: &[ShortText], guards: &mut Vec<Guard>, cx: &Context<'_>) -> Result<Vec<Environment>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let known = cx.store().environments(cx.org()?).await?;
    let by_name: BTreeMap<&str, &Environment> =
        known.iter().map(|known| (known.record.name.as_str(), &known.record)).collect();
    let mut found: Vec<Environment> = Vec::new();
    for name in names {
        let Some(environment) = by_name.get(name.as_str()) else {
            // The list leaves out what cannot be read.
            cx.store().environment(cx.org()?, name.as_str()).await?;
            let missing = cx.missing(Resource::Environment, name.as_str()).named_by("included_environments");
            return Err(missing.into());
        };
        if !found.iter().any(|member| member.id == environment.id) {
            guards.push(Guard::Denotes(Key::Environment(environment.name.clone()), environment.id));
            found.push((*environment).clone());
        }
    }
    Ok(found)
}

/// The message of joining what is not physical, or into what is not logical (specification, Errors).
const ONLY_PHYSICAL: &str = "Can only add physical environments to logical environments";

fn not_physical(field: &str, name: &EnvironmentName) -> Error {
    Error::invalid_with(ONLY_PHYSICAL, field, format!("'{name}' is a logical environment"))
}

/// Adds a physical environment to a logical one. One that is a member already stays, and nothing changes. A logical
/// environment joins no other: 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct JoinEnvironment {
    /// The organization's name.
    pub org: OrgName,
    /// The logical environment's name.
    pub env_name: EnvironmentName,
}

/// Which environment is added.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JoinInput {
    /// The name of the environment to add, which is no logical one.
    pub physical_env_name: ShortText,
}

impl Operation for JoinEnvironment {
    const NAME: &'static str = "join_physical_to_logical";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/environments/{org}/{env_name}/join";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Adds a physical environment to a logical one";
    type Body = Json<JoinInput>;
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        cx.retry(|| join(&self.env_name, &input.physical_env_name, cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

async fn join(logical: &EnvironmentName, physical: &str, cx: &Context<'_>) -> Result<()> {
    let known = cx.environment(logical.as_str()).await?;
    let guard = known.unchanged();
    let mut record = known.record;
    let member = cx.store().environment(cx.org()?, physical).await?;
    let member = member
        .ok_or_else(|| cx.missing(Resource::Environment, physical).named_by("physical_env_name"))?
        .record;
    if record.kind.is_physical() {
        let text = format!("'{logical}' is a physical environment");
        return Err(Error::invalid_with(ONLY_PHYSICAL, "env_name", text));
    }
    if !member.kind.is_physical() {
        return Err(not_physical("physical_env_name", &member.name));
    }
    if record.included.contains(&member.id) {
        return Ok(());
    }
    record.included.push(member.id);
    at_most(cx.limits().environment_members, record.included.len(), "physical_env_name")?;
    record.last_modified_at = cx.now_after(record.last_modified_at);
    let mut draft = Draft::of(Fact::EnvironmentJoined { record, member: member.id }, guard);
    draft.guards.push(Guard::Denotes(Key::Environment(member.name), member.id));
    cx.record(draft).await?;
    Ok(())
}

/// Attaches policies to an environment. What runs there is evaluated anew, and a snapshot is taken of it where there was
/// one. Those attached already stay, and nothing changes. An environment has at most as many policies as the host permits (100 unless it
/// says otherwise): 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AttachPolicies {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
}

/// Which policies are attached.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyNames {
    /// The names of the policies to attach: one at least, and each must exist.
    pub policy_names: List<ShortText>,
}

impl Operation for AttachPolicies {
    const NAME: &'static str = "attach_policy_to_env";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/environments/{org}/{env_name}/policies";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Attaches policies to an environment";
    type Body = Json<PolicyNames>;
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let names = &input.policy_names.0;
        if names.is_empty() {
            return Err(Error::invalid("policy_names", "List should have at least 1 item"));
        }
        cx.retry_in_turn(&self.env_name, || attach(&self.env_name, names, cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

async fn attach(environment: &EnvironmentName, names: &[ShortText], cx: &Context<'_>) -> Result<()> {
    let mut known = cx.environment(environment.as_str()).await?;
    let mut guards = vec![known.unchanged()];
    let mut attached = policies::named(names, "policy_names", &mut guards, cx).await?;
    attached.retain(|policy| !known.record.policies.contains(&policy.record.id));
    let policies: Vec<Id> = attached.iter().map(|policy| policy.record.id).collect();
    if policies.is_empty() {
        return Ok(());
    }
    known.record.policies.extend(&policies);
    at_most(cx.limits().environment_policies, known.record.policies.len(), "policy_names")?;
    known.record.last_modified_at = cx.now_after(known.record.last_modified_at);
    let facts = vec![Fact::PoliciesAttached { record: known.record.clone(), policies }];
    let mut draft = Draft { facts, guards, ..Draft::default() };
    draft.extend(evaluation::reevaluate(&known, attached, cx).await?);
    cx.record(draft).await.map_err(|error| error.of_field("policy_names"))?;
    Ok(())
}
