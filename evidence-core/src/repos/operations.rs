//! Repos as reports make and change them, and the operation that lists them.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::bounded::{Address, List, LongText, ShortText, TagText};
use crate::error::{Error, Result};
use crate::fact::Fact;
use crate::fact::names::{Guard, Key, RecordKind};
use crate::fact::payload::UnknownFields;
use crate::id::Id;
use crate::ledger::Hash;
use crate::name::OrgName;
use crate::operation::{Json, Method, Operation, json_text};
use crate::page::{PageLinks, PageNumber, PerPage, SortDirection};
use crate::repos::record::{
    Repo, RepoInfo, VcsProvider, identity, namespace_path, segments, short_name, vcs_instance,
};
use crate::repos::store::RepoFilter;
use crate::repos::view::{RepoList, RepoView};
use crate::service::{Context, Draft};
use crate::store::entry::Current;
use crate::tags::record::{TagFilter, Tags};

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
