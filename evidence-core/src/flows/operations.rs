//! Operations on flows.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::TryFutureExt;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::bounded::{Description, List, ShortText, TagText};
use crate::context::{Context, Draft};
use crate::decode::UnknownFields;
use crate::decode::{self, InvalidField};
use crate::error::{Error, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Key, Precondition, RecordKind};
use crate::flows::record::{Flow, Visibility};
use crate::flows::store::FlowFilter;
use crate::flows::templates::Uploaded;
use crate::flows::view::{FlowView, ListedFlow, views};
use crate::id::Id;
use crate::json::CheckedJson;
use crate::ledger::Hash;
use crate::name::{FlowName, InvalidText, OrgName};
use crate::operation::{Acknowledged, Document, Form, FormParts, Json, JsonList, Method, Operation, Put};
use crate::page::{Page, PageNumber, PageRequest, Pagination, PerPage};
use crate::store::batch::RECORD_BATCH_SIZE;
use crate::store::entry::Current;
use crate::tags::record::{TagFilter, Tags};

/// Names that a literal path of the API would shadow.
const RESERVED: [&str; 2] = ["template_file", "list_attestations_for_criteria"];

/// Refuses reserved names.
///
/// # Errors
/// [`Error::Invalid`] naming `field` if the name is a reserved path segment.
fn check_not_reserved(name: &FlowName, field: &str) -> Result<()> {
    if RESERVED.contains(&name.as_str()) {
        return Err(Error::invalid(field, format!("'{name}' is a reserved word of the API")));
    }
    Ok(())
}

impl Flow {
    /// Returns the new flow that a report creates: private, with the empty template.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming `field`, the source of the name, if the name is reserved.
    pub(crate) fn named(name: FlowName, field: &str, cx: &Context<'_>) -> Result<Self> {
        check_not_reserved(&name, field)?;
        Ok(Self {
            id: cx.new_id(),
            name,
            former_names: Vec::new(),
            description: String::new(),
            visibility: Visibility::Private,
            template: None,
            template_id: cx.new_id(),
            tags: Tags::new(),
            created_at: cx.now(),
            created_by: cx.actor(),
            archived_at: None,
            unknown: UnknownFields::default(),
        })
    }
}

/// The names and tags of a flow, for the evaluation and display of its reports.
#[derive(Debug)]
pub(crate) struct FlowLabel {
    pub(crate) name: FlowName,
    /// The names that policy conditions are evaluated against ([`Flow::condition_names`]).
    pub(crate) condition_names: Arc<[String]>,
    pub(crate) tags: Arc<Tags>,
}

impl FlowLabel {
    /// Returns the SHA-256 of the label's lines: the name, then each other name that conditions use, then
    /// each tag. Texts are written as JSON.
    pub(crate) fn digest(&self) -> Hash {
        let json = |text: &str| serde_json::Value::from(text);
        let name = format!("flow {}\n", json(self.name.as_str()));
        let others = self.condition_names.iter().filter(|other| **other != self.name.as_str());
        let others = others.map(|other| format!("name {}\n", json(other)));
        let tags = self.tags.iter().map(|(key, value)| format!("tag {} {}\n", json(key), json(value)));
        Hash::of(std::iter::once(name).chain(others).chain(tags).collect::<String>())
    }
}

impl Context<'_> {
    /// Returns the names and tags of these flows, by flow id.
    pub(crate) async fn flow_labels(&self, ids: &[Id]) -> Result<BTreeMap<Id, FlowLabel>> {
        let mut labels = BTreeMap::new();
        for part in ids.chunks(RECORD_BATCH_SIZE) {
            let flows = self.store().flows_by_id(self.org()?, part).await?;
            let label = |flow: Flow| {
                let condition_names = flow.condition_names().into();
                let Flow { id, name, tags, .. } = flow;
                (id, FlowLabel { name, condition_names, tags: Arc::new(tags) })
            };
            labels.extend(flows.into_iter().map(label));
        }
        Ok(labels)
    }

    /// Returns the flow of this name, or [`Error::NotFound`].
    pub(crate) async fn flow(&self, name: &str) -> Result<Current<Flow>> {
        let flow = self.store().flow(self.org()?, name).await?;
        let flow = flow.ok_or_else(|| self.missing(Resource::Flow, name))?;
        self.expect_readable(&flow.record)?;
        Ok(flow)
    }

    /// Returns [`Error::Forbidden`] if the caller may not read this flow. Access was granted for a public flow of
    /// its name, but another flow may have taken the name since.
    pub(crate) fn expect_readable(&self, flow: &Flow) -> Result<()> {
        if self.org_access()?.role.is_none() && !flow.is_public() {
            return Err(Error::Forbidden);
        }
        Ok(())
    }

    /// Returns the flow, or an error if it is archived: archived flows cannot be changed.
    fn unarchived(&self, flow: Current<Flow>) -> Result<Current<Flow>> {
        match flow.record.archived_at {
            Some(_) => Err(self.missing(Resource::ArchivedFlow, flow.record.name.as_str()).into()),
            None => Ok(flow),
        }
    }
}

/// Lists flows, sorted by name. With `page` or `per_page`, returns one page in an envelope; otherwise returns
/// all. Archived flows are left out. An empty `search_by_name` is 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListFlows {
    /// The organization's name.
    pub org: OrgName,
    /// A substring of the name.
    pub search_by_name: Option<ShortText>,
    /// Whether `search_by_name` is case-sensitive. Defaults to true.
    pub case_sensitive: Option<bool>,
    /// The page number, from 1.
    pub page: Option<PageNumber>,
    /// Flows per page. Defaults to 20 if only `page` is given.
    pub per_page: Option<PerPage<100>>,
    /// Repeatable. Spaces are not supported yet: any value gives an empty list.
    #[serde(default)]
    pub space_id: List<ShortText>,
    /// `key` or `key:value`. Repeatable; all must match.
    #[serde(default)]
    pub tag: List<TagText>,
}

impl Operation for ListFlows {
    const NAME: &'static str = "get_flows";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/flows/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the flows of an organization";
    const CACHED: bool = true;
    type Body = ();
    type Output = JsonList<ListedFlow, Option<Pagination>>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        if self.search_by_name.as_deref() == Some("") {
            return Err(Error::refused("Empty string is not allowed for flow names."));
        }
        let filter = FlowFilter {
            name: self.search_by_name.map(ShortText::into_string),
            ignore_case: self.case_sensitive == Some(false),
            tags: self.tag.0.iter().map(|tag| TagFilter::parse(tag, ':')).collect(),
        };
        let paged = self.page.is_some() || self.per_page.is_some();
        let (page, per_page) = (self.page.unwrap_or_default(), self.per_page.map_or(20, PerPage::get));
        let request = if paged { page.request(per_page) } else { PageRequest::ALL };
        let flows = match self.space_id.0.as_slice() {
            [] => cx.store().flows(cx.org()?, &filter, request).await?,
            _ => Page { items: Vec::new(), total: 0 },
        };
        let pagination =
            Pagination { total: flows.total, page: page.get(), per_page, page_count: flows.pages(per_page) };
        let owned = cx.to_owned_context();
        let read = move |ids| views(ids, owned.clone()).try_flatten_stream();
        JsonList::in_batches(flows.items, paged.then_some(pagination), &cx.compute(), read).await
    }
}

/// Gets a flow by name, with its template. A renamed flow is also found by its former names, until another
/// flow takes them. An archived flow is found only by its new name, `<name>-archived-at-<epoch seconds>`.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetFlow {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
}

impl Operation for GetFlow {
    const NAME: &'static str = "get_flow";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/flows/{org}/{flow_name}";
    const SCOPE: Scope = Scope::ReadFlow;
    const SUMMARY: &'static str = "Gets a flow";
    const CACHED: bool = true;
    type Body = ();
    type Output = Json<FlowView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    fn flow(&self) -> Option<&FlowName> {
        Some(&self.flow_name)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let flow = cx.flow(self.flow_name.as_str()).await?.record;
        let template = cx.template(flow.template).await?;
        let repo_url = cx.store().flow_repo_urls(cx.org()?, &[flow.id]).await?.pop();
        let repo_url = repo_url.map(|(_, url)| url).unwrap_or_default();
        Ok(Json(FlowView::new(flow, repo_url, &cx.org_access()?.name, &template)))
    }
}

/// Creates a flow (201), or updates the flow of that name (200). The template file becomes its template.
/// Without a file, a new flow gets the template `version: 1`, and an existing flow keeps its template.
/// Existing trails keep their template until they are put again. For an archived flow, only the visibility
/// can change, with the same description and without a file; any other change is 404.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PutFlow {
    /// The organization's name.
    pub org: OrgName,
}

/// The document that creates or updates a flow.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "CreateFlow")]
pub struct FlowInput {
    /// The flow's name. An existing flow of this name is updated.
    pub name: FlowName,
    /// A description of its purpose.
    pub description: Description,
    /// Its visibility. Defaults to `private` for a new flow; an existing flow keeps its visibility.
    pub visibility: Option<Visibility>,
}

impl Document for FlowInput {
    const PARTS: FormParts = FormParts { document: "data_json", file: "template_file", many: false };

    fn read(text: CheckedJson<'_>) -> Result<Self, InvalidField> {
        decode::from_json(text)
    }
}

impl Operation for PutFlow {
    const NAME: &'static str = "create_flow_with_template";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/flows/{org}/template_file";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Creates or updates a flow, with an optional template file";
    type Body = Form<FlowInput>;
    type Output = Put<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, body: Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let (input, template) = cx.with_template(body).await?;
        let created = cx.retry(|| put(&input, template.as_ref(), cx)).await?;
        cx.cache_recorded(template);
        Ok(Put { created, body: Acknowledged::Ok })
    }
}

/// Creates a flow (201), or updates the flow of that name (200), with a list of names instead of a template.
/// Each name is an attestation, of any type, that the artifact `artifact` needs. Older clients send this; a
/// template can express more.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PutLegacyFlow {
    /// The organization's name.
    pub org: OrgName,
}

/// The document with which older clients create or update a flow.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "LegacyCreateFlow")]
pub struct LegacyFlowInput {
    /// The flow's name. An existing flow of this name is updated.
    pub name: FlowName,
    /// A description of its purpose.
    pub description: Description,
    /// Its visibility. Defaults to `private` for a new flow; an existing flow keeps its visibility.
    pub visibility: Option<Visibility>,
    /// The names of the attestations that its artifacts need; `artifact` means the artifact itself. A name
    /// that no attestation can have is accepted, but its attestation is always missing.
    pub template: List<ShortText>,
}

impl Operation for PutLegacyFlow {
    const NAME: &'static str = "create_flow";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/flows/{org}";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Creates or updates a flow, with a list of names";
    const DEPRECATED: bool = true;
    type Body = Json<LegacyFlowInput>;
    type Output = Put<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        let LegacyFlowInput { name, description, visibility, template } = input;
        let names: Vec<String> = template.0.into_iter().map(ShortText::into_string).collect();
        let template = Uploaded::of_names(&names)?;
        let input = FlowInput { name, description, visibility };
        let created = cx.retry(|| put(&input, Some(&template), cx)).await?;
        cx.cache_recorded(Some(template));
        Ok(Put { created, body: Acknowledged::Ok })
    }
}

/// Records it. Returns whether it is new.
async fn put(input: &FlowInput, template: Option<&Uploaded>, cx: &Context<'_>) -> Result<bool> {
    let known = cx.store().flow(cx.org()?, input.name.as_str()).await?;
    // A former name of another flow is free.
    let known = known.filter(|known| known.record.name == input.name);
    let known = known.map(|known| match &known.record {
        Flow { archived_at: Some(_), description, .. }
            if *description == *input.description && input.visibility.is_some() && template.is_none() =>
        {
            Ok(known)
        }
        _ => cx.unarchived(known),
    });
    let known = known.transpose().map_err(|error| error.named_by("name"))?;
    let key = Key::Flow(input.name.clone());
    let (mut record, precondition) = match &known {
        Some(known) => {
            (known.record.clone(), Precondition::Revision(RecordKind::Flow, known.record.id, known.revision))
        }
        None => (Flow::named(input.name.clone(), "name", cx)?, Precondition::Vacant(key)),
    };
    record.description = input.description.clone().into_string();
    record.visibility = input.visibility.unwrap_or(record.visibility);
    let mut draft = Draft::default();
    if let Some(template) = template {
        draft.add_template_text(template, cx).await?;
        if template.reference != record.template {
            record.template = template.reference;
            record.template_id = cx.new_id();
        }
    }
    let created = known.is_none();
    if known.is_none_or(|known| known.record != record) {
        let fact = if created { Fact::FlowCreated { record } } else { Fact::FlowUpdated { record } };
        draft.fact_if(fact, precondition);
    }
    cx.record(draft).await?;
    Ok(created)
}

/// Renames a flow. It is also found by its former names, until another flow takes them. A present name of
/// another flow is 400; a former name of another flow is allowed. A flow has at most 20 former names: more
/// are 400. Policy conditions are evaluated for every name of the flow; a condition whose results differ is
/// unknown. An archived flow is not found.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct RenameFlow {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
}

/// The document that renames a flow.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[schemars(rename = "RenameFlow")]
pub struct FlowRenaming {
    /// The new name, unique in the organization.
    pub new_name: FlowName,
}

impl Operation for RenameFlow {
    const NAME: &'static str = "rename_flow";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/flows/{org}/{flow_name}/rename";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Renames a flow";
    type Body = Json<FlowRenaming>;
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, Json(input): Self::Body, cx: &Context<'_>) -> Result<Self::Output> {
        check_not_reserved(&input.new_name, "new_name")?;
        cx.retry(|| rename(&self.flow_name, &input.new_name, cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

/// The most former names of a flow. The limit exists because conditions are evaluated for each of them.
const MAX_FORMER_NAMES: usize = 20;

async fn rename(name: &FlowName, new_name: &FlowName, cx: &Context<'_>) -> Result<()> {
    let Current { revision, record } = cx.unarchived(cx.flow(name.as_str()).await?)?;
    if record.name == *new_name {
        return Ok(());
    }
    let holder = cx.store().flow(cx.org()?, new_name.as_str()).await?;
    if let Some(holder) = holder.filter(|holder| holder.record.name == *new_name) {
        // A concurrent request may have made the same change since the flow was read.
        if holder.record.id == record.id {
            return Ok(());
        }
        return Err(Error::invalid("new_name", format!("'{new_name}' is the name of another flow")));
    }
    let precondition = Precondition::Revision(RecordKind::Flow, record.id, revision);
    let was = record.name.clone();
    let record = record.renamed(new_name.clone());
    if record.former_names.len() > MAX_FORMER_NAMES {
        let text = format!("A flow has at most {MAX_FORMER_NAMES} former names");
        return Err(Error::invalid("new_name", text));
    }
    cx.record(Draft::of(Fact::FlowRenamed { record, was }, precondition)).await?;
    Ok(())
}

/// Archives a flow. Lists leave it out, and it accepts no reports and no changes except of its visibility.
/// Callers of other organizations can no longer read it, even if it is public. Its names become free again.
/// Its new name is `<name>-archived-at-<epoch seconds>`; the flow and everything reported to it can still be
/// read by that name. Archiving cannot be undone.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ArchiveFlow {
    /// The organization's name.
    pub org: OrgName,
    /// The flow's name.
    pub flow_name: FlowName,
}

impl Operation for ArchiveFlow {
    const NAME: &'static str = "archive_flow";
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/flows/{org}/{flow_name}/archive";
    const SCOPE: Scope = Scope::Write;
    const SUMMARY: &'static str = "Archives a flow";
    type Body = ();
    type Output = Json<Acknowledged>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        cx.retry(|| archive(&self.flow_name, cx)).await?;
        Ok(Json(Acknowledged::Ok))
    }
}

async fn archive(name: &FlowName, cx: &Context<'_>) -> Result<()> {
    let Current { revision, record } = cx.unarchived(cx.flow(name.as_str()).await?)?;
    let invalid = |error: InvalidText| Error::invalid("flow_name", error.to_string());
    let mut archived = record.archived(cx.now(), "").map_err(invalid)?;
    if cx.store().flow(cx.org()?, archived.name.as_str()).await?.is_some() {
        // Another flow of the same name was archived in the same second.
        archived = record.archived(cx.now(), &format!("-{}", cx.new_id())).map_err(invalid)?;
    }
    let precondition = Precondition::Revision(RecordKind::Flow, record.id, revision);
    cx.record(Draft::of(Fact::FlowArchived { record: archived, was: record.name }, precondition)).await?;
    Ok(())
}
