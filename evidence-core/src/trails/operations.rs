//! The operations on trails.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{Stream, TryStreamExt, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::events::{EventView, History};
use super::{EvaluatedTrail, Trail, TrailContents, TrailFilter, fitting};
use crate::auth::Scope;
use crate::compute::{LONG_JSON, MANY_EVALUATIONS};
use crate::decode::{self, InvalidField};
use crate::error::{Error, Resource, Result};
use crate::fact::{Fact, Guard, Key, RecordKind};
use crate::flows::Flow;
use crate::id::Id;
use crate::json::{JsonText, JsonValue};
use crate::name::{FingerprintPrefix, FlowName, OrgName, TrailName};
use crate::operation::{Document, Envelope, Form, FormParts, JsonList, Method, Operation, Put, around_last};
use crate::page::{PageNumber, Pagination, PerPage};
use crate::rules::compliance::{ArtifactStatus, AttestationStatus, State};
use crate::rules::template::Template;
use crate::service::{Context, Draft, Lasting};
use crate::shared::{
    Acknowledged, Description, ExternalUrls, GitCommit, RepoInfo, ShortText, TagFilter, TagText, Tags,
    UserData, WebUrl, distinct, push_newest, sort_by_ids, text,
};
use crate::store::Current;
use crate::templates::{Parsed, Uploaded, each_with_template};
use crate::texts::TextRef;
use crate::time::Seconds;

impl Context<'_> {
    /// The trail of this name in `flow`, or [`Error::NotFound`].
    pub(crate) async fn trail(&self, flow: &Flow, name: &str) -> Result<Current<Trail>> {
        let trail = self.store().trail(self.org()?, flow.id, name).await?;
        Ok(trail.ok_or_else(|| self.missing(Resource::Trail, name).in_flow(flow.name.as_str()))?)
    }
}

/// Begins a trail (201), or changes the one of that name (200): what the document leaves out stays. The template file
/// is the template of this trail alone; without a file the trail takes the template that the flow has by now. A flow
/// that does not exist is created, unless the host turns that off.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct BeginTrail {
    /// The organization's name.
    pub org: OrgName,
    /// The flow to begin it in.
    pub flow_name: FlowName,
}

/// What a trail is begun with. What is left out stays as it was.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "CreateTrail")]
pub struct TrailInput {
    /// The trail's name, unique in its flow. One that exists is changed.
    pub name: TrailName,
    /// What it is about, for people.
    pub description: Option<Description>,
    /// The commit that it is about.
    pub git_commit_info: Option<GitCommit>,
    /// The repository that it comes from; it is listed among the repos of the organization from then on.
    pub repo_info: Option<RepoInfo>,
    /// Where it comes from, such as the address of the build.
    pub origin_url: Option<WebUrl>,
    /// Labelled links: label to address and, optionally, the fingerprint of what is there.
    pub external_urls: Option<ExternalUrls>,
    /// Anything the reporter wants kept along.
    pub user_data: Option<UserData>,
}

impl TrailInput {
    /// A trail of which nothing else is known.
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

    fn read(value: &JsonValue) -> Result<Self, InvalidField> {
        decode::from_json(value)
    }
}

impl Operation for BeginTrail {
    const NAME: &'static str = "create_trail";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/trails/{org}/{flow_name}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Begins a trail, or changes one that was begun";
    type Body = Form<TrailInput>;
    type Output = Put<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, body: Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let (input, template) = cx.with_template(body).await?;
        let created = cx.retry(|| begin(&self.flow_name, &input, template.as_ref(), cx)).await?;
        cx.remember_kept(template);
        Ok(Put { created, body: Acknowledged::Ok })
    }
}

/// Whether the trail is new.
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
    let mut record = before.unwrap_or_else(|| Trail::begun(&flow, input.name.clone(), cx));
    record.apply(input, repo);
    record.take_template(template.map_or(flow.template, |template| template.reference), &flow, cx);
    if let Some(template) = template {
        draft.keep_template(template, cx).await?;
    }
    let created = known.is_none();
    match &known {
        None => {
            draft.guards.extend(draft.flow.take());
            draft.guarded(Fact::TrailBegun { record }, Guard::Vacant(key));
        }
        Some(known) => {
            let changes = record.changes_since(&known.record);
            if !changes.is_empty() {
                record.last_modified_at = cx.now_after(record.last_modified_at);
                record.last_modified_by = cx.actor();
                let guard = Guard::Revision(RecordKind::Trail, record.id, known.revision);
                draft.guards.extend(draft.flow.take());
                draft.guarded(Fact::TrailUpdated { record, changes }, guard);
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

    fn take_template(&mut self, template: Option<TextRef>, flow: &Flow, cx: &Context<'_>) {
        if self.template != template {
            self.template = template;
            self.template_id = if template == flow.template { flow.template_id } else { cx.new_id() };
        }
    }

    /// The parts in which the trail differs from what it was.
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

/// A trail: one execution of the process that its flow is, with its compliance.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Trail")]
pub struct TrailView {
    /// Its name, unique in its flow.
    pub name: TrailName,
    /// What it is about.
    pub description: String,
    /// The commit that it is about; null where none was reported.
    pub git_commit_info: Option<TrailCommit>,
    /// Where it comes from; `""` where that was not told.
    pub origin_url: String,
    /// What the reporter wants kept along: an object or a list.
    pub user_data: JsonText,
    /// The ids of the repos it was reported from: the newest 100, the last reported at the end.
    pub repo_ids: Vec<Id>,
    /// Labelled links: label to address and, optionally, the fingerprint of what is there.
    pub external_urls: Option<ExternalUrls>,
    /// When it was begun, in epoch seconds.
    pub created_at: Seconds,
    /// When it was last changed, or something was last reported to it, in epoch seconds. Where its artifacts run does
    /// not count.
    pub last_modified_at: Seconds,
    /// Who began it: the name of a user or service account.
    pub created_by: String,
    /// What the template asks for against what was reported.
    pub compliance_status: ComplianceStatus,
    /// Its template, as it was understood and as it was uploaded.
    pub template: TemplateView,
    /// The same as `compliance_status.status`.
    pub compliance_state: State,
    /// Whether the state is `COMPLIANT`.
    pub is_compliant: bool,
    /// The flow it is in.
    pub flow: TrailFlow,
    /// The address of the trail's page.
    pub html_url: String,
    /// Oldest first. Of the runs of its artifacts, each of which is an event as it starts and one as it stops, the newest
    /// 10,000 are there; of one artifact in one environment the newest 100 and the first. A host may set other numbers.
    /// Callers of other organizations are told of no runs.
    // Last, for the answer about one trail writes them in their place; lists leave them out.
    pub events: Vec<EventView>,
}

/// The flow of a trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TrailFlow {
    /// The flow's name.
    pub name: FlowName,
    /// The flow's tags: key to value.
    pub tags: Tags,
}

/// The commit of a trail: `""` and `0` where nothing was reported.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TrailCommit {
    /// The commit's hash.
    pub sha1: String,
    /// Its message.
    pub message: String,
    /// Its author, as `Name <mail>`.
    pub author: String,
    /// The branch it is on.
    pub branch: String,
    /// When it was made, in epoch seconds.
    pub timestamp: Seconds,
    /// Where it can be looked at.
    pub url: String,
}

impl From<&GitCommit> for TrailCommit {
    fn from(commit: &GitCommit) -> Self {
        Self {
            sha1: commit.sha1.to_string(),
            message: text(commit.message.as_deref()),
            author: text(commit.author.as_deref()),
            branch: text(commit.branch.as_deref()),
            timestamp: commit.timestamp.map(|at| at.0).unwrap_or_default().seconds(),
            url: text(commit.url.as_deref()),
        }
    }
}

/// A template, as it was understood and as it was uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Template")]
pub struct TemplateView {
    /// The version of the template format: 1.
    pub version: u8,
    /// What it asks for.
    pub trail: Template,
    /// The YAML text as uploaded, byte for byte; `""` where it cannot be found.
    pub content: String,
}

/// What a trail's template asks for against what was reported.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "TrailComplianceStatus")]
pub struct ComplianceStatus {
    /// The verdict over the trail and all its artifacts.
    pub status: State,
    /// Whether the verdict is `COMPLIANT`.
    pub is_compliant: bool,
    /// Why the verdict is what no line accounts for: the template cannot be read. Absent where it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_info: Option<String>,
    /// When the newest report that it rests on was made, or the trail was begun, in epoch seconds.
    pub evaluated_at: Seconds,
    /// The id of the template that it rests on: another one each time the template changes.
    pub flow_template_id: Id,
    /// Attestations of the trail itself: the expected ones in the order of the template, then the others.
    pub attestations_statuses: Vec<AttestationStatus>,
    /// The artifacts that the template expects or that were reported, by the template's name; one without a name, by
    /// its fingerprint.
    pub artifacts_statuses: BTreeMap<String, ArtifactCompliance>,
}

/// An artifact of a trail against what its template asks for.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "ArtifactComplianceStatus")]
pub struct ArtifactCompliance {
    /// The verdict over the artifact.
    #[serde(flatten)]
    pub status: ArtifactStatus,
    /// The id of the template that it rests on.
    pub flow_template_id: Id,
}

impl ComplianceStatus {
    fn of(trail: &EvaluatedTrail) -> Self {
        let template = trail.trail.template_id;
        let status = trail.status.clone();
        Self {
            status: status.state,
            is_compliant: status.is_compliant,
            state_info: status.state_info,
            evaluated_at: status.evaluated_at.seconds(),
            flow_template_id: template,
            attestations_statuses: status.attestations,
            artifacts_statuses: status
                .artifacts
                .into_iter()
                .map(|status| {
                    (status.name.clone(), ArtifactCompliance { status, flow_template_id: template })
                })
                .collect(),
        }
    }
}

impl TrailView {
    fn new(evaluated: &EvaluatedTrail, flow: &Flow, cx: &Context<'_>) -> Self {
        let trail = &evaluated.trail;
        let Parsed { text, template } = &*evaluated.parsed;
        Self {
            name: trail.name.clone(),
            description: trail.description.clone(),
            git_commit_info: trail.git_commit_info.as_ref().map(TrailCommit::from),
            origin_url: trail.origin_url.clone(),
            user_data: trail.user_data.clone(),
            repo_ids: trail.repo_ids.clone(),
            external_urls: trail.external_urls.clone(),
            created_at: trail.created_at.seconds(),
            last_modified_at: evaluated.last_evidence_at().seconds(),
            created_by: trail.created_by.name.clone(),
            compliance_status: ComplianceStatus::of(evaluated),
            template: TemplateView { version: 1, trail: template.clone(), content: text.clone() },
            compliance_state: evaluated.status.state,
            is_compliant: evaluated.status.is_compliant,
            flow: TrailFlow { name: flow.name.clone(), tags: flow.tags.clone() },
            html_url: cx.trail_url(&flow.name, &trail.name),
            events: Vec::new(),
        }
    }
}

impl Context<'_> {
    /// The address of a trail's page.
    pub(crate) fn trail_url(&self, flow: &FlowName, trail: &TrailName) -> String {
        self.page_url(&format!("flows/{flow}/trails/{trail}"))
    }
}

/// Gets a trail with its compliance and with what happened to it.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetTrail {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
    /// The trail's name.
    pub trail_name: TrailName,
}

impl Operation for GetTrail {
    const NAME: &'static str = "get_trail";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/trails/{org}/{flow_name}/{trail_name}";
    const SCOPE: Scope = Scope::ReadFlow;
    const SUMMARY: &'static str = "Gets a trail with its compliance and its history";
    type Body = ();
    type Output = JsonList<EventView, TrailView>;

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
        let (evaluated, events) = History::read(trail.id, cx).await?.told(cx.lasting());
        let in_flow = flow.id;
        let events = events.map_ok(move |event| event.view(org, in_flow, trail.id));
        let lasting = cx.lasting();
        let heavy = evaluated.is_long();
        let view = move || TrailView::new(&evaluated, &flow, &lasting.context());
        JsonList::made(events, cx.compute().run_if(heavy, view).await?, &cx.compute()).await
    }
}

impl Envelope<EventView> for TrailView {
    type Document = Self;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        around_last(self)
    }

    fn is_long(&self) -> bool {
        let ComplianceStatus { attestations_statuses, artifacts_statuses, .. } = &self.compliance_status;
        let lines = artifacts_statuses.values().map(|artifact| 1 + artifact.status.attestations.len());
        let template = self.template.content.len();
        attestations_statuses.len() + lines.sum::<usize>() > MANY_EVALUATIONS || template > LONG_JSON
    }
}

/// A page of trails.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TrailList {
    /// The trails of the page.
    pub data: Vec<TrailView>,
    /// Which page it is.
    pub pagination: Pagination,
}

/// Lists the trails of an organization, newest first, a page at a time, with their compliance and with empty
/// `events`. A flow that does not exist is 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListTrails {
    /// The organization's name.
    pub org: OrgName,
    /// Narrows the list to this flow.
    pub flow: Option<ShortText>,
    /// Narrows the list to flows that carry this tag: `key=value`, or a key alone.
    pub flow_tag: Option<TagText>,
    /// Narrows the list to trails that this artifact was reported to: its fingerprint, or the first five digits or
    /// more.
    pub fingerprint: Option<ShortText>,
    /// Which page, from 1; the first when left out.
    pub page: Option<PageNumber>,
    /// Trails a page: 20 when left out.
    pub per_page: Option<PerPage<100>>,
}

impl Operation for ListTrails {
    const NAME: &'static str = "list_trails_for_org";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/trails/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the trails of an organization, newest first";
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
        let (page, per_page) = (self.page.unwrap_or_default(), self.per_page.map_or(20, PerPage::get));
        let trails = cx.store().trails(cx.org()?, &filter, page.request(per_page)).await?;
        let pagination = Pagination {
            total: trails.total,
            page: page.get(),
            per_page,
            page_count: trails.pages(per_page),
        };
        let lasting = cx.lasting();
        let read = move |ids| views(ids, lasting.clone());
        JsonList::in_batches(trails.items, pagination, &cx.compute(), read).await
    }
}

impl Envelope<TrailView> for Pagination {
    type Document = TrailList;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        self.around_data()
    }
}

/// Trails of a list, in its order: evaluated, without their histories, one after the other.
fn views(trails: Vec<Id>, lasting: Lasting) -> impl Stream<Item = Result<TrailView>> + Send + 'static {
    let parts = fitted(trails, lasting.clone());
    let view = |(contents, flow): (TrailContents, Arc<Flow>), template, cx: &Context<'_>| {
        Ok(TrailView::new(&EvaluatedTrail::new(contents, template), &flow, cx))
    };
    let evaluations =
        |(contents, _): &(TrailContents, Arc<Flow>), template: &Template| contents.evaluations(template);
    let parts = stream::once(parts).try_flatten();
    let read = move |ids| {
        let lasting = lasting.clone();
        async move { Ok(each_with_template(in_flows(ids, lasting.clone()).await?, lasting, evaluations, view)) }
    };
    parts.and_then(read).try_flatten()
}

/// These trails in parts that are read one after the other.
async fn fitted(trails: Vec<Id>, lasting: Lasting) -> Result<impl Stream<Item = Result<Vec<Id>>> + Send> {
    Ok(stream::iter(fitting(&trails, &lasting.context()).await?.into_iter().map(Ok)))
}

/// What was reported to these trails, in their order, with their templates and flows.
async fn in_flows(
    trails: Vec<Id>,
    lasting: Lasting,
) -> Result<Vec<(Option<TextRef>, (TrailContents, Arc<Flow>))>> {
    let cx = lasting.context();
    let mut found = cx.store().trail_contents(cx.org()?, &trails).await?;
    sort_by_ids(&mut found, &trails, |contents| contents.trail.id);
    let flows = distinct(found.iter().map(|contents| contents.trail.flow));
    let flows = cx.store().flows_by_id(cx.org()?, &flows).await?;
    let flows: BTreeMap<Id, Arc<Flow>> = flows.into_iter().map(|flow| (flow.id, Arc::new(flow))).collect();
    let in_flow = |contents: TrailContents| {
        let flow = Arc::clone(flows.get(&contents.trail.flow)?);
        Some((contents.trail.template, (contents, flow)))
    };
    Ok(found.into_iter().filter_map(in_flow).collect())
}
