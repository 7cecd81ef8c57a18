//! Operations on environments, except environment reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::{StreamExt, TryFutureExt, stream};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::{Role, Scope};
use crate::bounded::{Description, List, ShortText, TagText};
use crate::context::{Context, Draft};
use crate::decode::UnknownFields;
use crate::environments::evaluation::{self, Changed};
use crate::environments::record::{Environment, EnvironmentKind};
use crate::environments::reevaluation::reevaluate_members;
use crate::environments::store::KnownEnvironment;
use crate::environments::view::{
    EnvironmentPage, EnvironmentSort, EnvironmentSummaries, EnvironmentView, views,
};
use crate::error::{Error, Missing, Resource, Result, at_most};
use crate::fact::Fact;
use crate::fact::names::{Key, Precondition};
use crate::id::Id;
use crate::name::{EnvironmentName, OrgName};
use crate::operation::{Acknowledged, Created, Json, JsonList, Method, Operation};
use crate::page::{Listed, Page, PageLinks, PageNumber, PerPage, SortDirection};
use crate::policies::operations as policies;
use crate::policies::record::Policy;
use crate::store::batch::RECORD_BATCH_SIZE;
use crate::store::entry::Current;
use crate::tags::record::{TagFilter, Tags};

/// The name and kind of an environment, for display elsewhere.
#[derive(Debug, Clone)]
pub(crate) struct EnvironmentLabel {
    pub(crate) name: EnvironmentName,
    pub(crate) kind: EnvironmentKind,
}

/// Returns the environment's id and label.
fn labelled(Environment { id, name, kind, .. }: Environment) -> (Id, EnvironmentLabel) {
    (id, EnvironmentLabel { name, kind })
}

impl Context<'_> {
    /// Returns the labels of these environments by id, archived ones included.
    pub(crate) async fn environment_labels(&self, ids: &[Id]) -> Result<BTreeMap<Id, EnvironmentLabel>> {
        let mut labels = BTreeMap::new();
        for part in ids.chunks(RECORD_BATCH_SIZE) {
            let found = self.store().environments_by_id(self.org()?, part).await?;
            labels.extend(found.into_iter().map(|known| labelled(known.record)));
        }
        Ok(labels)
    }

    /// Returns the environment of this name, or [`Error::NotFound`].
    pub(crate) async fn environment(&self, name: &str) -> Result<KnownEnvironment> {
        match self.store().environment(self.org()?, name).await? {
            Some(environment) => Ok(environment),
            None => Err(self.missing_environment(name).await?.into()),
        }
    }

    /// Returns the labels of all environments by id, without archived ones.
    pub(crate) async fn all_environment_labels(&self) -> Result<BTreeMap<Id, EnvironmentLabel>> {
        let mut labels = BTreeMap::new();
        for ids in Listed::batches(self.store().environments_listed(self.org()?).await?) {
            labels.extend(self.listed_labels(&ids).await?);
        }
        Ok(labels)
    }

    /// Returns the labels of these listed environments, without those that were archived since.
    async fn listed_labels(&self, ids: &[Id]) -> Result<Vec<(Id, EnvironmentLabel)>> {
        let known = self.store().environments_by_id(self.org()?, ids).await?.into_iter();
        Ok(known.filter(|known| !known.archived).map(|known| labelled(known.record)).collect())
    }

    /// Returns the environments with these present or former names, in their order. The error for a missing
    /// environment has its name.
    pub(crate) async fn environments_named(
        &self,
        names: &[ShortText],
        field: &'static str,
    ) -> Result<Vec<(Id, EnvironmentLabel)>> {
        let asked = BTreeSet::from_iter(names.iter().map(ShortText::as_str));
        let mut known = BTreeMap::<&str, (Id, EnvironmentLabel)>::new();
        if asked.len() > 1 {
            let batches = Listed::batches(self.store().environments_listed(self.org()?).await?);
            // Read all environments if that takes fewer queries than looking up each name.
            let batches = if batches.len() < asked.len() { batches } else { Vec::new() };
            for ids in batches {
                for (id, label) in self.listed_labels(&ids).await? {
                    if let Some(name) = asked.get(label.name.as_str()) {
                        known.insert(*name, (id, label));
                    }
                }
            }
        }
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            let environment = match known.get(name.as_str()) {
                Some(environment) => environment.clone(),
                // The list has no former names and no unreadable environments.
                None => labelled(self.environment(name).await.map_err(|error| error.named_by(field))?.record),
            };
            known.insert(name.as_str(), environment.clone());
            found.push(environment);
        }
        Ok(found)
    }

    /// Returns the error for a name that no environment has. It says so if an archived environment had the
    /// name.
    pub(crate) async fn missing_environment(&self, name: &str) -> Result<Missing> {
        let was_archived = self.store().archived_environment(self.org()?, name).await?;
        let resource = if was_archived { Resource::ArchivedEnvironment } else { Resource::Environment };
        Ok(self.missing(resource, name))
    }

    /// Returns whether the caller has at least this role in the organization.
    fn has_role(&self, least: Role) -> Result<bool> {
        Ok(self.org_access()?.role.is_some_and(|role| role >= least))
    }
}

/// Creates or updates an environment; the response is 201 in both cases. The same body again changes nothing.
/// Updating an existing environment needs the role `member` or above: a `snapshotter` gets 403. The type
/// never changes: another one is 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PutEnvironment {
    /// The organization's name.
    pub org: OrgName,
}

/// The document that creates or updates an environment. A list that is absent or null changes nothing.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CreateEnvironmentPutInput")]
pub struct EnvironmentInput {
    /// Its name, unique in the organization.
    pub name: EnvironmentName,
    /// Its kind. It never changes.
    #[serde(rename = "type")]
    pub kind: EnvironmentKind,
    /// A description of its purpose. An empty one keeps the present description.
    pub description: Description,
    /// Recorded and returned. It has no effect.
    pub include_scaling: Option<bool>,
    /// Whether an artifact that was never reported to a flow is non-compliant there, unless it is on the
    /// allowlist. Without policies, a reported artifact must also be compliant in each of its flows. Defaults
    /// to the present value, and to false for a new environment. For a logical environment, this is 400.
    /// Policies can express the same and more.
    pub require_provenance: Option<bool>,
    /// The members of a logical environment, by name. The list replaces the previous one.
    pub included_environments: Option<List<ShortText>>,
    /// The policies that it is evaluated against, by name. The list replaces the previous one, and running
    /// artifacts are evaluated again. Artifacts in members of a logical environment must also comply with its
    /// policies.
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
        cx.retry_exclusively(Key::Environment(input.name.clone()), || put(&input, cx)).await?;
        Ok(Created(Acknowledged::Ok))
    }
}

async fn put(input: &EnvironmentInput, cx: &Context<'_>) -> Result<()> {
    let known = cx.store().environment(cx.org()?, input.name.as_str()).await?;
    // A former name of another environment is free.
    let known = known.filter(|known| known.record.name == input.name);
    let description = input.description.clone().into_string();
    let settings = Settings {
        description: (!description.is_empty()).then_some(description),
        include_scaling: input.include_scaling,
        require_provenance: input.require_provenance,
        included: input.included_environments.as_ref(),
        policies: input.policies.as_ref(),
    };
    let mut resolved = settings.resolved(cx).await?;
    let Some(known) = known else {
        let record = resolved.applied_to(created(input, cx))?;
        resolved.preconditions.push(Precondition::Vacant(Key::Environment(input.name.clone())));
        let asked = record.included.iter().copied().filter(|_| !record.policies.is_empty()).collect();
        let facts = vec![Fact::EnvironmentCreated { record }];
        cx.record(Draft { facts, preconditions: resolved.preconditions, ..Draft::default() }).await?;
        return reevaluate_members(asked, cx).await;
    };
    let updated = if known.record.kind == input.kind {
        resolved.applied_to(known.record.clone())
    } else {
        let is = known.record.kind.as_str();
        Err(Error::invalid("type", format!("The type of an environment cannot change: this one is '{is}'")))
    };
    if updated.as_ref().is_ok_and(|updated| *updated == known.record) {
        return Ok(());
    }
    if !cx.has_role(Role::Member)? {
        return Err(Error::Forbidden);
    }
    update(known, updated?, resolved, cx).await
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
        require_provenance: false,
        tags: Tags::new(),
        created_at: cx.now(),
        created_by: cx.actor(),
        last_modified_at: cx.now(),
        unknown: UnknownFields::default(),
    }
}

/// Records new settings of an environment, and evaluates its running artifacts again if its policies changed.
async fn update(
    known: KnownEnvironment,
    updated: Environment,
    resolved: Resolved,
    cx: &Context<'_>,
) -> Result<()> {
    if updated == known.record {
        return Ok(());
    }
    let Resolved { policies, preconditions, .. } = resolved;
    let beyond = |some: &[Id], others: &[Id]| {
        let others = BTreeSet::from_iter(others);
        Vec::from_iter(some.iter().filter(|id| !others.contains(id)).copied())
    };
    let joined = beyond(&updated.included, &known.record.included);
    let left = beyond(&known.record.included, &updated.included);
    let fact = |record| Fact::EnvironmentUpdated { record, joined, left };
    record_settings(known, updated, fact, (policies.unwrap_or_default(), preconditions), cx).await
}

/// Records new settings of an environment, and evaluates its running artifacts again if its policies changed.
/// The tuple has the policies that were just read, and preconditions that hold while the names still refer to
/// them.
pub(super) async fn record_settings(
    known: KnownEnvironment,
    updated: Environment,
    fact: impl FnOnce(Environment) -> Fact,
    (policies, mut preconditions): (Vec<Current<Policy>>, Vec<Precondition>),
    cx: &Context<'_>,
) -> Result<()> {
    preconditions.push(known.unchanged());
    let updated = Environment { last_modified_at: cx.now_after(known.record.last_modified_at), ..updated };
    let mut draft = Draft { facts: vec![fact(updated.clone())], preconditions, ..Draft::default() };
    let is_judged_otherwise = updated.policies != known.record.policies
        || updated.require_provenance != known.record.require_provenance;
    let members = members_with_changed_policies(&known.record, &updated);
    if is_judged_otherwise && known.record.kind.is_physical() {
        let known = KnownEnvironment { record: updated, ..known };
        draft.extend(evaluation::reevaluate(&known, Changed::Policies, policies, cx).await?);
    }
    cx.record(draft).await?;
    reevaluate_members(members, cx).await
}

/// Returns the members for which the requirements of a logical environment changed.
fn members_with_changed_policies(before: &Environment, now: &Environment) -> BTreeSet<Id> {
    let members = |record: &Environment| BTreeSet::from_iter(record.included.iter().copied());
    let (was, is) = (members(before), members(now));
    match (before.policies == now.policies, now.policies.is_empty()) {
        (true, true) => BTreeSet::new(),
        (true, false) => was.symmetric_difference(&is).copied().collect(),
        (false, _) => was.union(&is).copied().collect(),
    }
}

/// The settings of a request. `None` keeps the present value.
struct Settings<'r> {
    description: Option<String>,
    include_scaling: Option<bool>,
    require_provenance: Option<bool>,
    included: Option<&'r List<ShortText>>,
    policies: Option<&'r List<ShortText>>,
}

impl Settings<'_> {
    async fn resolved(self, cx: &Context<'_>) -> Result<Resolved> {
        let Self { description, include_scaling, require_provenance, included, policies } = self;
        let mut preconditions = Vec::new();
        let included = match included {
            Some(names) => Some(named(&names.0, &mut preconditions, cx).await?),
            None => None,
        };
        let policies = match policies {
            Some(names) => Some(policies::named(&names.0, "policies", &mut preconditions, cx).await?),
            None => None,
        };
        at_most(cx.limits().environment_members, included.iter().flatten().count(), "included_environments")?;
        at_most(cx.limits().environment_policies, policies.iter().flatten().count(), "policies")?;
        Ok(Resolved { description, include_scaling, require_provenance, included, policies, preconditions })
    }
}

/// The settings of a request, with its names resolved.
struct Resolved {
    description: Option<String>,
    include_scaling: Option<bool>,
    require_provenance: Option<bool>,
    included: Option<Vec<(Id, EnvironmentLabel)>>,
    policies: Option<Vec<Current<Policy>>>,
    /// Preconditions that hold while the names still refer to the same records.
    preconditions: Vec<Precondition>,
}

impl Resolved {
    fn applied_to(&self, mut record: Environment) -> Result<Environment> {
        if let Some(members) = &self.included {
            if record.kind.is_physical() && !members.is_empty() {
                let text = "Only a logical environment includes others";
                return Err(Error::invalid("included_environments", text));
            }
            if let Some((_, logical)) = members.iter().find(|(_, member)| !member.kind.is_physical()) {
                return Err(not_physical("included_environments", &logical.name));
            }
            record.included = members.iter().map(|(member, _)| *member).collect();
        }
        if let Some(description) = &self.description {
            record.description.clone_from(description);
        }
        record.include_scaling = self.include_scaling.unwrap_or(record.include_scaling);
        if self.require_provenance == Some(true) && !record.kind.is_physical() {
            let text = "A logical environment runs nothing itself: set this on its members";
            return Err(Error::invalid("require_provenance", text));
        }
        record.require_provenance = self.require_provenance.unwrap_or(record.require_provenance);
        if let Some(policies) = &self.policies {
            record.policies = policies.iter().map(|policy| policy.record.id).collect();
        }
        Ok(record)
    }
}

/// Changes the given settings of an environment. Absent or null settings keep their values. An empty
/// description clears it.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PatchEnvironment {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
}

/// The document that changes an environment.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "UpdateEnvironmentPatchInput")]
pub struct EnvironmentPatch {
    /// A description of its purpose.
    pub description: Option<Description>,
    /// Recorded and returned. It has no effect.
    pub include_scaling: Option<bool>,
    /// The members of a logical environment, by name. The list replaces the previous one.
    pub included_environments: Option<List<ShortText>>,
    /// The policies that it is evaluated against, by name. The list replaces the previous one, and running
    /// artifacts are evaluated again. Artifacts in members of a logical environment must also comply with its
    /// policies.
    pub policies: Option<List<ShortText>>,
}

impl Operation for PatchEnvironment {
    const NAME: &'static str = "update_env";
    const METHOD: Method = Method::Patch;
    const PATH: &'static str = "/environments/{org}/{env_name}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Changes settings of an environment";
    type Body = Json<EnvironmentPatch>;
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(patch): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let record = Key::Environment(self.env_name.clone());
        cx.retry_exclusively(record, || self.change(&patch, cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

impl PatchEnvironment {
    async fn change(&self, patch: &EnvironmentPatch, cx: &Context<'_>) -> Result<()> {
        let known = cx.environment(self.env_name.as_str()).await?;
        let settings = Settings {
            description: patch.description.clone().map(Description::into_string),
            include_scaling: patch.include_scaling,
            require_provenance: None,
            included: patch.included_environments.as_ref(),
            policies: patch.policies.as_ref(),
        };
        let resolved = settings.resolved(cx).await?;
        let updated = resolved.applied_to(known.record.clone())?;
        update(known, updated, resolved, cx).await
    }
}

/// Returns the environments of these names in their order, each once. The error for a missing environment has
/// its name. Adds preconditions that hold while the names still refer to the same environments.
async fn named(
    names: &[ShortText],
    preconditions: &mut Vec<Precondition>,
    cx: &Context<'_>,
) -> Result<Vec<(Id, EnvironmentLabel)>> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for (id, label) in cx.environments_named(names, "included_environments").await? {
        if seen.insert(id) {
            preconditions.push(Precondition::Denotes(Key::Environment(label.name.clone()), id));
            found.push((id, label));
        }
    }
    Ok(found)
}

/// The message for adding an environment that is not physical, or adding to one that is not logical
/// (specification, Errors).
const ONLY_PHYSICAL: &str = "Can only add physical environments to logical environments";

fn not_physical(field: &str, name: &EnvironmentName) -> Error {
    Error::invalid_with(ONLY_PHYSICAL, field, format!("'{name}' is a logical environment"))
}

/// Adds a physical environment to a logical one. Adding an existing member changes nothing. Adding a logical
/// environment is 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct JoinEnvironment {
    /// The organization's name.
    pub org: OrgName,
    /// The logical environment's name.
    pub env_name: EnvironmentName,
}

/// The document that adds an environment.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "JoinPhysicalToLogicalPutInput")]
#[serde(deny_unknown_fields)]
pub struct JoinInput {
    /// The name of the physical environment to add.
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
    let precondition = known.unchanged();
    let mut record = known.record;
    let member = cx.environment(physical).await.map_err(|error| error.named_by("physical_env_name"))?.record;
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
    let before = record.clone();
    record.included.push(member.id);
    if record.included.len() > cx.limits().environment_members {
        drop_archived(&mut record.included, cx).await?;
    }
    at_most(cx.limits().environment_members, record.included.len(), "physical_env_name")?;
    record.last_modified_at = cx.now_after(record.last_modified_at);
    let members = members_with_changed_policies(&before, &record);
    let mut draft = Draft::of(Fact::EnvironmentJoined { record, member: member.id }, precondition);
    draft.preconditions.push(Precondition::Denotes(Key::Environment(member.name), member.id));
    cx.record(draft).await?;
    reevaluate_members(members, cx).await
}

/// The most members that are read at once.
const MEMBERS: usize = 64;

/// Removes archived members, so that they do not count towards the limit.
pub(crate) async fn drop_archived(members: &mut Vec<Id>, cx: &Context<'_>) -> Result<()> {
    let mut archived = BTreeSet::new();
    for part in members.chunks(MEMBERS) {
        let known = cx.store().environments_by_id(cx.org()?, part).await?;
        archived.extend(known.into_iter().filter(|known| known.archived).map(|known| known.record.id));
    }
    members.retain(|member| !archived.contains(member));
    Ok(())
}

/// Lists environments. With `page` or `per_page`, returns one page in an envelope; otherwise returns all.
/// Archived environments are left out.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListEnvironments {
    /// The organization's name.
    pub org: OrgName,
    /// The page number, from 1.
    pub page: Option<PageNumber>,
    /// Environments per page. Defaults to 15 if only `page` is given.
    pub per_page: Option<PerPage<50>>,
    /// The sort key. Environments with equal keys are sorted by name in the same direction.
    #[serde(default)]
    pub sort: EnvironmentSort,
    /// The order: `asc` or `desc`.
    #[serde(default)]
    pub sort_direction: SortDirection,
    /// Repeatable. Spaces are not supported yet: any value gives an empty list.
    #[serde(default)]
    pub space_id: List<ShortText>,
    /// A substring of the name, case-insensitive.
    pub name: Option<ShortText>,
    /// A type. Repeatable; any may match.
    #[serde(default, rename = "type")]
    pub kind: List<EnvironmentKind>,
    /// `key` or `key:value`. Repeatable; all must match.
    #[serde(default)]
    pub tag: List<TagText>,
}

const DEFAULT_PER_PAGE: u64 = 15;

impl Operation for ListEnvironments {
    const NAME: &'static str = "list_envs";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/environments/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the environments of an organization";
    type Body = ();
    type Output = JsonList<EnvironmentView, Option<EnvironmentPage>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let listed = cx.store().environments_listed(cx.org()?).await?;
        let sizes: BTreeMap<Id, u64> = listed.iter().map(|listed| (listed.id, listed.bytes)).collect();
        let (mut summaries, mut found, mut kept) =
            (EnvironmentSummaries::default(), Vec::new(), BTreeMap::new());
        let batches = Listed::batches(listed);
        let fit_memory = batches.len() <= 1;
        for ids in batches {
            for known in cx.store().environments_by_id(cx.org()?, &ids).await? {
                summaries.add(&known);
                if self.admits(&known) {
                    found.push(known.record.id);
                    if fit_memory {
                        kept.insert(known.record.id, known);
                    }
                }
            }
        }
        summaries.add_members(cx).await?;
        self.sort(&mut found, &summaries);
        let mut envelope = None;
        if self.page.is_some() || self.per_page.is_some() {
            let (page, per_page) =
                (self.page.unwrap_or_default(), self.per_page.map_or(DEFAULT_PER_PAGE, PerPage::get));
            let slice = Page::of(found, page.request(per_page));
            let (total_pages, total_count) = (slice.pages(per_page), slice.total);
            let address = cx.api_url(&format!("environments/{}", cx.org_access()?.name));
            let links = PageLinks::new(&address, self.query(), page.get(), per_page, total_pages);
            envelope = Some(EnvironmentPage { links, page: page.get(), per_page, total_pages, total_count });
            found = slice.items;
        }
        let size = |id: Id| Listed { id, bytes: sizes.get(&id).copied().unwrap_or_default() };
        let listed = found.into_iter().map(size).collect();
        let around = Arc::new((summaries, kept, cx.to_owned_context()));
        let read = move |ids| {
            let around = Arc::clone(&around);
            async move { views(ids, &around).await.map(|views| stream::iter(views).map(Ok)) }
                .try_flatten_stream()
        };
        JsonList::in_batches(listed, envelope, &cx.compute(), read).await
    }
}

impl ListEnvironments {
    /// Returns whether the environment matches the filters.
    fn admits(&self, known: &KnownEnvironment) -> bool {
        let environment = &known.record;
        let name = self.name.as_deref().unwrap_or_default().to_ascii_lowercase();
        self.space_id.0.is_empty()
            && (self.kind.0.is_empty() || self.kind.0.contains(&environment.kind))
            && environment.name.as_str().to_ascii_lowercase().contains(&name)
            && self.tag.0.iter().all(|tag| TagFilter::parse(tag, ':').matches(&environment.tags))
    }

    /// Sorts environments as requested. Environments with equal keys are sorted by name in the same
    /// direction.
    fn sort(&self, found: &mut [Id], summaries: &EnvironmentSummaries) {
        found.sort_by_cached_key(|id| {
            let summary = summaries.environments.get(id)?;
            let at = match self.sort {
                EnvironmentSort::Name => None,
                EnvironmentSort::LastModifiedAt => Some(summaries.live_state(summary).modified_at),
                EnvironmentSort::LastChangedAt => summaries.live_state(summary).changed_at,
            };
            Some((at, summary.name.clone()))
        });
        if self.sort_direction == SortDirection::Desc {
            found.reverse();
        }
    }

    /// Returns the parameters except the page, for links to other pages.
    fn query(&self) -> Vec<(&str, &str)> {
        let sort = match self.sort {
            EnvironmentSort::Name => "name",
            EnvironmentSort::LastModifiedAt => "last_modified_at",
            EnvironmentSort::LastChangedAt => "last_changed_at",
        };
        let mut query = vec![("sort", sort), ("sort_direction", self.sort_direction.as_str())];
        query.extend(self.space_id.0.iter().map(|space| ("space_id", space.as_str())));
        query.extend(self.name.iter().map(|name| ("name", name.as_str())));
        query.extend(self.kind.0.iter().map(|kind| ("type", kind.as_str())));
        query.extend(self.tag.0.iter().map(|tag| ("tag", tag.as_str())));
        query
    }
}

/// Gets an environment with its settings and its present state.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetEnvironment {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
}

impl Operation for GetEnvironment {
    const NAME: &'static str = "get_environment";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/environments/{org}/{env_name}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets an environment";
    type Body = ();
    type Output = Json<EnvironmentView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let environment = cx.environment(self.env_name.as_str()).await?;
        let mut summaries = EnvironmentSummaries::default();
        summaries.add(&environment);
        summaries.add_members(cx).await?;
        let view = summaries.views(vec![environment], cx).await?.pop();
        Ok(Json(view.ok_or_else(|| cx.missing(Resource::Environment, self.env_name.as_str()))?))
    }
}
