//! Environments as answers show them: names in place of ids, and what a logical environment takes from its members.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::TryFutureExt;
use futures_util::future::try_join;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EnvironmentKind, KnownEnvironment};
use crate::auth::Scope;
use crate::error::{Error, Result};
use crate::id::Id;
use crate::name::{EnvironmentName, OrgName, PolicyName};
use crate::operation::{Json, Method, Operation};
use crate::page::{PageLinks, PageNumber, PerPage, Slice, SortDirection};
use crate::rules::policy::logical_environment_state;
use crate::service::Context;
use crate::shared::{List, ShortText, TagFilter, TagText, Tags, distinct};
use crate::time::{Seconds, Timestamp};

impl KnownEnvironment {
    /// When its settings last changed or it was last reported on, whichever is later.
    fn touched_at(&self) -> Timestamp {
        let modified = self.record.last_modified_at;
        self.status.reported_at.map_or(modified, |reported| reported.max(modified))
    }
}

/// An environment as answers carry it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Environment")]
#[expect(missing_docs, reason = "the names say it")]
pub struct EnvironmentView {
    pub org: OrgName,
    pub name: EnvironmentName,
    #[serde(rename = "type")]
    pub kind: EnvironmentKind,
    pub description: String,
    pub last_modified_at: Seconds,
    pub last_reported_at: Option<Seconds>,
    pub last_changed_at: Option<Seconds>,
    /// The verdict of the latest snapshot, or of the members' together; unknown without policies or snapshots.
    pub state: Option<bool>,
    /// As it was set; without effect.
    pub include_scaling: bool,
    pub tags: Tags,
    /// The names of the policies attached, sorted.
    pub policies: Vec<PolicyName>,
    /// The members of a logical environment in the order given; null for a physical one.
    pub included_environments: Option<Vec<EnvironmentName>>,
}

/// What a logical environment takes from its members, and a physical one has of its own.
#[derive(Debug, Clone, Copy)]
struct Standing {
    modified_at: Timestamp,
    changed_at: Option<Timestamp>,
    state: Option<bool>,
}

/// The names behind the ids that environments hold.
struct Directory {
    environments: BTreeMap<Id, KnownEnvironment>,
    /// Members of logical environments that are archived: they are left out.
    archived: BTreeSet<Id>,
    policies: BTreeMap<Id, PolicyName>,
}

impl Directory {
    /// What stands behind the ids that these environments hold. They are in it themselves.
    async fn of(listed: Vec<KnownEnvironment>, cx: &Context<'_>) -> Result<Self> {
        let org = cx.org()?;
        let mut environments: BTreeMap<Id, KnownEnvironment> =
            listed.into_iter().map(|known| (known.record.id, known)).collect();
        let held =
            |ids: fn(&KnownEnvironment) -> &Vec<Id>| distinct(environments.values().flat_map(ids).copied());
        let mut members = held(|known| &known.record.included);
        members.retain(|member| !environments.contains_key(member));
        let policies = held(|known| &known.record.policies);
        let members = async {
            if members.is_empty() {
                return Ok(Vec::new());
            }
            cx.store().environments_by_id(org, &members).await
        };
        let policies = cx.store().policies_by_id(org, &policies).map_err(Error::from);
        let (members, policies) = try_join(members.map_err(Error::from), policies).await?;
        let mut archived = BTreeSet::new();
        for member in members {
            if member.archived {
                archived.insert(member.record.id);
            } else {
                environments.insert(member.record.id, member);
            }
        }
        let policies = policies.into_iter().map(|policy| (policy.record.id, policy.record.name));
        Ok(Self { environments, archived, policies: policies.collect() })
    }

    fn members<'a>(
        &'a self,
        environment: &'a KnownEnvironment,
    ) -> impl Iterator<Item = &'a KnownEnvironment> {
        environment.record.included.iter().filter_map(|id| self.environments.get(id))
    }

    fn standing(&self, environment: &KnownEnvironment) -> Standing {
        if environment.record.kind.is_physical() {
            return Standing {
                modified_at: environment.touched_at(),
                changed_at: environment.status.changed_at,
                state: environment.state(),
            };
        }
        let changed_at = self.members(environment).filter_map(|member| member.status.changed_at).max();
        Standing {
            modified_at: changed_at.unwrap_or(environment.record.last_modified_at),
            changed_at,
            // What is known of a member that cannot be read is that it cannot be.
            state: logical_environment_state(
                (environment.record.included.iter().filter(|id| !self.archived.contains(*id)))
                    .map(|id| self.environments.get(id)?.state()),
            ),
        }
    }

    fn view(&self, known: &KnownEnvironment, org: &OrgName) -> EnvironmentView {
        let (standing, environment) = (self.standing(known), &known.record);
        let logical = !environment.kind.is_physical();
        let mut policies: Vec<_> =
            environment.policies.iter().filter_map(|id| self.policies.get(id)).cloned().collect();
        policies.sort();
        EnvironmentView {
            org: org.clone(),
            name: environment.name.clone(),
            kind: environment.kind,
            description: environment.description.clone(),
            last_modified_at: standing.modified_at.seconds(),
            last_reported_at: known.status.reported_at.map(Timestamp::seconds),
            last_changed_at: standing.changed_at.map(Timestamp::seconds),
            state: standing.state,
            include_scaling: environment.include_scaling,
            tags: environment.tags.clone(),
            policies,
            included_environments: logical
                .then(|| self.members(known).map(|member| member.record.name.clone()).collect()),
        }
    }
}

/// What a list of environments is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the variants are the fields")]
pub enum EnvironmentSort {
    #[default]
    Name,
    LastModifiedAt,
    LastChangedAt,
}

/// A list of environments: plain, or a page of it when `page` or `per_page` was given.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
#[expect(missing_docs, reason = "the names say it")]
pub enum EnvironmentList {
    /// Every environment.
    All(Vec<EnvironmentView>),
    /// One page.
    Page {
        _links: PageLinks,
        environments: Vec<EnvironmentView>,
        page: u64,
        per_page: u64,
        total_pages: u64,
        total_count: u64,
    },
}

/// Lists the environments of an organization.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "parameters, described by the API's documentation")]
pub struct ListEnvironments {
    pub org: OrgName,
    pub page: Option<PageNumber>,
    pub per_page: Option<PerPage<50>>,
    #[serde(default)]
    pub sort: EnvironmentSort,
    #[serde(default)]
    pub sort_direction: SortDirection,
    /// Repeatable. There are no spaces yet, so that nothing is in any.
    #[serde(default)]
    pub space_id: List<ShortText>,
    /// A substring of the name; case does not matter.
    pub name: Option<ShortText>,
    /// Repeatable; any may match.
    #[serde(default, rename = "type")]
    pub kind: List<EnvironmentKind>,
    /// `key` or `key:value`; repeatable, all must match.
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
    type Output = Json<EnvironmentList>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let listed = cx.store().environments(cx.org()?).await?;
        let directory = Directory::of(listed, cx).await?;
        let org = &cx.place()?.name;
        let found = self.select(&directory);
        let view = |environments: &[&KnownEnvironment]| {
            environments.iter().map(|environment| directory.view(environment, org)).collect()
        };
        if self.page.is_none() && self.per_page.is_none() {
            return Ok(Json(EnvironmentList::All(view(&found))));
        }
        let (page, per_page) =
            (self.page.unwrap_or_default(), self.per_page.map_or(DEFAULT_PER_PAGE, PerPage::get));
        let slice = Slice::of(found, page.window(per_page));
        let pages = slice.pages(per_page);
        let address = cx.api_url(&format!("environments/{org}"));
        Ok(Json(EnvironmentList::Page {
            _links: PageLinks::new(&address, self.query(), page.get(), per_page, pages),
            environments: view(&slice.items),
            page: page.get(),
            per_page,
            total_pages: pages,
            total_count: slice.total,
        }))
    }
}

impl ListEnvironments {
    /// The environments that were asked for, in the order asked for; those equal in it by name.
    fn select<'a>(&self, directory: &'a Directory) -> Vec<&'a KnownEnvironment> {
        let tags: Vec<_> = self.tag.0.iter().map(|tag| TagFilter::parse(tag, ':')).collect();
        let name = self.name.as_deref().unwrap_or_default().to_ascii_lowercase();
        let fits = |known: &&KnownEnvironment| {
            let environment = &known.record;
            self.space_id.0.is_empty()
                && (self.kind.0.is_empty() || self.kind.0.contains(&environment.kind))
                && environment.name.as_str().to_ascii_lowercase().contains(&name)
                && tags.iter().all(|tag| tag.matches(&environment.tags))
        };
        let mut found: Vec<_> = directory.environments.values().filter(fits).collect();
        found.sort_by_cached_key(|environment| {
            let at = match self.sort {
                EnvironmentSort::Name => None,
                EnvironmentSort::LastModifiedAt => Some(directory.standing(environment).modified_at),
                EnvironmentSort::LastChangedAt => directory.standing(environment).changed_at,
            };
            (at, environment.record.name.clone())
        });
        if self.sort_direction == SortDirection::Desc {
            found.reverse();
        }
        found
    }

    /// The parameters but for the page, as the links of a page repeat them.
    fn query(&self) -> Vec<(&str, &str)> {
        let sort = match self.sort {
            EnvironmentSort::Name => "name",
            EnvironmentSort::LastModifiedAt => "last_modified_at",
            EnvironmentSort::LastChangedAt => "last_changed_at",
        };
        let direction = match self.sort_direction {
            SortDirection::Asc => "asc",
            SortDirection::Desc => "desc",
        };
        let mut query = vec![("sort", sort), ("sort_direction", direction)];
        query.extend(self.space_id.0.iter().map(|space| ("space_id", space.as_str())));
        query.extend(self.name.iter().map(|name| ("name", name.as_str())));
        query.extend(self.kind.0.iter().map(|kind| ("type", kind.as_str())));
        query.extend(self.tag.0.iter().map(|tag| ("tag", tag.as_str())));
        query
    }
}

/// Gets one environment.
#[derive(Debug, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "parameters, described by the API's documentation")]
pub struct GetEnvironment {
    pub org: OrgName,
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
        let directory = Directory::of(vec![environment.clone()], cx).await?;
        Ok(Json(directory.view(&environment, &cx.place()?.name)))
    }
}
