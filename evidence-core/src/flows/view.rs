//! Flows in responses.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::Stream;
use schemars::JsonSchema;
use serde::Serialize;

use crate::context::{Context, OwnedContext};
use crate::error::Result;
use crate::flows::parsed::Parsed;
use crate::flows::record::{Flow, Visibility};
use crate::flows::templates::map_with_templates;
use crate::id::Id;
use crate::name::{FlowName, OrgName};
use crate::operation::Envelope;
use crate::page::Pagination;
use crate::rules::compliance::State;
use crate::store::batch::sort_by_ids;
use crate::tags::record::Tags;
use crate::time::Seconds;
use crate::trails::evaluation::{Activity, newest_trail_activity};

/// A flow: a repeatable process. A trail is one execution of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "FlowGet")]
#[non_exhaustive]
pub struct FlowView {
    /// Its id.
    pub id: Id,
    /// Its name, unique in the organization.
    pub name: FlowName,
    /// A description of its purpose.
    pub description: String,
    /// Its visibility.
    pub visibility: Visibility,
    /// The organization's name.
    pub org: OrgName,
    /// Its template; `version: 1` if none was given.
    pub template: FlowTemplate,
    /// The URL of its repository: the repo that the newest trail, artifact or attestation of the flow named.
    /// Empty if none named one.
    pub repo_url: String,
    /// Its tags: key to value.
    pub tags: Tags,
}

/// A flow's template, as uploaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
#[non_exhaustive]
pub enum FlowTemplate {
    /// The YAML text, as uploaded.
    Text(String),
    /// The names that older clients send instead of a template.
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

/// A flow in a list, with the time of its last activity and the state of its newest trail.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "FlowList")]
#[non_exhaustive]
pub struct ListedFlow {
    /// The flow.
    #[serde(flatten)]
    pub flow: FlowView,
    /// When its newest trail was last active, in epoch seconds. Without trails, when the flow was created.
    pub latest_activity_at: Seconds,
    /// The state of its newest trail; null without trails.
    pub latest_state: Option<State>,
}

/// A list of flows: one page with `page` or `per_page`, otherwise all.
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
        /// The position of this page in the list.
        pagination: Pagination,
    },
}

/// Returns these flows for a response, in the order of the list.
pub(super) async fn views(
    ids: Vec<Id>,
    owned: OwnedContext,
) -> Result<impl Stream<Item = Result<ListedFlow>> + Send + 'static> {
    let cx = owned.context();
    let mut flows = cx.store().flows_by_id(cx.org()?, &ids).await?;
    let newest = newest_trail_activity(&ids, &cx).await?;
    let mut repo_urls = BTreeMap::from_iter(cx.store().flow_repo_urls(cx.org()?, &ids).await?);
    sort_by_ids(&mut flows, &ids, |flow| flow.id);
    let with_activity = |flow: Flow| {
        let repo_url = repo_urls.remove(&flow.id).unwrap_or_default();
        (flow.template, (newest.get(&flow.id).copied(), repo_url, flow))
    };
    let flows = flows.into_iter().map(with_activity).collect();
    Ok(map_with_templates(flows, owned.clone(), |_, _| 0, listed))
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
