//! Decisions about a control: attestations of whether its requirements are met.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::try_join;
use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attestations::record::{Attestation, Binding};
use crate::attestations::store::{DecisionFilter, DecisionRow};
use crate::attestations::view::{AttestationView, views};
use crate::auth::actor::Scope;
use crate::bounded::{List, ShortText};
use crate::context::Context;
use crate::controls::view::PER_PAGE;
use crate::error::{Resource, Result};
use crate::flows::operations::FlowLabel;
use crate::flows::parsed::Parsed;
use crate::id::Id;
use crate::name::{AttestationName, ControlIdentifier, Fingerprint, FlowName, OrgName, TrailName};
use crate::operation::{Envelope, Json, JsonList, Method, Operation, around_last};
use crate::page::{PageLinks, PageNumber, PerPage, SortDirection};
use crate::rules::compliance::{self, ReportedArtifact, ReportedAttestation};
use crate::store::batch::distinct;
use crate::time::{Seconds, SentSeconds};
use crate::trails::evaluation::evaluated;
use crate::trails::store::TrailContents;

/// Lists the decisions about a control in the order in which they were recorded, newest first by default, one
/// page at a time. Includes decisions that were recorded before the control existed.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListControlDecisions {
    /// The organization's name.
    pub org: OrgName,
    /// The control's identifier.
    pub identifier: ControlIdentifier,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Decisions per page. Defaults to 15.
    pub per_page: Option<PerPage<100>>,
    /// Returns only compliant or only non-compliant decisions, by their own verdict, superseded ones
    /// included. Without it, returns both.
    pub is_compliant: Option<bool>,
    /// Returns only decisions recorded at this time or later, in epoch seconds.
    pub from_timestamp: Option<SentSeconds>,
    /// Returns only decisions recorded at this time or before, in epoch seconds.
    pub to_timestamp: Option<SentSeconds>,
    /// The id of a flow. Repeatable; any may match. A flow that does not exist is 404.
    #[serde(default)]
    pub flow_id: List<ShortText>,
    /// The order by time: `desc` (the default) or `asc`.
    pub sort_direction: Option<SortDirection>,
}

/// A decision about a control in a list.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ControlDecisionSummary {
    /// Its id, which is the id of the attestation.
    pub decision_id: Id,
    /// The name of the attestation.
    pub attestation_name: AttestationName,
    /// The verdict of the decision: whether the requirements of the control are met. It counts only if
    /// `superseded` is false.
    pub is_compliant: bool,
    /// Whether a newer attestation of its name superseded the decision in its trail, so that it no longer counts. The
    /// newer one may be an override, or an attestation of another type.
    pub superseded: bool,
    /// The author and the reason of the override in its trail: `overridden by NAME: REASON`. Absent without
    /// an override.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub override_info: Option<String>,
    /// The number of the control's latest version at the time of the decision; null without such a control.
    pub control_version: Option<u64>,
    /// When it was recorded, in epoch seconds.
    pub created_at: Seconds,
    /// The name of the user or service account that reported it.
    pub created_by: String,
    /// The id of the flow.
    pub flow_id: Id,
    /// The flow of its trail.
    pub flow_name: FlowName,
    /// The trail it was reported to.
    pub trail_name: TrailName,
    /// The template name of the artifact that it is about. Null if it is about the trail, or about an
    /// artifact without such a name.
    pub artifact_name: Option<String>,
    /// The SHA-256 of the artifact that it is about. Null if it is about the trail, or about an artifact that
    /// was not reported yet.
    pub artifact_fingerprint: Option<Fingerprint>,
}

/// A decision about a control.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ControlDecision {
    /// The keys that lists show too.
    #[serde(flatten)]
    pub summary: ControlDecisionSummary,
    /// The attestation.
    pub attestation: AttestationView,
}

/// A page of the decisions about a control.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ControlDecisionList {
    /// This page's number, from 1.
    pub page: u64,
    /// Decisions per page, as requested.
    pub per_page: u64,
    /// Number of pages.
    pub total_pages: u64,
    /// Number of decisions on all pages.
    pub total_count: u64,
    /// This page and its neighbours.
    pub _links: PageLinks,
    /// The decisions of the page.
    pub decisions: Vec<ControlDecisionSummary>,
}

impl Envelope<ControlDecisionSummary> for ControlDecisionList {
    type Document = Self;

    fn around(&self) -> Result<(Vec<u8>, Vec<u8>)> {
        around_last(self)
    }
}

impl Operation for ListControlDecisions {
    const NAME: &'static str = "list_control_decisions";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/controls/{org}/{identifier}/decisions";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the decisions about a control";
    type Body = ();
    type Output = JsonList<ControlDecisionSummary, ControlDecisionList>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let (page, per_page) = (self.page.unwrap_or_default(), self.per_page.map_or(PER_PAGE, PerPage::get));
        cx.control(&self.identifier).await?;
        let (identifier, request) = (self.identifier.as_str(), page.request(per_page));
        let filter = self.filter(cx).await?;
        let found = cx.store().decisions(cx.org()?, identifier, &filter, request).await?;
        let (total_pages, total_count) = (found.pages(per_page), found.total);
        let address = cx.api_url(&format!("controls/{}/{identifier}/decisions", self.org));
        let query = self.query();
        let query = query.iter().map(|(name, value)| (*name, value.as_str()));
        let _links = PageLinks::new(&address, query, page.get(), per_page, total_pages);
        let decisions = Vec::new();
        let list =
            ControlDecisionList { page: page.get(), per_page, total_pages, total_count, _links, decisions };
        let data = ViewData::read(&found.items, cx).await?;
        let summaries = Vec::from_iter(found.items.into_iter().filter_map(|decision| data.summary(decision)));
        JsonList::with_first_item(stream::iter(summaries.into_iter().map(Ok)), list, &cx.compute()).await
    }
}

impl ListControlDecisions {
    async fn filter(&self, cx: &Context<'_>) -> Result<DecisionFilter> {
        let asked = Vec::from_iter(self.flow_id.0.iter().map(|flow| (flow, flow.parse::<Id>().ok())));
        let flows = distinct(asked.iter().filter_map(|(_, id)| *id));
        let known = if flows.is_empty() { BTreeMap::new() } else { cx.flow_labels(&flows).await? };
        let is_unknown = |id: Option<Id>| id.is_none_or(|id| !known.contains_key(&id));
        if let Some((unknown, _)) = asked.iter().find(|(_, id)| is_unknown(*id)) {
            return Err(cx.missing(Resource::Flow, unknown.as_str()).named_by("query.flow_id").into());
        }
        Ok(DecisionFilter {
            is_compliant: self.is_compliant,
            from: self.from_timestamp.map(|from| from.0),
            to: self.to_timestamp.map(|to| to.0),
            flows: (!self.flow_id.0.is_empty()).then_some(flows),
            direction: self.sort_direction.unwrap_or(SortDirection::Desc),
        })
    }

    /// Returns the filter and sort parameters, for links to other pages.
    fn query(&self) -> Vec<(&'static str, String)> {
        let seconds = |at: SentSeconds| at.0.decimal();
        let given = [
            ("is_compliant", self.is_compliant.map(|is_compliant| is_compliant.to_string())),
            ("from_timestamp", self.from_timestamp.map(seconds)),
            ("to_timestamp", self.to_timestamp.map(seconds)),
            ("sort_direction", self.sort_direction.map(|direction| direction.as_str().to_owned())),
        ];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.chain(self.flow_id.0.iter().map(|flow| ("flow_id", flow.to_string()))).collect()
    }
}

/// Gets a decision about a control.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetControlDecision {
    /// The organization's name.
    pub org: OrgName,
    /// The control's identifier.
    pub identifier: ControlIdentifier,
    /// The decision's id.
    pub decision_id: ShortText,
}

impl Operation for GetControlDecision {
    const NAME: &'static str = "get_control_decision";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/controls/{org}/{identifier}/decisions/{decision_id}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets a decision about a control";
    type Body = ();
    type Output = Json<ControlDecision>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        cx.control(&self.identifier).await?;
        let found = match self.decision_id.parse() {
            Ok(id) => cx.store().attestation(cx.org()?, id).await?,
            Err(_) => None,
        };
        let is_about = |one: &Attestation| one.details.control() == Some(self.identifier.as_str());
        let missing = || cx.missing(Resource::Decision, self.decision_id.as_str());
        let found = found.filter(is_about).ok_or_else(missing)?;
        let row = DecisionRow::from(&found);
        let summary = ViewData::read(std::slice::from_ref(&row), cx).await?.summary(row);
        let attestation = views(vec![found.with_data(cx).await?], cx).await?.into_iter().next();
        let (summary, attestation) = summary.zip(attestation).ok_or_else(missing)?;
        Ok(Json(ControlDecision { summary, attestation }))
    }
}

/// The flows and trails of some decisions.
struct ViewData {
    flows: BTreeMap<Id, FlowLabel>,
    trails: BTreeMap<Id, TrailName>,
    standing: Standing,
}

/// The standing of some decisions in their trails, by id.
#[derive(Default)]
struct Standing {
    /// The decisions whose verdicts count. Decisions in unreadable trails are not included.
    deciding: BTreeSet<String>,
    /// The author and the reason of each override.
    overridden: BTreeMap<String, String>,
}

async fn standing(decisions: &[DecisionRow], cx: &Context<'_>) -> Result<Standing> {
    let trails = distinct(decisions.iter().map(|decision| decision.trail));
    let names: BTreeSet<String> = decisions.iter().map(|decision| decision.name.to_string()).collect();
    let names = Arc::new(names);
    let ids: Arc<BTreeSet<String>> =
        Arc::new(decisions.iter().map(|decision| decision.id.to_string()).collect());
    let find = move |(contents, _): (TrailContents, Arc<Parsed>)| {
        let artifacts = Vec::from_iter(contents.artifacts.iter().map(ReportedArtifact::from));
        let of_names = contents.attestations.iter().filter(|row| names.contains(&row.name));
        let attestations = Vec::from_iter(of_names.map(ReportedAttestation::from));
        let deciding = compliance::deciding(&artifacts, &attestations, &contents.earlier_names);
        let overridden = compliance::overridden_by(&artifacts, &attestations, &contents.earlier_names);
        let overridden = overridden.into_iter().map(|(id, info)| (id.to_owned(), info.to_owned()));
        Standing {
            deciding: deciding.into_iter().filter(|id| ids.contains(*id)).map(str::to_owned).collect(),
            overridden: overridden.collect(),
        }
    };
    let mut all = Standing::default();
    for Standing { deciding, overridden } in evaluated(&trails, cx, find).await? {
        all.deciding.extend(deciding);
        all.overridden.extend(overridden);
    }
    Ok(all)
}

impl ViewData {
    async fn read(decisions: &[DecisionRow], cx: &Context<'_>) -> Result<Self> {
        let flows = distinct(decisions.iter().map(|decision| decision.flow));
        let trails = distinct(decisions.iter().map(|decision| decision.trail));
        let trails = async { Ok(cx.store().trail_labels(cx.org()?, &trails).await?) };
        let (flows, trails) = try_join(cx.flow_labels(&flows), trails).await?;
        let trails = trails.into_iter().map(|(trail, label)| (trail, label.name)).collect();
        Ok(Self { flows, trails, standing: standing(decisions, cx).await? })
    }

    /// Returns the summary; `None` if its flow or its trail cannot be read.
    fn summary(&self, decision: DecisionRow) -> Option<ControlDecisionSummary> {
        let DecisionRow { id, flow, trail, name, is_compliant, control_version, binding, at, by } = decision;
        let (artifact_name, artifact_fingerprint) = match binding {
            Binding::Trail => (None, None),
            Binding::Artifact { fingerprint, target } => (Some(target), Some(fingerprint)),
            Binding::Named { target, .. } => (Some(target), None),
        };
        Some(ControlDecisionSummary {
            decision_id: id,
            attestation_name: name,
            is_compliant,
            superseded: !self.standing.deciding.contains(&id.to_string()),
            override_info: self.standing.overridden.get(&id.to_string()).cloned(),
            control_version,
            created_at: at.seconds(),
            created_by: by,
            flow_id: flow,
            flow_name: self.flows.get(&flow)?.name.clone(),
            trail_name: self.trails.get(&trail)?.clone(),
            artifact_name: artifact_name.filter(|name| !name.is_empty()),
            artifact_fingerprint,
        })
    }
}
