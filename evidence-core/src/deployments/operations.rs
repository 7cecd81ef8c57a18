//! Operations on deployments.

use std::collections::BTreeMap;
use std::slice;

use futures_util::future::try_join4;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::bounded::{List, ShortText};
use crate::builds::view::BuildRepo;
use crate::context::Context;
use crate::deployments::store::{Deployment, DeploymentFilter, DeploymentScope};
use crate::deployments::view::{
    DeploymentFrequency, DeploymentLinks, DeploymentList, DeploymentPage, DeploymentStatistics,
    DeploymentView, EnvironmentDeployments,
};
use crate::environments::operations::drop_archived;
use crate::environments::record::Environment;
use crate::error::{Resource, Result};
use crate::id::Id;
use crate::name::{EnvironmentName, Fingerprint, OrgName};
use crate::operation::{Json, Method, Operation};
use crate::page::{Link, Page, PageLinks, PageNumber, PerPage};
use crate::repos::operations::RepoChoice;
use crate::snapshots::key::ArtifactKey;
use crate::snapshots::sources::{DeploymentDiff, Sources, WithReplaced, in_parts, read_replaced};
use crate::snapshots::store::Start;
use crate::store::batch::distinct;
use crate::time::{SentSeconds, SentTime, Timestamp};
use crate::trails::record::TrailLabel;

/// The default number of deployments on a page.
const PER_PAGE: u64 = 15;

/// The default number on a page of an environment's deployments.
const PAGE_SIZE: u64 = 50;

const DAY: i64 = 24 * 60 * 60 * 1_000_000;

/// The default length of a window, in microseconds.
const WINDOW: i64 = 28 * DAY;

/// The default length of the window for an environment's deployments, in microseconds.
const ENVIRONMENT_WINDOW: i64 = 30 * DAY;

/// The most times in a response.
const MAX_TIMES: u64 = 100_000;

/// The most environments in one request.
const MAX_ENVIRONMENTS: usize = 100;

/// Returns the window from `start` to `end`. Defaults: `length` before the end, and now.
fn window(
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    length: i64,
    cx: &Context<'_>,
) -> (Timestamp, Timestamp) {
    let to = end.unwrap_or_else(|| cx.now());
    let from = start.unwrap_or_else(|| Timestamp::from_micros(to.as_micros().saturating_sub(length)));
    (from, to)
}

/// Returns the environment itself or, for a logical one, its members, because only physical environments have
/// deployments. Archived members are left out.
async fn physical(environment: Environment, cx: &Context<'_>) -> Result<Vec<Id>> {
    if environment.kind.is_physical() {
        return Ok(vec![environment.id]);
    }
    let mut members = environment.included;
    drop_archived(&mut members, cx).await?;
    Ok(members)
}

/// A page of a filtered list, with the parameters for its envelope.
struct Paging<'q> {
    address: String,
    page: PageNumber,
    per_page: u64,
    start: Option<SentSeconds>,
    end: Option<SentSeconds>,
    /// The other parameters.
    query: Vec<(&'static str, &'q str)>,
}

impl Paging<'_> {
    async fn list(self, filter: &DeploymentFilter, cx: &Context<'_>) -> Result<Json<DeploymentList>> {
        let Self { address, page, per_page, start, end, query } = self;
        let found = cx.store().deployments(cx.org()?, filter, page.request(per_page)).await?;
        let (total_pages, total_count) = (found.pages(per_page), found.total);
        let deployments = views(found.items, cx).await?;
        let [start, end] = [start, end].map(|at| at.map(|SentSeconds(at)| at.decimal()));
        let window = [("start_ts", start.as_deref()), ("end_ts", end.as_deref())];
        let window = window.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let query = query.into_iter().chain(window);
        let _links = PageLinks::new(&address, query, page.get(), per_page, total_pages);
        Ok(Json(DeploymentList { _links, page: page.get(), per_page, total_pages, total_count, deployments }))
    }
}

/// Lists the deployments of an organization in a time window, newest first in the order of the ledger, one
/// page at a time. A deployment is an artifact that starts running in an environment; an artifact that keeps
/// running is not deployed again.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListDeployments {
    /// The organization's name.
    pub org: OrgName,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Deployments per page. Defaults to 15. With 0, returns the counts only.
    pub per_page: Option<PerPage<50, 0>>,
    /// Returns only deployments of repos of this name; at most the first thousand repos.
    pub repo_name: Option<ShortText>,
    /// Returns only deployments to this environment or, for a logical one, to its members.
    pub env_name: Option<ShortText>,
    /// The start of the range, inclusive, in epoch seconds. Defaults to 28 days before `end_ts`.
    pub start_ts: Option<SentSeconds>,
    /// The end of the range, inclusive, in epoch seconds. Defaults to now.
    pub end_ts: Option<SentSeconds>,
}

impl Operation for ListDeployments {
    const NAME: &'static str = "list_deployments";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/deployments/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists deployments, newest first";
    type Body = ();
    type Output = Json<DeploymentList>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let choice = RepoChoice { inner_id: None, repo_id: None, name: self.repo_name.as_deref() };
        let repos = cx.chosen_repos(choice).await?;
        let environments = match self.env_name.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => Some(physical(environment(name, "query.env_name", cx).await?, cx).await?),
            None => None,
        };
        let (scope, environments) = match (repos, environments.as_deref()) {
            (Some(repos), _) => (DeploymentScope::Repos(repos), environments),
            (None, Some([only])) => (DeploymentScope::Environment(*only), None),
            (None, _) => (DeploymentScope::Organization, environments),
        };
        let (from, to) = window(self.start_ts.map(|at| at.0), self.end_ts.map(|at| at.0), WINDOW, cx);
        let given = [("repo_name", self.repo_name.as_deref()), ("env_name", self.env_name.as_deref())];
        let paging = Paging {
            address: cx.api_url(&format!("deployments/{}", self.org)),
            page: self.page.unwrap_or_default(),
            per_page: self.per_page.map_or(PER_PAGE, PerPage::get),
            start: self.start_ts,
            end: self.end_ts,
            query: given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
        };
        paging.list(&DeploymentFilter { scope, environments, flow: None, from, to }, cx).await
    }
}

/// Returns the environment of this name. `field` is the parameter with the name.
async fn environment(name: &str, field: &'static str, cx: &Context<'_>) -> Result<Environment> {
    let known = cx.environment(name).await.map_err(|error| error.named_by(field))?;
    Ok(known.record)
}

/// Returns the environments of these names; `None` if there are no names.
async fn environments(names: &[ShortText], cx: &Context<'_>) -> Result<Option<Vec<Id>>> {
    let mut found = Vec::new();
    for name in names {
        found.extend(physical(environment(name, "query.env", cx).await?, cx).await?);
    }
    Ok((!names.is_empty()).then(|| distinct(found)))
}

/// Lists the deployments of a repo in a time window, newest first, one page at a time.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListRepoDeployments {
    /// The organization's name.
    pub org: OrgName,
    /// The repo's id in this API.
    pub repo: ShortText,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Deployments per page. Defaults to 15. With 0, returns the counts only.
    pub per_page: Option<PerPage<50, 0>>,
    /// Returns only deployments to environments of these names. Repeatable; any may match. A logical
    /// environment stands for its members.
    #[serde(default)]
    pub env: List<ShortText, MAX_ENVIRONMENTS>,
    /// The start of the range, inclusive, in epoch seconds. Defaults to 28 days before `end_ts`.
    pub start_ts: Option<SentSeconds>,
    /// The end of the range, inclusive, in epoch seconds. Defaults to now.
    pub end_ts: Option<SentSeconds>,
}

impl Operation for ListRepoDeployments {
    const NAME: &'static str = "list_repo_deployments";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/repos/{org}/{repo}/deployments";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the deployments of a repo, newest first";
    type Body = ();
    type Output = Json<DeploymentList>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let filter = of_repo(&self.repo, &self.env.0, self.start_ts, self.end_ts, cx).await?;
        let paging = Paging {
            address: cx.api_url(&format!("repos/{}/{}/deployments", self.org, self.repo.as_str())),
            page: self.page.unwrap_or_default(),
            per_page: self.per_page.map_or(PER_PAGE, PerPage::get),
            start: self.start_ts,
            end: self.end_ts,
            query: self.env.0.iter().map(|name| ("env", name.as_str())).collect(),
        };
        paging.list(&filter, cx).await
    }
}

/// Returns the filter for the deployments of the repo of this id.
async fn of_repo(
    repo: &str,
    names: &[ShortText],
    start: Option<SentSeconds>,
    end: Option<SentSeconds>,
    cx: &Context<'_>,
) -> Result<DeploymentFilter> {
    let repo = cx.repo_of_id(repo, "repo").await?;
    let environments = environments(names, cx).await?;
    let (from, to) = window(start.map(|at| at.0), end.map(|at| at.0), WINDOW, cx);
    let scope = DeploymentScope::Repos(vec![repo.id]);
    Ok(DeploymentFilter { scope, environments, flow: None, from, to })
}

/// Gets the times and lead times of a repo's deployments in a time window. There is a series for each
/// environment, for aggregation by day or week.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetRepoDeploymentStatistics {
    /// The organization's name.
    pub org: OrgName,
    /// The repo's id in this API.
    pub repo: ShortText,
    /// Considers only environments of these names. Repeatable. A logical environment stands for its members.
    #[serde(default)]
    pub env: List<ShortText, MAX_ENVIRONMENTS>,
    /// The start of the range, inclusive, in epoch seconds. Defaults to 28 days before `end_ts`.
    pub start_ts: Option<SentSeconds>,
    /// The end of the range, inclusive, in epoch seconds. Defaults to now.
    pub end_ts: Option<SentSeconds>,
}

impl Operation for GetRepoDeploymentStatistics {
    const NAME: &'static str = "get_repo_deployment_statistics";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/repos/{org}/{repo}/deployment-statistics";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets the times at which artifacts of a repo were deployed";
    type Body = ();
    type Output = Json<DeploymentStatistics>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let filter = of_repo(&self.repo, &self.env.0, self.start_ts, self.end_ts, cx).await?;
        let times = cx.store().deployment_times(cx.org()?, &filter, MAX_TIMES).await?;
        let known = distinct(times.items.iter().map(|time| time.environment));
        let mut series: BTreeMap<Id, EnvironmentDeployments> = BTreeMap::new();
        for (environment_id, label) in cx.environment_labels(&known).await? {
            let empty = EnvironmentDeployments {
                environment_id,
                environment_name: label.name,
                deployed_at: Vec::new(),
                lead_time_seconds: Vec::new(),
            };
            series.insert(environment_id, empty);
        }
        for time in times.items {
            let Some(of) = series.get_mut(&time.environment) else { continue };
            of.deployed_at.push(time.at.seconds());
            of.lead_time_seconds.extend(time.committed_at.map(|committed| time.at.since(committed)));
        }
        let mut environments = Vec::from_iter(series.into_values());
        environments.sort_by(|one, other| one.environment_name.cmp(&other.environment_name));
        Ok(Json(DeploymentStatistics {
            start_ts: filter.from.seconds(),
            end_ts: filter.to.seconds(),
            count: times.total,
            environments,
        }))
    }
}

/// Lists the deployments to an environment in a time window, newest first, one page at a time. For a logical
/// environment, lists those to its members.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListEnvironmentDeployments {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
    /// The start of the range, inclusive, in ISO 8601. Defaults to 30 days before `to`.
    pub from: Option<SentTime>,
    /// The end of the range, inclusive, in ISO 8601. Defaults to now.
    pub to: Option<SentTime>,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Deployments per page. Defaults to 50.
    pub page_size: Option<PerPage<100>>,
}

impl Operation for ListEnvironmentDeployments {
    const NAME: &'static str = "list_env_deployments";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/environments/{org}/{env_name}/deployments";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists the deployments to an environment, newest first";
    type Body = ();
    type Output = Json<DeploymentPage>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let known = cx.environment(self.env_name.as_str()).await?;
        let (page, page_size) =
            (self.page.unwrap_or_default(), self.page_size.map_or(PAGE_SIZE, PerPage::get));
        let window = window(self.from.map(|at| at.0), self.to.map(|at| at.0), ENVIRONMENT_WINDOW, cx);
        let filter = to_environment(known.record, window, cx).await?;
        let found = cx.store().deployments(cx.org()?, &filter, page.request(page_size)).await?;
        Ok(Json(DeploymentPage {
            page: page.get(),
            page_size,
            total_pages: found.pages(page_size),
            total_count: found.total,
            deployments: views(found.items, cx).await?,
        }))
    }
}

/// Returns the filter for the deployments to this environment.
async fn to_environment(
    environment: Environment,
    (from, to): (Timestamp, Timestamp),
    cx: &Context<'_>,
) -> Result<DeploymentFilter> {
    let (scope, environments) = match physical(environment, cx).await?.as_slice() {
        [only] => (DeploymentScope::Environment(*only), None),
        members => (DeploymentScope::Organization, Some(members.to_vec())),
    };
    Ok(DeploymentFilter { scope, environments, flow: None, from, to })
}

/// Gets the number and the times of deployments to an environment in the last 28 days, optionally of one
/// flow.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetDeploymentFrequency {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
    /// The id of the deployments' flow. Without it, all flows count.
    pub flow_id: Option<ShortText>,
}

impl Operation for GetDeploymentFrequency {
    const NAME: &'static str = "get_deployment_frequency";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/environments/{org}/{env_name}/deployment_frequency";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets the number of deployments to an environment over time";
    type Body = ();
    type Output = Json<DeploymentFrequency>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let known = cx.environment(self.env_name.as_str()).await?;
        let flow = match self.flow_id.as_deref().filter(|id| !id.is_empty()) {
            Some(id) => Some(flow_of_id(id, cx).await?),
            None => None,
        };
        let window = window(None, None, WINDOW, cx);
        let filter = DeploymentFilter { flow, ..to_environment(known.record, window, cx).await? };
        let Page { items, total } = cx.store().deployment_times(cx.org()?, &filter, MAX_TIMES).await?;
        #[expect(clippy::cast_precision_loss, reason = "nobody deploys 2^53 times")]
        let deployments_per_day = total as f64 / (WINDOW / DAY) as f64;
        Ok(Json(DeploymentFrequency {
            start_ts: filter.from.seconds(),
            end_ts: filter.to.seconds(),
            count: total,
            deployments_per_day,
            deployed_at: items.iter().map(|time| time.at.seconds()).collect(),
        }))
    }
}

/// Returns the id of this flow, if the flow exists.
async fn flow_of_id(id: &str, cx: &Context<'_>) -> Result<Id> {
    let missing = || cx.missing(Resource::Flow, id).named_by("query.flow_id");
    let flow = id.parse().map_err(|_| missing())?;
    match cx.store().flows_by_id(cx.org()?, &[flow]).await?.is_empty() {
        true => Err(missing().into()),
        false => Ok(flow),
    }
}

/// Gets the last deployment of an artifact to an environment, or to a member of a logical one.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetDeployment {
    /// The organization's name.
    pub org: OrgName,
    /// The environment's name.
    pub env_name: EnvironmentName,
    /// The full SHA-256 of the artifact.
    pub fingerprint: ShortText,
}

impl Operation for GetDeployment {
    const NAME: &'static str = "get_deployment";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/deployments/{org}/{env_name}/{fingerprint}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets the last deployment of an artifact to an environment";
    type Body = ();
    type Output = Json<DeploymentView>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let known = cx.environment(self.env_name.as_str()).await?;
        let found = match self.fingerprint.parse::<Fingerprint>() {
            Ok(fingerprint) => latest(known.record, &fingerprint, cx).await?,
            Err(_) => None,
        };
        let missing = || {
            let (fingerprint, environment) = (&self.fingerprint, &self.env_name);
            let sentence = format!(
                "Artifact with fingerprint '{fingerprint}' has never been deployed to environment '{environment}'"
            );
            cx.missing(Resource::Deployment, sentence)
        };
        let found = views(found.into_iter().collect(), cx).await?.pop();
        Ok(Json(found.ok_or_else(missing)?))
    }
}

/// Returns the last deployment of the artifact to the environment, or to one of its members.
async fn latest(
    environment: Environment,
    fingerprint: &Fingerprint,
    cx: &Context<'_>,
) -> Result<Option<Deployment>> {
    let (store, org) = (cx.store(), cx.org()?);
    let environment = match physical(environment, cx).await?.as_slice() {
        [only] => Some(*only),
        members => {
            let runs = store.runs(org, slice::from_ref(fingerprint), 1).await?;
            let to_members = runs.into_iter().filter(|run| members.contains(&run.environment));
            to_members.max_by_key(|run| run.from.1).map(|run| run.environment)
        }
    };
    match environment {
        Some(environment) => Ok(store.latest_deployment(org, environment, fingerprint).await?),
        None => Ok(None),
    }
}

/// Returns these deployments for a response, in order. A deployment whose environment cannot be read is left
/// out, as in every list.
async fn views(deployments: Vec<Deployment>, cx: &Context<'_>) -> Result<Vec<DeploymentView>> {
    let (store, org) = (cx.store(), cx.org()?);
    let reports = || deployments.iter().filter_map(|one| one.report.as_ref());
    let flows = distinct(reports().map(|report| report.flow));
    let trails = distinct(reports().filter_map(|report| report.trail));
    let repos = distinct(reports().filter_map(|report| report.repo));
    let environments = distinct(deployments.iter().map(|one| one.environment));
    let replaced = diffs(&deployments, cx).await?;
    let names = async { Ok(store.trail_labels(org, &trails).await?) };
    let repos = async { Ok(store.repos_by_id(org, &repos).await?) };
    let (flows, trails, repos, environments) =
        try_join4(cx.flow_labels(&flows), names, repos, cx.environment_labels(&environments)).await?;
    let trails: BTreeMap<Id, TrailLabel> = trails.into_iter().collect();
    let repos: BTreeMap<Id, BuildRepo> = repos.iter().map(|repo| (repo.id, BuildRepo::from(repo))).collect();
    let org_name = &cx.org_access()?.name;
    let view = |(one, deployment_diff): (Deployment, _)| {
        let environment = environments.get(&one.environment)?;
        let (name, index) = (&environment.name, one.snapshot);
        let report = one.report.as_ref();
        let flow_name = report.and_then(|report| flows.get(&report.flow)).map(|flow| flow.name.to_string());
        let trail = report.and_then(|report| trails.get(&report.trail?));
        let artifact = flow_name.as_ref().zip(one.fingerprint.as_ref()).map(|(flow, fingerprint)| Link {
            href: cx.api_url(&format!("artifacts/{org_name}/{flow}/fingerprint/{fingerprint}")),
        });
        let _links = DeploymentLinks {
            snapshot: Link { href: cx.api_url(&format!("snapshots/{org_name}/{name}/{index}")) },
            artifact,
            html: Link { href: cx.page_url(&format!("environments/{name}/snapshots/{index}")) },
        };
        Some(DeploymentView {
            deployed_at: one.at.seconds(),
            environment_id: one.environment,
            environment_name: name.clone(),
            environment_type: environment.kind,
            snapshot_index: index,
            artifact_name: one.name,
            compliant: one.compliant,
            flow_name: flow_name.unwrap_or_default(),
            trail_name: trail.map(|trail| trail.name.to_string()).unwrap_or_default(),
            git_commit: report.map(|report| report.commit.clone()).unwrap_or_default(),
            deployment_diff,
            lead_time_seconds: report.and_then(|report| Some(one.at.since(report.committed_at?))),
            repo_info: report.and_then(|report| repos.get(&report.repo?).cloned()),
            fingerprint: one.fingerprint,
            _links,
        })
    };
    Ok(deployments.into_iter().zip(replaced).filter_map(view).collect())
}

/// Returns the artifact that each of these replaced, in order. Reads the necessary reports in parts that fit
/// in memory.
async fn diffs(deployments: &[Deployment], cx: &Context<'_>) -> Result<Vec<Option<DeploymentDiff>>> {
    let started = |one: &Deployment| {
        let start = one.report.as_ref().map(|report| Start {
            environment: one.environment,
            flow: report.flow,
            reference: report.reference.clone(),
            since: one.snapshot,
            artifact: ArtifactKey::new(one.fingerprint.as_ref(), &one.name),
        });
        (one.clone(), start.into_iter().collect())
    };
    let traced = read_replaced(deployments.iter().map(started).collect(), cx).await?;
    let mut diffs = Vec::with_capacity(deployments.len());
    for part in in_parts(traced, cx).await? {
        let sources = Sources::read(&part, cx).await?;
        let diff = |WithReplaced { item, replaced }: WithReplaced<Deployment>| {
            let report = item.report?;
            sources.diff(report.id, replaced.get(&report.flow)?, item.snapshot)
        };
        diffs.extend(part.into_iter().map(diff));
    }
    Ok(diffs)
}
