//! Repos: where code comes from. They come into being when a report names one, and follow what the newest report
//! says of them; what it leaves out stays as it was told.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::auth::Scope;
use crate::error::{Error, Result};
use crate::fact::{Fact, Guard, Key, RecordKind, UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::ledger::Hash;
use crate::name::OrgName;
use crate::operation::{Json, Method, Operation, json_text};
use crate::page::{Link, Listed, Page, PageLinks, PageNumber, PageRequest, PerPage, SortDirection};
use crate::service::{Context, Draft};
use crate::shared::{
    Address, Description, FreeForm, List, LongText, RepoInfo, ShortText, TagFilter, TagText, Tags,
    VcsProvider,
};
use crate::store::{Current, StoreResult};
use crate::time::Timestamp;

/// A repo as it is recorded: what reports said of it, the newest first of all.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Repo {
    /// Our id of it.
    pub id: Id,
    /// What it is recognised by: provider and external id, else the url.
    pub identity: String,
    /// What was reported.
    pub info: RepoInfo,
    /// The host of its url.
    pub vcs_instance: Option<String>,
    /// The part of the name after the last `/`.
    pub short_name: String,
    /// The groups it lies in: as sent, else the segments of the name before the last.
    pub namespace_path: Vec<String>,
    /// Its tags.
    pub tags: Tags,
    /// When it was first reported.
    pub created_at: Timestamp,
    /// What a newer version of the program recorded beside.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(Repo);

/// How a list of repos is narrowed; everything given must match.
#[derive(Debug, Clone, Default)]
pub struct RepoFilter {
    /// Exactly this name.
    pub name: Option<String>,
    /// A substring of the name, whatever its ASCII case.
    pub search: Option<String>,
    /// This provider.
    pub provider: Option<VcsProvider>,
    /// This external id.
    pub repo_id: Option<String>,
    /// This host.
    pub vcs_instance: Option<String>,
    /// Namespace paths that begin with these segments, case-sensitively.
    pub namespace: Option<Vec<String>>,
    /// Tags that must all match.
    pub tags: Vec<TagFilter>,
    /// By name (bytes), then by id, in this direction; equal names are by id ascending in both.
    pub direction: SortDirection,
}

/// Queries about repos.
#[async_trait]
pub trait RepoStore: Send + Sync {
    /// The repo of this identity, one, with its revision.
    async fn repo_by_identity(&self, org: Id, identity: &str) -> StoreResult<Option<Current<Repo>>>;
    /// The repo of this id, one, with its revision.
    async fn repo(&self, org: Id, id: Id) -> StoreResult<Option<Current<Repo>>>;
    /// The repos that the filter admits (name, search, provider, namespace, tags), by name (bytes) in the filter's direction,
    /// then by id: a page, and the total.
    async fn repos(&self, org: Id, filter: &RepoFilter, request: PageRequest) -> StoreResult<Page<Repo>>;
    /// The same page of the same list, without what the repos say, and without the total.
    async fn repos_listed(
        &self,
        org: Id,
        filter: &RepoFilter,
        request: PageRequest,
    ) -> StoreResult<Vec<Listed>>;
}

/// Names that a literal path would shadow.
const RESERVED: [&str; 2] = ["tags", "filter-options"];

impl Repo {
    /// The repo that a report names for the first time.
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

    /// The same repo as a later report describes it, which may tell less than one before.
    fn reported_again(&self, newer: &RepoInfo) -> Self {
        let (RepoInfo { name, url, id, description, provider, namespace_path: path, additional_info }, known) =
            (newer.clone(), self.info.clone());
        // A path was told with the name that it leads to.
        let known_id = known.id;
        let known_path = known.namespace_path.filter(|_| name == known.name);
        let mut info = RepoInfo {
            url: if url.is_empty() { known.url } else { url },
            id: id.clone().or(known_id.clone()),
            description: description.or(known.description),
            provider: provider.or(known.provider),
            namespace_path: path.or(known_path),
            additional_info: additional_info.or(known.additional_info),
            name,
        };
        // What two reports told apart would together name another repo: what it is known by stays.
        if identity(&info) != self.identity {
            (info.provider, info.id) = (known.provider, known_id);
        }
        if identity(&info) != self.identity {
            (info.provider, info.id) = (provider, id);
        }
        Self {
            vcs_instance: vcs_instance(&info.url),
            short_name: short_name(&info.name),
            namespace_path: namespace_path(&info),
            info,
            ..self.clone()
        }
    }
}

impl Draft {
    /// Records what a report says of its repo, as far as it is news, and answers the repo's id.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that the API's own paths would hide.
    pub(crate) async fn repo(&mut self, info: Option<&RepoInfo>, cx: &Context<'_>) -> Result<Option<Id>> {
        let Some(info) = info else { return Ok(None) };
        if RESERVED.contains(&info.name.as_str()) {
            let text = format!("'{}' is a reserved word of the API", info.name);
            return Err(Error::invalid("repo_info.name", text));
        }
        let identity = identity(info);
        if let Some(id) = self.drafted_repo(&identity) {
            return Ok(Some(id));
        }
        let reported = Hash::of(json_text(info)?);
        if let Some(known) = cx.known_repo(reported)? {
            self.guards.push(Guard::Revision(RecordKind::Repo, known.record, known.revision));
            return Ok(Some(known.record));
        }
        let known = cx.store().repo_by_identity(cx.org()?, &identity).await?;
        let (record, guard) = match known {
            Some(Current { revision, record: known }) => {
                let guard = Guard::Revision(RecordKind::Repo, known.id, revision);
                let record = known.reported_again(info);
                if record == known {
                    cx.remember_repo(reported, Current { revision, record: known.id })?;
                    self.guards.push(guard);
                    return Ok(Some(known.id));
                }
                (record, guard)
            }
            None => (Repo::first_reported(info, cx), Guard::Vacant(Key::Repo(identity))),
        };
        let id = record.id;
        self.guarded(Fact::RepoReported { record }, guard);
        Ok(Some(id))
    }

    /// The repo of this identity that the draft reports already: a report may name it twice, with its trail and itself.
    fn drafted_repo(&self, identity: &str) -> Option<Id> {
        self.facts.iter().find_map(|fact| match fact {
            Fact::RepoReported { record } if record.identity == identity => Some(record.id),
            _ => None,
        })
    }
}

/// What a repo is recognised by. The external id is the stronger one, because names and addresses change
/// (specification, Repo: `repo_id`); it means something only together with its host's kind.
fn identity(info: &RepoInfo) -> String {
    match (info.provider, info.id.as_deref()) {
        (Some(provider), Some(id)) if !id.is_empty() => format!("{}:{id}", provider.as_str()),
        _ if info.url.is_empty() => format!("name:{}", info.name),
        _ => format!("url:{}", info.url),
    }
}

pub(crate) fn short_name(name: &str) -> String {
    name.rsplit_once('/').map_or(name, |(_, short)| short).to_owned()
}

pub(crate) fn namespace_path(info: &RepoInfo) -> Vec<String> {
    match (&info.namespace_path, info.name.rsplit_once('/')) {
        (Some(sent), _) => sent.0.iter().map(ToString::to_string).collect(),
        (None, Some((namespace, _))) => segments(namespace),
        (None, None) => Vec::new(),
    }
}

fn segments(path: &str) -> Vec<String> {
    path.split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

/// The host that a repo's url names, lower case, with its port unless that is the scheme's own. Besides URLs there is
/// the scp-like spelling `user@host:path`; what names no host, such as a path, has none.
pub(crate) fn vcs_instance(url: &str) -> Option<String> {
    let (scheme, authority) = match url.split_once("://") {
        Some((scheme, rest)) => (scheme, rest.split(['/', '?', '#']).next().unwrap_or_default()),
        None => ("ssh", scp_like_authority(url)?),
    };
    let host_and_port = authority.rsplit_once('@').map_or(authority, |(_, after)| after);
    let (host, port) = split_port(host_and_port)?;
    let host = Some(host.to_ascii_lowercase()).filter(|host| is_host(host))?;
    let default = default_port(&scheme.to_ascii_lowercase());
    Some(match port.filter(|port| Some(*port) != default) {
        Some(port) => format!("{host}:{port}"),
        None => host,
    })
}

/// The part of `user@host:path` before the colon. One letter before it is the drive of a path.
fn scp_like_authority(url: &str) -> Option<&str> {
    let (authority, _) = match url.find(']') {
        Some(end) if url.contains('[') => {
            url.split_at_checked(end + 1).filter(|(_, rest)| rest.starts_with(':'))?
        }
        _ => url.split_once(':')?,
    };
    (authority.len() > 1 && !authority.contains('/')).then_some(authority)
}

/// Splits `host:port`, where the host may be an IPv6 address in brackets; nothing when the port is no number.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => match port {
            "" => Some((host, None)),
            digits => digits.parse().ok().map(|port| (host, Some(port))),
        },
        _ => Some((authority, None)),
    }
}

fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_')),
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" | "git+http" => Some(80),
        "https" | "git+https" => Some(443),
        "ssh" | "git+ssh" => Some(22),
        "git" => Some(9418),
        "svn" => Some(3690),
        _ => None,
    }
}

/// A repo as the newest reports describe it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Repo")]
pub struct RepoView {
    /// The id it has here, which leads to its tags. It is not the host's: that is `repo_id`.
    pub id: Id,
    /// Its name, with its owner: `owner/repo`.
    pub name: String,
    /// The part of the name after the last `/`.
    pub short_name: String,
    /// Where it is.
    pub url: String,
    /// The kind of host; null where that was not reported.
    pub provider: Option<VcsProvider>,
    /// Its id at the host, by which it is recognised when its name changes; null where that was not reported.
    pub repo_id: Option<String>,
    /// The host of `url`, in lower case, with a port that is not the usual one; null where it names none.
    pub vcs_instance: Option<String>,
    /// The groups it lies in: as reported, else the segments of the name before the last; null where there are none.
    pub namespace_path: Option<Vec<String>>,
    /// Whatever else was reported of it; null where nothing was.
    #[schemars(with = "Option<Map<String, Value>>")]
    pub additional_info: Option<FreeForm>,
    /// What it is about; null where that was not reported.
    pub description: Option<String>,
    /// Its tags: key to value.
    pub tags: Tags,
    /// Where to go from here.
    pub _links: RepoLinks,
}

/// Where to go from a repo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RepoLinks {
    /// Where its tags are changed.
    pub tags: Link,
}

impl RepoView {
    fn new(repo: Repo, cx: &Context<'_>) -> Result<Self> {
        let Repo { id, info, vcs_instance, short_name, namespace_path, tags, .. } = repo;
        let href = cx.api_url(&format!("tags/{}/repo/{id}", cx.org_access()?.name));
        Ok(Self {
            id,
            name: info.name.into_string(),
            short_name,
            url: info.url.into_string(),
            provider: info.provider,
            repo_id: info.id.map(ShortText::into_string),
            vcs_instance,
            namespace_path: Some(namespace_path).filter(|path| !path.is_empty()),
            additional_info: info.additional_info,
            description: info.description.map(Description::into_string),
            tags,
            _links: RepoLinks { tags: Link { href } },
        })
    }
}

/// A page of repos; no other property is present.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "RepoListResponse", deny_unknown_fields)]
pub struct RepoList {
    /// This page's number, from 1.
    pub page: u64,
    /// Repos a page, as asked.
    pub per_page: u64,
    /// Number of pages.
    pub total_pages: u64,
    /// Number of repos on all pages.
    pub total_count: u64,
    /// The repos of the page.
    pub repos: Vec<RepoView>,
    /// This page and its neighbours.
    pub _links: PageLinks,
}

/// Lists the repos that artifacts, attestations and trails were reported from, by name, a page at a time. `name` and
/// `search` together are 400. HTTP Basic is accepted beside Bearer: the key is the user name, and the password does
/// not matter.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListRepos {
    /// The organization's name.
    pub org: OrgName,
    /// Which page, from 1; the first when left out.
    pub page: Option<PageNumber>,
    /// Repos a page: 15 when left out.
    pub per_page: Option<PerPage<50>>,
    /// Exactly this name; ignored when `repo_id` is given, refused together with `search`.
    pub name: Option<ShortText>,
    /// A substring of the name, whatever its case; refused together with `name`.
    pub search: Option<ShortText>,
    /// Exactly this kind of host.
    pub provider: Option<VcsProvider>,
    /// Exactly this id at the host.
    pub repo_id: Option<ShortText>,
    /// Exactly this host.
    pub vcs_instance: Option<Address>,
    /// A prefix path, its segments separated by `/`: the repos anywhere beneath it.
    pub namespace: Option<LongText>,
    /// By name: `asc` (when left out) or `desc`.
    pub sort_direction: Option<SortDirection>,
    /// `key` or `key:value`; repeatable, all must match.
    #[serde(default)]
    pub tag: List<TagText>,
}

/// Repos a page when the caller does not say (specification, Limits).
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
            tags: self.tag.0.iter().map(|tag| TagFilter::parse(tag, ':')).collect(),
            direction: self.sort_direction.unwrap_or_default(),
        }
    }

    /// The parameters that narrow and sort, for the links to other pages.
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

#[cfg(test)]
mod tests;
