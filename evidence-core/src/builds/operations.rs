//! Operations on builds.

use std::collections::BTreeMap;

use futures_util::future::try_join3;
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::auth::actor::Scope;
use crate::bounded::ShortText;
use crate::builds::store::{Build, BuildFilter};
use crate::builds::view::{BuildLinks, BuildList, BuildRepo, BuildStatistics, BuildView};
use crate::context::Context;
use crate::error::Result;
use crate::flows::record::Flow;
use crate::id::Id;
use crate::name::OrgName;
use crate::operation::{Json, JsonList, Method, Operation};
use crate::page::{Link, PageLinks, PageNumber, PerPage};
use crate::repos::operations::RepoChoice;
use crate::store::batch::distinct;
use crate::time::{Seconds, SentSeconds, Timestamp};
use crate::trails::record::TrailLabel;

/// Lists the builds of an organization or a repo in a time window, newest first in the order of the ledger,
/// one page at a time. A build is the first report of an artifact; a later report of the same content is not
/// a build.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ListBuilds {
    /// The organization's name.
    pub org: OrgName,
    /// The page number, from 1. Defaults to 1.
    pub page: Option<PageNumber>,
    /// Builds per page. Defaults to 15. With 0, returns the counts only.
    pub per_page: Option<PerPage<50, 0>>,
    /// Returns only builds of repos with this id at their host; at most the first thousand repos.
    /// `repo_inner_id` takes precedence.
    pub repo_id: Option<ShortText>,
    /// Returns only builds of repos of this name; at most the first thousand repos. Either id takes
    /// precedence.
    pub repo_name: Option<ShortText>,
    /// Returns only builds of the repo with this id in this API.
    pub repo_inner_id: Option<ShortText>,
    /// The start of the range, inclusive, in epoch seconds. Defaults to 28 days before `end_ts`.
    pub start_ts: Option<SentSeconds>,
    /// The end of the range, inclusive, in epoch seconds. Defaults to now.
    pub end_ts: Option<SentSeconds>,
}

/// The default number of builds on a page.
const PER_PAGE: u64 = 15;

/// The default length of a window, in microseconds.
const WINDOW: i64 = 28 * 24 * 60 * 60 * 1_000_000;

/// Returns the filter for the selected repos and the given window.
async fn filter(
    repo: RepoChoice<'_>,
    start: Option<SentSeconds>,
    end: Option<SentSeconds>,
    cx: &Context<'_>,
) -> Result<BuildFilter> {
    let to = end.map_or(cx.now(), |SentSeconds(at)| at);
    let before = || Timestamp::from_micros(to.as_micros().saturating_sub(WINDOW));
    let from = start.map_or_else(before, |SentSeconds(at)| at);
    Ok(BuildFilter { repos: cx.chosen_repos(repo).await?, from, to })
}

impl Operation for ListBuilds {
    const NAME: &'static str = "list_builds";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/builds/{org}";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Lists builds, newest first";
    type Body = ();
    type Output = Json<BuildList>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let (page, per_page) = (self.page.unwrap_or_default(), self.per_page.map_or(PER_PAGE, PerPage::get));
        let filter = filter(self.repo(), self.start_ts, self.end_ts, cx).await?;
        let found = cx.store().builds(cx.org()?, &filter, page.request(per_page)).await?;
        let (total_pages, total_count) = (found.pages(per_page), found.total);
        let builds = views(found.items, cx).await?;
        let address = cx.api_url(&format!("builds/{}", self.org));
        let [start, end] = [self.start_ts, self.end_ts].map(|at| at.map(|SentSeconds(at)| at.decimal()));
        let window = [("start_ts", start.as_deref()), ("end_ts", end.as_deref())];
        let query = self.repo().query().into_iter().chain(window);
        let query = query.filter_map(|(name, value)| Some((name, value?)));
        let _links = PageLinks::new(&address, query, page.get(), per_page, total_pages);
        Ok(Json(BuildList { _links, page: page.get(), per_page, total_pages, total_count, builds }))
    }
}

impl ListBuilds {
    fn repo(&self) -> RepoChoice<'_> {
        RepoChoice {
            inner_id: self.repo_inner_id.as_deref(),
            repo_id: self.repo_id.as_deref(),
            name: self.repo_name.as_deref(),
        }
    }
}

/// Returns these builds for a response, in order. A build whose flow cannot be read is left out, as in every
/// list.
async fn views(builds: Vec<Build>, cx: &Context<'_>) -> Result<Vec<BuildView>> {
    let (store, org) = (cx.store(), cx.org()?);
    let flows = distinct(builds.iter().map(|build| build.flow));
    let trails = distinct(builds.iter().filter_map(|build| build.trail));
    let repos = distinct(builds.iter().filter_map(|build| build.repo));
    let (flows, trails, repos) = try_join3(
        store.flows_by_id(org, &flows),
        store.trail_labels(org, &trails),
        store.repos_by_id(org, &repos),
    )
    .await?;
    let flows: BTreeMap<Id, Flow> = flows.into_iter().map(|flow| (flow.id, flow)).collect();
    let trails: BTreeMap<Id, TrailLabel> = trails.into_iter().collect();
    let repos: BTreeMap<Id, BuildRepo> = repos.iter().map(|repo| (repo.id, BuildRepo::from(repo))).collect();
    let org_name = &cx.org_access()?.name;
    let view = |build: Build| {
        let flow_name = flows.get(&build.flow)?.name.to_string();
        let artifact =
            cx.api_url(&format!("artifacts/{org_name}/{flow_name}/fingerprint/{}", build.fingerprint));
        let html = cx.artifact_url(&flow_name, &build.fingerprint, build.report);
        Some(BuildView {
            created_at: build.at.seconds(),
            fingerprint: build.fingerprint,
            flow_name,
            trail_name: build
                .trail
                .and_then(|trail| trails.get(&trail))
                .map(|trail| trail.name.to_string())
                .unwrap_or_default(),
            repo_info: build.repo.and_then(|repo| repos.get(&repo).cloned()),
            _links: BuildLinks { artifact: Link { href: artifact }, html: Link { href: html } },
        })
    };
    Ok(builds.into_iter().filter_map(view).collect())
}

/// Gets the times of the builds of an organization or a repo in a time window, for aggregation by day or
/// week. A build is the first report of an artifact; a later report of the same content is not a build.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct GetBuildStatistics {
    /// The organization's name.
    pub org: OrgName,
    /// Considers only repos with this id at their host; at most the first thousand. `repo_inner_id` takes
    /// precedence.
    pub repo_id: Option<ShortText>,
    /// Considers only repos of this name; at most the first thousand. Either id takes precedence.
    pub repo_name: Option<ShortText>,
    /// Considers only the repo with this id in this API.
    pub repo_inner_id: Option<ShortText>,
    /// The start of the range, inclusive, in epoch seconds. Defaults to 28 days before `end_ts`.
    pub start_ts: Option<SentSeconds>,
    /// The end of the range, inclusive, in epoch seconds. Defaults to now.
    pub end_ts: Option<SentSeconds>,
}

/// The most times in a response.
const MAX_TIMES: u64 = 100_000;

impl Operation for GetBuildStatistics {
    const NAME: &'static str = "build_statistics";
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/builds/{org}/statistics";
    const SCOPE: Scope = Scope::Read;
    const SUMMARY: &'static str = "Gets the times of builds";
    type Body = ();
    type Output = JsonList<Seconds, BuildStatistics>;

    fn org(&self) -> Option<&OrgName> {
        Some(&self.org)
    }

    async fn run(self, (): (), cx: &Context<'_>) -> Result<Self::Output> {
        let repo = RepoChoice {
            inner_id: self.repo_inner_id.as_deref(),
            repo_id: self.repo_id.as_deref(),
            name: self.repo_name.as_deref(),
        };
        let filter = filter(repo, self.start_ts, self.end_ts, cx).await?;
        let times = cx.store().build_times(cx.org()?, &filter, MAX_TIMES).await?;
        let statistics = BuildStatistics {
            start_ts: filter.from.seconds(),
            end_ts: filter.to.seconds(),
            count: times.total,
            built_at: Vec::new(),
        };
        let times = stream::iter(times.items.into_iter().map(|at| Ok(at.seconds())));
        JsonList::with_first_item(times, statistics, &cx.compute()).await
    }
}
