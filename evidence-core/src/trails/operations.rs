//! Operations on trails.

use futures_util::{StreamExt, TryStreamExt};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::attestations::listed::all_of_trail;
use crate::auth::actor::Scope;
use crate::bounded::{Description, List, ShortText, TagText, UserData, WebUrl, push_newest};
use crate::context::names::KnownFlow;
use crate::context::{Context, Draft, OwnedContext};
use crate::decode::{self, InvalidField};
use crate::error::{Error, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::flows::record::Flow;
use crate::flows::templates::Uploaded;
use crate::git::GitCommit;
use crate::id::Id;
use crate::json::CheckedJson;
use crate::links::ExternalUrls;
use crate::name::{FingerprintPrefix, FlowName, OrgName, TrailName};
use crate::operation::{Acknowledged, Document, Form, FormParts, JsonList, Method, Operation, Put};
use crate::page::{Listed, MAX_LISTED, Page, PageNumber, PageRequest, Pagination, PerPage, in_pages};
use crate::repos::record::RepoInfo;
use crate::store::entry::Current;
use crate::tags::record::TagFilter;
use crate::texts::record::TextRef;
use crate::trails::events::{EventView, History};
use crate::trails::record::Trail;
use crate::trails::store::TrailFilter;
use crate::trails::view::{TrailDocument, TrailView, views};

impl Context<'_> {
    /// Returns the trail of this name in `flow`, or [`Error::NotFound`].
    pub(crate) async fn trail(&self, flow: &Flow, name: &str) -> Result<Current<Trail>> {
        let trail = self.store().trail(self.org()?, flow.id, name).await?;
        Ok(trail.ok_or_else(|| self.missing(Resource::Trail, name).in_flow(flow.name.as_str()))?)
    }
}

/// Begins a trail (201), or changes the trail of that name (200). Fields that the document leaves out keep
/// their values. A template file applies to this trail only; without a file, the trail takes the flow's
/// present template. A flow that does not exist is created, unless the host disables that.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct BeginTrail {
    /// The organization's name.
    pub org: OrgName,
    /// The flow of the trail.
    pub flow_name: FlowName,
}

/// The document that begins a trail. For an existing trail, fields that are left out keep their values.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "CreateTrail")]
pub struct TrailInput {
    /// The trail's name, unique in its flow. An existing trail of this name is changed.
    pub name: TrailName,
    /// A description for readers.
    pub description: Option<Description>,
    /// The commit of the trail.
    pub git_commit_info: Option<GitCommit>,
    /// The repository that it comes from. The report adds it to the organization's repos.
    pub repo_info: Option<RepoInfo>,
    /// The URL of its origin, such as the build.
    pub origin_url: Option<WebUrl>,
    /// Labelled links: label to URL and, optionally, the fingerprint of the linked content.
    pub external_urls: Option<ExternalUrls>,
    /// Free-form data to record with it.
    pub user_data: Option<UserData>,
}

impl TrailInput {
    /// Returns a trail input with a name only.
    pub const fn new(name: TrailName) -> Self {
        Self {
            name,
            description: None,
            git_commit_info: None,
            repo_info: None,
            origin_url: None,
            external_urls: None,
            user_data: None,
        }
    }
}

impl Document for TrailInput {
    const PARTS: FormParts = FormParts { document: "data_json", file: "template_file", many: false };

    fn read(text: CheckedJson<'_>) -> Result<Self, InvalidField> {
        decode::from_json(text)
    }
}

impl Operation for BeginTrail {
    const NAME: &'static str = "create_trail";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/trails/{org}/{flow_name}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Begins or updates a trail";
    type Body = Form<TrailInput>;
    type Output = Put<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, body: Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let (input, template) = cx.with_template(body).await?;
        let created = cx.retry(|| begin(&self.flow_name, &input, template.as_ref(), cx)).await?;
        cx.cache_recorded(template);
        Ok(Put { created, body: Acknowledged::Ok })
    }
}

/// Records it. Returns whether it is new.
async fn begin(
    flow: &FlowName,
    input: &TrailInput,
    template: Option<&Uploaded>,
    cx: &Context<'_>,
) -> Result<bool> {
    let mut draft = Draft::default();
    let flow = draft.flow(flow, cx).await?;
    let repo = draft.repo(input.repo_info.as_ref(), cx).await?;
    let known = cx.store().trail(cx.org()?, flow.id, input.name.as_str()).await?;
    let key = Key::Trail { flow: flow.id, name: input.name.clone() };
    let before = known.as_ref().map(|known| known.record.clone());
    let mut record = before.unwrap_or_else(|| Trail::new(&flow, input.name.clone(), cx));
    record.apply(input, repo);
    record.take_template(template.map_or(flow.template, |template| template.reference), &flow, cx);
    if let Some(template) = template {
        draft.add_template_text(template, cx).await?;
    }
    let created = known.is_none();
    // The write also depends on the flow: whether anything changed depends on the flow's template.
    draft.preconditions.extend(draft.flow.take());
    match &known {
        None => {
            draft.fact_if(Fact::TrailBegun { record }, Precondition::Vacant(key));
        }
        Some(known) => {
            let changes = record.changes_since(&known.record);
            if !changes.is_empty() {
                record.last_modified_at = cx.now_after(record.last_modified_at);
                record.last_modified_by = cx.actor();
                let precondition = Precondition::Revision(RecordKind::Trail, record.id, known.revision);
                draft.fact_if(Fact::TrailUpdated { record, changes }, precondition);
            }
        }
    }
    cx.record(draft).await?;
    Ok(created)
}

impl Trail {
    fn apply(&mut self, input: &TrailInput, repo: Option<Id>) {
        fn replace<T: Clone>(kept: &mut Option<T>, given: &Option<T>) {
            if given.is_some() {
                kept.clone_from(given);
            }
        }
        replace(&mut self.git_commit_info, &input.git_commit_info);
        replace(&mut self.repo_info, &input.repo_info);
        replace(&mut self.external_urls, &input.external_urls);
        if let Some(description) = input.description.clone() {
            self.description = description.into_string();
        }
        if let Some(origin_url) = input.origin_url.clone() {
            self.origin_url = origin_url.into_string();
        }
        if let Some(UserData(user_data)) = input.user_data.clone() {
            self.user_data = user_data;
        }
        if let Some(repo) = repo {
            self.repo_ids.retain(|known| *known != repo);
            push_newest(&mut self.repo_ids, repo);
        }
    }

    fn take_template(&mut self, template: Option<TextRef>, flow: &KnownFlow, cx: &Context<'_>) {
        if self.template != template {
            self.template = template;
            self.template_id = if template == flow.template { flow.template_id } else { cx.new_id() };
        }
    }

    /// Returns the names of the fields that differ.
    fn changes_since(&self, before: &Self) -> Vec<String> {
        let changed = [
            ("description", self.description != before.description),
            ("git_commit_info", self.git_commit_info != before.git_commit_info),
            ("repo_info", self.repo_info != before.repo_info),
            ("origin_url", self.origin_url != before.origin_url),
            ("external_urls", self.external_urls != before.external_urls),
            ("user_data", self.user_data != before.user_data),
            ("template", self.template != before.template),
        ];
        changed.into_iter().filter(|(_, differs)| *differs).map(|(part, _)| part.to_owned()).collect()
    }
}

impl Context<'_> {
    /// Returns the URL of a trail's page.
    pub(crate) fn trail_url(&self, flow: &FlowName, trail: &TrailName) -> String {
        self.page_url(&format!("flows/{flow}/trails/{trail}"))
    }
}

/// Gets a trail with its compliance and its events. With `expand=attestations`, also returns the full content
/// of its attestations, so that clients need not request each of them.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetTrail {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The trail's name.
    pub trail_name: TrailName,
    /// The parts to return in full. Repeatable.
    #[serde(default)]
    pub expand: List<TrailExpansion>,
}

/// A part that the response for a trail can contain in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum TrailExpansion {
    /// Its attestations.
    Attestations,
}

impl GetTrail {
    /// Returns a request for this trail, with nothing expanded.
    pub const fn new(org: OrgName, flow_name: FlowName, trail_name: TrailName) -> Self {
        Self { org, flow_name, trail_name, expand: List(Vec::new()) }
    }
}

impl Operation for GetTrail {
    const NAME: &'static str = "get_trail";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/trails/{org}/{flow_name}/{trail_name}";
    const SCOPE: Scope = Scope::ReadFlow;
    const SUMMARY: &'static str = "Gets a trail with its compliance and its history";
    const CACHED: bool = true;
    type Body = ();
    type Output = JsonList<EventView, TrailDocument>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    fn flow(&self) -> Option<&FlowName> {
        Some(&self.flow_name)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let flow = cx.flow(self.flow_name.as_str()).await?.record;
        let trail = cx.trail(&flow, self.trail_name.as_str()).await?.record;
        let org = cx.org()?;
        let history = History::read(trail.id, cx).await?;
        let attestations = self.expand.0.contains(&TrailExpansion::Attestations).then(|| {
            let (flow, trail, listed) =
                (flow.clone(), (trail.id, trail.name.clone()), history.attestations());
            all_of_trail(listed, flow, trail, cx.to_owned_context()).boxed()
        });
        let (evaluated, events) = history.into_events(cx.to_owned_context());
        let in_flow = flow.id;
        let events = events.map_ok(move |event| event.view(org, in_flow, trail.id));
        let owned = cx.to_owned_context();
        let heavy = evaluated.is_long();
        let view = move || TrailView::new(&evaluated, &flow, &owned.context());
        let document = TrailDocument { trail: cx.compute().run_if(heavy, view).await?, attestations };
        JsonList::with_first_item(events, document, &cx.compute()).await
    }
}

/// Lists the trails of an organization, newest first, one page at a time. Each has its compliance and empty
/// `events`. A flow that does not exist is 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListTrails {
    /// The organization's name.
    pub org: OrgName,
    /// Returns only trails of this flow.
    pub flow: Option<ShortText>,
    /// Returns only trails of flows with this tag: `key=value`, or a key alone.
    pub flow_tag: Option<TagText>,
    /// Returns only trails to which this artifact was reported: its fingerprint, or at least its first five
    /// digits.
    #[schemars(extend("pattern" = "^([a-f0-9]{5,64})?$"))]
    pub fingerprint: Option<ShortText>,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Trails per page. Defaults to 20.
    pub per_page: Option<PerPage<100>>,
}

impl Operation for ListTrails {
    const NAME: &'static str = "list_trails_for_org";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/trails/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the trails of an organization, newest first";
    const CACHED: bool = true;
    type Body = ();
    type Output = JsonList<TrailView, Pagination>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let flow = match &self.flow {
            Some(name) => Some(cx.flow(name).await.map_err(|error| error.named_by("query.flow"))?.record.id),
            None => None,
        };
        let fingerprint = self.fingerprint.filter(|prefix| !prefix.is_empty());
        if let Some(Err(error)) = fingerprint.as_deref().map(str::parse::<FingerprintPrefix>) {
            return Err(Error::invalid("query.fingerprint", error.to_string()));
        }
        let flow_tag = self.flow_tag.filter(|tag| !tag.is_empty()).map(|tag| TagFilter::parse(&tag, '='));
        let filter = TrailFilter { flow, flow_tag, fingerprint: fingerprint.map(ShortText::into_string) };
        let per_page = self.per_page.map_or(20, PerPage::get);
        let (listed, pagination) = page(&filter, self.page, per_page, cx).await?;
        let owned = cx.to_owned_context();
        let read = move |ids| views(ids, owned.clone());
        JsonList::in_batches(listed, pagination, &cx.compute(), read).await
    }
}

/// Returns one page of the trails that `filter` matches, and its position in the list.
async fn page(
    filter: &TrailFilter,
    page: Option<PageNumber>,
    per_page: u64,
    cx: &Context<'_>,
) -> Result<(Vec<Listed>, Pagination)> {
    let page = page.unwrap_or_default();
    let trails = cx.store().trails(cx.org()?, filter, page.request(per_page)).await?;
    let page_count = trails.pages(per_page);
    Ok((trails.items, Pagination { total: trails.total, page: page.get(), per_page, page_count }))
}

/// Lists the trails of a flow, newest first. Each has its compliance and empty `events`. With `page` or
/// `per_page`, returns one page in an envelope; otherwise returns all.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListTrailsOfFlow {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Trails per page. Defaults to 20 if only `page` is given.
    pub per_page: Option<PerPage<100>>,
}

impl Operation for ListTrailsOfFlow {
    const NAME: &'static str = "list_trails";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/trails/{org}/{flow_name}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the trails of a flow, newest first";
    const CACHED: bool = true;
    type Body = ();
    type Output = JsonList<TrailView, Pagination>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let flow = cx.flow(self.flow_name.as_str()).await?.record.id;
        let filter = TrailFilter { flow: Some(flow), ..TrailFilter::default() };
        let owned = cx.to_owned_context();
        let read = {
            let owned = owned.clone();
            move |ids| views(ids, owned.clone())
        };
        let is_whole = self.page.is_none() && self.per_page.is_none();
        let per_page = if is_whole { MAX_LISTED } else { self.per_page.map_or(20, PerPage::get) };
        let (trails, mut pagination) = page(&filter, self.page, per_page, cx).await?;
        if is_whole {
            pagination.per_page = pagination.total;
            pagination.page_count = pagination.total.min(1);
        }
        if !is_whole || pagination.total <= MAX_LISTED {
            return JsonList::in_batches(trails, pagination, &cx.compute(), read).await;
        }
        let read_page = move |request| listed(filter.clone(), request, owned.clone());
        JsonList::of_lists(in_pages(MAX_LISTED, read_page), pagination, &cx.compute(), read).await
    }
}

async fn listed(filter: TrailFilter, request: PageRequest, owned: OwnedContext) -> Result<Page<Listed>> {
    let cx = owned.context();
    Ok(cx.store().trails(cx.org()?, &filter, request).await?)
}
