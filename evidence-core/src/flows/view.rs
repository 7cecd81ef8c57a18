//! Flows as answers carry them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::Stream;
use schemars::JsonSchema;
use serde::Serialize;

use crate::error::Result;
use crate::flows::record::{Flow, Visibility};
use crate::flows::templates::{Parsed, each_with_template};
use crate::id::Id;
use crate::name::{FlowName, OrgName};
use crate::operation::Envelope;
use crate::page::Pagination;
use crate::rules::compliance::State;
use crate::service::{Context, OwnedContext};
use crate::store::batch::sort_by_ids;
use crate::tags::record::Tags;
use crate::time::Seconds;
use crate::trails::evaluation::{Activity, newest_of_flows};

/// A flow: the repeatable process whose executions are trails.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FlowGet")]
#[non_exhaustive]
pub struct FlowView {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: FlowName,
    /// What it is for.
    pub description: String,
    /// Who may read it.
    pub visibility: Visibility,
    /// The organization's name.
    pub org: OrgName,
    /// Its template: `version: 1` where none was given.
    pub template: FlowTemplate,
    /// Where its code is: the address of the repo that was named last by a trail, an artifact or an attestation of the flow.
    /// Empty where none named one.
    pub repo_url: String,
    /// Its tags: key to value.
    pub tags: Tags,
}

/// A flow's template as it was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
#[non_exhaustive]
pub enum FlowTemplate {
    /// The YAML text, as uploaded.
    Text(String),
    /// The names that older clients send in its place.
    Names(Vec<String>),
}

impl From<&Parsed> for FlowTemplate {
    fn from(parsed: &Parsed) -> Self {
        match parsed.template.names() {
            Some(names) => Self::Names(names.to_vec()),
            None => Self::Text(parsed.text.clone()),
        }
    }
}

impl FlowView {
    pub(super) fn new(flow: Flow, repo_url: String, org: &OrgName, template: &Parsed) -> Self {
        let Flow { id, name, description, visibility, tags, .. } = flow;
        let template = template.into();
        Self { id, name, description, visibility, org: org.clone(), template, repo_url, tags }
    }
}

/// A flow in a list: also when something last happened in it, and the state of its newest trail.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "FlowList")]
#[non_exhaustive]
pub struct ListedFlow {
    /// The flow.
    #[serde(flatten)]
    pub flow: FlowView,
    /// When something last happened in its newest trail, or when it was created, in epoch seconds.
    pub latest_activity_at: Seconds,
    /// The state of its newest trail; null without trails.
    pub latest_state: Option<State>,
}

/// A list of flows: plain, or a page of it when `page` or `per_page` was given.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "FlowListResponse")]
#[serde(untagged)]
#[non_exhaustive]
pub enum FlowList {
    /// Every flow.
    All(Vec<ListedFlow>),
    /// One page.
    Page {
        /// The flows of the page.
        data: Vec<ListedFlow>,
        /// Which page it is.
        pagination: Pagination,
    },
}

/// Flows of a list, in its order, as answers carry them.
pub(super) async fn views(
    ids: Vec<Id>,
    owned: OwnedContext,
) -> Result<impl Stream<Item = Result<ListedFlow>> + Send + 'static> {
    let cx = owned.context();
    let mut flows = cx.store().flows_by_id(cx.org()?, &ids).await?;
    let newest = newest_of_flows(&ids, &cx).await?;
    let mut repo_urls = BTreeMap::from_iter(cx.store().flow_repo_urls(cx.org()?, &ids).await?);
    sort_by_ids(&mut flows, &ids, |flow| flow.id);
    let with_activity = |flow: Flow| {
        let repo_url = repo_urls.remove(&flow.id).unwrap_or_default();
        (flow.template, (newest.get(&flow.id).copied(), repo_url, flow))
    };
    let flows = flows.into_iter().map(with_activity).collect();
    Ok(each_with_template(flows, owned.clone(), |_, _| 0, listed))
}

impl Envelope<ListedFlow> for Option<Pagination> {
    type Document = FlowList;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        self.as_ref().map_or(Ok((Vec::new(), Vec::new())), Pagination::around_data)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "a template is handed over")]
fn listed(
    (activity, repo_url, flow): (Option<Activity>, String, Flow),
    template: Arc<Parsed>,
    cx: &Context<'_>,
) -> Result<ListedFlow> {
    Ok(ListedFlow {
        latest_activity_at: activity.map_or(flow.created_at, |activity| activity.at).seconds(),
        latest_state: activity.map(|activity| activity.state),
        flow: FlowView::new(flow, repo_url, &cx.org_access()?.name, &template),
    })
}
