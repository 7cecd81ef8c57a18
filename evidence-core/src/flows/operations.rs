//! Operations on flows.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::TryFutureExt;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::bounded::{Description, List, ShortText, TagText};
use crate::decode::{self, InvalidField};
use crate::error::{Error, Resource, Result};
use crate::fact::Fact;
use crate::fact::names::{Guard, Key, RecordKind};
use crate::fact::payload::UnknownFields;
use crate::flows::record::{Flow, Visibility};
use crate::flows::store::FlowFilter;
use crate::flows::templates::Uploaded;
use crate::flows::view::{FlowView, ListedFlow, views};
use crate::id::Id;
use crate::json::CheckedJson;
use crate::name::{FlowName, OrgName};
use crate::operation::{Acknowledged, Document, Form, FormParts, Json, JsonList, Method, Operation, Put};
use crate::page::{PageNumber, PageRequest, Pagination, PerPage};
use crate::service::{Context, Draft};
use crate::store::entry::Current;
use crate::tags::record::{TagFilter, Tags};

/// Names that a literal path would shadow.
const RESERVED: [&str; 2] = ["template_file", "list_attestations_for_criteria"];

impl Flow {
    /// A flow of this name, which `field` gave, as a report makes it: private, with the empty template.
    pub(crate) fn named(name: FlowName, field: &str, cx: &Context<'_>) -> Result<Self> {
        if RESERVED.contains(&name.as_str()) {
            return Err(Error::invalid(field, format!("'{name}' is a reserved word of the API")));
        }
        Ok(Self {
            id: cx.new_id(),
            name,
            description: String::new(),
            visibility: Visibility::Private,
            template: None,
            template_id: cx.new_id(),
            repo_url: String::new(),
            tags: Tags::new(),
            created_at: cx.now(),
            created_by: cx.actor(),
            unknown: UnknownFields::default(),
        })
    }
}

/// What tells of a flow what was reported to it.
#[derive(Debug)]
pub(crate) struct FlowLabel {
    pub(crate) name: FlowName,
    pub(crate) tags: Arc<Tags>,
}

/// So many flows are read at once for their labels: each has a description, which may be long.
const LABELLED: usize = 32;

impl Context<'_> {
    /// The names and tags of the flows of these ids.
    pub(crate) async fn flow_labels(&self, ids: &[Id]) -> Result<BTreeMap<Id, FlowLabel>> {
        let mut labels = BTreeMap::new();
        for part in ids.chunks(LABELLED) {
            let flows = self.store().flows_by_id(self.org()?, part).await?;
            let label = |Flow { id, name, tags, .. }| (id, FlowLabel { name, tags: Arc::new(tags) });
            labels.extend(flows.into_iter().map(label));
        }
        Ok(labels)
    }

    /// The flow of this name, or [`Error::NotFound`].
    pub(crate) async fn flow(&self, name: &str) -> Result<Current<Flow>> {
        let flow = self.store().flow(self.org()?, name).await?;
        Ok(flow.ok_or_else(|| self.missing(Resource::Flow, name))?)
    }
}

/// Lists the flows of an organization by name: all of them, or a page in an envelope when `page` or `per_page` is
/// given. To search for an empty name is 400.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListFlows {
    /// The organization's name.
    pub org: OrgName,
    /// A substring of the name.
    pub search_by_name: Option<ShortText>,
    /// Whether case matters to `search_by_name`: true when left out.
    pub case_sensitive: Option<bool>,
    /// Which page, from 1.
    pub page: Option<PageNumber>,
    /// Flows a page: 20 when `page` alone is given.
    pub per_page: Option<PerPage<100>>,
    /// `key` or `key:value`; repeatable, all must match.
    #[serde(default)]
    pub tag: List<TagText>,
}

impl Operation for ListFlows {
    const NAME: &'static str = "get_flows";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/flows/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the flows of an organization";
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
        let flows = cx.store().flows(cx.org()?, &filter, request).await?;
        let pagination =
            Pagination { total: flows.total, page: page.get(), per_page, page_count: flows.pages(per_page) };
        let owned = cx.to_owned_context();
        let read = move |ids| views(ids, owned.clone()).try_flatten_stream();
        JsonList::in_batches(flows.items, paged.then_some(pagination), &cx.compute(), read).await
    }
}

/// Gets a flow by name, with its template.
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
        Ok(Json(FlowView::new(flow, &cx.org_access()?.name, &template)))
    }
}

/// Creates a flow (201), or updates the one of that name (200). The template file is its template from then on;
/// without a file a new flow has the template `version: 1`, and an existing one keeps its own. Trails that were begun
/// keep theirs until they are put again.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct PutFlow {
    /// The organization's name.
    pub org: OrgName,
}

/// What a flow is created or updated with.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct FlowInput {
    /// The flow's name. One that exists is updated.
    pub name: FlowName,
    /// What it is for.
    pub description: Description,
    /// Who may read it: `private` for a new flow when left out; an existing one keeps its own.
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
        cx.remember_kept(template);
        Ok(Put { created, body: Acknowledged::Ok })
    }
}

/// Records it; answers whether it is new.
async fn put(input: &FlowInput, template: Option<&Uploaded>, cx: &Context<'_>) -> Result<bool> {
    let known = cx.store().flow(cx.org()?, input.name.as_str()).await?;
    let key = Key::Flow(input.name.clone());
    let (mut record, guard) = match &known {
        Some(known) => {
            (known.record.clone(), Guard::Revision(RecordKind::Flow, known.record.id, known.revision))
        }
        None => (Flow::named(input.name.clone(), "name", cx)?, Guard::Vacant(key)),
    };
    record.description = input.description.clone().into_string();
    record.visibility = input.visibility.unwrap_or(record.visibility);
    let mut draft = Draft::default();
    if let Some(template) = template {
        draft.keep_template(template, cx).await?;
        if template.reference != record.template {
            record.template = template.reference;
            record.template_id = cx.new_id();
        }
    }
    let created = known.is_none();
    if known.is_none_or(|known| known.record != record) {
        let fact = if created { Fact::FlowCreated { record } } else { Fact::FlowUpdated { record } };
        draft.guarded(fact, guard);
    }
    cx.record(draft).await?;
    Ok(created)
}
