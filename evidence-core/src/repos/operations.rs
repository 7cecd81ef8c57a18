//! The creation and update of repos by reports, and the operations on them.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::bounded::{Address, List, LongText, ShortText, TagText};
use crate::context::{Context, Draft};
use crate::decode::UnknownFields;
use crate::error::{Error, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::id::Id;
use crate::ledger::Hash;
use crate::name::OrgName;
use crate::operation::{Json, JsonList, Method, Operation, json_text};
use crate::page::{PageLinks, PageNumber, PageRequest, PerPage, SortDirection};
use crate::repos::record::{
    Repo, RepoInfo, VcsProvider, identity, namespace_path, segments, short_name, vcs_instance,
};
use crate::repos::store::{RepoFacet, RepoFilter};
use crate::repos::view::{RepoFilterOptions, RepoList, RepoView};
use crate::store::entry::Current;
use crate::tags::operations::list_choices;
use crate::tags::record::{TagChoice, TagFilter, TaggedKind, Tags};

/// Returns whether a literal path of the API would shadow the path of a repo with this name.
fn is_reserved(name: &str) -> bool {
    ["tags", "filter-options"].contains(&name) || name.starts_with("live-artifacts/")
}

impl Repo {
    /// Returns the repo that a report names for the first time.
    fn first_reported(info: &RepoInfo, cx: &Context<'_>) -> Self {
        Self {
            id: cx.new_id(),
            identity: identity(info),
            info: info.clone(),
            vcs_instance: vcs_instance(&info.url),
            short_name: short_name(&info.name),
            namespace_path: namespace_path(info),
            tags: Tags::new(),
            created_at: cx.now(),
            unknown: UnknownFields::default(),
        }
    }
}

impl Draft {
    /// Adds a report's data about its repo to the draft if they are new, and returns the repo's id.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that the API's own paths would shadow.
    pub(crate) async fn repo(&mut self, info: Option<&RepoInfo>, cx: &Context<'_>) -> Result<Option<Id>> {
        let Some(info) = info else { return Ok(None) };
        if is_reserved(&info.name) {
            let text = format!("'{}' is a reserved word of the API", info.name);
            return Err(Error::invalid("repo_info.name", text));
        }
        let identity = identity(info);
        if let Some(id) = self.drafted_repo(&identity) {
            return Ok(Some(id));
        }
        let reported = Hash::of(json_text(info)?);
        if let Some(known) = cx.known_repo(reported)? {
            self.preconditions.push(Precondition::Revision(RecordKind::Repo, known.record, known.revision));
            return Ok(Some(known.record));
        }
        let known = cx.store().repo_by_identity(cx.org()?, &identity).await?;
        let (record, precondition) = match known {
            Some(Current { revision, record: known }) => {
                let precondition = Precondition::Revision(RecordKind::Repo, known.id, revision);
                let record = known.reported_again(info);
                if record == known {
                    cx.cache_repo(reported, Current { revision, record: known.id })?;
                    self.preconditions.push(precondition);
                    return Ok(Some(known.id));
                }
                (record, precondition)
            }
            None => (Repo::first_reported(info, cx), Precondition::Vacant(Key::Repo(identity))),
        };
        let id = record.id;
        self.fact_if(Fact::RepoReported { record }, precondition);
        Ok(Some(id))
    }

    /// Returns the repo of this identity if the draft already reports it. A report may name a repo twice,
    /// with its trail and itself.
    fn drafted_repo(&self, identity: &str) -> Option<Id> {
        self.facts.iter().find_map(|fact| match fact {
            Fact::RepoReported { record } if record.identity == identity => Some(record.id),
            _ => None,
        })
    }
}

/// Lists the repos from which artifacts, attestations and trails were reported, sorted by name, one page at a
/// time. `name` together with `search` is 400. Accepts HTTP Basic in addition to Bearer: the key is the user
/// name, and the password is ignored.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListRepos {
    /// The organization's name.
    pub org: OrgName,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Repos per page. Defaults to 15.
    pub per_page: Option<PerPage<50>>,
    /// Exactly this name. Ignored if `repo_id` is given; cannot be combined with `search`.
    pub name: Option<ShortText>,
    /// A substring of the name, case-insensitive. Cannot be combined with `name`.
    pub search: Option<ShortText>,
    /// Exactly this kind of host.
    pub provider: Option<VcsProvider>,
    /// Exactly this id at the host.
    pub repo_id: Option<ShortText>,
    /// Exactly this host.
    pub vcs_instance: Option<Address>,
    /// A namespace path, its segments separated by `/`. Returns all repos below it.
    pub namespace: Option<LongText>,
    /// The order by name: `asc` (the default) or `desc`.
    pub sort_direction: Option<SortDirection>,
    /// `key` or `key:value`. Repeatable; all must match.
    #[serde(default)]
    pub tag: List<TagText>,
}

/// The default number of repos on a page (specification, Limits).
const PER_PAGE: u64 = 15;

const EXCLUSIVE: &str = "'name' and 'search' are mutually exclusive";

impl Operation for ListRepos {
    const NAME: &'static str = "list_repos";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/repos/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the repos of an organization";
    const BASIC_AUTH: bool = true;
    type Body = ();
    type Output = Json<RepoList>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        if self.name.is_some() && self.search.is_some() {
            let fields = ["query.name", "query.search"].map(|field| (field.to_owned(), EXCLUSIVE.to_owned()));
            return Err(Error::Invalid { message: EXCLUSIVE.to_owned(), fields: fields.into() });
        }
        let (page, per_page) = (self.page.unwrap_or_default(), self.per_page.map_or(PER_PAGE, PerPage::get));
        let slice = cx.store().repos(cx.org()?, &self.filter(), page.request(per_page)).await?;
        let (total_pages, total_count) = (slice.pages(per_page), slice.total);
        let address = cx.api_url(&format!("repos/{}", self.org));
        let _links = PageLinks::new(&address, self.query(), page.get(), per_page, total_pages);
        let repos = slice.items.into_iter().map(|repo| RepoView::new(repo, cx)).collect::<Result<_>>()?;
        Ok(Json(RepoList { page: page.get(), per_page, total_pages, total_count, repos, _links }))
    }
}

impl ListRepos {
    fn filter(&self) -> RepoFilter {
        RepoFilter {
            name: self.name.as_deref().filter(|_| self.repo_id.is_none()).map(str::to_owned),
            search: self.search.as_deref().map(str::to_owned),
            provider: self.provider,
            repo_id: self.repo_id.as_deref().map(str::to_owned),
            vcs_instance: self.vcs_instance.as_deref().map(str::to_owned),
            namespace: self.namespace.as_deref().map(segments),
            tags: tag_filters(&self.tag),
            direction: self.sort_direction.unwrap_or_default(),
        }
    }

    /// Returns the filter and sort parameters, for links to other pages.
    fn query(&self) -> impl Iterator<Item = (&str, &str)> {
        let direction = match self.sort_direction {
            Some(SortDirection::Desc) => Some("desc"),
            Some(SortDirection::Asc) | None => None,
        };
        let texts = [
            ("name", self.name.as_deref()),
            ("search", self.search.as_deref()),
            ("provider", self.provider.map(VcsProvider::as_str)),
            ("repo_id", self.repo_id.as_deref()),
            ("vcs_instance", self.vcs_instance.as_deref()),
            ("namespace", self.namespace.as_deref()),
            ("sort_direction", direction),
        ];
        let given = texts.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.chain(self.tag.0.iter().map(|tag| ("tag", tag.as_str())))
    }
}

fn tag_filters(tags: &List<TagText>) -> Vec<TagFilter> {
    tags.0.iter().map(|tag| TagFilter::parse(tag, ':')).collect()
}

/// Lists the values by which repos can be filtered: providers, hosts, and the namespace segments one level
/// below `namespace`. Each list is of the repos that match the other parameters; for example, the list of
/// providers ignores `provider`. Each list has at most the first thousand values.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListRepoFilterOptions {
    /// The organization's name.
    pub org: OrgName,
    /// Exactly this kind of host.
    pub provider: Option<VcsProvider>,
    /// Exactly this host.
    pub vcs_instance: Option<Address>,
    /// A namespace path, its segments separated by `/`. Considers all repos below it.
    pub namespace: Option<LongText>,
    /// `key` or `key:value`. Repeatable; all must match.
    #[serde(default)]
    pub tag: List<TagText>,
}

/// The most values of each kind in a response.
const VALUES: u64 = 1000;

impl Operation for ListRepoFilterOptions {
    const NAME: &'static str = "list_repo_filter_options";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/repos/{org}/filter-options";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the values that repos can be filtered by";
    type Body = ();
    type Output = Json<RepoFilterOptions>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let (store, org) = (cx.store(), cx.org()?);
        let all = RepoFilter {
            provider: self.provider,
            vcs_instance: self.vcs_instance.as_deref().map(str::to_owned),
            namespace: self.namespace.as_deref().map(segments),
            tags: tag_filters(&self.tag),
            ..RepoFilter::default()
        };
        let any_provider = RepoFilter { provider: None, ..all.clone() };
        let any_instance = RepoFilter { vcs_instance: None, ..all.clone() };
        let depth = all.namespace.as_ref().map_or(0, Vec::len);
        let below = RepoFacet::NamespaceSegment(u16::try_from(depth).unwrap_or(u16::MAX));
        // Query one after another: each may take long, and an organization has few connections for long
        // queries.
        let providers = store.repo_values(org, &any_provider, RepoFacet::Provider, VALUES).await?;
        let vcs_instances = store.repo_values(org, &any_instance, RepoFacet::VcsInstance, VALUES).await?;
        let namespace_values = store.repo_values(org, &all, below, VALUES).await?;
        Ok(Json(RepoFilterOptions { providers, vcs_instances, namespace_values }))
    }
}

/// Lists the tags of an organization's repos, for use as filters. Each key has each of its values once,
/// sorted by key and value.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListRepoTags {
    /// The organization's name.
    pub org: OrgName,
}

impl Operation for ListRepoTags {
    const NAME: &'static str = "list_repo_tag_choices";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/repos/{org}/tags";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the tags that repos have";
    type Body = ();
    type Output = JsonList<TagChoice>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        list_choices(TaggedKind::Repo, cx).await
    }
}

/// Gets a repo by its name, or by its id in this API. If several repos have the name, the request is 400
/// unless `provider` or `id` selects one; the error lists some of them. If several have the name and the
/// provider, returns the newest.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetRepo {
    /// The organization's name.
    pub org: OrgName,
    /// The repo's name. It may contain slashes: `owner/repo`. Ignored if `id` is given.
    pub repo_name: ShortText,
    /// The kind of host. Ignored if `id` is given.
    pub provider: Option<VcsProvider>,
    /// The repo's `id`, as in responses.
    pub id: Option<ShortText>,
}

impl Operation for GetRepo {
    const NAME: &'static str = "get_repo";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/repos/{org}/{repo_name}";
    const CATCH_ALL: bool = true;
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets a repo";
    type Body = ();
    type Output = Json<RepoView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let repo = match (self.id, self.provider) {
            (Some(id), _) => cx.repo_of_id(&id, "query.id").await?,
            (None, Some(_)) => cx.newest_repo(&self.repo_name, self.provider).await?,
            (None, None) => only_repo(&self.repo_name, cx).await?,
        };
        Ok(Json(RepoView::new(repo, cx)?))
    }
}

impl Context<'_> {
    /// Returns the repo of this id, or [`Error::NotFound`] if there is none or the id is invalid. `field` is
    /// the parameter with the id.
    pub(crate) async fn repo_of_id(&self, id: &str, field: &'static str) -> Result<Repo> {
        let repo = match id.parse() {
            Ok(id) => self.store().repo(self.org()?, id).await?,
            Err(_) => None,
        };
        Ok(repo.ok_or_else(|| self.missing(Resource::Repo, id).named_by(field))?.record)
    }

    /// Returns the newest repo of this name and, if given, this provider, or [`Error::NotFound`].
    pub(super) async fn newest_repo(&self, name: &ShortText, provider: Option<VcsProvider>) -> Result<Repo> {
        let repo = self.store().newest_repo(self.org()?, name, provider).await?;
        Ok(repo.ok_or_else(|| self.missing(Resource::Repo, name.as_str()))?)
    }
}

/// The most repos that a query can select. Few hosts share a name or an id.
pub(crate) const MAX_CHOSEN: u64 = 1000;

/// The repos that a query selects. The first given of these parameters counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RepoChoice<'q> {
    /// `repo_inner_id`: the repo's id in this API.
    pub(crate) inner_id: Option<&'q str>,
    /// `repo_id`: the repos' id at their hosts.
    pub(crate) repo_id: Option<&'q str>,
    /// `repo_name`: the repos' name.
    pub(crate) name: Option<&'q str>,
}

impl<'q> RepoChoice<'q> {
    /// Returns the parameters, for links.
    pub(crate) const fn query(self) -> [(&'static str, Option<&'q str>); 3] {
        [("repo_inner_id", self.inner_id), ("repo_id", self.repo_id), ("repo_name", self.name)]
    }
}

impl Context<'_> {
    /// Returns the selected repos, at most the first [`MAX_CHOSEN`] by name and id; `None` if no parameter is
    /// given.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such repo.
    pub(crate) async fn chosen_repos(&self, choice: RepoChoice<'_>) -> Result<Option<Vec<Id>>> {
        let given = |text: &&str| !text.is_empty();
        let RepoChoice { inner_id, repo_id, name } = choice;
        if let Some(id) = inner_id.filter(given) {
            return Ok(Some(vec![self.repo_of_id(id, "query.repo_inner_id").await?.id]));
        }
        let (filter, text, field) = match (repo_id.filter(given), name.filter(given)) {
            (Some(id), _) => {
                let filter = RepoFilter { repo_id: Some(id.to_owned()), ..RepoFilter::default() };
                (filter, id, "query.repo_id")
            }
            (None, Some(name)) => {
                let filter = RepoFilter { name: Some(name.to_owned()), ..RepoFilter::default() };
                (filter, name, "query.repo_name")
            }
            (None, None) => return Ok(None),
        };
        let first = PageRequest { offset: 0, limit: MAX_CHOSEN };
        let repos = self.store().repo_ids(self.org()?, &filter, first).await?;
        if repos.is_empty() {
            return Err(self.missing(Resource::Repo, text).named_by(field).into());
        }
        Ok(Some(repos))
    }
}

/// The most repos that the error about an ambiguous name lists.
const MAX_NAMED: u64 = 10;

/// Returns the only repo of this name.
async fn only_repo(name: &ShortText, cx: &Context<'_>) -> Result<Repo> {
    let filter = RepoFilter { name: Some(name.to_string()), ..RepoFilter::default() };
    let request = PageRequest { offset: 0, limit: MAX_NAMED };
    let mut repos = cx.store().repos(cx.org()?, &filter, request).await?.items;
    match (repos.pop(), repos.as_slice()) {
        (None, _) => Err(cx.missing(Resource::Repo, name.as_str()).into()),
        (Some(only), []) => Ok(only),
        (Some(last), others) => Err(ambiguous(name, others.iter().chain([&last]))),
    }
}

fn ambiguous<'r>(name: &ShortText, repos: impl Iterator<Item = &'r Repo> + Clone) -> Error {
    let provider = |repo: &Repo| repo.info.provider.map_or("no provider", VcsProvider::as_str);
    let providers: BTreeSet<&str> = repos.clone().map(provider).collect();
    let providers = Vec::from_iter(providers).join(", ");
    let message =
        format!("Multiple repos named '{name}' exist ({providers}). Specify the 'provider' or the 'id'.");
    let ids = Vec::from_iter(repos.map(|repo| format!("{} ({})", repo.id, provider(repo))));
    Error::invalid_with(message, "query.id", format!("one of: {}", ids.join(", ")))
}
